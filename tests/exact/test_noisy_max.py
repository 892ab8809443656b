"""Noisy max with gaps: the sampler is exact, and its law keeps the price that is charged for it."""

from fractions import Fraction
from importlib import import_module
from itertools import combinations, pairwise, permutations, product
from math import exp, inf, log

import mpmath
import numpy as np
import pytest
from bit_tree import RecordingBits, ReplayedBits, ScriptedBits, mp

from noisegate.errors import SpecError
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.noise.bits import SYSTEM
from noisegate.noise.choice import Contest, choose_with_gaps_times

choice = import_module("noisegate.noise.choice")


@pytest.fixture(autouse=True)
def _precise():
    with mpmath.workdps(50):
        yield


# the sampler


def choose_with_gaps(contest, *, k=1, bits=SYSTEM):
    """One choice."""
    places, gaps = choose_with_gaps_times(contest, 1, k=k, bits=bits)
    return places[0], gaps[0]


@pytest.mark.parametrize("factor", ["1/1000", "1/3", "5"])
@pytest.mark.parametrize("k", [1, 3])
def test_places_and_gaps_are_those_of_the_exact_noisy_scores(factor, k):
    for _ in range(20):
        scores = (SYSTEM.words(9, 64) % np.uint64(30)).astype(np.int64) - 15
        recording = RecordingBits(SYSTEM)
        places, gaps = choose_with_gaps(Contest(scores, Fraction(factor)), k=k, bits=recording)
        noise = [
            -mpmath.log((mpmath.mpf(int(word)) + 0.5) / 2**64) for word in recording.record[0][2]
        ]
        noisy = {i: int(s) + e / mp(Fraction(factor)) for i, (s, e) in enumerate(zip(scores, noise, strict=True))}  # fmt: skip
        order = sorted(noisy, key=noisy.get, reverse=True)
        assert places.tolist() == order[:k]
        leads = [noisy[a] - noisy[b] for a, b in pairwise(order[: k + 1])]
        assert gaps.tolist() == [int(mpmath.floor(lead)) for lead in leads]


def test_gaps_by_floats_are_those_of_ball_arithmetic(monkeypatch):
    contest, recording = Contest(np.array([3, 0, 2, -1]), Fraction(1, 3)), RecordingBits(SYSTEM)
    fast = choose_with_gaps_times(contest, 50, k=2, bits=recording)
    monkeypatch.setattr(choice, "_ULP", np.inf)  # nothing is left to floats
    slow = choose_with_gaps_times(contest, 50, k=2, bits=ReplayedBits(recording.record))
    assert np.array_equal(fast, slow)


def test_a_gap_that_64_bits_leave_open_is_settled_by_more():
    """Both noises have equal first words: the gap is 5, or 4 if the leader's later bits fall."""
    same, high, low = 1 << 60, (1 << 64) - 1, 0
    contest = Contest(np.array([5, 0]), Fraction(1))
    found = [
        choose_with_gaps(contest, bits=ScriptedBits([same, same, *later, *later[::-1] * 3]))[1][0]
        for later in ((low, high), (high, low))
    ]
    assert found == [5, 4]


def test_scores_far_apart_give_gaps_that_fit():
    top = (1 << 60) - 1
    places, gaps = choose_with_gaps(Contest(np.array([-top, top]), Fraction(1)))
    assert places.tolist() == [1]
    assert abs(int(gaps[0]) - 2 * top) < 100  # missed with e^-100
    huge = NoisyMax(k=1, factor=Fraction(1, 10**30)).sample(np.array([0, 0]))
    assert huge[1] == 1 << 62


@pytest.mark.parametrize("k", [0, 3])
def test_there_are_fewer_gaps_than_candidates(k):
    with pytest.raises(SpecError):
        choose_with_gaps(Contest(np.array([1, 2, 3]), Fraction(1)), k=k)


# the law


