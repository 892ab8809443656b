"""Grids of equal boxes: one whose size follows the total, and one refined where much lies [QYLg13].

How fine a grid should be depends on how many rows there are. That number is asked and paid for.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import prod, sqrt
from typing import ClassVar, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.mechanisms.boxes import halves, single, whole
from noisegate.releases.asking import Ask, Noisy
from noisegate.releases.estimate import Estimate, Predicted
from noisegate.releases.levels import estimate, joined, level_shares, measured, noise_only
from noisegate.releases.recipes.quadtree import require_parts
from noisegate.releases.spatial import Boxes, Ints, Level, halved
from noisegate.releases.workload import Workload
from noisegate.transforms.strategy import Groups


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UniformGrid:
    """A grid of ``size`` boxes along each axis, by default (n ε / c)^(2 / (d + 2)) for n rows.

    ``total`` is the share of the price for n; it is not asked where the size is given.
    """

    name: ClassVar[str] = "uniform-grid"
    size: int | None = None
    c: int = 10
    total: Fraction = Fraction(1, 20)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", fraction(self.total, name="total"))

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """A size above 0 and shares."""
        require_sizes(self.size, self.c)
        require_parts(self.total)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:  # noqa: ARG002
        """The noise of one box."""
        share = Fraction(1) if self.size else 1 - self.total
        rms = sqrt(ask.variance(_everything(ask.shape), share))
        return noise_only(rms, "the total, on which the grid depends, and how evenly rows lie")

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """One round for the total and one for the grid."""
        share, size, total = Fraction(1), self.size, Noisy(np.zeros(1, np.int64), np.inf)
        if size is None:
            share = 1 - self.total
            (total,) = ask.sums([_everything(ask.shape)], [self.total])
            size = int(sides(ask, total.values, share, self.c)[0])
            ask.done(1 / 2, "total")
        boxes = Boxes.of(ask.shape, divided(*whole(ask.shape), np.array([[size]])))
        (found,) = ask.sums([boxes.groups(boxes.depth)], [share])
        ask.done(1, f"{found.values.size} boxes")
        tree = joined(boxes, {0: total, boxes.depth: found})
        words = f"A grid of {found.values.size} boxes."
        return estimate(tree, words)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveGrid:
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

    def __post_init__(self) -> None:
        for name in ("first", "total"):
            object.__setattr__(self, name, fraction(getattr(self, name), name=name))

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Sizes above 0 and shares."""
        require_sizes(self.c, self.c_second, self.least)
        require_parts(self.total, self.first)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:  # noqa: ARG002
        """The noise of one box of the finer grid."""
        share = (1 - self.total) * (1 - self.first)
        rms = sqrt(ask.variance(_everything(ask.shape), share))
        return noise_only(rms, "the counts of the coarse grid and how evenly rows lie")

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """Rounds for the total, the coarse grid and the fine ones."""
        rest = 1 - self.total
        first, second = rest * self.first, rest * (1 - self.first)
        (count,) = ask.sums([_everything(ask.shape)], [self.total])
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
    shares = [Fraction(0)] * boxes.depth + [rest]
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
    epsilon = sqrt(2 / max(ask.variance(_everything(ask.shape), share), 1e-9))
    rows = np.maximum(counts, 0) * epsilon / constant
    found: Ints = np.maximum(np.ceil(rows ** (2 / (len(ask.shape) + 2))), 1).astype(np.int64)
    return found


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
        raise SpecError("A size of the grid is no number above 0.", fix="Use a whole number.")


def _everything(shape: tuple[int, ...]) -> Groups:
    return Groups(np.zeros(prod(shape), np.int32), 1)
