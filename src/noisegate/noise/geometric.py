"""Geometric and discrete Laplace noise, for any scale from 1/1000 to 2**50.

With α = e^(-1/scale) and B = 2**b, three facts about the two-sided geometric law make it cheap:

* Z = G where a coin S is 0 and Z = -1 - G where it is 1, with Pr[S = 1] = α / (1 + α) and G an
  independent one-sided geometric number: (1 - α) α^g / (1 + α) is the mass of g, and of -1 - g
  after one more factor α.
* the digits of G to base B are independent: G = B H + R, where R has mass proportional to α^r on
  {0, …, B - 1} and H is geometric with ratio α^B, because (1 - α) α^(B h + r) =
  [(1 - α^B) α^(B h)] [(1 - α) α^r / (1 - α^B)].
* in two's complement -1 - G is G with all bits flipped, so the sign and H form one signed digit.

So a draw is one signed look-up for the top and one look-up for each lower digit of 8 bits.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil
from typing import Final, cast, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, Real, multiples, positive, progression, shown, upper
from noisegate.frozen import dataclass
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, IntArray, Size, in_chunks
from noisegate.noise.law import (
    SATURATION,
    Certified,
    Law,
    Probability,
    as_real,
    enclose_probability,
    probability,
)
from noisegate.noise.table import table_for

SCALE_MIN: Final = Fraction(1, 1000)
SCALE_MAX: Final = Fraction(1 << 40)  # of mechanisms that do more with noise than to add it
WIDEST: Final = Fraction(1 << 50)
_DIGIT_BITS: Final = 8
_LOW_BITS_MAX: Final = 58
_TAILS: Final = 256  # tails of a leading digit; at 64 bits none lies beyond


@final
@dataclass(frozen=True)
class Ratio:
    """α, the ratio between neighbouring masses: e^(-1/scale), or 1 - p for a coin p."""

    scale: Fraction | None = None
    coin: Probability | None = None

    @cached_property
    def _over_scale(self) -> Callable[[int], Real]:
        """Times / scale as a ball."""
        return multiples(1 / cast("Fraction", self.scale))

    def log_power(self, times: int) -> Real:
        """ln(α^times) as a ball."""
        if self.scale is not None:
            return -self._over_scale(times)
        return (-as_real(cast("Probability", self.coin))).log1p() * times

    def low_bits(self) -> int:
        """How many bits to split off so that the top's scale is about 4 or less; at most 58."""
        scale = 1 / upper(lambda: -self.log_power(1), digits_bits=32)
        return min(_LOW_BITS_MAX, max(0, ceil(scale / 4 - 1).bit_length()))


@final
@dataclass(frozen=True)
class Digit(Law):
    """R on {0, …, 2**bits - 1} with mass proportional to α^(unit · r)."""

    ratio: Ratio
    unit: int
    bits: int

    @property
    def support(self) -> tuple[int, int]:  # type: ignore[override]  # noqa: D102
        return 0, (1 << self.bits) - 1

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if k < 0 or k >= self.support[1]:
            return (0, 0) if k < 0 else (1 << bits, 1 << bits)
        if (found := self._known.get(bits)) is None:
            unit, base, power = self.unit, 1 << self.bits, self.ratio.log_power
            found = self._known[bits] = progression(
                lambda: power(unit).expm1() / power(unit * base).expm1(),
                lambda: power(unit).exp(), count=base, bits=bits, summed=True,
            )  # fmt: skip
        return found[k]


