"""Conditions narrow the bounds of values: less noise, and the same number before noise."""

import datetime as dt
import random
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.sql.job import _read as job_read

FIRST = dt.date(2024, 1, 1)
FACTS = {
    "stay": {"type": "integer", "between": [0, 30]},
    "cost": {"between": [0, 2000]},
    "day": {"between": ["2024-01-01", "2024-12-31"]},
    "ward": {"in": ["north", "south"]},
}


def rows(count=900):
    made = np.random.default_rng(2)
    stays = [None if one < 0.1 else int(two) for one, two in made.random((count, 2)) * [1, 31]]
    return pa.table({
        "whose": made.integers(0, 300, count), "stay": pa.array(stays, pa.int64()),
        "cost": made.gamma(2, 100, count), "free": made.normal(0, 50, count),
        "day": [FIRST + dt.timedelta(days=int(day)) for day in made.integers(0, 366, count)],
        "ward": np.array(["north", "south"])[made.integers(0, 2, count)],
    })  # fmt: skip


ROWS = rows()


def opened(**terms):
    return ng.open(ROWS, table="v", columns=FACTS, epsilon=10**6, **terms)


@pytest.mark.parametrize(
    ("of", "where", "scale"),
    [
        ("SUM(stay)", "stay < 5", 4),
        ("SUM(stay)", "stay = 7", 8),  # of a sum counted from 7, and of seven times a count
        ("SUM(stay)", "stay IN (2, 3) AND ward = 'north'", 3),
        ("SUM(stay)", "NOT (stay >= 9 OR cost > 3)", 8),
        ("SUM(stay)", "stay < 3 OR stay BETWEEN 5 AND 6", 6),
        ("SUM(2 * stay)", "stay < 5", 8),
        ("SUM(stay) FILTER (WHERE stay < 5)", "TRUE", 4),
        ("SUM(stay)", "cost < 5", 30),
        ("SUM(stay)", "stay > 40", 30),  # of no rows: as declared
        ("SUM(free)", "free BETWEEN -4 AND 3", 4),  # not declared, and no look is needed
    ],
)
def test_noise_is_that_of_values_that_can_be(of, where, scale):
    plan = opened().plan(f"SELECT {of} AS s FROM v WHERE {where}", epsilon="0.01")
    one = opened().plan("SELECT COUNT(*) AS s FROM v", epsilon="0.01").margins()["s"]
    assert plan.margins()["s"] == pytest.approx(scale * one, rel=0.01)
    assert plan.price.epsilon == Fraction("0.01")


def conditions(made, count):
    """Conditions of all forms, some of which no row meets."""

    def one():
        low, high = sorted((made.randrange(-3, 34), made.randrange(-3, 34)))
        day = FIRST + dt.timedelta(days=made.randrange(366))
        return made.choice([
            f"stay < {high}", f"stay >= {low}", f"stay BETWEEN {low} AND {high}",
            f"stay IN ({low}, {high})", f"stay <> {low}", f"{low} < stay", "stay IS NOT NULL",
            f"cost < {high * 9}.5", f"cost BETWEEN {low * 9} AND {high * 9}", f"day > '{day}'",
            f"stay + 1 <= {high}", f"YEAR(day) = 2024 AND day <= '{day}'", "ward = 'south'",
        ])  # fmt: skip

    for _ in range(count):
        some = [made.choice(["{}", "NOT ({})"]).format(one()) for _ in range(made.randrange(1, 4))]
        joint = some[0]
        for each in some[1:]:
            joint = f"({joint}) {made.choice(['AND', 'OR'])} ({each})"
        yield joint


@pytest.mark.parametrize("terms", [{}, {"unit": "whose", "rows_per_unit": 40}], ids=str)
def test_nothing_is_clipped_that_conditions_leave(terms):
    """At ε = 7·10⁴ noise is 0, or where rows have weights below 1.5, but for odds of 10⁻⁶."""
    gate, made = opened(**terms), random.Random(4)
    for where in conditions(made, 14):
        sql = (
            "SELECT COUNT(*) AS n, SUM(stay) AS s, SUM(CASE WHEN stay < 9 THEN stay ELSE -1 END) AS"
            f" t, SUM(stay) FILTER (WHERE stay > 20) AS u FROM v WHERE {where}"
        )
        (answer,) = gate.sql(sql, epsilon=70_000).rows
        exact = duckdb.from_arrow(ROWS).query("v", sql).fetchall()[0]
        assert answer == pytest.approx([each or 0 for each in exact], abs=1.1 if terms else 0.1), (
            where
        )


def test_averages_and_quantiles_too():
    gate = opened()
    for where in ("stay BETWEEN 3 AND 9", "stay = 4", "stay > 28", "stay < 12 AND cost < 150"):
        sql = f"SELECT AVG(stay) AS a, MEDIAN(stay) AS m, AVG(cost) AS c FROM v WHERE {where}"
        a, m, c = gate.sql(sql, epsilon=10_000).rows[0]
        exact = duckdb.from_arrow(ROWS).query("v", sql).fetchall()[0]
        assert (a, c) == pytest.approx((exact[0], exact[2]), rel=2e-3)
        assert abs(m - exact[1]) <= 1


