"""The ± of quantiles from the question to the answer, against exact SQL of DuckDB.

Numbers are asked at ε = 50 and margins at 99.9 %, or more, so that a false alarm has a chance of
less than 1 in 1000 for each; together less than 1 in 20 is missed, and the seed of rows is fixed.
"""

import json
from fractions import Fraction
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import Unsupported
from noisegate.mechanisms.quantiles.brackets import Brackets
from noisegate.sql.estimates.losses import FORMER_SLACKS, LESS_UNLIKE, rank_slack, slack_of
from refusals import about

FACTS = {
    "x": {"between": [0, 100_000]}, "age": {"between": [0, 120]},
    "g": {"in": ["a", "b", "empty"]}, "d": {"between": ["2020-01-01", "2022-12-31"]},
    "t": {"between": ["2020-01-01", "2022-12-31"]},
}  # fmt: skip
SURE = 0.999


def rows(count=4000):
    chance = np.random.default_rng(7)  # public test data, not noise
    start = np.datetime64("2020-01-01")
    x = np.round(np.exp(chance.normal(8, 1, count)), 2)
    return pa.table({
        "id": np.arange(count) // 2,
        "x": pa.array(np.where(chance.random(count) < 0.1, np.nan, x), from_pandas=True),
        "age": chance.integers(0, 100, count),
        "g": chance.choice(["a", "b"], count, p=[0.7, 0.3]),
        "d": pa.array(start + chance.integers(0, 900, count), pa.date32()),
        "t": start.astype("datetime64[us]") + chance.integers(0, 10**6, count) * 60_000_000,
    })  # fmt: skip


DATA = rows()


def gate_of(data=DATA, **more):
    terms = {"epsilon": 400, "columns": FACTS, "table": "t"} | more
    return ng.open(data, **terms)


def exact(sql):
    with duckdb.connect() as engine:
        engine.register("t", DATA)
        return engine.execute(sql).fetchall()


def held(answer, truths, confidence=SURE):
    """Whether all cells with a ± hold the exact number."""
    widths = answer.margins(confidence).values()
    for place, each in enumerate(widths):
        if each is None:
            continue
        for row, width, true in zip(answer.rows, each, truths, strict=True):
            assert width is not None
            off = abs(row[place] - true[place])
            if hasattr(off, "total_seconds"):
                hours = off.total_seconds() / 3600
                off = hours if "t)" in answer.columns[place] else hours / 24
            assert off <= width + 1e-9


ASKED = [
    "SELECT MEDIAN(x) FROM t",
    "SELECT MEDIAN(x), QUANTILE_CONT(x, 0.9), QUANTILE_CONT(x, 0.1) FROM t WHERE age > 30",
    "SELECT QUANTILE_DISC(age, 0.25), MEDIAN(age) FROM t",
    "SELECT MEDIAN(t) FROM t",
    "SELECT g, MEDIAN(x), MEDIAN(age) FILTER (WHERE age > 50) FROM t WHERE g = 'a' GROUP BY g",
    "SELECT QUANTILE_CONT(x, 0.75) - QUANTILE_CONT(x, 0.25) AS iqr FROM t",
    "SELECT MEDIAN(x) / 1000 AS m, 2 * MEDIAN(age) AS a FROM t",
]


@pytest.mark.parametrize("terms", [{}, {"accountant": "zcdp", "delta": "1/1000", "epsilon": 9000}])
@pytest.mark.parametrize("sql", ASKED)
def test_margins_hold_what_duckdb_says_and_cost_what_the_plan_says(sql, terms):
    gate = gate_of(**terms)
    plan = gate.plan(sql, epsilon=50)
    answer = gate.sql(sql, epsilon=50)
    assert answer.cost == plan.price
    assert sum(each is not None for each in answer.margins(SURE).values()) >= 1
    where = " WHERE g = 'a'" if "GROUP" in sql else ""
    assert not where or where in sql
    held(answer, exact(sql))
    again = gate.sql(sql, epsilon=50)
    assert again.free
    assert again.rows == answer.rows
    assert again.margins(SURE) == answer.margins(SURE)
    assert json.loads(json.dumps(answer.to_dict(SURE)))["margins"]
    assert "±" in str(answer)


def test_a_list_of_levels_has_one_margin_that_holds_for_all():
    """Each bracket fails with a chance of at most 1/3000, and at ε = 50 far less often."""
    gate, sql = gate_of(), "SELECT QUANTILE_CONT(x, [0.25, 0.5, 0.75]) AS q FROM t"
    answer = gate.sql(sql, epsilon=50)
    ((text,),), (width,) = answer.rows, answer.margins(SURE)["q"]
    (truth,) = exact(sql)[0]
    pairs = list(zip(json.loads(text), truth, strict=True))
    assert len(pairs) == 3
    assert all(abs(one - other) <= width for one, other in pairs)
    apart = gate.sql("SELECT QUANTILE_CONT(x, [0.25, 0.5, 0.75])[2] AS q FROM t", epsilon=50)
    assert (apart.rows[0][0], apart.free) == (json.loads(text)[1], True)
    assert 0 < apart.margins(SURE)["q"][0] <= width
    assert f"{text} ± " in str(answer)
    assert answer.to_dict(SURE)["margins"] == [[width]]


