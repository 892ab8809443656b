"""Principal components and covariances, from noisy sums of coordinates and of their products.

    PCA(n_components=2, epsilon=1).fit(gate.matrix("patients", ["age", "bmi", "cost"]))

Products of all pairs of d columns are d² numbers, so their noise grows with d². Where the rows do
not stand out of that, the method looks at sums of rows on either side of some directions instead:
such differences are the covariance times the directions, so each look is a step of the power
iteration, and d numbers for each. Where noise hides even these, the components are of a random few
columns: they hold more than directions that are noise alone.
"""

from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.display.drawing import Chart
from noisegate.errors import SpecError
from noisegate.frozen import KW_ONLY, dataclass
from noisegate.learners import plots
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateEstimator, PrivateTransformer
from noisegate.learners.fitting import Algorithm, Fitted, Options
from noisegate.learners.linear.scores import Lengths, ask_lengths, shortened, square_in, square_of
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import divided, shrunk
from noisegate.learners.parameters import require_one_of, require_seed, require_whole
from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.transforms.statistics.features import Linear, One, Products
from noisegate.transforms.statistics.numbers import Numbers
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Lookup, Nearest, Plain, Scores, Slopes

_COUNT: Final = Fraction(3, 100)
_LENGTHS: Final = Fraction(4, 100)
_LEFT: Final = 1 - _COUNT - _LENGTHS
_SUMS: Final = 0.16  # of the rest, for the mean beside products
_MEAN: Final = 0.22  # of the rest, for the mean before directions
_SPREADS: Final = 0.05  # of the rest, for how far rows lie along the directions found
_FIRST: Final = 0.1  # of the mean squared length, along the first component: a guess
_CLEAR: Final = 0.4  # noise that an eigenvector may have, by that guess
_ROUNDS: Final = ((0.2, 1), (0.08, 2), (0.0, 3))  # by the noise of a direction, likewise
_BLIND: Final = 2.0  # the noise of a direction that hides it
_SEEN: Final = 8  # deviations of a number of rows that is none: Laplace passes 1 in 160,000
_FINE: Final = 1 << 4  # steps of a direction, for each of the grid
_ENTRIES: Final = 1 << 12  # of a table, to either side
_ENTRY_MAX: Final = 1 << 20


