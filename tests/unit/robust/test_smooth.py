"""`gate.smooth`: quantiles with noise by what the rows allow, as analysts ask for them."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.curator.measurement import Measurement
from noisegate.desk.desk import Desk
from noisegate.errors import NoisegateError, OverBudget, SpecError, Unsupported
from noisegate.mechanisms.smooth.local_quantile import LocalQuantile
from noisegate.mechanisms.smooth.smooth import SmoothStudent
from noisegate.robust.quantiles import SmoothOrder
from refusals import about

FACTS = {
    "cost": {"between": [0, 1000]},
    "age": {"type": "integer", "between": [0, 120]},
    "ward": {"in": ["north", "south"]},
}
MEDIAN = "SELECT MEDIAN(cost) AS middle FROM data"


def rows():
    """4,000 costs evenly between 300 and 400, and ages of 40 only."""
    count = 4000
    return pa.table(
        {
            "cost": 300 + 100 * np.arange(count) / count,
            "age": np.full(count, 40),
            "ward": np.array(["north", "south"])[np.arange(count) % 2],
            "who": np.arange(count) // 2,
        }
    )


def gate(epsilon=100, **more):
    return ng.open(rows(), epsilon=epsilon, columns=FACTS, **more)


def test_a_median_among_many_close_values_has_little_noise():
    answer = gate().smooth(MEDIAN, epsilon=5)
    assert answer.columns == ("middle",)
    # values lie 1/40 apart, so the noise is a t of width below 0.1: beyond 50 with less than 1e-7
    assert abs(answer.rows[0][0] - 350) < 50
    assert answer.margins() == {"middle": None}
    assert "not released" in answer.footer()
    assert float(answer.cost.epsilon) == pytest.approx(5, rel=1e-9)


def test_a_number_that_nobody_can_move_comes_out_exactly():
    middle = gate().smooth("SELECT MEDIAN(age) FROM data", epsilon=1)
    assert middle.rows == ((40,),)
    assert str(middle.promise).startswith("ε = 1 for adding or removing one row")


@pytest.mark.parametrize("more", [{}, {"delta": 1e-9}])
def test_a_price_that_is_too_small_for_the_rows_of_a_unit_is_refused_as_such(more):
    door = gate(delta=1e-6, unit="who", rows_per_unit=3000)
    for ask in (door.smooth_plan, door.smooth):  # and not a beta, which nobody named
        with pytest.raises(SpecError, check=about("smooth-price"), match="price is too small"):
            ask(MEDIAN, epsilon=1, **more)
    assert door.spent.epsilon == 0


def test_it_is_drawn_once_and_free_afterwards():
    door = gate()
    first = door.smooth(MEDIAN, epsilon=1)
    again = door.smooth(MEDIAN, epsilon=1)
    assert again.rows == first.rows
    assert again.free
    assert not door.smooth(MEDIAN, epsilon=1, fresh=True).free
    assert again.card().record["measurements"]


def test_groups_are_the_declared_ones_and_where_is_kept():
    sql = "SELECT ward, QUANTILE_CONT(age, 0.25) AS q FROM data WHERE cost < 350 GROUP BY ward"
    assert gate().smooth(sql, epsilon=2).rows == (("north", 40), ("south", 40))


@pytest.mark.parametrize(
    ("more", "terms", "noise", "price"),
    [
        ({}, {}, "smooth-student/1", 1),
        ({"delta": "1e-5"}, {"delta": "1e-6"}, "smooth-laplace/1", 1),
        ({"delta": "1e-5"}, {"delta": "1e-6", "method": "ptr", "bound": 5},
         "propose-test-release/1", 1),
        ({"delta": "1e-5", "accountant": "zcdp"}, {}, "smooth-student/1", 1),
        ({"delta": "1e-5", "accountant": "zcdp"}, {"beta": "1/100"}, "smooth-lognormal/1", None),
        ({"unit": "who", "rows_per_unit": 2, "delta": "1e-5"}, {"delta": "1e-6"},
         "smooth-laplace/1", 1),
        ({"unit": "who", "rows_per_unit": 2}, {}, "smooth-student/1", 1),
    ],
)  # fmt: skip
def test_the_account_and_the_terms_decide_on_the_noise(more, terms, noise, price):
    answer = gate(**more).smooth(MEDIAN, epsilon=1, **terms)
    assert noise in answer.questions[0]
    if price is not None:
        assert float(answer.cost.epsilon) == pytest.approx(price, rel=1e-9)
        assert answer.guarantee.loss.delta <= 1e-6
        assert answer.cost.delta <= 1e-6 or more.get("accountant") == "zcdp"  # the account's own


def test_a_bound_that_stands_the_test_gives_an_answer_with_its_error():
    answer = gate(delta="1e-5").smooth(MEDIAN, epsilon=4, delta="1e-6", method="ptr", bound=2)
    # within 7 steps values lie 0.2 apart, and each tail of the release is e^-(x/2) per unit
    assert abs(answer.rows[0][0] - 350) < 30
    assert 2 < answer.margins("0.95")["middle"][0] < 4


@pytest.mark.parametrize(("number", "known"), [("cost", ["m"]), ("cost - 900", [])])
def test_a_quantile_that_cannot_be_negative_says_so(number, known):
    answer = gate().smooth(f"SELECT MEDIAN({number}) AS m FROM data", epsilon=5)
    assert list(answer.unsigned()) == known


def test_a_bound_that_does_not_stand_the_test_gives_nothing_and_costs_its_price():
    door = ng.open(
        pa.table({"x": [0, 1000] * 50}), epsilon=4, delta="1e-5",
        columns={"x": {"type": "integer", "between": [0, 1000]}},
    )  # fmt: skip
    answer = door.smooth(
        "SELECT MEDIAN(x) FROM data", epsilon=2, delta="1e-8", method="ptr", bound=2
    )
    assert answer.rows == ((None,),)  # else with 1e-8
    assert "nothing is released" in answer.footer()
    assert door.spent.epsilon == 2


def test_a_plan_is_free_and_says_what_is_known_of_the_error():
    door = gate(delta="1e-5")
    plan = door.smooth_plan(MEDIAN, epsilon=1)
    assert float(plan.price.epsilon) == pytest.approx(1, rel=1e-9)
    assert plan.expected.margin() is None
    assert "1.49558 smooth bounds" in str(plan)
    tested = door.smooth_plan(MEDIAN, epsilon=4, delta="1e-6", method="ptr", bound=2)
    assert "steps away" in str(tested)
    paid = door.smooth(MEDIAN, epsilon=4, delta="1e-6", method="ptr", bound=2)
    assert tested.expected.margin() == paid.margins()["middle"][0]
    assert (
        door.smooth_plan(MEDIAN, epsilon=4, delta="1e-6", method="ptr", bound=2).price.epsilon == 0
    )
    assert door.spent.epsilon == 4
    assert not gate(epsilon=1).smooth_plan(MEDIAN, epsilon=2).fits
    assert plan.to_dict()["margin"] is None


@pytest.mark.parametrize(
    ("sql", "terms"),
    [
        ("SELECT AVG(cost) FROM data", {}),
        ("SELECT MEDIAN(cost), MEDIAN(age) FROM data", {}),
        ("SELECT MEDIAN(cost) + 1 FROM data", {}),
        ("SELECT who, MEDIAN(cost) FROM data GROUP BY who", {}),
        ("SELECT MEDIAN(who) FROM data", {}),
        (MEDIAN, {"epsilon": None}),
        (MEDIAN, {"epsilon": -1}),
        (MEDIAN, {"method": "magic"}),
        (MEDIAN, {"bound": 3}),
        (MEDIAN, {"beta": 1}),
        (MEDIAN, {"method": "ptr", "bound": 3}),
        (MEDIAN, {"method": "ptr", "delta": "1e-6"}),
        (MEDIAN, {"method": "ptr", "delta": "1e-6", "bound": "1e-9"}),
        (MEDIAN, {"method": "ptr", "delta": "1e-6", "bound": 3, "beta": 1}),
        (MEDIAN, {"within": 3}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_any_charge(sql, terms):
    door = gate(delta="1e-3")
    with pytest.raises(NoisegateError) as refusal:
        door.smooth(sql, **({"epsilon": 1} | terms))
    assert refusal.value.fix
    assert door.spent.epsilon == 0


def test_a_budget_that_is_too_small_is_refused():
    with pytest.raises(OverBudget):
        gate(epsilon=1).smooth(MEDIAN, epsilon=2)


def test_noise_of_strangers_is_refused_at_the_door():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Quiet(SmoothStudent):
        def draw(self, value, reaches, *, bits=None):
            return value

    door = gate()
    order = SmoothOrder(sql=MEDIAN, epsilon=1)
    fair = order.job(Desk(door._curator, door._rules)).measurement
    quiet = LocalQuantile(tau="1/2", noise=Quiet(scale=1, beta=1, low=0, high=9))
    with pytest.raises(Unsupported):
        Measurement(query=fair.query, mechanisms=(quiet,))
