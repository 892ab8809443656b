"""Haar wavelets: differences of halves, of halves of halves, and so on, along each axis."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product
from math import prod
from typing import ClassVar, Final, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.ask.shares import exact_shares, separate
from noisegate.releases.cells.estimate import Coefficients, Estimate, Predicted
from noisegate.releases.cells.workload import Floats, Ints, Workload, ranges
from noisegate.releases.recipes import require_same
from noisegate.releases.recipes.tree import sample
from noisegate.transforms.strategy import Matrix

ENTRIES_MAX: Final = 1 << 26
_AXES_MAX: Final = 6

# Of one axis: None asks about every place; 0 about the total; l ≥ 1 about the difference of the two
# halves of each stretch of 2^l places.
Level: TypeAlias = int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Haar:
    """Privelet [XWG11], in whole numbers: a row moves one coefficient of each level by 1.

    ``weights`` are the shares of the levels: those that suit the ``"workload"`` best, or all the
    same (``"even"``), as in the paper. Axes where it does not pay are left as they are (Privelet+),
    unless ``axes`` is ``"all"``.
    """

    name: ClassVar[str] = "haar"
    weights: Literal["workload", "even"] = "workload"
    axes: Literal["best", "all"] = "best"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Not too many axes or coefficients."""
        require_same(shape, workload, axes=_AXES_MAX)
        if self.weights not in ("workload", "even"):
            raise SpecError("weights is unknown.", fix="Use 'workload' or 'even'.")
        if self.axes not in ("best", "all"):
            raise SpecError("axes is unknown.", fix="Use 'best' or 'all'.", about="axes")
        if self.axes == "all" and len(_levels(shape, ())) * prod(shape) > ENTRIES_MAX:
            raise SpecError(
                "There are too many coefficients.", fix="Use wider bins, or axes='best'.",
                about="axes",
            )  # fmt: skip

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """Coefficients have independent noise, so variances add up."""
        plan = self._plan(ask, workload)
        return Predicted(rms=float(np.sqrt(plan.variance(workload).mean())))

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round; a cell is the sum of its coefficients with their signs."""
        plan = self._plan(ask, workload)
        blocks = [_block(ask.shape, levels) for levels in plan.levels]
        ask.done(0.2, "measuring")
        answers = ask.sums([block for block, _, _ in blocks], plan.shares)
        ask.done(0.8, "rebuilding")
        found = np.zeros(prod(ask.shape))
        for levels, answer, (_, labels, signs) in zip(plan.levels, answers, blocks, strict=True):
            found += answer.values[labels] * (signs / _length(ask.shape, levels))
        held = _Plan(ask.shape, plan.levels, plan.shares, tuple(a.variance for a in answers))

        def variance(lows: Ints, highs: Ints) -> Floats:
            return held.variance(ranges(ask.shape, lows, highs))

        kept = [axis for axis, level in enumerate(plan.levels[0]) if level is None]
        words = f"differences along {len(ask.shape) - len(kept)} of {len(ask.shape)} axes"
        told = [answer.values for answer in answers]
        return Estimate(
            found.reshape(ask.shape), variance, (words,),
            coefficients=lambda: _coefficients(held, told),
        )  # fmt: skip

    def _plan(self, ask: Ask, workload: Workload) -> "_Plan":
        """The best set of axes to transform: all, those that are long enough, or none."""
        looked, axes = sample(workload), range(len(ask.shape))
        plans = []
        for count in range(1 if self.axes == "all" else len(ask.shape) + 1):
            for plain in combinations(axes, count):
                levels = _levels(ask.shape, plain)
                if len(levels) * prod(ask.shape) <= ENTRIES_MAX:
                    plans.append(self._shared(ask, looked, levels))
        return min(plans, key=lambda plan: float(plan.variance(looked).mean()))

    def _shared(
        self, ask: Ask, workload: Workload, levels: tuple[tuple[Level, ...], ...]
    ) -> "_Plan":
        costs = [float(_needed(ask.shape, each, workload).mean()) for each in levels]
        if self.weights == "even":
            costs = [1.0] * len(levels)
        shares = tuple(exact_shares(separate(costs, gaussian=ask.gaussian)))
        one = _unit(prod(ask.shape))
        known = {share: ask.variance(one, share) for share in set(shares)}
        return _Plan(ask.shape, levels, shares, tuple(known[share] for share in shares))


@final
@dataclass(frozen=True, slots=True)
class _Plan:
    shape: tuple[int, ...]
    levels: tuple[tuple[Level, ...], ...]
    shares: tuple[Fraction, ...]
    variances: tuple[float, ...]

    def variance(self, workload: Workload) -> Floats:
        found = np.zeros(workload.size)
        for levels, variance in zip(self.levels, self.variances, strict=True):
            found += variance * _needed(self.shape, levels, workload)
        return found


def _coefficients(plan: _Plan, told: Sequence[Ints]) -> Coefficients:
    """Each coefficient by its level and its stretch of cells along each axis."""
    columns: dict[str, list[int | str | None]] = {
        f"{name}{axis}": [] for axis in range(len(plan.shape)) for name in ("level", "from", "to")
    }
    for levels in plan.levels:
        stretches = []
        for n, level in zip(plan.shape, levels, strict=True):
            width = 1 if level is None else 1 << (level or (n - 1).bit_length())
            stretches.append([(at, min(at + width, n) - 1) for at in range(0, n, width)])
        for place in product(*stretches):
            for axis, (low, high) in enumerate(place):
                columns[f"level{axis}"].append(levels[axis])
                columns[f"from{axis}"].append(low)
                columns[f"to{axis}"].append(high)
    spread = [np.full(each.size, v) for each, v in zip(told, plan.variances, strict=True)]
    words = (
        "Level 0 is the sum of a stretch; level l is the first half of a stretch of 2^l cells less "
        "the second. A cell is the sum of its coefficients with their signs, each over its length."
    )
    return Coefficients(
        columns, np.concatenate(told).astype(np.float64), np.concatenate(spread), words
    )


def _levels(shape: tuple[int, ...], plain: tuple[int, ...]) -> tuple[tuple[Level, ...], ...]:
    """All combinations of levels; the axes in ``plain`` are not transformed."""
    each: list[list[Level]] = [
        [None] if axis in plain else list(range(1 + (n - 1).bit_length()))
        for axis, n in enumerate(shape)
    ]
    return tuple(product(*each))


def _length(shape: tuple[int, ...], levels: tuple[Level, ...]) -> int:
    """Over how many cells a coefficient is spread."""
    pairs = zip(shape, levels, strict=True)
    return prod(1 if level is None else 1 << (level or (n - 1).bit_length()) for n, level in pairs)


def _needed(shape: tuple[int, ...], levels: tuple[Level, ...], workload: Workload) -> Floats:
    """For each question, the squared factors of a block's coefficients in it: a product of axes."""
    found = np.ones(workload.size)
    for axis, (n, level) in enumerate(zip(shape, levels, strict=True)):
        found *= _along(n, level, workload.lows[:, axis], workload.highs[:, axis] + 1)
    return found


