"""The net mechanism: its exact law over all tiny databases, and slips that lose more."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from noisegate.mechanisms.partitions.small_database import SmallDatabase

ASKED = (1, 0, 0, 0, 1, 1, 1, 1, 0)  # three questions about three cells
NET = SmallDatabase(factor=Fraction(1, 4), questions=ASKED, cells=3, size=3, rows=9)


def answers_of(cells):
    return np.array(ASKED).reshape(3, 3) @ np.array(cells)


def law(net, answers, *, rows=None):
    """By hand: every database, its answers, the largest distance."""
    weights = []
    for database in net.databases.tolist():
        guesses = [
            round(Fraction(rows or net.rows, net.size) * int(answer) + Fraction(1, 10**9))
            for answer in answers_of(database)
        ]
        worst = max(abs(int(a) - g) for a, g in zip(answers, guesses, strict=True))
        weights.append(np.exp(-float(net.factor) * worst))
    return np.array(weights) / sum(weights)


def widest(net, *, rows_of=None):
    """The widest range of log-ratios between a table and one with a unit more."""
    found = 0.0
    for cells in product(range(0, 7, 2), repeat=3):
        for unit in np.eye(3, dtype=int):
            tables = [np.array(cells), np.array(cells) + unit]
            laws = [
                law(net, answers_of(t), rows=None if rows_of is None else rows_of(t))
                for t in tables
            ]
            gaps = np.log(laws[0] / laws[1])
            found = max(found, gaps.max() - gaps.min())
    return found


def test_all_databases_stand_to_be_chosen_once():
    found = NET.databases
    assert found.shape == (NET.candidates, 3) == (10, 3)
    assert (found.sum(axis=1) == 3).all()
    assert len({tuple(each) for each in found.tolist()}) == 10
    assert NET.guesses.tolist()[0] == [9, 0, 9]


def test_log_ratios_have_the_range_of_the_event():
    epsilon = float(NET.event(Fraction(1)).epsilon)
    assert 0.99 * epsilon < widest(NET) <= epsilon + 1e-12


def test_a_database_scaled_to_the_exact_number_of_rows_is_caught():
    """The number of rows must be public: its own guesses would move with the unit."""
    assert widest(NET, rows_of=lambda t: 3 * int(t.sum())) > 1.3 * float(
        NET.event(Fraction(1)).epsilon
    )


def test_half_the_price_is_caught():
    assert widest(NET) > 1.9 * float(NET.factor)


def test_the_choice_follows_the_law():
    """3,000 draws; χ² with 9 degrees of freedom passes 48 less than once in a million runs."""
    answers, draws = answers_of([4, 1, 3]), 3_000
    seen = np.bincount([int(NET.sample(answers)[0]) for _ in range(draws)], minlength=10)
    wanted = draws * law(NET, answers)
    assert ((seen - wanted) ** 2 / wanted).sum() < 48


def test_a_sure_choice_is_the_nearest_and_its_shortfall_is_stated():
    net = SmallDatabase.for_epsilon(
        40, questions=ASKED, cells=3, size=3, rows=90, score_sensitivity=1
    )
    (place,) = net.sample(answers_of([31, 28, 31])).tolist()
    assert net.databases[place].tolist() == [1, 1, 1]  # others are 27 further off: e^-540
    assert 9 * np.exp(-20 * (net.shortfall("0.95") + 1)) <= 0.05


@pytest.mark.parametrize("extreme", [np.iinfo(np.int64).max, np.iinfo(np.int64).min])
def test_extreme_answers_do_not_wrap(extreme):
    net = SmallDatabase(factor=Fraction(1), questions=(1, 0, 0, 1), cells=2, size=1, rows=1 << 40)
    assert net.sample(np.array([extreme, 0])).tolist() in ([0], [1])
