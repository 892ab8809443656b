"""The embedded engine: CSV, Parquet, and frames in memory, counted by DuckDB."""

import csv
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

import duckdb
import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from noisegate.errors import SourceError
from noisegate.privacy.domain import Column, Key
from noisegate.sources.source import Source, Tally

_FILE_KINDS: Final = (".csv", ".tsv", ".parquet")
_UNREACHABLE: Final = "The engine could not read the table."
_GIVE: Final = "Give a CSV or Parquet file, or a pandas, Polars or Arrow table."

# Types whose every stored value the engine can read and write as text. Times and nested values
# are not among them: some bit patterns have no text, and one such row would stop all answers.
_DECODABLE: Final = frozenset({
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "VARCHAR", "ENUM", "UUID",
})  # fmt: skip


@final
class DuckDBSource(Source):
    """One table in a private DuckDB connection that can reach this one file and nothing else.

    ``used`` are the columns that questions will look at. Their types are checked here, before any
    question, because a type that the engine may fail to decode would let a row decide later.
    """

    def __init__(
        self,
        data: "str | Path | Any",  # noqa: ANN401 - any frame
        *,
        table: str,
        used: Iterable[str] = (),
    ) -> None:
        self._table = table
        self._data = Path(data) if isinstance(data, str | Path) else _as_arrow(data)
        self._lock = threading.Lock()
        self._connection = self._connect()
        described = self._connection.execute(f"DESCRIBE {_quoted(table)}").fetchall()
        self._columns = tuple(str(row[0]) for row in described)
        _require_decodable({str(row[0]): str(row[1]) for row in described}, set(used))

    def columns(self) -> tuple[str, ...]:  # noqa: D102 - see Source
        return self._columns

    def collect(self, tally: Tally) -> NDArray[np.int64]:  # noqa: D102 - see Source
        query = select_of(tally).sql(dialect="duckdb")
        with self._lock:
            rows = self._rows(query)
        if tally.by is None or tally.by.keys is None:
            return np.array([rows[0][0] or 0], np.int64)
        counts = {key: count for key, count in rows if key is not None}
        return np.array([counts.get(key, 0) for key in tally.by.keys], np.int64)

    def _rows(self, query: str) -> list[Any]:
        with suppress(duckdb.Error):
            return self._connection.execute(query).fetchall()
        # The engine's own error is gone with the block above: its words may quote rows. An engine
        # that stumbled once may refuse everything after, so the next question gets a new one.
        with suppress(SourceError):
            self._connection = self._connect()
        raise SourceError(
            _UNREACHABLE, fix="Nothing left the door; ask again with the same request."
        )

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:")
        try:
            if isinstance(self._data, Path):
                reader = _reader(self._data)
                _lock_down(connection, [str(self._data.resolve())])
                view = f"CREATE VIEW {_quoted(self._table)} AS SELECT * FROM {reader}"  # noqa: S608 - quoted
                connection.execute(view)
            else:
                connection.register(self._table, self._data)
                _lock_down(connection, [])
        except duckdb.Error:
            raise SourceError(_UNREACHABLE, fix=_GIVE) from None
        return connection


def select_of(tally: Tally) -> exp.Select:
    """The query of a tally. Casts are TRY_CAST, so that no row can make it fail.

    Claim: its numbers change by at most the tally's sensitivity when one unit's rows are added.
    Why: COUNT(*) adds one per row; with a unit column, LEAST(rows of the unit, cap) per unit.
    """
    query = exp.select().from_(exp.to_identifier(tally.table, quoted=True))
    for column, key in tally.where:
        query = query.where(exp.EQ(this=_as_key(column), expression=_literal(key)))
    if tally.unit is not None:
        unit = exp.column(exp.to_identifier(tally.unit, quoted=True))
        per_unit = query.select(exp.alias_(exp.Count(this=exp.Star()), "n")).group_by(unit)
        capped = exp.Least(
            this=exp.column("n"), expressions=[exp.Literal.number(tally.rows_per_unit_max or 0)]
        )
        return exp.select(exp.Sum(this=capped)).from_(per_unit.subquery("units"))
    if tally.by is None or tally.by.keys is None:
        return query.select(exp.Count(this=exp.Star()))
    keys = [_literal(key) for key in tally.by.keys]
    return (
        query.select(exp.alias_(_as_key(tally.by), "k"), exp.Count(this=exp.Star()))
        .where(exp.In(this=_as_key(tally.by), expressions=keys))
        .group_by(_as_key(tally.by))
    )


def _as_key(column: Column) -> exp.Expr:
    """The column as whole number or text, whatever its type; NULL where that has no meaning."""
    kind = "TEXT" if column.keys is None or isinstance(column.keys[0], str) else "INT128"
    name = exp.column(exp.to_identifier(column.name, quoted=True))
    return exp.TryCast(this=name, to=exp.DataType.build(kind, dialect="duckdb"))


def _literal(key: Key) -> exp.Expr:
    if isinstance(key, str):
        return exp.Literal.string(key)
    return exp.cast(exp.Literal.string(str(key)), "INT128", dialect="duckdb")


def _as_arrow(frame: Any) -> Any:  # noqa: ANN401 - a frame in, an Arrow table out
    """The frame with types of its own: an engine that guesses would let one row change them all."""
    import pyarrow as pa  # noqa: PLC0415 - only for frames

    refusal = SourceError("The frame has no plain Arrow form.", fix=_GIVE)
    try:
        if hasattr(frame, "to_arrow"):  # Polars
            frame = frame.to_arrow()
        elif hasattr(frame, "iloc"):  # pandas; mixed types in a column are refused here
            frame = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        raise refusal from None
    if not isinstance(frame, pa.Table):
        raise refusal
    if len(set(frame.column_names)) < frame.num_columns:
        raise SourceError("Two columns have the same name.", fix="Rename one of them.")
    return frame


def _require_decodable(types: Mapping[str, str], used: set[str]) -> None:
    for name in sorted(used & set(types)):
        kind = types[name].partition("(")[0]
        if kind not in _DECODABLE:
            raise SourceError(
                f"Column {name!r} is of type {kind}, which questions cannot use.",
                fix="Store it as text or as a whole number.",
            )


def _lock_down(connection: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
    allowed = ", ".join(_text(path) for path in paths)
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _reader(path: Path) -> str:
    kind = path.suffix.lower()
    if not path.is_file():
        raise SourceError(f"There is no file {path.name!r}.", fix="Check the path.")
    if kind not in _FILE_KINDS:
        raise SourceError(f"{path.name!r} is none of {', '.join(_FILE_KINDS)}.", fix=_GIVE)
    where = _text(str(path.resolve()))
    return (
        f"read_parquet({where}, hive_partitioning = false)"
        if kind == ".parquet"
        else _csv(path, where)
    )


def _csv(path: Path, where: str) -> str:
    """A reader whose columns come from the header line alone, all as text, skipping broken lines.

    Types and delimiters are never guessed from rows: a guess would be an output that rows decide.
    It is not parallel, because the parallel one refuses line breaks inside quotes.
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
        )
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({where}, columns = {{{columns}}}, delim = {_text(delimiter)}, "
        "header = true, quote = '\"', escape = '\"', auto_detect = false, parallel = false, "
        "ignore_errors = true, null_padding = true, strict_mode = false, hive_partitioning = false)"
    )


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")


def _text(value: str) -> str:
    return exp.Literal.string(value).sql(dialect="duckdb")
