"""Groups that WHERE and joins leave no row for are not shown; those that rows may be in are."""

from datetime import date, timedelta

import pyarrow as pa
import pytest
from reading_oracle import DAYS, PATIENT, TABLES, column, table

import noisegate as ng
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.reader import read

ORDERS = table(
    "orders", PATIENT, column("patient_id", Kind.INTEGER), column("day", Kind.DATE),
    column("at", Kind.TIMESTAMP), column("due", Kind.DATE, between=DAYS),
    column("size", Kind.INTEGER, between=(0, 99)), column("price", Kind.NUMBER, between=(0, 100)),
)  # fmt: skip
PUBLIC = {
    "codes": pa.table({"code": ["A1", "A2", "B2", "C3"], "chapter": ["A", "A", "B", None]}),
    "regions": pa.table({"region": ["north", "south", "east"], "country": ["X", "Y", "Y"]}),
}
JANUARY, FEBRUARY, MARCH = (date(2024, month, 1) for month in (1, 2, 3))


def shown(sql):
    (block,) = read(sql, {**TABLES, "orders": ORDERS}, PUBLIC.__getitem__).blocks
    return [
        None if key.domain.keys is None else [*key.domain.keys, *([None] * key.domain.nullable)]
        for key in block.by
    ]


def test_a_condition_on_the_key_leaves_what_it_allows():
    patients = {
        "region = 'north'": ["north"],
        "'north' = region": ["north"],
        "region IN ('south', 'north')": ["north", "south"],
        "region IN ('west')": ["west"],  # named by the question, so public
        "region <> 'north'": ["south"],
        "NOT region = 'north'": ["south"],
        "region NOT IN ('north')": ["south"],
        "region = 'north' OR region = 'south'": ["north", "south"],
        "region = 'north' OR age > 3": ["north", "south", None],
        "region = 'north' OR region IS NULL": ["north", None],
        "region IS NULL": [None],
        "region IS NOT NULL": ["north", "south"],
        "region LIKE 'n%'": ["north"],
        "LENGTH(region) = 5 AND UPPER(region) > 'O'": ["south"],
        "COALESCE(region, 'none') = 'none'": [None],
        "region IS DISTINCT FROM 'north'": ["south", None],
        "NOT (region = 'north' OR age > 3)": ["south"],
        "region = 'north' AND region = 'south'": [],
        "age > 3": ["north", "south", None],
        "FALSE": [],
    }
    for where, keys in patients.items():
        assert shown(f"SELECT region, COUNT(*) FROM patients WHERE {where} GROUP BY region") == [
            keys
        ], where


