"""The ρ of a step about a secret sample, against exact sums, other libraries and broken copies."""

from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import brentq

import noisegate
from noisegate.accounting.accountant import Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.amplification import SAMPLED_DELTA, poisson_zcdp
from noisegate.accounting.curves import gaussian_moment, sampled_renyi_up
from noisegate.accounting.renyi import renyi_loss
from noisegate.accounting.sampled import sampled_rho_up
from noisegate.accounting.zcdp import ZCDPAccountant, zcdp_loss
from noisegate.ledger.account import Prices
from noisegate.planning.calibrate import inner_rho_down
from noisegate.planning.reports import report
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import (
    DeclaredZCDPEvent,
    DiscreteGaussianEvent,
    GaussianEvent,
    GeometricEvent,
    PoissonSampled,
    Sequential,
)
from noisegate.privacy.loss import ZCDP

DELTA = Fraction(1, 1000)
ORDERS = (1.001, 1.3, 1.9, 2, 2.5, 3, 7.7, 20, 41.5, 100, 333, 1000, 5000)
ROWS = ("zcdp", "renyi", "pld")
SHARES = ["1/2", "1/10", "1/100"]


def renyi(one, other, order):
    return np.logaddexp.reduce(order * one + (1 - order) * other) / (order - 1)


def bell(rho):
    """Logarithms of discrete Gaussian laws of this ρ around 0 and around 1."""
    x = np.arange(-600, 601)
    laws = [-((x - centre) ** 2) * rho for centre in (0, 1)]
    return [law - np.logaddexp.reduce(law) for law in laws]


def skew(seed):
    """Logarithms of two laws that no reflection exchanges, with a far tail on one side."""
    chance = np.random.default_rng(seed)
    first = chance.dirichlet(chance.choice([0.3, 1, 5], 6))
    loss = chance.normal(0, chance.choice([0.1, 0.5, 1]), 6) * chance.choice([1, 3], 6)
    second = first * np.exp(loss)
    return np.log(first + 1e-300), np.log(second / second.sum() + 1e-300)


def rho_of(one, other):
    orders = np.concatenate([1 + np.geomspace(1e-4, 1, 60), np.geomspace(2, 1e5, 200)])
    losses = [max(renyi(one, other, a), renyi(other, one, a)) / a for a in orders]
    return max(losses) * (1 + 1e-3)


def mixed(one, other, p):
    return np.logaddexp(np.log1p(-p) + other, np.log(p) + one)


def cut(one, other, delta):
    """The first law without what passes some multiple of the second, δ in all, scaled up."""

    def lost(log_cut):
        return np.exp(one).sum() - np.exp(np.minimum(one, log_cut + other)).sum() - delta

    if lost(0) <= 0:
        return None
    return np.minimum(one, brentq(lost, 0, 60, xtol=1e-14) + other) - np.log1p(-delta)


def worst(without, inside, p, delta):
    """The largest D_a / a of the good parts about a sample, both ways; 0 if all is within δ."""
    one, other = cut(inside, without, delta), cut(without, inside, delta)
    if one is None or other is None:
        return 0.0
    both = mixed(one, other, p), other
    return max(max(renyi(*both, a), renyi(*both[::-1], a)) / a for a in ORDERS)


@pytest.mark.parametrize("share", [*SHARES, "9/10"])
@pytest.mark.parametrize("seed", range(12))
def test_the_binomial_sum_holds_for_every_step_of_that_rho(seed, share):
    without, inside = skew(seed)
    rho, p = rho_of(inside, without), Fraction(share)
    mix = mixed(inside, without, float(p))
    for order in (2, 3, 5, 11, 40):
        claim = sampled_renyi_up(gaussian_moment(Fraction(rho)), probability=p, order=order)
        found = max(renyi(mix, without, order), renyi(without, mix, order))
        assert found <= float(claim) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("rho", ["1/2000", "1/100", "1/10", "1"])
def test_the_good_parts_about_a_sample_keep_the_claim_at_every_order(rho, share):
    without, inside = bell(float(Fraction(rho)))
    claim = sampled_rho_up(Fraction(rho), probability=Fraction(share), delta=DELTA)
    assert worst(without, inside, float(Fraction(share)), float(DELTA)) <= float(claim)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", range(12))
def test_so_do_those_of_steps_that_no_reflection_exchanges(seed, share):
    without, inside = skew(seed)
    rho = Fraction(rho_of(inside, without))
    claim = sampled_rho_up(rho, probability=Fraction(share), delta=DELTA)
    assert worst(without, inside, float(Fraction(share)), float(DELTA)) <= float(claim) + 1e-12


@pytest.mark.parametrize("share", ["1/10", "1/100"])
def test_broken_copies_are_caught(share):
    """ρ' = p² ρ, and ρ' by the first orders alone: both promise too much, with the cut or not."""
    p, rho = float(Fraction(share)), 0.1
    without, inside = bell(rho)
    found = worst(without, inside, p, float(DELTA))
    assert found > 1.15 * p * p * rho
    mix = mixed(inside, without, p)
    early = max(renyi(mix, without, a) / a for a in ORDERS if a < 20)
    late = max(renyi(mix, without, a) / a for a in ORDERS)
    assert late > 5 * early
    assert found > 1.15 * p * p * (np.exp(2 * rho) - 1) / 2


