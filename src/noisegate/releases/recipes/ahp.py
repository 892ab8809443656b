"""Cells that look alike, wherever they are, share one sum: best for cells with few values."""

from fractions import Fraction
from math import log, prod, sqrt
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask, each_cell
from noisegate.releases.ask.shares import Law
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.workload import Floats, Workload
from noisegate.releases.recipes import Exact, require_parts, require_same
from noisegate.transforms.strategy import Groups

CELLS_MAX: Final = 1 << 22
_SMALL: Final = 0.35  # cells below this, times the largest noise to be expected, count as empty


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ahp(Exact):
    """AHP [ZCXMX14]: noisy cells are clustered by size, then the clusters are measured.

    ``look`` is the share of the price for the noisy cells. Any number of axes.
    """

    name: ClassVar[str] = "ahp"
    look: Fraction = Fraction(17, 20)

    def require(self, shape: tuple[int, ...], workload: Workload) -> None:
        """Not too many cells."""
        require_same(shape, workload, cells=CELLS_MAX)
        require_parts(self.look)

    def predict(self, ask: Ask, workload: Workload) -> Predicted:
        """The noise if each cell is a cluster of its own; merging is for cells that look alike."""
        variance = ask.variance(each_cell(ask.shape), 1 - self.look)
        sizes = np.prod(workload.highs - workload.lows + 1, axis=1)
        words = "it is smaller the more cells hold similar counts"
        return Predicted(rms=None, words=words, most=sqrt(variance * float(sizes.mean())))

    def build(self, ask: Ask, workload: Workload) -> Estimate:  # noqa: ARG002
        """Two rounds: all cells, and the clusters."""
        look = self.look
        ask.done(0.1, "looking at the cells")
        (first,) = ask.sums([each_cell(ask.shape)], [look])
        seen = first.values.astype(np.float64)
        small = _SMALL * log(max(2, prod(ask.shape))) * sqrt(first.variance / 2)
        seen[seen <= small] = 0.0
        ask.done(0.4, "clustering")
        labels = clusters(seen, 1 / Law.of(ask, 1 - look).weight(1.0))
        count = int(labels.max()) + 1
        (sums,) = ask.sums([Groups(labels, count)], [1 - look])
        means = sums.values / np.bincount(labels, minlength=count)
        words = (f"{count} clusters of similar cells",)
        return Estimate(means[labels].reshape(ask.shape), None, words)


def clusters(seen: Floats, variance: float) -> NDArray[np.int32]:
    """A label for each value: neighbours by size are merged while that is expected to help.

    A cluster of k values costs its sum of squares around the mean, plus variance / k for the noise
    of its sum. From the largest value down, the next one joins if that costs less than a new start.
    """
    order = np.argsort(-seen, kind="stable")
    labels = np.empty(seen.size, np.int32)
    label, count, total, squares = 0, 0, 0.0, 0.0
    last = int(np.count_nonzero(seen))  # the rest look empty: one cluster
    for place, value in zip(order[:last].tolist(), seen[order[:last]].tolist(), strict=True):
        if count:
            spread = squares - total * total / count
            joined = squares + value * value - (total + value) ** 2 / (count + 1)
            if joined + variance / (count + 1) > spread + variance / count + variance:
                label, count, total, squares = label + 1, 0, 0.0, 0.0
        count, total, squares = count + 1, total + value, squares + value * value
        labels[place] = label
    labels[order[last:]] = label + 1 if last else 0
    return labels
