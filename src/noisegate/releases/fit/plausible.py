"""Tables that could be the exact one, given all that was measured: where a ± depends on the rows.

Some recipes look first and measure finely only where rows are, and spread the rest: how far they
are off depends on what they did not measure. It is made up here, again and again, from a model:
whatever the recipe was, what it measured are nodes of one tree (`hierarchy`), and a node's left
half has its part of the cells plus a deviation of one of seven classes: even up to one of five
degrees of roughness, or nearly all on one side. How often each class occurs among nodes of one size
is estimated from the noisy numbers (empirical Bayes); sizes that were not measured are as rough as
the next larger ones, or rougher. Each draw takes frequencies that could be, then goes down from the
total: it takes a class for each node, by the odds that the numbers below make of it, and a
deviation within it. The spread of the draws around the released numbers is their error.

Geometric noise is now and then far out, where a normal law never is, and a number that is far from
all others weighs little: so how much each measurement weighs is drawn too (`_weights`).

The questions may have been chosen by earlier answers: given the answers, what is drawn does not
depend on that. It is free: nothing but public numbers goes in, and its chance is public coins that
follow from the release, so that a ± never changes. It is a model, not a proof; how often it
held on real and made-up tables stands in docs/releases.md.
"""

from functools import cached_property
from itertools import pairwise
from typing import Final, NamedTuple, final

import numpy as np

from noisegate.frozen import dataclass, replace
from noisegate.releases.cells.chance import Coins, public_coins
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.cells.workload import Floats, Ints, Workload
from noisegate.releases.trees.hierarchy import Hierarchy, Level

DRAWS: Final = 64
_DRAWS_LEAST: Final = 8  # of very large tables
_NUMBERS_MOST: Final = 1 << 24  # that are kept
FAILURE: Final = 0.05  # at which a factor is told
_SURE: Final = 63 / 64  # of drawn tables, see `Plausible.factor`
_ASKED: Final = 4096  # questions are enough to tell it
_UNKNOWN: Final = 1e30  # the variance of what was never measured: far above any squared sum
_NOTHING: Final = 1e-12
# Classes of a split: five degrees of roughness (relative deviation), all left, all right.
_ROUGHNESS: Final = np.array([0.0, 0.03, 0.1, 0.3, 1.0, 0.02, 0.02])[:, None]
_SIDE: Final = np.array([0, 0, 0, 0, 0, 1, -1])[:, None]
_PRIOR: Final = 4 * np.array([0.1, 0.1, 0.2, 0.25, 0.25, 0.05, 0.05])  # as if seen in four nodes
_ROUGHEST: Final = 4
_INHERITED: Final = 8.0  # a size starts from the one above it, as if seen in so many nodes
_ROUNDS: Final = 8
_BEFORE: Final = 4  # draws that are not kept: the first begin at the usual weights
_NEAR: Final = 1e-3  # noise below that is not told apart from none, in scales
_LIGHT: Final = 1e-3  # what a measurement weighs at least
_FAR: Final = -30.0  # standard deviations below which doubles have no tail


class _Told(NamedTuple):
    """What was measured below the nodes of a level about how they are split."""

    deviation: Floats  # of the left half from its even part
    noise: Floats  # its variance
    left: Floats  # precision of the left half
    right: Floats

    @classmethod
    def of(cls, even: Floats, totals: Floats, mean: Floats, variance: Floats) -> "_Told":
        left, right = 1 / variance[0::2], 1 / variance[1::2]
        noise = 1 / (left + right)
        away = (mean[0::2] - even * totals) * left - (mean[1::2] - (1 - even) * totals) * right
        return cls(away * noise, noise, left, right)


