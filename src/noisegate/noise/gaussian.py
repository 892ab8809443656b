"""The discrete Gaussian: Pr[z] proportional to e^(-z² / 2σ²) on the integers, any rational σ².

The integers are cut into blocks of B = 2**b, so that σ / B is at most 64. A block is drawn with the
weight of its likeliest integer, a place in it uniformly, and the place is accepted with an exact
coin, the ratio of its weight to the block's. Rejection from this staircase is exact, and its steps
are so flat that 99 of 100 draws are accepted; up to σ = 64 the blocks are single integers and every
draw is. (The law is [CKS20]'s; they propose by a discrete Laplace law, which accepts 3 of 4.)
"""

from fractions import Fraction
from functools import partial
from math import ceil, isqrt, sqrt
from typing import Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, enclose, multiples, positive, progression, real
from noisegate.frozen import dataclass
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Size, in_chunks
from noisegate.noise.coins import bernoulli_exp
from noisegate.noise.law import SATURATION, VARIANCE_MAX, VARIANCE_MIN, Law, clamp_to_unit
from noisegate.noise.table import table_for

STEPS_MAX: Final = 64
_EXPONENT_ERROR: Final = 2.0**-40


@final
@dataclass(frozen=True)
class Staircase(Law):
    """Blocks h of B = 2**block_bits integers, weighed by their likeliest one.

    Block h ≥ 0 holds the integers from B h, block -1 - h the negatives of those from B h + 1; so
    the weights are e^(-(B h)² / 2σ²) and e^(-(B h + 1)² / 2σ²). With B = 1 it is the law itself.
    """

    variance: Fraction
    block_bits: int = 0

    @property
    def support(self) -> tuple[int, int]:  # type: ignore[override]  # noqa: D102
        limit = SATURATION >> self.block_bits  # blocks beyond are counted into the last
        return -limit, limit

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if not self.support[0] <= k < self.support[1]:
            return (0, 0) if k < 0 else (1 << bits, 1 << bits)
        if (sums := self._known.get(bits)) is None:
            sums = self._known[bits] = _partial_sums(self.variance, self.block_bits, bits)[1]
        reach = len(sums) // 2
        if not -reach <= k < reach:
            return (0, 1) if k < 0 else ((1 << bits) - 1, 1 << bits)
        return sums[k + reach]


def _partial_sums(
    variance: Fraction, block_bits: int, bits: int
) -> tuple[int, list[tuple[int, int]]]:
    """A reach m, and enclosures at ``bits`` bits of F(-m), …, F(m - 1).

    The 2m weights in between are enclosed at 48 guard bits. With c = B² / 2σ², those beyond are on
    either side at most e^(-c m²) + e^(-c (m+1)²) + … ≤ e^(-c m²) / (1 - e^(-2 c m)).
    """
    guard, step, exponent = bits + 48, 1 << block_bits, multiples(1 / (2 * variance))
    curve = Fraction(step**2) / (2 * variance)
    reach = ceil(sqrt(0.6932 * (guard + 8) / float(curve))) + 2
    # of z, z + B, …; the ratios of neighbours fall by e^(-B² / σ²) from one to the next
    terms = [(z**2, step * (2 * z + step), 2 * step**2) for z in (1, 0)]
    powers = [[lambda x=each: (-exponent(x)).exp() for each in side] for side in terms]
    left, right = (progression(*side, count=reach, bits=guard) for side in powers)
    weights = [*reversed(left), *right]
    beyond = enclose(
        lambda: (-real(curve * reach**2)).exp() / (1 - (-real(2 * curve * reach)).exp()), bits=guard
    )[1]
    least, most = sum(low for low, _ in weights), sum(high for _, high in weights) + 2 * beyond
    sums, low, high = [], 0, beyond
    for weight in weights:
        low, high = low + weight[0], high + weight[1]
        enclosure = (low << bits) // most, -((-high << bits) // least)
        sums.append(clamp_to_unit(enclosure, bits))
    return reach, sums


def discrete_gaussian(
    sigma: Number | None = None,
    size: Size = 1,
    *,
    variance: Number | None = None,
    bits: Bits = SYSTEM,
) -> Int64Array:
    """Discrete Gaussian noise of parameter ``sigma``, or of ``variance`` = σ².

    Claim: every draw has exactly the law above. Why: [CKS20] for the law, rejection as described.
        Rounding: none.

    >>> discrete_gaussian(3, 5).shape, discrete_gaussian(size=2, variance="1/2").dtype
    ((5,), dtype('int64'))
    """
    exact = _checked_variance(sigma, variance)
    blocks = ceil(exact / STEPS_MAX**2)  # σ / B ≤ 64 if B² ≥ σ² / 64²
    law = Staircase(exact, isqrt(blocks - 1).bit_length())
    return in_chunks(size, lambda count: _draw(law, count, bits))


def _draw(law: Staircase, count: int, bits: Bits) -> Int64Array:
    table = table_for(law)
    out = table.sample(count, bits).astype(np.int64)
    lanes = np.arange(count) if law.block_bits else np.empty(0, np.int64)
    blocks = out
    while lanes.size:
        start, place, rough = _places(law, blocks, bits)
        kept = bernoulli_exp(
            rough, partial(_exponent, law.variance, start, place), error=_EXPONENT_ERROR, bits=bits
        )
        size = start + place
        done = np.where(blocks < 0, -size, size)
        out[lanes[kept]] = done[kept]
        lanes = lanes[~kept]
        blocks = table.sample(lanes.size, bits).astype(np.int64)
    return out


def _places(
    law: Staircase, blocks: Int64Array, bits: Bits
) -> "tuple[Int64Array, Int64Array, np.ndarray]":
    """The start of each block, a uniform place r in it, and r (2 start + r) / 2σ² roughly.

    The factors are whole numbers, exact in doubles below 2**53 and rounded once beyond: at most
    five roundings leave the exponent within a relative 2**-50, hence within 2**-40 below 700.
    """
    flip = blocks >> 63  # -1 where negative
    start = ((blocks ^ flip) << law.block_bits) - flip
    place = bits.words(blocks.size, law.block_bits).astype(np.int64)
    rough = place * (2.0 * start + place) * float(1 / (2 * law.variance))
    return start, place, rough


def _exponent(variance: Fraction, start: Int64Array, place: Int64Array, lane: int) -> Fraction:
    s, r = int(start[lane]), int(place[lane])
    return r * (2 * s + r) / (2 * variance)


def _checked_variance(sigma: Number | None, variance: Number | None) -> Fraction:
    if (sigma is None) == (variance is None):
        raise SpecError("Give sigma or variance.", fix="Use exactly one of the two.", about="sigma")
    if variance is not None:
        exact = positive(variance, name="variance")
    else:
        exact = positive(sigma if sigma is not None else 0, name="sigma") ** 2
    if not VARIANCE_MIN <= exact <= VARIANCE_MAX:
        raise SpecError(
            "sigma is out of range.", fix="Use a sigma between 1/1000 and 2**46.", about="sigma"
        )
    return exact
