"""What is public about tables of a Spark server, and the source that reads them."""

from collections.abc import Mapping
from typing import Any, Final

from noisegate.frozen import replace
from noisegate.privacy.domain import TableDomain
from noisegate.sources.asked.facts import FileFacts
from noisegate.sources.spark.server import Place, Stored, connect, place_from, told
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
        return {name: place.stored(session) for name, place in data.items()}


def open_source(data: Mapping[str, Place], tables: Mapping[str, TableDomain]) -> SparkSource:
    """The rows behind a wall."""
    return SparkSource(data, tables)


_FACTS: Final = FileFacts(described, open_source)
stored_kinds = _FACTS.stored_kinds
as_stored = _FACTS.as_stored
require_rows = _FACTS.require_rows
public_keys = _FACTS.public_keys
as_held = _FACTS.as_held