class _Classes(NamedTuple):
    """Each class (first axis) of the splits of a level: its own law, and after measuring."""

    own: Floats  # variance of the deviation
    shift: Floats  # its mean, relative to the node
    mean: Floats  # of the deviation, with what was measured
    rest: Floats  # its variance
    odds: Floats

    @classmethod
    def of(cls, split: "_Split", totals: Floats, squared: Floats, logs: Floats) -> "_Classes":
        even, told = split.even, split.told
        chance = np.where(_SIDE == 0, np.maximum(totals, 0.01) * split.unit, 0)
        own = (_ROUGHNESS**2 * squared + chance) * even * (1 - even) + _NOTHING
        shift = np.where(_SIDE > 0, 1 - even, np.where(_SIDE < 0, -even, 0.0))
        total, away = own + told.noise, told.deviation - shift * totals
        logs = logs - 0.5 * (np.log(total) + away**2 / total)
        odds = np.exp(logs - logs.max(axis=0))
        mean = shift * totals + own / total * away
        return cls(own, shift, mean, own * told.noise / total, odds / odds.sum(axis=0))


class _Split(NamedTuple):
    """The nodes of a level that have halves. One row moves a number by up to ``unit``."""

    even: Floats  # the part of the cells in the left half
    told: _Told
    unit: float


class _Found(NamedTuple):
    """Before measuring, left = share · node + N(0, spread): one entry per node with halves."""

    share: Floats
    spread: Floats


