"""Mixtures of normal clouds, by rounds of expectation and maximisation on noisy sums [PFCW17].

    GaussianMixture(n_components=3, epsilon=1).fit(gate.matrix("patients", ["age", "bmi"]))

A row belongs to the clouds in parts that add up to at most 1, so the noise of a round does not grow
with the number of clouds. Its logarithms of densities are whole-number scores, and e^-x is a table.
Means start from `kmeans`; covariances are drawn to their common mean as far as noise explains that
they differ, and that to a sphere; none is thinner than its noise.
"""

from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.base import DensityMixin

from noisegate.desk.display.drawing import Chart
from noisegate.exact import EXACT_MAX
from noisegate.frozen import KW_ONLY, dataclass
from noisegate.learners import plots
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateEstimator
from noisegate.learners.fitting import Algorithm, Fitted, Options
from noisegate.learners.linear.scores import square_of
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import Part, divided, nearest, shrunk
from noisegate.learners.parameters import require_one_of, require_seed, require_whole
from noisegate.learners.shapes.kmeans import fit_kmeans
from noisegate.transforms.statistics.features import Feature, Linear, One, Products, Squares
from noisegate.transforms.statistics.numbers import Numbers
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Lookup, Nearest, Scores, Soft

_START: Final = Fraction(2, 5)  # for the means to begin with
_UNIT: Final = 1 << 8  # parts of a row
_ENTRIES: Final = 1 << 14
_STEP: Final = 1 << 10  # entries for each factor e
_THIN: Final = 1e-4  # no variance is smaller, in squares of half the bounds
_DOUBT: Final = 2  # nor smaller than so many standard deviations of its noise
_COMPONENTS_MAX: Final = 256
_ROUNDS_MAX: Final = 50
_SHAPES: Final = {"diag": (1, 4, 5), "full": (1, 3, 8)}  # shares of counts, sums, second moments


@dataclass(eq=False, repr=False)
class GaussianMixture(DensityMixin, PrivateEstimator):  # type: ignore[misc]
    """A mixture of ``n_components`` normal distributions.

    After `fit`: ``weights_``, ``means_`` and ``covariances_`` in the units of the columns, and
    ``error_["means"]``, the standard deviation of the noise in the means.

    Args:
        n_components: The number of components.
        epsilon: The price.
        covariance_type: "diag" for a variance in each column, "full" for all covariances.
        rounds: How often rows are assigned to components; the first time to the nearest one.
        bounds: (low, high) of the columns of an array.
        memory: The budget for arrays.
        random_state: Of the public starts; noise has no seed.

    >>> from noisegate.root import memory
    >>> rows = np.repeat([[1.0, 9.0], [8.0, 2.0]], [1600, 400], axis=0)
    >>> model = GaussianMixture(2, epsilon=4, bounds=(0, 10), memory=memory(epsilon=4)).fit(rows)
    >>> np.sort(model.weights_).round(1).tolist()
    [0.2, 0.8]
    """

    _reach: ClassVar[int] = 1 << 9
    _measure: ClassVar[str | None] = "log-likelihood of a row, above that of equal density,"

    n_components: int = 1
    _: KW_ONLY
    covariance_type: str = "diag"
    rounds: int = 2
    random_state: int = 0

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        options: dict[str, Any] = {
            "components": require_whole(self.n_components, "n_components", 1, _COMPONENTS_MAX),
            "shape": require_one_of(self.covariance_type, "covariance_type", tuple(_SHAPES)),
            "rounds": require_whole(self.rounds, "rounds", 1, _ROUNDS_MAX),
            "seed": require_seed(self.random_state),
        }
        return partial(fit_mixture, **options), options

    def _take(self, fitted: Fitted) -> None:
        self._clouds = Clouds(fitted["weights"], fitted["means"], fitted["covariances"])
        half = self._halves
        self.weights_ = fitted["weights"]
        self.means_ = self._unscaled(fitted["means"])
        scale = np.outer(half, half) if self._clouds.full else half**2
        self.covariances_ = fitted["covariances"] * scale
        self.error_ = {"means": np.sqrt(fitted["variances"])[:, None] * half}

    def predict_proba(self, X: Rows) -> Floats:
        """The probability of each component for each point."""
        found: Floats = softmax(self._logs(X), axis=1)
        return found

    def predict(self, X: Rows) -> NDArray[np.intp]:
        """The most likely component of each point."""
        found: NDArray[np.intp] = np.argmax(self.predict_proba(X), axis=1)
        return found

    def score_samples(self, X: Rows) -> Floats:
        """The logarithm of the density at each point, in the units of the columns."""
        logs = self._logs(X)
        found: Floats = logsumexp(logs, axis=1) - float(np.sum(np.log(self._halves)))
        return found

    def score(self, X: Rows, y: Rows = None) -> float:  # noqa: ARG002
        """The mean of these logarithms."""
        return float(np.mean(self.score_samples(X)))

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:  # noqa: ARG002, D102 - see PrivateEstimator
        logs = self._logs(points)
        return float(np.mean(logsumexp(logs, axis=1)) + self.means_.shape[1] * np.log(2)), 0.0

    def plot(self, x: str | None = None, y: str | None = None) -> Chart:
        """The means in two columns, by default those in which they differ most for their bounds.

        Areas are weights; bars are the standard deviations of the components.
        """
        self._require_fitted()
        spreads = self.covariances_
        if self.covariance_type == "full":
            spreads = np.diagonal(spreads, axis1=1, axis2=2)
        chart = plots.centers(
            self.coordinates_,
            self.means_,
            self.weights_,
            np.sqrt(spreads),
            x=x,
            y=y,
            named=("component", range(len(self.weights_))),
            areas="share of rows (noisy)",
        )
        return self._framed(chart, "bars are standard deviations of the components")

    def _logs(self, X: Rows) -> Floats:
        points = self._points(X)
        return self._clouds.logs(points)


