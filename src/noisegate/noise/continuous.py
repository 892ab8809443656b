"""Continuous noise, exactly rounded to a grid: Laplace, Gaussian, t, lognormal.

The draw is round(scale · Z) for the ideal real-valued Z, so privacy follows from the continuous
theorem by post-processing, with no inflated sensitivity: a value that lies on the same grid may be
added before or after rounding. ``scale`` is in units of the grid (a power of two of the caller's).

U is revealed 64 bits at a time. Floats propose an outcome and confirm it only where U stands clear
of the two neighbouring boundaries F((k ± ½) / scale) by more than their error bounds; otherwise the
boundaries are enclosed in ball arithmetic and, if need be, more bits of U are revealed.
"""

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
from flint import acb, arb, ctx
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, Real, positive, real
from noisegate.frozen import dataclass
from noisegate.noise.bits import SYSTEM, Bits, Words
from noisegate.noise.chunks import Int64Array, Size, in_chunks
from noisegate.noise.law import Law, draw_by_inversion, enclose_probability

Floats: TypeAlias = NDArray[np.float64]
_RARE: Final = np.uint64(1 << 42)  # below this, 64 bits of U are too coarse for the float test
_NEWTON: Final = 3  # steps towards a quantile, from its place in a table
_AT_ONCE: Final = 1 << 12  # numbers whose means are taken together


class Shape(ABC):
    """A continuous law, both tails alike: certified distribution function, float tails that err."""

    relative_error: ClassVar[float]
    absolute_error: ClassVar[float] = 0.0

    @abstractmethod
    def cdf(self, x: Fraction) -> Real:
        """F(x) as a ball."""

    def tail(self, x: Floats, *, upper: bool) -> Floats:
        """Pr[Z > x] if ``upper``, else Pr[Z ≤ x], within the stated errors, for tails below ½."""
        return self.lower_tail(-x if upper else x)

    def quantile(self, v: Floats, *, upper: bool) -> Floats:
        """Roughly where the tail is v; a proposal only, never decides."""
        x = self.lower_quantile(v)
        return -x if upper else x

    @abstractmethod
    def lower_tail(self, x: Floats) -> Floats:
        """Pr[Z ≤ x]; both tails are alike."""

    @abstractmethod
    def lower_quantile(self, v: Floats) -> Floats:
        """Its inverse, roughly."""


@final
@dataclass(frozen=True)
class Laplace(Shape):
    """Density e^(-|z|) / 2."""

    # exp within 4 ulp; x / scale within 2 ulp moves a tail at |x| ≤ 45 by 45 · 2**-51 < 2**-45
    relative_error: ClassVar[float] = 2.0**-42

    def cdf(self, x: Fraction) -> Real:  # noqa: D102
        half = (-abs(real(x))).exp() / 2
        return half if x < 0 else 1 - half

    def lower_tail(self, x: Floats) -> Floats:  # noqa: D102
        return 0.5 * np.exp(x)

    def lower_quantile(self, v: Floats) -> Floats:  # noqa: D102
        return np.log(2 * v)


@final
@dataclass(frozen=True)
class Gaussian(Shape):
    """Density of the standard normal."""

    # Cephes states 5.7e-14 < 2**-43 for erfc on [0, 26]; the argument's error adds 90 · 2**-51
    relative_error: ClassVar[float] = 2.0**-38

    def cdf(self, x: Fraction) -> Real:  # noqa: D102
        return (-real(x) / arb(2).sqrt()).erfc() / 2

    def lower_tail(self, x: Floats) -> Floats:  # noqa: D102
        from scipy.special import erfc  # noqa: PLC0415 - a quarter second that most draws never need

        tail: Floats = 0.5 * erfc(x * -np.sqrt(0.5))
        return tail

    def lower_quantile(self, v: Floats) -> Floats:  # noqa: D102
        from scipy.special import ndtri  # noqa: PLC0415

        x: Floats = ndtri(v)
        return x


