"""Distinguishers: scores, learned from runs, that are high on one neighbour and low on the other.

A distinguisher can be as good or as bad as it likes: the bound is counted on runs that it never
saw, so a bad one makes the bound low, never wrong. Outputs are tables of numbers, one run a row.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from noisegate.audit.confidence import Floats, epsilon_lower, log_odds

Score: TypeAlias = Callable[[Floats], Floats]  # high: the first neighbour is more likely

_BINS: Final = 512  # of the only column; of one among others
_BINS_EACH: Final = 32
_PER_BIN: Final = 20  # runs of both sides together
_ATOMS: Final = 4096
_THRESHOLDS: Final = 1024
_BOOSTED_ROWS: Final = 40_000


def learned(ones: Floats, others: Floats, *, boosted: bool = False) -> list[Score]:
    """Scores from runs on two neighbours; `chosen` takes the one that separates others best."""
    width = ones.shape[1]
    scores = [_by_column(ones, others)]
    if width > 1:
        scores += [*_linear(ones, others), *_atoms(ones, others)]
    elif width == 1:
        scores.append(lambda outputs: np.nan_to_num(outputs[:, 0]))
    if boosted and width > 1:
        scores += _boosted(ones, others)
    return scores


def chosen(
    scores: list[Score], ones: Floats, others: Floats, *, alpha: float, delta: float
) -> tuple[Score, float]:
    """The score and threshold with the highest bound on these runs: an event {score ≥ threshold}.

    Each score is tried both ways round, so that a decreasing one is as good as an increasing one.
    """
    best: tuple[float, Score, float] = (-np.inf, lambda outputs: np.zeros(len(outputs)), 0.0)
    for score in scores:
        high, low = score(ones), score(others)
        for each, one, other in ((score, high, low), (_negated(score), -high, -low)):
            value, threshold = _threshold(one, other, alpha=alpha, delta=delta)
            if value > best[0]:
                best = value, each, threshold
    return best[1], best[2]


def _threshold(ones: Floats, others: Floats, *, alpha: float, delta: float) -> tuple[float, float]:
    """Where to cut a score, and the bound there."""
    both = np.sort(np.concatenate([ones, others]))
    ranks = np.linspace(0, both.size - 1, _THRESHOLDS)
    rare = both.size - np.geomspace(1, both.size, _THRESHOLDS)  # what is rare may tell most
    at = np.unique(both[np.concatenate([ranks, rare]).astype(np.int64)])
    hits = ones.size - np.searchsorted(np.sort(ones), at)
    hits_neighbour = others.size - np.searchsorted(np.sort(others), at)
    found = epsilon_lower(hits, hits_neighbour, trials=ones.size, alpha=alpha, delta=delta)
    place = int(found.argmax())
    return float(found[place]), float(at[place])


def _negated(score: Score) -> Score:
    return lambda outputs: -score(outputs)


def _by_column(ones: Floats, others: Floats) -> Score:
    """The sum over columns of the log-likelihood ratio of a column's bin.

    Optimal where columns are independent, as noise on cells is. Columns whose bins do not tell the
    neighbours apart are left out: what they would add is the error of estimation alone.
    """
    most = _BINS if ones.shape[1] == 1 else _BINS_EACH
    bins = max(2, min(most, 2 * len(ones) // _PER_BIN))
    kept: list[tuple[int, Floats, Floats]] = []
    for column in range(ones.shape[1]):
        edges = _edges(np.concatenate([ones[:, column], others[:, column]]), bins)
        one, other = (_binned(side[:, column], edges) for side in (ones, others))
        counts = [np.bincount(side, minlength=edges.size + 1) for side in (one, other)]
        if ones.shape[1] == 1 or _tells(*counts):
            kept.append((column, edges, log_odds(*(each.astype(np.float64) for each in counts))))

    def score(outputs: Floats) -> Floats:
        total = np.zeros(len(outputs))
        for column, edges, odds in kept:
            total += odds[_binned(outputs[:, column], edges)]
        return total

    return score


def _edges(values: Floats, bins: int) -> Floats:
    """Lower ends of bins: every value where there are few, else quantiles."""
    distinct = np.unique(values)
    if distinct.size <= bins:
        return distinct
    order = np.sort(values)
    return np.unique(order[np.linspace(0, order.size - 1, bins).astype(np.int64)])


def _binned(values: Floats, edges: Floats) -> np.ndarray:
    return np.searchsorted(edges, values, side="right")


def _tells(ones: np.ndarray, others: np.ndarray) -> bool:
    """Whether two histograms differ by more than chance: χ² four deviations above its mean."""
    total = ones + others
    used = total > 0
    freedom = max(int(used.sum()) - 1, 1)
    share = ones.sum() / max(total.sum(), 1)
    expected = total[used] * share
    square = ((ones[used] - expected) ** 2 / (expected * (1 - share))).sum()
    return bool(square > freedom + 4 * np.sqrt(2 * freedom))


def _linear(ones: Floats, others: Floats) -> list[Score]:
    """Fisher's discriminant, and the same without correlations; NaN counts as 0."""
    clean, rest = np.nan_to_num(ones), np.nan_to_num(others)
    middle, gap = (clean.mean(0) + rest.mean(0)) / 2, clean.mean(0) - rest.mean(0)
    spread = np.sqrt((clean.var(0) + rest.var(0)) / 2) + 1e-12
    plain = gap / spread**2
    directions = [plain]
    if clean.shape[1] <= 512:  # the matrix has room
        both = np.concatenate([(clean - clean.mean(0)) / spread, (rest - rest.mean(0)) / spread])
        matrix = both.T @ both / len(both) + 1e-6 * np.eye(clean.shape[1])
        directions.append(np.linalg.solve(matrix, gap / spread) / spread)
    return [_along(direction, middle) for direction in directions]


def _along(direction: Floats, middle: Floats) -> Score:
    return lambda outputs: (np.nan_to_num(outputs) - middle) @ direction


def _atoms(ones: Floats, others: Floats) -> list[Score]:
    """The likelihood ratio of whole outputs, where few of them occur: choices and patterns."""
    both = np.concatenate([ones, others])
    rows, places = np.unique(_rows(both), return_inverse=True)
    if rows.size > min(_ATOMS, len(both) // 4):
        return []
    places = places.reshape(-1)
    counts = [np.bincount(part, minlength=rows.size).astype(np.float64)
              for part in (places[: len(ones)], places[len(ones) :])]  # fmt: skip
    odds = log_odds(*counts)

    def score(outputs: Floats) -> Floats:
        found = _rows(outputs)
        at = np.minimum(np.searchsorted(rows, found), rows.size - 1)
        return np.where(rows[at] == found, odds[at], 0.0)

    return [score]


def _rows(outputs: Floats) -> np.ndarray:
    """Each row as one value that can be sorted and compared."""
    plain = np.ascontiguousarray(outputs + 0.0)  # -0.0 is 0.0
    return plain.view(np.dtype((np.void, plain.itemsize * plain.shape[1]))).reshape(-1)


def _boosted(ones: Floats, others: Floats) -> list[Score]:
    """Gradient-boosted trees, where scikit-learn is installed."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier  # noqa: PLC0415 - optional
    except ImportError:
        return []
    share = min(len(ones), _BOOSTED_ROWS)
    rows = np.concatenate([ones[:share], others[:share]])
    sides = np.repeat([1, 0], [share, min(len(others), share)])
    model = HistGradientBoostingClassifier(max_iter=60, early_stopping=False, random_state=0)
    model.fit(rows, sides)
    return [lambda outputs: np.asarray(model.decision_function(outputs), np.float64)]
