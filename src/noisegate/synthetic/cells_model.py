"""A model of all cells of a grid, fitted to what is known of it: tables, and counts of sets.

What is known are intervals: a cell of a table, or a count, lies between two numbers. The model goes
from one to the next and takes the nearest table, in relative entropy, that keeps it. Wherever the
exact table keeps it too, no such step leads away from it: KL(exact ‖ model) never grows (Pythagoras
for projections on convex sets), and a step over a distance d falls it by at least 2 (d / total)².
"""

from collections.abc import Sequence
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.releases.estimate import Floats
from noisegate.releases.weights import projected

_LEAST: Final = 1e-9  # of the total: what a table's cell is at least, or it could never come back


@final
class CellsModel:
    """Positive numbers over the cells of a shape, with a fixed total."""

    def __init__(self, shape: Sequence[int], total: float) -> None:
        self.shape, self.total = tuple(shape), max(1.0, total)
        self._cells = np.full(self.shape, self.total / np.prod(self.shape))
        self._tables: list[tuple[tuple[int, ...], Floats, Floats]] = []
        self._counts: list[tuple[NDArray[np.bool_], float, float]] = []

    @property
    def cells(self) -> Floats:
        """The model, flat."""
        return self._cells.reshape(-1)

    def learn_table(self, axes: Sequence[int], values: Floats, spread: float) -> None:
        """Each cell of the table over ``axes`` is within ± ``spread`` of its value."""
        sizes = [size if axis in axes else 1 for axis, size in enumerate(self.shape)]
        others = tuple(axis for axis in range(len(self.shape)) if axis not in axes)
        exact = values.reshape(sizes)
        least = _LEAST * self.total
        lows, highs = np.maximum(exact - spread, 0), np.maximum(exact + spread, least)
        self._tables.append((others, lows, highs))

    def learn_count(self, mask: NDArray[np.bool_], low: float, high: float) -> None:
        """A set of cells, flat, counts from ``low`` to ``high``."""
        self._counts.append((mask.reshape(self.shape), max(low, 0.0), min(high, self.total)))

    def fit(self, sweeps: int) -> None:
        """Go through all that is known, so often or until nothing moves."""
        for _ in range(sweeps):
            moved = 0.0
            for others, lows, highs in self._tables:
                held = self._cells.sum(axis=others, keepdims=True)
                wanted = np.clip(held, lows, highs)
                moved += float(np.abs(wanted - held).sum())
                self._cells = self._cells * (wanted / np.maximum(held, _LEAST))
            self._cells = self._cells * (self.total / self._cells.sum())
            for mask, low, high in self._counts:
                held = float(self._cells[mask].sum())
                wanted = min(max(held, low), high)
                if wanted != held:
                    moved += abs(wanted - held)
                    self._cells = projected(self._cells, mask, wanted)
            if moved < _LEAST * self.total:
                break
