"""The free SQL over released tables, run by an engine that can reach nothing else.

Everything here is post-processing: the engine holds released and public tables, and no key to the
rows. It is locked down all the same, because it runs whatever was asked: no files, no network, no
extensions, one thread, little memory, little time. The engine's own parser says what a statement
does before it runs:

- one SELECT, over the given tables and its own CTEs only: no catalog, settings or system view,
  which would tell the server's paths, and no table function but those that list numbers;
- functions that give the same value every time. Clocks, dice, samples and session facts are
  harmless to privacy, but the same question would no longer have the same answer;
- nothing that a few letters make huge (`limits.py`).

Division by zero is NULL, and so are NaN and infinity in the result.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import cache, lru_cache
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from noisegate.arrow import arrow_column
from noisegate.errors import Unsupported, is_interrupt
from noisegate.sql.outer.limits import add_limits, nodes_of, parsed, require_small
from noisegate.sql.question import Question

if TYPE_CHECKING:
    import duckdb
SECONDS_MAX: Final = 10.0
ROWS_MAX: Final = 1_000_000
BYTES_MAX: Final = 1 << 28
_BATCH: Final = 1 << 16
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "error_on_division_by_zero": "false",
    "lock_configuration": "true",
    "memory_limit": "512MB",
    "python_enable_replacements": "false",  # a name never means a Python variable
    "temp_directory": "",
    "threads": "1",
}
_TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest"})
_UNLISTED: Final = frozenset({"grouping", "grouping_id", "unnest"})  # known to the binder alone
_BARE: Final = frozenset(  # read without parentheses, where no column has the name
    {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
    | {"current_localtime", "current_localtimestamp"}
)
_CLOCKS: Final = _BARE | {"age", "ago"}  # the engine lists them as constant
_BOMBS: Final = frozenset(  # a few letters that make gigabytes, past the engine's memory limit
    {"range", "generate_series", "repeat", "list_resize", "array_resize", "bitstring"}
    | {"list_reduce", "array_reduce", "reduce"}
)
_SESSION: Final = frozenset({"version", "get_block_size", "json_serialize_plan"})
_ELSE: Final = "Use deterministic functions of released values, and FROM range(n)."
_AGAIN: Final = "The same question must have the same answer: write the date itself."


def shown_table(
    question: Question, tables: Mapping[str, pa.Table], public: Mapping[str, pa.Table]
) -> pa.Table:
    """The table of an answer. Columns that are only picked need no engine."""
    if question.picked is None:
        return run_outer(question.outer, tables, public)
    (table,) = tables.values()
    return _plain(table.select(question.picked).rename_columns(question.columns))


def run_outer(sql: str, tables: Mapping[str, pa.Table], public: Mapping[str, pa.Table]) -> pa.Table:
    """The result of a SELECT over the given tables, with plain column types.

    Rows come in the order the SQL says, else in that of the released table.
    """
    import duckdb  # noqa: PLC0415 - not before it is needed

    given = {**public, **tables}
    cursor = _engine(os.getpid()).cursor()
    try:
        _require_repeatable(sql, frozenset(name.lower() for name in given), os.getpid())
        for name, table in given.items():
            cursor.register(name, table)
        with _time_limit(cursor):
            return _plain(_fetch(cursor, sql))
    except (duckdb.Error, RuntimeError) as failure:
        if is_interrupt(failure):
            raise KeyboardInterrupt from None
        if not isinstance(failure, duckdb.Error):
            raise
        problem, fix, about = _words(failure)
    finally:
        cursor.close()
    raise Unsupported(problem, fix=fix, about=about)


@cache
def _engine(process: int) -> "duckdb.DuckDBPyConnection":  # noqa: ARG001 - one for each process
    """An empty engine. Each call works on a cursor of its own, with tables only it can see."""
    import duckdb  # noqa: PLC0415

    engine = duckdb.connect(":memory:", config=_CONFIG)
    add_limits(engine)
    return engine


@contextmanager
def _time_limit(cursor: "duckdb.DuckDBPyConnection") -> Iterator[None]:
    timer = Timer(SECONDS_MAX, cursor.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _words(failure: "duckdb.Error") -> tuple[str, str, str]:
    """The engine's complaint, which is about public values alone, in one short line."""
    import duckdb  # noqa: PLC0415

    if isinstance(failure, duckdb.InterruptException):
        return f"The SQL runs longer than {SECONDS_MAX:g} s.", "Ask for less at once.", "time"
    if isinstance(failure, duckdb.OutOfMemoryException):
        return "The SQL needs too much memory.", "Ask for less at once.", "memory"
    line = str(failure).partition("\n")[0].partition("Error: ")
    said = " ".join((line[2] or line[0]).split())[:200].rstrip(".")
    return f"The SQL over the released table fails: {said}.", "Correct this part.", "engine"


# what a statement does, in the words of the engine's own parser


@lru_cache(maxsize=256)
def _require_repeatable(sql: str, tables: frozenset[str], process: int) -> None:
    """Refuse all but one SELECT over the given tables with functions that do not change."""
    with _engine(process).cursor() as cursor:
        tree = parsed(cursor, sql)
    if tree.get("error_type") == "parser":
        raise Unsupported(
            f"The SQL cannot be read: {tree['error_message']}.",
            fix="Correct this part.",
            about="syntax",
        )
    if tree.get("error") or len(tree["statements"]) != 1:
        raise Unsupported("The SQL is not one SELECT.", fix="Ask one question with SELECT.")
    nodes = nodes_of(tree["statements"])
    ctes = {str(node["key"]).lower() for node in nodes if "key" in node and "value" in node}
    if ctes and (taken := ctes & _system_views(process)):
        raise Unsupported(f"{min(taken)!r} is reserved by the engine.", fix="Use another name.")
    for node in nodes:
        _require_known(node, tables | ctes)
    require_small(tree["statements"])


