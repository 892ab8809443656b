"""Where to cut boxes in two so that about half of what they hold is on either side.

>>> cuts = Splits.for_epsilon(50, shape=(8,), boxes=((0, 3, 0), (4, 7, 0)))
>>> cuts.event(L1(1)).epsilon, cuts.sample(np.array([9, 9, 9, 9, 90, 1, 1, 88])).tolist()
(Fraction(50, 1), [2, 5])
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.partitions.boxes import (
    box_sums,
    checked_shape,
    require_table,
    summed,
    whole_number,
)
from noisegate.mechanisms.selection.scores import FACTOR_MAX, factor_for, price_of
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_each
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1
from noisegate.privacy.event import ExponentialEvent
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Splits(base.Mechanism[L1]):
    """Cuts each of several disjoint boxes of cells with odds e^(-factor · |left - right|).

    ``boxes`` lists, box after box, its lowest cell, its highest cell and the axis to cut along.
    """

    name: ClassVar[str] = "splits/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    factor: Fraction
    shape: tuple[int, ...]
    boxes: tuple[int, ...]

    def __post_init__(self) -> None:
        base.store_positive(self, "factor", most=FACTOR_MAX)
        base.store(self, "shape", checked_shape(self.shape))
        base.store(self, "boxes", tuple(whole_number(value) for value in self.boxes))
        width = 2 * len(self.shape) + 1
        if not self.boxes or len(self.boxes) % width:
            raise SpecError("The boxes are incomplete.", fix=f"Give {width} numbers for each.")
        lows, highs, axes = self._parts()
        sizes = np.array(self.shape)
        if not np.all((lows >= 0) & (lows <= highs) & (highs < sizes)):
            raise SpecError("A box is outside the table.", fix="Use 0 ≤ low ≤ high < size.")
        inside = (axes >= 0) & (axes < sizes.size)
        along = np.clip(axes, 0, sizes.size - 1)[:, None]
        if not np.all(inside & (np.take_along_axis(highs - lows, along, 1)[:, 0] > 0)):
            raise SpecError(
                "A box cannot be split there.", fix="Split along an axis of length 2 or more."
            )
        if _overlap(self.shape, lows, highs):
            raise SpecError(
                "Two boxes overlap.", fix="Split boxes that share no cell.", about="overlap"
            )

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, shape: Sequence[int], boxes: Sequence[Sequence[int]]
    ) -> "Splits":
        """The sharpest cuts whose event costs ``epsilon`` where cells move by 1 in L1."""
        factor = factor_for(epsilon, score_sensitivity=1, monotone=False)
        flat = tuple(int(value) for box in boxes for value in box)
        return cls(factor=factor, shape=tuple(shape), boxes=flat)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """The cells of one sum, as a table of this shape."""
        require_table(query, self.shape)

    def event(self, sensitivity: L1, /) -> ExponentialEvent:
        """What all cuts together are.

        Claim: log-ratios of neighbours have range ε = 2 · factor · s for cells of L1 sensitivity s.
        Adjacency: that of ``sensitivity``.
        Why: independent choices are one choice among all lists of cuts, with the sum of the scores
            -|left - right|. Boxes are disjoint, so one unit's change v of the cells moves the score
            of box j by at most ‖v_j‖₁ and the sum by at most Σ ‖v_j‖₁ ≤ s, whatever the cuts are
            [MT07, Thm 6]; medians of disjoint nodes as in [CPSSY12]. The list of boxes and axes is
            public. Rounding: none.
        """
        epsilon = price_of(self.factor, sensitivity.value, monotone=False)
        return ExponentialEvent(epsilon=epsilon)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """For each box the first cell, along its axis, that belongs to the upper side."""
        lows, highs, axes = self._parts()
        along = np.arange(axes.size), axes
        lengths = (highs - lows)[along]  # so many places to cut
        starts = np.cumsum(lengths) - lengths
        box = np.repeat(np.arange(axes.size), lengths)
        last = lows[along][box] + np.arange(box.size) - starts[box]  # of the lower side
        ends = highs[box]
        ends[np.arange(box.size), axes[box]] = last
        sums = summed(base.clamped(exact), self.shape)
        left, total = box_sums(sums, lows[box], ends), box_sums(sums, lows, highs)
        scores = -np.abs(2 * left - total[box])
        winners = choose_each(Contest(scores, self.factor), starts, bits=bits)
        first: Int64Array = last[winners] + 1
        return first

    def _parts(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        dims = len(self.shape)
        table = np.array(self.boxes, np.int64).reshape(-1, 2 * dims + 1)
        return table[:, :dims], table[:, dims:-1], table[:, -1]


def _overlap(shape: tuple[int, ...], lows: Int64Array, highs: Int64Array) -> bool:
    """Whether two boxes share a cell: their corners, added up, count the boxes over each cell."""
    steps = np.zeros([size + 1 for size in shape], np.int64)
    for corner in np.ndindex(*(2,) * len(shape)):
        upper = np.array(corner, np.bool_)
        sign = -1 if upper.sum() % 2 else 1
        np.add.at(steps, tuple(np.where(upper, highs + 1, lows).T), sign)
    for axis in range(len(shape)):
        steps = steps.cumsum(axis=axis)
    return bool(steps.max() > 1)
