"""PrivTree: which boxes of a table to cut, and their parts, until little is left in them.

Boxes are halved as in `boxes.halves`, down to single cells. A box at depth k that holds c is cut if
max(threshold - decay, c - k · decay) plus noise is above the threshold. What is released is the
tree alone.

>>> tree = PrivTree.for_epsilon(1, shape=(8, 8))
>>> tree.scale, tree.decay, tree.event(L1(1)).epsilon <= 1
(Fraction(69, 32), 3, True)
>>> tree.sample(np.full(64, 1000)).tolist() == [1] * 21
True
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, log
from typing import ClassVar, Final, TypeAlias, final

import numpy as np

from noisegate.exact import Number, Real, positive, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.partitions import boxes
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, discrete_laplace
from noisegate.privacy.distance import L1
from noisegate.privacy.event import DeclaredEvent
from noisegate.transforms.query import Query

Level: TypeAlias = tuple[Int64Array, Int64Array, Int64Array]
STEP_MAX: Final = 1 << 45


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivTree(base.Repeatable[L1]):
    """A tree of halved boxes, down to ``depth`` cuts; empty regions are cut rarely."""

    name: ClassVar[str] = "privtree/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    scale: Fraction
    decay: int
    threshold: int
    depth: int
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        base.require_whole(self, "decay", least=1, most=STEP_MAX)
        base.require_whole(self, "threshold", least=-STEP_MAX, most=STEP_MAX)
        base.require_whole(self, "depth", least=1, most=64)
        base.store(self, "shape", boxes.checked_shape(self.shape))

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        shape: Sequence[int],
        threshold: int = 0,
        depth: int | None = None,
        ratio: Number | None = None,
    ) -> "PrivTree":
        """About the least noise whose event costs at most ``epsilon`` where cells move by 1 in L1.

        ``ratio`` is decay / scale; by default ln β for β parts of a box, as in [ZXX16].
        """
        price, sizes = positive(epsilon, name="epsilon"), boxes.checked_shape(shape)
        parts = 1 << max(1, sum(size > 1 for size in sizes))
        fall = Fraction(log(parts)) if ratio is None else positive(ratio, name="ratio")
        cuts = max(1, len(cut_levels(sizes))) if depth is None else depth
        # In steps of a 32nd up to what is surely enough: 2 + 1 / (e^fall - 1), over ε.
        unit = 1 / (32 * price)
        most = ceil(upper(lambda: 64 + 32 / real(fall).expm1())) + 1
        enough = (
            steps
            for steps in range(32, most + 1)
            if path_loss(steps * unit, _decay(fall, steps * unit), cuts) <= price
        )
        scale = next(enough) * unit
        return cls(scale=scale, decay=_decay(fall, scale), threshold=threshold, depth=cuts,
                   shape=sizes)  # fmt: skip

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """The cells of one sum, as a table of this shape."""
        boxes.require_table(query, self.shape)

    def event(self, sensitivity: L1, /) -> DeclaredEvent:
        """What releasing the tree is.

        Claim: s · ε₁-differentially private for cells of L1 sensitivity s, where
            ε₁ = 1/scale + Σ_j<depth-1 gain(j · decay), gain(x) = ln(1 + (1-α) α^x / (1+α-α^x)).
        Adjacency: that of ``sensitivity``.
        Why: [ZXX16, Thm 3.1] on whole numbers. Cells below 0 count as 0, so a box holds no more
            than the box around it. Let one cell grow by 1. Only boxes on the path to that cell
            notice. Write x = b - threshold for such a box; b rises by 0 or 1. Cut it is with
            probability α^(1-x) / (1+α) for x ≤ 0, else 1 - α^x / (1+α); so a cut box becomes
            likelier by 1/scale at most, by gain(x) for x ≥ 0, which falls in x. Boxes that notice
            have x ≥ -decay, and each is `decay` or more above the next one down the path: at most
            one has x < 0, and the others have x ≥ 0, decay, 2 decay, … At most ``depth`` boxes of
            a path can be cut. The one box of the path that is not cut becomes less likely only,
            by 1/scale at most; that bounds the other direction. A change of s steps of 1 is s times
            that. Rounding: up.
        """
        return DeclaredEvent(
            epsilon=sensitivity.value * path_loss(self.scale, self.decay, self.depth)
        )

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """1 for each box that is cut, 0 for others, for the boxes of `cut_levels` in order.

        A box of a part that was not cut is never cut. Noise is drawn for all boxes, always.
        """
        sums = boxes.summed(base.clamped(exact), self.shape, least=0)
        cut, above = [np.empty((count, 0), np.bool_)], np.ones((count, 1), np.bool_)
        for depth, (lows, highs, parents) in enumerate(cut_levels(self.shape)[: self.depth]):
            held = boxes.box_sums(sums, lows, highs)
            score = np.maximum(held - depth * self.decay, self.threshold - self.decay)
            noise = discrete_laplace(self.scale, (count, held.size), bits=bits)
            above = above[:, parents] & (score + noise > self.threshold)
            cut.append(above)
        return np.concatenate(cut, axis=1).astype(np.int64)


def path_loss(scale: Fraction, decay: int, cuts: int) -> Fraction:
    """ε₁ of the claim, rounded up."""

    def compute() -> Real:
        alpha = (-real(1 / scale)).exp()
        total = real(1 / scale)
        for j in range(cuts - 1):
            power = (-real(j * decay / scale)).exp()
            total += ((1 - alpha) * power / (1 + alpha - power)).log1p()
        return total

    return upper(compute)


@lru_cache(maxsize=8)
def cut_levels(shape: tuple[int, ...]) -> tuple[Level, ...]:
    """All boxes of more than one cell, by depth: lows, highs, and whose parts they are.

    The last are places in the level above; the box at the top stands for its own.
    """
    lows, highs = boxes.whole(shape)
    levels: list[Level] = []
    parents, large = np.zeros(1, np.int64), ~boxes.single(lows, highs)
    while large.any():
        level = lows[large], highs[large], parents[large]
        for array in level:
            array.flags.writeable = False
        levels.append(level)
        lows, highs, parents = boxes.halves(level[0], level[1])
        large = ~boxes.single(lows, highs)
    return tuple(levels)


def _decay(ratio: Fraction, scale: Fraction) -> int:
    return max(1, ceil(ratio * scale))
