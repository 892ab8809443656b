"""What is public about tables, from what an engine says of their columns; see `engines.Engine`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, final

from noisegate.algebra.intervals import SCALE_MAX
from noisegate.errors import PolicyError
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import Column, Key, Kind, TableDomain
from noisegate.sources.asked.dialect import KIND_OF
from noisegate.sources.held import held_column
from noisegate.sources.source import Source

Described = Callable[[Mapping[str, Any]], Mapping[str, "Typed"]]
Open = Callable[[Mapping[str, Any], Mapping[str, TableDomain]], Source]


class Typed(Protocol):
    """A table as an engine knows it: the types of its columns, and the digits of decimals."""

    @property
    def types(self) -> Mapping[str, str]:
        """By column, under the names of `asked/dialect.py`."""

    @property
    def scales(self) -> Mapping[str, int]:
        """Digits behind the point."""


@final
@dataclass(frozen=True, slots=True)
class FileFacts:
    """The functions of `engines.Engine` for stored files, from how tables are described."""

    described: Described
    opened: Open

    def stored_kinds(self, data: Mapping[str, Any]) -> dict[str, dict[str, Kind]]:
        """For each table the columns that questions can use, and their kinds. Reads no rows."""
        return {
            name: {column: KIND_OF[kind] for column, kind in each.types.items() if kind in KIND_OF}
            for name, each in self.described(data).items()
        }

    def as_stored(
        self,
        data: Mapping[str, Any],
        tables: Mapping[str, TableDomain],
        terms: Mapping[str, Mapping[str, Mapping[str, Any]]],  # noqa: ARG002 - all have types
    ) -> dict[str, TableDomain]:
        """The tables, with how many digits their stored decimals have. Reads no rows."""
        found = self.described({name: data[name] for name in tables})
        return {name: with_scales(table, found[name].scales) for name, table in tables.items()}

    def require_rows(self, data: Mapping[str, Any], tables: Mapping[str, TableDomain]) -> None:
        """Nothing more: only stored files are read."""

    def public_keys(self, data: Any, table: str, column: str, kind: Kind | None) -> tuple[Key, ...]:  # noqa: ANN401
        """The values of a public table's column, in order: keys to be referenced."""
        kinds = self.stored_kinds({table: data})[table]
        return keys_in(data, table, column, kinds, kind, self.opened)

    def as_held(self, data: Any, table: TableDomain) -> TableDomain:  # noqa: ANN401
        """A public table with its size, and the values of its columns as keys, if few."""
        return held(data, table, self.opened)


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
    kind: Kind | None,
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
        columns=MappingProxyType({column: Column(name=column, kind=kind or kinds[column])}),
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
