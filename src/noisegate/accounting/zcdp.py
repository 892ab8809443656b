"""The accountant of Gaussian noise: ρ adds up, and many small questions cost like their root.

The account's δ is split when the account opens: one half pays for turning ρ into (ε, δ) at the end,
the other half for steps that carry a δ of their own. The split cannot wait until the end: a filter
compares with bounds that were fixed before the first answer, and a δ chosen after seeing what is
left would be a bound chosen by the answers.

>>> from noisegate.privacy.distance import L2
>>> str(zcdp_loss(events.DiscreteGaussianEvent(variance=Fraction(50), sensitivity=L2(squared=1))))
'ρ = 0.01 (zCDP)'
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar, Final, final

from noisegate.accounting.accountant import Accountant, Charge
from noisegate.accounting.amplification import poisson_zcdp, poisson_zcdp_of_approx
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.rules import NO_DELTA, Pair, Rules
from noisegate.accounting.search import digits_down
from noisegate.accounting.smooth import lognormal_rho_up
from noisegate.errors import Unsupported
from noisegate.frozen import replace
from noisegate.privacy import conversion
from noisegate.privacy import event as events
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ZCDP, ApproxDP

_SIMPLE: Final = 10**6  # the largest denominator of an ε that people ask for, unless a decimal
_DUST: Final = 10**9  # less than such a part of an account is what roundings leave of it
_SLIGHT: Final = Fraction(1, 10**14)  # of an ε: what nobody asks for
_LESS: Final = 1 - Fraction(1, 10**13)  # by the twelfth digit
_ADVICE: Final = "Record it as a declared event with its proven ρ or (ε, δ)."


@final
class ZCDPAccountant(Accountant):
    """Authorises by sums of ρ and of δ.

    Claim: a run of adaptively chosen δₘ-approximate ρₘ-zCDP steps, stopped before Σρₘ passes ρ or
        Σδₘ passes δ₀, is δ₀-approximate ρ-zCDP, hence (ε, δ₀ + δ₁)-DP where ρ implies (ε, δ₁).
    Adjacency: add/remove.
    Why: fix two neighbours. Every step is (1 - δₘ) gₘ + δₘ bₘ with gₘ ρₘ-zCDP, so the transcript is
        at least Π(1 - δₘ) ≥ 1 - δ₀ times the transcript G of the good parts alone, and what is
        left over is the bad part. G is an adaptive run of plain zCDP steps with Σρₘ ≤ ρ, which the
        filter theorem covers order by order [FZ21]; see also [WRRW23]. The last
        step is `approx_of_zcdp`.
    Rounding: prices up to one grain, limits down to one grain.
    """

    name: ClassVar[str] = "zcdp"

    def loss(self, event: Event) -> Pair:
        """Σρ and Σδ of the event."""
        return _RULES.loss(event)

    def covered(self, charge: Charge, event: Event) -> bool:
        """Samples were once charged through (ε, δ), more of ρ and at times less of δ: both hold."""
        return Charge.rounded_up(*_FORMER.loss(event)) <= charge

    def limit(self, budget: ApproxDP) -> Charge:
        """The ρ that half of δ turns into ε, and the other half of δ."""
        return _limit(budget)

    def implied(self, spent: Charge, budget: ApproxDP) -> ApproxDP:
        """The conversion of what was spent, with half of the budget's δ."""
        return _implied(spent, budget)

    def rho(self, epsilon: Fraction, budget: ApproxDP) -> Fraction:
        """What a whole account of (ε, δ) has.

        Claim: an order of that ρ is (ε, δ/2)-private, and (ε, δ)-private with a δ/2 of its own.
        Adjacency: add/remove. Why: `limit`, of one step. Rounding: down to one grain.
        """
        return _limit(ApproxDP(epsilon, budget.delta)).as_fractions()[0]

    def room(self, left: Charge, budget: ApproxDP) -> ApproxDP:
        """The largest ε of twelve digits whose ρ is left; of an untouched account, its own."""
        return _room(left, budget)


def zcdp_loss(event: Event) -> ZCDP:
    """The approximate zCDP of an event, exact up to roots and logarithms, rounded up."""
    rho, delta = _RULES.loss(event)
    return ZCDP(rho, min(delta, Fraction(1)))


@lru_cache(maxsize=4096)
def _limit(budget: ApproxDP) -> Charge:
    half = budget.delta / 2
    return Charge.rounded_down(conversion.rho_of_budget_down(ApproxDP(budget.epsilon, half)), half)


@lru_cache(maxsize=1024)
def _implied(spent: Charge, budget: ApproxDP) -> ApproxDP:
    rho, delta = spent.as_fractions()
    found = conversion.approx_of_zcdp(ZCDP(rho, min(delta, Fraction(1))), delta=budget.delta / 2)
    # The search for an order may miss by the last digit. Whoever asked for ε, or for all of the
    # account, reads that ε again: every ε whose limit is not passed is a bound.
    epsilon, slight = found.epsilon, found.epsilon * _SLIGHT
    near = (budget.epsilon, digits_down(epsilon + slight), epsilon.limit_denominator(_SIMPLE))
    for each in near:
        close = abs(each - epsilon) <= slight
        if close and spent.amount <= _limit(ApproxDP(each, budget.delta)).amount:
            return ApproxDP(each, found.delta)
    within = spent.amount <= _limit(budget).amount
    return ApproxDP(min(epsilon, budget.epsilon) if within else epsilon, found.delta)


