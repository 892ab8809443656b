"""What is public about tables, from what an engine says of their columns; see `engines.Engine`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from noisegate.algebra.intervals import SCALE_MAX
from noisegate.errors import PolicyError
from noisegate.privacy.domain import Column, Key, Kind, TableDomain
from noisegate.sources.held import held_column
from noisegate.sources.source import Source

Open = Callable[[Mapping[str, Any], Mapping[str, TableDomain]], Source]


def with_scales(table: TableDomain, scales: Mapping[str, int]) -> TableDomain:
    """The table with how many digits its stored decimals have."""
    columns = {
        column.name: replace(column, scale=scales[column.name])
        for column in table.columns.values()
        if column.kind is Kind.NUMBER and scales.get(column.name, SCALE_MAX + 1) <= SCALE_MAX
    }
    return replace(table, columns=MappingProxyType({**table.columns, **columns}))


def keys_in(
    data: Any,  # noqa: ANN401 - as the engine knows a table
    table: str,
    column: str,
    kinds: Mapping[str, Kind],
    opened: Open,
) -> tuple[Key, ...]:
    """The values of a public table's column, in order: keys that private tables may reference."""
    if column not in kinds:
        raise PolicyError(
            f"{table!r} has no column {column!r}.", fix="Reference another column.", about="column"
        )
    domain = TableDomain(
        dataset="public",
        name=table,
        unit=None,
        columns=MappingProxyType({column: Column(name=column, kind=kinds[column])}),
    )
    rows = opened({table: data}, {table: domain}).public(table)
    return tuple(sorted({value for value in rows.column(column).to_pylist() if value is not None}))


def held(data: Any, table: TableDomain, opened: Open) -> TableDomain:  # noqa: ANN401
    """A public table with its size, and the values of its columns as keys, where these are few."""
    rows = opened({table.name: data}, {table.name: table}).public(table.name)
    columns = {
        name: held_column(column, rows.column(name).unique().to_pylist())
        for name, column in table.columns.items()
        if not column.hidden
    }
    return replace(
        table, columns=MappingProxyType({**table.columns, **columns}), size=rows.num_rows
    )
