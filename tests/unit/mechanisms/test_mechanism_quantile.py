"""One quantile and many: grids, ties, empty data, stated errors, and the far end of the race."""

from fractions import Fraction
from math import log

import numpy as np
import pytest

from noisegate.errors import SpecError
from noisegate.mechanisms.quantiles import ranks
from noisegate.mechanisms.quantiles.quantile import Quantile, error_range, grid_points
from noisegate.mechanisms.quantiles.quantiles import Quantiles, depth, plan
from noisegate.mechanisms.quantiles.ranks import (
    ERROR_MAX,
    RankGoal,
    _scores,
    private_ranks,
    rank_error_up,
    runs_near,
)
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.coins import falls_below
from noisegate.noise.law import Certified

HALF = Fraction(1, 2)


class FirstWord(Bits):
    """The first word is given, all later bits are the system's."""

    def __init__(self, word):
        self._word = word

    def words(self, count, width):
        out = SYSTEM.words(count, width)
        if self._word is not None:
            out[0], self._word = self._word, None
        return out


def test_a_rank_error_moves_by_half_for_the_median_and_by_one_at_the_ends():
    assert error_range(HALF) == 1  # up by 1/2 here, down by 1/2 there
    assert error_range(Fraction(1, 10)) == Fraction(9, 5)
    assert error_range(Fraction(0)) == error_range(Fraction(1)) == 1


def test_values_are_clamped_and_rounded_down_to_the_grid_and_stay_as_they_are():
    values = np.array([25, -7, 14, 10, 19, 1 << 62])
    assert grid_points(values, low=10, high=20, step=5).tolist() == [2, 0, 0, 0, 1, 2]
    assert values.tolist() == [25, -7, 14, 10, 19, 1 << 62]


@pytest.mark.parametrize("tau", [0, "1/3", "1/2", 1])
def test_the_answer_lies_on_the_grid(tau):
    mechanism = Quantile.for_epsilon("0.01", tau=tau, low=-30, high=30, step=15)
    drawn = {int(mechanism.sample(np.array([-99, 4, 99]))[0]) for _ in range(300)}
    assert drawn <= {-30, -15, 0, 15, 30}
    assert len(drawn) > 1


def test_no_values_give_any_grid_point_alike():
    """A false alarm once in 10⁹ runs: each of four points is missed with (3/4)⁸⁰."""
    mechanism = Quantile.for_epsilon(1, tau="1/2", low=0, high=3)
    assert {int(mechanism.sample(np.zeros(0, np.int64))[0]) for _ in range(80)} == {0, 1, 2, 3}


@pytest.mark.parametrize("tau", ["1/10", "1/2", "9/10"])
def test_a_value_that_everyone_shares_is_found(tau):
    mechanism = Quantile.for_epsilon(1, tau=tau, low=0, high=1000)
    assert mechanism.sample(np.full(10_000, 77)).tolist() == [77]


@pytest.mark.parametrize("tau", [0, "1/4", "1/2", "99/100", 1])
def test_the_rank_error_stays_within_its_bound(tau):
    """At confidence 1 - 10⁻¹⁰ per draw, a false alarm once in 10⁸ runs."""
    values = np.arange(0, 300_000, 3)[::-1].copy()
    mechanism = Quantile.for_epsilon("0.5", tau=tau, low=0, high=400_000)
    bound = mechanism.rank_error(1 - Fraction(1, 10**10))
    goal = float(Fraction(tau)) * values.size
    for _ in range(20):
        found = int(mechanism.sample(values)[0])
        low, high = (values < found).sum(), (values <= found).sum()
        assert max(0, goal - high, low - goal) <= bound


def test_the_stated_rank_error_is_the_textbook_one():
    bound = rank_error_up(Fraction(1, 10), points=1000, failure=Fraction(1, 20))
    assert bound - 1 < 10 * log(1000 / 0.05) <= bound


def test_rank_errors_beyond_any_table_are_clamped_instead_of_wrapped():
    ranks = np.array([0, 1 << 40, (1 << 62) - 1])
    scores = _scores(ranks, ranks, Fraction(999_999_937, 10**9), 1 << 40)
    assert scores.min() == -ERROR_MAX * 10**9
    assert (scores <= 0).all()


