"""The accountant of one Rényi order, fixed when the account opens.

The filter theorem holds for one order chosen beforehand: taking the best of many orders after the
run would let the answers choose the bound. Reports may look at many orders, see
`planning/reports.py`. As in `zcdp.py`, δ is split at opening: half for the conversion, half for
steps with a δ of their own.
"""

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final, final

from noisegate.accounting import curves
from noisegate.accounting.accountant import Accountant, Charge
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.rules import NO_DELTA, Pair, Rule, Rules
from noisegate.accounting.zcdp import ZCDPAccountant, distributed, zcdp_loss
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.privacy import event as events
from noisegate.privacy.conversion import (
    epsilon_at_order_up,
    renyi_of_budget_down,
    zcdp_of_bounded_range,
)
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP

_CONCENTRATED: Final = ZCDPAccountant()
_CONCENTRATED_KINDS: Final = (
    events.DiscreteGaussianEvent, events.GaussianEvent, events.DeclaredZCDPEvent,
    events.ThresholdedGaussianEvent, events.SmoothLognormalEvent,
)  # fmt: skip
_APPROX_KINDS: Final = (
    events.BoxNoiseEvent, events.PermuteAndFlipEvent, events.AboveThresholdEvent,
    events.KeySelectionEvent, events.CrowdCountsEvent, events.SmoothStudentEvent,
    events.SmoothLaplaceEvent, events.ProposeTestReleaseEvent, events.DeclaredEvent,
)  # fmt: skip
_ADVICE: Final = "Record it as a declared event with its proven ρ or (ε, δ)."


@final
@dataclass(frozen=True, slots=True)
class RenyiAccountant(Accountant):
    """Authorises by sums of D_a at one order, and of δ.

    Claim: a run of adaptively chosen steps, stopped before ΣD_a passes its limit or Σδ passes half
        of the budget's δ, keeps the budget. Adjacency: add/remove.
    Why: [FZ21] at this order; steps with a δ as in `ZCDPAccountant`, whose argument works
        order by order. Rounding: prices up to one grain, limits down to one grain.
    """

    order: Fraction

    def __init__(self, order: Number) -> None:
        exact = fraction(order, name="order")
        if exact <= 1:
            raise SpecError(f"The Rényi order is {order}.", fix="Use an order above 1, such as 16.")
        object.__setattr__(self, "order", exact)

    @property
    def name(self) -> str:
        """The order is part of the name, since accounts of different orders do not mix."""
        return f"renyi-{self.order}"

    def loss(self, event: Event) -> Pair:
        """ΣD_a and Σδ of the event."""
        return _rules(self.order).loss(event)

    def limit(self, budget: ApproxDP) -> Charge:
        """The D_a that half of δ turns into ε, and the other half of δ."""
        half = budget.delta / 2
        amount = renyi_of_budget_down(ApproxDP(budget.epsilon, half), order=self.order)
        if amount <= 0:
            raise SpecError(
                f"No loss at Rényi order {self.order} implies {budget}.",
                fix="Choose a larger order (about 2 ln(1/δ)/ε) or the zcdp accountant.",
                about="order",
            )
        return Charge.rounded_down(amount, half)

    def implied(self, spent: Charge, budget: ApproxDP) -> ApproxDP:
        """The conversion of what was spent, with half of the budget's δ."""
        amount, delta = spent.as_fractions()
        delta, half = min(delta, Fraction(1)), budget.delta / 2
        if amount == 0:
            return ApproxDP(0, delta)
        epsilon = max(Fraction(0), epsilon_at_order_up(amount, self.order, delta=half))
        if spent <= self.limit(budget):
            epsilon = min(epsilon, budget.epsilon)
        return ApproxDP(epsilon, delta + (1 - delta) * half)

    def rho(self, epsilon: Fraction, budget: ApproxDP) -> Fraction:
        """As on a zCDP account, and of the account's own ε all that it has.

        Claim: an order of that ρ is (ε, δ)-private, and so is one of the whole account.
        Adjacency: add/remove. Why: ρ bounds all orders, so the order that suits this ε may be
            taken (`ZCDPAccountant.rho`); at its own order alone, most of an account's ε is what
            the conversion adds, whatever was asked. Rounding: down to one grain.
        """
        found, whole = _CONCENTRATED.rho(epsilon, budget), self._whole(budget)
        return min(found, whole) if epsilon <= budget.epsilon else found

    def told(self, event: Event, budget: ApproxDP) -> ApproxDP:
        """The smaller of two readings of the event by itself.

        Claim: either holds. Adjacency: add/remove. Why: one is that of its loss at this order; the
            other, of an event that has a ρ, that of all orders. A loss at one order alone bounds no
            other, so no ρ is read off a charge. Rounding: up.
        """
        found = self.implied(self.price(event), budget)
        with suppress(Unsupported):
            found = min(found, _CONCENTRATED.told(event, budget), key=lambda each: each.epsilon)
        return found

    def room(self, left: Charge, budget: ApproxDP) -> ApproxDP:
        """The largest ε whose ρ is left; of an untouched account, its own."""
        amount, delta = left.as_fractions()
        found = _CONCENTRATED.room(Charge.rounded_down(amount / self.order, delta), budget)
        whole = left.amount >= self.limit(budget).amount
        return ApproxDP(budget.epsilon, found.delta) if whole else found

    def _whole(self, budget: ApproxDP) -> Fraction:
        """The ρ of the whole account, so that at its order it costs no more than there is."""
        return self.limit(budget).as_fractions()[0] / self.order


