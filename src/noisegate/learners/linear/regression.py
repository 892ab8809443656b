"""Linear regression, plain and with a ridge: noisy slopes of the squares, and noisy products.

    LinearRegression(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="cost"))

Products of all columns say how slopes become steps [Wan18]; they need not be exact, because slopes
of the residuals at the current line correct what they got wrong, with far less noise: residuals are
cut where few of them reach. Where noise hides the products, steps go straight down the slopes.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np
from sklearn.base import RegressorMixin

from noisegate.errors import SpecError
from noisegate.learners import plots
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateEstimator
from noisegate.learners.fitting import Algorithm, Fitted, Options, Task, learn
from noisegate.learners.linear.scores import (
    PRODUCTS_MAX,
    UNIT,
    ask_lengths,
    cells_of_score,
    lookup,
    noise_of,
    pulls,
    scores,
    shortened,
    square_in,
    square_of,
    useful,
)
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import divided
from noisegate.learners.parameters import require_rounds
from noisegate.transforms.statistics.features import Linear, One, Products
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain, Slopes

_LOOK: Final = Fraction(1, 20)
_WIDE: Final = Fraction(2, 5)  # of the price, for products
_SPAN: Final = 2  # residuals of targets from -1 to 1
_CUTS: Final = 31  # of residuals
_INSIDE: Final = 0.95  # of the residuals, that are not cut
_AWAY: Final = 0.15  # the square of a target's mean, from -1 to 1: a guess
_WORSE: Final = 1.2
_SURE: Final = 8  # deviations of noise above which a bin must be, for bins to tell anything
_CLEAR: Final = 3  # and above which each is taken for more than noise
_WORST: Final = 1e6  # below 0, as a score


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression by least squares.

    After `fit`, ``coef_`` and ``intercept_`` are in the units of the columns. ``error_["coef"]`` is
    the standard error of each weight, of chance in the rows and of noise together;
    ``error_["noise"]`` that of noise alone, about; ``error_["residual"]`` the root of the noisy
    mean square of residuals. ``rows_`` is the noisy number of rows. Predictions stay within the
    target's bounds.

    Args:
        epsilon: The price.
        max_iter: The number of steps; by default 1 to 3, as noise allows.
        bounds: (low, high) of the columns of an array.
        target_bounds: (low, high) of an array's target.
        memory: The budget for arrays.

    >>> from noisegate.root import memory
    >>> rows = np.tile(np.linspace(0, 10, 50), 400)[:, None]
    >>> purse = memory(epsilon=1)
    >>> model = LinearRegression(bounds=(0, 10), target_bounds=(0, 30), memory=purse)
    >>> model = model.fit(rows, 2 * rows[:, 0] + 5)
    >>> model.coef_.round(1).tolist(), round(float(model.intercept_))
    ([2.0], 5)
    """

    _told_by: ClassVar[str | None] = "target_bounds"

    max_iter: int | None = None
    target_bounds: Any = None  # (low, high)

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        options: dict[str, Any] = {
            "penalty": self._require_penalty(),
            "rounds": require_rounds(self.max_iter),
        }
        return partial(fit_linear, **options), options

    def _take(self, fitted: Fitted) -> None:
        told = self.target_
        assert told is not None  # noqa: S101 - a number was asked for
        self._line, self._name = fitted["line"], told.name
        self._middle, self._half = float(told.middle), float(told.half)
        unit = self._half / self._halves
        self.coef_ = self._line[:-1] * unit
        level = self._line[-1] * self._half + self._middle
        self.intercept_ = float(level - self.coef_ @ self._middles)
        self.error_: dict[str, Any] = {
            "coef": fitted["deviations"] * unit,
            "noise": fitted["noise"] * unit,
            "residual": float(fitted["residual"]) * self._half,
        }
        self.rows_ = float(fitted["rows"])

    def _require_penalty(self) -> float:
        return 0.0

    def predict(self, X: Any) -> Floats:  # noqa: ANN401, N803
        """The number at each point, within the target's bounds."""
        level = self._points(X) @ self._line[:-1] + self._line[-1]
        found: Floats = self._middle + np.clip(level, -1, 1) * self._half
        return found

    def score(
        self,
        X: Any,  # noqa: ANN401, N803 - a Matrix, or an array
        y: Any = None,  # noqa: ANN401
        sample_weight: Any = None,  # noqa: ANN401
        *,
        epsilon: Any = None,  # noqa: ANN401 - a number
    ) -> float:
        """R²: exact for an array, noisy and paid for with a matrix."""
        if not isinstance(X, Matrix):
            return float(super().score(X, y, sample_weight))
        self._require_fitted()
        asked = partial(_fit, line=self._line)
        task = Task("R²", {"line": self._line.tolist()}, asked, number=True)
        found = learn(X, task, epsilon=epsilon).fitted["sums"]
        rows, total, squares, left = found.tolist()
        spread = squares - total**2 / max(rows, 1.0)
        return float(np.clip(1 - left / spread, -_WORST, 1)) if spread > 0 else 0.0

    def plot(self) -> Any:  # noqa: ANN401 - altair may be missing
        """The weights of each column across its bounds, with two standard errors."""
        self._require_fitted()
        weights, errors = self.coef_ * self._halves, self.error_["coef"] * self._halves
        chart = plots.weights(self._names, weights[None], errors[None], [self._name])
        return self._framed(chart, "weights; lines are two standard errors")