@final
@dataclass(frozen=True)
class StudentT(Shape):
    """Student's t with 1 to 30 degrees of freedom; one degree is the Cauchy law.

    With θ = arctan(x / √d), F(x) = ½ + [θ + sin θ (cos θ + ⅔ cos³θ + …)] / π for odd d and
    ½ + sin θ (1 + ½ cos²θ + …) / 2 for even d, each sum with d / 2 terms [AS64, 26.7.3-4].
    """

    degrees: int = 1
    relative_error: ClassVar[float] = 0.0
    absolute_error: ClassVar[float] = 2.0**-46  # below 50 operations on numbers below 2

    def __post_init__(self) -> None:
        if not 1 <= self.degrees <= 30:
            raise SpecError(
                f"degrees is {self.degrees}.",
                fix="Use 1 to 30 degrees of freedom.",
                about="degrees",
            )

    def cdf(self, x: Fraction) -> Real:  # noqa: D102
        angle = (real(x) / arb(self.degrees).sqrt()).atan()
        cosine, sine = angle.cos(), angle.sin()
        series, term = arb(0), cosine if self.degrees % 2 else arb(1)
        for j in range(1, self.degrees // 2 + 1):
            series = series + term
            term = term * cosine * cosine * real(self._step(j))
        part = (angle + sine * series) / arb.pi() if self.degrees % 2 else sine * series / 2
        return real(Fraction(1, 2)) + part

    def lower_tail(self, x: Floats) -> Floats:  # noqa: D102
        angle = np.arctan(x / np.sqrt(self.degrees))
        cosine, sine = np.cos(angle), np.sin(angle)
        series, term = np.zeros_like(x), cosine if self.degrees % 2 else np.ones_like(x)
        for j in range(1, self.degrees // 2 + 1):
            series = series + term
            term = term * cosine * cosine * float(self._step(j))
        part = (angle + sine * series) / np.pi if self.degrees % 2 else sine * series / 2
        tail: Floats = 0.5 + part
        return tail

    def lower_quantile(self, v: Floats) -> Floats:  # noqa: D102
        if self.degrees == 1:
            return -1 / np.tan(np.pi * v)
        from scipy.special import stdtrit  # noqa: PLC0415

        x: Floats = stdtrit(self.degrees, v)
        return x

    def _step(self, j: int) -> Fraction:
        return Fraction(2 * j, 2 * j + 1) if self.degrees % 2 else Fraction(2 * j - 1, 2 * j)


@final
@dataclass(frozen=True)
class LaplaceLognormal(Shape):
    """X e^(σY), X Laplace and Y standard normal: Pr[Z ≤ -x] = ½ E[exp(-x e^(-σY))] [BS19].

    In ball arithmetic the mean is a certified integral, in floats a sum at equal steps h. Within
    |Im y| ≤ a ≤ π/2σ the integrand has at most e^(a²/2) times the size of the normal density, so
    the sum is off by less than 2 e^(a²/2) / (e^(2πa/h) - 1) [TW14, Thm 5.1]: below 2**-52 for a ≤ 3
    and 2πa = 42 h. What lies beyond 9 is below 2**-54.
    """

    sigma: Fraction
    relative_error: ClassVar[float] = 0.0
    absolute_error: ClassVar[float] = 2.0**-44  # a sum of up to 160 numbers, 20 operations each

    def __post_init__(self) -> None:
        if not 0 < self.sigma <= 2:
            raise SpecError("sigma is out of range.", fix="Use a sigma above 0, up to 2.")

    def cdf(self, x: Fraction) -> Real:  # noqa: D102
        size, sigma = acb(abs(real(x))), acb(real(self.sigma))
        end = arb(3 * ctx.prec).sqrt().ceil()  # beyond it a normal number is rarer than 2**-prec
        inside = (
            acb.integral(
                lambda y, _: (-y * y / 2 - size * (-sigma * y).exp()).exp(), acb(-end), acb(end)
            ).real
            / (2 * arb.pi()).sqrt()
        )
        beyond = (end / arb(2).sqrt()).erfc() * arb(0.5, 0.5)  # of something between 0 and 1
        half = (inside + beyond) / 2
        return half if x < 0 else 1 - half

    def lower_tail(self, x: Floats) -> Floats:  # noqa: D102
        return _means(self.sigma, np.minimum(x, 0.0))[0] / 2

    def lower_quantile(self, v: Floats) -> Floats:  # noqa: D102
        x = np.interp(np.log(v), *_tails(self.sigma))
        for _ in range(_NEWTON):  # on the logarithm of the tail, which bends upwards
            mean, slope = _means(self.sigma, x)
            x = np.minimum(x - np.log(mean / (2 * v)) * mean / slope, 0.0)
        return x


@lru_cache(maxsize=16)
def _steps(sigma: Fraction) -> tuple[Floats, Floats]:
    """Rates r = e^(-σy) at equal steps of y, and the weights of 1 and of r at each."""
    step = 2 * np.pi * min(np.pi / (2 * float(sigma)), 3.0) / 42
    y = step * np.arange(-np.ceil(9 / step), np.ceil(9 / step) + 1)
    weights, rates = step * np.exp(-y * y / 2) / np.sqrt(2 * np.pi), np.exp(-float(sigma) * y)
    return rates, np.stack([weights, weights * rates], axis=1)


def _means(sigma: Fraction, x: Floats) -> tuple[Floats, Floats]:
    """E[exp(x r)] and E[r exp(x r)] for r = e^(-σY) and x ≤ 0."""
    rates, weights = _steps(sigma)
    parts = np.array_split(x, -(-x.size // _AT_ONCE) or 1)
    found = np.concatenate([np.exp(np.multiply.outer(part, rates)) @ weights for part in parts])
    return found[:, 0], found[:, 1]


@lru_cache(maxsize=16)
def _tails(sigma: Fraction) -> tuple[Floats, Floats]:
    """Logarithms of tails of X e^(σY), rising, and where they are."""
    x = -np.geomspace(1e7, 1e-6, 600)
    with np.errstate(divide="ignore"):
        tails = np.log(_means(sigma, x)[0] / 2)
    return np.maximum(tails, -1e3), x


@final
@dataclass(frozen=True)
class Rounded(Law):
    """The integer law of round(scale · Z)."""

    shape: Shape
    scale: Fraction

    def cdf(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        return enclose_probability(lambda: self.shape.cdf((k + Fraction(1, 2)) / self.scale), bits)


def rounded(shape: Shape, scale: Number, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Exactly round(scale · Z), Z drawn from ``shape``; outcomes beyond ±2**62 are clamped there.

    >>> rounded(StudentT(3), 1024, 4).dtype
    dtype('int64')
    """
    exact = positive(scale, name="scale")
    if exact > 1 << 50:
        raise SpecError("scale is above 2**50.", fix="Use a coarser grid.", about="scale")
    law = Rounded(shape, exact)
    return in_chunks(size, lambda count: _draw(law, bits.words(count, 64), bits))


def _draw(law: Rounded, words: Words, bits: Bits) -> Int64Array:
    out = np.empty(words.size, np.int64)
    is_upper = words >= np.uint64(1 << 63)
    for upper in (False, True):
        lanes = np.flatnonzero(is_upper == upper)
        proposal, settled = _propose(law, words[lanes], upper=upper)
        out[lanes] = proposal
        for index in np.flatnonzero(~settled):
            lane = lanes[index]
            out[lane] = draw_by_inversion(
                law, int(words[lane]), 64, bits, guess=int(proposal[index])
            )
    return out


def _propose(law: Rounded, words: Words, *, upper: bool) -> tuple[Int64Array, NDArray[np.bool_]]:
    """Outcomes by floats, and which of them are proven. U = v, or 1 - v in the upper half."""
    shape, scale = law.shape, float(law.scale)
    depth = ~words if upper else words  # U is in [depth, depth + 1) / 2**64 from its own end
    with np.errstate(all="ignore"):
        centre = (depth.astype(np.float64) + 0.5) * 2.0**-64
        guess = np.rint(np.clip(scale * shape.quantile(centre, upper=upper), -(2.0**61), 2.0**61))
        guess = np.nan_to_num(guess)
        near, far = (guess - 0.5, guess + 0.5) if upper else (guess + 0.5, guess - 0.5)
        inner = shape.tail(near / scale, upper=upper)
        outer = shape.tail(far / scale, upper=upper)
        # U is within 2**-43 of its centre, relatively. An inner boundary across the median has a
        # true tail above ½, hence above U, so an inexact float there cannot confirm wrongly.
        slack = 2 * shape.relative_error + 2.0**-42
        proven = (depth > _RARE) & (np.abs(guess) < 2.0**50)
        proven &= outer * (1 + slack) + shape.absolute_error < centre
        proven &= inner * (1 - slack) - shape.absolute_error > centre
    return guess.astype(np.int64), proven
