"""Coins of any bias: rational, certified irrational, one bias per lane, and secret row samples."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import ceil
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, enclose, upper
from noisegate.frozen import dataclass
from noisegate.noise import law
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import CHUNK, Int64Array, Size, in_chunks, whole
from noisegate.noise.geometric import geometric_gaps
from noisegate.noise.table import table_for

_EXP_ERROR: Final = 2.0**-44  # NumPy's exp is within 4 ulp = 2**-50; a factor 64 to spare
_WORD_ERROR: Final = 2.0**-50  # a 64-bit word as a double is within 2**-53
_WORD_STEP: Final = 2.0**-63


@final
@dataclass(frozen=True)
class Coin(law.Law):
    """1 with probability p, else 0."""

    p: law.Probability
    support = (0, 1)

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if k < 0 or k >= 1:
            return (0, 0) if k < 0 else (1 << bits, 1 << bits)
        return law.enclose_probability(lambda: 1 - law.as_real(self.p), bits)


def bernoulli(p: Number | law.Certified, size: Size, *, bits: Bits = SYSTEM) -> NDArray[np.bool_]:
    """Independent coins that show True with probability exactly ``p``.

    >>> bernoulli("1/3", 4).dtype
    dtype('bool')
    """
    table = table_for(Coin(law.probability(p)))
    return in_chunks(size, lambda count: table.sample(count, bits), dtype=np.bool_)


def bernoulli_exp(
    rough: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    *,
    error: float,
    bits: Bits = SYSTEM,
) -> NDArray[np.bool_]:
    """Coins with probability e^(-γ) per lane, γ ≥ 0 given roughly by floats and exactly on demand.

    Claim: exact, provided |rough - γ| ≤ error wherever γ < 700, and rough ≥ 690 elsewhere.
    Why: u is a 64-bit uniform word. Floats decide only where the word stands clear of the
        probability by more than all errors together: 1 - error ≤ e^(-error), e^error ≤
        1 + 2 error for error ≤ 1, plus the stated errors of exp and of the conversion of the word.
        The rest, about one lane in 2**37 for error = 2**-38, is compared bit by bit.
    """
    if not 0 <= error <= 0.25:
        raise SpecError(
            "The error bound is too wide.", fix="Use a bound below 1/4.", about="error-bound"
        )
    words = bits.words(rough.size, 64)
    u = words * 2.0**-64
    # Most coins of small γ need no exponential, since e^(-γ) ≥ 1 - γ.
    accept: NDArray[np.bool_] = u * (1 + _WORD_ERROR) + _WORD_STEP < 1 - rough - (
        error + _WORD_ERROR
    )
    rest = np.flatnonzero(~accept)
    u, p = u[rest], np.exp(-rough[rest])
    slack = 2 * error + _EXP_ERROR
    accept[rest] = u * (1 + _WORD_ERROR) + _WORD_STEP < p * (1 - slack)
    reject = u * (1 - _WORD_ERROR) - _WORD_STEP > p * (1 + slack)
    for lane in rest[~(accept[rest] | reject)]:
        chance = law.Certified.exp_minus(exact(int(lane)))
        accept[lane] = falls_below(chance, int(words[lane]), 64, bits)
    return accept


def falls_below(
    p: law.Probability, v: int, width: int, bits: Bits, *, more: int = law.MORE_BITS
) -> bool:
    """Whether U < p, where v are the first ``width`` bits of U; reveals more bits as needed."""
    while True:
        low, high = enclose(lambda: law.as_real(p), bits=width)
        if v + 1 <= low:
            return True
        if v >= high:
            return False
        v, width = v << more | bits.integer(more), width + more


def sample_rows(count: int, p: Number | law.Certified, *, bits: Bits = SYSTEM) -> Int64Array:
    """Positions of a secret sample that keeps each of ``count`` rows with probability ``p``.

    Why: the gaps between kept rows are geometric, so the work is that of the sample, not the table.
    """
    count, coin = whole(count, "count", least=0, below=law.SATURATION), law.probability(p)
    if coin == 0 or count == 0:
        return np.empty(0, np.int64)
    expected = ceil(upper(partial(law.as_real, coin)) * count * 5 / 4) + 64
    at_once = max(1, min(CHUNK, expected, law.SATURATION // (count + 1)))  # their sum never wraps
    parts, last = [], -1
    while last < count:
        gaps = geometric_gaps(coin, at_once, bits=bits)
        positions = last + np.cumsum(np.minimum(gaps, count) + 1)
        parts.append(positions[positions < count])
        last = int(positions[-1])
    return np.concatenate(parts)
