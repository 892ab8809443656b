"""The definition of sensitivity, tried on random tables with a real engine."""

from types import MappingProxyType

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb import DuckDBSource
from noisegate.transforms.count import count
from noisegate.transforms.restrict import restrict

KEYS = ("a", "b", "")
VALUES = st.sampled_from(["a", "b", "", "A", "zzz", None, "a "])
ROWS = st.lists(st.tuples(st.sampled_from(["u", "v", "w", None]), VALUES), max_size=12)


def domain(unit, cap):
    return TableDomain(
        dataset="d",
        name="t",
        unit=PrivacyUnit(column=unit),
        columns=MappingProxyType({"k": Column(name="k", keys=KEYS)}),
        rows_per_unit_max=cap,
    )


def queries(table):
    yield count(table)
    yield restrict(count(table), column="k", key="a")
    if table.unit.column is None:
        yield count(table, by="k")


def collect(rows, query):
    columns = list(zip(*rows, strict=True)) or [(), ()]
    arrays = [pa.array(column, pa.string()) for column in columns]
    return DuckDBSource(
        pa.table(dict(zip(("u", "k"), arrays, strict=True))), table="t", used=("u", "k")
    ).collect(query.tally)


def within(query, here, there):
    change = [abs(int(a) - int(b)) for a, b in zip(here, there, strict=True)]
    assert sum(change) <= query.l1.value
    assert sum(c * c for c in change) <= query.l2.squared


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, extra=st.tuples(st.just("x"), VALUES))
def test_one_more_row_moves_no_query_further_than_claimed(rows, extra):
    for query in queries(domain(None, None)):
        within(query, collect(rows, query), collect([extra, *rows], query))


@settings(max_examples=60, deadline=None)
@given(
    rows=ROWS,
    extra=st.lists(VALUES, max_size=8),
    cap=st.integers(1, 5),
    who=st.sampled_from(["x", None]),
)
def test_one_more_unit_moves_no_query_further_than_claimed(rows, extra, cap, who):
    for query in queries(domain("u", cap)):
        within(
            query, collect(rows, query), collect([*rows, *((who, value) for value in extra)], query)
        )


def test_the_check_sees_a_claim_that_is_too_small():
    query = count(domain("u", 3))
    here, there = collect([], query), collect([("x", "a")] * 9, query)
    assert abs(int(there[0]) - int(here[0])) == 3
