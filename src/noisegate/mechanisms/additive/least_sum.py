"""How small the smallest of several sums is: a distance to the nearest of several properties.

>>> bool(LeastSum(scale="1/50").sample(np.array([7, 3, 9]))[0] == 3)
True
"""

from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.selection.scores import require_scores
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LeastSum(base.Mechanism[Fraction]):
    """The least of all sums with geometric noise; which of them it is stays unsaid."""

    name: ClassVar[str] = "least-sum/1"
    takes: ClassVar[base.Takes] = base.Takes.ANY_ONE
    monotone: ClassVar[bool] = False  # its noise has two sides
    scale: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """All terms or tables and their cells."""
        require_scores(query, monotone=self.monotone)

    def event(self, reach: Number, /) -> GeometricEvent:
        """What one use is, where a unit moves each sum by at most ``reach``.

        Claim: (reach / scale)-private. Adjacency: that of the reach. Why: the least of numbers
            that move by at most s each moves by at most s; geometric noise [GRS09]. So the
            distance to a property is private, as the least number of rows that must go until one
            of several public conditions has no exception [DMNS06]. Rounding: none.
        """
        moved = L1(positive(reach, name="reach"))
        return GeometricEvent(scale=self.scale, sensitivity=moved)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The least of all the numbers, with noise."""
        least = np.array([base.clamped(exact).min()])
        return Geometric(scale=self.scale).sample(least, bits=bits)

    def interval(self, confidence: Number) -> int:
        """How far the released number may be off."""
        return Geometric(scale=self.scale).interval(confidence)
