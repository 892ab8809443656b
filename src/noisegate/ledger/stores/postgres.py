"""The ledger in a Postgres schema: an advisory lock serialises writers, each commit is synchronous.

A connection can break at any moment. Before COMMIT was sent, nothing happened and the transaction
runs again on a new connection. If the answer to COMMIT is lost, the outcome is in doubt: after
reconnecting, the lock is taken again, so the old transaction has surely ended, and its entry is
looked up by number, hash and writer. If it is there the operation is done; if not, it runs again.
Either way nothing is charged twice.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from threading import RLock
from time import sleep
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, final
from uuid import uuid4

from noisegate.errors import LedgerError, SpecError
from noisegate.extras import extra
from noisegate.ledger.entry import STORE_FORMAT, Entry
from noisegate.ledger.fork import close_before_fork
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.stores.sql import Rows, SQLTransaction
from noisegate.ledger.transaction import Transaction

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

RETRY_AFTER_S: Final = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0)
CONNECT_TIMEOUT_S: Final = 10
_AGAIN: Final = "Ask again with the same request id; nothing is charged twice."

_TABLES: Final = """
CREATE TABLE ledger_format (application text NOT NULL, format integer NOT NULL);
CREATE TABLE entries (
    seq bigint PRIMARY KEY, kind text NOT NULL, at text NOT NULL, body text NOT NULL,
    previous_hash text NOT NULL, hash text NOT NULL,
    writer text NOT NULL DEFAULT current_setting('noisegate.writer', true)
);
CREATE TABLE answers (seq bigint PRIMARY KEY, answer bytea NOT NULL);
CREATE TABLE accounts (
    name text PRIMARY KEY, parent text, accountant text NOT NULL, epsilon text NOT NULL,
    delta text NOT NULL, unit text NOT NULL, spent_amount text NOT NULL, spent_delta text NOT NULL,
    reservations bigint NOT NULL, unsettled bigint NOT NULL, number bigint NOT NULL,
    also text NOT NULL DEFAULT ''
);
CREATE TABLE requests (
    request_id text PRIMARY KEY, account text NOT NULL, use_of text NOT NULL,
    question text NOT NULL, event text NOT NULL, charges text NOT NULL,
    reserved bigint NOT NULL, settled bigint
);
CREATE INDEX requests_by_question ON requests (question, settled)
    WHERE settled IS NOT NULL;
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION '% are append-only', TG_TABLE_NAME; END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON answers
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
"""
_ORIGINS: Final = (
    "CREATE TABLE origins (place text PRIMARY KEY, account text NOT NULL, mark text NOT NULL)"
)
WITH_ORIGINS: Final = 2  # the format that has them
_MARK: Final = "INSERT INTO ledger_format (application, format) VALUES ('noisegate', ?)"
_COMMITTED: Final = "SELECT 1 FROM entries WHERE seq = ? AND hash = ? AND writer = ?"


@final
class PostgresLedger(Ledger):
    """A ledger in a schema of its own on a Postgres server."""

    durable: ClassVar[bool] = True

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "noisegate",
        **options: Any,  # noqa: ANN401 - passed on
    ) -> None:
        super().__init__(**options)
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
            raise SpecError(
                f"The schema is {schema!r}.", fix="Use a-z, 0-9 and _ only.", about="schema"
            )
        self._psycopg = _psycopg()
        self._conninfo, self._schema = conninfo, schema
        self._lock = RLock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        close_before_fork(self)
        self._bring_about(_Attempt(self._opening(), self._create_or_check), patient=False)

    def close(self) -> None:
        """Close the connection; the next operation opens a new one."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    def _write(self, work: Callable[[Transaction], T]) -> T:
        return self._bring_about(_Attempt(self._opening(), work))

    def _read(self, work: Callable[[Transaction], T]) -> T:
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
        return self._bring_about(_Attempt(begin + self._settings(), work))

    def _opening(self) -> str:
        """How a writer begins: durable commits, and alone in this schema."""
        key = int.from_bytes(sha256(f"noisegate ledger {self._schema}".encode()).digest()[:8])
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            " SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = '30s';"
            " SET LOCAL idle_in_transaction_session_timeout = '60s';"
            f"{self._settings()} SELECT pg_advisory_xact_lock({key - (1 << 63)});"
        )

    def _settings(self) -> str:
        return f" SET LOCAL search_path = {self._schema}, pg_catalog, pg_temp;"

    def _bring_about(self, attempt: "_Attempt[T]", *, patient: bool = True) -> T:
        """Run the attempt until it is known to have happened once, or to be impossible."""
        waits_s = iter(RETRY_AFTER_S if patient else ())
        with self._lock:
            while True:
                try:
                    return attempt.run(self._connection or self._connect())
                except self._psycopg.Error as error:
                    if not self._is_broken(error):
                        self._roll_back()
                        raise _spoken(error) from error
                    self.close()
                    wait_s = next(waits_s, None)
                    if wait_s is None:
                        raise _spoken(error) from error
                    sleep(wait_s)
                except BaseException:
                    self._roll_back()
                    raise

    def _is_broken(self, error: "psycopg.Error") -> bool:
        return self._connection is None or self._connection.closed or _is_fatal(error)

    def _roll_back(self) -> None:
        if self._connection is not None and not self._connection.closed:
            with suppress(self._psycopg.Error):  # the error that led here is the one to report
                self._connection.execute("ROLLBACK")
                return
            self.close()

    def _connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        connection: psycopg.Connection[tuple[Any, ...]] = self._psycopg.connect(
            self._conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
        )
        if connection.execute("SHOW fsync").fetchone() != ("on",):
            connection.close()
            raise LedgerError(
                "The Postgres server runs with fsync off, so its commits do not survive a crash.",
                fix="Set fsync = on, or use another server for the ledger.",
                about="fsync",
            )
        self._connection = connection
        return connection

    def _create_or_check(self, tx: "_PostgresTransaction") -> None:
        """Make the schema, tables and first entry at once, or check that they are ours."""
        name = self._schema
        if tx.run("SELECT to_regclass(?)::text", f"{name}.ledger_format") != [(None,)]:
            rows = tx.run("SELECT application, format FROM ledger_format")
            _require_format(rows, name)
            if rows[0][1] < WITH_ORIGINS:
                tx.run(_ORIGINS)
            if rows[0][1] < STORE_FORMAT:  # an older noisegate would charge one parent alone
                tx.run("ALTER TABLE accounts ADD COLUMN also text NOT NULL DEFAULT ''")
                tx.run("UPDATE ledger_format SET format = ?", STORE_FORMAT)
            return
        if tx.run("SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace(?) LIMIT 1", name):
            raise _not_a_ledger(name)
        if tx.run("SELECT to_regnamespace(?)::text", name) == [(None,)]:
            tx.run(f"CREATE SCHEMA {name}")
        tx.run(_TABLES)
        tx.run(_ORIGINS)
        tx.run(_MARK, STORE_FORMAT)
        self._begin(tx)


