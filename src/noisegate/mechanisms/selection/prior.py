"""The exponential mechanism over a public prior: a base measure on the candidates.

>>> mechanism = PriorExponential.for_epsilon(1, score_sensitivity=1, weights=(3, 1))
>>> mechanism.factor, mechanism.event(Fraction(1)).epsilon
(Fraction(1, 2), Fraction(1, 1))
>>> mechanism.shortfall("0.95", candidates=2)
8
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of, store
from noisegate.mechanisms.selection import scores
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_times
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import ExponentialEvent
from noisegate.transforms.query import Query

WEIGHT_MAX: Final = 1 << 50
WEIGHTS_MAX: Final = 1 << 17


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PriorExponential(scores.ByScore):
    """Chooses candidate o with probability proportional to weight(o) · e^(factor · score(o))."""

    name: ClassVar[str] = "prior-exponential/1"
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        scores.ByScore.__post_init__(self)
        found = self.weights if type(self.weights) is tuple else ()
        whole = tuple(
            int(each) for each in found if type(each) in (int, Fraction) and each == int(each)
        )
        inside = len(whole) == len(found) and all(0 <= each <= WEIGHT_MAX for each in whole)
        if not inside or not any(whole) or len(whole) > WEIGHTS_MAX:
            raise SpecError(
                "The prior is not a list of weights.",
                fix=f"Use whole numbers from 0 to {WEIGHT_MAX}, not all 0.",
                about="prior",
            )
        store(self, "weights", whole)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        score_sensitivity: Number,
        weights: Sequence[int],
        monotone: bool = False,
    ) -> "PriorExponential":
        """The sharpest choice whose event costs exactly ``epsilon``."""
        factor = scores.factor_for(epsilon, score_sensitivity=score_sensitivity, monotone=monotone)
        return cls(factor=factor, monotone=monotone, weights=tuple(weights))

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Sums as scores, one for each weight."""
        scores.require_scores(query, monotone=self.monotone)
        if scores.candidates_in(query) != len(self.weights):
            raise Unsupported(
                "The prior has another number of candidates.",
                fix="Give one weight for each.",
                about="candidates",
            )

    def event(self, score_sensitivity: Fraction, /) -> ExponentialEvent:
        """What one choice is.

        Claim: the log-ratios of neighbours lie in an interval of length ε = 2 · factor · Δ, or
            factor · Δ if scores are monotone; hence ε-differentially private, whatever the weights.
        Adjacency: that of ``score_sensitivity``; monotone scores are a claim for add/remove.
        Why: [MT07, Def. 2 and Thm 6], which has any base measure: weights do not depend on rows, so
            they cancel in each log-ratio, and stay in the constant. Rounding: none.
        """
        return ExponentialEvent(epsilon=self.price(score_sensitivity))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """The position of the chosen candidate, given all scores (clamped to ±2**60)."""
        weights = np.array(self.weights, np.int64)
        contest = Contest(scores.clamped_scores(exact), self.factor, weights)
        return choose_times(contest, count, bits=bits)

    def shortfall(self, confidence: Number, *, candidates: int) -> int:  # noqa: ARG002 - as others
        """How far below the best score of positive weight the chosen one may be.

        Claim: a score lower by x or more is chosen with probability at most
            (W - w) / w · e^(-factor x), with W all weights and w that of the best: at least the
            least of them. Scores are whole, so x = s + 1. Why: [MT07, Thm 7]. Rounding: up.
        """
        live = [each for each in self.weights if each]
        odds = Fraction(sum(live) - min(live), min(live)) / failure_of(confidence)
        if odds <= 1:
            return 0
        gap = upper(lambda: real(odds).log() / real(self.factor))
        return max(0, -(-gap.numerator // gap.denominator) - 1)
