"""Intervals for counts that are shown because their noisy values are large.

>>> low, high = between(np.array([12, 30, 100]), at_least=10, scale=Fraction(2), failure=0.05)
>>> low.tolist(), high.tolist()
([0, 24, 94], [17, 36, 106])
"""

from fractions import Fraction
from math import floor, log, sqrt
from typing import Final

import numpy as np

from noisegate.accounting.calibrate import geometric_error
from noisegate.query.estimates.counted import Chances, Whole, first_above
from noisegate.query.estimates.laws import Floats
from noisegate.query.estimates.sampling import Sampling

_NEARLY: Final = 1 - 1e-9  # of what may fail: doubles may be off by the rest


def between(
    values: Whole, *, at_least: int | Whole, scale: Fraction, failure: float, signed: bool = False
) -> tuple[Whole, Whole]:
    """Where counts lie whose noisy values V are shown because V ≥ ``at_least``, which is above 0.

    With ``signed``, because |V| is. The noise is two-sided geometric; counts are at least 0.

    Claim: given that it is shown, a count is outside with at most the chance ``failure``, whatever
        it is. So of all that are shown, at most that share is outside on average.
    Why: the interval holds each count under which what is shown is likely enough, among values that
        are shown [WFB13]. Of a count up to ``at_least``, V or more must have a chance above the
        failure; of a larger one, V or more, and V or less, above half of it. The noise is
        log-concave, so both chances are monotone in the count. Up to ``at_least``, all counts have
        the same law of shown values: where 0 is likely enough, it is the lower end.
        Rounding: outwards, but for the last places of doubles.
    """
    cut, rate = np.broadcast_to(np.asarray(at_least, np.int64), values.shape), 1 / float(scale)

    def shown(count: Whole) -> Floats:
        above = _tail(cut - count, rate)
        return np.logaddexp(above, _tail(cut + count, rate)) if signed else above

    def at_or_above(count: Whole, value: Whole) -> Chances:
        found: Chances = np.exp(_tail(np.maximum(value, cut) - count, rate) - shown(count))
        if signed:
            below = np.exp(_tail(count - value + 1, rate) - shown(count))
            found = np.where(value > 0, found, 1 - below)
        return found

    whole = failure * _NEARLY
    few = first_above(
        np.full_like(values, -1), lambda c: (at_or_above(c, values) > whole) | (c > cut)
    )
    many = first_above(cut, lambda c: at_or_above(c, values) > whole / 2)
    low = np.where(few <= cut, few, many)
    high = first_above(cut, lambda c: 1 - at_or_above(c, values + 1) <= whole / 2) - 1
    return low, np.maximum(low, high)


def between_all(
    values: Whole, *, at_least: int | Whole, scale: Fraction, failure: Fraction, sampling: Sampling
) -> tuple[Floats, Floats]:
    """The same of a secret sample of units: where the counts of all units lie.

    Claim: as `between`. Why: if a count is so large that in the sample it is ``at_least`` or more
        by its standard deviation w, it is so with a chance of 1/2 or more, by Cantelli's
        inequality, and then is shown with 1/2 or more. So bounds that fail with a quarter of the
        failure, shown or not, fail with at most the failure among those shown. No smaller count is
        left out.
    """
    p, reach = float(sampling.probability), float(sampling.reach)
    spread = sqrt(reach * (1 - p))
    sure = ((spread + np.sqrt(spread**2 + 4 * np.asarray(at_least))) / 2) ** 2 / p
    off = geometric_error(scale, confidence=1 - failure / 8)
    low, high = sampling.bounds((values - off) / p, (values + off) / p, float(failure / 8))
    return np.where(low > sure, low, 0.0), np.maximum(high, sure)


def clear_from(at_least: int, *, scale: Fraction, failure: Fraction) -> int:
    """The least shown value of which `between` says that there is a row.

    Why: of a count of 0 up to ``at_least``, a shown value is t or more with α^(t - at_least).
    """
    return at_least + floor(float(scale) * log(1 / (float(failure) * _NEARLY))) + 1


def _tail(start: Whole, rate: float) -> Floats:
    """The logarithm of Pr[Z ≥ start]: α^start / (1 + α) above 0, else 1 - Pr[Z ≥ 1 - start]."""
    beyond = -rate * np.where(start > 0, start, 1 - start) - np.log1p(np.exp(-rate))
    found: Floats = np.where(start > 0, beyond, np.log1p(-np.exp(beyond)))
    return found
