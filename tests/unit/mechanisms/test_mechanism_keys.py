"""Key selection: who is shown, and who never is."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from noisegate.errors import SpecError
from noisegate.mechanisms.keys.key_selection import (
    LEAK_MIN,
    KeySelection,
    ThresholdedGaussian,
    ThresholdedGeometric,
)
from refusals import about

KEYS = KeySelection(epsilon=1, delta="1e-5")
EXTREMES = np.array([np.iinfo(np.int64).min, -1, 0])


def test_absent_keys_are_never_shown_and_popular_ones_always():
    shown = KEYS.sample(np.array([*EXTREMES, 23, 10**6, np.iinfo(np.int64).max]))
    assert shown.tolist() == [0, 0, 0, 1, 1, 1]


def test_the_decision_keeps_shape_and_type():
    shown = KEYS.sample(np.full((3, 4), 12))
    assert shown.shape == (3, 4)
    assert shown.dtype == np.int64


def test_no_keys_are_no_decisions():
    assert KEYS.sample(np.zeros(0, np.int64)).size == 0


def test_each_key_is_shown_as_often_as_its_count_allows():
    """Exact shares per count, within 6.2 standard deviations: a false alarm once in 10⁸ runs."""
    counts = np.tile(np.arange(9, 16), 20_000)
    shown = KEYS.sample(counts)
    for n in range(9, 16):
        low, high = KEYS.probability(n)
        assert 0 <= high - low < Fraction(1, 10**20)
        chance = float(low)
        spread = 6.2 * (chance * (1 - chance) / 20_000) ** 0.5
        assert abs(shown[counts == n].mean() - chance) <= spread


def test_chances_rise_from_zero_to_one():
    chances = [KEYS.probability(n) for n in range(25)]
    assert chances[0] == (0, 0)
    assert chances[23] == chances[24] == (1, 1)
    assert all(a[1] < b[0] for a, b in pairwise(chances[:24]))


def test_many_keys_per_unit_are_shown_later():
    one = KeySelection.for_budget(1, "1e-5", keys_per_unit=1)
    ten = KeySelection.for_budget(1, "1e-5", keys_per_unit=10)
    assert ten.last > 8 * one.last


@pytest.mark.parametrize(
    ("epsilon", "delta", "threshold"), [(1, "1e-5", 13), (2, "1e-8", 11), ("0.3", "1e-3", 23)]
)
def test_the_lowest_threshold_agrees_with_the_published_one(epsilon, delta, threshold):
    mechanism = ThresholdedGeometric.for_budget(epsilon, delta, keys_per_unit=1)
    assert mechanism.threshold == threshold


def test_hidden_counts_are_zero_and_shown_ones_reach_the_threshold():
    mechanism = ThresholdedGeometric.for_budget(1, "1e-5", keys_per_unit=1)
    noisy = mechanism.sample(np.array([*EXTREMES, *[12] * 1000, 10**6]))
    assert noisy[:3].tolist() == [0, 0, 0]
    assert ((noisy[3:-1] == 0) | (noisy[3:-1] >= 13)).all()
    assert {bool(value) for value in noisy[3:-1]} == {True, False}
    assert abs(noisy[-1] - 10**6) < 100


@pytest.mark.parametrize("mechanism", [ThresholdedGaussian, ThresholdedGeometric])
def test_a_chance_that_is_too_small_to_be_written_down_is_rounded_up(mechanism):
    for price in (10**4, 10**8):
        found = mechanism.for_budget(price, "1e-6", keys_per_unit=1)
        assert LEAK_MIN <= found.event(1).delta <= Fraction(1, 10**6)
    with pytest.raises(SpecError, check=about("delta")):
        mechanism.for_budget(1, "1e-1001", keys_per_unit=1)
