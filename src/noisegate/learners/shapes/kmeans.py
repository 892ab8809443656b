"""Clusters: k-means by noisy counts and sums of the rows nearest to public centres.

    KMeans(n_clusters=8, epsilon=1).fit(gate.matrix("patients", ["age", "bmi"]))

A row is nearest to one centre, so the noise of a cell does not grow with the number of cells. The
method looks first at many more cells than clusters, as many as stand out of the noise, and finds
the clusters among their noisy means, which is free; then it measures those. Means are drawn towards
what was known before as far as their noise could explain the difference.
"""

import warnings
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.cluster import k_means
from sklearn.exceptions import ConvergenceWarning

from noisegate.desk.display.drawing import Chart
from noisegate.frozen import KW_ONLY, dataclass
from noisegate.learners import plots
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.learners.base import PrivateTransformer
from noisegate.learners.fitting import Algorithm, Fitted, Options
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import divided, for_means, joined, nearest, shrunk
from noisegate.learners.parameters import require_one_of, require_rows, require_seed, require_whole
from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.transforms.statistics.features import Linear, One, Squares
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

_COUNT: Final = Fraction(3, 100)
# By how many cells the noise would let us see at the whole price: shares of the first look at all
# rows, and of each round after it.
_PLANS: Final[tuple[tuple[float, tuple[int, ...]], ...]] = (
    (4, (1,)),
    (60, (25, 75)),
    (100, (20, 35, 45)),
    (float("inf"), (10, 25, 30, 35)),
)
_CELLS: Final = 16  # at most so many cells for each cluster
_GUESS: Final = 0.2  # the variance of a column, if nothing is known about it
_USUAL: Final = 0.25  # how far the mean of a column is from the middle, squared: likewise
_RESTARTS: Final = 20
_STEPS: Final = 30
_MADE: Final = 2000  # points that centres are placed for, where rows look like one cloud
_STARTS: Final = 3  # of that
_CLUSTERS_MAX: Final = 1 << 10
_ROUNDS_MAX: Final = 100


@dataclass(eq=False, repr=False)
class KMeans(ClusterMixin, PrivateTransformer):  # type: ignore[misc]
    """Clusters of rows around ``n_clusters`` centres.

    After `fit`, ``cluster_centers_`` are in the units of the columns, ``counts_`` the noisy numbers
    of rows, and ``error_["centers"]`` the standard deviation of the noise in each centre. Distances
    are in the scale where each column's bounds are -1 and 1. No labels of private rows are kept.

    Args:
        n_clusters: The number of clusters.
        epsilon: The price.
        method: "auto", or "sulq" for Lloyd's rounds from public starts.
        rounds: Of "sulq".
        bounds: (low, high) of the columns of an array.
        memory: The budget for arrays.
        random_state: Of the public starts; noise has no seed.

    >>> from noisegate.root import memory
    >>> rows = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0)
    >>> model = KMeans(2, epsilon=1, bounds=(0, 10), memory=memory(epsilon=1)).fit(rows)
    >>> sorted(model.cluster_centers_.round().tolist())
    [[1.0, 9.0], [8.0, 2.0]]
    >>> print(model.cost_)
    ε = 1
    """

    _measure: ClassVar[str | None] = "share of the spread explained"

    n_clusters: int = 8
    _: KW_ONLY
    method: str = "auto"
    rounds: int = 5
    random_state: int = 0

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        clusters = require_whole(self.n_clusters, "n_clusters", 1, _CLUSTERS_MAX)
        seed = require_seed(self.random_state)
        method = require_one_of(self.method, "method", ("auto", "sulq"))
        options = {"clusters": clusters, "method": method, "seed": seed}
        if method == "auto":
            return partial(fit_kmeans, clusters=clusters, seed=seed), options
        rounds = require_whole(self.rounds, "rounds", 1, _ROUNDS_MAX)
        algorithm = partial(fit_sulq, clusters=clusters, rounds=rounds, seed=seed)
        return algorithm, options | {"rounds": rounds}

    def _take(self, fitted: Fitted) -> None:
        self._centers, self.counts_ = fitted["centers"], fitted["counts"]
        self.cluster_centers_ = self._unscaled(self._centers)
        self.error_ = {"centers": np.sqrt(fitted["variances"])[:, None] * self._halves}

    def predict(self, X: Rows) -> NDArray[np.intp]:
        """The number of the nearest centre of each point."""
        found: NDArray[np.intp] = np.argmin(self.transform(X), axis=1)
        return found

    def fit_predict(self, X: Rows, y: Rows = None) -> NDArray[np.intp]:  # noqa: ARG002
        """Fit an array and number its rows. The numbers are as private as the rows are."""
        require_rows(X)
        return self.fit(X).predict(X)

    def transform(self, X: Rows) -> Floats:
        """The distance of each point from each centre."""
        points = self._points(X)
        return np.sqrt(_squares(points, self._centers))

    def score(self, X: Rows, y: Rows = None) -> float:  # noqa: ARG002
        """Minus the sum of squared distances of given points from their centres."""
        return -float(np.sum(np.min(self.transform(X), axis=1) ** 2))

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:  # noqa: ARG002, D102 - see PrivateEstimator
        seen = self._points(points)
        return 1 + self.score(points) / float(np.square(seen - seen.mean(axis=0)).sum()), 0.0

    def plot(self, x: str | None = None, y: str | None = None) -> Chart:
        """The centres in two columns, by default those in which they differ most for their bounds.

        Areas are noisy numbers of rows; bars are two standard deviations of the noise.
        """
        self._require_fitted()
        chart = plots.centers(
            self.coordinates_,
            self.cluster_centers_,
            self.counts_,
            2 * self.error_["centers"],
            x=x,
            y=y,
            named=("cluster", range(len(self.counts_))),
            areas="rows (noisy)",
        )
        unseen = "" if np.isfinite(self.error_["centers"]).all() else "; crosses: no rows seen"
        return self._framed(chart, f"bars are two standard deviations of the noise{unseen}")


