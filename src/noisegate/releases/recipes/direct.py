"""The questions of a workload themselves, or the parts into which they cut the table: best for few.

Both leave out what no question tells apart. Questions that hardly overlap are measured as they are;
of those that overlap much, the parts, since a cell is in as many questions, and in one part.
"""

from fractions import Fraction
from functools import reduce
from math import prod
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Predicted, rounded
from noisegate.releases.cells.workload import (
    ENTRIES_MAX,
    Floats,
    Ints,
    Workload,
    boxes_matrix,
    ranges,
)
from noisegate.releases.recipes import require_same
from noisegate.transforms.strategy import Block, Groups

QUESTIONS_MAX: Final = 256
PARTS_MAX: Final = 1024
_CORNERS_MAX: Final = 1 << 24  # of cuts along all axes, times questions
_SAME: Final = 1e-9  # of a question's length: what is left outside of all that was measured
_PRIOR: Final = 1e-3  # how much even parts count where questions leave them open


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """The workload as a strategy of its own [LMHMR15, 3.2], or the parts that it tells apart."""

    name: ClassVar[str] = "direct"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Few questions."""
        require_same(shape, workload)
        _Parts.of(workload)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """Every question is a sum of measured numbers, with one noise."""
        found = _strategy(ask, workload)
        spread = found.spread(found.parts.rows) * found.variance
        return Predicted(rms=float(np.sqrt(spread.mean())))

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round, and least squares."""
        found = _strategy(ask, workload)
        parts = found.parts
        (noisy,) = ask.sums([found.block], [Fraction(1)])
        sums = found.inverse @ noisy.values.astype(np.float64)

        def variance(lows: Ints, highs: Ints) -> Floats:
            places, rows = parts.inside(ranges(ask.shape, lows, highs))
            each = np.full(len(lows), np.inf)
            each[places] = found.spread(rows) * noisy.variance
            return each

        def mend(grain: float) -> NDArray[np.int64]:
            return parts.spread_out(rounded(_above_zero(parts.rows, sums) * grain))

        return Estimate(parts.evenly(sums), variance, (found.words,), mend=mend)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Cells that are in the same questions, as one part: ``labels`` over ``cuts`` of the axes.

    ``rows`` are the questions, each once, over the parts; a cell of no question is in part -1.
    """

    shape: tuple[int, ...]
    cuts: tuple[Ints, ...]
    labels: NDArray[np.int32]
    sizes: Ints
    rows: Floats
    asked: Workload

    @classmethod
    def of(cls, workload: Workload) -> "_Parts":
        """Those of a workload; refused where there are too many."""
        if workload.size > QUESTIONS_MAX:
            raise _too_many(workload.size)
        ends = np.unique(np.concatenate([workload.lows, workload.highs], axis=1), axis=0)
        lows, highs = np.split(ends, 2, axis=1)
        asked = ranges(workload.shape, lows, highs, workload.words)
        cuts = tuple(
            np.unique(np.concatenate([[0, size], lows[:, axis], highs[:, axis] + 1]))
            for axis, size in enumerate(workload.shape)
        )
        corners = prod(each.size - 1 for each in cuts)
        if corners * asked.size > _CORNERS_MAX:
            raise _too_many(asked.size)
        held = np.ones((1, asked.size), np.bool_)  # by each cell between cuts, which questions
        for axis, each in enumerate(cuts):
            starts = each[:-1, None]
            inside = (lows[:, axis] <= starts) & (starts <= highs[:, axis])
            held = (held[:, None] & inside[None]).reshape(-1, asked.size)
        found, place = np.unique(np.packbits(held, axis=1), axis=0, return_inverse=True)
        rows = np.unpackbits(found, axis=1, count=asked.size).T.astype(np.float64)
        names = np.full(found.shape[0], -1, np.int32)
        used = rows.any(axis=0)
        names[used] = np.arange(int(used.sum()))
        if int(used.sum()) > PARTS_MAX:
            raise _too_many(asked.size)
        labels: NDArray[np.int32] = names[place.ravel()].reshape([each.size - 1 for each in cuts])
        areas = reduce(np.multiply.outer, [np.diff(each) for each in cuts])
        sizes = np.bincount(labels[labels >= 0], areas[labels >= 0]).astype(np.int64)
        return cls(workload.shape, cuts, labels, sizes, rows[:, used], asked)

    @property
    def cells(self) -> NDArray[np.int32]:
        """The part of each cell."""
        places = (np.repeat(np.arange(each.size - 1), np.diff(each)) for each in self.cuts)
        return self.labels[np.ix_(*places)].ravel()

    def inside(self, asked: Workload) -> tuple[Ints, Floats]:
        """Boxes that are made of whole parts, by their places; and the parts of each."""
        fits = np.ones(asked.size, np.bool_)
        ends = []
        for axis, each in enumerate(self.cuts):
            pair = [np.searchsorted(each, end[:, axis]) for end in (asked.lows, asked.highs + 1)]
            for found, end in zip(pair, (asked.lows, asked.highs + 1), strict=True):
                fits &= each[found] == end[:, axis]
            ends.append(pair)
        areas = reduce(np.multiply.outer, [np.diff(each) for each in self.cuts])
        places, rows = [], []
        for place in np.flatnonzero(fits).tolist():
            box = tuple(slice(low[place], high[place]) for low, high in ends)
            labels = self.labels[box].ravel()
            if labels.min() < 0:
                continue
            counts = np.bincount(labels, areas[box].ravel(), self.sizes.size)
            if np.all((counts == 0) | (counts == self.sizes)):
                places.append(place)
                rows.append(counts > 0)
        parts = np.array(rows, np.float64).reshape(-1, self.sizes.size)
        return np.array(places, np.int64), parts

    def evenly(self, sums: Floats) -> Floats:
        """Cells that share what their part holds; those of no question hold nothing."""
        each = np.append(sums / self.sizes, 0.0)
        found: Floats = each[self.cells].reshape(self.shape)
        return found

    def spread_out(self, sums: Ints) -> Ints:
        """The same in whole numbers."""
        cells = self.cells
        order = np.argsort(cells, kind="stable")
        held = order[np.searchsorted(cells[order], 0) :]
        found = np.zeros(cells.size, np.int64)
        found[held] = rounded(np.repeat(sums / self.sizes, self.sizes))
        return found.reshape(self.shape)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Strategy:
    """What is measured: ``matrix`` over the parts, and the parts that least squares make of it."""

    parts: _Parts
    block: Block
    matrix: Floats
    inverse: Floats
    variance: float
    words: str

    @classmethod
    def of(cls, ask: Ask, parts: _Parts, block: Block, matrix: Floats, words: str) -> "_Strategy":
        """Of all that agree with the numbers, what is nearest to even: as large parts hold more."""
        roots = np.sqrt(parts.sizes)
        inverse = roots[:, None] * np.linalg.pinv(matrix * roots)
        return cls(parts, block, matrix, inverse, ask.variance(block, Fraction(1)), words)

    def spread(self, rows: Floats) -> Floats:
        """The variance of sums of parts, where measured numbers have variance 1; or infinite."""
        through = rows @ self.inverse
        left = np.linalg.norm(rows - through @ self.matrix, axis=1)
        told = left <= _SAME * rows.shape[1] * np.linalg.norm(rows, axis=1)
        return np.where(told, np.einsum("ij,ij->i", through, through), np.inf)


def _strategy(ask: Ask, workload: Workload) -> _Strategy:
    """The parts or the questions, whichever predicts the smaller error."""
    parts = _Parts.of(workload)
    count = parts.sizes.size
    block: Block = Groups(parts.cells, count)
    words = f"measured in {count:,} parts, which the questions tell apart"
    found = [_Strategy.of(ask, parts, block, np.eye(count), words)]
    covered = int((parts.rows @ parts.sizes).sum())
    if parts.rows.sum(axis=0).max() > 1 and covered <= ENTRIES_MAX:
        words = "the questions themselves were measured"
        block = boxes_matrix(parts.asked)
        found.append(_Strategy.of(ask, parts, block, parts.rows, words))
    return min(found, key=lambda each: float(each.spread(parts.rows).mean()) * each.variance)


def _above_zero(rows: Floats, sums: Floats) -> Floats:
    """Parts from 0 on whose questions are the nearest to those of ``sums``.

    Never further from the exact answers, in squares over the questions: it is a projection on a
    convex set that holds these, but for the little that even parts count.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to load

    if sums.min(initial=0) >= 0:
        return sums
    prior = _PRIOR * np.eye(sums.size)
    wanted = np.concatenate([rows @ sums, _PRIOR * np.maximum(sums, 0)])
    found: Floats = nnls(np.concatenate([rows, prior]), wanted)[0]
    return found


def _too_many(count: int) -> SpecError:
    return SpecError(
        f"The workload asks {count:,} questions, or cuts the table into too many parts.",
        fix=f"Use at most {QUESTIONS_MAX:,} ranges, or another method.",
        about="questions",
    )
