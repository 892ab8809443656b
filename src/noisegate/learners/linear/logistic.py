"""Logistic regression of two or more classes.

    LogisticRegression(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="sick"))

Most of what a price buys is moments of the classes; see `moments.py`. A perturbed objective buys
nothing but its minimiser: better where rows are many for their columns, worse where they are few.
"""

from functools import partial
from typing import ClassVar, Final

import numpy as np

from noisegate.exact import fraction
from noisegate.learners.asking import NoisySums, RowsAsk
from noisegate.learners.base import ProbableClassifier
from noisegate.learners.fitting import Algorithm, Fitted, Options
from noisegate.learners.linear.classifier import METHODS, MarginClassifier
from noisegate.learners.linear.moments import COUNT, LOGISTIC, Loss, count, measure, refined
from noisegate.learners.matrix import Matrix
from noisegate.learners.parameters import require_one_of
from noisegate.mechanisms.objective.perturbed_logistic import NUMBERS_MAX
from noisegate.transforms.statistics.features import Linear
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey

_CLEAR: Final = 0.0075  # beyond it, moments and steps are better
_WORK_MAX: Final = 1 << 31


def fit_logistic(ask: RowsAsk, *, penalty: float = 1.0, rounds: int | None = None) -> Fitted:
    """Lines from moments of the classes, refined by Newton steps where noise allows.

    Where it is nearly nothing beside the rows, the minimiser of a perturbed objective instead.
    """
    counted = count(ask)
    if rounds is None and _objective_is_clear(ask, float(counted.values.sum())):
        return fit_objective(ask, penalty=penalty, known=counted)
    moments, plan = measure(ask, LOGISTIC, rounds=rounds, known=counted)
    return refined(ask, LOGISTIC, moments.lines(), moments, plan.rounds, penalty=penalty)


def fit_objective(ask: RowsAsk, *, penalty: float = 1.0, known: NoisySums | None = None) -> Fitted:
    """The minimiser of a perturbed objective, and how many rows there are."""
    counted = count(ask) if known is None else known
    ask.done(0.1, "minimising")
    found = ask.minimised(fraction(penalty), 1 - COUNT)
    lines = found.values
    return {
        "lines": lines,
        "deviations": np.full((len(lines), ask.columns), found.variance**0.5),
        "rows": np.maximum(counted.values.sum(), 0.0),
    }


def _objective_is_clear(ask: RowsAsk, rows: float) -> bool:
    """Whether noise is small beside the slopes of so many rows, and they can be gone over often."""
    lines = ask.classes if ask.classes > 2 else 1
    numbers = lines * (ask.columns + 1)
    work = rows * max(numbers**2, ask.columns << 7)
    if not ask.objective or ask.gaussian or ask.classes < 2 or numbers > NUMBERS_MAX:
        return False
    if not 0 < work < _WORK_MAX:
        return False
    (noise,) = ask.variance(Statistic(ByKey(), (Linear(),)), [1 - COUNT])
    return bool(min(lines, 2) * noise**0.5 / ask.reach < _CLEAR * rows)


class LogisticRegression(ProbableClassifier, MarginClassifier):
    """The probability of each class, by linear scores.

    After `fit`, ``coef_`` and ``intercept_`` are in the units of the columns; two classes have one
    row of them. ``error_["coef"]`` is the standard deviation of the noise in each weight, about;
    of a perturbed objective, what it is at most; infinite where noise would hide most columns and
    this one was not asked about. ``rows_`` is the noisy number of rows.

    Args:
        epsilon: The price.
        C: One over the penalty of half the squared weights, of columns scaled to -1 and 1.
        method: "auto" (what noise allows of these), "moments" (one round), "newton" (always
            steps), "objective" (the minimiser of a perturbed objective, with a larger penalty where
            the price needs it) [CMS11], or "sulq" (descent by noisy slopes from 0) [BDMN05].
        max_iter: How many steps; by default as many as noise allows.
        bounds: (low, high) of the columns of an array.
        classes: The classes of an array's target.
        memory: The budget for arrays.

    >>> import numpy as np
    >>> from noisegate.root import memory
    >>> rows, told = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> purse = memory(epsilon=1)
    >>> model = LogisticRegression(epsilon=1, bounds=(0, 10), classes=[0, 1], memory=purse)
    >>> model.fit(rows, told).predict([[2.0, 7.0], [9.0, 1.0]])
    array([0, 1])
    >>> print(model.cost_)
    ε = 1
    """

    _loss: ClassVar[Loss] = LOGISTIC
    _refined = staticmethod(fit_logistic)

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:
        if require_one_of(self.method, "method", (*METHODS, "objective")) != "objective":
            return super()._plan(matrix)
        penalty = self._penalty()
        return partial(fit_objective, penalty=penalty), {"penalty": penalty, "method": self.method}