@final
@dataclass(frozen=True, eq=False)
class Plausible:
    """``unit`` is how far one row moves a number at most; ``name`` what the draws follow from.

    ``gaussian`` is the noise if it is not geometric.
    """

    tree: Hierarchy
    unit: float
    name: str
    shape: tuple[int, ...]
    gaussian: bool = False

    @cached_property
    def tables(self) -> tuple[Floats, ...]:
        """The draws: tables of numbers, none negative."""
        count = max(_DRAWS_LEAST, min(DRAWS, _NUMBERS_MOST // self.tree.order.size))
        coins = public_coins(self.name)
        weights = [np.ones(level.widths.size) for level in self.tree.levels]
        drawn = []
        for number in range(-_BEFORE, count):
            cells, weights = self._draw(coins, weights)
            if number >= 0:
                drawn.append(cells.reshape(self.shape))
        return tuple(drawn)

    def spread(self, asked: Workload, shown: Floats, grain: float, *, together: bool) -> Floats:
        """The root mean square distance of released sums, of each box or of all together."""
        squares = np.zeros(1 if together else asked.size)
        for table in self.tables:
            away = asked.answers(table) * grain - shown
            squares += away.sum() ** 2 if together else away**2
        return np.sqrt(squares / len(self.tables))

    def factor(self, asked: Workload, shown: Floats, grain: float) -> float:
        """How many times the spread is a ± at 95 %, by what a release was made for.

        As many as for noise, and in 63 of 64 drawn tables 9 of 10 sums are within: those of one
        release are off together, and it is believed as a whole. Of 71 releases of the rows of cells
        that bench/held.py makes of seeds 1001 to 1010, one has less than 9 of 10 within; by 31 of
        32 tables the ± is 8 % narrower, and two have. Few draws are not their law: Student's factor
        makes up for that.
        """
        from scipy.special import stdtrit  # noqa: PLC0415 - slow to load

        some = np.unique(np.linspace(0, asked.size - 1, min(_ASKED, asked.size)).astype(np.int64))
        asked, shown = replace(asked, lows=asked.lows[some], highs=asked.highs[some]), shown[some]
        away = np.array([asked.answers(table) * grain - shown for table in self.tables])
        spread = np.maximum(np.sqrt((away**2).mean(axis=0)), grain / 2)
        far = np.abs(away) / spread
        worst = np.quantile(np.quantile(far, 1 - 2 * FAILURE, axis=1), _SURE)
        few = -stdtrit(len(self.tables), FAILURE / 2) / tail_factor(FAILURE, gaussian=True)
        return float(few * max(worst, tail_factor(FAILURE, gaussian=False)))

    # the model

    @cached_property
    def _evens(self) -> list[Floats]:
        levels = self.tree.levels
        return [below.widths[0::2] / node.widths[node.cut] for node, below in pairwise(levels)]

    @cached_property
    def _sizes(self) -> list[Ints]:
        """The whole part of log2 of the cells of each node with halves."""
        levels = self.tree.levels[:-1]
        return [np.frexp(level.widths[level.cut])[1].astype(np.int64) - 1 for level in levels]

    @cached_property
    def _fitted(self) -> tuple[Floats, list[_Found]]:
        """How often classes were seen, by size; and the splits by them."""
        sizes = 1 + max((int(size.max(initial=0)) for size in self._sizes), default=0)
        seen = np.tile(_PRIOR, (sizes, 1))
        found = [_Found(even, np.full(even.size, _UNKNOWN)) for even in self._evens]
        for step in range(_ROUNDS):
            means, variances = self._up(found)
            found, own = self._down(means, variances, seen, rough=step == 0)
            if step:
                seen = _inherited(own)
        return seen, found

    def _up(
        self, found: list[_Found], weights: list[Floats] | None = None
    ) -> tuple[list[Floats], list[Floats]]:
        """Mean and variance of each node by what was measured at it and below it."""
        means: list[Floats] = []
        variances: list[Floats] = []
        for depth in range(len(self.tree.levels) - 1, -1, -1):
            level = self.tree.levels[depth]
            weight = 1.0 if weights is None else weights[depth]
            precision, info = level.precisions * weight + 1 / _UNKNOWN, level.infos * weight
            if level.cut.size:
                share, spread = found[depth]
                left, right = means[0][0::2], means[0][1::2]
                v_left, v_right = variances[0][0::2], variances[0][1::2]
                both = spread * (v_left + v_right) + v_left * v_right
                precision[level.cut] += (
                    spread + share**2 * v_right + (1 - share) ** 2 * v_left
                ) / both
                info[level.cut] += (
                    spread * (left + right) + share * v_right * left + (1 - share) * v_left * right
                ) / both
            variances.insert(0, 1 / precision)
            means.insert(0, info / precision)
        return means, variances

    def _down(
        self, means: list[Floats], variances: list[Floats], seen: Floats, *, rough: bool
    ) -> tuple[list[_Found], Floats]:
        """The splits by the classes seen so far, and how often each is seen now, by size."""
        logs = np.log(seen / seen.sum(axis=1, keepdims=True))
        total, spread = np.maximum(means[0], 0), variances[0]
        found, own = [], np.zeros_like(seen)
        for depth, (even, sizes) in enumerate(zip(self._evens, self._sizes, strict=True)):
            cut = self.tree.levels[depth].cut
            node, above = total[cut], np.minimum(spread[cut], _UNKNOWN)
            told = _Told.of(even, node, means[depth + 1], variances[depth + 1])
            squared = node**2 + above
            split = _Split(even, told, self.unit)
            each = _Classes.of(split, node, squared, logs[sizes].T)
            odds = each.odds
            if rough:  # nearly least squares, to begin with
                odds = np.zeros_like(odds)
                odds[_ROUGHEST] = 1.0
            known = odds * (each.own[_ROUGHEST] / (each.own[_ROUGHEST] + told.noise))
            own += np.stack([np.bincount(sizes, row, own.shape[0]) for row in known], axis=1)
            shift = (odds * each.shift).sum(axis=0)
            among = (odds * each.shift**2).sum(axis=0) - shift**2
            found.append(_Found(even + shift, (odds * each.own).sum(axis=0) + squared * among))
            mean = (odds * each.mean).sum(axis=0)
            rest = (odds * (each.rest + (each.mean - mean) ** 2)).sum(axis=0)
            left = np.clip(even * node + mean, 0, node)
            total = np.stack([left, node - left], axis=1).ravel()
            slope = _slope(found[-1], told)
            parts = slope**2 * above + rest, (1 - slope) ** 2 * above + rest
            spread = np.stack(parts, axis=1).ravel()
        return found, own

    def _draw(self, coins: Coins, weights: list[Floats]) -> tuple[Floats, list[Floats]]:
        """One table, in the order of the cells, and how much measurements weigh for the next.

        Geometric noise is normal noise whose variance is itself drawn from an exponential law.
        Given a table, its precision (1 is the usual one) has an inverse Gaussian law: numbers that
        are far from all others weigh little. Tables and weights by turns are drawn from both.
        """
        from scipy.special import ndtri  # noqa: PLC0415 - slow to load

        seen, found = self._fitted
        means, variances = self._up(found, weights)
        new = []
        likely = coins.standard_gamma(seen)  # frequencies that could be, up to a factor
        logs = np.log(np.maximum(likely, 1e-300))
        total = _positive(means[0], np.sqrt(variances[0]), coins.random(1))
        cells = np.empty(self.tree.order.size)
        for depth, level in enumerate(self.tree.levels):
            new.append(weights[depth] if self.gaussian else _weights(level, total, coins))
            single = level.widths == 1
            cells[self.tree.order[level.lows[single]]] = total[single]
            if not level.cut.size:
                break
            even, node = self._evens[depth], total[level.cut]
            told = _Told.of(even, node, means[depth + 1], variances[depth + 1])
            each = _Classes.of(
                _Split(even, told, self.unit), node, node**2, logs[self._sizes[depth]].T
            )
            picked = coins.random(node.size) > np.cumsum(each.odds, axis=0)
            at = np.minimum(picked.sum(axis=0), _PRIOR.size - 1), np.arange(node.size)
            middle, deviation = even * node + each.mean[at], np.sqrt(each.rest[at])
            place = coins.random(node.size)
            lower = middle < node / 2
            near = _positive(np.where(lower, middle, node - middle), deviation, place)
            # A class wider than the node has much at its ends; noise beyond an end has not.
            free = np.where(
                told.noise > each.own[at],
                middle + deviation * ndtri(place),
                np.where(lower, near, node - near),
            )
            left = np.clip(free, 0, node)
            total = np.stack([left, node - left], axis=1).ravel()
        return cells, new


def _weights(level: Level, total: Floats, coins: Coins) -> Floats:
    """Of what was measured about each node: precisions relative to the usual one."""
    found, known = np.ones(total.size), np.flatnonzero(level.precisions)
    precision = level.precisions[known]
    far = np.abs(level.infos[known] / precision - total[known]) * np.sqrt(precision / 2)
    found[known] = coins.wald(1 / np.maximum(far, _NEAR), 2.0)
    return np.maximum(found, _LIGHT)


def _slope(found: _Found, told: _Told) -> Floats:
    """How far the left half moves if the node does, by what is known from below."""
    rest = 1 / (1 / found.spread + told.left + told.right)
    return found.share + rest * ((1 - found.share) * told.right - found.share * told.left)


def _inherited(own: Floats) -> Floats:
    """How often classes occur, by size: as seen in nodes of it, and a little in larger ones."""
    found, seen = np.empty_like(own), np.zeros(own.shape[1])
    for size in range(own.shape[0] - 1, -1, -1):
        here = own[size].copy()
        here[_SIDE.ravel() != 0] = here[_SIDE.ravel() != 0].mean()  # as for its mirror image
        seen = here + seen * min(1.0, _INHERITED / max(float(seen.sum()), 1e-9))
        found[size] = seen + _PRIOR
    return found


def _positive(mean: Floats, deviation: Floats, place: Floats) -> Floats:
    """A normal number given that it is not negative, by its place among such."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - slow to load

    least = np.maximum(mean / deviation, _FAR)
    found: Floats = deviation * np.maximum(least - ndtri(ndtr(least) * (1 - place)), 0)
    return found