@pytest.mark.parametrize("most", [3, 41])
@pytest.mark.parametrize(("cap", "level"), [(1, 0.1), (1, 0.5), (1, 0.9), (2, 0.5), (7, 0.1)])
def test_rows_that_a_cap_keeps_lie_like_all_rows(cap, level, most):
    """Of up to 40 rows of a unit any is kept as often as others: the quantile of at least 2,000
    evenly spread values is 5 % off with a chance below 1e-5. With a cap of 1 the 0.9-quantile was
    near 60, where the middle of each unit was kept."""
    chance = np.random.default_rng(3)  # public test data, not noise
    who = np.repeat(np.arange(2000), chance.integers(2, most, 2000))
    data = pa.table({"id": who, "x": chance.uniform(0, 100, who.size)})
    gate = ng.open(data, epsilon=999, unit="id", columns={"x": {"between": [0, 100]}}, table="t")
    sql = f"SELECT QUANTILE_CONT(x, {level}) AS q FROM t"
    ((found,),) = gate.sql(sql, epsilon=500, rows_per_unit=cap).rows
    assert found == pytest.approx(100 * level, abs=5)


def test_dates_have_margins_in_days():
    answer = gate_of().sql("SELECT MEDIAN(d) AS d FROM t", epsilon=50)
    (true,) = exact("SELECT CAST(QUANTILE_DISC(d, 0.5) AS DATE) FROM t")[0]
    (width,) = answer.margins(SURE)["d"]
    assert abs((answer.rows[0][0] - true).days) <= width < 60
    assert f"± {answer.margins(0.95)['d'][0]} d" in str(answer)
    wards = gate_of().sql("SELECT g, MEDIAN(d) AS d, COUNT(*) AS n FROM t GROUP BY g", epsilon=50)
    assert " d</td>" in wards._repr_html_()
    assert len(wards.to_arrow(0.95).column_names) == 5
    assert not any(row[1] for row in wards.within_noise())
    pytest.importorskip("altair")
    assert wards.plot().to_dict()
    with pytest.raises(Unsupported, check=about("no-number")):
        answer.plot()
    later = gate_of().sql("SELECT MEDIAN(d) + INTERVAL 1 DAY AS d FROM t", epsilon=50)
    assert later.margins()["d"] == (None,)


def test_margins_rise_with_the_confidence_up_to_all_of_the_bounds():
    answer = gate_of().sql("SELECT MEDIAN(x) AS m FROM t", epsilon=1)
    widths = [answer.margins(level)["m"][0] for level in (0.5, 0.95, 0.99, 0.999)]
    assert widths[0] == widths[1] < widths[2] < widths[3] < 2000
    assert answer.margins(0.99999)["m"][0] > 90_000


def test_an_empty_group_has_all_of_the_bounds():
    gate = gate_of()
    answer = gate.sql("SELECT g, MEDIAN(x) AS m FROM t GROUP BY g ORDER BY g", epsilon=50)
    found = dict(zip([row[0] for row in answer.rows], answer.margins(SURE)["m"], strict=True))
    assert found["a"] < 500
    assert found["empty"] >= 50_000


