"""A released cube: tables of some columns each that agree with each other, with price and promise.

Any sum over the columns of one table can be asked for, free.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa

from noisegate.desk.answer import Answer, HalfWidths
from noisegate.desk.release import Charged, loading, read_held
from noisegate.exact import Number as Numeric
from noisegate.releases.forms.marginal_tables import FORMAT, Marginals, MarginalTable
from noisegate.releases.forms.table import Number


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CubeRelease(Charged):
    """The ``tables``, which agree with each other, and what was paid and promised for them.

    ``counted`` is the query of the first table, as plain values: which rows are counted, and how.
    """

    kind: ClassVar[str] = "cube"
    form: ClassVar[str] = FORMAT
    tables: Marginals
    counted: Mapping[str, Any]

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each table."""
        return self.tables.names

    @property
    def total(self) -> Number:
        """The sum of all cells, the same in every table."""
        return self.tables.total

    @property
    def disagreement(self) -> int:
        """By how much two tables differ most on a marginal that both have; 0 means: nowhere."""
        return self.tables.disagreement

    def table(self, *names: str) -> MarginalTable:
        """The table over some columns: a released one, or a marginal of the smallest such."""
        return self.tables.table(*names)

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some keys of some columns, from the table over these columns."""
        return self.tables.query(confidence, **where)

    def plot(
        self, confidence: Numeric = 0.95, *, x: str | None = None, y: str | None = None
    ) -> Any:  # noqa: ANN401 - altair may be missing
        """Bars of one column, a heat map of two; by default of the first table that is so small.

        Where all are larger, bars of each column of the first.
        """
        from noisegate.releases.forms.picture import Drawable, picture  # noqa: PLC0415 - when asked for

        names = [name for name in (x, y) if name is not None]
        first = min(self.names, key=lambda each: len(each) not in (1, 2))
        table = self.table(*(names or first))
        title = f"{table.value} by {' × '.join(axis.name for axis in table.axes)}"
        drawn = Drawable(
            axes=table.axes,
            values=table.values,
            value=table.value,
            whole=True,
            widths=table.widths,
            frame=self.answer(0),
        )
        return picture(drawn, confidence, x=x, y=y, title=title)

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values: each table by itself, and what an answer says of price and promise."""
        said = self.answer(0).to_dict(confidence)
        for name in ("columns", "rows", "margins"):
            del said[name]
        tables = [self.table(*names).to_arrow(confidence).to_pydict() for names in self.names]
        plain = json.loads(json.dumps(tables, default=str))
        return {"tables": plain, "words": list(self.tables.words), "sql": self.sql} | said

    def answer(self, rows: int | None = None) -> Answer:
        """All tables below each other, by name; a column that a table does not have is empty."""
        shapes = [each.shape for each in self.tables.values]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        count = int(ends[-1]) if rows is None else min(rows, int(ends[-1]))
        used = int(np.searchsorted(ends, count, side="right")) + 1
        parts = [self._rows(axes, labels=rows is not None) for axes in self.tables.sets[:used]]
        table = pa.concat_tables(parts).slice(0, count)

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            widths = [self.table(*names).margins(confidence).ravel() for names in self.names[:used]]
            found = tuple(np.concatenate(widths)[:count].tolist())
            return (*[None] * (table.num_columns - 1), found)

        left = int(ends[-1]) - count
        words = (*([f"{left:,} more cells."] if left else []), *self.tables.words)
        return self.stating(table, half_widths, words, unsigned=(self.tables.value,))

    def _rows(self, places: Sequence[int], *, labels: bool) -> pa.Table:
        held = self.table(*(self.tables.axes[a].name for a in places))
        at = np.indices(held.values.shape).reshape(len(places), -1)
        cells = held.values.size
        names = [axis.name for axis in self.tables.axes]
        first = "table"
        while first in (*names, held.value):
            first += "_"
        columns: dict[str, Any] = {first: pa.repeat(_named([names[a] for a in places]), cells)}
        for number, axis in enumerate(self.tables.axes):
            keys = pa.array(axis.labels) if labels else axis.column()
            columns[axis.name] = (
                keys.take(pa.array(at[places.index(number)]))
                if number in places
                else pa.nulls(cells, keys.type)
            )
        return pa.table({**columns, held.value: pa.array(held.values.ravel())})

    # files

    def parquet(self, confidence: Numeric) -> pa.Table:  # noqa: ARG002 - the ± follows from it
        """All tables in one, cell by cell."""
        return self.tables.to_parquet()

    def record(self) -> dict[str, Any]:
        """Axes and sets, and what the ± follows from."""
        return self.tables.to_record() | {"counted": self.counted}

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "CubeRelease":
        """The cube that `save` wrote to a Parquet file. Needs no gate."""
        held, record = read_held(file, cls)
        tables = Marginals.of(held, record)
        return cls(tables=tables, counted=record["counted"], **record["standing"])

    @property
    def headline(self) -> str:
        """Which tables there are."""
        tables = ", ".join(map(_named, self.names[:3]))
        more = f" and {len(self.names) - 3} more" if len(self.names) > 3 else ""
        return f"tables {tables}{more}"


def _named(columns: Sequence[str]) -> str:
    """A table by its columns."""
    return " × ".join(columns) or "total"
