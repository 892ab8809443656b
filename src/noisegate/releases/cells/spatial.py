"""Trees of boxes: their noisy counts made consistent, and rectangles asked of them.

Every box holds the boxes below it, and their counts add up to its own. Inside a box without parts
the count is taken to be spread evenly, so a rectangle that covers a part of it gets that share.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple, TypeAlias, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.partitions.boxes import halves, single, whole
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.transforms.strategy import Groups

Edge: TypeAlias = Callable[[Floats], Floats]
Level: TypeAlias = tuple[Ints, Ints, Ints]  # lows, highs, places of the parents in the level above
_EXACT: Final = 1e-12  # a variance; below it, weights would be 0 / 0
_PAIRS: Final = 1 << 20  # of rectangles and boxes looked at together


class Side(NamedTuple):
    """Sums that the exact ones are surely not below, or not above, but for noise."""

    sums: Floats
    variance: Floats


@final
@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of cells in levels, the whole table first; the parts of a box stand together.

    ``lows`` and ``highs`` are arrays of (boxes, dims), both ends inside; ``parents`` never fall and
    are -1 at the top; level t is ``starts[t]`` to ``starts[t + 1]``.
    """

    shape: tuple[int, ...]
    lows: Ints
    highs: Ints
    parents: Ints
    starts: Ints

    @classmethod
    def of(cls, shape: Sequence[int], levels: Sequence[Level]) -> "Boxes":
        """From levels below the top: lows, highs, and places in the level above."""
        top = whole(shape)
        sizes = [1, *(level[0].shape[0] for level in levels)]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        parents = [np.array([-1])]
        parents += [level[2] + start for level, start in zip(levels, starts, strict=False)]
        return cls(
            tuple(shape),
            np.vstack([top[0], *(level[0] for level in levels)]),
            np.vstack([top[1], *(level[1] for level in levels)]),
            np.concatenate(parents),
            starts,
        )

    @property
    def size(self) -> int:
        """How many boxes there are."""
        return int(self.parents.size)

    @property
    def depth(self) -> int:
        """How many levels there are below the top."""
        return self.starts.size - 2

    @property
    def volumes(self) -> Floats:
        """How many cells each box holds."""
        found: Floats = np.prod(self.highs - self.lows + 1, axis=1).astype(np.float64)
        return found

    @property
    def parts(self) -> Ints:
        """How many parts each box has."""
        return np.bincount(self.parents[1:], minlength=self.size)

    def level(self, depth: int) -> slice:
        """Where a level stands."""
        return slice(int(self.starts[depth]), int(self.starts[depth + 1]))

    def groups(self, depth: int) -> Groups:
        """The sums over the boxes of one level."""
        at = self.level(depth)
        labels = self.painted(np.arange(at.start, at.stop)) - at.start
        return Groups(np.maximum(labels, -1).astype(np.int32), at.stop - at.start)

    def painted(self, chosen: Ints) -> Ints:
        """For each cell the one of the chosen boxes, which share no cell, that holds it; or -1."""
        steps = np.zeros([size + 1 for size in self.shape], np.int64)
        for corner in product((False, True), repeat=len(self.shape)):
            places = np.where(np.array(corner), self.highs[chosen] + 1, self.lows[chosen])
            np.add.at(steps, tuple(places.T), (-1) ** sum(corner) * (chosen + 1))
        for axis in range(len(self.shape)):
            steps = steps.cumsum(axis=axis)
        return steps[tuple(slice(0, -1) for _ in self.shape)].reshape(-1) - 1

    def covered(self, lows: Ints, highs: Ints) -> Iterator[tuple[Ints, Ints, Floats, Ints]]:
        """Level by level: rectangle, box, the share of the box inside, and the row of its parent.

        Rows are those boxes that a rectangle touches and whose parents it covers in part.
        """
        rectangles: Ints = np.arange(lows.shape[0])
        boxes: Ints = np.zeros(lows.shape[0], np.int64)
        rows: Ints = np.full(lows.shape[0], -1, np.int64)
        parts = self.parts
        firsts = np.cumsum(parts) - parts + 1
        volumes = self.volumes
        while boxes.size:
            inside = np.ones(boxes.size, np.int64)
            for axis in range(len(self.shape)):
                low = np.maximum(self.lows[boxes, axis], lows[rectangles, axis])
                high = np.minimum(self.highs[boxes, axis], highs[rectangles, axis])
                inside *= np.maximum(high - low + 1, 0)
            share = inside / volumes[boxes]
            held = share > 0
            rectangles, boxes, rows = rectangles[held], boxes[held], rows[held]
            share = share[held]
            yield rectangles, boxes, share, rows
            open_rows = np.flatnonzero((share < 1) & (parts[boxes] > 0))
            counts = parts[boxes[open_rows]]
            rows = np.repeat(open_rows, counts)
            within = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
            rectangles, boxes = rectangles[rows], firsts[boxes[rows]] + within


