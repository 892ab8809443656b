"""A small door to test: real rows in DuckDB, a real ledger, system bits."""

from contextlib import contextmanager
from copy import copy
from fractions import Fraction
from types import MappingProxyType

import pyarrow as pa

from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.source import Source
from noisegate.transforms.query import Query

WARDS = ("north", "south", "west")
ROWS = pa.table({"id": [1, 1, 2, 3] * 25, "ward": ["north", "south", "north", "north"] * 25})
ONE = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
FINE = Term(expression=Literal(1), grain=Fraction(1, 1024), low=0, high=1024)  # for weights


def table(name, unit, *columns, ids="person", **more):
    """A table of (name, kind) columns or `Column`s; ``unit`` is "public", None for rows, or a column.

    Units of all these tables are the same people, unless ``ids`` says otherwise.
    """
    ids = None if unit is None else ids
    made = [c if isinstance(c, Column) else Column(name=c[0], kind=c[1]) for c in columns]
    return TableDomain(
        dataset="clinic",
        name=name,
        unit=None if unit == "public" else PrivacyUnit(column=unit, ids=ids),
        columns=MappingProxyType({column.name: column for column in made}),
        **more,
    )


def field(name, grain=1, low=0, high=100):
    """A term: the values of a column."""
    return Term(expression=Field(name), grain=Fraction(grain), low=low, high=high)


def by(name, *keys):
    """A grouping by a column."""
    return Grouping(name=name, expression=Field(name), keys=keys)


def domain(unit=None, dataset="clinic", snapshot="1", name="people", **more):
    columns = {
        "id": Column(name="id", kind=Kind.INTEGER),
        "ward": Column(name="ward", keys=WARDS, nullable=False),
    }
    return TableDomain(
        dataset=dataset,
        name=name,
        unit=PrivacyUnit(column=unit, ids=None if unit is None else "person"),
        columns=MappingProxyType(columns),
        snapshot=snapshot,
        **more,
    )


def count_query(table=None, by=None, cap=None, term=ONE):
    """COUNT(*) of a table, per declared key of ``by`` if given."""
    table = table or domain()
    groups = ()
    if by is not None:
        groups = (Grouping(name=by, expression=Field(by), keys=table.columns[by].keys),)
    return Query(Sums(relation=Table(table), by=groups, terms=(term,), rows_per_unit=cap))


def engine(rows, table, _kept={}):  # noqa: B006 - for all tests
    """One for each table: to make one takes longer than most tests, and none changes it."""
    name = id(rows), repr(table)
    if name not in _kept:
        _kept[name] = rows, DuckDBSource({"people": rows}, {"people": table})
    return _kept[name][1]


def showing(rows, table, _kept={}):  # noqa: B006 - for all tests
    """An engine about these rows until the next ones of the table are shown to it."""
    name = repr((table, rows.schema))
    if name in _kept:
        _kept[name]._connection.register("frame0", rows)
    else:
        _kept[name] = DuckDBSource({table.name: rows}, {table.name: table})
    return _kept[name]


class Watched(Source):
    """A source that counts how often its rows were read, and may break."""

    def __init__(self, rows=ROWS, table=None):
        self._inner = engine(rows, table or domain())
        self.reads, self.broken = 0, None

    def _look(self):
        self.reads += 1
        if self.broken is not None:
            raise self.broken

    def sums(self, tally):
        self._look()
        return self._inner.sums(tally)

    def marginals(self, tally):
        self._look()
        return self._inner.marginals(tally)

    def values(self, tally):
        self._look()
        return self._inner.values(tally)

    def keys(self, tally):
        self._look()
        return self._inner.keys(tally)

    def distinct(self, tally):
        self._look()
        return self._inner.distinct(tally)

    def cells(self, tally):
        self._look()
        return self._inner.cells(tally)

    def rows(self, tally, use):
        self._look()
        return self._inner.rows(tally, use)

    def blocks(self, tally, key, use):
        self._look()
        return self._inner.blocks(tally, key, use)

    @contextmanager
    def sample(self, probability, key):
        with self._inner.sample(probability, key) as drawn:
            other = copy(self)
            other._inner, other._look = drawn, self._look  # its readings count here too
            yield other

    def public(self, table):
        return self._inner.public(table)


def curator(
    where=":memory:", *, budget="1", table=None, source=None, accountant="pure", delta=0, **more
):
    table = table or domain()
    ledger = open_ledger(str(where))
    ledger.open_account(
        table.dataset,
        parent=None,
        accountant=accountant,
        budget=ApproxDP(budget, delta),
        unit=str(table.unit),
    )
    return Curator(
        source=source or Watched(table=table),
        tables={table.name: table},
        ledger=ledger,
        account=table.dataset,
        **more,
    )


def counting(epsilon, table=None, by=None, cap=None, term=ONE):
    query = count_query(table, by, cap, term)
    noise = Geometric.for_epsilon(epsilon, sensitivity=query.l1s[0])
    return Measurement(query=query, mechanisms=(noise,))
