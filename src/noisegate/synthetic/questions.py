"""Counting questions in SQL as sets of cells: what a WHERE says of each cell of a declared grid.

A question is ``SELECT COUNT(*) FROM t WHERE …`` with comparisons, BETWEEN, IN, IS NULL, AND, OR and
NOT. A cell must lie wholly inside it or wholly outside: what would cut a bin is refused, with the
fix. Truth has SQL's three values, here 2 (true), 1 (unknown) and 0 (false).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from math import prod
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Field, Literal, fields_of
from noisegate.algebra.relation import Relation, Table
from noisegate.curator.partition import PartTables
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Column, Kind, TableDomain, ordinal
from noisegate.releases.cells.axes import Axis, after, require_names
from noisegate.releases.cells.grid import Grid, grid_of, sql_of
from noisegate.sql.reading.reader import read
from noisegate.sql.spelling import quoted, table_named
from noisegate.synthetic.counting import FORM, TURNED, columns_for, read_count
from noisegate.synthetic.units import units_grid, units_in
from noisegate.transforms.strategy import Matrix

Truth: TypeAlias = NDArray[np.int8]
Mask: TypeAlias = NDArray[np.bool_]

OTHER: Final = "(other)"  # the key of texts that are not declared
ENTRIES_MAX: Final = 1 << 26  # cells of all questions together
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge,
}  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class _Span:
    """All values of a bin: from ``low`` to ``high``; ``high`` itself if ``closed``."""

    low: Fraction
    high: Fraction
    closed: bool
    whole: bool

    def compare(self, function: str, value: Fraction) -> bool | None:
        """Whether it is true of all values, or of none; None: of some."""
        if self.low > self.high:  # no value is here
            return False
        if function in ("gt", "ge", "ne"):
            found = self.compare({"gt": "le", "ge": "lt", "ne": "eq"}[function], value)
            return None if found is None else not found
        ends = self.high < value or (self.high == value and not self.closed)
        if function == "lt":
            return True if ends else False if self.low >= value else None
        if function == "le":
            return True if self.high <= value else False if self.low > value else None
        if self.low == self.high == value:
            return True
        outside = value < self.low or ends or (self.whole and value.denominator != 1)
        return False if outside else None


@final
class CountingGrid:
    """A grid, and what questions say about its cells.

    Rows with another value than the declared ones are in a cell of their own where ``others`` has a
    key for it, by axes; of an ``unlisted`` axis they are in no cell. Of cells of ``units``, each
    axis says whether a unit has one of these rows (`units.py`).
    """

    def __init__(
        self,
        grid: Grid,
        tables: Mapping[str, TableDomain],
        unlisted: Sequence[str] = (),
        others: Mapping[str, Any] = MappingProxyType({}),
        units: Sequence[Relation] | None = None,
        read_: dict[str, Expression | None] | None = None,
    ) -> None:
        self._read = {} if read_ is None else read_
        self._spans: dict[tuple[int, int], _Span] = {}
        self.grid, self._tables, self._unlisted = grid, tables, unlisted
        self._others, self._units = others, units
        self._expressions = [grouping.expression for grouping in grid.query.tally.by]  # type: ignore[union-attr]
        self._known: dict[tuple[str, Expression, Any], Truth] = {}
        self._masks: dict[str, Mask] = {}
        self._room = ENTRIES_MAX  # for masks that are kept

    def sampled(self, probability: Fraction | None) -> "CountingGrid":
        """The same of a secret sample, if there is one."""
        grid = self.grid.sampled(probability)
        more = self._units, self._read
        return CountingGrid(grid, self._tables, self._unlisted, self._others, *more)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return prod(self.grid.shape)

    def mask(self, sql: str) -> Mask:
        """Which cells a question counts, flat."""
        if sql not in self._masks:
            mask = (
                self.where(self._condition(sql))
                if self._units is None
                else self._of_units(sql, self._units)
            )
            if self._room < mask.size:
                return mask
            self._masks[sql], self._room = mask, self._room - mask.size
        return self._masks[sql]

    def _condition(self, sql: str) -> Expression | None:
        """What a question says of rows; each text is read once."""
        if sql not in self._read:
            self._read[sql] = _condition(sql, self._tables, self._table)
        return self._read[sql]

    @property
    def _table(self) -> TableDomain:
        """The table whose rows the cells hold, or a part of them."""
        rows = self.grid.query.tally.relation
        while type(rows) is not Table:
            rows = rows.of  # type: ignore[union-attr]  # `sql_of` has one table
        return rows.domain

    def _of_units(self, sql: str, units: Sequence[Relation]) -> Mask:
        """The cells of units that have one of the question's rows."""
        asked = units_in(sql, self._tables)
        if asked is not None and asked.condition is None:
            return np.ones(self.cells, np.bool_)  # any row at all
        for place, rows in enumerate(units):
            if asked is not None and asked.rows == rows:
                met = np.array([key == 1 for key in self.grid.axes[place].keys])
                met = met.reshape([-1 if at == place else 1 for at in range(len(units))])
                return np.broadcast_to(met, self.grid.shape).reshape(-1)
        raise Unsupported(
            "The cells are those of units, and this condition on their rows is not listed.",
            fix="List each question as it is asked in workload.",
            about="units",
        )

    def where(self, condition: Expression | None) -> Mask:
        """Which cells a condition is true of, flat."""
        truth = self._truth(condition)
        return np.broadcast_to(truth == 2, self.grid.shape).reshape(-1)

    def box(self, where: Mapping[str, Any]) -> Mask:
        """The same without SQL, as `TableRelease.query` is asked: keys, lists, pairs by axis."""
        axes = self.grid.axes
        require_names(axes, where)
        found = np.ones((1,) * len(axes), np.bool_)
        for place, axis in enumerate(axes):
            if axis.name in where:
                inside = np.zeros(axis.size, np.bool_)
                for low, high in axis.runs(where[axis.name]):
                    inside[low : high + 1] = True
                shape = [1] * len(axes)
                shape[place] = axis.size
                found = found & inside.reshape(shape)
        return np.broadcast_to(found, self.grid.shape).reshape(-1)

    def block(self, questions: Sequence[str]) -> Matrix:
        """All questions as 0/1 rows over the cells, but those that count no cell: they are 0."""
        masks = [self.mask(sql) for sql in questions]
        return matrix_of([mask for mask in masks if mask.any()], self.cells)

    def _truth(self, condition: Expression | None) -> Truth:
        if condition is None:
            return np.full((1,) * len(self.grid.axes), 2, np.int8)
        if type(condition) is Call and condition.function in ("and", "or"):
            combine = np.minimum if condition.function == "and" else np.maximum
            found = self._truth(condition.args[0])
            for each in condition.args[1:]:
                found = combine(found, self._truth(each))
            return found
        if type(condition) is Call and condition.function == "not":
            return np.int8(2) - self._truth(condition.args[0])
        if type(condition) is Call and condition.function == "is_true":
            return np.where(self._truth(condition.args[0]) == 2, np.int8(2), np.int8(0))
        if type(condition) is Literal and isinstance(condition.value, bool | None):
            at = {True: 2, None: 1, False: 0}[condition.value]
            return np.full((1,) * len(self.grid.axes), at, np.int8)
        return self._atom(condition)

    def _atom(self, condition: Expression) -> Truth:
        """A comparison of one column with constants."""
        if type(condition) is not Call:  # a boolean column
            return self._compared("eq", condition, value=True)
        function, (first, *others) = condition.function, condition.args
        if function == "is_null":
            return self._compared("is_null", first, None)
        if function in _COMPARE and type(first) is Literal and len(others) == 1:
            function, first, others = TURNED[function], others[0], [first]
        if function not in ("between", "in", *_COMPARE) or any(
            type(each) is not Literal for each in others
        ):
            raise Unsupported(
                "A condition is not a comparison of a column with constants.", fix=FORM
            )
        values = [each.value for each in others if type(each) is Literal]
        if function == "between":
            low = self._compared("ge", first, values[0])
            return np.minimum(low, self._compared("le", first, values[1]))
        if function == "in":
            found = [self._compared("eq", first, value) for value in values]
            return np.max(np.stack(found), axis=0)  # type: ignore[no-any-return]
        return self._compared(function, first, values[0])

    def _compared(self, function: str, expression: Expression, value: Any) -> Truth:  # noqa: ANN401
        key = function, expression, (type(value), value)
        if key not in self._known:
            place = self._axis(expression)
            axis = self.grid.axes[place]
            if function == "is_null" or (function in ("eq", "ne") and value is not None):
                self._require_listed(axis, value)
            found = np.array(
                [self._at(place, at, function, expression, value) for at in range(axis.size)],
                np.int8,
            )
            shape = [1] * len(self.grid.axes)
            shape[place] = axis.size
            self._known[key] = found.reshape(shape)
        return self._known[key]

    def _require_listed(self, axis: Axis, value: Any) -> None:  # noqa: ANN401 - a constant
        """Refuse to count rows that may be there, but in no cell, or in one with others."""
        listed = [key for key in axis.keys if key != self._others.get(axis.name, axis)]
        known = value in listed or axis.ends is not None
        if isinstance(self._tables, PartTables):  # a declared key that no row of a part can have
            known = known or value in (self._table.columns[axis.name].keys or ())
        if not known and axis.name in (*self._unlisted, *self._others):
            shown = "NULL" if value is None else repr(value)
            raise Unsupported(
                f"{shown} is not a declared value of {axis.name!r}, so its rows have no cell of "
                "their own.",
                fix="Declare it, or ask for this count separately, in plain SQL.",
                about="value",
            )

    def _axis(self, expression: Expression) -> int:
        for place, known in enumerate(self._expressions):
            if expression == known or (
                type(expression) is Field and set(fields_of(known)) == {expression.name}
            ):
                return place
        names = ", ".join(dict.fromkeys(fields_of(expression))) or "a constant"
        there = ", ".join(axis.name for axis in self.grid.axes)
        raise Unsupported(
            f"The grid has no axis for a condition on {names}.",
            fix=f"Add the column to columns; there are {there}.",
        )

    def _at(self, place: int, at: int, function: str, expression: Expression, value: Any) -> int:  # noqa: ANN401
        axis, known = self.grid.axes[place], self._expressions[place]
        key = axis.keys[at]
        if function == "is_null":
            return 2 if key is None else 0
        if key is None or value is None:
            return 1
        if axis.name in self._others and key == self._others[axis.name]:
            if function not in ("eq", "ne"):
                raise Unsupported(
                    f"Values of {axis.name!r} that are not declared may lie on either side.",
                    fix="Compare with =, <> or IN.",
                    about="value",
                )
            return 2 if function == "ne" else 0  # only declared values get here
        binned = type(known) is Call and known.function == "bin"  # then keys are what BIN gives
        exact = axis.name in self._others or (expression == known and (axis.ends is None or binned))
        try:
            if exact:
                one, other = _alike(key, value)
                return 2 if _COMPARE[function](one, other) else 0
            if (place, at) not in self._spans:
                self._spans[place, at] = self._span(axis, known, at)
            span = self._spans[place, at]
            found = span.compare(function, ordinal(_alike(key, value)[1]))
        except (TypeError, SpecError):
            raise Unsupported(
                f"{axis.name!r} is compared with a value of another type.",
                fix="Compare values of the same type.",
            ) from None
        if found is None:
            real = axis.ends is not None and not axis.whole
            hint = "; for numbers that are not integers only < and >=" if real else ""
            raise SpecError(
                f"{value} is inside a bin of {axis.name!r}, {axis.labels[at]}.",
                fix=f"Use finer bins of {axis.name!r}, or edges at {value}{hint}.",
                about="bin",
            )
        return 2 if found else 0

    def _span(self, axis: Axis, expression: Expression, at: int) -> _Span:
        """The values of a bin, or of a stretch of time."""
        last = at == len(axis.present) - 1
        if axis.ends is not None:
            low, high = Fraction(axis.present[at]), Fraction(axis.ends[at])
            low = axis.low if at == 0 and axis.low is not None else low
            if axis.high is not None and (last or axis.high < high):
                return _Span(low, axis.high, closed=True, whole=axis.whole)
            closed = axis.whole
            return _Span(low, high - 1 if closed else high, closed=closed, whole=axis.whole)
        if type(expression) is Call and expression.function == "date_trunc":
            unit, key = expression.args[0], axis.present[at]
            assert type(unit) is Literal  # noqa: S101 - a constant by its rule
            high = ordinal(after(key, str(unit.value)))
            return _Span(ordinal(key), high - 1, closed=True, whole=True)
        raise Unsupported(
            f"The groups of {axis.name!r} cannot answer this comparison.",
            fix=f"Ask for the groups themselves, or group by the column {axis.name!r}.",
        )


