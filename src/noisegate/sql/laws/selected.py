"""Intervals for counts that are shown because their noisy values are large.

>>> noise = Geometric(scale=Fraction(2))
>>> low, high = between(np.array([12, 30, 100]), at_least=10, noise=noise, failure=0.05)
>>> low.tolist(), high.tolist()
([0, 24, 94], [17, 36, 106])
"""

from collections.abc import Callable
from fractions import Fraction
from math import floor, log, sqrt
from typing import Final

import numpy as np

from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.sql.laws.laws import Floats, Noise
from noisegate.sql.laws.sampling import Chances, Sampling, Whole, first_above

_NEARLY: Final = 1 - 1e-8  # of what may fail: doubles may be off by the rest
_FAR: Final = 18.0  # standard deviations up to which weights are added up
_WIDE: Final = 1 << 15  # a standard deviation from which on whole steps do not matter


def between(
    values: Whole, *, at_least: int | Whole, noise: Noise, failure: float, signed: bool = False
) -> tuple[Whole, Whole]:
    """Where counts lie whose noisy values V are shown because V ≥ ``at_least``, which is above 0.

    With ``signed``, because |V| is. Counts are at least 0.

    Claim: given that it is shown, a count is outside with at most the chance ``failure``, whatever
        it is. So of all that are shown, at most that share is outside on average.
    Why: the interval holds each count under which what is shown is likely enough, among values that
        are shown [WFB13]. Of a count up to ``at_least``, V or more must have a chance above the
        failure; of a larger one, V or more, and V or less, above half of it. The noise is
        log-concave, so both chances are monotone in the count. With geometric noise all counts up
        to ``at_least`` have the same law of shown values: where 0 is likely enough, it is the lower
        end.
        Rounding: outwards, but for the last places of doubles.
    """
    cut, tail = np.broadcast_to(np.asarray(at_least, np.int64), values.shape), _tail_of(noise)

    def shown(count: Whole) -> Floats:
        above = tail(cut - count)
        return np.logaddexp(above, tail(cut + count)) if signed else above

    def at_or_above(count: Whole, value: Whole) -> Chances:
        found: Chances = np.exp(tail(np.maximum(value, cut) - count) - shown(count))
        if signed:
            below = np.exp(tail(count - value + 1) - shown(count))
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
    from noisegate.planning.calibrate import geometric_error  # noqa: PLC0415 - of samples only

    off = geometric_error(scale, confidence=1 - failure / 8)
    low, high = sampling.bounds((values - off) / p, (values + off) / p, float(failure / 8))
    return np.where(low > sure, low, 0.0), np.maximum(high, sure)


def clear_from(at_least: int, *, scale: Fraction, failure: Fraction) -> int:
    """The least shown value of which `between` says that there is a row.

    Why: of a count of 0 up to ``at_least``, a shown value is t or more with α^(t - at_least).
    """
    return at_least + floor(float(scale) * log(1 / (float(failure) * _NEARLY))) + 1


def _tail_of(noise: Noise) -> Callable[[Whole], Floats]:
    """The logarithm of Pr[Z ≥ start], for noise Z that is symmetric.

    Why: geometric noise has α^start / (1 + α) above 0. Weights of a discrete Gaussian are added up
        from the far end; where it is wide, or `_FAR` standard deviations away, it is the normal law
        up to 1e-8, or does not matter. Else it is 1 - Pr[Z ≥ 1 - start].
    """
    if isinstance(noise, Geometric):
        rate = 1 / float(noise.scale)

        def beyond(start: Whole) -> Floats:
            found: Floats = -rate * start - np.log1p(np.exp(-rate))
            return found

    else:
        sigma = sqrt(noise.variance)
        near = int(_FAR * sigma) + 2 if sigma < _WIDE else 1
        weights = np.exp(-((np.arange(2 * near) / sigma) ** 2) / 2)
        sums = np.log(np.cumsum(weights[::-1])[::-1][:near] / (2 * weights.sum() - 1))

        def beyond(start: Whole) -> Floats:
            from scipy.special import log_ndtr  # noqa: PLC0415 - only when asked for

            normal: Floats = log_ndtr((0.5 - start) / sigma)
            return np.where(start < near, sums[np.minimum(start, near - 1)], normal)

    def tail(start: Whole) -> Floats:
        found = beyond(np.where(start > 0, start, 1 - start))
        return np.where(start > 0, found, np.log1p(-np.exp(found)))

    return tail
