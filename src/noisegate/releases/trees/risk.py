"""How far sums of boxes may be off in a fitted tree of halves: known, or foreseen for a plan.

A box is the difference of two running totals. A running total cuts one node on each level: of the
nodes beside it, it holds all or nothing. So its error is c · (error of the row) plus, on each
level, (c_left - c_right) · (the split's own error), where c is the part of a node that it holds
after the splits below are averaged out. Two ends inside one node share its splits.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.releases.trees.dyadic_row import Bins, Halves, Levels, pairs
from noisegate.releases.trees.prior import Evidence


class Splits(NamedTuple):
    """The splits of a level: how the left half moves with its node, and its own variance."""

    slopes: Floats
    rests: Floats


class Cut(NamedTuple):
    """The ends (2, boxes) at one level: the part of the cut node, and the variance below it."""

    parts: Floats
    variance: Floats


Up: TypeAlias = Callable[[Cut, Splits], Cut]


@final
@dataclass(frozen=True, slots=True, eq=False)
class WorkloadBoxes:
    """Some boxes of a workload, looked at one by one."""

    tree: Halves
    ends: Ints  # (2, boxes): cells before the box, and with it

    @classmethod
    def of(cls, tree: Halves, lows: Ints, highs: Ints) -> "WorkloadBoxes":
        """``highs`` are inside."""
        return cls(tree, np.stack((lows.ravel(), highs.ravel() + 1)))

    def leaves(self) -> Cut:
        """The cut nodes among the cells: nothing of them, but all of the last if all is held."""
        full = (self.ends >> self.tree.depth).astype(np.float64)
        return Cut(full, np.zeros(self.ends.shape[1]))

    def up(self, level: int) -> Up:
        """From the level below to this one: where the ends cut it is found out once."""
        last = (1 << self.tree.depth) - 1
        below = np.minimum(self.ends, last) >> (self.tree.depth - level - 1)
        nodes, right = below >> 1, (below & 1).astype(bool)
        together = nodes[0] == nodes[1]

        def up(cut: Cut, splits: Splits) -> Cut:
            slopes, rests = splits.slopes[nodes], splits.rests[nodes]
            gap = np.where(right, 1 - cut.parts, cut.parts)
            own = rests * gap * gap
            both = rests[0] * (gap[1] - gap[0]) ** 2
            moved = np.where(right, 1 - slopes, slopes) * gap
            here = np.where(together, both, own[0] + own[1])
            return Cut(np.where(right, 1 - moved, moved), cut.variance + here)

        return up

    def mean(self, cut: Cut, variance: float) -> float:
        """The mean variance, from the cuts of the row and the row's variance."""
        return float(self.variances(cut, variance).mean())

    def variances(self, cut: Cut, variance: float) -> Floats:
        """Box by box."""
        found: Floats = (cut.parts[1] - cut.parts[0]) ** 2 * variance + cut.variance
        return found


@final
@dataclass(frozen=True, slots=True, eq=False)
class Singles:
    """All cells. Parts are then the sums of squared parts below each node: no cell is left out."""

    tree: Halves

    def leaves(self) -> Cut:
        """Each cell is all of itself."""
        return Cut((self.tree.widths[-1] > 0).astype(np.float64), np.zeros(1 << self.tree.depth))

    def up(self, level: int) -> Up:  # noqa: ARG002 - as Boxes
        """From the level below to this one."""

        def up(cut: Cut, splits: Splits) -> Cut:
            (left, right), (v_left, v_right) = pairs(cut.parts), pairs(cut.variance)
            parts = splits.slopes**2 * left + (1 - splits.slopes) ** 2 * right
            return Cut(parts, v_left + v_right + splits.rests * (left + right))

        return up

    def mean(self, cut: Cut, variance: float) -> float:
        """The mean variance, from the cut of the row and the row's variance."""
        return float(cut.parts[0] * variance + cut.variance[0]) / self.tree.cells


class Risk:
    """The mean variance of a workload after planned measurements. It needs no answers to them."""

    def __init__(
        self, asked: WorkloadBoxes | Singles, evidence: Evidence, shares: Levels, spreads: Levels
    ) -> None:
        self._asked, self._evidence = asked, evidence
        self._shares, self._spreads = shares, spreads
        self._deepest = evidence.deepest
        self._ups = [asked.up(level) for level in range(evidence.tree.depth)]
        cuts = [asked.leaves()]
        for level in range(evidence.tree.depth - 1, -1, -1):  # where nothing will be measured
            splits = Splits(shares[level], spreads[level])
            cuts.append(self._ups[level](cuts[-1], splits))
        self._cuts = cuts[::-1]

    def __call__(self, planned: Sequence[tuple[Bins, float]]) -> float:
        """Of partitions, each with the precision that its noise will have."""
        precisions = list(self._evidence.precisions)
        deepest = self._deepest
        for bins, precision in planned:
            for level, nodes, _ in bins.nodes:
                precisions[level] = precisions[level].copy()
                precisions[level][nodes] += precision
                deepest = max(deepest, level)
        variance, cut = 1 / precisions[deepest], self._cuts[deepest]
        for level in range(deepest - 1, -1, -1):
            share, spread = self._shares[level], self._spreads[level]
            (left, right), other = pairs(variance), 1 - share
            both = spread * (left + right) + left * right
            slope = share + spread * (other * left - share * right) / both
            cut = self._ups[level](cut, Splits(slope, spread * left * right / both))
            known = (spread + share**2 * right + other**2 * left) / both
            variance = 1 / (known + precisions[level])
        return self._asked.mean(cut, float(variance[0]))
