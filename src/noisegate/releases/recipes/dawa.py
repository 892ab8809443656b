"""A private partition into nearly even stretches, then a tree over them: best for few rows."""

from fractions import Fraction
from functools import cache
from math import ceil, prod, sqrt
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.mechanisms.partitions.dawa_partition import DawaPartition, walk
from noisegate.releases.ask.asking import Ask
from noisegate.releases.ask.shares import Law
from noisegate.releases.cells.estimate import Estimate, Predicted, rounded
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.releases.recipes import Exact, require_parts, require_same
from noisegate.releases.recipes.tree import Tree, best_plan, measure
from noisegate.releases.trees.levels import spread_rms
from noisegate.releases.trees.nested import Sides, not_negative

CELLS_MAX: Final = 1 << 22
_LOOKED_AT: Final = 128
_AT_ONCE: Final = 1 << 24


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Dawa(Exact):
    """DAWA [LHMW14]. ``partition`` is the share of the price that finds the stretches.

    A table of several axes is walked along a Hilbert curve. ``thrift`` is how much a stretch of its
    own must save, in units of the noise of one sum and of the partition.
    """

    name: ClassVar[str] = "dawa"
    partition: Fraction = Fraction(1, 4)
    thrift: Fraction = Fraction(11, 5)

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Not too many cells; shares between 0 and 1."""
        require_same(shape, workload, cells=CELLS_MAX)
        require_parts(self.partition)
        if not 0 <= self.thrift <= 1000:
            raise SpecError("thrift is out of range.", fix="Use 0 to 1000.")

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise if the table is one even stretch; and about what it is if none is even.

        Then every sum is that of a cell, and the ends of a question cut stretches whose cells are
        as far from even as stretches may be: a pair is made of one if that adds no more than the
        penalty of two, half for each. A box cuts a walk into a run for each 2 d of the cells around
        it [MJFS01].
        """
        first = self.partition
        law, looked = Law.of(ask, first), Law.of(ask, 1 - first)
        penalty = self._penalty(2 * sqrt(law.amount) if law.gaussian else law.amount, looked)
        sides = workload.highs - workload.lows + 1
        cells = np.prod(sides, axis=1)
        ends = np.minimum((2 * cells[:, None] / sides).sum(axis=1) / len(ask.shape), cells)
        cost = Law.of(ask).weight(1.0) / looked.weight(1.0)
        tree = float(Tree().predict(ask, workload).rms or 0.0)
        most = sqrt(tree**2 * cost + float(ends.mean()) * (penalty / 2) ** 2)
        words = "it is smaller the more even rows are over neighbouring cells"
        least = spread_rms(ask, workload, 1 - first)
        return Predicted(rms=None, words=words, most=most, noise=least)

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """Two rounds: the partition, and the sums of its stretches."""
        first = self.partition
        law = Law.of(ask, 1 - first)
        ask.done(0.0, "looking for even runs of cells")
        starts = ask.choose(lambda epsilon: self._mechanism(ask, epsilon, law), first)
        cells = prod(ask.shape)
        order = walk(ask.shape) if len(ask.shape) > 1 else np.arange(cells)
        sizes = np.diff(np.append(starts, cells))
        labels = np.empty(cells, np.int32)
        labels[order] = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
        covered = np.cumsum(coverage(workload, labels, sizes), axis=1)

        def needs(sides: Sides) -> float:
            ends = np.minimum(np.arange(sides[0], sizes.size + sides[0], sides[0]), sizes.size) - 1
            sums = np.diff(covered[:, ends], axis=1, prepend=0.0)
            return float((sums**2).sum(axis=1).mean() / sides[0])

        plan = best_plan((sizes.size,), cache(needs), law)
        levels, _ = measure(ask, plan, share=1 - first, labels=labels)

        def mend(grain: float) -> Ints:
            sums = not_negative(plan.nest, [level * grain for level in levels])
            table = np.empty(cells, np.int64)
            table[order] = rounded(np.repeat(sums / sizes, sizes))
            return table.reshape(ask.shape)

        words = (f"{sizes.size} runs of cells that look even", plan.words)
        return Estimate((levels[0] / sizes)[labels].reshape(ask.shape), None, words, mend=mend)

    def _mechanism(self, ask: Ask, epsilon: Fraction, law: Law) -> DawaPartition:
        penalty = self._penalty(float(epsilon), law)
        return DawaPartition.for_epsilon(epsilon, penalty=penalty, shape=ask.shape)

    def _penalty(self, epsilon: float, law: Law) -> int:
        """Of a stretch: the noise of its sum, and what its own noise may feign."""
        noise = sqrt(1 / law.weight(1.0)) + 2 / epsilon
        return ceil(float(self.thrift) * noise)


def coverage(workload: Workload, labels: NDArray[np.int32], sizes: Ints) -> Floats:
    """How much of each group some questions of a workload ask for, from 0 to 1."""
    count = min(_LOOKED_AT, workload.size, max(8, _AT_ONCE // labels.size))
    chosen = np.linspace(0, workload.size - 1, count).astype(np.int64)
    table = labels.reshape(workload.shape)
    found = np.zeros((count, sizes.size))
    for row, (low, high) in enumerate(
        zip(workload.lows[chosen], workload.highs[chosen], strict=True)
    ):
        box = table[tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))]
        found[row] = np.bincount(box.reshape(-1), minlength=sizes.size)
    return found / sizes