@final
@dataclass(frozen=True, slots=True, eq=False)
class SpatialTree:
    """Boxes with consistent counts.

    ``centre`` and ``spread`` are the estimate of each box from itself and what is below it alone,
    and its variance; from them follow the counts, and the variance of any rectangle.
    """

    boxes: Boxes
    counts: Floats
    centre: Floats
    spread: Floats

    @property
    def leaves(self) -> Ints:
        """The boxes without parts, which make up the table."""
        return np.flatnonzero(self.boxes.parts == 0)

    def cells(self) -> Floats:
        """The count of each cell, spread evenly inside boxes without parts."""
        return self._even(self.counts).reshape(self.boxes.shape)

    def mended(self, grain: float = 1.0) -> Ints:
        """Whole numbers for all cells, none negative, where a count of 1 is ``grain``.

        The parts of a box are settled when the box is: the nearest that are not negative and add up
        to it. Numbers are rounded along the tree, so that no box is off by 1 for it.
        """
        counts = np.maximum(self.counts, 0)
        for depth in range(1, self.boxes.depth + 1):
            at = self.boxes.level(depth)
            parents = self.boxes.parents[at]
            counts[at] = _shared(self.centre[at], self.spread[at], parents, counts)
        order = np.argsort(self._firsts()[self.boxes.painted(self.leaves)], kind="stable")
        totals = np.rint(np.cumsum(self._even(counts)[order] * grain)).astype(np.int64)
        found = np.empty_like(totals)
        found[order] = np.diff(totals, prepend=0)
        return found.reshape(self.boxes.shape)

    def query(self, lows: Floats, highs: Floats) -> Floats:
        """The sum over each rectangle, which may end inside cells; see `even_sums`."""
        return even_sums(self.cells(), lows, highs)

    def variance(self, lows: Ints, highs: Ints) -> Floats:
        """The variance of each rectangle's sum; infinite where it cuts through a box without parts.

        What lies on which side of such a cut is not known: only rows could tell.
        """
        found, parts = self.noise(lows, highs), self.boxes.parts
        if self.boxes.volumes[self.leaves].max() == 1:
            return found
        for part in _stretches(lows.shape[0], self.boxes.size):
            for rectangles, boxes, share, _ in self.boxes.covered(lows[part], highs[part]):
                cut = rectangles[(share < 1) & (parts[boxes] == 0)]
                found[part.start + cut] = np.inf
        return found

    def between(self, lows: Ints, highs: Ints) -> tuple[Side, Side]:
        """What each rectangle holds at least and at most, but for noise.

        Claim: the exact sum lies between those of all boxes inside and of all boxes that it
            touches. Why: no count is negative, wherever inside a box the rows are.
        """
        inside, touched = (
            Side(self._sums(lows, highs, edge), self.noise(lows, highs, edge))
            for edge in (np.floor, np.ceil)
        )
        return inside, touched

    def _sums(self, lows: Ints, highs: Ints, edge: Edge) -> Floats:
        found = np.zeros(lows.shape[0])
        parts = self.boxes.parts
        for part in _stretches(lows.shape[0], self.boxes.size):
            for rectangles, boxes, share, _ in self.boxes.covered(lows[part], highs[part]):
                held = np.where(parts[boxes] > 0, np.floor(share), edge(share))
                np.add.at(found, part.start + rectangles, held * self.counts[boxes])
        return found

    def noise(self, lows: Ints, highs: Ints, edge: Edge = np.positive) -> Floats:
        """The variance of each rectangle's sum that is due to noise.

        Of a box without parts that it cuts, as much counts as ``edge`` makes of its share.

        Why: let v be a box with parts c. Given its count β_v, least squares puts the parts at
        z_c + (s_c² / V) (β_v - S), V = Σ s_c², with covariance diag(s²) - s² s²ᵀ / V. So a sum
        Σ a_c β_c + (independent rest of variance r_c) is a_v β_v plus a rest of variance
        Σ r_c + Σ a_c² s_c² - (Σ a_c s_c²)² / V, a_v = Σ a_c s_c² / V.
        """
        found = np.empty(lows.shape[0])
        for part in _stretches(lows.shape[0], self.boxes.size):
            found[part] = self._noise(lows[part], highs[part], edge)
        return found

    def _noise(self, lows: Ints, highs: Ints, edge: Edge) -> Floats:
        levels = list(self.boxes.covered(lows, highs))
        below = np.zeros(self.boxes.size)
        np.add.at(below, self.boxes.parents[1:], self.spread[1:])
        linear, rest = np.zeros(0), np.zeros(0)
        for depth in range(len(levels) - 1, -1, -1):
            _, boxes, share, _ = levels[depth]
            own, own_rest = edge(share), np.zeros(share.size)
            if depth + 1 < len(levels):
                _, parts, _, rows = levels[depth + 1]
                weight = np.bincount(rows, linear * self.spread[parts], boxes.size)
                square = np.bincount(rows, rest + linear**2 * self.spread[parts], boxes.size)
                cut = np.bincount(rows, minlength=boxes.size) > 0
                total = np.where(cut, below[boxes], 1)
                own = np.where(cut, weight / total, own)
                own_rest = np.where(cut, square - weight**2 / total, 0)
            linear, rest = own, own_rest
        found = np.zeros(lows.shape[0])
        found[levels[0][0]] = linear**2 * self.spread[0] + rest
        return found

    def pruned(self, threshold: float) -> "SpatialTree":
        """Without the parts of boxes that hold less than the threshold. Free: no row is read."""
        kept, parents = np.ones(self.boxes.size, np.bool_), self.boxes.parents
        for depth in range(1, self.boxes.depth + 1):
            above = parents[self.boxes.level(depth)]
            kept[self.boxes.level(depth)] = kept[above] & (self.counts[above] >= threshold)
        places = np.cumsum(kept) - 1
        parents = np.concatenate([[-1], places[parents[1:]]])[kept]
        lows, highs = self.boxes.lows[kept], self.boxes.highs[kept]
        starts = np.concatenate([[0], np.cumsum(kept)])[self.boxes.starts]
        boxes = replace(self.boxes, lows=lows, highs=highs, parents=parents, starts=starts)
        return SpatialTree(boxes, self.counts[kept], self.centre[kept], self.spread[kept])

    def _even(self, counts: Floats) -> Floats:
        return (counts / self.boxes.volumes)[self.boxes.painted(self.leaves)]

    def _firsts(self) -> Ints:
        """Where each box begins if cells are listed box after box, parts inside their boxes."""
        boxes, found = self.boxes, np.zeros(self.boxes.size, np.int64)
        volumes = boxes.volumes.astype(np.int64)
        for depth in range(1, boxes.depth + 1):
            at = boxes.level(depth)
            before = np.cumsum(volumes[at]) - volumes[at]
            parents = boxes.parents[at]
            eldest = np.searchsorted(parents, parents)
            found[at] = found[parents] + before - before[eldest]
        return found