@dataclass(eq=False, repr=False)
class Ridge(LinearRegression):
    """Linear regression with a penalty on the squared weights of columns scaled to -1 and 1.

    See `LinearRegression`; ``alpha`` is the penalty, of a target scaled to -1 and 1.

    >>> from noisegate.root import memory
    >>> rows = np.tile(np.linspace(0, 10, 50), 400)[:, None]
    >>> model = Ridge(alpha=10, bounds=(0, 10), target_bounds=(0, 30), memory=memory(epsilon=1))
    >>> model.fit(rows, 2 * rows[:, 0] + 5).coef_.round(1).tolist()
    [2.0]
    """

    alpha: float = 1.0

    def _require_penalty(self) -> float:
        given = self.alpha
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1e300:
            raise SpecError("alpha is negative.", fix="Use 1.0, or more.")
        return float(given)


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known about rows: how many, the norm they are cut to, squares of coordinates."""

    rows: float
    norm: int | None
    square: float


@final
@dataclass(frozen=True, slots=True)
class _Residuals:
    """The mean and mean square of a line's residuals and where to cut them, if they were seen."""

    mean: float = 0.0
    square: float = 1.0
    cut: float = 1.0
    seen: bool = False


@final
@dataclass(frozen=True, slots=True)
class _Spread:
    """The mean of coordinates, and one over their covariance, as noise lets it be known."""

    mean: Floats
    inverse: Floats


def fit_linear(ask: RowsAsk, *, penalty: float = 0.0, rounds: int | None = None) -> Fitted:
    """A line, the constant last; deviations of its weights; and the mean square of residuals."""
    seen, left = _look(ask)
    first = _residuals(ask, np.zeros(ask.columns), _LOOK)
    level = np.append(np.zeros(ask.columns - 1), first.mean)
    line, spread, left = level, None, left - _LOOK
    wide = left * _WIDE
    if _clear(ask, seen, wide):
        line, spread = _solved(ask, seen, wide, penalty)
        left -= wide
    count = _rounds(ask, seen, left) if rounds is None else rounds
    walk = _Walk(ask, seen, spread, penalty)
    return walk.run(level, line, first, divided(left, *[1] * count))


def _fit(ask: RowsAsk, line: Floats) -> Fitted:
    """The number of rows, the sums of the target and its squares, and of squared residuals."""
    target = np.append(np.zeros(ask.columns - 1), [1.0, 0.0])
    (counted,) = ask.totals(Statistic(Plain(), (One(),)), [Fraction(1, 8)])
    found = [float(counted.values[0, 0])]
    parts = ((target, 1, Fraction(1, 8)), (target, 2, Fraction(1, 4)))
    for weights, power, share in (*parts, (_residual(line), 2, Fraction(1, 2))):
        table = lookup(partial(_power, power=power), ask.reach, span=_SPAN)
        weighing = Slopes(scores(weights[None], ask.reach), table, signed=False)
        (sums,) = ask.totals(Statistic(weighing, (One(),)), [share])
        found.append(float(sums.values[0, 0]) / UNIT)
    return {"sums": np.array(found)}


def _power(values: Floats, power: int) -> Floats:
    found: Floats = values**power
    return found