@final
@dataclass(frozen=True)
class Top(Law):
    """The leading digit: H geometric with ratio α^unit; if signed, -1 - H with odds α to 1.

    H stops at ± the limit, where H · unit reaches 2**62: whatever is beyond is clamped there.
    """

    ratio: Ratio
    unit: int
    signed: bool

    @property
    def limit(self) -> int:
        """The first H that is beyond reach."""
        return SATURATION // self.unit

    @property
    def support(self) -> tuple[int, int]:  # type: ignore[override]  # noqa: D102
        return (-self.limit if self.signed else 0), self.limit

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if not self.support[0] <= k < self.support[1]:
            return (0, 0) if k < 0 else (1 << bits, 1 << bits)
        # Pr[Z > k] for k >= 0, Pr[Z <= k] below; 1 / (1 + α) and α / (1 + α) are the two sides.
        n, unit, power = (k + 1 if k >= 0 else -1 - k), self.unit, self.ratio.log_power

        def tail(steps: int) -> Real:
            mass, alpha = power(unit * steps).exp(), power(1).exp() if self.signed else 0
            return mass / (1 + alpha) if k >= 0 else mass * alpha / (1 + alpha)

        if (found := self._known.get((k >= 0, bits))) is None:
            found = self._known[k >= 0, bits] = progression(
                lambda: tail(0), lambda: power(unit).exp(), count=_TAILS, bits=bits
            )
        low, high = found[n] if n < _TAILS else enclose_probability(lambda: tail(n), bits)
        return ((1 << bits) - high, (1 << bits) - low) if k >= 0 else (low, high)


def discrete_laplace(scale: Number, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Two-sided geometric noise: Pr[z] = (1 - α) / (1 + α) · α^|z| with α = e^(-1/scale).

    Claim: every draw has exactly this law. Why: [GRS09] for the law; the decomposition is derived
        at the top of this file. Rounding: none. At the largest scale a draw reaches ±2**62 with
        probability below e^(-2**11); there its leading digit stops growing.

    >>> discrete_laplace(2, 3).dtype, discrete_laplace("1/2", (2, 5)).shape
    (dtype('int64'), (2, 5))
    """
    return _draw(Ratio(scale=_checked_scale(scale)), size, bits, signed=True)


def geometric(scale: Number, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """One-sided geometric numbers: Pr[g] = (1 - α) α^g, g ≥ 0, with α = e^(-1/scale)."""
    return _draw(Ratio(scale=_checked_scale(scale)), size, bits, signed=False)


def geometric_gaps(p: "Number | Certified", size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Failures before the first success of a coin that shows 1 with probability ``p``."""
    coin = probability(p)
    if coin == 0:
        raise SpecError("probability is 0.", fix="Use a probability above 0.", about="probability")
    if coin == 1:
        return in_chunks(size, lambda count: np.zeros(count, np.int64))
    return _draw(Ratio(coin=coin), size, bits, signed=False)


@lru_cache(maxsize=1024)
def digit_plan(ratio: Ratio, *, signed: bool) -> tuple[Law, tuple[Digit, ...]]:
    """The signed top and the lower digits, highest first, so that the top's scale is at most 4."""
    low_bits = ratio.low_bits()
    digits, left = [], low_bits
    while left:
        width = min(_DIGIT_BITS, left)
        left -= width
        digits.append(Digit(ratio, 1 << left, width))
    return Top(ratio, 1 << low_bits, signed), tuple(digits)


def combine(top: IntArray, digits: list[tuple[int, IntArray]]) -> Int64Array:
    """Put the digits under the signed top; a negative top flips every lower bit."""
    if not digits:
        return top.astype(np.int64, copy=False)
    flip = top >> (8 * top.itemsize - 1)  # -1 where negative, 0 elsewhere
    out = top.astype(np.int64)
    for width, digit in digits:
        out <<= width
        out |= digit ^ (flip & ((1 << width) - 1))
    return out


def _draw(ratio: Ratio, size: Size, bits: Bits, *, signed: bool) -> Int64Array:
    top, digits = digit_plan(ratio, signed=signed)
    top_table, digit_tables = table_for(top), [(digit.bits, table_for(digit)) for digit in digits]
    return in_chunks(
        size,
        lambda count: combine(
            top_table.sample(count, bits),
            [(width, table.sample(count, bits)) for width, table in digit_tables],
        ),
    )


def _checked_scale(scale: Number) -> Fraction:
    exact = positive(scale, name="scale")
    if not SCALE_MIN <= exact <= WIDEST:
        raise SpecError(
            f"scale is {shown(exact)}.", fix="Use a scale between 1/1000 and 2**50.", about="scale"
        )
    return exact
