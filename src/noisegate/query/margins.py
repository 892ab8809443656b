"""Error bars through the free SQL: how far each shown number may be off.

A released number carries a half-width. The outer SQL may filter, order, cut, join and calculate;
to follow it, the same statement is run once more with hidden columns: the released numbers that
each item is made of and their half-widths. Interval arithmetic on them gives the ends of the item.
Where it is made of k numbers, each half-width is taken at confidence 1 - (1 - c)/k, so all hold
together at c by the union bound, whatever their dependence. What is not plain arithmetic over one
row (windows, sums over released rows, CASE on noisy numbers) has no error bar: None.

The second run must show the same rows again, or no error bar is given at all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp
from sqlglot.errors import SqlglotError

from noisegate.arrow import arrow_column
from noisegate.errors import Unsupported
from noisegate.exact import Number, fraction
from noisegate.mechanisms.base import failure_of
from noisegate.query.intervals import KEEPING, TWO_SIDED, Array, Ends, rule_of
from noisegate.query.outer import run_outer

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot.optimizer.scope import Scope

HalfWidths: TypeAlias = tuple[float | int | None, ...]
Leaves: TypeAlias = Callable[[str], Array]
_ROUNDING: Final = 2.0**-44  # of the ends, added to calculated half-widths: they are doubles
_WHOLE_MAX: Final = 2.0**53
_CHOOSING: Final = ("WHERE", "HAVING", "QUALIFY", "LIMIT", "FETCH")
_FROM_ZERO: Final = (
    exp.Add, exp.Mul, exp.Div, exp.Greatest, exp.Least, exp.Paren, exp.Nullif, exp.Coalesce,
    exp.Cast, exp.Round, exp.Floor, exp.Ceil,
)  # of numbers from 0 on, they make such numbers  # fmt: skip
_MANY_ROWS: Final = (exp.Window, exp.AggFunc, exp.Query, exp.Subquery, exp.Star)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedBlock:
    """A released table, and the half-widths of its noisy columns at a confidence.

    ``table`` has the block's key columns and aggregates by their names. ``noisy`` are the
    aggregates; ``half_widths(name, confidence)`` gives one for each row, or None for a column
    that has none: in its own unit, of dates in days, of times in hours. ``unsigned`` are aggregates
    that cannot be negative before noise; ``amounts`` are those of them that count or add up, so
    that 0 means that nothing is there; ``lower`` are those of which a cap cuts off nobody knows
    how much.
    """

    table: "pa.Table"
    noisy: tuple[str, ...]
    half_widths: Callable[[str, Fraction], Sequence[float | int | None] | NDArray[Any] | None]
    unsigned: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    lower: frozenset[str] = frozenset()


@final
@dataclass(frozen=True, slots=True)
class _Item:
    """An item of a SELECT: how its ends follow from hidden columns of the same row.

    ``parts`` are the released numbers in it; without any it is exact. ``leaves`` are the hidden
    columns that it needs, as SQL by name. ``own`` is the half-width's column of an item that is a
    released number itself. ``unsigned``: it cannot be negative before noise. ``amount``: nor is it
    an average or a ratio, so that 0 means that nothing is there.
    """

    parts: frozenset[str]
    leaves: Mapping[str, str]
    ends: Callable[[Leaves], Ends]
    own: str | None = None
    unsigned: bool = False
    amount: bool = False


@final
@dataclass(frozen=True, slots=True)
class _Followed:
    """A statement with hidden columns, what it shows, and whether noisy numbers choose rows."""

    sql: str
    items: list[_Item | None]
    chosen: bool


@final
@dataclass
class Margins:
    """The error bars of what the outer SQL shows. ``shown`` is its result."""

    outer: str
    released: Mapping[str, ReleasedBlock]
    public: Mapping[str, "pa.Table"]
    shown: "pa.Table"
    _known: dict[Fraction, list[HalfWidths | None]] = field(default_factory=dict)

    @cached_property
    def chosen(self) -> bool:
        """Whether noisy numbers decide which rows are shown."""
        words = self.outer.upper()  # cheaper than to follow the statement, and never wrong
        return any(word in words for word in _CHOOSING) and self._followed.chosen

    @cached_property
    def _followed(self) -> "_Followed":
        tables = {name: block.table for name, block in self.released.items()} | dict(self.public)
        nothing: list[_Item | None] = [None] * self.shown.num_columns
        try:
            follower = _Follower(self.released)
            sql = follower.follow(_qualified(self.outer, tables))
        except (SqlglotError, RecursionError):
            return _Followed("", nothing, chosen=False)
        known = len(follower.items) == self.shown.num_columns
        return _Followed(sql, follower.items if known else nothing, follower.chosen)

    def unknown(self) -> list[str]:
        """The columns whose error cannot be followed, by name."""
        pairs = zip(self.shown.column_names, self._followed.items, strict=True)
        return [name for name, item in pairs if item is None]

    def noisy(self) -> tuple[str, ...]:
        """The columns that are made of released numbers, by name."""
        pairs = zip(self.shown.column_names, self._followed.items, strict=True)
        return tuple(name for name, item in pairs if item is not None and item.parts)

    def unsigned(self) -> tuple[str, ...]:
        """The columns that cannot be negative before noise, by name."""
        pairs = zip(self.shown.column_names, self._followed.items, strict=True)
        return tuple(name for name, item in pairs if item is not None and item.unsigned)

    def amounts(self) -> tuple[str, ...]:
        """Those of them that are counts, or sums from 0 on, by name."""
        pairs = zip(self.shown.column_names, self._followed.items, strict=True)
        return tuple(name for name, item in pairs if item is not None and item.amount)

    def lower(self) -> tuple[str, ...]:
        """Those of them that may be far larger than their ± says, because of a cap."""
        below = {name for block in self.released.values() for name in block.lower}
        pairs = zip(self.shown.column_names, self._followed.items, strict=True)
        return tuple(
            name
            for name, item in pairs
            if item is not None and item.amount and item.parts
            if {part.rpartition(".")[2] for part in item.parts} <= below
        )

    def at(self, confidence: Number) -> list[HalfWidths | None]:
        """For each shown column: the half-width of each row, or None if it has no error bar."""
        failure = failure_of(fraction(confidence, name="confidence"))
        if failure not in self._known:
            self._known[failure] = self._at(failure)
        return self._known[failure]

    def _at(self, failure: Fraction) -> list[HalfWidths | None]:
        found: list[HalfWidths | None] = [None] * self.shown.num_columns
        items = self._followed.items
        for count in {len(item.parts) for item in items if item is not None and item.parts}:
            table = self._run(1 - failure / count)
            if table is None:
                return [None] * self.shown.num_columns
            for place, item in enumerate(items):
                if item is not None and len(item.parts) == count:
                    widths = _half_widths(item, self.shown.column(place), table)
                    known = not widths or any(width is not None for width in widths)
                    found[place] = widths if known else None
        return found

    def _run(self, confidence: Fraction) -> "pa.Table | None":
        """The rows again with their hidden columns; None if they are not the same rows."""
        tables = {name: _with_widths(block, confidence) for name, block in self.released.items()}
        try:
            table = run_outer(self._followed.sql, tables, self.public)
        except Unsupported:
            return None
        again = table.select(range(self.shown.num_columns)).rename_columns(self.shown.column_names)
        return table if again.equals(self.shown) else None


def _half_widths(item: _Item, shown: "pa.ChunkedArray", table: "pa.Table") -> HalfWidths:
    if item.own is not None:
        pairs = zip(shown.to_pylist(), table.column(item.own).to_pylist(), strict=True)
        return tuple(None if value is None else width for value, width in pairs)
    if any(_is_time(column) for column in (shown, *map(table.column, item.leaves))):
        return (None,) * len(shown)  # dates are not calculated with as numbers
    with np.errstate(all="ignore"):
        low, high = item.ends(lambda name: _array(table.column(name)))
        value = _array(shown)
        largest = np.maximum(np.abs(low), np.abs(high))
        whole = (low % 1 == 0) & (high % 1 == 0) & (largest < _WHOLE_MAX) & (shown.type == "int64")
        widths = np.maximum(np.maximum(value - low, high - value), 0.0)
        widths += np.where(whole, 0.0, _ROUNDING * largest)  # whole: nothing was rounded
    return tuple(_plain_width(float(width)) for width in widths)


def _is_time(column: "pa.ChunkedArray") -> bool:
    import pyarrow as pa  # noqa: PLC0415

    return bool(pa.types.is_temporal(column.type))


def _array(column: "pa.ChunkedArray") -> Array:
    import pyarrow as pa  # noqa: PLC0415

    array: Array = np.array(column.cast(pa.float64()).to_pylist(), np.float64)  # None is NaN
    return array


def _with_widths(block: ReleasedBlock, confidence: Fraction) -> "pa.Table":
    """The released table with the half-widths of its noisy columns beside it."""
    import pyarrow as pa  # noqa: PLC0415

    table = block.table
    for name in block.noisy:
        given = block.half_widths(name, confidence)
        widths = [_plain_width(each) for each in ([None] * len(table) if given is None else given)]
        whole = all(width is None or isinstance(width, int) for width in widths)
        column = arrow_column(widths, pa.int64() if whole else pa.float64())
        table = table.append_column(_width(name), column)
    return table


def _plain_width(width: float | None) -> float | int | None:
    if width is None or not np.isfinite(width):
        return None
    return int(width) if float(width).is_integer() and width < _WHOLE_MAX else float(width)


def _width(name: str) -> str:
    return f"± {name}"


def _qualified(sql: str, tables: Mapping[str, "pa.Table"]) -> exp.Expr:
    """The statement with every star expanded and every column under its table's name."""
    schema: dict[str, object] = {
        name: dict.fromkeys(table.column_names, "TEXT") for name, table in tables.items()
    }
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    if _is_plain(tree):
        return tree
    from sqlglot.optimizer.qualify import qualify  # noqa: PLC0415 - slow to load

    return qualify(tree, dialect="duckdb", schema=schema, validate_qualify_columns=False)