def halved(shape: Sequence[int], depth: int | None = None) -> Boxes:
    """Halves of halves; a single cell is handed down, so that every level covers the table."""
    levels: list[Level] = []
    lows, highs = whole(shape)
    while (depth is None or len(levels) < depth) and not single(lows, highs).all():
        lows, highs, parents = halves(lows, highs)
        levels.append((lows, highs, parents))
    return Boxes.of(shape, levels)


def fit(boxes: Boxes, numbers: Floats, variances: Floats) -> SpatialTree:
    """Counts that add up, nearest to noisy numbers of known variance; infinite where none is known.

    Boxes without parts must have a number. Weighted least squares in time linear in the boxes: one
    pass up, which joins each number with the sum below it, and one down, which shares out what is
    over. On complete trees this is the three-pass solution of [CPSSY12]; it also takes trees of any
    shape.
    """
    variances = np.maximum(variances, _EXACT)
    centre, spread = np.where(np.isfinite(variances), numbers, 0.0), variances.copy()
    sums, below = np.zeros(boxes.size), np.zeros(boxes.size)
    for depth in range(boxes.depth, -1, -1):
        at = boxes.level(depth)
        inner = np.arange(at.start, at.stop)[below[at] > 0]
        weight = below[inner] / (below[inner] + variances[inner])
        centre[inner] = weight * centre[inner] + (1 - weight) * sums[inner]
        spread[inner] = (1 - weight) * below[inner]
        if depth:
            np.add.at(sums, boxes.parents[at], centre[at])
            np.add.at(below, boxes.parents[at], spread[at])
    counts = centre.copy()
    for depth in range(1, boxes.depth + 1):
        at = boxes.level(depth)
        parents = boxes.parents[at]
        counts[at] += spread[at] / below[parents] * (counts - sums)[parents]
    return SpatialTree(boxes, counts, centre, spread)