def test_extremes_have_the_margin_of_their_level():
    gate = gate_of()
    answer = gate.sql("SELECT MIN(age) AS low, MAX(age) AS high FROM t", epsilon=50, rows=4000)
    ages = np.sort(DATA["age"].to_numpy())
    (low,), (high,) = answer.margins(SURE).values()
    assert abs(answer.rows[0][0] - ages[ages.size // 1000]) <= low < 20
    assert abs(answer.rows[0][1] - ages[-ages.size // 1000]) <= high < 32
    assert all(each[0] < 12 for each in answer.margins(0.95).values())
    assert sum("Its ± is about that quantile" in each for each in answer.caveats) == 2


def test_many_levels_at_once_have_errors_in_ranks():
    levels = ", ".join(f"QUANTILE_CONT(x, 0.{k}) AS q{k}" for k in range(1, 7))
    answer = gate_of().sql(f"SELECT {levels} FROM t", epsilon=1)
    assert set(answer.margins().values()) == {(None,)}
    assert all(cell.endswith(" ± ?") for cell in answer.cells()[0])
    assert any("errors are in ranks alone" in words for words in answer.caveats)


def test_levels_are_in_order():
    gate = gate_of()
    for _ in range(5):
        sql = "SELECT QUANTILE_CONT(x, 0.48), MEDIAN(x), QUANTILE_CONT(x, 0.52) FROM t"
        (row,) = gate.sql(sql, epsilon="0.1", fresh=True).rows
        assert list(row) == sorted(row)


def test_a_plan_foresees_the_margin_where_rows_are_known():
    gate = gate_of()
    sql = "SELECT MEDIAN(x) AS m, MEDIAN(x) FILTER (WHERE age > 9) AS f FROM t"
    assert gate.plan(sql, epsilon=1).margins() == {"m": None, "f": None}
    known = gate.plan(sql, epsilon=1, rows=4000).margins()
    assert known["f"] is None
    finer = gate.plan(sql, epsilon=10, rows=4000).margins()["m"]
    assert 0 < finer < known["m"] < gate.plan(sql, epsilon=1, rows=400).margins()["m"]
    even = pa.table({"x": np.linspace(0, 100_000, 4000)})
    asked = ng.open(even, epsilon=99, table="t", columns={"x": FACTS["x"]})
    sql = "SELECT MEDIAN(x) AS m FROM t"
    plan = asked.plan(sql, epsilon=1, rows=4000).margins()["m"]
    (width,) = asked.sql(sql, epsilon=1).margins()["m"]
    assert plan / 4 <= width <= 4 * plan


def test_an_accuracy_in_values_is_refused_before_the_charge():
    gate = gate_of()
    with pytest.raises(Unsupported, check=about("accuracy")):
        gate.sql("SELECT MEDIAN(x) FROM t", within=5, rows=4000)
    with pytest.raises(Unsupported, check=about("rows")):
        gate.sql("SELECT MEDIAN(x) FROM t", relative=0.01)
    assert gate.spent.epsilon == 0
    gate.sql("SELECT MEDIAN(x) FROM t", relative=0.01, rows=4000)
    assert 0 < gate.spent.epsilon < 3


def test_units_with_caps_and_samples_pay_the_stated_price():
    gate = gate_of(unit="id", rows_per_unit=2)
    answer = gate.sql("SELECT g, MEDIAN(x) AS m FROM t GROUP BY g", epsilon=50)
    truths = dict(exact("SELECT g, MEDIAN(x) FROM t GROUP BY g"))
    for (group, value), width in zip(answer.rows, answer.margins(SURE)["m"], strict=True):
        assert abs(value - truths.get(group, value)) <= width
    assert answer.cost.epsilon == 50
    sampled = gate_of().sample(Fraction(1, 2)).sql("SELECT MEDIAN(x) AS m FROM t", epsilon=2)
    assert sampled.cost.epsilon <= 2
    assert sampled.margins()["m"][0] > 0
    assert any("the ± covers the noise only" in words for words in sampled.caveats)


@pytest.mark.parametrize("former", FORMER_SLACKS)
def test_quantiles_of_older_ledgers_are_found_with_their_wider_margins(former, monkeypatch):
    chance = np.random.default_rng(4)  # public test data, not noise
    who = np.repeat(np.arange(2000), np.minimum(chance.zipf(1.7, 2000), 500))
    data = pa.table({"id": who, "x": chance.uniform(0, 100, who.size)})
    gate = ng.open(data, epsilon=99, unit="id", columns={"x": {"between": [0, 100]}}, table="t")
    sql = "SELECT MEDIAN(x) AS m FROM t"
    with monkeypatch.context() as before:
        before.setattr(
            "noisegate.sql.steps.ordered.slack_of",
            lambda profiles, cap, taus, _, **__: former(rank_slack(profiles, cap), taus),
        )
        before.setattr("noisegate.mechanisms.quantiles.brackets.EvenBrackets", Brackets)
        wide = gate.sql(sql, epsilon=1)
    found = gate.sql(sql, epsilon=1)
    assert found.free
    assert (found.rows, found.margins()) == (wide.rows, wide.margins())
    noises = json.loads(found.questions[-1])["mechanisms"]
    assert noises[0]["mechanism"] == "brackets/1"
    assert Fraction(noises[0]["slack"]) > 0
    new = gate.sql(sql, epsilon=1, fresh=True)
    (now,) = json.loads(new.questions[-1])["mechanisms"]
    assert now["mechanism"] == "brackets/2"
    assert 0 < Fraction(now["slack"]) < Fraction(1, 8)


def test_quantiles_bought_when_large_units_were_taken_to_differ_less_are_found(monkeypatch):
    chance = np.random.default_rng(4)  # public test data, not noise
    who = np.repeat(np.arange(2000), np.minimum(chance.zipf(1.7, 2000), 500))
    data = pa.table({"id": who, "x": chance.uniform(0, 100, who.size)})
    gate = ng.open(data, epsilon=99, unit="id", columns={"x": {"between": [0, 100]}}, table="t")
    sql = "SELECT MEDIAN(x) AS m FROM t"
    with monkeypatch.context() as before:
        before.setattr(
            "noisegate.sql.steps.ordered.slack_of", partial(slack_of, unlike=LESS_UNLIKE)
        )
        bought = gate.sql(sql, epsilon=1)
    found, new = gate.sql(sql, epsilon=1), gate.sql(sql, epsilon=1, fresh=True)
    assert found.free
    assert (found.rows, found.margins()) == (bought.rows, bought.margins())
    slacks = [Fraction(json.loads(each.questions[-1])["mechanisms"][0]["slack"])
              for each in (found, new)]  # fmt: skip
    assert slacks[0] < slacks[1]
