"""What classifiers by linear scores share: weights in the columns' units, private curves, plots."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.learners.asking import RowsAsk
from noisegate.learners.base import PrivateClassifier
from noisegate.learners.fitting import REACH, Fitted, Task, learn
from noisegate.learners.lines import cells_of_score, scores
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy import Floats
from noisegate.learners.pictures import altair
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Nearest, Weighing

_CUTS: Final = 63  # of scores, for a curve


class LinearClassifier(PrivateClassifier):
    """Two classes have one score, more have one each; the highest score is the prediction."""

    def _fit_lines(
        self,
        X: Any,  # noqa: ANN401, N803
        y: Any,  # noqa: ANN401
        algorithm: Callable[[RowsAsk], Fitted],
        options: Mapping[str, Any],
        **how: Any,  # noqa: ANN401 - progress, fresh
    ) -> None:
        found = self._learn_classes(X, y, algorithm, options, **how).fitted
        self._lines = found["lines"]
        halves = np.array([float(each.half) for each in self.coordinates_])
        middles = np.array([float(each.middle) for each in self.coordinates_])
        self.coef_ = self._lines[:, :-1] / halves
        self.intercept_ = self._lines[:, -1] - self.coef_ @ middles
        self.error_ = {"coef": found["deviations"] / halves}
        self.rows_ = float(found["rows"])

    def decision_function(self, X: Any) -> Floats:  # noqa: ANN401, N803
        """The scores: of the last class if there are two, else of each."""
        points = self._points(X)
        found: Floats = points @ self._lines[:, :-1].T + self._lines[:, -1]
        return found[:, 0] if len(self._lines) == 1 else found

    def _scores(self, points: Floats) -> Floats:
        lines = self._all_lines()
        found: Floats = points @ lines[:, :-1].T + lines[:, -1]
        return found

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
        epsilon: Any,  # noqa: ANN401 - a number
        positive: Any = None,  # noqa: ANN401 - a class
        fresh: bool = False,
    ) -> "Curve":
        """How well scores tell a class (by default the last) from the rest, for a price.

        The noisy numbers of rows by score and class: a row is in one of them.
        """
        self._require_fitted()
        told = self.classes_[-1] if positive is None else positive
        if told not in self.classes_:
            raise SpecError("There is no such class.", fix="Name one of the declared classes.")
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
            positives=table[:, place],
            negatives=np.delete(table, place, axis=1).sum(axis=1),
            thresholds=cuts,
            variances=(
                float(outcome.fitted["variance"]),
                float(outcome.fitted["variance"]) * (table.shape[1] - 1),
            ),
            cost=outcome.cost,
            guarantee=outcome.guarantee,
        )

    def plot(self) -> Any:  # noqa: ANN401 - altair may be missing
        """The weights of each column across its bounds, with two deviations of their noise."""
        self._require_fitted()
        halves = np.array([float(each.half) for each in self.coordinates_])
        names = [each.name for each in self.coordinates_]
        told = self.classes_[-len(self._lines) :]
        return weights_chart(names, self.coef_ * halves, self.error_["coef"] * halves, told)


def weights_chart(
    names: list[str],
    weights: Iterable[Floats],
    deviations: Iterable[Floats],
    told: Iterable[Any],
) -> Any:  # noqa: ANN401 - a chart
    """Weights as bars, with two deviations to either side; without columns not asked about."""
    alt = altair()
    points = [
        {
            "column": name,
            "line": str(line),
            "weight": float(weight),
            "low": float(weight - 2 * deviation),
            "high": float(weight + 2 * deviation),
        }
        for line, own, around in zip(told, weights, deviations, strict=True)
        for name, weight, deviation in zip(names, own, around, strict=True)
        if np.isfinite(deviation)
    ]
    base = alt.Chart(alt.InlineData(values=points)).encode(
        y=alt.Y("column:N", sort=None, title=None)
    )
    bars = base.mark_bar(opacity=0.7).encode(x=alt.X("weight:Q", title="weight, by half the range"))
    rules = base.mark_rule().encode(x=alt.X("low:Q"), x2="high:Q")
    chart = alt.layer(bars, rules).properties(width=240)
    return chart.facet(column=alt.Column("line:N", title=None, sort=None))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Noisy numbers of rows by score, and the curve of right and false alarms they give.

    ``variances`` are of the noise of each positive and each negative number.
    """

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

    def plot(self) -> Any:  # noqa: ANN401 - altair may be missing
        """The curve."""
        alt = altair()
        points = [
            {"false alarms": float(x), "right alarms": float(y), "place": place}
            for place, (x, y) in enumerate(zip(*self.rates, strict=True))
        ]
        chart = alt.Chart(alt.InlineData(values=points)).mark_line(point=True)
        words = f"area {self.area:.3f} ± {2 * self.deviation:.3f}"
        return chart.encode(
            x=alt.X("false alarms:Q", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("right alarms:Q", scale=alt.Scale(domain=[0, 1])),
            order="place:O",
        ).properties(width=320, height=320, title=words)


def _rising(counts: Floats) -> Floats:
    """Parts of the rows above each threshold, from the highest down; noise may not make it fall."""
    held = np.concatenate([[0.0], np.cumsum(counts[::-1])])
    found: Floats = np.maximum.accumulate(np.clip(held / max(float(held[-1]), 1.0), 0, 1))
    found[-1] = 1.0
    return found
