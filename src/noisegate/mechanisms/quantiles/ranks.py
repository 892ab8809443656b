"""A private rank: a grid point chosen by how far its rank is from a goal, in runs of equal points.

Points are {0, …, points - 1}; the data are sorted points. Point o scores minus its rank error
max(0, goal - #{x ≤ o}, #{x < o} - goal), goal = τ n, which is 0 exactly on the true quantiles even
where many values tie. Points between two data values score alike and form one run, so the race is
over runs and their lengths. Errors are multiplied by the denominator of τ: scores are whole.

Only runs near the goal matter: all points beyond a reach of D ranks weigh at most
points · e^(-factor D) together, and some point has weight 1. A word decides whether the winner is
one of them; it is almost always enough to know that bound. If not, the far runs are listed and
weighed exactly. So the law is that of the full race, and the work is that of the window.
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil, log
from typing import Final, final

import numpy as np

from noisegate.exact import Real, real, upper
from noisegate.frozen import dataclass
from noisegate.noise.bits import Bits
from noisegate.noise.choice import Contest, choose_times
from noisegate.noise.chunks import Int64Array
from noisegate.noise.coins import falls_below
from noisegate.noise.law import Certified
from noisegate.noise.uniform import uniform_below_each

DENOMINATOR_MAX: Final = 10**9
ERROR_MAX: Final = 1 << 30  # rank errors are clamped here, so that scores fit in 61 bits
_FAR: Final = 36.0  # far runs win with probability below e^-36 < 2**-51


@final
@dataclass(frozen=True, slots=True)
class RankGoal:
    """Which quantile to look for, and how much a rank error weighs: e^(-factor · error)."""

    tau: Fraction
    factor: Fraction

    def reach(self, points: int) -> int:
        """Ranks beyond which runs are far. A rough logarithm suffices, as any reach is exact."""
        return ceil(Fraction(_FAR + log(points)) / self.factor) + 1


@final
@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of equally good points: first point, length (may be 0), score times denominator."""

    first: Int64Array
    length: Int64Array
    score: Int64Array

    def weight(self, factor: Fraction) -> Real:
        """Σ length · e^(factor · score) as a ball. One term per distinct score."""
        scores, inverse = np.unique(self.score, return_inverse=True)
        lengths: list[int] = [0] * scores.size
        for at, length in zip(inverse.tolist(), self.length.tolist(), strict=True):
            lengths[at] += length
        pairs = zip(lengths, scores.tolist(), strict=True)
        return sum((length * real(factor * score).exp() for length, score in pairs), real(0))


def rank_error_up(factor: Fraction, *, points: int, failure: Fraction) -> int:
    """A whole number of ranks that the error exceeds with probability at most ``failure``.

    Claim: Pr[error > r] ≤ points · e^(-factor r), as some point has error 0. Why: [MT07, Thm 7],
        [Smi11]. Rounding: up.
    """
    bound = upper(lambda: real(points / failure).log() / real(factor))
    return max(0, ceil(bound))


def private_ranks(
    data: Int64Array,
    goal: RankGoal,
    times: int,
    *,
    points: int,
    bits: Bits,
    reach: int | None = None,
) -> Int64Array:
    """So many points, each with probability proportional to e^(-factor · rank error).

    ``data`` is sorted. Claim: exact for every ``reach`` ≥ 1, and all are independent. Why: a winner
        is first placed near or far with its exact probability, then drawn among those; that is the
        law of the whole race.
    """
    ranks = goal.reach(points) if reach is None else reach
    if ranks >= ERROR_MAX:
        ranks = max(data.size, 1)
    near, is_all = runs_near(data, goal.tau, points=points, reach=ranks)
    if is_all:
        return _points(near, goal, times, bits)
    words, far = bits.words(times, 64).tolist(), np.zeros(times, np.bool_)
    most = _far_most(points, goal.factor * ranks)
    if doubtful := [place for place, word in enumerate(words) if word < most]:
        share = _far_share(data, goal, near, points=points, reach=ranks)
        far[doubtful] = [falls_below(share, words[place], 64, bits) for place in doubtful]
    found = np.empty(times, np.int64)
    found[~far] = _points(near, goal, int(np.count_nonzero(~far)), bits)
    if far.any():
        beyond = _far_runs(data, goal.tau, near, points=points)
        found[far] = _points(beyond, goal, int(np.count_nonzero(far)), bits)
    return found


