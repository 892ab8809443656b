"""The discrete Gaussian: Pr[z] proportional to e^(-z² / 2σ²) on the integers, any rational σ².

Up to σ = 64 the law is tabulated; beyond, draws are proposed by a discrete Laplace law and accepted
with an exact coin [CKS20, Alg. 3]. Both are exact; the table only spares the proposals.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import ceil, isqrt, sqrt
from typing import Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, Real, enclose, positive, real
from noisegate.noise.bernoulli import bernoulli_exp
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Size, in_chunks
from noisegate.noise.geometric import discrete_laplace
from noisegate.noise.law import Law, clamp_to_unit
from noisegate.noise.table import table_for

TABLE_VARIANCE_MAX: Final = Fraction(64**2)
VARIANCE_MAX: Final = Fraction(1 << 78)
_EXPONENT_ERROR: Final = 2.0**-38


@final
@dataclass(frozen=True)
class DiscreteGaussian(Law):
    """The law itself, by certified partial sums of its weights."""

    variance: Fraction

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        sums = _partial_sums(self.variance, bits)
        if k >= len(sums):
            return (1 << bits) - 1, 1 << bits
        if k >= 0:
            return sums[k]
        low, high = self.cdf(-k - 1, bits)  # F(-k - 1) = 1 - F(k) by symmetry
        return (1 << bits) - high, (1 << bits) - low


@lru_cache(maxsize=128)
def _partial_sums(variance: Fraction, bits: int) -> list[tuple[int, int]]:
    """Enclosures at ``bits`` bits of F(0), F(1), …, until all of it is within 2**-bits of 1.

    F(k) = (½ w₀ + ½ W + w₁ + … + w_k) / W with weights w_j = e^(-j² / 2σ²) and W their sum over all
    integers. The weights are enclosed at 48 guard bits; the tail of W beyond the last index m is at
    most w_(m+1) / (1 - e^(-(2m+3) / 2σ²)), a geometric series.
    """
    guard = bits + 48
    last = ceil(sqrt(2 * float(variance) * 0.6932 * (guard + 8))) + 2
    weights = [enclose(partial(_weight, variance, j), bits=guard) for j in range(last + 1)]
    rest = enclose(
        lambda: _weight(variance, last + 1) / (1 - (-real((2 * last + 3) / (2 * variance))).exp()),
        bits=guard,
    )[1]
    half_low, half_high = sum(w[0] for w in weights[1:]), sum(w[1] for w in weights[1:]) + rest
    total_low, total_high = weights[0][0] + 2 * half_low, weights[0][1] + 2 * half_high
    sums, low, high = [], weights[0][0] + half_low, weights[0][1] + half_high
    for index in range(last + 1):
        if index:
            low, high = low + weights[index][0], high + weights[index][1]
        enclosure = (low << bits) // total_high, -((-high << bits) // total_low)
        sums.append(clamp_to_unit(enclosure, bits))
    return sums


def _weight(variance: Fraction, j: int) -> Real:
    return (-real(j * j / (2 * variance))).exp()


def discrete_gaussian(
    sigma: Number | None = None,
    size: Size = 1,
    *,
    variance: Number | None = None,
    bits: Bits = SYSTEM,
) -> Int64Array:
    """Discrete Gaussian noise of parameter ``sigma``, or of ``variance`` = σ².

    Claim: every draw has exactly the law above. Why: [CKS20]. Rounding: none.

    >>> discrete_gaussian(3, 5).shape, discrete_gaussian(size=2, variance="1/2").dtype
    ((5,), dtype('int64'))
    """
    exact = _checked_variance(sigma, variance)
    if exact > TABLE_VARIANCE_MAX:
        return in_chunks(size, lambda count: _by_rejection(exact, count, bits))
    table = table_for(DiscreteGaussian(exact))
    return in_chunks(size, lambda count: table.sample(count, bits))


def _by_rejection(variance: Fraction, count: int, bits: Bits) -> Int64Array:
    """Propose Y with scale t = ⌊σ⌋ + 1, accept with e^(-(|Y| - σ²/t)² / 2σ²) [CKS20].

    The float exponent: σ²/t, |Y| and their difference are each within a relative 2**-52, so for
    |Y| ≤ 63 σ (where |Y| + σ²/t ≤ 64 σ) the exponent is off by at most 64² · 2**-52 + 2**11 ·
    2**-50 < 2**-38; beyond, it exceeds 1900 and its coin is below 2**-64 whatever the error.
    """
    t = isqrt(int(variance)) + 1
    centre, factor = float(variance / t), float(1 / (2 * variance))
    out = np.empty(count, np.int64)
    lanes = np.arange(count)
    while lanes.size:
        proposal = discrete_laplace(t, lanes.size, bits=bits)
        size = np.abs(proposal)
        kept = bernoulli_exp(
            (size - centre) ** 2 * factor,
            partial(_exponent, variance, t, size),
            error=_EXPONENT_ERROR,
            bits=bits,
        )
        out[lanes[kept]] = proposal[kept]
        lanes = lanes[~kept]
    return out


def _exponent(variance: Fraction, t: int, size: Int64Array, lane: int) -> Fraction:
    return (int(size[lane]) - variance / t) ** 2 / (2 * variance)


def _checked_variance(sigma: Number | None, variance: Number | None) -> Fraction:
    if (sigma is None) == (variance is None):
        raise SpecError("Give sigma or variance.", fix="Use exactly one of the two.")
    if variance is not None:
        exact = positive(variance, name="variance")
    else:
        exact = positive(sigma if sigma is not None else 0, name="sigma") ** 2
    if not Fraction(1, 10**6) <= exact <= VARIANCE_MAX:
        raise SpecError("sigma is out of range.", fix="Use a sigma between 1/1000 and 2**39.")
    return exact
