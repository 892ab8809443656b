"""`gate.distance`: how many rows must go until a property holds."""

from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.desk.desk import Desk
from noisegate.errors import NoisegateError
from noisegate.mechanisms.additive.least_sum import LeastSum
from noisegate.robust.distances import DistanceOrder

FACTS = {
    "x": {"between": [0, 10]},
    "y": {"between": [0, 10]},
    "sick": {"type": "integer", "between": [0, 1]},
}


def rows():
    """A grid of 11 × 11 points, those with x + y > 10 sick, but for 7 of them."""
    x, y = (each.ravel() for each in np.meshgrid(np.arange(11.0), np.arange(11.0)))
    sick = (x + y > 10).astype(np.int64)
    sick[np.flatnonzero(sick)[:7]] = 0
    return pa.table({"x": x, "y": y, "sick": sick, "who": np.arange(121) // 3})


def gate(epsilon=1000, table=None, **more):
    return ng.open(rows() if table is None else table, epsilon=epsilon, columns=FACTS, **more)


unspent = cache(gate)  # for all orders that are refused


def test_rows_in_no_ball_are_counted():
    table = rows().to_pandas()
    exact = sum((table.x**2 + table.y**2 > 9) & ((table.x - 8) ** 2 + (table.y - 8) ** 2 > 9))
    balls = {"columns": ["x", "y"], "centers": [(0, 0), (8, 8)], "radius": 3}
    answer = gate().distance(**balls, epsilon=40)
    assert answer.rows == ((exact,),)  # e^-40
    assert answer.columns == ("distance",)
    assert gate().distance(**balls, epsilon=1).margins()["distance"][0] >= 2


def test_the_best_of_given_separators_is_told_by_its_exceptions_alone():
    lines = [([1, 0], 5), ([1, 1], "10.5"), ([0, 1], 3)]
    answer = gate().distance(columns=["x", "y"], label="sick = 1", separators=lines, epsilon=40)
    assert answer.rows == ((7,),)  # e^-40
    assert "The smallest of 6 numbers" in answer.footer()
    turned = gate().distance(columns=["x", "y"], label="sick = 0", separators=lines, epsilon=40)
    assert turned.rows == ((7,),)


def test_a_grid_of_separators_finds_a_good_one():
    answer = gate().distance(columns=["x", "y"], label="sick = 1", epsilon=40)
    assert 0 <= answer.rows[0][0] <= 15


def test_sql_of_counts_is_a_distance_to_the_nearest_condition():
    sql = "SELECT COUNT(*) FILTER (WHERE x > 3) AS a, COUNT(*) FILTER (WHERE y > 8) AS b FROM data"
    door = gate()
    answer = door.distance(sql, epsilon=40)
    assert answer.rows == ((22,),)
    assert door.distance(sql, epsilon=40).free
    assert float(answer.cost.epsilon) == 40


@pytest.mark.parametrize(("term", "known"), [("x", ["distance"]), ("x - 5", [])])
def test_a_distance_that_cannot_be_negative_says_so(term, known):
    sql = f"SELECT SUM({term}) FILTER (WHERE y > 3) AS a, SUM({term}) AS b FROM data"
    assert list(gate().distance(sql, epsilon=1).unsigned()) == known


def test_a_unit_with_three_rows_has_three_times_the_noise():
    lines = [([1, 0], 5), ([1, 1], "10.5")]
    asked = {"columns": ["x", "y"], "label": "sick = 1", "separators": lines, "epsilon": 1}
    row = gate().distance(**asked).margins("0.99")["distance"][0]
    person = gate(unit="who", rows_per_unit=3).distance(**asked).margins("0.99")["distance"][0]
    assert 2.5 * row < person < 3.7 * row


def test_plans_are_free():
    door = gate()
    lines = {"columns": ["x", "y"], "label": "sick = 1", "separators": [([1, 1], 10)]}
    assert door.distance_plan(**lines, epsilon=1).expected.margin("0.95") == 3
    balls = {"columns": ["x", "y"], "centers": [(0, 0)], "radius": 3}
    assert door.distance_plan(**balls, epsilon=1).price.epsilon == 1
    assert door.spent.epsilon == 0


def exact_distance(table):
    """The least sum without noise, as the door computes it."""
    door = gate(table=table)
    lines = (([1, 0], 5), ([1, 1], "10.5"), ([0, 1], 3))
    order = DistanceOrder(columns=("x", "y"), label="sick = 1", separators=lines, epsilon=1)
    measurement = order.job(Desk(door._curator, door._rules)).measurement
    sums = door._curator._source.sums(measurement.query.tally)
    return sums.min(), measurement


def test_one_row_moves_the_distance_by_one_and_the_event_says_so():
    table = rows()
    whole, measurement = exact_distance(table)
    assert measurement.event().sensitivity.value == 1
    moved, wrong = set(), int(np.flatnonzero((rows().to_pandas().eval("x + y") > 10).to_numpy())[0])
    for place in (0, 5, 60, wrong, 120):
        kept = pa.concat_tables([table.slice(0, place), table.slice(place + 1)])
        moved.add(int(whole - exact_distance(kept)[0]))
    assert moved <= {0, 1}
    assert 1 in moved


def test_the_sum_of_exceptions_would_move_by_more():
    """The broken copy: priced as one count, all candidates' counts together are not."""
    sums = [np.array([5, 5, 5]), np.array([6, 6, 6])]
    assert (
        abs(sums[0].sum() - sums[1].sum()) > LeastSum(scale=1).event(Fraction(1)).sensitivity.value
    )
    assert abs(sums[0].min() - sums[1].min()) == 1


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"columns": ["x", "y"]},
        {"columns": ["x", "y"], "centers": [(0, 0)]},
        {"columns": ["x", "y"], "centers": [(0, 0, 0)], "radius": 1},
        {"columns": ["x", "y"], "centers": [(0, 0)], "radius": -1},
        {"columns": ["x", "y"], "centers": [(0, 0)], "radius": 1, "label": "sick = 1"},
        {"columns": ["x", "y"], "label": "sick = 1", "radius": 1},
        {"columns": ["x"], "label": "sick = 1"},
        {"columns": ["x", "who"], "label": "sick = 1"},
        {"columns": ["x", "y"], "label": "sick = 1", "separators": [([1], 2)]},
        {"asked": "SELECT AVG(x) FROM data"},
        {"asked": "SELECT COUNT(*) FROM data", "columns": ["x"]},
        {"columns": ["x", "y"], "label": "sick = 1", "shape": "round"},
        {"columns": ["x", "y"], "label": "sick = 1", "epsilon": None},
    ],
)
def test_what_cannot_be_is_refused_before_any_charge(terms):
    door = unspent()
    with pytest.raises(NoisegateError) as refusal:
        door.distance(**({"epsilon": 1} | terms))
    assert refusal.value.fix
    assert door.spent.epsilon == 0
