"""Noisy max with free gaps: who leads, and by how much, for the price of who leads.

Each score gets exponential noise of mean 1 / factor. The k largest are released in order, and with
each its gap: how far its noisy score leads the next one, rounded down to whole scores. Without the
gaps and with k = 1 it is permute-and-flip [DKXWZ21].

>>> NoisyMax.for_epsilon(1, k=2, score_sensitivity=1, monotone=True).factor
Fraction(1, 2)
"""

from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, Real, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of, whole_count
from noisegate.mechanisms.selection.scores import (
    SeveralByScore,
    clamped_scores,
    require_scores,
    shortfall_up,
)
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.choice import Contest, choose_with_gaps_times
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import DeclaredEvent
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyMax(SeveralByScore):
    """Chooses the k best by score plus exponential noise, and says how far each leads the next."""

    name: ClassVar[str] = "noisy-max/1"

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Sums as scores, of more candidates than are chosen: the last leads one more."""
        require_scores(query, monotone=self.monotone, candidates=self.k + 1)

    def event(self, score_sensitivity: Fraction, /) -> DeclaredEvent:
        """What the k choices and their gaps are.

        Claim: ε-differentially private with ε = 2 · k · factor · Δ, or k · factor · Δ if monotone.
        Adjacency: that of ``score_sensitivity``; monotone scores are a claim for add/remove.
        Why: a free gap as in [DWZK19], here for one-sided noise. Measure scores in 1 / factor and
            let M be the largest noisy score of those not chosen. The chosen are fixed distances
            c_j above M, so their density at given gaps is, with u = e^-M, a = e^score, F(u) the
            product of 1 - a_l u over the others, and w the least of e^(c_j) / a_j and 1 / a_l,
                Π a_j e^(-c_j) · ψ,    ψ = ∫₀ʷ u^k (-F′(u)) du = k ∫₀ʷ u^(k-1) F du - w^k F(w).
            Let scores rise at speeds v in [0, 1]; log density then changes at the speed
                D = Σ v_j - t X + A - k B,   t the speed of the chosen one that decides w,
                X = w^(k+1) (-F′(w)) / ψ,  A = w^k P(w) / ψ,  B = ∫₀ʷ u^(k-1) P du / ψ,
                P(u) = Σ v_l a_l u Π_(m≠l) (1 - a_m u),  and X = A = 0 where no chosen one does.
            P(u) / u falls, so P(u) ≥ P(w) u / w, hence A ≤ (k + 1) B; also B ≤ 1. The same for
            all v = 1 and for 1 - v: X ≤ k + 1 and X - A ≤ (k + 1)(1 - B), A ≤ X.
            Above: D ≤ k - 1 + t - t X + A - k B with A - k B ≤ A / (k + 1) ≤ X / (k + 1). It is
            linear in t: at t = 0 it is at most k - 1 + X / (k + 1) ≤ k, at t = 1 at most k.
            Below: D ≥ t - t X + A - k B. At t = 0 it is at least -k; at t = 1 it is at least
            1 - (k + 1)(1 - B) - k B = B - k. So |D| ≤ k. Monotone scores rise by at most
            factor · Δ each; others, counted from factor · Δ lower, by at most twice that, and a
            shift of all scores changes nothing. Rounding gaps down is post-processing.
        Rounding: none but that.
        """
        return DeclaredEvent(epsilon=self.k * self.price(score_sensitivity))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """Positions of the k chosen, best first, and then their k gaps."""
        scores = clamped_scores(exact)
        if scores.size <= self.k:
            raise SpecError(
                "There are fewer gaps than that.", fix="Use k below the number of candidates."
            )
        contest = Contest(scores, self.factor)
        found = choose_with_gaps_times(contest, count, k=self.k, bits=bits)
        return np.concatenate(found, axis=1)

    def shortfall(self, confidence: Number, *, candidates: int) -> int:
        """How far any of the k may score below the best still left when it was chosen.

        Claim: holds for all k together. Why: noise is not negative, so a lower one is chosen only
            by noise of its own above what it lacks; union bound over all candidates, or over all
            but the best if k is 1. Rounding: up.
        """
        if candidates <= self.k:
            raise SpecError(f"candidates is {candidates}.", fix="Use more than k candidates.")
        rivals = candidates - (self.k == 1)
        failure = failure_of(confidence)
        return shortfall_up(self.factor, candidates=rivals + 1, failure=failure)

    def gap_error(self, confidence: Number, *, candidates: int) -> int:
        """How far the gap may be from the true lead over the best of the rest, either way.

        Claim: all k together: the chosen one's score less the best score among those left lies
            within this of its gap. Why: noise lies in [0, t] for all candidates at once, with
            t = -ln(1 - confidence^(1 / candidates)) / factor; the next one's noisy score is at
            least the best score left and at most t above it. The gap is rounded down by less
            than 1. Rounding: up.
        """
        level = 1 - failure_of(confidence)
        count = whole_count(candidates, name="candidates")
        reach = upper(lambda: -_below(level, count).log() / real(self.factor))
        return -(-reach.numerator // reach.denominator) + 1


def _below(level: Fraction, count: int) -> Real:
    """1 - level^(1 / count)."""
    return 1 - (real(level).log() / count).exp()
