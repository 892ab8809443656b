"""The ledger as one SQLite file: write-ahead log, full synchronisation, one writer at a time.

`BEGIN IMMEDIATE` takes the writer's lock before anything is read, so what a transaction checked is
still true when it writes. With ``synchronous = FULL`` a commit returns after the log is on disk.
Keep the file on a local disk: SQLite's write-ahead log does not work over a network file system.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from time import monotonic, sleep
from typing import Any, ClassVar, Final, TypeVar, final

from noisegate.errors import LedgerError, NoisegateError, Unsupported
from noisegate.ledger.entry import FORMAT
from noisegate.ledger.fork import close_before_fork
from noisegate.ledger.sql import Rows, SQLTransaction
from noisegate.ledger.store import Ledger
from noisegate.ledger.transaction import Transaction

T = TypeVar("T")

APPLICATION_ID: Final = 0x4E67_4C67  # "NgLg"
BUSY_TIMEOUT_S: Final = 30.0
BUSY_PAUSE_S: Final = 0.001
_PRAGMAS: Final = (
    "synchronous = FULL",
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    "trusted_schema = OFF",
    # Every commit is carried over into the main file at once: whoever copies the file without its
    # log should not get a valid ledger that has forgotten its charges.
    "wal_autocheckpoint = 1",
)
_MAGIC: Final = b"SQLite format 3\x00"

_TABLES: Final = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL, body TEXT NOT NULL,
    previous_hash TEXT NOT NULL, hash TEXT NOT NULL
) STRICT

CREATE TABLE answers (seq INTEGER PRIMARY KEY, answer BLOB NOT NULL) STRICT

CREATE TABLE accounts (
    name TEXT PRIMARY KEY, parent TEXT, accountant TEXT NOT NULL, epsilon TEXT NOT NULL,
    delta TEXT NOT NULL, unit TEXT NOT NULL, spent_amount TEXT NOT NULL, spent_delta TEXT NOT NULL,
    reservations INTEGER NOT NULL, unsettled INTEGER NOT NULL, number INTEGER NOT NULL
) STRICT, WITHOUT ROWID

CREATE TABLE requests (
    request_id TEXT PRIMARY KEY, account TEXT NOT NULL, use_of TEXT NOT NULL,
    question TEXT NOT NULL, event TEXT NOT NULL, charges TEXT NOT NULL,
    reserved INTEGER NOT NULL, settled INTEGER
) STRICT, WITHOUT ROWID

CREATE INDEX requests_by_question ON requests (question, settled)
    WHERE settled IS NOT NULL

CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries
BEGIN SELECT raise(ABORT, 'entries are append-only'); END

CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries
BEGIN SELECT raise(ABORT, 'entries are append-only'); END

CREATE TRIGGER answers_no_update BEFORE UPDATE ON answers
BEGIN SELECT raise(ABORT, 'answers are append-only'); END

CREATE TRIGGER answers_no_delete BEFORE DELETE ON answers
BEGIN SELECT raise(ABORT, 'answers are append-only'); END
""".strip().split("\n\n")


