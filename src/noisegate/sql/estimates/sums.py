"""Weighted sums of released columns over groups, as free SQL makes them: their half-widths.

A total, a difference and the numerator of a ratio less its denominator are such sums.
"""

from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass, replace
from noisegate.sql.drafts.recipe import COUNTS, Recipe
from noisegate.sql.estimates.bounded import within
from noisegate.sql.estimates.losses import Lost, factor_of, is_signed, scaled
from noisegate.sql.laws.known import Bars
from noisegate.sql.laws.laws import Floats, Law
from noisegate.sql.question import Function

_FINE: Final = 1024  # parts of a factor of noise that is not whole


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RowSums:
    """A released column, of which free SQL makes weighted sums over groups.

    ``values`` are those of all groups before they are raised, each with an independent error of
    the same ``law``; each is shown as a multiple of ``step``, half of which it may be off.
    """

    law: Law
    values: Floats
    step: float
    recipe: Recipe
    lost: Lost | None
    bars: Bars | None = None  # of groups that are shown for their noisy numbers

    @property
    def piece(self) -> Hashable:
        """Columns with the same piece have the same noise."""
        name = self.recipe.aggregate.name
        return name if self.recipe.direct is None else self.recipe.direct

    @property
    def kind(self) -> Hashable:
        """Columns of a kind lose in the same proportion: counts, and sums of the same values."""
        if self.lost is None or is_signed(self.lost, self.recipe):
            return self.recipe.aggregate.name
        counted = self.recipe.aggregate.function in (*COUNTS, Function.COUNT_UNITS)
        return self.lost.kind if counted else self.recipe.aggregate.name

    @property
    def more(self) -> float:
        """What it was raised by, as a part of what it was."""
        return 0.0 if self.lost is None else factor_of(self.lost, self.recipe, self.values) - 1

    def shares(self) -> Floats:
        """The share of each group in all that is kept."""
        assert self.lost is not None  # noqa: S101 - who asks knows it
        found: Floats = np.abs(self.values) / scaled(self.lost, self.recipe, self.values)[0]
        return found

    def noise(self, weights: Floats, confidence: Fraction) -> float:
        """The half-width of the noise of a weighted sum.

        Why: noise of groups is independent, so its law is that of the sum; given that they are
            shown for their noise, bars that hold all at once add up. Where all groups hold what is
            kept, Σ c, a raised group c + c L / Σ c moves with the noise of all: see `losses.py`.
        """
        if self.bars is not None:
            ends = self.bars(1 - (1 - confidence) / max(1, int(np.count_nonzero(weights))))
            off = np.maximum(self.values - ends.low, ends.high - self.values)
            return float(np.abs(weights) @ off) * (1 + self.more)
        moved = weights
        if self.lost is not None:
            moved = (1 + self.more) * weights
            kept, _ = scaled(self.lost, self.recipe, self.values)
            if kept == np.abs(self.values).sum():
                moved = moved - self.more * float(self.shares() @ weights)
        factors, counts = np.unique(_upwards(np.abs(moved[moved != 0])), return_counts=True)
        draws = tuple(
            replace(each, factor=abs(each.factor) * Fraction(factor), count=each.count * count)
            for factor, count in zip(factors.tolist(), counts.tolist(), strict=True)
            for each in self.law.draws
        )
        return Law(draws).half_width(confidence)

    def rounding(self, weights: Floats) -> float:
        """How far a weighted sum of shown numbers is off by their rounding."""
        steps = float(np.abs(weights).sum()) * self.step / 2
        return steps if self.lost is None else steps * (2 + self.more)


def _upwards(factors: Floats) -> Floats:
    """Factors as they are if they are whole, or up to a thousandth larger: so that few differ."""
    part, power = np.frexp(factors)
    larger: Floats = np.ldexp(np.ceil(part * _FINE) / _FINE, power)
    return np.where(factors == np.rint(factors), factors, larger)


def weighted(
    columns: Sequence[tuple[RowSums, Floats]], confidence: Fraction, *, noise: bool
) -> float:
    """The half-width of Σ weight · number over groups of some columns, or of its noise alone.

    Why: noise of groups is independent. Columns may share some, so theirs add up, each with its
        part of the failure. Of a ``kind`` the cap loses alike, so that it counts by what is left
        of it: nothing in a ratio. Numbers that were raised by different factors should have been by
        one: what they differ is added.
    """
    level = 1 - (1 - confidence) / len({column.piece for column, _ in columns})
    found = 0.0
    for kind in {column.kind for column, _ in columns}:
        alike = [(column, weights) for column, weights in columns if column.kind == kind]
        pieces: dict[Hashable, Floats] = {}
        for column, weights in alike:
            pieces[column.piece] = pieces.get(column.piece, 0.0) + weights
        named = {column.piece: column for column, _ in alike}
        wide = sum(named[piece].noise(weights, level) for piece, weights in pieces.items())
        found += sum(column.rounding(weights) for column, weights in alike)
        found += wide if noise else _with_loss(alike, wide, level)
    return found


def _with_loss(alike: Sequence[tuple[RowSums, Floats]], wide: float, level: Fraction) -> float:
    """Half-widths of noise and of what a cap loses of columns of one kind, together."""
    drawn, apart, mores = np.zeros(1), 0.0, [column.more for column, _ in alike]
    for column, weights in alike:
        if column.lost is None:
            continue
        unit = scaled(column.lost, column.recipe, column.values)[1]
        signed = is_signed(column.lost, column.recipe)
        off = column.lost.loss.contrast(column.shares(), weights, signed=signed)
        drawn = drawn + off * unit
        apart += (column.more - mores[0]) * float(weights @ column.values)
    if drawn.size == 1:
        return wide
    return float(within(drawn[None, :], wide, float(1 - level))[0]) + abs(apart)
