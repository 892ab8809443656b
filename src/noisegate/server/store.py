"""What the service keeps beside the ledger: people, tokens, runs, the access log.

A SQLite file, or tables of a schema in a Postgres database where several replicas share a ledger.
Nothing in here decides about privacy: the ledger does. Statements are written once, with ? for
parameters. What is written is on the disk before anybody is told; those who write at the same time
share one transaction, so that the disk is waited for once.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, Final, TypeAlias, TypeVar, cast, final

from noisegate.errors import OperatorError
from noisegate.extras import extra
from noisegate.ledger.open import split_schema

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Do: TypeAlias = Callable[[str, Sequence[Any]], list[Row]]  # one statement; its rows, if any

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS people (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, password TEXT, salt TEXT NOT NULL,
    created TEXT NOT NULL, disabled TEXT)

CREATE TABLE IF NOT EXISTS tokens (
    id TEXT PRIMARY KEY, person TEXT NOT NULL, label TEXT NOT NULL, digest TEXT NOT NULL,
    stored_key TEXT NOT NULL, server_key TEXT NOT NULL, datasets TEXT, allow TEXT,
    epsilon_question TEXT, epsilon_hour TEXT, created TEXT NOT NULL, expires TEXT, revoked TEXT,
    purpose TEXT)

CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, person TEXT NOT NULL, dataset TEXT NOT NULL, key TEXT,
    ordered TEXT NOT NULL, fresh INTEGER NOT NULL, practice INTEGER NOT NULL, face TEXT NOT NULL,
    token TEXT, state TEXT NOT NULL, created TEXT NOT NULL, finished TEXT, price TEXT,
    period TEXT, allow TEXT, asked TEXT, pending TEXT, charged TEXT, settled TEXT,
    cost TEXT,
    UNIQUE (person, dataset, key))

CREATE INDEX IF NOT EXISTS runs_by_person ON runs (person, created)

CREATE TABLE IF NOT EXISTS access (
    seq INTEGER PRIMARY KEY, at TEXT NOT NULL, person TEXT NOT NULL, token TEXT,
    face TEXT NOT NULL, action TEXT NOT NULL, dataset TEXT, detail TEXT NOT NULL,
    hash TEXT NOT NULL)

CREATE TABLE IF NOT EXISTS plans (
    id TEXT PRIMARY KEY, person TEXT NOT NULL, token TEXT NOT NULL, dataset TEXT NOT NULL,
    ordered TEXT NOT NULL, fresh INTEGER NOT NULL, price TEXT NOT NULL, expires TEXT NOT NULL)

CREATE TABLE IF NOT EXISTS secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL)

CREATE TABLE IF NOT EXISTS pauses (dataset TEXT PRIMARY KEY, at TEXT NOT NULL, person TEXT NOT NULL)

CREATE TABLE IF NOT EXISTS published (
    run TEXT PRIMARY KEY, dataset TEXT NOT NULL, at TEXT NOT NULL, person TEXT NOT NULL)

CREATE TABLE IF NOT EXISTS sessions (
    digest TEXT PRIMARY KEY, person TEXT NOT NULL, token TEXT, csrf TEXT NOT NULL,
    expires TEXT NOT NULL)
""".strip().split("\n\n")

_ADDED: Final = (("tokens", "purpose"), ("runs", "settled"), ("runs", "cost"))
_ALONE: Final = "SELECT pg_advisory_xact_lock(5651012)"  # replicas that start at once make it once
_IN_TURN: Final = "LOCK TABLE runs, access IN EXCLUSIVE MODE"  # who looks does not wait


class _Wish:
    """Work that somebody wants to be done, and what came of it."""

    def __init__(self, work: Callable[[Do], Any]) -> None:
        self._work, self.made, self.error = work, None, None  # type: Any, Any, BaseException | None
        self.is_over = False

    def grant(self, run: Do) -> None:
        """Do it; what it refuses leaves nothing of it, and all of the others'."""
        run("SAVEPOINT wish", ())
        try:
            self.made = self._work(run)
        except Exception as error:  # noqa: BLE001 - told to whoever wished it
            self.error = error
            run("ROLLBACK TO SAVEPOINT wish", ())
        run("RELEASE SAVEPOINT wish", ())


class _Reader:
    """A connection to a file that sees what is written, and does not wait for writers."""

    def __init__(self) -> None:
        self.lock, self.connection = RLock(), None  # type: RLock, Any


