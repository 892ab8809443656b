"""Multiplicative weights for a workload of boxes: for few questions at a small ε.

How far a box is off follows from the rounds themselves, see `multiplicative`: as far as the last
differences, and less where few rows are. That is for boxes of the workload, and for those between
two of them that differ by less than that.
"""

from collections.abc import Callable
from fractions import Fraction
from math import prod, sqrt
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask, one_sum
from noisegate.releases.cells.estimate import Estimate, Guess, Predicted
from noisegate.releases.cells.workload import ENTRIES_MAX, Floats, Ints, Workload, boxes_matrix
from noisegate.releases.fit.multiplicative import (
    REPLAYS,
    ROUNDS_MAX,
    TOTAL_SHARE,
    FittedTable,
    best_rounds,
    build,
)
from noisegate.releases.recipes import require_same
from noisegate.releases.trees.levels import evenly, noise_only

_ROWS: Final = (10_000, 1_000_000)
_EVEN: Final = 0.05  # of the total may be anywhere
_KNOWN_MOST: Final = 2000  # boxes of a workload that others are compared with
_AT_ONCE: Final = 1 << 22
_SURE: Final = 1 << 10  # what allows for luck counts as seen so often


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mwem:
    """Asks, round by round, the box that the table has worst [HLM12]."""

    name: ClassVar[str] = "mwem"
    rounds: int | None = None
    total: float | None = None
    replays: int = REPLAYS
    average: bool = False

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Boxes that can be listed, and rounds that end."""
        require_same(shape, workload)
        sizes = np.prod(workload.highs - workload.lows + 1, axis=1)
        if int(sizes.sum()) > ENTRIES_MAX:
            raise SpecError(
                f"The workload covers more than {ENTRIES_MAX:,} cells in total.",
                fix="Give fewer or smaller ranges, or use another method.",
            )
        if self.rounds is not None and (
            type(self.rounds) is not int or not 1 <= self.rounds <= ROUNDS_MAX
        ):
            raise SpecError("rounds is not a valid count.", fix=f"Use 1 to {ROUNDS_MAX}.")
        if type(self.replays) is not int or not 0 <= self.replays <= ROUNDS_MAX:
            raise SpecError("replays is not a valid count.", fix=f"Use 0 to {ROUNDS_MAX}.")
        if self.total is not None and not self.total > 0:
            raise SpecError("The total is not above 0.", fix="Leave it out, or give a count.")

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise of one measured question; without a total, about that of some tables."""
        left = Fraction(1) if self.total is not None else 1 - TOTAL_SHARE
        one = one_sum(ask.shape)

        def noise(total: float) -> float:
            times = self.rounds or best_rounds(ask, workload.size, one.cells, total, left)
            return sqrt(ask.variance(one, left / (2 * times)))

        if self.rounds or self.total is not None:
            return noise_only(noise(self.total or 1), "the rows, which decide what is measured")
        one_row = float(ask.moved)
        parts = ((rows, noise(rows * one_row) / (rows * one_row)) for rows in _ROWS)
        some = " or ".join(f"{100 * part:.2g} % of {rows:,} rows" for rows, part in parts)
        return Predicted(rms=None, words=f"about {some}, at the root mean square", noise=noise(1))

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """As many rounds as were asked for, or as the proven bound likes best."""
        fitted = build(
            ask,
            boxes_matrix(workload),
            rounds=self.rounds,
            total=self.total,
            replays=self.replays,
            average=self.average,
        )
        return Estimate(fitted.cells, words=fitted.words, guess=_around(fitted, workload))


def _around(fitted: FittedTable, workload: Workload) -> Callable[[Ints, Ints], Guess]:
    """What a table says of boxes: as many rows as it is off, or fewer, may be elsewhere."""
    shape, total, off = workload.shape, float(fitted.cells.sum()), max(fitted.off, 1e-9)
    known = Workload(shape, *evenly(workload, _KNOWN_MOST), "compared with")
    held, names = known.answers(fitted.cells), _names(shape, workload.lows, workload.highs)

    def guess(lows: Ints, highs: Ints) -> Guess:
        sums = Workload(shape, lows, highs, "boxes").answers(fitted.cells)
        sums = np.clip(sums, 0, total)
        likely = sums + _EVEN * total * np.prod(highs - lows + 1, axis=1) / prod(shape)
        variance = off**2 * likely / (likely + off) + fitted.noise * (sums / total) ** 2
        strange = np.flatnonzero(~np.isin(_names(shape, lows, highs), names))
        more = _between(known, held, lows[strange], highs[strange])
        variance[strange] += np.where(more < off, more**2, np.inf)
        return Guess(sums, np.sqrt(variance), _SURE)

    return guess


def _names(shape: tuple[int, ...], lows: Ints, highs: Ints) -> Ints:
    """A number for each box."""
    low, high = (np.ravel_multi_index(tuple(ends.T), shape) for ends in (lows, highs))
    found: Ints = low * prod(shape) + high
    return found


def _between(known: Workload, held: Floats, lows: Ints, highs: Ints) -> Floats:
    """How much more the least known box around each box holds than the most inside it."""
    found = np.empty(lows.shape[0])
    step = max(1, _AT_ONCE // known.size)
    for at in range(0, lows.shape[0], step):
        low, high = lows[at : at + step, None], highs[at : at + step, None]
        inside = ((known.lows >= low) & (known.highs <= high)).all(axis=2)
        around = ((known.lows <= low) & (known.highs >= high)).all(axis=2)
        least = np.where(inside, held, 0).max(axis=1)
        found[at : at + step] = np.where(around, held, np.inf).min(axis=1) - least
    return found