@pytest.mark.parametrize("where", ["cost = 12.34", "cost BETWEEN 12.34 AND 12.34000001"])
def test_quantiles_of_values_that_hardly_differ_are_those_values(where):
    """A grid of whole numbers said 12 ± 0.5; one that was too fine was refused."""
    held = pa.table({"cost": [12.34, 0.0] * 300})
    gate = ng.open(held, table="v", columns={"cost": {"between": [0, 500]}}, epsilon=100)
    plain = gate.sql(f"SELECT MEDIAN(cost) AS m, MAX(cost) AS x FROM v WHERE {where}", epsilon=9)
    assert plain.rows[0] == pytest.approx((12.34, 12.34), abs=1e-7)  # as all of the grid


def wide(*args):
    question = job_read(*args)
    return replace(question, blocks=tuple(replace(each, wide=True) for each in question.blocks))


@pytest.mark.parametrize("also", ["", " AND cost > (SELECT AVG(cost) FROM v)"])
def test_what_was_bought_with_wider_bounds_is_found_in_older_ledgers(monkeypatch, tmp_path, also):
    sql = f"SELECT SUM(stay) AS s, COUNT(*) AS n FROM v WHERE stay < 5{also}"
    with monkeypatch.context() as once:
        once.setattr("noisegate.sql.job._read", wide)
        bought = opened(ledger=tmp_path / "v.ledger").sql(sql, epsilon=1)
    gate = opened(ledger=tmp_path / "v.ledger")
    monkeypatch.setattr("noisegate.sql.steps.formerly.SINCE", "9999-12-31")
    assert gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows == bought.rows
    assert not gate.plan(sql, epsilon=1, fresh=True).free
    assert not gate.plan(sql.replace("< 5", "< 6"), epsilon=1).free
    monkeypatch.setattr("noisegate.sql.steps.formerly.SINCE", "2000-01-01")
    assert not gate.plan(sql, epsilon=1).free


def test_a_condition_of_a_left_join_says_nothing_of_rows_without_a_partner():
    """COALESCE(most, 0) is above 20 of partners, and 0 without one, where 21 was added up."""
    people = pa.table({"id": range(300), "most": [place % 31 for place in range(300)]})
    facts = {"most": {"type": "integer", "between": [0, 30]}}
    gate = ng.open(people, table="v", columns=facts, unit="id", rows_per_unit=1, epsilon=10**6)
    sql = (
        "SELECT SUM(z) AS s FROM (SELECT COALESCE(p.most, 0) AS z FROM v LEFT JOIN (SELECT id AS "
        "whose, most FROM v) AS p ON v.id = p.whose AND COALESCE(p.most, 0) > 20) AS t"
    )
    (answer,) = gate.sql(sql, epsilon=10_000).rows
    assert answer == duckdb.from_arrow(people).query("v", sql).fetchall()[0]


@pytest.fixture(scope="module")
def stars():
    """Ratings of 1 to 5, some missing, and one of 90 that is not on the list."""
    given = np.random.default_rng(5).integers(0, 6, 600)
    rated = pa.array([None if one == 0 else int(one) for one in given[1:]] + [90], pa.int64())
    facts = {"rating": {"in": [1, 2, 3, 4, 5]}}
    table = pa.table({"rating": rated})
    return ng.open(table, table="v", columns=facts, epsilon=10**6), np.array(
        [min(one, 5) for one in rated.to_pylist() if one is not None]
    )


def test_a_list_of_keys_bounds_what_is_added_up(stars):
    """Values that are not on the list count as the nearer end of it; missing ones do not count."""
    gate, true = stars
    sql = "SELECT AVG(rating) AS mean, SUM(rating) AS total, STDDEV(rating) AS spread FROM v"
    answer = gate.sql(sql, epsilon=10_000)
    for name, exact in (("mean", true.mean()), ("total", true.sum()), ("spread", true.std(ddof=1))):
        assert answer[name][0] == pytest.approx(exact, rel=0.01)
    (median,) = gate.sql("SELECT MEDIAN(rating) AS m FROM v", epsilon=1000)["m"]
    assert median == np.median(true)


@pytest.mark.parametrize(
    ("where", "scale"),
    [
        ("TRUE", 5),
        ("rating <= 3", 3),
        ("rating BETWEEN 0 AND 10", 10),
        ("rating = 9 OR rating > 2", 5),
    ],
)
def test_conditions_go_before_the_ends_of_a_list(stars, where, scale):
    """They are what bounds were before a list had any: questions keep their noise."""
    gate, _ = stars
    one = gate.plan("SELECT COUNT(*) AS s FROM v", epsilon="0.01").margins()["s"]
    plan = gate.plan(f"SELECT SUM(rating) AS s FROM v WHERE {where}", epsilon="0.01")
    assert plan.margins()["s"] == pytest.approx(scale * one, rel=0.02)
