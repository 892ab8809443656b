"""One contract for all accountants that may authorise, and what each of them refuses."""

import time
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

import pytest

from noisegate.accounting.accountant import GRAINS_PER_ONE, Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.pure import PureAccountant, pure_loss
from noisegate.accounting.renyi import RenyiAccountant, renyi_loss
from noisegate.accounting.zcdp import ZCDPAccountant, zcdp_loss
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import (
    AboveThresholdEvent,
    DeclaredEvent,
    DeclaredZCDPEvent,
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GeometricEvent,
    Group,
    KeySelectionEvent,
    LaplaceEvent,
    NothingEvent,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    Repeated,
    Sequential,
    TopKEvent,
    decode,
    encode,
)
from noisegate.privacy.loss import ZCDP, ApproxDP
from refusals import about

TENTH, MILLIONTH = Fraction(1, 10), Fraction(1, 10**6)
BUDGET = ApproxDP(1, MILLIONTH)
ACCOUNTANTS = [PureAccountant(), ZCDPAccountant(), RenyiAccountant(32), RenyiAccountant("40.5")]

GEOMETRIC = GeometricEvent(scale=Fraction(10), sensitivity=L1(1))
LAPLACE = LaplaceEvent(scale=Fraction(10), sensitivity=L1(1))
GAUSSIAN = GaussianEvent(variance=Fraction(50), sensitivity=L2(squared=1))
DISCRETE = DiscreteGaussianEvent(variance=Fraction(50), sensitivity=L2(squared=1))
CHOICE = ExponentialEvent(epsilon=TENTH)
KEYS = KeySelectionEvent(epsilon=TENTH, delta=Fraction(1, 10**8))
PURE_EVENTS = [
    NothingEvent(), GEOMETRIC, LAPLACE, CHOICE, TopKEvent(k=3, epsilon_each=TENTH),
    PermuteAndFlipEvent(epsilon=TENTH), KEYS, DeclaredEvent(epsilon=TENTH),
    AboveThresholdEvent(epsilon_threshold=TENTH, epsilon_queries=TENTH, cutoff=2),
    Group(event=GEOMETRIC, size=3), Group(event=KEYS, size=2),
    PoissonSampled(event=GEOMETRIC, probability=TENTH),
    Sequential(events=(GEOMETRIC, KEYS)), Repeated(event=CHOICE, count=7),
    Group(event=Sequential(events=(GEOMETRIC, KEYS)), size=2),
    Parallel(events=(GEOMETRIC, KEYS, CHOICE)),
]  # fmt: skip
CONCENTRATED_EVENTS = [
    GAUSSIAN, DISCRETE, DeclaredZCDPEvent(rho=TENTH), Group(event=DISCRETE, size=3),
    Sequential(events=(GAUSSIAN, KEYS)), Group(event=Sequential(events=(DISCRETE, KEYS)), size=2),
    Group(event=Repeated(event=DISCRETE, count=2), size=2),
    Parallel(events=(GAUSSIAN, DISCRETE)),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class UnheardOf(Event):
    name: ClassVar[str] = "unheard-of/1"


def supported(accountant):
    return PURE_EVENTS if accountant.name == "pure" else PURE_EVENTS + CONCENTRATED_EVENTS


def cases():
    return [(accountant, event) for accountant in ACCOUNTANTS for event in supported(accountant)]


def case_id(value):
    return value.name


each_accountant = pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=case_id)
each_case = pytest.mark.parametrize(("accountant", "event"), cases(), ids=case_id)