def _is_plain(tree: exp.Expr) -> bool:
    """One SELECT from one table, whose columns all stand under its name, as most are."""
    if not isinstance(tree, exp.Select) or not isinstance(_from(tree), exp.Table):
        return False
    nested = (exp.Query, exp.Join, exp.Star, exp.With, exp.Lateral, exp.Pivot)
    inside = (node for node in tree.walk() if node is not tree)
    return not any(
        isinstance(node, nested) or (isinstance(node, exp.Column) and not node.table)
        for node in inside
    )


def _from(select: exp.Select) -> exp.Expr | None:
    clause = select.args.get("from_")
    return clause.this if isinstance(clause, exp.From) else None


def _scopes(tree: exp.Expr) -> "list[Scope | _Whole]":
    from sqlglot.optimizer.scope import traverse_scope  # noqa: PLC0415 - slow to load

    return list(traverse_scope(tree))


@final
class _Whole:
    """The scope of a plain statement: all of it."""

    is_cte = is_derived_table = False

    def __init__(self, tree: exp.Expr) -> None:
        table = tree.args["from_"].this
        self.expression, self.sources = tree, {table.alias_or_name: table}


@final
class _Follower:
    """Walks a statement from the inside out and adds the hidden columns as it goes."""

    def __init__(self, released: Mapping[str, ReleasedBlock]) -> None:
        self._released = released
        self._given: dict[int, dict[str, _Item]] = {}  # the followed items of each inner SELECT
        self.items: list[_Item | None] = []
        self.chosen = False

    def follow(self, tree: exp.Expr) -> str:
        """The statement with hidden columns; ``items`` are those of what it shows."""
        scopes = [_Whole(tree)] if _is_plain(tree) else _scopes(tree)
        for scope in scopes:
            select, is_top = scope.expression, scope is scopes[-1]
            if not isinstance(select, exp.Select):
                continue
            single = _is_row_by_row(select) and (is_top or scope.is_cte or scope.is_derived_table)
            shown = select.expressions
            items = [self._item(each.unalias(), scope) if single else None for each in shown]
            pairs = zip((each.alias_or_name for each in shown), items, strict=True)
            given = {name: item for name, item in pairs if item is not None}
            self._look_for_choice(select, scope, given)
            self._given[id(scope)] = given
            self.items = items if is_top else []
            _append(select, items)
        return tree.sql(dialect="duckdb")

    def _look_for_choice(
        self, select: exp.Select, scope: "Scope | _Whole", given: Mapping[str, _Item]
    ) -> None:
        """Notice where noisy numbers decide which rows are shown."""
        deciding = [select.args.get(name) for name in ("where", "having", "qualify")]
        if select.args.get("limit") is not None:
            deciding.append(select.args.get("order"))
        for clause in filter(None, deciding):
            for column in clause.find_all(exp.Column):
                if column.table in scope.sources or not column.table:
                    item = self._column(column, scope) if column.table else given.get(column.name)
                    self.chosen |= item is None or bool(item.parts)

    def _item(self, node: exp.Expr, scope: "Scope | _Whole") -> _Item | None:
        """How the ends of an expression follow; None if they do not."""
        if isinstance(node, exp.Column):
            return self._column(node, scope)
        inner = [self._item(each, scope) for each in _operands(node)]
        known = [each for each in inner if each is not None]
        if len(known) < len(inner) or isinstance(node, _MANY_ROWS):
            return None
        if not any(each.parts for each in known):
            return _exact(node)
        rule = rule_of(node)
        if rule is None or (not isinstance(node, TWO_SIDED) and any(e.parts for e in known[1:])):
            return None
        return _Item(
            frozenset[str]().union(*(each.parts for each in known)),
            {name: sql for each in known for name, sql in each.leaves.items()},
            lambda leaves: rule(*(each.ends(leaves) for each in known)),
            known[0].own if isinstance(node, KEEPING) else None,
            isinstance(node, exp.Abs)
            or (isinstance(node, _FROM_ZERO) and all(each.unsigned for each in known)),
            isinstance(node, _FROM_ZERO)
            and all(each.amount for each in known)
            and not (isinstance(node, exp.Div) and known[1].parts),
        )

    def _column(self, column: exp.Column, scope: "Scope | _Whole") -> _Item | None:
        source, name, alias = scope.sources.get(column.table), column.name, column.table
        if not isinstance(source, exp.Table):  # an inner SELECT, if it is known
            given = self._given.get(id(source), {}).get(name)
            return None if given is None else _through(given, column)
        block = self._released.get(source.name)
        if block is None or name not in block.noisy:
            return _exact(column)
        value, width = f"{alias}.{name}", f"{alias}.{_width(name)}"
        return _Item(
            frozenset({value}),
            {value: _sql(alias, name), width: _sql(alias, _width(name))},
            lambda leaves: (leaves(value) - leaves(width), leaves(value) + leaves(width)),
            width,
            name in block.unsigned,
            name in block.amounts,
        )


