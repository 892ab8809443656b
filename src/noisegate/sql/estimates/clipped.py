"""What bounds lose that were found: values beyond are moved to them.

The look that found the bounds counts values by sign and size. How much what lies beyond
adds is what a cap loses of units: sizes are those of values, or of their squares, and the model is
that of `tails.py`.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from math import hypot, inf, log
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.sql.drafts.recipe import VARIANCES, Recipe
from noisegate.sql.estimates.bounded import Loss
from noisegate.sql.estimates.tails import Model, Sizes
from noisegate.sql.laws.known import Bars
from noisegate.sql.laws.laws import Floats, Interval
from noisegate.sql.question import Function

_USUALLY: Final = 0.95  # of all draws of what a bound loses, and of noise
_LAPLACE: Final = 2.12  # standard deviations of Laplace noise that hold as many


@final
class Side:
    """How many values of one sign there are by size: in bins up to ``highs``, none beyond."""

    def __init__(self, counts: Floats, scale: float, highs: Floats, *, is_ended: bool) -> None:
        self._counts, self._scale, self._highs, self._is_ended = counts, scale, highs, is_ended
        self._lows: Floats = np.concatenate([[0.0], highs[:-1]])[: highs.size]
        self.top = float(highs[-1]) if highs.size else 0.0

    @cached_property
    def fine(self) -> Sizes:
        """The values, as ends are chosen by them."""
        return Sizes(self._counts, self._scale, self._lows, self._highs, model=Model.FINE)

    @cached_property
    def sizes(self) -> Sizes:
        """The values, as bars are made by them: what noise hides may be of many sizes.

        Where nothing ends these they are drawn as they were first: bins of digits go on for ever.
        """
        model = Model.FINE if self._is_ended else Model.FIRST
        return Sizes(
            self._counts, self._scale, self._lows, self._highs, model=model, wide=self._is_ended
        )

    @property
    def is_blind(self) -> bool:
        """Whether none stands clear of noise, or none is possible."""
        return not self._counts.size or self.sizes.is_blind

    def kept(self, end: float) -> float:
        """About what the values up to an end add up to."""
        if not self._counts.size:
            return 0.0
        loss = self.loss(end)
        return self.sizes.total - (0.0 if loss is None else loss.lost)

    def loss(self, end: float, *, squared: bool = False) -> Loss | None:
        """What is lost beyond an end; None where nothing can be."""
        if not self._counts.size or end >= self.top:
            return None
        return self.sizes.squares(end) if squared else self.sizes.loss(end)

    def best(self, noise: float, *, cells: int, squared: bool) -> float:
        """The end beyond all that stand clear with the least ± of a sum per cell, or of squares.

        ``noise`` is the standard deviation of a sum of values up to 1. What is lost is in the ± as
        it is, since it is added to no number. Why no end among those that stand clear: on tables of
        a Pareto law of index 1.5 (8,000 rows, 5 of a unit, ε = .3 and less) the ± held .5 of the
        sums with such ends, and .96 without.
        """
        best, least = self.top, inf
        for end in self._highs[self._highs >= self.sizes.largest].tolist():
            noisy = _LAPLACE * noise * (end**2 if squared else end)
            if noisy >= least:
                break
            lost = 0.0
            if end < self.top:
                loss = self.fine.squares(end) if squared else self.fine.loss(end)
                lost = float(np.quantile(loss.drawn, _USUALLY))
            if (error := hypot(noisy, lost / cells)) < least:
                best, least = end, error
        return best


@lru_cache(maxsize=64)  # what is made of a look is asked for in every step of a question
def sides_of(
    values: tuple[int, ...],
    scale: float,
    grain: float,
    highs: tuple[float, ...],
    within: tuple[float, float] | None = None,
) -> tuple[Side, Side]:
    """Values below 0 and above it, in bins that end at ``highs``; declared bounds cut the last.

    A row is so many as its ``grain`` makes of 1.
    """
    counts, ends, zero = np.array(values) * grain, np.array(highs), len(values) // 2
    tops = (ends[-1], ends[-1]) if within is None else (-within[0], within[1])
    found = []
    for side, top in zip((counts[:zero][::-1], counts[zero + 1 :]), tops, strict=True):
        many = int(np.searchsorted(ends, top)) + 1 if top > 0 else 0
        each: Floats = np.minimum(ends[:many], top)
        found.append(Side(side[:many], scale * grain, each, is_ended=within is not None))
    return found[0], found[1]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Clipped:
    """What bounds lose of values of ``rows`` that add up to ``kept``, all taken as positive.

    Values between 0 and bounds that do not reach it are raised, by less than the bound each: as
    many as noise hides. ``sides`` are the values below 0 and above it; ``inner`` is the noise of
    the look times the bound that lies next to 0. With ``times`` they are the farthest values of
    units, of which so many rows count: all of these may be as far, on either side.
    """

    low: float
    high: float
    kept: float
    rows: float
    sides: tuple[Side, Side]
    inner: float
    times: int | None

    @property
    def _ends(self) -> list[tuple[Side, float, float]]:
        """Each side, its end, and that of the other."""
        ends = (-self.low, self.high) if self.times is None else (max(-self.low, self.high),) * 2
        return list(zip(self.sides, ends, reversed(ends), strict=True))

    @cached_property
    def _beyond(self) -> tuple[Loss, ...]:
        losses = (side.loss(max(end, 0.0)) for side, end, _ in self._ends)
        return tuple(loss for loss in losses if loss is not None)

    def wider(self, recipe: Recipe, values: NDArray[Any], rows: Floats | None, bars: Bars) -> Bars:
        """Bars of sums, averages or variances of values that were not moved, over ``rows``."""
        centre, function = values.astype(np.float64), recipe.aggregate.function
        each = np.ones(centre.shape) if rows is None else rows
        rooted = function in (Function.STDDEV_POP, Function.STDDEV_SAMP)

        def around(confidence: Fraction) -> Interval:
            inner = bars(confidence)
            at = np.clip(centre, inner.low, inner.high)
            if function in VARIANCES:
                off = self.squares_off(each, confidence)
                if function in (Function.VAR_SAMP, Function.STDDEV_SAMP):
                    off = off * np.maximum(each, 2.0) / np.maximum(each - 1, 1.0)
                if rooted:
                    more = np.hypot(inner.high**2 - at**2, off)
                    return Interval(inner.low, np.sqrt(at**2 + more))
                return Interval(inner.low, at + np.hypot(inner.high - at, off))
            off = self.off(centre * each, rows, confidence) / each
            return Interval(at - np.hypot(at - inner.low, off), at + np.hypot(inner.high - at, off))

        return around

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
        elif self.low < 0 < self.high:
            share, unit = np.full(size.shape, 1 / size.size), max(unit, 1.0)
        unit = self.times or unit
        found: Floats = share * self.inner * log(1 / float(1 - confidence))
        for loss in self._beyond:
            found = np.hypot(found, loss.most(share, confidence))
        with np.errstate(over="ignore"):  # of a look that kept nothing, nobody knows
            scaled: Floats = found * unit
        return scaled

    def squares_off(self, rows: Floats, confidence: Fraction) -> Floats:
        """How much larger variances may be; they are no smaller.

        Claim: with v the value x moved into [low, high], V[v] ≤ V[x] ≤ V[v] + 2 E[d], where d is
            (x - high)(x - low) above and (low - x)(high - x) below. Why: moving brings no two
            values apart, so that V[v] ≤ V[x]. Around the middle of the bounds, h from its ends, let
            u and w be what x and v are: V[x] - V[v] = E[u² - w²] + E[w]² - E[u]², |E[w]| ≤ h,
            |E[w]| - |E[u]| ≤ E|u - w|, and u² - w² ≥ 2 h |u - w|; d is u² - w². Of bounds with
            low ≤ 0 ≤ high, (x - high)(x - low) = x² - high² - (high + low)(x - high), and so below.
            Values from 0 on have E[x] ≥ E[v] ≥ 0, so that V[x] - V[v] ≤ E[x² - v²].
        """
        share, unit = rows / rows.sum(), self.times or float(rows.sum()) / self.rows
        found = 2 * share * self.inner * max(abs(self.low), abs(self.high))
        found = found * log(1 / float(1 - confidence))
        one_sided = self.low >= 0 or self.high <= 0
        for side, end, other in self._ends:
            squares, values = side.loss(max(end, 0.0), squared=True), side.loss(max(end, 0.0))
            if squares is None or values is None:
                continue
            lost = squares.most(share, confidence)
            if not one_sided:
                far = max(other - end, 0.0)
                lost = 2 * (lost + far * values.most(share, confidence))
            found = found + lost
        more: Floats = found * unit / rows
        return more


def clipped_of(
    sides: tuple[Side, Side],
    rows: float,
    scale: float,
    low: Fraction,
    high: Fraction,
    *,
    times: int | None = None,
) -> Clipped:
    """What bounds lose, by a look at values of so many rows, with noise of this scale."""
    nearest = max(float(low), -float(high), 0.0)
    ends = (max(-float(low), 0.0), max(float(high), 0.0))
    kept = sum(side.kept(end) for side, end in zip(sides, ends, strict=True))
    return Clipped(
        low=float(low), high=float(high), sides=sides, inner=scale * nearest, times=times,
        kept=max(kept, scale * nearest, 1e-300), rows=max(rows, scale),
    )  # fmt: skip


def moved_off(
    clips: Sequence[Clipped | None], halves: Sequence[float], rows: Floats, confidence: Fraction
) -> tuple[list[Floats], list[Floats], Floats]:
    """How far averages of two arguments, of their squares and of their product may be off.

    All are around the middles of bounds that are two ``halves`` apart. Why: with u and w what x
        and its moved value are there, and t and s the same of y, u t - w s = (u - w) s + w (t - s)
        + (u - w)(t - s), with |w| and |s| up to the halves; E[(u - w)²] ≤ E[u² - w²], as `Clipped`
        has it, and by Cauchy and Schwarz the last is at most the root of the product of both.
    """
    none = np.zeros(rows.shape)
    each = [none if c is None else c.off(rows, rows, confidence) / rows for c in clips]
    squares = [none if c is None else c.squares_off(rows, confidence) for c in clips]
    product = each[0] * halves[1] + each[1] * halves[0] + np.sqrt(squares[0] * squares[1])
    return each, squares, product
