"""Rows from a model, with little variance: counts of every clique are right up to rounding.

Along the tree, the rows that agree on the shared columns take values of the others at even steps of
their distribution (systematic sampling), in a random order of rows. So a cell of a clique is off by
less than one row for each cell of its shared columns.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.model.junction import Clique

Rows = NDArray[np.uint32]


def draw(
    sizes: Sizes, tree: Sequence[Clique], beliefs: Sequence[Floats], count: int, seed: int
) -> Rows:
    """So many rows, in random order."""
    chance = public_coins(seed)
    columns = np.empty((len(sizes), count), np.uint32)
    for clique, belief in zip(tree, beliefs, strict=True):
        shape = [sizes[a] for a in clique.shared]
        rows = belief.reshape(prod(shape), -1)
        order = chance.permutation(count)
        group = np.zeros(count, np.int64)
        for axis, size in zip(clique.shared, shape, strict=True):
            group = group * size + columns[axis, order]
        if clique.shared:
            short = group.astype(np.uint16) if len(rows) <= 1 << 16 else group  # sorted by digits
            inside = np.argsort(short, kind="stable")
            order, group = order[inside], group[inside]
        values = _even_steps(rows, group, chance)
        for axis in reversed(clique.others):
            values, columns[axis, order] = np.divmod(values, sizes[axis])
    return np.ascontiguousarray(columns.T[chance.permutation(count)])


def numbers(columns: NDArray[Any], axes: Axes, sizes: Sizes) -> NDArray[Any]:
    """In which cell of the table over some columns each row is."""
    found: NDArray[Any] = columns[axes[0]] if axes else np.zeros(columns.shape[1], columns.dtype)
    for axis in axes[1:]:
        found = found * sizes[axis] + columns[axis]
    return found


def _even_steps(rows: Floats, group: Ints, chance: Coins) -> Ints:
    """For rows in order of their group, a column of its row of ``rows`` at even steps."""
    counts = np.bincount(group, minlength=len(rows))
    held = np.flatnonzero(counts)
    starts = np.cumsum(counts) - counts
    upto = np.cumsum(rows[held], axis=1)
    upto /= upto[:, -1:]
    place = np.repeat(np.arange(held.size), counts[held])
    steps = np.arange(group.size) - starts[group] + chance.random(held.size)[place]
    steps = np.minimum(steps / counts[group], 1 - 1e-9)  # never into the next group
    upto += np.arange(held.size)[:, None]
    found = np.searchsorted(upto.ravel(), steps + place, side="right")
    last = rows.shape[1] - 1
    values: Ints = np.minimum(found - place * rows.shape[1], last)
    return values
