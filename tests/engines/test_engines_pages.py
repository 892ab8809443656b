"""Rows of one table that Postgres packs by its pages: each of them comes once."""

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
import sqlglot

from engines import READER
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Table
from noisegate.algebra.tally import Grouping, Term, Values
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.postgres.pages import in_ranges
from noisegate.sources.postgres.server import Place
from noisegate.sources.postgres.source import PostgresSource

MOST = 10**6
TERM = Term(expression=Field("x"), grain=Fraction(1), low=-MOST, high=MOST)
DOMAIN = TableDomain(
    dataset="d", name="t", unit=PrivacyUnit(column="who", ids="who"),
    columns=MappingProxyType({
        "who": Column(name="who", kind=Kind.INTEGER), "x": Column(name="x", kind=Kind.INTEGER),
    }),
)  # fmt: skip
TALLY = Values(relation=Table(DOMAIN), term=TERM)


class Made:
    """A table t, and the values of its rows that count."""

    def __init__(self, database, how="", rows=0, columns="(who bigint, x bigint, wide text)"):
        self.database, self.table = database, f"{database.schema}.t"
        self.run = database.owner.execute
        self.run(f"CREATE TABLE {self.table} {columns} {how}")
        self.run(f"GRANT SELECT ON {self.table} TO {READER}")
        self.add(1, rows)

    def add(self, first, last):
        self.run(
            f"INSERT INTO {self.table} (who, x) SELECT n, n FROM generate_series(%s::int8, %s) n",
            (first, last),
        )

    def open(self):
        place = Place(self.database.url, self.database.schema, "t")
        return PostgresSource({"t": place}, {"t": DOMAIN})

    def held(self, which="TRUE"):
        found = self.run(f"SELECT x FROM {self.table} WHERE {which} AND x IS NOT NULL ORDER BY x")
        return [x for (x,) in found]


def asked(source, tally=TALLY):
    (values,) = source.values(tally)
    assert values.dtype == np.int64
    return sorted(values.tolist())


@pytest.mark.parametrize("rows", [0, 1, 184, 185, 186, 2960, 2961, 30_000])
def test_each_row_comes_once(database, rows):
    made = Made(database, rows=rows)
    source = made.open()
    assert source._by_pages(TALLY) is not None
    assert asked(source) == made.held() == list(range(1, rows + 1))


def test_rows_that_move_vanish_or_are_long_come_once_or_never(database):
    made = Made(database, "WITH (fillfactor = 40)", rows=9000)
    source = made.open()
    made.run(f"DELETE FROM {made.table} WHERE x % 3 = 0 OR x BETWEEN 2000 AND 5000")
    made.run(f"UPDATE {made.table} SET x = -x, wide = repeat('ab', 3000) WHERE x % 5 = 0")
    made.run(f"UPDATE {made.table} SET x = NULL WHERE x % 7 = 0")
    made.add(20_000, 21_000)
    assert asked(source) == made.held()
    made.run(f"VACUUM FULL {made.table}")  # after which they lie elsewhere
    assert asked(source) == made.held()
    made.run(f"DELETE FROM {made.table} WHERE x > 0")
    made.run(f"VACUUM {made.table}")  # which shortens the table
    assert asked(source) == made.held()


def test_conditions_hold(database):
    made = Made(database, rows=5000)
    condition = Call("lt", (Field("x"), Literal(77)))
    some = replace(TALLY, relation=Filter(Table(DOMAIN), condition))
    source = made.open()
    assert source._by_pages(some) is not None
    assert asked(source, some) == made.held("x < 77")


def test_rows_that_come_later_are_not_of_the_moment(database):
    made = Made(database, rows=1000)
    with made.open().still() as source:
        first = asked(source)
        made.add(5000, 9000)
        made.run(f"DELETE FROM {made.table} WHERE x < 500")
        assert asked(source) == first == list(range(1, 1001))
    assert asked(made.open()) == made.held()


