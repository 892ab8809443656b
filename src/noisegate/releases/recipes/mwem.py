"""Multiplicative weights for a workload of boxes: for few questions at a small ε."""

from dataclasses import dataclass
from fractions import Fraction
from math import prod, sqrt
from typing import ClassVar, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.releases.asking import Ask
from noisegate.releases.estimate import Estimate, Predicted
from noisegate.releases.levels import noise_only
from noisegate.releases.multiplicative import REPLAYS, ROUNDS_MAX, TOTAL_SHARE, build
from noisegate.releases.recipes.above import ENTRIES_MAX, boxes_matrix
from noisegate.releases.recipes.tree import require_same
from noisegate.releases.workload import Workload
from noisegate.transforms.strategy import Groups


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
                f"The workload speaks of more than {ENTRIES_MAX:,} cells together.",
                fix="Give fewer or smaller ranges, or use another method.",
            )
        if self.rounds is not None and (
            type(self.rounds) is not int or not 1 <= self.rounds <= ROUNDS_MAX
        ):
            raise SpecError("The rounds are no count.", fix=f"Use 1 to {ROUNDS_MAX}.")
        if type(self.replays) is not int or not 0 <= self.replays <= ROUNDS_MAX:
            raise SpecError("The replays are no count.", fix=f"Use 0 to {ROUNDS_MAX}.")
        if self.total is not None and not self.total > 0:
            raise SpecError("The total is not above 0.", fix="Leave it out, or give a count.")

    def predict(self, ask: Ask, workload: Workload) -> Predicted:  # noqa: ARG002 - unknown
        """The noise of one measured question, of as many as there are at least."""
        left = 1 if self.total is not None else 1 - TOTAL_SHARE
        one = Groups(np.zeros(prod(ask.shape), np.int32), 1)
        rms = sqrt(ask.variance(one, Fraction(left) / (2 * (self.rounds or 1))))
        return noise_only(rms, "the rows, which decide what is measured")

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """As many rounds as were asked for, or as the proven bound likes best."""
        return build(
            ask,
            boxes_matrix(workload),
            rounds=self.rounds,
            total=self.total,
            replays=self.replays,
            average=self.average,
        )
