"""Connections never cross a fork: each is closed before, and opened anew by whoever needs it.

A SQLite connection that is used, or only closed, by a forked child corrupts locks and may remove
the journal under the parent; a Postgres socket would be shared by two speakers. The hook
also waits for a running transaction, so that no lock is inherited in the locked state.
"""

# ruff: noqa: SLF001 - the hook is part of the ledgers whose lock it holds

import os
from threading import RLock
from typing import Any, Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something with a lock around a connection."""

    _lock: Any  # threading.RLock, which older type stubs call a function

    def close(self) -> None:
        """Close the connection; it is reopened at the next use."""


_living: WeakSet[Forkable] = WeakSet()
_held: list[Forkable] = []
_forks = 0


def lineage() -> tuple[int, int]:
    """Tells a process from its forked children, also where a process id is used again."""
    return os.getpid(), _forks


def close_before_fork(ledger: Forkable) -> None:
    """Have the ledger's connection closed before each fork of this process."""
    _living.add(ledger)


def _before() -> None:
    for ledger in sorted(_living, key=id):
        ledger._lock.acquire()
        _held.append(ledger)
        ledger.close()


def _after_in_parent() -> None:
    while _held:
        _held.pop()._lock.release()


def _after_in_child() -> None:
    global _forks  # noqa: PLW0603 - one number per process, changed only right after a fork
    _forks += 1
    while _held:
        _held.pop()._lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
