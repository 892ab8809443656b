"""What noisy sums of bins say about every node of a tree of halves: free, and never negative.

A node's left half has the share 1/2 of it (or its part of the cells) plus a deviation. How large
deviations are is not known; it differs from table to table, and from level to level. So a split has
one of seven classes: even up to one of five degrees of roughness, or all on one side. How often
each class occurs on a level is estimated from the noisy numbers themselves (expectation and
maximisation, as in empirical Bayes). Smooth tables are thus smoothed, spiky ones are not, and empty
stretches become empty.

Few rows do not tell classes apart: every split might be rough, and a little of that everywhere
costs more than all noise. So there is one more case, weighed against all classes by everything that
was measured: the table is even throughout, up to the chance of its rows.

Given the classes, all is Gaussian, and two passes over the tree are exact: up with what the bins
below say, down with what the bins elsewhere say.
This one fit stands for least squares, clipping at 0, thresholds and smoothing inside partitions.
"""

from typing import Final, NamedTuple, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.ask.shares import NOISELESS
from noisegate.releases.cells.workload import Floats
from noisegate.releases.trees.dyadic_row import Bins, Halves, Levels, joined, pairs

UNKNOWN: Final = 1e30  # the variance of what was never measured: far above any squared sum
EMPTY: Final = 1e-12  # the variance of what is known to be empty: cells beyond the end
# Classes of a split: five degrees of roughness (relative deviation), all left, all right.
_ROUGHNESS: Final = np.array([0.0, 0.03, 0.1, 0.3, 1.0, 0.02, 0.02])[:, None]
_SIDE: Final = np.array([0, 0, 0, 0, 0, 1, -1])[:, None]
_PRIOR: Final = np.array([0.2, 0.2, 0.2, 0.15, 0.15, 0.05, 0.05])
_EVEN: Final = np.array([1.0, 0, 0, 0, 0, 0, 0])
_STEEP: Final = 500.0  # no odds beyond e to this are told apart
_TAIL: Final = 2**0.5  # deviations; from there on the log of a density falls evenly
_ROUGH: Final = 4  # the class that shrinks least
_INHERITED: Final = 8.0  # a level starts from the frequencies above it, as if seen in so many nodes
_ROUNDS: Final = 8
_CHUNK: Final = 1 << 13  # nodes that are worked on at a time, to stay in the cache