def above(scores, order, gaps, *, factor=1.0):
    """Pr[these lead in this order, each by at least its gap], in closed form.

    The last of them is y. The rest lie below y - gap: a product over them, taken apart. With
    two leaders the first lies above y + gap with probability min(1, e^(score - y - gap)).
    """
    a, gaps = [score * factor for score in scores], [gap * factor for gap in gaps]
    last, rest = order[-1], [i for i in range(len(scores)) if i not in order]
    start = max([a[last], *(a[i] + gaps[-1] for i in rest)])
    turn = a[order[0]] - gaps[0] if len(order) == 2 else -inf
    begin, total = max(start, turn), 0.0
    for size in range(len(rest) + 1):
        for chosen in combinations(rest, size):
            weight = (-1) ** size * exp(a[last] + sum(a[i] + gaps[-1] for i in chosen))
            rate = 1 + size
            if len(order) == 1:
                total += weight * exp(-rate * start) / rate
            else:
                total += weight * (exp(-rate * start) - exp(-rate * begin)) / rate
                total += weight * exp(turn - (rate + 1) * begin) / (rate + 1)
    return total


def law(scores, k, *, factor=1.0, most=6):
    """The probability of each outcome with whole gaps below ``most``."""
    found = {}
    for order in permutations(range(len(scores)), k):
        for gaps in product(range(most), repeat=k):
            mass = 0.0
            for step in product((0, 1), repeat=k):
                ends = [g + s for g, s in zip(gaps, step, strict=True)]
                mass += (-1) ** sum(step) * above(scores, order, ends, factor=factor)
            found[order, gaps] = mass
    return found


def worst(base, k, changes, *, factor):
    """The largest log-ratio between a table of scores and those that one unit makes of it."""
    here, found = law(base, k, factor=factor), 0.0
    for change in changes:
        there = law([b + c for b, c in zip(base, change, strict=True)], k, factor=factor)
        found = max(found, *(abs(log(here[each] / there[each])) for each in here))
    return found


RISES = [c for c in product((0, 1), repeat=3) if any(c)]
BASES = ([0, 0, 0], [0, 1, 3], [4, 0, 0], [2, 2, -3])


@pytest.mark.parametrize("k", [1, 2])
def test_the_law_adds_up_to_one(k):
    rest = 1 - sum(law([1, 0, 2], k, factor=2, most=14).values())
    assert 0 <= rest < 1e-8


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("k", [1, 2])
def test_one_unit_of_monotone_scores_moves_no_outcome_by_more_than_the_price(base, k):
    noise = NoisyMax.for_epsilon(k, k=k, score_sensitivity=1, monotone=True)
    assert noise.event(Fraction(1)).epsilon == k
    assert worst(base, k, RISES, factor=1) <= k + 1e-9


@pytest.mark.parametrize("base", BASES)
def test_scores_that_move_both_ways_cost_twice(base):
    noise = NoisyMax.for_epsilon(2, k=1, score_sensitivity=1)
    assert (noise.factor, noise.event(Fraction(1)).epsilon) == (1, 2)
    changes = [c for c in product((-1, 0, 1), repeat=3) if any(c)]
    assert worst(base, 1, changes, factor=1) <= 2 + 1e-9


def test_the_price_is_reached():
    assert worst([4, 0, 0], 1, RISES, factor=1) > 0.99
    assert worst([9, 5, 0], 2, RISES, factor=1) > 1.95
    assert worst([4, 0, 0], 1, [(1, -1, -1)], factor=1) > 1.95


def test_a_copy_that_charges_less_is_caught():
    """Noise of four fifths the mean; the price of one gap for two; monotone for any scores."""
    assert worst([4, 0, 0], 1, RISES, factor=5 / 4) > 1.2
    assert worst([9, 5, 0], 2, RISES, factor=1) > 1
    assert worst([4, 0, 0], 1, [(1, -1, -1)], factor=1) > 1


