"""Classes in the leaves of public trees: made up from what is known, corrected by noisy sums.

Rows are made up from what was learnt before, as many as one likes, at no cost. Trees grow on
them, and what they say about a leaf is the guess that noisy sums of the leaf's real rows correct:
by as much as noise does not explain.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.noisy_sums import for_means
from noisegate.learners.trees.growing import Tree, Whole
from noisegate.learners.trees.normal_classes import LEAST, Normals, noise_of_means
from noisegate.releases.cells.chance import Coins
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Leaves

_BESIDE: Final = 5.0  # rows as before that stand beside those of a class in a leaf
_OFF: Final = 0.05  # a guess is off by at least so much of a noisy count's variance
_FEWEST: Final = 0.5  # rows of a class in a leaf


@final
@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """Made-up rows on the grid, their classes, and what they were made from."""

    rows: Whole
    labels: Whole
    origin: Tree
    source: Normals

    @classmethod
    def of(cls, normals: Normals, tree: Tree, size: int, reach: int, coins: Coins) -> "Made":
        """So many rows, normal in every leaf and class, inside the leaf."""
        weights = (normals.counts / normals.counts.sum()).reshape(-1)
        cells = np.repeat(np.arange(len(weights)), coins.multinomial(size, weights))
        leaves, labels = np.divmod(cells, normals.counts.shape[1])
        certain = normals.variances - normals.noise[:, :, None]
        spread = np.sqrt(np.maximum(certain, LEAST))[leaves, labels]
        rows = normals.means[leaves, labels] + coins.normal(size=spread.shape) * spread
        low, high = tree.boxes(spread.shape[1], reach)
        whole = np.rint(rows * reach).astype(np.int64)
        return cls(np.clip(whole, low[leaves], high[leaves]), labels, tree, normals)

    def described(self, tree: Tree, reach: int) -> Normals:
        """What they say about the leaves of a tree that grew from theirs.

        A class with few of them in a leaf is where it was before, moved into the leaf.
        """
        classes = self.source.counts.shape[1]
        counts = self._counts(tree, classes)
        cells = tree.places(self.rows) * classes + self.labels
        shape = (tree.size, classes, self.rows.shape[1])
        low, high = tree.boxes(shape[2], reach)
        before = self.origin.places(low)
        usual = np.clip(self.source.means[before], low[:, None] / reach, high[:, None] / reach)
        spread = self.source.variances[before]
        scaled, beside = self.rows / reach, (counts + _BESIDE)[:, :, None]
        means = (_sums(scaled, cells, shape) + _BESIDE * usual) / beside
        lengths = (_sums(scaled**2, cells, shape) + _BESIDE * (usual**2 + spread)) / beside
        each = counts * self.source.counts.sum() / len(self.rows)
        variances = np.maximum(lengths - means**2, LEAST)
        return Normals(each, means, variances, np.zeros_like(each))

    def _counts(self, tree: Tree, classes: int) -> Floats:
        cells = tree.places(self.rows) * classes + self.labels
        held = np.bincount(cells, minlength=tree.size * classes)
        return np.asarray(held.reshape(tree.size, classes), np.float64)


def _sums(held: Floats, cells: Whole, shape: tuple[int, int, int]) -> Floats:
    size = shape[0] * shape[1]
    columns = [np.bincount(cells, column, size).astype(np.float64) for column in held.T]
    return np.stack(columns, axis=1).reshape(shape)


def measured(
    ask: RowsAsk, trees: Sequence[Tree], guesses: Sequence[Normals], share: Fraction
) -> list[Normals]:
    """The guesses about the leaves of each tree, corrected by noisy counts and sums.

    A row is in one leaf of each tree, so several trees have so much more noise.
    """
    leaves = Leaves(tuple(tree.numbers() for tree in trees), keyed=True)
    counts, sums = ask.totals(Statistic(leaves, (One(), Linear())), for_means(ask, share))
    shape = (-1, ask.classes, ask.columns)
    ends = np.cumsum([tree.size for tree in trees])[:-1]
    told = zip(
        np.split(counts.values.reshape(shape[:2]), ends),
        np.split(sums.values.reshape(shape) / ask.reach, ends),
        strict=True,
    )
    found = []
    for tree, guess, (count, total) in zip(trees, guesses, told, strict=True):
        rows = _corrected_counts(guess.counts, count, counts.variance)
        low, high = (each[:, None] / ask.reach for each in tree.boxes(ask.columns, ask.reach))
        noise = noise_of_means(sums.variance / ask.reach**2, counts.variance, guess.means, rows)
        means, left = _corrected_means(guess.means, total / rows[:, :, None], noise)
        variances = guess.variances + left[:, :, None]
        found.append(Normals(rows, np.clip(means, low, high), variances, left))
    return found


def _corrected_counts(guess: Floats, seen: Floats, noise: float) -> Floats:
    real = max(_OFF * noise, float(np.mean((seen - guess) ** 2)) - noise)
    return np.maximum(guess + (seen - guess) * real / (real + noise), _FEWEST)


def _corrected_means(guess: Floats, seen: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Means, and the noise variance that is left in them.

    How far guesses are off is told by the classes with the least noise.
    """
    off = np.mean((seen - guess) ** 2, axis=2) - noise
    real = max(LEAST, float(np.average(off, weights=noise**-2.0)))
    kept = real / (real + noise)
    return guess + (seen - guess) * kept[:, :, None], kept * noise
