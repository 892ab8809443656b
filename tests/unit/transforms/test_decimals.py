"""Random arithmetic on decimals means what DuckDB's DECIMAL means, row by row."""

import os
from decimal import Decimal
from fractions import Fraction
from random import Random

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from reading_oracle import TABLES, column, sql_of, table

import noisegate as ng
from noisegate.algebra.expression import domain_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sources.duckdb.facts import as_stored
from noisegate.sql.reading.sight import SelectReader, rows_of_table

# On 60 rows each. Every run of the tests tries the same ones; `make fuzz` more of them.
SEEDS, CONDITIONS = (12, 300) if os.environ.get("NOISEGATE_EXPLORE") else (2, 150)
LINES = table(
    "lines", TABLES["patients"].unit,
    column("price", Kind.NUMBER, between=(-1000, 1000), scale=2),
    column("disc", Kind.NUMBER, scale=3),  # without bounds
    column("n", Kind.INTEGER, between=(-50, 50)),
    column("x", Kind.NUMBER),
)  # fmt: skip
NUMBERS = ["price", "disc", "n", "x", "price", "disc", "0.06", "0.01", "1.1", "100", "3", "2.5", "1e-2", "0.005", "12.34"]  # fmt: skip


def some_number(pick, depth):
    if depth == 0:
        return pick.choice(NUMBERS)
    one, other = some_number(pick, depth - 1), some_number(pick, pick.randint(0, depth - 1))
    return pick.choice([
        f"({one} + {other})", f"({one} - {other})", f"({one} * {pick.choice(NUMBERS)})", f"-({one})", f"ABS({one})",
        f"ROUND({one}, {pick.randint(0, 3)})", f"FLOOR({one})", f"CEIL({one})", f"ROUND({one})", f"CAST({one} AS BIGINT)",
        f"CAST({one} AS DECIMAL(12, {pick.randint(0, 3)}))", f"LEAST({one}, {other})", f"COALESCE({one}, {other})",
        f"CASE WHEN n > 3 THEN {one} ELSE {other} END", f"({one} % {pick.choice(['0.5', '0.03', 'n', '7'])})", f"CAST({one} AS DOUBLE)",
        f"({one} / 8)", one, one,
    ])  # fmt: skip


def some_condition(pick, rows):
    """A comparison with a value that rows have, so that it is often a near miss."""
    value = some_number(pick, pick.randint(1, 2))
    at = rows.execute(f"SELECT {value} FROM lines LIMIT 1 OFFSET {pick.randrange(60)}").fetchone()[
        0
    ]
    near = "0.07" if at is None else str(at)
    return pick.choice([
        f"{value} = {near}", f"{value} >= {near}", f"{value} < {near}", f"{value} IN ({near}, 0.07)",
        f"{value} BETWEEN {near} - 0.01 AND {near} + 0.01", f"{value} IS DISTINCT FROM {some_number(pick, 1)}",
        f"NULLIF({value}, {near}) IS NULL", f"CASE {value} WHEN {near} THEN TRUE ELSE FALSE END",
    ])  # fmt: skip


@pytest.fixture(name="rows", scope="module")
def rows_of_lines():
    pick = Random(5)
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE lines (price DECIMAL(7, 2), disc DECIMAL(5, 3), n BIGINT, x DOUBLE)"
        )
        for _ in range(60):
            price = pick.choice([None, pick.randint(-100_000, 100_000), pick.randint(-300, 300)])
            con.execute(
                "INSERT INTO lines VALUES (?::DECIMAL(12, 2) / 100, ?::DECIMAL(12, 3) / 1000, ?, ?)",
                [price, pick.randint(0, 150), pick.randint(-50, 50), pick.choice([0.07, 0.3, 1.005, -2.5, None])],
            )  # fmt: skip
        yield con


@pytest.mark.parametrize("seed", range(SEEDS))
def test_conditions_on_decimals_hold_where_duckdb_says_so(seed, rows):
    pick, sight, compared = Random(seed), SelectReader(rows_of_table(LINES)), 0
    doubles = "(SELECT price::DOUBLE price, disc::DOUBLE disc, n, x, price p, disc d FROM lines)"
    for _ in range(CONDITIONS):
        try:
            text = some_condition(pick, rows)
            select = sqlglot.parse_one(f"SELECT {text} FROM lines", dialect="duckdb")
            read = sight.reading.read(select.expressions[0])
        except (Unsupported, duckdb.Error):
            continue  # text of a double, or beyond the type
        ours = sql_of(read, sight.rows.schema, "l")
        theirs = text.replace("price", "p").replace("disc", "d")
        found = rows.execute(f"SELECT {ours}, {theirs} FROM {doubles} l").fetchall()
        assert all(one == other for one, other in found), (text, ours)
        compared += 1
    assert compared > CONDITIONS / 2


