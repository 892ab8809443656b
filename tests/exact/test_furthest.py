"""The choice of the worst guess: its exact law on small tables, and slips that lose more."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from noisegate.accounting.zcdp import zcdp_loss
from noisegate.mechanisms.partitions.furthest import Furthest

ASKED = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]])  # 0/1 questions about three cells
GUESSES = (3, 9, 4, 0)


def law(factor, answers, guesses=GUESSES):
    weights = np.exp(float(factor) * np.abs(answers - np.array(guesses)))
    return weights / weights.sum()


def ratios(factor, guess_of=lambda _: GUESSES):
    """All log-ratios between a table and one with a unit more."""
    found = []
    for cells in product(range(0, 7, 3), repeat=3):
        for unit in np.eye(3, dtype=int):
            here, there = ASKED @ np.array(cells), ASKED @ (np.array(cells) + unit)
            found.append(
                np.log(law(factor, here, guess_of(here)) / law(factor, there, guess_of(there)))
            )
    return np.array(found)


def test_log_ratios_have_the_range_of_the_event():
    choice = Furthest.for_epsilon(Fraction(1, 2), guesses=GUESSES, score_sensitivity=1)
    gaps = ratios(choice.factor)
    widest = (gaps.max(axis=1) - gaps.min(axis=1)).max()
    assert 0.49 < widest <= float(choice.event(Fraction(1)).epsilon) + 1e-12
    assert np.abs(gaps).max() <= 0.5


def test_a_bounded_range_costs_an_eighth():
    choice = Furthest.for_epsilon(Fraction(1, 2), guesses=GUESSES, score_sensitivity=1)
    assert zcdp_loss(choice.event(Fraction(1))).rho == Fraction(1, 32)


def test_a_factor_for_scores_that_go_one_way_is_caught():
    """|answer - guess| rises for some questions and falls for others."""
    gaps = ratios(Fraction(1, 2))
    assert (gaps.max(axis=1) - gaps.min(axis=1)).max() > 0.75


def test_guesses_that_were_made_from_the_answers_are_caught():
    """A guess below every answer by a fixed part of it moves with the unit, twice for the last."""
    gaps = ratios(Fraction(1, 4), guess_of=lambda answers: -2 * answers)
    assert (gaps.max(axis=1) - gaps.min(axis=1)).max() > 0.7


def test_the_choice_follows_the_law():
    choice = Furthest(factor=Fraction(1, 4), guesses=GUESSES)
    answers = ASKED @ np.array([4, 1, 2])
    draws = 1500
    seen = np.bincount([int(choice.sample(answers)[0]) for _ in range(draws)], minlength=4)
    wanted = draws * law(choice.factor, answers)
    # χ² with 3 degrees of freedom passes 31 once in a million runs
    assert ((seen - wanted) ** 2 / wanted).sum() < 31


@pytest.mark.parametrize("best", range(4))
def test_a_sure_choice_is_the_furthest(best):
    answers = np.array(GUESSES)
    answers[best] += 40
    choice = Furthest.for_epsilon(4, guesses=GUESSES, score_sensitivity=1)
    assert choice.sample(answers).tolist() == [best]  # others: e^-80
    assert choice.shortfall("0.95") == 2