@dataclass(eq=False, repr=False)
class PCA(PrivateTransformer):
    """Principal components, in the units of the columns.

    After `fit`: ``components_``, ``explained_variance_``, ``explained_variance_ratio_``, ``mean_``,
    all as scikit-learn has them, and ``error_["variance"]``, the standard deviation of the noise of
    each variance. A column with far wider bounds than others has most of the noise and, if it
    varies as much, the first component: scale columns first, as with any PCA. Where noise would
    hide everything, a random few columns are asked about: all
    others are 0 in the components, and in the middle of their bounds in the mean.

    Args:
        n_components: The number of components.
        epsilon: The price.
        method: "auto", or "sulq": noise on all products of pairs, as they are.
        bounds: (low, high) of the columns of an array.
        memory: The budget for arrays.
        random_state: Of public directions to begin with; noise has no seed.

    >>> from noisegate.root import memory
    >>> line = np.linspace(-1, 1, 1000)
    >>> rows = np.stack([line, -line, 0 * line], axis=1)
    >>> model = PCA(1, epsilon=2, bounds=(-1, 1), memory=memory(epsilon=2)).fit(rows)
    >>> np.abs(model.components_ * 2**0.5).round().tolist()
    [[1.0, 1.0, 0.0]]
    """

    _measure: ClassVar[str | None] = "share of the variance kept"

    n_components: int = 2
    _: KW_ONLY
    method: str = "auto"
    random_state: int = 0

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:
        count = require_whole(self.n_components, "n_components", 1, 1 << 12)
        seed = require_seed(self.random_state)
        method = require_one_of(self.method, "method", ("auto", "sulq"))
        coordinates = matrix.coordinates()
        if count > len(coordinates):
            raise SpecError(
                "There are fewer columns than components.", fix="Ask for fewer components."
            )
        options = {"components": count, "method": method, "units": "columns"}
        halves = np.array([float(each.half) for each in coordinates])
        if method == "sulq":
            return partial(fit_sulq, components=count, units=halves), options
        fit = partial(fit_pca, components=count, seed=seed, units=halves)
        return fit, options | {"seed": seed}

    def _take(self, fitted: Fitted) -> None:
        self.components_ = fitted["components"]
        self.mean_ = self._unscaled(fitted["mean"])
        self.explained_variance_ = fitted["variances"]
        total = max(float(fitted["total"]), float(self.explained_variance_.sum()), 1e-12)
        self.explained_variance_ratio_ = self.explained_variance_ / total
        self.error_ = {"variance": fitted["noise"]}

    def transform(self, X: Rows) -> Floats:
        """The coordinates of points along the components; points are clipped to the bounds."""
        return (self._unscaled(self._points(X)) - self.mean_) @ self.components_.T

    def inverse_transform(self, X: Rows) -> Floats:
        """Points with these coordinates, in the units of the columns."""
        self._require_fitted()
        found: Floats = self.mean_ + np.asarray(X) @ self.components_
        return found

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:  # noqa: ARG002, D102 - see PrivateEstimator
        true = self._unscaled(self._points(points))
        lost = np.square(true - self.inverse_transform(self.transform(points))).sum()
        all_of_it = np.square(true - true.mean(axis=0)).sum()
        return float(1 - lost / all_of_it), self.n_components / true.shape[1]

    def plot(self) -> Chart:
        """What each column adds to each component."""
        self._require_fitted()
        shares = self.explained_variance_ratio_
        return self._framed(
            plots.loadings(self._names, self.components_, shares), "what columns add to components"
        )


class EmpiricalCovariance(PrivateEstimator):
    """Means and covariances of columns, in their units; no eigenvalue is below 0.

    ``error_["covariance"]`` is the standard deviation of the noise of each covariance: of sums,
    means and the number of rows. What shortening long rows takes away is not in it.

    >>> from noisegate.root import memory
    >>> rows = np.repeat([[0.0, 8.0], [8.0, 0.0]], 5000, axis=0)
    >>> model = EmpiricalCovariance(epsilon=2, bounds=(0, 8), memory=memory(epsilon=2)).fit(rows)
    >>> model.covariance_.round().tolist()
    [[16.0, -16.0], [-16.0, 16.0]]
    """

    _measure: ClassVar[str | None] = "share of the squared covariances explained"

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        return fit_covariance, {}

    def _take(self, fitted: Fitted) -> None:
        scale = np.outer(self._halves, self._halves)
        self.location_ = self._unscaled(fitted["mean"])
        self.covariance_ = fitted["covariance"] * scale
        self.error_ = {"covariance": fitted["noise"] * scale}

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:  # noqa: ARG002, D102 - see PrivateEstimator
        scale = np.outer(self._halves, self._halves)
        true = np.cov(self._points(points), rowvar=False, bias=True).reshape(scale.shape)
        lost = np.square(self.covariance_ / scale - true).sum()
        return float(1 - lost / np.square(true).sum()), 0.0


def fit_pca(ask: RowsAsk, components: int, *, seed: int = 0, units: Floats | None = None) -> Fitted:
    """Directions as rows, how far rows lie along them, and the mean, which is from -1 to 1.

    Directions and variances are in ``units``: what 1 of each column is, 1 if not said.
    """
    ask.done(0.0, "counting rows")
    rows, lengths, told, off = _look(ask)
    total = max(square_in(lengths) * ask.columns, 1e-9)
    sums, products = divided(_LEFT, _SUMS, 1 - _SUMS)
    norm, noise = _norm(ask, lengths, products)
    if np.sqrt(ask.columns) * noise / (rows * _FIRST * total) < _CLEAR:
        ask.done(0.2, "measuring products")
        return _eigen(_moments(ask, rows, off, norm, [sums, products]), components, units)
    coins = public_coins(f"{seed} and {told} rows")  # no columns are unlucky in every fit
    found = _directions(ask, components, rows, total, coins, units)
    return {**found, "noise": np.hypot(found["noise"], found["variances"] * off)}


