"""Columns of private rows, as a learner takes them: a handle, not the rows.

    gate.matrix("patients", ["age", "bmi"], target="sick")
    gate.matrix("patients", ["age", "LN(cost)", "ward"], where="age >= 18")

Numbers need declared bounds: they are measured from the middle of them. A column of declared keys
becomes one column of 0 and 1 for each key, or, for learners that can use it, the number of its key.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Literal, domain_of
from noisegate.algebra.relation import Relation
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Grouping, Rows, Term
from noisegate.curator.curator import Curator
from noisegate.desk.desk import Desk
from noisegate.desk.terms.rules import Rules
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Column, Key, Kind, TableDomain
from noisegate.sql.bounds.limits import caps_of
from noisegate.sql.reading.reader import read
from noisegate.sql.spelling import quoted, without_null
from noisegate.transforms.stability import stability_of

_AT_ONCE: Final = 40  # columns read in one statement
_KEYS_MAX: Final = 256


@final
@dataclass(frozen=True, slots=True)
class Coordinate:
    """One number of each row and the bounds that hold for it.

    ``key``: it is 1 for this key of its column, else 0. ``keys``: it is the place of the column's
    key among them.
    """

    name: str
    expression: Expression
    low: Fraction
    high: Fraction
    column: str
    key: Key | None = None
    keys: tuple[Key, ...] = ()

    @property
    def middle(self) -> Fraction:
        """Where 0 is on the grid."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> Fraction:
        """How far the bounds are from the middle."""
        return (self.high - self.low) / 2

    def of(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """A column of given rows from -1 to 1; a key that is not listed counts as the first."""
        if self.key is not None:
            values = np.asarray(values == self.key, np.float64)
        elif self.keys:
            order = {key: place for place, key in enumerate(self.keys)}
            values = np.array([order.get(value, 0) for value in values.tolist()], np.float64)
        return (values.astype(np.float64) - float(self.middle)) / float(self.half)

    def term(self, reach: int) -> Term:
        """The number as whole steps from the middle."""
        value = self.expression
        if self.middle:
            value = Call("subtract", (value, Literal(self.middle)))
        return Term(expression=value, grain=self.half / reach, low=-reach, high=reach)


@final
@dataclass(frozen=True, slots=True)
class _Spelt:
    """A coordinate in SQL."""

    column: str
    sql: str
    key: Key | None = None
    keys: tuple[Key, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Classes:
    """What is to be told: an expression and its declared keys."""

    name: str
    expression: Expression
    keys: tuple[Key, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Made by `Gate.matrix`.

    ``marks`` are its coordinates with a column of 0 and 1 for each key; ``codes`` are the same with
    the numbers of the keys instead.
    """

    curator: Curator
    rules: Rules
    table: str
    where: str | None
    relation: Relation
    marks: tuple[Coordinate, ...]
    codes: tuple[Coordinate, ...]
    number: Coordinate | None
    classes: Classes | None
    rows_per_unit: int | None

    @property
    def desk(self) -> Desk:
        """Where jobs about it are planned and run."""
        return Desk(self.curator, self.rules)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns as they were named."""
        return tuple(dict.fromkeys(each.column for each in self.codes))

    @property
    def domains(self) -> tuple[TableDomain, ...]:
        """The tables that it reads."""
        return stability_of(self.relation).tables

    def coordinates(self, *, codes: bool = False) -> tuple[Coordinate, ...]:
        """The numbers that a learner works with."""
        return self.codes if codes else self.marks

    def rows(self, reach: int, *, codes: bool = False, number: bool = False) -> Rows:
        """The rows as the door is asked for them: whole coordinates, and the class if there is one.

        With ``number`` the target is the last coordinate instead.
        """
        held = self.coordinates(codes=codes)
        if number:
            if self.number is None:
                raise SpecError("The target is not numeric.", fix="Name a target with bounds.")
            held = (*held, self.number)
        by: tuple[Grouping, ...] = ()
        if self.classes is not None and not number:
            told = self.classes
            by = (Grouping(name="class", expression=told.expression, keys=told.keys),)
        return Rows(
            relation=self.relation,
            by=by,
            terms=tuple(each.term(reach) for each in held),
            rows_per_unit=self.rows_per_unit,
        )

    def __repr__(self) -> str:
        target = self.classes or self.number
        told = f" telling {target.name!r}" if target is not None else ""
        names = ", ".join(self.columns)
        return f"<Matrix of {self.table!r}: {names}{told}; a handle, no rows>"


class Handles(Protocol):
    """What gives them: a gate."""

    def matrix(self, table: str | None, columns: Sequence[str], **terms: Any) -> Matrix:  # noqa: ANN401
        """Columns of private rows."""


def matrix_of(  # noqa: PLR0913 - each is a choice of the analyst
    curator: Curator,
    rules: Rules,
    table: str | None,
    columns: Sequence[str] | None,
    *,
    target: str | None = None,
    where: str | None = None,
    rows_per_unit: int | None = None,
) -> Matrix:
    """The handle for these columns, or a refusal that says what is missing. Reads no row."""
    name, domain = _table(curator.tables, table)
    if isinstance(columns, str):
        raise SpecError(
            "columns is a single string.", fix='Give a list, such as ["age", "bmi"].', about="text"
        )
    wanted = list(columns) if columns is not None else _usable(domain, target)
    if not wanted or len(set(wanted)) < len(wanted) or target in wanted:
        raise SpecError(
            "There are no columns, or one is named twice.",
            fix="List each once, apart from target.",
            about="columns",
        )
    read_rows = _Reader(curator.tables, name, where)
    marks: list[_Spelt] = []
    codes: list[_Spelt] = []
    for column in wanted:
        declared = domain.columns.get(column)
        if declared is not None and declared.kind is Kind.TEXT and declared.keys is None:
            raise Unsupported(
                f"{column!r} is text, and its keys are not declared.",
                fix="Declare them, in = [...] or references (--keys), or leave it out.",
                about="keys",
            )
        if declared is None or declared.keys is None or declared.kind.is_numeric:
            spelt = _Spelt(column, _number(column, declared))
            codes.append(spelt)
            marks.append(spelt)
        else:
            keys = _few(declared)
            codes.append(_Spelt(column, _code(column, keys), keys=keys))
            marks += [_Spelt(column, _mark(column, key), key) for key in keys]
    number, classes = _target(read_rows, domain, target)
    found_marks = tuple(read_rows.coordinates(marks))
    found_codes = found_marks if codes == marks else tuple(read_rows.coordinates(codes))
    return Matrix(
        curator=curator,
        rules=rules,
        table=name,
        where=where,
        relation=read_rows.relation,
        marks=found_marks,
        codes=found_codes,
        number=number,
        classes=classes,
        rows_per_unit=read_rows.cap(rows_per_unit),
    )


@final
class _Reader:
    """Reads expressions about the rows of one table, as the SQL of a question would be read."""

    def __init__(self, tables: Mapping[str, TableDomain], table: str, where: str | None) -> None:
        self._tables, self._table = tables, table
        self._where = f" WHERE {where}" if where else ""
        self._block = self._read("COUNT(*)")
        self.relation = self._block.relation

    def _read(self, items: str) -> Any:  # noqa: ANN401 - a Block
        found = read(f"SELECT {items} FROM {quoted(self._table)}{self._where}", self._tables)  # noqa: S608 - read, not run
        return found.blocks[0]

    def cap(self, rows_per_unit: int | None) -> int | None:
        """How many rows of one unit count; None where every row is one."""
        if stability_of(self.relation).is_row_level:
            return None
        return caps_of(self._block, Terms(rows_per_unit=rows_per_unit)).rows_per_unit

    def keys(self, expression: str) -> tuple[Expression, tuple[Key, ...] | None]:
        """An expression and its declared keys."""
        rows = f"{quoted(self._table)}{self._where}"
        text = f"SELECT {expression}, COUNT(*) FROM {rows} GROUP BY 1"  # noqa: S608 - read, not run
        (key,) = read(text, self._tables).blocks[0].by
        return key.expression, key.domain.keys

    def coordinates(self, spelt: Sequence[_Spelt]) -> Iterator[Coordinate]:
        """Numbers with their bounds."""
        schema = schema_of(self.relation)
        for start in range(0, len(spelt), _AT_ONCE):
            part = spelt[start : start + _AT_ONCE]
            items = ", ".join(f"SUM({each.sql}) AS c{place}" for place, each in enumerate(part))
            for each, found in zip(part, self._read(items).aggregates, strict=True):
                (expression,) = found.args
                domain = domain_of(expression, schema)
                low, high = domain.low, domain.high
                if each.keys is not None and low is not None and low == high:
                    raise Unsupported(
                        f"{each.column} has one declared key: it tells nothing.",
                        fix="Leave the column out.",
                        about="one-key",
                    )
                if low is None or high is None or low == high:
                    raise Unsupported(
                        f"{each.column} has no bounds that hold for every row.",
                        fix="Declare `between`, or clamp it: LEAST(GREATEST(x, 0), 100).",
                        about="bounds",
                    )
                name = each.column if each.key is None else f"{each.column}={each.key}"
                yield Coordinate(name, expression, low, high, each.column, each.key, each.keys)


def _target(
    rows: _Reader, domain: TableDomain, target: str | None
) -> tuple[Coordinate | None, Classes | None]:
    """What is to be learnt: a number with bounds, or one of several declared keys."""
    if target is None:
        return None, None
    declared = domain.columns.get(target)
    spelt, number = _number(target, declared), None
    if declared is None or declared.kind.is_numeric or declared.kind is Kind.BOOLEAN:
        with suppress(Unsupported):
            (number,) = rows.coordinates([_Spelt(target, spelt)])
    is_flag = declared is not None and declared.kind is Kind.BOOLEAN
    asked = spelt if declared is None or is_flag else quoted(target)
    classes = None
    with suppress(Unsupported):  # what makes no groups has no classes
        expression, listed = rows.keys(asked)
        keys = (0, 1) if is_flag else listed
        if keys is not None and len(keys) <= _KEYS_MAX:
            classes = Classes(target, expression, tuple(key for key in keys if key is not None))
    if number is None and classes is None:
        raise SpecError(
            f"{target} has neither declared keys nor bounds.",
            fix='Declare it: {"in": [...]} for classes, {"between": [...]} for a number.',
            about="target",
        )
    return number, classes


def _table(tables: Mapping[str, TableDomain], table: str | None) -> tuple[str, TableDomain]:
    private = [name for name, domain in tables.items() if domain.unit is not None]
    if table is None and len(private) == 1:
        table = private[0]
    if table not in private:
        raise SpecError(
            "The table is missing or not private.", fix=f"Use {', '.join(private)}.", about="table"
        )
    return table, tables[table]


def _usable(domain: TableDomain, target: str | None) -> list[str]:
    """All columns that a learner can use as declared."""
    unit = None if domain.unit is None else domain.unit.column
    return [
        name
        for name, column in domain.columns.items()
        if name not in (unit, target)
        and not column.hidden
        and (column.between is not None or column.keys is not None or column.kind is Kind.BOOLEAN)
    ]


def _number(column: str, declared: Column | None) -> str:
    """A column as a number: a flag as 0 or 1, whole keys within the least and the largest."""
    if declared is None:
        return column
    if declared.kind is Kind.BOOLEAN:
        return f"CASE WHEN {quoted(column)} THEN 1 ELSE 0 END"
    keys = [key for key in declared.keys or () if isinstance(key, int)]
    if declared.kind.is_numeric and keys:
        held = f"LEAST(GREATEST({quoted(column)}, {min(keys)}), {max(keys)})"
        return without_null(quoted(column), held, declared)
    return quoted(column)


def _few(column: Column) -> tuple[Key, ...]:
    keys = tuple(key for key in column.keys or () if key is not None)
    if len(keys) > _KEYS_MAX:
        raise Unsupported(f"{column.name} has {len(keys)} keys.", fix=f"Use at most {_KEYS_MAX}.")
    return keys


def _mark(column: str, key: Key) -> str:
    return f"CASE WHEN {quoted(column)} = {_literal(key)} THEN 1 ELSE 0 END"


def _code(column: str, keys: Sequence[Key]) -> str:
    """The place of a key; NULL for what is none of them."""
    cases = (f"WHEN {_literal(key)} THEN {place}" for place, key in enumerate(keys))
    return f"CASE {quoted(column)} {' '.join(cases)} END"


def _literal(key: Key) -> str:
    return str(key) if isinstance(key, int) else "'" + str(key).replace("'", "''") + "'"
