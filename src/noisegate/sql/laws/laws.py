"""The law of a noisy number: a sum of independent draws with known factors, and its half-widths.

A number that was measured as it is has one draw, and its half-width is the mechanism's own. One
that was put together (a sum over groups, a consistent table, two answers combined) has many. The
characteristic function of such a sum is the product of those of its draws, and inverting it gives
the tail. `Interval` is arithmetic over many cells at once.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import inf, log, nextafter, pi, sqrt
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import Bug
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import Mechanism, failure_of

Floats: TypeAlias = NDArray[np.float64]
Noise: TypeAlias = Geometric | DiscreteGaussian

_SMEAR: Final = 1 / 64  # of the standard deviation: what is added to make the law smooth
_PERIOD: Final = 64.0  # standard deviations after which the inversion repeats itself
_TAIL: Final = 1e-12  # of a sum of frequencies: what is left out
_LOUDEST: Final = 600.0  # the largest x for which doubles hold sinh²(x / 2)
_SMALLEST: Final = Fraction(1, 10**8)  # failures below are bounded instead of computed


@final
@dataclass(frozen=True, slots=True)
class Draws:
    """``count`` independent draws of a noise, each times ``factor``."""

    factor: Fraction
    count: int
    noise: Noise


@final
@dataclass(frozen=True, slots=True)
class Law:
    """The error of a number: the sum of all its draws."""

    draws: tuple[Draws, ...]

    @property
    def variance(self) -> float:
        """The mean square of the error."""
        return sum(d.count * float(d.factor) ** 2 * noise_variance(d.noise) for d in self.draws)

    @property
    def step(self) -> Fraction:
        """One step for each factor: a uniform noise this wide makes the law one without steps."""
        return sum((abs(d.factor) for d in self.draws), Fraction(0))

    def half_width(self, confidence: Fraction) -> float:
        """A t with Pr[|error| ≤ t] ≥ confidence.

        Claim: for one draw it is the mechanism's certified interval. For W = Σ of draws and a small
            Gaussian G, Pr[|W| > t + h] ≤ Pr[|W + G| > t] + Pr[|G| > h]; the first is inverted
            numerically with an error below 1e-9, which is allowed for, and the second is a
            hundredth of the failure. Failures below 1e-8 use Chernoff's bound. Rounding: up.
        """
        failure = failure_of(confidence)
        draws = [d for d in self.draws if d.factor and d.count]
        if not draws:
            return 0.0
        if len(draws) == 1 and draws[0].count == 1:
            exact = abs(draws[0].factor) * draws[0].noise.interval(confidence)
            return float(exact) if float(exact) >= exact else nextafter(float(exact), inf)
        return _half_width(tuple(draws), failure)


def combined(laws: Iterable[tuple[Fraction, Law]]) -> Law:
    """The law of Σ factor · number, for numbers of independent noise."""
    found: dict[tuple[Fraction, Noise], int] = {}
    for factor, law in laws:
        for draws in law.draws:
            key = (abs(factor * draws.factor), draws.noise)
            found[key] = found.get(key, 0) + draws.count
    return Law(tuple(Draws(factor, count, noise) for (factor, noise), count in found.items()))


def as_noise(mechanism: Mechanism[Any]) -> Noise:
    """The mechanism, if its law is known here."""
    if isinstance(mechanism, Geometric | DiscreteGaussian):
        return mechanism
    raise Bug(
        "The distribution of this noise is not known.",
        fix="Use geometric or discrete Gaussian noise.",
    )


def noise_variance(noise: Noise) -> float:
    """The variance of one draw: 2α / (1 - α)², or at most the parameter of a discrete Gaussian."""
    if isinstance(noise, Geometric):
        rate = 1 / float(noise.scale)
        return float(2 * np.exp(-rate) / np.expm1(-rate) ** 2)
    return float(noise.variance)


@lru_cache(maxsize=4096)
def _half_width(draws: tuple[Draws, ...], failure: Fraction) -> float:
    spread = sqrt(Law(draws).variance)
    if spread == 0:  # noise that a double cannot hold is far below one step
        return 0.0
    bound = _chernoff(draws, failure, spread)
    if failure < _SMALLEST:
        return bound
    smear = _SMEAR * spread
    slack = smear * sqrt(-2 * log(float(failure) / 100))  # normal tails are at most e^(-t²/2)
    goal = 1 - 0.99 * float(failure) + 1e-9
    frequencies, terms = _smooth(draws, spread, smear)
    low, high = 0.0, min(bound, _PERIOD * spread / 3)
    if _inside(frequencies, terms, high) < goal:
        return bound
    for _ in range(16):
        at = (low + high) / 2
        low, high = (low, at) if _inside(frequencies, terms, at) >= goal else (at, high)
    return min(bound, high + slack)


def _smooth(draws: tuple[Draws, ...], spread: float, smear: float) -> tuple[Floats, Floats]:
    """Frequencies and the terms of `_inside` at them, without a tail that adds up to 1e-12."""
    step = 2 * pi / (_PERIOD * spread)
    frequencies: Floats = step * np.arange(1, int(8.5 / smear / step) + 1, dtype=np.float64)
    logs = -((smear * frequencies) ** 2) / 2
    signs = np.ones_like(logs)
    for d in draws:
        value = _characteristic(d.noise, float(d.factor) * frequencies)
        logs += d.count * np.log(np.maximum(np.abs(value), 1e-300))
        signs *= np.sign(value) ** (d.count % 2)
    terms = step * signs * np.exp(logs) / frequencies
    kept = 1 + int(np.count_nonzero(np.cumsum(np.abs(terms[::-1])) > _TAIL))
    return frequencies[:kept], terms[:kept]


def _inside(frequencies: Floats, terms: Floats, t: float) -> float:
    """Pr[|X| ≤ t] of a law that repeats with the period of the frequencies: a Fourier series."""
    return float((t * frequencies[0] + 2 * (terms @ np.sin(frequencies * t))) / pi)


def _characteristic(noise: Noise, at: Floats) -> Floats:
    if isinstance(noise, Geometric):
        return 1 / (1 + 2 * noise_variance(noise) * np.sin(at / 2) ** 2)
    variance = float(noise.variance)
    if variance <= 1:
        places = np.arange(-12, 13)
        mass = np.exp(-(places**2) / (2 * variance))
        direct: Floats = (mass[:, None] * np.cos(np.outer(places, at))).sum(axis=0) / mass.sum()
        return direct
    turn = at - 2 * pi * np.rint(at / (2 * pi))
    shifts = 2 * pi * np.arange(-2, 3) if variance < 16 else np.zeros(1)
    poisson = np.exp(-variance * (turn[:, None] + shifts) ** 2 / 2).sum(axis=1)
    folded: Floats = poisson / np.exp(-variance * shifts**2 / 2).sum()
    return folded


def _chernoff(draws: tuple[Draws, ...], failure: Fraction, spread: float) -> float:
    """The least (Σ ln E e^(sZ) + ln(2/β)) / s over some s > 0.

    A discrete Gaussian's generating function is at most e^(σ² s² / 2) [CKS20]; that of geometric
    noise is 1 / (1 - 2 v sinh²(s/2)), v its variance, as long as this is positive.
    """
    goal, best = log(2 / float(failure)), inf
    for power in range(-24, 25):
        rate = 2.0 ** (power / 4) / spread
        total = sum(d.count * _log_generating(d.noise, rate * float(d.factor)) for d in draws)
        best = min(best, (total + goal) / rate)
    return best * (1 + 1e-9)


def _log_generating(noise: Noise, at: float) -> float:
    if isinstance(noise, DiscreteGaussian):
        return float(noise.variance) * at * at / 2
    if abs(at) * float(noise.scale) >= 1 or abs(at) > _LOUDEST:
        return inf
    left = 1 - 2 * noise_variance(noise) * float(np.sinh(at / 2)) ** 2
    return -log(left) if left > 0 else inf


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """For each cell a lower and an upper bound; infinite where nothing is known.

    What is made of bounds holds whenever those put in hold.
    """

    low: Floats
    high: Floats

    @classmethod
    def around(cls, values: Floats, half_width: float) -> "Interval":
        """The values, give or take."""
        return cls(values - half_width, values + half_width)

    def __add__(self, shift: float) -> "Interval":
        return Interval(self.low + shift, self.high + shift)

    def __sub__(self, other: "Interval") -> "Interval":
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: "Interval") -> "Interval":
        with np.errstate(invalid="ignore"):
            ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        whole = np.isnan(ends).any(axis=0)  # 0 · ∞: nothing is known
        return Interval(
            np.where(whole, -np.inf, np.fmin.reduce(ends)),
            np.where(whole, np.inf, np.fmax.reduce(ends)),
        )

    def over(self, count: "Interval") -> "Interval":
        """Divided by a number that is positive; nothing is known where it may be 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(self.low < 0, self.low / count.low, self.low / count.high)
            high = np.where(self.high > 0, self.high / count.low, self.high / count.high)
        known = count.low > 0
        return Interval(np.where(known, low, -np.inf), np.where(known, high, np.inf))

    def square(self) -> "Interval":
        """The squares: from 0 where the interval holds 0."""
        ends = np.square(self.low), np.square(self.high)
        holds = (self.low <= 0) & (self.high >= 0)
        return Interval(np.where(holds, 0.0, np.minimum(*ends)), np.maximum(*ends))

    def root(self) -> "Interval":
        """The square roots of what is not negative."""
        return Interval(np.sqrt(np.maximum(self.low, 0)), np.sqrt(np.maximum(self.high, 0)))

    def clipped(self, low: float, high: float) -> "Interval":
        """Cut to what is known beforehand; never empty."""
        return Interval(np.clip(self.low, low, high), np.clip(self.high, low, high))
