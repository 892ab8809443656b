"""Rows moved a little, so that their tables come closer to many noisy ones.

A model holds only so many tables, and rows drawn from it are a sample. Here one column of a row at
a time takes the value that lowers Σ (count - target)² / variance most, over all tables with that
column; rows without a better value stay as they are. Duplicating rows for one table at a time
(GUM, [ZWLHBHCZ21]) spoils what was reached for the others.

Targets lie between the rows' own tables and the noisy ones: noise is not followed. How far off a
cell may be in truth is taken to be proportional to its count, with the factor that the table as a
whole shows [EM73]; a cell that is off by far more than the noise speaks for itself.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from noisegate.releases.chance import Coins, public_coins
from noisegate.releases.estimate import Floats
from noisegate.releases.residuals import Axes, Sizes
from noisegate.synthetic.drawing import Rows
from noisegate.synthetic.model import Evidence, whole_total

_BATCH: Final = 1 << 8  # rows that are judged by the same counts
_VISITED: Final = 1 << 16  # rows at most, each time a column is visited
_MOVED: Final = 1 / 64  # of all rows, each time: more would all run to the same cells
_CLEAR: Final = 9.0  # squared standard deviations of noise from which a cell speaks for itself
_VARIANCE_MIN: Final = 0.25  # of a target: rows are whole
_EVEN: Final = 0.1  # weight of an even spread in what a cell may hold
_SETTLED: Final = 0.05  # a round that lowers the sum by a smaller part is the last

Places = NDArray[np.int64]


def refined(
    rows: Rows, sizes: Sizes, evidence: Sequence[Evidence], *, seed: int, rounds: int = 12
) -> Rows:
    """As many rows, with tables nearer to the evidence. A round visits all columns.

    The evidence may be about another number of rows: it is scaled.
    """
    chance = public_coins(seed)
    columns = rows.T.astype(np.int64)
    scale = len(rows) / whole_total(evidence) if len(rows) else 1.0
    goals = [_Goal(columns, sizes, each, scale) for each in evidence if each.axes]
    off = sum(goal.off(columns) for goal in goals)
    for _ in range(rounds):
        before = off
        for column in chance.permutation(len(sizes)).tolist():
            about = [goal for goal in goals if column in goal.axes]
            if about:
                _visit(columns, sizes, column, about, chance)
        off = sum(goal.off(columns) for goal in goals)
        if off > (1 - _SETTLED) * before:
            break
    return np.ascontiguousarray(columns.T.astype(np.uint32))


class _Goal:
    """What one piece of evidence wants the table of the rows to be."""

    def __init__(self, columns: Places, sizes: Sizes, evidence: Evidence, scale: float) -> None:
        self.axes: Axes = evidence.axes
        self.shape = tuple(sizes[a] for a in self.axes)
        self._labels = evidence.labels
        self._length = len(evidence.values)
        noise = max(evidence.variance * scale**2, _VARIANCE_MIN)
        have = self.counts(columns)
        self.target = _target(have, evidence.values * scale, noise)
        self.pull = 1 / noise

    def counts(self, columns: Places) -> Floats:
        """The sums that the rows have."""
        cells = _codes(columns, self.axes, self.shape)
        if self._labels is None:
            return np.bincount(cells, minlength=self._length).astype(np.float64)
        labels = self._labels[cells]
        return np.bincount(labels[labels >= 0], minlength=self._length).astype(np.float64)

    def off(self, columns: Places) -> float:
        """How far off the rows are: what is to be lowered."""
        return float(((self.counts(columns) - self.target) ** 2).sum()) * self.pull

    def slope(self, counts: Floats) -> Floats:
        """For each cell, how much one row more would cost."""
        off = (counts - self.target) * self.pull
        spread = off if self._labels is None else np.append(off, 0.0)[self._labels]
        return spread.reshape(self.shape)


def _target(have: Floats, noisy: Floats, noise: float) -> Floats:
    """Between what rows have and what was measured: as far as it is signal."""
    beyond = noisy - have
    likely = (1 - _EVEN) * have + _EVEN * have.mean()
    excess = max(0.0, float((beyond**2).sum()) - noise * have.size)
    signal = likely * excess / max(float(likely.sum()), 1.0)
    clear = beyond**2 > _CLEAR * noise
    signal[clear] = np.maximum(signal[clear], beyond[clear] ** 2)
    target: Floats = have + beyond * signal / (signal + noise)
    return target


def _visit(
    columns: Places,
    sizes: Sizes,
    column: int,
    goals: Sequence[_Goal],
    chance: Coins,
) -> None:
    """Give some rows better values of one column."""
    from scipy.sparse import csr_array  # noqa: PLC0415

    size, count = sizes[column], columns.shape[1]
    visited = chance.permutation(count)[:_VISITED]
    seen = columns[:, visited]
    slopes, places, start = [], np.empty((len(visited), len(goals)), np.int32), 0
    for number, goal in enumerate(goals):
        axis = goal.axes.index(column)
        slope = np.moveaxis(goal.slope(goal.counts(columns)), axis, -1).reshape(-1, size)
        others = tuple(a for a in goal.axes if a != column)
        places[:, number] = start + _codes(seen, others, tuple(sizes[a] for a in others))
        slopes.append(slope)
        start += len(slope)
    costs = np.concatenate(slopes)
    pulls = np.array([goal.pull for goal in goals])
    moves = max(1, round(_MOVED * count * _BATCH / len(visited)))
    for first in range(0, len(visited), _BATCH):
        chosen, where = visited[first : first + _BATCH], places[first : first + _BATCH]
        ends = np.arange(0, where.size + 1, len(goals), dtype=np.int32)
        picks = csr_array((np.ones(where.size), where.ravel(), ends), (len(chosen), len(costs)))
        cost = picks @ costs
        each = np.arange(len(chosen))
        now, best = columns[column, chosen], cost.argmin(axis=1)
        gain = cost[each, now] - cost[each, best] - pulls.sum()
        most = np.argpartition(-gain, min(moves, len(gain) - 1))[:moves]
        better = most[gain[most] > 0]
        new, old, at = best[better], now[better], where[better]
        columns[column, chosen[better]] = new
        np.add.at(costs, (at, new[:, None]), pulls)
        np.add.at(costs, (at, old[:, None]), -pulls)


def _codes(columns: Places, axes: Axes, shape: tuple[int, ...]) -> Places:
    """The number of the cell that each row is in."""
    found = np.zeros(columns.shape[1], np.int64)
    for axis, size in zip(axes, shape, strict=True):
        found = found * size + columns[axis]
    return found
