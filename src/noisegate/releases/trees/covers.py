"""What boxes hold at least and at most, by groups that cover the table: for tables of any size.

Where a table has too many cells for a model of its rows, this still holds, whatever the rows are:
no number is negative, so that a box holds at least the groups inside it and at most those it
touches. Groups that were measured last cover the table, together with earlier ones elsewhere.
"""

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.spatial import Side
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.transforms.strategy import Block, Groups

_COVERS_MAX: Final = 4


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """Groups that share no cell and leave none out, with what was measured about each."""

    labels: NDArray[np.int32]  # in the shape of the table
    values: Floats
    variances: Floats

    @property
    def sizes(self) -> Ints:
        """How many cells each group has."""
        return np.bincount(self.labels.ravel(), minlength=self.values.size)

    def between(self, asked: Workload) -> tuple[Side, Side]:
        """The groups inside each box, and those it touches."""
        sizes = self.sizes
        found = np.zeros((4, asked.size))
        if np.array_equal(asked.lows, asked.highs):
            at = self.labels[tuple(asked.lows.T)]
            alone = sizes[at] == 1
            found[:] = alone * self.values[at], alone * self.variances[at], *self._of(at)
        else:
            for place, ends in enumerate(zip(asked.lows, asked.highs, strict=True)):
                box = tuple(slice(low, high + 1) for low, high in zip(*ends, strict=True))
                counts = np.bincount(self.labels[box].ravel(), minlength=sizes.size)
                inside, touched = (np.flatnonzero(each) for each in (counts == sizes, counts))
                found[:, place] = [each.sum() for at in (inside, touched) for each in self._of(at)]
        return Side(found[0], found[1]), Side(found[2], found[3])

    def _of(self, at: Ints | NDArray[np.int32]) -> tuple[Floats, Floats]:
        return self.values[at], self.variances[at]


def covers(shape: tuple[int, ...], heard: Sequence[tuple[Block, Noisy]]) -> list[Cover]:
    """Those of all that was heard, of the first half of it, and so on."""
    found: list[Cover] = []
    last = len(heard)
    while last and len(found) < _COVERS_MAX:
        cover = _cover(shape, heard[:last])
        if cover is not None:
            found.append(cover)
        last = last - 1 if cover is None else last // 2
    return found


def _cover(shape: tuple[int, ...], heard: Sequence[tuple[Block, Noisy]]) -> Cover | None:
    """The latest groups, and earlier ones where there are none; None if they leave cells out."""
    labels = np.full(int(np.prod(shape)), -1, np.int32)
    values: list[Floats] = []
    variances: list[Floats] = []
    count = 0
    for block, noisy in reversed(heard):
        if not isinstance(block, Groups):
            return None
        free = np.ones(block.size, np.bool_)
        free[block.labels[(labels >= 0) & (block.labels >= 0)]] = False
        at = np.cumsum(free) - 1 + count
        taken = (block.labels >= 0) & free[block.labels]
        labels[taken] = at[block.labels[taken]]
        values.append(noisy.values[free].astype(np.float64))
        variances.append(np.full(values[-1].size, noisy.variance))
        count += values[-1].size
    if labels.min() < 0:
        return None
    return Cover(labels.reshape(shape), np.concatenate(values), np.concatenate(variances))
