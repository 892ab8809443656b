"""Totals by a declared hierarchy of keys, such as cities in regions: children add up to parents.

Every level is measured, for the share that is best for the workload; least squares on the tree, in
two passes, make one table of it.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import GOLDEN, Estimate, Predicted, simplex, simplices
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.transforms.strategy import Groups

_SAMPLE: Final = 256  # intervals that shares are fitted to
_CHUNK: Final = 1 << 22
_GRAIN: Final = 1 << 40
_NOISE_MIN: Final = 1e-12  # where doubles see no noise any more
_STEPS: Final = (2.0, 1.4, 1.15, 1.05)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums of one axis by its parents, their parents and so on [HRMS10].

    ``parents[0][i]`` is the parent of the i-th key of ``axis``, ``parents[1][j]`` that of the j-th
    parent; all are numbered from 0. Other axes stand beside it: each of their cells has its tree.
    """

    parents: tuple[tuple[int, ...], ...]
    axis: int = 0
    name: ClassVar[str] = "totals"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002 - any
        """Refuse a hierarchy that is not one of this axis."""
        if type(self.axis) is not int or not 0 <= self.axis < len(shape):
            raise SpecError(
                "The hierarchy names an axis that does not exist.",
                fix=f"Use axis 0 to {len(shape) - 1}.",
            )
        levels(self.parents, shape[self.axis])

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The exact root mean square, before negative numbers and fractions are removed."""
        self.require(ask.shape, workload)
        tree, shares = self._plan(ask, workload)
        spread = self._variance(ask, tree, shares)(workload.lows, workload.highs)
        noise = self._noise(ask, tree, shares)
        each = tuple(tree.node_variance(level, noise) ** 0.5 for level in range(len(shares)))
        return Predicted(rms=float(np.sqrt(spread.mean())), levels=each)

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round."""
        self.require(ask.shape, workload)
        tree, shares = self._plan(ask, workload)
        asked = [level for level, share in enumerate(shares) if share > 0]
        blocks = [self._block(ask.shape, tree, level) for level in asked]
        answers = ask.sums(blocks, [shares[level] for level in asked])
        noise = [np.inf] * len(shares)
        values: list[Floats | None] = [None] * len(shares)
        for level, noisy in zip(asked, answers, strict=True):
            noise[level] = noisy.variance
            values[level] = noisy.values.astype(np.float64).reshape(tree.sizes[level], -1)
        nodes = tree.fitted(values, noise)
        ask.done(1.0, "rebuilt")

        def table(cells: NDArray[Any]) -> NDArray[Any]:
            others = [n for axis, n in enumerate(ask.shape) if axis != self.axis]
            return np.moveaxis(cells.reshape(ask.shape[self.axis], *others), 0, self.axis)

        return Estimate(
            table(nodes[0]),
            self._variance(ask, tree, shares),
            (f"{len(asked)} levels measured",),
            mend=lambda grain: table(tree.mended([each * grain for each in nodes])),
        )

    def _block(self, shape: tuple[int, ...], tree: "ParentTree", level: int) -> Groups:
        """All sums of a level: its nodes, times the cells of the other axes."""
        others = prod(shape) // shape[self.axis]
        rest = [1 if axis == self.axis else n for axis, n in enumerate(shape)]
        beside = np.arange(others, dtype=np.int32).reshape(rest)
        along = [n if axis == self.axis else 1 for axis, n in enumerate(shape)]
        above = tree.above(level).astype(np.int32).reshape(along)
        labels: NDArray[np.int32] = above * np.int32(others) + beside
        return Groups(labels.ravel(), tree.sizes[level] * others)

    def _noise(self, ask: Ask, tree: "ParentTree", shares: Sequence[Fraction]) -> list[float]:
        return [
            ask.variance(self._block(ask.shape, tree, level), share) if share else np.inf
            for level, share in enumerate(shares)
        ]

    def _variance(self, ask: Ask, tree: "ParentTree", shares: Sequence[Fraction]) -> Any:  # noqa: ANN401
        noise = self._noise(ask, tree, shares)

        def variance(lows: Ints, highs: Ints) -> Floats:
            beside = np.delete(highs - lows + 1, self.axis, axis=1).prod(axis=1)
            pairs = np.stack([lows[:, self.axis], highs[:, self.axis]], axis=1)
            each, place = np.unique(pairs, axis=0, return_inverse=True)
            found: Floats = tree.variance(each, noise)[place.ravel()] * beside
            return found

        return variance

    def _plan(self, ask: Ask, workload: Workload) -> "tuple[ParentTree, list[Fraction]]":
        """Shares of the levels: steps up and down, one level at a time, while the error falls.

        The error is that of the workload, and of the nodes of every level, each counting alike.
        """
        tree = levels(self.parents, ask.shape[self.axis])
        pairs = np.stack([workload.lows[:, self.axis], workload.highs[:, self.axis]], axis=1)
        beside = np.delete(workload.highs - workload.lows + 1, self.axis, axis=1).prod(axis=1)
        each, place = np.unique(pairs, axis=0, return_inverse=True)
        weight = np.bincount(place.ravel(), beside)  # of other cells, each with its own noise
        some = np.unique(np.linspace(0, len(each) - 1, min(_SAMPLE, len(each))).astype(int))
        power = 1 if ask.gaussian else 2
        keys = np.arange(tree.size)[:, None]
        members = [(keys >= each[some, 0]) & (keys <= each[some, 1])]
        counts = [weight[some] / weight[some].sum()]
        for level in range(len(tree.sizes)):
            nodes = tree.some_nodes(level)
            members.append(nodes)
            counts.append(np.full(nodes.shape[1], 1 / nodes.shape[1]))
        asked, count = np.hstack(members), np.concatenate(counts)

        def error(shares: Floats) -> float:
            noise = [share**-power if share > 0 else np.inf for share in shares]
            return float(tree.spread_of(asked, noise) @ count)

        best = np.full(len(tree.sizes), 1 / len(tree.sizes))
        least = error(best)
        for step in _STEPS:
            better = True
            while better:
                better = False
                for level in range(len(best)):
                    for factor in (step, 1 / step, 0.0):
                        tried = best.copy()
                        tried[level] *= factor
                        if tried[0] <= 0:
                            continue
                        tried /= tried.sum()
                        found = error(tried)
                        if found < least * (1 - 1e-6):
                            best, least, better = tried, found, True
        return tree, [Fraction(int(share * (1 - 1e-12) * _GRAIN), _GRAIN) for share in best]


