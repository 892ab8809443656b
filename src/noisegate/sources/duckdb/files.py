"""What the embedded engine can read: CSV, Parquet and DuckDB files, and frames in memory."""

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import duckdb
from sqlglot import exp

from noisegate.errors import SourceError
from noisegate.files import place_of, table_of
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Kind
from noisegate.sources.duckdb.dialect import WHOLE_TYPES

if TYPE_CHECKING:
    import pyarrow as pa


@final
@dataclass(frozen=True, slots=True)
class Within:
    """A table or view of a DuckDB file."""

    file: Path
    table: str
    schema: str = "main"


Mark: TypeAlias = tuple[int, ...]  # of a file: its length, two times, what it is
Data: TypeAlias = "str | Path | Within | Any"  # in a file, or a pandas, Polars or Arrow table

_NAMED: Final = (
    "SELECT s, t FROM (SELECT database_name, schema_name, table_name FROM duckdb_tables() UNION "
    "SELECT database_name, schema_name, view_name FROM duckdb_views()) AS listed(d, s, t) "
    "WHERE d = ?"
)
_FOLD: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_FILE_KINDS: Final = (".csv", ".tsv", ".parquet", ".duckdb")
UNREACHABLE: Final = "The engine could not read the table."
GIVE: Final = "Give a CSV, Parquet or DuckDB file, or a pandas, Polars or Arrow table."

# Stored types by kind. Every stored value of these can be read, each by itself, without failing.
KIND_OF: Final = {
    **dict.fromkeys((*WHOLE_TYPES, "UBIGINT", "HUGEINT", "UHUGEINT"), Kind.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), Kind.NUMBER),
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID"), Kind.TEXT),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), Kind.TIMESTAMP),
    "TIMESTAMP WITH TIME ZONE": Kind.TIMESTAMP,  # as its time in UTC: `stored_types`
    "BOOLEAN": Kind.BOOLEAN,
    "DATE": Kind.DATE,
}

# What a stored column may be declared as. Numbers are not texts: the text of one may depend on
# how wide its whole column is, and some times have none.
READ_AS: Final = {
    Kind.TEXT: tuple(Kind),
    Kind.INTEGER: (Kind.INTEGER, Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN),
    Kind.NUMBER: (Kind.NUMBER, Kind.INTEGER),
    Kind.BOOLEAN: (Kind.BOOLEAN, Kind.TEXT),
    Kind.DATE: (Kind.DATE, Kind.TIMESTAMP),
    Kind.TIMESTAMP: (Kind.DATE, Kind.TIMESTAMP),
}


def folded(name: str) -> str:
    """A name as the engine compares it: ASCII letters without regard to case, and no others."""
    return name.translate(_FOLD)


def is_database(data: "Path | Within | pa.Table") -> bool:
    """A file of DuckDB's own: tables with whatever collations they were made with."""
    return isinstance(data, Within)


def file_of(data: "Path | Within | pa.Table") -> Path | None:
    """The file that the rows are in, unless they are a frame's."""
    return data.file if isinstance(data, Within) else data if isinstance(data, Path) else None


def mark_of(data: "Path | Within | pa.Table") -> Mark | None:
    """The state of its file; None where there is none, as with a frame."""
    with suppress(OSError, AttributeError):  # a frame has no file
        at = file_of(data).stat()  # type: ignore[union-attr]
        return at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_dev, at.st_ino
    return None


def is_text(data: "Path | Within | pa.Table") -> bool:
    """A file of lines."""
    return isinstance(data, Path) and data.suffix.lower() in (".csv", ".tsv")


