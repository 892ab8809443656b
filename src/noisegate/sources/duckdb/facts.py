"""What is public about stored tables: names and kinds of columns, keys of public ones.

No private row is looked at here.
"""

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import duckdb

from noisegate.algebra.intervals import SCALE_MAX
from noisegate.errors import PolicyError
from noisegate.frozen import replace
from noisegate.privacy.domain import Column, Key, Kind, TableDomain
from noisegate.sources.duckdb import files as stored
from noisegate.sources.duckdb.files import (
    KIND_OF,
    Data,
    is_database,
    is_text,
    plain,
    stored_types,
)
from noisegate.sources.duckdb.source import DuckDBSource

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from noisegate.sources.duckdb.files import Within

_DECIMAL: Final = re.compile(r"DECIMAL\(\d+,(\d+)\)", re.ASCII)


def stored_kinds(data: Mapping[str, Data]) -> dict[str, dict[str, Kind]]:
    """For each table the columns that questions can use, and their kinds. Reads no rows."""
    files = {name: plain(each, name) for name, each in data.items()}
    with _seeing_types(files) as connection:
        return {
            table: {column: KIND_OF[kind] for column, kind in types.items()}
            for table, types in stored_types(connection, files)[1].items()
        }


def as_stored(
    data: Mapping[str, Data],
    tables: Mapping[str, TableDomain],
    terms: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> dict[str, TableDomain]:
    """The tables, with how many digits their stored decimals have, and which columns have no type.

    ``terms`` are what is declared about columns. Reads no rows.
    """
    files = {name: plain(data[name], name) for name in tables}
    found = {}
    with _seeing_types(files) as connection:
        for name, origin in stored_types(connection, files)[0].items():
            rows = connection.execute(f"DESCRIBE FROM {origin}").fetchall()
            kinds = {str(column): _DECIMAL.fullmatch(str(kind)) for column, kind, *_ in rows}
            scales = {column: int(kind[1]) for column, kind in kinds.items() if kind is not None}
            columns = {
                each.name: replace(each, scale=scales[each.name])
                for each in tables[name].columns.values()
                if each.kind is Kind.NUMBER and scales.get(each.name, SCALE_MAX + 1) <= SCALE_MAX
            }
            if is_text(files[name]):
                said = terms.get(name, {})
                columns = {
                    each.name: replace(each, untyped=True)
                    for each in tables[name].columns.values()
                    if each.kind is Kind.TEXT
                    and each.keys is None
                    and "type" not in said.get(each.name, {})
                }
            columns = {**tables[name].columns, **columns}
            found[name] = replace(tables[name], columns=MappingProxyType(columns))
    return found


def require_rows(data: Mapping[str, Data], tables: Mapping[str, TableDomain]) -> None:
    """Refuse private tables whose rows are computed when they are read. Reads no rows."""
    from noisegate.sources.duckdb.views import require_stored_rows  # noqa: PLC0415 - of policies

    files = {name: plain(each, name) for name, each in data.items()}
    used = {name: tuple(table.columns) for name, table in tables.items()}
    with _seeing_types(files) as connection:
        if any(map(is_database, files.values())):
            stored_types(connection, files)
        require_stored_rows(connection, files, tables, used)


def _seeing_types(
    files: "Mapping[str, Path | Within | pa.Table]",
) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """A connection for names and types: of an engine of its own where a database is attached."""
    if any(map(is_database, files.values())):
        from noisegate.sources.duckdb.attached import attaching  # noqa: PLC0415 - for databases

        return attaching(files)
    return _shared(os.getpid()).cursor()


@cache
def _shared(process: int) -> duckdb.DuckDBPyConnection:  # noqa: ARG001 - none for its children
    """An engine that sees types and keeps nothing of any file: to make one takes 30 ms."""
    return duckdb.connect(":memory:", config={"enable_external_file_cache": False})


def public_keys(data: Data, table: str, column: str, kind: Kind | None) -> tuple[Key, ...]:
    """The values of a public table's column, in order: keys that private tables may reference."""
    kinds = stored_kinds({table: data})[table]
    if column not in kinds:
        raise PolicyError(
            f"{table!r} has no column {column!r}.", fix="Reference another column.", about="column"
        )
    domain = TableDomain(
        dataset="public",
        name=table,
        unit=None,
        columns=MappingProxyType({column: Column(name=column, kind=kind or kinds[column])}),
    )
    values = DuckDBSource({table: data}, {table: domain}).public(table).column(column).to_pylist()
    return tuple(sorted({value for value in values if value is not None}))


def as_held(data: Data, table: TableDomain) -> TableDomain:
    """A public table with its size, and the values of its columns as keys, where these are few.

    Numbers lie between the least and the largest, so that sums of them need no declared bounds.
    """
    from noisegate.sources.held import held_column  # noqa: PLC0415 - for public tables only

    rows = DuckDBSource({table.name: data}, {table.name: table}).public(table.name)
    columns = {
        name: held_column(column, rows.column(name).unique().to_pylist())
        for name, column in table.columns.items()
        if not column.hidden
    }
    return replace(
        table, columns=MappingProxyType({**table.columns, **columns}), size=rows.num_rows
    )


def data_of(origin: str) -> Data:
    """The rows that a policy's table has: a file, or a table of a DuckDB file."""
    return stored.data_of(origin)


def open_source(data: Mapping[str, Data], tables: Mapping[str, TableDomain]) -> DuckDBSource:
    """The rows behind a wall."""
    return DuckDBSource(data, tables)
