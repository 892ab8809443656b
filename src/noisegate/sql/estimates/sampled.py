"""Bars of counts and sums of a sample, about all units."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from noisegate.sql.drafts.recipe import Mean
from noisegate.sql.laws.intervals import Interval
from noisegate.sql.laws.known import Bars
from noisegate.sql.laws.sampling import Sampling


def sampled_bars(bars: Bars, sampling: Sampling) -> Bars:
    """Bars about all units: half of the failure is for the noise, and half for sampling."""

    def wider(confidence: Fraction) -> Interval:
        failure = (1 - confidence) / 2
        inner = bars(1 - failure)
        low, high = sampling.bounds(inner.low, inner.high, float(failure))
        return Interval(np.minimum(low, inner.low), np.maximum(high, inner.high))

    return wider


def summed_bars(bars: Bars, rows: Bars, sampling: Sampling, mean: Mean) -> Bars:
    """Bars of a sum about all units, from those of the sample and of its rows.

    Why: values from 0 on tell themselves how far they may be off. Else, with M the largest size of
        a value and w what a unit's rows weigh, a unit adds at most w M, and Σ aᵢ² ≤ w M Σ |aᵢ| ≤
        w M² n for n rows in all.
    """
    if mean.low >= 0:
        reach = sampling.reach * mean.high
        return sampled_bars(bars, replace(sampling, reach=reach, ones=False))
    size, weight = float(max(abs(mean.low), abs(mean.high))), float(sampling.reach)

    def wider(confidence: Fraction) -> Interval:
        failure = (1 - confidence) / 2
        inner, part = bars(1 - failure), failure / 3
        held = rows(1 - part)
        most = sampling.bounds(held.low, held.high, float(part))[1]
        off = sampling.strays(weight * size**2 * most, weight * size, float(part))
        return Interval(inner.low - off, inner.high + off)

    return wider
