"""What noisy sums say about classes: how many rows each has, and where they lie, column by column.

Every sum has noise of known variance, so it is known how much of a difference noise explains. Class
counts are drawn to each other by that much, means to the mean of all rows, variances to the usual
one. Where noise hides everything, what is left is one class like the other.

In a pure account the noise of each sum grows with the number of columns. Where it hides most of
them, a random few are asked about instead: what is seen of these tells more than a blur of all.
"""

from fractions import Fraction
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass, replace
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.learners.noisy_sums import divided, for_means
from noisegate.learners.trees.growing import Whole
from noisegate.releases.cells.chance import public_coins
from noisegate.transforms.statistics.features import Linear, One, Squares
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey, Plain

USUAL: Final = 0.2  # the variance of a column, if nothing is known about it
_UNSURE: Final = 0.04  # the variance of that guess
_ANYWHERE: Final = 1 / 3  # the mean square of coordinates that lie anywhere
_VISIBLE: Final = 0.05  # noise of a class's mean squares, up to which they are worth asking for
_APART: Final = 0.1  # the variance of the means of classes: a guess
CAUTION: Final = 2.0  # deviations of what noise explains, that it is given where it is large
_UNKNOWN: Final = 0.1  # of their noise: classes may differ by as much without being seen to
LEAST: Final = 1e-4  # of a difference between classes
_TOLD: Final = 0.02  # noise left in means, in parts of a variance, that half hides its own


@final
@dataclass(frozen=True, slots=True)
class Normals:
    """For cells and classes: rows, means and variances of columns from -1 to 1.

    ``noise`` is the variance of the noise that is left in each mean; ``variances`` include it.
    """

    counts: Floats  # (cells, classes)
    means: Floats  # (cells, classes, columns)
    variances: Floats
    noise: Floats  # (cells, classes)

    @property
    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        """All four, as they are kept."""
        return self.counts, self.means, self.variances, self.noise

    def drawn(self) -> "Normals":
        """The same with variances drawn to their mean in a cell, as far as noise is left in means.

        A class that looks wider than others because little is known about it would be the likeliest
        wherever points lie a little further out than was thought: of many columns, nearly anywhere.
        """
        parts = self.counts / self.counts.sum(axis=1, keepdims=True)
        usual = np.einsum("ij,ijk->ik", parts, self.variances)[:, None]
        unclear = self.noise.max(axis=1)[:, None, None] / usual.mean(axis=2, keepdims=True)
        found = usual + (self.variances - usual) / (1 + (unclear / _TOLD) ** 2)
        return replace(self, variances=found)

    def scores(self, points: Floats, cells: Whole) -> Floats:
        """How likely each class is at points in these cells, in logarithms up to a constant."""
        found = np.log(self.counts[cells])
        for place in range(self.counts.shape[1]):
            means, variances = self.means[cells, place], self.variances[cells, place]
            away = np.log(variances) + (points - means) ** 2 / variances
            found[:, place] -= np.sum(away, axis=1) / 2
        return found


def count_rows(ask: RowsAsk, share: Fraction) -> tuple[float, float]:
    """About how many rows there are, and the standard deviation of that."""
    (seen,) = ask.totals(Statistic(Plain(), (One(),)), [share])
    return float(seen.values[0, 0]), seen.variance**0.5


def look(ask: RowsAsk, share: Fraction, told: float, *, least: float = 0.0) -> Normals:
    """The classes of rows as one cell; how many they are was told, and is at least so many."""
    rows = max(told, least, ask.classes)
    columns = chosen_columns(ask, share, rows, told)
    if len(columns) < ask.columns:
        return _look_at(ask, share, rows, columns)
    keyed, most = divided(share, 2, 3)
    (noise,) = ask.variance(Statistic(ByKey(), (Squares(),)), [keyed])
    if noise**0.5 / ask.reach**2 < _VISIBLE * rows / ask.classes:
        question = Statistic(ByKey(), (One(), Linear(), Squares()))
        seen, sums, squares = ask.totals(question, [*for_means(ask, most), keyed])
    else:
        few, most = divided(share, 1, 14)
        seen, sums = ask.totals(Statistic(ByKey(), (One(), Linear())), for_means(ask, most))
        (squares,) = ask.totals(Statistic(Plain(), (Squares(),)), [few])
    counts = even_counts(seen)
    means, left = drawn_means(sums, counts, seen.variance, ask.reach)
    variances = _variances(squares, counts, means, left, ask.reach)
    return Normals(counts[None], means[None], (variances + left[:, None])[None], left[None])


def chosen_columns(ask: RowsAsk, share: Fraction, rows: float, told: float) -> tuple[int, ...]:
    """The columns to ask about: all of them, or a random few if these tell classes apart better.

    With m columns the means of classes differ by √(m g), where g is their variance in a column, and
    m s² of noise is added to m g: a line through them is as good as m g² / (g + s²). Which ones
    they are comes from the number of rows as it was told: no columns are unlucky in every fit.
    """
    halves = int(2 * np.log2(ask.columns))
    sizes = sorted({round(ask.columns * 2 ** (-half / 2)) for half in range(halves + 1)})

    def worth(size: int) -> float:
        (noise,) = ask.variance(Statistic(ByKey(), (Linear(tuple(range(size))),)), [share])
        return size / (_APART + noise / (ask.reach * rows / ask.classes) ** 2)

    size = max(sizes, key=worth)
    coins = public_coins(f"{size} columns for {told} rows")
    return tuple(sorted(coins.choice(ask.columns, size, replace=False).tolist()))