def fit_kmeans(ask: RowsAsk, clusters: int, *, seed: int = 0) -> Fitted:
    """Centres from -1 to 1, the noisy number of rows of each, and its noise variance."""
    rng = public_coins(seed)
    ask.done(0.0, "counting rows")
    (count,) = ask.totals(Statistic(Plain(), (One(),)), [_COUNT])
    rows = max(1.0, float(count.values[0, 0]) - count.variance**0.5)  # rather too few
    detail = _detail(ask, rows, ask.columns * _GUESS, Fraction(1))
    first, *rounds = divided(1 - _COUNT, *next(plan for below, plan in _PLANS if detail < below))
    seen = _look(ask, count, first)
    cells = _Cells(seen.mean[None], np.zeros(1), np.full(1, np.inf))
    for place, share in enumerate(rounds):
        ask.keep(cells.merged(clusters, seen, rng).fitted())
        ask.done((place + 1) / (len(rounds) + 1), f"round {place + 1} of {len(rounds)}")
        most = clusters if place == len(rounds) - 1 else _CELLS * clusters
        size = int(np.clip(_detail(ask, seen.rows, seen.spread, share) / 2, 2, most))
        if place == 0:
            centers = seen.around(size, rng) if size > clusters else seen.apart(size, rng)
            towards = np.repeat(seen.mean[None], size, axis=0)
        else:
            centers = towards = cells.merged(size, seen, rng).means
        cells = _round(ask, centers, towards, for_means(ask, share))
    return cells.merged(clusters, seen, rng).fitted()


def fit_sulq(ask: RowsAsk, clusters: int, *, rounds: int = 5, seed: int = 0) -> Fitted:
    """Lloyd's rounds as in [BDMN05]: public starts, half of each round for counts, half for sums.

    A centre with no more rows than noise explains stays where it is.
    """
    rng = public_coins(seed)
    means = rng.uniform(-1, 1, size=(clusters, ask.columns))
    cells = _Cells(means, np.zeros(clusters), np.full(clusters, np.inf))
    half = Fraction(1, 2 * rounds)
    for place in range(rounds):
        ask.keep(cells.fitted())
        ask.done(place / rounds, f"round {place + 1} of {rounds}")
        cells = _round(ask, cells.means, None, [half, half])
    return cells.fitted()


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known about all rows: how many, their mean, and the variance of each column."""

    rows: float
    mean: Floats
    variances: Floats

    @property
    def spread(self) -> float:
        """The mean squared distance of rows from their mean."""
        return float(np.sum(self.variances))

    def around(self, count: int, rng: Coins) -> Floats:
        """Points that lie as rows do, as far as is known."""
        away = rng.normal(size=(count, len(self.mean))) * np.sqrt(self.variances)
        return np.clip(self.mean + away, -1, 1)

    def apart(self, count: int, rng: Coins) -> Floats:
        """The best centres of such points: all that can be said of what looks like one cloud.

        A model of them is no worse than the mean alone, unless rows lie closer than they seem to.
        """
        made = self.around(max(_MADE, count), rng)
        return _clusters(made, np.ones(len(made)), count, rng, starts=_STARTS)[0]


@final
@dataclass(frozen=True, slots=True)
class _Cells:
    """Means of the rows of cells, how many rows these are, and the noise variance of the means."""

    means: Floats
    counts: Floats
    variances: Floats

    def merged(self, size: int, seen: _Seen, rng: Coins) -> "_Cells":
        """So many cells: the clusters of these, or these and parts of the largest."""
        if len(self.means) == size:
            return self
        held = np.flatnonzero(self.counts > 0)
        if len(held) > size:
            weights = self.counts[held]
            means, label = _clusters(self.means[held], weights, size, rng)
            counts = np.bincount(label, weights, size).astype(np.float64)
            noise = np.bincount(label, self.variances[held] * weights**2, size)
            return _Cells(means, counts, noise / np.maximum(counts, 1) ** 2)
        more = size - len(held)
        if len(held):
            chosen = rng.choice(held, size=more, p=self.counts[held] / self.counts[held].sum())
            away = 0.5 * rng.normal(size=(more, len(seen.mean))) * np.sqrt(seen.variances)
            means = np.clip(self.means[chosen] + away, -1, 1)
        else:
            means = seen.apart(more, rng)
        return _Cells(
            np.vstack([self.means[held], means]),
            np.concatenate([self.counts[held], np.zeros(more)]),
            np.concatenate([self.variances[held], np.full(more, np.inf)]),
        )

    def fitted(self) -> Fitted:
        """As they are kept."""
        return {"centers": self.means, "counts": self.counts, "variances": self.variances}


def _clusters(
    points: Floats, weights: Floats, size: int, rng: Coins, *, starts: int = _RESTARTS
) -> tuple[Floats, NDArray[np.intp]]:
    """The best of some k-means of weighed points: means, and which of them each point is nearest.

    They start as in [AV07], each mean being the best of a few points drawn by their distance.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # points may coincide
        means, label, _ = k_means(
            points, size, sample_weight=weights, n_init=starts, max_iter=_STEPS,
            random_state=int(rng.integers(1 << 31)),
        )  # fmt: skip
    return means, label


