"""The tree in which all that was measured are nodes, down to single cells.

Recipes measure sums of groups of cells, and most of these groups lie inside each other. Put in a
suitable order, every group is a run of cells, and a binary tree can be cut out of the row so that
each run is a node of it. What was measured about a node is then known node by node, whatever the
recipe was and however many axes there are.
"""

from collections.abc import Sequence
from math import prod
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.ask.shares import NOISELESS
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.releases.trees.dyadic import dyadic, length
from noisegate.transforms.strategy import Block, Groups

CELLS_MAX: Final = 1 << 20  # beyond, it takes minutes and gigabytes


@final
@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Some nodes: runs ``lows ≤ place < highs``, and what was measured about each.

    The nodes ``cut`` have halves: those of ``cut[k]`` are 2 k and 2 k + 1 of the next level.
    Without a measurement, ``precisions`` and ``infos`` (precision · value) are 0.
    """

    lows: Ints
    highs: Ints
    precisions: Floats
    infos: Floats
    cut: Ints

    @property
    def widths(self) -> Ints:
        """How many cells each node holds."""
        return self.highs - self.lows


@final
@dataclass(frozen=True, slots=True, eq=False)
class Hierarchy:
    """Levels from the whole table down to single cells; ``order[p]`` is the cell at place p."""

    order: Ints
    levels: tuple[Level, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Family:
    """Groups that do not overlap: a label for each cell (-1: in none), values and variances."""

    labels: Ints
    values: Floats
    variances: Floats

    @property
    def sizes(self) -> Ints:
        return np.bincount(self.labels[self.labels >= 0], minlength=self.values.size)

    def nests(self, other: "_Family") -> bool:
        """Whether any two groups lie inside each other or apart."""
        both = (self.labels >= 0) & (other.labels >= 0)
        pairs = self.labels[both] * other.values.size + other.labels[both]
        found, counts = np.unique(pairs, return_counts=True)
        one, two = np.divmod(found, other.values.size)
        return bool(np.all((counts == self.sizes[one]) | (counts == other.sizes[two])))

    def joined(self, other: "_Family") -> "_Family":
        """With groups about other cells."""
        moved = np.where(other.labels >= 0, other.labels + self.values.size, self.labels)
        values = np.concatenate([self.values, other.values])
        return _Family(moved, values, np.concatenate([self.variances, other.variances]))


def hierarchy(shape: tuple[int, ...], heard: Sequence[tuple[Block, Noisy]]) -> Hierarchy | None:
    """The tree of what was measured; None if that was no sums of groups, or of too many cells.

    Groups that cross others are left out, the later ones stay: looks come before the rest.
    """
    is_sums = bool(heard) and all(isinstance(block, Groups) for block, _ in heard)
    if not is_sums or prod(shape) > CELLS_MAX:
        return None
    families = _nested([_family(block, noisy) for block, noisy in heard])  # type: ignore[arg-type]
    order = _order(shape, families)
    return Hierarchy(order, tuple(_levels(order, families)))


def _family(block: Groups, noisy: Noisy) -> _Family:
    values = noisy.values.astype(np.float64)
    noise = np.full(values.size, max(noisy.variance, NOISELESS))
    return _Family(block.labels.astype(np.int64), values, noise)


def _nested(families: Sequence[_Family]) -> list[_Family]:
    joined: list[_Family] = []
    for family in families:
        apart = joined and not np.any((joined[-1].labels >= 0) & (family.labels >= 0))
        if apart:
            joined[-1] = joined[-1].joined(family)
        else:
            joined.append(family)
    kept: list[_Family] = []
    for family in reversed(joined):
        if all(family.nests(other) for other in kept):
            kept.append(family)
    return kept


def _order(shape: tuple[int, ...], families: Sequence[_Family]) -> Ints:
    """Cells such that every group is a run: by the groups that hold them, largest first."""
    places = dyadic([np.arange(size) for size in shape], [length(size) for size in shape]).places
    sizes, firsts = [], []
    for family in families:
        first = np.full(family.values.size, places.size, np.int64)
        held = family.labels >= 0
        np.minimum.at(first, family.labels[held], places[held])
        sizes.append(np.where(held, family.sizes[family.labels], 0).astype(np.int32))
        firsts.append(np.where(held, first[family.labels], -1).astype(np.int32))
    largest = np.argsort(-np.stack(sizes), axis=0, kind="stable")
    keys = np.take_along_axis(np.stack(firsts), largest, axis=0)
    return np.lexsort((places, *keys[::-1]))


def _levels(order: Ints, families: Sequence[_Family]) -> list[Level]:
    """Every node is cut where no group inside it is, as near to its middle as can be."""
    (starts, ends), precisions, infos = _runs(order, families)
    far = order.size + 1
    around = np.zeros(far, np.int64)  # how many groups a boundary lies inside of
    np.add.at(around, starts + 1, 1)
    np.add.at(around, ends, -1)
    around = np.cumsum(around)
    ranked = np.sort(around[1:-1] * far + np.arange(1, order.size))
    names = starts * far + ends
    levels = []
    lows, highs = np.zeros(1, np.int64), np.full(1, order.size, np.int64)
    while True:
        at = np.searchsorted(names[:-1], lows * far + highs)
        known = names[at] == lows * far + highs
        cut = np.flatnonzero(highs - lows > 1)
        precision, info = (np.where(known, each[at], 0.0) for each in (precisions, infos))
        levels.append(Level(lows, highs, precision, info, cut))
        if not cut.size:
            return levels
        low, high = lows[cut], highs[cut]
        inner = np.stack([low + 1, high], axis=1).ravel()
        least = np.minimum.reduceat(around, inner)[::2]
        place = _nearest(ranked, least * far, low, high)
        lows = np.stack([low, place], axis=1).ravel()
        highs = np.stack([place, high], axis=1).ravel()


def _nearest(ranked: Ints, least: Ints, low: Ints, high: Ints) -> Ints:
    """Of the boundaries inside each run that the fewest groups are around: the most even one."""
    middle = (low + high) // 2
    after = np.searchsorted(ranked, least + middle)
    below = ranked[np.maximum(after - 1, 0)] - least
    above = ranked[np.minimum(after, ranked.size - 1)] - least
    fits = (above > low) & (above < high)
    nearer = (below > low) & (below < high) & (middle - below < above - middle)
    return np.where(nearer | ~fits, below, above)


def _runs(order: Ints, families: Sequence[_Family]) -> tuple[tuple[Ints, Ints], Floats, Floats]:
    """All groups as runs of places, each once, with what all measurements of it say together."""
    far = order.size + 1
    names, precisions, infos = [], [], []
    for family in families:
        labels = family.labels[order]
        starts = np.flatnonzero(np.diff(labels, prepend=-2))
        ends = np.append(starts[1:], labels.size)
        held = labels[starts] >= 0
        starts, ends, whose = starts[held], ends[held], labels[starts[held]]
        names.append(starts * far + ends)
        precisions.append(1 / family.variances[whose])
        infos.append(precisions[-1] * family.values[whose])
    found, which = np.unique(np.concatenate(names), return_inverse=True)
    low, high = np.divmod(found, far)
    weights, values = np.zeros(found.size), np.zeros(found.size)
    np.add.at(weights, which, np.concatenate(precisions))
    np.add.at(values, which, np.concatenate(infos))
    return (low, high), weights, values
