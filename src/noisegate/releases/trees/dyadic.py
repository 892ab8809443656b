"""A binary tree over the cells of a table in any number of dimensions, without its nodes.

Cells are put in the order of the tree's leaves. A node is then a run of places, and all that is
kept of the tree is where runs are cut, level by level: as much as there are cells, however long and
uneven the axes are.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats

Ints: TypeAlias = NDArray[np.signedinteger[Any]]
_FAIR: Final = 8  # a value with more than so many fair shares of the rows gets more room


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dyadic:
    """``places[c]`` is where cell c stands; ``cuts[l]`` are the places that begin a second half.

    A cut at p in ``cuts[l]`` parts p - 1 from p: a node of level l, a run around p, has two halves
    at level l + 1. A node that no cut of a level parts stays as it is on that level.
    """

    places: NDArray[np.int32]
    cuts: tuple[NDArray[np.int32], ...]

    def inside(self, level: int, lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
        """For each run, its first cut of a level, and how many there are in it (0: any first)."""
        cuts = self.cuts[level]
        if not cuts.size:
            return np.zeros_like(lows), np.zeros_like(lows)
        first = np.searchsorted(cuts, lows, side="right")
        count = np.maximum(np.searchsorted(cuts, highs, side="left") - first, 0)
        return cuts[np.minimum(first, cuts.size - 1)], count


def dyadic(axes: Sequence[Ints], sizes: Sequence[int]) -> Dyadic:
    """The tree that halves the longest axis, again and again.

    ``axes`` are the positions of each axis' values, rising, below ``sizes``, which are powers of 2.
    Between positions that hold a value there may be gaps; no cell is in them.

    >>> dyadic([np.arange(2), np.arange(3)], [2, 4]).places.tolist()
    [0, 1, 4, 2, 3, 5]
    """
    halved, left = [], list(sizes)
    while max(left) > 1:
        halved.append(int(np.argmax(left)))
        left[halved[-1]] //= 2
    depth = len(halved)
    codes = [np.zeros(axis.size, np.int64) for axis in axes]
    for level, which in enumerate(halved):
        bit = sum(other == which for other in halved[level + 1 :])
        codes[which] |= ((axes[which] >> bit) & 1) << (depth - 1 - level)
    code = reduce(np.add.outer, codes).ravel()
    order = np.argsort(code, kind="stable")
    places = np.empty(order.size, np.int32)
    places[order] = np.arange(order.size, dtype=np.int32)
    code = code[order]
    levels = (depth - np.frexp((code[1:] ^ code[:-1]).astype(np.float64))[1]).astype(np.int8)
    cuts = (np.argsort(levels, kind="stable") + 1).astype(np.int32)
    ends = np.cumsum(np.bincount(levels, minlength=depth))
    return Dyadic(places, tuple(np.split(cuts, ends[:-1])[:depth]))


def length(values: int) -> int:
    """The next power of 2."""
    return 1 << (values - 1).bit_length()


def widened(margin: Floats) -> tuple[Ints, int]:
    """Positions for the values of an axis, and its length.

    A value that holds more than 8 fair shares gets room for half its excess on an axis twice as
    long, so that few cuts single it out. On even axes nothing is widened.

    >>> positions, size = widened(np.array([1.0] * 15 + [85.0]))
    >>> positions[-2:].tolist(), size  # the last has the places from 24 on
    ([23, 24], 32)
    """
    count = margin.size
    excess = np.maximum(margin / margin.sum() - _FAIR / count, 0) / 2
    if excess.sum() < 1e-3:
        return np.arange(count), length(count)
    room = excess + (1 - excess.sum()) / count  # at least 1 / (2 count) each: positions differ
    starts = np.floor(2 * length(count) * (np.cumsum(room) - room) + 1e-9).astype(np.int64)
    return starts, 2 * length(count)
