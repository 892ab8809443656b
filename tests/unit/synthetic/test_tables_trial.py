"""Tables, distances and choices on public rows, with the noise that the door would draw."""

from fractions import Fraction

import numpy as np
import pytest

from noisegate.accounting.zcdp import zcdp_loss
from noisegate.desk.terms.price import Price
from noisegate.errors import Bug, SpecError
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.noise.bits import SYSTEM
from noisegate.synthetic.asking import FINE, distances_of
from refusals import about
from trials import TrialTables

ROWS = np.array([[0, 0, 1], [0, 1, 1], [1, 2, 0], [1, 2, 1]])
SIZES = (2, 3, 2)
PLENTY = Fraction(150)  # wrong numbers, or a wrong choice, come up once in 10**12 runs


def trial(*, amount=PLENTY, gaussian=False):
    return TrialTables(ROWS, SIZES, amount, gaussian=gaussian, bits=SYSTEM)


@pytest.mark.parametrize("gaussian", [False, True])
def test_tables_have_the_cells_of_their_columns_the_last_varying_fastest(gaussian):
    half = Fraction(1, 4)
    found = trial(gaussian=gaussian).tables([(0, 1), (2,), ()], [half] * 3)
    assert [noisy.values.tolist() for noisy in found] == [[1, 1, 0, 0, 0, 2], [1, 3], [4]]


def test_distances_are_those_of_the_guesses_in_grains():
    guesses = {(0,): np.array([1.0, 4.0]), (1,): np.array([1.0, 1.0, 2.0])}
    assert trial().distances(guesses, Fraction(1)).values.tolist() == [3, 0]


def test_guesses_below_one_are_not_rounded_away():
    scores = distances_of({(0,): np.full(2, 0.25)})
    assert scores.apply([np.zeros(2, np.int64)]).tolist() == [FINE // 2]


def test_the_furthest_is_by_weight_times_what_is_more_than_expected():
    guesses = {(0,): np.zeros(2), (2,): np.zeros(2), (0, 2): np.zeros(4)}  # each is off by 4
    weights = {(0,): Fraction(1), (2,): Fraction(3), (0, 2): Fraction(2)}
    less = {(0,): 1.0, (2,): 3.0, (0, 2): 0.5}
    found, third = trial(), Fraction(1, 3)
    assert found.furthest(guesses, third, weights=weights) == (2,)  # 12 against 4 and 8
    assert found.furthest(guesses, third, weights=weights, less=less) == (0, 2)  # 7 against 3
    assert found.furthest(guesses, third, less={**less, (0,): 0.25}) == (0,)


def test_variances_are_free_and_those_of_the_answers():
    found, tenth = trial(amount=Fraction(1), gaussian=True), Fraction(1, 10)
    assert found.variance(tenth) == 5
    assert found.distance_variance(4, tenth) == pytest.approx(4 * 5 + 1 / 12)
    assert found.spent == 0
    (noisy,) = found.tables([(0,)], [tenth])
    guesses = {(axis,): np.zeros(size) for axis, size in enumerate(SIZES)}
    assert noisy.variance == 5
    assert found.distances(guesses, tenth).variance == pytest.approx(3 * 5 + 1 / 12)
    assert found.spent == Fraction(2, 10)


def test_shares_beyond_the_whole_price_are_refused():
    found = trial()
    found.tables([(0,)], [Fraction(2, 3)])
    with pytest.raises(Bug, check=about("price")):
        found.furthest({(0,): np.zeros(2)}, Fraction(1, 2))


@pytest.mark.parametrize("axes", [(1, 0), (0, 0), (3,), (-1,), [0]])
def test_columns_are_numbers_in_ascending_order(axes):
    with pytest.raises((SpecError, TypeError)):
        trial().tables([axes], [Fraction(1)])


def test_rows_outside_of_the_cells_are_refused():
    with pytest.raises(SpecError, check=about("cells")):
        TrialTables(ROWS, (2, 2, 2), Fraction(1), gaussian=False, bits=SYSTEM)
    with pytest.raises(SpecError, check=about("columns")):
        TrialTables(ROWS, (2, 3), Fraction(1), gaussian=False, bits=SYSTEM)


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 7), Fraction(3, 1000)])
def test_a_choice_costs_what_its_share_is_and_hardly_less(share):
    price = Price(amount=Fraction(2, 5), gaussian=True)
    epsilon = price.exponential_epsilon(share)
    choice = Exponential.for_epsilon(epsilon, score_sensitivity=FINE)
    cost = zcdp_loss(choice.event(Fraction(FINE))).rho
    assert share * price.amount * (1 - Fraction(1, 10**9)) < cost <= share * price.amount
    assert Price(amount=Fraction(2, 5), gaussian=False).exponential_epsilon(share) == share * 2 / 5
