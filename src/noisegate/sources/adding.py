"""Sums over many tables at once from a stream of rows: each row's places, and its number.

The engine reads the rows once and finds the places of their keys. Adding them up here is several
times quicker than its grouping sets, and memory is that of the tables.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Marginals
from noisegate.frozen import replace
from noisegate.sources.source import SUM_MAX, Whole

_BITS: Final = 24
_LOW: Final = (1 << _BITS) - 1


def of_used(tally: Marginals) -> Marginals:
    """The same without groupings that are in no set."""
    used = sorted({place for each in tally.sets for place in each})
    sets = tuple(tuple(used.index(place) for place in each) for each in tally.sets)
    return replace(tally, by=tuple(tally.by[place] for place in used), sets=sets)


def add_up(
    batches: Iterable[Sequence[Whole]],
    sizes: Sequence[int],
    sets: Sequence[Sequence[int]],
    *,
    constant: int | None = None,
) -> list[Whole]:
    """The flat table of each set, exactly, clamped to ±2**60.

    A batch has a column of places for each size, and one of numbers unless all are ``constant``. A
    row whose place is not below its size is in no cell of the tables with that column.

    >>> rows = [np.array([0, 1, 2]), np.array([1, 1, 0]), np.array([5, 6, 7])]
    >>> [table.tolist() for table in add_up([rows], [2, 2], [(0,), (0, 1), ()])]
    [[5, 6], [0, 5, 0, 6], [18]]

    Numbers are below 2**53 / 2**24 in size and batches have at most 2**24 rows: halves of them are
    then added as doubles without rounding.
    """
    cells = [prod(sizes[axis] for axis in each) for each in sets]
    lows, highs = ([np.zeros(n + 1, np.int64) for n in cells] for _ in range(2))
    outside = max(cells)
    for batch in batches:
        places = [np.where(p < n, p, outside) for p, n in zip(batch, sizes, strict=False)]
        low, high = (None, None) if constant is not None else _doubles(batch[-1])
        for place, each in enumerate(sets):
            at = np.minimum(_numbered(places, sizes, each, batch[0].size), cells[place])
            if constant is not None or low is not None:
                lows[place] += _added(at, low, cells[place])
            if high is not None:
                highs[place] += _added(at, high, cells[place])
    if constant is not None:
        highs = [count * (constant >> _BITS) for count in lows]
        lows = [count * (constant & _LOW) for count in lows]
    return [joined(low[:-1], high[:-1]) for low, high in zip(lows, highs, strict=True)]


Halves: TypeAlias = NDArray[np.float64]


def halves(numbers: Whole) -> tuple[Whole, Whole]:
    """The low bits, never negative, and the others: added up apart, they do not wrap."""
    return numbers & _LOW, numbers >> _BITS


def joined(low: Whole, high: Whole) -> Whole:
    """High · 2**24 + low, clamped to ±2**60: 64 bits do not wrap on the way.

    >>> joined(*halves(np.array([-5, 1 << 60]))).tolist(), joined(*halves(np.array([1 << 61])))
    ([-5, 1152921504606846976], array([1152921504606846976]))
    """
    carried = np.clip(high + (low >> _BITS), -(SUM_MAX >> _BITS) - 1, SUM_MAX >> _BITS)
    return np.clip((carried << _BITS) + (low & _LOW), -SUM_MAX, SUM_MAX)


def _doubles(numbers: Whole) -> tuple[Halves | None, Halves | None]:
    """Both halves; None where there are none."""
    return tuple(half.astype(np.float64) if half.any() else None for half in halves(numbers))  # type: ignore[return-value]


def _numbered(
    places: Sequence[Whole], sizes: Sequence[int], axes: Sequence[int], rows: int
) -> Whole:
    """The number of each row's cell; one that is in no cell has a number beyond all."""
    if not axes:
        return np.zeros(rows, np.int64)
    at = places[axes[0]]
    for axis in axes[1:]:
        at = at * sizes[axis] + places[axis]
    return at


def _added(at: Whole, numbers: Halves | None, cells: int) -> Whole:
    return np.bincount(at, numbers, cells + 1).astype(np.int64, copy=False)
