"""Geometric and discrete Laplace noise, for any scale from 1/1000 to 2**40.

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

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log2, prod
from typing import Final, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, Real, positive, real, upper
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.law import (
    SATURATION,
    Certified,
    Law,
    Probability,
    as_real,
    enclose_probability,
    probability,
)
from noisegate.noise.table import CHUNK, IntArray, Table, table_for

Int64Array: TypeAlias = NDArray[np.int64]
Size: TypeAlias = int | tuple[int, ...]

SCALE_MIN: Final = Fraction(1, 1000)
SCALE_MAX: Final = Fraction(1 << 40)
_DIGIT_BITS: Final = 8


@final
@dataclass(frozen=True)
class Ratio:
    """α, the ratio between neighbouring masses: e^(-1/scale), or 1 - p for a coin p."""

    scale: Fraction | None = None
    coin: Probability | None = None

    def log_power(self, times: int) -> Real:
        """ln(α^times) as a ball."""
        if self.scale is not None:
            return -real(times / self.scale)
        return (-as_real(cast("Probability", self.coin))).log1p() * times

    def rough_scale(self) -> float:
        """About -1 / ln α; only plans the digits, decides no outcome."""
        if self.scale is not None:
            return float(self.scale)
        return min(1 / float(upper(lambda: -self.log_power(1))), float(SCALE_MAX))


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
        unit, base = self.unit, 1 << self.bits
        return enclose_probability(
            lambda: (
                self.ratio.log_power(unit * (k + 1)).expm1()
                / self.ratio.log_power(unit * base).expm1()
            ),
            bits,
        )


@final
@dataclass(frozen=True)
class Top(Law):
    """The leading digit: H geometric with ratio α^unit; if signed, -1 - H with odds α to 1."""

    ratio: Ratio
    unit: int
    signed: bool

    @property
    def support(self) -> tuple[int | None, None]:  # type: ignore[override]  # noqa: D102
        return (None if self.signed else 0), None

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if k < 0 and not self.signed:
            return 0, 0
        # Pr[Z > k] for k >= 0, Pr[Z <= k] below; 1 / (1 + α) and α / (1 + α) are the two sides.
        steps = k + 1 if k >= 0 else -1 - k

        def tail() -> Real:
            mass = self.ratio.log_power(self.unit * steps).exp()
            if not self.signed:
                return mass
            alpha = self.ratio.log_power(1).exp()
            return mass / (1 + alpha) if k >= 0 else mass * alpha / (1 + alpha)

        low, high = enclose_probability(tail, bits)
        full = 1 << bits
        return (full - high, full - low) if k >= 0 else (low, high)


def discrete_laplace(scale: Number, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Two-sided geometric noise: Pr[z] = (1 - α) / (1 + α) · α^|z| with α = e^(-1/scale).

    Claim: every draw has exactly this law. Why: [GRS09] for the law; the decomposition is derived
        at the top of this file. Rounding: none; draws beyond ±2**62 would be clamped there.

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
        raise SpecError("probability is 0.", fix="Use a probability above 0.")
    if coin == 1:
        return np.zeros(size, np.int64)
    return _draw(Ratio(coin=coin), size, bits, signed=False)


def geometric_tail(threshold: int, scale: Number, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Discrete Laplace noise given that it is at least ``threshold`` ≥ 0.

    Why: beyond 0 the law is geometric and has no memory: threshold + G.
    """
    if threshold < 0:
        raise SpecError(f"threshold is {threshold}.", fix="The tail law holds for thresholds >= 0.")
    return threshold + geometric(scale, size, bits=bits)


def truncated_geometric(
    value: "Int64Array | int", scale: Number, *, top: int, bits: Bits = SYSTEM
) -> Int64Array:
    """``value`` plus discrete Laplace noise, clamped to [0, top].

    Claim: for 0 ≤ n ≤ N = top: Pr[0] = α^n / (1 + α), Pr[N] = α^(N-n) / (1 + α), and the
        two-sided geometric mass in between. Why: the end masses are the tails that the clamp collects.
    """
    values = np.asarray(value, np.int64)
    if top < 1 or values.min(initial=0) < 0 or values.max(initial=0) > top:
        raise SpecError("A value lies outside [0, top].", fix="Use top >= 1 and clamp first.")
    noise = discrete_laplace(scale, values.shape, bits=bits)
    return np.clip(values + noise, 0, top)


def digit_plan(ratio: Ratio, *, signed: bool) -> tuple[Law, tuple[Digit, ...]]:
    """The signed top and the lower digits, highest first, so that the top's scale is at most 4."""
    low_bits = max(0, ceil(log2(ratio.rough_scale() / 4))) if ratio.rough_scale() > 4 else 0
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
    low_bits = sum(width for width, _ in digits)
    flip = top >> (8 * top.itemsize - 1)  # -1 where negative, 0 elsewhere
    limit = SATURATION >> low_bits
    out = np.clip(top.astype(np.int64, copy=False), -limit, limit - 1)
    for width, digit in digits:
        out <<= width
        out |= digit ^ (flip & ((1 << width) - 1))
    return out


def _draw(ratio: Ratio, size: Size, bits: Bits, *, signed: bool) -> Int64Array:
    top, digits = digit_plan(ratio, signed=signed)
    top_table, digit_tables = table_for(top), [(d.bits, table_for(d)) for d in digits]
    shape = size if isinstance(size, tuple) else (size,)
    out = np.empty(prod(shape), np.int64)
    for start in range(0, out.size, CHUNK):
        part = out[start : start + CHUNK]
        part[:] = _draw_chunk(part.size, top_table, digit_tables, bits)
    return out.reshape(shape)


def _draw_chunk(count: int, top: Table, digits: list[tuple[int, Table]], bits: Bits) -> IntArray:
    signed = top.sample(count, bits)
    return combine(signed, [(width, table.sample(count, bits)) for width, table in digits])


def _checked_scale(scale: Number) -> Fraction:
    exact = positive(scale, name="scale")
    if not SCALE_MIN <= exact <= SCALE_MAX:
        raise SpecError(f"scale is {scale}.", fix="Use a scale between 1/1000 and 2**40.")
    return exact
