"""PrivTree: boxes are cut while they hold much, then the last boxes are counted [ZXX16]."""

from fractions import Fraction
from math import hypot, sqrt
from typing import ClassVar, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.frozen import dataclass
from noisegate.mechanisms.partitions.boxes import halves, single, whole
from noisegate.mechanisms.partitions.privtree import PrivTree as Chooser
from noisegate.mechanisms.partitions.privtree import cut_levels
from noisegate.releases.ask.asking import Ask, one_sum
from noisegate.releases.ask.shares import Law
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.spatial import Boxes, Level, fit, halved
from noisegate.releases.cells.workload import Ints, Workload
from noisegate.releases.recipes import Exact, require_parts
from noisegate.releases.recipes.spatial.quadtree import require_depth
from noisegate.releases.trees.levels import (
    cut_rms,
    estimate,
    last_shares,
    noise_rms,
    rehearsed,
)
from noisegate.transforms.strategy import Groups


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivTree(Exact):
    """``cuts`` is the share of the price for the tree; the rest is for the counts of its leaves.

    ``threshold``, ``depth`` and ``ratio`` are those of the mechanism.
    """

    name: ClassVar[str] = "privtree"
    cuts: Fraction = Fraction(1, 3)
    threshold: int = 0
    depth: int | None = None
    ratio: Fraction | None = None

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Cells to cut, and a share for both parts."""
        if np.prod(shape) < 2:
            raise SpecError(
                "The table has one cell, so there is nothing to split.", fix="Use method 'cells'."
            )
        require_depth(self.depth, len(cut_levels(tuple(shape))))
        if self.depth == 0:
            raise SpecError("depth allows no split.", fix="Use a depth of 1 or more.")
        require_parts(self.cuts)
        self._chooser(shape, Fraction(1))

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise of one leaf; and about what it is if all boxes are barely cut.

        Then the last boxes, or those above them, hold as much as boxes of their depth may without
        being cut, each in one place.
        """
        law, rest, most = Law.of(ask, self.cuts), 1 - self.cuts, 0.0
        epsilon = sqrt(law.amount) if law.gaussian else law.amount
        chooser = self._chooser(ask.shape, fraction(epsilon))
        for depth in (chooser.depth - 1, chooser.depth):
            boxes = halved(ask.shape, depth)
            held = max(0.0, chooser.threshold + depth * chooser.decay + float(chooser.scale))
            noise = noise_rms(rehearsed(ask, boxes, last_shares(boxes, rest)), workload)
            most = max(most, hypot(noise, held * cut_rms(boxes, workload)))
        words = "it is smaller the fewer rows there are, and the more evenly they lie inside boxes"
        least = sqrt(ask.variance(one_sum(ask.shape), rest))
        return Predicted(rms=None, words=words, most=most, noise=least)

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """One round for the tree and one for the counts."""
        flags = ask.choose(lambda epsilon: self._chooser(ask.shape, epsilon), self.cuts)
        boxes = grown(ask.shape, flags)
        leaves = np.flatnonzero(boxes.parts == 0)
        ask.done(1 / 2, f"{leaves.size} leaves")
        places = np.full(boxes.size, -1)
        places[leaves] = np.arange(leaves.size)
        labels = places[boxes.painted(leaves)].astype(np.int32)
        (noisy,) = ask.sums([Groups(labels, leaves.size)], [1 - self.cuts])
        numbers, variances = np.zeros(boxes.size), np.full(boxes.size, np.inf)
        numbers[leaves], variances[leaves] = noisy.values, noisy.variance
        ask.done(1, f"{leaves.size} leaves")
        tree = fit(boxes, numbers, variances)
        return estimate(tree, f"{leaves.size} boxes by PrivTree.")

    def _chooser(self, shape: tuple[int, ...], epsilon: Fraction) -> Chooser:
        return Chooser.for_epsilon(
            epsilon, shape=shape, threshold=self.threshold, depth=self.depth, ratio=self.ratio
        )


def grown(shape: tuple[int, ...], flags: Ints) -> Boxes:
    """The tree that the mechanism's flags stand for."""
    levels: list[Level] = []
    lows, highs = whole(shape)
    open_boxes, start = np.arange(1), 0
    alive = np.ones(1, np.bool_)
    for _, _, parents in cut_levels(tuple(shape)):
        here = flags[start : start + parents.size] > 0
        if not here.any():
            break
        # The boxes of this tree with more than one cell stand in the same order in the full one.
        cut = open_boxes[here[alive[parents]]]
        part_lows, part_highs, whose = halves(lows[cut], highs[cut])
        levels.append((part_lows, part_highs, cut[whose]))
        lows, highs = part_lows, part_highs
        open_boxes = np.flatnonzero(~single(lows, highs))
        alive, start = here, start + parents.size
    return Boxes.of(shape, levels)
