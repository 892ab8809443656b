"""Conversions between kinds of loss: published numbers, refusals, directions of rounding."""

import math
from fractions import Fraction

import pytest

from noisegate.accounting.curves import (
    geometric_renyi_up,
    laplace_moment,
    laplace_renyi_up,
    pure_renyi_up,
    sampled_renyi_up,
    zcdp_renyi,
)
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.conversion import (
    approx_of_zcdp,
    change_one,
    change_one_zcdp,
    epsilon_at_order_up,
    epsilon_of_zcdp_up,
    group_of_approx,
    group_of_zcdp,
    renyi_of_budget_down,
    rho_of_budget_down,
    zcdp_of_approx,
    zcdp_of_bounded_range,
    zcdp_of_pure,
)
from noisegate.privacy.loss import ZCDP, ApproxDP, RenyiDP
from refusals import about

TENTH, MILLIONTH = Fraction(1, 10), Fraction(1, 10**6)
TABLE = [  # rho, delta, tight epsilon, loose epsilon
    ("1/2", "1e-6", 5.22153, 5.75652),
    ("1/10", "1e-6", 2.14194, 2.45079),
    ("1/100", "1e-9", 0.810174, 0.920456),
]


@pytest.mark.parametrize(("rho", "delta", "tight", "loose"), TABLE)
def test_zcdp_gives_the_published_epsilon(rho, delta, tight, loose):
    rho, delta = Fraction(rho), Fraction(delta)
    assert float(epsilon_of_zcdp_up(rho, delta=delta)) == pytest.approx(tight, rel=2e-6)
    assert loose == pytest.approx(float(rho) + 2 * math.sqrt(rho * math.log(1 / delta)), rel=1e-5)


@pytest.mark.parametrize(("rho", "delta", "tight", "_loose"), TABLE)
def test_epsilon_and_rho_are_inverse_to_ten_digits(rho, delta, tight, _loose):
    rho, delta = Fraction(rho), Fraction(delta)
    epsilon = epsilon_of_zcdp_up(rho, delta=delta)
    back = rho_of_budget_down(ApproxDP(epsilon, delta))
    assert float(back) == pytest.approx(float(rho), rel=1e-10)


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "4", "20"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-12", "1e-30"])
def test_the_largest_rho_keeps_the_budget(epsilon, delta):
    budget = ApproxDP(epsilon, delta)
    rho = rho_of_budget_down(budget)
    assert rho > 0
    less, more = rho * (1 - Fraction(1, 10**9)), rho * Fraction(101, 100)
    assert epsilon_of_zcdp_up(less, delta=budget.delta) <= budget.epsilon
    assert epsilon_of_zcdp_up(more, delta=budget.delta) > budget.epsilon


def test_no_loss_converts_to_no_loss():
    assert epsilon_of_zcdp_up(Fraction(0), delta=MILLIONTH) == 0
    assert approx_of_zcdp(ZCDP(0, MILLIONTH), delta=MILLIONTH) == ApproxDP(0, MILLIONTH)
    assert pure_renyi_up(Fraction(0), Fraction(2)) == 0
    assert laplace_renyi_up(Fraction(0), Fraction(2)) == 0
    assert geometric_renyi_up(Fraction(1), Fraction(0), Fraction(2)) == 0


def test_pure_loss_is_concentrated_by_half_its_square_and_a_choice_by_an_eighth():
    assert zcdp_of_pure(Fraction(1, 10)) == Fraction(1, 200)
    assert zcdp_of_bounded_range(Fraction(1, 10)) == Fraction(1, 800)
    assert zcdp_of_approx(ApproxDP("0.1", MILLIONTH)) == ZCDP("1/200", MILLIONTH)


def test_the_delta_of_approximate_zcdp_mixes_instead_of_adding():
    found = approx_of_zcdp(ZCDP("0.1", "1e-6"), delta=MILLIONTH)
    assert found.delta == 2 * MILLIONTH - MILLIONTH**2
    assert found.epsilon == epsilon_of_zcdp_up(Fraction(1, 10), delta=MILLIONTH)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(2)])
def test_a_conversion_without_a_usable_delta_is_refused(delta):
    with pytest.raises(SpecError, check=about("delta")):
        epsilon_of_zcdp_up(Fraction(1), delta=delta)