def fit_sulq(ask: RowsAsk, components: int, *, units: Floats | None = None) -> Fitted:
    """Noise on the sums of all products, as they are [DTTZ14]."""
    count, sums, products = divided(Fraction(1), 1, 3, 16)
    (counted,) = ask.totals(Statistic(Plain(), (One(),)), [count])
    rows = max(1.0, float(counted.values[0, 0]))
    off = counted.variance**0.5 / rows
    return _eigen(_moments(ask, rows, off, None, [sums, products]), components, units)


def fit_covariance(ask: RowsAsk) -> Fitted:
    """Means and covariances of columns from -1 to 1, drawn to a sphere where noise hides them."""
    rows, lengths, _, off = _look(ask)
    shares = divided(_LEFT, _SUMS, 1 - _SUMS)
    ask.done(0.2, "measuring products")
    norm, _ = _norm(ask, lengths, shares[1])
    found = _moments(ask, rows, off, norm, shares)
    pairs = np.triu_indices(ask.columns)
    usual = float(np.clip(np.trace(found.matrix) / ask.columns, 0.0, 1.0))
    sphere = np.where(pairs[0] == pairs[1], usual, 0.0)[None]
    drawn = shrunk(found.matrix[pairs][None], sphere, sphere.size * found.noise**2)
    values, vectors = np.linalg.eigh(square_of(drawn[0], ask.columns))
    held = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return {"mean": found.mean, "covariance": held, "noise": found.errors}


@final
@dataclass(frozen=True, slots=True)
class _Moments:
    """Mean and covariance, and the standard deviations of noise.

    ``noise`` is that of a product, ``blur`` that of a mean, ``off`` that of the number of rows, as
    a part of it: with n + dn for n, S/n - mm' becomes that and (mm' - covariance) dn/n.
    """

    mean: Floats
    matrix: Floats
    noise: float
    blur: float
    off: float

    @property
    def errors(self) -> Floats:
        """The standard deviation of the noise of each covariance."""
        squares, products = self.mean**2, np.outer(self.mean, self.mean)
        turned = np.add.outer(squares, squares) + 2 * np.diag(squares)
        rows = (products - self.matrix) * self.off
        errors: Floats = np.sqrt(self.noise**2 + turned * self.blur**2 + rows**2)
        return errors

    def along(self, ways: Floats) -> Floats:
        """The same of the variance along each direction."""
        lengths, middles = np.sum(ways**2, axis=1), (ways @ self.mean) ** 2
        rows = (middles - np.sum(ways @ self.matrix * ways, axis=1)) * self.off
        turned = 4 * middles * lengths * self.blur**2
        errors: Floats = np.sqrt((self.noise * lengths) ** 2 + turned + rows**2)
        return errors


def _look(ask: RowsAsk) -> tuple[float, Lengths | None, float, float]:
    """About how many rows there are, their lengths if these stand out of the noise; what it told.

    The number of rows is not taken for less than its noise; what part of it that is comes last.
    """
    (count,) = ask.totals(Statistic(Plain(), (One(),)), [_COUNT])
    told = float(count.values[0, 0])
    rows = max(1.0, count.variance**0.5, told)
    lengths = ask_lengths(ask, ask.columns, rows, _LENGTHS)
    return rows, lengths, told, count.variance**0.5 / rows


def _products(ask: RowsAsk) -> Products:
    return Products((5, 7)) if ask.gaussian else Products()