@lru_cache(maxsize=1024)
def _room(left: Charge, budget: ApproxDP) -> ApproxDP:
    found, whole = _implied(left, budget), _limit(budget)
    if whole.amount <= left.amount:
        return ApproxDP(budget.epsilon, found.delta)
    epsilon = digits_down(found.epsilon) if left.amount * _DUST > whole.amount else Fraction(0)
    while epsilon > 0 and left.amount < _limit(ApproxDP(epsilon, budget.delta)).amount:
        epsilon = digits_down(epsilon * _LESS)
    return ApproxDP(epsilon, found.delta)


def _gaussian(event: events.DiscreteGaussianEvent | events.GaussianEvent) -> Pair:
    """Claim: parameter σ² on L2 sensitivity s is (s²/2σ²)-zCDP [BS16, Prop. 1.6], [CKS20, Thm 4].

    Rounding a continuous Gaussian to a grid is post-processing.
    """
    return event.sensitivity.squared / (2 * event.variance), NO_DELTA


def _thresholded(event: events.ThresholdedGaussianEvent) -> Pair:
    """Claim: δ-approximate (ℓ/2σ²)-zCDP, see `ThresholdedGaussian.event`."""
    return event.keys / (2 * event.variance), min(event.delta, Fraction(1))


def _laplace(event: events.GeometricEvent | events.LaplaceEvent | events.BoxNoiseEvent) -> Pair:
    return conversion.zcdp_of_pure(event.sensitivity.value / event.scale), NO_DELTA


def _exponential(event: events.ExponentialEvent) -> Pair:
    return conversion.zcdp_of_bounded_range(event.epsilon), NO_DELTA


def _top_k(event: events.TopKEvent) -> Pair:
    """Claim: k exponential mechanisms in a row, each (ε²/8)-zCDP [DR19], [CR21]."""
    return event.k * conversion.zcdp_of_bounded_range(event.epsilon_each), NO_DELTA


def _declared_zcdp(event: events.DeclaredZCDPEvent) -> Pair:
    return event.rho, NO_DELTA


def _smooth_lognormal(event: events.SmoothLognormalEvent) -> Pair:
    return lognormal_rho_up(event.scale, event.beta, event.sigma), NO_DELTA


def _through_approx(event: Event) -> Pair:
    """Claim: any (ε, δ)-private step is δ-approximate (ε²/2)-zCDP, see `zcdp_of_approx`."""
    try:
        loss = conversion.zcdp_of_approx(pure_loss(event))
    except Unsupported as refusal:
        raise Unsupported(
            f"The zcdp accountant prices {event.name!r} only through (ε, δ). {refusal.problem}",
            fix=_ADVICE,
        ) from None
    return loss.rho, loss.delta


def _sampled(event: events.PoissonSampled) -> Pair:
    """Claim: through (ε, δ) where the step has one of its own, else see `poisson_zcdp`."""
    return _sampled_by(poisson_zcdp, event)


def _sampled_once(event: events.PoissonSampled) -> Pair:
    return _sampled_by(poisson_zcdp_of_approx, event)


def _sampled_by(theorem: Callable[..., ZCDP], event: events.PoissonSampled) -> Pair:
    try:
        return _through_approx(event)
    except Unsupported:
        inside = zcdp_loss(event.event)
    outside = theorem(inside, probability=event.probability)
    return outside.rho, outside.delta


def _group(event: events.Group) -> Pair:
    """Claim: k²ρ for plain zCDP [BS16, Prop. 1.9]; steps with a δ through their (ε, δ)."""
    inner, size = event.event, event.size
    if isinstance(inner, events.Sequential | events.Repeated):
        return _RULES.loss(distributed(inner, size))
    rho, delta = _RULES.loss(inner)
    return (size * size * rho, delta) if delta == 0 else _through_approx(event)


def distributed(inner: events.Sequential | events.Repeated, size: int) -> Event:
    """A group of steps in sequence as a sequence of groups: each step protects it by itself."""
    if isinstance(inner, events.Repeated):
        return events.Repeated(event=events.Group(event=inner.event, size=size), count=inner.count)
    return events.Sequential(
        events=tuple(events.Group(event=part, size=size) for part in inner.events)
    )


_RULES: Final = Rules(
    accountant="zcdp",
    by_kind=MappingProxyType(
        {
            events.DiscreteGaussianEvent: _gaussian,
            events.GaussianEvent: _gaussian,
            events.ExponentialEvent: _exponential,
            events.TopKEvent: _top_k,
            events.DeclaredZCDPEvent: _declared_zcdp,
            events.GeometricEvent: _laplace,
            events.LaplaceEvent: _laplace,
            events.BoxNoiseEvent: _laplace,
            events.PermuteAndFlipEvent: _through_approx,
            events.AboveThresholdEvent: _through_approx,
            events.KeySelectionEvent: _through_approx,
            events.ThresholdedGaussianEvent: _thresholded,
            events.CrowdCountsEvent: _through_approx,
            events.SmoothStudentEvent: _through_approx,
            events.SmoothLaplaceEvent: _through_approx,
            events.SmoothLognormalEvent: _smooth_lognormal,
            events.ProposeTestReleaseEvent: _through_approx,
            events.DeclaredEvent: _through_approx,
            events.PoissonSampled: _sampled,
            events.Group: _group,
        }
    ),
    advice=_ADVICE,
)
_FORMER: Final = replace(
    _RULES, by_kind=MappingProxyType({**_RULES.by_kind, events.PoissonSampled: _sampled_once})
)