@final
class _PostgresTransaction(SQLTransaction):
    """Statements on one connection; remembers the last entry, by which a lost commit is found."""

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        self._connection = connection
        self.appended: Entry | None = None

    def append(self, entry: Entry) -> None:
        super().append(entry)
        self.appended = entry

    def wrote(self, entry: Entry, *, writer: str) -> bool:
        """Whether a transaction of this writer committed the entry."""
        return bool(self._run(_COMMITTED, entry.seq, entry.hash, writer))

    def run(self, statement: str, *values: object) -> Rows:
        """Any statement, for making the tables."""
        return self._run(statement, *values)

    def _run(self, statement: str, *values: object) -> Rows:
        cursor = self._connection.execute(_placeholders(statement), values or None)
        return cursor.fetchall() if cursor.description else []


@final
class _Attempt(Generic[T]):
    """One operation, to be brought about exactly once however often connections break."""

    def __init__(self, begin: str, work: Callable[[_PostgresTransaction], T]) -> None:
        self._writer = uuid4().hex
        self._begin = f"{begin} SET LOCAL noisegate.writer = '{self._writer}'".encode()
        self._work = work
        self._in_doubt: tuple[Entry, T] | None = None

    def run(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> T:
        """Commit once; after a lost commit, find out first whether it was one."""
        connection.execute(self._begin, prepare=False)  # several statements
        tx = _PostgresTransaction(connection)
        if self._in_doubt is not None:
            entry, result = self._in_doubt
            if tx.wrote(entry, writer=self._writer):
                connection.execute("ROLLBACK", prepare=False)
                return result
        self._in_doubt = None
        result = self._work(tx)
        if tx.appended is not None:
            self._in_doubt = tx.appended, result
        connection.execute("COMMIT", prepare=False)
        return result


@lru_cache(maxsize=64)
def _placeholders(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def _psycopg() -> Any:  # noqa: ANN401 - a module
    return extra("psycopg", "Ledgers in Postgres", "postgres")


def _require_format(rows: Rows, schema: str) -> None:
    if len(rows) != 1 or rows[0][0] != "noisegate":
        raise _not_a_ledger(schema)
    if rows[0][1] > STORE_FORMAT:
        raise LedgerError(
            f"The ledger in {schema!r} has format {rows[0][1]}; this version knows {STORE_FORMAT}.",
            fix="Open it with a newer noisegate. It was not changed.",
            about="format",
        )


def _not_a_ledger(schema: str) -> LedgerError:
    return LedgerError(
        f"The schema {schema!r} holds tables that are not a ledger.",
        fix="Name another schema. It was not changed.",
        about="not-a-ledger",
    )


def _is_fatal(error: "psycopg.Error") -> bool:
    """The server said that it ends this connection, before the socket shows it."""
    return error.diag.severity_nonlocalized in ("FATAL", "PANIC")


def _spoken(error: "psycopg.Error") -> LedgerError:
    text = error.diag.message_primary or str(error).split("\n", maxsplit=1)[0]
    return LedgerError(f"The ledger's Postgres server reports: {text}.", fix=_AGAIN, about="server")
