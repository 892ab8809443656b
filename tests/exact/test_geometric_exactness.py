"""The digit decomposition gives the two-sided geometric law exactly, for any rational ratio."""

from collections import Counter
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from bit_tree import ScriptedBits, assert_masses_match, exact_masses

from noisegate.noise.cut_geometric import geometric_tail, truncated_geometric
from noisegate.noise.geometric import (
    Digit,
    Ratio,
    Top,
    combine,
    digit_plan,
    discrete_laplace,
)
from noisegate.noise.law import SATURATION
from noisegate.noise.table import Table, Widths

ALPHAS = [Fraction(1, 2), Fraction(2, 3), Fraction(9, 10), Fraction(1, 1000)]


def two_sided_mass(alpha, k):
    return (1 - alpha) / (1 + alpha) * alpha ** abs(k)


def digit_mass(alpha, digit, r):
    """The slow twin of `Digit`: normalise the weights themselves."""
    weights = [alpha ** (digit.unit * j) for j in range(1 << digit.bits)]
    return weights[r] / sum(weights)


def top_mass(alpha, top, k):
    """The slow twin of `Top`: a sign coin with odds α to 1, then a run of successes."""
    run = k if k >= 0 else -1 - k
    sign = (Fraction(1) if k >= 0 else alpha) / (1 + alpha) if top.signed else Fraction(k >= 0)
    return sign * (1 - alpha**top.unit) * alpha ** (top.unit * run)


def plan_with(*widths):
    """A plan as `digit_plan` makes it, highest digit first, but with the widths of the test."""
    left, digits, ratio = sum(widths), [], Ratio(coin=Fraction(1, 2))
    for width in widths:
        left -= width
        digits.append(Digit(ratio, 1 << left, width))
    return Top(ratio, 1 << sum(widths), signed=True), digits


def put_together(top, digits):
    columns = [(width, np.array([value], np.int16)) for width, value in digits]
    return int(combine(np.array([top], np.int16), columns)[0])


@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
@pytest.mark.parametrize("widths", [(), (1,), (3,), (1, 2), (2, 1), (2, 2, 1)], ids=str)
def test_digits_under_a_signed_top_have_exactly_the_two_sided_geometric_law(alpha, widths):
    top, digits = plan_with(*widths)
    masses = Counter()
    for lead in range(-3, 3):
        for values in product(*(range(1 << width) for width in widths)):
            weight = top_mass(alpha, top, lead)
            for digit, value in zip(digits, values, strict=True):
                weight *= digit_mass(alpha, digit, value)
            masses[put_together(lead, list(zip(widths, values, strict=True)))] += weight
    base = 1 << sum(widths)
    assert sorted(masses) == list(range(-3 * base, 3 * base))
    assert all(mass == two_sided_mass(alpha, k) for k, mass in masses.items())


@pytest.mark.parametrize(
    "scale", ["1/1000", "4", "4.001", "5", "1000", "1025", "1048576", str(2**50)]
)
@pytest.mark.parametrize("signed", [True, False])
def test_a_plan_covers_every_bit_once_and_leaves_a_small_top(scale, signed):
    top, digits = digit_plan(Ratio(scale=Fraction(scale)), signed=signed)
    covered = [(digit.unit, digit.unit << digit.bits) for digit in digits]
    ends = [top.unit, *(low for low, _ in covered)]
    assert all(high == above for (_, high), above in zip(covered, ends, strict=False))
    assert ends[-1] == 1
    assert Fraction(scale) / top.unit <= 4
    assert all(digit.bits <= 8 for digit in digits)


def test_a_plan_of_six_digits_puts_each_digit_in_its_place():
    top, digits = digit_plan(Ratio(scale=Fraction(1 << 40)), signed=True)
    for place, digit in enumerate(digits):
        values = [int(here == place) for here in range(len(digits))]
        columns = list(zip((d.bits for d in digits), values, strict=True))
        assert put_together(0, columns) == digit.unit
        assert put_together(-1, columns) == -1 - digit.unit
        assert put_together(-2, columns) == -1 - top.unit - digit.unit