def _along(n: int, level: Level, low: Ints, end: Ints) -> Floats:
    """Of one axis. Only the stretches at the two ends of a range are cut unevenly."""
    if level is None:
        return (end - low).astype(np.float64)
    if level == 0:
        return ((end - low) / (1 << (n - 1).bit_length())) ** 2
    first, last = low >> level, (end - 1) >> level

    def tilt(stretch: Ints) -> Floats:
        start = stretch << level
        middle, stop = start + (1 << (level - 1)), start + (1 << level)
        left = np.clip(np.minimum(end, middle) - np.maximum(low, start), 0, None)
        right = np.clip(np.minimum(end, stop) - np.maximum(low, middle), 0, None)
        squared: Floats = ((left - right) / (1 << level)) ** 2
        return squared

    return tilt(first) + np.where(first == last, 0.0, tilt(last))


def _block(
    shape: tuple[int, ...], levels: tuple[Level, ...]
) -> tuple[Matrix, NDArray[np.int32], NDArray[np.int8]]:
    """The coefficients of one combination of levels, and for each cell its place and sign."""
    labels = np.zeros((1,) * len(shape), np.int32)
    signs = np.ones((1,) * len(shape), np.int8)
    size = 1
    for axis, (n, level) in enumerate(zip(shape, levels, strict=True)):
        places = np.arange(n, dtype=np.int32)
        side = [-1 if j == axis else 1 for j in range(len(shape))]
        if level is None:
            count, along = n, places
        elif level == 0:
            count, along = 1, places * 0
        else:
            count, along = ((n - 1) >> level) + 1, places >> level
            signs = signs * (1 - 2 * ((places >> (level - 1)) & 1)).astype(np.int8).reshape(side)
        labels = labels * np.int32(count) + along.reshape(side)
        size *= count
    flat = np.broadcast_to(labels, shape).reshape(-1)
    sign = np.broadcast_to(signs, shape).reshape(-1)
    starts = np.arange(flat.size + 1)
    matrix = csc_array((sign.astype(np.int64), flat, starts), shape=(size, flat.size)).tocsr()
    return Matrix(matrix), flat, sign


def _unit(cells: int) -> Matrix:
    """A question of norm 1, as all blocks are, to ask for variances."""
    return Matrix(csr_array(([1], ([0], [0])), shape=(1, cells), dtype=np.int64))
