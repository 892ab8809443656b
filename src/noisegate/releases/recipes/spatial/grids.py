"""Grids of equal boxes: one whose size follows the total, and one refined where much lies [QYLg13].

How fine a grid should be depends on how many rows there are. That number is asked and paid for.
"""

from fractions import Fraction
from math import hypot, sqrt
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.mechanisms.partitions.boxes import halves, single, whole
from noisegate.releases.ask.asking import Ask, Noisy, one_sum
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.spatial import Boxes, Level, halved
from noisegate.releases.cells.workload import Ints, Workload
from noisegate.releases.recipes import Exact, require_parts
from noisegate.releases.trees.levels import (
    cut_rms,
    estimate,
    joined,
    last_shares,
    level_shares,
    measured,
    noise_rms,
    rehearsed,
)

_FULL: Final = 10  # one in so many boxes
_TENTH: Final = "that is for rows in a tenth of the boxes; the error is larger if they are in fewer"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UniformGrid(Exact):
    """A grid of ``size`` boxes along each axis, by default (n ε / c)^(2 / (d + 2)) for n rows.

    ``total`` is the share of the price for n; it is not asked where the size is given.
    """

    name: ClassVar[str] = "uniform-grid"
    size: int | None = None
    c: int = 10
    total: Fraction = Fraction(1, 20)

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """A size above 0 and shares."""
        require_sizes(self.size, self.c)
        require_parts(self.total)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise of one box; and about what it is if a tenth of all boxes is full.

        Each of these then holds ten times as many rows as the grid is made for, in one place. It is
        most with single cells, or with boxes of two along each axis. Of a grid that is given, what
        rows add is a part of them.
        """
        if self.size is not None:
            boxes = self._boxes(ask.shape, self.size)
            noise = noise_rms(rehearsed(ask, boxes, last_shares(boxes, Fraction(1))), workload)
            part = sqrt(_FULL) * cut_rms(boxes, workload) / boxes.groups(boxes.depth).size
            if not part:
                return Predicted(rms=noise)
            return Predicted(rms=None, words=_TENTH, noise=noise, share=min(1.0, part))
        most, share = 0.0, 1 - self.total
        for size in (max(1, max(ask.shape) // 2), max(ask.shape)):
            boxes = self._boxes(ask.shape, size)
            noise = noise_rms(rehearsed(ask, boxes, last_shares(boxes, share)), workload)
            held = sqrt(_FULL) * made_for(ask, size, share, self.c)
            most = max(most, hypot(noise, held * cut_rms(boxes, workload)))
        least = sqrt(ask.variance(one_sum(ask.shape), share))
        return Predicted(rms=None, words=_TENTH, most=most, noise=least)

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """One round for the total and one for the grid."""
        share, size, total = Fraction(1), self.size, Noisy(np.zeros(1, np.int64), np.inf)
        if size is None:
            share = 1 - self.total
            (total,) = ask.sums([one_sum(ask.shape)], [self.total])
            size = int(sides(ask, total.values, share, self.c)[0])
            ask.done(1 / 2, "total")
        boxes = self._boxes(ask.shape, size)
        (found,) = ask.sums([boxes.groups(boxes.depth)], [share])
        ask.done(1, f"{found.values.size} boxes")
        tree = joined(boxes, {0: total, boxes.depth: found})
        words = f"A grid of {found.values.size} boxes."
        return estimate(tree, words)

    def _boxes(self, shape: tuple[int, ...], size: int) -> Boxes:
        return Boxes.of(shape, divided(*whole(shape), np.array([[size]])))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveGrid(Exact):
    """A coarse grid, and in each of its boxes a grid as fine as its noisy count deserves.

    ``first`` is the share of the rest of the price, after ``total``, for the coarse grid; ``c`` and
    ``c_second`` are the constants of both sizes, ``least`` the smallest coarse one. Where the total
    is so large that single cells are no finer than it deserves, there is nothing to adapt: then all
    cells are measured, in the levels that suit the workload.
    """

    name: ClassVar[str] = "adaptive-grid"
    c: int = 10
    c_second: int = 5
    least: int = 10
    first: Fraction = Fraction(1, 2)
    total: Fraction = Fraction(1, 20)

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Sizes above 0 and shares."""
        require_sizes(self.c, self.c_second, self.least)
        require_parts(self.total, self.first)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise of the least grid; and about what it is if all boxes are as full as any.

        A box of the finer grids then holds what they are made for, in one place. It is most with
        single cells, or with boxes of two along each axis.
        """
        rest = 1 - self.total
        first, second = rest * self.first, rest * (1 - self.first)
        coarse = divided(*whole(ask.shape), np.array([[self.least]]))
        lows, highs, _ = coarse[-1]
        longest, found = int((highs - lows).max()) + 1, []
        for size in (1, max(1, longest // 2), longest):
            fine = divided(lows, highs, np.full((lows.shape[0], 1), size))
            boxes = Boxes.of(ask.shape, [*coarse, *fine])
            shares = last_shares(boxes, second)
            shares[len(coarse)] = first
            held = made_for(ask, size, second, self.c_second)
            noise = noise_rms(rehearsed(ask, boxes, shares), workload)
            found.append((noise, hypot(noise, held * cut_rms(boxes, workload))))
        (least, _), *_ = found
        words = "it is smaller the fewer rows there are, and the more evenly they lie inside boxes"
        return Predicted(rms=None, words=words, most=max(most for _, most in found), noise=least)

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """Rounds for the total, the coarse grid and the fine ones."""
        rest = 1 - self.total
        first, second = rest * self.first, rest * (1 - self.first)
        (count,) = ask.sums([one_sum(ask.shape)], [self.total])
        wanted = sides(ask, count.values, rest, self.c)
        if wanted[0] >= max(ask.shape):
            return _every_cell(ask, workload, rest, count)
        coarse = divided(*whole(ask.shape), np.maximum(-(-wanted // 4), self.least)[:, None])
        lows, highs, _ = coarse[-1]
        (outer,) = ask.sums([Boxes.of(ask.shape, coarse).groups(len(coarse))], [first])
        ask.done(1 / 2, f"{outer.values.size} boxes")
        fine = divided(lows, highs, sides(ask, outer.values, second, self.c_second)[:, None])
        boxes = Boxes.of(ask.shape, [*coarse, *fine])
        (inner,) = ask.sums([boxes.groups(boxes.depth)], [second])
        ask.done(1, f"{inner.values.size} boxes")
        noisy = {0: count, len(coarse): outer, boxes.depth: inner}
        tree = joined(boxes, noisy)
        words = f"{inner.values.size} boxes in a grid of {outer.values.size}."
        return estimate(tree, words)


def _every_cell(ask: Ask, workload: Workload, rest: Fraction, total: Noisy) -> Estimate:
    boxes = halved(ask.shape)
    shares = last_shares(boxes, rest)
    if boxes.depth and not np.array_equal(workload.lows, workload.highs):
        shares = level_shares(boxes, workload, rest, gaussian=ask.gaussian)
        shares[-1], shares[0] = shares[-1] + shares[0], Fraction(0)  # the total is known
    tree = measured(ask, boxes, shares, total=total)
    ask.done(1, "all cells")
    return estimate(tree, "Every cell.")


def sides(ask: Ask, counts: Ints, share: Fraction, constant: int) -> Ints:
    """How many boxes along each axis suit so many rows.

    ε is that of geometric noise of the same variance. The noise of a question about a range grows
    with m^(d/2) for a grid of m^d, the error at its rim falls with 1/m: m^(d/2 + 1) = n ε / c. In
    two dimensions this is the rule of [QYLg13].
    """
    rows = np.maximum(counts, 0) * _epsilon(ask, share) / constant
    return np.maximum(np.ceil(rows ** (2 / (len(ask.shape) + 2))), 1).astype(np.int64)


def made_for(ask: Ask, size: int, share: Fraction, constant: int) -> float:
    """How many rows each box of a grid of so many along each axis holds, by the rule of `sides`."""
    return constant / _epsilon(ask, share) / sqrt(size) ** (len(ask.shape) - 2)


def divided(lows: Ints, highs: Ints, wanted: Ints) -> list[Level]:
    """Each box in so many equal ones along each axis, in levels of halves of their number.

    Sides are rounded down to whole cells first, as finer is better than uneven. Halves matter where
    numbers are kept at 0 or above: what one part lacks is then taken from parts near it.
    """
    lengths = highs - lows + 1
    sizes = -(-lengths // np.maximum(lengths // wanted, 1))
    levels: list[Level] = []
    place_lows, place_highs, box = np.zeros_like(sizes), sizes - 1, np.arange(sizes.shape[0])
    while not levels or not single(place_lows, place_highs).all():
        place_lows, place_highs, parents = halves(place_lows, place_highs)
        box = box[parents]
        low = lows[box] + place_lows * lengths[box] // sizes[box]
        high = lows[box] + (place_highs + 1) * lengths[box] // sizes[box] - 1
        levels.append((low, high, parents))
    return levels


def require_sizes(*sizes: int | None) -> None:
    """Refuse sizes below 1."""
    if any(size is not None and (type(size) is not int or size < 1) for size in sizes):
        raise SpecError("A grid size is not a positive number.", fix="Use a whole number.")


def _epsilon(ask: Ask, share: Fraction) -> float:
    return sqrt(2 / max(ask.variance(one_sum(ask.shape), share), 1e-9))