def origin_of(
    connection: duckdb.DuckDBPyConnection, data: "Path | Within | pa.Table", place: int
) -> str:
    """What stands behind FROM: a reader of a file, a table of an attached file, or a frame."""
    if isinstance(data, Path):
        return _reader(data)
    if not isinstance(data, Within):
        connection.register(f"frame{place}", data)
        return f"frame{place}"
    require_file(data.file)
    where = quoted(str(data.file.resolve()))
    connection.execute(f"ATTACH {where} AS file{place} (READ_ONLY, TYPE duckdb)")
    listed = connection.execute(_NAMED, [f"file{place}"]).fetchall()
    named = (folded(data.schema), folded(data.table))
    if named not in ((folded(schema), folded(table)) for schema, table in listed):
        raise SourceError(
            f"The database {data.file.name!r} has no table {data.table!r} in its schema "
            f"{data.schema!r}.",
            fix="Name one that it has: DATABASE#TABLE or DATABASE#SCHEMA.TABLE as the source in a "
            "policy; or table=... (--table) when a file is opened without a policy.",
            about="table",
        )
    table, schema = (exp.to_identifier(each, quoted=True) for each in (data.table, data.schema))
    return exp.table_(table, db=schema, catalog=f"file{place}").sql(dialect="duckdb")


def plain_frame(frame: Any) -> "pa.Table":  # noqa: ANN401 - any frame
    """A frame as an Arrow table. Columns without a type of their own must be of one type.

    An engine that guesses types would let one row change them all.
    """
    import pyarrow as pa  # noqa: PLC0415 - only for frames

    if isinstance(frame, pa.Table):
        columns = dict(zip(frame.column_names, frame.columns, strict=True))
        rows = frame.num_rows
    elif hasattr(frame, "to_arrow") or hasattr(frame, "iloc"):  # Polars, pandas
        columns = {str(name): _as_arrow(frame[name], str(name)) for name in frame.columns}
        rows = len(frame)
    else:
        raise SourceError("This is not a table.", fix=GIVE, about="frame")
    if any(not name or "\x00" in name for name in columns):
        raise SourceError("A column has no name.", fix="Name it with plain text.")
    names = getattr(frame, "column_names", frame.columns)
    if len({folded(name) for name in columns}) < len(names):
        raise _same_names()
    table = pa.table(columns) if columns else _blank(rows)
    with suppress(pa.ArrowException):
        table.validate(full=True)  # texts that are not UTF-8 would fail a question later
        return table
    raise SourceError("The frame holds invalid values.", fix="Build it again.")


def _as_arrow(column: Any, name: str) -> Any:  # noqa: ANN401 - a column in, Arrow out
    import pyarrow as pa  # noqa: PLC0415 - only for frames

    guessed = str(getattr(column, "dtype", "")) == "object"  # no type but that of each value
    types = (pa.string(), pa.date32(), pa.bool_(), pa.int64()) if guessed else (None,)
    for kind in types:
        # what the library says of a column that it cannot read may quote rows, and is dropped
        with suppress(pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError):
            if hasattr(column, "to_arrow"):
                return column.to_arrow()
            return pa.array(column, kind, from_pandas=True)
    raise SourceError(
        f"Column {name!r} mixes several types.",
        fix="Convert it, for example frame[name].astype(str).",
        about="type",
    )


def only(table: "pa.Table", names: Sequence[str]) -> "pa.Table":
    """The engine gets no column that questions do not use: to count rows it may decode one."""
    return table.select(list(names)) if names else _blank(table.num_rows)


def _blank(rows: int) -> Any:  # noqa: ANN401 - an Arrow table
    import pyarrow as pa  # noqa: PLC0415 - only for frames

    return pa.table({"row": pa.repeat(True, rows)})  # noqa: FBT003 - a value