@final
class Store:
    """Runs statements in transactions. Threads may share it."""

    def __init__(self, where: str | Path) -> None:
        self._where, self._lock = str(where), RLock()
        self._connection: Any = None
        self._lists, self._rows = _Reader(), _Reader()  # who wants a row waits for no list
        self._wishes: deque[_Wish] = deque()
        self._mark = "%s" if self._is_server else "?"
        with self._lock, self._transaction() as run:
            if self._is_server:
                run(_ALONE, ())
            for table in _TABLES:
                run(table.replace("seq INTEGER", "seq BIGINT") if self._is_server else table, ())
            for table, column in _ADDED:  # columns that earlier stores do not have
                if self._is_server:
                    run(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column} TEXT", ())
                elif column not in {row[1] for row in run(f"PRAGMA table_info({table})", ())}:
                    run(f"ALTER TABLE {table} ADD COLUMN {column} TEXT", ())

    @property
    def _is_server(self) -> bool:
        return self._where.startswith(("postgresql://", "postgres://"))

    def do(self, work: Callable[[Do], T]) -> T:
        """Run ``work`` in a transaction; on any error nothing of it remains.

        Whoever comes while others write is waited for: the next transaction is that of them all,
        one after another, and they return when it is on the disk. Nobody else writes meanwhile, no
        other replica either.
        """
        wish = _Wish(work)
        self._wishes.append(wish)
        with self._lock:
            if not wish.is_over:
                self._grant_all()
        return cast("T", self._made(wish))

    def do_all(self, works: Sequence[Callable[[Do], T]]) -> "list[T | Exception]":
        """Several in one go; each gives what it made, or why it left nothing."""
        wishes = [_Wish(work) for work in works]
        self._wishes.extend(wishes)
        with self._lock:
            if not all(wish.is_over for wish in wishes):
                with suppress(Exception):  # each wish has it
                    self._grant_all()
        return [self._outcome(wish) for wish in wishes]

    def _outcome(self, wish: _Wish) -> Any:  # noqa: ANN401 - of any work
        try:
            return self._made(wish)
        except Exception as error:  # noqa: BLE001 - told to whoever wished it
            return error

    def _made(self, wish: _Wish) -> Any:  # noqa: ANN401 - of any work
        with self._told():
            if wish.error is not None:
                raise wish.error
        return wish.made

    def _grant_all(self) -> None:
        wishes = [self._wishes.popleft() for _ in range(len(self._wishes))]
        try:
            with self._transaction() as run:
                if self._is_server:  # else two replicas could wait for each other's tables
                    run(_IN_TURN, ())
                for wish in wishes:
                    wish.grant(run)
        except BaseException as error:
            for wish in wishes:
                wish.error = error
            raise
        finally:
            for wish in wishes:
                wish.is_over = True

    @property
    def is_quick(self) -> bool:
        """Whether `one` takes less time than to hand it to a thread."""
        return not self._is_server

    def one(self, statement: str, *parameters: object) -> Row | None:
        """The first row of a statement, which looks it up by a key."""
        if self._is_server or not statement.startswith("SELECT"):
            found = self.all(statement, *parameters)
        else:
            found = self._look(self._rows, statement, parameters)
        return found[0] if found else None

    def all(self, statement: str, *parameters: object) -> list[Row]:
        """All rows of a statement by itself."""
        if not statement.startswith("SELECT"):
            return self.do(lambda run: run(statement, parameters))
        if self._is_server:
            with self._lock, self._transaction() as run:
                return run(statement, parameters)
        return self._look(self._lists, statement, parameters)

    def _look(self, reader: _Reader, statement: str, parameters: Sequence[object]) -> list[Row]:
        with reader.lock, self._told():
            if reader.connection is None:
                reader.connection = self._connect()
            return self._run(reader.connection, statement, parameters)

    def close(self) -> None:
        """Let go of the file or the connection."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
        for reader in (self._lists, self._rows):
            with reader.lock:
                connection, reader.connection = reader.connection, None
                if connection is not None:
                    connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[Do]:
        with self._told():
            connection = self._connection = self._connection or self._connect()
            if not self._is_server:
                connection.execute("BEGIN IMMEDIATE")
            try:
                yield lambda statement, parameters: self._run(connection, statement, parameters)
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _told(self) -> Iterator[None]:
        lost: tuple[type[Exception], ...] = (sqlite3.Error, OSError)
        if self._is_server:
            lost = (*lost, extra("psycopg", "A store in Postgres").Error)
        try:
            yield
        except lost:
            self.close()
            raise OperatorError(
                "The service's store cannot be read or written.",
                fix="Check the disk and the address given as --state.",
                about="store",
            ) from None

    def _run(self, connection: Any, statement: str, parameters: Sequence[Any]) -> list[Row]:  # noqa: ANN401 - of either driver
        cursor = connection.execute(statement.replace("?", self._mark), tuple(parameters))
        return list(cursor.fetchall()) if cursor.description is not None else []

    def _connect(self) -> Any:  # noqa: ANN401 - of either driver
        if self._is_server:
            address, named = split_schema(self._where, "noisegate_service")
            schema = f'"{named.replace(chr(34), "")}"'
            connection = extra("psycopg", "A store in Postgres").connect(address)
            connection.execute(_ALONE)
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            connection.execute(f"SET search_path = {schema}")
            connection.commit()
            return connection
        path = Path(self._where)
        if not path.exists():
            path.touch(mode=0o600)
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=30
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # on the disk when it is committed
        return connection