def test_the_digits_of_stored_decimals_are_those_of_their_type(rows):
    kept = {"lines": rows.sql("SELECT * FROM lines").to_arrow_table()}
    bare = table("lines", LINES.unit, *(column(n, c.kind) for n, c in LINES.columns.items()))
    found = as_stored(kept, {"lines": bare}, {})["lines"].columns
    assert {name: each.scale for name, each in found.items()} == {
        "price": 2, "disc": 3, "n": None, "x": None,
    }  # fmt: skip


QUESTIONS = """
SELECT COUNT(*) FROM lines WHERE disc BETWEEN 0.06 - 0.01 AND 0.06 + 0.01
SELECT COUNT(*) FROM lines WHERE disc + 0.01 = 0.07 OR disc * 3 = 0.3
SELECT COUNT(*) FROM (SELECT price * (1 - disc) AS net FROM lines) WHERE ROUND(net, 2) = net
SELECT COUNT(*) FROM (SELECT who, SUM(price) AS s, AVG(disc) AS d FROM lines GROUP BY who) WHERE s * 10 = FLOOR(s * 10)
SELECT COUNT(*) FROM (SELECT DISTINCT who, price * 10 AS p FROM lines) a JOIN lines b ON a.who = b.who AND a.p = b.price + b.price * 9
SELECT COUNT(*) FROM (SELECT who, AVG(price * 0 + 0.07) AS a FROM lines GROUP BY who) WHERE a = 0.07
SELECT COUNT(*) FROM lines a WHERE price >= (SELECT AVG(b.price) FROM lines b WHERE b.who = a.who)
SELECT COUNT(*) FROM (SELECT ROUND(price, -1) AS p FROM lines) WHERE p = 10
SELECT COUNT(*) FROM (SELECT who, disc AS v FROM lines UNION ALL SELECT who, who FROM lines) WHERE v + 0.01 IN (0.07, 1.01)
""".strip().splitlines()


@pytest.fixture(scope="module")
def stored():
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE lines AS SELECT i % 40 AS who, ((i * 37) % 1000 / 100)::DECIMAL(7, 2) AS price, "
            "((i * 7) % 13 / 100)::DECIMAL(4, 2) AS disc FROM range(200) AS t(i)"
        )
        yield con, con.sql("SELECT * FROM lines").to_arrow_table()


@pytest.mark.parametrize("sql", QUESTIONS)
def test_answers_about_stored_decimals_are_those_of_duckdb(stored, sql):
    con, rows = stored
    columns = {"price": {"between": [0, 10]}, "disc": {"between": [0, 1]}}
    gate = ng.open(
        rows, table="lines", unit="who", rows_per_unit=5, columns=columns, epsilon=10_000
    )
    ((exact,),) = con.execute(sql).fetchall()
    assert gate.sql(sql, epsilon=900).to_arrow()[0][0].as_py() == exact


def test_sums_and_quantiles_of_decimals_show_the_digits_of_their_type():
    rows = pa.table({"x": pa.array([Decimal("1.25"), Decimal("2.50")] * 100, pa.decimal128(6, 2))})
    gate = ng.open(rows, table="t", columns={"x": {"between": [0, 10]}}, epsilon=100)
    sql = "SELECT SUM(x) AS s, MEDIAN(x) AS m, CAST(SUM(x) AS VARCHAR) AS t, AVG(x) AS a FROM t"
    answer = gate.sql(sql, epsilon=1)
    ((total, middle, text, _),) = answer.rows
    assert (round(total, 2), round(middle, 2)) == (total, middle)
    assert text == f"{total:.2f}"
    assert answer.margins()["s"][0] > 0


def test_a_bound_of_a_decimal_stays_the_bound():
    sight = SelectReader(rows_of_table(LINES))
    select = sqlglot.parse_one("SELECT CAST(price * 1 AS DECIMAL(9, 2))", dialect="duckdb")
    value = sight.target(select.expressions[0])
    domain = domain_of(value, sight.rows.schema)
    assert (domain.low, domain.high, domain.scale) == (Fraction(-1000), Fraction(1000), 2)
