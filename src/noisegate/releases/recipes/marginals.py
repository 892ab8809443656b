"""Sets of marginal tables: measured together, and rebuilt as marginals of one table.

What is measured is chosen by the predicted error, publicly: the marginals themselves, their
residuals (Fourier coefficients where axes have two values), larger tables that hold several of
them, or the cells.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Predicted, simplex
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.releases.fit.allocation import Design, design
from noisegate.releases.fit.residuals import Axes, Parts, box_variance, closure, combine, known

CELLS_MAX: Final = 1 << 22
_LABELS_MAX: Final = 1 << 28
_WORK: Final = 1 << 31  # cells touched while fitting
_ROUNDS: Final = 300
_MOVES: Final = 30_000


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Marginals:
    """Marginals with the best allocation and least squares in closed form [XHZK23] [BCDKMT07].

    The workload says which: its boxes must be cells of marginal tables.
    """

    name: ClassVar[str] = "marginals"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Refuse boxes that are not marginal cells, and tables that are too large to be rebuilt."""
        sets, _ = marginals_of(workload)
        cells, parts = prod(shape), len(closure(sets))
        if cells > CELLS_MAX or cells * parts > _LABELS_MAX:
            raise SpecError(
                f"The whole table has {cells:,} cells, too many to rebuild it from marginals.",
                fix="Release the marginal tables as a cube, or use fewer columns.",
            )

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The exact root mean square, before negative numbers and fractions are removed."""
        plan, sizes = _plan(ask, workload), ask.shape
        every = tuple(range(len(sizes)))
        asked = zip(plan.questions, plan.shares, strict=True)
        precision = known(sizes, [(q, ask.variance(q.block(sizes, every), s)) for q, s in asked])
        counts = workload.highs - workload.lows + 1
        variance = box_variance(sizes, precision, every, counts)
        rms = float(np.sqrt(variance.mean()))
        return Predicted(rms=rms, words=f"measured as {plan.words}")

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round."""
        self.require(ask.shape, workload)
        sets, weights = marginals_of(workload)
        plan, sizes = _plan(ask, workload), ask.shape
        every = tuple(range(len(sizes)))
        blocks = [question.block(sizes, every) for question in plan.questions]
        answers = ask.sums(blocks, plan.shares)
        ask.done(0.5, "measured")
        parts = combine(sizes, zip(plan.questions, answers, strict=True))

        def variance(lows: Ints, highs: Ints) -> Floats:
            return parts.variance(every, highs - lows + 1)

        def mend(grain: float) -> Ints:
            return whole_table(fitted(parts.scaled(grain), sets, weights), sets)

        words = (f"measured as {plan.words}", "sums other than these marginals are a guess")
        return Estimate(parts.table(every), variance, words, mend=mend)


def marginals_of(workload: Workload) -> tuple[list[Axes], list[float]]:
    """The sets of axes whose tables the boxes belong to, and how often a cell of each is asked."""
    sizes = np.array(workload.shape)
    single = (workload.lows == workload.highs) & (sizes > 1)
    every = (workload.lows == 0) & (workload.highs == sizes - 1)
    if not np.all(single | every):
        raise SpecError(
            "A question is about a range, not a cell of a marginal table.",
            fix="Use the workload marginals, or a method for ranges.",
        )
    masks, counts = np.unique(single, axis=0, return_counts=True)
    sets = [tuple(np.flatnonzero(mask).tolist()) for mask in masks]
    cells = [prod(workload.shape[a] for a in axes) for axes in sets]
    return sets, [int(n) / each for n, each in zip(counts, cells, strict=True)]