def matrix_of(masks: Sequence[Mask], cells: int) -> Matrix:
    """Sets of cells as the rows of a 0/1 matrix."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to load

    if not masks:
        raise SpecError("None of the questions counts any cell.", fix=FORM, about="no-cell")
    places = [np.flatnonzero(mask) for mask in masks]
    starts = np.cumsum([0, *(each.size for each in places)])
    if starts[-1] > ENTRIES_MAX:
        raise SpecError(
            f"The questions cover more than {ENTRIES_MAX:,} cells in total.",
            fix="Ask fewer or smaller ones, or use wider bins.",
        )
    ones = np.ones(starts[-1], np.int64)
    return Matrix(csr_array((ones, np.concatenate(places), starts), shape=(len(masks), cells)))


def counting_grid(  # noqa: PLR0913 - what is said of cells
    tables: Mapping[str, TableDomain],
    *,
    table: str | None = None,
    columns: Mapping[str, Any] | None = None,
    questions: Sequence[str] = (),
    rows_per_unit: int | None = None,
    whole: bool = True,
    read_: dict[str, Expression | None] | None = None,
) -> CountingGrid:
    """The grid of some columns, or the smallest grid that can express the questions.

    ``whole``: rows with texts that are not declared have a cell too. ``read_`` are conditions of
    questions about the same tables that were read before, and holds those that are read here.

    A count has no groups, so that the rows of a unit are capped, and not its cells. Whatever of the
    questions the grid cannot express is refused.
    """
    if columns is None and (of_units := units_grid(tables, questions)) is not None:
        found = CountingGrid(of_units[0], tables, units=of_units[1])
        for each in questions:
            found.mask(each)
        return found
    if columns is None:
        table, columns = columns_for(tables, questions)
    domain = tables[table_named(tables, table)]
    others = {
        name: other
        for name, how in columns.items()
        if whole and how is None and (other := _other(domain.columns.get(name))) is not None
    }
    spelled = {name: _with_others(domain.columns[name], other) for name, other in others.items()}
    sql, edges = sql_of(tables, table, columns, spelled=spelled)
    terms = Terms(rows_per_unit=rows_per_unit)
    grid = grid_of(read(sql, tables), sql, terms, edges=edges, by_groups=False)
    named = zip(grid.axes, columns, strict=True)
    axes = [replace(axis, name=name) if name in others else axis for axis, name in named]
    grid = replace(grid, axes=tuple(axes))
    unlisted = [
        axis.name
        for axis, name in zip(grid.axes, columns, strict=True)
        if name not in others and _may_be_unlisted(domain.columns[name])
    ]
    if unlisted:
        names = " or ".join(unlisted)
        words = f"Rows whose {names} is not a declared value are in no cell and not counted."
        grid = replace(grid, caveats=(words, *grid.caveats))
    found = CountingGrid(grid, tables, unlisted, others, read_=read_)
    for each in questions:
        found.mask(each)
    return found


def _other(column: Column | None) -> str | None:
    """The key of the cell of all values that are not declared: of texts, which have no order here.

    It is none of the declared ones: a row that holds just that value is undeclared as well.
    """
    if column is None or column.keys is None or column.kind is not Kind.TEXT:
        return None
    found = OTHER
    while found in column.keys:
        found = f"({found})"
    return found


def _with_others(column: Column, other: str) -> str:
    """Declared keys, all others together, and NULL: as groups in SQL."""
    called = quoted(column.name)
    listed = ", ".join(map(_constant, column.keys or ()))
    return (
        f"CASE WHEN {called} IN ({listed}) THEN {called} "
        f"WHEN {called} IS NOT NULL THEN {_constant(other)} END"
    )


def _constant(key: object) -> str:
    text = str(key).replace("'", "''")
    return f"'{text}'"


def _may_be_unlisted(column: Column) -> bool:
    """Whether rows may have another value than is declared; numbers and dates are clamped."""
    return not column.nullable or (column.keys is not None and column.kind is not Kind.BOOLEAN)


# reading


def _condition(
    sql: str, tables: Mapping[str, TableDomain], wanted: TableDomain
) -> Expression | None:
    rows, condition = read_count(sql, tables)
    if rows.domain != wanted:
        raise Unsupported(
            "The question is about another table.", fix="Ask about the table of the grid."
        )
    return condition


def _alike(key: Any, value: Any) -> tuple[Any, Any]:  # noqa: ANN401 - a key and a constant
    """Both of one type; a boolean is not a number, and a date is the midnight it begins with."""
    if isinstance(key, bool) != isinstance(value, bool):
        raise TypeError
    if isinstance(key, datetime) and type(value) is date:
        return key, datetime.combine(value, datetime.min.time())
    if type(key) is date and isinstance(value, datetime):
        if value.time() != datetime.min.time():
            raise TypeError
        return key, value.date()
    return key, value
