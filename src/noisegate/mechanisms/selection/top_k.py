"""Top-k in one shot: Gumbel noise once, the k largest in order.

>>> TopK.for_epsilon(1, k=5, score_sensitivity=1, monotone=True).factor
Fraction(1, 5)
"""

from fractions import Fraction
from typing import ClassVar, final

from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of
from noisegate.mechanisms.selection.scores import SeveralByScore, clamped_scores, shortfall_up
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_times
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import TopKEvent


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(SeveralByScore):
    """Chooses k candidates, each of the next weighing e^(factor · score) among those left."""

    name: ClassVar[str] = "top-k/1"

    def event(self, score_sensitivity: Fraction, /) -> TopKEvent:
        """What the k choices are.

        Claim: the same as k exponential mechanisms in a row, each on the candidates left.
        Adjacency: that of ``score_sensitivity``; monotone scores are a claim for add/remove.
        Why: [DR19, Lemma 4.2]; the k largest of Gumbel-noised scores, in order. Rounding: none.
        """
        return TopKEvent(k=self.k, epsilon_each=self.price(score_sensitivity))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """Positions of the k chosen candidates, best first."""
        contest = Contest(clamped_scores(exact), self.factor)
        return choose_times(contest, count, k=self.k, bits=bits)

    def shortfall(self, confidence: Number, *, candidates: int) -> int:
        """How far any of the k may score below the best still left when it was chosen.

        Claim: holds for all k together. Why: the failure probability is split evenly. Rounding: up.
        """
        if candidates < self.k:
            raise SpecError(f"candidates is {candidates}.", fix="Use at least k candidates.")
        failure = failure_of(confidence) / self.k
        return shortfall_up(self.factor, candidates=candidates, failure=failure)