@each_accountant
def test_nothing_costs_nothing(accountant):
    free = [
        NothingEvent(), Sequential(events=()), Parallel(events=()),
        DeclaredEvent(epsilon=Fraction(0)), GeometricEvent(scale=TENTH, sensitivity=L1(0)),
        LaplaceEvent(scale=TENTH, sensitivity=L1(0)),
        PoissonSampled(
            event=GeometricEvent(scale=TENTH, sensitivity=L1(0)), probability=Fraction(1)
        ),
    ]  # fmt: skip
    if accountant.name != "pure":
        free += [
            GaussianEvent(variance=TENTH, sensitivity=L2(squared=0)),
            DiscreteGaussianEvent(variance=TENTH, sensitivity=L2(squared=0)),
        ]
    assert [accountant.price(event) for event in free] == [Charge(0, 0)] * len(free)
    assert accountant.implied(Charge(0, 0), BUDGET) == ApproxDP(0)


@each_accountant
@pytest.mark.parametrize("wrap", [
    lambda event: event,
    lambda event: Sequential(events=(GEOMETRIC, event)),
    lambda event: Parallel(events=(GEOMETRIC, event)),
    lambda event: Repeated(event=event, count=2),
    lambda event: Group(event=event, size=2),
    lambda event: PoissonSampled(event=event, probability=TENTH),
])  # fmt: skip
def test_an_unknown_event_is_refused_by_name_wherever_it_stands(accountant, wrap):
    with pytest.raises(Unsupported, match="unheard-of/1"):
        accountant.price(wrap(UnheardOf()))


@each_case
def test_a_price_is_not_negative_and_survives_the_ledger(accountant, event):
    price = accountant.price(event)
    assert price.amount >= 0
    assert price.delta >= 0
    assert accountant.price(decode(encode(event))) == price


@each_case
def test_steps_in_sequence_cost_their_sum(accountant, event):
    both = accountant.price(Sequential(events=(event, GEOMETRIC)))
    apart = accountant.price(event) + accountant.price(GEOMETRIC)
    assert both <= apart
    assert apart <= both + Charge(2, 2)  # each summand is rounded up by less than one grain


@each_case
def test_repeating_multiplies(accountant, event):
    many, once = accountant.price(Repeated(event=event, count=5)), accountant.price(event)
    assert many <= Charge(5 * once.amount, 5 * once.delta)
    assert Charge(5 * once.amount, 5 * once.delta) <= many + Charge(5, 5)


@each_case
def test_disjoint_blocks_cost_the_largest(accountant, event):
    found = accountant.price(Parallel(events=(event, GEOMETRIC, NothingEvent())))
    one, other = accountant.price(event), accountant.price(GEOMETRIC)
    assert found == Charge(max(one.amount, other.amount), max(one.delta, other.delta))


@each_case
def test_a_group_never_costs_less_than_one_unit_and_a_group_of_one_costs_the_same(
    accountant, event
):
    assert accountant.price(event) <= accountant.price(Group(event=event, size=2)) + Charge(2, 2)
    assert accountant.price(Group(event=event, size=1)) == accountant.price(event)


@pytest.mark.parametrize(("accountant", "event"), [
    (accountant, event) for accountant, event in cases()
    if event in (GEOMETRIC, LAPLACE, DISCRETE, GAUSSIAN)
], ids=case_id)  # fmt: skip
def test_more_noise_costs_less_and_more_sensitivity_costs_more(accountant, event):
    if isinstance(event, GeometricEvent | LaplaceEvent):
        quieter = type(event)(scale=2 * event.scale, sensitivity=event.sensitivity)
        wider = type(event)(scale=event.scale, sensitivity=L1(2))
    else:
        quieter = type(event)(variance=2 * event.variance, sensitivity=event.sensitivity)
        wider = type(event)(variance=event.variance, sensitivity=L2(squared=2))
    assert accountant.price(quieter).amount < accountant.price(event).amount
    assert accountant.price(event).amount < accountant.price(wider).amount


