"""One secret sample of units in the embedded engine, the same however often it is read."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from fractions import Fraction
from itertools import count
from typing import Any, Final, final

import duckdb
from sqlglot import exp

from noisegate.algebra.tally import Grouping
from noisegate.errors import Bug, SourceError
from noisegate.sources.duckdb.dialect import DUCKDB
from noisegate.sources.writing.relations import Coins, base_view

_NUMBERS: Final = count()


@final
class Drawn:
    """A sample: its coins, and the tables of rows that they were tossed for.

    Claim: all that is read is about one Poisson sample of units. Adjacency: add/remove one unit,
        whose coin tells nothing of others'.
    Why: where units have names, a unit's coin is the hash of the key, its id space and its name:
        the same in every table of the space and every reading, and another than that of whoever
        has the same name in another space. (Did patient 5 and doctor 5 share a coin, nothing would
        be amplified: where the doctor is seen, the patient is in the sample for certain.) Rows
        that are units have neither names nor an order, and the next reading might number them
        otherwise: those with heads are written down with the first reading, and read from there.
        Whichever rows come before it, a row's number has a coin of its own, so coins are
        independent. An engine that stumbles has forgotten them, and reads no others.
    Rounding: of chances down, to a multiple of 2**-256.
    """

    def __init__(
        self,
        probability: Fraction,
        key: str,
        run: Callable[[Callable[[duckdb.DuckDBPyConnection], Any], Sequence[Grouping]], Any],
    ) -> None:
        self._coins, self._run, self._number = Coins(probability, key), run, next(_NUMBERS)
        self._lock, self._made, self._gone = threading.Lock(), set[str](), False

    @property
    def coins(self) -> Coins:
        """The coins, while it is there."""
        if self._gone:
            raise Bug("The sample is gone.", fix="Please report what was asked.")
        return self._coins

    def rows(self, place: int) -> str:
        """What the engine calls the sampled rows of a table whose rows are units."""
        name = f"sample{self._number}_{place}"
        coins = self.coins.apart(f"rows of table {place}")
        with self._lock:
            if name not in self._made:
                chosen = coins.of_rows(exp.select("*").from_(base_view(place)), DUCKDB)
                text = f"CREATE TEMP TABLE {name} AS {chosen.sql(dialect='duckdb')}"
                self._run(lambda connection: connection.execute(text), ())
                self._made.add(name)
        return name

    def forget(self) -> None:
        """Drop all of it, and read nothing any more."""
        self._gone = True
        text = "; ".join(f"DROP TABLE IF EXISTS {name}" for name in self._made)
        with suppress(SourceError):
            if text:
                self._run(lambda connection: connection.execute(text), ())
        del self._run  # it holds the engine, which holds this


@contextmanager
def sampled(source: Any, probability: Fraction, key: str) -> Iterator[Any]:  # noqa: ANN401 - ours
    """The same source for one sample, with a line of its own, until it is left."""
    found = copy(source)
    found._free, found._turns = [], threading.Semaphore(1)  # noqa: SLF001 - one line, which has it
    found._written, found._drawn = {}, (drawn := Drawn(probability, key, found._run))  # noqa: SLF001
    try:
        yield found
    finally:
        found._written.clear()  # noqa: SLF001 - its statements hold coins
        drawn.forget()
        for line in found._free:  # noqa: SLF001
            line.connection.close()
