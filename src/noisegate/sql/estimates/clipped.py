"""What values beyond found bounds may add to sums and averages, by the look that found the bounds.

The look counts values by sign and binary digits, and bounds hold the bins that stand clear of
noise. What lies beyond is moved to the bounds. How much that loses is what a cap loses of units:
sizes are those of values, and the model is that of `tails.py`. Values between 0 and bounds that do
not reach it are raised instead, by less than the bound each: as many as noise hides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.sql.estimates.tails import Loss, Sizes
from noisegate.sql.laws.intervals import Interval
from noisegate.sql.laws.known import Bars
from noisegate.sql.laws.laws import Floats

Whole: TypeAlias = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clipped:
    """What bounds lose of values of ``rows`` that add up to ``kept``, all taken as positive.

    ``beyond`` are losses above and below; ``inner`` is the noise of the look times the bound that
    lies next to 0.
    """

    kept: float
    rows: float
    beyond: tuple[Loss, ...]
    inner: float
    is_signed: bool

    def off(self, sums: Floats, rows: Floats | None, confidence: Fraction) -> Floats:
        """How far off sums over groups may be, which hold all values together.

        Why: what the look lost is to its rows as what is lost is to all ``rows``. Where these are
            not known, it is to what the look kept as what is lost is to the sums; if values have
            either sign these tell less, and a row of the look is one at least.
        """
        size = np.abs(sums)
        total = max(float(size.sum()), 1e-300)
        share, unit = size / total, total / self.kept
        if rows is not None:
            share, unit = rows / rows.sum(), float(rows.sum()) / self.rows
        elif self.is_signed:
            share, unit = np.full(size.shape, 1 / size.size), max(unit, 1.0)
        found: Floats = share * self.inner * log(1 / float(1 - confidence))
        for loss in self.beyond:
            found = np.hypot(found, loss.most(share, confidence))
        return found * unit

    def wider(self, values: NDArray[Any], rows: Floats | None, bars: Bars) -> Bars:
        """Bars of sums, or of averages over ``rows``, of values that were not moved."""
        centre = values.astype(np.float64)
        each = np.ones(centre.shape) if rows is None else rows

        def around(confidence: Fraction) -> Interval:
            inner, off = bars(confidence), self.off(centre * each, rows, confidence) / each
            at = np.clip(centre, inner.low, inner.high)
            return Interval(at - np.hypot(at - inner.low, off), at + np.hypot(inner.high - at, off))

        return around


def clipped_of(
    values: Sequence[int], scale: float, low: Fraction, high: Fraction, *, digits: int
) -> Clipped:
    """By a look at values with up to so many ``digits`` before and after the point."""
    counts = np.array(values, np.int64)
    zero = counts.size // 2
    sides = (
        (Sizes(side, scale, *_bins(side.size, digits)), max(float(end), 0.0))
        for side, end in ((counts[zero + 1 :], high), (counts[:zero][::-1], -low))
    )
    found = [(sizes, sizes.loss(end)) for sizes, end in sides]
    nearest = max(float(low), -float(high), 0.0)
    return Clipped(
        kept=max(sum(sizes.total - loss.lost for sizes, loss in found), scale * nearest, 1e-300),
        rows=max(float(counts.sum()), scale),
        beyond=tuple(loss for _, loss in found),
        inner=scale * nearest,
        is_signed=low < 0 < high,
    )


def _bins(count: int, digits: int) -> tuple[Floats, Floats]:
    lows: Floats = 2.0 ** (np.arange(count, dtype=np.float64) - digits)
    return lows, 2 * lows