def _squares(points: Floats, centers: Floats) -> Floats:
    """Squared distances, of shape (points, centers)."""
    found = np.sum(points**2, axis=1)[:, None] - 2 * points @ centers.T + np.sum(centers**2, axis=1)
    positive: Floats = np.maximum(found, 0.0)
    return positive


def _detail(ask: RowsAsk, rows: float, spread: float, share: Fraction) -> float:
    """In how many cells the rows could be before noise moves a cell's mean as far as they lie."""
    _, sums = ask.variance(Statistic(Plain(), (One(), Linear())), for_means(ask, share))
    noise = ask.columns * sums / ask.reach**2
    return float(rows * np.sqrt(spread / noise))


def _look(ask: RowsAsk, count: NoisySums, share: Fraction) -> _Seen:
    """All rows together."""
    squared, rest = divided(share, 3, 7)
    again, sums, squares = ask.totals(
        Statistic(Plain(), (One(), Linear(), Squares())), [*for_means(ask, rest), squared]
    )
    number, variance = joined(
        (float(count.values[0, 0]), count.variance), (float(again.values[0, 0]), again.variance)
    )
    rows = max(number, 2 * variance**0.5, 1.0)
    noise = sums.variance / (ask.reach * rows) ** 2
    raw = sums.values / ask.reach / rows
    most = _USUAL / (_USUAL + noise)
    mean = np.clip(shrunk(raw, np.zeros_like(raw), ask.columns * noise, most=most)[0], -1, 1)
    return _Seen(rows, mean, _variances(squares, rows, mean, ask.reach))


def _variances(squares: NoisySums, rows: float, mean: Floats, reach: int) -> Floats:
    """Of each column; drawn to their mean as far as noise explains that they differ."""
    raw = squares.values[0] / reach**2 / rows - mean**2
    noise = squares.variance / reach**4 / rows**2
    usual = float(np.clip(raw.mean(), 0.02, 0.5))
    real = max(0.0, float(raw.var()) - noise)
    found = usual + real / (real + noise + 1e-300) * (raw - raw.mean())
    clipped: Floats = np.clip(found, usual / 10, 1.0)
    return clipped


def _round(ask: RowsAsk, centers: Floats, towards: Floats | None, shares: list[Fraction]) -> _Cells:
    """The means of the rows nearest to each centre, drawn to a guess if there is one."""
    question = Statistic(nearest(centers, ask.reach), (One(), Linear()))
    counts, sums = ask.totals(question, shares)
    real = counts.values[:, 0] > 2 * counts.variance**0.5
    rows = np.maximum(counts.values[:, 0], 1.0)
    means = np.clip(sums.values / ask.reach / rows[:, None], -1, 1)
    # a mean is off by (noise of the sums - mean x noise of the count) / rows
    of_counts = counts.variance * np.mean(means**2, axis=1)
    variances = (sums.variance / ask.reach**2 + of_counts) / rows**2
    if towards is not None:
        means = shrunk(means, towards, ask.columns * variances)
    means = np.where(real[:, None], means, centers)
    return _Cells(means, np.where(real, rows, 0.0), np.where(real, variances, np.inf))
