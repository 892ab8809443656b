"""The words of DuckDB that expressions are written in: constants, casts, calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from functools import cache
from typing import Any, Final, final

from sqlglot import exp

from noisegate.algebra.expression import Value
from noisegate.algebra.signature import common_kind
from noisegate.privacy.domain import Domain, Kind

TYPES: Final = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
}


@final
@dataclass(frozen=True, slots=True)
class Written:
    """An expression as the engine reads it, and what is known of it.

    ``spoilt``: it may be NaN or infinite where it ought to be NULL.
    """

    sql: exp.Expr
    domain: Domain
    literal: Any = ...
    spoilt: bool = False


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


def cast(sql: exp.Expr, kind: Kind, *, may_fail: bool = False) -> exp.Expr:
    """The value as the kind; with ``may_fail``, NULL where there is none."""
    return cast_to(sql, TYPES[kind], may_fail=may_fail)


def cast_to(sql: exp.Expr, name: str, *, may_fail: bool = False) -> exp.Expr:
    """As `cast`, to a type of the engine."""
    make = exp.TryCast if may_fail else exp.Cast
    return make(this=sql, to=_type(name).copy())


@cache  # reading a type takes longer than all else about a cast; there are a dozen names
def _type(name: str) -> exp.DataType:
    return exp.DataType.build(name, dialect="duckdb")


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


def when(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """The value where the condition is true, else NULL."""
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def within(sql: exp.Expr, low: exp.Expr, high: exp.Expr) -> exp.Expr:
    """Whether the value is from low to high."""
    return exp.Paren(this=exp.Between(this=sql, low=low, high=high))


def whole(value: int) -> exp.Expr:
    """A constant BIGINT."""
    return write_value(value, Kind.INTEGER)


def double(value: "int | Fraction") -> exp.Expr:
    """A constant DOUBLE."""
    return write_value(Fraction(value), Kind.NUMBER)


def clamped(sql: exp.Expr, low: int, high: int) -> exp.Expr:
    """The whole number, moved between the limits; the low one where it is missing."""
    return call("LEAST", call("GREATEST", sql, whole(low)), whole(high))


def in_calendar(sql: exp.Expr, kind: Kind) -> exp.Expr:
    """NULL outside the years 1 to 9999."""
    is_date = kind is Kind.DATE
    low, high = (date.min, date.max) if is_date else (datetime.min, datetime.max)  # noqa: DTZ901
    return when(within(sql, write_value(low, kind), write_value(high, kind)), sql.copy())


def as_kind(arg: Written, kind: Kind) -> exp.Expr:
    """The value as another kind that has room for it."""
    if arg.literal is None:
        return write_value(None, kind)
    if arg.literal is not ... and kind is Kind.NUMBER:
        return double(arg.literal)
    return arg.sql if arg.domain.kind is kind else cast(arg.sql, kind)


def alike(args: Sequence[Written]) -> list[exp.Expr]:
    """All as one kind, so that they can stand beside each other."""
    kind = common_kind([arg.domain for arg in args], [arg.literal for arg in args])
    return [as_kind(arg, kind) for arg in args]
