"""A choice of a point on an interval, by how many rows' stretches hold it.

Each row has a stretch [from, until]; the points are -reach + 1, …, reach - 1, and what is clamped
to ±reach lies beyond them. The score of a point is what the rows weigh whose stretch holds it.
Scores are constant between the ends of stretches, so a run of equal points is drawn by its length
and score, and then one of its points: a continuous choice on a public grid as fine as one likes.

>>> mechanism = StretchChoice.for_epsilon(2, rows=1, reach=4, whole=1)
>>> rows = np.array([[-4, 2, 0, 1], [0, 4, 0, 1], [3, 1, 0, 1]], np.int64)
>>> [part.tolist() for part in mechanism.runs(rows)]
[[-3, 0, 3, 4], [3, 3, 1, 0], [1, 2, 1, 0]]
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.algebra.tally import Rows
from noisegate.errors import SpecError
from noisegate.exact import Number, positive, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.selection.scores import FACTOR_MAX
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_times
from noisegate.noise.chunks import Int64Array
from noisegate.noise.uniform import uniform_below_each
from noisegate.privacy.distance import L1
from noisegate.privacy.event import ExponentialEvent
from noisegate.transforms.query import Query, shape_of

REACH_MAX: Final = 1 << 30
_WIDTH: Final = 4  # of a row: from, until, the place of its key, its weight


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StretchChoice(base.Repeatable[L1]):
    """Chooses a point with odds e^(factor · weight of the rows whose stretch holds it)."""

    name: ClassVar[str] = "stretch-choice/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    factor: Fraction
    reach: int
    whole: int

    def __post_init__(self) -> None:
        base.store_positive(self, "factor", most=FACTOR_MAX)
        base.require_whole(self, "reach", least=2, most=REACH_MAX)
        base.require_whole(self, "whole", least=1, most=1 << 10)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, rows: int, reach: int, whole: int) -> "StretchChoice":
        """The sharpest choice whose event costs exactly ``epsilon``; a unit weighs so many rows."""
        weight = base.whole_count(rows, name="rows") * whole
        return cls(factor=positive(epsilon, name="epsilon") / weight, reach=reach, whole=whole)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Two columns of rows, on the grid that it is for."""
        tally = query.tally
        if not isinstance(tally, Rows) or query.asks != "rows" or tally.by:
            raise base.no_rule(query)
        shape = shape_of(tally)
        if (shape.columns, shape.reach, tally.whole) != (2, self.reach, self.whole):
            raise SpecError(
                "The choice was made for other rows.", fix="Give two columns.", about="rows"
            )

    def event(self, rows: L1, /) -> ExponentialEvent:
        """What one choice is, where a unit weighs at most so many rows.

        Claim: the log-ratios of neighbours lie in an interval of length ε = factor · rows · whole.
        Adjacency: add/remove one unit. Why: a unit that comes adds between 0 and what its rows
            weigh to the score of each point, and that is at most rows · whole; so all scores move
            one way [MT07, Thm 6]. The grid is public. Rounding: none.
        """
        return ExponentialEvent(epsilon=self.factor * rows.value * self.whole)

    def runs(self, exact: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Runs of equally good points: the first, how many, and their score; some are empty."""
        rows, last = base.clamped(exact).reshape(-1, _WIDTH), self.reach - 1
        low, high = np.maximum(rows[:, 0], -last), np.minimum(rows[:, 1], last)
        held, weight = low <= high, np.clip(rows[:, 3], 0, self.whole)
        ends = np.concatenate([low[held], high[held] + 1, [-last, last + 1]])
        steps = np.concatenate([weight[held], -weight[held], [0, 0]])
        first, inverse = np.unique(ends, return_inverse=True)
        change = np.zeros(first.size, np.int64)
        np.add.at(change, inverse, steps)
        length = np.append(np.diff(first), 0)
        return first, length, np.cumsum(change)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """A point for each use, counted from 0 at the lowest."""
        first, length, score = self.runs(exact)
        winners = choose_times(Contest(score, self.factor, length), count, bits=bits)[:, 0]
        found = first[winners] + uniform_below_each(length[winners], bits=bits) + self.reach - 1
        return found[:, None].astype(np.int64)

    def shortfall(self, confidence: Number, *, candidates: int, share: Number | None = None) -> int:
        """How far below the best the score of the chosen point may be, at this confidence.

        Claim: Pr[score ≤ best - x] ≤ e^(-factor x) / share, where points of at least the best score
            make up this share of all; at least one point does. With a ``share``, the best is that
            of so large a share of points. Scores are whole, so x = s + 1. Why: [MT07, Thm 7].
        """
        part = Fraction(1, candidates) if share is None else positive(share, name="share")
        if part > 1:
            raise SpecError("The share is above 1.", fix="Use a share such as 0.05.", about="share")
        odds = 1 / (part * base.failure_of(confidence))
        gap = upper(lambda: real(odds).log() / real(self.factor))
        return max(0, -(-gap.numerator // gap.denominator) - 1)
