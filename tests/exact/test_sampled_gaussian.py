"""Gaussian noise about a secret sample, by exact sums: its curve, its price, and broken prices."""

from fractions import Fraction

import numpy as np
import pytest

from noisegate.accounting.amplification import (
    SAMPLED_DELTA,
    poisson,
    poisson_zcdp,
)
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.planning.calibrate import gaussian_delta_up, inner_rho_down
from noisegate.privacy.conversion import approx_of_zcdp, epsilon_of_zcdp_up
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import (
    DeclaredEvent,
    DiscreteGaussianEvent,
    GeometricEvent,
    PoissonSampled,
    Sequential,
)
from noisegate.privacy.loss import ZCDP, ApproxDP

CASES = [(Fraction(1, 100), Fraction(1, 10)), (Fraction(1, 1000), Fraction(1, 2))]


def sampled(variance, p, reach=400):
    """Logarithms of the law of discrete Gaussian noise, and of its mixture with that around 1."""
    x = np.arange(-reach, reach + 1)
    without, inside = (-((x - centre) ** 2) / (2 * float(variance)) for centre in (0, 1))
    total = np.logaddexp.reduce(without)
    there, away = np.log(float(p)), np.log1p(-float(p))
    return without - total, np.logaddexp(away + without, there + inside) - total


def stick(one, other, epsilon):
    """The least δ with one ≤ e^ε other + δ, of logarithms."""
    with np.errstate(under="ignore"):
        return np.maximum(np.exp(one) - np.exp(float(epsilon) + other), 0).sum()


def renyi(one, other, order):
    return np.logaddexp.reduce(order * one + (1 - order) * other) / (order - 1)


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(1, 50)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_the_general_rule_on_the_exact_curve_is_the_exact_curve(p, epsilon):
    """Continuous noise of variance 1, on a fine grid: p δ(ε) at ε', and less the other way."""
    x = np.linspace(-15, 16, 400_001)
    step = x[1] - x[0]
    without, inside = (np.log(step / np.sqrt(2 * np.pi)) - (x - c) ** 2 / 2 for c in (0, 1))
    mixed = np.logaddexp(np.log1p(-float(p)) + without, np.log(float(p)) + inside)
    delta = gaussian_delta_up(epsilon, variance=Fraction(1), sensitivity=L2(squared=1))
    claim = poisson(ApproxDP(epsilon, delta), probability=p)
    assert stick(mixed, without, claim.epsilon) == pytest.approx(float(claim.delta), rel=1e-6)
    assert stick(without, mixed, claim.epsilon) < float(claim.delta)


@pytest.mark.parametrize(("p", "epsilon"), CASES)
def test_a_sample_with_gaussian_noise_keeps_its_price(p, epsilon):
    rho = inner_rho_down(epsilon, probability=p)
    assert rho > 2 * epsilon**2  # what it buys about all rows is ε²/2
    loss = poisson_zcdp(ZCDP(rho), probability=p)
    assert Fraction(9999, 10**4) * epsilon**2 / 2 < loss.rho <= epsilon**2 / 2
    assert loss.delta == SAMPLED_DELTA
    without, mixed = sampled(1 / (2 * rho), p)
    for spare in (Fraction(1, 10**6), Fraction(1, 10**9)):
        claim = approx_of_zcdp(loss, delta=spare)
        for one, other in ((mixed, without), (without, mixed)):
            assert stick(one, other, claim.epsilon) <= float(claim.delta)


@pytest.mark.parametrize(("p", "epsilon"), CASES)
def test_broken_prices_of_gaussian_noise_are_passed(p, epsilon):
    """ε' = p ε at the same δ, and ρ' = p² ρ: both promise too much."""
    rho = inner_rho_down(epsilon, probability=p)
    without, mixed = sampled(1 / (2 * rho), p)
    inside = epsilon_of_zcdp_up(rho, delta=SAMPLED_DELTA / p)
    assert stick(mixed, without, p * inside) > 10 * float(SAMPLED_DELTA)
    order = 60
    assert renyi(mixed, without, order) > 10 * order * float(p * p * rho)


@pytest.mark.parametrize("p", [Fraction(1, 100), Fraction(1, 2), Fraction(99, 100)])
@pytest.mark.parametrize("rho", [Fraction(1, 50), Fraction(1, 2)])
def test_no_order_loses_more_with_a_sample_than_without(p, rho):
    without, mixed = sampled(1 / (2 * rho), p)
    for order in (1.01, 1.5, 2, 7, 40):
        for one, other in ((mixed, without), (without, mixed)):
            assert renyi(one, other, order) <= order * float(rho) + 1e-12
    found = poisson_zcdp(ZCDP(rho), probability=p)
    assert found.rho <= rho
    assert found.delta in (0, SAMPLED_DELTA)


def test_accounts_of_rho_price_whatever_has_a_rho_about_a_sample():
    p = Fraction(1, 100)
    bell = DiscreteGaussianEvent(variance=20, sensitivity=L2(squared=1))
    plain = GeometricEvent(scale=10, sensitivity=L1(1))
    both = Sequential(events=(bell, plain, DeclaredEvent(epsilon="1/10", delta="1e-7")))
    found = zcdp_loss(PoissonSampled(event=both, probability=p))
    assert found == poisson_zcdp(zcdp_loss(both), probability=p)
    assert SAMPLED_DELTA < found.delta <= SAMPLED_DELTA + p / 10**7
    pure = zcdp_loss(PoissonSampled(event=plain, probability=p))
    assert pure.rho == poisson(ApproxDP("1/10"), probability=p).epsilon ** 2 / 2
    assert pure.delta == 0
