"""Marginal tables as sums of independent parts, one part for each set of axes.

A table over axes A is a sum over all subsets S of A: the part of S is what the table of S says
beyond its own marginals, spread evenly over the other axes. Parts of different sets are orthogonal,
so least squares over any set of noisy marginals is a weighted mean per part [XHZK23].

A question about a set keeps some axes as they are and takes others *bare*: without their totals, so
that nothing is paid for totals that are known from elsewhere. With all axes bare and two values on
each these are the Fourier coefficients of [BCDKMT07].

>>> plain = Question((0, 1))
>>> parts = combine((2, 2), [(plain, Noisy(np.array([1, 2, 3, 4]), 1.0))])
>>> parts.table((0,)).tolist(), round(parts.cell_variance((0,)), 9)
([3.0, 7.0], 2.0)
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Final, TypeAlias, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.transforms.strategy import Block, Groups, Matrix

Axes: TypeAlias = tuple[int, ...]  # in ascending order
Sizes: TypeAlias = tuple[int, ...]  # of all axes
_VARIANCE_MIN: Final = 1e-12  # where doubles see no noise any more


@final
@dataclass(frozen=True, slots=True)
class Question:
    """The table over ``kept`` axes; the residual along those of them that are ``bare``.

    A bare axis of two values is measured as their difference; one of n values as n times each value
    less the sum of all.
    """

    kept: Axes
    bare: Axes = ()

    def block(self, sizes: Sizes, axes: Axes) -> Block:
        """The question as whole numbers, about the cells of the table over ``axes``."""
        shape = tuple(sizes[axis] for axis in axes)
        if not self.bare:
            places = np.indices(shape, np.int32, sparse=True)
            labels, size = np.zeros(shape, np.int32), 1
            for axis, place in zip(axes, places, strict=True):
                if axis in self.kept:
                    labels = labels * np.int32(sizes[axis]) + place
                    size *= sizes[axis]
            return Groups(labels.ravel(), size)
        from scipy.sparse import csr_array, kron  # noqa: PLC0415

        found = csr_array(np.ones((1, 1), np.int64))
        for axis in axes:
            found = csr_array(kron(found, self._factor(axis, sizes[axis]), format="csr"))
        return Matrix(found.astype(np.int64))

    def entries(self, sizes: Sizes, axes: Axes) -> int:
        """How many numbers its matrix holds."""
        return prod(sizes[a] for a in axes) * prod(sizes[a] for a in self.bare if sizes[a] > 2)

    def gain(self, sizes: Sizes, part: Axes) -> float:
        """The precision it gives to a part, for noise of variance 1 and sensitivity 1.

        Along a bare axis, sensitivity² is (n - 1) / n of the precision: [XHZK23]. In L1, two values
        have sensitivity 1 and precision 2; more values are better not taken bare.
        """
        if not self.covers(part):
            return 0.0
        bare = prod(sizes[a] / (sizes[a] - 1) for a in self.bare)
        return bare / prod(sizes[a] for a in self.kept if a not in part)

    def covers(self, part: Axes) -> bool:
        """Whether it says anything about a part."""
        return set(self.bare) <= set(part) <= set(self.kept)

    def parts(self, sizes: Sizes, noisy: Noisy) -> dict[Axes, tuple[Floats, float]]:
        """Each part that it says something about, and the precision of that."""
        shape = [2 - (a in self.bare) if sizes[a] == 2 else sizes[a] for a in self.kept]
        found: dict[Axes, Floats] = {(): noisy.values.astype(np.float64).reshape(shape)}
        for axis in self.kept:
            split: dict[Axes, Floats] = {}
            for part, values in found.items():
                place = len(part)
                if axis in self.bare:
                    split[*part, axis] = _unbare(values, place, sizes[axis])
                    continue
                total = values.sum(axis=place)
                split[part] = total
                split[*part, axis] = values - np.expand_dims(total, place) / sizes[axis]
            found = split
        known = self.precision(sizes, noisy.variance)
        return {part: (values, known[part]) for part, values in found.items()}

    def precision(self, sizes: Sizes, variance: float) -> dict[Axes, float]:
        """What it tells about each part if each of its numbers has the given variance."""
        bare = prod(2 if sizes[a] == 2 else sizes[a] ** 2 for a in self.bare)
        scale = bare / max(variance, _VARIANCE_MIN)
        return {
            part: scale / prod(sizes[a] for a in self.kept if a not in part)
            for part in subsets(self.kept)
            if self.covers(part)
        }

    def _factor(self, axis: int, size: int) -> Ints:
        if axis not in self.kept:
            return np.ones((1, size), np.int64)
        if axis not in self.bare:
            return np.eye(size, dtype=np.int64)
        if size == 2:
            return np.array([[1, -1]], np.int64)
        return size * np.eye(size, dtype=np.int64) - 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Estimated parts, and the precision (1 / variance) of each before its projection."""

    sizes: Sizes
    values: Mapping[Axes, Floats]
    precision: Mapping[Axes, float]

    def table(self, axes: Axes) -> Floats:
        """The table over some axes, by least squares. Parts that were not measured count as 0."""
        found = np.zeros([self.sizes[a] for a in axes])
        for part in subsets(axes):
            if part in self.values:
                shape = [self.sizes[a] if a in part else 1 for a in axes]
                rest = prod(self.sizes[a] for a in axes if a not in part)
                found += self.values[part].reshape(shape) / rest
        return found

    def scaled(self, factor: float) -> "Parts":
        """The same in another unit."""
        values = {part: each * factor for part, each in self.values.items()}
        return Parts(self.sizes, values, {p: k / factor**2 for p, k in self.precision.items()})

    def cell_variance(self, axes: Axes) -> float:
        """Of each cell of the table over some axes."""
        return float(self.variance(axes, np.ones((1, len(axes)), np.int64))[0])

    def variance(self, axes: Axes, counts: Ints) -> Floats:
        """Of sums over ``counts[i, j]`` values of the j-th axis; infinite if a part is unknown."""
        return box_variance(self.sizes, self.precision, axes, counts)


