"""Continuous Gaussian noise, exactly rounded: for analyses that speak of continuous noise."""

from fractions import Fraction
from typing import ClassVar, Final, final

from flint import arb

from noisegate.exact import Number, Real, real
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.continuous import Gaussian as GaussianShape
from noisegate.noise.continuous import rounded
from noisegate.privacy.distance import L2
from noisegate.privacy.event import GaussianEvent

SIGMA_MIN: Final = Fraction(1, 1000)
SIGMA_MAX: Final = Fraction(1 << 50)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedGaussian(base.NoiseMechanism[L2]):
    """Adds round(sigma · Z) with Z standard normal; ``sigma`` in units of the grid."""

    name: ClassVar[str] = "gaussian/1"
    sigma: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "sigma", least=SIGMA_MIN, most=SIGMA_MAX)

    def event(self, sensitivity: L2, /) -> GaussianEvent:
        """What one use is.

        Claim: (s² / 2σ²)-zCDP for L2 sensitivity s; also the exact trade-off of [BW18, Thm 8].
        Adjacency: that of ``sensitivity``. Why: [BS16, Prop. 1.6], rounding is post-processing.
        Rounding: none; the draw is the exactly rounded real.
        """
        return GaussianEvent(variance=self.sigma**2, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**60, plus noise."""
        values = base.clamped(exact)
        return base.noisy(values, rounded(GaussianShape(), self.sigma, values.shape, bits=bits))

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width.

        Claim: Pr[|round(σ Z)| > t] = erfc((t + ½) / (σ √2)). Rounding: up.
        """
        failure = base.failure_of(confidence)

        def tails(t: int) -> Real:
            return (real((t + Fraction(1, 2)) / self.sigma) / arb(2).sqrt()).erfc()

        return base.smallest_whole(lambda t: base.surely_at_most(lambda: tails(t), failure))
