"""Which partitions of a row of cells to measure next, and for which shares of the price.

The fitted tree says for any planned measurements how far the workload's answers would be off. The
best plan is sought among flat partitions into nodes of the tree: all levels, and those that refine
where it pays, fine where the table is rough or heavy and coarse where it is even or empty. A plan
depends on released numbers and the public workload only, so it is free.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.releases.ask.shares import Law
from noisegate.releases.cells.workload import Floats, Workload
from noisegate.releases.trees.dyadic_row import Bins, Halves, Levels, added_up, pairs
from noisegate.releases.trees.prior import Evidence, upward
from noisegate.releases.trees.risk import Risk, Singles, WorkloadBoxes

Plan: TypeAlias = list[tuple[int, float]]  # which candidate, and its part of what is left
Score: TypeAlias = Callable[[Plan], float]

_SAFETY: Final = 2.0  # plans take splits to be rougher (in variance) than they were found to be
_LOOKED_AT: Final = 500  # boxes of a workload that plans look at
_LARGE: Final = 14  # levels; deeper trees get a thinner search
_PAIRS: Final = ((0.6, 0.4), (0.4, 0.6))
_TRIPLES: Final = ((0.33, 0.33, 0.34), (0.5, 0.3, 0.2))
_FACTORS: Final = (1.5, 1.2)  # by which parts are changed, in so many sweeps over a plan at most:
_SWEEPS: Final = 20
_NEAR: Final = 1.15  # a plan no worse than so many times the best is worth improving
_MOVES: Final = 0.998  # what a step has to gain, and what one more partition has to
_HELPS: Final = 0.99


@final
@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A workload as plans see it. ``ends`` are the parts of all ends that lie in each node."""

    boxes: WorkloadBoxes | Singles
    ends: Levels | None

    @classmethod
    def of(cls, tree: Halves, workload: Workload) -> "Asked":
        """All single cells, or an even choice of the boxes."""
        lows, highs = workload.lows.ravel(), workload.highs.ravel()
        if np.array_equal(lows, highs) and np.unique(lows).size == tree.cells:
            return cls(Singles(tree), None)
        at = np.linspace(0, lows.size - 1, min(_LOOKED_AT, lows.size)).astype(np.int64)
        ends = np.concatenate((highs, lows[lows > 0] - 1))
        counts = np.bincount(ends, minlength=tree.cells) / ends.size
        return cls(WorkloadBoxes.of(tree, lows[at], highs[at]), added_up(counts, tree.depth))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Designer:
    """Plans measurements for one workload under one law of noise."""

    tree: Halves
    asked: Asked
    law: Law

    def plan(
        self, evidence: Evidence, shares: Levels, spreads: Levels, left: float
    ) -> tuple[list[tuple[Bins, float]], float]:
        """The best found way to spend ``left`` of the price, coarse to fine, and its variance."""
        feared = [_SAFETY * spread for spread in spreads]
        parts = self._candidates(evidence, shares, feared, left)
        risk = Risk(self.asked.boxes, evidence, shares, feared)

        def score(plan: Plan) -> float:  # rounded: another machine's last bits change no plan
            found = risk([(parts[at], self.law.weight(part * left)) for at, part in plan])
            return float(f"{found:.9g}")

        variance, plan = _search(score, [part.size for part in parts], thin=self._thin)
        return [(parts[at], part * left) for at, part in plan], variance

    def now(self, evidence: Evidence, shares: Levels, spreads: Levels) -> float:
        """The variance without any more measurements."""
        return Risk(self.asked.boxes, evidence, shares, spreads)([])

    @property
    def _thin(self) -> int:
        return 4 if self.tree.depth > _LARGE else 1

    def _candidates(
        self, evidence: Evidence, shares: Levels, spreads: Levels, left: float
    ) -> list[Bins]:
        """All levels, and the partitions that are best at some price of a bin; by size."""
        _, variances = upward(evidence, shares, spreads)
        known = [
            1 / (1 / spread + sum(1 / half for half in pairs(below)))
            for spread, below in zip(spreads, variances[1:], strict=False)
        ]
        known += spreads[len(known) :]
        found = {bins.size: bins for bins in map(self.tree.level, range(self.tree.depth + 1))}
        for price in 2.0 ** np.arange(-24, 9, self._thin) / self.law.weight(left):
            bins = pruned(self.tree, known, self.asked.ends, price)
            found[bins.size] = bins
        return [found[size] for size in sorted(found)]


