"""Several quantiles at once, by halving: the middle one first, then each side on its own values.

>>> quartiles = Quantiles.for_epsilon(1, taus=("1/4", "1/2", "3/4"), low=0, high=100)
>>> quartiles.epsilon_levels
(Fraction(1, 2), Fraction(1, 2))
"""

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, log
from typing import ClassVar, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.quantiles import quantile
from noisegate.mechanisms.quantiles.ranks import DENOMINATOR_MAX, RankGoal, private_ranks
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import Event, ExponentialEvent, Group, Parallel, Sequential
from noisegate.transforms.query import Query

TIE_BITS_MAX: Final = 16
_STEPS: Final = 1 << 10  # of the grid on which errors are added up
_ROUNDED: Final = 1 + 1e-9
_DOUBLES: Final = 1e-12  # far above what sums of chances lose

Floats: TypeAlias = NDArray[np.float64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One call: level ``tau`` of the values between the released quantiles left and right of it."""

    left: int
    index: int
    right: int
    tau: Fraction


Level: TypeAlias = tuple[Node, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(base.Repeatable[int]):
    """Quantiles at rising levels; level i of the halving spends ``epsilon_levels[i]`` per value.

    Each value gets ``tie_bits`` random low digits first, so that a heavy value is shared between
    the two sides of a cut in the right proportion. That is a random step on each value alone.
    """

    name: ClassVar[str] = "quantiles/1"
    takes: ClassVar[base.Takes] = base.Takes.ROWS
    taus: tuple[Fraction, ...]
    epsilon_levels: tuple[Fraction, ...]
    low: int
    high: int
    step: int = 1
    tie_bits: int = 10

    def __post_init__(self) -> None:
        base.store(self, "taus", tuple(quantile.checked_tau(tau) for tau in self.taus))
        levels = tuple(positive(value, name="epsilon of a level") for value in self.epsilon_levels)
        base.store(self, "epsilon_levels", levels)
        if not self.taus or any(a >= b for a, b in zip(self.taus, self.taus[1:], strict=False)):
            raise SpecError(
                "The levels are not in ascending order.",
                fix="Give distinct levels in ascending order.",
            )
        if self.taus[0] == 0 or self.taus[-1] == 1:
            raise SpecError(
                "A level is 0 or 1.", fix="Use levels between 0 and 1, or one Quantile."
            )
        if len(levels) != depth(len(self.taus)):
            raise SpecError(
                f"There are {len(levels)} epsilons.", fix=f"Give {depth(len(self.taus))} epsilons."
            )
        if any(
            node.tau.denominator > DENOMINATOR_MAX for level in plan(self.taus) for node in level
        ):
            raise SpecError("The levels are too uneven.", fix="Use levels such as k/1000.")
        quantile.require_grid(self, width=self.high - self.low, step=self.step)
        base.require_whole(self, "tie_bits", least=0, most=TIE_BITS_MAX)
        if (self.high - self.low) // self.step >= quantile.GRID_MAX >> self.tie_bits:
            raise SpecError("The grid is too fine.", fix="Use a larger step or fewer tie_bits.")

    @classmethod
    def for_epsilon(  # noqa: PLR0913 - the grid is part of the question
        cls,
        epsilon: Number,
        *,
        taus: Sequence[Number],
        low: int,
        high: int,
        step: int = 1,
        values_per_unit: int = 1,
        tie_bits: int = 10,
    ) -> "Quantiles":
        """Equal shares per level, so that the event costs exactly ``epsilon``."""
        levels = depth(len(taus))
        units = base.whole_count(values_per_unit, name="values_per_unit")
        each = positive(epsilon, name="epsilon") / (max(levels, 1) * units)
        exact = tuple(quantile.checked_tau(tau) for tau in taus)
        return cls(
            taus=exact, epsilon_levels=(each,) * levels, low=low, high=high, step=step,
            tie_bits=tie_bits,
        )  # fmt: skip

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Values of each cell."""
        base.require_values(query)

    def event(self, values_per_unit: int, /) -> Event:
        """What one use is: one parallel step per level of the halving, in sequence.

        Claim: Σ epsilon_levels for units of one value, and the group of that for more values.
        Adjacency: add/remove. Changing a value may touch two calls of a level.
        Why: [KSS22]. The cuts of a level are values released by the levels before, and which
            quantile is sought between two cuts is public; so one more value enters one call per
            level and leaves the values, and the number of values, of all others as they are.
        Rounding: none.
        """
        units = base.whole_count(values_per_unit, name="values_per_unit")
        levels = []
        for epsilon, nodes in zip(self.epsilon_levels, plan(self.taus), strict=True):
            calls: tuple[Event, ...] = (ExponentialEvent(epsilon=epsilon),) * len(nodes)
            levels.append(Parallel(events=calls))
        event = Sequential(events=tuple(levels))
        return event if units == 1 else Group(event=event, size=units)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """One grid point per level, never falling; sorting the values is most of the work."""
        if self.tie_bits:  # each use has digits of its own
            return self.sample_cells([exact] * count, bits=bits)
        return self._grid(self._released(self._keys(exact, bits), count, bits))

    def sample_cells(self, cells: Sequence[Int64Array], *, bits: Bits = SYSTEM) -> Int64Array:
        """The quantiles of the values of each cell, as an array of shape (cells, levels)."""
        found = [np.empty((0, len(self.taus)), np.int64)]
        found += [self._released(self._keys(exact, bits), 1, bits) for exact in cells]
        return self._grid(np.concatenate(found))

    def _grid(self, found: Int64Array) -> Int64Array:
        return self.low + self.step * (found >> self.tie_bits)

    def rank_error(self, confidence: Number, *, even: bool = False) -> int:
        """How many ranks the answers may be off, all of them at once, at this confidence.

        Claim: whatever the values are; or, if ``even``, where gaps between neighbouring values are
            alike around each answer. Values that share all digits with a cut may add their number
            per level.
        Why: the goal of a call between cuts of ranks a and b is (1 - τ) a + τ b, so an answer is
            off by its own error, 1 - τ of that of the left cut and τ of that of the right one; the
            ends of the grid have none. Whatever came before, the error of a call is above r with a
            chance of at most points · e^(-factor r) [MT07, Thm 7], as that of (ln points + E) /
            factor with E exponential, so that a sum of errors is above r no more often than that
            of independent ones of this law. Where gaps are alike, errors of k ranks and up to one
            more have odds of e^(-factor k) on either side: that is E / factor and up to one rank,
            without points. The chances of all answers are added up.
        Rounding: up; sums of E on a grid, each rounded up to it.
        """
        return self._least(base.failure_of(confidence), self._scales(), even=even)

    def rank_errors(self, confidence: Number, *, even: bool = False) -> tuple[int, ...]:
        """Likewise for each answer, each at this confidence on its own."""
        failure = base.failure_of(confidence)
        return tuple(self._least(failure, row[None], even=even) for row in self._scales())

    def _scales(self) -> Floats:
        """By how many ranks E = 1 in each call (columns) moves each answer (rows) at most."""
        last = len(self.taus)
        found = np.zeros((last + 1, last))  # the last row, which is that of -1 too: both ends
        for epsilon, nodes in zip(self.epsilon_levels, plan(self.taus), strict=True):
            for node in nodes:
                tau = float(node.tau)
                found[node.index] = (1 - tau) * found[node.left] + tau * found[node.right]
                found[node.index, node.index] = quantile.error_range(node.tau) / epsilon
        return found[:-1]

    def _least(self, failure: Fraction, scales: Floats, *, even: bool) -> int:
        """The least number of ranks that we can prove, or that where each call fails alone."""
        start = 0.0 if even else log(self.points << self.tie_bits)
        calls = int(np.count_nonzero(scales.any(axis=0)))
        reach = log(calls * failure.denominator) - log(failure.numerator)
        totals = scales.sum(axis=1)
        tails = [_tail(row, total * reach) for row, total in zip(scales, totals, strict=True)]

        def holds(ranks: int) -> bool:
            beyond = (ranks / _ROUNDED / totals - start) / reach * _STEPS
            places = np.clip(beyond, 0, _STEPS).astype(np.int64).tolist()
            chances = (float(tail[at]) for tail, at in zip(tails, places, strict=True))
            return sum(chances) <= failure

        most = ceil(totals.max() * (start + reach) * _ROUNDED)
        more = len(self.epsilon_levels) if even else 0
        return bisect_left(range(most), x=True, key=holds) + more

    @property
    def points(self) -> int:
        """How many grid points there are."""
        return (self.high - self.low) // self.step + 1

    def _keys(self, exact: Int64Array, bits: Bits) -> Int64Array:
        keys = quantile.grid_points(exact, low=self.low, high=self.high, step=self.step)
        if self.tie_bits:
            keys <<= self.tie_bits
            keys |= bits.words(keys.size, self.tie_bits)
        keys.sort()
        return keys

    def _released(self, keys: Int64Array, count: int, bits: Bits) -> Int64Array:
        """So many uses on the same keys, a use a row; those with equal cuts are drawn at once."""
        last = len(self.taus)
        released = np.zeros((last + 2, count), np.int64)  # the last, which is -1: the low end
        released[last] = (self.points << self.tie_bits) - 1  # the high end
        for node, goal in _calls(self.taus, self.epsilon_levels):
            lows, highs = released[node.left], released[node.right]
            for low, high in set(zip(lows.tolist(), highs.tolist(), strict=True)):
                uses = np.flatnonzero((lows == low) & (highs == high))
                block = _between(keys, (low, high), open_end=node.right == last)
                block = block - low if low else block
                found = private_ranks(block, goal, uses.size, points=high - low + 1, bits=bits)
                released[node.index, uses] = low + found
        return released[:last].T


@lru_cache(maxsize=64)
def _calls(
    taus: tuple[Fraction, ...], epsilons: tuple[Fraction, ...]
) -> tuple[tuple[Node, RankGoal], ...]:
    """All calls in order, and what each looks for."""
    return tuple(
        (node, RankGoal(node.tau, epsilon / quantile.error_range(node.tau)))
        for epsilon, nodes in zip(epsilons, plan(taus), strict=True)
        for node in nodes
    )


def depth(count: int) -> int:
    """Levels of halving for ``count`` quantiles: ⌈log₂(count + 1)⌉."""
    return count.bit_length()


def plan(taus: Sequence[Fraction]) -> tuple[Level, ...]:
    """The calls of each level; τ of a call is relative to the two released levels around it.

    Of two middle ones that first which is nearer to the middle: it moves ranks less.
    """
    levels, spans = [], [(-1, len(taus))]
    edge = {-1: Fraction(0), len(taus): Fraction(1), **dict(enumerate(taus))}
    while spans:
        nodes, deeper = [], []
        for left, right in spans:
            start, end = edge[left], edge[right]
            middles = ((left + right) // 2, (left + right + 1) // 2)
            middle = min(middles, key=lambda at: abs(2 * edge[at] - start - end))
            tau = (edge[middle] - start) / (end - start)
            nodes.append(Node(left=left, index=middle, right=right, tau=tau))
            deeper += [span for span in ((left, middle), (middle, right)) if span[1] - span[0] > 1]
        levels.append(tuple(nodes))
        spans = deeper
    return tuple(levels)


def _tail(scales: Floats, reach: float) -> Floats:
    """Pr[Σ scale · E > k · reach / `_STEPS`] at most, for k = 0, 1, …; each E exponential."""
    chances, step = np.zeros(_STEPS + 1), reach / _STEPS
    chances[0] = 1.0
    for scale in scales[scales > 0]:
        each = -np.expm1(-step / scale) * np.exp(-step / scale * np.arange(_STEPS))
        chances = np.append(0.0, np.convolve(chances, each)[:_STEPS])
    return 1 - np.cumsum(chances) + _DOUBLES


def _between(keys: Int64Array, cuts: tuple[int, int], *, open_end: bool) -> Int64Array:
    """The keys in [low cut, high cut); at the open end of the grid the last key belongs to it."""
    low = keys.searchsorted(cuts[0], side="left")
    high = keys.size if open_end else keys.searchsorted(cuts[1], side="left")
    return keys[low:high]
