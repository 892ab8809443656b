"""The file of a SQLite ledger, watched as an inode: one name, one lock, nothing foreign beside it.

SQLite finds a database's journal by the file's *name* and trusts whatever lies there, so:

- **One name.** A hard link gives one inode two names, and a journal left by a crash under one of
  them is not seen under the other. A link count other than 1, and a name that stands for another
  file than the one that was opened, is refused before every transaction; after a commit the name is
  looked at again, before anybody sees what was paid for.
- **One lock.** A writer holds `flock` on the inode, under whatever name it was opened (hard links,
  bind mounts, containers). SQLite's own locks are on the inode too, but they belong to the process
  and are dropped when any descriptor of the file is closed in it, such as by a thread that copies
  the file; `flock` belongs to the descriptor. Descriptors of ours are closed when no transaction of
  this process is under way, for the same reason.
- **Nothing foreign beside it.** SQLite replays a ``-wal`` and rolls back a ``-journal`` that it
  finds, also one of an older state, and so would forget charges. A ledger has no ``-wal`` (see
  `sqlite.py`). A journal that a crash left holds page 1 as it was before the last commit, with a
  counter of commits: any other than the file's own, or the one before, is of another history.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EPERM, EROFS
from pathlib import Path
from threading import RLock
from typing import Final, TypeAlias, final

from noisegate.errors import LedgerError

try:
    import fcntl
except ImportError:  # there are no locks on inodes, and SQLite's own are not dropped either
    fcntl = None  # type: ignore[assignment]

Inode: TypeAlias = tuple[int, int]  # device and number
HEADER_BYTES: Final = 100
_JOURNAL_MAGIC: Final = bytes.fromhex("d9d505f920a163d7")
_JOURNAL_HEADER: Final = 28

_guard = RLock()  # around the two below; reentrant, since a collected ledger closes itself anywhere
_under_way: Counter[Inode] = Counter()  # transactions of this process
_to_close: defaultdict[Inode, list[int]] = defaultdict(list)


class Busy(Exception):  # noqa: N818 - not an error: the caller tries again
    """Another process writes to the ledger."""


@final
class LedgerFile:
    """An open ledger file. ``path`` is the name it was opened by, symbolic links included."""

    def __init__(self, path: Path, *, may_create: bool) -> None:
        self.path, self._name = path, os.path.realpath(path)
        try:
            self._descriptor = _opened(path, os.O_CREAT if may_create else 0)
        except OSError as error:
            raise LedgerError(
                f"The ledger {path.name!r} cannot be opened: {error.strerror}.",
                fix="Name a file in an existing directory that you may write to.",
                about="path",
            ) from None
        self.inode = _inode(os.fstat(self._descriptor))

    def close(self) -> None:
        """Close the descriptor, or have the last transaction of this process close it."""
        with _guard:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                _to_close[self.inode].append(descriptor)
            _close_idle(self.inode)

    def header(self) -> bytes:
        """The first bytes of the file, without a lock: what never changes, or only grows."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return os.read(self._descriptor, HEADER_BYTES)

    def has_journal(self) -> bool:
        """Whether a journal lies beside it, of a transaction under way or cut short."""
        return bool(self._journal(1).strip(b"\0"))

    def has_wal(self) -> bool:
        """Whether a write-ahead log lies beside it."""
        return os.path.lexists(f"{self._name}-wal")

    @contextmanager
    def turn(self, *, writing: bool, has_wal: bool = False) -> Iterator[None]:
        """One transaction: the file is sound before, and after a write still has its name."""
        with _guard:
            _under_way[self.inode] += 1
        try:
            if writing:
                self._lock()
            self.require_sound(has_wal=has_wal, alone=writing)
            yield
            if writing:
                self.require_one_name()
        finally:
            if writing:
                self._unlock()
            with _guard:
                _under_way[self.inode] -= 1
                _close_idle(self.inode)

    def require_sound(self, *, has_wal: bool = False, alone: bool = False) -> None:
        """Refuse a file with two names, or with foreign files beside it."""
        self.require_one_name()
        if not has_wal and self.has_wal():
            raise self._foreign("-wal")
        if self.has_journal() and self._is_foreign_journal(alone=alone):
            raise self._foreign("-journal")

    def require_one_name(self) -> None:
        """Charges written to a file that lost its name, or has two, could be lost with it."""
        try:
            status = os.stat(self.path)  # noqa: PTH116 - before and after every transaction
        except OSError:
            raise replaced(self.path) from None
        links = links_of(status)
        if _inode(status) != self.inode or links == 0:
            raise replaced(self.path)
        if links > 1:
            name = self.path.name
            raise LedgerError(
                f"The ledger {name!r} has {links} names (hard links); under each name, another "
                "budget could be spent.",
                fix="Remove the others; or, while nobody uses it, give it a file of its own: "
                f"cp {name} {name}.own && mv {name}.own {name}",
                about="names",
            )

    def _is_foreign_journal(self, *, alone: bool) -> bool:
        """Whether the journal is about another commit than the last one of this file.

        While somebody writes it is theirs. Else it is what a crash, or a copy, left behind.
        """
        if not alone:
            try:
                self._lock()
            except Busy:
                return False
        try:
            now = int.from_bytes(self.header()[24:28], "big")
            before = _commits_before(self._journal())
        finally:
            if not alone:
                self._unlock()
        return before is not None and now - before not in (0, 1)

    def _journal(self, size: int | None = None) -> bytes:
        try:
            descriptor = os.open(f"{self._name}-journal", os.O_RDONLY)
        except OSError:
            return b""
        try:
            return os.read(descriptor, size or os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def _foreign(self, ending: str) -> LedgerError:
        return LedgerError(
            f"Next to the ledger {self.path.name!r} is a {ending} file of another history; SQLite "
            "would apply it, and charges would be lost.",
            fix="Move that file away, keep it, and run: noisegate ledger verify --head ...",
            about="history",
        )

    def _lock(self) -> None:
        if fcntl is not None:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy from None
            except OSError as error:
                raise LedgerError(
                    f"The ledger {self.path.name!r} cannot be locked: {error.strerror}.",
                    fix="Keep the ledger on a local disk, or in Postgres.",
                    about="lock",
                ) from None

    def _unlock(self) -> None:
        if fcntl is not None and self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def links_of(status: os.stat_result) -> int:
    """How many names a file has."""
    return status.st_nlink


def replaced(path: Path) -> LedgerError:
    """The name does not stand for the file that was opened."""
    return LedgerError(
        f"The ledger {path.name!r} was moved, removed or replaced while it was in use.",
        fix="Put the file back, with its -journal file if it has one, and start again.",
        about="replaced",
    )


def _opened(path: Path, flags: int) -> int:
    """For writing, where allowed: a layered file system then shows the file that is written."""
    try:
        return os.open(path, os.O_RDWR | flags, 0o600)
    except OSError as error:
        if error.errno not in (EACCES, EPERM, EROFS):
            raise
        return os.open(path, os.O_RDONLY)


def _inode(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino


def _close_idle(inode: Inode) -> None:
    """Closing a descriptor drops SQLite's locks on the file in the whole process."""
    if _under_way[inode] == 0:
        del _under_way[inode]
        for descriptor in _to_close.pop(inode, ()):
            os.close(descriptor)


def _commits_before(journal: bytes) -> int | None:
    """The counter of commits on page 1 as a journal keeps it; None if it does not hold page 1.

    The format is SQLite's: a header of one sector, then records of page number, page, checksum.
    """
    if not journal.startswith(_JOURNAL_MAGIC) or len(journal) < _JOURNAL_HEADER:
        return None
    count, sector, page = (int.from_bytes(journal[at : at + 4], "big") for at in (8, 20, 24))
    if not sector or not page:
        return None
    for place in range(count):
        start = sector + place * (page + 8)
        record = journal[start : start + 4 + 28]
        if len(record) < 4 + 28:
            return None
        if int.from_bytes(record[:4], "big") == 1:
            return int.from_bytes(record[28:32], "big")
    return None


def _after_fork_in_child() -> None:
    """No transaction crosses a fork (see `fork.py`), but a thread may have held the guard."""
    global _guard  # noqa: PLW0603 - a lock cannot be made anew in place
    _guard = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