def test_a_word_of_zeros_sends_the_winner_far_and_one_of_ones_keeps_it_near():
    data, goal = np.arange(1000), RankGoal(HALF, Fraction(1, 100))
    for word, is_far in ((0, True), ((1 << 64) - 1, False)):
        for _ in range(5):
            (found,) = private_ranks(data, goal, 1, points=1000, bits=FirstWord(word), reach=50)
            assert (not 450 <= found < 550) == is_far


@pytest.mark.parametrize("tie_bits", [0, 3])
def test_no_order_of_the_values_changes_what_the_calls_see(tie_bits):
    values = np.random.default_rng(5).integers(0, 50, 1000)
    mechanism = Quantiles.for_epsilon(1, taus=("1/2",), low=0, high=50, tie_bits=tie_bits)
    for row in (values, np.sort(values), np.sort(values)[::-1], values.reshape(10, 100).T):
        keys = mechanism._keys(row, SYSTEM)
        assert (np.diff(keys) >= 0).all()
        assert (keys >> tie_bits).tolist() == sorted(values.tolist())
    found = Quantile.for_epsilon(100, tau="1/2", low=0, high=50).sample(values.reshape(10, 100).T)
    assert abs((values < found[0]).sum() - 500) < 40  # the value's own ties are within 40 ranks


def test_the_values_are_left_as_they_were():
    values = np.random.default_rng(6).integers(-9, 60, 500)
    before = values.copy()
    for taus in (("1/2",), ("1/4", "3/4")):
        Quantiles.for_epsilon(1, taus=taus, low=0, high=50).sample(values)
    Quantile.for_epsilon(1, tau="1/2", low=0, high=50).sample(values)
    assert (values == before).all()


def test_cells_are_answered_each_from_its_own_values():
    """At confidence 1 - 10⁻¹⁰ per draw; the cells lie further apart than that."""
    cells = [np.arange(k * 10_000, k * 10_000 + 2_000) for k in range(5)]
    one = Quantile.for_epsilon(4, tau="1/2", low=0, high=100_000).sample_cells(cells)
    three = Quantiles.for_epsilon(4, taus=("1/4", "1/2", "3/4"), low=0, high=100_000)
    many = three.sample_cells(cells)
    assert one.shape == (5, 1)
    assert many.shape == (5, 3)
    assert one.dtype == many.dtype == np.int64
    bound = three.rank_error(1 - Fraction(1, 10**10)) + 1
    goals = 10_000 * np.arange(5)[:, None] + np.array([500, 1000, 1500])
    assert np.abs(many - goals).max() <= bound
    assert np.abs(one[:, 0] - goals[:, 1]).max() <= bound


def test_no_cells_give_no_answers_and_empty_cells_give_points_of_the_grid():
    mechanism = Quantiles.for_epsilon(1, taus=("1/4", "1/2"), low=10, high=20, step=5)
    assert mechanism.sample_cells([]).shape == (0, 2)
    empty = mechanism.sample_cells([np.zeros(0, np.int64)] * 3)
    assert empty.shape == (3, 2)
    assert set(empty.ravel().tolist()) <= {10, 15, 20}


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros(3, np.int32), [1, 2]])
def test_values_of_another_type_are_refused(wrong):
    mechanism = Quantiles.for_epsilon(1, taus=("1/4", "1/2"), low=0, high=20)
    with pytest.raises(SpecError):
        mechanism.sample_cells([np.zeros(3, np.int64), wrong])


# --- many ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "levels"), [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (99, 7)])
def test_halving_needs_the_logarithm_of_the_number_of_quantiles(count, levels):
    taus = [Fraction(i, count + 1) for i in range(1, count + 1)]
    calls = plan(taus)
    assert depth(count) == len(calls) == levels
    assert sorted(node.index for level in calls for node in level) == list(range(count))


def test_quartiles_are_the_median_and_then_the_median_of_each_side():
    first, second = plan([Fraction(1, 4), HALF, Fraction(3, 4)])
    assert [(node.index, node.tau) for node in first] == [(1, HALF)]
    assert [(node.index, node.tau) for node in second] == [(0, HALF), (2, HALF)]


