"""Accuracy and a price: the least ε that is accurate enough, and no more than the price.

    gate.sql("SELECT COUNT(*) AS n FROM visits", within=400, epsilon=1)

Where a contribution bound is estimated, an accuracy alone has no price: how far an answer is off
follows from the bound, and the bound from a look at how large units are. So ``epsilon`` says the
most that all of it may cost. The look is the one that belongs to this price; of the rest as little
is spent as the predicted ± needs, that of noise and of what the bound loses together.

Claim: look and answer cost at most ``epsilon`` together. Adjacency: add/remove. Why: an ε that is
    tried is at most that, and buys no more for the blocks than ``epsilon`` does (`_is_within`, in
    `job.py`); which one is chosen follows from the question, the policy and what was released. Each
    part is charged before it is drawn, so adaptive composition holds [RRUV16].
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import inf, sqrt
from typing import Final

from noisegate.desk.display.numbers import bare
from noisegate.desk.terms.terms import Terms
from noisegate.errors import NoisegateError, Unsupported
from noisegate.frozen import replace
from noisegate.privacy.loss import decimal_up
from noisegate.sql.drafts.recipe import COUNTS
from noisegate.sql.estimates.accuracy import LARGEST, Goal, cheapest, limits_of, meets
from noisegate.sql.plan import AnswerExpected, is_calculated, readable, shown_names
from noisegate.sql.question import Function, Question
from noisegate.sql.reuse.released import Guess
from noisegate.sql.steps.shown import Foreseen

_ADDED: Final = (*COUNTS, Function.COUNT_UNITS, Function.SUM)
MOST: Final = (
    "The price is the most it may cost: after the estimate, no more is spent than the accuracy "
    "needs."
)


def goal_of(terms: Terms, question: Question, *, firsts: bool) -> Goal | None:
    """The accuracy, where there is a price beside it, or shown numbers are made of released ones.

    Else each released number has its price by itself; so have those whose groups are to be found,
    and with ``firsts``, numbers that are measured first, the question has none.
    """
    if terms.within is None and (terms.epsilon is None or terms.relative is None):
        return None
    if terms.epsilon is None:
        sought = any(key.domain.keys is None for block in question.blocks for key in block.by)
        if firsts or sought or terms.choose or not is_calculated(question):
            return None
    return Goal.of(terms)


def alone(terms: Terms, most: Fraction | None) -> Terms:
    """What an accuracy may cost: without a price, all that one question may; no look is bought."""
    if terms.epsilon is not None:
        return replace(terms, within=None, relative=None)
    top = min(LARGEST, most or LARGEST)
    return replace(terms, epsilon=top, choose=(), within=None, relative=None)


def require_foreseen(expected: AnswerExpected, goal: Goal, *, looked: bool) -> None:
    """Refuse numbers whose error no price tells beforehand; ``looked``: bounds are estimated."""
    limits, blocks = _limits(expected, goal), expected.question.blocks
    if any(key.domain.keys is None for block in blocks for key in block.by):
        raise Unsupported(
            "Which groups are found follows from the price, not from an accuracy.",
            fix="Ask by epsilon, or declare the groups.",
            about="accuracy",
        )
    functions = [each.function for block in blocks for each in block.aggregates]
    if looked and (others := [each for each in functions if each not in _ADDED]):
        raise Unsupported(
            f"The error of {others[0].value} follows from how many rows an estimated bound leaves.",
            fix="Ask by epsilon, or give rows_per_unit=...",
            about="accuracy",
        )
    for name, each in _foreseen(expected, goal).items():
        unknown = each.most is None or each.at_best
        if unknown and each.followed and goal.rows is None and not looked:
            raise Unsupported(
                f"The error of {name} depends on how many rows there are.",
                fix="Ask by epsilon, or give an approximate number of rows: rows=10000.",
                about="rows",
            )
        if goal.relative is not None and limits.get(name, inf) == inf:
            raise Unsupported(
                f"What a relative error of {name} is compared with is not known beforehand.",
                fix="Ask by epsilon, or give within=... beside it.",
                about="accuracy",
            )


def require_reached(expected: AnswerExpected, goal: Goal, top: Fraction) -> None:
    """Refuse what not even the whole price reaches, where units are bounded by one row."""
    if not _meets(expected, goal, unknown=True):
        raise _beyond(expected, goal, top)


def least(
    most: AnswerExpected,
    top: Fraction,
    goal: Goal,
    make: Callable[[Fraction], AnswerExpected | None],
) -> Fraction:
    """The least ε that is accurate enough; refused if ``top``, that of ``most``, is not.

    ``make`` says what to expect for an ε; None: some block costs more than for ``top``.
    """

    def is_enough(epsilon: Fraction) -> bool:
        try:
            expected = make(min(epsilon, top))
        except NoisegateError:
            return False  # more noise than there is
        return expected is not None and _meets(expected, goal)

    try:
        return min(cheapest(is_enough), top)
    except Unsupported:
        raise _beyond(most, goal, top) from None


def _beyond(expected: AnswerExpected, goal: Goal, top: Fraction) -> Unsupported:
    """With what the whole price is predicted to reach, as far as that is known."""
    found = _foreseen(expected, goal).items()
    told = [(each.most, name) for name, each in found if each.most is not None]
    words = ""
    if told:
        wide, name = max(told)
        words = f"; with all of it, {name} is predicted to be ± {bare(readable(wide))}"
    return Unsupported(
        f"No price up to ε = {decimal_up(top)} is predicted to achieve this accuracy{words}.",
        fix="Allow a larger error, or a larger epsilon.",
        about="accuracy",
    )


def _meets(expected: AnswerExpected, goal: Goal, *, unknown: bool = False) -> bool:
    """Whether all errors are as small as wanted.

    Where the free SQL does not say how the error of a number follows, as of ranks and of the
    largest of noisy numbers, it is that of what was released.
    """
    found = _foreseen(expected, goal)
    limits, usual = _limits(expected, goal), inf if goal.within is None else float(goal.within)
    if not all(each.followed for each in found.values()) and not unknown:
        drafts = [(bought, limits_of(bought.draft, goal)) for bought in expected.bought]
        if not all(meets(bought, goal, allowed) for bought, allowed in drafts):
            return False
    return all(
        unknown if each.most is None or each.at_best else each.most <= limits.get(name, usual)
        for name, each in found.items()
        if each.followed
    )


def _foreseen(expected: AnswerExpected, goal: Goal) -> Mapping[str, Foreseen]:
    """The errors by looks alone: not by what else was released."""
    error = expected.error
    guesses = tuple(
        replace(each, shelf=None, said=_rows(each), guessed=frozenset()) for each in error.guesses
    )
    return replace(error, guesses=guesses).columns(goal.confidence)


def _rows(guess: Guess) -> int | None:
    """About how many rows there are, as said or by the look.

    The norm of what a unit has in so many cells is at least this part of the sum.
    """
    if guess.said is not None:
        return guess.said
    cells = max([guess.draft.cells(columns) for columns in guess.draft.block.sets] + [1])
    kept = [each.loss.kept * (sqrt(cells) if each.is_norm else 1.0)
            for each in guess.losses if not each.units]  # fmt: skip
    return max(1, round(kept[0])) if kept else None


def _limits(expected: AnswerExpected, goal: Goal) -> Mapping[str, float]:
    """The largest half-width of each number that the answer shows as it is released."""
    names = shown_names(expected.question)
    return {
        names.get((bought.draft.block.name, name), name): limit
        for bought in expected.bought
        for name, limit in limits_of(bought.draft, goal).items()
    }
