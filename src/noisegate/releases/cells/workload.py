"""What the public should be able to ask of a release: boxes of cells, in any number of dimensions.

>>> ages = prefixes(4)
>>> ages.answers(np.array([1.0, 2.0, 0.0, 5.0])).tolist()
[1.0, 3.0, 3.0, 8.0]
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.transforms.strategy import Matrix

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
ENTRIES_MAX: Final = 1 << 26  # cells of all questions together


@final
@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Sums over boxes ``lows[i] ≤ cell ≤ highs[i]``, both ends inside; arrays of (size, dims)."""

    shape: tuple[int, ...]
    lows: Ints
    highs: Ints
    words: str

    def __post_init__(self) -> None:
        size = (self.lows.shape[0], len(self.shape))
        inside = self.lows.shape == self.highs.shape == size and bool(
            np.all((self.lows >= 0) & (self.lows <= self.highs) & (self.highs < self.shape))
        )
        if not inside:
            raise SpecError("A range is outside the table.", fix="Use 0 ≤ low ≤ high < size.")

    @property
    def size(self) -> int:
        """How many questions there are."""
        return int(self.lows.shape[0])

    @property
    def covered(self) -> float:
        """What part of all cells a question adds up, as a root mean square."""
        sizes = np.prod((self.highs - self.lows + 1) / np.array(self.shape, float), axis=1)
        return float(np.sqrt(np.mean(sizes**2)))

    def answers(self, cells: Floats) -> Floats:
        """The sum of each box, from sums over all corners."""
        sums = np.zeros([n + 1 for n in self.shape])
        inner = np.asarray(cells, np.float64).reshape(self.shape)
        for axis in range(len(self.shape)):
            inner = inner.cumsum(axis=axis)
        sums[tuple(slice(1, None) for _ in self.shape)] = inner
        found = np.zeros(self.size)
        for corner in product((0, 1), repeat=len(self.shape)):
            places = np.where(corner, self.highs + 1, self.lows)
            found += (-1) ** (len(self.shape) - sum(corner)) * sums[tuple(places.T)]
        return found


def cells(shape: Sequence[int]) -> Workload:
    """Every single cell."""
    each = np.indices(tuple(shape)).reshape(len(shape), -1).T.astype(np.int64)
    return Workload(tuple(shape), each, each, "every cell")


def prefixes(size: int) -> Workload:
    """All sums from the first cell on."""
    ends = np.arange(size, dtype=np.int64)[:, None]
    return Workload((size,), np.zeros_like(ends), ends, "all running totals")


def ranges(shape: Sequence[int], lows: Ints, highs: Ints, words: str = "ranges") -> Workload:
    """Given boxes."""
    return Workload(tuple(shape), np.asarray(lows, np.int64), np.asarray(highs, np.int64), words)


def all_ranges(shape: Sequence[int], *, most: int = 20_000) -> Workload:
    """All boxes, or an even choice of them: a fixed grid of low and high ends along each axis."""
    each = max(2, int(most ** (1 / len(shape))))
    axes = []
    for size in shape:
        count = size * (size + 1) // 2
        step = np.linspace(0, count - 1, min(each, count)).astype(np.int64)
        axes.append(_pairs(size, step))
    places = list(product(*(range(low.size) for low, _ in axes)))
    chosen = np.array(places, np.int64).reshape(prod(low.size for low, _ in axes), len(axes))
    lows = np.stack([axis[0][chosen[:, j]] for j, axis in enumerate(axes)], axis=1)
    highs = np.stack([axis[1][chosen[:, j]] for j, axis in enumerate(axes)], axis=1)
    return Workload(tuple(shape), lows, highs, "ranges")


def _pairs(size: int, step: Ints) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The pairs low ≤ high < size with these places in their order, without listing all."""
    far = 2 * size + 1
    low = ((far - np.sqrt(float(far) ** 2 - 8.0 * step)) / 2).astype(np.int64)

    def first(row: Ints) -> Ints:
        return row * size - row * (row - 1) // 2

    low -= first(low) > step  # where the root was rounded
    low += first(low + 1) <= step
    return low, low + step - first(low)


def marginals(shape: Sequence[int], sets: Sequence[Sequence[int]]) -> Workload:
    """All cells of the marginal tables over the given sets of axes."""
    lows, highs = [], []
    for kept in sets:
        sizes = [shape[axis] if axis in kept else 1 for axis in range(len(shape))]
        low = np.indices(sizes).reshape(len(shape), -1).T
        whole = [0 if axis in kept else shape[axis] - 1 for axis in range(len(shape))]
        lows.append(low)
        highs.append(low + whole)
    words = f"{len(lows)} marginal tables"
    return Workload(
        tuple(shape), np.vstack(lows).astype(np.int64), np.vstack(highs).astype(np.int64), words
    )


def boxes_matrix(asked: Workload) -> Matrix:
    """The questions as rows over the cells."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to load

    sizes = np.prod(asked.highs - asked.lows + 1, axis=1)
    if int(sizes.sum()) > ENTRIES_MAX:
        raise SpecError(
            f"The questions cover more than {ENTRIES_MAX:,} cells in total.",
            fix="Ask fewer or smaller ones, or use wider bins.",
        )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    cells = np.concatenate([_cells(asked.shape, *box) for box in zip(asked.lows, asked.highs)])  # noqa: B905
    shape = (asked.size, int(np.prod(asked.shape)))
    return Matrix(csr_array((np.ones(cells.size, np.int64), cells, starts), shape=shape))


def _cells(shape: Sequence[int], lows: Ints, highs: Ints) -> Ints:
    places = np.ix_(*(np.arange(low, high + 1) for low, high in zip(lows, highs, strict=True)))
    return np.ravel_multi_index(np.broadcast_arrays(*places), tuple(shape)).reshape(-1)