@pytest.mark.parametrize("dtype", [np.int16, np.int64])
@pytest.mark.parametrize("digit_dtype", [np.int16, np.int64])
def test_flipping_bits_is_minus_one_minus_in_every_type(dtype, digit_dtype):
    tops, lows = np.arange(-40, 40, dtype=dtype), np.arange(80, dtype=digit_dtype)
    expected = [
        t * 128 + low if t >= 0 else -1 - ((-1 - t) * 128 + low)
        for t, low in zip(tops.tolist(), lows.tolist(), strict=True)
    ]
    assert combine(tops, [(7, lows)]).tolist() == expected


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("coin", ["1e-12", "1e-18", "1e-30", "1e-400"])
def test_a_tiny_coin_has_a_plan_whose_top_stops_at_its_limit_and_never_wraps(coin, signed):
    top, digits = digit_plan(Ratio(coin=Fraction(coin)), signed=signed)
    ones = [(d.bits, np.array([(1 << d.bits) - 1, 0])) for d in digits]
    highest = combine(np.array([top.limit, top.limit]), ones).tolist()
    lowest = combine(np.array([-top.limit, -top.limit]), ones).tolist()
    assert all(SATURATION <= value < 2 * SATURATION for value in highest)
    assert all(-SATURATION <= value < 0 for value in lowest)
    assert top.cdf(top.limit, 64) == (1 << 64, 1 << 64)
    if signed:
        assert top.cdf(-top.limit - 1, 64) == (0, 0)


@pytest.mark.parametrize("coin", ["1/3", "1e-12", "1e-30"])
def test_a_capped_top_collects_its_tail_at_the_limit(coin):
    """Below the limit the tail of H is α^(unit · (k + 1)); at the limit nothing is left."""
    top, _ = digit_plan(Ratio(coin=Fraction(coin)), signed=False)
    with mpmath.workdps(60):
        alpha_log = mpmath.log1p(-mpmath.mpf(Fraction(coin).numerator) / Fraction(coin).denominator)
        for k in (0, 1, min(5, top.limit - 1)):
            low, high = top.cdf(k, 80)
            true = (1 - mpmath.exp(alpha_log * top.unit * (k + 1))) * 2**80
            assert low <= true <= high


@pytest.mark.parametrize("by_cells", [False, True], ids=["search", "cells"])
def test_the_whole_draw_from_bits_to_integer_has_the_law(by_cells):
    """Bits → tables → digits → integer in one tree, with α = 3/4 by the coin 1/4."""
    ratio, widths = Ratio(coin=Fraction(1, 4)), Widths(first=3, key=5, more=4)
    top, digit = Table(Top(ratio, 2, signed=True), widths), Table(Digit(ratio, 1, 1), widths)
    if by_cells:
        top._fill()
        digit._fill()

    def draw(bits):
        return int(combine(top.sample(1, bits), [(1, digit.sample(1, bits))])[0])

    masses, rest = exact_masses(draw, max_bits=14)
    assert rest < Fraction(1, 16)
    assert_masses_match(masses, rest, lambda k: two_sided_mass(Fraction(3, 4), k))


def test_the_slow_twin_by_coins_has_the_same_law_as_the_digits():
    """Z by α-coins alone: a sign with odds α to 1, then successes until the first failure."""
    alpha, flips_max = Fraction(1, 7), 9
    masses, rest = Counter(), Fraction(0)
    for negative in (False, True):
        weight = (alpha if negative else 1) / (1 + alpha)
        for run in range(flips_max):
            masses[-1 - run if negative else run] += weight * alpha**run * (1 - alpha)
        rest += weight * alpha**flips_max
    assert sum(masses.values()) + rest == 1
    top, digits = plan_with(2)
    for k, mass in masses.items():
        lead, low = divmod(
            k, 4
        )  # in two's complement the low bits of a negative number are flipped
        digit = low if k >= 0 else 3 - low
        assert mass == top_mass(alpha, top, lead) * digit_mass(alpha, digits[0], digit)
        assert mass == two_sided_mass(alpha, k)


def test_the_clamped_ends_collect_exactly_the_tails():
    alpha, top = Fraction(2, 5), 6
    for n in range(top + 1):
        ends = [alpha**n / (1 + alpha), alpha ** (top - n) / (1 + alpha)]
        inner = sum(two_sided_mass(alpha, m - n) for m in range(1, top))
        assert sum(ends) + inner == 1


def test_clamping_follows_the_noise_bit_by_bit():
    values = np.array([0, 3, 10])
    for word in (0x123456789AB, 0x123456789ABCDEF, 0x8123456789ABCDEF, 0xFFFFFF123456789A):
        script = [word] * 3
        noise = discrete_laplace(2, 3, bits=ScriptedBits(script))
        clamped = truncated_geometric(values, 2, top=10, bits=ScriptedBits(script))
        assert clamped.tolist() == [
            min(10, max(0, v + z)) for v, z in zip(values, noise, strict=True)
        ]


def test_the_tail_law_starts_at_its_threshold():
    assert geometric_tail(7, "1/1000", 50).tolist() == [7] * 50
    assert geometric_tail(0, 3, 1000).min() == 0
