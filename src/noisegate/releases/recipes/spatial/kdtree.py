"""Boxes cut in two at private medians, so that each side holds about as much [CPSSY12]."""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.partitions.boxes import halves, single, whole
from noisegate.mechanisms.partitions.splits import Splits
from noisegate.releases.ask.asking import Ask
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.spatial import Boxes, Level
from noisegate.releases.cells.workload import Ints, Workload
from noisegate.releases.recipes import Exact, require_parts
from noisegate.releases.recipes.spatial.quadtree import require_depth
from noisegate.releases.trees.levels import (
    estimate,
    level_shares,
    measured,
    noise_only,
    noise_rms,
    rehearsed,
)

_CUTS: Final = 12
_MOST: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Medians(Exact):
    depth: int | None = None
    medians: Fraction = Fraction(3, 10)
    prune: float | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KdTree(_Medians):
    """``depth`` levels of cuts at private medians, each along the longest side; by default 12.

    ``medians`` is the share of the price for the cuts, alike for each level; the rest is for the
    counts. ``prune`` is as for the quadtree.
    """

    name: ClassVar[str] = "kdtree"

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Cells to cut, and a share for both parts."""
        require_medians(shape, self._cuts(shape), self.medians)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise of the same tree cut in the middle."""
        return _predict(ask, workload, middles(ask.shape, self._cuts(ask.shape)), self.medians)

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round for each level of cuts, and one for all counts."""
        levels = cut_at_medians(ask, self._cuts(ask.shape), self.medians)
        return _build(ask, workload, levels, self)

    def _cuts(self, shape: tuple[int, ...]) -> int:
        return len(middles(shape, _CUTS)) if self.depth is None else self.depth


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(_Medians):
    """Cuts at private medians for the first ``cuts`` levels, then halves down to single cells.

    ``depth`` limits the halvings; the rest is as for the kd-tree.
    """

    name: ClassVar[str] = "hybrid"
    cuts: int = 4

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:  # noqa: ARG002
        """Cells to cut, and a share for both parts."""
        require_medians(shape, self.cuts, self.medians)
        require_depth(self.depth, 64)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise of the same tree cut in the middle."""
        levels = with_halves(middles(ask.shape, self.cuts), self.depth)
        return _predict(ask, workload, levels, self.medians)

    def build(self, ask: Ask, workload: Workload) -> Estimate:
        """One round for each level of cuts, and one for all counts."""
        levels = with_halves(cut_at_medians(ask, self.cuts, self.medians), self.depth)
        return _build(ask, workload, levels, self)


def require_medians(shape: tuple[int, ...], cuts: int, medians: Fraction) -> None:
    """Refuse cuts that are not there, or cost nothing, or leave nothing for counts."""
    most = len(middles(shape, _MOST))
    if type(cuts) is not int or not 1 <= cuts <= most:
        fix = f"Use 1 to {most} levels of cuts." if most else "Use method 'cells' for one cell."
        raise SpecError("The table cannot be split that often.", fix=fix)
    require_parts(medians)


def cut_at_medians(ask: Ask, cuts: int, medians: Fraction) -> list[Level]:
    """The levels below the whole; each is one private choice of all its cuts."""
    levels: list[Level] = []
    lows, highs = whole(ask.shape)
    for number in range(cuts):
        open_boxes = np.flatnonzero(~single(lows, highs))
        if not open_boxes.size:
            break
        axes = np.argmax(highs - lows, axis=1)
        table = np.column_stack([lows, highs, axes])[open_boxes]
        chosen = ask.choose(
            lambda epsilon, table=table: Splits.for_epsilon(  # type: ignore[misc]
                epsilon, shape=ask.shape, boxes=table.tolist()
            ),
            medians / cuts,
        )
        upper = lows[np.arange(axes.size), axes].copy()
        upper[open_boxes] = chosen
        lows, highs, parents = cut(lows, highs, axes, upper)
        levels.append((lows, highs, parents))
        ask.done((number + 1) / (cuts + 1), f"{lows.shape[0]} boxes")
    return levels


def middles(shape: tuple[int, ...], cuts: int) -> list[Level]:
    """The same levels, cut in the middle."""
    levels: list[Level] = []
    lows, highs = whole(shape)
    while len(levels) < cuts and not single(lows, highs).all():
        axes = np.argmax(highs - lows, axis=1)
        along = np.arange(axes.size), axes
        upper = np.where(
            highs[along] > lows[along], (lows[along] + highs[along]) // 2 + 1, lows[along]
        )
        lows, highs, parents = cut(lows, highs, axes, upper)
        levels.append((lows, highs, parents))
    return levels


def cut(lows: Ints, highs: Ints, axes: Ints, upper: Ints) -> Level:
    """Both sides of each box; a box whose upper side would be all of it is handed down whole."""
    along = np.arange(axes.size), axes
    whole_box = upper <= lows[along]
    left_high, right_low = highs.copy(), lows.copy()
    left_high[along] = np.where(whole_box, highs[along], upper - 1)
    right_low[along] = upper
    order = np.argsort(np.concatenate([along[0], along[0][~whole_box]]), kind="stable")
    parents = np.concatenate([along[0], along[0][~whole_box]])[order]
    low = np.vstack([lows, right_low[~whole_box]])[order]
    high = np.vstack([left_high, highs[~whole_box]])[order]
    return low, high, parents


def with_halves(levels: list[Level], depth: int | None) -> list[Level]:
    """More levels by halving, down to single cells."""
    found = list(levels)
    lows, highs = levels[-1][:2]
    while (depth is None or len(found) < len(levels) + depth) and not single(lows, highs).all():
        lows, highs, parents = halves(lows, highs)
        found.append((lows, highs, parents))
    return found


def _predict(ask: Ask, workload: Workload, levels: list[Level], medians: Fraction) -> Predicted:
    boxes = Boxes.of(ask.shape, levels)
    shares = level_shares(boxes, workload, 1 - medians, gaussian=ask.gaussian)
    rms = noise_rms(rehearsed(ask, boxes, shares), workload)
    return noise_only(rms, "where the medians are and how evenly rows lie inside the last boxes")


def _build(ask: Ask, workload: Workload, levels: list[Level], recipe: _Medians) -> Estimate:
    boxes = Boxes.of(ask.shape, levels)
    shares = level_shares(boxes, workload, 1 - recipe.medians, gaussian=ask.gaussian)
    tree = measured(ask, boxes, shares)
    ask.done(1, f"{boxes.size} boxes")
    tree = tree if recipe.prune is None else tree.pruned(recipe.prune)
    # Boxes end where rows thin out, on the same side everywhere: no model foresees that.
    return replace(estimate(tree), between=tree.between)