@final
class SQLiteLedger(Ledger):
    """A ledger in a file of its own, created with access for its owner only."""

    durable: ClassVar[bool] = True

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        if sqlite3.sqlite_version_info < (3, 37):
            raise Unsupported(
                f"SQLite {sqlite3.sqlite_version} is too old.", fix="Use SQLite 3.37 or newer."
            )
        self.path = Path(path).absolute()
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode while connected
        self._first_hash: str | None = None  # of the ledger that this object was opened for
        close_before_fork(self)
        self._read(lambda tx: tx.head())

    def close(self) -> None:
        """Close the file; the next operation opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    def _write(self, work: Callable[[Transaction], T]) -> T:
        return self._in_transaction("BEGIN IMMEDIATE", work)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._in_transaction("BEGIN", work)

    def _in_transaction(self, begin: str, work: Callable[[Transaction], T]) -> T:
        """Run the whole transaction again while another process is in the way.

        SQLite's own waiting backs off to a tenth of a second and starves beside a busy writer.
        """
        deadline = monotonic() + BUSY_TIMEOUT_S
        with _spoken():
            while True:
                try:
                    return self._attempt(begin, work)
                except sqlite3.OperationalError as error:
                    if _code(error) != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                        raise
                sleep(BUSY_PAUSE_S)

    def _attempt(self, begin: str, work: Callable[[Transaction], T]) -> T:
        with self._lock:
            connection = self._connection or self._connect()
            self._require_same_file()
            try:
                connection.execute(begin)
                result = work(_SQLiteTransaction(connection))
                connection.execute("COMMIT")
            except BaseException as error:
                self._roll_back(connection)
                if isinstance(error, sqlite3.Error) and _code(error) != sqlite3.SQLITE_BUSY:
                    self.close()  # after a failed write nothing cached in it is trusted
                raise
            return result

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            with suppress(sqlite3.Error):  # the error that led here is the one to report
                connection.execute("ROLLBACK")

    def _connect(self) -> sqlite3.Connection:
        is_new = _is_new(self.path, may_create=self._first_hash is None)
        connection = sqlite3.connect(
            self.path, timeout=BUSY_PAUSE_S, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            if is_new:
                self._create(connection)
            _require_format(
                self.path,
                application=_pragma(connection, "application_id"),
                version=_pragma(connection, "user_version"),
            )
            _use_write_ahead_log(connection)
            self._require_same_ledger(connection)
            self._file = _identity(self.path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _require_same_file(self) -> None:
        """Charges written to a file that has lost its name would be lost with it."""
        if _identity(self.path) != self._file:
            self.close()
            raise _replaced(self.path)

    def _require_same_ledger(self, connection: sqlite3.Connection) -> None:
        """A new ledger under the old name would begin with an unspent budget."""
        row = connection.execute("SELECT hash FROM entries WHERE seq = 0").fetchone()
        first_hash = row[0] if row else ""
        if self._first_hash is None:
            self._first_hash = first_hash
        if self._first_hash != first_hash:
            raise _replaced(self.path)

    def _create(self, connection: sqlite3.Connection) -> None:
        """Tables and first entry in one transaction, so that a ledger exists wholly or not.

        Where tables exist already, another process came first or the file is not a ledger: nothing
        is changed, and the check of the format that follows tells which.
        """
        connection.execute("BEGIN EXCLUSIVE")
        try:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
                for statement in _TABLES:
                    connection.execute(statement)
                self._begin(_SQLiteTransaction(connection))
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise
        _sync_directory(self.path.parent)


@final
class _SQLiteTransaction(SQLTransaction):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _run(self, statement: str, *values: object) -> Rows:
        return self._connection.execute(statement, values).fetchall()

    def damage(self) -> list[str]:
        """A question that a damaged index does not find would be drawn and paid for again."""
        found = self._connection.execute("PRAGMA integrity_check(10)").fetchall()
        return [f"The ledger file is damaged: {words}." for (words,) in found if words != "ok"]


def _is_new(path: Path, *, may_create: bool) -> bool:
    """Whether a ledger must be made here; looks at the file's head without opening a database."""
    try:
        descriptor = os.open(path, os.O_RDONLY | (os.O_CREAT if may_create else 0), 0o600)
    except OSError as error:
        raise LedgerError(
            f"The ledger {path.name!r} cannot be opened: {error.strerror}.",
            fix="Name a file in an existing directory that you may write to.",
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(100)
    if not head and not may_create:
        raise _replaced(path)
    if not head or Path(f"{path}-journal").exists():
        return True  # empty, or a creation that a crash cut short and SQLite will roll back
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise _not_a_ledger(path)
    version, application = int.from_bytes(head[60:64], "big"), int.from_bytes(head[68:72], "big")
    _require_format(path, application=application, version=version)
    return False


def _require_format(path: Path, *, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise _not_a_ledger(path)
    if version > FORMAT:
        raise LedgerError(
            f"The ledger {path.name!r} has format {version}; this version knows {FORMAT}.",
            fix="Open it with a newer noisegate. It was not changed.",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file the name stands for now."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _replaced(path: Path) -> LedgerError:
    return LedgerError(
        f"The ledger {path.name!r} was moved, removed or replaced while it was in use.",
        fix="Put the file back, with its -wal file, and start again.",
    )


def _not_a_ledger(path: Path) -> LedgerError:
    return LedgerError(
        f"The file {path.name!r} is not a ledger.", fix="Name another file. It was not changed."
    )


def _sync_directory(directory: Path) -> None:
    """Make the new file's name durable; where directories cannot be opened, the system does it."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise LedgerError(
            f"SQLite offers no write-ahead log here (it says {mode!r}).",
            fix="Keep the ledger on a local disk.",
        )


class _spoken:  # noqa: N801 - reads as a word in a with statement
    """What SQLite says, as a ledger's refusal with a next step."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UnicodeDecodeError):  # of SQLite's own words about a damaged file
            raise LedgerError(
                "The ledger file is damaged.", fix=_FIXES[sqlite3.SQLITE_CORRUPT]
            ) from None
        if isinstance(error, sqlite3.Error) and not isinstance(error, NoisegateError):
            fix = _FIXES.get(_code(error), "Check the file and its directory, then ask again.")
            raise LedgerError(f"The ledger file says: {error}.", fix=fix) from error


_AGAIN: Final = "Ask again with the same request id; nothing is charged twice."
_FIXES: Final = {
    sqlite3.SQLITE_FULL: f"Free some space. {_AGAIN}",
    sqlite3.SQLITE_BUSY: f"Another process holds the ledger. {_AGAIN}",
    sqlite3.SQLITE_READONLY: "Give this process write access to the file and its directory.",
    sqlite3.SQLITE_CANTOPEN: "Give this process write access to the file and its directory.",
    sqlite3.SQLITE_IOERR: f"Check the disk. {_AGAIN}",
    sqlite3.SQLITE_CORRUPT: "Restore the ledger from a copy or an export.",
    sqlite3.SQLITE_NOTADB: "Restore the ledger from a copy or an export.",
}


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes carry it in their low byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
