"""Marginals of one table made consistent: children add up to their parents, with least variance.

Let the groups be all combinations of keys, n_j keys of column j, and let table s (a set of columns)
be measured with independent noise of variance v_s per cell. A table over columns splits into
orthogonal parts, one for each subset u of its columns: sum over all other columns, then take away
the average along each column of u. All measured s ⊇ u see the same part u, with independent errors
whose variances stand as v_s / m_s, m_s being the number of cells of the full table per cell of s;
and different parts of one table have uncorrelated errors. So the least-squares estimate (the best
linear unbiased one, for any noise) takes each part by itself, as the average of what the s ⊇ u say
with weights m_s / v_s, and a table is the sum of its parts. This is exact for ROLLUP, CUBE and
every other family of sets, and takes time in proportion to the cells.

A cell's error is a known sum of draws: the factor of a draw depends only on which columns of its
cell agree with ours. So error bars come from the exact law.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import TypeAlias, final

import numpy as np

from noisegate.sql.laws.known import Known
from noisegate.sql.laws.laws import Floats, Law, combined

Columns: TypeAlias = tuple[int, ...]  # indexes of key columns, rising


@final
class Marginals:
    """Measured tables of one quantity and what follows for all tables below them."""

    def __init__(self, measured: Mapping[Columns, Known], sizes: Sequence[int]) -> None:
        self._measured, self._sizes = measured, sizes
        self._laws = {columns: known.law for columns, known in measured.items()}
        self._parts: dict[Columns, Floats] = {}

    def known(self, asked: Columns) -> Known:
        """The table over the asked columns, flat; some measured set must contain them."""
        if len(self._measured) == 1:
            return self._added(asked)
        sizes = self._sizes
        total = np.zeros(tuple(sizes[j] for j in asked))
        for part in subsets(asked):
            if part not in self._parts:
                self._parts[part] = self._part(part)
            shape = tuple(sizes[j] if j in part else 1 for j in asked)
            share = prod(sizes[j] for j in asked if j not in part)
            total = total + self._parts[part].reshape(shape) / share
        return Known(total.reshape(-1), law_of(self._laws, sizes, asked))

    def _added(self, asked: Columns) -> Known:
        """Where one table was measured, sums of it; whole numbers stay whole."""
        ((columns, finest),) = self._measured.items()
        table = finest.values.reshape([self._sizes[j] for j in columns])
        gone = tuple(at for at, j in enumerate(columns) if j not in asked)
        count = prod(table.shape[at] for at in gone)
        draws = tuple(replace(d, count=d.count * count) for d in finest.law.draws)
        return Known(table.sum(axis=gone).reshape(-1), Law(draws))

    def _part(self, part: Columns) -> Floats:
        """What all measured tables together say about one orthogonal part."""
        found = np.zeros(tuple(self._sizes[j] for j in part))
        for columns, weight in _weights(self._laws, self._sizes, part).items():
            table = self._measured[columns].values.reshape([self._sizes[j] for j in columns])
            found += float(weight) * table.sum(
                axis=tuple(at for at, j in enumerate(columns) if j not in part)
            )
        for axis in range(found.ndim):
            found -= found.mean(axis=axis, keepdims=True)
        return found


def law_of(laws: Mapping[Columns, Law], sizes: Sequence[int], asked: Columns) -> Law:
    """The law of one cell of a consistent table; it is the same for all cells of a table."""
    weights = {part: _weights(laws, sizes, part) for part in subsets(asked)}
    terms: list[tuple[Fraction, Law]] = []
    for columns, law in laws.items():
        common = tuple(j for j in columns if j in asked)
        for same in subsets(common):
            others = prod(sizes[j] - 1 for j in common if j not in same)
            others *= prod(sizes[j] for j in columns if j not in asked)
            factor = sum(
                (
                    weights[part].get(columns, Fraction(0))
                    / prod(sizes[j] for j in asked if j not in part)
                    * prod((Fraction(int(j in same)) - Fraction(1, sizes[j]) for j in part))
                    for part in subsets(common)
                ),
                Fraction(0),
            )
            if others and factor:
                many = Law(tuple(replace(d, count=d.count * others) for d in law.draws))
                terms.append((factor, many))
    return combined(terms)


def to_measure(
    sets: Sequence[Columns], sizes: Sequence[int], *, gaussian: bool
) -> tuple[Columns, ...]:
    """All sets, or only the finest and add up: whichever has the smaller worst variance.

    k sets share the price, so each has k² (geometric) or k (Gaussian) times the variance of one.
    Decided by the number of keys, which is public.
    """
    finest = tuple(sorted({j for columns in sets for j in columns}))
    each = tuple(dict.fromkeys(sets))
    noise = len(each) if gaussian else len(each) ** 2
    every = max(_variance(dict.fromkeys(each, Fraction(noise)), sizes, s) for s in each)
    alone = max(_variance({finest: Fraction(1)}, sizes, columns) for columns in each)
    return (finest,) if alone <= every else each


def grouping_id(columns: Columns, count: int) -> int:
    """SQL's GROUPING(all columns): a bit for each column that is not in the set, the first highest.

    >>> grouping_id((0,), 3)
    3
    """
    return sum(1 << (count - 1 - j) for j in range(count) if j not in columns)


def subsets(columns: Columns) -> Iterator[Columns]:
    """All subsets, the empty one first."""
    for size in range(len(columns) + 1):
        yield from combinations(columns, size)


def _weights(
    laws: Mapping[Columns, Law], sizes: Sequence[int], part: Columns
) -> dict[Columns, Fraction]:
    variances = {s: Fraction(law.variance) for s, law in laws.items()}
    return _shares(variances, sizes, part)


def _shares(
    variances: Mapping[Columns, Fraction], sizes: Sequence[int], part: Columns
) -> dict[Columns, Fraction]:
    found = {
        s: _outside(sizes, s) / variance for s, variance in variances.items() if set(part) <= set(s)
    }
    total = sum(found.values(), Fraction(0))
    return {s: weight / total for s, weight in found.items()}


def _variance(
    variances: Mapping[Columns, Fraction], sizes: Sequence[int], asked: Columns
) -> Fraction:
    """The variance of one cell of the asked table."""
    total = Fraction(0)
    for part in subsets(asked):
        held = [s for s in variances if set(part) <= set(s)]
        known = 1 / _sum(_outside(sizes, s) / (variances[s] * _outside(sizes, part)) for s in held)
        share = prod(sizes[j] for j in asked if j not in part)
        total += known / share**2 * prod(1 - Fraction(1, sizes[j]) for j in part)
    return total


def _outside(sizes: Sequence[int], columns: Columns) -> Fraction:
    return Fraction(prod(size for j, size in enumerate(sizes) if j not in columns))


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))
