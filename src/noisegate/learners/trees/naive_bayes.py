"""Naive Bayes: columns are independent within each class, normal or of declared keys.

    GaussianNB(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="sick"))
    CategoricalNB(epsilon=1).fit(gate.matrix("patients", ["ward", "sex"], target="sick"))

A row is of one class, so the noise of a class does not grow with the number of classes. See
`normal_classes.py` for what is made of noisy sums.
"""

from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.display.drawing import Chart
from noisegate.frozen import dataclass
from noisegate.learners import plots
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import ProbableClassifier
from noisegate.learners.fitting import REACH, Algorithm, Fitted, Options
from noisegate.learners.matrix import Coordinate, Matrix
from noisegate.learners.noisy_sums import divided
from noisegate.learners.parameters import require_whole
from noisegate.learners.trees.normal_classes import Normals, count_rows, even_counts, look
from noisegate.transforms.statistics.features import Bins, One
from noisegate.transforms.statistics.numbers import Numbers
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey, Nearest, Scores, Weighing

_SCORE_MAX: Final = 2.0**50  # of whole scores, where the door computes them
_COUNT: Final = Fraction(1, 25)  # of the price, for the number of rows
_BINS_MAX: Final = 256
_BESIDE: Final = 1.0  # a row of every key stands beside those of a class
_KEPT: Final = 0.01  # of an even share: the least that a key is given


class _NaiveBayes(ProbableClassifier):
    """What both kinds share."""

    def _count(self, counts: Floats) -> None:
        self.class_count_ = counts
        self.class_prior_ = counts / counts.sum()


class GaussianNB(_NaiveBayes):
    """Classes by normal columns.

    After `fit`, ``theta_`` and ``var_`` are the means and variances of each class in the units of
    the columns, ``class_count_`` the noisy numbers of rows and ``class_prior_`` their shares;
    ``error_["theta"]`` is the standard deviation of the noise in each mean. Means are drawn to each
    other, and variances to the usual one, as far as noise explains their differences; ``var_``
    includes what is unsure about the means. Where noise would hide most columns, a random few are
    asked about: the others are alike in all classes, with an infinite error.

    Args:
        epsilon: The price.
        bounds: (low, high) of the columns of an array.
        classes: The classes of an array's target.
        memory: The budget for arrays.

    >>> from noisegate.root import memory
    >>> rows, told = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> purse = memory(epsilon=1)
    >>> model = GaussianNB(epsilon=1, bounds=(0, 10), classes=[0, 1], memory=purse)
    >>> model.fit(rows, told).predict([[2.0, 7.0], [9.0, 1.0]])
    array([0, 1])
    >>> print(model.cost_)
    ε = 1
    """

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        return fit_gaussian_nb, {}

    def _take(self, fitted: Fitted) -> None:
        self._normals = Normals(*(fitted[name] for name in _PARTS)).drawn()
        means, half = fitted["means"][0], self._halves
        self.theta_ = self._unscaled(means)
        self.var_ = self._normals.variances[0] * half**2
        self._count(fitted["counts"][0])
        noise = np.sqrt(fitted["noise"][0])[:, None] * half
        self.error_ = {"theta": np.where(np.any(means != 0, axis=0), noise, np.inf)}

    def _scores(self, points: Floats) -> Floats:
        return self._normals.scores(points, np.zeros(len(points), np.int64))

    def _rule(self, reach: int) -> tuple[Weighing, NDArray[np.int64]]:
        """Scores are quadratic in each column, so the door computes them on the grid."""
        counts, means, variances, _ = (each[0] for each in self._normals.parts)
        table = np.column_stack([
            means / variances / reach,
            -1 / (2 * variances) / reach**2,
            np.log(counts) - np.sum(np.log(variances) + means**2 / variances, axis=1) / 2,
        ])  # fmt: skip
        units = np.repeat([reach, reach**2, 1], [means.shape[1], means.shape[1], 1])
        largest = np.sum(np.abs(table) * units, axis=1).max()
        whole = np.rint(table * (_SCORE_MAX / largest))
        return Nearest(Scores(Numbers.of(whole), "squares"), keyed=True), np.arange(len(counts))

    def plot(self, x: str | None = None, y: str | None = None) -> Chart:
        """The classes' means in two columns, by default where they differ most for their bounds.

        Areas are noisy numbers of rows; bars are the standard deviations of the classes.
        """
        self._require_fitted()
        chart = plots.centers(
            self.coordinates_,
            self.theta_,
            self.class_count_,
            np.sqrt(self.var_),
            x=x,
            y=y,
            named=("class", self.classes_.tolist()),
            areas="rows (noisy)",
        )
        return self._framed(chart, "bars are standard deviations of the classes")


_PARTS: Final = ("counts", "means", "variances", "noise")


def fit_gaussian_nb(ask: RowsAsk) -> Fitted:
    """Counts, means and variances of classes, of columns from -1 to 1."""
    ask.done(0.0, "looking at classes")
    rows, deviation = count_rows(ask, _COUNT)
    found = look(ask, 1 - _COUNT, rows, least=deviation / 2)
    return dict(zip(_PARTS, found.parts, strict=True))


