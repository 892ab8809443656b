"""Means and variances of columns, for scaling: noisy sums of coordinates and of their squares.

    StandardScaler(epsilon=0.1).fit(gate.matrix("patients", ["age", "bmi"]))

Least and largest values are not needed for scaling: bounds are declared.
"""

from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateTransformer
from noisegate.learners.fitting import Algorithm, Fitted, Options
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import divided, shrunk
from noisegate.transforms.statistics.features import Linear, One, Squares
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

_SHARES: Final = (1, 4, 4)  # of the count, the sums and the sums of squares
_USUAL: Final = 1 / 9  # a variance where noise hides all
_THIN: Final = 1e-4  # no variance is smaller, in squares of half the bounds


@dataclass(eq=False, repr=False, kw_only=True)
class StandardScaler(PrivateTransformer):
    """Columns with mean 0 and variance 1, from noisy means and variances.

    After `fit`: ``mean_``, ``var_`` and ``scale_`` in the units of the columns, ``rows_`` (noisy),
    and ``error_``: the standard deviations of the noise of ``"mean"`` and ``"var"``. As in
    scikit-learn, ``with_mean`` and ``with_std`` say what `transform` does.

    >>> from noisegate.root import memory
    >>> rows = np.repeat([[20.0], [40.0]], 5000, axis=0)
    >>> model = StandardScaler(epsilon=1, bounds=(0, 100), memory=memory(epsilon=1)).fit(rows)
    >>> model.mean_.round().tolist(), model.scale_.round().tolist()
    ([30.0], [10.0])
    >>> model.transform([[50.0]]).round().tolist()
    [[2.0]]
    """

    _measure: ClassVar[str | None] = "R² of the scaled values"

    with_mean: bool = True
    with_std: bool = True

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        return fit_scaler, {}

    def _take(self, fitted: Fitted) -> None:
        half = self._halves
        self.mean_ = self._unscaled(fitted["mean"])
        self.var_ = fitted["var"] * half**2
        self.scale_ = np.sqrt(self.var_)
        self.rows_ = float(fitted["rows"])
        self.error_ = {"mean": fitted["of_mean"] * half, "var": fitted["of_var"] * half**2}

    def transform(self, X: Rows) -> Floats:
        """Points minus the mean, in standard deviations; points are clipped to the bounds."""
        points = self._unscaled(self._points(X))
        away, unit = self._change()
        return (points - away) / unit

    def inverse_transform(self, X: Rows) -> Floats:
        """Points in the units of the columns."""
        self._require_fitted()
        away, unit = self._change()
        return np.asarray(X) * unit + away

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:  # noqa: ARG002, D102 - see PrivateEstimator
        held = self._points(points)
        true = self._unscaled(held)
        away = true.mean(axis=0) if self.with_mean else 0.0
        unit = true.std(axis=0) if self.with_std else 1.0
        exact = (true - away) / unit

        def explained(found: Floats) -> float:
            return float(1 - np.square(found - exact).sum() / np.square(exact).sum())

        middle = self._unscaled(0 * held[:1]) if self.with_mean else 0.0
        return explained(self.transform(points)), explained(
            (true - middle) / (self._halves if self.with_std else 1.0)
        )

    def _change(self) -> tuple[Floats, Floats]:
        """What is taken off each column, and what it is divided by."""
        ones = np.ones_like(self.mean_)
        return self.mean_ if self.with_mean else 0 * ones, self.scale_ if self.with_std else ones


def fit_scaler(ask: RowsAsk) -> Fitted:
    """Means and variances of columns from -1 to 1, and the standard deviations of their noise.

    Means are drawn to the middle as far as noise explains them, and a variance to that of all
    columns as far as it explains that they differ, so that none is 0 by chance.
    """
    ask.done(0.0, "measuring")
    question = Statistic(Plain(), (One(), Linear(), Squares()))
    count, sums, squares = ask.totals(question, divided(Fraction(1), *_SHARES))
    rows = max(1.0, count.variance**0.5, float(count.values[0, 0]))
    raw = sums.values / ask.reach / rows
    noise = ask.columns * sums.variance / (ask.reach * rows) ** 2
    mean = np.clip(shrunk(raw, np.zeros_like(raw), noise)[0], -1, 1)
    second = np.clip(squares.values[0] / ask.reach**2 / rows, 0, 1)
    spread = second - mean**2
    of_mean = sums.variance / ask.reach**2 + count.variance * mean**2
    # the square of the mean moves by twice the mean times what the mean moves by
    of_var = squares.variance / ask.reach**4 + 4 * mean**2 * sums.variance / ask.reach**2
    of_var = (of_var + count.variance * (second - 2 * mean**2) ** 2) / rows**2
    together = np.array([[max(float(spread.mean()), _THIN)]])
    usual = float(shrunk(together, np.array([[_USUAL]]), float(of_var.mean()) / ask.columns)[0, 0])
    real = max(0.0, float(spread.var() - of_var.mean()))
    found = usual + real / (real + of_var) * (spread - usual)
    return {
        "mean": mean,
        "var": np.clip(found, max(_THIN, usual / 100), 1.0),
        "rows": np.array(rows),
        "of_mean": np.sqrt(of_mean) / rows,
        "of_var": np.sqrt(of_var),
    }
