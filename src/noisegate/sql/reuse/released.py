"""The released table of a block: made up, to rehearse the free SQL; and real, with error bars.

Both have the same types, which follow from the question alone, never from what was released before.
COUNT, and SUM of whole numbers, are BIGINT; with several grouping sets they are DOUBLE. Sums and
quantiles of decimals are decimals, as in DuckDB: so CAST(SUM(x) AS BIGINT) rounds halves alike.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cache, cached_property
from itertools import islice, product
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.algebra.expression import domain_of
from noisegate.algebra.tally import Distinct, Sums, Tally
from noisegate.arrow import arrow_column, arrow_table
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import EPOCH, Key, Kind
from noisegate.sql.drafts.draft import Draft, DraftPart, draft, is_sought
from noisegate.sql.drafts.groups import Caps, Columns, grouping_id
from noisegate.sql.drafts.purchase import Purchase
from noisegate.sql.drafts.recipe import (
    CHOSEN,
    COUNTS,
    SPREAD,
    VARIANCES,
    Recipe,
    shown_scale,
)
from noisegate.sql.drafts.within import schema_within
from noisegate.sql.drafts.words import capped_words
from noisegate.sql.estimates.estimate import Estimates, Released, estimate, predicted
from noisegate.sql.estimates.losses import Lost
from noisegate.sql.estimates.sums import weighted
from noisegate.sql.laws.known import grains_of, is_brackets, listed
from noisegate.sql.outer.forms import Weights
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.question import Aggregate, Block, Function
from noisegate.sql.reuse.shelf import Needed, Shelf
from noisegate.transforms.query import Query

ROWS_MAX: Final = 50  # of a made-up table
GUESSES: Final = (1_000_000, 7, 0)  # a table of one row has the large one
_COUNTED: Final = (*COUNTS, Function.COUNT_UNITS, Function.COUNT_DISTINCT)
_MADE_UP: Final[dict[Kind, tuple[Key, ...]]] = {
    Kind.BOOLEAN: (False, True),
    Kind.INTEGER: (1, 2),
    Kind.TEXT: ("a", "b"),
    Kind.DATE: (date(2000, 1, 1), date(2000, 1, 2)),
    Kind.TIMESTAMP: (datetime(2000, 1, 1, 0), datetime(2000, 1, 1, 1)),  # noqa: DTZ001 - no zone
}

_Row: TypeAlias = tuple[int, tuple[Key, ...]]


def blank_table(draft: Draft) -> "pa.Table":
    """The released table before it is paid for: true columns and declared keys, made-up numbers.

    At most 50 rows, of every grouping set some. Keys that are still to be found are made up, two
    for a column. Numbers are large, small and zero in turn, within the bounds of the aggregate.
    """
    block = draft.block
    sets = tuple(dict.fromkeys(block.sets))
    rows = list(islice(_rows(draft, sets), ROWS_MAX))
    columns: dict[str, Any] = {
        key.name: arrow_column([keys[place] for _, keys in rows], arrow_type(key.domain.kind))
        for place, key in enumerate(block.by)
    }
    for recipe in draft.recipes:
        guesses = _guesses(recipe, draft)
        made = [guesses[place % len(guesses)] for place in range(len(rows))]
        kind = arrow_type(recipe.kind, recipe.scale)
        columns[recipe.aggregate.name] = arrow_column(made, kind)
    columns |= _zeros(block, len(rows))
    if len(sets) > 1:
        columns["grouping_id"] = arrow_column([number for number, _ in rows], pa.int64())
    return arrow_table(columns)


def released_block(draft: Draft, estimates: Estimates, *, noise: bool = False) -> ReleasedBlock:
    """The block's table in Arrow, with its error bars, or those of the ``noise`` alone."""
    columns: dict[str, Any] = {
        name: arrow_column(list(keys), arrow_type(estimates.kinds[name]))
        for name, keys in estimates.keys.items()
    }
    for name, column in estimates.columns.items():
        columns[name] = arrow_column(column.values, arrow_type(column.kind, column.scale))
    columns |= _zeros(draft.block, len(next(iter(columns.values()), (0,))))
    if estimates.grouping_id is not None:
        columns["grouping_id"] = arrow_column(list(estimates.grouping_id), pa.int64())
    table = arrow_table(columns)

    @cache
    def half_widths(name: str, confidence: Fraction) -> Sequence[float | None]:
        found = estimates.columns[name].margin(confidence, noise=noise)
        return [None] * table.num_rows if found is None else found.tolist()

    def weighted_half_width(weights: Weights, confidence: Fraction) -> float | None:
        ((name, rows), *others) = weights.items()
        if len(rows) == 1 and not others:  # the number itself
            ((row, weight),) = rows.items()
            width = half_widths(name, confidence)[row]
            return None if width is None else abs(weight) * width
        columns = []
        for each, rows in weights.items():
            column = estimates.columns[each]
            if column.sums is None:
                return None
            columns.append((column.sums, column.weights(rows)))
        return weighted(columns, confidence, noise=noise)

    lows = {each.aggregate.name: _bounds(each, draft)[0] for each in draft.recipes}
    unsigned = frozenset(name for name, low in lows.items() if low is not None and low >= 0)
    added = (*_COUNTED, Function.SUM)
    adding = {r.aggregate.name for r in draft.recipes if r.aggregate.function in added}
    return ReleasedBlock(
        table=table,
        noisy=tuple(estimates.columns),
        half_widths=half_widths,
        unsigned=unsigned,
        amounts=unsigned & adding,
        lower=unsigned & adding & _below(draft, estimates),
        added=frozenset(name for name, each in estimates.columns.items() if each.sums is not None),
        weighted=weighted_half_width,
    )