def test_uneven_levels_are_sought_relative_to_their_cuts():
    first, second = plan([Fraction(1, 10), Fraction(9, 10)])
    assert [node.tau for node in first] == [Fraction(1, 10)]
    assert [node.tau for node in second] == [Fraction(8, 9)]


def test_the_event_is_one_parallel_step_per_level():
    mechanism = Quantiles.for_epsilon(1, taus=("1/4", "1/2", "3/4"), low=0, high=9)
    event = mechanism.event(1)
    assert [len(level.events) for level in event.events] == [1, 2]
    assert {part.epsilon for level in event.events for part in level.events} == {HALF}


@pytest.mark.parametrize("count", [1, 3, 9])
def test_many_quantiles_rise_and_stay_within_their_bound(count):
    """At confidence 1 - 10⁻¹⁰, a false alarm once in 10⁹ runs."""
    values = np.arange(200_000)
    taus = [Fraction(i, count + 1) for i in range(1, count + 1)]
    mechanism = Quantiles.for_epsilon(2, taus=taus, low=0, high=300_000)
    found = mechanism.sample(values)
    assert (np.diff(found) >= 0).all()
    goals = np.array([float(tau) * values.size for tau in taus])
    ranks = np.minimum(found, values.size)
    assert np.abs(ranks - goals).max() <= mechanism.rank_error(1 - Fraction(1, 10**10)) + 1


def test_a_heavy_value_fills_all_the_quantiles_it_covers():
    values = np.concatenate([np.zeros(90_000, np.int64), np.arange(10_000)])
    mechanism = Quantiles.for_epsilon(4, taus=("1/4", "1/2", "3/4", "99/100"), low=0, high=100_000)
    found = mechanism.sample(values).tolist()
    assert found[:3] == [0, 0, 0]
    assert 8000 < found[3] < 10_000


def test_many_quantiles_of_no_values_are_points_of_the_grid():
    mechanism = Quantiles.for_epsilon(1, taus=("1/4", "1/2"), low=10, high=20, step=5)
    found = mechanism.sample(np.zeros(0, np.int64))
    assert set(found.tolist()) <= {10, 15, 20}
    assert found[0] <= found[1]


def test_values_at_the_top_of_the_grid_take_part():
    mechanism = Quantiles.for_epsilon(8, taus=("1/4", "1/2", "3/4"), low=0, high=10, tie_bits=0)
    assert mechanism.sample(np.full(5000, 10)).tolist()[2] == 10


class Replayed(Bits):
    """The same words in every run, one by one or at once."""

    def __init__(self, seed):
        self._chance = np.random.default_rng(seed)

    def words(self, count, width):
        words = self._chance.integers(0, (1 << 64) - 1, count, np.uint64, endpoint=True)
        return words >> np.uint64(64 - width)


def ranks_one_by_one(data, goal, times, *, points, bits, reach):
    """As it was written first: a word for each draw, and at once whether it is a far one."""
    near, is_all = runs_near(data, goal.tau, points=points, reach=reach)
    if is_all:
        return ranks._points(near, goal, times, bits)
    unit = goal.factor / goal.tau.denominator
    beyond = ranks._far_runs(data, goal.tau, near, points=points)

    def share():
        weight = beyond.weight(unit)
        return weight / (weight + near.weight(unit))

    far = np.zeros(times, np.bool_)
    for place in range(times):
        word = bits.integer(64)
        if word < ranks._far_most(points, goal.factor * reach):
            far[place] = falls_below(Certified(("far", goal, reach), share), word, 64, bits)
    found = np.empty(times, np.int64)
    found[~far] = ranks._points(near, goal, int((~far).sum()), bits)
    if far.any():
        found[far] = ranks._points(beyond, goal, int(far.sum()), bits)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_many_draws_at_once_are_those_that_were_drawn_one_by_one(seed):
    chance = np.random.default_rng(seed)
    data = np.sort(chance.integers(0, 1000, chance.integers(20, 60)))
    goal = RankGoal(
        Fraction(int(chance.integers(1, 9)), 9), Fraction(1, int(chance.integers(2, 9)))
    )
    terms = {"points": 1000, "reach": int(chance.integers(1, 12))}
    found = private_ranks(data, goal, 40, bits=Replayed(seed), **terms)
    assert found.tolist() == ranks_one_by_one(data, goal, 40, bits=Replayed(seed), **terms).tolist()
