"""Classes by the side of the middle that their rows lie on: what a small price lets us see.

A coordinate counts as 1 above the middle of its bounds, and as -1 below. Most coordinates lie well
within their bounds, so sums of sides tell classes apart better than sums of coordinates, at the
same noise. In a pure account noise grows with the number of columns: so many are asked about as
tell classes apart best, chosen by public coins. How many rows a class has is told beside, by the
same draw. Trees are grown at no cost on rows made up from that.
"""

from fractions import Fraction
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.learners.trees.growing import Tree, grown
from noisegate.learners.trees.normal_classes import CAUTION, Normals, drawn_means, even_counts
from noisegate.releases.cells.chance import Coins
from noisegate.transforms.statistics.features import Sides
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey

_APART: Final = 0.3  # the variance of how classes lean: a guess
_FEWEST: Final = 4  # columns
_MOST: Final = 0.98  # that a class leans
_ANYWHERE: Final = 1 / 3  # the variance of coordinates that lie anywhere


@final
@dataclass(frozen=True, slots=True, eq=False)
class Leanings:
    """About how many rows each class has, and how many more lie above the middle than below.

    ``means``, of shape (classes, columns), go from -1 (all below) to 1 (all above); ``noise`` is
    the variance of the noise that is left in those of each class.
    """

    counts: Floats
    columns: tuple[int, ...]
    means: Floats
    noise: Floats

    @classmethod
    def of(cls, ask: RowsAsk, share: Fraction, rows: float, coins: Coins) -> "Leanings":
        """Of about so many rows."""
        size = _size(ask, share, rows)
        columns = tuple(sorted(coins.choice(ask.columns, size, replace=False).tolist()))
        (told,) = ask.totals(Statistic(ByKey(), (Sides(columns),)), [share])
        seen, sums = (NoisySums(part, told.variance) for part in np.split(told.values, [1], axis=1))
        counts = even_counts(seen, caution=CAUTION, rows=rows)
        means, noise = drawn_means(sums, counts, 0.0, 1)
        return cls(counts, columns, np.clip(means, -_MOST, _MOST), noise)

    def grown(self, made: int, levels: int, least: int, coins: Coins) -> Tree:
        """A tree with cuts at middles, grown on so many rows made up."""
        shares = self.counts / self.counts.sum()
        labels = np.repeat(np.arange(len(shares)), coins.multinomial(made, shares))
        above = coins.random((made, len(self.columns))) < (1 + self.means[labels]) / 2
        rows = above.astype(np.int64)  # 0 is the last place below, 1 the first above
        nodes = grown(Tree.root(), rows, labels, levels=levels, least=least).nodes
        inner = nodes[:, 0] >= 0
        nodes[inner, 0] = np.array(self.columns)[nodes[inner, 0]]
        return Tree(nodes)

    def within(self, tree: Tree, columns: int, reach: int) -> Floats:
        """About how many rows of each class are in each leaf of such a tree, (leaves, classes)."""
        low, high = (each[:, self.columns] for each in tree.boxes(columns, reach))
        side = ((low > 0).astype(np.int64) - (high <= 0))[:, None]
        parts = np.where(side == 0, 1.0, (1 + side * self.means) / 2)
        found: Floats = self.counts * parts.prod(axis=2)
        return found

    def normals(self, tree: Tree, columns: int, reach: int) -> Normals:
        """The leaves of such a tree, in which classes are alike but for their numbers."""
        counts = self.within(tree, columns, reach)
        means = np.zeros((*counts.shape, columns))
        noise = np.broadcast_to(self.noise, counts.shape)
        return Normals(counts, means, np.full_like(means, _ANYWHERE), noise)


def _size(ask: RowsAsk, share: Fraction, rows: float) -> int:
    """How many columns tell classes apart best: see `chosen_columns`."""

    def worth(size: int) -> float:
        question = Statistic(ByKey(), (Sides(tuple(range(size))),))
        (noise,) = ask.variance(question, [share])
        return size / (_APART + noise / (rows / ask.classes) ** 2)

    return max(range(min(_FEWEST, ask.columns), ask.columns + 1), key=worth)
