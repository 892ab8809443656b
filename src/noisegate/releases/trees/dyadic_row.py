"""Halves of halves over a row of cells: the tree that one-dimensional releases are planned on.

Level 0 is the whole row, the last level the single cells. The row is padded with empty cells to a
power of two, so that every level is one array.
"""

from functools import cached_property
from itertools import pairwise
from typing import TypeAlias, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.transforms.strategy import Groups

Levels: TypeAlias = list[Floats]  # level l holds 2**l numbers, one for each node


@final
@dataclass(frozen=True, slots=True, eq=False)
class Halves:
    """``widths`` are the cells below each node; ``even`` the part of them in its left half."""

    cells: int
    depth: int
    widths: Levels
    even: Levels

    @classmethod
    def over(cls, cells: int) -> "Halves":
        """Of a row of so many cells."""
        depth = (cells - 1).bit_length()
        widths = added_up(np.ones(cells), depth)
        even = [
            np.where(width > 0, below[0::2] / np.maximum(width, 1), 0.5)
            for width, below in pairwise(widths)
        ]
        return cls(cells, depth, widths, even)

    def level(self, level: int) -> "Bins":
        """All nodes of a level that have cells."""
        count = int(np.count_nonzero(self.widths[level]))
        starts = np.arange(count, dtype=np.int64) << (self.depth - level)
        return Bins(self, starts, np.full(count, level, np.int64))


@final
@dataclass(frozen=True, eq=False)
class Bins:
    """A partition of the row into nodes: where each starts, and its level, from left to right."""

    tree: Halves
    starts: Ints
    levels: Ints

    @property
    def size(self) -> int:
        """How many bins there are."""
        return self.starts.size

    @cached_property
    def nodes(self) -> list[tuple[int, Ints, Ints]]:
        """Level by level: the level, its nodes, and their places among the bins."""
        found = []
        for level in np.unique(self.levels).tolist():
            places = np.flatnonzero(self.levels == level)
            found.append((level, self.starts[places] >> (self.tree.depth - level), places))
        return found

    def groups(self) -> Groups:
        """The question for the sums of all bins: one row of the table counts in one of them."""
        labels = np.zeros(self.tree.cells, np.int32)
        labels[self.starts[1:]] = 1
        return Groups(np.cumsum(labels, dtype=np.int32), self.size)


def added_up(cells: Floats, depth: int) -> Levels:
    """The sums of all nodes.

    >>> [level.tolist() for level in added_up(np.array([1.0, 2.0, 4.0]), 2)]
    [[7.0], [3.0, 4.0], [1.0, 2.0, 4.0, 0.0]]
    """
    levels: Levels = [np.zeros(1 << depth)]
    levels[0][: cells.size] = cells
    for _ in range(depth):
        levels.insert(0, levels[0].reshape(-1, 2).sum(axis=1))
    return levels


def pairs(level: Floats) -> tuple[Floats, Floats]:
    """The left and the right halves of the nodes above."""
    return level[0::2], level[1::2]


def joined(left: Floats, right: Floats) -> Floats:
    """A level from its left and right halves."""
    return np.stack((left, right), axis=1).ravel()
