"""Exact tables and rows that one allowance has read: kept inside the door while it is open.

Synthesizers and learners ask about the same tables or rows round after round. What is kept is what
the engine would say again; nothing here leaves the door without noise, and every round is
paid for as if it read.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Final, final

from noisegate.algebra.tally import Marginals, Rows, Sums
from noisegate.frozen import replace
from noisegate.sources.source import Batch, Source, Used, Whole

KEPT_MAX: Final = 1 << 24  # words of 64 bits, of all tables and rows together


@final
class Kept:
    """Tables and rows by their question; those that find no room are read again."""

    def __init__(self, source: Source, *, most: int = KEPT_MAX) -> None:
        self.source, self._room = source, most
        self._tables: dict[tuple[str, tuple[int, ...]], Whole] = {}
        self._rows: dict[str, list[Batch]] = {}
        self._lock = threading.Lock()

    def marginals(self, tally: Marginals) -> list[Whole]:
        """What the source says, in one pass for all tables that are not here yet."""
        name = repr(replace(tally, sets=()))  # tells 1 and True apart
        with self._lock:
            found = {
                each: self._tables[name, each]
                for each in tally.sets
                if (name, each) in self._tables
            }
        if missing := tuple(each for each in tally.sets if each not in found):
            tables = self.source.marginals(replace(tally, sets=missing))
            found |= dict(zip(missing, tables, strict=True))
            self._keep({(name, each): found[each] for each in missing})
        return [found[each] for each in tally.sets]

    def sums(self, tally: Sums) -> Whole:
        """What the source says of the cells of a question."""
        name = repr(tally), ()
        if (found := self._tables.get(name)) is None:
            found = self.source.sums(tally)
            self._keep({name: found})
        return found

    def rows(self, tally: Rows, use: Callable[[Iterator[Batch]], Used]) -> Used:
        """What ``use`` makes of the rows; they are read once if they find room."""
        name = repr(tally)
        with self._lock:
            held, room = self._rows.get(name), self._room
        if held is not None:
            return use(iter(held))
        copied: list[Batch] = []
        found = self.source.rows(tally, lambda batches: use(_copying(batches, copied, room)))
        size = sum(map(_words, copied))
        with self._lock:
            if copied and size <= self._room and name not in self._rows:
                self._rows[name] = copied
                self._room -= size
        return found

    def forget(self) -> None:
        """Drop all, and keep nothing from now on."""
        with self._lock:
            self._tables.clear()
            self._rows.clear()
            self._room = 0

    def _keep(self, tables: dict[tuple[str, tuple[int, ...]], Whole]) -> None:
        with self._lock:
            for name, table in tables.items():
                if name not in self._tables and table.size <= self._room:
                    table.flags.writeable = False
                    self._tables[name] = table
                    self._room -= table.size


def _words(batch: Batch) -> int:
    held = (batch.coordinates, batch.places, batch.weights)
    return -(-sum(each.nbytes for each in held if each is not None) // 8)


def _copying(batches: Iterator[Batch], copied: list[Batch], room: int) -> Iterator[Batch]:
    """The batches, and a list of them all; an empty list if they find no room.

    Nothing is copied before the last one was read: which rows come first depends on all of them.
    """
    copied.clear()  # an engine that stumbled reads again
    held, size = list[Batch](), 0
    for batch in batches:
        size += _words(batch)
        if size <= room:
            held.append(batch)
        else:
            held.clear()
        yield batch
    copied += held
