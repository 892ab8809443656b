"""Exact audits of choices over a prior and on an interval, on all small neighbours."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from test_mechanism_hockey_stick import is_pure, loss, normalised

from noisegate.exact import real
from noisegate.mechanisms.selection import prior
from noisegate.mechanisms.selection.prior import PriorExponential
from noisegate.mechanisms.selection.stretches import StretchChoice
from noisegate.privacy.distance import L1

ENDS = range(-3, 4)
STRETCHES = [(low, high) for low, high in product(ENDS, ENDS) if (low + high) % 2]


def point_law(choice, stretches):
    """The chance of each point, from what the mechanism hands to its sampler."""
    rows = np.array([(low, high, 0, 1) for low, high in stretches], np.int64)
    first, length, score = choice.runs(rows)
    scores = [s for _, n, s in zip(first, length, score, strict=True) for _ in range(n)]
    return normalised([real(choice.factor * int(each)).exp() for each in scores])


def worst(choice, epsilon):
    """Whether all neighbours of up to two rows are within ε, and the largest loss."""
    losses = []
    for count in (0, 1):
        for rows in combinations_with_replacement(STRETCHES, count):
            before = point_law(choice, rows)
            for more in STRETCHES:
                after = point_law(choice, (*rows, more))
                if not is_pure(before, after, epsilon):
                    return False, 0.0
                losses.append(loss(before, after)[0])
    return True, max(losses)


def test_a_point_of_an_interval_costs_epsilon_on_all_small_neighbours():
    epsilon = Fraction(2)
    choice = StretchChoice.for_epsilon(epsilon, rows=1, reach=3, whole=1)
    assert choice.event(L1(1)).epsilon == epsilon
    private, largest = worst(choice, epsilon)
    assert private
    assert largest > 1.5  # of five points; all of ε needs many


def test_a_factor_for_rows_that_count_twice_is_caught():
    broken = StretchChoice(factor=Fraction(4), reach=3, whole=1)
    assert not worst(broken, Fraction(2))[0]


@pytest.mark.parametrize("monotone", [False, True])
def test_a_prior_cancels_in_every_ratio(monotone, monkeypatch):
    seen = []

    def spy(contest, times, **_):
        seen.append(contest)
        return np.zeros((times, 1), np.int64)

    monkeypatch.setattr(prior, "choose_times", spy)
    choice = PriorExponential.for_epsilon(
        1, score_sensitivity=1, weights=(1, 50, 7), monotone=monotone
    )

    def law(scores):
        choice.sample(np.array(scores, np.int64))
        contest = seen.pop()
        pairs = zip(contest.multiplicity.tolist(), contest.scores.tolist(), strict=True)
        return normalised([weight * real(contest.factor * score).exp() for weight, score in pairs])

    steps = (0, 1) if monotone else (-1, 0, 1)
    losses = []
    for scores in product(range(2), repeat=3):
        for change in product(steps, repeat=3):
            p, q = law(scores), law([s + c for s, c in zip(scores, change, strict=True)])
            assert is_pure(p, q, 1)
            losses.append(loss(p, q)[0])
    assert max(losses) > 0.6  # the heavy one takes the rest
    assert choice.event(Fraction(1)).epsilon == 1