def test_ranges_of_pages_are_not_looked_for_in_the_whole_table(database):
    made = Made(database, rows=30_000)
    source = made.open()
    text = source._by_pages(TALLY)
    plan = source._run(lambda link: link.execute(f"EXPLAIN (COSTS OFF) {text}").fetchall())
    assert any("Tid Range Scan" in line for (line,) in plan)
    assert not any("Seq Scan" in line or "Sort" in line for (line,) in plan)


@pytest.mark.parametrize(
    "tally",
    [
        replace(TALLY, rows_per_unit=2),
        replace(TALLY, by=(Grouping(name="who", expression=Field("who"), keys=(1, 2)),)),
        replace(TALLY, term=replace(TERM, low=-9, high=9)),
    ],
    ids=["capped", "grouped", "few"],
)  # fmt: skip
def test_rows_that_need_others_are_not_read_so(database, tally):
    assert Made(database, rows=9).open()._by_pages(tally) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x FROM base0 AS t, base0 AS u",
        "SELECT x FROM base0 AS t JOIN base1 AS u ON t.x = u.x",
        "SELECT x FROM base0 AS t WHERE EXISTS (SELECT 1 FROM base1 AS u WHERE u.x = t.x)",
        "SELECT x FROM base0 AS t WHERE x IN (SELECT x FROM base0 AS u)",
        "SELECT x FROM base0 AS t UNION ALL SELECT x FROM base1 AS u",
        "SELECT x FROM base0 AS t CROSS JOIN LATERAL UNNEST(ARRAY[1, 2]) AS u",
        "SELECT x FROM (SELECT MAX(x) AS x FROM base0 AS t) AS s",
        "SELECT x FROM base0 AS t GROUP BY x",
        "SELECT DISTINCT x FROM base0 AS t",
        "SELECT x FROM base0 AS t ORDER BY x",
        "SELECT x FROM base0 AS t LIMIT 5",
        "SELECT x FROM base0 AS t OFFSET 5",
        "SELECT x FROM base0 AS t FETCH FIRST 5 ROWS ONLY",
        "SELECT x FROM base0 AS t TABLESAMPLE BERNOULLI (5)",
        "SELECT ROW_NUMBER() OVER () AS x FROM base0 AS t",
        "WITH r AS (SELECT x FROM base0 AS t) SELECT r.x FROM r, r AS s",
        "WITH r AS (SELECT x FROM base0 AS t) SELECT x FROM r UNION ALL SELECT x FROM r",
        "SELECT x FROM base0",
        "SELECT x FROM base1 AS t",
    ],
)
def test_only_a_chain_over_one_table_is_read_in_ranges(text):
    assert not in_ranges(sqlglot.parse_one(text, dialect="postgres"), "base0")
    chain = "WITH r AS (SELECT x FROM (SELECT x FROM base0 AS t) AS s) SELECT x FROM r WHERE x > 1"
    assert in_ranges(sqlglot.parse_one(chain, dialect="postgres"), "base0")


def test_rows_of_several_tables_are_not_read_so(database):
    made = Made(database, rows=500)
    made.run(f"CREATE TABLE {made.table}2 () INHERITS ({made.table})")
    made.run(f"INSERT INTO {made.table}2 (who, x) VALUES (1, -5)")
    source = made.open()
    assert source._by_pages(TALLY) is None
    assert asked(source) == [-5, *range(1, 501)]


def test_partitions_are_not_read_so(database):
    made = Made(database, "PARTITION BY RANGE (x)")
    made.run(f"CREATE TABLE {made.table}1 PARTITION OF {made.table} DEFAULT")
    made.add(1, 50)
    source = made.open()
    assert source._by_pages(TALLY) is None
    assert asked(source) == list(range(1, 51))


def test_a_right_to_some_columns_does_not_show_places(database):
    made = Made(database, rows=50)
    made.run(f"REVOKE SELECT ON {made.table} FROM {READER}")
    made.run(f"GRANT SELECT (who, x) ON {made.table} TO {READER}")
    source = made.open()
    assert source._by_pages(TALLY) is None
    assert asked(source) == list(range(1, 51))
