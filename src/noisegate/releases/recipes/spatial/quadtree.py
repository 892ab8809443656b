"""Boxes halved along all axes, again and again, and the counts of every level [CPSSY12]."""

from fractions import Fraction
from typing import ClassVar, final

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.spatial import Boxes, halved
from noisegate.releases.cells.workload import Workload
from noisegate.releases.trees.levels import (
    estimate,
    level_shares,
    measured,
    noise_only,
    noise_rms,
    rehearsed,
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Quadtree:
    """A tree with 2^d parts of each box in d dimensions, over cells that are known beforehand.

    ``depth`` levels below the whole, by default down to single cells; parts of boxes that
    hold less than ``prune`` are cut off.
    """

    name: ClassVar[str] = "quadtree"
    depth: int | None = None
    prune: float | None = None

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Any cells; the levels must exist."""
        require_depth(self.depth, len(halved(shape, None).starts) - 2)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """Exact for least squares down to single cells."""
        boxes = halved(ask.shape, self.depth)
        tree = rehearsed(ask, boxes, _shares(ask, boxes, workload))
        rms = noise_rms(tree, workload)
        if self.prune is not None or tree.boxes.volumes[tree.leaves].max() > 1:
            return noise_only(rms, "how evenly rows lie inside boxes that are not cut further")
        return Predicted(rms=rms, words="by least squares")

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round."""
        boxes = halved(ask.shape, self.depth)
        tree = measured(ask, boxes, _shares(ask, boxes, workload))
        ask.done(1, f"{boxes.size} boxes")
        tree = tree if self.prune is None else tree.pruned(self.prune)
        return estimate(tree)


def require_depth(depth: int | None, most: int) -> None:
    """Refuse levels that are not there."""
    if depth is not None and (type(depth) is not int or not 0 <= depth <= most):
        raise SpecError(
            "The table does not have that many levels.",
            fix=f"Use a whole depth from 0 to {most}, or leave it out.",
        )


def _shares(ask: Ask, boxes: Boxes, workload: Workload) -> list[Fraction]:
    return level_shares(boxes, workload, Fraction(1), gaussian=ask.gaussian)
