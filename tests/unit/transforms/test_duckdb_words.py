"""The short ways in which statements for DuckDB are written mean what the long ones do."""

from fractions import Fraction
from random import Random
from struct import pack, unpack

import duckdb
import pytest
from sqlglot import exp

from noisegate.sources.duckdb.dialect import DUCKDB
from noisegate.sources.writing.words import cast, col, is_not_null, number, whole

TYPES = ("BIGINT", "DOUBLE", "HUGEINT", "VARCHAR", "DATE", "TIMESTAMP", "BOOLEAN", "UBIGINT")


@pytest.mark.parametrize("kind", [*TYPES, "DECIMAL(18, 2)", "INTEGER"])
@pytest.mark.parametrize("may_fail", [False, True])
def test_casts_are_written_as_sqlglot_writes_them(kind, may_fail):
    written = cast(col("x", "t"), kind, may_fail=may_fail)
    assert DUCKDB.text(written.copy()) == written.sql("duckdb")


def test_every_double_is_read_as_it_was_meant():
    random, values = Random(5), [0.0, 0.1, 1e-5, 5e-324, 1.7976931348623157e308, 2.0**53 + 2]
    values += [unpack("d", pack("Q", random.getrandbits(63)))[0] for _ in range(2000)]
    values += [random.random() * 10.0 ** random.randrange(-4, 16) for _ in range(2000)]
    values = [value for value in values if value < float("inf")]  # nor NaN
    signed = [sign * value for value in values for sign in (1, -1)]
    texts = [DUCKDB.text(number(Fraction(value))) for value in signed]
    short = sum(text.endswith("e0") for text in texts)
    assert short > 1500
    with duckdb.connect() as connection:
        rows = ", ".join(f"({text}, typeof({text}))" for text in texts)
        found = connection.execute(f"SELECT * FROM (VALUES {rows})").fetchall()
    assert found == [(value, "DOUBLE") for value in signed]


def test_a_number_after_a_minus_is_not_a_comment():
    two = exp.Sub(this=exp.Neg(this=number(Fraction(-3, 2))), expression=number(Fraction(-1, 2)))
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT {DUCKDB.text(two)}").fetchall() == [(2.0,)]
        wide = exp.Neg(this=whole(-(1 << 40)))
        assert connection.execute(f"SELECT {DUCKDB.text(wide)}").fetchall() == [(1 << 40,)]


def test_a_value_that_must_be_there_is_written_as_the_planner_expects():
    """Of NOT … IS NULL it expects few rows, and aggregates no longer before a join."""
    assert DUCKDB.text(is_not_null(col("home", "h"))) == '(h."home") IS NOT NULL'


@pytest.mark.parametrize("tested", [None, True, False])
def test_nulls_are_told_apart_as_sqlglot_tells_them(tested):
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT UNNEST([NULL, TRUE, FALSE]) AS x")
        is_so = exp.Is(this=col("x", "t"), expression=exp.convert(tested))
        for either in (is_so, exp.not_(is_so), exp.not_(exp.paren(is_so))):
            written = DUCKDB.text(exp.select(either.copy()).from_("t"))
            meant = exp.select(either).from_("t").sql("duckdb")
            assert connection.execute(written).fetchall() == connection.execute(meant).fetchall()
