"""What is public about tables of a Spark server, and the source that reads them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.sources.asked.facts import held, keys_in, with_scales
from noisegate.sources.spark.dialect import KIND_OF
from noisegate.sources.spark.server import Place, Stored, connect, place_from, stored_table, told
from noisegate.sources.spark.source import SparkSource, one_server


def data_of(origin: str) -> Place:
    """The table that a policy names."""
    return place_from(origin)


def table_in(session: Any, table: str) -> Place:  # noqa: ANN401 - a SparkSession
    """A table of an open session: a name of its catalogue, or a folder of Parquet files."""
    return replace(place_from(f"sc://#{table}"), session=session)


def described(data: Mapping[str, Place]) -> dict[str, Stored]:
    """The files and columns of each table. Reads no rows."""
    session = connect(one_server(data))
    with told():
        return {name: stored_table(session, place) for name, place in data.items()}


def stored_kinds(data: Mapping[str, Place]) -> dict[str, dict[str, Kind]]:
    """For each table the columns that questions can use, and their kinds. Reads no rows."""
    return {
        name: {column: KIND_OF[kind] for column, kind in each.types.items() if kind in KIND_OF}
        for name, each in described(data).items()
    }


def as_stored(
    data: Mapping[str, Place],
    tables: Mapping[str, TableDomain],
    terms: Mapping[str, Mapping[str, Mapping[str, Any]]],  # noqa: ARG001 - all columns have types
) -> dict[str, TableDomain]:
    """The tables, with how many digits their stored decimals have. Reads no rows."""
    found = described({name: data[name] for name in tables})
    return {name: with_scales(table, found[name].scales) for name, table in tables.items()}


def require_rows(data: Mapping[str, Place], tables: Mapping[str, TableDomain]) -> None:
    """Nothing more: only stored files are read."""
    del data, tables


def public_keys(data: Place, table: str, column: str) -> tuple[Key, ...]:
    """The values of a public table's column, in order: keys that private tables may reference."""
    return keys_in(data, table, column, stored_kinds({table: data})[table], open_source)


def as_held(data: Place, table: TableDomain) -> TableDomain:
    """A public table with its size, and the values of its columns as keys, where these are few."""
    return held(data, table, open_source)


def open_source(data: Mapping[str, Place], tables: Mapping[str, TableDomain]) -> SparkSource:
    """The rows behind a wall."""
    return SparkSource(data, tables)
