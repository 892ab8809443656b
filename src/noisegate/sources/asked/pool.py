"""Lines to an engine on a server: each question has one of its own while it is asked.

A question never waits for another one's statement, and what is cut on a line is that question's
work: no other has the line until whoever had it gave it back, closed if it was cut.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar, final

_AT_ONCE: Final = 4  # questions of one source

Line = TypeVar("Line")


@final
class Pool(Generic[Line]):
    """Lines that nobody has, and how to make another. A line opens and closes by itself."""

    def __init__(self, make: Callable[[], Line]) -> None:
        self._make = make
        self._free: list[Line] = []
        self._turns = threading.Semaphore(_AT_ONCE)

    @contextmanager
    def taken(self) -> Iterator[Line]:
        """A line that nobody else has."""
        with self._turns:
            try:
                line = self._free.pop()  # of a list, one thread gets each
            except IndexError:
                line = self._make()
            try:
                yield line
            finally:
                self._free.append(line)

    def leave(self) -> list[Line]:
        """Of a forked child: lines are its parent's, and so were the turns. Returns the free."""
        found, self._free = self._free, []
        self._turns = threading.Semaphore(_AT_ONCE)
        return found
