"""Linear regression, plain and with a ridge; `lines.py` says how a line is found.

LinearRegression(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="cost"))
"""

from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from noisegate.desk.display.drawing import Chart
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.learners import plots
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateEstimator
from noisegate.learners.fitting import Algorithm, Fitted, Options, Task, learn
from noisegate.learners.linear.levels import residual
from noisegate.learners.linear.lines import SPAN, fit_linear
from noisegate.learners.linear.scores import UNIT, lookup, scores
from noisegate.learners.matrix import Matrix
from noisegate.learners.parameters import require_rounds
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain, Slopes

_WORST: Final = 1e6  # below 0, as a score


@dataclass(eq=False, repr=False, kw_only=True)
class LinearRegression(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Linear regression by least squares.

    After `fit`, ``coef_`` and ``intercept_`` are in the units of the columns. ``error_["coef"]`` is
    the standard error of each weight, of chance in the rows and of noise together;
    ``error_["noise"]`` that of noise alone, about; both are infinite for a column that was not
    asked about, since noise would hide it. ``error_["residual"]`` is the root of the noisy mean
    square of residuals. ``rows_`` is the noisy number of rows. Weights are drawn to 0 as far as
    noise explains them, so that at a small price the prediction is the mean. Predictions stay
    within the target's bounds.

    Args:
        epsilon: The price.
        max_iter: The number of steps; by default 1 to 4, as noise allows.
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
    _measure: ClassVar[str | None] = "R²"

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

    def predict(self, X: Rows) -> Floats:
        """The number at each point, within the target's bounds."""
        level = self._points(X) @ self._line[:-1] + self._line[-1]
        found: Floats = self._middle + np.clip(level, -1, 1) * self._half
        return found

    def score(
        self, X: Rows, y: Rows = None, sample_weight: Rows = None, *, epsilon: Number | None = None
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

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:  # noqa: D102 - see PrivateEstimator
        return float(super().score(points, target)), 0.0

    def plot(self) -> Chart:
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


def _fit(ask: RowsAsk, line: Floats) -> Fitted:
    """The number of rows, the sums of the target and its squares, and of squared residuals."""
    target = np.append(np.zeros(ask.columns - 1), [1.0, 0.0])
    (counted,) = ask.totals(Statistic(Plain(), (One(),)), [Fraction(1, 8)])
    found = [float(counted.values[0, 0])]
    parts = ((target, 1, Fraction(1, 8)), (target, 2, Fraction(1, 4)))
    for weights, power, share in (*parts, (residual(line), 2, Fraction(1, 2))):
        table = lookup(partial(_power, power=power), ask.reach, span=SPAN)
        weighing = Slopes(scores(weights[None], ask.reach), table, signed=False)
        (sums,) = ask.totals(Statistic(weighing, (One(),)), [share])
        found.append(float(sums.values[0, 0]) / UNIT)
    return {"sums": np.array(found)}


def _power(values: Floats, power: int) -> Floats:
    return values**power
