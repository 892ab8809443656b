"""Measuring a tree where the counts are: each node looks at itself, then splits or stops.

A node holds what is left to spend on its cells, in whole quanta of the price. It spends a part on
its own count, looks at the noisy value, and either hands all that is left to each of its parts some
levels further down, or spends the rest on itself. So every cell is asked for the same sum in the
end, exactly. Nodes of one round do not overlap: those that spend the same are one block of sums.
"""

from fractions import Fraction
from math import log
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Ask
from noisegate.releases.ask.shares import Law
from noisegate.releases.cells.workload import Floats
from noisegate.releases.trees.dyadic import Dyadic, Ints
from noisegate.transforms.strategy import Groups

QUANTA: Final = 1_000_000  # whole millionths of the price, which every account adds up exactly
_RUNG: Final = 0.9  # what may be left is 0.9^k of the whole, so that few nodes spend differently:
_RUNGS: Final = 200  # each different spend is a pass over the cells
_STEEP: Final = 50.0
_VARIANCE_LEAST: Final = 1e-6  # beyond any use, and well above what doubles lose


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """How to refine. A noise unit is 1/√2 of the standard deviation that all the rest would buy.

    ``mass``: a last node should hold so many noise units. ``step``: binary levels from one round to
    the next, or up to ``last`` times as many before the last; ``ratio``: how much more a round
    spends than the one before.

    A node with ``rich`` noise units per cell goes down to single cells in any case. It does so as
    is best for a full tree, ``leap`` levels at a time, each spending ``leap_ratio`` times as much.
    ``at_once``: the whole table may leap too, though its mean does not tell how even it is.
    """

    mass: float = 2.0
    step: float
    last: float = 1.5
    ratio: float
    rich: float = 2.0
    leap: float = 6.0
    leap_ratio: float = 3.0
    at_once: bool = False

    def look(self, counts: Floats, signals: Floats, cells: Ints, *, top: bool = False) -> "Look":
        """What a count says about a node, given 1 in noise units."""
        units = counts * signals
        rich = (units >= self.rich * cells) & (self.at_once or not top)
        parts = np.where(rich, cells, np.minimum(units / self.mass, cells))
        wanted = np.log2(np.maximum(parts, 1e-9))
        steps = np.maximum(np.ceil(wanted / self.step - self.last + 1), 1)
        leaps = np.maximum(np.rint(wanted / self.leap), 1)
        rounds = np.where(wanted <= 0.5, 0, np.where(rich, leaps, steps))
        return Look(self, wanted, rounds, rich)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """``wanted`` is log2 of how many parts of a node are worth having, ``rounds`` how many are to
    come until then; ``rich``: all its cells are worth having.
    """  # noqa: D205

    plan: Refinement
    wanted: Floats
    rounds: Floats
    rich: NDArray[np.bool_]

    def parts(self) -> Floats:
        """At most so many should be looked at next. Of leaps the first is the odd one."""
        steps = np.where(self.rounds <= 1, self.wanted, self.plan.step)
        leaps = self.wanted - self.plan.leap * np.maximum(self.rounds - 1, 0)
        return 2 ** (np.where(self.rich, leaps, steps) + 0.5)

    def rungs(self) -> Ints:
        """How many rungs a node climbs down by looking at itself; all if nothing is to come.

        What the rounds still to come spend is a geometric series, of which this is the first.
        """
        ratio = np.where(self.rich, self.plan.leap_ratio, self.plan.ratio)
        series = np.full(self.rounds.size, 1.0)
        for later in range(1, int(self.rounds.max(initial=0)) + 1):
            series += np.where(later <= self.rounds, ratio**later, 0)
        steps = np.rint(np.log1p(-1 / np.maximum(series, 1.001)) / log(_RUNG))
        return np.where(self.rounds > 0, np.maximum(steps, 1), _RUNGS).astype(np.int64)


@final
class MeasuredTree:
    """What is known of the nodes that were measured or lie above such: no exact count.

    Node i is the run ``lows[i] ≤ place < highs[i]``. ``levels[i]`` is the level at which it is cut
    into the nodes ``left[i]`` and ``left[i] + 1``, or -1 where it is not. ``weights`` are 1 / the
    variance of ``values``, 0 where nothing was measured. Nodes behind ``size`` are not in use.
    """

    __slots__ = ("highs", "left", "levels", "lows", "size", "values", "weights")

    def __init__(self, cells: int, total: "Total") -> None:
        most = 2 * cells - 1  # every cut makes two nodes
        self.lows, self.highs, self.left = np.zeros((3, most), np.int32)
        self.levels = np.full(most, -1, np.int8)
        self.values, self.weights = np.zeros((2, most))
        self.size, self.highs[0] = 1, cells
        self.learn(np.zeros(1, np.int64), np.array([total.value]), total.variance)

    def learn(self, nodes: Ints, values: Floats, variance: float) -> None:
        """One more independent measurement of some nodes."""
        weight = 1 / max(variance, _VARIANCE_LEAST)
        before = self.weights[nodes]
        self.weights[nodes] = before + weight
        self.values[nodes] += (values - self.values[nodes]) * weight / (before + weight)

    def grow(self, order: Dyadic, nodes: Ints, levels: Ints) -> tuple[Ints, Ints]:
        """Cut nodes down to a level each: the nodes there, and which of ``nodes`` they are in."""
        parts, within = nodes, np.arange(nodes.size)
        for level in range(int(levels.max(initial=0))):
            cuts, count = order.inside(level, self.lows[parts], self.highs[parts])
            cut = (count > 0) & (levels[within] > level)
            olds = parts[cut]
            lefts = self.size + 2 * np.arange(olds.size)
            self.size += 2 * olds.size
            self.left[olds], self.levels[olds] = lefts, level
            self.lows[lefts], self.highs[lefts + 1] = self.lows[olds], self.highs[olds]
            self.highs[lefts] = self.lows[lefts + 1] = cuts[cut]
            times = np.where(cut, 2, 1)
            parts, within = np.repeat(parts, times), np.repeat(within, times)
            parts[np.repeat(cut, times)] = np.arange(self.size - 2 * olds.size, self.size)
        return parts, within


