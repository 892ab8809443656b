"""The accountant of plain sums: ε and δ add up.

>>> from noisegate.privacy.distance import L1
>>> str(pure_loss(events.GeometricEvent(scale=Fraction(10), sensitivity=L1(1))))
'ε = 0.1'
"""

from fractions import Fraction
from types import MappingProxyType
from typing import ClassVar, Final, final

from noisegate.accounting.accountant import Accountant, Charge
from noisegate.accounting.rules import NO_DELTA, Pair, Rules
from noisegate.errors import Unsupported
from noisegate.privacy import event as events
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP


@final
class PureAccountant(Accountant):
    """Authorises by basic composition.

    Claim: a run of adaptively chosen steps, stopped before Σε or Σδ passes the budget, keeps it.
    Adjacency: add/remove. Why: basic composition is a filter [RRUV16]; the proof of basic
        composition bounds every transcript by its own sum, whoever chose the summands.
    Rounding: prices up to one grain, limits down to one grain.
    """

    name: ClassVar[str] = "pure"

    def loss(self, event: Event) -> Pair:
        """Σε and Σδ of the event."""
        return _RULES.loss(event)

    def limit(self, budget: ApproxDP) -> Charge:
        """The budget itself."""
        return Charge.rounded_down(budget.epsilon, budget.delta)

    def implied(self, spent: Charge, budget: ApproxDP) -> ApproxDP:  # noqa: ARG002 - same for all
        """The sums themselves."""
        epsilon, delta = spent.as_fractions()
        return ApproxDP(epsilon, min(delta, Fraction(1)))


def pure_loss(event: Event) -> ApproxDP:
    """The (ε, δ) of an event by basic composition, exact up to roots and logarithms, rounded up."""
    epsilon, delta = _RULES.loss(event)
    return ApproxDP(epsilon, min(delta, Fraction(1)))


def promised(used: Event, reserved: Event) -> Event:
    """What may be promised of a recipe that used some of what it reserved.

    Claim: what it used, where that is an ε alone; else what it reserved. Adjacency: add/remove.
    Why: how much a recipe uses may follow from its answers. An ε bounds every outcome by its own
        sum, so also those that stopped early [RRUV16]. A δ or a ρ bounds all outcomes together:
        read off where the answers said stop, it is a reading (`Accountant.implied`), and some
        recipes lose more. All of them stay within what was reserved [FZ21]. Rounding: none.
    """
    try:
        return reserved if pure_loss(used).delta else used
    except Unsupported:
        return reserved


def _laplace(event: events.GeometricEvent | events.LaplaceEvent | events.BoxNoiseEvent) -> Pair:
    """Claim: noise of scale b on sensitivity s, each in the noise's own norm, is (s/b)-private.

    Why: [DMNS06, Prop. 1], [GRS09] for L1; [HT10, Thm 4.1] for cells.
    """
    return event.sensitivity.value / event.scale, NO_DELTA


def _choice(event: events.ExponentialEvent | events.PermuteAndFlipEvent) -> Pair:
    """Claim: [MT07, Thm 6] (bounded range ε implies ε-DP), [MS20, Thm 1]."""
    return event.epsilon, NO_DELTA


def _top_k(event: events.TopKEvent) -> Pair:
    """Claim: k exponential mechanisms in a row [DR19]."""
    return event.k * event.epsilon_each, NO_DELTA


def _above_threshold(event: events.AboveThresholdEvent) -> Pair:
    """Claim: the whole run costs ε₁ + ε₂, whatever its length [LSL17]."""
    return event.epsilon_threshold + event.epsilon_queries, NO_DELTA


def _declared(event: events.DeclaredEvent | events.KeySelectionEvent) -> Pair:
    return event.epsilon, event.delta


def _crowd_counts(event: events.CrowdCountsEvent) -> Pair:
    """Claim: ε with the δ that the exact curve has there, see `histogram_delta`.

    Rounding: up, to so few digits that machines with other floats charge the same.
    """
    from noisegate.accounting.crowd import histogram_delta  # noqa: PLC0415 - by crowds only
    from noisegate.accounting.search import digits_up  # noqa: PLC0415

    delta = histogram_delta(event.probability, event.crowd, event.epsilon)
    return event.epsilon, min(digits_up(delta, digits=6), Fraction(1))


def _smooth_student(event: events.SmoothStudentEvent) -> Pair:
    from noisegate.accounting.smooth import student_epsilon_up  # noqa: PLC0415 - smooth noise only

    return student_epsilon_up(event.scale, event.beta), NO_DELTA


def _smooth_laplace(event: events.SmoothLaplaceEvent) -> Pair:
    """Claim: ε with the δ that the exact curve has there, see `laplace_delta_up`."""
    from noisegate.accounting.smooth import laplace_delta_up  # noqa: PLC0415 - smooth noise only

    return event.epsilon, min(laplace_delta_up(event.scale, event.beta, event.epsilon), Fraction(1))


def _propose_test_release(event: events.ProposeTestReleaseEvent) -> Pair:
    """Claim: (ε₁ + ε₂, δ) for a test of ε₁ and a release of ε₂ [DL09].

    Why: if the bound holds for one of two neighbours, they differ by at most the bound, and test
        and release compose. If it holds for neither, both are at distance 0: the test has one law
        for both, and passes with probability at most δ.
    """
    return event.epsilon_test + event.epsilon_release, event.delta


def _group(event: events.Group) -> Pair:
    from noisegate.privacy.conversion import group_of_approx  # noqa: PLC0415 - of groups only

    grouped = group_of_approx(pure_loss(event.event), size=event.size)
    return grouped.epsilon, grouped.delta


def _sampled(event: events.PoissonSampled) -> Pair:
    from noisegate.accounting.amplification import poisson  # noqa: PLC0415 - of samples only

    outer = poisson(pure_loss(event.event), probability=event.probability)
    return outer.epsilon, outer.delta


_RULES: Final = Rules(
    accountant="pure",
    by_kind=MappingProxyType(
        {
            events.GeometricEvent: _laplace,
            events.LaplaceEvent: _laplace,
            events.BoxNoiseEvent: _laplace,
            events.ExponentialEvent: _choice,
            events.PermuteAndFlipEvent: _choice,
            events.TopKEvent: _top_k,
            events.AboveThresholdEvent: _above_threshold,
            events.KeySelectionEvent: _declared,
            events.CrowdCountsEvent: _crowd_counts,
            events.SmoothStudentEvent: _smooth_student,
            events.SmoothLaplaceEvent: _smooth_laplace,
            events.ProposeTestReleaseEvent: _propose_test_release,
            events.DeclaredEvent: _declared,
            events.Group: _group,
            events.PoissonSampled: _sampled,
        }
    ),
    advice="Use geometric noise, or open the account with the zcdp accountant and some δ.",
)