def test_a_run_about_samples_is_never_below_its_loss_distribution():
    delta = Fraction(1, 10**6)
    for variance, share, count in ((50, "1/10", 100), (50, "1/100", 1000), (10, "1/2", 5)):
        step = GaussianEvent(variance=variance, sensitivity=L2(squared=1))
        run = [PoissonSampled(event=step, probability=Fraction(share))] * count
        rows = {row.method: row.epsilon for row in report(run, delta=delta, methods=ROWS)}
        assert rows["pld"] <= rows["renyi"]
        assert rows["pld"] <= rows["zcdp"] < Fraction(5, 2) * rows["pld"]


def test_whole_orders_are_those_of_dp_accounting():
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    orders = [2, 3, 8, 32]
    for sigma, share in ((2, "1/10"), (5, "1/100"), (1, "1/2")):
        theirs = rdp.RdpAccountant(orders=orders)
        theirs.compose(PoissonSampledDpEvent(float(Fraction(share)), GaussianDpEvent(sigma)))
        step = GaussianEvent(variance=sigma**2, sensitivity=L2(squared=1))
        event = PoissonSampled(event=step, probability=Fraction(share))
        ours = [float(renyi_loss(event, order=Fraction(order))[0]) for order in orders]
        assert ours == pytest.approx(list(theirs._rdp), rel=1e-9)


@pytest.mark.parametrize("accountant", ["zcdp", "renyi-8", "renyi-32"])
@pytest.mark.parametrize("share", ["1/2", "1/10", "1/1000"])
def test_noise_is_bought_that_costs_what_was_asked_and_hardly_less(accountant, share):
    epsilon, p = Fraction(1, 10), Fraction(share)
    rho = inner_rho_down(epsilon, probability=p, accountant=accountant)
    step = PoissonSampled(event=DeclaredZCDPEvent(rho=rho), probability=p)
    parts = [zcdp_loss(step).rho / (epsilon**2 / 2)]
    if accountant != "zcdp":  # an order alone does not imply that the step is (ε, δ)-private
        order = Fraction(accountant.removeprefix("renyi-"))
        parts.append(renyi_loss(step, order=order)[0] / (order * epsilon**2 / 2))
    assert Fraction(9999, 10**4) < max(parts) <= 1
    assert rho > 2 * epsilon**2 / 2


@pytest.mark.parametrize("accountant", ["zcdp", "renyi-2", "renyi-8"])
@pytest.mark.parametrize("epsilon", ["0.1", 1, 8])
def test_no_question_about_a_sample_is_told_to_cost_more_than_was_asked(accountant, epsilon):
    rows = pa.table({"w": np.arange(400) % 4})
    gate = noisegate.open(
        rows, epsilon=1000, delta=1e-6, table="t", accountant=accountant,
        columns={"w": {"in": [0, 1, 2, 3]}},
    )  # fmt: skip
    sql = "SELECT w, COUNT(*) AS n FROM t GROUP BY w"
    planned = gate.sample(Fraction(3, 10)).plan(sql, epsilon=epsilon).price.epsilon
    assert gate.sample(Fraction(3, 10)).sql(sql, epsilon=epsilon).cost.epsilon == planned
    assert planned <= Fraction(epsilon)


def test_an_order_without_a_price_for_samples_buys_no_gaussian_noise():
    half = Fraction(1, 2)
    assert inner_rho_down(half, probability=half, accountant="renyi-5/2") is None


def test_several_steps_about_one_sample_are_priced_by_their_rho_together():
    p = Fraction(1, 10)
    bells = DiscreteGaussianEvent(variance=100, sensitivity=L2(squared=1))
    both = Sequential(events=(bells, GeometricEvent(scale=20, sensitivity=L1(1)), bells))
    rho = zcdp_loss(both).rho
    event = PoissonSampled(event=both, probability=p)
    at_8 = sampled_renyi_up(gaussian_moment(rho), probability=p, order=8)
    assert renyi_loss(event, order=Fraction(8)) == (at_8, 0)
    assert zcdp_loss(event) == ZCDP(
        sampled_rho_up(rho, probability=p, delta=SAMPLED_DELTA), SAMPLED_DELTA
    )
    assert poisson_zcdp(ZCDP(rho), probability=p).rho < 3 * p * p * rho


def test_what_was_charged_through_epsilon_and_delta_still_covers():
    """At p = 1/2 that was all of ρ without a δ; a grain less of either is too little."""
    step = DiscreteGaussianEvent(variance=50, sensitivity=L2(squared=1))
    event, payer = PoissonSampled(event=step, probability=Fraction(1, 2)), ZCDPAccountant()
    once, now = payer.price(step), payer.price(event)
    assert now.amount < once.amount
    assert now.delta > once.delta == 0
    covers = partial(Prices(accountant_named).covers, "zcdp", event)
    assert covers(once)
    assert covers(now)
    assert not covers(Charge(once.amount - 1, 0))
    assert not covers(Charge(now.amount - 1, now.delta))
    assert not covers(Charge(now.amount, now.delta - 1))
