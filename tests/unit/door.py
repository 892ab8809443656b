"""A small door to test: real rows in DuckDB, a real ledger, system bits."""

from types import MappingProxyType

import pyarrow as pa

from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.geometric import Geometric
from noisegate.privacy.domain import Column, TableDomain
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb import DuckDBSource
from noisegate.sources.source import Source
from noisegate.transforms.count import count

WARDS = ("north", "south", "west")
ROWS = pa.table({"id": [1, 1, 2, 3] * 25, "ward": ["north", "south", "north", "north"] * 25})


def domain(unit=None, cap=None, dataset="clinic", snapshot="1"):
    columns = {"ward": Column(name="ward", keys=WARDS)}
    return TableDomain(
        dataset=dataset,
        name="people",
        unit=PrivacyUnit(column=unit),
        columns=MappingProxyType(columns),
        rows_per_unit_max=cap,
        snapshot=snapshot,
    )


class Watched(Source):
    """A source that counts how often its rows were read, and may break."""

    def __init__(self, rows=ROWS):
        self._inner, self.reads, self.broken = (
            DuckDBSource(rows, table="people", used=("id", "ward")),
            0,
            None,
        )

    def collect(self, tally):
        self.reads += 1
        if self.broken is not None:
            raise self.broken
        return self._inner.collect(tally)

    def columns(self):
        return self._inner.columns()


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
        source=source or Watched(), table=table, ledger=ledger, account=table.dataset, **more
    )


def counting(epsilon, table=None, by=None):
    query = count(table or domain(), by=by)
    return Measurement(query=query, mechanism=Geometric.for_epsilon(epsilon, sensitivity=query.l1))
