"""Before any question is asked: how many, how sharp, on how much data.

>>> sample_size(bound=1, accuracy="0.01", epsilon="0.1", failure="0.05")
2996
>>> from noisegate.accounting.pure import PureAccountant
>>> from noisegate.privacy.event import DeclaredEvent
>>> questions(DeclaredEvent(epsilon=Fraction(1, 10)), ApproxDP(2), accountant=PureAccountant())
20
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

from noisegate.accounting.accountant import Accountant
from noisegate.accounting.search import digits_down, largest
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, lower, positive, real, sqrt_down, upper
from noisegate.planning.composition import optimal_delta_up
from noisegate.privacy.conversion import rho_of_budget_down
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


def sample_confidence_down(
    size: int, *, bound: Number, accuracy: Number, epsilon: Number
) -> Fraction:
    """The confidence with which one average over ``size`` rows is accurate to γ.

    Claim: 1 - e^{-γnε/b}; at n = b/(γε) that is 1 - 1/e, about 63 %. Rounding: down.
    """
    _require_count(size)
    exponent = size * positive(accuracy, name="accuracy") * positive(epsilon, name="epsilon")
    exponent /= positive(bound, name="bound")
    return lower(lambda: -real(-exponent).expm1())


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
    _require_delta(budget)
    low = floor(budget.epsilon / each)  # basic composition needs no δ
    if budget.delta == 0:
        return low

    def fits(count: int) -> bool:
        found = optimal_delta_up(each, count=count, total=budget.epsilon)
        return found <= budget.delta

    high = low + 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def epsilon_each_pure(budget: ApproxDP, *, count: int) -> Fraction:
    """ε per question for ``count`` questions by basic composition. Rounding: none."""
    _require_count(count)
    return budget.epsilon / count


def epsilon_each_zcdp_down(budget: ApproxDP, *, count: int) -> Fraction:
    """ε per pure question for ``count`` questions on a zCDP account.

    Claim: √(2ρ/k), ρ the largest that implies (ε, δ/2), as `ZCDPAccountant` splits δ.
    Why: [BS16, Prop. 1.4]. Rounding: down, to twelve digits, so that grains do not overrun.
    """
    _require_count(count)
    rho = rho_of_budget_down(ApproxDP(budget.epsilon, budget.delta / 2))
    return digits_down(sqrt_down(2 * rho / count))


def epsilon_each_optimal_down(budget: ApproxDP, *, count: int) -> Fraction:
    """ε per question for ``count`` questions by optimal composition: a report. Rounding: down."""
    _require_count(count)
    _require_delta(budget)
    basic = budget.epsilon / count
    if budget.delta == 0 or budget.epsilon == 0:
        return basic

    def fits(each: Fraction) -> bool:
        return optimal_delta_up(each, count=count, total=budget.epsilon) <= budget.delta

    return max(basic, largest(fits, guess=basic))


def split(budget: ApproxDP, *, weights: Sequence[Number]) -> tuple[ApproxDP, ...]:
    """Shares of the budget in proportion to the weights; together they are exactly the budget."""
    exact = [fraction(weight, name="weight") for weight in weights]
    total = sum(exact, Fraction(0))
    if total <= 0 or any(weight < 0 for weight in exact):
        raise SpecError(
            "The weights leave nothing to split.", fix="Use weights of 0 or more.", about="weights"
        )
    return tuple(
        ApproxDP(budget.epsilon * weight / total, budget.delta * weight / total) for weight in exact
    )


def _failure(failure: Number) -> Fraction:
    exact = positive(failure, name="failure")
    if exact >= 1:
        raise SpecError(
            f"failure is {failure}.",
            fix="Use a probability below 1, such as 0.05.",
            about="failure",
        )
    return exact


def _require_delta(budget: ApproxDP) -> None:
    if budget.delta >= 1:
        raise SpecError(
            "δ is 1, which promises nothing.", fix="Use a δ such as 1e-6.", about="delta"
        )


def _require_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise SpecError(
            f"The number is {count!r}.", fix="Use a whole number of at least 1.", about="count"
        )
