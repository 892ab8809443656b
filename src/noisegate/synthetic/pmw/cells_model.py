"""A model of all cells of a grid, fitted to what is known of it: tables, and counts of sets.

What is known are intervals: a cell of a table, or a count, lies between two numbers. The model goes
from one to the next and takes the nearest table, in relative entropy, that keeps it. Wherever the
exact table keeps it too, no such step leads away from it: KL(exact ‖ model) never grows (Pythagoras
for projections on convex sets), and a step over a distance d falls it by at least 2 (d / total)².
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.terms.price import Price
from noisegate.frozen import dataclass
from noisegate.releases.cells.estimate import whole
from noisegate.releases.cells.grid import Grid
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.weights import projected
from noisegate.releases.forms.provenance import Making
from noisegate.releases.forms.table import TableRelease

_LEAST: Final = 1e-9  # of the total: what a table's cell is at least, or it could never come back


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums over cells of the table without the ``others``, between ``lows`` and ``highs``."""

    others: tuple[int, ...]
    spread: float
    lows: Floats
    highs: Floats
    labels: NDArray[np.int32] | None

    def held(self, table: Floats) -> Floats:
        """The sums of a table."""
        if self.labels is None:
            return table.ravel()
        found = np.bincount(self.labels + 1, table.ravel(), len(self.lows) + 1)
        return found[1:].astype(np.float64)

    def over_cells(self, sums: Floats, shape: tuple[int, ...]) -> Floats:
        """For each cell its sum's number; the last is for cells in none."""
        cells = sums[:-1] if self.labels is None else sums[self.labels]
        return cells.reshape(shape)


@final
class CellsModel:
    """Positive numbers over the cells of a shape, with a fixed total."""

    def __init__(self, shape: Sequence[int], total: float) -> None:
        self.shape, self.total = tuple(shape), max(1.0, total)
        self._cells = np.full(self.shape, self.total / np.prod(self.shape))
        self._tables: list[_Sums] = []
        self._counts: list[tuple[NDArray[np.bool_], float, float]] = []

    @property
    def cells(self) -> Floats:
        """The model, flat."""
        return self._cells.reshape(-1)

    def learn_table(
        self,
        axes: Sequence[int],
        values: Floats,
        spread: float,
        labels: NDArray[np.int32] | None = None,
    ) -> None:
        """Each cell of the table over ``axes`` is within ± ``spread`` of its value.

        With ``labels``, each sum is: they say in which sum a cell counts, -1 for none.
        """
        others = tuple(axis for axis in range(len(self.shape)) if axis not in axes)
        least = _LEAST * self.total
        lows, highs = np.maximum(values - spread, 0), np.maximum(values + spread, least)
        self._tables.append(_Sums(others, spread, lows.ravel(), highs.ravel(), labels))

    def learn_count(self, mask: NDArray[np.bool_], low: float, high: float) -> None:
        """A set of cells, flat, counts from ``low`` to ``high``."""
        self._counts.append((mask.reshape(self.shape), max(low, 0.0), min(high, self.total)))

    def settle(self, first: int, sweeps: int) -> None:
        """Fit to all tables, then to ever sharper ones alone: where they contradict, these hold."""
        self.fit(first)
        for spread in sorted({each.spread for each in self._tables}, reverse=True)[1:]:
            self._tables = [each for each in self._tables if each.spread <= spread]
            self.fit(sweeps)

    def fit(self, sweeps: int) -> None:
        """Go through all that is known, so often or until nothing moves."""
        for _ in range(sweeps):
            moved = 0.0
            for each in self._tables:
                table = self._cells.sum(axis=each.others, keepdims=True)
                held = each.held(table)
                wanted = np.clip(held, each.lows, each.highs)
                moved += float(np.abs(wanted - held).sum())
                left = self.total - np.array([held.sum(), wanted.sum()])
                ratios = np.append(wanted, left[1]) / np.maximum(np.append(held, left[0]), _LEAST)
                self._cells = self._cells * each.over_cells(np.maximum(ratios, 0), table.shape)
            self._cells = self._cells * (self.total / self._cells.sum())
            for mask, low, high in self._counts:
                count = float(self._cells[mask].sum())
                nearest = min(max(count, low), high)
                if nearest != count:
                    moved += abs(nearest - count)
                    self._cells = projected(self._cells, mask, nearest)
            if moved < _LEAST * self.total:
                break


def cells_table(
    grid: Grid,
    cells: Floats,
    *,
    method: str,
    price: Price,
    words: tuple[str, ...],
    standing: Mapping[str, Any],
) -> TableRelease:
    """The numbers, in grains, as a table; ``standing`` is what every release states."""
    values = cells.reshape(grid.shape) * float(grid.grain)
    making = Making(
        method=method,
        options={},
        workload="cells",
        price=price,
        moved=grid.moved,
        grain=grid.grain,
        whole=grid.whole,
        signed=grid.signed,
    )
    return TableRelease(
        sql=grid.sql,
        axes=grid.axes,
        values=whole(values) if grid.whole else values,
        value=grid.value,
        making=making,
        words=(*words, *grid.caveats),
        **standing,
    )
