"""The numbers of a block as they may be, from how many rows there are and what was released."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Sums
from noisegate.errors import Unsupported
from noisegate.sql.drafts.draft import Draft, Part, draft
from noisegate.sql.drafts.groups import Caps, Columns
from noisegate.sql.drafts.purchase import Purchase
from noisegate.sql.drafts.recipe import OFF_CENTRE, Recipe
from noisegate.sql.estimates.estimate import Released, estimate, predicted
from noisegate.sql.estimates.losses import Lost
from noisegate.sql.laws.known import grains_of, is_brackets, listed
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.question import Aggregate, Function
from noisegate.sql.reuse.released import released_block
from noisegate.sql.reuse.shelf import Needed, Shelf
from noisegate.transforms.query import Query

Floats: TypeAlias = NDArray[np.float64]
Widths: TypeAlias = Sequence[float | int | None] | NDArray[Any] | None
_FEW: Final = 1e4  # rows of a group, where nobody knows
_MANY: Final = 1e6
_LARGEST: Final = 2.0**60
_ROWS: Final = Aggregate(name="rows", function=Function.COUNT)


@final
@dataclass(frozen=True, kw_only=True)
class Guess:
    """A block before it is measured: its noise, its caps, and what the shelf has of it.

    ``said`` is how many rows there are, if somebody says so. Without a shelf nothing is known.
    """

    bought: Purchase
    needed: tuple[Needed, ...]
    caps: Caps
    accountant: str
    shelf: Shelf | None = None
    said: int | None = None
    losses: tuple[Lost, ...] = ()  # what caps lose, where that was looked at

    @property
    def draft(self) -> Draft:
        """What is to be measured."""
        return self.bought.draft

    @cached_property
    def rows(self) -> int | None:
        """About how many rows take part, as said or as released."""
        if self.said is not None:
            return self.said
        found = self._counted(())
        if found is not None:
            return max(0, round(float(found[0])))
        seen = [each.loss.kept for each in self.losses if not each.units]
        return max(1, round(seen[0])) if seen and self.shelf is not None else None

    @property
    def is_known(self) -> bool:
        """Whether it is known about how many rows each group has."""
        return all(self._counts(columns) is not None for columns in set(self.draft.block.sets))

    def released(self, share: float) -> ReleasedBlock:
        """The block's table, if conditions leave such a share of the rows in it.

        Errors are None where they are not foreseen.
        """
        parts = range(len(self.draft.parts))
        answers = [self._answer(place, share) for place in parts]
        untold = [replace(each, wide=None) for each in self.losses]  # numbers here are guessed
        block = released_block(self.draft, estimate(self.bought, answers, untold))
        foreseen = {each.aggregate.name: self._is_foreseen(each) for each in self.draft.recipes}
        apart = not self.draft.is_found and len(set(self.draft.block.sets)) > 1

        def half_widths(name: str, confidence: Fraction) -> Widths:
            if not foreseen[name]:
                return None
            if apart:  # which groups there are is not known, so totals are not made consistent
                widths = predicted(
                    self.bought, confidence, rows=self.rows, known=lambda part, _: answers[part]
                )
                return [widths[name]] * len(block.table)
            found = block.half_widths(name, confidence)
            return None if found is None else list(found)

        return replace(block, half_widths=half_widths)

    def _is_foreseen(self, recipe: Recipe) -> bool:
        """Whether its error is known: averages need the number of their rows, and so do samples."""
        if recipe.is_foreseen(None):
            return True
        if recipe.aggregate.where is None and self.is_known:
            return True
        piece = recipe.direct if recipe.count is None else recipe.count
        pairs = zip(self.draft.parts, self.needed, strict=True)
        return all(
            needed.measurement is None
            or self._offered(part.query, part.pieces.index(piece)) is not None
            for part, needed in pairs
            if piece in part.pieces
        )

    def _answer(self, place: int, share: float) -> Released:
        """What a part would give."""
        part, needed = self.draft.parts[place], self.needed[place]
        if needed.measurement is None:
            return needed.known(None)
        cells, counts = self.draft.cells(part.columns), self._counts(part.columns)
        each = np.full(cells, _MANY if share else _FEW) if counts is None else counts
        tally = part.query.tally
        if not isinstance(tally, Sums):
            assert part.other is not None  # noqa: S101 - no sums
            noise = self.bought.mechanisms[place][0]
            if is_brackets(noise):
                return np.array([noise.expected(int(rows)) for rows in each.tolist()]).reshape(
                    cells, -1
                )
            is_count = part.other.function is Function.COUNT_DISTINCT
            held = each * (share if counts is not None else 1.0) * is_count
            width = max(1, len(part.other.levels))
            return np.repeat(held.astype(np.int64)[:, None], width, axis=1)
        rows = []
        for term, (piece, grain) in enumerate(zip(part.pieces, grains_of(part.query), strict=True)):
            found = None if self.said is not None else self._offered(part.query, term)
            if found is None:
                factor, all_rows = self._role(part, piece)
                held = each * factor * (1.0 if all_rows or counts is None else share)
                found = np.clip(held / float(grain), 0, _LARGEST).astype(np.int64)
            rows.append(found)
        return needed.expected(np.array(rows))

    def _role(self, part: Part, piece: int) -> tuple[float, bool]:
        """What a row adds to a sum, as the guess has it, and whether every row does."""
        factor, all_rows = 0.0, False
        for recipe in self.draft.recipes:
            always = part.other is None and recipe.aggregate.where is None
            if piece == recipe.count:
                return 1.0, always
            if piece == recipe.direct:
                terms = part.query.tally.terms if isinstance(part.query.tally, Sums) else ()
                is_sum = recipe.aggregate.function is Function.SUM
                plain = is_sum or terms[part.pieces.index(piece)].constant is not None
                factor, all_rows = recipe.typical, always and plain
            for mean in recipe.means:
                if piece == mean.piece and (seen := self._total(piece)):
                    factor, all_rows = seen / max(1, self.rows or 1), always
                elif piece == mean.piece:
                    half = max(mean.high - mean.middle, mean.middle - mean.low)
                    factor, all_rows = float(half) * OFF_CENTRE, always
        return factor, all_rows

    def _total(self, piece: int) -> float:
        """What a look says of a direct sum, if it does."""
        return next(
            (each.units[piece] * each.loss.kept for each in self.losses if piece in each.units), 0.0
        )

    def _counts(self, columns: Columns) -> Floats | None:
        """About how many rows each group has; where only their sum is known, spread evenly."""
        found = None if self.said is not None else self._counted(columns)
        if found is not None:
            return found
        cells = self.draft.cells(columns)
        return None if self.rows is None else np.full(cells, self.rows / max(1, cells))

    def _counted(self, columns: Columns) -> Floats | None:
        """The released count of rows in each group."""
        block = self.draft.block
        by = tuple(block.by[j] for j in columns)
        if any(key.domain.keys is None for key in by):
            return None
        counted = replace(block, by=by, sets=(tuple(range(len(by))),), aggregates=(_ROWS,))
        with suppress(Unsupported):  # no cap on rows, no count of them
            parts = draft(counted, self.caps, accountant=self.accountant).parts
            found = self._offered(parts[0].query, 0) if parts else None
            if found is not None:
                counts: Floats = np.maximum(found * float(grains_of(parts[0].query)[0]), 0.0)
                return counts
        return None

    def _offered(self, query: Query, term: int) -> NDArray[np.int64] | None:
        """The best that was released of a sum, for each group."""
        if self.shelf is None or not isinstance(query.tally, Sums):
            return None
        offers = self.shelf.offers(query, term, strictly=False)
        if not offers:
            return None
        best = min(offers, key=lambda offer: offer.law.variance)
        return listed(best.values, query.tally.by)
