"""One cell for each unit, where units have several rows: the first of the cells of its rows.

A crowd counts people, by one coin each, so a unit must be in one cell alone. Here every row has the
number of its cell, in the order of the axes, and a unit counts where its lowest number is: in the
cell of one of its own rows.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

from noisegate.algebra.intervals import KEYS_MAX
from noisegate.desk.order import Bins, Columns
from noisegate.desk.terms.terms import Terms
from noisegate.errors import Unsupported
from noisegate.frozen import replace
from noisegate.privacy.domain import TableDomain
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.grid import Edges, Grid, asked_sql, axes_of, grid_of
from noisegate.sql.question import Block, Question
from noisegate.sql.reading.reader import read
from noisegate.sql.spelling import decimal, quoted, table_named
from noisegate.transforms.stability import stability_of

Tables: TypeAlias = Mapping[str, TableDomain]
_ONE_EACH: Final = (
    "Ask about one row of each unit, such as SELECT BIN(age, 10), COUNT(*) FROM (SELECT"
)
KEYS_LISTED: Final = 2_000  # keys of all axes together, each a case of its own


class Asked(NamedTuple):
    """SQL, or columns of a table: as an order has them."""

    sql: str | None
    table: str | None
    columns: Columns | None
    where: str | None


def cells_of(
    tables: Tables, asked: Asked, question: Question | None, *, stratum: str | None
) -> tuple[Grid, tuple[Axis, ...]]:
    """The cells that are counted, and the axes that are shown: without a ``stratum`` of its own."""
    columns = asked.columns
    added = stratum is not None and columns is not None and stratum not in columns
    if added:
        columns = {**(columns or {}), str(stratum): None}
    sql, edges = asked_sql(tables, asked.sql, asked.table, columns, asked.where)
    question = question or read(sql, tables)
    if columns is not None and any(_has_several(block) for block in question.blocks):
        grid = _once(tables, asked._replace(columns=columns), question, edges)
    else:
        for block in question.blocks:
            _require_one_row(block)
        grid = grid_of(question, sql, Terms(), edges=edges)
    return grid, grid.axes[:-1] if added else grid.axes


def _has_several(block: Block) -> bool:
    facts = stability_of(block.relation)
    return facts.is_private and facts.rows != 1


def _require_one_row(block: Block) -> None:
    """Refuse rows of which a unit may have several.

    Why: the guarantee is about counts that one coin moves by 1. A unit with rows in several cells
        is in or out of all of them at once, and one with several rows of a cell fills its crowd by
        itself, so that neither the coins nor the crowd would hide it.
    """
    if not _has_several(block):
        return
    tables = stability_of(block.relation).tables
    unit = next((table.unit.column for table in tables if table.unit is not None), None)
    raise Unsupported(
        "One unit may have several rows here: it could be in several cells or form a crowd by "
        "itself, and sampling it once would not hide it.",
        fix=f"{_ONE_EACH} {unit}, MAX(age) AS age FROM visits GROUP BY {unit}) AS u GROUP BY 1.",
        about="several-rows",
    )


def _once(tables: Tables, asked: Asked, question: Question, edges: Mapping[int, Edges]) -> Grid:
    """The cells of units with several rows, each unit in the first of its own."""
    _, axes = axes_of(question, edges=edges)
    table = tables[table_named(tables, asked.table)]
    where = f" WHERE ({asked.where})" if asked.where else ""
    sql = _once_sql(table, list(zip(axes, (asked.columns or {}).items(), strict=True)), where)
    grid = grid_of(read(sql, tables), sql, Terms())
    words = (
        "A unit with several rows counts once, in the first of the cells of its rows, in the order "
        "of the keys; rows with undeclared keys are left out."
    )
    return replace(grid, axes=axes, caveats=(*grid.caveats, words))


def _once_sql(
    table: TableDomain, asked: Sequence[tuple[Axis, tuple[str, Bins]]], where: str
) -> str:
    """The SELECT that counts every unit once, by the number of its first cell.

    ``asked`` are axes with their columns. Rows with a key that is not declared have no cell, and a
    unit that has no other row is not counted.
    """
    axes = [axis for axis, _ in asked]
    assert table.unit is not None  # noqa: S101 - it has several rows
    cells = prod(axis.size for axis in axes)
    if cells >= KEYS_MAX or sum(axis.size for axis in axes) > KEYS_LISTED:
        raise Unsupported(
            f"These are too many cells for units with several rows: {cells:,}.",
            fix="Use wider bins or fewer columns.",
            about="cells",
        )
    number, inner = "", cells
    for axis, (name, how) in asked:
        inner //= axis.size
        column = quoted(name)
        if axis.periods:
            column = f"DATE_TRUNC('{how or 'day'}', {column})"
        number += f"{' + ' if number else ''}{_place(axis, column)} * {inner}"
    each = _by_unit(table, number, where)
    return f"SELECT COUNT(*) FROM ({each}) AS units WHERE cell IS NOT NULL GROUP BY cell"  # noqa: S608 - read, never run


def _by_unit(table: TableDomain, number: str, where: str) -> str:
    """The first cell of each unit, which may stand in another table, along foreign keys."""
    unit = quoted(str(table.unit.column if table.unit else None))
    if not table.path:
        rows = f"FROM {quoted(table.name)}{where}"
        return f"SELECT {unit}, MIN({number}) AS cell {rows} GROUP BY {unit}"
    first = quoted(table.path[0].column)
    rows = f"(SELECT {number} AS cell, {first} AS key FROM {quoted(table.name)}{where}) AS t0"  # noqa: S608 - read, never run
    left = "t0.key"
    for place, step in enumerate(table.path, start=1):
        rows += f" JOIN {quoted(step.table)} AS t{place} ON {left} = t{place}.{quoted(step.key)}"
        if place < len(table.path):
            left = f"t{place}.{quoted(table.path[place].column)}"
    owner = f"t{len(table.path)}.{unit}"
    return f"SELECT {owner}, MIN(t0.cell) AS cell FROM {rows} GROUP BY {owner}"  # noqa: S608 - read, never run


def _place(axis: Axis, column: str) -> str:
    """The number of a row's key: of a bin by its upper edge, else by the key itself."""
    last = len(axis.present) - 1
    if axis.ends is not None:
        cases = [
            f"WHEN {column} < {decimal(Fraction(end))} THEN {place}"
            for place, end in enumerate(axis.ends[:-1])
        ]
        cases.append(f"WHEN {column} IS NOT NULL THEN {last}")
    else:
        cases = [f"WHEN {column} = {_said(key)} THEN {i}" for i, key in enumerate(axis.present)]
    if axis.size > last + 1:
        cases.append(f"WHEN {column} IS NULL THEN {last + 1}")
    return f"(CASE {' '.join(cases)} END)"


def _said(key: Any) -> str:  # noqa: ANN401 - a declared key
    """A key as SQL writes it."""
    if isinstance(key, bool):
        return "TRUE" if key else "FALSE"
    if isinstance(key, datetime):
        return f"TIMESTAMP '{key.isoformat(sep=' ')}'"
    if isinstance(key, date):
        return f"DATE '{key.isoformat()}'"
    if isinstance(key, str):
        text = key.replace("'", "''")
        return f"'{text}'"
    return decimal(Fraction(key))
