"""How many people there are, if so many of a sample were counted.

>>> bounds = between(np.array([40]), Fraction(1, 10), 0.05)
>>> [int(each[0]) for each in bounds]
[292, 537]
"""

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Whole: TypeAlias = NDArray[np.int64]
Chances: TypeAlias = NDArray[np.float64]


def between(sampled: Whole, p: Fraction, failure: float) -> tuple[Whole, Whole]:
    """Bounds on the number of people, from how many of them are in the sample.

    Claim: outside with at most the chance ``failure``, whatever the number of people is. Why: of N
        people y are sampled with a binomial chance; a number N is left out if y or more, or y or
        less, had a chance of at most half of that. Rounding: to the last place of doubles.
    """
    return least(sampled, p, failure / 2), most(sampled, p, failure / 2)


def least(sampled: Whole, p: Fraction, failure: float) -> Whole:
    """The smallest N with Pr[y or more] above the failure."""
    low = np.maximum(sampled - 1, -1)  # where y is 0, N = 0 is not left out
    return first_above(low, lambda people: _at_least(sampled, people, float(p)) > failure)


def most(sampled: Whole, p: Fraction, failure: float) -> Whole:
    """The largest N with Pr[y or less] above the failure."""
    return first_above(sampled, lambda people: _at_most(sampled, people, float(p)) <= failure) - 1


def first_above(low: Whole, holds: Callable[[Whole], NDArray[np.bool_]]) -> Whole:
    """The first number above ``low`` at which something holds that goes on holding."""
    step = np.ones_like(low)
    high = low + step
    while not (found := holds(high)).all():
        low = np.where(found, low, high)
        step = np.where(found, step, step * 2)
        high = np.where(found, high, low + step)
    while (high - low > 1).any():
        middle = (low + high) // 2
        found = holds(middle) & (high - low > 1)
        low = np.where(found | (high - low <= 1), low, middle)
        high = np.where(found, middle, high)
    return high


def _at_most(sampled: Whole, people: Whole, p: float) -> Chances:
    from scipy.special import bdtr  # noqa: PLC0415 - only when asked for

    found: Chances = np.where(sampled >= people, 1.0, bdtr(sampled, np.maximum(people, 1), p))
    return found


def _at_least(sampled: Whole, people: Whole, p: float) -> Chances:
    from scipy.special import bdtrc  # noqa: PLC0415 - only when asked for

    above: Chances = bdtrc(np.maximum(sampled - 1, 0), np.maximum(people, 1), p)
    return np.where(sampled <= 0, 1.0, np.where(people < sampled, 0.0, above))
