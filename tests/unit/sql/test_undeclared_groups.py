"""Groups that nobody declared: which are found, what is said of the others, and what it costs."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import Unsupported
from noisegate.sql.drafts.purchase import finder_of
from refusals import about

COLUMNS = {"ward": {"in": ["north", "south", "west"]}, "cost": {"between": [0, 10]}}
DELTA = {"delta": "1e-3"}
BY_TOWN = "SELECT town, COUNT(*) AS n FROM t GROUP BY town"
BY_BOTH = "SELECT ward, town, COUNT(*) AS n FROM t GROUP BY ward, town"


def rows():
    """400 persons with 1 to 4 rows in 2 towns or none; one town is in one ward; one is rare."""
    who = np.repeat(np.arange(400), np.arange(400) % 4 + 1)
    town = np.where(who % 3 == 0, "Ash", np.where(who % 3 == 1, "Oak", None)).astype(object)
    town[who == 7] = "Yew"
    ward = np.where(town == "Ash", "north", np.where(who % 2 == 0, "north", "south"))
    return pa.table({"who": who, "town": pa.array(town), "ward": ward, "cost": who % 10})


def gate(**more):
    terms = {"epsilon": 10_000, "unit": "who", "rows_per_unit": 4, "groups_per_unit": 1}
    return ng.open(rows(), table="t", columns=COLUMNS, **terms | DELTA | more)


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_missing_values_are_a_group_that_is_found_like_any_other(accountant):
    found = gate(accountant=accountant).sql(BY_TOWN, epsilon=40)
    assert {town for town, _ in found.rows} == {"Ash", "Oak", None}
    exact = {town: rows()["town"].to_pylist().count(town) for town, _ in found.rows}
    assert all(abs(n - exact[town]) < 20 for town, n in found.rows)


def test_declared_and_found_keys_show_the_combinations_that_exist():
    found = gate().sql(BY_BOTH, epsilon=40)
    shown = {row[:2] for row in found.rows}
    assert shown == {("north", "Ash"), ("north", "Oak"), ("south", "Oak"), ("north", None), ("south", None)}  # fmt: skip


def test_of_a_sample_those_are_shown_that_the_sample_has():
    found = gate().sample("1/2").sql(BY_BOTH, epsilon=40)
    assert {row[:2] for row in found.rows} <= {("north", "Ash"), ("north", "Oak"), ("south", "Oak"), ("north", None), ("south", None)}  # fmt: skip
    assert "units of the sample" in " ".join(found.caveats)


def test_the_plan_and_every_answer_say_how_large_a_group_must_be():
    door = gate()
    plan = door.plan(BY_TOWN, epsilon=2)
    finder = finder_of(plan.expected.bought[0].keys[0])
    least = finder.last + 1
    assert f"town: partition selection, those of {least} units for certain" in str(plan)
    assert f"groups of {least} are shown for certain" in " ".join(plan.notes)
    answer = door.sql(BY_TOWN, epsilon=2)
    assert f"groups of {least} are shown for certain" in str(answer)
    few = door.sql(f"{BY_TOWN} HAVING n > 10000", epsilon=2)
    assert few.rows == ()
    assert "far smaller ones are not shown" in str(few)
    assert finder.probability(least) == (1, 1)
    assert float(finder.probability(finder.turn)[0]) == pytest.approx(0.5, abs=0.25)


def test_where_no_group_can_be_found_nothing_is_charged():
    door = gate()
    for ask in (door.plan, door.sql):
        with pytest.raises(Unsupported, check=about("no-group"), match="30"):
            ask(BY_TOWN, epsilon="0.1", rows=30)
    assert door.spent.epsilon == 0


def test_a_policys_bound_on_rows_tells_that_no_group_can_be_found(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(rows(), tmp_path / "t.parquet")
    text = """
    name = "d"
    [budget]
    epsilon = 10
    delta = 1e-5
    [tables.t]
    unit = "who"
    rows_per_unit = 4
    groups_per_unit = 1
    rows_max = 2000
    [tables.t.columns]
    town = {}
    """
    (tmp_path / "d.toml").write_text(text)
    door = ng.open(tmp_path / "d.toml", ledger=":memory:")
    with pytest.raises(Unsupported, check=about("no-group"), match="2,000"):
        door.sql(BY_TOWN, epsilon="0.01")
    assert door.spent.epsilon == 0
    assert door.plan(BY_TOWN, epsilon=1).price.epsilon == 1


def test_a_list_of_millions_of_empty_groups_is_refused():
    whole = {f"x{i}": {"between": [0, 199], "nullable": False} for i in range(3)}
    frame = pa.table({name: np.arange(50) for name in whole})
    door = ng.open(frame, table="t", epsilon=1, columns=whole)
    with pytest.raises(Unsupported, check=about("groups"), match="8,000,000"):
        door.sql(
            "SELECT x0, x1, x2, COUNT(*) FROM t GROUP BY ALL ORDER BY 4 DESC LIMIT 5", epsilon=1
        )
    assert door.spent.epsilon == 0


def test_units_where_a_condition_holds_are_as_good_by_case_as_by_filter():
    door = gate()
    case = "SELECT COUNT(DISTINCT CASE WHEN cost > 5 THEN who END) AS n FROM t"
    kept = "SELECT COUNT(DISTINCT who) FILTER (WHERE cost > 5) AS n FROM t"
    assert door.plan(case, epsilon=1).margins() == door.plan(kept, epsilon=1).margins()
    door.sql(case, epsilon=1)
    assert door.sql(kept, epsilon=1).free


def test_keys_outside_a_declared_list_are_said_to_be_in_no_group():
    said = "Rows whose key is missing or not on the declared list"
    assert said in str(gate().sql("SELECT ward, COUNT(*) FROM t GROUP BY ward", epsilon=1))
    assert said not in str(gate().sql("SELECT cost > 3, COUNT(*) FROM t GROUP BY 1", epsilon=1))


def test_after_a_look_that_counts_too_few_units_only_the_look_is_paid():
    door = gate(rows_per_unit=None, groups_per_unit=None, delta="1e-12")
    for free in (False, True):
        before = door.spent.epsilon
        with pytest.raises(Unsupported, check=about("no-group")):
            door.sql(BY_TOWN, epsilon="1/10")
        paid = door.spent.epsilon - before
        assert paid == 0 if free else 0 < paid < Fraction(1, 20)
    with pytest.raises(Unsupported, check=about("no-group")):
        door.plan(BY_TOWN, epsilon="1/10")


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("fresh", [False, True])
def test_where_no_group_is_found_the_plan_says_what_that_costs(accountant, fresh):
    sql = (
        "SELECT town, SUM(cost) AS s, COUNT(*) AS n FROM t WHERE cost > 9 GROUP BY town"  # none is
    )
    door, terms = gate(accountant=accountant), {"epsilon": 1, "delta": "1e-9", "fresh": fresh}
    plan = door.plan(sql, **terms)
    assert plan.early.epsilon < plan.price.epsilon
    assert f"; {plan.early} if no group is found" in str(plan)
    assert plan.to_dict()["price_if_none_found"] == float(plan.early.epsilon)
    answer = door.sql(sql, **terms)
    assert answer.rows == ()
    assert answer.cost == plan.early
    assert door.plan(BY_TOWN.replace("town", "ward"), epsilon=1).early is None