def _look(ask: RowsAsk) -> tuple[_Seen, Fraction]:
    """Rows and their lengths; and what is left of the price."""
    ask.done(0.0, "counting rows")
    (counted,) = ask.totals(Statistic(Plain(), (One(),)), [_LOOK])
    rows = max(float(counted.values[0, 0]), 3 * counted.variance**0.5, 1.0)
    columns = ask.columns - 1
    lengths = ask_lengths(ask, columns, rows, _LOOK)
    if lengths is None:
        return _Seen(rows, None, square_in(lengths)), 1 - _LOOK
    norm = useful(ask, lengths.covering(0.95), columns)
    return _Seen(rows, norm, square_in(lengths)), 1 - 2 * _LOOK


def _residual(line: Floats) -> Floats:
    """The weights of the residual: target less line."""
    return np.concatenate([-line[:-1], [1.0, -line[-1]]])


def _residuals(ask: RowsAsk, line: Floats, share: Fraction) -> _Residuals:
    """How large residuals are: a row is in one of a few bins."""
    steps = np.linspace(-1, 1, _CUTS + 2)[1:-1]
    cuts = _SPAN * np.sign(steps) * steps**2
    (counts,) = ask.totals(
        Statistic(cells_of_score(_residual(line), cuts, ask.reach), (One(),)), [share]
    )
    if counts.values.max() < _SURE * counts.variance**0.5:
        return _Residuals()
    ends = np.concatenate([[-_SPAN], cuts, [_SPAN]])
    middles, far = (ends[1:] + ends[:-1]) / 2, np.maximum(np.abs(ends[1:]), np.abs(ends[:-1]))
    clear = counts.values[:, 0] > _CLEAR * counts.variance**0.5
    held = np.where(clear, counts.values[:, 0], 0.0)
    held /= max(float(held.sum()), 1.0)
    order = np.argsort(far, kind="stable")
    place = int(np.searchsorted(np.cumsum(held[order]), _INSIDE))
    return _Residuals(
        float(held @ middles),
        float(held @ middles**2),
        float(far[order][min(place, _CUTS)]),
        seen=True,
    )


def _products(ask: RowsAsk, seen: _Seen) -> Statistic:
    return shortened(Plain(), (Linear(), Products()), seen.norm, ask.columns - 1)


def _clear(ask: RowsAsk, seen: _Seen, share: Fraction) -> bool:
    """Whether products would stand out of their noise."""
    if ask.columns > PRODUCTS_MAX:
        return False
    _, noise = noise_of(ask, _products(ask, seen), divided(share, 1, 7))
    return _edge(noise / ask.reach**4 / seen.rows**2, ask.columns) < seen.square / 2


def _edge(noise: float, columns: int) -> float:
    """How far noise of this variance moves the widths of a covariance, about."""
    return float((noise * columns) ** 0.5)


def _solved(ask: RowsAsk, seen: _Seen, share: Fraction, penalty: float) -> tuple[Floats, _Spread]:
    """The line of noisy products, and what they say about steps."""
    sums, products = ask.totals(_products(ask, seen), divided(share, 1, 7))
    mean = sums.values[0] / ask.reach / seen.rows
    whole = square_of(products.values[0], ask.columns) / ask.reach**2 / seen.rows
    whole -= np.outer(mean, mean)
    sizes, axes = np.linalg.eigh(whole[:-1, :-1])
    edge = _edge(products.variance / ask.reach**4 / seen.rows**2, ask.columns)
    sizes = np.maximum(sizes, 0) + edge + penalty / seen.rows
    spread = _Spread(mean[:-1], (axes / sizes) @ axes.T)
    weights = spread.inverse @ whole[:-1, -1]
    return np.append(weights, mean[-1] - weights @ mean[:-1]), spread


def _rounds(ask: RowsAsk, seen: _Seen, left: Fraction) -> int:
    """More steps where noise is small beside a target from -1 to 1."""
    weighing = _cut_slopes(ask, np.zeros(ask.columns), 0.5)
    question = shortened(weighing, (One(), Linear()), seen.norm, ask.columns - 1)
    _, noise = noise_of(ask, question, divided(left / 3, 1, 1))
    columns = ask.columns - 1
    blur = (noise * columns / seen.square) ** 0.5 / UNIT / ask.reach / seen.rows
    return 3 if blur < 0.05 else 2 if blur < 0.3 else 1


def _cut_slopes(ask: RowsAsk, line: Floats, cut: float) -> Slopes:
    """Residuals of rows, cut."""
    table = lookup(lambda value: np.clip(value, -cut, cut), ask.reach, span=_SPAN)
    return Slopes(scores(_residual(line)[None], ask.reach), table, signed=False)


