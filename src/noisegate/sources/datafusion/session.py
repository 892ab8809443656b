"""Sessions of DataFusion: what they know, how much they take, and what they may do."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from noisegate.extras import extra
from noisegate.sources.asked.parquet import Parquet, microseconds, stored_type
from noisegate.sources.writing.relations import base_view

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 1 << 14  # of a batch: however long their texts are, they fit into one
_BYTES: Final = 1 << 30  # of each question; what has no room is spilt to disk, or fails


def session(tables: Iterable[Parquet] = ()) -> Any:  # noqa: ANN401 - a SessionContext
    """A session that knows the files of these tables and nothing else."""
    fusion = extra("datafusion", "Parquet files in DataFusion", "datafusion")
    room = fusion.RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(_BYTES)
    settings = fusion.SessionConfig({
        "datafusion.catalog.information_schema": "false",
        "datafusion.execution.batch_size": str(_ROWS),
        "datafusion.execution.collect_statistics": "false",  # these know nothing of NaN
        "datafusion.execution.parquet.schema_force_view_types": "false",
        "datafusion.sql_parser.map_string_types_to_utf8view": "false",
        "datafusion.sql_parser.recursion_limit": "2000",
    })  # fmt: skip
    found = fusion.SessionContext(settings, room)
    for place, each in enumerate(tables):
        rows, *others = (found.read_parquet(f, parquet_pruning=False) for f in each.files)
        for other in others:
            rows = rows.union(other)
        shown = [_shown(f.name, f.type) for f in each.columns if f.name in each.types]
        found.register_table(base_view(place), rows.select_exprs(*shown).into_view(temporary=False))
    return found


def locked() -> Any:  # noqa: ANN401 - SQLOptions
    """A statement asks: it makes, changes, writes and sets nothing."""
    may = extra("datafusion", "Parquet files in DataFusion", "datafusion").SQLOptions()
    return may.with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)  # noqa: FBT003


def columns_of(file: Path) -> Any:  # noqa: ANN401 - a Schema
    """The columns of a file, as they will be read. Reads no row."""
    return session().read_parquet(file).schema()


def _shown(name: str, kind: "pa.DataType") -> str:
    """How a column is read: texts as one type, times as microseconds in UTC."""
    column = '"' + name.replace('"', '""') + '"'
    if stored_type(kind) == "timestamp":
        return f"{microseconds(f'CAST({column} AS BIGINT)', kind.unit)} AS {column}"
    return f"CAST({column} AS VARCHAR) AS {column}" if stored_type(kind) == "string" else column
