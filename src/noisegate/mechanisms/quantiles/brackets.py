"""Private quantiles with a ± in values: a grid point and how far around it the exact one lies.

One choice names a point c and a radius R from a public list, for the price of the point alone. Let
n be the number of values and a(o) the rank error of point o, see `ranks`. Rung i of the ladder is
[c - R', c + R'], R' the radius i places further in the list, and stands for a failure β_i. It is
*safe* by so many ranks: the least of τ n - #{x < c - R'} and #{x ≤ c + R'} - τ n, minus 2, minus
2 σ n, minus ln(K / β_i) / factor; an end that reaches the bounds is safe by itself, and so is the
last place of the list, which stands for all of the grid. With s_j the least over the rungs of
radius j, the error of (c, j) is

    e(c, j) = max(a(c), -s_j, s_(j-1)),        chosen with odds e^(-factor · e).

Coverage. Claim: a rung fails to hold q with a chance of at most β_i, whatever the values are, for
    every q such that at most τ n + σ n + 1 values are ≤ any point below q, and at least
    τ n - σ n - 1 are < any point above q. QUANTILE_CONT and QUANTILE_DISC of SQL are such, with
    σ = 0: between the values of rank ⌊τ (n - 1)⌋ and ⌈τ (n - 1)⌉, and the value of rank ⌈τ n⌉.
Why: every c has a radius of error a(c): the first that is safe. So all odds add up to at least
    Z = Σ a point's e^(-factor · a). Let the upper end u = c + R' of rung i lie below q, so that
    o = #{x ≤ u} - τ n ≤ σ n + 1. Then -s_j ≥ ln(K / β_i) / factor + 2 + 2 σ n - o, and a(u) is at
    most |o|, so e ≥ ln(K / β_i) / factor + a(u). For one radius, c ↦ u is one to one: such pairs
    have odds of at most (β_i / K) Σ e^(-factor · a(u)) over u below q. Lower ends above q have as
    much over other points, those above q. Both together are at most (β_i / K) Z, for each of the
    K radii. No term grows with the number of grid points: positions are not added up, only radii.
Where gaps between neighbouring values are alike around q, this holds for a q that is twice as far
    off, by 2 σ n ranks: what models of values that were left out may count on. Why: let there be g
    points a rank, so that Z ≥ 2 g / factor. There are g points u for each o ≤ 2 σ n + 1, and e ≥
    ln(K / β_i) / factor + 2 + 2 σ n - o: for one radius their odds add up to (β_i / K) g / factor
    at most. So do those of the other side, and both to (β_i / K) Z.
Rounding: ln(K / β) / factor up to a whole rank. Errors are clamped at 2**30 ranks: the claim is
    about fewer than 2**29 values. A rung that takes as many ranks is never safe but by the bounds:
    its interval is all of the grid.

>>> import numpy as np
>>> median = Brackets.for_epsilon(1, taus=("1/2",), low=0, high=1000)
>>> found = median.sample(np.arange(1000))
>>> low, high = median.ends(found, "0.95")
>>> bool(low[0] <= median.centres(found)[0] <= high[0])
True
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import ceil, isqrt, lcm
from typing import ClassVar, Final, Self, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.quantiles import quantile
from noisegate.mechanisms.quantiles.ranks import (
    DENOMINATOR_MAX,
    ERROR_MAX,
    RankGoal,
    private_ranks,
    rank_error_up,
)
from noisegate.mechanisms.selection.scores import FACTOR_MAX
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.coins import bernoulli_exp
from noisegate.noise.uniform import uniform_below
from noisegate.privacy.event import Event, ExponentialEvent, Sequential
from noisegate.transforms.query import Query

LADDER: Final = (Fraction(1, 20), Fraction(1, 100), Fraction(1, 1000))  # failures of the rungs
FIRST, MORE, ROOM = Fraction(3), Fraction(3, 4), Fraction(1)  # of even rungs, in 1 / factor
_LONGER: Final = (1024, 1218, 1449, 1723, 2048, 2436, 2897, 3445, 4096)  # 2^(10 + i/4), rounded up
RUNG_MAX: Final = ERROR_MAX // 2  # ranks of a rung
_AT_ONCE: Final = 24  # pairs that are proposed for a draw
_ROUGH: Final = 2.0**-38  # far above what products of doubles lose below 700


@dataclass(frozen=True, slots=True, kw_only=True)
class Brackets(base.Repeatable[int]):
    """A point and a radius for each level, one choice after the other.

    ``factors`` are those of the levels. ``slack`` is σ: a share of the values by which ranks may be
    off for other reasons than noise, such as values that were left out.
    """

    name: ClassVar[str] = "brackets/1"
    takes: ClassVar[base.Takes] = base.Takes.ROWS
    step: ClassVar[int] = 1
    spare: ClassVar[int] = 2  # ranks: quantiles of SQL are within one of τ n
    further: ClassVar[tuple[int, ...]] = (0, 1, 2)  # places to the end for each failure of `LADDER`
    taus: tuple[Fraction, ...]
    factors: tuple[Fraction, ...]
    low: int
    high: int
    slack: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        base.store(self, "taus", tuple(quantile.checked_tau(tau) for tau in self.taus))
        base.store(self, "factors", tuple(positive(each, name="factor") for each in self.factors))
        base.store(self, "slack", fraction(self.slack, name="slack"))
        quantile.require_grid(self, width=self.high - self.low, step=self.step)
        if not self.taus or len(self.factors) != len(self.taus):
            raise SpecError(
                "Levels and factors do not match.", fix="Give one factor for each level."
            )
        if {0, 1} & set(self.taus) or max(self.factors) > FACTOR_MAX:
            raise SpecError(
                "A level is 0 or 1, or a factor too large.",
                fix=f"Use levels between 0 and 1, and factors of at most {FACTOR_MAX}.",
            )
        if not 0 <= self.slack <= 1 or max(map(self._denominator, self.taus)) > DENOMINATOR_MAX:
            raise SpecError("The slack is not a share.", fix="Use one such as 1/100.")

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        taus: Sequence[Number],
        low: int,
        high: int,
        values_per_unit: int = 1,
        slack: Number = 0,
    ) -> Self:
        """Equal shares of ``epsilon`` for the levels."""
        levels = tuple(quantile.checked_tau(tau) for tau in taus)
        extra = fraction(slack, name="slack")
        units = base.whole_count(values_per_unit, name="values_per_unit")
        each = positive(epsilon, name="epsilon") / (max(len(levels), 1) * units)
        factors = tuple(each / moved(level, extra) for level in levels)
        return cls(taus=levels, factors=factors, low=low, high=high, slack=extra)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Values of each cell."""
        base.require_values(query)

    def event(self, values_per_unit: int, /) -> Event:
        """What one use is, where a unit holds at most ``values_per_unit`` values.

        Claim: for each level, log-ratios have range ε = factor · values · `moved` (τ, σ).
        Adjacency: add/remove.
        Why: e is a least and largest of a(c), of differences #{x ≤ u} - (τ + 2σ) n and
            (τ - 2σ) n - #{x < l} at points that (c, j) alone decides, and of constants. One more
            value moves n by 1 and such a number by 0 or 1, so each of these by at most
            max(τ, 1 - τ) + 2σ up or down, and so e [MT07, Thm 6]. Rounding: none.
        """
        units = base.whole_count(values_per_unit, name="values_per_unit")
        pairs = zip(self.taus, self.factors, strict=True)
        events = tuple(
            ExponentialEvent(epsilon=factor * units * moved(tau, self.slack))
            for tau, factor in pairs
        )
        return events[0] if len(events) == 1 else Sequential(events=events)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """For each level a grid point and the place of a radius; sorting is most of the work."""
        data = quantile.sorted_points(exact, low=self.low, high=self.high, step=1)
        found = np.empty((count, len(self.taus), 2), np.int64)
        for place in range(len(self.taus)):
            found[:, place] = self._level(data, place, count, bits)
        found[:, :, 0] += self.low
        return found.reshape(count, -1)

    def _level(self, data: Int64Array, place: int, count: int, bits: Bits) -> Int64Array:
        """Pairs of one level, drawn by rejection.

        Claim: exact. Why: c has odds e^(-factor · a(c)) and j is uniform, and a pair is kept with
            probability e^(-factor · (e - a)) ≤ 1; the first that is kept counts. Each c has a
            radius with e = a, so that one of K + 1 pairs is kept on average, or more.
        """
        tau, factor = self.taus[place], self.factors[place]
        goal, unit = RankGoal(tau, factor), factor / self._denominator(tau)
        found = np.empty((count, 2), np.int64)
        wanted = np.arange(count)
        while wanted.size:
            lanes = np.repeat(wanted, max(1, _AT_ONCE // wanted.size))
            points = private_ranks(data, goal, lanes.size, points=self.points, bits=bits)
            places = uniform_below(self.radii.size + 1, lanes.size, bits=bits)
            excess = self.excess(data, place, points, places)
            rough = (float(unit) * excess).astype(np.float64)
            kept = bernoulli_exp(rough, _lane(unit, excess), error=_ROUGH, bits=bits)
            done, first = np.unique(lanes[kept], return_index=True)
            found[done] = np.stack([points, places], axis=1)[kept][first]
            wanted = np.setdiff1d(wanted, done, assume_unique=True)
        return found

    def excess(
        self, data: Int64Array, place: int, points: Int64Array, places: Int64Array
    ) -> Int64Array:
        """E - a of pairs, times the denominator of τ and σ; ``data`` are sorted grid positions."""
        tau = self.taus[place]
        scale = self._denominator(tau)
        goal, most = int(tau * data.size * scale), ERROR_MAX * scale
        below, upto = (data.searchsorted(points, side) for side in ("left", "right"))
        error = np.maximum(np.maximum(goal - scale * upto, scale * below - goal), 0)
        short = -self._safe(data, place, points, places)
        over = self._safe(data, place, points, places - 1) - scale * self.rooms[place]
        error = np.minimum(error, most)
        total = np.minimum(np.maximum(np.maximum(short, over), error), most)
        return total - error

    def _safe(
        self, data: Int64Array, place: int, points: Int64Array, places: Int64Array
    ) -> Int64Array:
        """s_j in units of the denominator: by how many ranks the least safe rung is safe."""
        tau, scale, last = self.taus[place], self._denominator(self.taus[place]), self.points - 1
        goal, spare = int(tau * data.size * scale), int(2 * self.slack * data.size * scale)
        most = ERROR_MAX * scale
        least = np.full(points.shape, most, np.int64)
        for rung, ranks in enumerate(self.rungs[place]):
            radius = self._end(places, rung)
            low, high = points - radius, points + radius
            under = goal - scale * data.searchsorted(low, "left")
            above = scale * data.searchsorted(high, "right") - goal
            left, right = low <= 0, high >= last
            safe = np.minimum(np.where(left, most, under), np.where(right, most, above))
            safe = np.where(left & right, most, safe - spare - scale * (ranks + self.spare))
            least = np.minimum(least, safe)
        return np.where(places < 0, -most, np.where(places >= self.radii.size, most, least))

    def centres(self, released: Int64Array) -> Int64Array:
        """The points of what `sample` gave, a column for each level."""
        return released.reshape(*released.shape[:-1], -1, 2)[..., 0]

    def ends(self, released: Int64Array, confidence: Number) -> tuple[Int64Array, Int64Array]:
        """Between which points the exact quantiles lie, each at this confidence on its own.

        Beyond the last rung, and where a rung takes more ranks than there may be: all of the grid.
        """
        failure, rungs = base.failure_of(confidence), zip(LADDER, self.further, strict=True)
        rung = next((place for each, place in rungs if each <= failure), None)
        found = released.reshape(*released.shape[:-1], -1, 2)
        radius = np.full(found.shape[:-1], self.points - 1, np.int64)
        for level, ranks in enumerate(self.rungs):
            if rung is not None and ranks[rung] < RUNG_MAX:
                radius[..., level] = self._end(found[..., level, 1], rung)
        low, high = (
            np.clip(found[..., 0] + side * radius, self.low, self.high) for side in (-1, 1)
        )
        return low, high

    def expected(self, rows: int) -> Int64Array:
        """What a use would give if so many values were spread evenly over the grid."""
        found, every = [], np.arange(self.radii.size)
        for tau, ranks in zip(self.taus, self.rungs, strict=True):
            spare = 2 * self.slack * rows + self.spare
            most, reached = min(tau, 1 - tau) * rows, np.ones(every.size, bool)
            for rung, each in enumerate(ranks):
                needed = each + spare  # ranks, of radius * rows / points around the middle
                least = min(-(-needed * self.points // max(rows, 1)), self.points)
                reached &= (needed <= most) & (self._end(every, rung) >= least)
            place = int(reached.argmax()) if reached.any() else self.radii.size
            found += [self.low + int(tau * (self.points - 1)), place]
        return np.array(found, np.int64)

    def rank_errors(self, confidence: Number, *, even: bool = False) -> tuple[int, ...]:
        """How many ranks each point may be off, each at this confidence on its own.

        Claim: whatever the values are; or, if ``even``, where gaps between neighbouring values are
            alike around each answer.
        Why: some pair has an error of 0, and there are so many pairs [MT07, Thm 7]. Where gaps are
            alike, errors of k ranks and up to one more have odds of e^(-factor k) to 1 for each
            radius, and one radius at least stands beside every point. Rounding: up.
        """
        return self._rank_errors(base.failure_of(confidence), even=even)

    def rank_error(self, confidence: Number, *, even: bool = False) -> int:
        """How many ranks all points may be off, all of them at once."""
        return max(self._rank_errors(base.failure_of(confidence) / len(self.taus), even=even))

    def _rank_errors(self, failure: Fraction, *, even: bool) -> tuple[int, ...]:
        pairs = (self.radii.size + 1) * (1 if even else self.points)
        errors = (rank_error_up(f, points=pairs, failure=failure) for f in self.factors)
        return tuple(error + even for error in errors)

    @property
    def rungs(self) -> tuple[tuple[int, ...], ...]:
        """For each level ln(K / β) / factor of the rungs, in whole ranks."""
        return tuple(_rungs(factor, self.radii.size) for factor in self.factors)

    @property
    def rooms(self) -> tuple[int, ...]:
        """For each level, by how many ranks a radius may be safer than it needs to be."""
        return (0,) * len(self.factors)

    @property
    def points(self) -> int:
        """How many grid points there are."""
        return self.high - self.low + 1

    @property
    def radii(self) -> Int64Array:
        """The radii to choose from, in grid points; one more place stands for all of the grid."""
        return radii_below(self.points - 1)

    def _radius(self, places: Int64Array) -> Int64Array:
        listed = np.append(self.radii, self.points - 1)
        return listed[np.clip(places, 0, self.radii.size)]

    def _end(self, places: Int64Array, rung: int) -> Int64Array:
        """The radius of a rung: so many places further in the list."""
        return self._radius(places + rung)

    def _denominator(self, tau: Fraction) -> int:
        return lcm(tau.denominator, self.slack.denominator)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EvenBrackets(Brackets):
    """The same with an interval that is half as wide, where gaps are alike around the quantile.

    Radii grow by 2^(1/4). Rung i has the radius R' = 2^(i/4) R, or i / 4 more if that is more, both
    rounded up; its ranks are (3 + 3/4 i) / factor, and of the last, which is the eighth after the
    first, ln(1000 K) / factor + 1. A radius may be safe by 1 / factor too much:

        e(c, j) = max(a(c), -s_j, s_(j-1) - 1 / factor).

    Coverage. Claim: the last rung, about four times as wide as the first, fails to hold q with a
        chance of at most 0.001, whatever the values are. The first one fails with at most 0.05, and
        the third with 0.01, where gaps between neighbouring values are alike around q as far as the
        last one reaches, and rank errors are of many values.
    Why: the last rung is one of `Brackets`, whose proof looks at one rung alone: each point has a
        radius of error a(c), as R' grows with R; -s_j is at least what the rung says; c ↦ c + R' is
        one to one for each radius. One rank more is in place of the spare that is less. Where
        gaps are alike, let radius j hold r_j ranks a side, and k be the rank error of c: then s_j
        is the least over rungs of 2^(i/4) r_j - rung i, minus k, and the law of (k, j) is known.
        `tests/exact/test_even_brackets.py` adds it up: 0.021 and 0.007. A radius of i places too
        few is i rungs short, so that small radii add up to little.
    Rounding: as there.
    """

    name: ClassVar[str] = "brackets/2"
    spare: ClassVar[int] = 1
    further: ClassVar[tuple[int, ...]] = (0, 2, 8)

    @property
    def rungs(self) -> tuple[tuple[int, ...], ...]:
        """For each level the ranks of the rungs, whole ones."""
        return tuple(_even_rungs(factor, self.radii.size) for factor in self.factors)

    @property
    def rooms(self) -> tuple[int, ...]:
        """1 / factor."""
        return tuple(min(ceil(ROOM / factor), RUNG_MAX) for factor in self.factors)

    @property
    def radii(self) -> Int64Array:
        """The radii to choose from, in grid points; one more place stands for all of the grid."""
        return fine_radii_below(self.points - 1)

    def _end(self, places: Int64Array, rung: int) -> Int64Array:
        """See above; in two parts, since a radius of 2**58 times 4096 is beyond 64 bits."""
        radius, longer = self._radius(places), _LONGER[rung]
        scaled = (radius >> 10) * longer - (-(radius & 1023) * longer >> 10)
        return np.maximum(scaled, radius - (-rung // 4))


def _lane(unit: Fraction, excess: Int64Array) -> Callable[[int], Fraction]:
    return lambda lane: unit * int(excess[lane])


def moved(tau: Fraction, slack: Fraction) -> Fraction:
    """How far one value moves two errors against each other, in ranks."""
    return quantile.error_range(tau) + 4 * slack


@lru_cache(maxsize=64)
def _rungs(factor: Fraction, radii: int) -> tuple[int, ...]:
    errors = (rank_error_up(factor, points=radii, failure=failure) for failure in LADDER)
    return tuple(min(error, RUNG_MAX) for error in errors)


@lru_cache(maxsize=64)
def _even_rungs(factor: Fraction, radii: int) -> tuple[int, ...]:
    near = [ceil((FIRST + place * MORE) / factor) for place in range(8)]
    last = rank_error_up(factor, points=radii, failure=LADDER[-1]) + 1
    return tuple(min(error, RUNG_MAX) for error in (*near, last))


@lru_cache(maxsize=64)
def fine_radii_below(width: int) -> Int64Array:
    """0, 1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16, … below a width: ⌊2^(k/4)⌋.

    >>> fine_radii_below(13).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8, 9, 11]
    """
    roots = {isqrt(isqrt(1 << power)) for power in range(4 * width.bit_length())}
    found = np.array(sorted(each for each in {0} | roots if each < width), np.int64)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=64)
def radii_below(width: int) -> Int64Array:
    """0, 1, 2, 3, 4, 6, 8, 12, … below a width: steps of about √2.

    >>> radii_below(13).tolist()
    [0, 1, 2, 3, 4, 6, 8, 12]
    """
    doubled = accumulate(range(width.bit_length()), lambda held, _: 2 * held, initial=1)
    both = sorted({0, *(each for one in doubled for each in (one, 3 * one // 2))})
    found = np.array([radius for radius in both if radius < width], np.int64)
    found.flags.writeable = False
    return found
