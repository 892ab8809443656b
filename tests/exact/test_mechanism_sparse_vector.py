"""The sparse vector technique on its worst streams: it loses what it claims, and slips are caught.

The law of a whole answer stream is a sum over the threshold's noise z of Pr[z] · Π Pr[answer | z].
It is computed here from logarithms in floats, with all terms positive, good to about 10⁻¹¹.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from noisegate.mechanisms.selection.above_threshold import AboveThreshold

SPAN = 4000  # noise beyond this weighs less than e^-400 in all cases below


def log_tail(scale, t):
    """ln Pr[Z ≥ t] of two-sided geometric noise, for an array of whole t."""
    total = np.log1p(np.exp(-1 / scale))
    with np.errstate(under="ignore"):
        near = np.log1p(-np.exp((np.minimum(t, 0) - 1) / scale - total))
    return np.where(t >= 1, -t / scale - total, near)


def log_chance(spec, values, answers):
    """ln Pr[these answers], answered one after another against one noisy threshold."""
    threshold_scale, query_scale, threshold = spec
    z = np.arange(-SPAN, SPAN + 1)
    terms = -np.abs(z) / threshold_scale
    tails = {}  # most questions repeat
    for value, yes in zip(values, answers, strict=True):
        if (value, yes) not in tails:
            bar = threshold + z - value
            # a no is Z ≤ bar - 1, the mirror image of Z ≥ 1 - bar
            tails[value, yes] = log_tail(query_scale, bar if yes else 1 - bar)
        terms = terms + tails[value, yes]
    top = terms.max()
    with np.errstate(under="ignore"):
        return top + np.log(np.exp(terms - top).sum())


def spec_of(mechanism):
    return float(mechanism.threshold_scale), float(mechanism.query_scale), mechanism.threshold


def streams(cutoff, noes):
    """Answers with ``cutoff`` yeses, each after a stretch of noes."""
    return tuple([*[False] * noes, True] * cutoff)


def worst_loss(spec, cutoff, *, monotone):
    """The largest log-ratio over opposing (or, if monotone, common) moves of all questions by 1.

    It is reached where noes are surprising, so that they force the threshold up, and yeses too.
    """
    worst = 0.0
    for noes, surprise in product((0, 1, 30), (0, 60)):
        answers = streams(cutoff, noes)
        here = [spec[2] + (-surprise if yes else surprise) for yes in answers]
        unmoved = log_chance(spec, here, answers)
        for no_move, yes_move in product((-1, 0, 1), repeat=2):
            if monotone and no_move * yes_move < 0:
                continue
            moves = [yes_move if yes else no_move for yes in answers]
            there = [value + move for value, move in zip(here, moves, strict=True)]
            worst = max(worst, abs(unmoved - log_chance(spec, there, answers)))
    return worst


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("cutoff", [1, 2, 5])
def test_a_run_loses_its_price_and_no_more(cutoff, monotone):
    mechanism = AboveThreshold.for_epsilon(
        1, threshold=8, sensitivity=1, cutoff=cutoff, monotone=monotone
    )
    worst = worst_loss(spec_of(mechanism), cutoff, monotone=monotone)
    assert 0.999 < worst <= 1 + 1e-9


def test_equal_halves_reach_exactly_the_published_loss():
    mechanism = AboveThreshold(threshold=60, threshold_scale=2, query_scale=4, cutoff=1)
    event = mechanism.event(Fraction(1))
    assert event.epsilon_threshold == event.epsilon_queries == Fraction(1, 2)
    worst = worst_loss(spec_of(mechanism), 1, monotone=False)
    assert worst == pytest.approx(1, abs=1e-3)


def test_the_textbook_constants_lose_one_half_more_and_are_caught():
    """Scales 2/ε for the threshold and 2c/ε for the questions, ε = 1, c = 1."""
    worst = worst_loss((2.0, 2.0, 60), 1, monotone=False)
    assert worst == pytest.approx(1.5, abs=1e-3)
    mechanism = AboveThreshold(threshold=60, threshold_scale=2, query_scale=2, cutoff=1)
    event = mechanism.event(Fraction(1))
    assert event.epsilon_threshold + event.epsilon_queries == Fraction(3, 2)


def test_the_textbook_constants_are_right_for_monotone_questions():
    assert worst_loss((2.0, 2.0, 60), 1, monotone=True) == pytest.approx(1, abs=1e-3)


def test_scales_that_forget_the_cutoff_are_caught():
    honest = AboveThreshold.for_epsilon(1, threshold=60, sensitivity=1, cutoff=5)
    broken = (float(honest.threshold_scale), float(honest.query_scale) / 5, 60)
    assert worst_loss(broken, 5, monotone=False) > 2


def test_a_threshold_without_noise_is_caught():
    honest = AboveThreshold.for_epsilon(1, threshold=60, sensitivity=1, cutoff=1)
    no_noise = (1e-3, float(honest.query_scale), 0)
    answers = (False,) * 200
    gap = log_chance(no_noise, [0] * 200, answers) - log_chance(no_noise, [1] * 200, answers)
    assert gap > 5


VALUES = (0, 1, -1, 2)


def law_of(mechanism):
    """Every stream of answers about VALUES with its chance; a run ends with its last yes."""
    chances = {}
    for answers in product((False, True), repeat=len(VALUES)):
        yeses = np.cumsum(answers)
        stream = answers[: 1 + int(np.searchsorted(yeses, mechanism.cutoff))]
        chances[stream] = np.exp(log_chance(spec_of(mechanism), VALUES[: len(stream)], stream))
    total = sum(chances.values())
    return {stream: chance / total for stream, chance in chances.items()}


def p_value(drawn, claimed):
    """Pearson's test of 2,000 runs of one mechanism against the law of another, of 11 streams."""
    runs = [tuple(drawn.sample(np.array(VALUES)).astype(bool).tolist()) for _ in range(2000)]
    law = law_of(claimed)
    assert len(law) == 11
    assert min(law.values()) * len(runs) > 25
    expected = [len(runs) * chance for chance in law.values()]
    return stats.chisquare([runs.count(stream) for stream in law], expected).pvalue


def test_runs_follow_the_law_and_scales_that_forget_the_cutoff_do_not():
    """At 10⁻¹² by χ², whose rarest stream is expected 29 times: a false alarm once in 10⁹ runs."""
    honest = AboveThreshold.for_epsilon(2, threshold=0, sensitivity=1, cutoff=2)
    assert p_value(honest, honest) > 1e-12
    broken = AboveThreshold(
        threshold=0,
        threshold_scale=honest.threshold_scale,
        query_scale=honest.query_scale / 2,
        cutoff=2,
    )
    assert p_value(broken, honest) < 1e-12  # missed once in 10⁹ runs
