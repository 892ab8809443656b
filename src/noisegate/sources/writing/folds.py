"""Values made of several rows of one owner: folds, and windows over them.

Which of several equal values the engine hands on is its own choice, and does not show: no function
tells values apart that are equal to it (the two zeros of doubles are one as text, too).
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil, log2
from typing import Final

from sqlglot import exp

from noisegate.algebra.expression import Literal, Schema, domain_of
from noisegate.algebra.relation import Among, Fold, Folded, Window
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.expressions import write
from noisegate.sources.writing.words import case, number, on_grid, whole

_LEVEL_BITS: Final = 24
_CALLS: Final[dict[Among, Callable[[exp.Expr], exp.Expr]]] = {
    Among.RANK: lambda _: exp.Rank(),
    Among.DENSE_RANK: lambda _: exp.DenseRank(),
    Among.FIRST: lambda value: exp.FirstValue(this=value),
    Among.LAST: lambda value: exp.LastValue(this=value),
}


def sum_grain(domain: Domain) -> Fraction:
    """What a SUM within one owner counts in: 1 for whole numbers, else a fine power of two."""
    magnitude = domain.magnitude
    if domain.kind is Kind.INTEGER or not magnitude:
        return Fraction(1)
    return Fraction(2) ** (ceil(log2(magnitude)) - _LEVEL_BITS)


def fold(
    folded: Folded,
    schema: Schema,
    field: Callable[[str], exp.Expr],
    dialect: Dialect,
    over: Callable[[exp.Expr], exp.Expr] | None = None,
) -> exp.Expr:
    """A fold that gives the same value in whatever order the engine visits the rows.

    Sums of doubles do so as long as they stay below 2**53 grains; of more rows there is no sum.
    ``over`` makes a window of an aggregate.
    """
    value = write(folded.expression, schema, field, dialect)
    domain, is_window = domain_of(folded.expression, schema), over is not None
    over = over or (lambda call: call)
    if folded.fold is Fold.COUNT:
        return over(exp.Count(this=value))
    if folded.fold is Fold.COUNT_DISTINCT:
        return over(dialect.distinct(value, window=is_window))
    if folded.fold in (Fold.MIN, Fold.MAX):
        return over(dialect.extreme(value, domain.kind, least=folded.fold is Fold.MIN))
    if domain.kind is Kind.INTEGER and folded.expression == Literal(1):
        return over(exp.Count(this=exp.Star()))
    if domain.kind is Kind.INTEGER:
        total = exp.Coalesce(this=over(exp.Sum(this=value)), expressions=[whole(0)])
        return dialect.narrowed(total)
    grain = sum_grain(domain)
    zero = number(Fraction(0))
    count = over(exp.Count(this=value.copy()))
    few = exp.LT(this=count, expression=whole(1 << (52 - _LEVEL_BITS)))
    total = exp.Coalesce(this=over(dialect.added(on_grid(value, grain))), expressions=[zero])
    return case((few, total))


def window(
    asked: Window,
    schema: Schema,
    field: Callable[[str], exp.Expr],
    owner: exp.Expr,
    columns: Iterable[exp.Expr],
    dialect: Dialect,
) -> exp.Expr:
    """A window over the rows of one owner. ``columns`` are all that tells rows from each other."""
    order = [
        _ordered(
            write(one.expression, schema, field, dialect),
            descending=one.descending,
            nulls_first=one.nulls_first,
        )
        for one in asked.order
    ]
    if asked.frame is not None:
        order += told_apart(columns)
    keys = [write(key, schema, field, dialect) for key in asked.keys]

    def over(call: exp.Expr) -> exp.Expr:
        return exp.Window(
            this=call,
            partition_by=partition(owner.copy(), [key.copy() for key in keys]),
            order=exp.Order(expressions=[one.copy() for one in order]) if order else None,
            spec=None if asked.frame is None else _frame(*asked.frame),
        )

    if isinstance(asked.how, Fold):
        return fold(Folded(asked.name, asked.how, asked.expression), schema, field, dialect, over)
    return over(_CALLS[asked.how](write(asked.expression, schema, field, dialect)))


def partition(owner: exp.Expr, keys: list[exp.Expr]) -> list[exp.Expr]:
    """What windows are partitioned by: the owner always."""
    return [owner, *keys]


def told_apart(columns: Iterable[exp.Expr]) -> list[exp.Ordered]:
    """The order of rows that a window's own order does not tell apart: by all their columns."""
    return [_ordered(column.copy()) for column in columns]


def _ordered(
    value: exp.Expr, *, descending: bool = False, nulls_first: bool = False
) -> exp.Ordered:
    return exp.Ordered(this=value, desc=descending, nulls_first=nulls_first)


def _frame(start: int | None, end: int | None) -> exp.WindowSpec:
    (first, before), (last, after) = _bound(start, "PRECEDING"), _bound(end, "FOLLOWING")
    return exp.WindowSpec(kind="ROWS", start=first, start_side=before, end=last, end_side=after)


def _bound(offset: int | None, unbounded: str) -> tuple[exp.Expr | str, str | None]:
    if offset is None:
        return "UNBOUNDED", unbounded
    if offset == 0:
        return "CURRENT ROW", None
    side = "PRECEDING" if offset < 0 else "FOLLOWING"
    return exp.Literal.number(abs(offset)), side
