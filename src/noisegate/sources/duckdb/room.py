"""Who is at work in an engine whose memory all of them share: several at once, or one alone.

Claim: no question fails for want of memory because of another one. Why: where memory ran out while
    somebody else was at work, the question is asked again when nobody is, with all of the engine's
    memory for itself. All that an engine takes is within its limit at any time, however many ask.
A question is asked again before anything was drawn, so that it is paid for and answered once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import final

import duckdb

from noisegate.frozen import dataclass, field
from noisegate.privacy.domain import Key


@final
@dataclass(eq=False, slots=True)
class Line:
    """A connection to an engine, for one question at a time, and the lists of keys it knows."""

    connection: duckdb.DuckDBPyConnection
    engine: duckdb.DuckDBPyConnection
    listed: dict[int, tuple[tuple[Key, ...], list[type]]] = field(default_factory=dict)  # by place


@final
class Turn:
    """One question at work. ``crowded`` says whether it ever was beside another."""

    def __init__(self, *, crowded: bool) -> None:
        self.crowded = crowded


@final
class Room:
    """The questions of one engine. Whoever wants to be alone is let in before newcomers."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._turns: set[Turn] = set()
        self._wishes = 0  # of those who want to be alone, or are

    @contextmanager
    def taken(self, *, alone: bool = False) -> Iterator[Turn]:
        """Be at work, when there is room for it."""
        with self._changed:
            turn = self._alone() if alone else self._beside()
            self._turns.add(turn)
        try:
            yield turn
        finally:
            with self._changed:
                self._turns.remove(turn)
                self._wishes -= alone
                self._changed.notify_all()

    def _alone(self) -> Turn:
        self._wishes += 1
        try:
            self._changed.wait_for(lambda: not self._turns)
        except BaseException:  # interrupted while it waited
            self._wishes -= 1
            self._changed.notify_all()
            raise
        return Turn(crowded=False)

    def _beside(self) -> Turn:
        self._changed.wait_for(lambda: not self._wishes)
        for each in self._turns:
            each.crowded = True
        return Turn(crowded=bool(self._turns))
