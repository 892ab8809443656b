"""Brackets of quantiles: the law against its definition, the price, and coverage, all exact.

Laws are listed pair by pair: nothing is sampled, but for the last test. Coverage is that of what
SQL means by a quantile, for tables that are made to be hard: gaps, atoms, few values.
"""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product
from math import ceil, exp, floor, log

import numpy as np
import pytest

from noisegate.accounting.pure import pure_loss
from noisegate.mechanisms.quantiles.brackets import LADDER, Brackets, EvenBrackets
from noisegate.mechanisms.quantiles.ranks import ERROR_MAX

LEVELS = [Fraction(1, 2), Fraction(1, 10), Fraction(2, 3)]
SLACKS = [Fraction(0), Fraction(1, 20)]
KINDS = [Brackets, EvenBrackets]


def slow_error(mechanism, data, place, point, index):
    """e(c, j) as the text beside the mechanism has it, one pair at a time."""
    tau, count, last = mechanism.taus[place], len(data), mechanism.points - 1
    listed = [*mechanism.radii.tolist(), last]

    def safe(at):
        if at < 0:
            return -ERROR_MAX
        if at >= len(listed) - 1:
            return ERROR_MAX
        found = [ERROR_MAX]
        for rung, ranks in enumerate(mechanism.rungs[place]):
            radius = listed[min(at + rung, len(listed) - 1)]
            if type(mechanism) is EvenBrackets:
                longer = Fraction(ceil(1024 * 2 ** (rung / 4)), 1024)
                radius = max(ceil(listed[at] * longer), listed[at] + ceil(rung / 4))
            spare = ranks + mechanism.spare + 2 * mechanism.slack * count
            if point - radius > 0:
                found.append(tau * count - sum(x < point - radius for x in data) - spare)
            if point + radius < last:
                found.append(sum(x <= point + radius for x in data) - tau * count - spare)
        return min(found)

    upto, below = sum(x <= point for x in data), sum(x < point for x in data)
    rank = max(0, tau * count - upto, below - tau * count)
    return max(rank, -safe(index), safe(index - 1) - mechanism.rooms[place]), rank


@cache
def all_pairs(points, count):
    return np.array(list(product(range(points), range(count))), np.int64)


def law(mechanism, data, place=0):
    """All pairs, and the chance of each."""
    pairs, logs = log_law(mechanism, data, place)
    return pairs, np.exp(logs)


def log_law(mechanism, data, place=0):
    """The same in logarithms, which tell apart what a double cannot hold."""
    count = mechanism.radii.size + 1
    pairs = all_pairs(mechanism.points, count)
    values = np.sort(np.array(data, np.int64)) - mechanism.low
    scale = mechanism._denominator(mechanism.taus[place])
    goal = int(mechanism.taus[place] * values.size * scale)
    upto, below = (scale * values.searchsorted(pairs[:, 0], side) for side in ("right", "left"))
    rank = np.maximum(np.maximum(goal - upto, below - goal), 0)
    error = rank + mechanism.excess(values, place, pairs[:, 0], pairs[:, 1])
    logs = -float(mechanism.factors[place]) * error / scale
    return pairs, logs - np.log(np.exp(logs).sum())


def sql_quantiles(data, tau):
    """QUANTILE_CONT and QUANTILE_DISC, as DuckDB has them."""
    values, at = sorted(data), tau * (len(data) - 1)
    low, high = values[floor(at)], values[ceil(at)]
    return [low + (high - low) * (at - floor(at)), values[max(ceil(tau * len(data)), 1) - 1]]


def failures(mechanism, data, confidence, place=0, of=None):
    """With which chance the bracket misses each of these; ``of``: the law of the data, if known."""
    pairs, chances = law(mechanism, data, place) if of is None else of
    released = np.zeros((len(pairs), len(mechanism.taus), 2), np.int64)
    released[:, place] = pairs + np.array([mechanism.low, 0])
    ends = mechanism.ends(released.reshape(len(pairs), -1), confidence)
    low, high = (each[:, place] for each in ends)
    return [
        float(chances[(low > float(q)) | (high < float(q))].sum())
        for q in sql_quantiles(data, mechanism.taus[place])
    ]