def levels(parents: Sequence[Sequence[int]], size: int) -> "ParentTree":
    """The tree of a hierarchy over ``size`` keys, with all keys together on top."""
    made, below = [], size
    for given in parents:
        labels = np.asarray(given)
        if labels.ndim != 1 or labels.size != below or labels.dtype.kind != "i":
            raise SpecError(
                f"The hierarchy does not name a parent for each of {below} keys.",
                fix="Give the number of each key's parent, from 0, level by level.",
                about="hierarchy",
            )
        above = int(labels.max(initial=0)) + 1
        if set(labels.tolist()) != set(range(above)):
            raise SpecError("A parent has no children.", fix="Number the parents from 0.")
        made.append(labels.astype(np.int64))
        below = above
    if below > 1:
        made.append(np.zeros(below, np.int64))
    return ParentTree(size, tuple(made))


@final
@dataclass(frozen=True, slots=True, eq=False)
class ParentTree:
    """Parents of the nodes of each level but the last. Level 0 are the keys."""

    size: int
    parents: tuple[Ints, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes each level has."""
        return self.size, *(int(labels.max()) + 1 for labels in self.parents)

    def above(self, level: int) -> Ints:
        """The node of a level that each key is in."""
        place = np.arange(self.size)
        for labels in self.parents[:level]:
            place = labels[place]
        return place

    def fitted(self, values: Sequence[Floats | None], noise: Sequence[float]) -> list[Floats]:
        """All nodes by least squares: means weighted by precision upwards, the rest downwards.

        ``values`` of a level are (nodes, others), None where the noise is infinite.
        """
        spread, sums = self._spread(noise)
        first = values[0]
        assert first is not None  # noqa: S101 - keys are always measured
        found = [first]
        for level, labels in enumerate(self.parents):
            gathered = _gather(found[-1], labels, self.sizes[level + 1])
            own = values[level + 1]
            if own is not None:
                trust = (spread[level + 1] / max(noise[level + 1], _NOISE_MIN))[:, None]
                gathered = trust * own + (1 - trust) * gathered
            found.append(gathered)
        for level in range(len(self.parents) - 1, -1, -1):
            labels = self.parents[level]
            missing = found[level + 1] - _gather(found[level], labels, self.sizes[level + 1])
            part = spread[level] / sums[level][labels]
            found[level] = found[level] + part[:, None] * missing[labels]
        return found

    def variance(self, intervals: Ints, noise: Sequence[float]) -> Floats:
        """Of sums over keys from … to, both inside, after least squares."""
        keys = np.arange(self.size)[:, None]
        found = [
            self.spread_of((keys >= some[:, 0]) & (keys <= some[:, 1]), noise)
            for some in np.array_split(intervals, max(1, len(intervals) * self.size // _CHUNK))
        ]
        return np.concatenate(found)

    def node_variance(self, level: int, noise: Sequence[float]) -> float:
        """The mean variance of the nodes of a level, or of an even choice of them."""
        return float(self.spread_of(self.some_nodes(level), noise).mean())

    def some_nodes(self, level: int) -> NDArray[np.bool_]:
        """The keys of the nodes of a level, or of an even choice of them."""
        nodes = np.unique(np.linspace(0, self.sizes[level] - 1, _SAMPLE // 4).astype(int))
        members: NDArray[np.bool_] = self.above(level)[:, None] == nodes
        return members

    def spread_of(self, members: NDArray[np.bool_], noise: Sequence[float]) -> Floats:
        """The variance of sums over the keys in each column, after least squares.

        A node's estimate is its part w of its parent's plus what does not depend on that; so the
        sum over keys below a node is a multiple of the node's estimate plus an independent rest,
        whose variance adds up from the keys to the top.
        """
        spread, sums = self._spread(noise)
        multiple = members.astype(np.float64)
        rest = np.zeros_like(multiple)
        for level, labels in enumerate(self.parents):
            above, own = self.sizes[level + 1], spread[level][:, None]
            total = _gather(multiple * own, labels, above)
            rest = _gather(rest + multiple**2 * own, labels, above)
            rest -= total**2 / sums[level][:, None]
            multiple = total / sums[level][:, None]
        found: Floats = (multiple**2 * spread[-1][:, None] + rest).sum(axis=0)
        return found

    def mended(self, nodes: Sequence[Floats]) -> Ints:
        """Whole keys, none negative: from the top down, children are fitted to their parent."""
        top = nodes[-1].ravel()
        total = max(0.0, float(round(top.sum())))
        held = _whole(simplex(top, total)[:, None], np.array([int(total)])).reshape(nodes[-1].shape)
        for level in range(len(self.parents) - 1, -1, -1):
            below = np.zeros(nodes[level].shape, np.int64)
            order = np.argsort(self.parents[level], kind="stable")
            ends = np.cumsum(np.bincount(self.parents[level]))[:-1]
            for parent, children in enumerate(np.split(order, ends)):
                near = simplices(nodes[level][children].T, held[parent].astype(np.float64)).T
                below[children] = _whole(near, held[parent])
            held = below
        return held

    def _spread(self, noise: Sequence[float]) -> tuple[list[Floats], list[Floats]]:
        """The variance of each node from what is below and itself, and the sums over children."""
        spread: list[Floats] = [np.full(self.size, max(noise[0], _NOISE_MIN))]
        sums: list[Floats] = []
        for level, labels in enumerate(self.parents):
            below: Floats = np.bincount(labels, spread[-1]).astype(np.float64)
            sums.append(below)
            spread.append(1 / (1 / below + 1 / max(noise[level + 1], _NOISE_MIN)))
        return spread, sums


def _gather(values: Floats, labels: Ints, size: int) -> Floats:
    """Sums over the children of each of ``size`` parents."""
    found = np.zeros((size, values.shape[1]))
    np.add.at(found, labels, values)
    return found


def _whole(values: Floats, totals: Ints) -> Ints:
    """Whole numbers, each column with its own total; the largest remainders are rounded up.

    Of equal ones those that lie spread over the table, so that no corner gets all.

    >>> _whole(np.full((4, 3), 0.25), np.array([1, 1, 1])).tolist()
    [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    """
    floor = np.floor(values + 1e-9)
    missing = totals - floor.sum(axis=0).astype(np.int64)
    spread = (np.arange(values.size) * GOLDEN % 1).reshape(values.shape)
    places = np.lexsort((spread, -np.round(values - floor, 9)), axis=0).argsort(axis=0)
    found: Ints = floor.astype(np.int64) + (places < missing)
    return found