@final
@dataclass(frozen=True, slots=True)
class _Walk:
    """Steps from a line to a better one."""

    ask: RowsAsk
    seen: _Seen
    spread: _Spread | None
    penalty: float

    def run(self, level: Floats, line: Floats, known: _Residuals, shares: list[Fraction]) -> Fitted:
        """The mean of the later lines, or the level one if these are seen to be worse."""
        least = known.square - known.mean**2
        found = self._fitted(level, np.zeros(len(line) - 1), known)
        walked: list[tuple[Floats, Floats]] = []
        for place, share in enumerate(shares):
            self.ask.keep(found)
            self.ask.done(0.2 + 0.8 * place / len(shares), f"round {place + 1} of {len(shares)}")
            look, rest = divided(share, 1, 7)
            line, noise = self._step(line, known, rest)
            known = _residuals(self.ask, line, look)
            walked.append((line, noise))
            if known.square <= _WORSE * least:
                found = self._fitted(*self._mean(walked), known)
        return found

    def _mean(self, walked: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
        """Of the later half: each is right but for its own noise, if steps are."""
        if self.spread is None:
            return walked[-1]
        lines, noises = zip(*walked[(len(walked) - 1) // 2 :], strict=True)
        return np.mean(lines, axis=0), np.mean(noises, axis=0) / len(noises)

    def _step(self, line: Floats, known: _Residuals, share: Fraction) -> tuple[Floats, Floats]:
        """The next line, and the variances of the noise of its weights."""
        rows, columns = self.seen.rows, self.ask.columns - 1
        parts = divided(share, 1, 4, 1, 2) if self.spread is None else divided(share, 1, 6)
        weighing = _cut_slopes(self.ask, line, known.cut)
        found, noise = pulls(self.ask, weighing, self.seen.norm, columns, parts[:2])
        slopes, variance = found[0, :-1] / rows, float(noise[0]) / rows**2
        slopes = slopes - self.penalty / rows * line[:-1]
        level = float(found[0, -1]) / rows
        if self.spread is not None:
            mean = self.spread.mean
            step = self.spread.inverse @ (slopes - mean * level)
            turned = np.sum(self.spread.inverse**2, axis=0)
            return line + np.append(step, level - mean @ step), variance * turned
        level *= _AWAY / (_AWAY + float(noise[-1]) / rows**2)
        length = max(float(slopes @ slopes), 1e-300)
        chance = 1 + 2 * (2 / columns) ** 0.5  # noise is seldom longer, by so much
        slopes = slopes * max(0.0, 1 - chance * columns * variance / length)
        step, shift, rate = self._down(slopes, parts[2:])
        return line + np.append(step, level - shift), np.full(columns, variance * rate**2)

    def _down(self, slopes: Floats, shares: list[Fraction]) -> tuple[Floats, float, float]:
        """A step down the slopes as long as rows' spread along them says, and what it lifts."""
        length = float(np.linalg.norm(slopes))
        if length == 0:
            return slopes, 0.0, 0.0
        along = np.append(slopes / length, [0.0, 0.0])
        mean, blur = self._along(along, 1, shares[0])
        if blur > self.seen.square / 4:
            return slopes * 0, 0.0, 0.0
        square, _ = self._along(along, 2, shares[1])
        spread = max(square - mean**2, self.seen.square)
        rate = 1 / (spread + self.penalty / self.seen.rows)
        return slopes * rate, mean * length * rate, rate

    def _along(self, line: Floats, power: int, share: Fraction) -> tuple[float, float]:
        """The mean of a power of the score along a line, and the variance of its noise."""
        reach, norm, columns = self.ask.reach, self.seen.norm, self.ask.columns - 1
        most = columns**0.5 if norm is None else norm / reach
        table = lookup(lambda value: np.clip(value, -most, most) ** power, reach, span=16)
        weighing = Slopes(scores(line[None], reach), table, signed=False)
        (sums,) = self.ask.totals(shortened(weighing, (One(),), norm, columns), [share])
        scale = UNIT * self.seen.rows
        return float(sums.values[0, 0]) / scale, sums.variance / scale**2

    def _fitted(self, line: Floats, noise: Floats, known: _Residuals) -> Fitted:
        inverse = np.full(len(noise), 1 / self.seen.square)
        if self.spread is not None:
            inverse = np.diag(self.spread.inverse)
        chance = known.square / self.seen.rows * inverse
        return {
            "line": line,
            "noise": np.sqrt(noise),
            "deviations": np.sqrt(noise + chance),
            "residual": np.array(known.square**0.5),
            "rows": np.array(self.seen.rows),
        }