def log_density(chosen, others, gaps):
    """Of these leaders at these gaps, by the formula of the proof: a polynomial, integrated."""
    ahead = np.cumsum(np.array(gaps)[::-1])[::-1]
    top = min(float((ahead - chosen).min()), float(-np.max(others)))  # ln w
    rest = np.polynomial.Polynomial([1.0])
    for score in others:  # in units of w, so that no coefficient is large
        rest *= np.polynomial.Polynomial([1.0, -exp(score + top)])
    k = len(chosen)
    inside = (-rest.deriv() * np.polynomial.Polynomial([0.0] * k + [1.0])).integ()
    return float((np.array(chosen) - ahead).sum() + k * top + log(inside(1.0) - inside(0.0)))


def test_the_density_of_the_proof_is_that_of_the_law():
    """With one other: the law's cells are integrals of it."""
    scores, step = [0.7, 0.0], 1e-4
    for gap in (0.1, 0.5, 1.5):
        cell = above(scores, (0,), (gap,)) - above(scores, (0,), (gap + step,))
        assert log(cell / step) == pytest.approx(log_density([0.7], [0.0], [gap]), abs=1e-3)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_no_rise_of_scores_moves_a_density_by_more_than_the_price(k):
    """Any gaps, any scores that each rise by at most 1, which are thousands of corners."""
    chance, furthest = np.random.default_rng(k), 0.0
    for _ in range(500):
        count = int(chance.integers(1, 6))
        scores = chance.normal(0, 3, k + count)
        rises = chance.integers(0, 2, k + count) * chance.choice([1.0, 0.5])
        gaps = chance.exponential(chance.choice([0.1, 1, 4]), k)
        here = log_density(scores[:k], scores[k:], gaps)
        there = log_density(scores[:k] + rises[:k], scores[k:] + rises[k:], gaps)
        furthest = max(furthest, abs(here - there))
    assert 0.9 * k < furthest <= k + 1e-6


def test_draws_follow_the_law():
    """4,000 draws; a cell is off by 6.5 standard deviations once in 10**10."""
    scores, factor, draws = [1, 0, 2], Fraction(1, 2), 4_000
    expected = law(scores, 1, factor=0.5, most=5)
    noise = NoisyMax(k=1, factor=factor)
    found = [tuple(noise.sample(np.array(scores)).tolist()) for _ in range(draws)]
    for ((place,), (gap,)), mass in expected.items():
        off = abs(found.count((place, gap)) - draws * mass)
        assert off <= 6.5 * (draws * mass * (1 - mass)) ** 0.5 + 4


def test_who_wins_is_permute_and_flip():
    scores = [3, 1, 0]
    winner = [above(scores, (i,), (0,), factor=0.5) for i in range(3)]
    lead = [exp(0.5 * (s - 3)) for s in scores]
    orders = list(permutations(range(3)))
    flipped = [0.0] * 3
    for order in orders:
        left = 1.0
        for at in order:
            flipped[at] += left * lead[at] / len(orders)
            left *= 1 - lead[at]
    assert winner == pytest.approx(flipped, abs=1e-12)
    assert PermuteAndFlip(factor=Fraction(1, 2)).sample(np.array([99, 0, 0])).tolist() == [0]


# what it is good for


def test_the_lead_is_within_its_error_as_often_as_stated():
    """1,000 draws at 99 %: more than 36 misses of 10 expected come once in 10**9."""
    scores = np.array([7, 5, 5, 0, 0, 0])
    noise = NoisyMax(k=1, factor=Fraction(1, 3))
    error, missed = noise.gap_error("0.99", candidates=6), 0
    for _ in range(1_000):
        place, gap = noise.sample(scores).tolist()
        lead = scores[place] - np.delete(scores, place).max()
        missed += not abs(gap - lead) <= error
    assert missed <= 36
    assert error <= 3 * log(6 / 0.01) + 2


def test_no_choice_falls_short_by_more_than_stated():
    """Exactly: one best, 49 others lower by one more than stated, each by its own noise alone."""
    for k in (1, 3):
        short = NoisyMax(k=k, factor=Fraction(1, 2)).shortfall("0.95", candidates=50)
        rivals = 49 if k == 1 else 50
        assert rivals * np.exp(-0.5 * (short + 1)) <= 0.05 < rivals * np.exp(-0.5 * short)
