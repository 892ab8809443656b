"""The levels of a tree of boxes: what share of the price each gets, and their numbers asked."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor, prod
from typing import Final

import numpy as np

from noisegate.releases.ask.asking import Ask, Noisy, one_sum
from noisegate.releases.cells.estimate import Estimate, Predicted
from noisegate.releases.cells.spatial import Boxes, SpatialTree, fit
from noisegate.releases.cells.workload import Floats, Ints, Workload, all_ranges

_FINE: Final = 10**6
_SAMPLE: Final = 250  # rectangles are enough to weigh levels by
_MOST: Final = 4000  # rectangles are enough to predict an error from
_LEAST: Final = 1e-3  # of the price; a level for less is left out
_ROUNDS: Final = 60


def level_shares(
    boxes: Boxes, workload: Workload, price: Fraction, *, gaussian: bool
) -> list[Fraction]:
    """Shares of the levels that make the mean variance of the workload least, after least squares.

    The geometric budget of [CPSSY12] weighs levels as if answers were added up from noisy counts.
    Least squares joins levels, so that some are better left out: they get a share of 0. The last
    level is always asked. Trees of uneven parts are treated as if all parts of a level were alike,
    which may cost accuracy, nothing else.
    """
    weights, fanouts = level_weights(boxes, workload)
    shares = best_shares(weights, fanouts, gaussian=gaussian)
    return [price * Fraction(floor(share * _FINE), _FINE) for share in shares.tolist()]


def level_weights(boxes: Boxes, workload: Workload) -> tuple[Floats, Floats]:
    """C and f with mean variance Σ C_t u_t, 1/u_t = 1/v_t + 1/(f_t u_(t+1)), v_t noise of level t.

    This is `SpatialTree.variance` where all boxes of a level are alike: then a_v is the share of v
    that is inside the rectangle, whatever the noise is. Single cells need no tree: where the
    workload asks for nothing else, an even choice of ranges stands for what a tree is good for.
    """
    if np.array_equal(workload.lows, workload.highs):
        workload = all_ranges(workload.shape, most=_SAMPLE)
    lows, highs = evenly(workload, _SAMPLE)
    found, parts = np.zeros(boxes.depth + 1), boxes.parts
    above: Ints = np.zeros(0, np.int64)
    for depth, (_, held, share, rows) in enumerate(boxes.covered(lows, highs)):
        found[depth] = np.sum(share**2)
        if depth:
            found[depth] -= np.sum(np.bincount(rows, share, above.size) ** 2 / np.maximum(above, 1))
        above = parts[held]
    sizes = np.diff(boxes.starts)
    return np.maximum(found, 0) / lows.shape[0], np.append(sizes[1:] / sizes[:-1], 1.0)


def best_shares(weights: Floats, fanouts: Floats, *, gaussian: bool) -> Floats:
    """The best of many descents, one from each set of levels, all at once.

    A noise of variance 2 / share² (1 / share if Gaussian) makes Σ C_t u_t stationary where its
    slopes are alike over the levels in use; each step moves shares towards that.

    >>> best_shares(np.array([0.0, 1.0]), np.array([2.0, 1.0]), gaussian=False).round(3).tolist()
    [0.0, 1.0]
    """
    shares = _starts(weights.size)
    power = 1 / 2 if gaussian else 1 / 3
    for _ in range(_ROUNDS):
        gain, _ = _slopes(weights, fanouts, shares, gaussian=gaussian)
        shares *= np.maximum(gain, 0) ** power
        shares[:, -1] = np.maximum(shares[:, -1], 1e-12)
        shares /= shares.sum(axis=1, keepdims=True)
        shares[shares < _LEAST] = 0
        shares[:, -1] = np.maximum(shares[:, -1], _LEAST)
        shares /= shares.sum(axis=1, keepdims=True)
    best: Floats = shares[np.argmin(_slopes(weights, fanouts, shares, gaussian=gaussian)[1])]
    return best


def _slopes(
    weights: Floats, fanouts: Floats, shares: Floats, *, gaussian: bool
) -> tuple[Floats, Floats]:
    """How fast the mean variance falls with each share, and the mean variance."""
    precision = shares if gaussian else shares**2 / 2
    spread = np.empty_like(shares)
    spread[:, -1] = 1 / precision[:, -1]
    for t in range(weights.size - 2, -1, -1):
        spread[:, t] = 1 / (precision[:, t] + 1 / (fanouts[t] * spread[:, t + 1]))
    blame = np.empty_like(shares)
    blame[:, 0] = weights[0]
    for t in range(1, weights.size):
        passed = spread[:, t - 1] ** 2 / (fanouts[t - 1] * spread[:, t] ** 2)
        blame[:, t] = weights[t] + blame[:, t - 1] * passed
    gain = blame * spread**2 * (1 if gaussian else shares)
    return gain, spread @ weights


def _starts(levels: int) -> Floats:
    """All sets of levels with the last one, or those in even steps if there are many."""
    if levels <= 10:
        sets = np.arange(1 << (levels - 1))[:, None] >> np.arange(levels - 1) & 1
    else:
        steps = np.arange(levels - 1, 0, -1)
        sets = np.array([steps % step == 0 for step in range(1, levels + 1)])
    full = np.hstack([sets, np.ones((sets.shape[0], 1))]).astype(np.float64)
    found: Floats = full / full.sum(axis=1, keepdims=True)
    return found


def measured(
    ask: Ask, boxes: Boxes, shares: Sequence[Fraction], *, total: Noisy | None = None
) -> SpatialTree:
    """All levels that have a share in one round, made consistent; the top may be known before."""
    asked = [depth for depth, share in enumerate(shares) if share > 0]
    blocks = [boxes.groups(depth) for depth in asked]
    noisy = ask.sums(blocks, [shares[depth] for depth in asked])
    known = {} if total is None else {0: total}
    return joined(boxes, known | dict(zip(asked, noisy, strict=True)))


def joined(boxes: Boxes, levels: Mapping[int, Noisy]) -> SpatialTree:
    """The noisy numbers of some levels, made consistent."""
    numbers, variances = np.zeros(boxes.size), np.full(boxes.size, np.inf)
    for depth, found in levels.items():
        numbers[boxes.level(depth)] = found.values
        variances[boxes.level(depth)] = found.variance
    return fit(boxes, numbers, variances)


def rehearsed(ask: Ask, boxes: Boxes, shares: Sequence[Fraction]) -> SpatialTree:
    """The same without asking: counts are 0, the variances are those that would be."""
    variances = np.full(boxes.size, np.inf)
    for depth, share in enumerate(shares):
        if share > 0:
            variances[boxes.level(depth)] = ask.variance(boxes.groups(depth), share)
    return fit(boxes, np.zeros(boxes.size), variances)


def last_shares(boxes: Boxes, share: Fraction) -> list[Fraction]:
    """All of a share for the last boxes."""
    return [Fraction(0)] * boxes.depth + [share]


def noise_rms(tree: SpatialTree, workload: Workload) -> float:
    """The root mean square error of the workload that is due to noise."""
    return float(np.sqrt(tree.noise(*evenly(workload, _MOST)).mean()))


def evenly(workload: Workload, most: int) -> tuple[Ints, Ints]:
    """The rectangles of the workload, or an even choice of them."""
    kept = np.unique(np.linspace(0, workload.size - 1, min(most, workload.size)).astype(np.int64))
    return workload.lows[kept], workload.highs[kept]


def estimate(tree: SpatialTree, *words: str) -> Estimate:
    """The cells of a tree, and what is known about the noise in a rectangle."""
    even = "Inside a box without parts, counts are spread evenly."
    if tree.boxes.volumes[tree.leaves].max() > 1:
        words = (*words, even)
    return Estimate(tree.cells(), tree.variance, words, tree, tree.mended)


def spread_rms(ask: Ask, workload: Workload, share: Fraction) -> float:
    """The root mean square error of a workload if the total alone is measured and spread evenly."""
    cells = prod(ask.shape)
    parts = np.prod(workload.highs - workload.lows + 1, axis=1) / cells
    return float(np.sqrt(ask.variance(one_sum(ask.shape), share) * np.mean(parts**2)))


def cut_rms(boxes: Boxes, workload: Workload) -> float:
    """The root mean square error of a workload if each last box holds 1, all in one place.

    The place may be any cell of the box: a question that has a share s of it is then off by s(1-s)
    in squares. The last boxes are a grid.
    """
    lows, highs = evenly(workload, _MOST)
    sums, squares = np.ones((2, lows.shape[0]))
    for axis, size in enumerate(boxes.shape):
        begin = np.unique(boxes.lows[boxes.level(boxes.depth), axis])
        end = np.append(begin[1:], size)
        inside = np.minimum(highs[:, axis, None] + 1, end) - np.maximum(lows[:, axis, None], begin)
        parts = np.maximum(inside, 0) / (end - begin)
        sums *= parts.sum(axis=1)
        squares *= (parts**2).sum(axis=1)
    return float(np.sqrt(np.mean(sums - squares)))


def noise_only(rms: float, depends: str) -> Predicted:
    """A prediction for a recipe whose boxes are not known beforehand."""
    return Predicted(rms=None, words=f"the rest depends on {depends}", noise=rms)