@final
@dataclass(frozen=True, slots=True)
class Total:
    """How much there is in all, as far as is known."""

    value: float
    variance: float


@final
@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What a tree is grown on.

    ``owner`` is the place of each cell that can be asked about. ``mass`` is how much is thought to
    lie before each place, from 0 to 1; it decides nothing but how a node's count is spread inside.
    """

    order: Dyadic
    owner: NDArray[np.int32]
    mass: Floats

    @property
    def size(self) -> int:
        """How many places there are."""
        return self.order.places.size

    def shares(self, tree: MeasuredTree, nodes: Ints, parts: Ints) -> Floats:
        """The share of each node that its part may hold: the mean of its mass and of its cells."""
        mass, cells = (
            (upto[tree.highs[parts]] - upto[tree.lows[parts]])
            / (upto[tree.highs[nodes]] - upto[tree.lows[nodes]])
            for upto in (self.mass, np.arange(self.size + 1))
        )
        return (mass + cells) / 2

    def groups(self, lows: Ints, highs: Ints, spends: Ints) -> list[tuple[int, Ints, Groups]]:
        """Sums over disjoint runs: a spend, the runs that spend it, and their block."""
        sizes = highs - lows
        runs = np.repeat(np.arange(lows.size, dtype=np.int32), sizes)
        labels = np.full(self.size, -1, np.int32)
        labels[np.arange(runs.size) + np.repeat(lows - np.cumsum(sizes) + sizes, sizes)] = runs
        labels = labels[self.owner]
        found = []
        for spend in np.unique(spends).tolist():
            chosen = np.flatnonzero(spends == spend)
            number = np.full(lows.size + 1, -1, np.int32)  # the last is for label -1
            number[chosen] = np.arange(chosen.size)
            found.append((spend, chosen, Groups(number[labels], chosen.size)))
        return found


def refine(
    ask: Ask, ground: Ground, plan: Refinement, *, quanta: int, total: Total
) -> MeasuredTree:
    """Spend the quanta on every cell. The root is not asked again: its total is known well."""
    law, order, tree = Law.of(ask), ground.order, MeasuredTree(ground.size, total)
    left = np.unique((quanta * _RUNG ** np.arange(_RUNGS)).astype(np.int64))[::-1]  # ends with 0
    nodes, rungs, levels = np.zeros((3, 1), np.int64)
    while nodes.size:
        lows, highs, values = tree.lows[nodes], tree.highs[nodes], np.maximum(tree.values[nodes], 0)
        look = plan.look(values, signal(law, left[rungs]), highs - lows, top=tree.size == 1)
        targets = _targets(tree, order, nodes, levels, look.parts())
        go = targets > levels
        parts, within = tree.grow(order, nodes[go], targets[go])
        guess = values[go][within] * ground.shares(tree, nodes[go][within], parts)
        sizes, before = tree.highs[parts] - tree.lows[parts], rungs[go][within]
        steps = plan.look(guess, signal(law, left[before]), sizes).rungs()
        after = np.minimum(before + steps, left.size - 1)
        spends = np.concatenate([left[rungs[~go]], left[before] - left[after]])
        nodes = np.concatenate([nodes[~go], parts])
        _measure(ask, ground, tree, nodes, spends)
        rungs = np.concatenate([np.full(np.count_nonzero(~go), left.size - 1), after])
        levels = np.concatenate([levels[~go], targets[go][within]])
        more = left[rungs] > 0
        nodes, rungs, levels = nodes[more], rungs[more], levels[more]
    return tree


def signal(law: Law, quanta: Ints) -> Floats:
    """1 in noise units, √2 / the standard deviation, for so many quanta."""
    amounts = quanta * (law.amount / QUANTA)
    return np.sqrt(2 * amounts) if law.gaussian else 2 * np.sinh(np.minimum(amounts / 2, _STEEP))


def _measure(ask: Ask, ground: Ground, tree: MeasuredTree, nodes: Ints, spends: Ints) -> None:
    groups = ground.groups(tree.lows[nodes], tree.highs[nodes], spends)
    blocks, shares = [block for *_, block in groups], [Fraction(s, QUANTA) for s, *_ in groups]
    for (_, chosen, _), noisy in zip(groups, ask.sums(blocks, shares), strict=True):
        tree.learn(nodes[chosen], noisy.values.astype(np.float64), noisy.variance)


def _targets(tree: MeasuredTree, order: Dyadic, nodes: Ints, levels: Ints, most: Floats) -> Ints:
    """The lowest level on which a node has at most so many parts; its own where that is 1: stop."""
    lows, highs = tree.lows[nodes], tree.highs[nodes]
    parts, targets = np.ones(nodes.size, np.int64), levels.copy()
    free = np.flatnonzero(highs - lows > 1)
    for level in range(int(levels.min()), len(order.cuts)):
        if not free.size:
            break
        _, count = order.inside(level, lows[free], highs[free])
        held = parts[free] + count
        fits = held <= most[free]
        free = free[fits]
        parts[free], targets[free] = held[fits], level + 1
    return np.where(parts > 1, targets, levels)
