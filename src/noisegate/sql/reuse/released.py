"""The released table of a block: made up, to rehearse the free SQL; and real, with error bars.

Both have the same types, which follow from the question alone, never from what was released before.
COUNT, and SUM of whole numbers, are BIGINT; with several grouping sets they are DOUBLE. Sums and
quantiles of decimals are decimals, as in DuckDB: so CAST(SUM(x) AS BIGINT) rounds halves alike.
"""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import islice, product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from noisegate.algebra.expression import domain_of
from noisegate.algebra.tally import Distinct
from noisegate.arrow import arrow_column, arrow_table
from noisegate.privacy.domain import EPOCH, Key, Kind
from noisegate.sql.drafts.draft import Draft, is_sought
from noisegate.sql.drafts.groups import Columns, grouping_id
from noisegate.sql.drafts.recipe import CHOSEN, COUNTS, VARIANCES, Recipe
from noisegate.sql.drafts.within import schema_within
from noisegate.sql.drafts.words import capped_words
from noisegate.sql.estimates.estimate import Estimates
from noisegate.sql.outer.items import ReleasedBlock
from noisegate.sql.question import Function

if TYPE_CHECKING:
    import pyarrow as pa

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
    import pyarrow as pa  # noqa: PLC0415

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
    if len(sets) > 1:
        columns["grouping_id"] = arrow_column([number for number, _ in rows], pa.int64())
    return arrow_table(columns)


def released_block(draft: Draft, estimates: Estimates, *, noise: bool = False) -> ReleasedBlock:
    """The block's table in Arrow, with its error bars, or those of the ``noise`` alone."""
    import pyarrow as pa  # noqa: PLC0415

    columns: dict[str, Any] = {
        name: arrow_column(list(keys), arrow_type(estimates.kinds[name]))
        for name, keys in estimates.keys.items()
    }
    for name, column in estimates.columns.items():
        columns[name] = arrow_column(column.values, arrow_type(column.kind, column.scale))
    if estimates.grouping_id is not None:
        columns["grouping_id"] = arrow_column(list(estimates.grouping_id), pa.int64())
    table = arrow_table(columns)

    def half_widths(name: str, confidence: Fraction) -> Sequence[float | None]:
        found = estimates.columns[name].margin(confidence, noise=noise)
        return [None] * table.num_rows if found is None else found.tolist()

    def sum_half_width(name: str, rows: Sequence[int], confidence: Fraction) -> float | None:
        if len(rows) == 1:  # the number itself
            return half_widths(name, confidence)[rows[0]]
        return estimates.columns[name].sum_margin(rows, confidence, noise=noise)

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
        sum_half_width=sum_half_width,
    )


def _below(draft: Draft, estimates: Estimates) -> frozenset[str]:
    """Aggregates that a cap makes smaller, where nothing is known of by how much."""
    measured = [part.pieces for part in draft.parts]
    if draft.decided is not None:
        measured.append((draft.decided,))
    pieces = {
        piece
        for each, drawn in zip(measured, draft.drawn, strict=True)
        if isinstance(drawn[0].tally, Distinct) or not estimates.is_raised
        if capped_words(draft.block, [drawn])
        for piece in each
    }
    return frozenset(
        each.aggregate.name
        for each in draft.recipes
        if pieces & {each.direct, each.count, *(mean.piece for mean in each.means)}
    )


def arrow_type(kind: Kind, scale: int = 0) -> "pa.DataType":
    """How a kind is stored in Arrow; with a ``scale``, as a decimal."""
    import pyarrow as pa  # noqa: PLC0415

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
