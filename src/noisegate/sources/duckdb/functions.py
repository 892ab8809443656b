"""How DuckDB says each function of the list.

A writer gets its arguments, each NULL or a value of its domain, and the domain of the result for
arguments that are not missing: where that is nullable, the function itself has to make NULLs.
Every piece is total by itself, since an engine may run any branch for any row.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import lcm
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from noisegate.algebra.intervals import ends
from noisegate.algebra.rules_numbers import is_whole_division
from noisegate.algebra.rules_text import REPLACED_MAX
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.writing.dialect import Args, Writer, Written
from noisegate.sources.writing.functions import COMMON
from noisegate.sources.writing.words import (
    as_kind,
    binary,
    call,
    case,
    cast,
    chain,
    clamp,
    in_calendar,
    number,
    whole,
)

_DAYS_MAX: Final = 3_700_000  # more than there are from the year 1 to 9999


def _arithmetic(operator: type[exp.Expr]) -> Writer:
    return lambda args, made: binary(operator, *(as_kind(arg, made.kind) for arg in args))


def _divide(args: Args, _made: Domain) -> exp.Expr:
    return binary(exp.Div, *(as_kind(arg, Kind.NUMBER) for arg in args))


def _int_divide(args: Args, made: Domain) -> exp.Expr:
    if is_whole_division([arg.domain for arg in args]):
        return binary(exp.IntDiv, args[0].sql, _divisor(args[1]))
    return _as_whole(call("TRUNC", _divide(args, made)), made)


def _modulo(args: Args, made: Domain) -> exp.Expr:
    if made.kind is Kind.INTEGER:
        return binary(exp.Mod, args[0].sql, _divisor(args[1]))
    return binary(exp.Mod, *(as_kind(arg, Kind.NUMBER) for arg in args))


def _divisor(arg: Written) -> exp.Expr:
    low, high = ends(arg.domain)
    return call("NULLIF", arg.sql, whole(0)) if low <= 0 <= high else arg.sql


def _as_whole(sql: exp.Expr, made: Domain) -> exp.Expr:
    return cast(sql, Kind.INTEGER) if made.kind is Kind.INTEGER else sql


def _rounded(name: str) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        if args[0].domain.kind is Kind.INTEGER:
            return args[0].sql
        return _as_whole(call(name, args[0].sql), made)

    return writer


def _round(args: Args, made: Domain) -> exp.Expr:
    digits = args[1].literal if len(args) > 1 else 0
    if digits == 0 or (digits > 0 and made.kind is Kind.INTEGER):
        return _rounded("ROUND")(args[:1], made)
    return call("ROUND", as_kind(args[0], made.kind), cast(whole(digits), "INT"))


def _of_number(name: str) -> Writer:
    return lambda args, _: call(name, *(as_kind(arg, Kind.NUMBER) for arg in args))


def _above_zero(name: str, least: type[exp.Expr]) -> Writer:
    """A function that has values only for numbers above, or from, zero."""

    def writer(args: Args, made: Domain) -> exp.Expr:
        arg = as_kind(args[0], Kind.NUMBER)
        return call(
            name, case((binary(least, arg, number(0)), arg.copy())) if made.nullable else arg
        )

    return writer


def _bin(args: Args, made: Domain) -> exp.Expr:
    """In whole steps of the common denominator, so that an edge is the double nearest to it."""
    width = Fraction(args[1].literal)
    origin = Fraction(args[2].literal) if len(args) > 2 else Fraction(0)
    scale = lcm(width.denominator, origin.denominator)
    step, shift = number(width * scale), number(origin * scale)
    scaled = binary(exp.Mul, as_kind(args[0], Kind.NUMBER), number(scale))
    place = call("FLOOR", binary(exp.Div, binary(exp.Sub, scaled, shift), step))
    edge = binary(exp.Add, binary(exp.Mul, place, step.copy()), shift.copy())
    if made.kind is Kind.INTEGER:
        return cast(edge, Kind.INTEGER)
    return binary(exp.Div, edge, number(scale))


def _negate(args: Args, made: Domain) -> exp.Expr:
    return exp.Paren(this=exp.Neg(this=exp.Paren(this=as_kind(args[0], made.kind))))


def _of_text(name: str) -> Writer:
    """Positions are NULL beyond the 32 bits that the engine takes."""

    def writer(args: Args, made: Domain) -> exp.Expr:
        texts = [
            cast(cast(arg.sql, "INT", may_fail=True), "BIGINT")
            if arg.domain.kind is Kind.INTEGER and made.nullable
            else arg.sql
            for arg in args
        ]
        return call(name, *texts)

    return writer


def _concat(args: Args, _made: Domain) -> exp.Expr:
    parts = [call("LEFT", arg.sql, whole(REPLACED_MAX)) for arg in args]
    return chain(exp.DPipe, parts)


def _replace(args: Args, _made: Domain) -> exp.Expr:
    text, old, new = (arg.sql for arg in args)
    return call("REPLACE", call("LEFT", text, whole(REPLACED_MAX)), old, new)


def _like(operator: type[exp.Expr]) -> Writer:
    def writer(args: Args, _made: Domain) -> exp.Expr:
        pattern, *escape = (exp.Literal.string(arg.literal) for arg in args[1:])
        found = operator(this=args[0].sql, expression=pattern)
        return exp.Paren(this=exp.Escape(this=found, expression=escape[0]) if escape else found)

    return writer


def _plain(name: str) -> Writer:
    return lambda args, _: call(name, *(arg.sql for arg in args))


def _padded(name: str) -> Writer:
    return lambda args, _: call(name, args[0].sql, cast(args[1].sql, "INT"), args[2].sql)


def _regexp_extract(args: Args, _made: Domain) -> exp.Expr:
    group = cast(args[2].sql, "INT")
    return call("REGEXP_EXTRACT", args[0].sql, args[1].sql, group)


def _regexp_replace(args: Args, _made: Domain) -> exp.Expr:
    text, *others = (arg.sql for arg in args)
    return call("REGEXP_REPLACE", call("LEFT", text, whole(REPLACED_MAX)), *others)


def _date_trunc(args: Args, made: Domain) -> exp.Expr:
    unit = exp.Literal.string(args[0].literal.lower())
    return cast(call("DATE_TRUNC", unit, args[1].sql), made.kind)


def _date_diff(args: Args, _made: Domain) -> exp.Expr:
    unit = exp.Literal.string(args[0].literal.lower())
    ends_ = [as_kind(arg, Kind.TIMESTAMP) for arg in args[1:]]
    if unit.this != "week":
        return call("DATE_DIFF", unit, *ends_)
    # the engine's own weeks are one off across 1970
    mondays = (call("DATE_TRUNC", unit.copy(), end) for end in ends_)
    return binary(exp.IntDiv, call("DATE_DIFF", exp.Literal.string("day"), *mondays), whole(7))


def _date_add_days(args: Args, made: Domain) -> exp.Expr:
    moment, days = (arg.sql for arg in args)
    if made.nullable:
        days = clamp(days, whole(-_DAYS_MAX), whole(_DAYS_MAX))
    days = cast(days, "INT")
    later = binary(exp.Add, moment, days if made.kind is Kind.DATE else call("TO_DAYS", days))
    return in_calendar(later, made.kind) if made.nullable else later


def _make_date(args: Args, made: Domain) -> exp.Expr:
    given = [arg.sql for arg in args]
    if not made.nullable:
        return call("MAKE_DATE", *given)
    limits = ((1, 9999), (1, 12), (1, 31))
    year, month, day = (
        clamp(x.copy(), *map(whole, limit)) for x, limit in zip(given, limits, strict=True)
    )
    days = cast(binary(exp.Sub, day, whole(1)), "INT")
    date = binary(exp.Add, call("MAKE_DATE", year, month, whole(1)), days)
    parts = [
        binary(exp.EQ, call(name, date.copy()), part)
        for name, part in zip(("YEAR", "MONTH", "DAY"), given, strict=True)
    ]
    return case((chain(exp.And, parts), date))


def _to(args: Args, made: Domain) -> exp.Expr:
    (arg,) = args
    if arg.domain.kind is made.kind:
        return arg.sql
    value = arg.sql
    if arg.domain.kind is Kind.NUMBER and made.kind is Kind.TEXT:  # one zero, not two
        value = exp.Add(this=exp.paren(value), expression=number(Fraction(0)))
    read = cast(value, made.kind, may_fail=made.nullable)
    is_read_moment = made.nullable and made.kind in (Kind.DATE, Kind.TIMESTAMP)
    return in_calendar(read, made.kind) if is_read_moment else read


WRITERS: Final[Mapping[str, Writer]] = MappingProxyType({
    **COMMON,
    "add": _arithmetic(exp.Add),
    "subtract": _arithmetic(exp.Sub),
    "multiply": _arithmetic(exp.Mul),
    "divide": _divide,
    "int_divide": _int_divide,
    "modulo": _modulo,
    "negate": _negate,
    "abs": lambda args, made: call("ABS", as_kind(args[0], made.kind)),
    "sign": lambda args, made: cast(call("SIGN", args[0].sql), made.kind),
    "floor": _rounded("FLOOR"),
    "ceil": _rounded("CEIL"),
    "trunc": _rounded("TRUNC"),
    "round": _round,
    "sqrt": _above_zero("SQRT", exp.GTE),
    "ln": _above_zero("LN", exp.GT),
    "log10": _above_zero("LOG10", exp.GT),
    "log2": _above_zero("LOG2", exp.GT),
    "exp": _of_number("EXP"),
    "power": _of_number("POW"),
    "bin": _bin,
    "lower": _plain("LOWER"),
    "upper": _plain("UPPER"),
    "length": _plain("LENGTH"),
    "trim": _plain("TRIM"),
    "ltrim": _plain("LTRIM"),
    "rtrim": _plain("RTRIM"),
    "substring": _of_text("SUBSTRING"),
    "left": _of_text("LEFT"),
    "right": _of_text("RIGHT"),
    "concat": _concat,
    "replace": _replace,
    "starts_with": _plain("STARTS_WITH"),
    "ends_with": _plain("ENDS_WITH"),
    "contains": _plain("CONTAINS"),
    "position": _plain("STRPOS"),
    "strlen": _plain("STRLEN"),
    "reverse": _plain("REVERSE"),
    "repeat": lambda args, _: call(
        "REPEAT", call("LEFT", args[0].sql, whole(REPLACED_MAX)), args[1].sql
    ),
    "split_part": _plain("SPLIT_PART"),
    "lpad": _padded("LPAD"),
    "rpad": _padded("RPAD"),
    "regexp_matches": _plain("REGEXP_MATCHES"),
    "regexp_full_match": _plain("REGEXP_FULL_MATCH"),
    "regexp_extract": _regexp_extract,
    "regexp_replace": _regexp_replace,
    "like": _like(exp.Like),
    "ilike": _like(exp.ILike),
    "year": _plain("YEAR"),
    "quarter": _plain("QUARTER"),
    "month": _plain("MONTH"),
    "week": _plain("WEEK"),
    "day": _plain("DAY"),
    "dayofweek": _plain("DAYOFWEEK"),
    "dayofyear": _plain("DAYOFYEAR"),
    "hour": _plain("HOUR"),
    "minute": _plain("MINUTE"),
    "second": _plain("SECOND"),
    "epoch": _plain("EPOCH"),
    "epoch_ms": _plain("EPOCH_MS"),
    "strftime": _plain("STRFTIME"),
    "date_trunc": _date_trunc,
    "date_add_days": _date_add_days,
    "date_diff": _date_diff,
    "make_date": _make_date,
    "to_integer": _to,
    "to_number": _to,
    "to_decimal": lambda args, _: call(
        "ROUND", as_kind(args[0], Kind.NUMBER), cast(whole(args[1].literal), "INT")
    ),
    "to_text": _to,
    "to_boolean": _to,
    "to_date": _to,
    "to_timestamp": _to,
})  # fmt: skip
