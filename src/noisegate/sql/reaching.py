"""Accuracy and a price: the least ε that is accurate enough, and no more than the price.

    gate.sql("SELECT COUNT(*) AS n FROM visits", within=400, epsilon=1)

Where a contribution bound is estimated, an accuracy alone has no price: how far an answer is off
follows from the bound, and the bound from a look at how large units are. So ``epsilon`` says the
most that all of it may cost. The look is the one that belongs to this price; of the rest as little
is spent as the predicted ± needs, that of noise and of what the bound loses together.

Claim: look and answer cost at most ``epsilon`` together. Adjacency: add/remove. Why: an ε that is
    tried is at most that, and buys no more for the blocks than ``epsilon`` does (`_is_within`);
    which one is chosen follows from the question, the policy and what was released. Each part is
    charged before it is drawn, so adaptive composition holds [RRUV16].
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, Final

from noisegate.desk.terms import USUAL, Terms
from noisegate.errors import NoisegateError, Unsupported
from noisegate.privacy.loss import decimal_up
from noisegate.sql.drafts.accuracy import Goal, cheapest, limits_of
from noisegate.sql.plan import shown_names

if TYPE_CHECKING:
    from noisegate.sql.job import QuestionJob

MOST: Final = (
    "The price is the most it may cost: after the estimate, no more is spent than the accuracy "
    "needs."
)


def goal_of(terms: Terms) -> Goal | None:
    """The accuracy, where there is a price beside it."""
    if terms.epsilon is None or (terms.within is None and terms.relative is None):
        return None
    return Goal(
        within=terms.within,
        relative=terms.relative,
        confidence=terms.confidence or USUAL,
        rows=terms.rows,
    )


def require_foreseen(job: "QuestionJob", goal: Goal) -> None:
    """Refuse numbers whose error no price tells beforehand."""
    limits = _limits(job, goal)
    for name in job.expected.margins(goal.confidence):
        if goal.relative is not None and limits.get(name, inf) == inf:
            raise Unsupported(
                f"What a relative error of {name} is compared with is not known beforehand.",
                fix="Ask by epsilon, or give within=... beside it.",
                about="accuracy",
            )


def least(most: "QuestionJob", goal: Goal, make: "Callable[[Fraction], QuestionJob]") -> Fraction:
    """The least ε that is accurate enough; refused if that of ``most`` is not.

    ``make`` makes the job of an ε as if all were new, so that it is the same whatever was drawn.
    """
    top = most.epsilon

    def is_enough(epsilon: Fraction) -> bool:
        try:
            job = make(min(epsilon, top))
        except NoisegateError:
            return False  # more noise than there is
        return _is_within(job, most) and _meets(job, goal)

    try:
        return min(cheapest(is_enough), top)
    except Unsupported:
        raise Unsupported(
            f"No price up to ε = {decimal_up(top)} is predicted to achieve this accuracy.",
            fix="Allow a larger error, or a larger epsilon.",
            about="accuracy",
        ) from None


def _is_within(job: "QuestionJob", most: "QuestionJob") -> bool:
    """Whether no block costs more than it does at the most, and nothing else has to be found."""
    pairs = zip(job.orders, most.orders, strict=True)
    return not job.before and all(each.epsilon <= top.epsilon for each, top in pairs)


def _meets(job: "QuestionJob", goal: Goal) -> bool:
    limits, widths = _limits(job, goal), job.expected.margins(goal.confidence)
    usual = inf if goal.within is None else float(goal.within)
    return all(
        width is not None and width <= limits.get(name, usual) for name, width in widths.items()
    )


def _limits(job: "QuestionJob", goal: Goal) -> Mapping[str, float]:
    """The largest half-width of each number that the answer shows as it is released."""
    names = shown_names(job.asked.question)
    return {
        names.get((order.bought.draft.block.name, name), name): limit
        for order in job.orders
        for name, limit in limits_of(order.bought.draft, goal).items()
    }
