"""The words that statements are written in: casts, constants, operators, columns."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Final

from sqlglot import exp

from noisegate.algebra.expression import Value
from noisegate.algebra.signature import common_kind
from noisegate.algebra.tally import Grouping, Sums
from noisegate.privacy.domain import EPOCH, WHOLE_MAX, Column, Kind
from noisegate.sources.writing.dialect import Dialect, Written

TYPES: Final = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}
_YEARS: Final = ("0001-01-01", "10000-01-01")  # the first day, and the first beyond


@cache  # reading a type takes longer than all else about a cast; there are a dozen names
def _type(name: str) -> exp.DataType:
    return exp.DataType.build(name, dialect="duckdb")


def cast(value: exp.Expr, to: Kind | str, *, may_fail: bool = False) -> exp.Expr:
    """The value as a kind, or a type of the engine; with ``may_fail``, NULL where there is none.

    Without, it must not fail for any value it is used on.
    """
    make = exp.TryCast if may_fail else exp.Cast
    kept = _type(TYPES[to] if isinstance(to, Kind) else to)
    return make(this=value, to=kept.copy() if kept.expressions else exp.DataType(**kept.args))


def write_value(value: Value, kind: Kind) -> exp.Expr:
    """A constant of a kind. Fractions become the nearest double."""
    if value is None:
        return cast(exp.null(), kind)
    text = str(value)
    if isinstance(value, Fraction):
        text = repr(float(value))
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, date | datetime):
        text = value.isoformat()
    return cast(exp.Literal.string(text), kind)


def whole(value: int) -> exp.Expr:
    """A whole number as BIGINT."""
    digits = exp.Literal(this=str(abs(value)), is_string=False)
    return cast(digits if value >= 0 else exp.Neg(this=digits), "BIGINT")


def number(value: int | Fraction) -> exp.Expr:
    """The nearest double."""
    return write_value(Fraction(value), Kind.NUMBER)


def call(name: str, *args: exp.Expr) -> exp.Expr:
    """A function of the engine by its own name."""
    return exp.Anonymous(this=name, expressions=list(args))


def binary(operator: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """An operator, in brackets."""
    return exp.Paren(this=operator(this=left, expression=right))


def chain(operator: type[exp.Expr], parts: Sequence[exp.Expr]) -> exp.Expr:
    """An operator between all parts."""
    first, *others = parts
    for other in others:
        first = binary(operator, first, other)
    return first


def and_(*conditions: exp.Expr) -> exp.Expr:
    """All conditions."""
    return exp.and_(*conditions, copy=False)


def not_(condition: exp.Expr) -> exp.Expr:
    """The opposite."""
    return exp.not_(condition, copy=False)


def case(*pairs: tuple[exp.Expr, exp.Expr], otherwise: exp.Expr | None = None) -> exp.Expr:
    """The value of the first condition that is true, else ``otherwise``, else NULL."""
    ifs = [exp.If(this=condition, true=value) for condition, value in pairs]
    return exp.Case(ifs=ifs, default=otherwise)


def within(sql: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """Whether the value is from low to high."""
    return exp.Paren(this=exp.Between(this=sql, low=low, high=high))


def is_not_null(value: exp.Expr) -> exp.Expr:
    """Whether there is a value. Planners expect few rows of NOT … IS NULL, and most of this."""
    return exp.Is(this=exp.paren(value), expression=exp.null(), negate=True)


def not_null(value: exp.Expr, then: exp.Expr) -> exp.Expr:
    """``then`` where the value is not NULL."""
    return case((is_not_null(value), then))


def clamp(value: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """A value that is not NULL within its bounds. The engine takes NULL for the other bound."""
    return call("LEAST", call("GREATEST", value, low), high)


def as_(value: exp.Expr, name: "str | exp.Identifier") -> exp.Expr:
    """The value under a name."""
    return exp.alias_(value, name, copy=False)


def named(name: str) -> exp.Table:
    """A table or CTE of ours."""
    return exp.Table(this=exp.to_identifier(name))


def cte(name: str) -> exp.TableAlias:
    """What a CTE is called."""
    return exp.TableAlias(this=exp.to_identifier(name))


def col(name: str, table: str | None = None) -> exp.Column:
    """A quoted column."""
    at = None if table is None else exp.Identifier(this=table, quoted=False)
    return exp.Column(this=exp.Identifier(this=name, quoted=True), table=at)


def in_calendar(sql: exp.Expr, kind: Kind) -> exp.Expr:
    """NULL outside the years 1 to 9999."""
    is_date = kind is Kind.DATE
    low, high = (date.min, date.max) if is_date else (datetime.min, datetime.max)  # noqa: DTZ901
    inside = within(sql, write_value(low, kind), write_value(high, kind))
    return case((inside, sql.copy()))


def as_kind(arg: Written, kind: Kind) -> exp.Expr:
    """The value as another kind that has room for it."""
    if arg.literal is None:
        return write_value(None, kind)
    if arg.literal is not ... and kind is Kind.NUMBER:
        return number(arg.literal)
    return arg.sql if arg.domain.kind is kind else cast(arg.sql, kind)


def alike(args: Sequence[Written]) -> list[exp.Expr]:
    """All as one kind, so that they can stand beside each other."""
    kind = common_kind([arg.domain for arg in args], [arg.literal for arg in args])
    return [as_kind(arg, kind) for arg in args]


def base_value(column: Column, stored: str, value: exp.Expr, dialect: Dialect) -> exp.Expr:
    """A stored value as its kind: NULL where it has none, clamped into the declared bounds.

    NaN, infinities and dates beyond the years 1 to 9999 have no value.
    """
    engine, value = TYPES[column.kind], dialect.read_as(column, stored, value)
    if column.kind is Kind.NUMBER:
        guard: exp.Expr = dialect.finite(value.copy())
    elif column.kind in (Kind.DATE, Kind.TIMESTAMP):
        first, last = (cast(exp.Literal.string(day), engine) for day in _YEARS)
        after = exp.GTE(this=value.copy(), expression=first)
        guard = and_(after, exp.LT(this=value.copy(), expression=last))
    else:
        guard = is_not_null(value.copy())
    if column.between is not None:
        low, high = (bound_value(bound, column.kind) for bound in column.between)
        inside = exp.Between(this=value.copy(), low=low, high=high)  # quicker, and mostly true
        value = case((inside, value), otherwise=clamp(value.copy(), low.copy(), high.copy()))
    elif column.kind not in (Kind.NUMBER, Kind.DATE, Kind.TIMESTAMP):
        return value
    return case((guard, value))


def shown_value(column: Column, stored: str, value: exp.Expr, dialect: Dialect) -> exp.Expr:
    """The same of a public table, where decimals stay decimals."""
    if column.scale is None:
        return base_value(column, stored, value, dialect)
    if column.between is None:
        return value
    return cast(base_value(column, stored, value, dialect), f"DECIMAL(18, {column.scale})")


def bound_value(bound: Fraction, kind: Kind) -> exp.Expr:
    """A declared bound as the engine reads it."""
    if kind is Kind.NUMBER:
        return number(bound)
    if kind is Kind.INTEGER:
        return whole(max(-WHOLE_MAX, min(WHOLE_MAX, round(bound))))
    if kind is Kind.DATE:
        day = EPOCH.date() + timedelta(days=round(bound))
        return cast(exp.Literal.string(day.isoformat()), "DATE")
    moment = EPOCH + timedelta(microseconds=round(bound))
    return cast(exp.Literal.string(moment.isoformat(" ")), "TIMESTAMP")


def on_grid(value: exp.Expr, grain: Fraction) -> exp.Expr:
    """A double of less than 2**51 grains, rounded to whole grains; the grain is a power of two.

    Next to the anchor, doubles are one grain apart, so that the addition rounds. Sums of such
    values are exact in any order up to 2**53 grains, as every partial sum is a double.
    """
    return exp.Sub(this=raised(value, grain), expression=number(anchor_of(grain)))


def raised(value: exp.Expr, grain: Fraction) -> exp.Expr:
    """The value plus the anchor, which rounds it."""
    added = exp.Add(this=exp.paren(value, copy=False), expression=number(anchor_of(grain)))
    return exp.paren(added, copy=False)


def anchor_of(grain: Fraction) -> Fraction:
    """A number next to which doubles are one grain apart."""
    return 3 * 2**51 * grain


def keys_table(place: int) -> str:
    """The name of the table (i, x) that lists the keys of a grouping."""
    return f"keys{place}"


def range_of(grouping: Grouping) -> range | None:
    """Its keys, where they are consecutive whole numbers: their places need no list of them."""
    keys, first = grouping.keys, grouping.keys[0]
    if type(first) is not int or {*map(type, keys)} != {int}:
        return None
    found = range(first, first + len(keys))
    return found if keys == tuple(found) else None


def is_placed(tally: Sums, dialect: Dialect) -> bool:
    """Whether rows find the places of their keys one by one, and are added up once."""
    once = dialect.places_rows and not tally.is_weighed and bool(tally.by)
    return once and all(map(range_of, tally.by))


def by_places(query: exp.Select, by: Sequence[Grouping], names: Sequence[str]) -> exp.Select:
    """The groups by their places in the lists of keys. What is in no list is dropped, or rest."""
    if not by:
        return query
    placed = exp.select().from_(query.subquery("g", copy=False), copy=False)
    for place, grouping in enumerate(by):
        key, rest, span = col(f"k{place}", "g"), whole(len(grouping.keys)), range_of(grouping)
        at: exp.Expr
        if span:
            first, last = whole(span[0]), whole(span[-1])
            inside = exp.Between(this=key, low=first, high=last)
            near = clamp(key.copy(), first.copy(), last.copy())  # so that nothing overflows
            at = exp.Sub(this=near, expression=first.copy())
            if grouping.rest:
                at = case((inside, at), otherwise=rest)
            else:
                placed.where(inside, copy=False)
        else:
            at = col("i", keys_table(place))
            same = exp.NullSafeEQ(this=key, expression=col("x", keys_table(place)))
            joined(placed, named(keys_table(place)), same, left=grouping.rest)
            if grouping.rest:
                at = exp.Coalesce(this=at, expressions=[rest])
        placed = placed.select(as_(at, f"i{place}"), copy=False)
    return placed.select(*(col(name, "g") for name in names), copy=False)


def joined(query: exp.Select, table: exp.Expr, on: exp.Expr, *, left: bool) -> exp.Select:
    """The query with one more table: a node, where the builder would parse the words of it."""
    side, kind = ("LEFT", None) if left else (None, "INNER")
    query.append("joins", exp.Join(this=table, on=on, side=side, kind=kind))
    return query


def summed(value: exp.Expr) -> exp.Expr:
    """A sum in 128 bits; of a constant, its product with the number of rows."""
    if isinstance(value, exp.Cast):
        return exp.Mul(this=cast(exp.Count(this=exp.Star()), "HUGEINT"), expression=value)
    return exp.Sum(this=value)