def _zeros(block: Block, rows: int) -> dict[str, Any]:
    """Sums of nothing but 0, in the types that they have where they are measured."""
    found = {}
    for each in block.zeros:
        domain = domain_of(each.args[0], schema_within(block, each.where))
        kind = arrow_type(domain.kind, shown_scale(domain))
        found[each.name] = arrow_column(np.zeros(rows, np.int64), kind)
    return found


def _below(draft: Draft, estimates: Estimates) -> frozenset[str]:
    """Aggregates that a cap makes smaller, where nothing is known of by how much."""
    return _capped(
        draft,
        lambda tally, kind: (
            isinstance(tally, Distinct) or not estimates.is_raised or kind in estimates.blind
        ),
    )


def _capped(
    draft: Draft, holds: Callable[[Tally, tuple[bool, bool, bool]], bool]
) -> frozenset[str]:
    """Aggregates under a cap, of tallies and kinds for which this ``holds``."""
    measured = [
        (part.pieces, (part.is_people, part.apart is not None, part.own)) for part in draft.parts
    ]
    if draft.decided is not None:
        measured.append(((draft.decided,), (True, False, False)))
    pieces = {
        piece
        for (each, kind), drawn in zip(measured, draft.drawn, strict=True)
        if holds(drawn[0].tally, kind) and capped_words(draft.block, [drawn])
        for piece in each
    }
    return frozenset(
        each.aggregate.name
        for each in draft.recipes
        if pieces & {each.direct, each.count, *(mean.piece for mean in each.means)}
    )


def arrow_type(kind: Kind, scale: int = 0) -> "pa.DataType":
    """How a kind is stored in Arrow; with a ``scale``, as a decimal."""
    if scale:
        return pa.decimal128(38, scale)
    types = {
        Kind.BOOLEAN: pa.bool_(), Kind.INTEGER: pa.int64(), Kind.NUMBER: pa.float64(),
        Kind.TEXT: pa.string(), Kind.DATE: pa.date32(), Kind.TIMESTAMP: pa.timestamp("us"),
    }  # fmt: skip
    return types[kind]


