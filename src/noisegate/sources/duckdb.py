"""The embedded engine: CSV, Parquet, and frames in memory, counted by DuckDB."""

import csv
import threading
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


@final
class DuckDBSource(Source):
    """One table in a private DuckDB connection that can reach this one file and nothing else."""

    def __init__(self, data: "str | Path | Any", *, table: str) -> None:  # noqa: ANN401 - any frame
        self._table = table
        self._lock = threading.Lock()
        self._connection = duckdb.connect(":memory:")
        try:
            if isinstance(data, str | Path):
                self._attach_file(Path(data))
            else:
                self._connection.register(table, data)
                self._lock_down([])
            described = self._connection.execute(f"DESCRIBE {_quoted(table)}").fetchall()
        except duckdb.Error:
            raise SourceError(
                _UNREACHABLE, fix="Give a CSV or Parquet file, or a pandas, Polars or Arrow table."
            ) from None
        self._columns = tuple(str(row[0]) for row in described)

    def columns(self) -> tuple[str, ...]:  # noqa: D102 - see Source
        return self._columns

    def collect(self, tally: Tally) -> NDArray[np.int64]:  # noqa: D102 - see Source
        query = select_of(tally).sql(dialect="duckdb")
        try:
            with self._lock:
                rows = self._connection.execute(query).fetchall()
        except duckdb.Error:
            raise SourceError(
                _UNREACHABLE, fix="Nothing left the door; ask again with the same request."
            ) from None
        if tally.by is None or tally.by.keys is None:
            return np.array([rows[0][0] or 0], np.int64)
        counts = {key: count for key, count in rows if key is not None}
        return np.array([counts.get(_stored(key), 0) for key in tally.by.keys], np.int64)

    def _attach_file(self, path: Path) -> None:
        if not path.is_file():
            raise SourceError(f"There is no file {path.name!r}.", fix="Check the path.")
        if path.suffix.lower() not in _FILE_KINDS:
            raise SourceError(
                f"{path.name!r} is none of {', '.join(_FILE_KINDS)}.", fix="Convert it first."
            )
        where = str(path.resolve())
        self._lock_down([where])
        reader = f"read_parquet({_text(where)})" if path.suffix == ".parquet" else _csv(path, where)
        view = f"CREATE VIEW {_quoted(self._table)} AS SELECT * FROM {reader}"  # noqa: S608 - quoted
        self._connection.execute(view)

    def _lock_down(self, paths: list[str]) -> None:
        allowed = ", ".join(_text(path) for path in paths)
        self._connection.execute(f"SET allowed_paths = [{allowed}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")


def select_of(tally: Tally) -> exp.Select:
    """The query of a tally. Casts are TRY_CAST, so that no row can make it fail.

    Claim: its numbers change by at most the tally's sensitivity when one unit's rows are added.
    Why: COUNT(*) adds one per row; with a unit column, LEAST(rows of the unit, cap) per unit.
    """
    query = exp.select().from_(exp.to_identifier(tally.table, quoted=True))
    for column, key in tally.where:
        query = query.where(exp.EQ(this=_as_key(column), expression=_literal(_stored(key))))
    if tally.unit is not None:
        unit = exp.column(exp.to_identifier(tally.unit, quoted=True))
        per_unit = query.select(exp.alias_(exp.Count(this=exp.Star()), "n")).group_by(unit)
        capped = exp.Least(
            this=exp.column("n"), expressions=[exp.Literal.number(tally.rows_per_unit_max or 0)]
        )
        return exp.select(exp.Sum(this=capped)).from_(per_unit.subquery("units"))
    if tally.by is None or tally.by.keys is None:
        return query.select(exp.Count(this=exp.Star()))
    keys = [_literal(_stored(key)) for key in tally.by.keys]
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


def _stored(key: Key) -> str | int:
    return key if isinstance(key, str) else int(key)


def _literal(key: str | int) -> exp.Expr:
    return exp.Literal.string(key) if isinstance(key, str) else exp.convert(key)


def _csv(path: Path, where: str) -> str:
    """A reader whose columns come from the header line alone, all as text, skipping broken lines.

    Types and delimiters are never guessed from rows: a guess would be an output that rows decide.
    """
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        first = file.readline()
    delimiter = max(",;\t|", key=first.count) if path.suffix.lower() != ".tsv" else "\t"
    names = next(csv.reader([first], delimiter=delimiter), [])
    if not names or len(set(names)) < len(names) or not all(name.strip() for name in names):
        raise SourceError(
            f"The first line of {path.name!r} does not name its columns.",
            fix="Put each column's name once into the first line.",
        )
    columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({_text(where)}, columns = {{{columns}}}, delim = {_text(delimiter)}, "
        "header = true, quote = '\"', escape = '\"', auto_detect = false, "
        "ignore_errors = true, null_padding = true, strict_mode = false)"
    )


def _quoted(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect="duckdb")


def _text(value: str) -> str:
    return exp.Literal.string(value).sql(dialect="duckdb")