def pruned(tree: Halves, spreads: Levels, ends: Levels | None, price: float) -> Bins:
    """The partition with the least price of bins + error of spreading bins evenly.

    Exact by recursion, from the cells to the row: a node is a bin if that costs no more than its
    halves do.
    """
    best = _price(tree, tree.depth, ends, price)
    inside = np.zeros(best.size)
    stops = [np.ones(best.size, bool)]
    for level in range(tree.depth - 1, -1, -1):
        inside = sum(pairs(inside)) + _unevenness(tree, spreads, ends, level)
        whole, halves = _price(tree, level, ends, price) + inside, sum(pairs(best))
        stops.append((whole <= halves) | (tree.widths[level] <= 1))
        best = np.where(stops[-1], whole, halves)
    return _bins(tree, stops[::-1])


def _price(tree: Halves, level: int, ends: Levels | None, price: float) -> Floats:
    """Of a bin. The noise of a bin is spread over its cells, where these are what is asked."""
    widths = tree.widths[level]
    each: Floats = price / np.maximum(widths, 1) if ends is None else np.full(widths.size, price)
    return np.where(widths > 0, each, 0)


def _unevenness(tree: Halves, spreads: Levels, ends: Levels | None, level: int) -> Floats:
    """What not knowing a split adds to the workload's variance."""
    widths = np.maximum(tree.widths[level], 1)
    if ends is None:
        return spreads[level] * 4 / widths
    return ends[level] * spreads[level] * (1 + 2 / widths**2) / 3


def _bins(tree: Halves, stops: Sequence[NDArray[np.bool_]]) -> Bins:
    """The first nodes from above that stop."""
    starts, levels, alive = [], [], np.ones(1, bool)
    for level, stop in enumerate(stops):
        nodes = np.flatnonzero(alive & stop & (tree.widths[level] > 0))
        starts.append(nodes << (tree.depth - level))
        levels.append(np.full(nodes.size, level, np.int64))
        alive = np.repeat(alive & ~stop, 2)
    order = np.argsort(np.concatenate(starts), kind="stable")
    return Bins(tree, np.concatenate(starts)[order], np.concatenate(levels)[order])


def _search(score: Score, sizes: list[int], *, thin: int) -> tuple[float, Plan]:
    """The best plan found with one, two, three, and more partitions as long as these help."""

    def best(plans: list[Plan]) -> tuple[float, Plan]:
        return min((score(plan), plan) for plan in plans)

    sweeps = max(1, _SWEEPS // thin**2)
    found = best([[(at, 1.0)] for at in range(len(sizes))])
    alone, last = found[1][0][0], len(sizes) - 1
    some = sorted({*_spaced(sizes, 2.5 * thin), alone, last})
    few = sorted({*_spaced(sizes, 5.0 * thin), alone, last})
    for places, kinds in ((combinations(some, 2), _PAIRS), (combinations(few, 3), _TRIPLES)):
        tried: list[Plan] = [
            list(zip(chosen, parts, strict=True)) for chosen in places for parts in kinds
        ]
        if tried:
            other = best(tried)
            if other[0] < _NEAR * found[0]:
                found = min(found, _improved(score, other, len(sizes), sweeps))
    while len(found[1]) >= len(_TRIPLES[0]):
        more = [_with(found[1], at) for at in some if at not in dict(found[1])]
        other = _improved(score, best(more), len(sizes), sweeps) if more else found
        if other[0] > _HELPS * found[0]:
            break
        found = other
    return found


def _with(plan: Plan, at: int) -> Plan:
    return sorted([*((each, 0.8 * part) for each, part in plan), (at, 0.2)])


def _spaced(sizes: list[int], ratio: float) -> list[int]:
    """Candidates of which each has so many times the bins of the one before."""
    found = [0]
    for at, size in enumerate(sizes):
        if size >= ratio * sizes[found[-1]]:
            found.append(at)
    return found


def _improved(
    score: Score, found: tuple[float, Plan], count: int, sweeps: int
) -> tuple[float, Plan]:
    """Small steps in parts and to neighbouring partitions, as long as they help."""
    value, plan = found
    for factor in _FACTORS:
        for _ in range(sweeps):
            before = value
            for place in range(len(plan)):
                for other in _near(plan, place, factor, count):
                    reached = score(other)
                    if reached < _MOVES * value:
                        value, plan = reached, other
                        break
            if value == before:
                break
    return value, sorted(plan)


def _near(plan: Plan, place: int, factor: float, count: int) -> list[Plan]:
    found: list[Plan] = []
    for step in (factor, 1 / factor) if len(plan) > 1 else ():
        parts = [part * (step if at == place else 1) for at, (_, part) in enumerate(plan)]
        found.append([(each, p / sum(parts)) for (each, _), p in zip(plan, parts, strict=True)])
    here, part = plan[place]
    beside = [at for at in (here - 1, here + 1) if 0 <= at < count and at not in dict(plan)]
    return found + [[*plan[:place], (at, part), *plan[place + 1 :]] for at in beside]
