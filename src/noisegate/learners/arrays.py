"""Arrays and frames as tables, with what is declared about their columns; scores of models on them.

No row is looked at but to convert it, and what cannot be converted is never quoted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number

Rows: TypeAlias = Any  # an array, a frame, or a `Matrix`
Bounds: TypeAlias = Any  # (low, high), or such for each column
TARGET: Final = "target"
_MIXED: Final = (
    "A column holds values that are not numbers. Values of an argument must be numbers, or a "
    "string for each number; or give a frame whose columns have types."
)


def frame_of(X: Rows, y: Rows = None, *, classes: Sequence[Any] | None = None) -> pa.Table:
    """The columns x0, x1, … of an array, or those of a frame, and the target last.

    A class becomes its place among ``classes``; what is none of them has none.
    """
    columns = dict(_columns(X))
    if not columns:
        raise ValueError("0 feature(s) (shape=(n, 0)) while a minimum of 1 is required.")
    if y is not None:
        if TARGET in columns:
            raise SpecError(
                f"A column is called {TARGET!r}, the name used for the target.", fix="Rename it."
            )
        told = np.asarray(y).ravel()
        if len(told) != len(next(iter(columns.values()))):
            raise ValueError("Found input variables with inconsistent numbers of samples.")
        if classes is not None:
            order = {key: place for place, key in enumerate(classes)}
            columns[TARGET] = np.array([order.get(each, -1) for each in told.tolist()], np.int64)
        else:
            columns[TARGET] = numbers_of(told)
    try:
        return pa.table(columns)
    except (pa.ArrowException, TypeError):  # whose words quote a value
        raise ValueError(_MIXED) from None


def _columns(X: Rows) -> list[tuple[str, Any]]:
    if hasattr(X, "column_names"):
        return [(name, X.column(name)) for name in X.column_names]
    if hasattr(X, "columns"):
        return [(str(name), np.asarray(X[name])) for name in X.columns]
    held = dense(X)
    if held.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    return [(f"x{place}", column) for place, column in enumerate(numbers_of(held).T)]


def dense(X: Rows) -> NDArray[Any]:
    """A plain array, a row for each unit."""
    if hasattr(X, "tocsr"):
        raise TypeError("Sparse data is not supported: give a dense array, such as X.toarray().")
    held = np.asarray(X)
    if held.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {held.ndim}D array instead. Reshape your data: a row for each."
        )
    return held


def numbers_of(values: NDArray[Any]) -> NDArray[np.float64]:
    """The values as numbers, or a refusal that quotes none of them."""
    try:
        return values.astype(np.float64)
    except TypeError:
        raise TypeError(_MIXED) from None
    except ValueError:
        raise ValueError(_MIXED) from None


def facts_of(
    frame: pa.Table,
    *,
    bounds: Any,  # noqa: ANN401 - (low, high), or such for each column, or by name
    classes: Sequence[Any] | None = None,
    target_bounds: Any = None,  # noqa: ANN401 - (low, high)
) -> dict[str, dict[str, Any]]:
    """What is declared about each column."""
    names = [name for name in frame.column_names if name != TARGET]
    facts = dict(zip(names, _each(bounds, names), strict=True))
    if TARGET not in frame.column_names:
        return facts
    if classes is not None:
        facts[TARGET] = {"in": list(range(len(classes)))}
    elif target_bounds is not None:
        facts[TARGET] = {"between": _pair(target_bounds)}
    else:
        raise SpecError(
            "The target is not declared.",
            fix="Give classes=[...] for a classifier, target_bounds=(low, high) for a regression.",
            about="target",
        )
    return facts


def _each(bounds: Bounds, names: Sequence[str]) -> list[dict[str, Any]]:
    if bounds is None:
        raise SpecError(
            "The columns have no bounds.",
            fix="Give bounds=(low, high), for all columns or as two lists; bounds are never "
            "learnt from rows.",
            about="bounds",
        )
    if isinstance(bounds, Mapping):
        if missing := [name for name in names if name not in bounds]:
            raise SpecError(f"{missing[0]!r} has no bounds.", fix="Give (low, high), or keys.")
        return [
            {"in": list(bounds[name])}
            if isinstance(bounds[name], list)
            else {"between": _pair(bounds[name])}
            for name in names
        ]
    try:
        low, high = bounds
        ends = [np.broadcast_to(np.asarray(end, np.float64), len(names)) for end in (low, high)]
    except (TypeError, ValueError):
        raise SpecError("bounds is not usable.", fix="Give bounds=(low, high).") from None
    lows, highs = ends
    return [{"between": _pair(each)} for each in zip(lows, highs, strict=True)]


def _pair(bounds: Bounds) -> list[float]:
    low, high = (float(end) for end in bounds)
    if not low < high or not np.isfinite([low, high]).all():
        raise SpecError("The bounds are not in order.", fix="Give (low, high) with low below high.")
    return [low, high]


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

        budget = noisegate.memory(10)
        model = LogisticRegression(epsilon=1, bounds=(0, 1), classes=[0, 1], memory=budget)
        cross_val_score(model, X, y, scoring=scorer(budget, epsilon="0.1"))
        GridSearchCV(model, {"epsilon": [1, 2]}, scoring=scorer(budget, epsilon="0.1"))

    Each fold is fitted and tried for its own price, all from one budget: a row is in many folds.

    Args:
        memory: The budget, as given to the estimator.
        epsilon: The price of each score.
        error_max: For a regression: the score is the average distance, each at most this, with a
            minus sign.
    """
    if error_max is not None and not error_max > 0:
        raise SpecError("error_max is not above 0.", fix="Use a number such as 10.")

    def score(estimator: Any, X: Rows, y: Rows) -> float:  # noqa: ANN401 - scikit-learn's names
        told, true = np.asarray(estimator.predict(X)).ravel(), np.asarray(y).ravel()
        if error_max is None:
            right = np.asarray(told == true, np.float64)
            return memory.average(right, bounds=(0, 1), epsilon=epsilon)
        off = np.abs(numbers_of(told) - numbers_of(true))
        return -memory.average(off, bounds=(0, error_max), epsilon=epsilon)

    return score
