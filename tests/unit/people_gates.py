"""Gates over a small table of people, and over one of hardly a row and very many groups.

Noise is as good as absent at a high ε: a geometric draw of scale s is 0 but for a chance of
2 exp(-1/s). `HIGH` makes this less than 1e-12 for every number that is compared with an exact one.
"""

from fractions import Fraction
from functools import cache
from types import MappingProxyType

import pyarrow as pa

from noisegate.curator.curator import Curator
from noisegate.gate import Gate, Rules
from noisegate.ledger.open import open_ledger
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource

HIGH = 200
CELLS = 1000
ROWS = pa.table(
    {
        "pid": [i % 40 for i in range(120)],
        "ward": (["north", "south", "north", None, "elsewhere"] * 24),
        "k": [i % 4 for i in range(120)],
        "v": [i % 3 for i in range(120)],
    }
)
COUNT = "SELECT COUNT(*) AS n FROM people"
BY_WARD = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"
BY_K = "SELECT k, COUNT(*) AS n FROM people GROUP BY k"


def people(unit=None, snapshot="1", **more):
    """The table: k and ward list only some of their values; ward may be missing."""
    columns = {
        "pid": Column(name="pid", kind=Kind.INTEGER),
        "ward": Column(name="ward", keys=("north", "south")),
        "k": Column(name="k", kind=Kind.INTEGER, keys=(0, 1, 2), nullable=False),
        "v": Column(name="v", kind=Kind.INTEGER, between=(Fraction(0), Fraction(2))),
    } | more.pop("columns", {})
    return TableDomain(
        dataset="clinic",
        name="people",
        unit=PrivacyUnit(column=unit),
        columns=MappingProxyType(columns),
        snapshot=snapshot,
        **more,
    )


def many(cells=CELLS, other=1):
    """A table with hardly a row and very many groups: each cell is a run of its own."""
    columns = {
        "a": Column(name="a", kind=Kind.INTEGER, keys=tuple(range(cells)), nullable=False),
        "b": Column(name="b", kind=Kind.INTEGER, keys=tuple(range(other)), nullable=False),
    }
    return TableDomain(
        dataset="clinic",
        name="many",
        unit=PrivacyUnit(column=None),
        columns=MappingProxyType(columns),
    )


@cache
def source_of(kind):
    if kind == "many":
        rows = pa.table({"a": [-1], "b": [-1]})
        return DuckDBSource({"many": rows}, {"many": many()})
    return DuckDBSource({"people": ROWS}, {"people": people(unit=kind)})


def gate_of(table=None, *, budget=10**5, delta=0, accountant="pure", ledger=None, **rules):
    """A gate over rows in DuckDB, with a ledger in memory (or the one given)."""
    table = table or people()
    book = ledger or open_ledger(":memory:")
    book.open_account(
        "clinic",
        parent=None,
        accountant=accountant,
        budget=ApproxDP(budget, delta),
        unit=str(table.unit),
    )
    source = source_of("many" if table.name == "many" else table.unit.column)
    if table not in (many(), people(unit=table.unit.column)):
        rows = pa.table({"a": [-1], "b": [-1]}) if table.name == "many" else ROWS
        source = DuckDBSource({table.name: rows}, {table.name: table})
    tables = {table.name: table}
    return Gate(
        Curator(source=source, tables=tables, ledger=book, account="clinic"), Rules(**rules)
    )


def charged(gate, sql, **terms):
    """The answer, and how much the account's balance fell by."""
    before = gate.spent.epsilon
    answer = gate.sql(sql, **terms)
    return answer, gate.spent.epsilon - before
