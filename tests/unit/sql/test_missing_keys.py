"""Columns with declared keys whose rows hold NULLs and other values: answers mean what SQL means."""

import duckdb
import pyarrow as pa
import pytest

import noisegate as ng

ROWS = 200
DATA = pa.table(
    {
        "who": [f"p{place}" for place in range(ROWS)],
        "ward": ["a", None, "b", "elsewhere"] * (ROWS // 4),
        "days": pa.array([1, None, 3, 2] * (ROWS // 4), pa.int64()),
        "back": pa.array([True, None, False, False] * (ROWS // 4)),
        "other": ["a", "b", None, "b"] * (ROWS // 4),
    }
)
COLUMNS = {
    "ward": {"in": ["a", "b"]},
    "days": {"in": [1, 2, 3], "between": [0, 4]},
    "back": {"in": [True, False]},
    "other": {"in": ["a", "b"]},
}
ASKED = [
    "COUNT(ward)",
    "COUNT(back)",
    "COUNT(days) + 2 * COUNT(*)",
    "COUNT(upper(ward))",
    "COUNT(ward || other)",
    "COUNT(days + 1)",
    "AVG(days)",
    "AVG(2 * days + 1)",
    "AVG(CAST(back AS INT))",
    "VAR_POP(days)",
    "SUM(COALESCE(days, 4))",
    "COUNT(COALESCE(ward, other))",
    "COUNT(*) FILTER (WHERE ward <> 'a')",
    "COUNT(*) FILTER (WHERE NOT ward = 'a')",
    "COUNT(*) FILTER (WHERE ward IS NULL)",
    "COUNT(*) FILTER (WHERE ward NOT IN ('a', other))",
    "COUNT(*) FILTER (WHERE length(CONCAT(ward, other)) = 1)",
]


@pytest.fixture(scope="module")
def gates():
    return {unit: _opened(unit) for unit in ("who", None)}


def _opened(unit, **terms):
    return ng.open(DATA, epsilon=10**6, unit=unit, columns=COLUMNS | terms)


def _exact(sql):
    with duckdb.connect() as engine:
        engine.register("data", DATA)
        return engine.execute(sql).fetchall()


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("unit", ["who", None])
def test_a_value_that_is_missing_is_not_counted_although_keys_are_declared(gates, asked, unit):
    sql = f"SELECT {asked} FROM data"
    terms = {} if unit is None else {"rows_per_unit": 1}
    ((exact,),) = _exact(sql)
    found = gates[unit].sql(sql, epsilon=10_000, **terms).value
    assert found == pytest.approx(float(exact), abs=0.01)


def test_missing_values_are_in_no_group_unless_they_are_declared(gates):
    sql = "SELECT ward, COUNT(*) AS n, COUNT(ward) AS held FROM data GROUP BY ward"
    each = ROWS // 4
    shown = gates[None].sql(sql, epsilon=10_000).to_arrow().to_pylist()
    assert [(row["ward"], row["n"], row["held"]) for row in shown] == [
        ("a", each, each),
        ("b", each, each),
    ]
    declared = _opened(None, ward={"in": ["a", "b"], "nullable": True})
    (*_, last) = declared.sql(sql, epsilon=10_000).to_arrow().to_pylist()
    assert (last["ward"], last["n"], last["held"]) == (None, each, 0)


@pytest.mark.parametrize(
    "condition",
    [
        "ward NOT IN (SELECT b.other FROM data AS b WHERE b.who = a.who)",
        "(ward IN (SELECT b.other FROM data AS b WHERE b.who = a.who)) IS NULL",
    ],
)
def test_in_of_a_sub_query_is_neither_true_nor_false_where_a_key_is_missing(gates, condition):
    sql = f"SELECT COUNT(*) FROM data AS a WHERE {condition}"
    ((exact,),) = _exact(sql)
    assert gates["who"].sql(sql, epsilon=10_000, rows_per_unit=1).value == exact


def test_the_number_of_values_of_a_person_counts_no_missing_ones(gates):
    sql = (
        "SELECT SUM(n) FROM (SELECT who, COUNT(ward) AS n FROM data GROUP BY who) AS t WHERE n <= 5"
    )
    ((exact,),) = _exact(sql)
    assert gates["who"].sql(sql, epsilon=10_000).value == exact


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COALESCE(days, 9) AS g, COUNT(*) FROM data GROUP BY 1",
        "SELECT COALESCE(days, 0) + 1 AS g, COUNT(*) FROM data GROUP BY 1",
        "SELECT days IS NULL AS g, COUNT(*) FROM data GROUP BY 1",
        "SELECT CASE WHEN days <= 3 THEN 'a' ELSE 'o' END AS g, COUNT(*) FROM data GROUP BY 1",
        "SELECT back IS NULL AS g, COUNT(*) FROM data GROUP BY 1",
        "SELECT CASE WHEN back THEN 1 WHEN NOT back THEN 2 ELSE 3 END AS g, COUNT(*) FROM data GROUP BY 1",
        "SELECT COALESCE(days, 9) AS g, COUNT(*) FROM data WHERE COALESCE(days, 9) = 9 GROUP BY 1",
        "SELECT days IS NULL AS g, COUNT(*) FROM data WHERE days IS NULL OR days = 1 GROUP BY 1",
        "SELECT other AS g, COUNT(*) FROM data WHERE back IS NULL AND other IS NOT NULL GROUP BY 1",
        "SELECT other AS g, COUNT(*) FROM data WHERE days IS NULL GROUP BY 1",
        "SELECT days AS g, COUNT(*) FROM data WHERE days > 2 GROUP BY 1",
    ],
)
def test_missing_values_are_in_the_groups_that_are_computed_of_them(gates, sql):
    shown = gates[None].sql(sql, epsilon=10_000).to_arrow().to_pylist()
    assert {row["g"]: row["count"] for row in shown if row["count"]} == dict(_exact(sql))


@pytest.mark.parametrize("key", ["ward", "back", "days > 1", "upper(ward)"])
def test_an_answer_says_that_rows_without_a_value_are_in_no_group(gates, key):
    found = gates[None].sql(f"SELECT {key} AS g, COUNT(*) FROM data GROUP BY 1", epsilon=10_000)
    assert "not on the declared list" in str(found)
