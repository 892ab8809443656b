"""What all estimators share: where rows come from, what a fit costs, how new points are read.

    KMeans(n_clusters=8, epsilon=1).fit(gate.matrix("patients", ["age", "bmi"]))
    KMeans(n_clusters=8, epsilon=1, bounds=(0, 100), memory=noisegate.memory(epsilon=3)).fit(X)

Bounds and classes are declared, in the policy or as parameters; none is learnt from rows for free.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from noisegate.desk.display.drawing import Chart
from noisegate.desk.display.plot import priced
from noisegate.desk.job import Progress
from noisegate.desk.plan import Plan
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.learners.arrays import Bounds, Rows, dense
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.fitting import (
    REACH,
    Algorithm,
    Carded,
    FitExpected,
    Fitted,
    Options,
    Task,
    known_job,
    learn,
    no_score,
)
from noisegate.learners.matrix import Matrix
from noisegate.learners.parameters import ROWS_MAX, require_rows, require_whole
from noisegate.learners.rehearsal import rehearsed
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Weighing


class Memory(Protocol):
    """What `noisegate.memory` gives: a budget for rows that are given as arrays."""

    def matrix(
        self,
        X: Rows,
        y: Rows = None,
        *,
        bounds: Bounds,
        classes: Sequence[Any] | None = None,
        target_bounds: Bounds = None,
    ) -> Matrix:
        """A handle of these rows, each one unit."""


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateEstimator(Carded, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator that learns through the door: it says what to ask, and takes what was fitted.

    After `fit`, ``cost_`` is what was paid, ``guarantee_`` the promise, ``remaining_`` what the
    account has left, ``error_`` what is known about the error, ``stopped_`` whether it was
    interrupted.
    """

    epsilon: Any = 1  # a number
    bounds: Any = None  # (low, high) of the columns of an array, or such for each
    memory: Any = None  # from `noisegate.memory`
    _codes: ClassVar[bool] = False  # keys as numbers, instead of a column for each
    _reach: ClassVar[int] = REACH
    _told_by: ClassVar[str | None] = None  # the parameter that declares an array's target
    _measure: ClassVar[str | None] = None  # the name of its score, if it has one

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's Tags
        """Two fits differ by their noise; a row with a missing number takes no part."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(
        self, X: Rows, y: Rows = None, *, progress: Progress | None = None, fresh: bool = False
    ) -> Self:
        """Learn from a matrix, or from arrays within their budget."""
        matrix = self._matrix(X, y)
        task = self._task(matrix)
        outcome = learn(matrix, task, epsilon=self.epsilon, progress=progress, fresh=fresh)
        self._place(matrix)
        if not all(name == f"x{place}" for place, name in enumerate(matrix.columns)):
            self.feature_names_in_ = np.array(matrix.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_
        self._paid(outcome.receipt, matrix)
        self.stopped_ = outcome.stopped
        self._take(outcome.fitted)
        return self

    def plan(
        self, X: Rows, y: Rows = None, *, rows: int | None = None, fresh: bool = False
    ) -> Plan[FitExpected]:
        """The price of `fit`, and its score on so many made-up ``rows``, if they are given.

        Free: spends nothing, reads no row. With ``rows`` it takes as long as a few fits.
        """
        matrix = self._matrix(X, y)
        task = self._task(matrix)
        plan = matrix.desk.plan(
            known_job(matrix, task, epsilon=self.epsilon, fresh=fresh), fresh=fresh
        )
        if rows is None:
            return plan
        count = require_whole(rows, "rows", 1, ROWS_MAX)
        score = rehearsed(self, matrix, task, matrix.desk.price(plan.epsilon), count)
        return replace(plan, expected=replace(plan.expected, score=score))

    @property
    def measure(self) -> str | None:
        """The name of the score that a plan tells, if there is one."""
        by_sums = getattr(self, "method", None) != "objective"
        return self._measure if by_sums else None

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:
        """That score on given rows, of what was fitted and of a model that has learnt nothing.

        Of a target with classes the numbers of these are given.
        """
        del points, target
        raise no_score(type(self).__name__)

    def learnt(self, matrix: Matrix, fitted: Fitted) -> Self:
        """The same with what was fitted."""
        found = copy(self)
        found._place(matrix)  # noqa: SLF001 - its own
        found._take(fitted)  # noqa: SLF001
        return found

    def _place(self, matrix: Matrix) -> None:
        """State what the columns and the target are."""
        self.coordinates_ = matrix.coordinates(codes=self._codes)
        self.target_ = matrix.number if self._told_by == "target_bounds" else None
        self.n_features_in_ = len(matrix.columns)

    def _task(self, matrix: Matrix) -> Task:
        algorithm, options = self._plan(matrix)
        number = self._told_by == "target_bounds"
        return Task(type(self).__name__, options, algorithm, self._codes, number, self._reach)

    @abstractmethod
    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:
        """Check the parameters; what to run on a matrix, and the options that tell it apart."""

    @abstractmethod
    def _take(self, fitted: Fitted) -> None:
        """State what was fitted, in the units of the columns."""

    def _matrix(self, X: Rows, y: Rows) -> Matrix:
        if isinstance(X, Matrix):
            if self._told_by is not None and y is not None:
                raise SpecError(
                    "The matrix already has a target.",
                    fix="Name it there: gate.matrix(target=...).",
                )
            return X
        given: dict[str, Any] = {"bounds": self.bounds}
        if self._told_by is None:
            y = None
        elif y is None:
            raise ValueError("requires y to be passed, but the target y is None.")
        else:
            given[self._told_by] = getattr(self, self._told_by)
        memory: Memory | None = self.memory
        if memory is None or not hasattr(memory, "matrix"):
            raise SpecError(
                "An array has no budget.",
                fix="Fit gate.matrix(...), or give memory=noisegate.memory(epsilon=...).",
                about="budget",
            )
        return memory.matrix(X, y, **given)

    # reading new points

    def _points(self, X: Rows) -> Floats:
        """New points as the learner saw the rows: from -1 to 1, clamped."""
        self._require_fitted()
        if isinstance(X, Matrix):
            raise SpecError(
                "Predictions for private rows are private.",
                fix="Predict points of your own; score(matrix, epsilon=...) evaluates the model.",
                about="private",
            )
        columns = self._columns_of(X)
        found = [each.of(columns[each.column]) for each in self.coordinates_]
        return np.clip(np.stack(found, axis=1), -1, 1)

    def _columns_of(self, X: Rows) -> dict[str, NDArray[Any]]:
        names = list(dict.fromkeys(each.column for each in self.coordinates_))
        if hasattr(X, "column_names"):  # Arrow
            X = X.to_pandas()  # noqa: N806
        if hasattr(X, "columns"):
            known = {str(name): name for name in X.columns}
            if missing := [name for name in names if name not in known]:
                raise SpecError(f"There is no column {missing[0]!r}.", fix="Give all columns.")
            return {name: np.asarray(X[known[name]]) for name in names}
        held = dense(X)
        if held.shape[1] != len(names):
            raise ValueError(
                f"X has {held.shape[1]} features, but {type(self).__name__} is expecting "
                f"{len(names)} features as input"
            )
        return dict(zip(names, held.T, strict=True))

    def _require_fitted(self) -> None:
        if not hasattr(self, "coordinates_"):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' first."
            )

    def _framed(self, chart: Chart, title: str) -> Chart:
        """A chart with the price and the promise of the model above it."""
        return priced(chart, f"{type(self).__name__}: {title}", self.cost_, str(self.guarantee_))

    @property
    def _names(self) -> list[str]:
        return [each.name for each in self.coordinates_]

    @property
    def _middles(self) -> Floats:
        return np.array([float(each.middle) for each in self.coordinates_])

    @property
    def _halves(self) -> Floats:
        return np.array([float(each.half) for each in self.coordinates_])

    def _unscaled(self, points: Floats) -> Floats:
        """Points of the learner in the units of the columns."""
        return self._middles + np.asarray(points) * self._halves


class PrivateTransformer(TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """An estimator that changes points."""

    @abstractmethod
    def transform(self, X: Rows) -> Floats:
        """Each point, changed."""

    def fit_transform(self, X: Rows, y: Rows = None, **how: Any) -> Floats:  # noqa: ANN401, ARG002
        """Fit an array and change its rows. What comes out is as private as they are."""
        require_rows(X)
        return self.fit(X, **how).transform(X)


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier: ``classes_`` are the declared keys of the target."""

    classes: Any = None  # a list, of an array's target
    _told_by: ClassVar[str | None] = "classes"
    _measure: ClassVar[str | None] = "accuracy"

    def _matrix(self, X: Rows, y: Rows) -> Matrix:
        matrix = super()._matrix(X, y)
        if matrix.classes is None:
            raise SpecError(
                "There are no classes to learn.",
                fix='Name a target with declared keys: {"in": [...]}.',
            )
        self.classes_ = np.array(matrix.classes.keys if matrix is X else self.classes)
        return matrix

    def predict(self, X: Rows) -> NDArray[Any]:
        """The class of each point."""
        scores = self._scores(self._points(X))
        found: NDArray[Any] = self.classes_[np.argmax(scores, axis=1)]
        return found

    def scored(self, points: NDArray[Any], target: NDArray[Any]) -> tuple[float, float]:
        """The share of rows that are told right, and that of the commonest class."""
        right = self.predict(points) == self.classes_[target]
        return float(np.mean(right)), float(np.bincount(target).max() / len(target))

    @abstractmethod
    def _scores(self, points: Floats) -> Floats:
        """A score for each class, at points from -1 to 1."""

    def _rule(self, reach: int) -> tuple[Weighing, NDArray[np.int64]]:
        """How the door tells what is predicted on a grid of this reach.

        Cells by what is predicted and the row's key, the key varying fastest; and for each cell's
        prediction the number of the class that it means.
        """
        del reach
        raise Unsupported("This classifier cannot be evaluated on private rows.", fix="Use arrays.")

    def confusion(self, matrix: Matrix, *, epsilon: Number | None, fresh: bool = False) -> Floats:
        """Noisy counts of rows by what they are (down) and what is predicted, for a price."""
        self._require_fitted()
        weighing, means = self._rule(REACH)
        question = Statistic(weighing, (One(),))
        count = len(self.classes_)

        def algorithm(ask: RowsAsk) -> Fitted:
            (counts,) = ask.totals(question, [Fraction(1)])
            cells = counts.values.reshape(-1, count)
            table = np.zeros((count, count))
            for cell, meaning in zip(cells, means, strict=True):
                table[:, meaning] += cell
            return {"table": table, "variance": np.array(counts.variance)}

        task = Task("confusion", {"rule": question.to_record()}, algorithm, codes=self._codes)
        return learn(matrix, task, epsilon=epsilon, fresh=fresh).fitted["table"]

    def score(
        self, X: Rows, y: Rows = None, sample_weight: Rows = None, *, epsilon: Number | None = None
    ) -> float:
        """The share of rows that are told right: of an array as it is, of a matrix for a price."""
        if not isinstance(X, Matrix):
            return float(super().score(X, y, sample_weight))
        table = self.confusion(X, epsilon=epsilon)
        return float(np.clip(np.trace(table) / max(1.0, table.sum()), 0, 1))


class ProbableClassifier(PrivateClassifier):
    """A classifier whose scores are logarithms of probabilities, up to a constant."""

    def predict_proba(self, X: Rows) -> Floats:
        """The probability of each class."""
        found: Floats = softmax(self._scores(self._points(X)), axis=1)
        return found

    def predict_log_proba(self, X: Rows) -> Floats:
        """Its logarithm."""
        found: Floats = log_softmax(self._scores(self._points(X)), axis=1)
        return found
