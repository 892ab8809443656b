"""Attacks on tables that are read in one pass: rows that count twice, too much, or elsewhere.

Nothing here draws noise. Broken copies of the engine's statement are caught by the same checks.
"""

from fractions import Fraction
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import noisegate.sources.duckdb.source as engine
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Grouping, Marginals, Sums, Term
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources import adding
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.writing import tallies
from noisegate.transforms.query import Query

FINE = Term(expression=Literal(1), grain=Fraction(1, 1000), low=0, high=1000)
COST = Term(expression=Field("x"), grain=Fraction(1, 8), low=-80, high=800)
COLUMNS = {"w": Kind.TEXT, "n": Kind.INTEGER, "x": Kind.NUMBER}
TYPES = {"pid": pa.int64(), "w": pa.string(), "n": pa.int64(), "x": pa.float64()}
SETS = ((), (0,), (1,), (0, 1), (0, 1, 2), (2,))


def domain(unit="pid"):
    columns = {name: Column(name=name, kind=kind) for name, kind in COLUMNS.items()}
    return TableDomain(dataset="d", name="t", unit=PrivacyUnit(column=unit), columns=columns)


def opened(rows, unit="pid"):
    columns = list(zip(*rows, strict=True)) or [()] * len(TYPES)
    pairs = zip(TYPES.items(), columns, strict=True)
    frame = pa.table({name: pa.array(column, kind) for (name, kind), column in pairs})
    return DuckDBSource({"t": frame}, {"t": domain(unit)})


def grouping(name, *keys, **more):
    return Grouping(name=name, expression=more.pop("of", Field(name)), keys=keys, **more)


BIN = Call("least", (Call("greatest", (Field("n"), Literal(0))), Literal(3)))
BY = (
    grouping("w", "north", None, "North", rest=True),
    grouping("n", 0, 2**63 - 1, -5),
    grouping("n", 0, 3, None, of=BIN),
)


def tables(term=FINE, cap=2, unit="pid", by=BY, sets=SETS):
    given = Marginals(relation=Table(domain(unit)), by=by, sets=sets, term=term, rows_per_unit=cap)
    return Query(given)


def assert_claimed(query, one, other):
    pairs = zip(one.marginals(query.tally), other.marginals(query.tally), strict=True)
    for (here, there), l1, l2 in zip(pairs, query.l1s, query.l2s, strict=True):
        apart = np.abs(here - there).astype(object)
        assert apart.sum() <= l1.value
        assert (apart**2).sum() <= l2.squared


def assert_sums(query, source):
    tally = query.tally
    for each, found in zip(tally.sets, source.marginals(tally), strict=True):
        by = tuple(tally.by[place] for place in each)
        alone = Sums(
            relation=tally.relation, by=by, terms=(tally.term,), rows_per_unit=tally.rows_per_unit
        )
        assert found.tolist() == source.sums(alone)[0].tolist()


VALUES = [0.0, -0.0, 7.3, 99.99, 1e308, -1e308, float("inf"), float("-inf"), float("nan"), None]


def some_rows(seed, unit=True):
    """Many rows of one owner, few of others, some of nobody; all kinds of odd values."""
    pick = Random(seed).choice
    owners = [*[1] * 9, 1, 2, 2, 3, 3, 3, None] if unit else range(12)
    return [
        (owner, pick(["north", "North", "north ", "", None]),
         pick([0, 1, -5, 2**63 - 1, -(2**63), None]), pick(VALUES))
        for owner in owners
    ]  # fmt: skip


@pytest.mark.parametrize("term", [FINE, COST], ids=["rows", "costs"])
def test_whoever_leaves_moves_each_table_by_at_most_its_claim(term):
    for seed in range(2):
        rows = some_rows(seed)
        query, everybody = tables(term), opened(rows)
        for owner in (1, 2, 3, None):
            assert_claimed(query, everybody, opened([row for row in rows if row[0] != owner]))


@pytest.mark.parametrize("term", [FINE, COST], ids=["rows", "costs"])
def test_a_row_that_leaves_moves_each_table_by_at_most_its_claim(term):
    rows = some_rows(5, unit=False)
    query, everybody = tables(term, cap=None, unit=None), opened(rows, None)
    assert_sums(query, everybody)
    for place in range(0, len(rows), 3):
        assert_claimed(query, everybody, opened(rows[:place] + rows[place + 1 :], None))


def test_a_collation_puts_no_row_into_two_cells(tmp_path):
    file = tmp_path / "t.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE TABLE t (pid BIGINT, w VARCHAR COLLATE NOCASE, n BIGINT, x DOUBLE)"
        )
        connection.execute("INSERT INTO t VALUES (1, 'north', 0, 1), (2, 'North', 0, 1)")
    source = DuckDBSource({"t": file}, {"t": domain()})
    query = tables(sets=((0,), (0, 1), ()))
    found = [table.tolist() for table in source.marginals(query.tally)]
    assert found[0] == [1000, 0, 1000, 0]
    assert found[2] == [2000]


def test_rows_in_no_cell_of_one_grouping_count_where_it_is_left_out():
    rows = [(1, "north", 77, 1.0), (2, "elsewhere", 0, 1.0), (3, None, None, None)]
    found = opened(rows).marginals(tables(sets=((0,), (1,), (0, 1), ())).tally)
    assert [table.tolist() for table in found] == [
        [1000, 1000, 0, 1000],
        [1000, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 1000, 0, 0],
        [3000],
    ]


def test_rows_in_no_cell_still_share_an_owners_weight():
    rows = [(1, "north", 0, 1.0), *[(1, "north", 77, 1.0)] * 9]
    (found,) = opened(rows).marginals(tables(cap=1, sets=((1,),)).tally)
    assert found.tolist() == [100, 0, 0]


# broken copies


def assert_caught(query=None):
    with pytest.raises(AssertionError):
        for seed in range(3):
            rows = some_rows(seed)
            fewer = opened([row for row in rows if row[0] != 1])
            assert_claimed(query or tables(), opened(rows), fewer)


def test_rows_that_are_not_weighed_are_caught(monkeypatch):
    monkeypatch.setattr(tallies, "_weighed", lambda value, cap: value)
    assert_caught()


def test_a_key_that_is_listed_twice_is_caught(monkeypatch):
    once = engine.key_list
    monkeypatch.setattr(
        engine, "key_list", lambda each: pa.concat_tables([pa.table(once(each))] * 3)
    )
    assert_caught()


def test_a_row_that_is_kept_for_every_cell_is_caught(monkeypatch):
    add_up = adding.add_up

    def everywhere(*given, **more):
        return [np.full_like(table, table.sum()) for table in add_up(*given, **more)]

    monkeypatch.setattr(adding, "add_up", everywhere)
    assert_caught()


def test_numbers_that_are_not_clamped_are_caught(monkeypatch):
    wide = Term(expression=COST.expression, grain=COST.grain, low=-(2**30), high=2**30)
    value = tallies._value
    monkeypatch.setattr(tallies, "_value", lambda _, *given: value(wide, *given))
    assert_caught(tables(COST))
