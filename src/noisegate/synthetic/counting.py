"""Counting questions as they are read, and the columns with bins that none of them cuts."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from math import ceil, floor
from typing import Any, Final

from noisegate.algebra.expression import Call, Expression, Field, Literal
from noisegate.algebra.relation import Filter, Table
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.domain import Column, Kind, TableDomain, ordinal
from noisegate.sql.question import Function
from noisegate.sql.reading.reader import read
from noisegate.transforms.stability import stability_of

FORM: Final = "For example: SELECT COUNT(*) FROM people WHERE age BETWEEN 20 AND 39 AND ward = 'x'."
TURNED: Final = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def columns_for(
    tables: Mapping[str, TableDomain], questions: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    """The table that questions are about, and bins of its columns that none of them cuts."""
    cuts: dict[str, set[Fraction]] = {}
    names = set()
    for sql in questions:
        rows, condition = read_count(sql, tables)
        names.add(rows.domain.name)
        for column, function, value in _atoms(condition):
            cuts.setdefault(column, set()).update(
                _cuts(rows.domain.columns[column], function, value)
            )
    if len(names) != 1 or not cuts:
        raise SpecError("The questions are about no column, or about several tables.", fix=FORM)
    (name,) = names
    known = tables[name].columns
    return name, {column: _bins(known[column], found) for column, found in cuts.items()}


def _atoms(condition: Expression | None) -> Iterator[tuple[str, str, Any]]:
    """(column, function, constant) of all comparisons."""
    if type(condition) is Field:
        yield condition.name, "eq", True
    if type(condition) is not Call:
        return
    fields = [each for each in condition.args if type(each) is Field]
    constants = [each.value for each in condition.args if type(each) is Literal]
    if condition.function in ("and", "or", "not", "is_true"):
        for each in condition.args:
            yield from _atoms(each)
    elif len(fields) != 1 or len(fields) + len(constants) < len(condition.args):
        raise Unsupported("A condition is not a comparison of a column with constants.", fix=FORM)
    elif condition.function == "between":
        yield from zip([fields[0].name] * 2, ("ge", "le"), constants, strict=True)
    elif condition.function == "is_null":
        yield fields[0].name, "is_null", None
    else:
        turned = type(condition.args[0]) is Literal
        function = TURNED.get(condition.function, "eq") if turned else condition.function
        yield from ((fields[0].name, function, value) for value in constants)


def _cuts(column: Column, function: str, value: Any) -> list[Fraction]:  # noqa: ANN401
    """Where a bin must begin so that the comparison cuts none."""
    if column.keys is not None or value is None or not column.kind.is_ordered:
        return []
    if column.kind is Kind.TIMESTAMP:
        raise Unsupported(
            "Timestamps have no cells of their own.", fix="Give columns, for example days."
        )
    at = ordinal(value)
    if column.kind is not Kind.NUMBER:
        starts = {"lt": [ceil(at)], "ge": [ceil(at)], "le": [floor(at) + 1], "gt": [floor(at) + 1]}
        return [Fraction(each) for each in starts.get(function, [floor(at), floor(at) + 1])]
    if function not in ("lt", "ge"):
        raise Unsupported(
            f"{column.name!r} is not an integer, so no bin ends at {value} inclusive.",
            fix=f"Use {column.name} < {value} or {column.name} >= {value}.",
            about="whole",
        )
    return [at]


def _bins(column: Column, cuts: set[Fraction]) -> Any:  # noqa: ANN401 - see `sql_of`
    if column.keys is not None or not column.kind.is_ordered:
        return None
    if column.between is None:
        raise Unsupported(
            f"{column.name!r} has no declared bounds.",
            fix="Declare between = [low, high] for it.",
            about="bounds",
        )
    low, high = column.between
    inner = sorted(cut for cut in cuts if low < cut <= high)
    if column.kind is Kind.DATE:
        days = [date(1970, 1, 1) + timedelta(days=int(cut)) for cut in inner]
        if all((day.month, day.day) == (1, 1) for day in days):
            return "year"
        return "month" if all(day.day == 1 for day in days) else "day"
    return [low, *inner, high + 1]


def read_count(sql: str, tables: Mapping[str, TableDomain]) -> tuple[Table, Expression | None]:
    """The table of a question and its condition, which is the same in a part of the table."""
    question = read(sql, dict(tables))
    blocks = question.blocks
    if len(blocks) != 1 or question.picked is None or len(question.picked) != 1 or blocks[0].by:
        raise Unsupported("This is not a counting question.", fix=FORM)
    (found,) = blocks[0].aggregates
    counts = found.function is Function.COUNT
    if found.function is Function.COUNT_UNITS:
        counts = stability_of(blocks[0].relation).rows == 1  # units and rows are the same
        if not counts:
            raise Unsupported(
                "A unit may have rows in several cells, so a number of units is not a sum of "
                "cells.",
                fix="List the questions in workload, all of them about units and without columns, "
                "or ask for COUNT(DISTINCT …) in plain SQL, at its own price.",
                about="units",
            )
    if not counts or found.where is not None:
        raise Unsupported("The question does not count rows.", fix=FORM)
    rows, conditions = blocks[0].relation, list[Expression]()
    while type(rows) is Filter:
        conditions.append(rows.condition)
        rows = rows.of
    if type(rows) is not Table:
        raise Unsupported("A question is about one table.", fix="Leave out joins and sub-queries.")
    if len(conditions) > 1:
        return rows, Call("and", tuple(conditions))
    return rows, conditions[0] if conditions else None
