"""An engine whose answers are kept: what a caller does with one is not seen by the next."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from noisegate.algebra.expression import Field
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Axis, Cells, Distinct, Grouping, Keys, Rows, Sums, Term, Values
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.remembered import Remembered

COLUMN = Column(name="x", kind=Kind.INTEGER, between=(0, 9))
PEOPLE = TableDomain(
    dataset="d", name="people", unit=PrivacyUnit(column=None), columns={"x": COLUMN}
)
TERM = Term(expression=Field("x"), grain=Fraction(1), low=0, high=9)
OF = {"relation": Table(PEOPLE)}
BY = (Grouping(name="x", expression=Field("x"), keys=(1, 2)),)


def listed(batches):
    return [each.coordinates for each in batches]


ASKED = {
    "sums": lambda source: [source.sums(Sums(**OF, by=BY, terms=(TERM,)))],
    "values": lambda source: source.values(Values(**OF, term=TERM)),
    "keys": lambda s: [s.keys(Keys(**OF, by=(("x", Field("x")),), keys_per_unit=1)).counts],
    "distinct": lambda s: [s.distinct(Distinct(**OF, expression=Field("x"), keys_per_unit=1))],
    "cells": lambda s: [
        s.cells(Cells(**OF, by=(Axis(name="x", expression=Field("x"), low=0, size=10),))).counts
    ],
    "rows": lambda s: s.rows(Rows(**OF, terms=(TERM,)), listed),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_a_caller_changes_is_not_remembered(asked):
    source = Remembered(DuckDBSource({"people": pa.table({"x": [1, 2, 2, 5]})}, {"people": PEOPLE}))
    first = [part.copy() for part in asked(source)]
    for part in asked(source):
        part[...] += 1
    assert all(map(np.array_equal, asked(source), first))
    assert any(part.any() for part in first)
