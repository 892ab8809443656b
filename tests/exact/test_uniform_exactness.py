"""Uniform integers: every word is kept or redrawn, and all outcomes weigh the same."""

from fractions import Fraction

import pytest
from bit_tree import ScriptedBits, exact_masses

from noisegate.noise.uniform import uniform_below


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 6, 7, 8, 12, 16])
def test_all_outcomes_are_equally_likely(bound):
    width = (bound - 1).bit_length()
    masses, rest = exact_masses(
        lambda bits: int(uniform_below(bound, 1, bits=bits)[0]), max_bits=4 * max(width, 1)
    )
    assert sorted(masses) == list(range(bound))
    assert len(set(masses.values())) == 1
    assert rest == (1 - Fraction(bound, 1 << width)) ** 4
    assert masses[0] == (1 - rest) / bound


def test_two_lanes_are_independent_even_when_one_is_redrawn():
    masses, rest = exact_masses(
        lambda bits: tuple(uniform_below(3, 2, bits=bits).tolist()), max_bits=14
    )
    assert len(masses) == 9
    assert len(set(masses.values())) == 1
    assert rest < Fraction(1, 100)


@pytest.mark.parametrize("bound", [(1 << 63) - 1, 1 << 63, (1 << 62) + 1])
def test_the_largest_bounds_keep_words_below_and_redraw_the_others(bound):
    width = (bound - 1).bit_length()
    too_large = [bound] if bound < 1 << width else []
    script = [*too_large, bound - 1]
    assert uniform_below(bound, 1, bits=ScriptedBits(script)).tolist() == [bound - 1]
    assert uniform_below(bound, 1, bits=ScriptedBits([0])).tolist() == [0]