@each_accountant
@pytest.mark.parametrize("budget", [
    BUDGET, ApproxDP("0.9", "1e-4"), ApproxDP(3, "1e-12"), ApproxDP("7/3", "1/999"),
], ids=str)  # fmt: skip
def test_the_limit_implies_the_budget_and_nothing_much_beyond_it_does(accountant, budget):
    limit = accountant.limit(budget)
    assert accountant.implied(limit, budget) <= budget
    more = Charge(limit.amount + limit.amount // 1000, limit.delta)
    implied = accountant.implied(more, budget)
    assert budget.epsilon < implied.epsilon < budget.epsilon * Fraction(1002, 1000)
    too_likely = Charge(limit.amount, limit.delta + max(1, limit.delta // 1000))
    assert accountant.implied(too_likely, budget).delta > budget.delta * (1 - budget.delta)


@each_accountant
def test_implied_loss_rises_with_what_was_spent(accountant):
    limit = accountant.limit(BUDGET)
    steps = [Charge(limit.amount * part // 10, limit.delta * part // 10) for part in range(11)]
    implied = [accountant.implied(step, BUDGET) for step in steps]
    assert all(a <= b for a, b in pairwise(implied))
    assert implied[-1] <= BUDGET


@each_accountant
def test_an_accountant_is_found_under_its_name(accountant):
    again = accountant_named(accountant.name)
    assert again.name == accountant.name
    assert again.price(GEOMETRIC) == accountant.price(GEOMETRIC)


@pytest.mark.parametrize("name", ["", "gaussian", "renyi", "PURE"])
def test_an_unknown_accountant_is_refused_with_the_known_ones(name):
    with pytest.raises(SpecError, check=about("accountant"), match=r"'pure'.*'zcdp'.*'renyi-16'"):
        accountant_named(name)


@pytest.mark.parametrize("name", ["renyi-1", "renyi-0.5", "renyi-x", "renyi-nan"])
def test_an_impossible_order_is_refused(name):
    with pytest.raises(SpecError):
        accountant_named(name)


def test_the_order_is_part_of_the_name():
    assert RenyiAccountant("5/2").name == "renyi-5/2"
    assert accountant_named("renyi-5/2").price(GAUSSIAN) == RenyiAccountant(2.5).price(GAUSSIAN)


@pytest.mark.parametrize("event", CONCENTRATED_EVENTS, ids=case_id)
def test_the_pure_accountant_refuses_what_has_no_pure_price(event):
    with pytest.raises(Unsupported, match=r"gaussian/1|declared-zcdp/1"):
        PureAccountant().price(event)


def test_a_zcdp_account_needs_some_delta():
    for accountant in (ZCDPAccountant(), RenyiAccountant(16)):
        with pytest.raises(SpecError, match="δ"):
            accountant.limit(ApproxDP(1))


def test_an_order_too_small_for_the_budget_is_refused():
    with pytest.raises(SpecError, check=about("order")):
        RenyiAccountant(2).limit(ApproxDP("0.1", "1e-9"))


def test_delta_is_halved_at_opening():
    for accountant in (ZCDPAccountant(), RenyiAccountant(32)):
        assert accountant.limit(BUDGET).delta == GRAINS_PER_ONE // (2 * 10**6)
    assert PureAccountant().limit(BUDGET) == Charge(GRAINS_PER_ONE, GRAINS_PER_ONE // 10**6)


def test_losses_are_the_theorems_fractions():
    assert pure_loss(GEOMETRIC) == ApproxDP(TENTH)
    assert pure_loss(TopKEvent(k=3, epsilon_each=TENTH)) == ApproxDP("0.3")
    run = AboveThresholdEvent(epsilon_threshold=TENTH, epsilon_queries=2 * TENTH, cutoff=4)
    assert pure_loss(run) == ApproxDP("0.3")
    assert zcdp_loss(run) == ZCDP("0.045")
    assert zcdp_loss(GEOMETRIC) == ZCDP("1/200")
    assert zcdp_loss(TopKEvent(k=3, epsilon_each=TENTH)) == ZCDP("3/800")
    assert zcdp_loss(CHOICE) == ZCDP("1/800")
    assert zcdp_loss(PermuteAndFlipEvent(epsilon=TENTH)) == ZCDP("1/200")
    assert zcdp_loss(DISCRETE) == zcdp_loss(GAUSSIAN) == ZCDP("1/100")
    assert zcdp_loss(KEYS) == ZCDP("1/200", "1e-8")
    assert zcdp_loss(Group(event=DISCRETE, size=3)) == ZCDP("9/100")
    assert renyi_loss(DISCRETE, order=Fraction(8)) == (Fraction(8, 100), 0)


def test_a_group_of_steps_with_a_delta_goes_through_approximate_loss():
    pure = pure_loss(Group(event=KEYS, size=2))
    assert pure.epsilon == 2 * TENTH
    found = zcdp_loss(Group(event=KEYS, size=2))
    assert found == ZCDP(pure.epsilon**2 / 2, pure.delta)
    mixed = zcdp_loss(Group(event=Sequential(events=(DISCRETE, KEYS)), size=2))
    assert mixed == ZCDP(found.rho + Fraction(4, 100), pure.delta)


def test_a_whole_sparse_vector_run_costs_its_two_parts_whatever_its_cutoff():
    """Half and half is the worst loss 1 that the corrected technique attains."""
    for cutoff in (1, 10):
        half = Fraction(1, 2)
        run = AboveThresholdEvent(epsilon_threshold=half, epsilon_queries=half, cutoff=cutoff)
        assert pure_loss(run) == ApproxDP(1)


def test_sampling_a_group_costs_at_least_a_group_of_samples():
    """E[e^{εB}] for B ~ Binomial(k, p) is at most that of k times one coin of bias p."""
    inside = PoissonSampled(event=Group(event=KEYS, size=3), probability=TENTH)
    outside = Group(event=PoissonSampled(event=KEYS, probability=TENTH), size=3)
    assert pure_loss(outside) <= pure_loss(inside)


def test_groups_of_groups_multiply():
    twice = Group(event=Group(event=GEOMETRIC, size=2), size=3)
    assert pure_loss(twice) == ApproxDP("0.6")
    assert zcdp_loss(twice) == ZCDP("0.18")


def test_sampling_a_gaussian_has_a_price_at_whole_orders_only():
    for inner in (GEOMETRIC, LAPLACE):
        event = PoissonSampled(event=inner, probability=TENTH)
        assert RenyiAccountant(8).price(event).amount < RenyiAccountant("8.5").price(event).amount
    for inner in (GAUSSIAN, DISCRETE):
        event = PoissonSampled(event=inner, probability=TENTH)
        assert 0 < RenyiAccountant(8).price(event).amount < RenyiAccountant(8).price(inner).amount
        assert 0 < ZCDPAccountant().price(event).amount <= ZCDPAccountant().price(inner).amount
        for accountant in (PureAccountant(), RenyiAccountant("8.5")):
            with pytest.raises(Unsupported):
                accountant.price(event)


@each_case
def test_sampling_everything_changes_nothing(accountant, event):
    whole = PoissonSampled(event=event, probability=Fraction(1))
    assert accountant.price(whole) == accountant.price(event)


def test_a_charge_rounds_prices_up_and_limits_down():
    third = Fraction(1, 17)
    up, down = Charge.rounded_up(third, third), Charge.rounded_down(third, third)
    assert up - down == Charge(1, 1)
    assert down <= up
    assert not up <= down
    assert Charge.rounded_up(Fraction(1, 3), TENTH).as_fractions() == (Fraction(1, 3), TENTH)


@pytest.mark.parametrize(("name", "event"), [
    ("pure", GEOMETRIC), ("zcdp", GEOMETRIC), ("zcdp", DISCRETE),
])  # fmt: skip
def test_a_price_takes_less_than_fifty_microseconds(name, event):
    """The median of 21 blocks, so that a busy machine does not decide; measured: 6 to 9 µs."""
    accountant, blocks = accountant_named(name), []
    for _ in range(21):
        start = time.process_time()
        for _ in range(50):
            accountant.price(event)
        blocks.append((time.process_time() - start) / 50)
    assert sorted(blocks)[10] < 50e-6
