"""The last, free step of a release: no negative numbers, whole ones, and the total kept.

Both steps move towards tables that could be. Numbers are mended inside halves of halves, which does
not shift sums of many cells: whole empty regions become 0. For single cells, those that are left
are moved to the nearest such table in squares; for ranges they stay, and are rounded along the
table: a run of cells is never off by 1 for it.
"""

import numpy as np
from numpy.typing import NDArray

from noisegate.releases.cells.estimate import Floats, simplex, whole
from noisegate.releases.cells.workload import Workload


def finish(
    cells: Floats, workload: Workload, *, is_whole: bool, signed: bool
) -> NDArray[np.int64] | Floats:
    """The numbers that are released, in the unit of the question."""
    single = bool(np.array_equal(workload.lows, workload.highs))
    table = np.asarray(cells, np.float64)
    if not signed:
        total = max(0.0, float(table.sum()))
        if is_whole:
            total = float(round(total))
        mended = halved(table, total)
        table = _nearest_of(table, mended > 0, total) if single else mended
    if not is_whole:
        return table
    return whole(table) if single and not signed else rounded(table)


def _nearest_of(cells: Floats, kept: NDArray[np.bool_], total: float) -> Floats:
    """The nearest table in squares without negative numbers, where only some cells hold any."""
    found = np.zeros_like(cells)
    if kept.any():
        found[kept] = simplex(cells[kept], total)
    return found


def halved(cells: Floats, total: float) -> Floats:
    """No negative numbers: of the halves of every block, a negative one gives way to the other.

    What a block holds stays what it was wherever that could be, and so do sums over ranges.
    """
    if total <= 0:
        return np.zeros_like(cells)
    levels, reals, axes = [_padded(cells)], [_padded(np.ones_like(cells))], []
    while levels[-1].size > 1:
        axis = int(np.argmax(levels[-1].shape))
        axes.append(axis)
        for each in (levels, reals):
            each.append(_halves(each[-1], axis).sum(axis=axis + 1))
    mended = np.full_like(levels[-1], total)
    for below, real, axis in zip(levels[-2::-1], reals[-2::-1], reversed(axes), strict=True):
        first, second = np.moveaxis(_halves(below, axis), axis + 1, 0)
        left = np.clip(first + (mended - first - second) / 2, 0, mended)
        left = np.where(np.take(_halves(real, axis), 1, axis=axis + 1) > 0, left, mended)
        mended = np.stack([left, mended - left], axis=axis + 1).reshape(below.shape)
    return mended[tuple(slice(0, size) for size in cells.shape)]


def rounded(cells: Floats) -> NDArray[np.int64]:
    """Whole numbers whose running totals are the nearest to the given ones."""
    totals = np.rint(np.cumsum(cells, axis=None))
    return np.diff(totals, prepend=0).astype(np.int64).reshape(cells.shape)


def _padded(cells: Floats) -> Floats:
    """To powers of two, with zeros at the ends."""
    return np.pad(cells, [(0, (1 << (size - 1).bit_length()) - size) for size in cells.shape])


def _halves(cells: Floats, axis: int) -> Floats:
    """Pairs of neighbours along an axis, as an axis of their own behind it."""
    shape = cells.shape
    return cells.reshape(*shape[:axis], shape[axis] // 2, 2, *shape[axis + 1 :])
