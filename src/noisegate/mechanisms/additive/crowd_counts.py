"""Counts of a secret sample, the small ones not shown: what survey offices do, with its guarantee.

Each person is in the sample by a secret coin of its own; the sampled people of each cell are
counted exactly, and counts below the crowd are shown as 0. Nothing else is random.

>>> CrowdCounts(probability="1/2", crowd=1000, epsilon=1).sample(np.array([3, 999]))
array([0, 0])
>>> event = CrowdCounts(probability="1/10", crowd=36, epsilon="0.1053606").event(L1(1))
>>> event.crowd
36
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.accounting.crowd import CROWD_MAX, EPSILON_MAX
from noisegate.algebra.tally import Sums
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.binomials import binomial
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.coins import sample_rows
from noisegate.privacy.distance import L1
from noisegate.privacy.event import CrowdCountsEvent
from noisegate.transforms.query import Query

_TOSSED_MAX: Final = 1 << 22  # people at once whose coins are tossed one by one
_LARGE: Final = 1 << 20  # people of one cell whose coins are counted at once


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdCounts(base.Mechanism[L1]):
    """Shows how many of each cell are in the sample, if they are at least ``crowd``; else 0.

    ``epsilon`` is the point of the curve at which a use is charged; it changes nothing that is
    shown.
    """

    name: ClassVar[str] = "crowd-counts/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    probability: Fraction
    crowd: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "probability", most=Fraction(1))
        base.store_positive(self, "epsilon", most=Fraction(EPSILON_MAX))
        base.require_whole(self, "crowd", least=1, most=CROWD_MAX)
        if self.probability == 1:
            raise SpecError("Everybody would be in the sample.", fix="Use a probability below 1.")

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Cells that count people: a unit has one row, and a row counts 1 or nothing."""
        tally = query.tally
        if not isinstance(tally, Sums) or query.asks != "cells" or len(tally.terms) != 1:
            raise Unsupported("A crowd needs counts in cells.", fix="Ask for one count by groups.")
        term = tally.terms[0]
        if query.stability.rows != 1 or term.grain != 1 or (term.low, term.high) != (0, 1):
            raise Unsupported(
                "One unit may have several rows here, so the cells do not count people.",
                fix="Count one row per unit, for example COUNT(DISTINCT unit).",
            )

    def event(self, sensitivity: L1, /) -> CrowdCountsEvent:
        """What one use is.

        Claim: (ε, δ)-differentially private for each point of `accounting.crowd.histogram_delta`;
            nothing at all if the sample is known.
        Adjacency: add/remove one person, who is in one cell at most, once.
        Why: `histogram_delta` [GHLP12], [LQS12]. A person's coin is independent of all else, so a
            cell of n people shows a binomial number. Each use tosses fresh coins; so uses compose
            like any others. Rounding: none here; the price is rounded up.
        """
        if sensitivity.value != 1:
            raise SpecError(
                "In a crowd everybody has exactly one row.", fix="Count one row per unit."
            )
        return CrowdCountsEvent(
            probability=self.probability, crowd=self.crowd, epsilon=self.epsilon
        )

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The counts of a fresh sample. Cells are numbers of people: 0 or more."""
        people = np.maximum(exact, 0)
        found = np.zeros_like(people)
        large = people >= _LARGE
        for place in np.flatnonzero(large):
            found.flat[place] = binomial(int(people.flat[place]), self.probability, bits=bits)[0]
        few = np.where(large, 0, people).ravel()
        for start, stop in _batches(few):
            ends = np.cumsum(few[start:stop])
            taken = sample_rows(int(ends[-1]), self.probability, bits=bits)
            cells = np.searchsorted(ends, taken, side="right")
            found.reshape(-1)[start:stop] += np.bincount(cells, minlength=stop - start)
        return np.where(found >= self.crowd, found, 0)


def _batches(few: Int64Array) -> list[tuple[int, int]]:
    """Runs of cells whose people are tossed for together."""
    ends = np.cumsum(few)
    if not ends.size or not ends[-1]:
        return []
    marks = np.arange(0, int(ends[-1]), _TOSSED_MAX)
    starts = np.unique(np.searchsorted(ends, marks, side="right"))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), few.size], strict=True))
