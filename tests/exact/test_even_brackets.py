"""Even brackets: how often they fail where gaps are alike, and at 0.999 whatever the values are.

Laws are added up pair by pair: nothing is sampled.
"""

from itertools import pairwise
from math import log

import numpy as np
import pytest
from test_brackets import LEVELS, failures, hard_tables, law

from noisegate.mechanisms.quantiles.brackets import (
    _LONGER,
    FIRST,
    LADDER,
    MORE,
    ROOM,
    EvenBrackets,
)

CLAIMED = dict(zip(LADDER, (0.0215, 0.0075, 0.0009), strict=True))


def even_law(phase, radii=88):
    """Ranks of radii a side, rank errors, and the chance of each pair: in 1 / factor, many values.

    Radius j holds 2^((j + phase) / 4) times the first rung; rank errors are cut into fine steps.
    """
    rungs = [float(FIRST + place * MORE) for place in range(8)] + [log(1000 * radii)]
    places = np.arange(-64, 24 + len(rungs))
    held = rungs[0] * 2 ** ((places + phase) / 4)
    errors = (np.arange(1200) + 0.5) / 75
    count = places.size - len(rungs)
    least = np.min([held[i : i + count] - rung for i, rung in enumerate(rungs)], axis=0)
    safe = least[:, None] - errors
    over = np.vstack([np.full((1, errors.size), -1e9), safe[:-1]]) - float(ROOM)
    odds = np.exp(-np.maximum(np.maximum(errors, -safe), over))
    return held[:count], errors, odds / odds.sum()


@pytest.mark.parametrize("phase", np.arange(8) / 8)
def test_where_gaps_are_alike_they_fail_as_often_as_is_said(phase):
    held, errors, chances = even_law(phase)
    for failure, more in zip(LADDER, EvenBrackets.further, strict=True):
        missed = chances[errors > held[:, None] * 2 ** (more / 4)].sum()
        assert missed <= CLAIMED[failure] <= failure
    assert chances[errors > held[:, None] / 2].sum() > LADDER[0]  # half the width is caught


def test_the_interval_is_about_five_times_the_median_error():
    """The ratio of a Laplace law is 4.3; that of brackets that hold for any values is 10."""
    held, errors, chances = even_law(0.5)
    radius = held[np.searchsorted(np.cumsum(chances.sum(axis=1)), 0.5)]
    error = errors[np.searchsorted(np.cumsum(chances.sum(axis=0)), 0.5)]
    assert 4.5 < radius / error < 5.3


@pytest.mark.parametrize("tau", LEVELS)
@pytest.mark.parametrize("epsilon", [2, 12])
def test_of_even_values_the_mechanism_fails_as_often(tau, epsilon):
    mechanism = EvenBrackets.for_epsilon(epsilon, taus=(tau,), low=0, high=1500)
    values = range(3, 1500, 5)
    of = law(mechanism, values)
    for confidence in (0.95, 0.99, 0.999):
        assert max(failures(mechanism, values, confidence, of=of)) <= 1 - confidence


@pytest.mark.parametrize("tau", LEVELS)
@pytest.mark.parametrize("epsilon", ["1/2", 2, 8, 60])
def test_the_widest_hold_whatever_the_values_are(tau, epsilon):
    mechanism = EvenBrackets.for_epsilon(epsilon, taus=(tau,), low=-3, high=98)
    for data in hard_tables(102):
        moved = [x - 3 for x in data]
        assert max(failures(mechanism, moved, 0.999)) <= 0.001 + 1e-12


def test_rungs_grow_with_their_places():
    mechanism = EvenBrackets.for_epsilon("1/3", taus=("1/2",), low=0, high=1 << 24)
    (rungs,) = mechanism.rungs
    assert rungs[:2] == (9, 12)
    exact = 3 * log(1000 * mechanism.radii.size)
    assert exact <= rungs[-1] - 1 < exact + 1
    assert mechanism.rooms == (3,)
    steps = [after / before for before, after in pairwise(mechanism.radii.tolist()) if before > 20]
    assert max(steps) < 1.25
    assert mechanism.radii.size < 100


@pytest.mark.parametrize("bits", [20, 51, 58])
def test_ends_of_wide_grids_are_those_of_whole_numbers(bits):
    """Products of a radius and 4096 once wrapped 64 bits, from grids of 2**51 on."""
    wide = EvenBrackets.for_epsilon(1, taus=("1/2",), low=0, high=(1 << bits) - 1)
    places = np.arange(wide.radii.size)
    for rung, longer in enumerate(_LONGER):
        exact = [
            max(-(-radius * longer // 1024), radius - (-rung // 4))
            for radius in map(int, wide.radii)
        ]
        assert wide._end(places, rung).tolist() == exact
