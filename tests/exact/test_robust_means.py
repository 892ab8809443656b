"""Trimmed means and Huber's estimates: reaches against brute force over all neighbours."""

from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest

from noisegate.mechanisms.smooth import estimators
from noisegate.mechanisms.smooth.estimators import huber_reaches, trimmed_reaches
from noisegate.mechanisms.smooth.propose import ProposeTestRelease

TOP, SIZE = 6, 6
VALUES = (0, 1, 3, 6)
TABLES = [x for n in range(SIZE + 1) for x in combinations_with_replacement(VALUES, n)]
PAIRS = [
    (small, tuple(sorted((*small, more))))
    for small in TABLES
    if len(small) < SIZE
    for more in VALUES
]
DEEP = ProposeTestRelease(bound=1, test_scale=1, threshold=30, scale=1, low=0, high=TOP)
KINDS = {
    "trim 1/5": lambda x: trimmed_reaches(x, Fraction(1, 5), DEEP),
    "trim 1/4": lambda x: trimmed_reaches(x, Fraction(1, 4), DEEP),
    "trim 2/5": lambda x: trimmed_reaches(x, Fraction(2, 5), DEEP),
    "clip 1": lambda x: huber_reaches(x, 1, DEEP),
    "clip 2": lambda x: huber_reaches(x, 2, DEEP),
    "clip 9": lambda x: huber_reaches(x, 9, DEEP),
}


def reaches_of(kind):
    @cache
    def found(table):
        value, reaches = kind(np.array(table, np.int64))
        return value, [min(TOP, each) for each in reaches] + [TOP] * (SIZE + 2 - len(reaches))

    return found


def violations(found):
    """Neighbours whose move exceeds a reach, or whose reaches are not nested."""
    for one, other in PAIRS:
        (a, here), (b, there) = found(one), found(other)
        nested = all(here[k] <= there[k + 1] and there[k] <= here[k + 1] for k in range(SIZE))
        if abs(a - b) > min(here[0], there[0]) or not nested:
            yield one, other


@pytest.mark.parametrize("kind", KINDS)
def test_one_value_moves_a_robust_mean_by_no_more_than_the_reach_and_reaches_are_nested(kind):
    assert list(violations(reaches_of(KINDS[kind]))) == []


@pytest.mark.parametrize("kind", ["trim", "clip"])
def test_values_far_from_zero_add_up_without_wrapping(kind):
    """64 values of 2**57 and more would wrap a sum at 2**63: one row moved it over the range."""
    low = 1 << 57
    noise = ProposeTestRelease(bound=1, test_scale=1, threshold=5, scale=1, low=low, high=low + 999)
    for count in (63, 64, 200):
        values = np.full(count, low + 500)
        found = (
            trimmed_reaches(values, Fraction(1, 100), noise)
            if kind == "trim"
            else huber_reaches(values, 5, noise)
        )
        assert found[0] == low + 500


@pytest.mark.parametrize("trim", [Fraction(1, 5), Fraction(1, 4), Fraction(2, 5)])
def test_a_trimmed_mean_is_that_of_the_middle(trim):
    for table in TABLES:
        cut = int(trim * len(table))
        middle = table[cut : len(table) - cut]
        assert reaches_of(KINDS["trim 1/5"] if trim == Fraction(1, 5) else
                          lambda x: trimmed_reaches(x, trim, DEEP))(table)[0] == (
            sum(middle) // len(middle) if middle else 0
        )  # fmt: skip


@pytest.mark.parametrize("clip", [1, 2, 9])
def test_hubers_estimate_is_where_pulls_balance(clip):
    for table in TABLES:
        pulls = [sum(max(-clip, min(clip, x - g)) for x in table) for g in range(TOP + 1)]
        balanced = next((g for g, pull in enumerate(pulls) if pull <= 0), TOP)
        assert huber_reaches(np.array(table, np.int64), clip, DEEP)[0] == balanced


def test_a_window_that_does_not_grow_is_caught(monkeypatch):
    """The broken copies: W_0 for all k, and a denominator that forgets the value that goes."""

    def still(values, trim, noise):
        value, reaches = trimmed_reaches(values, trim, noise)
        return value, reaches[:1] * len(reaches)

    assert list(violations(reaches_of(lambda x: still(x, Fraction(1, 4), DEEP))))
    plain = estimators._least
    monkeypatch.setattr(  # as if a value could pull by half of the clip only
        estimators,
        "_least",
        lambda held, clip, levels, noise: plain(held, clip, levels // 2, noise),
    )
    assert list(violations(reaches_of(KINDS["clip 2"])))
