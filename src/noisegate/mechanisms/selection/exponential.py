"""The exponential mechanism: choose a candidate with odds that grow with its score.

>>> mechanism = Exponential.for_epsilon(1, score_sensitivity=1)
>>> mechanism.factor, mechanism.event(Fraction(1)).epsilon
(Fraction(1, 2), Fraction(1, 1))
>>> mechanism.shortfall("0.95", candidates=100)
15
"""

from fractions import Fraction
from typing import ClassVar, final

from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.mechanisms.selection.scores import OneByScore, clamped_scores
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_times
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import ExponentialEvent
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential(OneByScore):
    """Chooses candidate o with probability proportional to e^(factor · score(o))."""

    name: ClassVar[str] = "exponential/1"

    def require(self, query: Query, place: int) -> None:
        """Sums as scores, or how far guesses of tables are off."""
        if query.asks != "distances":
            OneByScore.require(self, query, place)
        elif self.monotone:
            raise Unsupported(
                "These scores are not monotone.", fix="Use monotone=False.", about="monotone"
            )

    def event(self, score_sensitivity: Fraction, /) -> ExponentialEvent:
        """What one choice is.

        Claim: the log-ratios of neighbours lie in an interval of length ε = 2 · factor · Δ, or
            factor · Δ if scores are monotone; hence ε-differentially private.
        Adjacency: that of ``score_sensitivity``; monotone scores are a claim for add/remove.
        Why: [MT07, Thm 6]; a log-ratio is factor times the change of the score plus a constant, and
            the changes lie in [-Δ, Δ], or in [0, Δ]. Rounding: none.
        """
        return ExponentialEvent(epsilon=self.price(score_sensitivity))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """The position of the chosen candidate, given all scores (clamped to ±2**60)."""
        return choose_times(Contest(clamped_scores(exact), self.factor), count, bits=bits)