@final
@dataclass(frozen=True, slots=True)
class Clouds:
    """Weights, means and covariances, on the scale from -1 to 1.

    Covariances are of shape (clouds, columns), or (clouds, columns, columns).
    """

    weights: Floats
    means: Floats
    covariances: Floats

    @property
    def full(self) -> bool:
        """Whether there are covariances of pairs."""
        return self.covariances.ndim == 3

    def logs(self, points: Floats) -> Floats:
        """The logarithms of weight times density, of shape (points, clouds)."""
        linear, second, constant = self.terms()
        if not self.full:
            squares = points**2
        else:
            first, other = np.triu_indices(points.shape[1])
            squares = points[:, first] * points[:, other]
        return points @ linear.T + squares @ second.T + constant

    def terms(self) -> tuple[Floats, Floats, Floats]:
        """The same as weights of coordinates, of their squares or products, and a constant."""
        columns = self.means.shape[1]
        if not self.full:
            linear, second = self.means / self.covariances, -0.5 / self.covariances
            volume = np.sum(np.log(self.covariances), axis=1)
        else:
            inverse = np.linalg.inv(self.covariances).astype(np.float64)
            linear = np.einsum("kij,kj->ki", inverse, self.means)
            first, other = np.triu_indices(columns)
            second = -inverse[:, first, other] * np.where(first == other, 0.5, 1.0)
            volume = np.linalg.slogdet(self.covariances).logabsdet.astype(np.float64)
        middle = np.sum(linear * self.means, axis=1)
        constant = np.log(self.weights) - 0.5 * (middle + volume + columns * np.log(2 * np.pi))
        return linear, second, constant

    def dealt(self, reach: int) -> Soft:
        """How rows on a grid belong to the clouds.

        Scores are as fine as doubles hold exactly; e^-x is a table of steps of 1/1024.
        """
        linear, second, constant = self.terms()
        table = np.column_stack([linear / reach, second / reach**2, constant])
        bounds = np.concatenate([
            np.full(linear.shape[1], reach), np.full(second.shape[1], reach**2), [1]
        ])  # fmt: skip
        largest = float(np.max(np.abs(table) @ bounds)) + 1
        shift = int(np.floor(np.log2(EXACT_MAX / 4 / (largest * _STEP))))
        whole = np.rint(table * _STEP * 2.0**shift)
        scores = Scores(Numbers.of(whole), "products" if self.full else "squares")
        entries = np.rint((1 << 20) * np.exp(-np.arange(_ENTRIES) / _STEP))
        return Soft(scores, Lookup(Numbers.of(entries), shift), _UNIT)


