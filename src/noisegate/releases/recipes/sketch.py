"""Sketches: a few hashed sums instead of all cells, and the cells estimated from them.

Every cell is hashed ``depth`` times into one of ``width`` sums, with a sign (count sketch) or
without (count-min). The hashes are public: they follow from ``salt``, which is part of the
question. "sketch" estimates a cell by the median of its sums; "sensing" looks for the few large
cells that explain all sums together, by matching pursuit, and takes all others as 0.

Both suit tables of few large cells. Noise grows with the depth, so where all cells fit, "cells"
usually errs less; a sketch is small: depth · width numbers, whatever the table's size.

How far a cell is off follows from the sums themselves: what other cells and noise add to the sums
of one cell is a sum like all others, since hashes do not know what cells hold. So the error of a
median is that of a median of sums drawn from all of them. It is a model, as the hashes are fixed.

What a pursuit left in the sums beyond noise are cells that it missed. They are taken to be a level
and, around it, whatever the sums show: all sums together tell the level far better than each cell.
Cells that were missed disturb all questions of a release alike, by hashes that never change: they
count half as much again, so that an unlucky salt is not beyond its ± everywhere.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import log, prod, sqrt
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import lsqr
from scipy.special import betainc

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask, Noisy, one_sum
from noisegate.releases.cells.estimate import Estimate, Guess, Predicted
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.transforms.strategy import Block, Groups, Matrix

DEPTH_MAX: Final = 64
SENSING_CELLS_MAX: Final = 1 << 20
_ROUNDS: Final = 20  # of pursuit
_MEDIAN: Final = 1.2533  # standard deviations of a median, times √depth, over those of a mean
_MAD: Final = 0.6745  # of a normal law
_ALIKE: Final = 1.5  # how much more counts what is the same for all questions


@final
@dataclass(frozen=True, slots=True)
class Hashes:
    """Where each cell is added, once for each row of the sketch, and with which sign."""

    places: NDArray[np.int32]  # (depth, cells)
    signs: NDArray[np.int8]  # (depth, cells)
    width: int

    def estimates(self, sums: Floats) -> Floats:
        """What each row of sums says about each cell, of shape (depth, cells)."""
        return np.take_along_axis(sums, self.places.astype(np.int64), axis=1) * self.signs

    def sums(self, cells: Ints, values: Floats) -> Floats:
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

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """Cells that share a sum disturb each other, which depends on the rows.

        Most where about every second sum has a large cell, all alike: fewer are hardly ever in the
        median of another cell, and more are smaller. Then the sums that a cell shares hold a row in
        ``width``, at the root mean square.
        """
        each = _deviation(ask, self.depth) * _MEDIAN / sqrt(self.depth)
        size = sqrt(float(np.prod(workload.highs - workload.lows + 1, axis=1).mean()))
        width = _width(self.width, ask.shape)
        words = f"the rest is what cells that share one of {width:,} sums add to each other"
        return Predicted(rms=None, words=words, noise=each * size, share=min(1.0, size / width))

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """One round of ``depth`` blocks, and a median for each cell."""
        width, cells = _width(self.width, ask.shape), prod(ask.shape)
        made = hashes(cells, self.depth, width, self.salt, signed=self.signed)
        noisy = _measured(ask, made, signed=self.signed)
        sums = np.stack([each.values for each in noisy]).astype(np.float64)
        found = np.median(made.estimates(sums), axis=0).reshape(ask.shape)
        if not self.signed:  # others add to every sum
            found -= median_law(sums, self.depth)[0]
        words = (f"{self.depth} × {width:,} hashed sums; a cell is the median of its own.",)
        return Estimate(found, words=words, guess=_guess(found, made, sums, signed=self.signed))


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
                f"The table has more than {SENSING_CELLS_MAX:,} cells.",
                fix="Use method='sketch'.",
                about="cells",
            )

    def predict(self, ask: Ask, workload: Workload) -> Predicted:  # noqa: ARG002
        """Which cells are found depends on the rows."""
        each = _deviation(ask, self.depth) / sqrt(self.depth)
        least = each * _bar(self.depth, prod(ask.shape)) * _MEDIAN
        words = f"that is for a cell that is found; others, below about {least:.3g}, count as 0"
        words += ", and larger ones where most cells have rows"
        return Predicted(rms=None, words=words, noise=each)

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
        level, left = _level(made, found, sums - made.sums(found, values))
        likely = out + np.median(made.estimates(left), axis=0) + level
        likely[found] -= level
        missed = max(0.0, 1 - noisy[0].variance / float(np.mean(left**2)))
        wider = 1 + (_ALIKE**2 - 1) * missed
        guess = _guess(likely.reshape(ask.shape), made, left, signed=True, wider=wider)
        return Estimate(out.reshape(ask.shape), words=(words,), guess=guess)


def pursuit(made: Hashes, sums: Floats, deviation: float = 0) -> tuple[Ints, Floats]:
    """The cells that explain the sums, and their numbers, none negative.

    In each round all cells join whose median over what is left stands clear of its noise, stated or
    as the sums themselves show it; then all numbers are fitted anew by least squares, and those
    that do not stand clear of the stated noise leave.
    """
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


def _level(made: Hashes, found: Ints, left: Floats) -> tuple[float, Floats]:
    """The level of all cells but those found that explains most of the sums, and what it leaves."""
    others = np.delete(np.arange(made.places.shape[1]), found)
    ones = made.sums(others, np.ones(others.size))
    level = max(0.0, float((ones * left).sum()) / max(1.0, float((ones**2).sum())))
    return level, left - level * ones


def _guess(
    cells: Floats, made: Hashes, sums: Floats, *, signed: bool, wider: float = 1.0
) -> Callable[[Ints, Ints], Guess]:
    """How far boxes are off around these cells, if the sums have what the cells leave over.

    Two cells share a sum with a chance of 1 / width. Without signs their errors are then alike;
    with signs each is in the other's, and their product is in the mean that of the cells.
    """
    others = np.concatenate([sums, -sums]) if signed else sums
    _, variance = median_law(others, made.places.shape[0])
    together = max(1.0, made.width * float(np.mean(sums**2)))

    def guess(lows: Ints, highs: Ints) -> Guess:
        sizes = np.prod(highs - lows + 1, axis=1).astype(np.float64)
        answers = Workload(cells.shape, lows, highs, "boxes").answers(cells)
        shared = answers**2 / together if signed else sizes * (sizes - 1) / made.width
        return Guess(answers, np.sqrt(wider * variance * (sizes + shared)), sums.size)

    return guess


def median_law(errors: Floats, depth: int) -> tuple[float, float]:
    """Mean and variance of a median of so many errors, each drawn from the given ones.

    That fewer than m of 2 m - 1 numbers are above the k-th of n has a beta law. For an even depth
    it is that of one error less.

    >>> median_law(np.array([-2.0, 0.0, 0.0, 2.0]), 1), median_law(np.array([1.0, 5.0]), 3)
    ((0.0, 2.0), (3.0, 4.0))
    """
    middle, ordered = (depth + 1) // 2, np.sort(errors, axis=None)
    chances = np.diff(betainc(middle, middle, np.arange(ordered.size + 1) / ordered.size))
    mean = float(chances @ ordered)
    return mean, float(chances @ (ordered - mean) ** 2)


def _columns(made: Hashes, found: Ints) -> csr_array:
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
    signs, places = made.signs[row].astype(np.int64), made.places[row]
    entries = (signs, (places, np.arange(places.size)))
    return Matrix(csr_array(entries, shape=(made.width, places.size)))


def _deviation(ask: Ask, depth: int) -> float:
    """The standard deviation of the noise of each sum: that of cells moving one number by 1."""
    return sqrt(ask.variance(one_sum(ask.shape), Fraction(1, depth)))


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
