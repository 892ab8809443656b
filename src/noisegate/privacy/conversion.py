"""Theorems that lead from one kind of loss to another, and from one adjacency to another.

Wherever a theorem holds for every Rényi order, a good order is searched in floating point and the
bound is then evaluated once, in ball arithmetic, at that order: a poor search loosens the result
and cannot falsify it. ``_up`` never understates a loss, ``_down`` never overstates a budget.

>>> float(round(epsilon_of_zcdp_up(Fraction(1, 2), delta=Fraction(1, 10**6)), 5))
5.22153
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Real, lower, real, upper
from noisegate.privacy.loss import ZCDP, ApproxDP

_GOLDEN: Final = (math.sqrt(5) - 1) / 2


def zcdp_of_pure(epsilon: Fraction) -> Fraction:
    """The ρ of any ε-private step.

    Claim: ε-DP implies (ε²/2)-zCDP. Adjacency: any. Why: [BS16, Prop. 1.4]. Rounding: none.
    """
    return epsilon * epsilon / 2


def zcdp_of_bounded_range(epsilon: Fraction) -> Fraction:
    """The ρ of a step whose log-ratios span an interval of length ε, as the exponential mechanism.

    Claim: ε-bounded range implies (ε²/8)-zCDP. Adjacency: any. Why: [CR21]; a variable
        in an interval of length ε has a cumulant generating function of at most Hoeffding's.
    Rounding: none.
    """
    return epsilon * epsilon / 8


def zcdp_of_approx(loss: ApproxDP) -> ZCDP:
    """The approximate zCDP of any (ε, δ)-private step.

    Claim: (ε, δ)-DP implies δ-approximate (ε²/2)-zCDP. Adjacency: any.
    Why: let p, q be the output laws on two neighbours, p' = min(p, e^ε q), q' = min(q, e^ε p). By
        (ε, δ)-DP both keep a mass of at least 1 - δ, and pointwise p' ≤ e^ε q' and q' ≤ e^ε p'. If
        p' is the heavier one, slide it towards e^-ε q' (which lies below it) until the masses
        agree; both inequalities survive on the way. Scale both to mass 1 - δ. So
        p = (1 - δ) g + δ b and q = (1 - δ) g' + δ b' where g, g' are ε-indistinguishable, and
        `zcdp_of_pure` applies to them [BS16, Def. 8.1], [KOV15].
    Rounding: none.
    """
    return ZCDP(zcdp_of_pure(loss.epsilon), loss.delta)


def epsilon_of_zcdp_up(rho: Fraction, *, delta: Fraction) -> Fraction:
    """The smallest ε known to follow from ρ-zCDP at this δ.

    Claim: ρ-zCDP implies (ε, δ)-DP for ε = min over a > 1 of
        aρ + ln(1 - 1/a) - (ln a + ln δ)/(a - 1). Adjacency: any.
    Why: [CKS20, Prop. 12] solved for ε. Rounding: up, at one searched order.
    """
    _require_delta(delta)
    if rho == 0:
        return Fraction(0)
    size, log_delta = _float(rho), _log(delta)
    past_one = _search(lambda t: (1 + t) * size + _renyi_slack(t, log_delta))
    return max(Fraction(0), epsilon_at_order_up((1 + past_one) * rho, 1 + past_one, delta=delta))


def rho_of_budget_down(budget: ApproxDP) -> Fraction:
    """The largest ρ known to imply the budget; the inverse of `epsilon_of_zcdp_up`.

    Claim: for every a > 1, ρ = (ε - ln(1 - 1/a) + (ln a + ln δ)/(a - 1))/a gives (ε, δ)-DP.
    Adjacency: any. Why: [CKS20, Prop. 12] solved for ρ. Rounding: down, at one searched order.
    """
    _require_delta(budget.delta)
    goal, log_delta = _float(budget.epsilon), _log(budget.delta)
    past_one = _search(lambda t: (_renyi_slack(t, log_delta) - goal) / (1 + t))
    allowed = renyi_of_budget_down(budget, order=1 + past_one)
    return max(Fraction(0), allowed / (1 + past_one))


def approx_of_zcdp(loss: ZCDP, *, delta: Fraction) -> ApproxDP:
    """The (ε, δ) of approximate zCDP, with ``delta`` spent on the conversion.

    Claim: δ₀-approximate ρ-zCDP implies (ε, δ₀ + (1 - δ₀) δ)-DP where ρ-zCDP implies (ε, δ)-DP.
    Adjacency: any. Why: [BS16, Lemma 8.8]; thin the larger good event so that both have mass
        1 - δ₀, then mix. Rounding: up.
    """
    if loss.rho == 0:
        return ApproxDP(0, loss.delta)
    epsilon = epsilon_of_zcdp_up(loss.rho, delta=delta)
    return ApproxDP(epsilon, loss.delta + (1 - loss.delta) * delta)


def epsilon_at_order_up(renyi: Fraction, order: Fraction, *, delta: Fraction) -> Fraction:
    """The ε that one Rényi bound gives; may be negative, which means 0.

    Claim: D_a ≤ r implies (ε, δ)-DP for ε = r + ln(1 - 1/a) - (ln a + ln δ)/(a - 1).
    Adjacency: any. Why: [CKS20, Prop. 12], [BBGHS20, Thm 21]. Rounding: up.
    """
    _require_delta(delta)
    return upper(lambda: real(renyi) + _renyi_slack_ball(order, delta))


def renyi_of_budget_down(budget: ApproxDP, *, order: Fraction) -> Fraction:
    """The largest D_a at this order that implies the budget; negative if none does. Rounding: down.

    Claim: the inverse of `epsilon_at_order_up` in its first argument. Why: the bound is r plus a
        number that depends on order and δ only.
    """
    _require_delta(budget.delta)
    return lower(lambda: real(budget.epsilon) - _renyi_slack_ball(order, budget.delta))


def change_one(loss: ApproxDP) -> ApproxDP:
    """What a claim under add/remove says about changing one unit: remove it, then add another.

    Claim: (ε, δ) under add/remove implies (2ε, (1 + e^ε) δ) under change-one; never the converse.
    Why: two steps of the definition [DR14, Sect. 2.3]. Rounding: up, in δ only.
    """
    return group_of_approx(loss, size=2)


def change_one_zcdp(loss: ZCDP) -> ZCDP:
    """The same for zCDP: a group of two, hence 4ρ [BS16, Prop. 1.9]."""
    return group_of_zcdp(loss, size=2)


def group_of_approx(loss: ApproxDP, *, size: int) -> ApproxDP:
    """What the claim for one unit says about ``size`` units together.

    Claim: (ε, δ) for one implies (kε, δ (e^{kε} - 1)/(e^ε - 1)) for k; kδ where ε = 0.
    Adjacency: any. Why: a chain of k neighbours [DR14, Thm 2.2]; the factor is 1 + e^ε + … +
        e^{(k-1)ε}. Rounding: up, in δ only.
    """
    _require_size(size)
    if loss.delta == 0 or size == 1:
        return ApproxDP(size * loss.epsilon, loss.delta)
    if loss.epsilon == 0:
        return ApproxDP(0, min(Fraction(1), size * loss.delta))
    factor = upper(lambda: real(size * loss.epsilon).expm1() / real(loss.epsilon).expm1())
    return ApproxDP(size * loss.epsilon, min(Fraction(1), loss.delta * factor))


def group_of_zcdp(loss: ZCDP, *, size: int) -> ZCDP:
    """What plain zCDP for one unit says about ``size`` units together.

    Claim: ρ-zCDP for one implies k²ρ-zCDP for k. Adjacency: any. Why: [BS16, Prop. 1.9].
        Approximate zCDP is refused: its good events differ from neighbour to neighbour, so the
        triangle inequality along the chain has nothing common to condition on. Rounding: none.
    """
    _require_size(size)
    if loss.delta > 0 and size > 1:
        raise Unsupported(
            "There is no theorem here for group privacy of approximate zCDP (δ above 0).",
            fix="Group the (ε, δ) claim with group_of_approx, then convert.",
            about="group",
        )
    return ZCDP(size * size * loss.rho, loss.delta)


def _renyi_slack(past_one: float, log_delta: float) -> float:
    """ln(1 - 1/a) - (ln a + ln δ)/(a - 1) at a = 1 + past_one: what the conversion adds to D_a."""
    return math.log(past_one / (1 + past_one)) - (math.log1p(past_one) + log_delta) / past_one


def _renyi_slack_ball(order: Fraction, delta: Fraction) -> Real:
    return real(1 - 1 / order).log() - (real(order).log() + real(delta).log()) / real(order - 1)


def _search(objective: Callable[[float], float]) -> Fraction:
    """A t > 0 that nearly minimises the objective: a coarse scan of ln t, then golden section."""
    best = min((step / 2 for step in range(-60, 61)), key=lambda x: objective(math.exp(x)))
    low, high = best - 0.5, best + 0.5
    for _ in range(50):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if objective(math.exp(left)) <= objective(math.exp(right)):
            high = right
        else:
            low = left
    return Fraction(math.exp((low + high) / 2))


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return 1e300 if value > 0 else -1e300


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def _require_delta(delta: Fraction) -> None:
    if not 0 < delta <= 1:
        raise SpecError(
            f"δ is {delta}; zCDP and Rényi DP imply (ε, δ)-DP only for δ above 0.",
            fix="Use a δ far below 1/n, such as 1e-6, or the pure accountant.",
            about="delta",
        )


def _require_size(size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise SpecError(
            f"size is {size!r}.", fix="Use a whole group size of at least 1.", about="size"
        )