def renyi_loss(event: Event, *, order: Fraction) -> tuple[Fraction, Fraction]:
    """(D_a, δ) of an event at one order, rounded up."""
    return _rules(order).loss(event)


def _through_zcdp(order: Fraction, event: Event) -> Pair:
    loss = zcdp_loss(event)
    return curves.zcdp_renyi(loss.rho, order), loss.delta


def _through_approx(order: Fraction, event: Event) -> Pair:
    """Claim: (1 - δ) of an (ε, δ)-private step is ε-private, see `zcdp_of_approx`."""
    loss = pure_loss(event)
    return curves.pure_renyi_up(loss.epsilon, order), loss.delta


def _choice_up(epsilon: Fraction, order: Fraction) -> Fraction:
    bounded = curves.zcdp_renyi(zcdp_of_bounded_range(epsilon), order)
    return min(bounded, curves.pure_renyi_up(epsilon, order))


def _group(order: Fraction, event: events.Group) -> Pair:
    """Claim: the group's sensitivity is k times the unit's; otherwise through zCDP or (ε, δ)."""
    inner, size = event.event, event.size
    if isinstance(inner, events.Sequential | events.Repeated):
        return _rules(order).loss(distributed(inner, size))
    widened = _widened(inner, size)
    if widened is not None:
        return _rules(order).loss(widened)
    return _best(order, event, (_through_zcdp, _through_approx))


def _widened(event: Event, size: int) -> Event | None:
    """Claim: by the triangle inequality k units move the answer at most k sensitivities."""
    match event:
        case events.GeometricEvent() | events.LaplaceEvent():
            return type(event)(scale=event.scale, sensitivity=L1(size * event.sensitivity.value))
        case events.BoxNoiseEvent():
            cells = LInf1(size * event.sensitivity.value)
            return events.BoxNoiseEvent(scale=event.scale, sensitivity=cells)
        case events.GaussianEvent() | events.DiscreteGaussianEvent():
            wide = L2(squared=size * size * event.sensitivity.squared)
            return type(event)(variance=event.variance, sensitivity=wide)
        case _:
            return None


def _sampled(order: Fraction, event: events.PoissonSampled) -> Pair:
    """Claim: at whole orders by the moments of the noise or of its ρ, else through (ε, δ)."""
    return _best(order, event, (_sampled_noise, _through_approx))


def _sampled_noise(order: Fraction, event: events.PoissonSampled) -> Pair:
    moment = _moment(event.event) or _moment_of_rho(event.event)
    if moment is None or order.denominator != 1:
        raise _rules(order).refusal(event.event if moment is None else event)
    whole = order.numerator
    return curves.sampled_renyi_up(moment, probability=event.probability, order=whole), NO_DELTA


def _moment_of_rho(event: Event) -> curves.Moment | None:
    """Of any step that is ρ-zCDP without a δ; see `sampled_renyi_up`."""
    with suppress(Unsupported):
        loss = zcdp_loss(event)
        return curves.gaussian_moment(loss.rho) if loss.delta == 0 else None
    return None


def _moment(event: Event) -> curves.Moment | None:
    match event:
        case events.GeometricEvent() if event.sensitivity.value > 0:
            return curves.geometric_moment(event.scale, event.sensitivity.value)
        case events.LaplaceEvent():
            return curves.laplace_moment(event.sensitivity.value / event.scale)
        case events.GaussianEvent() | events.DiscreteGaussianEvent():
            return curves.gaussian_moment(event.sensitivity.squared / (2 * event.variance))
        case _:
            return None


def _best(order: Fraction, event: Event, routes: tuple[Callable[..., Pair], ...]) -> Pair:
    """The cheapest route that has a theorem; all routes here agree on δ wherever both apply."""
    found, problems = [], []
    for route in routes:
        try:
            found.append(route(order, event))
        except Unsupported as refusal:
            problems.append(refusal.problem)
    if not found:
        raise Unsupported(" ".join(problems), fix=_ADVICE, about="price")
    return min(found, key=lambda pair: (pair[1], pair[0]))


@lru_cache(maxsize=64)
def _rules(order: Fraction) -> Rules:
    by_kind: dict[type[Event], Callable[..., Pair]] = {
        events.GeometricEvent: lambda order, event: (
            curves.geometric_renyi_up(event.scale, event.sensitivity.value, order), NO_DELTA),
        events.LaplaceEvent: lambda order, event: (
            curves.laplace_renyi_up(event.sensitivity.value / event.scale, order), NO_DELTA),
        events.ExponentialEvent: lambda order, event: (
            _choice_up(event.epsilon, order), NO_DELTA),
        events.TopKEvent: lambda order, event: (
            event.k * _choice_up(event.epsilon_each, order), NO_DELTA),
        events.Group: _group,
        events.PoissonSampled: _sampled,
        **dict.fromkeys(_CONCENTRATED_KINDS, _through_zcdp),
        **dict.fromkeys(_APPROX_KINDS, _through_approx),
    }  # fmt: skip
    bound: dict[type[Event], Rule] = {kind: partial(rule, order) for kind, rule in by_kind.items()}
    return Rules(accountant=f"renyi-{order}", by_kind=MappingProxyType(bound), advice=_ADVICE)
