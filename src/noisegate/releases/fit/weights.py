"""A positive table that is changed by sums alone: cells that no question told apart move together.

The table is a start times one factor for each *atom*, a set of cells that all questions so far
treat alike. So a step costs as much as there are atoms, however many cells there are, and past
answers can be gone through again and again at almost no cost.

>>> table = Weights(np.ones(4))
>>> first = table.add(np.array([True, True, False, False]))
>>> table.project(first, 3.0)
>>> table.cells.tolist()
[1.5, 1.5, 0.5, 0.5]
"""

from collections.abc import Sequence
from math import exp
from typing import final

import numpy as np
from numpy.typing import NDArray

from noisegate.releases.cells.workload import Floats

_TINY = 1e-12  # of the total: no part becomes nothing, or it could never come back
_STEEP = 20.0  # the power of a step at most: targets of noise alone may be far beyond the total
_RANGE = 1e-30  # of the total: how far it may stray between two scalings, and the least part


def projected(table: Floats, inside: NDArray[np.bool_], target: float) -> Floats:
    """The nearest table, in relative entropy, that has ``target`` inside and keeps its total.

    Both sides are scaled. With p of the total inside, t wanted, and b the same part of another
    table B, KL(B ‖ table) changes by kl(b ‖ t) - kl(b ‖ p): it falls by at least
    kl(t ‖ p) ≥ 2 (t - p)² wherever t lies between p and b.
    """
    total, held = float(table.sum()), float(table[inside].sum())
    least = _TINY * total
    if not least <= held <= total - least:
        return table  # everything is inside, or nothing: no factor can change that
    wanted = min(max(target, least), total - least)
    return table * np.where(inside, wanted / held, (total - wanted) / (total - held))


@final
class Weights:
    """A table of positive numbers with a fixed total, and the questions that were added to it."""

    def __init__(self, start: Floats) -> None:
        self._start = np.maximum(np.asarray(start, np.float64), _TINY * float(start.sum()))
        self.total = float(self._start.sum())
        self._labels = np.zeros(self._start.size, np.int64)
        self._first = np.array([self.total])  # of each atom, at the start
        self._now = np.array([self.total])
        self._inside = np.zeros((0, 1), np.bool_)  # question × atom
        self._cells: Floats | None = self._start

    @property
    def cells(self) -> Floats:
        """The table."""
        if self._cells is None:
            self._cells = self._start * (self._now / self._first)[self._labels]
        return self._cells

    @property
    def questions(self) -> int:
        """How many questions were added."""
        return self._inside.shape[0]

    def add(self, mask: NDArray[np.bool_]) -> int:
        """Make a question known, by the cells that it counts; its number."""
        parts = 2 * self._labels + mask
        kinds, labels = np.unique(parts, return_inverse=True)
        parents = kinds // 2
        first = np.bincount(labels, self._start, kinds.size)
        self._now = self._now[parents] * first / self._first[parents]
        self._first, self._labels = first, labels
        self._inside = np.vstack([self._inside[:, parents], kinds % 2 == 1])
        return self.questions - 1

    def answer(self, question: int) -> float:
        """What a known question counts now."""
        return float(self._now[self._inside[question]].sum())

    def project(self, question: int, target: float) -> None:
        """The nearest table, in relative entropy, where the question counts ``target``."""
        self._now = projected(self._now, self._inside[question], target)
        self._cells = None

    def step(self, told: Sequence[tuple[int, float]], times: int = 1) -> None:
        """The textbook's step for each question and target in turn, all of them ``times`` times.

        Cells inside are multiplied by e^((target - answer) / 2n) [HLM12].
        Claim: KL(B ‖ table) falls by at least ((answer - b) / 2n)² - ((target - b) / 2n)², where b
            is what B, of the same total n, counts. Why: [HLM12, Lemma A.4].
        """
        now, part, whole = self._now.copy(), np.empty_like(self._now), self.total
        rows = self._inside.astype(np.float64)
        for _ in range(times):
            for question, target in told:
                inside, total = rows[question], float(np.add.reduce(now))
                if not _RANGE < total / whole < 1 / _RANGE:  # else it is scaled once a time
                    now *= whole / total
                    total = whole
                held = float(np.dot(inside, now)) * whole / total
                power = (target - held) / (2 * whole)
                grown = exp(min(max(power, -_STEEP), _STEEP)) - 1
                np.multiply(inside, now, out=part)
                np.multiply(part, grown, out=part)
                np.add(now, part, out=now)
            now *= whole / float(now.sum())
            np.maximum(now, _RANGE * whole, out=now)
        self._now, self._cells = now, None
