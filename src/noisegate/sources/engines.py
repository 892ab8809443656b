"""Which engine holds the rows of a policy: DuckDB for files, another for addresses.

A new engine is a dialect (`writing/dialect.py`), a source, and the functions below in one module.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from noisegate.errors import PolicyError
from noisegate.files import place_of
from noisegate.privacy.domain import Key, Kind, TableDomain
from noisegate.sources.source import Source

_FILES: Final = "noisegate.sources.duckdb.facts"
_SERVERS: Final = {
    "postgresql": "noisegate.sources.postgres.facts",
    "postgres": "noisegate.sources.postgres.facts",
    "sc": "noisegate.sources.spark.facts",
    "datafusion": "noisegate.sources.datafusion.source",
}


class Engine(Protocol):
    """What is public about stored tables, and the way to their rows."""

    def data_of(self, origin: str) -> Any:  # noqa: ANN401 - as the engine knows a table
        """The table that a policy names."""

    def stored_kinds(self, data: Mapping[str, Any]) -> dict[str, dict[str, Kind]]:
        """For each table the columns that questions can use, and their kinds. Reads no rows."""

    def as_stored(
        self,
        data: Mapping[str, Any],
        tables: Mapping[str, TableDomain],
        terms: Mapping[str, Mapping[str, Mapping[str, Any]]],
    ) -> dict[str, TableDomain]:
        """The tables with what their stored types say. Reads no rows."""

    def require_rows(self, data: Mapping[str, Any], tables: Mapping[str, TableDomain]) -> None:
        """Refuse private tables whose rows are computed when they are read. Reads no rows."""

    def public_keys(self, data: Any, table: str, column: str, kind: Kind | None) -> tuple[Key, ...]:  # noqa: ANN401
        """The values of a public table's column, in order, as this kind or as they are stored."""

    def as_held(self, data: Any, table: TableDomain) -> TableDomain:  # noqa: ANN401
        """A public table with its size, and the values of its columns as keys."""

    def open_source(self, data: Mapping[str, Any], tables: Mapping[str, TableDomain]) -> Source:
        """The rows behind a wall."""


def engine_of(origins: Iterable[str]) -> Engine:
    """The one engine of these tables. Loaded when it is used."""
    schemes = set(map(_scheme, origins))
    modules = {_FILES if scheme == "" else _SERVERS.get(scheme, "") for scheme in schemes}
    if "" in modules:
        raise PolicyError(
            f"There is no engine for {min(schemes - _SERVERS.keys() - {''})!r} addresses.",
            fix="Use files, DATABASE.duckdb#TABLE, postgresql://USER@HOST/DATABASE#TABLE, "
            "sc://HOST:PORT#TABLE, or datafusion:///FOLDER#TABLE.",
            about="engine",
        )
    if len(modules) != 1:
        raise PolicyError(
            "The tables are on several engines.",
            fix="Keep all tables of a policy in files, or all in one database.",
            about="engines",
        )
    return cast("Engine", import_module(modules.pop()))


def _scheme(where: str) -> str:
    """That of an address; none of a file, whatever its folder is called."""
    scheme, mark, _ = where.partition("://")
    return scheme if mark and not Path(place_of(where)[0]).is_file() else ""
