"""Quantiles as they are shown: points of a grid in the column's own unit, with their bars."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Term
from noisegate.privacy.domain import WHOLE_MAX, Kind
from noisegate.sql.drafts.recipe import Recipe
from noisegate.sql.laws.intervals import Interval
from noisegate.sql.laws.kinds import is_brackets
from noisegate.sql.laws.known import Bars
from noisegate.sql.laws.laws import Floats

if TYPE_CHECKING:
    from noisegate.mechanisms.quantiles.brackets import Brackets
    from noisegate.mechanisms.quantiles.quantiles import Quantiles

Numbers: TypeAlias = NDArray[Any]
Ranks: TypeAlias = Callable[[Fraction], int]
_EXACT: Final = 2.0**53  # whole doubles up to here are exact


@final
@dataclass(frozen=True, slots=True)
class Chosen:
    """What was released for all cells of one grouping set, a row for each."""

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
