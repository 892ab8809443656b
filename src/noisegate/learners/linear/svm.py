"""A linear support vector machine, with a hinge that is smooth around its corner [CMS11].

    LinearSVC(epsilon=1).fit(gate.matrix("patients", ["age", "bmi"], target="sick"))

More than two classes are told one against the rest, as in scikit-learn. A row pulls at all of them,
so noise grows with their number: lines then come from moments alone more often.
"""

from typing import ClassVar, Final

import numpy as np

from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.fitting import Fitted
from noisegate.learners.linear.classifier import MarginClassifier
from noisegate.learners.linear.moments import Loss, Moments, curvatures, measure, refined

_CORNER: Final = 0.5  # how far around a margin of 1 the hinge is bent
_STEPS: Final = 8
HINGE: Final = Loss(
    lambda margin: np.clip((1 + _CORNER - margin) / (2 * _CORNER), 0, 1),
    lambda margin: np.where(np.abs(margin - 1) < _CORNER, 1 / (2 * _CORNER), 0.0),
    1 / (2 * _CORNER),
)


def fit_svc(ask: RowsAsk, *, penalty: float = 1.0, rounds: int | None = None) -> Fitted:
    """Lines from moments of the classes, refined by Newton steps where noise allows."""
    moments, plan = measure(ask, HINGE, rounds=rounds)
    start = _on_points(moments, penalty)
    return refined(ask, HINGE, start, moments, plan.rounds, penalty=penalty)


def _on_points(moments: Moments, penalty: float) -> Floats:
    """The machine of made-up rows with the moments: free."""
    points, shares = moments.points()
    lines = moments.against_rest()
    signs = np.where(shares[:, -len(lines) :] > 0, 1.0, -1.0)
    weights = shares.sum(axis=1)[:, None]
    free = np.append(np.ones(points.shape[1] - 1), 0.0)
    soft = 0.1 * HINGE.stiff * moments.second() + penalty * np.diag(free)
    for _ in range(_STEPS):
        pull = weights * signs * HINGE.pull(signs * (points @ lines.T))
        slopes = penalty * lines * free - pull.T @ points
        bends = curvatures(HINGE, lines, points, shares)
        pairs = zip(bends, slopes, strict=True)
        lines = lines - np.array([np.linalg.solve(bend + soft, slope) for bend, slope in pairs])
    return lines


class LinearSVC(MarginClassifier):
    """Classes by linear scores with a wide margin.

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

    >>> from noisegate.root import memory
    >>> rows, told = np.repeat([[1.0, 9.0], [8.0, 2.0]], 500, axis=0), np.repeat([0, 1], 500)
    >>> purse = memory(epsilon=1)
    >>> model = LinearSVC(epsilon=1, bounds=(0, 10), classes=[0, 1], memory=purse)
    >>> model.fit(rows, told).predict([[2.0, 7.0], [9.0, 1.0]])
    array([0, 1])
    """

    _loss: ClassVar[Loss] = HINGE
    _refined = staticmethod(fit_svc)
