"""Coins: rational, irrational and one bias per lane; the fast filter never changes an outcome."""

from collections import Counter
from fractions import Fraction
from importlib import import_module

import mpmath
import numpy as np
import pytest
from bit_tree import (
    DIGITS,
    RecordingBits,
    ReplayedBits,
    ScriptedBits,
    as_fraction,
    exact_masses,
    mp,
)

from noisegate.noise.bits import SYSTEM
from noisegate.noise.coins import bernoulli_exp, falls_below, sample_rows
from noisegate.noise.law import Certified

# the module: its name in the package is the function
bernoulli_module = import_module("noisegate.noise.coins")
EXPONENTS = [Fraction(e) for e in ("0", "1/1000000", "1/3", "1", "5/2", "20", "43", "60")]


def exp_minus(exponent, digits=80):
    with mpmath.workdps(digits):
        return as_fraction(mpmath.exp(-mp(exponent)))


@pytest.mark.parametrize("p", ["0", "1", "1/2", "3/8", "1/3", "5/7", "1/1000"])
def test_comparing_bits_with_a_rational_gives_exactly_its_probability(p):
    masses, rest = exact_masses(
        lambda bits: falls_below(Fraction(p), bits.integer(3), 3, bits, more=3), max_bits=30
    )
    assert rest <= Fraction(2, 1 << 30)
    assert masses[True] <= Fraction(p) <= masses[True] + rest


@pytest.mark.parametrize("exponent", EXPONENTS[:6], ids=str)
def test_comparing_bits_with_an_exponential_gives_exactly_its_probability(exponent):
    chance = Certified.exp_minus(exponent)
    masses, rest = exact_masses(
        lambda bits: falls_below(chance, bits.integer(4), 4, bits, more=5), max_bits=34
    )
    true = exp_minus(exponent)
    assert rest <= Fraction(2, 1 << 34)
    assert masses[True] <= true + Fraction(1, 10**50)
    assert true <= masses[True] + rest + Fraction(1, 10**50)


def accepts(word, exponent, *, later=(), error=2.0**-38, off=0.0):
    rough = np.array([float(exponent) + off])
    bits = ScriptedBits([word, *later])
    accepted = bernoulli_exp(rough, lambda lane: exponent, error=error, bits=bits)
    return bool(accepted[0]), bits.words_used


@pytest.mark.parametrize("exponent", EXPONENTS[1:], ids=str)
@pytest.mark.parametrize("off", [0.0, 2.0**-38, -(2.0**-38)])
def test_the_filter_splits_the_words_exactly_at_the_probability(exponent, off):
    """Around the threshold, and at every distance up to far beyond the slack on both sides."""
    threshold = exp_minus(exponent) * 2**64
    floor = threshold.numerator // threshold.denominator
    for distance in [1, 2, 3, *(1 << j for j in range(2, 40))]:
        if floor - distance >= 0:
            assert accepts(floor - distance, exponent, off=off) == (True, 1)
        if floor + distance < 1 << 64:
            assert accepts(floor + distance, exponent, off=off) == (False, 1)
    below = int((threshold - floor) * 2**64)  # the next 64 bits of the probability
    assert accepts(floor, exponent, later=[below - 1], off=off) == (True, 2)
    assert accepts(floor, exponent, later=[below + 1], off=off) == (False, 2)


def test_an_exponent_of_zero_always_shows_one():
    for word in (0, 1, 1 << 63, (1 << 64) - 1):
        assert accepts(word, Fraction(0)) == (True, 1)


@pytest.mark.parametrize("exponent", [Fraction(700), Fraction(10**6), Fraction(10**30)])
def test_hopeless_lanes_are_refused_whatever_their_word(exponent):
    assert accepts(0, exponent, later=[1 << 63] * 20)[0] is False
    assert accepts(1, exponent, later=[1 << 63] * 20)[0] is False
    assert accepts(1 << 40, exponent) == (False, 1)


