"""Sketches: a few hashed sums instead of all cells, and the cells estimated from them.

Every cell is hashed ``depth`` times into one of ``width`` sums, with a sign (count sketch) or
without (count-min). The hashes are public: they follow from ``salt``, which is part of the
question. "sketch" estimates a cell by the median of its sums; "sensing" looks for the few large
cells that explain all sums together, by matching pursuit, and takes all others as 0.

Both suit tables of few large cells. Noise grows with the depth, so where all cells fit, "cells"
usually errs less; a sketch is small: depth · width numbers, whatever the table's size.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import log, prod, sqrt
from typing import TYPE_CHECKING, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.releases.asking import Ask, Noisy
from noisegate.releases.estimate import Estimate, Floats, Predicted
from noisegate.releases.workload import Workload
from noisegate.transforms.strategy import Block, Groups, Matrix

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DEPTH_MAX: Final = 64
SENSING_CELLS_MAX: Final = 1 << 20
_ROUNDS: Final = 20  # of pursuit
_MEDIAN: Final = 1.2533  # standard deviations of a median, times √depth, over those of a mean
_MAD: Final = 0.6745  # of a normal law


@final
@dataclass(frozen=True, slots=True)
class Hashes:
    """Where each cell is added, once for each row of the sketch, and with which sign."""

    places: NDArray[np.int32]  # (depth, cells)
    signs: NDArray[np.int8]  # (depth, cells)
    width: int

    def estimates(self, sums: Floats) -> Floats:
        """What each row of sums says about each cell, of shape (depth, cells)."""
        found: Floats = np.take_along_axis(sums, self.places.astype(np.int64), axis=1) * self.signs
        return found

    def sums(self, cells: NDArray[np.int64], values: Floats) -> Floats:
        """The sums that some cells alone would make."""
        rows = [
            np.bincount(place[cells], sign[cells] * values, minlength=self.width)
            for place, sign in zip(self.places, self.signs, strict=True)
        ]
        return np.stack(rows)


@lru_cache(maxsize=4)
def hashes(cells: int, depth: int, width: int, salt: int, *, signed: bool) -> Hashes:
    """Public hashes: a fixed mixing of row, cell and salt [SLF14]."""
    places = np.empty((depth, cells), np.int32)
    signs = np.ones((depth, cells), np.int8)
    for row in range(depth):
        mixed = _mixed(np.arange(cells, dtype=np.uint64), row, salt)
        places[row] = (mixed >> np.uint64(8)) % np.uint64(width)
        if signed:
            signs[row] = (mixed & np.uint64(1)).astype(np.int8) * 2 - 1
    return Hashes(places, signs, width)


def _mixed(cells: NDArray[np.uint64], row: int, salt: int) -> NDArray[np.uint64]:
    """SplitMix64, twice: neighbours and rows become unrelated."""
    start = np.uint64((salt * 0x9E3779B97F4A7C15 + row * 0xD1B54A32D192ED03) % (1 << 64))
    found = cells
    for _ in range(2):
        found = found + start + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found = found ^ (found >> np.uint64(31))
    return found


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Medians of hashed sums [CCF02, CM05]. ``width`` is by default four times √cells."""

    name: ClassVar[str] = "sketch"
    depth: int = 5
    width: int | None = None
    signed: bool = True
    salt: int = 1

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Refuse a sketch that is none."""
        _require(self.depth, _width(self.width, shape), self.salt, shape)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:  # noqa: ARG002
        """Cells that share a sum disturb each other, which depends on the rows."""
        width, each = _width(self.width, ask.shape), _deviation(ask, self.depth)
        return Predicted(
            rms=None,
            words=f"the noise alone moves a cell by about {each * _MEDIAN / sqrt(self.depth):.3g}; "
            f"cells that share one of {width:,} sums add the root of their squares' mean",
        )

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """One round of ``depth`` blocks, and a median for each cell."""
        width, cells = _width(self.width, ask.shape), prod(ask.shape)
        made = hashes(cells, self.depth, width, self.salt, signed=self.signed)
        sums = np.stack([each.values for each in _measured(ask, made, signed=self.signed)])
        found = made.estimates(sums.astype(np.float64))
        if not self.signed:  # others add their share of the total to every sum
            totals = sums.sum(axis=1, keepdims=True)
            found = (found * width - totals) / max(1, width - 1)
        words = (f"{self.depth} × {width:,} hashed sums; a cell is the median of its own.",)
        return Estimate(np.median(found, axis=0).reshape(ask.shape), words=words)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sensing:
    """The few cells that explain a sketch, all others 0: compressed sensing [DTDS12, TG07]."""

    name: ClassVar[str] = "sensing"
    depth: int = 7
    width: int | None = None
    salt: int = 1

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Refuse tables whose cells cannot all be looked at in every round of the pursuit."""
        _require(self.depth, _width(self.width, shape), self.salt, shape)
        if prod(shape) > SENSING_CELLS_MAX:
            raise SpecError(
                f"The table has more than {SENSING_CELLS_MAX:,} cells.", fix="Use method='sketch'."
            )

    def predict(self, ask: Ask, workload: Workload) -> Predicted:  # noqa: ARG002
        """Which cells are found depends on the rows."""
        each = _deviation(ask, self.depth) / sqrt(self.depth)
        least = each * _bar(self.depth, prod(ask.shape)) * _MEDIAN
        return Predicted(
            rms=None,
            words=f"a cell that is found is off by about {each:.3g}; cells below about {least:.3g} "
            "are not, and count as 0; how many there are depends on the rows",
        )

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """One round of blocks, then a pursuit on the released sums, which is free."""
        width, cells = _width(self.width, ask.shape), prod(ask.shape)
        made = hashes(cells, self.depth, width, self.salt, signed=True)
        noisy = _measured(ask, made, signed=True)
        sums = np.stack([each.values for each in noisy]).astype(np.float64)
        found, values = pursuit(made, sums, sqrt(noisy[0].variance))
        out = np.zeros(cells)
        out[found] = values
        words = f"{found.size:,} cells explain {self.depth} × {width:,} hashed sums; others are 0."
        return Estimate(out.reshape(ask.shape), words=(words,))