def fitted(parts: Parts, sets: Sequence[Axes], weights: Sequence[float]) -> Floats:
    """The non-negative table whose marginals are nearest to the measured ones.

    Nearest in the sum of squares over the cells of all marginals: this is a projection on a convex
    set that holds the true marginals, so it lowers the error, or leaves it. It is found by
    accelerated gradient steps from a product-like start, so what was not asked about is filled in
    evenly.
    """
    sizes, every = parts.sizes, tuple(range(len(parts.sizes)))
    total = max(0.0, round(float(parts.values[()])))
    wanted = {axes: parts.table(axes) for axes in sets}
    cells = prod(sizes)
    table = _product(sizes, wanted, total)
    steep = max(
        (
            sum(w * cells / wanted[s].size for s, w in zip(sets, weights, strict=True) if a in s)
            for a in every
        ),
        default=0.0,
    )
    if total == 0 or steep == 0:
        return table
    ahead, pace = table, 1.0
    for _ in range(max(20, min(_ROUNDS, _WORK // (cells * (len(sets) + 8))))):
        slope = np.zeros(sizes)
        for axes, weight in zip(sets, weights, strict=True):
            slope += weight * _spread(marginal(ahead, axes) - wanted[axes], axes, len(sizes))
        following = simplex(ahead - slope / steep, total)
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        moved = following - table
        ahead = following + (pace - 1) / faster * moved
        table, pace = following, faster
        if float(np.abs(moved).sum()) < 1e-3:
            break
    return table


def whole_table(table: Floats, sets: Sequence[Axes]) -> Ints:
    """Whole numbers with the same total, whose marginals stay near.

    Running totals are rounded. Then units move, from a cell of the marginal that has most too many
    to one of that which lacks most, as long as this brings all marginals together nearer.
    """
    totals = np.concatenate([[0.0], np.cumsum(table.ravel())])
    totals[-1] = round(totals[-1])
    found = np.diff(np.floor(totals + 0.5)).astype(np.int64).reshape(table.shape)
    over = {axes: marginal(found - table, axes) for axes in sets}
    for _ in range(min(_MOVES, (1 << 28) // (1 + sum(each.size for each in over.values())))):
        most = max(over, key=lambda axes: float(over[axes].max()))
        least = min(over, key=lambda axes: float(over[axes].min()))
        source, loss = _best(over, most, int(over[most].argmax()), found)
        target, gain = _best(over, least, int(over[least].argmin()), found, sign=-1)
        apart = sum(any(source[a] != target[a] for a in axes) for axes in over)
        if loss + gain - apart <= 1e-9:
            break
        for place, step in ((source, -1), (target, 1)):
            found[place] += step
            for axes, each in over.items():
                each[tuple(place[a] for a in axes)] += step
    return found


def _plan(ask: Ask, workload: Workload) -> Design:
    sets, weights = marginals_of(workload)
    every = tuple(range(len(ask.shape)))
    return design(ask.shape, sets, weights, gaussian=ask.gaussian, cells=every)


def _best(
    over: dict[Axes, Floats], axes: Axes, cell: int, found: Ints, sign: int = 1
) -> tuple[tuple[int, ...], float]:
    """The cell of the table, inside one of a marginal, whose marginals have most too many.

    With ``sign`` -1: that lack most. A cell that shall lose a unit must have one.
    """
    fixed = dict(zip(axes, np.unravel_index(cell, over[axes].shape), strict=True))
    line = tuple(fixed.get(a, slice(None)) for a in range(found.ndim))
    free = [a for a in range(found.ndim) if a not in fixed]
    worth = np.zeros([found.shape[a] for a in free])
    for others, each in over.items():
        part = each[tuple(fixed.get(a, slice(None)) for a in others)]
        worth += sign * part.reshape([found.shape[a] if a in others else 1 for a in free])
    if sign > 0:
        worth = np.where(found[line] > 0, worth, -np.inf)
    place = np.unravel_index(int(worth.argmax()), worth.shape) if free else ()
    where = {**fixed, **dict(zip(free, place, strict=True))}
    return tuple(int(where[a]) for a in range(found.ndim)), float(worth[place])


def marginal(table: NDArray[Any], axes: Axes) -> NDArray[Any]:
    """The sums over all other axes."""
    found: NDArray[Any] = table.sum(axis=tuple(a for a in range(table.ndim) if a not in axes))
    return found


def _spread(values: Floats, axes: Axes, dims: int) -> Floats:
    return np.expand_dims(values, tuple(a for a in range(dims) if a not in axes))


def _product(sizes: tuple[int, ...], wanted: dict[Axes, Floats], total: float) -> Floats:
    """A few proportional steps towards the marginals, from an even table."""
    table: Floats = np.full(sizes, total / prod(sizes))
    for _ in range(5 if total > 0 else 0):
        for axes, values in wanted.items():
            held = marginal(table, axes)
            aim = simplex(values, total)
            ratio = np.divide(aim, held, out=np.zeros_like(aim), where=held > 0)
            table = table * _spread(ratio, axes, len(sizes))
    return table * (total / table.sum()) if table.sum() > 0 else np.full(sizes, total / prod(sizes))