@dataclass(eq=False, repr=False, kw_only=True)
class CategoricalNB(_NaiveBayes):
    """Naive Bayes over declared keys; numeric columns are cut into equal bins.

    After `fit`, ``feature_probabilities_`` has for each column a table of shares, one row for each
    class, ``class_count_`` the noisy numbers of rows and ``class_prior_`` their shares;
    ``error_["counts"]`` is the standard deviation of the noise in each count. Classes are shrunk
    towards each other as far as noise explains their differences.

    Args:
        n_bins: The number of bins of numeric columns.
        epsilon: The price.
        bounds: By column of an array: a list of its keys, or (low, high).
        classes: The classes of an array's target.
        memory: The budget for arrays.

    >>> from noisegate.root import memory
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"ward": ["north", "south"] * 500, "age": [20.0, 70.0] * 500})
    >>> facts = {"ward": ["north", "south"], "age": (0, 100)}
    >>> purse = memory(epsilon=1)
    >>> model = CategoricalNB(epsilon=1, bounds=facts, classes=["ill", "well"], memory=purse)
    >>> model.fit(rows, ["ill", "well"] * 500).predict(rows[:2]).tolist()
    ['ill', 'well']
    """

    _codes: ClassVar[bool] = True

    n_bins: int = 8

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:
        bins = require_whole(self.n_bins, "n_bins", 2, _BINS_MAX)
        held = matrix.coordinates(codes=True)
        self._edges = tuple(_edges(len(each.keys) or bins, keyed=bool(each.keys)) for each in held)
        options = {"edges": [list(each) for each in self._edges]}
        return partial(fit_categorical_nb, edges=self._edges), options

    def _take(self, fitted: Fitted) -> None:
        ends = np.cumsum([len(each) + 1 for each in self._edges])[:-1]
        self.feature_probabilities_ = np.split(fitted["shares"], ends, axis=1)
        self._count(fitted["counts"])
        self.error_ = {"counts": float(np.sqrt(fitted["noise"]))}

    def plot(self) -> Chart:
        """How likely each key is in each class, with two standard deviations of the noise."""
        self._require_fitted()
        tables = zip(self.coordinates_, self.feature_probabilities_, strict=True)
        columns = [(each.name, _keys(each, shares.shape[1]), shares) for each, shares in tables]
        off = 2 * self.error_["counts"] / self.class_count_
        chart = plots.chances(columns, self.classes_.tolist(), off)
        return self._framed(chart, "lines are about two standard deviations of the noise")

    def _scores(self, points: Floats) -> Floats:
        found = np.tile(np.log(self.class_count_), (len(points), 1))
        tables = zip(points.T, self._edges, self.feature_probabilities_, strict=True)
        for column, edges, told in tables:
            places = np.searchsorted(edges, np.rint(column * REACH), side="left")
            found += np.log(told[:, places]).T
        return found


def _keys(each: Coordinate, size: int) -> list[str]:
    """The keys of a column, or its equal bins, as people read them."""
    if each.keys:
        return [str(key) for key in each.keys]
    ends = float(each.middle) + float(each.half) * np.linspace(-1, 1, size + 1)
    return [f"{low:g} to {high:g}" for low, high in pairwise(ends.tolist())]


def _edges(size: int, *, keyed: bool) -> tuple[int, ...]:
    """Between so many keys, the first of which is at -1 and the last at 1; or so many equal bins.

    >>> _edges(3, keyed=True), _edges(4, keyed=False)
    ((-2048, 2048), (-2048, 0, 2048))
    """
    if keyed:
        return tuple(round(((2 * j + 1) / (size - 1) - 1) * REACH) for j in range(size - 1))
    return tuple(round((2 * (j + 1) / size - 1) * REACH) for j in range(size - 1))


def fit_categorical_nb(ask: RowsAsk, edges: tuple[tuple[int, ...], ...]) -> Fitted:
    """Counts of classes, and for each class the share of every key of every column."""
    ask.done(0.0, "counting")
    few, most = divided(Fraction(1), 1, 19)
    seen, bins = ask.totals(Statistic(ByKey(), (One(), Bins(edges))), [few, most])
    counts, ends = even_counts(seen), np.cumsum([len(each) + 1 for each in edges])[:-1]
    tables = [_drawn(table, bins.variance) for table in np.split(bins.values, ends, axis=1)]
    return {
        "counts": counts,
        "shares": np.hstack(tables),
        "noise": np.array(bins.variance),
    }


def _drawn(table: Floats, noise: float) -> Floats:
    """Shares of a column's keys in each class, drawn to those of all classes."""
    classes, size = table.shape
    rows = np.maximum(table.sum(axis=1, keepdims=True), (size * noise) ** 0.5 + 1)
    pooled = np.maximum(table.sum(axis=0), (classes * noise) ** 0.5 / size + 1e-9)
    guess = rows * pooled / pooled.sum()
    real = max(0.0, float(np.mean((table - guess) ** 2)) - noise)
    found = guess + (table - guess) * real / (real + noise)
    held = np.maximum(found, 0.0) + _BESIDE + _KEPT * rows / size
    drawn: Floats = held / held.sum(axis=1, keepdims=True)
    return drawn