def _rows(draft: Draft, sets: Sequence[Columns]) -> Iterator[_Row]:
    """Grouping ids and keys of made-up rows; a column outside of the set has no key."""
    by = draft.block.by
    groups = [
        _MADE_UP[key.domain.kind] if is_sought(draft, j) else draft.groups[j]
        for j, key in enumerate(by)
    ]
    each = max(1, ROWS_MAX // max(1, len(sets)))
    for columns in sets if all(groups) else ():
        for cell in islice(product(*(groups[j] for j in columns)), each):
            held = dict(zip(columns, cell, strict=True))
            yield grouping_id(columns, len(by)), tuple(held.get(j) for j in range(len(by)))


def _guesses(recipe: Recipe, draft: Draft) -> list[Any]:
    """Some values that an aggregate could have."""
    kind, bounds = recipe.kind, _bounds(recipe, draft)
    inside = [_within(Fraction(guess), *bounds) for guess in GUESSES]
    if kind is Kind.DATE:
        return [EPOCH.date() + timedelta(days=int(guess)) for guess in inside]
    if kind is Kind.TIMESTAMP:
        return [EPOCH + timedelta(microseconds=int(guess)) for guess in inside]
    return [int(guess) if kind is Kind.INTEGER else float(guess) for guess in inside]


def _bounds(recipe: Recipe, draft: Draft) -> tuple[Fraction | None, Fraction | None]:
    """Between what an aggregate lies before noise; None: no end is known."""
    function, args = recipe.aggregate.function, recipe.aggregate.args
    if function in (*_COUNTED, *VARIANCES):
        return Fraction(0), None
    if function is Function.AVG:
        return recipe.means[0].low, recipe.means[0].high
    if function is Function.CORR:
        return Fraction(-1), Fraction(1)
    if function not in (*CHOSEN, Function.SUM):
        return None, None
    domain = domain_of(args[0], schema_within(draft.block, recipe.aggregate.where))
    if function is not Function.SUM:
        return domain.low, domain.high
    return (Fraction(0) if domain.low is not None and domain.low >= 0 else None), None


def _within(guess: Fraction, low: Fraction | None, high: Fraction | None) -> Fraction:
    least = guess if low is None else max(low, guess)
    return least if high is None else min(high, least)


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
    ``guessed``: which bounds are still to be found, as `Chosen.guessed` has them.
    """

    bought: Purchase
    needed: tuple[Needed, ...]
    caps: Caps
    accountant: str
    shelf: Shelf | None = None
    said: int | None = None
    losses: tuple[Lost, ...] = ()  # what caps lose, where that was looked at
    guessed: frozenset[tuple[bool, bool] | None] = frozenset()

    @property
    def draft(self) -> Draft:
        """What is to be measured."""
        return self.bought.draft

    @cached_property
    def open(self) -> frozenset[str]:
        """Numbers whose errors follow from a bound that is still to be found."""
        if not self.guessed:
            return frozenset()
        valued = (each for each in self.draft.block.aggregates if each.function not in _COUNTED)
        added = frozenset(each.name for each in valued if None in self.guessed)
        kinds = {*self.guessed}
        if (False, False) in kinds and self.caps.groups_per_unit is None:
            kinds.add((True, False))  # a unit is in as many groups as it has rows, at most
        return added | _capped(self.draft, lambda _, kind: kind[:2] in kinds)

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

        found = self.draft.is_found  # else nobody knows how many groups a total is made of
        known = frozenset(name for name in block.added if found and foreseen[name])
        return replace(block, half_widths=half_widths, added=known)

    def _is_foreseen(self, recipe: Recipe) -> bool:
        """Whether its error is known: averages need the number of their rows, and so do samples."""
        if recipe.is_foreseen(None):
            return True
        if recipe.aggregate.function in SPREAD:
            return all(needed.measurement is None for needed in self.needed)
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
                factor, all_rows = self._role(part, piece, share)
                held = each * factor * (1.0 if all_rows or counts is None else share)
                found = np.clip(held / float(grain), 0, _LARGEST).astype(np.int64)
            rows.append(found)
        return needed.expected(np.array(rows))

    def _role(self, part: DraftPart, piece: int, share: float) -> tuple[float, bool]:
        """What a row adds to a sum, as the guess has it, and whether every row does.

        Averages are that share of the way from the middle of their bounds to an end.
        """
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
                told = (e.units[piece] * e.loss.kept for e in self.losses if piece in e.units)
                if piece == mean.piece and (seen := next(told, 0.0)):  # a look at a direct sum
                    factor, all_rows = seen / max(1, self.rows or 1), always
                elif piece == mean.piece:
                    half = max(mean.high - mean.middle, mean.middle - mean.low)
                    factor, all_rows = float(half) * share, always
        return factor, all_rows

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
