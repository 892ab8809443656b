"""The perceptron: lines turned by the sum of the rows they get wrong.

    Perceptron(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="sick"))

A row is in one cell, of what is predicted and what it is, so the noise of a round does not grow
with the number of classes.
"""

from fractions import Fraction
from functools import partial
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.fitting import Algorithm, Fitted, Options
from noisegate.learners.linear.classifier import LinearClassifier
from noisegate.learners.linear.moments import LOGISTIC, measure
from noisegate.learners.linear.scores import scores, shortened
from noisegate.learners.matrix import Matrix
from noisegate.learners.noisy_sums import divided, for_means
from noisegate.learners.parameters import require_one_of, require_rounds
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.weighings import Nearest

_SHORT: Final = 1e-9


@dataclass(eq=False, repr=False, kw_only=True)
class Perceptron(LinearClassifier):
    """Classes by linear scores, learnt from mistakes alone.

    After `fit`, ``coef_`` and ``intercept_`` are in the units of the columns; two classes have one
    row of them. ``error_["coef"]`` is the standard deviation of the noise in each weight, about,
    or infinite where noise would hide most columns and this one was not asked about; ``rows_`` the
    noisy number of rows.

    Args:
        epsilon: The price.
        method: "auto" (from lines by moments; of all lines that with the fewest mistakes, as far as
            noise tells), or "sulq" (from 0, the last line counts) [BDMN05].
        max_iter: The number of rounds; "auto" uses as many as noise allows, "sulq" at most 10.
        bounds: (low, high) of the columns of an array.
        classes: The classes of an array's target.
        memory: The budget for arrays.

    >>> from noisegate.root import memory
    >>> rows, told = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> purse = memory(epsilon=1)
    >>> model = Perceptron(epsilon=1, bounds=(0, 10), classes=[0, 1], memory=purse)
    >>> model.fit(rows, told).predict([[2.0, 7.0], [9.0, 1.0]])
    array([0, 1])
    """

    method: str = "auto"
    max_iter: int | None = None

    def _plan(self, matrix: Matrix) -> tuple[Algorithm, Options]:  # noqa: ARG002 - any matrix
        method = require_one_of(self.method, "method", ("auto", "sulq"))
        rounds = require_rounds(self.max_iter)
        options = {"method": method, "rounds": rounds}
        if method == "sulq":
            return partial(fit_sulq, rounds=rounds or 10), options
        return partial(fit_perceptron, rounds=rounds), options


@final
@dataclass(frozen=True, slots=True)
class _Turn:
    """By what wrong rows turn lines, and its noise; how many are wrong, of how many, and noise."""

    lines: Floats
    blur: float
    mistakes: float
    deviation: float
    rows: float


def fit_perceptron(ask: RowsAsk, *, rounds: int | None = None) -> Fitted:
    """Rounds from the lines of the classes' moments, and of all lines the best that was counted."""
    moments, plan = measure(ask, LOGISTIC, rounds=rounds)
    lines = moments.lines()
    noise, least = moments.deviations(lines), float("inf")
    best = _fitted(lines, noise, moments.rows)
    if len(lines) == 1:
        lines = np.vstack([-lines / 2, lines / 2])
    length = max(float(np.linalg.norm(lines[:, :-1])), _SHORT)
    lines, noise = lines / length, noise / length
    for place, share in enumerate(plan.rounds):
        ask.keep(best)
        ask.done(0.2 + 0.8 * place / len(plan.rounds), f"round {place + 1} of {len(plan.rounds)}")
        turn = _turn(ask, lines, share, moments.norm)
        if turn.mistakes < least:
            least, best = turn.mistakes, _fitted(lines, noise, moments.rows)
        lines = lines + turn.lines / moments.rows
        noise = np.sqrt(noise**2 + (turn.blur / moments.rows) ** 2)
    return best


def fit_sulq(ask: RowsAsk, *, rounds: int = 10) -> Fitted:
    """Lines from 0, turned by the mean row that is wrong, until no mistake stands out of noise."""
    lines, rows = np.zeros((ask.classes, ask.columns + 1)), 0.0
    noise = np.zeros((1 if ask.classes == 2 else ask.classes, ask.columns))
    for place, share in enumerate(divided(Fraction(1), *[1] * rounds)):
        ask.keep(_fitted(lines, noise, rows))
        ask.done(place / rounds, f"round {place + 1} of {rounds}")
        turn = _turn(ask, lines, share, None)
        rows = (rows * place + turn.rows) / (place + 1)
        if turn.mistakes <= 2 * turn.deviation:
            break
        lines = lines + turn.lines / turn.mistakes
        noise = np.sqrt(noise**2 + (turn.blur / turn.mistakes) ** 2)
    return _fitted(lines, noise, rows)


def _turn(ask: RowsAsk, lines: Floats, share: Fraction, norm: int | None) -> _Turn:
    """A row of class k that is predicted as p is added to line k and taken off line p."""
    classes = ask.classes
    weighing = Nearest(scores(lines, ask.reach), keyed=True)
    question = shortened(weighing, (One(), Linear()), norm, ask.columns)
    counts, sums = ask.totals(question, for_means(ask, share))
    cells = np.concatenate([sums.values / ask.reach, counts.values], axis=1)
    cells = cells.reshape(classes, classes, ask.columns + 1)
    wrong = np.where(np.eye(classes, dtype=bool)[:, :, None], 0.0, cells)
    # two classes have one line, the difference of theirs: both cells, twice
    parts = 8 if classes == 2 else 2 * (classes - 1)
    return _Turn(
        lines=wrong.sum(axis=0) - wrong.sum(axis=1),
        blur=(parts * sums.variance) ** 0.5 / ask.reach,
        mistakes=float(wrong[:, :, -1].sum()),
        deviation=float((classes * (classes - 1) * counts.variance) ** 0.5),
        rows=float(counts.values.sum()),
    )


def _fitted(lines: Floats, deviations: Floats, rows: float) -> Fitted:
    """Two classes have one line, the difference of theirs."""
    if len(lines) == 2:
        lines = lines[1:] - lines[:1]
    return {"lines": lines, "deviations": deviations, "rows": np.array(rows)}