@final
@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What all measurements together say about each node: precisions, and precision × value."""

    tree: Halves
    precisions: Levels
    infos: Levels

    @classmethod
    def none(cls, tree: Halves) -> "Evidence":
        """Nothing is measured; cells beyond the end are empty."""
        precisions = [np.where(width > 0, 1 / UNKNOWN, 1 / EMPTY) for width in tree.widths]
        return cls(tree, precisions, [np.zeros(width.size) for width in tree.widths])

    def add(self, bins: Bins, noisy: Noisy) -> None:
        """One more measurement."""
        precision = 1 / max(noisy.variance, NOISELESS)
        for level, nodes, places in bins.nodes:
            self.precisions[level][nodes] += precision
            self.infos[level][nodes] += precision * noisy.values[places]

    def expect(self, bins: Bins, variance: float) -> None:
        """A measurement to come: its precision, without its numbers."""
        for level, nodes, _ in bins.nodes:
            self.precisions[level][nodes] += 1 / max(variance, NOISELESS)

    @property
    def deepest(self) -> int:
        """The last level that was measured anywhere."""
        levels = range(self.tree.depth, -1, -1)
        return next((at for at in levels if self.measured(at)), 0)

    def measured(self, level: int) -> bool:
        """Whether a node of the level was measured."""
        known = self.precisions[level] > 2 / UNKNOWN
        return bool(np.any(known & (self.tree.widths[level] > 0)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class FittedTree:
    """The sums of all nodes, and the splits as they were found.

    Before measuring, left = share · node + N(0, spread). After it, left moves by ``slopes`` with
    the node, and by N(0, rest) on its own. ``variances`` are those of the sums.
    """

    sums: Levels
    shares: Levels
    spreads: Levels
    slopes: Levels
    rests: Levels
    variances: Levels

    def add(self, share: Floats, spread: Floats, slope: Floats, rest: Floats, sums: Floats) -> None:
        """One more level."""
        self.shares.append(share)
        self.spreads.append(spread)
        self.slopes.append(slope)
        self.rests.append(rest)
        self.sums.append(sums)
        above = self.variances[-1]
        self.variances.append(joined(slope**2 * above + rest, (1 - slope) ** 2 * above + rest))


def fit(evidence: Evidence, even: float) -> FittedTree:
    """The sums of all nodes by all that was measured.

    ``even`` is how likely a table is even throughout, before it is measured.
    """
    tree = evidence.tree
    frequencies = np.tile(_PRIOR, (tree.depth + 1, 1))
    shares = [even.copy() for even in tree.even]
    spreads = [np.full(even.size, UNKNOWN) for even in tree.even]
    flat = 0.0
    for step in range(_ROUNDS):
        means, variances = upward(evidence, shares, spreads)
        found, odds = _downward(tree, means, variances, frequencies, flat, rough=step == 0)
        if step > 0:
            flat = even / (even + (1 - even) * float(np.exp(min(odds, _STEEP))))
        measured = len(variances) - 1
        shares[:measured] = found.shares[:measured]
        spreads[:measured] = found.spreads[:measured]
    return _completed(tree, found, flat * _EVEN + (1 - flat) * frequencies[-1])


def least_squares(evidence: Evidence) -> Floats:
    """The cells with all splits taken to be as rough as can be, none negative."""
    tree = evidence.tree
    unknown = [np.full(even.size, UNKNOWN) for even in tree.even]
    means, variances = upward(evidence, tree.even, unknown)
    none = np.tile(_PRIOR, (tree.depth + 1, 1))
    found, _ = _downward(tree, means, variances, none, 0.0, rough=True)
    return _completed(tree, found, _EVEN).sums[-1][: tree.cells]


def _downward(
    tree: Halves,
    means: Levels,
    variances: Levels,
    frequencies: Floats,
    flat: float,
    *,
    rough: bool,
) -> tuple[FittedTree, float]:
    """The sums down to the last level that was measured, and log odds against an even table.

    The frequencies are renewed.
    """
    found = FittedTree([np.maximum(means[0], 0)], [], [], [], [], [variances[0]])
    seen, odds = np.zeros(_PRIOR.size), 0.0
    for level, even in enumerate(tree.even[: len(means) - 1]):
        told = _Told.of(
            even, found.sums[-1], found.variances[-1], means[level + 1], variances[level + 1]
        )
        split = _chunked(told, frequencies[level], flat, rough=rough)
        inner = tree.widths[level] > 1
        odds += float(split.odds @ inner)
        own = split.weights @ inner
        own[_SIDE.ravel() != 0] = own[_SIDE.ravel() != 0].mean()  # as for its mirror image
        seen = own + seen * min(1.0, _INHERITED / max(float(seen.sum()), 1e-9))
        frequencies[level] = (seen + _PRIOR) / (seen.sum() + 1)
        share = even + split.mean
        slope = _slope(share, split.spread, told)
        found.add(share, split.spread, slope, split.rest, told.halved(split.deviation))
    frequencies[len(means) - 1 :] = (seen + _PRIOR) / (seen.sum() + 1)
    return found, odds


def _completed(tree: Halves, found: FittedTree, frequencies: Floats) -> FittedTree:
    """Down to the cells, where nothing was measured: evenly, and as rough as the levels above."""
    for even in tree.even[len(found.shares) :]:
        total = found.sums[-1]
        share, spread = _unmeasured(even, total, found.variances[-1], frequencies)
        found.add(share, spread, share, spread, joined(share * total, (1 - share) * total))
    return found


def upward(evidence: Evidence, shares: Levels, spreads: Levels) -> tuple[Levels, Levels]:
    """Mean and variance of each node by what was measured at it and below it."""
    deepest = evidence.deepest
    variances = [1 / evidence.precisions[deepest]]
    means = [evidence.infos[deepest] * variances[0]]
    for level in range(deepest - 1, -1, -1):
        (left, right), (v_left, v_right) = pairs(means[0]), pairs(variances[0])
        share, spread = shares[level], spreads[level]
        other = 1 - share
        both = spread * (v_left + v_right) + v_left * v_right
        known = (spread + share**2 * v_right + other**2 * v_left) / both
        info = spread * (left + right) + share * v_right * left + other * v_left * right
        variances.insert(0, 1 / (known + evidence.precisions[level]))
        means.insert(0, (info / both + evidence.infos[level]) * variances[0])
    return means, variances


class _Told(NamedTuple):
    """What is known about the splits of a level before their classes are: one entry per node."""

    even: Floats
    total: Floats
    squared: Floats  # of the total, in the mean
    deviation: Floats  # of the left half from its even part, as measured below
    noise: Floats  # its variance
    left: Floats  # precision of the left half, from below
    right: Floats

    @classmethod
    def of(
        cls, even: Floats, total: Floats, spread: Floats, mean: Floats, variance: Floats
    ) -> "_Told":
        """``mean`` and ``variance`` are of the halves, by what was measured below."""
        left, right = (1 / half for half in pairs(variance))
        first, second = pairs(mean)
        noise = 1 / (left + right)
        away = (first - even * total) * left - (second - (1 - even) * total) * right
        squared = total**2 + np.minimum(spread, UNKNOWN)
        return cls(even, total, squared, away * noise, noise, left, right)

    def halved(self, deviation: Floats) -> Floats:
        """The two halves of each node, none negative."""
        part = self.even * self.total
        first = np.clip(part + deviation, 0, self.total)
        return joined(first, self.total - first)


class _Split(NamedTuple):
    """What the classes make of a level."""

    deviation: Floats  # of the left half from its even part
    rest: Floats  # its variance
    mean: Floats  # deviation that the classes foresee, relative to the node
    spread: Floats  # and its variance
    weights: Floats  # (classes, nodes): how likely, times how much was measured
    odds: Floats  # log of how much likelier what was measured is by the classes than if even


def _chunked(told: _Told, frequencies: Floats, flat: float, *, rough: bool) -> _Split:
    parts = []
    for start in range(0, told.even.size, _CHUNK):
        some = _Told(*(each[start : start + _CHUNK] for each in told))
        parts.append(_roughest(some) if rough else _mixed(some, frequencies, flat))
    return _Split(*(np.concatenate(each, axis=-1) for each in zip(*parts, strict=True)))


def _roughest(told: _Told) -> _Split:
    """All nodes as rough as can be: nearly least squares, to begin with."""
    spread = _variances(told)[_ROUGH]
    rest = 1 / (1 / spread + 1 / told.noise)
    none = np.zeros_like(rest)
    return _Split(told.deviation, rest, none, spread, np.zeros((_PRIOR.size, rest.size)), none)


def _mixed(told: _Told, frequencies: Floats, flat: float) -> _Split:
    """The classes weighed by how well they foresee what was measured."""
    own, off = _variances(told), _offsets(told.even)
    total = own + told.noise
    shift = off * told.total
    away = told.deviation - shift
    logs = np.log(frequencies)[:, None] - 0.5 * np.log(total) - _surprise(away / np.sqrt(total))
    most = logs.max(axis=0)
    weights = np.exp(logs - most)
    some = weights.sum(axis=0)
    odds = np.log(some * frequencies[0]) + most - logs[0]
    alone = weights / some
    weights = flat * _EVEN[:, None] + (1 - flat) * alone
    each = shift + own / total * away
    deviation = (weights * each).sum(axis=0)
    rest = (weights * (own * told.noise / total + (each - deviation) ** 2)).sum(axis=0)
    mean, spread = _foreseen(weights, own, off, told.squared)
    measured = alone * (own[_ROUGH] / total[_ROUGH])
    return _Split(deviation, rest, mean, spread, measured, odds)


def _surprise(far: Floats) -> Floats:
    """Minus the log of a density with the tails of geometric noise, which is often far out."""
    far = np.abs(far)
    return np.where(far < _TAIL, far**2 / 2, _TAIL * (far - _TAIL / 2))


def _variances(told: _Told) -> Floats:
    """Of the deviation by class: relative roughness, and the chance of rows to fall left."""
    chance = np.where(_SIDE == 0, np.maximum(told.total, 0.01), 0)
    return (_ROUGHNESS**2 * told.squared + chance) * told.even * (1 - told.even) + EMPTY


def _offsets(even: Floats) -> Floats:
    """By class: where the deviation is, relative to the node. Nothing can be beyond the end."""
    right = np.where(even < 1, even, 0)
    return np.where(_SIDE > 0, 1 - even, np.where(_SIDE < 0, -right, 0.0))


def _foreseen(weights: Floats, own: Floats, off: Floats, squared: Floats) -> tuple[Floats, Floats]:
    mean = (weights * off).sum(axis=0)
    among = (weights * off**2).sum(axis=0) - mean**2
    return mean, (weights * own).sum(axis=0) + squared * among + EMPTY


def _slope(share: Floats, spread: Floats, told: _Told) -> Floats:
    """How far the left half moves if the node does, by what is known from below."""
    rest = 1 / (1 / spread + told.left + told.right)
    return share + rest * ((1 - share) * told.right - share * told.left)


def _unmeasured(
    even: Floats, total: Floats, spread: Floats, frequencies: Floats
) -> tuple[Floats, Floats]:
    """Share and spread of splits that nothing was measured below."""
    squared = total**2 + np.minimum(spread, UNKNOWN)
    nothing = np.zeros_like(even)
    told = _Told(even, total, squared, nothing, nothing, nothing, nothing)
    weights = frequencies[:, None]
    mean, found = _foreseen(weights, _variances(told), _offsets(even), squared)
    return even + mean, found
