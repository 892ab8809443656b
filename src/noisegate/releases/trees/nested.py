"""Boxes within boxes over cells: sums of all levels, fitted to each other by least squares.

Level 0 are the cells. A box of a level is made of equal boxes of the level below, except at the
upper ends of the table, where it holds what is left; no row lies beyond them, and that is public.
"""

from collections.abc import Sequence
from functools import cache
from math import inf, prod
from typing import TypeAlias, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.cells.estimate import simplex, simplices
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.transforms.strategy import Groups

Sides: TypeAlias = tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Nest:
    """The sides of a box of each level, along each axis; each divides those of the next level."""

    shape: tuple[int, ...]
    sides: tuple[Sides, ...]

    def __post_init__(self) -> None:
        steps = zip(self.sides, self.sides[1:], strict=False)
        if self.sides[0] != (1,) * len(self.shape) or any(
            up % low for below, above in steps for low, up in zip(below, above, strict=True)
        ):
            raise SpecError(
                "The boxes are not nested.",
                fix="Multiply side lengths, from 1 upwards.",
                about="nested",
            )

    def counts(self, level: int) -> tuple[int, ...]:
        """How many boxes the level has along each axis."""
        return tuple(-(-n // side) for n, side in zip(self.shape, self.sides[level], strict=True))

    def ratio(self, level: int) -> Sides:
        """How many boxes of this level a box of the next one has along each axis."""
        pairs = zip(self.sides[level], self.sides[level + 1], strict=True)
        return tuple(above // below for below, above in pairs)

    def groups(self, level: int) -> Groups:
        """The sums of all boxes of a level, in C order."""
        counts = self.counts(level)
        places = np.zeros((1,) * len(self.shape), np.int32)
        for axis, (n, side) in enumerate(zip(self.shape, self.sides[level], strict=True)):
            along = (np.arange(n, dtype=np.int32) // side).reshape(
                [-1 if j == axis else 1 for j in range(len(self.shape))]
            )
            places = places * np.int32(counts[axis]) + along
        return Groups(places.reshape(-1), prod(counts))


def fold(values: Floats, ratio: Sides) -> Floats:
    """The sums of all families."""
    total: Floats = _split(values, ratio, 0.0).sum(axis=tuple(range(1, 2 * values.ndim, 2)))
    return total


def spread(values: Floats, ratio: Sides, counts: tuple[int, ...]) -> Floats:
    """The value of each box for all its parts."""
    for axis, times in enumerate(ratio):
        values = np.repeat(values, times, axis=axis)
    return values[tuple(slice(count) for count in counts)]


def _split(values: Floats, ratio: Sides, rest: float) -> Floats:
    """Shape (k₁, r₁, k₂, r₂, …), where what is missing at the ends is ``rest``."""
    missing = [-n % r for n, r in zip(values.shape, ratio, strict=True)]
    if any(missing):
        values = np.pad(values, [(0, m) for m in missing], constant_values=rest)
    return values.reshape(
        [part for n, r in zip(values.shape, ratio, strict=True) for part in (n // r, r)]
    )


def fit(nest: Nest, noisy: Sequence[Floats | None], variances: Sequence[float]) -> list[Floats]:
    """The most likely sums of all levels: weighted least squares in two passes.

    Sums of a level have one variance; a level that was not measured is None. The estimate is the
    best linear unbiased one: upwards, a sum and the sum of its parts are averaged by precision;
    downwards, what the parts lack is shared out by their variances.
    """
    first = noisy[0]
    if first is None:
        raise SpecError("The cells were not measured.", fix="Give level 0 a share.")
    spans, totals = _spans(nest, variances)
    best, sums = [first], []
    for level in range(1, len(nest.sides)):
        total = fold(best[-1], nest.ratio(level - 1))
        sums.append(total)
        seen = noisy[level]
        best.append(
            total if seen is None else total + spans[level] / variances[level] * (seen - total)
        )
    found = [best[-1]]
    for level in range(len(nest.sides) - 2, -1, -1):
        lack = (found[-1] - sums[level]) / totals[level]
        found.append(
            best[level] + spans[level] * spread(lack, nest.ratio(level), nest.counts(level))
        )
    return found[::-1]


def _spans(nest: Nest, variances: Sequence[float]) -> tuple[list[Floats], list[Floats]]:
    """The variance of each sum given its parts and itself, and of the sum of its parts alone."""
    spans, totals = [np.full(nest.counts(0), variances[0])], []
    for level in range(1, len(nest.sides)):
        total = fold(spans[-1], nest.ratio(level - 1))
        totals.append(total)
        spans.append(1 / (1 / total + 1 / variances[level]))
    return spans, totals


def not_negative(nest: Nest, levels: Sequence[Floats]) -> Floats:
    """Cells without negative numbers: from the top, each family is moved to the nearest values
    that are not negative and add up to the box above. Free, and it helps most where cells are few.
    """  # noqa: D205
    above = simplex(levels[-1], max(0.0, float(levels[-1].sum())))
    for level in range(len(levels) - 2, -1, -1):
        ratio, counts = nest.ratio(level), nest.counts(level)
        parts = _split(levels[level], ratio, -inf)
        dims = len(counts)
        order = [*range(0, 2 * dims, 2), *range(1, 2 * dims, 2)]
        families = parts.transpose(order).reshape(above.size, -1)
        kept = simplices(families, above.reshape(-1)).reshape([parts.shape[axis] for axis in order])
        whole = kept.transpose(np.argsort(order)).reshape(
            [parts.shape[2 * j] * parts.shape[2 * j + 1] for j in range(dims)]
        )
        above = whole[tuple(slice(count) for count in counts)]
    return above


# --- what a workload needs of each level ----------------------------------------------------------


def along(low: Ints, high: Ints, side: int) -> Floats:
    """Σ over boxes of one axis of (cells inside the range)² / side."""
    first, last = low // side, high // side
    head, tail = (first + 1) * side - low, high + 1 - last * side
    across = head**2 + tail**2 + (last - first - 1) * side**2
    return np.where(first == last, (high + 1 - low) ** 2, across) / side


def energy(workload: Workload, sides: Sides) -> Floats:
    """For each question, its squared length after averaging it over boxes with these sides."""
    found = np.ones(workload.size)
    for axis, side in enumerate(sides):
        found *= along(workload.lows[:, axis], workload.highs[:, axis], side)
    return found


def box_variance(nest: Nest, weights: Sequence[float], workload: Workload) -> Floats:
    """The variance of each question after `fit`, where weights are 1 / variance, or 0.

    Claim: exact in one dimension, and where the sides of all levels divide the table; else not
        below the truth.
    Why: let P_l average over boxes of level l, of c_l cells. The normal matrix Σ w_l c_l P_l has
        the eigenvalue E_l = Σ_(j ≤ l) w_j c_j on what P_l keeps and P_(l+1) does not, so the
        variance of q is Σ (‖P_l q‖² - ‖P_(l+1) q‖²) / E_l. Beyond the ends of the table this takes
        noisy zeros where `fit` knows that they are zeros; to know more never hurts.
    """
    if len(nest.shape) == 1 and not _divides(nest):
        return _line_variance(nest, weights, workload)
    found, below = np.zeros(workload.size), 0.0
    energies = [energy(workload, sides) for sides in nest.sides] + [np.zeros(workload.size)]
    for level, sides in enumerate(nest.sides):
        below += weights[level] * prod(sides)
        found += (energies[level] - energies[level + 1]) / below
    return found


def is_exact(nest: Nest) -> bool:
    """Whether `box_variance` is exact."""
    return len(nest.shape) == 1 or _divides(nest)


def _divides(nest: Nest) -> bool:
    """Whether no box is cut at the ends of the table."""
    return all(n % side == 0 for n, side in zip(nest.shape, nest.sides[-1], strict=True))


def _line_variance(nest: Nest, weights: Sequence[float], workload: Workload) -> Floats:
    """The same in one dimension, for boxes that are cut at the end.

    Given the sum of a box, what a range has of it is ``held`` times that sum, give or take a
    variance of ``loose``. Both follow from those of its parts, of which a range cuts the first and
    the last one only: the others it has, or has not.
    """
    spans, totals = _spans(nest, [1 / w if w > 0 else inf for w in weights])
    ends = workload.lows[:, 0], workload.highs[:, 0]
    held, loose = [np.ones(workload.size)] * 2, [np.zeros(workload.size)] * 2
    for level, below in enumerate(spans):
        sums = np.concatenate([[0.0], np.cumsum(below)])
        low, high = ends
        one = low == high
        weighed = [h * below[at] for h, at in zip(held, ends, strict=True)]
        squared = [h * part for h, part in zip(held, weighed, strict=True)]
        between = np.where(one, 0.0, sums[high] - sums[np.minimum(low + 1, high)])
        joint = (
            np.where(one, weighed[0], weighed[0] + weighed[1] + between),
            np.where(one, squared[0], squared[0] + squared[1] + between),
            np.where(one, loose[0], loose[0] + loose[1]),
        )
        if level == len(totals):
            break
        ratio = nest.ratio(level)[0]
        up = low // ratio, high // ratio
        after = sums[np.minimum((up[0] + 1) * ratio, below.size)] - sums[low + 1]
        before = sums[high] - sums[up[1] * ratio]
        same = up[0] == up[1]
        for side, beside in enumerate((after, before)):
            first = np.where(same, joint[0], weighed[side] + beside)
            second = np.where(same, joint[1], squared[side] + beside)
            total = totals[level][up[side]]
            loose[side] = np.where(same, joint[2], loose[side]) + second - first**2 / total
            held[side] = first / total
        ends = up
    return joint[1] + joint[2]


@cache
def chains(shape: tuple[int, ...], most: int = 40) -> tuple[tuple[Sides, ...], ...]:
    """Chains of sides to choose from: all axes at once, or in turn, by each branching."""
    found: dict[tuple[Sides, ...], None] = {}
    longest = max(shape)
    for branching in range(2, max(3, min(most, longest) + 1)):
        now: list[Sides] = [(1,) * len(shape)]
        turns: list[Sides] = [(1,) * len(shape)]
        while any(side < n for side, n in zip(now[-1], shape, strict=True)):
            step = list(now[-1])
            for axis in reversed(range(len(shape))):
                if step[axis] < shape[axis]:
                    step[axis] *= min(branching, -(-shape[axis] // step[axis]))
                    turns.append(tuple(step))
            now.append(tuple(step))
        found[tuple(now)] = None
        found[tuple(turns)] = None
    return tuple(found)
