"""Gaussian noise: the discrete law on the integers, and the continuous one exactly rounded.

Both cost s² / 2σ² in zCDP for an L2 sensitivity s. The discrete law takes any rational variance;
the rounded one is for callers whose analysis speaks of continuous Gaussian noise.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, final

from flint import arb

from noisegate.exact import Number, Real, positive, real
from noisegate.mechanisms.base import (
    NoiseMechanism,
    clamped,
    failure_of,
    smallest_whole,
    store_positive,
    surely_at_most,
)
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.gaussian import TABLE_VARIANCE_MAX, VARIANCE_MAX, discrete_gaussian
from noisegate.noise.gaussian import DiscreteGaussian as DiscreteGaussianLaw
from noisegate.noise.rounded import Gaussian as GaussianShape
from noisegate.noise.rounded import rounded
from noisegate.privacy.distance import L2
from noisegate.privacy.event import DiscreteGaussianEvent, GaussianEvent

VARIANCE_MIN: Final = Fraction(1, 10**6)
SIGMA_MIN: Final = Fraction(1, 1000)
SIGMA_MAX: Final = Fraction(1 << 50)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussian(NoiseMechanism[L2]):
    """Adds independent noise with Pr[z] proportional to e^(-z² / 2 variance)."""

    name: ClassVar[str] = "discrete-gaussian/1"
    variance: Fraction

    def __post_init__(self) -> None:
        store_positive(self, "variance", least=VARIANCE_MIN, most=VARIANCE_MAX)

    @classmethod
    def for_rho(cls, rho: Number, *, sensitivity: L2) -> "DiscreteGaussian":
        """The least noise whose event costs exactly ``rho`` in zCDP: variance = s² / 2ρ."""
        return cls(variance=sensitivity.squared / (2 * positive(rho, name="rho")))

    def event(self, sensitivity: L2, /) -> DiscreteGaussianEvent:
        """What one use is.

        Claim: (s² / 2 variance)-zCDP on an integer vector of L2 sensitivity s.
        Adjacency: that of ``sensitivity``. Why: [CKS20, Prop. 5]; Rényi divergences of independent
            cells add up. Rounding: none.
        """
        return DiscreteGaussianEvent(variance=self.variance, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**61, plus noise."""
        values = clamped(exact)
        return values + discrete_gaussian(size=values.shape, variance=self.variance, bits=bits)

    def interval(self, confidence: Number) -> int:
        """The smallest half-width that the enclosure of the tail certifies. Rounding: up.

        Up to σ = 64 the tail is a certified sum; beyond, it is overstated by a relative 10⁻⁶ or
        (t/σ)³ 10⁻⁷ at most, so t may be one too large only if the tail is that close to the goal.
        """
        failure = failure_of(confidence)
        if self.variance <= TABLE_VARIANCE_MAX:
            return _interval_by_sums(self.variance, failure)
        return smallest_whole(
            lambda t: surely_at_most(lambda: _both_tails_up(self.variance, t + 1), failure)
        )


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
        """The answers, clamped to ±2**61, plus noise."""
        values = clamped(exact)
        return values + rounded(GaussianShape(), self.sigma, values.shape, bits=bits)

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width.

        Claim: Pr[|round(σ Z)| > t] = erfc((t + ½) / (σ √2)). Rounding: up.
        """
        failure = failure_of(confidence)

        def tails(t: int) -> Real:
            return (real((t + Fraction(1, 2)) / self.sigma) / arb(2).sqrt()).erfc()

        return smallest_whole(lambda t: surely_at_most(lambda: tails(t), failure))


def _interval_by_sums(variance: Fraction, failure: Fraction) -> int:
    """Pr[|Z| ≤ t] = 2 F(t) - 1, with F certified well below the failure probability."""
    bits = 96 + int(1 / failure).bit_length()
    law = DiscreteGaussianLaw(variance)
    goal = (2 - failure) * (1 << bits)
    return smallest_whole(lambda t: 2 * law.cdf(t, bits)[0] >= goal)


def _both_tails_up(variance: Fraction, start: int) -> Real:
    """A ball whose upper end is at least Pr[|Z| ≥ start], for σ ≥ 64 and start ≥ 1.

    Claim: with f(x) = e^(-x² / 2σ²), the sum of f over whole x ≥ a is at most
        ∫ₐ f + f(a) / 2 - f'(a) / 12 + V / 120, V the variation of f'' beyond a.
    Why: Euler-Maclaurin to second order; |B₃(x)| / 3! ≤ √3 / 216 < 1 / 120 bounds the remainder.
        f'' falls beyond √3 σ, so V = f''(a) there, and V ≤ 2 / σ² everywhere (it rises from
        -1 / σ² to 2 e^(-3/2) / σ² and falls to 0). All weights sum to at least σ √(2π), by Poisson
        summation.
    """
    a, sigma = real(start), real(variance).sqrt()
    here = (-a * a / (2 * real(variance))).exp()
    integral = sigma * (arb.pi() / 2).sqrt() * (a / (sigma * arb(2).sqrt())).erfc()
    variation = real(2 / variance)
    if start * start >= 3 * variance:
        variation = (a * a / real(variance) - 1) / real(variance) * here
    slope = a / real(variance) * here
    tail = integral + here / 2 + slope / 12 + variation / 120
    return 2 * tail / (sigma * (2 * arb.pi()).sqrt())
