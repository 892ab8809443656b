"""Scores of models on private rows, for a price: what cross-validation and searches are given.

    budget = noisegate.memory(10)
    model = LogisticRegression(epsilon=1, bounds=(0, 1), classes=[0, 1], memory=budget)
    cross_val_score(model, X, y, scoring=scorer(budget, epsilon="0.1"))
    GridSearchCV(model, {"epsilon": [1, 2]}, scoring=scorer(budget, epsilon="0.1"))

Each fold is fitted and tried for its own price, all from one budget: a row is in many folds.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.learners.arrays import numbers_of


class Averaging(Protocol):
    """What `noisegate.memory` gives: noisy averages of numbers, one of each row."""

    def average(
        self, values: NDArray[Any], *, bounds: tuple[float, float], epsilon: Number
    ) -> float:
        """The average of numbers within bounds."""


def scorer(
    memory: Averaging,
    *,
    epsilon: Number,
    error_max: float | None = None,
) -> Callable[[Any, Any, Any], float]:
    """A score as scikit-learn's tools take it: noisy accuracy, paid from a budget at each use.

    Args:
        memory: The budget, as given to the estimator.
        epsilon: The price of each score.
        error_max: For a regression: the score is the average distance, each at most this, with a
            minus sign.
    """
    if error_max is not None and not error_max > 0:
        raise SpecError("error_max is not above 0.", fix="Use a number such as 10.")

    def score(estimator: Any, X: Any, y: Any) -> float:  # noqa: ANN401, N803 - scikit-learn's names
        told, true = np.asarray(estimator.predict(X)).ravel(), np.asarray(y).ravel()
        if error_max is None:
            right = np.asarray(told == true, np.float64)
            return memory.average(right, bounds=(0, 1), epsilon=epsilon)
        off = np.abs(numbers_of(told) - numbers_of(true))
        return -memory.average(off, bounds=(0, error_max), epsilon=epsilon)

    return score