def _points(runs: Runs, goal: RankGoal, times: int, bits: Bits) -> Int64Array:
    """Points of these runs alone: a run by its weight, and any of its points."""
    contest = Contest(runs.score, goal.factor / goal.tau.denominator, runs.length)
    winners = choose_times(contest, times, bits=bits)[:, 0]
    return runs.first[winners] + uniform_below_each(runs.length[winners], bits=bits)


def runs_near(data: Int64Array, tau: Fraction, *, points: int, reach: int) -> tuple[Runs, bool]:
    """All runs whose points may have a rank error of at most ``reach``, and whether these are all.

    Points below the value at rank ⌊goal⌋ - reach have #{x ≤ o} ≤ goal - reach, so their error is at
    least ``reach``; likewise above. Values tied with the ends of the window count in full.
    """
    count = data.size
    whole, rest = divmod(tau.numerator * count, tau.denominator)
    low, high = max(0, whole - reach), min(count, whole + (rest > 0) + reach)
    if low > 0:
        low = int(data.searchsorted(data[low], side="left"))
    if high < count:
        high = int(data.searchsorted(data[high - 1], side="right"))
    window = data[low:high]
    is_edge = np.ones(window.size + 1, np.bool_)  # where a new value starts, and the end
    np.not_equal(window[1:], window[:-1], out=is_edge[1:-1])
    edges = np.flatnonzero(is_edge)
    runs = _runs(window[edges[:-1]], low + edges, tau, points=points, count=count)
    kept = slice(0 if low == 0 else 1, None if high == count else -1)  # gaps that are known whole
    return (
        Runs(runs.first[kept], runs.length[kept], runs.score[kept]),
        low == 0 and high == count,
    )


def _runs(values: Int64Array, ranks: Int64Array, tau: Fraction, *, points: int, count: int) -> Runs:
    """Gaps and distinct values in turn: before the first value, at it, after it, and so on.

    ``ranks[i]`` is #{x < values[i]}; the last is #{x ≤ last value}. A gap has no value of its own.
    """
    first = np.zeros(2 * values.size + 1, np.int64)
    first[1::2] = values
    first[2::2] = values + 1
    length = np.ones_like(first)
    length[:-1:2] = values - first[:-1:2]
    length[-1] = points - first[-1]
    twice = np.repeat(ranks, 2)
    return Runs(first, length, _scores(twice[:-1], twice[1:], tau, count))


def _scores(below: Int64Array, upto: Int64Array, tau: Fraction, count: int) -> Int64Array:
    """-max(0, goal - #{x ≤ o}, #{x < o} - goal), times the denominator of τ; clamped."""
    whole, rest = divmod(tau.numerator * count, tau.denominator)
    short, over = whole - upto, below - whole  # below -1 they lose to 0 whatever the rest is
    for error, most in ((short, ERROR_MAX), (over, ERROR_MAX + 1)):
        np.minimum(np.maximum(error, -1, out=error), most, out=error)
    worst = np.maximum(tau.denominator * short + rest, tau.denominator * over - rest)
    return -np.minimum(np.maximum(worst, 0), ERROR_MAX * tau.denominator)


def _far_share(
    data: Int64Array, goal: RankGoal, near: Runs, *, points: int, reach: int
) -> Certified:
    """How likely the winner is far."""
    unit = goal.factor / goal.tau.denominator
    far = _far_runs(data, goal.tau, near, points=points)

    def share() -> Real:
        weight = far.weight(unit)
        return weight / (weight + near.weight(unit))

    return Certified(("far", goal, reach), share)


@lru_cache(maxsize=256)
def _far_most(points: int, exponent: Fraction) -> int:
    """At least 2⁶⁴ times the share of the far points: ``points`` · e^-``exponent``, rounded up."""
    return ceil(upper(lambda: points * (-real(exponent)).exp(), digits_bits=64) * (1 << 64))


def _far_runs(data: Int64Array, tau: Fraction, near: Runs, *, points: int) -> Runs:
    everything = runs_near(data, tau, points=points, reach=data.size)[0]
    inside = near.length > 0
    low = int(near.first[inside].min())
    high = int((near.first + near.length)[inside].max())
    far = (everything.first < low) | (everything.first >= high)
    return Runs(everything.first[far], everything.length[far], everything.score[far])
