"""The geometric mechanism: integer answers plus two-sided geometric noise, the default for counts.

>>> from noisegate.accounting.pure import pure_loss
>>> mechanism = Geometric.for_epsilon("0.1", sensitivity=L1(1))
>>> str(pure_loss(mechanism.event(L1(1)))), mechanism.interval("0.95")
('ε = 0.1', 30)
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

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
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, discrete_laplace
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent


def upper_tail(scale: Fraction, t: int) -> Real:
    """Pr[Z ≥ t] = α^t / (1 + α) as a ball, for t ≥ 0, with α = e^(-1/scale)."""
    return (-real(t / scale)).exp() / (1 + (-real(1 / scale)).exp())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Geometric(NoiseMechanism[L1]):
    """Adds independent noise with Pr[z] = (1 - α) / (1 + α) · α^|z|, α = e^(-1/scale)."""

    name: ClassVar[str] = "geometric/1"
    scale: Fraction

    def __post_init__(self) -> None:
        store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: L1) -> "Geometric":
        """The least noise whose event costs exactly ``epsilon``: scale = sensitivity / ε."""
        return cls(scale=sensitivity.value / positive(epsilon, name="epsilon"))

    def event(self, sensitivity: L1, /) -> GeometricEvent:
        """What one use is.

        Claim: on an integer vector of L1 sensitivity s this is (s / scale)-differentially private.
        Adjacency: that of ``sensitivity``. Why: [GRS09]; the mass ratio of any output is at most
            α^(-s). Rounding: none.
        """
        return GeometricEvent(scale=self.scale, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**61, plus noise."""
        values = clamped(exact)
        return values + discrete_laplace(self.scale, values.shape, bits=bits)

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width.

        Claim: Pr[|Z| > t] = 2 α^(t+1) / (1 + α). Why: two geometric series. Rounding: up.
        """
        failure = failure_of(confidence)
        return smallest_whole(
            lambda t: surely_at_most(lambda: 2 * upper_tail(self.scale, t + 1), failure)
        )