def _norm(ask: RowsAsk, lengths: Lengths | None, share: Fraction) -> tuple[int | None, float]:
    """The length to shorten rows to, if any, and the noise of an entry of the sums of products.

    It is where noise and what shortening takes away are least together, as far as is known. Where
    no number of rows stands out of its noise, nothing is known, and rows stay as long as they are.
    """
    feature = _products(ask)
    norms: list[int | None] = [None]
    if lengths is not None:
        held = lengths.counts.values[:, 0]
        counts = np.where(held > _SEEN * lengths.counts.variance**0.5, held, 0.0)
        norms += map(int, lengths.edges) if counts.any() else ()
    found = []
    for norm in norms:
        question = shortened(Plain(), (feature,), norm, ask.columns)
        (variance,) = ask.variance(question, [share])
        noise = variance**0.5 / feature.weights[1] / ask.reach**2
        cost = 2 * np.sqrt(ask.columns) * noise
        if lengths is not None and norm is not None:
            over = np.maximum(lengths.edges**2 - norm**2, 0.0) / ask.reach**2
            cost += float(over @ counts) / 2
        found.append((cost, noise, norm))
    _, noise, norm = min(found, key=lambda each: each[0])
    return norm, noise


def _moments(
    ask: RowsAsk, rows: float, off: float, norm: int | None, shares: list[Fraction]
) -> _Moments:
    feature = _products(ask)
    question = shortened(Plain(), (Linear(), feature), norm, ask.columns)
    sums, products = ask.totals(question, shares)
    raw = sums.values / ask.reach / rows
    spread = ask.columns * sums.variance / (ask.reach * rows) ** 2
    mean = np.clip(shrunk(raw, np.zeros_like(raw), spread)[0], -1, 1)
    held = products.values[0] / feature.factors(ask.columns) / ask.reach**2 / rows
    matrix = square_of(held, ask.columns) - np.outer(mean, mean)
    noise = products.variance**0.5 / feature.weights[1] / ask.reach**2 / rows
    return _Moments(mean, matrix, noise, sums.variance**0.5 / ask.reach / rows, off)


def _eigen(found: _Moments, components: int, units: Floats | None) -> Fitted:
    one = np.ones(len(found.mean)) if units is None else units
    matrix = found.matrix * np.outer(one, one)
    values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-values, kind="stable")[:components]
    ways = _signed(vectors[:, order].T)
    return {
        "components": ways,
        "variances": np.maximum(values[order], 0.0),
        "mean": found.mean,
        "total": np.array(max(0.0, float(np.trace(matrix)))),
        "noise": found.along(ways * one),
    }


