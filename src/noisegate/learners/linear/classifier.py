"""What classifiers by linear scores share: weights in the columns' units, private curves, plots."""

from abc import abstractmethod
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any, ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.display.drawing import Chart
from noisegate.desk.display.plot import priced
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.learners import plots
from noisegate.learners.arrays import Rows
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.base import PrivateClassifier
from noisegate.learners.fitting import REACH, Algorithm, Fitted, Options, Task, learn
from noisegate.learners.linear.moments import Loss, descended
from noisegate.learners.linear.scores import cells_of_score, scores
from noisegate.learners.matrix import Matrix
from noisegate.learners.parameters import require_one_of, require_rounds
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Nearest, Weighing

METHODS: Final = ("auto", "moments", "newton", "sulq")
_CUTS: Final = 63  # of scores, for a curve


class LinearClassifier(PrivateClassifier):
    """Two classes have one score, more have one each; the highest score is the prediction."""

    def _take(self, fitted: Fitted) -> None:
        self._lines = fitted["lines"]
        self.coef_ = self._lines[:, :-1] / self._halves
        self.intercept_ = self._lines[:, -1] - self.coef_ @ self._middles
        self.error_ = {"coef": fitted["deviations"] / self._halves}
        self.rows_ = float(fitted["rows"])

    def decision_function(self, X: Rows) -> Floats:
        """The scores: of the last class if there are two, else of each."""
        points = self._points(X)
        found: Floats = points @ self._lines[:, :-1].T + self._lines[:, -1]
        return found[:, 0] if len(self._lines) == 1 else found

    def _scores(self, points: Floats) -> Floats:
        lines = self._all_lines()
        return points @ lines[:, :-1].T + lines[:, -1]

    def _all_lines(self) -> Floats:
        """A line for each class; of two classes, the first has 0."""
        if len(self._lines) > 1:
            return self._lines
        return np.vstack([np.zeros_like(self._lines), self._lines])

    def _rule(self, reach: int) -> tuple[Weighing, NDArray[np.int64]]:
        return Nearest(scores(self._all_lines(), reach), keyed=True), np.arange(len(self.classes_))

    def roc(
        self,
        matrix: Matrix,
        *,
        epsilon: Number,
        positive: Any = None,  # noqa: ANN401 - a class
        fresh: bool = False,
    ) -> "Curve":
        """How well scores tell a class (by default the last) from the rest, for a price.

        The noisy numbers of rows by score and class: a row is in one of them.
        """
        self._require_fitted()
        told = self.classes_[-1] if positive is None else positive
        if told not in self.classes_:
            raise SpecError(
                "There is no such class.", fix="Name one of the declared classes.", about="class"
            )
        place = int(np.flatnonzero(self.classes_ == told)[0])
        line = (
            self._lines[0] * (1 if place else -1) if len(self._lines) == 1 else self._lines[place]
        )
        top, steps = float(np.sum(np.abs(line))), np.linspace(-1, 1, _CUTS + 2)[1:-1]
        cuts = np.sign(steps) * steps**2 * max(top, 1e-3)
        question = Statistic(cells_of_score(line, cuts, REACH, keyed=True), (One(),))

        def algorithm(ask: RowsAsk) -> Fitted:
            (counts,) = ask.totals(question, [Fraction(1)])
            return {"counts": counts.values, "variance": np.array(counts.variance)}

        task = Task("roc", {"rule": question.to_record()}, algorithm, codes=self._codes)
        outcome = learn(matrix, task, epsilon=epsilon, fresh=fresh)
        table = outcome.fitted["counts"].reshape(_CUTS + 1, -1)
        return Curve(
            positive=told,
            positives=table[:, place],
            negatives=np.delete(table, place, axis=1).sum(axis=1),
            thresholds=cuts,
            variances=(
                float(outcome.fitted["variance"]),
                float(outcome.fitted["variance"]) * (table.shape[1] - 1),
            ),
            cost=outcome.receipt.cost,
            guarantee=outcome.receipt.guarantee,
        )

    def plot(self) -> Chart:
        """The weights of each column across its bounds, with two deviations of their noise."""
        self._require_fitted()
        weights, errors = self.coef_ * self._halves, self.error_["coef"] * self._halves
        told = self.classes_[-len(self._lines) :].tolist()
        chart = plots.weights(self._names, weights, errors, told)
        return self._framed(chart, "weights; lines are two standard deviations of noise")


@dataclass(eq=False, repr=False, kw_only=True)
class MarginClassifier(LinearClassifier):
    """Linear scores with little loss: by class moments, and Newton steps where noise allows."""

    _loss: ClassVar[Loss]

    C: float = 1.0
    method: str = "auto"
    max_iter: int | None = None

    @staticmethod
    @abstractmethod
    def _refined(ask: RowsAsk, *, penalty: float, rounds: int | None) -> Fitted:
        """Lines from moments, and so many steps; by default as many as noise allows."""

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        method = require_one_of(self.method, "method", METHODS)
        penalty, rounds = self._penalty(), require_rounds(self.max_iter)
        options = {"penalty": penalty, "method": method, "rounds": rounds}
        if method == "sulq":
            steps = rounds or 10
            return partial(descended, loss=self._loss, rounds=steps, penalty=penalty), options
        fixed = {"moments": 0, "newton": rounds or 3}.get(method, rounds)
        return partial(self._refined, penalty=penalty, rounds=fixed), options

    def _penalty(self) -> float:
        """One over C."""
        given = self.C
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < inf:
            raise SpecError(
                "C is not a positive number.", fix="Use 1.0, or less for smaller weights."
            )
        return 1.0 / given


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Noisy numbers of rows by score, and the curve of right and false alarms they give.

    ``positive`` is the class that is told from the rest; ``variances`` are of the noise of each
    positive and each negative number.
    """

    positive: Any
    positives: Floats
    negatives: Floats
    thresholds: Floats
    variances: tuple[float, float]
    cost: ApproxDP
    guarantee: Guarantee

    @property
    def rates(self) -> tuple[Floats, Floats]:
        """False and right alarms as the threshold falls, each rising from 0 to 1."""
        return _rising(self.negatives), _rising(self.positives)

    @property
    def area(self) -> float:
        """The area below the curve: how often a positive row scores above a negative one."""
        wrong, right = self.rates
        return float(np.sum(np.diff(wrong) * (right[1:] + right[:-1])) / 2)

    @property
    def deviation(self) -> float:
        """The standard deviation of the area by noise, about."""
        wrong, right = self.rates
        positives = max(float(self.positives.sum()), 1.0)
        negatives = max(float(self.negatives.sum()), 1.0)
        below = 1 - (wrong[1:] + wrong[:-1]) / 2 - self.area
        above = (right[1:] + right[:-1]) / 2 - self.area
        moved = self.variances[0] * float(below @ below) / positives**2
        return float((moved + self.variances[1] * float(above @ above) / negatives**2) ** 0.5)

    def plot(self) -> Chart:
        """The curve; its area with two standard deviations of the noise."""
        words = f"{self.positive}: area {self.area:.3f} ± {2 * self.deviation:.3f} by noise"
        return priced(plots.curve(*self.rates), words, self.cost, str(self.guarantee))


def _rising(counts: Floats) -> Floats:
    """Parts of the rows above each threshold, from the highest down; noise may not make it fall."""
    held = np.concatenate([[0.0], np.cumsum(counts[::-1])])
    found: Floats = np.maximum.accumulate(np.clip(held / max(float(held[-1]), 1.0), 0, 1))
    found[-1] = 1.0
    return found