def test_one_order_gives_the_textbook_epsilon():
    order, renyi = Fraction(10), Fraction(1)
    textbook = 1 + math.log(0.9) - (math.log(1e-6) + math.log(10)) / 9
    found = epsilon_at_order_up(renyi, order, delta=MILLIONTH)
    assert float(found) == pytest.approx(textbook, rel=1e-12)
    back = renyi_of_budget_down(ApproxDP(found, MILLIONTH), order=order)
    assert float(back) == pytest.approx(1, rel=1e-12)


def test_a_curve_is_as_good_as_its_best_order():
    orders = tuple(map(Fraction, (2, 4, 8, 16, 32)))
    curve = RenyiDP(orders, tuple(zcdp_renyi(Fraction(1, 10), order) for order in orders))
    each = [
        epsilon_at_order_up(value, order, delta=MILLIONTH)
        for order, value in zip(orders, curve.epsilons, strict=True)
    ]
    assert min(each) >= epsilon_of_zcdp_up(Fraction(1, 10), delta=MILLIONTH)


def test_changing_one_unit_is_removing_and_adding():
    exact = (1 + math.e) * 1e-6
    found = change_one(ApproxDP(1, MILLIONTH))
    assert found.epsilon == 2
    assert 0 <= float(found.delta) - exact <= 1e-20
    assert change_one(ApproxDP(1)) == ApproxDP(2)
    assert change_one_zcdp(ZCDP("0.1")) == ZCDP("0.4")


def test_a_group_pays_a_geometric_series_of_deltas():
    found = group_of_approx(ApproxDP("1/2", MILLIONTH), size=3)
    series = 1 + math.exp(0.5) + math.exp(1)
    assert found.epsilon == Fraction(3, 2)
    assert float(found.delta) == pytest.approx(series * 1e-6, rel=1e-12)
    assert group_of_approx(ApproxDP(0, MILLIONTH), size=3) == ApproxDP(0, 3 * MILLIONTH)
    assert group_of_approx(ApproxDP(2, MILLIONTH), size=1) == ApproxDP(2, MILLIONTH)
    assert group_of_approx(ApproxDP(10, "0.1"), size=9).delta == 1


def test_a_group_pays_the_square_under_zcdp():
    assert group_of_zcdp(ZCDP("0.1"), size=3) == ZCDP("0.9")


def test_groups_of_approximate_zcdp_are_refused_with_a_route():
    with pytest.raises(Unsupported, match="group_of_approx"):
        group_of_zcdp(ZCDP("0.1", MILLIONTH), size=2)


@pytest.mark.parametrize("size", [0, -1, True, 1.5])
def test_a_group_has_a_whole_size(size):
    with pytest.raises(SpecError, check=about("size")):
        group_of_approx(ApproxDP(1), size=size)


@pytest.mark.parametrize("order", ["3/2", "2", "10", "64"])
def test_renyi_curves_keep_their_order(order):
    """Laplace below geometric below randomised response below a ε²/2, all at ε = 1/2."""
    order, half = Fraction(order), Fraction(1, 2)
    laplace = laplace_renyi_up(half, order)
    narrow = geometric_renyi_up(Fraction(20), Fraction(10), order)
    count = geometric_renyi_up(Fraction(2), Fraction(1), order)
    pure = pure_renyi_up(half, order)
    assert laplace < narrow < count
    assert abs(count - pure) < Fraction(1, 10**25)
    assert pure <= zcdp_renyi(zcdp_of_pure(half), order)
    assert pure <= half


def test_a_full_sample_has_the_curve_of_the_step():
    whole = sampled_renyi_up(laplace_moment(TENTH), probability=Fraction(1), order=4)
    assert whole == laplace_renyi_up(TENTH, Fraction(4))
    nearly = sampled_renyi_up(laplace_moment(TENTH), probability=1 - MILLIONTH, order=4)
    assert whole * Fraction(99, 100) < nearly < whole


def test_absurd_losses_convert_without_overflow():
    huge = Fraction(10**400)
    assert epsilon_of_zcdp_up(huge, delta=MILLIONTH) >= huge
    assert rho_of_budget_down(ApproxDP(huge, MILLIONTH)) > 0


def test_a_vanishing_sensitivity_on_integers_still_counts_as_one():
    third = geometric_renyi_up(Fraction(2), Fraction(1, 3), Fraction(2))
    assert third == geometric_renyi_up(Fraction(2), Fraction(1), Fraction(2))