def _require_known(node: Mapping[str, Any], tables: frozenset[str]) -> None:
    kind, path = node.get("type"), (node.get("qualified_name") or {}).get("path") or []
    if kind == "BASE_TABLE" and (len(path) != 1 or path[0].lower() not in tables):
        name = ".".join(path)
        raise Unsupported(
            f"There is no table {name!r}.", fix="Use a table of the question.", about="table"
        )
    if kind == "SHOW_REF":
        raise Unsupported("DESCRIBE, SHOW and SUMMARIZE are not supported.", fix="Use SELECT.")
    if kind == "TABLE_FUNCTION":
        name = str(node["function"].get("function_name", "")).lower()
        if name not in _TABLE_FUNCTIONS:
            raise Unsupported(
                f"The table function {name!r} is not supported.",
                fix=f"Use {', '.join(sorted(_TABLE_FUNCTIONS))} or a table.",
            )
    if node.get("sample") is not None:
        raise Unsupported("SAMPLE draws different rows each time.", fix="Use ORDER BY and LIMIT.")
    if kind == "COLUMN_REF" and [each.lower() for each in node["column_names"]][-1] in _BARE:
        raise Unsupported(f"{node['column_names'][-1]} changes with time.", fix=_AGAIN)
    name = str(node.get("function_name") or "").lower()
    if name and not node.get("is_operator") and name not in _functions(os.getpid()):
        raise Unsupported(f"The function {name!r} is not supported here.", fix=_ELSE)


@cache
def _functions(process: int) -> frozenset[str]:
    """The engine's functions of values: no dice, no clock, no state; macros unless they name one.

    The postgres-like ones look into the catalog and are left out.
    """
    listed = _engine(process).execute(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions()"
        " WHERE stability = 'CONSISTENT' OR (function_type = 'macro' AND schema_name = 'main'"
        " AND NOT regexp_matches(macro_definition, 'current_|pragma_|error'))"
    )
    return (
        frozenset(name for (name,) in listed.fetchall()) - _CLOCKS - _SESSION - _BOMBS | _UNLISTED
    )


@cache
def _system_views(process: int) -> frozenset[str]:
    listed = _engine(process).execute("SELECT lower(view_name) FROM duckdb_views()")
    return frozenset(name for (name,) in listed.fetchall())


# what comes back


def _fetch(cursor: "duckdb.DuckDBPyConnection", sql: str) -> pa.Table:
    reader: Any = cursor.sql(sql).to_arrow_reader(_BATCH)
    batches, rows, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > ROWS_MAX or size > BYTES_MAX:
            raise Unsupported("The result is too large.", fix="Add WHERE or LIMIT.", about="size")
    return pa.Table.from_batches(batches, schema=reader.schema)


def _plain(table: pa.Table) -> pa.Table:
    """Booleans, whole numbers, doubles, text, dates and times; others are refused by name."""
    columns = [_plain_column(table.column(i), table.field(i)) for i in range(table.num_columns)]
    return pa.Table.from_arrays(columns, names=table.column_names)


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether it can stay as it is; numbers if none is missing, beyond 2**62, infinite or NaN."""
    kind, types = column.type, pa.types
    if types.is_boolean(kind) or types.is_date(kind) or kind in (pa.string(), pa.timestamp("us")):
        return True
    if kind not in (pa.int64(), pa.float64()) or column.null_count:
        return False
    values = [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]
    return all(bool(((each > -(2**62)) & (each < 2**62)).all()) for each in values)


def _plain_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    kind, types = field.type, pa.types
    if _is_plain(column):
        return column
    if types.is_timestamp(kind):
        return column.cast(pa.timestamp("us"))
    if types.is_null(kind) or types.is_string(kind) or types.is_dictionary(kind):
        return column.cast(pa.string())
    if types.is_list(kind) and not types.is_nested(kind.value_type):  # levels of a quantile
        rows = [None if row is None else _listed(row) for row in column.to_pylist()]
        return pa.chunked_array([rows], pa.string())
    return _number_column(column, field)


def _listed(row: list[Any]) -> str:
    """A list as text; whole numbers are whole, other numbers doubles."""
    return json.dumps(
        row, ensure_ascii=False, default=lambda v: float(v) if isinstance(v, Decimal) else str(v)
    )


def _number_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    import pyarrow.compute as pc  # noqa: PLC0415

    kind, types = field.type, pa.types
    if types.is_integer(kind) or (types.is_decimal(kind) and kind.scale == 0):
        widest = pc.max(pc.abs(column.cast(pa.float64(), safe=False))).as_py()
        if widest is None or widest < 2**62:
            return column.cast(pa.int64())
    if types.is_decimal(kind):  # the nearest double, which Arrow's own cast is not
        column = arrow_column([each and float(each) for each in column.to_pylist()], pa.float64())
        return pa.chunked_array([column])
    if types.is_integer(kind) or types.is_floating(kind):
        column = column.cast(pa.float64(), safe=False)
        return pc.if_else(pc.is_finite(column), column, pa.scalar(None, pa.float64()))
    raise Unsupported(
        f"Column {field.name!r} holds {kind}, which an answer cannot show.",
        fix="Cast it, for example CAST(x AS VARCHAR).",
        about="type",
    )
