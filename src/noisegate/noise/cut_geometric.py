"""Discrete Laplace noise that is cut: its tail alone, or clamped between 0 and a top."""

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Size, whole
from noisegate.noise.geometric import discrete_laplace, geometric
from noisegate.noise.law import SATURATION


def geometric_tail(threshold: int, scale: Number, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Discrete Laplace noise given that it is at least ``threshold`` ≥ 0.

    Why: beyond 0 the law is geometric and has no memory: threshold + G.
    """
    start = whole(threshold, "threshold", least=0, below=SATURATION)
    return start + geometric(scale, size, bits=bits)


def truncated_geometric(
    value: "Int64Array | int", scale: Number, *, top: int, bits: Bits = SYSTEM
) -> Int64Array:
    """``value`` plus discrete Laplace noise, clamped to [0, top].

    Claim: for 0 ≤ n ≤ N = top: Pr[0] = α^n / (1 + α), Pr[N] = α^(N-n) / (1 + α), and the
        two-sided geometric mass in between. Why: the end masses are the tails the clamp collects.
    """
    values = np.asarray(value)
    if values.dtype.kind != "i":
        raise SpecError(
            "The values are not whole numbers.", fix="Give integers below 2**62.", about="values"
        )
    if not 1 <= top < SATURATION or values.min(initial=0) < 0 or values.max(initial=0) > top:
        raise SpecError(
            "A value lies outside [0, top].",
            fix="Use 1 <= top < 2**62 and clamp first.",
            about="values",
        )
    noise = discrete_laplace(scale, values.shape, bits=bits)
    clamped: Int64Array = np.clip(values.astype(np.int64) + noise, 0, top)
    return clamped
