"""Choices by score: the weights they use, the bounds they state, and scores at the edge."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.scores import shortfall_up
from noisegate.mechanisms.selection.top_k import TopK

KINDS = [Exponential, PermuteAndFlip]


@pytest.mark.parametrize("kind", KINDS)
def test_the_factor_is_halved_unless_scores_are_monotone(kind):
    assert kind.for_epsilon(1, score_sensitivity="1/2").factor == 1
    assert kind.for_epsilon(1, score_sensitivity="1/2", monotone=True).factor == 2


def test_top_k_shares_epsilon_between_its_steps():
    mechanism = TopK.for_epsilon(3, k=3, score_sensitivity=1)
    assert mechanism.factor == Fraction(1, 2)
    assert mechanism.event(Fraction(1)).epsilon_each == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_far_ahead_is_chosen(kind):
    scores = np.array([0, 10_000, 3])
    assert kind(factor=Fraction(1)).sample(scores).tolist() == [1]


def test_top_k_lists_the_best_first():
    scores = np.array([10_000, 30_000, 0, 20_000])
    assert TopK(k=3, factor=Fraction(1)).sample(scores).tolist() == [1, 3, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_scores_are_clamped_instead_of_refused(kind):
    scores = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0])
    assert kind(factor=Fraction(1)).sample(scores).tolist() == [1]
    both_clamped = np.array([1 << 62, 1 << 61])
    drawn = {int(kind(factor=Fraction(1)).sample(both_clamped)[0]) for _ in range(200)}
    assert drawn == {0, 1}  # equally likely after the clamp; missed once in 2**199 runs


@pytest.mark.parametrize("gap", [1, 2, 5, 9])
def test_the_shortfall_is_the_smallest_that_its_bound_certifies(gap):
    factor, failure = Fraction(1, 2), Fraction(1, 20)
    shortfall = shortfall_up(factor, candidates=100 * gap, failure=failure)
    bound = [(100 * gap - 1) * exp(-0.5 * (s + 1)) for s in (shortfall, shortfall - 1)]
    assert bound[0] <= 0.05 < bound[1]


def test_a_choice_without_rivals_falls_short_of_nothing():
    assert Exponential(factor=Fraction(1)).shortfall("0.99", candidates=1) == 0
    assert TopK(k=1, factor=Fraction(1)).shortfall("0.99", candidates=1) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_stated_shortfall_holds_for_the_true_law(kind):
    """Exponential mechanism, exactly: one best candidate, all others lower by the same gap."""
    factor, candidates = Fraction(1, 2), 50
    s = kind(factor=factor).shortfall("0.95", candidates=candidates)
    weight = (candidates - 1) * exp(-0.5 * (s + 1))
    assert weight / (1 + weight) <= 0.05


def test_top_k_splits_its_failure_over_the_picks():
    one, five = TopK(k=1, factor=Fraction(1)), TopK(k=5, factor=Fraction(1))
    assert five.shortfall("0.95", candidates=100) == one.shortfall("0.99", candidates=100)
