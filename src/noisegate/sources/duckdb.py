"""The embedded engine: CSV, Parquet, and frames in memory, counted by DuckDB."""

import csv
import threading
from collections.abc import Iterable, Sequence
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
_FRAME: Final = "noisegate_frame"
_GIVE: Final = "Give a CSV or Parquet file, or a pandas, Polars or Arrow table."

# Types whose every stored value the engine can read and write as text, each value by itself. Times
# and nested values are not among them, since some have no text; nor are fractions, since frames
# turn a whole column into them, and its large numbers into their neighbours, for one such row.
_DECODABLE: Final = frozenset({
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "UHUGEINT", "VARCHAR", "ENUM", "UUID",
})  # fmt: skip


@final
class DuckDBSource(Source):
    """One table in a private DuckDB connection that can reach this one file and nothing else.

    ``used`` are the columns that questions may look at; the engine sees no others. Whatever could
    fail because of a row fails here, before any question: types are checked, files are read once.
    """

    def __init__(
        self,
        data: "str | Path | Any",  # noqa: ANN401 - any frame
        *,
        table: str,
        used: Iterable[str] = (),
    ) -> None:
        self._table, self._lock = table, threading.Lock()
        self._data: Any = Path(data) if isinstance(data, str | Path) else data
        is_file = isinstance(self._data, Path)
        self._columns = tuple(_types(self._data)) if is_file else _names(data)
        self._used = tuple(name for name in dict.fromkeys(used) if name in self._columns)
        if not is_file:
            self._data = _as_arrow(data, self._used)
        for name, kind in _types(self._data).items():
            if name in self._used:
                _require_decodable(name, kind)
        self._connection = self._connect()
        self._try_once()

    def columns(self) -> tuple[str, ...]:  # noqa: D102 - see Source
        return self._columns

    def collect(self, tally: Tally) -> NDArray[np.int64]:  # noqa: D102 - see Source
        query = select_of(tally).sql(dialect="duckdb")
        with self._lock:
            rows = self._rows(query)
        if tally.by is None or tally.by.keys is None:
            return np.array([rows[0][0] or 0], np.int64)
        counts = np.zeros(tally.cells, np.int64)
        for place, count in rows:
            counts[place] = count or 0
        return counts

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
        names = [exp.to_identifier(name, quoted=True) for name in self._used]
        shown = exp.select(*names) if names else exp.select(exp.alias_(exp.true(), "row"))
        view = exp.to_identifier(self._table, quoted=True).sql(dialect="duckdb")
        connection = duckdb.connect(":memory:")
        with suppress(duckdb.Error):
            if isinstance(self._data, Path):
                _lock_down(connection, [self._data])
                query = f"{shown.sql(dialect='duckdb')} FROM {_reader(self._data)}"
            else:
                connection.register(_FRAME, self._data)
                _lock_down(connection, [])
                query = shown.from_(_FRAME).sql(dialect="duckdb")
            connection.execute(f"CREATE VIEW {view} AS {query}")
            return connection
        raise SourceError(_UNREACHABLE, fix=_GIVE)

    def _try_once(self) -> None:
        """Read what questions will read. A file that cannot be read whole is no table."""
        # lengths in letters, because to count alone the engine would not look at the texts
        texts = [exp.Sum(this=exp.Length(this=_as(name, "TEXT"))) for name in self._used]
        query = exp.select(exp.Count(this=exp.Star()), *texts)
        query = query.from_(exp.to_identifier(self._table, quoted=True))
        with suppress(duckdb.Error):
            self._connection.execute(query.sql(dialect="duckdb")).fetchall()
            return
        raise SourceError(
            "The rows cannot be read whole: a line has too many or too few columns, a quote is "
            "open, a text is no UTF-8.",
            fix="Write the file anew, best as Parquet.",
        )


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
    # The keys come first and the counts are joined to them, so that the answer has a public shape.
    # A filter on the rows instead would cost several times the count itself.
    counts = query.select(
        exp.alias_(_as_key(tally.by), "x"), exp.alias_(exp.Count(this=exp.Star()), "n")
    )
    return (
        exp.select("k.i", "g.n")
        .from_(_keys(tally.by.keys))
        .join(counts.group_by(_as_key(tally.by)).subquery("g"), on="g.x = k.x", join_type="left")
    )