def _look_at(ask: RowsAsk, share: Fraction, rows: float, columns: tuple[int, ...]) -> Normals:
    """The means of some columns; in all others classes are alike, as far as anybody knows."""
    few, most = divided(share, 1, 9)
    seen, sums = ask.totals(Statistic(ByKey(), (One(), Linear(columns))), [few, most])
    counts = even_counts(seen, caution=CAUTION, rows=rows)
    found, left = drawn_means(sums, counts, seen.variance, ask.reach)
    means = np.zeros((ask.classes, ask.columns))
    means[:, columns] = found
    variances = np.full_like(means, USUAL + left.max())
    variances[:, columns] = USUAL + left[:, None]
    return Normals(counts[None], means[None], variances[None], left[None])


def noise_of_means(sums: float, count: float, means: Floats, rows: Floats) -> Floats:
    """The noise variance of means of rows: that of sums, and that of the count they are over."""
    found: Floats = (sums + count * np.mean(means**2, axis=-1)) / rows**2
    return found


def even_counts(seen: NoisySums, *, caution: float = 0.0, rows: float | None = None) -> Floats:
    """Rows of each class, drawn to equal numbers as far as noise explains their differences.

    ``caution`` is how many deviations more than its mean noise may explain; ``rows`` is another
    noisy number of all rows.
    """
    raw, noise = seen.values[:, 0], seen.variance
    told = raw.sum() if rows is None else (max(raw.sum(), 0.0) + rows) / 2
    usual = max(told, (len(raw) * noise) ** 0.5, len(raw)) / len(raw)
    free, away = max(1, len(raw) - 1), raw - raw.mean()
    explained = noise * (1 + caution * (2 / free) ** 0.5)
    real = max(0.0, float(away @ away) / free - explained)
    found: Floats = np.maximum(usual + away * real / (real + noise), usual / 20 + 1)
    return found


def drawn_means(
    sums: NoisySums, counts: Floats, unsure: float, reach: int
) -> tuple[Floats, Floats]:
    """Means of classes, drawn to that of all rows, and the noise variance that is left in them."""
    raw, noise = sums.values / reach, sums.variance / reach**2
    total, count = counts.sum(), len(counts)
    each = noise_of_means(noise, unsure, np.clip(raw / counts[:, None], -1, 1), counts)
    middle = raw.sum(axis=0) / total
    middle = np.clip(middle * _ANYWHERE / (_ANYWHERE + count * noise / total**2), -1, 1)
    away = raw / counts[:, None] - middle
    apart = np.mean(np.sum(away**2, axis=0)) - each.sum() * (1 - 1 / count)
    real = max(LEAST, _UNKNOWN * each.mean(), float(apart) / max(1, count - 1))
    kept = real / (real + each)
    return np.clip(middle + away * kept[:, None], -1, 1), kept * each


def _variances(
    squares: NoisySums, counts: Floats, means: Floats, left: Floats, reach: int
) -> Floats:
    """Of each class and column; drawn to those of all classes, and these to the usual one."""
    parts = counts / counts.sum()
    lengths = np.mean(means**2)
    noise = squares.variance / reach**4
    if len(squares.values) == 1:  # of all rows together
        raw = None
        pooled = squares.values[0] / reach**2 / counts.sum() - parts @ means**2
        unsure = noise / counts.sum() ** 2 + float(np.sum(4 * parts**2 * lengths * left))
    else:
        raw = squares.values / reach**2 / counts[:, None] - means**2
        each = noise / counts**2 + 4 * lengths * left
        pooled, unsure = parts @ raw, float(parts**2 @ each)
    pooled = _drawn_together(pooled, unsure)
    if raw is None:
        return np.repeat(pooled[None], len(counts), axis=0)
    real = max(0.0, float(np.mean((raw - pooled) ** 2) - each.mean()))
    found = pooled + (raw - pooled) * (real / (real + each + 1e-300))[:, None]
    least = np.maximum(pooled / 10, np.minimum(pooled, each[:, None] ** 0.5))
    return np.clip(found, least, 1.0)


def _drawn_together(raw: Floats, noise: float) -> Floats:
    """Variances of columns, drawn to their mean as far as noise explains that they differ.

    Noise of one cell is of one size in all columns, which varies by 2 / √columns of it. What is
    less than its noise is not told apart from it.
    """
    trust = _UNSURE / (_UNSURE + noise / len(raw))
    usual = float(np.clip(USUAL + trust * (raw.mean() - USUAL), 0.005, 1.0))
    real = max(0.0, float(raw.var()) - noise * (1 + 4 / len(raw) ** 0.5))
    found: Floats = usual + (raw - raw.mean()) * real / (real + noise + 1e-300)
    return np.clip(found, max(usual / 10, min(usual, noise**0.5)), 1.0)
