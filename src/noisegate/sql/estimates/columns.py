"""Columns with bars of their own kind: quantiles, numbers of a sample, and counts of a range."""

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Term
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import WHOLE_MAX, Kind
from noisegate.sql.drafts.recipe import Mean, Recipe
from noisegate.sql.laws.known import Bars, is_brackets
from noisegate.sql.laws.laws import Floats, Interval
from noisegate.sql.laws.sampling import Sampling

if TYPE_CHECKING:
    from noisegate.mechanisms.quantiles.brackets import Brackets
    from noisegate.mechanisms.quantiles.quantiles import Quantiles


Numbers: TypeAlias = NDArray[Any]
Ranks: TypeAlias = Callable[[Fraction], int]
_EXACT: Final = 2.0**53  # whole doubles up to here are exact


@final
@dataclass(frozen=True, slots=True)
class ShownQuantiles:
    """Quantiles as they are shown: points of a grid in the column's own unit, with their bars.

    They are what was released for all cells of one grouping set, a row for each.
    """

    released: NDArray[np.int64]
    noise: "Brackets | Quantiles"
    term: Term

    def values(self, level: int) -> Numbers:
        """One level. Several are chosen independently: they are put in order, cell by cell.

        Sorting is free, and the largest error of a cell does not grow: exact levels are in order.
        A bracket stays that of its level.
        """
        found = self.released
        if is_brackets(self.noise):
            found = np.sort(self.noise.centres(found), axis=1)
        return _points(found, self.term)[:, level]

    def bars(self, recipe: Recipe) -> Bars | None:
        """Between which values the exact quantile lies, where that was chosen with it.

        Why: a value is rounded to the grid before, which moves a quantile by half a step at most;
            times are cut to the hour, so they may be up to an hour later.
        Rounding: outwards.
        """
        noise, grain = self.noise, self.term.grain
        if not is_brackets(noise):
            return None
        down = up = Fraction(0) if grain == 1 and recipe.kind is not Kind.NUMBER else grain / 2
        if recipe.kind is Kind.TIMESTAMP:
            up = Fraction(1)

        def ends(confidence: Fraction) -> Interval:
            low, high = (each[:, recipe.level] for each in noise.ends(self.released, confidence))
            return Interval(
                _outwards(low.astype(np.float64) * float(grain) - float(down), -np.inf),
                _outwards(high.astype(np.float64) * float(grain) + float(up), np.inf),
            )

        return ends

    def ranks(self, level: int) -> Ranks:
        """How many ranks one level may be off."""
        return lambda confidence: self.noise.rank_errors(confidence)[level]


def _outwards(ends: Floats, side: float) -> Floats:
    """Doubles that are not further in than the ends; small multiples of grains are exact."""
    return np.where(np.abs(ends) < _EXACT, ends, np.nextafter(ends, side))


def _points(values: NDArray[np.int64], term: Term) -> Numbers:
    """Points of a grid as they are shown: whole where 64 bits hold them, else doubles.

    A grid may end one step beyond the last whole number of 64 bits, and its last point there.
    """
    if term.grain.denominator == 1:
        last = WHOLE_MAX // int(term.grain)
        if term.reach <= last + 1:
            return np.clip(values, -last, last) * int(term.grain)
    return values * float(term.grain)


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


_HALF = Fraction(1, 2)


def truncated_bars(values: Floats, bars: Bars, top: int) -> Bars:
    """Where counts in [0, top] lie whose noisy ``values`` were cut to that range.

    A geometric draw that is cut to {0, …, top} is the truncated geometric mechanism on a count that
    lies there (`mechanisms/additive/truncated_geometric.py`), so it is made of the same draw, after
    it: the price is the same, and a count that was asked for without it is shown with it at no
    cost.

    ``bars`` are those of the noise alone: the values before the cut, give or take a half-width.

    Claim: holds with the confidence 1 - β, for every count in [0, top], and follows from what is
        shown. Why: let t be the half-width at β and s that at 2β, so that a noise that is as likely
        above 0 as below exceeds s, on one side, with at most β. A count n that is s or less from
        the lower end is shown at most s too low, because nothing is shown below 0; so what is shown
        is within s with at least 1 - β. The same holds at the upper end, and t for all others:
        cutting moves no value away from a count within the range. What is shown as m leaves all n
        that are so near to it: of those below m the ones from m - s on, if that reaches the lower s
        of the range, else from m - t on, though not below s; and so above. Rounding: none.
    """

    def cut(confidence: Fraction) -> Interval:
        wide, failure = bars(confidence), 1 - confidence
        far = (wide.high - wide.low) / 2
        if failure < _HALF:
            narrow = bars(1 - 2 * failure)
            near = np.minimum(far, (narrow.high - narrow.low) / 2)
        else:
            near = np.zeros_like(far)
        shown = np.clip(values, 0, top)
        down = _reach(shown, near, far)
        up = _reach(top - shown, near, far)
        return Interval(np.maximum(shown - down, 0.0), np.minimum(shown + up, float(top)))

    return cut


def _reach(room: Floats, near: Floats, far: Floats) -> Floats:
    """How far a count may be from what is shown, towards an end that is ``room`` away."""
    return np.where(room <= 2 * near, near, np.minimum(far, room - near))


def within_range(bars: Bars, top: int) -> Bars:
    """The same where bars hold more than noise: cut to what is known beforehand."""
    return lambda confidence: bars(confidence).clipped(0.0, float(top))
