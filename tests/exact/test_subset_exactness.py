"""Chosen places: every set of the asked size weighs the same, over all paths of bits."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from bit_tree import ScriptedBits, exact_masses

from noisegate.errors import SpecError
from noisegate.noise.uniform import subset


@pytest.mark.parametrize(
    ("bound", "count", "bits"),
    [(1, 0, 4), (1, 1, 4), (2, 1, 4), (4, 2, 14), (5, 2, 15), (5, 3, 15), (8, 2, 15), (3, 3, 4)],
)
def test_all_sets_are_equally_likely(bound, count, bits):
    masses, rest = exact_masses(
        lambda b: tuple(subset(bound, count, bits=b).tolist()), max_bits=bits
    )
    assert sorted(masses) == sorted(combinations(range(bound), count))
    assert len(set(masses.values())) == 1
    assert rest < Fraction(1, 4)


def test_a_repeated_place_is_drawn_again_and_the_largest_bound_is_kept():
    top = (1 << 64) - 1
    found = subset(1 << 64, 3, bits=ScriptedBits([top, 5, top, 5, 0]))
    assert found.tolist() == [0, 5, top]
    assert found.dtype == np.uint64
    assert subset(top, 1, bits=ScriptedBits([top, 7])).tolist() == [7]  # at the bound: redrawn


@pytest.mark.parametrize(("bound", "count"), [(3, 4), (-1, 0), ((1 << 64) + 1, 1), (5, 1.5)])
def test_what_cannot_be_chosen_is_refused(bound, count):
    with pytest.raises(SpecError):
        subset(bound, count)
