"""The ledger as one SQLite file: rollback journal, full synchronisation, one writer at a time.

`BEGIN IMMEDIATE` takes the writer's lock before anything is read, so what a transaction checked is
still true when it writes.

Claim: whatever names a ledger's file has, two transactions that charge it never overlap, and a
    charge is in the file itself, durably, before `reserve` returns.
Why: a write-ahead log would be quicker, but it keeps commits and locks in files that are found by
    *name*: two names of one file are then two logs and two locks, each with a whole budget, and
    whoever removes or replaces the log removes charges. With a rollback journal the locks are on
    the inode, and COMMIT returns after the pages are written and synchronised to the file and the
    journal's header, cleared, is synchronised too (``journal_mode = PERSIST``: no name changes, so
    no directory has to be). What lies beside the file matters after a crash in mid-commit only, and
    `sqlite_file.py` watches that: one name, a lock of our own on the inode, no foreign journal.
    After each commit the name is looked at once more: if it stands for this inode, then whoever
    opens it next reads these pages. An answer is not shown before that.
Older versions kept a write-ahead log (format 1), or knew one account above another alone (format
2). The first opening folds the log into the file and writes format 3, which they refuse; while one
of them has a write-ahead log open, this one waits for it, and refuses in the end.

Readers and the writer wait for each other. Keep the file on a local disk.
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
from noisegate.files import LEDGER, keep, sync_directory
from noisegate.ledger.entry import STORE_FORMAT
from noisegate.ledger.fork import close_before_fork
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.stores.sql import Rows, SQLTransaction
from noisegate.ledger.stores.sqlite_file import HEADER_BYTES, Busy, LedgerFile, replaced
from noisegate.ledger.transaction import Transaction

T = TypeVar("T")

APPLICATION_ID: Final = 0x4E67_4C67  # "NgLg"
BUSY_TIMEOUT_S: Final = 30.0
BUSY_PAUSE_S: Final = 0.001
_PRAGMAS: Final = (
    "synchronous = EXTRA",
    "fullfsync = ON",
    "checkpoint_fullfsync = ON",
    "trusted_schema = OFF",
)
_JOURNAL: Final = "persist"
WITH_WAL: Final = 1  # the format whose commits were in a write-ahead log
_ORIGINS: Final = (
    "CREATE TABLE origins (place TEXT PRIMARY KEY, account TEXT NOT NULL, mark TEXT NOT NULL)"
    " STRICT, WITHOUT ROWID"
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
    reservations INTEGER NOT NULL, unsettled INTEGER NOT NULL, number INTEGER NOT NULL,
    also TEXT NOT NULL DEFAULT ''
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
                f"SQLite {sqlite3.sqlite_version} is too old.",
                fix="Use SQLite 3.37 or newer.",
                about="version",
            )
        self.path = Path(path).absolute()
        keep(self.path, LEDGER)
        self._lock = RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: LedgerFile | None = None  # while connected
        self._first_hash: str | None = None  # of the ledger that this object was opened for
        close_before_fork(self)
        self._read(lambda tx: tx.head())

    def close(self) -> None:
        """Close the file; the next operation opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            file, self._file = self._file, None
            if connection is not None:
                if file is not None:
                    _tidy(connection, file)
                connection.close()
            if file is not None:
                file.close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    def _write(self, work: Callable[[Transaction], T]) -> T:
        return self._in_transaction(work, writing=True)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._in_transaction(work, writing=False)

    def _in_transaction(self, work: Callable[[Transaction], T], *, writing: bool) -> T:
        """Run the whole transaction again while another process is in the way.

        SQLite's own waiting backs off to a tenth of a second and starves beside a busy writer.
        """
        deadline = monotonic() + BUSY_TIMEOUT_S
        with spoken():
            while True:
                try:
                    with self._lock:
                        return self._attempt(work, writing=writing)
                except Busy:
                    if monotonic() > deadline:
                        raise _held(self.path) from None
                except sqlite3.OperationalError as error:
                    if _code(error) != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                        raise
                sleep(BUSY_PAUSE_S)

    def _attempt(self, work: Callable[[Transaction], T], *, writing: bool) -> T:
        connection, file = self._connect()
        try:
            with file.turn(writing=writing):
                try:
                    connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                    result = work(SQLiteTransaction(connection))
                    _require_rollback_journal(connection)
                    _commit(connection)
                except BaseException:
                    _roll_back(connection)
                    raise
        except sqlite3.Error as error:
            if _code(error) != sqlite3.SQLITE_BUSY:
                self.close()  # after a failed write nothing cached in it is trusted
            raise
        except LedgerError:
            self.close()  # the file may not be what it was
            raise
        return result

    def _connect(self) -> tuple[sqlite3.Connection, LedgerFile]:
        if self._connection is not None and self._file is not None:
            return self._connection, self._file
        file = LedgerFile(self.path, may_create=self._first_hash is None)
        try:
            with file.turn(writing=True, has_wal=True):
                is_new, version = look(file, may_create=self._first_hash is None)
                file.require_sound(has_wal=version == WITH_WAL, alone=True)
                connection = self._open(is_new=is_new)
        except BaseException:
            file.close()
            raise
        self._connection, self._file = connection, file
        return connection, file

    def _open(self, *, is_new: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_PAUSE_S, isolation_level=None, check_same_thread=False
        )
        try:
            for setting in _PRAGMAS:
                connection.execute(f"PRAGMA {setting}")
            if is_new:
                self._create(connection)
            version = pragma(connection, "user_version")
            application = pragma(connection, "application_id")
            _require_format(self.path, application=application, version=version)
            connection.execute(f"PRAGMA journal_mode = {_JOURNAL}")
            _require_rollback_journal(connection)
            if version < STORE_FORMAT:
                _renew(connection)
            self._require_same_ledger(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _require_same_ledger(self, connection: sqlite3.Connection) -> None:
        """A new ledger under the old name would begin with an unspent budget."""
        row = connection.execute("SELECT hash FROM entries WHERE seq = 0").fetchone()
        first_hash = row[0] if row else ""
        if self._first_hash is None:
            self._first_hash = first_hash
        if self._first_hash != first_hash:
            raise replaced(self.path)

    def _create(self, connection: sqlite3.Connection) -> None:
        """Tables and first entry in one transaction, so that a ledger exists wholly or not.

        Where tables exist already, another process came first or the file is not a ledger: nothing
        is changed, and the check of the format that follows tells which.
        """
        connection.execute("BEGIN EXCLUSIVE")
        try:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {STORE_FORMAT}")
                for statement in (*_TABLES, _ORIGINS):
                    connection.execute(statement)
                self._begin(SQLiteTransaction(connection))
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        sync_directory(self.path.parent)


@final
class SQLiteTransaction(SQLTransaction):
    """Statements on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def _run(self, statement: str, *values: object) -> Rows:
        return self._connection.execute(statement, values).fetchall()

    def damage(self) -> list[str]:
        """A question that a damaged index does not find would be drawn and paid for again."""
        found = self._connection.execute("PRAGMA integrity_check(10)").fetchall()
        return [f"The ledger file is damaged: {words}." for (words,) in found if words != "ok"]


def look(file: LedgerFile, *, may_create: bool) -> tuple[bool, int]:
    """Whether a ledger may have to be made, and the format. Looks without opening a database."""
    head = file.header()
    version, application = int.from_bytes(head[60:64], "big"), int.from_bytes(head[68:72], "big")
    if not head and not may_create:
        raise replaced(file.path)
    if not head or file.has_journal():
        return True, version  # empty, or perhaps a creation that SQLite will roll back
    if len(head) < HEADER_BYTES or not head.startswith(_MAGIC):
        raise _not_a_ledger(file.path)
    _require_format(file.path, application=application, version=version)
    return False, version


def _renew(connection: sqlite3.Connection) -> None:
    """From format 1, whose write-ahead log is folded in by now, or 2: older versions keep off."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        connection.execute(_ORIGINS.replace("TABLE", "TABLE IF NOT EXISTS", 1))
        if pragma(connection, "user_version") < STORE_FORMAT:
            connection.execute("ALTER TABLE accounts ADD COLUMN also TEXT NOT NULL DEFAULT ''")
        connection.execute(f"PRAGMA user_version = {STORE_FORMAT}")
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _commit(connection: sqlite3.Connection) -> None:
    """Wait for readers; new ones wait for us meanwhile, so that this comes to an end."""
    deadline = monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
        else:
            return
        sleep(BUSY_PAUSE_S)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # the error that led here is the one to report
            connection.execute("ROLLBACK")


def _tidy(connection: sqlite3.Connection, file: LedgerFile) -> None:
    """Remove the empty journal, if the name beside it is still ours and nobody writes."""
    with suppress(sqlite3.Error, LedgerError, Busy), file.turn(writing=True):
        connection.execute("PRAGMA journal_mode = DELETE")


def _require_format(path: Path, *, application: int, version: int) -> None:
    if application != APPLICATION_ID:
        raise _not_a_ledger(path)
    if version > STORE_FORMAT:
        raise LedgerError(
            f"The ledger {path.name!r} has format {version}; this version knows {STORE_FORMAT}.",
            fix="Open it with a newer noisegate. It was not changed.",
            about="format",
        )


def _held(path: Path) -> LedgerError:
    return LedgerError(
        f"Another process holds the ledger {path.name!r}.", fix=_FIXES[sqlite3.SQLITE_BUSY]
    )


def _not_a_ledger(path: Path) -> LedgerError:
    return LedgerError(
        f"The file {path.name!r} is not a ledger.",
        fix="Name another file. It was not changed.",
        about="not-a-ledger",
    )


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """A number that a file states about itself."""
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _require_rollback_journal(connection: sqlite3.Connection) -> None:
    """Another program may have switched the file, and SQLite follows without a word."""
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if mode != _JOURNAL:
        raise LedgerError(
            f"The ledger was switched to journal mode {mode!r} by another program.",
            fix="Keep other programs away from it; open it again to switch it back.",
            about="journal",
        )


class spoken:  # noqa: N801 - reads as a word in a with statement
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
            raise LedgerError(
                f"SQLite reports about the ledger: {error}.", fix=fix, about="sqlite"
            ) from error


_AGAIN: Final = "Ask again with the same request id; nothing is charged twice."
_FIXES: Final = {
    sqlite3.SQLITE_FULL: f"Free some space. {_AGAIN}",
    sqlite3.SQLITE_BUSY: "Another process holds the ledger, perhaps one of an older noisegate: "
    f"end it. {_AGAIN}",
    sqlite3.SQLITE_READONLY: "Give this process write access to the file and its directory.",
    sqlite3.SQLITE_CANTOPEN: "Give this process write access to the file and its directory.",
    sqlite3.SQLITE_IOERR: f"Check the disk. {_AGAIN}",
    sqlite3.SQLITE_CORRUPT: "Restore the ledger from a copy or an export.",
    sqlite3.SQLITE_NOTADB: "Restore the ledger from a copy or an export.",
}


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes carry it in their low byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