def _keys(keys: Sequence[Key]) -> exp.Values:
    """The declared keys and their places, as a table k(i, x)."""
    rows = [
        exp.Tuple(expressions=[exp.Literal.number(place), _literal(key)])
        for place, key in enumerate(keys)
    ]
    names = [exp.to_identifier("i"), exp.to_identifier("x")]
    return exp.Values(
        expressions=rows, alias=exp.TableAlias(this=exp.to_identifier("k"), columns=names)
    )


def _as_key(column: Column) -> exp.Expr:
    """The column as whole number or text, whatever its type; NULL where that has no meaning."""
    kind = "TEXT" if column.keys is None or isinstance(column.keys[0], str) else "INT128"
    return _as(column.name, kind)


def _as(name: str, kind: str) -> exp.Expr:
    column = exp.column(exp.to_identifier(name, quoted=True))
    return exp.TryCast(this=column, to=exp.DataType.build(kind, dialect="duckdb"))


def _literal(key: Key) -> exp.Expr:
    if isinstance(key, str):
        return exp.Literal.string(key)
    return exp.cast(exp.Literal.string(str(key)), "INT128", dialect="duckdb")


def _names(frame: Any) -> tuple[str, ...]:  # noqa: ANN401 - any frame
    names = tuple(map(str, getattr(frame, "column_names", getattr(frame, "columns", ()))))
    if len(set(names)) < len(names):
        raise SourceError("Two columns have the same name.", fix="Rename one of them.")
    return names


def _as_arrow(frame: Any, used: Sequence[str]) -> Any:  # noqa: ANN401 - a frame in, Arrow out
    """The used columns with types of their own, or one column that says nothing.

    An engine that guesses types would let one row change them all, and one that counts rows may
    decode a column to do so: it gets none that questions do not use.
    """
    import pyarrow as pa  # noqa: PLC0415 - only for frames

    table, names = None, list(used)
    with suppress(pa.ArrowException, TypeError, ValueError, AttributeError, KeyError):
        if isinstance(frame, pa.Table):
            table = frame.select(names) if names else _blank(frame.num_rows)
        elif hasattr(frame, "to_arrow"):  # Polars
            table = frame.select(names).to_arrow() if names else _blank(frame.height)
        elif hasattr(frame, "iloc"):  # pandas; mixed types in a column are refused here
            plain = pa.Table.from_pandas
            table = plain(frame[names], preserve_index=False) if names else _blank(len(frame))
    if not isinstance(table, pa.Table):  # the library's own words are gone: they may quote rows
        raise SourceError(
            "The frame has no plain Arrow form.", fix="Give each column one type. " + _GIVE
        )
    return table


def _blank(rows: int) -> Any:  # noqa: ANN401 - an Arrow table
    import pyarrow as pa  # noqa: PLC0415 - only for frames

    return pa.table({"row": pa.repeat(True, rows)})  # noqa: FBT003 - a value


def _types(data: "Path | Any") -> dict[str, str]:  # noqa: ANN401 - or an Arrow table
    """The columns and their types, as the engine calls them, without reading rows."""
    connection = duckdb.connect(":memory:")
    with suppress(duckdb.Error):
        if isinstance(data, Path):
            source = _reader(data)
        else:
            connection.register(_FRAME, data.slice(0, 0))
            source = _FRAME
        rows = connection.execute(f"DESCRIBE FROM {source}").fetchall()
        return {str(row[0]): str(row[1]) for row in rows}
    raise SourceError(_UNREACHABLE, fix=_GIVE)


def _require_decodable(name: str, kind: str) -> None:
    if kind.partition("(")[0] not in _DECODABLE:
        raise SourceError(
            f"Column {name!r} is of type {kind.partition('(')[0]}, which questions cannot use.",
            fix="Store it as text or as a whole number.",
        )


def _lock_down(connection: duckdb.DuckDBPyConnection, paths: list[Path]) -> None:
    allowed = ", ".join(_text(str(path.resolve())) for path in paths)
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
        )
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({where}, columns = {{{columns}}}, delim = {_text(delimiter)}, "
        "header = true, quote = '\"', escape = '\"', auto_detect = false, strict_mode = true, "
        "hive_partitioning = false)"
    )


def _text(value: str) -> str:
    return exp.Literal.string(value).sql(dialect="duckdb")
