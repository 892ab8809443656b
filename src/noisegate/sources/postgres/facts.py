"""What is public about tables of a Postgres server, and the source that reads them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from noisegate.errors import PolicyError, SourceError
from noisegate.files import place_of, table_of, within
from noisegate.frozen import replace
from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.sources.asked.facts import held, keys_in, with_scales
from noisegate.sources.postgres.dialect import KIND_OF
from noisegate.sources.postgres.opening import require_tables
from noisegate.sources.postgres.server import (
    Place,
    Stored,
    begin,
    connect,
    stored_tables,
    told,
    url_of,
)
from noisegate.sources.postgres.source import PostgresSource

Links: TypeAlias = list[tuple[str, tuple[str, str, str]]]  # table, (column, table, key)
Notes: TypeAlias = dict[tuple[str, str], str]

_SECONDS: Final = 60.0
_NAMES: Final = """
    SELECT c.relname::text FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT') ORDER BY c.relname
"""
_LINKS: Final = """
    SELECT c.relname::text, a.attname::text, o.relname::text, b.attname::text
    FROM pg_catalog.pg_constraint f
    JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
    JOIN pg_catalog.pg_class o ON o.oid = f.confrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = %s
    JOIN pg_catalog.pg_namespace m ON m.oid = o.relnamespace AND m.nspname = %s
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = f.conkey[1]
    JOIN pg_catalog.pg_attribute b ON b.attrelid = o.oid AND b.attnum = f.confkey[1]
    WHERE f.contype = 'f' AND pg_catalog.cardinality(f.conkey) = 1 ORDER BY 1, 2
"""
_UNIQUE: Final = """
    SELECT c.relname::text, a.attname::text
    FROM pg_catalog.pg_constraint f
    JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = %s
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = f.conkey[1]
    WHERE f.contype IN ('p', 'u') AND pg_catalog.cardinality(f.conkey) = 1
"""


def data_of(origin: str) -> Place:
    """The table that a policy names: ``postgresql://USER@HOST/DATABASE#SCHEMA.TABLE``."""
    url, inside = place_of(origin)
    parts, said = urlsplit(url), dict(parse_qsl(urlsplit(url).query))
    if parts.password or {"password", "sslpassword"} & said.keys():
        raise PolicyError(
            "The address of the server has a password in it.",
            fix="Leave it out, and put it into the environment (PGPASSWORD, PGPASSFILE) or into a "
            "password file (passfile=… in the address).",
            about="password",
        )
    schema, table = table_of(inside or "")
    return Place(url, schema or "public", table)


def stored_kinds(data: Mapping[str, Place]) -> dict[str, dict[str, Kind]]:
    """For each table the columns that questions can use, and their kinds. Reads no rows."""
    found = described(data)
    return {
        name: {column: KIND_OF[kind] for column, kind in each.types.items()}
        for name, each in found.items()
    }


def described(data: Mapping[str, Place]) -> dict[str, Stored]:
    """The catalogue's words on each table, or a refusal that names the first that is not there."""
    with told(), connect(url_of(data)) as connection:
        begin(connection, seconds=_SECONDS)
        found = stored_tables(connection, data)
    require_tables(found, data)
    return found


def catalogue(url: str) -> tuple[dict[str, Place], Links, Notes, set[tuple[str, str]]]:
    """The tables of a database (of ``#SCHEMA``, else of ``public``), foreign keys and comments.

    Last, the columns that are unique by a constraint. No row is read.
    """
    address, mark, schema = url.partition("#")
    place = data_of(f"{address}#{schema if mark else 'public'}")
    with told(), connect(place.url) as connection:
        begin(connection, seconds=_SECONDS)
        named = connection.execute(_NAMES, (place.table,)).fetchall()
        links = connection.execute(_LINKS, (place.table,) * 2).fetchall()
        unique = {*connection.execute(_UNIQUE, (place.table,)).fetchall()}
        data = {table: Place(place.url, place.table, table) for (table,) in named}
        found = stored_tables(connection, data) if data else {}
    if not data:
        raise SourceError(
            f"The schema {place.table!r} has no table that the role can read.",
            fix="GRANT SELECT on its tables, or name another: postgresql://…#SCHEMA.",
            about="table",
        )
    notes = {(name, column): text for name, each in found.items()
             for column, text in each.comments.items()}  # fmt: skip
    hops = [(table, (column, to, key)) for table, column, to, key in links]
    return data, hops, notes, unique


def origin_of(place: Place) -> str:
    """Where a table is, as a policy says it."""
    return within(place.url, place.schema, place.table)


def as_stored(
    data: Mapping[str, Place],
    tables: Mapping[str, TableDomain],
    terms: Mapping[str, Mapping[str, Mapping[str, Any]]],  # noqa: ARG001 - all columns have types
) -> dict[str, TableDomain]:
    """The tables, with how many digits their stored decimals have. Reads no rows."""
    found = described({name: data[name] for name in tables})
    return {name: with_scales(table, found[name].scales) for name, table in tables.items()}


def require_rows(data: Mapping[str, Place], tables: Mapping[str, TableDomain]) -> None:
    """Nothing more: the source looks at every table when it is opened."""
    del data, tables


def public_keys(data: Place, table: str, column: str, kind: Kind | None) -> tuple[Key, ...]:
    """The values of a public table's column, in order: keys that private tables may reference."""
    kinds = stored_kinds({table: data})[table]
    return keys_in(data, table, column, kinds, kind, open_source)


def as_held(data: Place, table: TableDomain) -> TableDomain:
    """A public table with its size, and the values of its columns as keys, where these are few."""
    found = held(data, table, open_source)
    columns = dict(found.columns)
    for name in table.key:  # clamped to the ends of today, two keys of tomorrow would be one
        columns[name] = replace(columns[name], between=table.columns[name].between)
    return replace(found, columns=MappingProxyType(columns))


def open_source(data: Mapping[str, Place], tables: Mapping[str, TableDomain]) -> PostgresSource:
    """The rows behind a wall."""
    return PostgresSource(data, tables)