def pursuit(made: Hashes, sums: Floats, deviation: float = 0) -> tuple[NDArray[np.int64], Floats]:
    """The cells that explain the sums, and their numbers, none negative.

    In each round all cells join whose median over what is left stands clear of its noise, stated or
    as the sums themselves show it; then all numbers are fitted anew by least squares, and those
    that do not stand clear of the stated noise leave.
    """
    from scipy.sparse.linalg import lsqr  # noqa: PLC0415 - slow to load

    depth, cells = made.places.shape
    found, values = np.zeros(0, np.int64), np.zeros(0)
    left, factor = sums, _bar(depth, cells) * _MEDIAN / sqrt(depth)
    least = max(0.5, deviation * factor)
    for _ in range(_ROUNDS):
        spread = float(np.median(np.abs(left))) / _MAD
        medians = np.median(made.estimates(left), axis=0)
        medians[found] = 0
        clear = np.flatnonzero(medians > max(spread * factor, least))
        room = sums.size // 4 - found.size
        fresh = clear[np.argsort(-medians[clear], kind="stable")[: max(0, room)]]
        if not fresh.size:
            break
        found = np.sort(np.concatenate([found, fresh]))
        values = lsqr(_columns(made, found), sums.reshape(-1))[0]
        found, values = found[values > least], values[values > least]
        left = sums - made.sums(found, values)
    return found, values


def _columns(made: Hashes, found: NDArray[np.int64]) -> "csr_array":
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to load

    depth = made.places.shape[0]
    rows = made.places[:, found] + np.arange(depth)[:, None] * made.width
    columns = np.broadcast_to(np.arange(found.size), rows.shape)
    signs = made.signs[:, found].astype(np.float64)
    shape = (depth * made.width, found.size)
    return csr_array((signs.reshape(-1), (rows.reshape(-1), columns.reshape(-1))), shape=shape)


def _measured(ask: Ask, made: Hashes, *, signed: bool) -> list[Noisy]:
    blocks = [_block(made, row, signed=signed) for row in range(made.places.shape[0])]
    return ask.sums(blocks, [Fraction(1, len(blocks))] * len(blocks))


def _block(made: Hashes, row: int, *, signed: bool) -> Block:
    """One row of the sketch: every cell is in one sum, so a cell moves the block by 1."""
    if not signed:
        return Groups(made.places[row], made.width)
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to load

    signs, places = made.signs[row].astype(np.int64), made.places[row]
    entries = (signs, (places, np.arange(places.size)))
    return Matrix(csr_array(entries, shape=(made.width, places.size)))


def _deviation(ask: Ask, depth: int) -> float:
    """The standard deviation of the noise of each sum: that of cells moving one number by 1."""
    cells = prod(ask.shape)
    one = Groups(np.zeros(cells, np.int32), 1)
    return sqrt(ask.variance(one, Fraction(1, depth)))


def _bar(depth: int, cells: int) -> float:
    """Standard deviations that no median of noise passes: more for few rows, with heavier tails."""
    return (1 + 2 / depth) * sqrt(2 * log(max(2, cells)))


def _width(width: int | None, shape: tuple[int, ...]) -> int:
    cells = prod(shape)
    return min(cells, max(1, round(4 * sqrt(cells)))) if width is None else width


def _require(depth: int, width: int, salt: int, shape: tuple[int, ...]) -> None:
    if type(depth) is not int or not 1 <= depth <= DEPTH_MAX:
        raise SpecError(f"depth is {depth!r}.", fix=f"Use 1 to {DEPTH_MAX}.")
    if type(width) is not int or not 1 <= width <= prod(shape):
        raise SpecError(f"width is {width!r}.", fix="Use at least 1 and no more than cells.")
    if type(salt) is not int or not 0 <= salt < 1 << 63:
        raise SpecError(f"salt is {salt!r}.", fix="Use any whole number of at least 0.")
