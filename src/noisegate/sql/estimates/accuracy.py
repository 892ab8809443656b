"""Asking by accuracy: the least price whose error bars are as narrow as wanted.

``within`` is a half-width in the column's own unit. ``relative`` compares with what a group would
show if the guessed number of rows were spread evenly over the groups and values evenly over their
bounds; the rows themselves are never consulted, so the price depends on the question alone. How
many rows there are must be known: said by the caller, or released before. An upper bound is not
enough, since fewer rows have larger errors.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import inf
from typing import Final, final

from noisegate.desk.terms.terms import USUAL, Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.sql.drafts.draft import Draft
from noisegate.sql.drafts.purchase import Purchase, purchase
from noisegate.sql.drafts.recipe import CHOSEN, COUNTS, SPREAD, Recipe
from noisegate.sql.estimates.estimate import predicted
from noisegate.sql.laws.known import is_brackets, is_quantiles
from noisegate.sql.question import Function

_DIGITS: Final = 900  # decimals of three digits per power of ten
_DECADES: Final = (-6, 2)
LARGEST: Final = Fraction(100)  # the largest ε that is tried
_WIDEST: Final = Fraction(10**308)  # what a double holds
_GROWING: Final = (*COUNTS, Function.COUNT_UNITS, Function.SUM)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How narrow the error bars shall be, at which confidence.

    ``rows`` is a released or otherwise known number of rows, no upper bound.
    """

    within: Fraction | None = None
    relative: Fraction | None = None
    confidence: Fraction = Fraction(95, 100)
    rows: int | None = None

    def __post_init__(self) -> None:
        if (self.within is None) is (self.relative is None):
            raise SpecError(
                "Give exactly one accuracy.", fix="For example: within=50.", about="accuracy"
            )
        if self.relative is not None and self.rows is None:
            raise Unsupported(
                "A relative error needs an approximate public number of rows.",
                fix="Give rows=10000, or ask by epsilon or within.",
                about="rows",
            )

    @classmethod
    def of(cls, terms: Terms) -> "Goal":
        """What a caller wants."""
        sure = terms.confidence or USUAL
        return cls(within=terms.within, relative=terms.relative, confidence=sure, rows=terms.rows)


def epsilon_for(draft: Draft, goal: Goal, *, delta: Number = 0) -> Fraction:
    """The least ε of three decimal digits that meets the goal in every column."""
    positive(goal.within or goal.relative or 0, name="accuracy")
    limits = limits_of(draft, goal)

    def is_enough(epsilon: Fraction) -> bool:
        try:
            bought = purchase(draft, epsilon=epsilon, delta=delta, rows=goal.rows)
        except SpecError:
            return False  # more noise than there is
        return meets(bought, goal, limits)

    return cheapest(is_enough)


def cheapest(is_enough: Callable[[Fraction], bool]) -> Fraction:
    """The least decimal of three digits that is enough, where more is always enough too.

    >>> cheapest(lambda epsilon: epsilon > Fraction(1, 3))
    Fraction(167, 500)
    """
    first, last = 0, _DIGITS * (_DECADES[1] - _DECADES[0])
    if not is_enough(decimal(last)):
        raise Unsupported(
            "No price achieves this accuracy.", fix="Allow a larger error.", about="accuracy"
        )
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if is_enough(decimal(middle)) else (middle + 1, last)
    return decimal(first)


def decimal(place: int) -> Fraction:
    """The decimals 1.00e-6, 1.01e-6, … in order."""
    decades, digits = divmod(place, _DIGITS)
    return Fraction(100 + digits) * Fraction(10) ** (decades + _DECADES[0] - 2)


def limits_of(draft: Draft, goal: Goal) -> dict[str, float]:
    """For each column the largest half-width that is allowed."""
    found = {}
    sets = draft.block.sets
    rows = Fraction(goal.rows or 0) / max([draft.cells(columns) for columns in sets] + [1])
    for recipe in draft.recipes:
        name, function = recipe.aggregate.name, recipe.aggregate.function
        if goal.within is not None:
            if function in CHOSEN:
                raise Unsupported(
                    f"The error of {function.value} depends on how close together the values are.",
                    fix="Ask by epsilon, or by relative=0.01 (a share of the rows).",
                    about="accuracy",
                )
            _require_foreseen(recipe, goal)
            found[name] = float(min(goal.within, _WIDEST))
        elif goal.relative is not None:
            _require_foreseen(recipe, goal)
            share = float(min(goal.relative, _WIDEST))
            found[name] = share * _expected(recipe, function, float(rows))
            if function in CHOSEN:  # a share of the ranks, see `meets`
                found[name] = inf
    return found


def _require_foreseen(recipe: Recipe, goal: Goal) -> None:
    if recipe.is_foreseen(goal.rows):
        return
    if recipe.aggregate.function in SPREAD:
        raise Unsupported(
            f"The error of {recipe.aggregate.function.value} depends on how far apart values are.",
            fix="Ask by epsilon.",
            about="accuracy",
        )
    fix = "Ask by epsilon, or give an approximate number of rows: rows=10000."
    if goal.rows is not None:
        fix = "Ask by epsilon, or write the FILTER as WHERE."
    raise Unsupported(
        f"The error of {recipe.aggregate.function.value} depends on how many rows there are.",
        fix=fix,
        about="rows",
    )


def _expected(recipe: Recipe, function: Function, rows: float) -> float:
    """What a group would show, from public facts alone; for a quantile all its ranks."""
    if function is Function.COUNT_DISTINCT:
        raise Unsupported(
            "The number of distinct values is not known beforehand.",
            fix="Give within=... instead of a relative error.",
            about="rows",
        )
    return recipe.typical * (rows if function in _GROWING else 1.0)


def meets(bought: Purchase, goal: Goal, limits: Mapping[str, float]) -> bool:
    """Whether all that is measured errs as little as wanted."""
    widths = predicted(bought, goal.confidence, rows=goal.rows)
    for name, width in widths.items():
        if width is not None and width > limits[name]:
            return False
    for part, mechanisms in zip(bought.draft.parts, bought.mechanisms, strict=True):
        for mechanism in mechanisms:
            rows = Fraction(goal.rows or 0) / bought.draft.cells(part.columns)
            if (is_brackets(mechanism) or is_quantiles(mechanism)) and mechanism.rank_error(
                goal.confidence
            ) > (goal.relative or 0) * rows:
                return False
    return True
