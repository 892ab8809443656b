"""Exact tables that one allowance has read: kept inside the door while it is open.

A synthesizer asks about the same tables round after round. What is kept is what the engine would
say again; nothing here leaves the door without noise, and every round is paid for as if it read.
"""

import threading
from dataclasses import replace
from typing import Final, final

from noisegate.algebra.tally import Marginals
from noisegate.sources.source import Source, Whole

KEPT_MAX: Final = 1 << 24  # numbers, of all tables together


@final
class Kept:
    """Tables by their question; those that find no room are read again."""

    def __init__(self, source: Source, *, most: int = KEPT_MAX) -> None:
        self._source, self._room = source, most
        self._tables: dict[tuple[str, tuple[int, ...]], Whole] = {}
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
            tables = self._source.marginals(replace(tally, sets=missing))
            found |= dict(zip(missing, tables, strict=True))
            self._keep({(name, each): found[each] for each in missing})
        return [found[each] for each in tally.sets]

    def forget(self) -> None:
        """Drop all, and keep nothing from now on."""
        with self._lock:
            self._tables.clear()
            self._room = 0

    def _keep(self, tables: dict[tuple[str, tuple[int, ...]], Whole]) -> None:
        with self._lock:
            for name, table in tables.items():
                if name not in self._tables and table.size <= self._room:
                    table.flags.writeable = False
                    self._tables[name] = table
                    self._room -= table.size
