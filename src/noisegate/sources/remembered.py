"""An engine that is asked each tally once: for made-up rows that many runs read again and again.

What an engine says about rows that do not change is the same every time, so an audit that goes
through the door thousands of times need not wait for it. Samples are drawn anew each time.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar, final

from noisegate.algebra.blocks import Blocks
from noisegate.algebra.relation import sample_of
from noisegate.algebra.tally import Cells, Distinct, Keys, Marginals, Rows, Sums, Tally, Values
from noisegate.sources.source import Batch, Block, Held, HeldCells, Source, Used, Whole

if TYPE_CHECKING:
    import pyarrow as pa

Found = TypeVar("Found")


@final
class Remembered(Source):
    """Exact answers by their question. The rows behind it must not change."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: dict[str, Any] = {}

    def _once(self, tally: Tally, find: Callable[[], Found]) -> Found:
        if sample_of(tally.relation) is not None:
            return find()  # its coins are fresh, so it is never asked again
        name = repr(tally)  # tells 1 and True apart
        if name not in self._found:
            self._found[name] = find()
        found: Found = self._found[name]
        return found

    def require(self, tally: Tally | Blocks) -> None:
        """As the engine does."""
        self._source.require(tally)

    @property
    def plans(self) -> bool:
        """As the engine does."""
        return self._source.plans

    def require_plan(self, tally: Tally | Blocks) -> None:
        """As the engine does."""
        self._source.require_plan(tally)

    def sums(self, tally: Sums) -> Whole:
        """The sums, of shape (terms, cells)."""
        return self._once(tally, lambda: self._source.sums(tally)).copy()

    def marginals(self, tally: Marginals) -> list[Whole]:
        """The sums over each set of groupings, in one pass."""
        found = self._once(tally, lambda: self._source.marginals(tally))
        return [table.copy() for table in found]

    def values(self, tally: Values) -> list[Whole]:
        """The values of each cell, in any order."""
        return [cell.copy() for cell in self._once(tally, lambda: self._source.values(tally))]

    def keys(self, tally: Keys) -> Held:
        """The keys that are present."""
        found = self._once(tally, lambda: self._source.keys(tally))
        return Held(counts=found.counts.copy(), take=found.take)

    def distinct(self, tally: Distinct) -> Whole:
        """The numbers of distinct values, of shape (1, cells)."""
        return self._once(tally, lambda: self._source.distinct(tally)).copy()

    def cells(self, tally: Cells) -> HeldCells:
        """The cells that hold rows."""
        found = self._once(tally, lambda: self._source.cells(tally))
        return HeldCells(cells=found.cells.copy(), counts=found.counts.copy())

    def rows(self, tally: Rows, use: Callable[[Iterator[Batch]], Used]) -> Used:
        """What ``use`` makes of the rows, which come in batches and in any order."""
        return use(iter(_copied(self._once(tally, lambda: self._source.rows(tally, _copied)))))

    def sample(self, probability: Fraction, key: str) -> AbstractContextManager[Source]:
        """The same tables with the rows of one sample of units; never remembered."""
        return self._source.sample(probability, key)

    def blocks(self, tally: Blocks, key: str, use: Callable[[Iterator[Block]], Used]) -> Used:
        """What ``use`` makes of the blocks; dealt anew each time."""
        return self._source.blocks(tally, key, use)

    def public(self, table: str) -> "pa.Table":
        """All rows of a public table."""
        return self._source.public(table)


def _copied(batches: Iterable[Batch]) -> list[Batch]:
    """All batches, apart from the engine's memory."""
    return [
        Batch(
            each.coordinates.copy(),
            each.places.copy(),
            None if each.weights is None else each.weights.copy(),
        )
        for each in batches
    ]
