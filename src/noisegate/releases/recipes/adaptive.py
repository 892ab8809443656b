"""A binary tree over all dimensions, refined where the counts are, and what it says of the cells.

Which boxes are looked at more closely follows from noisy counts alone: from the total, from the
margins of each axis, and from the boxes above. Nothing needs to be known of the rows beforehand.
"""

from fractions import Fraction
from functools import reduce
from math import prod, sqrt
from typing import ClassVar, Final, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask, one_sum
from noisegate.releases.ask.shares import Law
from noisegate.releases.cells.estimate import Estimate, Predicted, rounded, whole
from noisegate.releases.cells.workload import Floats, Workload, ranges
from noisegate.releases.recipes import Exact, require_same
from noisegate.releases.trees.dyadic import Dyadic, Ints, dyadic, length, widened
from noisegate.releases.trees.levels import noise_only
from noisegate.releases.trees.posterior import posterior
from noisegate.releases.trees.refine import (
    QUANTA,
    Ground,
    MeasuredTree,
    Refinement,
    Total,
    refine,
    signal,
)

_Number = TypeVar("_Number", np.float64, np.int64)
_EVEN: Final = 0.02  # of the mass is thought to lie evenly, whatever the margins say
_DIFFERS: Final = 2  # deviations of the total below which a sum of cells may lie
_UNITS: Final = 8  # noise units that a value of a margin should hold


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive(Exact):
    """``total`` is the share of the price for the total, ``margins`` at most for all margins.

    Numbers are never negative, so the question must be about such: counts, or sums of amounts
    from 0 on.
    """

    name: ClassVar[str] = "adaptive"
    total: Fraction = Fraction(1, 50)
    margins: Fraction = Fraction(2, 25)

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Shares that leave something for the tree."""
        require_same(shape, workload)
        if not (QUANTA * self.total >= 1 and self.margins >= 0 and self.total + self.margins < 1):
            raise SpecError(
                "The shares leave nothing for the tree.",
                fix="Use a total of at least 0.000001, and less than 1 together with the margins.",
            )

    def predict(self, ask: Ask, workload: Workload) -> Predicted:  # noqa: ARG002
        """The noise of one box on which nearly everything is spent."""
        rms = sqrt(ask.variance(one_sum(ask.shape), 1 - self.total - self.margins))
        return noise_only(rms, "where the rows lie, which decides what is measured")

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """A round for the total, a few for the margins, and a few down the tree."""
        self.require(ask.shape, workload)
        single = bool(np.array_equal(workload.lows, workload.highs))
        dims = max(1, sum(size > 1 for size in ask.shape))
        plan = _plan(dims, single=single, gaussian=ask.gaussian)
        spend = int(self.total * QUANTA)
        (noisy,) = ask.sums([one_sum(ask.shape)], [Fraction(spend, QUANTA)])
        total, left = Total(float(noisy.values[0]), noisy.variance), QUANTA - spend
        thought = [np.ones(size) for size in ask.shape]
        for axis, each in self._margins(ask, plan, total):
            thought[axis], total = _margin(ask, axis, each, total)
            left -= each
            ask.done((axis + 1) / (2 * len(ask.shape)), "margins")
        placed = [widened(margin) for margin in thought]
        order = dyadic([positions for positions, _ in placed], [size for _, size in placed])
        density = _placed(order, reduce(np.multiply.outer, map(_likely, thought)).ravel())
        ground = Ground(order, order.places, np.concatenate([[0.0], np.cumsum(density)]))
        tree = refine(ask, ground, plan, quanta=left, total=total)
        ask.done(0.8, f"{tree.size} boxes")
        _, counts = posterior(tree, shrink=single, gaussian=ask.gaussian)
        between = np.sqrt(density)  # margins and evenness, half and half
        spread = np.maximum(_smoothed(tree, counts, between, order, ask.shape), 0)
        if single:  # nearest cell by cell, and so too low where most cells are below the noise
            spread = _with_total(spread, total, between)
        boxes = np.count_nonzero(tree.levels[: tree.size] < 0)
        words = [f"{boxes} boxes, smaller where more lies."]
        if boxes < spread.size:
            words.append(
                "Inside a box, counts are spread by the marginals and the neighbouring cells."
            )

        def mend(grain: float) -> NDArray[np.int64]:
            values = spread * grain
            found = whole(values) if single else rounded(values)  # in the order of the tree
            return found[order.places].reshape(ask.shape)

        return Estimate(spread[order.places].reshape(ask.shape), words=tuple(words), mend=mend)

    def _margins(self, ask: Ask, plan: Refinement, total: Total) -> list[tuple[int, int]]:
        """The axes whose margins are asked, and the quanta for each: no more than they need.

        A table that goes to single cells at once needs none, and one axis is its own margin.
        """
        axes = [axis for axis, size in enumerate(ask.shape) if size > 1]
        units = max(total.value, 1) * float(signal(Law.of(ask), np.array([QUANTA]))[0])
        if len(axes) < 2 or (plan.at_once and units >= plan.rich * prod(ask.shape)):
            return []
        needed = _UNITS * float(np.mean(ask.shape)) / units
        share = min(float(self.margins) / len(axes), needed**2 if ask.gaussian else needed)
        each = int(share * QUANTA)
        return [(axis, each) for axis in axes] if each else []


def _plan(dims: int, *, single: bool, gaussian: bool) -> Refinement:
    """A box has 2^((d - 1) / d) times as many nodes on its rim with each binary level.

    The variance falls with the squared share, so a level gets the third root of that more than the
    one above; with Gaussian noise it falls with the share, it is the square root, and more levels
    cost less. For single cells only the last look counts: those before find out where to look.
    """
    if single:
        return Refinement(
            step=8.0, last=1.0, ratio=9.0, rich=0.01, leap=64.0, leap_ratio=9.0, at_once=True
        )
    step = 2.0 if dims == 1 or gaussian else 3.0
    ratio = 2 ** (step * (dims - 1) / ((2 if gaussian else 3) * dims))
    if gaussian:
        return Refinement(step=step, ratio=ratio, leap=2.0, leap_ratio=ratio)
    return Refinement(step=step, ratio=ratio)


def _margin(ask: Ask, axis: int, quanta: int, total: Total) -> tuple[Floats, Total]:
    """How much each value of an axis holds, by the same tree in one dimension; and the total."""
    size = ask.shape[axis]
    order = dyadic([np.arange(size)], [length(size)])
    sizes = [size if other == axis else 1 for other in range(len(ask.shape))]
    owner = np.broadcast_to(np.arange(size, dtype=np.int32).reshape(sizes), ask.shape).ravel()
    ground = Ground(order, owner, np.linspace(0, 1, size + 1))
    plan = _plan(1, single=False, gaussian=ask.gaussian)
    tree = refine(ask, ground, plan, quanta=quanta, total=total)
    known, counts = posterior(tree, shrink=False, gaussian=ask.gaussian)
    found = _spread(tree, counts, np.full(size, 1 / size)) + 1e-9
    return found, Total(float(known.mean[0]), float(known.variance[0]))


def _likely(margin: Floats) -> Floats:
    found: Floats = (1 - _EVEN) * margin / margin.sum() + _EVEN / margin.size
    return found


def _placed(order: Dyadic, cells: NDArray[_Number]) -> NDArray[_Number]:
    found = np.empty_like(cells)
    found[order.places] = cells
    return found


def _spread(tree: MeasuredTree, counts: Floats, density: Floats) -> Floats:
    """What each place holds: a node that is not cut further has its count spread by density."""
    leaves, starts, sizes = _leaves(tree)
    sums = np.add.reduceat(density, starts)
    return np.repeat(counts[leaves] / np.where(sums > 0, sums, 1), sizes) * density


def _smoothed(
    tree: MeasuredTree, counts: Floats, density: Floats, order: Dyadic, shape: tuple[int, ...]
) -> Floats:
    """The same, but of a node more towards the sides beyond which more lies.

    The density of a place is multiplied by what a window around it, of its node's size, holds for
    each 1 that the density has there.
    """
    _, starts, sizes = _leaves(tree)
    spread = _spread(tree, counts, density)
    cells = np.stack(np.unravel_index(_placed(order, np.arange(spread.size)), shape), axis=1)
    low, high = (each.reduceat(cells, starts, axis=0) for each in (np.minimum, np.maximum))
    reach = np.repeat((high - low + 1) // 2, sizes, axis=0)
    ends = np.maximum(cells - reach, 0), np.minimum(cells + reach, np.array(shape) - 1)
    window = ranges(shape, *ends)
    held, thought = (window.answers(each[order.places]) for each in (spread, density))
    return _spread(tree, counts, density * np.maximum(held, spread) / thought)


def _leaves(tree: MeasuredTree) -> tuple[Ints, Ints, Ints]:
    """The nodes that are not cut further, in order: where each begins and how long it is."""
    leaves = np.flatnonzero(tree.levels[: tree.size] < 0)
    leaves = leaves[np.argsort(tree.lows[leaves])]
    return leaves, tree.lows[leaves], tree.highs[leaves] - tree.lows[leaves]


def _with_total(values: Floats, total: Total, density: Floats) -> Floats:
    """With the measured total, where more is missing than its noise explains.

    What is missing lies by density: nothing of it stood out of the noise anywhere. Nothing is taken
    off: cells are never too high in sum, and large ones would lose most.
    """
    missing = total.value - float(values.sum())
    if missing <= _DIFFERS * sqrt(total.variance):
        return values
    found: Floats = values + missing / density.sum() * density
    return found
