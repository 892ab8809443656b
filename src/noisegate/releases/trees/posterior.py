"""What is most likely inside a tree of noisy counts: up and down by a prior.

A node of n has a left half that holds nothing, or all of n, or any number in between. Up, each node
pools its own count with what its halves say: where one of them looks empty, with the other alone,
so that the noise of empty places does not add up. Down, n is given, and the odds of the three are
1 : 1 : 2 beforehand, and afterwards what the two halves' counts make of them. So no number is
negative, halves add up, and empty places are found to be empty, however large they are.

For ranges the counts must not lean to any side, since errors of many nodes add up: on the way up a
half is taken to be empty for strong reasons only, and a number in between is the most likely one.
For single cells the mean of all such numbers is better, and what was measured below a node says how
likely it is to be empty. Where a node stands clear of its noise, the odds are then those that all
nodes of its level as clear as it turned out to have, and all is read once more: tables with rows
everywhere would come out too low otherwise, and nearly empty ones too full.
"""

from collections.abc import Iterator
from math import pi
from typing import Final, final

import numpy as np
from scipy.special import log_ndtr

from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats
from noisegate.releases.trees.dyadic import Ints
from noisegate.releases.trees.refine import MeasuredTree

_EMPTY_UP: Final = 1 / 10  # the odds of either half on the way up, for ranges
_EMPTY_UP_SINGLE: Final = 1 / 3
_EMPTY_DOWN: Final = 1 / 4
_EMPTY_MOST: Final = 0.45
_NODES: Final = 10  # as if so many had been seen with the odds before
_CLEAREST: Final = 3  # 2³ deviations and more; 2^0 to 2 are not clear
_AT_ONCE: Final = 1 << 17


