"""Boxes of cells, their halves and their exact sums: the public geometry of spatial mechanisms.

A box is its lowest and its highest cell along each axis, both inside; boxes are rows of two arrays.

>>> root = np.array([[0, 0]]), np.array([[3, 1]])
>>> [ends.tolist() for ends in halves(*root)]
[[[0, 0], [2, 0]], [[1, 1], [3, 1]], [0, 0]]
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import prod
from typing import Final, TypeAlias

import numpy as np

from noisegate.algebra.tally import Sums
from noisegate.errors import SpecError, Unsupported
from noisegate.noise.chunks import Int64Array
from noisegate.transforms.query import Query

Parts: TypeAlias = tuple[Int64Array, Int64Array, Int64Array]
CELLS_MAX: Final = 1 << 26
_SUM_MAX: Final = 1 << 60


def require_table(query: Query, shape: Sequence[int | Fraction] = ()) -> int:
    """How many cells the one sum of a question has; refuses others, and tables of another shape."""
    tally = query.tally
    if not isinstance(tally, Sums) or query.asks != "cells" or len(tally.terms) != 1:
        raise Unsupported("A choice needs the cells of a single sum.", fix="Ask for one.")
    if shape and prod(shape) != tally.cells:
        raise Unsupported(
            "The choice was made for a table of another shape.",
            fix="Give it this shape.",
            about="shape",
        )
    return tally.cells


def halves(lows: Int64Array, highs: Int64Array) -> Parts:
    """The parts of each box, in order, and whose parts they are.

    Every axis that is longer than half of the longest one is halved, so boxes stay near squares. A
    single cell is its own only part.
    """
    sizes = highs - lows + 1
    longest = sizes.max(axis=1, keepdims=True)
    cut = (2 * sizes > longest) & (sizes > 1)
    middle = np.where(cut, (lows + highs) // 2, highs)
    found = []
    for corner in product((False, True), repeat=lows.shape[1]):
        upper = np.array(corner)
        held = np.flatnonzero(np.all(cut | ~upper, axis=1))
        low = np.where(upper, middle + 1, lows)[held]
        high = np.where(upper, highs, middle)[held]
        found.append((low, high, held))
    whose = np.concatenate([part[2] for part in found])
    order = np.argsort(whose, kind="stable")
    low, high = (np.concatenate([part[i] for part in found])[order] for i in (0, 1))
    return low, high, whose[order]


def single(lows: Int64Array, highs: Int64Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which boxes hold one cell."""
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.all(lows == highs, axis=1)
    return found


def whole(shape: Sequence[int]) -> tuple[Int64Array, Int64Array]:
    """The box of all cells."""
    return np.zeros((1, len(shape)), np.int64), np.array([shape], np.int64) - 1


def summed(exact: Int64Array, shape: Sequence[int], *, least: int = -_SUM_MAX) -> Int64Array:
    """Sums over all corners, one longer along each axis, of cells clamped so that none wraps.

    Clamping moves no two vectors further apart in any cell, so sensitivities stay what they are.
    """
    if exact.size != prod(shape):
        raise SpecError("The cells do not have this shape.", fix="Give the shape of the table.")
    limit = _SUM_MAX // max(1, exact.size)
    inner = np.clip(exact, max(least, -limit), limit).reshape(tuple(shape))
    for axis in range(len(shape)):
        inner = inner.cumsum(axis=axis)
    sums = np.zeros([size + 1 for size in shape], np.int64)
    sums[tuple(slice(1, None) for _ in shape)] = inner
    return sums


def box_sums(sums: Int64Array, lows: Int64Array, highs: Int64Array) -> Int64Array:
    """The exact sum of each box, from `summed`."""
    found = np.zeros(lows.shape[0], np.int64)
    for corner in product((0, 1), repeat=lows.shape[1]):
        places = np.where(np.array(corner, np.bool_), highs + 1, lows)
        found += (-1) ** (lows.shape[1] - sum(corner)) * sums[tuple(places.T)]
    return found


def checked_shape(shape: Sequence[object]) -> tuple[int, ...]:
    """A shape of whole numbers, as a record or a caller gives it."""
    sizes = tuple(whole_number(size) for size in shape)
    if not sizes or min(sizes) < 1 or prod(sizes) > CELLS_MAX:
        raise SpecError("This is not the shape of a table.", fix=f"Use 1 to {CELLS_MAX} cells.")
    return sizes


def whole_number(value: object) -> int:
    """A whole number that may have been written as a fraction."""
    if isinstance(value, bool) or int(value) != value:  # type: ignore[call-overload]
        raise SpecError("A number of a box is not whole.", fix="Use whole numbers.")
    return int(value)  # type: ignore[call-overload,no-any-return]