def stored_types(
    connection: duckdb.DuckDBPyConnection, data: "Mapping[str, Path | Within | pa.Table]"
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Where each table is, and its columns with their stored types; odd ones are left out.

    From then on the engine reads moments as their times in UTC, wherever it runs.
    """
    with suppress(duckdb.Error):
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        origins, types = {}, {}
        for place, (table, each) in enumerate(data.items()):
            shape = each if isinstance(each, Path | Within) else each.slice(0, 0)
            origins[table] = origin_of(connection, shape, place)
            rows = connection.execute(f"DESCRIBE FROM {origins[table]}").fetchall()
            _require_own_names(connection, each, [str(row[0]) for row in rows])
            plain = {str(name): str(kind).partition("(")[0] for name, kind, *_ in rows}
            types[table] = {name: kind for name, kind in plain.items() if kind in KIND_OF}
        return origins, types
    raise SourceError(UNREACHABLE, fix=GIVE, about="unreadable")


def _require_own_names(
    connection: duckdb.DuckDBPyConnection, data: "Path | Within | pa.Table", names: Sequence[str]
) -> None:
    """Refuse names that differ by case only: the engine would give one of them another name."""
    if isinstance(data, Path) and data.suffix.lower() == ".parquet":
        file = exp.Literal.string(str(data.resolve()))
        schema = exp.select("name").from_(exp.func("parquet_schema", file))
        found = connection.execute(schema.sql(dialect="duckdb")).fetchall()
        if not set(names) <= {str(row[0]) for row in found}:
            raise _same_names()


def _same_names() -> SourceError:
    return SourceError(
        "Two columns have the same name; upper and lower case are not distinguished.",
        fix="Rename one.",
    )


def plain(data: Data, table: str) -> "Path | Within | pa.Table":
    """A file, a table in a DuckDB file (of this name, unless it says another), or Arrow rows."""
    if isinstance(data, Within):
        return data
    if not isinstance(data, str | Path):
        return plain_frame(data)
    file = Path(data)
    return Within(file, table) if file.suffix.lower() == ".duckdb" else file


def data_of(origin: str) -> Data:
    """The rows that a policy's table has: a file, ``DATABASE#TABLE``, ``DATABASE#SCHEMA.TABLE``."""
    file, inside = place_of(origin)
    if inside is None:
        return file
    schema, table = table_of(inside)
    return Within(Path(file), table, schema or "main")


def lock_down(connection: duckdb.DuckDBPyConnection, paths: list[Path]) -> None:
    """Let the connection reach these files and nothing else, for good."""
    allowed = ", ".join(quoted(str(path.resolve())) for path in paths)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def require_file(path: Path) -> None:
    """Refuse what is not there, could be read as several files, or has another ending."""
    if not path.is_file():
        within = place_of(str(path))[1] is not None
        raise SourceError(
            f"There is no file {path.name!r}.",
            fix="Name the table of a database by table=... (--table)."
            if within
            else "Check the path.",
            about="file",
        )
    if set("*?[") & set(str(path.resolve())):
        raise SourceError(
            f"{path.name!r} would be read as a file pattern.",
            fix="Rename the file or its folder.",
            about="pattern",
        )
    if path.suffix.lower() not in _FILE_KINDS:
        raise SourceError(
            f"{path.name!r} does not end in {', '.join(_FILE_KINDS)}.", fix=GIVE, about="ending"
        )


def _reader(path: Path) -> str:
    kind = path.suffix.lower()
    require_file(path)
    where = quoted(str(path.resolve()))
    parquet = f"read_parquet({where}, hive_partitioning = false)"
    return parquet if kind == ".parquet" else _csv(path, where)


def _csv(path: Path, where: str) -> str:
    """A strict reader whose columns come from the header line alone, all as text.

    Types and delimiters are never guessed from rows: a guess would be an output that rows decide.
    """
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    delimiter = max(",;\t|", key=first.count) if path.suffix.lower() != ".tsv" else "\t"
    names = next(csv.reader([first], delimiter=delimiter), [])
    folded = {name.strip().lower() for name in names}
    if not names or len(folded) < len(names) or "" in folded or "\x00" in first:
        raise SourceError(
            f"The first line of {path.name!r} does not name its columns.",
            fix="Put each column's name once into the first line.",
            about="header",
        )
    columns = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({where}, columns = {{{columns}}}, delim = {quoted(delimiter)}, "
        "header = true, quote = '\"', escape = '\"', auto_detect = false, strict_mode = true, "
        "hive_partitioning = false)"
    )


def quoted(value: str) -> str:
    """A text as SQL."""
    return exp.Literal.string(value).sql(dialect="duckdb")
