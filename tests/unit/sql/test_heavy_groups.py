"""Groups of tables with many rows of a unit: found by units, in few groups each."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.mechanisms.keys.key_selection import KeySelection
from noisegate.sql.drafts.purchase import finder_of

TERMS = {"epsilon": 1, "delta": "1e-6"}
MEANS = "SELECT page, AVG(cost) AS mean FROM t GROUP BY page"
PEOPLE = "SELECT page, COUNT(DISTINCT who) AS n FROM t GROUP BY page"


def rows():
    """Of 3,000 persons most saw 1 or 2 of 40 pages; one of a hundred saw all, many times."""
    rng = np.random.default_rng(5)
    often = np.where(np.arange(3000) % 100 == 0, 400, 1 + np.arange(3000) % 2)
    who = np.repeat(np.arange(3000), often)
    page = np.array([f"p{each}" for each in range(40)])[rng.integers(0, 40, who.size)]
    return pa.table({"who": who, "page": page, "cost": who % 10})


ROWS = rows()


def gate(**more):
    terms = {"epsilon": 1000, "delta": "1e-2", "unit": "who", "rows_per_unit": 400}
    return ng.open(ROWS, table="t", columns={"cost": {"between": [0, 10]}}, **terms | more)


def asked(plan):
    (measured,) = plan.expected.bought[0].keys
    return measured


@pytest.mark.parametrize(("accountant", "groups"), [("pure", 1), ("zcdp", 21)])
def test_a_group_needs_no_more_units_where_units_have_many_rows(accountant, groups):
    door = gate(accountant=accountant)
    plan = door.plan(MEANS, **TERMS | {"epsilon": door._desk.asked(Fraction(1))})
    assert asked(plan).query.per_unit == groups  # 1, and about the root of 400
    quarter = Fraction(1, 4) if accountant == "pure" else Fraction(1, 2)
    by_rows = KeySelection.for_budget(quarter, "1e-6", keys_per_unit=400)
    assert by_rows.turn > 9000
    assert finder_of(asked(plan)).turn < 70
    assert f"each person once, in {groups} group" in str(plan)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_groups_are_found_that_a_cap_of_rows_would_hide(accountant):
    found = gate(accountant=accountant).sql(MEANS, **TERMS)
    assert len(found.rows) > 10
    assert found.cost == found.plan.price


def test_at_a_large_epsilon_as_many_groups_count_as_are_declared():
    door = gate(groups_per_unit=40)
    assert asked(door.plan(MEANS, epsilon=4000, delta="1e-3")).query.per_unit == 40
    assert asked(door.plan(MEANS, **TERMS)).query.per_unit == 1


@pytest.mark.parametrize(
    ("caps", "looks"),
    [({}, True), ({"rows_per_unit": 8}, False), ({"groups_per_unit": 40}, False)],
)
def test_people_in_groups_that_only_a_cap_of_rows_bounds_are_looked_at(caps, looks):
    door = gate(**caps)
    answer = door.sql(PEOPLE, **TERMS)
    assert ("the cap on groups per unit, as estimated" in str(answer)) is looks
    assert answer.cost.epsilon == 1
    most = {"rows_per_unit": 400} | caps
    assert asked(answer.plan).query.per_unit <= min(most.values())
    if looks:
        assert asked(answer.plan).query.per_unit < 10
        assert len(answer.rows) == 40


def test_the_cap_of_groups_that_was_chosen_counts_though_the_policy_has_one():
    door = gate(groups_per_unit=40)
    plan = door.sql(PEOPLE, choose="caps", **TERMS).plan
    assert asked(plan).query.per_unit < 10


@pytest.mark.parametrize("more", ["", ", COUNT(*) AS r"])
@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_a_plan_holds_the_delta_of_whichever_threshold_the_look_will_ask_for(accountant, more):
    """A cap of 1 uses about half of the δ, another one nearly all of it: the charge was above."""
    sql = PEOPLE.replace(" FROM", f"{more} FROM")
    for _ in range(3):
        door = gate(accountant=accountant, rows_per_unit=None)
        plan, answer = door.plan(sql, **TERMS), door.sql(sql, **TERMS)
        assert answer.cost.delta <= plan.price.delta
        assert answer.cost.epsilon <= plan.price.epsilon
