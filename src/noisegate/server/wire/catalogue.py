"""What looks are answered from: the catalogue, of declared facts alone, and the practice twin.

For the catalogue, an engine of its own holds its tables and nothing else: no row, no file, no
network. It runs what clients send, so it has little memory and little time. The twin's engine is
that of the free SQL over released tables: it can reach nothing else, refuses what is not a plain
SELECT, and has little memory and time.
"""

from collections.abc import Mapping
from threading import Lock, Timer
from typing import Any, Final, final

import duckdb
import pyarrow as pa
from sqlglot import exp

from noisegate.errors import Unsupported, UserError
from noisegate.privacy.domain import TableDomain
from noisegate.server.wire import relations
from noisegate.server.wire.rewriting import Context, rewritten
from noisegate.server.wire.statements import spelled, with_names
from noisegate.server.wire.types import Type
from noisegate.sql.outer.engine import run_outer
from noisegate.sql.outer.limits import add_limits, parsed, require_small

_SECONDS: Final = 5.0
_ROWS_MAX: Final = 20_000  # nobody needs more of them, and a session keeps what it shows
_VIEWS: Final = (  # for look-ups, with names that no question has
    "CREATE SCHEMA ng",
    "CREATE VIEW ng.classes AS SELECT oid AS ng_oid, relname AS ng_name FROM pg.pg_class",
    (
        "CREATE VIEW ng.types AS SELECT oid::BIGINT AS ng_oid, typname AS ng_name,"
        " formatted AS ng_words FROM pg.pg_type"
    ),
    (
        "CREATE VIEW ng.descriptions AS SELECT objoid::BIGINT AS ng_oid, objsubid AS ng_place,"
        " description AS ng_words FROM pg.pg_description"
    ),
    (
        "CREATE VIEW ng.constraints AS SELECT oid::BIGINT AS ng_oid, definition AS ng_words"
        " FROM pg.pg_constraint"
    ),
)
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "error_on_division_by_zero": "false",
    "memory_limit": "256MB",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "1",
}


@final
class Catalogue:
    """The catalogue of one data set."""

    def __init__(
        self, dataset: str, tables: Mapping[str, TableDomain], settings: Mapping[str, str]
    ) -> None:
        self._engine = duckdb.connect(":memory:", config=_CONFIG)
        self._lock = Lock()
        self._engine.begin()
        for schema, listed in (("pg", relations.PG), ("info", relations.INFORMATION)):
            self._engine.execute(f"CREATE SCHEMA {schema}")
            for name, spec in listed.items():
                typed = ", ".join(
                    f'"{column}" {relations.LETTERS[letter]}'
                    for column, letter in relations.columns_of(spec).items()
                )
                self._engine.execute(f"CREATE TABLE {schema}.{name} ({typed})")
        for view in _VIEWS:
            self._engine.execute(view)
        for schema, name, row in relations.Facts(dataset, tables, settings).rows():
            columns = ", ".join(f'"{column}"' for column in row)
            marks = ", ".join("?" * len(row))
            into = f"INSERT INTO {schema}.{name} ({columns}) VALUES ({marks})"  # noqa: S608 - ours
            self._engine.execute(into, list(row.values()))
        self._engine.commit()
        add_limits(self._engine)
        self._engine.execute("SET GLOBAL TimeZone = 'UTC'")
        self._engine.execute("SET lock_configuration = true")

    def answer(self, tree: exp.Expr, context: Context) -> pa.Table:
        """The answer to a question about the catalogue."""
        sql = rewritten(tree, context)
        with self._lock:
            cursor = self._engine.cursor()
        timer = Timer(_SECONDS, cursor.interrupt)
        timer.daemon = True
        timer.start()
        try:
            require_small(parsed(cursor, sql).get("statements"))
            return _fetched(cursor, sql)
        except (duckdb.Error, RuntimeError) as failure:
            refused = _refusal(failure)
        finally:
            timer.cancel()
            cursor.close()
        raise refused

    def __call__(self, name: str) -> tuple[Type, Any] | None:
        """The type of a column of the catalogue, by its name alone."""
        found = relations.COLUMN_TYPES.get(name.lower())
        return None if found is None else (found, None)

    def close(self) -> None:
        """Free the engine."""
        self._engine.close()


def _fetched(cursor: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    reader: Any = cursor.sql(sql).to_arrow_reader(1 << 12)
    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows > _ROWS_MAX:
            raise Unsupported("The result is too large.", fix="Add WHERE or LIMIT.", about="size")
    return pa.Table.from_batches(batches, schema=reader.schema)


def _refusal(failure: Exception) -> UserError:
    """The engine's complaint, which is about declared facts alone, in one line."""
    if isinstance(failure, duckdb.InterruptException):
        return Unsupported("The SQL takes too long.", fix="Ask for less at once.", about="time")
    said = " ".join(str(failure).partition("\n")[0].split())[:200].rstrip(".")
    kinds = {duckdb.ParserException: "syntax", duckdb.CatalogException: "function"}
    about = next((word for kind, word in kinds.items() if isinstance(failure, kind)), "engine")
    return Unsupported(f"{said}.", fix="Correct this part.", about=about)


@final
class Twin:
    """What a preview shows: made-up rows of one data set, without its hidden columns.

    They follow declared facts; public tables are as they are.
    """

    def __init__(self, rows: Mapping[str, Any], tables: Mapping[str, TableDomain]) -> None:
        self.tables = tables
        self._rows: dict[str, pa.Table] = {}
        for name, table in rows.items():
            declared = tables[name].columns
            shown = [each for each in declared if not declared[each].hidden]
            self._rows[name] = table.select([each for each in shown if each in table.column_names])

    def answer(self, tree: exp.Expr) -> pa.Table:
        """A question of any form over made-up rows."""
        found = run_outer(spelled(_plain(tree)), {}, self._rows)
        if found.num_rows > _ROWS_MAX:
            raise Unsupported("The result is too large.", fix="Add WHERE or LIMIT.", about="size")
        return found


def _plain(tree: exp.Expr) -> exp.Expr:
    """Without what samples and shuffles: made-up rows are as good as any others."""
    found = with_names(tree.copy())
    for node in list(found.find_all(exp.TableSample)):
        node.pop()
    for order in list(found.find_all(exp.Order)):
        if order.find(exp.Rand) is not None:
            order.pop()
    for place in [each for each in found.find_all(exp.Column) if each.name.lower() == "ctid"]:
        condition = place.find_ancestor(exp.Predicate)
        if condition is not None:
            condition.replace(exp.true())  # a part of a table by where its rows are stored
    return found