@pytest.mark.parametrize(
    ("key", "where", "keys"),
    [
        ("size // 10", "size BETWEEN 20 AND 49", [2, 3, 4]),
        ("due", "due >= '2024-01-01' AND due < '2024-01-03'", [JANUARY, date(2024, 1, 2)]),
        ("day", "day BETWEEN '2024-01-01' AND '2024-01-02'", [JANUARY, date(2024, 1, 2)]),
        ("due + 1", "due = '2024-01-01'", [date(2024, 1, 2)]),
        ("LAST_DAY(due)", "due >= '2024-01-01' AND due < '2024-03-01'", [date(2024, 1, 31), date(2024, 2, 29)]),
        ("due + INTERVAL 1 MONTH", "due BETWEEN '2024-01-30' AND '2024-02-01'", [date(2024, 2, 29), MARCH]),
        ("due - DATE '2024-01-01'", "due BETWEEN '2024-01-03' AND '2024-01-05'", [2, 3, 4]),
        ("STRFTIME(due, '%Y-%m')", "due >= '2024-01-01' AND due < '2024-03-01'", ["2024-01", "2024-02"]),
        ("STRFTIME(at, '%a')", "at IS NOT NULL", ["Sat", "Sun", "Mon", "Tue", "Wed", "Thu", "Fri"]),
        ("STRFTIME(at, '%p')", "at IS NOT NULL", ["AM", "PM"]),
        ("size * 2 - 1", "size < 3", [-1, 1, 3]),
        ("size", "size < 3 AND size <> 1", [0, 2]),
        ("FLOOR(price / 10) * 10", "price >= 20 AND price < 40", [20, 30]),
        ("price > 50", "price < 20", [False, True]),  # one value is as good as any
        ("CASE WHEN size < 10 THEN 'few' ELSE 'many' END", "size >= 10", ["many"]),
        ("EXTRACT(year FROM due)", "due BETWEEN '2023-05-01' AND '2024-02-01'", [2023, 2024]),
        ("DATE_TRUNC('month', due)", "due >= '2024-01-01' AND due < '2024-04-01'", [JANUARY, FEBRUARY, MARCH]),
        ("DATE_TRUNC('month', day)", "day >= '2024-01-01' AND day < '2024-04-01'", [JANUARY, FEBRUARY, MARCH]),
        ("DATE_TRUNC('month', at)", "at >= '2024-01-01' AND at < '2024-04-01'", [JANUARY, FEBRUARY, MARCH]),
        ("DATE_TRUNC('month', day)", "YEAR(day) = 2024 AND QUARTER(day) = 1", [JANUARY, FEBRUARY, MARCH]),
        ("MONTH(day)", "YEAR(day) = 2024 AND QUARTER(day) = 1", [1, 2, 3]),
        ("MONTH(day)", "day BETWEEN '2023-12-15' AND '2024-01-15'", [1, 12]),
        ("DATE_TRUNC('month', day)", "DATE_TRUNC('quarter', day) = '2024-01-01'", [JANUARY, FEBRUARY, MARCH]),
        ("at::DATE", "at >= '2024-01-01' AND at < '2024-01-03'", [JANUARY, date(2024, 1, 2)]),
        ("LAST_DAY(day)", "YEAR(day) = 2024 AND MONTH(day) < 3", [date(2024, 1, 31), date(2024, 2, 29)]),
        ("day + INTERVAL 1 MONTH", "day BETWEEN '2024-01-30' AND '2024-02-01'", [date(2024, 2, 29), MARCH]),
        ("HOUR(at) * MONTH(at)", "HOUR(at) * MONTH(at) BETWEEN 3 AND 5", [3, 4, 5]),
        ("day + (size * size)", "day BETWEEN '2024-01-30' AND '2024-02-01' AND size < 9", [date(2024, 1, 30) + timedelta(days=i) for i in range(67)]),  # some are not possible
        ("DAYOFWEEK(day)", "day IN ('2024-01-01', '2024-01-03')", [1, 3]),
    ],
)  # fmt: skip
def test_a_range_below_the_key_leaves_what_it_holds(key, where, keys):
    assert shown(f"SELECT {key} AS k, COUNT(*) FROM orders WHERE {where} GROUP BY k") == [keys]


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("chapter, COUNT(*) FROM visits JOIN codes USING (code) WHERE chapter <> 'B' GROUP BY 1", [["A"]]),
        ("country, COUNT(*) FROM patients JOIN regions USING (region) WHERE regions.region = 'east' GROUP BY 1", [["Y"]]),
        ("country, COUNT(*) FROM patients p JOIN regions r ON p.region = r.region WHERE p.region = 'north' GROUP BY 1", [["X"]]),
        ("region, COUNT(*) FROM patients JOIN regions USING (region) WHERE country = 'Y' GROUP BY 1", [["south"]]),
        ("region, COUNT(*) FROM patients WHERE region IN (SELECT region FROM regions WHERE country = 'X') GROUP BY 1", [["north"]]),
        ("chapter, COUNT(*) FROM visits v LEFT JOIN codes c ON v.code = c.code AND chapter = 'A' GROUP BY 1", [["A", None]]),
        ("chapter, COUNT(*) FROM visits v LEFT JOIN codes c ON v.code = c.code WHERE chapter IS NULL GROUP BY 1", [[None]]),
        ("LOWER(chapter) AS l, COUNT(*) FROM visits JOIN codes USING (code) WHERE code LIKE 'B%' GROUP BY 1", [["b"]]),
        ("r, COUNT(*) FROM (SELECT region AS r FROM patients WHERE region = 'north') GROUP BY r", [["north"]]),
        ("region, COUNT(*) FROM patients p WHERE region <> 'north' AND EXISTS (SELECT 1 FROM visits v WHERE v.patient_id = p.patient_id) GROUP BY 1", [["south"]]),
        ("k, COUNT(*) FROM (SELECT patient_id, region AS k, COUNT(*) FROM patients WHERE region = 'north' GROUP BY ALL) GROUP BY k", [["north"]]),
        ("r, COUNT(*) FROM (SELECT region AS r FROM patients WHERE region = 'north' UNION ALL SELECT code FROM visits WHERE code = 'A1') GROUP BY r", [["north", "A1"]]),
        ("z, COUNT(*) FROM (SELECT COALESCE(chapter, 'none') AS z FROM visits v LEFT JOIN codes c ON v.code = c.code AND COALESCE(chapter, 'none') = 'A') GROUP BY z", [["A", "none"]]),
        ("y, COUNT(*) FROM (SELECT p.region AS x, r.region AS y FROM patients p JOIN regions r ON p.region = r.region UNION ALL SELECT 'north', region FROM patients) WHERE x = 'north' GROUP BY y", [["east", "north", "south", None]]),
        ("region, COUNT(*) FROM patients WHERE 'zz' NOT BETWEEN region AND 'z' GROUP BY 1", [["north", "south", None]]),
        ("region, COUNT(*) FROM patients WHERE ('a' BETWEEN region AND 'z') = FALSE GROUP BY 1", [["north", "south"]]),
        ("region, COUNT(*) FROM patients WHERE (region BETWEEN NULL AND 'o') = FALSE GROUP BY 1", [["south"]]),
        ("size % 2 AS m, COUNT(*) FROM orders WHERE (size > 5) IS NULL GROUP BY 1", [[None]]),
        ("code, COUNT(*) FROM visits WHERE code IN ('A1', 'Z9') GROUP BY 1", [["A1", "Z9"]]),
        ("code, COUNT(*) FROM visits GROUP BY 1", [None]),
        ("code, COUNT(*) FROM visits JOIN codes USING (code) GROUP BY 1", [None]),  # found, as without
    ],
)  # fmt: skip
def test_conditions_are_followed_through_joins_and_derived_tables(sql, keys):
    assert shown(f"SELECT {sql}") == keys


