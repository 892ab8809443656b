"""A connection of a source, opened again where it was lost; and that of one transaction."""

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final
from weakref import finalize

from noisegate.sources.postgres.server import begin, connect

if TYPE_CHECKING:
    import psycopg

_CUT_S: Final = 5.0
_inherited: Final[list[Any]] = []  # a child that closed one would end its parent's session


@final
class Link:
    """For one question at a time: see `asked/pool.py`."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self._url, self._seconds, self._process = url, seconds, os.getpid()
        self._connection: psycopg.Connection[Any] | None = None

    def connected(self) -> "psycopg.Connection[Any]":
        """A connection that was not seen to be lost."""
        if self._connection is None:
            self._connection = connect(self._url)
            self._process = os.getpid()
            finalize(self, _close, self._connection, self._process)
        return self._connection

    def begun(self) -> "psycopg.Connection[Any]":
        """The same in a new transaction; anew where the server has closed the last one."""
        import psycopg  # noqa: PLC0415 - an extra

        try:
            begin(connection := self.connected(), seconds=self._seconds)
        except psycopg.Error:
            self.drop()
        else:
            return connection
        begin(connection := self.connected(), seconds=self._seconds)
        return connection

    def drop(self) -> None:
        """Close it: what it was doing is over, and the server stops."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def leave(self) -> None:
        """Of a forked child: the connection is its parent's."""
        _inherited.append(self._connection)
        self._connection = None


@final
class Once:
    """A connection for one transaction: whatever ends it, it is not begun again."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self.lock = threading.Lock()
        connection = connect(url)
        begin(connection, seconds=seconds, idle=seconds)
        self._connection: psycopg.Connection[Any] | None = connection
        finalize(self, _close, connection, os.getpid())

    def going_on(self) -> "psycopg.Connection[Any] | None":
        """The connection in its transaction; None if that is over, or another process's."""
        connection = self._connection
        if connection is None or connection.info.transaction_status.name != "INTRANS":
            return None
        return connection

    def drop(self) -> None:
        """End the transaction."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def leave(self) -> None:
        """Of a forked child: the transaction is its parent's."""
        _inherited.append(self._connection)
        self.lock, self._connection = threading.Lock(), None


def cut(connection: "psycopg.Connection[Any]") -> None:
    """Have the server end what a connection is doing, from another thread.

    The server may take the wish later than the end of the statement: a connection that was cut is
    closed, so that it cannot meet another one.
    """
    import psycopg  # noqa: PLC0415 - an extra

    with suppress(psycopg.Error):  # whoever waits is told by its own connection
        connection.cancel_safe(timeout=_CUT_S)


def _close(connection: "psycopg.Connection[Any]", process: int) -> None:
    if os.getpid() == process:
        connection.close()