def _shared(centre: Floats, spread: Floats, parents: Ints, totals: Floats) -> Floats:
    """Within each parent: the nearest parts, weighted by 1 / spread, ≥ 0, that add up to its total.

    They are max(0, centre + spread · λ), with the λ that fits the largest part that stays.
    """
    order = np.lexsort((-centre / spread, parents))
    ranked = parents[order]
    first = np.flatnonzero(np.diff(ranked, prepend=-2))
    group = np.repeat(np.arange(first.size), np.diff(first, append=ranked.size))
    value, weight = (_within(a[order], first, group) for a in (centre, spread))
    push = (totals[ranked] - value) / weight
    stays = centre[order] + spread[order] * push > 0
    last = np.maximum.reduceat(np.where(stays, np.arange(ranked.size), -1), first)
    last = np.where(last < 0, first, last)  # nothing to share
    push = push[last][group]
    found = np.empty_like(centre)
    found[order] = np.maximum(centre[order] + spread[order] * push, 0)
    return found


def _within(values: Floats, first: Ints, group: Ints) -> Floats:
    """Running sums that begin anew in each group."""
    running: Floats = values.cumsum()
    return running - (running[first] - values[first])[group]


def even_sums(cells: Floats, lows: Floats, highs: Floats) -> Floats:
    """Sums over rectangles that may end inside cells, where counts are taken to be spread evenly.

    ``lows`` and ``highs`` are arrays of (rectangles, dims) in cells: edges run from 0 to the shape.

    >>> even_sums(np.array([4.0, 8.0]), np.array([[0.5]]), np.array([[1.25]])).tolist()
    [4.0]
    """
    shape = cells.shape
    sums, inner = np.zeros([size + 1 for size in shape]), np.asarray(cells, np.float64)
    for axis in range(len(shape)):
        inner = inner.cumsum(axis=axis)
    sums[tuple(slice(1, None) for _ in shape)] = inner
    ends = [np.clip(np.asarray(side, np.float64), 0, shape) for side in (lows, highs)]
    if ends[0].shape != ends[1].shape or ends[0].ndim != 2 or not np.all(ends[0] <= ends[1]):
        raise SpecError("This is not a rectangle.", fix="Give low ≤ high along each axis.")
    found = np.zeros(ends[0].shape[0])
    for corner in product((False, True), repeat=len(shape)):
        sign = (-1) ** (len(shape) - sum(corner))
        found += sign * _between(sums, np.where(np.array(corner), ends[1], ends[0]))
    return found


def _between(sums: Floats, places: Floats) -> Floats:
    """Sums up to places between the corners, by multilinear interpolation: even inside cells."""
    size = np.array(sums.shape) - 1
    corner = np.minimum(places.astype(np.int64), np.maximum(size - 1, 0))
    over = places - corner
    found = np.zeros(places.shape[0])
    for upper in product((0, 1), repeat=places.shape[1]):
        flags = np.array(upper)
        weight = np.prod(np.where(flags, over, 1 - over), axis=1)
        found += weight * sums[tuple((corner + flags).T)]
    return found


def _stretches(count: int, boxes: int) -> Iterator[slice]:
    """Rectangles in stretches that fit into memory."""
    step = max(1, _PAIRS // min(boxes, 4096))
    return (slice(start, start + step) for start in range(0, count, step))