def _exact(node: exp.Expr) -> _Item:
    """A value without noise: both ends are itself."""
    sql = node.sql(dialect="duckdb")
    leaf = f"TRY_CAST({sql} AS DOUBLE)"
    ends: Callable[[Leaves], Ends] = lambda leaves: (leaves(leaf), leaves(leaf))  # noqa: E731
    number = isinstance(node, exp.Literal) and not node.is_string
    return _Item(frozenset(), {leaf: leaf}, ends, unsigned=number, amount=number)


def _through(given: _Item, column: exp.Column) -> _Item:
    """An item of an inner SELECT, seen through the alias that the SELECT has outside."""
    if not given.parts:
        return _exact(column)
    alias = column.table
    return _Item(
        frozenset(f"{alias}.{part}" for part in given.parts),
        {f"{alias}.{leaf}": _sql(alias, leaf) for leaf in given.leaves},
        lambda leaves: given.ends(lambda leaf: leaves(f"{alias}.{leaf}")),
        given.own and f"{alias}.{given.own}",
        given.unsigned,
        given.amount,
    )


def _sql(table: str, name: str) -> str:
    return exp.column(name, table=table, quoted=True).sql(dialect="duckdb")


def _append(select: exp.Select, items: Iterable[_Item | None]) -> None:
    """Add the hidden columns that the items need."""
    noisy = [item for item in items if item is not None and item.parts]
    for name, sql in {leaf: sql for item in noisy for leaf, sql in item.leaves.items()}.items():
        leaf = sqlglot.parse_one(sql, dialect="duckdb")
        select.append("expressions", exp.alias_(leaf, name, quoted=True))


def _is_row_by_row(select: exp.Select) -> bool:
    """Whether every row of the SELECT comes from one row of its FROM."""
    if any(select.args.get(name) for name in ("group", "distinct", "having", "pivots")):
        return False
    sums = (each for item in select.expressions for each in item.find_all(exp.AggFunc))
    return all(each.find_ancestor(exp.Window, exp.Select) is not select for each in sums)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The parts of an expression that have values."""
    return [
        each for each in node.iter_expressions() if not isinstance(each, exp.DataType | exp.Var)
    ]
