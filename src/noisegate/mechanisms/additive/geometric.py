"""The geometric mechanism: integer answers plus two-sided geometric noise, the default for counts.

>>> from noisegate.accounting.pure import pure_loss
>>> mechanism = Geometric.for_epsilon("0.1", sensitivity=L1(1))
>>> str(pure_loss(mechanism.event(L1(1)))), mechanism.interval("0.95")
('ε = 0.1', 30)
"""

from fractions import Fraction
from typing import ClassVar, final

from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MIN, WIDEST, discrete_laplace
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric(base.NoiseMechanism[L1]):
    """Adds independent noise with Pr[z] = (1 - α) / (1 + α) · α^|z|, α = e^(-1/scale)."""

    name: ClassVar[str] = "geometric/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    LEAST: ClassVar[Fraction] = SCALE_MIN
    MOST: ClassVar[Fraction] = WIDEST
    scale: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=self.LEAST, most=self.MOST)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: L1) -> "Geometric":
        """The least noise whose event costs ``epsilon``, scale = sensitivity / ε; or `LEAST`."""
        from noisegate.planning.calibrate import geometric_scale  # noqa: PLC0415 - not for events

        scale = geometric_scale(epsilon, sensitivity=sensitivity)
        return cls(scale=scale and max(scale, cls.LEAST))

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - each is like the others
        """Numbers that are added up."""
        base.require_numbers(query)

    def event(self, sensitivity: L1, /) -> GeometricEvent:
        """What one use is.

        Claim: on an integer vector of L1 sensitivity s this is (s / scale)-differentially private.
        Adjacency: that of ``sensitivity``. Why: [GRS09]; the mass ratio of any output is at most
            α^(-s). Rounding: none.
        """
        return GeometricEvent(scale=self.scale, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**60, plus noise."""
        values = base.clamped(exact)
        return base.noisy(values, discrete_laplace(self.scale, values.shape, bits=bits))

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width; see `geometric_error`. Rounding: up."""
        from noisegate.planning.calibrate import geometric_error  # noqa: PLC0415 - not for events

        return geometric_error(self.scale, confidence=confidence)