def fit_mixture(
    ask: RowsAsk, components: int, *, shape: str = "diag", rounds: int = 2, seed: int = 0
) -> Fitted:
    """Weights, means and covariances on the scale from -1 to 1; the noise variance of the means."""
    until = float(_START)
    centers = fit_kmeans(Part(ask, _START, until=until), components, seed=seed)["centers"]
    share = (1 - _START) / rounds
    weighing: Nearest | Soft = nearest(centers, ask.reach)
    found: Fitted = {}
    for place in range(rounds):
        ask.done(until + (1 - until) * place / rounds, f"round {place + 1} of {rounds}")
        clouds, variances = step(ask, weighing, centers, shape, share)
        centers, weighing = clouds.means, clouds.dealt(ask.reach)
        found = {
            "weights": clouds.weights,
            "means": clouds.means,
            "covariances": clouds.covariances,
            "variances": variances,
        }
        ask.keep(found)
    return found


def step(
    ask: RowsAsk, weighing: Nearest | Soft, centers: Floats, shape: str, share: Fraction
) -> tuple[Clouds, Floats]:
    """One maximisation: clouds as the rows dealt to them lie, and the noise of their means."""
    unit = _UNIT if isinstance(weighing, Soft) else 1
    second: Feature = Squares() if shape == "diag" else Products()
    question = Statistic(weighing, (One(), Linear(), second))
    counts, sums, squares = ask.totals(question, divided(share, *_SHAPES[shape]))
    rows = np.maximum(counts.values[:, 0] / unit, max(1.0, counts.variance**0.5 / unit))
    raw = sums.values / ask.reach / unit / rows[:, None]
    of_counts = counts.variance * np.mean(np.clip(raw, -1, 1) ** 2, axis=1)
    variances = (sums.variance / ask.reach**2 + of_counts) / (unit * rows) ** 2
    means = np.clip(shrunk(raw, centers, ask.columns * variances), -1, 1)
    held = squares.values / ask.reach**2 / unit / rows[:, None]
    noise = squares.variance / (ask.reach**2 * unit * rows) ** 2
    covariances = _covariances(held, noise, rows, means, shape)
    return Clouds(rows / rows.sum(), means, covariances), variances


def _covariances(held: Floats, noise: Floats, rows: Floats, means: Floats, shape: str) -> Floats:
    """Of each cloud, drawn to that of all, and that to a sphere."""
    columns = means.shape[1]
    first, second = np.triu_indices(columns)
    if shape == "diag":
        first = second = np.arange(columns)
    raw = held - means[:, first] * means[:, second]
    parts = rows / rows.sum()
    together = (parts @ raw)[None]
    on = first == second
    usual = max(float(np.mean(together[0, on])), _THIN)
    sphere = np.where(on, usual, 0.0)[None]
    width = raw.shape[1]
    common = shrunk(together, sphere, width * float(parts**2 @ noise))
    found = shrunk(raw, np.repeat(common, len(raw), axis=0), width * noise)
    least = np.maximum(max(_THIN, usual / 100), _DOUBT * np.sqrt(noise))
    if shape == "diag":
        return np.clip(found, np.minimum(least, 1.0)[:, None], 1.0)
    squares = [square_of(each, columns) for each in found]
    return np.stack([_positive(each, low) for each, low in zip(squares, least, strict=True)])


def _positive(matrix: Floats, least: float) -> Floats:
    """The matrix with eigenvalues of at least this."""
    values, vectors = np.linalg.eigh(matrix)
    found: Floats = (vectors * np.clip(values, least, None)) @ vectors.T
    return found
