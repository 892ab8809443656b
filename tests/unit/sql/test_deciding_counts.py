"""Where the units of a group are asked for, their noisy count decides whether the group is shown."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom

import noisegate as ng
from noisegate.mechanisms.keys.key_selection import KeySelection, Thresholded
from noisegate.sql.drafts.purchase import finder_of

ALARM = 1e-7  # how often a test of chance fails though all is well
TERMS = {"epsilon": 1, "delta": "1e-6"}
PEOPLE = "SELECT town, COUNT(DISTINCT who) AS n FROM t GROUP BY town"
BOTH = pytest.mark.parametrize("accountant", ["pure", "zcdp"])


def rows():
    """2,000 persons in one or two of ten towns, some with hundreds of rows; wards are declared."""
    rng = np.random.default_rng(7)
    who = np.repeat(np.arange(2000), np.minimum(rng.zipf(1.5, 2000), 300))
    second = rng.random(who.size) < 0.3
    place = np.where(second, who * 7 + 1, who) % 97
    town = np.array([f"town {min(each, 9)}" for each in range(97)])[place]
    ward = np.where(who % 2 == 0, "north", "south")
    return pa.table({"who": who, "town": town, "ward": ward, "cost": who % 50})


ROWS = rows()
EXACT = Counter(town for _, town in set(zip(*(ROWS[c].to_pylist() for c in ("who", "town")))))  # noqa: B905
FACTS = {"ward": {"in": ["north", "south", "west"]}, "cost": {"between": [0, 50]}}


def gate(**more):
    terms = {"epsilon": 100, "delta": "1e-2", "unit": "who", "rows_per_unit": 50}
    return ng.open(ROWS, table="t", columns=FACTS, **terms | {"groups_per_unit": 2} | more)


def finder(plan):
    return finder_of(plan.expected.bought[0].keys[0])


@pytest.mark.parametrize("groups", [1, 4, 16])
@BOTH
def test_a_group_needs_about_a_third_of_the_units_that_finding_alone_would_need(accountant, groups):
    door = gate(accountant=accountant, groups_per_unit=groups)
    plan = door.plan(PEOPLE, **TERMS | {"epsilon": door._desk.asked(Fraction(1))})
    share = Fraction(1, 4) if accountant == "pure" else Fraction(1, 2)  # of ε, or √ρ
    alone = KeySelection.for_budget(share, "1e-6", keys_per_unit=groups)
    assert isinstance(finder(plan), Thresholded)
    assert finder(plan).turn < 0.36 * alone.turn
    assert finder(plan).sure < 0.27 * alone.sure


@BOTH
def test_one_draw_is_the_decision_and_the_answer_for_the_whole_price(accountant):
    door = gate(accountant=accountant)
    plan = door.plan(PEOPLE, **TERMS)
    (measured,) = plan.to_dict()["measurements"]
    assert measured["what"] == "which groups exist, and the units of each"
    least = finder(plan).threshold
    assert f"shown from {least:,} on" in measured["noise"][0]
    answer = door.sql(PEOPLE, **TERMS)
    assert answer.cost == plan.price == door.spent
    assert all(n >= least for _, n in answer.rows)
    assert f"is {least:,} or more" in str(answer)
    assert {town for town, _ in answer.rows} <= set(EXACT)
    assert {town for town, n in EXACT.items() if n > 1000} <= {town for town, _ in answer.rows}
    if accountant == "pure":
        assert (answer.cost.epsilon, len(answer.questions)) == (1, 1)


def test_other_numbers_beside_take_their_shares_and_the_price_stays():
    door = gate()
    sql = PEOPLE.replace("AS n", "AS n, AVG(cost) AS mean, COUNT(*) AS rows, MEDIAN(cost) AS mid")
    plan = door.plan(sql, **TERMS)
    assert finder(plan).event(2).epsilon >= Fraction(1, 4)  # no less than finding alone has
    assert plan.price.epsilon == 1
    found = door.sql(sql.replace("epsilon", ""), epsilon=50, delta="1e-6")
    assert found.cost.epsilon == 50
    assert all(abs(n - EXACT[town]) <= 30 for town, n, *_ in found.rows)


@pytest.mark.parametrize(
    "count",
    ["COUNT(*)", "COUNT(DISTINCT who) FILTER (WHERE cost > 9)",
     "COUNT(DISTINCT CASE WHEN cost > 9 THEN who END)"],
)  # fmt: skip
def test_rows_of_units_with_several_and_units_with_a_condition_do_not_decide(count):
    plan = gate().plan(PEOPLE.replace("COUNT(DISTINCT who)", count), **TERMS)
    assert isinstance(finder(plan), KeySelection)


@pytest.mark.parametrize(
    "sql",
    ["SELECT town, COUNT(*) AS n FROM (SELECT DISTINCT who, town FROM t) AS d GROUP BY town",
     PEOPLE.replace("AS n", "AS n, COUNT(DISTINCT who) + 1 AS m"),
     f"{PEOPLE} HAVING COUNT(DISTINCT who) > 100"],
)  # fmt: skip
def test_rows_that_are_one_for_each_unit_and_group_decide_as_well(sql):
    door = gate()
    assert isinstance(finder(door.plan(sql, **TERMS)), Thresholded)
    found = door.sql(sql, epsilon=20, delta="1e-6")
    assert found.rows
    assert all(abs(n - EXACT[town]) <= 20 for town, n, *_ in found.rows)


def test_declared_and_found_keys_show_the_pairs_that_exist_with_their_counts():
    sql = "SELECT ward, town, COUNT(DISTINCT who) AS n FROM t GROUP BY ward, town"
    found = gate().sql(sql, epsilon=20, delta="1e-6")
    pairs = Counter(
        pair[1:]
        for pair in set(zip(*(ROWS[c].to_pylist() for c in ("who", "ward", "town"))))  # noqa: B905
    )
    assert {ward for ward, _, _ in found.rows} == {"north", "south"}
    assert all(abs(n - pairs[ward, town]) <= 20 for ward, town, n in found.rows)


def test_another_analyst_gets_the_same_counts_for_nothing(tmp_path):
    pq.write_table(ROWS, tmp_path / "t.parquet")
    policy = """
    name = "d"
    [budget]
    epsilon = 3
    delta = 1e-5
    [analysts]
    ann = 2
    bob = 2
    [tables.t]
    unit = "who"
    rows_per_unit = 50
    groups_per_unit = 2
    [tables.t.columns]
    town = {}
    """
    (tmp_path / "d.toml").write_text(policy)
    ann, bob = (ng.open(tmp_path / "d.toml", analyst=name) for name in ("ann", "bob"))
    first, plan = ann.sql(PEOPLE, **TERMS), bob.plan(PEOPLE, **TERMS)
    again = bob.sql(PEOPLE, **TERMS)
    assert again.rows == first.rows
    assert again.free
    assert plan.price.epsilon == 0
    assert (ann.spent.epsilon, bob.spent.epsilon) == (1, 0)


@BOTH
def test_counts_near_the_threshold_are_within_their_bars_though_large_by_chance(accountant):
    """Groups around it, and many too small for it, at a confidence of 0.9: missed once in 10⁷ runs.

    Bars of the noise alone would miss all of the small ones: they are shown by a large noise only.
    """
    sql, terms = "SELECT g, COUNT(*) AS n FROM t GROUP BY g", {"epsilon": "0.8", "delta": "1e-4"}
    more = {"table": "t", "epsilon": 100, "delta": "1e-2", "accountant": accountant}
    planned = finder(ng.open(pa.table({"g": ["a"]}), **more).plan(sql, **terms))
    small = planned.turn - planned.noise.interval("0.9") - 1
    sizes = {f"g{place}": 1 + place % 24 for place in range(1200)}
    sizes |= {f"h{place}": small for place in range(4000)}
    table = pa.table({"g": [name for name, size in sizes.items() for _ in range(size)]})
    found = ng.open(table, **more).sql(sql, **terms)
    widths = found.margins(0.9)["n"]
    off = [(name[0], abs(n - sizes[name])) for name, n in found.rows]
    outside = [name for (name, each), width in zip(off, widths, strict=True) if each > width]
    for name in "gh":
        shown = sum(other == name for other, _ in off)
        assert shown > 20
        assert binom.sf(outside.count(name) - 1, shown, 0.1) > ALARM
    assert all(each > planned.noise.interval("0.9") for name, each in off if name == "h")


def test_a_sum_over_shown_groups_is_within_its_bar():
    door = gate()
    counts = door.sql(PEOPLE, **TERMS)
    total = door.sql(f"SELECT SUM(n) AS n FROM ({PEOPLE}) AS p", **TERMS)
    assert total.free
    assert total.rows[0][0] == sum(n for _, n in counts.rows)
    assert total.margins()["n"][0] >= max(counts.margins()["n"])
    exact = sum(EXACT[town] for town, _ in counts.rows)
    assert abs(total.rows[0][0] - exact) <= total.margins(1 - ALARM)["n"][0]


def test_an_accuracy_buys_counts_that_keep_it():
    door = gate()
    answer = door.sql(PEOPLE, within=40, delta="1e-6")
    clear = finder(answer.plan).sure * 2
    widths = [w for (_, n), w in zip(answer.rows, answer.margins()["n"], strict=True) if n > clear]
    assert widths
    assert max(widths) <= 40


def test_a_cap_that_leaves_groups_out_makes_lower_bounds_unless_it_was_looked_at():
    declared = gate(groups_per_unit=1).sql(PEOPLE, **TERMS)
    assert "Capped: 1 group per person; of a unit with more, some are left out" in str(declared)
    assert "≥" in str(declared)
    looked = gate(groups_per_unit=None, rows_per_unit=None).sql(PEOPLE, epsilon=4, delta="1e-6")
    assert "the cap on groups per unit, as estimated" in str(looked)
    for (town, n), width in zip(looked.rows, looked.margins(1 - ALARM)["n"], strict=True):
        assert abs(n - EXACT[town]) <= width
