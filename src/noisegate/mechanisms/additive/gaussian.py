"""Gaussian noise on the integers, of any rational variance: s² / 2σ² in zCDP at L2 sensitivity s.

>>> DiscreteGaussian.for_rho("0.01", sensitivity=L2(squared=1)).variance
Fraction(50, 1)
"""

from fractions import Fraction
from typing import ClassVar, final

from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.law import VARIANCE_MAX, VARIANCE_MIN
from noisegate.privacy.distance import L2
from noisegate.privacy.event import DiscreteGaussianEvent
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussian(base.NoiseMechanism[L2]):
    """Adds independent noise with Pr[z] proportional to e^(-z² / 2 variance)."""

    name: ClassVar[str] = "discrete-gaussian/1"
    takes: ClassVar[base.Takes] = base.Takes.L2
    LEAST: ClassVar[Fraction] = VARIANCE_MIN
    MOST: ClassVar[Fraction] = VARIANCE_MAX
    variance: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "variance", least=self.LEAST, most=self.MOST)

    @classmethod
    def for_rho(cls, rho: Number, *, sensitivity: L2) -> "DiscreteGaussian":
        """The least noise whose event costs ``rho`` in zCDP, variance = s² / 2ρ; or `LEAST`."""
        from noisegate.planning.calibrate import discrete_gaussian_variance  # noqa: PLC0415

        return cls(
            variance=max(discrete_gaussian_variance(rho, sensitivity=sensitivity), cls.LEAST)
        )

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - each is like the others
        """Numbers that are added up."""
        base.require_numbers(query)

    def event(self, sensitivity: L2, /) -> DiscreteGaussianEvent:
        """What one use is.

        Claim: (s² / 2 variance)-zCDP on an integer vector of L2 sensitivity s.
        Adjacency: that of ``sensitivity``. Why: [CKS20, Prop. 5]; Rényi divergences of independent
            cells add up. Rounding: none.
        """
        return DiscreteGaussianEvent(variance=self.variance, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**60, plus noise."""
        from noisegate.noise.gaussian import discrete_gaussian  # noqa: PLC0415 - not for all

        values = base.clamped(exact)
        noise = discrete_gaussian(size=values.shape, variance=self.variance, bits=bits)
        return base.noisy(values, noise)

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width; see `discrete_gaussian_error`. Rounding: up."""
        from noisegate.planning.calibrate import discrete_gaussian_error  # noqa: PLC0415

        return discrete_gaussian_error(self.variance, confidence=confidence)
