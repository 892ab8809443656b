"""Gaussian noise: the discrete law on the integers, and the continuous one exactly rounded.

Both cost s² / 2σ² in zCDP for an L2 sensitivity s. The discrete law takes any rational variance;
the rounded one is for callers whose analysis speaks of continuous Gaussian noise.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, final

from flint import arb

from noisegate.accounting.calibrate import discrete_gaussian_error, discrete_gaussian_variance
from noisegate.exact import Number, Real, real
from noisegate.mechanisms.base import (
    NoiseMechanism,
    clamped,
    failure_of,
    noisy,
    smallest_whole,
    store_positive,
    surely_at_most,
)
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.gaussian import VARIANCE_MAX, VARIANCE_MIN, discrete_gaussian
from noisegate.noise.rounded import Gaussian as GaussianShape
from noisegate.noise.rounded import rounded
from noisegate.privacy.distance import L2
from noisegate.privacy.event import DiscreteGaussianEvent, GaussianEvent

SIGMA_MIN: Final = Fraction(1, 1000)
SIGMA_MAX: Final = Fraction(1 << 50)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussian(NoiseMechanism[L2]):
    """Adds independent noise with Pr[z] proportional to e^(-z² / 2 variance)."""

    name: ClassVar[str] = "discrete-gaussian/1"
    LEAST: ClassVar[Fraction] = VARIANCE_MIN
    MOST: ClassVar[Fraction] = VARIANCE_MAX
    variance: Fraction

    def __post_init__(self) -> None:
        store_positive(self, "variance", least=self.LEAST, most=self.MOST)

    @classmethod
    def for_rho(cls, rho: Number, *, sensitivity: L2) -> "DiscreteGaussian":
        """The least noise whose event costs ``rho`` in zCDP, variance = s² / 2ρ; or `LEAST`."""
        return cls(
            variance=max(discrete_gaussian_variance(rho, sensitivity=sensitivity), cls.LEAST)
        )

    def event(self, sensitivity: L2, /) -> DiscreteGaussianEvent:
        """What one use is.

        Claim: (s² / 2 variance)-zCDP on an integer vector of L2 sensitivity s.
        Adjacency: that of ``sensitivity``. Why: [CKS20, Prop. 5]; Rényi divergences of independent
            cells add up. Rounding: none.
        """
        return DiscreteGaussianEvent(variance=self.variance, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**60, plus noise."""
        values = clamped(exact)
        return noisy(
            values, discrete_gaussian(size=values.shape, variance=self.variance, bits=bits)
        )

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width; see `discrete_gaussian_error`. Rounding: up."""
        return discrete_gaussian_error(self.variance, confidence=confidence)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedGaussian(NoiseMechanism[L2]):
    """Adds round(sigma · Z) with Z standard normal; ``sigma`` in units of the grid."""

    name: ClassVar[str] = "gaussian/1"
    sigma: Fraction

    def __post_init__(self) -> None:
        store_positive(self, "sigma", least=SIGMA_MIN, most=SIGMA_MAX)

    def event(self, sensitivity: L2, /) -> GaussianEvent:
        """What one use is.

        Claim: (s² / 2σ²)-zCDP for L2 sensitivity s; also the exact trade-off of [BW18, Thm 8].
        Adjacency: that of ``sensitivity``. Why: [BS16, Prop. 1.6], rounding is post-processing.
        Rounding: none; the draw is the exactly rounded real.
        """
        return GaussianEvent(variance=self.sigma**2, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**60, plus noise."""
        values = clamped(exact)
        return noisy(values, rounded(GaussianShape(), self.sigma, values.shape, bits=bits))

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width.

        Claim: Pr[|round(σ Z)| > t] = erfc((t + ½) / (σ √2)). Rounding: up.
        """
        failure = failure_of(confidence)

        def tails(t: int) -> Real:
            return (real((t + Fraction(1, 2)) / self.sigma) / arb(2).sqrt()).erfc()

        return smallest_whole(lambda t: surely_at_most(lambda: tails(t), failure))
