"""The sparse vector technique: order, cutoff, split of the budget, and the stated accuracy."""

from fractions import Fraction

import numpy as np
import pytest

from noisegate.errors import SpecError
from noisegate.mechanisms.selection.above_threshold import CUT, AboveThreshold, cut_off
from refusals import about

FAR = 10**9


def sparse(cutoff=2, **options):
    return AboveThreshold.for_epsilon(1, threshold=100, sensitivity=1, cutoff=cutoff, **options)


def test_values_far_from_the_threshold_are_told_apart():
    assert sparse(cutoff=3).sample(np.array([-FAR, FAR, -FAR, FAR])).tolist() == [0, 1, 0, 1]


def test_a_run_ends_with_the_yes_that_reaches_the_cutoff():
    run = sparse(cutoff=2).start()
    assert run.ask(np.array([FAR, -FAR, FAR, FAR, -FAR])).tolist() == [True, False, True]
    assert run.is_over


def test_a_run_that_is_over_refuses_further_questions():
    run = sparse(cutoff=1).start()
    run.ask(np.array([FAR]))
    with pytest.raises(SpecError):
        run.ask(np.array([-FAR]))


def test_yeses_are_counted_across_batches():
    run = sparse(cutoff=2).start()
    assert run.ask(np.array([FAR, -FAR])).tolist() == [True, False]
    assert not run.is_over
    assert run.ask(np.array([-FAR, -FAR])).tolist() == [False, False]
    assert run.ask(np.array([FAR, FAR, FAR])).tolist() == [True]
    assert run.is_over


def test_an_empty_batch_changes_nothing():
    run = sparse().start()
    assert run.ask(np.zeros(0, np.int64)).size == 0
    assert not run.is_over


def test_noes_are_unlimited():
    assert sparse(cutoff=1).sample(np.full(100_000, -FAR)).sum() == 0


def test_extreme_values_are_clamped_instead_of_wrapped():
    ends = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert sparse().sample(ends).tolist() == [0, 1]


def test_a_run_shows_nothing_of_what_it_compared_but_gaps():
    run = sparse().start()
    assert [name for name in dir(run) if not name.startswith("_")] == ["ask", "gaps", "is_over"]
    assert "bar" not in repr(run)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("cutoff", [1, 4, 13])
def test_the_split_is_within_a_thousandth_of_the_best(cutoff, monotone):
    event = sparse(cutoff=cutoff, monotone=monotone).event(Fraction(1))
    times = cutoff if monotone else 2 * cutoff

    def variance(first):
        return 2 / first**2 + 2 * times**2 / (1 - first) ** 2

    best = min(variance(share / 1000) for share in range(1, 1000))
    assert variance(float(event.epsilon_threshold)) <= best * 1.001


def test_monotone_questions_need_half_the_noise():
    general, monotone = (
        AboveThreshold(
            threshold=0, threshold_scale=4, query_scale=8, cutoff=2, monotone=flag
        ).event(Fraction(1))
        for flag in (False, True)
    )
    assert general.epsilon_queries == 2 * monotone.epsilon_queries == Fraction(1, 2)
    assert general.epsilon_threshold == monotone.epsilon_threshold == Fraction(1, 4)


def test_the_stated_accuracy_holds_as_often_as_claimed():
    """The union bound leaves room: 1000 runs at 90 % confidence fail over 160 times once in 10⁹."""
    mechanism, questions = sparse(cutoff=1), 20
    t = mechanism.accuracy("0.9", questions=questions)
    below = np.full(questions, 100 - t - 1)
    wrong_yes = sum(bool(mechanism.sample(below).any()) for _ in range(1000))
    above = np.full(1, 100 + t)
    wrong_no = sum(not mechanism.sample(above).all() for _ in range(1000))
    assert wrong_yes <= 160
    assert wrong_no <= 160


def test_accuracy_is_near_the_textbook_bound():
    mechanism = AboveThreshold(
        threshold=0, threshold_scale=20, query_scale=40, cutoff=1
    )  # ε = 1/10, in halves
    textbook = 8 * (np.log(100) + np.log(2 / 0.05)) / 0.1
    assert mechanism.accuracy("0.95", questions=100) <= textbook


def test_a_number_of_another_type_is_refused():
    class Shy(int):
        def __rmul__(self, other):
            return other

    with pytest.raises(SpecError, check=about("whole"), match="cutoff"):
        AboveThreshold(
            threshold=0, threshold_scale=Fraction(1), query_scale=Fraction(1), cutoff=Shy(1000)
        )


def test_runs_that_are_drawn_together_are_cut_after_the_last_allowed_yes():
    answers = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0], [0, -1, 1, 1]])
    once, twice = (cut_off(answers, yeses) for yeses in (1, 2))
    assert once.tolist() == [[0, 1, CUT, CUT], [1, CUT, CUT, CUT], [0] * 4, [0, -1, CUT, CUT]]
    assert twice.tolist() == [[0, 1, 0, 1], [1, 0, 0, 0], [0] * 4, [0, -1, 1, CUT]]
    sure = AboveThreshold(threshold=0, threshold_scale="1/100", query_scale="1/100", cutoff=2)
    runs = sure.uses(np.array([-50, 50, 50, 50]), 3)
    assert runs.tolist() == [[0, 1, 1, CUT]] * 3
    assert sure.sample(np.array([-50, 50, 50, 50])).tolist() == [0, 1, 1]