def test_a_cte_of_a_public_table_leaves_its_rows():
    sql = "WITH y AS (SELECT * FROM regions WHERE country = 'Y') SELECT region, COUNT(*) FROM patients JOIN y USING (region) GROUP BY 1"
    assert shown(sql) == [["south"]]


def test_values_that_nobody_declared_keep_the_group_of_the_others():
    sql = "SELECT CASE WHEN region = 'north' THEN 'n' ELSE 'rest' END AS k, COUNT(*) FROM patients WHERE region <> 'south' GROUP BY k"
    assert shown(sql) == [["n", "rest"]]  # of a region that is not listed


def test_keys_of_one_public_table_are_the_pairs_that_it_has():
    sql = "SELECT c.code, chapter, COUNT(*) FROM visits v JOIN codes c ON v.code = c.code WHERE chapter IS NOT NULL GROUP BY ALL"
    outer = read(sql, TABLES, PUBLIC.__getitem__).outer
    where = outer.partition(" WHERE ")[2]
    for code, chapter in (("A1", "A"), ("A2", "A"), ("B2", "B")):
        assert f'"k0" = \'{code}\' AND "noisegate_0"."k1" = \'{chapter}\'' in where
    assert where.count(" OR ") == 2
    assert "WHERE" not in read(sql, TABLES).outer  # without the rows nobody can say


def test_what_no_row_can_be_in_costs_nothing():
    rows = pa.table({"g": ["a", "b"], "x": [1, 2]})
    gate = ng.open(rows, table="t", epsilon=1, columns={"g": {"in": ["a", "b"]}})
    answer = gate.sql("SELECT g, COUNT(*) FROM t WHERE g = 'a' AND g = 'b' GROUP BY g", epsilon=1)
    assert answer.to_arrow().num_rows == 0
    assert answer.cost.epsilon == 0
