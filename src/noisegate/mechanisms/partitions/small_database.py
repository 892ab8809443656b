"""The net mechanism: choose a tiny database whose answers are near, among all of its size [BLR08].

All multisets of ``size`` rows over the cells stand to be chosen, each by how far its answers,
scaled to ``rows`` rows, are from the exact ones at worst. All of them are listed, which is how far
it reaches: 6 rows over 16 cells, 3 over 90, 1 over 512.

>>> net = SmallDatabase.for_epsilon(
...     50, questions=(1, 0, 0, 0, 1, 1), cells=3, size=2, rows=100, score_sensitivity=1)
>>> net.databases.tolist()[int(net.sample(np.array([49, 52]))[0])][0]  # of its two rows, in cell 0
1
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.partitions.boxes import whole_number
from noisegate.mechanisms.selection.scores import (
    FACTOR_MAX,
    clamped_scores,
    factor_for,
    price_of,
    questions_of,
    shortfall,
)
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_times
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import ExponentialEvent
from noisegate.transforms.query import Query

CELLS_MAX: Final = 512
SIZE_MAX: Final = 6
DATABASES_MAX: Final = 150_000
ENTRIES_MAX: Final = 1 << 25  # answers of all databases
QUESTIONS_MAX: Final = 1000
_ROWS_MAX: Final = 1 << 40


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDatabase(base.Repeatable[Fraction]):
    """Chooses database y with probability ∝ e^(-factor · max over q of |answer_q - guess_q(y)|).

    ``questions`` are 0 and 1, one row of ``cells`` numbers for each; the guess of q is how many of
    the database's rows lie in its cells, times rows / size, rounded.
    """

    name: ClassVar[str] = "small-database/1"
    takes: ClassVar[base.Takes] = base.Takes.ANY_ONE
    factor: Fraction
    questions: tuple[int, ...]
    cells: int
    size: int
    rows: int

    def __post_init__(self) -> None:
        base.store_positive(self, "factor", most=FACTOR_MAX)
        base.require_whole(self, "cells", least=2, most=CELLS_MAX)
        base.require_whole(self, "size", least=1, most=SIZE_MAX)
        base.require_whole(self, "rows", least=1, most=_ROWS_MAX)
        base.store(self, "questions", tuple(whole_number(each) for each in self.questions))
        if set(self.questions) - {0, 1} or not 0 < self.width <= QUESTIONS_MAX:
            raise SpecError(
                "The questions are not rows of 0 and 1, one per cell.", fix="Give one for each."
            )
        if len(self.questions) % self.cells:
            raise SpecError("A question is about other cells.", fix="Give 0 or 1 for each cell.")

        reach = min(DATABASES_MAX, ENTRIES_MAX // max(self.width, self.cells))
        if self.candidates > reach:
            fitting = [s for s in range(1, self.size) if comb(self.cells + s - 1, s) <= reach]
            raise Unsupported(
                f"There are {self.candidates:,} databases of {self.size} rows over {self.cells} "
                "cells, more than can be listed.",
                fix=f"Use size={max(fitting)}." if fitting else "Use fewer cells or questions.",
                about="cells",
            )

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        questions: Sequence[int],
        cells: int,
        size: int,
        rows: int,
        score_sensitivity: Number,
    ) -> "SmallDatabase":
        """The sharpest choice whose event costs exactly ``epsilon``: factor ε / 2Δ."""
        factor = factor_for(epsilon, score_sensitivity=score_sensitivity, monotone=False)
        return cls(factor=factor, questions=tuple(questions), cells=cells, size=size, rows=rows)

    @property
    def width(self) -> int:
        """How many questions there are."""
        return len(self.questions) // self.cells

    @property
    def candidates(self) -> int:
        """How many databases there are."""
        return comb(self.cells + self.size - 1, self.size)

    @property
    def databases(self) -> Int64Array:
        """All of them, each as how many rows it has in each cell; in a fixed order."""
        chosen = np.array(list(combinations_with_replacement(range(self.cells), self.size)))
        found: Int64Array = (chosen[:, :, None] == np.arange(self.cells)).sum(axis=1)
        return found

    @property
    def guesses(self) -> Int64Array:
        """What each database answers to each question, for so many rows."""
        asked = np.array(self.questions, np.int64).reshape(self.width, self.cells)
        return (2 * self.rows * (self.databases @ asked.T) + self.size) // (2 * self.size)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """One block of questions about the cells of one sum: as many as the databases answer."""
        if self.width != questions_of(query):
            raise Unsupported(
                "The questions differ from those of the mechanism.",
                fix="Ask the questions that the databases were made for.",
            )

    def event(self, sensitivity: Fraction, /) -> ExponentialEvent:
        """What one choice is.

        Claim: the log-ratios of neighbours lie in an interval of length ε = 2 · factor · Δ.
        Adjacency: that of ``sensitivity``, the furthest that one unit moves any one answer.
        Why: guesses are public, so each |answer - guess| moves by at most Δ, and so does the
            largest of them; then [MT07, Thm 6]. Clamping moves no two answers further apart.
        Rounding: none.
        """
        epsilon = price_of(self.factor, sensitivity, monotone=False)
        return ExponentialEvent(epsilon=epsilon)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """The place of the chosen database, given all answers (clamped to ±2**59)."""
        answers = base.clamped(exact, base.INPUT_MAX >> 1)
        if answers.shape != (self.width,):
            raise SpecError("There must be one answer per question.", fix="Give one for each.")
        worst = np.abs(self.guesses - answers).max(axis=1)
        return choose_times(Contest(clamped_scores(-worst), self.factor), count, bits=bits)

    def shortfall(self, confidence: Number) -> int:
        """How much further off than the nearest database the chosen one may be, in answers."""
        return shortfall(self.factor, candidates=self.candidates, confidence=confidence)
