"""What choices by score share: the weight of a score, its price, and how good the choice is.

Scores are whole numbers on a public grid. A choice weighs candidate o by e^(factor · score(o)); its
price is 2 · factor · sensitivity, or half of that when scores are monotone: adding a unit
moves no score down (or no score up), whatever the data.
"""

from fractions import Fraction
from typing import Any, ClassVar, Final, Self

from noisegate.algebra.tally import Marginals, Sums
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, positive, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.chunks import Int64Array
from noisegate.transforms.query import Query

SCORE_MAX: Final = 1 << 60
FACTOR_MAX: Final = Fraction(1 << 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByScore(base.Repeatable[Fraction]):
    """A choice by score, and whether it relies on monotone scores."""

    takes: ClassVar[base.Takes] = base.Takes.ANY_ONE
    factor: Fraction
    monotone: bool = False

    def __post_init__(self) -> None:
        base.store_positive(self, "factor", most=FACTOR_MAX)
        require_flag(self, "monotone")

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Sums as scores."""
        require_scores(query, monotone=self.monotone)

    def price(self, score_sensitivity: Fraction) -> Fraction:
        """The ε of one choice."""
        return price_of(self.factor, score_sensitivity, monotone=self.monotone)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneByScore(ByScore):
    """A choice of one candidate."""

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, score_sensitivity: Number, monotone: bool = False
    ) -> Self:
        """The sharpest choice whose event costs exactly ``epsilon``: ε / 2Δ, monotone ε / Δ."""
        factor = factor_for(epsilon, score_sensitivity=score_sensitivity, monotone=monotone)
        return cls(factor=factor, monotone=monotone)

    def shortfall(self, confidence: Number, *, candidates: int) -> int:
        """How far below the best score the chosen one may be, at this confidence."""
        return shortfall(self.factor, candidates=candidates, confidence=confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralByScore(ByScore):
    """A choice of ``k`` candidates, best first."""

    k: int

    def __post_init__(self) -> None:
        ByScore.__post_init__(self)
        base.require_whole(self, "k", least=1, most=base.INPUT_MAX)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Sums as scores, of as many candidates as are chosen."""
        require_scores(query, monotone=self.monotone, candidates=self.k)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, k: int, score_sensitivity: Number, monotone: bool = False
    ) -> Self:
        """The sharpest choice that costs exactly ``epsilon``: factor ε / 2kΔ, monotone ε / kΔ."""
        each = positive(epsilon, name="epsilon") / base.whole_count(k, name="k")
        factor = factor_for(each, score_sensitivity=score_sensitivity, monotone=monotone)
        return cls(k=k, factor=factor, monotone=monotone)


def require_scores(query: Query, *, monotone: bool, candidates: int = 1) -> None:
    """Refuse all but plain sums, of so many candidates: all terms (or tables) and their cells.

    Or one block of combinations of cells, each a candidate.
    """
    tally = query.tally
    combined = query.asks == "combinations" and len(query.combinations.blocks) == 1
    if not isinstance(tally, Sums | Marginals) or not (query.asks == "cells" or combined):
        raise Unsupported(
            "A choice by score needs sums, or distances from guessed tables.",
            fix="Give plain sums, one block of them, or distances of marginals.",
            about="scores",
        )
    if monotone and not query.is_monotone:
        raise Unsupported(
            "These scores are not monotone.", fix="Use monotone=False.", about="monotone"
        )
    if candidates_in(query) < candidates:
        raise Unsupported(
            "There are too few candidates.", fix="Choose fewer of them.", about="candidates"
        )


def candidates_in(query: Query) -> int:
    """How many scores a question has: combinations of cells, or terms (or tables) and cells."""
    tally = query.tally
    if query.asks == "combinations":
        return query.combinations.blocks[0].size
    if not isinstance(tally, Sums | Marginals):
        return 0
    return (len(tally.terms) if isinstance(tally, Sums) else 1) * tally.cells


def questions_of(query: Query) -> int:
    """How many questions a block about the cells of one sum has; refuses anything else."""
    if query.asks != "combinations" or len(query.l1s) != 1:
        raise Unsupported(
            "A threshold test needs one block of questions about one sum.",
            fix="Give a strategy.",
        )
    return query.combinations.blocks[0].size


def sides(*, monotone: bool) -> int:
    """How many times the sensitivity enters: once through the score, once through the rest."""
    return 1 if monotone else 2


def factor_for(epsilon: Number, *, score_sensitivity: Number, monotone: bool) -> Fraction:
    """The largest factor whose price is exactly ``epsilon``."""
    reach = positive(score_sensitivity, name="score_sensitivity")
    return positive(epsilon, name="epsilon") / (sides(monotone=monotone) * reach)


def price_of(factor: Fraction, score_sensitivity: Number, *, monotone: bool) -> Fraction:
    """The ε of one choice: factor · sensitivity, twice unless the scores are monotone."""
    reach = positive(score_sensitivity, name="score_sensitivity")
    return sides(monotone=monotone) * factor * reach


def clamped_scores(scores: Int64Array) -> Int64Array:
    """A row of scores within ±2**60; clamping keeps sensitivity and monotonicity."""
    values = base.clamped(scores, SCORE_MAX)
    if values.ndim != 1 or not values.size:
        raise SpecError(
            "The scores are not one-dimensional.", fix="Give one score per candidate, at least one."
        )
    return values


def shortfall_up(factor: Fraction, *, candidates: int, failure: Fraction) -> int:
    """A whole s such that the chosen score is below the best by more than s with Pr ≤ failure.

    Claim: a score lower by x or more is chosen with probability at most
        (candidates - 1) e^(-factor x), by the exponential mechanism and by permute-and-flip. Scores
        are whole, so x = s + 1.
    Why: [MT07, Thm 7] for the former: all weights total at least that of the best. In the latter a
        worse candidate wins only by exponential noise above factor · x; union bound.
    Rounding: up.
    """
    rivals = base.whole_count(candidates, name="candidates") - 1
    if rivals == 0 or failure >= rivals:
        return 0
    gap = upper(lambda: (real(rivals / failure)).log() / real(factor))
    return max(0, -(-gap.numerator // gap.denominator) - 1)


def require_flag(mechanism: base.Mechanism[Any], field: str) -> None:
    """Refuse anything but True or False."""
    if not isinstance(getattr(mechanism, field), bool):
        raise SpecError(
            f"{field} must be True or False.", fix=f"Use {field}=True or {field}=False."
        )


def shortfall(factor: Fraction, *, candidates: int, confidence: Number) -> int:
    """The same, at a confidence."""
    return shortfall_up(factor, candidates=candidates, failure=base.failure_of(confidence))