def box_variance(sizes: Sizes, precision: Mapping[Axes, float], axes: Axes, counts: Ints) -> Floats:
    """The variance of sums over boxes of ``counts[i, j]`` values of each axis.

    A box is a product of 0/1 vectors b. Its share of a part is the product of the even share
    k / n over the other axes and of b less its mean over the part's: squared, k (1 - k / n).
    """
    shares = counts / np.array([sizes[a] for a in axes])
    rises = counts * (1 - shares)
    found = np.zeros(len(counts))
    for part in subsets(axes):
        held = np.array([a in part for a in axes], bool)
        weight = np.prod(np.where(held, rises, shares**2), axis=1)
        known = precision.get(part, 0.0)
        found += np.where(weight > 0, weight / known if known else np.inf, 0.0)
    return found


def combine(sizes: Sizes, answers: Iterable[tuple[Question, Noisy]]) -> Parts:
    """Least squares in closed form: each part is the mean of what the questions say about it.

    Claim: the best linear unbiased estimate of all tables. Why: the noise of one question is white,
        so its parts are uncorrelated, and each has the same covariance up to a factor in every
        question; then the mean weighted by precision is best, part by part.
    """
    sums: dict[Axes, Floats] = {}
    precision: dict[Axes, float] = {}
    for question, noisy in answers:
        for part, (values, known) in question.parts(sizes, noisy).items():
            sums[part] = sums.get(part, 0.0) + known * values
            precision[part] = precision.get(part, 0.0) + known
    return Parts(sizes, {p: s / precision[p] for p, s in sums.items()}, precision)


def known(sizes: Sizes, asked: Iterable[tuple[Question, float]]) -> dict[Axes, float]:
    """The precision of each part after questions with these variances: free, before asking."""
    found: dict[Axes, float] = {}
    for question, variance in asked:
        for part, precision in question.precision(sizes, variance).items():
            found[part] = found.get(part, 0.0) + precision
    return found


def subsets(axes: Axes) -> list[Axes]:
    """All subsets, small ones first."""
    return [s for size in range(len(axes) + 1) for s in combinations(axes, size)]


def closure(sets: Sequence[Axes]) -> list[Axes]:
    """All subsets of the given sets, small ones first."""
    found = {part for axes in sets for part in subsets(axes)}
    return sorted(found, key=lambda part: (len(part), part))


def centred(table: Floats) -> Floats:
    """Without what its own marginals say."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _unbare(values: Floats, place: int, size: int) -> Floats:
    """The residual itself: the pseudo-inverse of the factor of a bare axis."""
    if size == 2:
        return np.concatenate([values, -values], axis=place) / 2
    centred: Floats = (values - values.mean(axis=place, keepdims=True)) / size
    return centred
