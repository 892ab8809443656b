"""The library for researchers: curves, filters and odometers outside a ledger."""

import threading
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from scipy.stats import norm

from noisegate import dp
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.planning.composition import optimal_epsilon_up
from refusals import about

COUNT = dp.GeometricEvent(scale=Fraction(10), sensitivity=dp.L1(1))
GAUSS = dp.GaussianEvent(variance=Fraction(25), sensitivity=dp.L2(squared=1))  # of μ = 1/5


def test_every_name_is_there():
    assert all(getattr(dp, name) is not None for name in dp.__all__)
    assert {"Curve", "Filter", "Odometer", "Audit"} <= set(dir(dp))
    with pytest.raises(AttributeError):
        _ = dp.nothing


# curves


def test_a_curve_tells_the_least_that_is_proven():
    run = dp.Curve(COUNT) * 100
    exact = optimal_epsilon_up(Fraction(1, 10), count=100, delta=Fraction(1, 10**6))
    assert run.epsilon("1e-6") == pytest.approx(float(exact), rel=1e-12)
    assert Fraction(run.epsilon("1e-6")) >= exact
    assert run.epsilon() == 10  # δ = 0: sums
    assert run.epsilon("1e-6", by="basic") == 10
    rows = {row.method: row.epsilon for row in run.report("1e-6")}
    assert run.epsilon("1e-6") == pytest.approx(
        float(min(each for name, each in rows.items() if each is not None and name != "pld"))
    )


def test_curves_compose():
    both = dp.Curve(COUNT) * 3 + 2 * dp.Curve(GAUSS) + dp.Curve()
    assert repr(both) == "<Curve of 5 steps, 2 different>"
    assert dp.zcdp_loss(both.event).rho == 3 * Fraction(1, 200) + 2 * Fraction(1, 50)
    assert (both * 0).epsilon() == 0
    for wrong in (-1, 0.5, True):
        with pytest.raises(SpecError):
            _ = both * wrong
    with pytest.raises(Unsupported, check=about("curve")):
        dp.Curve(GAUSS).epsilon(0)  # Gaussian noise has no ε without a δ


@pytest.mark.parametrize("epsilon", ["0.5", "2", "4.5"])
def test_a_delta_is_the_inverse_of_an_epsilon(epsilon):
    run = dp.Curve(COUNT) * 50
    found = run.delta(epsilon)
    assert run.epsilon(Fraction(found)) <= float(epsilon)
    assert run.epsilon(Fraction(found) * Fraction(997, 1000)) > float(epsilon)


def test_a_delta_may_be_zero_or_not_there():
    assert dp.Curve(COUNT).delta("0.1") == 0
    assert dp.Curve(dp.DeclaredEvent(epsilon=0, delta=1)).delta(3) == 1


def test_the_trade_off_of_a_pure_step_is_exact_and_that_of_a_gaussian_is_never_above():
    alphas = [0.0, 0.01, 0.1, 0.4, 0.9, 1.0]
    e = 0.1
    exact = [max(0, 1 - exp(e) * a, exp(-e) * (1 - a)) for a in alphas]
    assert dp.Curve(COUNT).tradeoff(alphas) == pytest.approx(exact, abs=1e-12)
    run = dp.Curve(GAUSS) * 25  # of μ = 1
    gauss = norm.cdf(norm.ppf(1 - np.array(alphas[1:5])) - 1)
    certified = np.array(run.tradeoff(alphas)[1:5])
    assert (certified <= gauss).all()
    assert certified == pytest.approx(gauss, abs=0.03)  # some δ alone are looked at


def test_the_trade_off_without_false_positives_misses_no_more_than_delta_allows():
    """Who names the outcome that shows it has no false positives, and misses it seven times in ten."""
    shown = dp.Curve(dp.DeclaredEvent(epsilon=1, delta=Fraction(3, 10)))
    assert 0.5 <= shown.tradeoff([0.0])[0] <= 0.7
    assert dp.Curve(dp.DeclaredEvent(epsilon=0, delta=1)).tradeoff([0.0, 0.5]) == [0, 0]


def test_a_delta_is_that_of_the_epsilon_as_it_is_written():
    nearest = dp.Curve(dp.DeclaredEvent(epsilon=Fraction(0.1)))  # the double, above 1/10
    assert nearest.delta(Fraction(0.1)) == 0
    assert nearest.delta("0.1") > 0


def test_a_curve_is_drawn():
    drawn = (dp.Curve(COUNT) * 10).plot().to_dict()
    assert len(drawn["data"]["values"]) == 202


# filters and odometers


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "renyi-16"])
def test_a_filter_stops_before_the_budget(accountant):
    delta = 0 if accountant == "pure" else "1e-6"
    account = dp.Filter(epsilon=1, delta=delta, accountant=accountant)
    taken = 0
    while account.fits(COUNT):
        account.spend(COUNT)
        taken += 1
    with pytest.raises(OverBudget, check=about("filter")):
        account.spend(COUNT)
    assert account.spent <= account.budget
    assert not dp.ApproxDP(account.price(COUNT).epsilon) <= dp.ApproxDP(account.left.epsilon)
    assert taken == {"pure": 10}.get(accountant, taken)
    run = dp.Curve(COUNT) * taken
    assert run.epsilon(delta) <= 1
    assert "of " in repr(account)


def test_racing_threads_take_what_fits_and_no_more():
    account, taken = dp.Filter(epsilon=1), []

    def take():
        for _ in range(20):
            try:
                account.spend(COUNT)
                taken.append(1)
            except OverBudget:
                pass

    threads = [threading.Thread(target=take) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(taken) == 10
    assert account.spent.epsilon == 1


def test_an_odometer_reads_the_lesser_of_both():
    read = dp.Odometer(delta="1e-6")
    assert read.loss == dp.ApproxDP(0)
    read.add(COUNT)
    assert read.loss == dp.ApproxDP("0.1")  # a sum of few ε is less, and has no δ
    read.add(dp.Curve(COUNT) * 10_000)
    assert read.loss.delta == Fraction(1, 10**6)
    assert 70 < read.loss.epsilon < 1000
    mixed = dp.Odometer(delta="1e-6")
    mixed.add(GAUSS)
    mixed.add(COUNT)
    assert mixed.loss.delta  # Gaussian noise has no pure ε
    with pytest.raises(Unsupported, check=about("odometer")):
        mixed.add(dp.DeclaredEvent(epsilon=1, delta="1e-9"))
    assert "ε" in repr(mixed)
    with pytest.raises(SpecError):
        dp.Odometer(delta=0)


def test_an_odometer_holds_for_whoever_stops_at_the_worst_moment_and_a_naive_reading_does_not():
    """Gaussian steps at growing scales; the loss of a step of ρ is normal with mean ρ, variance 2ρ.

    The seed is fixed: no false alarm. A naive reading converts the ρ so far at δ.
    """
    delta, runs = 0.1, 4000
    sums = 2.0 ** np.arange(-30, 10, 0.25)  # ρ so far at each moment
    steps = np.diff(sums, prepend=0)
    draws = np.random.default_rng(5).normal(steps, np.sqrt(2 * steps), (runs, len(steps)))
    losses = draws.cumsum(axis=1)
    told = []
    read = dp.Odometer(delta=Fraction(1, 10))
    for step in steps:
        read.add(dp.DeclaredZCDPEvent(rho=Fraction(step)))
        told.append(float(read.loss.epsilon))
    naive = sums + 2 * np.sqrt(sums * np.log(1 / delta))
    assert (losses > np.array(told)).any(axis=1).mean() <= delta
    assert (losses > naive).any(axis=1).mean() > 2 * delta
