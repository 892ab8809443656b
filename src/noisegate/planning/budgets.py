"""Before any question is asked: how many, how sharp, on how much data.

>>> sample_size(bound=1, accuracy="0.01", epsilon="0.1", failure="0.05")
2996
>>> from noisegate.accounting.pure import PureAccountant
>>> from noisegate.privacy.event import DeclaredEvent
>>> questions(DeclaredEvent(epsilon=Fraction(1, 10)), ApproxDP(2), accountant=PureAccountant())
20
"""

from bisect import bisect_left
from fractions import Fraction
from math import ceil, floor

from noisegate.accounting.accountant import Accountant
from noisegate.errors import SpecError
from noisegate.exact import Number, positive, real, upper
from noisegate.planning.calibrate import require_delta
from noisegate.planning.composition import optimal_delta_up
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP


def sample_size(
    *, bound: Number, accuracy: Number, epsilon: Number, failure: Number, queries: int = 1
) -> int:
    """How many rows make every one of k averages accurate to γ, except with probability β.

    Claim: n = ⌈b ln(k/β)/(γε)⌉ for averages of values in an interval of length b, each asked with
        its own ε (under change-one, Laplace noise of scale b/(nε)). This is the noise alone; the
        sampling error of the rows comes on top.
    Why: Pr[|noise| > γ] = e^{-γnε/b} ≤ β/k, and a union bound. The textbook n = b/(γε) is the case
        ln(k/β) = 1: a failure probability of 1/e for one query. Rounding: up.
    """
    reach = positive(bound, name="bound") / (
        positive(accuracy, name="accuracy") * positive(epsilon, name="epsilon")
    )
    chance = _failure(failure)
    _require_count(queries)
    return ceil(reach * upper(lambda: real(queries / chance).log()))


def questions(event: Event, budget: ApproxDP, *, accountant: Accountant) -> int:
    """How many times the budget buys the event, by the accountant that will authorise it.

    Claim: ⌊limit/price⌋, the smaller of both parts. Rounding: down.
    """
    price, limit = accountant.price(event), accountant.limit(budget)
    pairs = ((limit.amount, price.amount), (limit.delta, price.delta))
    counts = [have // each for have, each in pairs if each > 0]
    if not counts:
        raise SpecError(
            "The event is free.", fix="It can be asked as often as you like.", about="free"
        )
    return min(counts)


def questions_optimal(budget: ApproxDP, *, epsilon_each: Number) -> int:
    """How many ε-private questions fit by optimal composition: a report, not an authorisation.

    Claim: the largest k with `optimal_delta_up` ≤ δ. Why: [KOV15]; valid for a k fixed beforehand.
    """
    each = positive(epsilon_each, name="epsilon_each")
    require_delta(budget)
    low = floor(budget.epsilon / each)  # basic composition needs no δ
    if budget.delta == 0:
        return low

    def fits(count: int) -> bool:
        found = optimal_delta_up(each, count=count, total=budget.epsilon)
        return found <= budget.delta

    high = low + 1
    while fits(high):
        low, high = high, 2 * high
    return bisect_left(range(high), x=True, lo=low + 1, key=lambda count: not fits(count)) - 1


def _failure(failure: Number) -> Fraction:
    exact = positive(failure, name="failure")
    if exact >= 1:
        raise SpecError(
            f"failure is {failure}.",
            fix="Use a probability below 1, such as 0.05.",
            about="failure",
        )
    return exact


def _require_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SpecError(
            f"The number is {count!r}.", fix="Use a whole number of at least 1.", about="count"
        )
