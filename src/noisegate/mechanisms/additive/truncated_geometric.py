"""The truncated geometric mechanism: a count known to lie in {0, …, top} stays there.

>>> mechanism = TruncatedGeometric.for_epsilon("0.7", top=10, sensitivity=L1(1))
>>> low, high = mechanism.mass(0, 3)
>>> round(float(low), 7), high - low < Fraction(1, 10**20)
(0.0818239, True)
"""

from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from noisegate.accounting.tails import upper_tail
from noisegate.errors import SpecError
from noisegate.exact import Number, Real, lower, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.cut_geometric import truncated_geometric
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN
from noisegate.planning.calibrate import geometric_scale
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedGeometric(base.NoiseMechanism[L1]):
    """Geometric noise on a count in {0, …, top}, clamped back into that range.

    For one count and any loss that grows with the error, some relabelling of these outputs is
    optimal among all ε-private mechanisms, whatever the reader knew before [GRS09].
    """

    name: ClassVar[str] = "truncated-geometric/1"
    scale: Fraction
    top: int

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        base.require_whole(self, "top", least=1, most=base.INPUT_MAX)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, top: int, sensitivity: L1) -> "TruncatedGeometric":
        """The least noise whose event costs exactly ``epsilon``."""
        return cls(scale=geometric_scale(epsilon, sensitivity=sensitivity), top=top)

    def event(self, sensitivity: L1, /) -> GeometricEvent:
        """What one use is.

        Claim: (s / scale)-differentially private, as the geometric mechanism.
        Adjacency: that of ``sensitivity``. Why: clamping the answer moves no two answers apart and
            clamping the output is post-processing [GRS09]. Rounding: none.
        """
        return GeometricEvent(scale=self.scale, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to [0, top], plus noise, clamped again."""
        values = np.clip(base.clamped(exact), 0, self.top)
        return truncated_geometric(values, self.scale, top=self.top, bits=bits)

    def interval(self, confidence: Number) -> int:
        """The smallest certified half-width that holds for every true count in {0, …, top}.

        Claim: with p = α^(t+1) / (1 + α), the error exceeds t with probability at most 2p if
            2t + 2 ≤ top, p if t < top, and 0 otherwise; each is attained by some true count.
        Why: an error above t needs room above t on that side of the count. Rounding: up.
        """
        failure = base.failure_of(confidence)
        return base.smallest_whole(
            lambda t: (
                t >= self.top
                or base.surely_at_most(
                    lambda: self._sides(t) * upper_tail(self.scale, t + 1), failure
                )
            )
        )

    def mass(self, m: int, n: int) -> tuple[Fraction, Fraction]:
        """Bounds around Pr[m is released | the count is n], equal up to 2**-96 relatively.

        Claim: α^n / (1 + α) at 0, α^(top-n) / (1 + α) at top, and (1 - α) / (1 + α) · α^|m-n|
            between. Why: the ends collect the tails that the clamp cuts off. Rounding: outwards.
        """
        if not (0 <= m <= self.top and 0 <= n <= self.top):
            raise SpecError("A count lies outside [0, top].", fix="Use counts from 0 to top.")
        return lower(lambda: self._mass(m, n)), upper(lambda: self._mass(m, n))

    def _mass(self, m: int, n: int) -> Real:
        tail = upper_tail(self.scale, abs(m - n))
        return tail if m in (0, self.top) else tail * -(-real(1 / self.scale)).expm1()

    def _sides(self, t: int) -> int:
        return 2 if 2 * t + 2 <= self.top else 1
