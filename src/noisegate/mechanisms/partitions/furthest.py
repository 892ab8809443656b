"""The exponential mechanism on guesses: choose a question whose guess is far from its answer.

>>> choice = Furthest.for_epsilon(50, guesses=(10, 10, 10), score_sensitivity=1)
>>> choice.event(Fraction(1)).epsilon, choice.sample(np.array([11, 10, 30])).tolist()
(Fraction(50, 1), [2])
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, final

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Furthest(base.Repeatable[Fraction]):
    """Chooses question i with probability proportional to e^(factor · |answer_i - guess_i|)."""

    name: ClassVar[str] = "furthest/1"
    takes: ClassVar[base.Takes] = base.Takes.ANY_ONE
    factor: Fraction
    guesses: tuple[int, ...]

    def __post_init__(self) -> None:
        base.store_positive(self, "factor", most=FACTOR_MAX)
        base.store(self, "guesses", tuple(whole_number(guess) for guess in self.guesses))
        if not self.guesses or max(map(abs, self.guesses)) > base.INPUT_MAX:
            raise SpecError("There are no guesses, or one exceeds 2**60.", fix="Give counts.")

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, guesses: Sequence[int], score_sensitivity: Number
    ) -> "Furthest":
        """The sharpest choice whose event costs exactly ``epsilon``: factor ε / 2Δ."""
        factor = factor_for(epsilon, score_sensitivity=score_sensitivity, monotone=False)
        return cls(factor=factor, guesses=tuple(guesses))

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """One block of questions about the cells of one sum, and a guess for each."""
        if len(self.guesses) != questions_of(query):
            raise Unsupported(
                "There must be one guess per question.", fix="Give one for each.", about="guesses"
            )

    def event(self, sensitivity: Fraction, /) -> ExponentialEvent:
        """What one choice is.

        Claim: the log-ratios of neighbours lie in an interval of length ε = 2 · factor · Δ.
        Adjacency: that of ``sensitivity``, the furthest that one unit moves any one answer.
        Why: guesses are public, so a score |answer - guess| moves by at most Δ, up or down; then
            [MT07, Thm 6]. Clamping moves no two answers further apart. Rounding: none.
        """
        epsilon = price_of(self.factor, sensitivity, monotone=False)
        return ExponentialEvent(epsilon=epsilon)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """The place of the chosen question, given all answers (clamped to ±2**60)."""
        answers = base.clamped(exact)
        if answers.shape != (len(self.guesses),):
            raise SpecError("There must be one guess per answer.", fix="Give one for each.")
        gaps = np.abs(answers - np.array(self.guesses, np.int64))
        return choose_times(Contest(clamped_scores(gaps), self.factor), count, bits=bits)

    def shortfall(self, confidence: Number) -> int:
        """How much nearer than the furthest guess the chosen one may be, at this confidence."""
        return shortfall(self.factor, candidates=len(self.guesses), confidence=confidence)
