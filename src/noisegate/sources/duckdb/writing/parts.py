"""Parts of DuckDB statements: columns, numbers, conditions, and how a stored column is read."""

from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Final

from sqlglot import exp

from noisegate.algebra.tally import Grouping
from noisegate.privacy.domain import EPOCH, WHOLE_MAX, Column, Kind

ENGINE_TYPES: Final = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}
WHOLE_TYPES: Final = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
})  # fmt: skip
_TYPES: Final = {kind: exp.DataType.build(kind, dialect="duckdb").this for kind in (
    *ENGINE_TYPES.values(), "HUGEINT", "UBIGINT", "INTEGER",
)}  # fmt: skip
_YEARS: Final = ("0001-01-01", "10000-01-01")  # the first day, and the first beyond


def as_(value: exp.Expr, name: "str | exp.Identifier") -> exp.Expr:
    """The value under a name."""
    return exp.alias_(value, name, copy=False)


def engine_type(kind: str) -> exp.DataType:
    """A type of the engine."""
    return exp.DataType(this=_TYPES[kind])


def cast(value: exp.Expr, kind: str) -> exp.Expr:
    """A cast that cannot fail for the values it is used on."""
    return exp.Cast(this=value, to=engine_type(kind))


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


def named(name: str) -> exp.Table:
    """A table or CTE of ours."""
    return exp.Table(this=exp.to_identifier(name))


def cte(name: str) -> exp.TableAlias:
    """What a CTE is called."""
    return exp.TableAlias(this=exp.to_identifier(name))


def col(name: str, table: str | None = None) -> exp.Column:
    """A quoted column."""
    return exp.column(exp.to_identifier(name, quoted=True), table)


def whole(value: int) -> exp.Expr:
    """A whole number as BIGINT."""
    return cast(exp.Literal.number(value) if value >= 0 else exp.Neg(
        this=exp.Literal.number(-value)), "BIGINT")  # fmt: skip


def is_not_null(value: exp.Expr) -> exp.Expr:
    """Whether there is a value."""
    return not_(exp.Is(this=exp.paren(value), expression=exp.null()))


def base_value(column: Column, stored: str, value: exp.Expr) -> exp.Expr:
    """A stored value as its kind: NULL where it has none, clamped into the declared bounds.

    NaN, infinities and dates beyond the years 1 to 9999 have no value.
    """
    engine, value = ENGINE_TYPES[column.kind], as_kind(column, stored, value)
    if column.kind is Kind.NUMBER:
        guard: exp.Expr = exp.Anonymous(this="ISFINITE", expressions=[value.copy()])
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


def shown_value(column: Column, stored: str, value: exp.Expr) -> exp.Expr:
    """The same of a public table, where decimals stay decimals."""
    if column.scale is None:
        return base_value(column, stored, value)
    if column.between is None:
        return value
    kind = exp.DataType.build(f"DECIMAL(18, {column.scale})", dialect="duckdb")
    return exp.Cast(this=base_value(column, stored, value), to=kind)


def can_be_key(value: exp.Expr, kind: Kind) -> exp.Expr:
    """Whether a value can be told as a key: a text without NUL, a number as far as its negative.

    A missing value is a key like any other.
    """
    if kind is Kind.TEXT:
        nul = exp.Anonymous(this="CHR", expressions=[exp.Literal.number(0)])
        fits: exp.Expr = exp.not_(exp.Anonymous(this="CONTAINS", expressions=[value.copy(), nul]))
    elif kind is Kind.INTEGER:
        fits = exp.GTE(this=value.copy(), expression=whole(-WHOLE_MAX))
    else:
        return exp.true()
    return exp.or_(exp.Is(this=value.copy(), expression=exp.null()), fits, copy=False)


def is_narrow(column: Column, stored: str) -> bool:
    """Whether it holds whole numbers that are only widened on reading."""
    return column.kind is Kind.INTEGER and column.between is None and stored in WHOLE_TYPES


def as_kind(column: Column, stored: str, value: exp.Expr) -> exp.Expr:
    """A stored value as its kind, not clamped yet; NULL where it cannot be read so."""
    engine = ENGINE_TYPES[column.kind]
    if stored == engine:
        return value
    safe = column.kind is Kind.INTEGER and stored in WHOLE_TYPES
    to = engine_type(engine)
    return exp.Cast(this=value, to=to) if safe else exp.TryCast(this=value, to=to)


def clamp(value: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """A value that is not NULL within its bounds. The engine takes NULL for the other bound."""
    raised = exp.Anonymous(this="GREATEST", expressions=[value, low])
    return exp.Anonymous(this="LEAST", expressions=[raised, high])


def not_null(value: exp.Expr, then: exp.Expr) -> exp.Expr:
    """``then`` where the value is not NULL."""
    return case((is_not_null(value), then))


def number(value: Fraction) -> exp.Expr:
    """The nearest double."""
    return cast(exp.Literal.string(repr(float(value))), "DOUBLE")


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


def by_places(query: exp.Select, by: Sequence[Grouping], names: Sequence[str]) -> exp.Select:
    """The groups by their places in the lists of keys. What is in no list is dropped, or rest."""
    if not by:
        return query
    placed = exp.select()
    for place, grouping in enumerate(by):
        at: exp.Expr = col("i", keys_table(place))
        if grouping.rest:
            at = exp.Coalesce(this=at, expressions=[whole(len(grouping.keys))])
        placed = placed.select(as_(at, f"i{place}"), copy=False)
    placed = placed.select(*(col(name, "g") for name in names), copy=False)
    placed = placed.from_(query.subquery("g", copy=False), copy=False)
    for place, grouping in enumerate(by):
        same = exp.NullSafeEQ(this=col(f"k{place}", "g"), expression=col("x", keys_table(place)))
        kind = "left" if grouping.rest else "inner"
        placed = placed.join(named(keys_table(place)), on=same, join_type=kind, copy=False)
    return placed


def summed(value: exp.Expr) -> exp.Expr:
    """A sum in 128 bits; of a constant, its product with the number of rows."""
    if isinstance(value, exp.Cast):
        return exp.Mul(this=cast(exp.Count(this=exp.Star()), "HUGEINT"), expression=value)
    return exp.Sum(this=value)