@final
@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What is known of a count n: e^some · N(n; mean, variance) if n > 0, and e^none if n = 0."""

    mean: Floats
    variance: Floats
    some: Floats
    none: Floats

    def __getitem__(self, nodes: Ints) -> "Message":
        return Message(self.mean[nodes], self.variance[nodes], self.some[nodes], self.none[nodes])


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Empty:
    """The odds of either half to be empty, by level and by how clear a node is; up and down."""

    up: Floats
    down: Floats

    @classmethod
    def known(cls, tree: MeasuredTree, *, shrink: bool) -> "_Empty":
        every = np.ones((int(tree.levels[: tree.size].max(initial=0)) + 1, _CLEAREST + 1))
        return cls(every * (_EMPTY_UP_SINGLE if shrink else _EMPTY_UP), every * _EMPTY_DOWN)

    def learnt(self, empty: Floats, nodes: Floats) -> "_Empty":
        """As often as nodes that are clear turned out to have an empty half."""

        def odds(before: Floats) -> Floats:
            found = np.minimum((empty / 2 + _NODES * before) / (nodes + _NODES), _EMPTY_MOST)
            return np.where(np.arange(_CLEAREST + 1) > 0, found, before)

        return _Empty(odds(self.up), odds(self.down))


def posterior(tree: MeasuredTree, *, shrink: bool, gaussian: bool) -> tuple[Message, Floats]:
    """What is known of each node, and the mean of its count in the end."""
    empty = _Empty.known(tree, shrink=shrink)
    if shrink:
        first = _read_up(tree, empty, shrink=shrink, gaussian=gaussian)
        empty = empty.learnt(*_read_down(tree, first, empty, shrink=shrink)[1:])
    found = _read_up(tree, empty, shrink=shrink, gaussian=gaussian)
    return found, _read_down(tree, found, empty, shrink=shrink)[0]


def _read_down(
    tree: MeasuredTree, found: Message, empty: _Empty, *, shrink: bool
) -> tuple[Floats, Floats, Floats]:
    """The counts; by level and clearness, how many nodes have an empty half; and how many are."""
    counts = np.zeros(tree.size)
    counts[0] = max(found.mean[0], 0)
    halves, all_nodes = np.zeros((2, *empty.down.shape))
    for nodes in _by_level(tree):
        level, lefts, whole = tree.levels[nodes[0]], tree.left[nodes], counts[nodes]
        part = whole / 2
        some = whole > 1e-9
        one, two = found[lefts[some]], found[lefts[some] + 1]
        clear = _clear(whole[some], one, two)
        part[some], odds = _split(whole[some], one, two, empty.down[level, clear], shrink=shrink)
        halves[level] += np.bincount(clear, odds, _CLEAREST + 1)
        all_nodes[level] += np.bincount(clear, minlength=_CLEAREST + 1)
        counts[lefts], counts[lefts + 1] = part, whole - part
    return counts, halves, all_nodes


def _clear(whole: Floats, one: Message, two: Message) -> Ints:
    """How often a count is twice as large as its noise, from below."""
    deviations = np.maximum(whole, 1e-9) / np.sqrt(one.variance + two.variance)
    return np.clip(np.floor(np.log2(deviations)), 0, _CLEAREST).astype(np.int64)


def _by_level(tree: MeasuredTree, *, up: bool = False) -> Iterator[Ints]:
    """The nodes that are cut, no node before the one it is in (or after, on the way up)."""
    cut = np.flatnonzero(tree.levels[: tree.size] >= 0)
    levels = tree.levels[cut]
    cut = cut[np.argsort(levels, kind="stable")]
    parts = [each for each in np.split(cut, np.cumsum(np.bincount(levels))) if each.size]
    for part in reversed(parts) if up else parts:
        yield from np.split(part, range(_AT_ONCE, part.size, _AT_ONCE))


def _read_up(tree: MeasuredTree, empty: _Empty, *, shrink: bool, gaussian: bool) -> Message:
    values, weights = tree.values[: tree.size], tree.weights[: tree.size]
    seen = weights > 0
    noise = 1 / np.where(seen, weights, 1)
    nothing = _log_normal if gaussian else _log_laplace
    none = np.where(seen, nothing(values, noise), 0.0)
    found = Message(values.copy(), noise.copy(), np.zeros(tree.size), none)
    for nodes in _by_level(tree, up=True):
        one, two = found[tree.left[nodes]], found[tree.left[nodes] + 1]
        clear = _clear(one.mean + two.mean, one, two)
        odds, mean, spread = _mixture(one, two, empty.up[tree.levels[nodes[0]], clear])
        own, value, error = seen[nodes], values[nodes], noise[nodes]
        odds = odds + np.where(own, _log_normal(value - mean, spread + error), 0.0)
        mean = np.where(own, (mean * error + value * spread) / (spread + error), mean)
        spread = np.where(own, spread * error / (spread + error), spread)
        odds, some = _likely(odds)
        found.mean[nodes] = average = (odds * mean).sum(axis=0)
        found.variance[nodes] = (odds * (spread + (mean - average) ** 2)).sum(axis=0)
        found.some[nodes] = some
        found.none[nodes] += one.none + two.none
    if shrink:
        return found
    pooled = _log_normal(found.mean, found.variance)
    return Message(found.mean, found.variance, np.zeros(tree.size), pooled)


def _likely(logs: Floats) -> tuple[Floats, Floats]:
    """How likely each of the cases is, from the logs of their weights; and the log of all."""
    top = logs.max(axis=0)
    weights = np.exp(logs - top)
    total = weights.sum(axis=0)
    return weights / total, top + np.log(total)


def _log_normal(x: Floats, variance: Floats) -> Floats:
    return -0.5 * (x * x / variance + np.log(2 * pi * variance))


def _log_laplace(x: Floats, variance: Floats) -> Floats:
    scale = np.sqrt(variance / 2)
    found: Floats = -np.abs(x) / scale - np.log(2 * scale)
    return found


def _mixture(one: Message, two: Message, empty: Floats) -> tuple[Floats, Floats, Floats]:
    """Odds, mean and variance of the sum if one is empty, if two is, and if neither is."""
    mean = np.stack([two.mean, one.mean, one.mean + two.mean])
    variance = np.stack([two.variance, one.variance, one.variance + two.variance])
    wide = np.maximum(np.maximum(mean[2], np.sqrt(variance[2])), 1)
    odds = np.log(np.stack([empty, empty, 1 - 2 * empty])) + np.stack(
        [
            one.none + two.some,
            two.none + one.some,
            one.some + two.some - np.log(wide),
        ]
    )
    return odds + log_ndtr(mean / np.sqrt(variance)), mean, variance


def _split(
    whole: Floats, one: Message, two: Message, empty: Floats, *, shrink: bool
) -> tuple[Floats, Floats]:
    """The first half's count, given both halves' sum: the mean, or the mode of what is between.

    Also the odds that either half is empty.
    """
    spread = one.variance + two.variance
    middle = one.mean + one.variance / spread * (whole - one.mean - two.mean)
    mass, between = _truncated(middle, np.sqrt(one.variance * two.variance / spread), whole)
    either = np.log(2 * empty / (1 - 2 * empty))
    odds, _ = _likely(np.stack([
        either + one.none + two.some + _log_normal(whole - two.mean, two.variance),
        either + two.none + one.some + _log_normal(whole - one.mean, one.variance),
        one.some + two.some + _log_normal(whole - one.mean - two.mean, spread)
        + mass - np.log(whole / 2),
    ]))  # fmt: skip
    if not shrink:
        between = np.clip(middle, 0, whole)
    return odds[1] * whole + odds[2] * between, odds[0] + odds[1]


def _truncated(middle: Floats, deviation: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Of a normal law, the log of its mass between 0 and ``high``, and the mean there."""
    low, top = -middle / deviation, (high - middle) / deviation
    mirrored = low > 0  # so that the interval is never far out on the right, where digits are lost
    low, top = np.where(mirrored, -top, low), np.where(mirrored, -low, top)
    below, above = log_ndtr(low), log_ndtr(top)
    mass = above + np.log1p(-np.exp(np.minimum(below - above, -1e-12)))
    ends = [np.exp(np.minimum(-0.5 * end * end - mass, 50.0)) for end in (low, top)]
    shift = (ends[0] - ends[1]) / np.sqrt(2 * pi)
    mean = middle + deviation * np.where(mirrored, -shift, shift)
    return mass, np.clip(mean, 0, high)