def hard_tables(points):
    """Gaps at the quantile, atoms beside it, clusters, ends of the grid, few values."""
    last, chance = points - 1, np.random.default_rng(5)  # public test data, not noise
    for count in (1, 2, 7, 24):
        half = count // 2
        yield [0] * half + [last] * (count - half)
        yield [0] * (count - half) + [last] * half
        yield [last // 3] * half + [last // 3 + 1] * (count - half)
        yield [last // 2] * count
        yield list(range(0, last, max(1, last // count)))[:count]
        yield [*range(half), *range(last - count + half, last)]
        yield sorted(chance.integers(0, points, count).tolist())
        yield sorted(np.minimum(chance.geometric(0.2, count), last).tolist())
        yield sorted([0] * half + chance.integers(0, points, count - half).tolist())


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", LEVELS)
@pytest.mark.parametrize("slack", SLACKS)
def test_errors_are_those_of_the_definition(tau, slack, kind):
    mechanism = kind.for_epsilon(9, taus=(tau,), low=0, high=12, slack=slack)
    pairs = np.array(list(product(range(13), range(mechanism.radii.size + 1))), np.int64)
    for data in list(hard_tables(13))[:: 1 if kind is Brackets else 4]:
        found = mechanism.excess(np.array(sorted(data), np.int64), 0, pairs[:, 0], pairs[:, 1])
        for pair, excess in zip(pairs.tolist(), found.tolist(), strict=True):
            error, rank = slow_error(mechanism, data, 0, *pair)
            assert Fraction(excess, mechanism._denominator(tau)) == error - rank


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", LEVELS)
@pytest.mark.parametrize("slack", SLACKS)
def test_no_value_tells_more_than_the_price(tau, slack, kind, monkeypatch):
    monkeypatch.setattr(kind, "spare", 0)  # so that few values matter
    monkeypatch.setattr(kind, "rungs", ((1, 1, 2),))
    mechanism = kind.for_epsilon(1, taus=(tau,), low=0, high=5, slack=slack)
    price, largest = float(pure_loss(mechanism.event(1)).epsilon), 0.0
    assert price == pytest.approx(1)
    logs = cache(lambda *data: log_law(mechanism, data)[1])  # of values in order
    for data in (t for n in range(5) for t in combinations_with_replacement(range(6), n)):
        base = logs(*data)
        for value in range(6):
            ratios = logs(*sorted((*data, value))) - base
            assert np.ptp(ratios) <= price + 1e-6  # the largest logarithms are 2**30
            largest = max(largest, float(np.abs(ratios).max()))
    assert largest > price / 4  # the test would see twice the factor or more


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_with_a_third_of_the_range_is_caught(kind, monkeypatch):
    monkeypatch.setattr(kind, "spare", 0)
    monkeypatch.setattr(kind, "rungs", ((1, 1, 2),))
    mechanism = kind.for_epsilon(3, taus=("1/2",), low=0, high=5)
    worst = max(
        float(np.ptp(log_law(mechanism, (*data, value))[1] - log_law(mechanism, data)[1]))
        for data in combinations_with_replacement(range(6), 4)
        for value in range(6)
    )
    assert worst > 1


@pytest.mark.parametrize("tau", LEVELS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), "1/2", 2, 8, 60])
def test_brackets_hold_what_sql_means_with_the_stated_chance(tau, epsilon):
    mechanism = Brackets.for_epsilon(epsilon, taus=(tau,), low=-3, high=98)
    for data in hard_tables(102):
        moved = [x - 3 for x in data]
        of = law(mechanism, moved)
        for confidence in (0.8, 0.95, 0.975, 0.99, 0.999, 0.9999):
            for chance in failures(mechanism, moved, confidence, of=of):
                assert chance <= 1 - confidence + 1e-12


def test_a_search_for_bad_tables_finds_none():
    """Moves one value at a time to where the bracket fails most."""
    chance = np.random.default_rng(11)  # public test data, not noise
    mechanism = Brackets.for_epsilon(6, taus=("1/2",), low=0, high=60)
    for size in (5, 14):
        data = chance.integers(0, 61, size).tolist()
        worst = max(failures(mechanism, data, 0.95))
        for _ in range(150):
            other = list(data)
            other[chance.integers(size)] = int(chance.integers(61))
            found = max(failures(mechanism, other, 0.95))
            if found >= worst:
                data, worst = other, found
        assert worst <= 0.05


def test_a_copy_of_half_the_width_is_caught():
    mechanism = Brackets.for_epsilon(8, taus=("1/2",), low=0, high=101)
    data = [*range(10), *range(90, 100)]
    pairs, chances = law(mechanism, data)
    radius = mechanism._radius(pairs[:, 1]) // 2
    missed = np.abs(pairs[:, 0] - sql_quantiles(data, Fraction(1, 2))[1]) > radius
    assert max(failures(mechanism, data, 0.95)) <= 0.05 < chances[missed].sum()


def test_slack_holds_quantiles_that_are_off_by_a_share_of_the_values():
    mechanism = Brackets.for_epsilon(8, taus=("1/2",), low=0, high=101, slack="1/10")
    plain = replace(mechanism, slack=Fraction(0))
    for data in hard_tables(102):
        count, values = len(data), sorted(data)
        pairs, chances = law(mechanism, data)
        low, high = (each[:, 0] for each in mechanism.ends(pairs, 0.95))
        for rank in range(ceil(count * 0.4), floor(count * 0.6)):
            missed = (low > values[rank]) | (high < values[rank])
            assert chances[missed].sum() <= 0.05
    wide, narrow = (
        float((law(each, range(100))[1] * each._radius(pairs[:, 1])).sum())
        for each in (mechanism, plain)
    )
    assert wide > narrow


@pytest.mark.parametrize("epsilon", [2, 8, 40])
def test_of_even_values_slack_holds_quantiles_that_are_twice_as_far_off(epsilon):
    mechanism = Brackets.for_epsilon(epsilon, taus=("1/2",), low=0, high=300, slack="1/10")
    values = range(0, 300, 5)
    pairs, chances = law(mechanism, values)
    low, high = (each[:, 0] for each in mechanism.ends(pairs, 0.95))
    for rank in range(18, 42):  # of 60: within 2 · 6 of the middle
        missed = (low > values[rank]) | (high < values[rank])
        assert chances[missed].sum() <= 0.05


def test_levels_are_drawn_one_after_the_other():
    mechanism = Brackets.for_epsilon(1, taus=("1/4", "3/4"), low=0, high=999)
    assert pure_loss(mechanism.event(1)).epsilon == 1
    assert pure_loss(mechanism.event(3)).epsilon == 3
    found = mechanism.uses(np.arange(100_000) % 1000, 50)
    assert found.shape == (50, 4)
    assert np.abs(mechanism.centres(found) - [250, 750]).max() < 20


def test_nothing_held_gives_the_whole_grid():
    mechanism = Brackets.for_epsilon(1, taus=("1/2",), low=-5, high=900)
    low, high = mechanism.ends(mechanism.uses(np.zeros(0, np.int64), 400), 0.95)
    whole = np.mean((low == -5) & (high == 900))
    assert whole > 0.95 - 4 * 0.0011  # a chance of at most 1 in 20: false alarms below 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_law(kind):
    """Chi-square over the likely pairs; a false alarm has a chance of about 1e-6."""
    mechanism = kind.for_epsilon(3, taus=("1/2",), low=0, high=40)
    data = np.array([3, 3, 3, 8, 9, 20, 21, 22, 22, 30] * 3, np.int64)
    pairs, chances = law(mechanism, data)
    uses = 20_000
    found = mechanism.uses(data, uses)
    names = found[:, 0] * 100 + found[:, 1]
    seen = np.array([(names == p * 100 + j).sum() for p, j in pairs.tolist()])
    likely = chances * uses > 20
    expected = np.append(chances[likely], chances[~likely].sum()) * uses
    counted = np.append(seen[likely], seen[~likely].sum())
    statistic, freedom = ((counted - expected) ** 2 / expected).sum(), likely.sum()
    deviates = (statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))
    assert deviates / (2 / (9 * freedom)) ** 0.5 < 4.9  # Wilson and Hilferty
    assert seen.sum() == uses


def test_rungs_are_logarithms_rounded_up():
    mechanism = Brackets.for_epsilon("1/3", taus=("1/2",), low=0, high=1 << 24)
    radii = mechanism.radii.size
    assert radii == 48
    for ranks, failure in zip(mechanism.rungs[0], LADDER, strict=True):
        exact = log(radii / failure) * 3
        assert exact <= ranks < exact + 1
        assert radii * exp(-ranks / 3) <= failure
