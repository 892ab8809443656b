"""The Laplace mechanism: ideal real-valued noise, exactly rounded to the integer grid.

Integer answers plus round(scale · Z) equal the rounded real-valued mechanism, so privacy is that of
the continuous theorem. Geometric noise is as private and a little more accurate for one count;
this one is for callers whose analysis speaks of continuous Laplace noise.
"""

from fractions import Fraction
from typing import ClassVar, Final, final

from noisegate.exact import Number, Real, real
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.continuous import Laplace as LaplaceShape
from noisegate.noise.continuous import rounded
from noisegate.planning.calibrate import geometric_scale
from noisegate.privacy.distance import L1
from noisegate.privacy.event import LaplaceEvent

SCALE_MIN: Final = Fraction(1, 1000)
SCALE_MAX: Final = Fraction(1 << 50)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace(base.NoiseMechanism[L1]):
    """Adds round(scale · Z) with Z of density e^(-|z|) / 2; ``scale`` in units of the grid."""

    name: ClassVar[str] = "laplace/1"
    scale: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: L1) -> "Laplace":
        """The least noise whose event costs exactly ``epsilon``."""
        return cls(scale=geometric_scale(epsilon, sensitivity=sensitivity))

    def event(self, sensitivity: L1, /) -> LaplaceEvent:
        """What one use is.

        Claim: (s / scale)-differentially private for L1 sensitivity s.
        Adjacency: that of ``sensitivity``. Why: [DMNS06, Prop. 1], and rounding is post-processing.
        Rounding: none; the draw is the exactly rounded real.
        """
        return LaplaceEvent(scale=self.scale, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**60, plus noise."""
        values = base.clamped(exact)
        return base.noisy(values, rounded(LaplaceShape(), self.scale, values.shape, bits=bits))

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width.

        Claim: Pr[|round(scale · Z)| > t] = e^(-(t + ½) / scale). Rounding: up.
        """
        failure = base.failure_of(confidence)

        def tails(t: int) -> Real:
            return (-real((t + Fraction(1, 2)) / self.scale)).exp()

        return base.smallest_whole(lambda t: base.surely_at_most(lambda: tails(t), failure))