def _directions(
    ask: RowsAsk, components: int, rows: float, total: float, rng: Coins, units: Floats | None
) -> Fitted:
    """Steps of the power iteration, by sums of rows on either side of directions.

    Directions are in ``units``, as parts of the widest: for the door, which sees columns from -1 to
    1, each is stretched by them. How far rows lie along all columns is only known for columns from
    -1 to 1: the total takes it to be spread over them evenly.
    """
    widest = 1.0 if units is None else float(units.max())
    parts = np.ones(ask.columns) if units is None else units / widest
    first, last, left = divided(_LEFT, _MEAN, _SPREADS, 1 - _MEAN - _SPREADS)
    wide = min(ask.columns, max(2 * components, 4))
    blur = _blur(ask, rows, total, left, wide)
    rounds = next(rounds for above, rounds in _ROUNDS if blur > above)
    places, coordinates = np.arange(ask.columns), Linear()
    if blur > _BLIND and wide + 1 < ask.columns:
        places = np.sort(rng.permutation(ask.columns)[: wide + 1])
        coordinates = Linear(tuple(places.tolist()))
    (sums,) = ask.totals(Statistic(Plain(), (coordinates,)), [first])
    raw = sums.values / ask.reach / rows
    noise = len(places) * sums.variance / (ask.reach * rows) ** 2
    seen = np.clip(shrunk(raw, np.zeros_like(raw), noise), -1, 1)
    mean = _spread_out(seen, places, ask.columns)[0]
    found = np.linalg.qr(rng.normal(size=(len(places), wide)))[0].T
    found = _spread_out(found, places, ask.columns)
    for place in range(rounds):
        ask.done((place + 1) / (rounds + 2), f"round {place + 1} of {rounds}")
        cells = _sides(found * parts, mean, ask.reach)
        question = Statistic(cells, (One(), coordinates))
        counts, held = ask.totals(question, divided(left / rounds, 1, 9))
        away = (held.values / ask.reach - counts.values * seen) * parts[places]
        turned = np.linalg.svd(away[: len(found)] - away[len(found) :], full_matrices=False)[2]
        found = _spread_out(turned[:components], places, ask.columns)
        if len(found) < components:
            break
    spreads, noise_of = _spreads(ask, found * parts, mean, rows, last)
    order, around = np.argsort(-spreads, kind="stable"), total - float(mean @ mean)
    whole = max(around * float(np.mean(parts**2)), float(spreads.sum()))
    return {
        "components": _signed(found[order]),
        "variances": spreads[order] * widest**2,
        "mean": mean,
        "total": np.array(whole * widest**2),
        "noise": np.full(len(spreads), noise_of * widest**2),
    }


def _spread_out(held: Floats, places: NDArray[np.int64], columns: int) -> Floats:
    """Numbers of some columns, and 0 in all others."""
    found = np.zeros((len(held), columns))
    found[:, places] = held
    return found


def _blur(ask: RowsAsk, rows: float, total: float, share: Fraction, wide: int) -> float:
    """How far noise turns a direction, by the usual guess, if one round gets the share."""
    cells = _sides(np.eye(ask.columns)[:1], np.zeros(ask.columns), ask.reach)
    _, sums = ask.variance(Statistic(cells, (One(), Linear())), divided(share, 1, 9))
    noise = np.sqrt(2 * ask.columns * sums) / ask.reach
    return float(noise * wide / 2 / (0.8 * rows * np.sqrt(_FIRST * total)))


def _sides(directions: Floats, mean: Floats, reach: int) -> Nearest:
    """Rows by the direction along which they are furthest from the mean, and its side."""
    held = np.rint(np.vstack([directions, -directions]) * _FINE * reach)
    return Nearest(Scores(Numbers.of(np.column_stack([held, np.rint(-held @ mean * reach)]))))


def _spreads(
    ask: RowsAsk, directions: Floats, mean: Floats, rows: float, share: Fraction
) -> tuple[Floats, float]:
    """The variance along each direction, and the standard deviation of its noise.

    Squares of distances come from a table, up to a quarter of the number of columns.
    """
    held = np.rint(directions * _FINE * ask.reach)
    scores = Scores(Numbers.of(np.column_stack([held, np.rint(-held @ mean * ask.reach)])))
    fine = _FINE * ask.reach**2  # steps of a score, for 1
    shift = int(np.log2(np.sqrt(ask.columns) / 2 * fine / _ENTRIES))
    squares = ((np.arange(-_ENTRIES, _ENTRIES) + 0.5) * 2.0**shift / fine) ** 2
    unit = 2.0 ** int(np.log2(_ENTRY_MAX / squares.max()))
    table = Lookup(Numbers.of(np.rint(unit * squares)), shift, _ENTRIES)
    (sums,) = ask.totals(Statistic(Slopes(scores, table, signed=False), (One(),)), [share])
    return np.maximum(sums.values[:, 0], 0.0) / unit / rows, sums.variance**0.5 / unit / rows


def _signed(directions: Floats) -> Floats:
    """With the sign that makes the largest number of each positive."""
    largest = np.argmax(np.abs(directions), axis=1)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    return directions * np.where(signs == 0, 1.0, signs)[:, None]
