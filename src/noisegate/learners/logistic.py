"""Logistic regression of two or more classes.

    LogisticRegression(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="sick"))

Most of what a price buys is moments of the classes; see `moments.py`. Perturbed objectives
[CMS11] need the exact minimiser, which no solver gives, and are not offered.
"""

from typing import ClassVar

from noisegate.learners.asking import RowsAsk
from noisegate.learners.base import ProbableClassifier
from noisegate.learners.fitting import Fitted
from noisegate.learners.margin_classifier import MarginClassifier
from noisegate.learners.moments import LOGISTIC, Loss, measure, refined


def fit_logistic(ask: RowsAsk, *, penalty: float = 1.0, rounds: int | None = None) -> Fitted:
    """Lines from moments of the classes, refined by Newton steps where noise allows."""
    moments, plan = measure(ask, LOGISTIC, rounds=rounds)
    return refined(ask, LOGISTIC, moments.lines(), moments, plan.rounds, penalty=penalty)


class LogisticRegression(ProbableClassifier, MarginClassifier):
    """The probability of each class, by linear scores.

    After `fit`, ``coef_`` and ``intercept_`` are in the units of the columns; two classes have one
    row of them. ``error_["coef"]`` is the standard deviation of the noise in each weight, about,
    or infinite where noise would hide most columns and this one was not asked about; ``rows_`` the
    noisy number of rows.

    Args:
        epsilon: The price.
        C: One over the penalty of half the squared weights, of columns scaled to -1 and 1.
        method: "auto" (moments, and Newton steps where noise allows), "moments" (one round),
            "newton" (always steps), or "sulq" (descent by noisy slopes from 0) [BDMN05].
        max_iter: How many steps; by default as many as noise allows.
        bounds: (low, high) of the columns of an array.
        classes: The classes of an array's target.
        memory: The budget for arrays.

    >>> import numpy as np
    >>> from noisegate.connect import memory
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