def test_a_rough_exponent_that_is_no_number_is_left_to_the_exact_path():
    rough, words = np.array([np.nan, np.nan]), [0, (1 << 64) - 1]
    out = bernoulli_exp(rough, lambda lane: Fraction(1), error=0.0, bits=ScriptedBits(words))
    assert out.tolist() == [True, False]


def test_without_the_filter_the_same_bits_give_the_same_coins(monkeypatch):
    exponents = [Fraction(j, 97) for j in range(3000)]
    rough = np.array([float(e) for e in exponents])
    recording = RecordingBits(SYSTEM)
    fast = bernoulli_exp(rough, exponents.__getitem__, error=2.0**-50, bits=recording)
    exact_lanes = []

    def exact(lane):
        exact_lanes.append(lane)
        return exponents[lane]

    monkeypatch.setattr(bernoulli_module, "_WORD_STEP", np.inf)
    slow = bernoulli_exp(rough, exact, error=2.0**-50, bits=ReplayedBits(recording.record))
    assert exact_lanes == list(range(3000))
    assert fast.tolist() == slow.tolist()


def test_floats_err_by_less_than_a_sixteenth_of_what_the_filter_allows():
    points = np.concatenate(
        [
            np.linspace(0, 45, 4000),
            np.exp2(np.linspace(-60, 9, 2000)),
            np.log(2) * np.arange(1, 1000) / 2,  # where exp's argument reduction changes sides
            np.nextafter(np.log(2) * (np.arange(1, 500) + 0.5), 0),
        ]
    )
    points = points[points < 700]
    with mpmath.workdps(DIGITS):
        true = [mpmath.exp(-mpmath.mpf(x)) for x in points.tolist()]
        worst = max(
            abs(mpmath.mpf(y) / t - 1) for y, t in zip(np.exp(-points).tolist(), true, strict=True)
        )
    assert worst <= bernoulli_module._EXP_ERROR / 16


def test_a_word_as_a_double_errs_by_less_than_the_filter_allows():
    words = np.array([2**64 - 1, 2**64 - 1024, 2**53 + 1, 2**63 + 1023, 3, 0], np.uint64)
    for word, u in zip(words.tolist(), (words * 2.0**-64).tolist(), strict=True):
        assert abs(Fraction(u) - Fraction(word, 1 << 64)) <= Fraction(word, 1 << 64) / 2**53


def test_row_samples_keep_each_row_with_its_own_coin():
    """All subsets of 3 rows, by a scripted sequence of gaps: mass p^|S| (1 - p)^(3 - |S|)."""
    p, count = Fraction(1, 3), 3
    masses = Counter()
    for gaps in [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]:
        weight, position, kept = Fraction(1), -1, []
        for gap in gaps:
            weight *= (1 - p) ** gap * p if gap < 3 else (1 - p) ** 3
            position += gap + 1
            if position < count:
                kept.append(position)
        masses[tuple(kept)] += weight
    for subset, mass in masses.items():
        assert mass == p ** len(subset) * (1 - p) ** (count - len(subset))
    assert len(masses) == 8


@pytest.mark.parametrize("count", [1, 2, 1000, 1 << 40, 1 << 55, (1 << 62) - 1])
@pytest.mark.parametrize("kept_on_average", [0, 1, 20])
def test_row_samples_are_rising_positions_inside_the_table(count, kept_on_average):
    rows = sample_rows(count, min(Fraction(1), Fraction(kept_on_average, count)))
    assert (np.diff(rows) > 0).all()
    assert rows.size == 0 or (rows[0] >= 0 and rows[-1] < count)
    assert rows.size <= min(count, 120)  # 20 expected: above 120 with probability below 1e-40


@pytest.mark.parametrize("p", ["1e-20", "1e-60", "1e-400"])
def test_a_tiny_probability_keeps_nothing_and_does_so_at_once(p):
    assert sample_rows(10, p).size == 0


def test_a_sample_of_everything_keeps_every_row():
    assert sample_rows(100_000, 1).tolist() == list(range(100_000))
