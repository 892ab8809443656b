"""Error bars through the free SQL: how far each shown number may be off.

A released number carries a half-width. The outer SQL may filter, order, cut, join and calculate;
to follow it, the same statement is run once more with hidden columns: the released numbers that
each item is made of and their half-widths (`following.py`). Interval arithmetic on them gives the
ends of the item. Where it is made of k numbers, each half-width is taken at confidence
1 - (1 - c)/k, so all hold together at c by the union bound, whatever their dependence. What cannot
be followed (ranks of noisy numbers, CASE on them, the largest of several) has no error bar: None.

The second run must show the same rows again, or no error bar is given at all.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import Final, TypeAlias, final

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noisegate.arrow import arrow_column
from noisegate.errors import Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, field
from noisegate.mechanisms.base import failure_of
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.outer.following import Follower, is_plain
from noisegate.sql.outer.forms import Array, Weighed
from noisegate.sql.outer.items import ROW, Item, ReleasedBlock, ends_of, exact, noisy, width_of

HalfWidths: TypeAlias = tuple[float | int | None, ...]
_ROUNDING: Final = 2.0**-44  # of the ends, added to calculated half-widths: they are doubles
_WHOLE_MAX: Final = 2.0**53
_CHOOSING: Final = ("WHERE", "HAVING", "QUALIFY", "LIMIT", "FETCH")


@final
@dataclass(frozen=True, slots=True)
class _Followed:
    """A statement with hidden columns, what it shows, and whether noisy numbers choose rows."""

    sql: str
    items: list[Item | None]
    chosen: bool


@final
@dataclass
class Margins:
    """The error bars of what the outer SQL shows. ``shown`` is its result.

    Where it shows columns of the one released table as they are, they are ``picked``: nothing needs
    to be followed, nor run again.
    """

    outer: str
    released: Mapping[str, ReleasedBlock]
    public: Mapping[str, pa.Table]
    shown: pa.Table
    picked: tuple[str, ...] | None = None
    _widths: dict[Fraction, list[HalfWidths | None]] = field(default_factory=dict)

    @cached_property
    def chosen(self) -> bool:
        """Whether noisy numbers decide which rows are shown."""
        words = self.outer.upper()  # cheaper than to follow the statement, and never wrong
        return any(word in words for word in _CHOOSING) and self._followed.chosen

    @cached_property
    def _followed(self) -> "_Followed":
        if self.picked is not None:
            ((table, block),) = self.released.items()
            items = [
                noisy(block, name, table, table) if name in block.noisy else exact(exp.column(name))
                for name in self.picked
            ]
            return _Followed("", [*items], chosen=False)
        tables = {name: block.table for name, block in self.released.items()} | dict(self.public)
        nothing: list[Item | None] = [None] * self.shown.num_columns
        try:
            follower = Follower(self.released)
            sql = follower.follow(_qualified(self.outer, tables))
        except (SqlglotError, RecursionError):
            return _Followed("", nothing, chosen=False)
        known = len(follower.items) == self.shown.num_columns
        return _Followed(sql, follower.items if known else nothing, follower.chosen)

    def unknown(self) -> list[str]:
        """The columns whose error cannot be followed, by name."""
        pairs = zip(self.shown.column_names, self._followed.items, strict=True)
        return [name for name, item in pairs if item is None]

    def _known(self, holds: Callable[[Item], object]) -> tuple[str, ...]:
        pairs = zip(self.shown.column_names, self._followed.items, strict=True)
        return tuple(name for name, item in pairs if item is not None and holds(item))

    def noisy(self) -> tuple[str, ...]:
        """The columns that are made of released numbers, by name."""
        return self._known(lambda item: item.parts)

    def unsigned(self) -> tuple[str, ...]:
        """The columns that cannot be negative before noise, by name."""
        return self._known(lambda item: item.unsigned)

    def amounts(self) -> tuple[str, ...]:
        """Those of them that are counts, or sums from 0 on, by name."""
        return self._known(lambda item: item.amount)

    def lower(self) -> tuple[str, ...]:
        """The columns that may be far larger than their ± says, because of a cap."""
        return self._known(lambda item: item.parts and item.lower)

    def at(self, confidence: Number) -> list[HalfWidths | None]:
        """For each shown column: the half-width of each row, or None if it has no error bar.

        A row has None where its number has no bound, such as a ratio to what may be 0.
        """
        failure = failure_of(fraction(confidence, name="confidence"))
        if failure not in self._widths:
            self._widths[failure] = self._at(failure)
        return self._widths[failure]

    def _at(self, failure: Fraction) -> list[HalfWidths | None]:
        run = cache(self._run)  # by confidence

        def widths_of(item: Item, shown: pa.ChunkedArray) -> HalfWidths | None:
            if not item.parts:
                return None
            confidence = 1 - failure / len(item.parts)
            table = run(confidence)
            if table is None:
                return None
            return self._half_widths(item, shown, table, confidence)

        found: list[HalfWidths | None] = []
        for item, shown in zip(self._followed.items, self.shown.columns, strict=True):
            joint = None if item is None or item.joint is None else widths_of(item.joint, shown)
            found.append(joint if item is None or joint is not None else widths_of(item, shown))
        return found

    def _run(self, confidence: Fraction) -> pa.Table | None:
        """The rows again with their hidden columns; None if they are not the same rows."""
        tables = {name: _with_widths(block, confidence) for name, block in self.released.items()}
        if self.picked is not None:
            ((name, table),) = tables.items()
            return table.rename_columns([f"{name}.{column}" for column in table.column_names])
        try:
            table = run_outer(self._followed.sql, tables, self.public)
        except Unsupported:
            return None
        again = table.select(range(self.shown.num_columns)).rename_columns(self.shown.column_names)
        return table if again.equals(self.shown) else None

    def _half_widths(
        self, item: Item, shown: pa.ChunkedArray, table: pa.Table, confidence: Fraction
    ) -> HalfWidths:
        """Those of an item, from the ``table`` of rows with their hidden columns."""
        if item.own is not None:
            pairs = zip(shown.to_pylist(), table.column(item.own).to_pylist(), strict=True)
            return tuple(None if value is None else width for value, width in pairs)
        numbers = [table.column(leaf) for leaf in item.leaves if leaf not in item.sums]
        if any(pa.types.is_temporal(column.type) for column in (shown, *numbers)):
            return (None,) * len(shown)  # dates are not calculated with as numbers

        given: dict[str, Array] = {}

        @cache
        def rows_of(name: str) -> list[list[int]]:
            return [_rows_in(held) for held in table.column(name).to_pylist()]

        @cache
        def leaves(name: str) -> Array:
            if name in given:
                return given[name]
            if name not in item.sums:
                return _array(table.column(name))
            (block, column), texts = item.sums[name], table.column(name).to_pylist()
            known: dict[str | None, float | None] = {None: None}
            for text in set(texts) - {None}:  # the rows that a sum is over
                rows = {column: Counter(_rows_in(text))}
                known[text] = self.released[block].weighted(rows, confidence)
            return np.array([known[text] for text in texts], np.float64)  # None is NaN

        for name, form in item.forms.items():
            ends = form.ends(leaves, rows_of, len(shown), partial(self._weighted, confidence))
            given |= dict(zip(ends_of(name), ends, strict=True))

        with np.errstate(all="ignore"):
            low, high = item.ends(leaves)
            value = _array(shown)
            top = np.maximum(np.abs(low), np.abs(high))
            whole = (low % 1 == 0) & (high % 1 == 0) & (top < _WHOLE_MAX) & (shown.type == "int64")
            widths = np.maximum(np.maximum(value - low, high - value), 0.0)
            widths += np.where(whole, 0.0, _ROUNDING * top)  # whole: nothing was rounded
            if pa.types.is_integer(shown.type):
                widths = np.floor(widths)
        return tuple(_plain_width(float(width)) for width in widths)

    def _weighted(self, confidence: Fraction, weights: Weighed) -> float | None:
        """The half-width of a weighted sum over released tables; each has a part of the failure."""
        blocks: dict[str, dict[str, Mapping[int, float]]] = {}
        for (block, column), rows in weights.items():
            if rows:
                blocks.setdefault(block, {})[column] = rows
        level = 1 - (1 - confidence) / max(1, len(blocks))
        widths = [self.released[block].weighted(each, level) for block, each in blocks.items()]
        known = [width for width in widths if width is not None]
        return sum(known) if len(known) == len(widths) else None


def _array(column: pa.ChunkedArray) -> Array:
    array: Array = np.array(column.cast(pa.float64()).to_pylist(), np.float64)  # None is NaN
    return array


def _rows_in(held: str | int | None) -> list[int]:
    """Places of released rows, as a hidden column has them."""
    return [] if held is None else [int(row) for row in str(held).split(",")]


def _with_widths(block: ReleasedBlock, confidence: Fraction) -> pa.Table:
    """The released table with the half-widths of its noisy columns beside it."""
    table = block.table
    for name in block.noisy:
        given = block.half_widths(name, confidence)
        widths = [_plain_width(each) for each in ([None] * len(table) if given is None else given)]
        whole = all(width is None or isinstance(width, int) for width in widths)
        column = arrow_column(widths, pa.int64() if whole else pa.float64())
        table = table.append_column(width_of(name), column)
    return table.append_column(ROW, arrow_column(np.arange(len(table)), pa.int64()))


def _plain_width(width: float | None) -> float | int | None:
    if width is None or not np.isfinite(width):
        return None
    return int(width) if float(width).is_integer() and width < _WHOLE_MAX else float(width)


def _qualified(sql: str, tables: Mapping[str, pa.Table]) -> exp.Expr:
    """The statement with every star expanded and every column under its table's name."""
    schema: dict[str, object] = {
        name: dict.fromkeys(table.column_names, "TEXT") for name, table in tables.items()
    }
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    if is_plain(tree):
        return tree
    from sqlglot.optimizer.qualify import qualify  # noqa: PLC0415 - slow to load

    return qualify(tree, dialect="duckdb", schema=schema, validate_qualify_columns=False)
