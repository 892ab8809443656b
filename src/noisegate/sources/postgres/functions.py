"""How Postgres says each function that it has with the meaning of DuckDB; others are refused.

A writer gets its arguments, each NULL or a value of its domain, and the domain of the result for
arguments that are not missing. Results have the type of their kind. Not here, since they cannot be
said with the same meaning: regular expressions, numbers as text and texts as numbers or dates,
rests of doubles, powers, logarithms of base 2, STRFTIME, REVERSE.
"""

from collections.abc import Callable, Mapping
from datetime import date
from fractions import Fraction
from math import lcm
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from noisegate.algebra.intervals import ends
from noisegate.algebra.rules_numbers import is_whole_division
from noisegate.algebra.rules_text import REPLACED_MAX
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.postgres import doubles
from noisegate.sources.writing.dialect import Args, Writer, Written, unsaid
from noisegate.sources.writing.functions import COMMON
from noisegate.sources.writing.letters import blanks, letters
from noisegate.sources.writing.words import (
    as_kind,
    binary,
    call,
    case,
    cast,
    chain,
    clamp,
    number,
    whole,
    write_value,
)

_DAYS_MAX: Final = 3_700_000  # more than there are from the year 1 to 9999
_MODEST: Final = Fraction(2) ** 400
_MICROSECONDS: Final = 10**6


def _refused(what: str) -> Unsupported:
    return unsaid(what, "Postgres")


def _small(value: exp.Expr) -> exp.Expr:
    """A whole number as the 32 bits that functions take."""
    return cast(value, "INT")


def _as_whole(sql: exp.Expr) -> exp.Expr:
    return cast(sql, "BIGINT")


def _is_coarse(arg: Written) -> bool:
    """Whether it is always 0, or at least 1 in size."""
    low, high = ends(arg.domain)
    return arg.domain.kind is Kind.INTEGER or low >= 1 or high <= -1


def _is_modest(arg: Written) -> bool:
    size = arg.domain.magnitude
    return arg.domain.kind is Kind.INTEGER or (size is not None and size <= _MODEST)


def _sum(operator: type[exp.Expr]) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        one, other = (as_kind(arg, made.kind) for arg in args)
        safe = made.kind is Kind.INTEGER or not made.nullable
        return doubles.added(one, other, operator, safe=safe)

    return writer


def _multiply(args: Args, made: Domain) -> exp.Expr:
    one, other = (as_kind(arg, made.kind) for arg in args)
    if made.kind is Kind.INTEGER:
        return binary(exp.Mul, one, other)
    coarse = any(map(_is_coarse, args))
    return doubles.multiplied(one, other, safe=not made.nullable, coarse=coarse)


def _divide(args: Args, _made: Domain) -> exp.Expr:
    top, bottom = (as_kind(arg, Kind.NUMBER) for arg in args)
    plain = all(_is_coarse(arg) and _is_modest(arg) for arg in args)
    return doubles.divided(top, bottom, plain=plain)


def _int_divide(args: Args, made: Domain) -> exp.Expr:
    if is_whole_division([arg.domain for arg in args]):
        divisor = exp.Nullif(this=args[1].sql, expression=whole(0))
        return exp.paren(exp.Div(this=args[0].sql, expression=divisor, typed=True, safe=False))
    quotient = call("TRUNC", _divide(args, made))
    return _as_whole(quotient) if made.kind is Kind.INTEGER else quotient


def _modulo(args: Args, made: Domain) -> exp.Expr:
    if made.kind is not Kind.INTEGER:
        raise _refused("The rest of a division of numbers that are not whole")
    return binary(exp.Mod, args[0].sql, exp.Nullif(this=args[1].sql, expression=whole(0)))


def _negate(args: Args, made: Domain) -> exp.Expr:
    return exp.Paren(this=exp.Neg(this=exp.Paren(this=as_kind(args[0], made.kind))))


def _rounding(step: Callable[[exp.Expr], exp.Expr]) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        if args[0].domain.kind is Kind.INTEGER:
            return args[0].sql
        found = step(args[0].sql)
        return _as_whole(found) if made.kind is Kind.INTEGER else found

    return writer


def _round(args: Args, made: Domain) -> exp.Expr:
    digits = args[1].literal if len(args) > 1 else 0
    if digits == 0 or (digits > 0 and made.kind is Kind.INTEGER):
        return _rounding(doubles.rounded)(args[:1], made)
    if made.kind is Kind.INTEGER:
        raise _refused("ROUND of whole numbers to tens")
    return _to_digits(as_kind(args[0], Kind.NUMBER), digits)


def _to_digits(value: exp.Expr, digits: int) -> exp.Expr:
    """As DuckDB does it: times a power of ten, to the nearest whole number, and divided again.

    Where the product is infinite the number itself is as near; below that, a quotient is not 0
    unless its top is.
    """
    power = number(10 ** abs(digits))
    if digits < 0:
        steps = doubles.rounded(doubles.divided(value, power, plain=False))
        return exp.Coalesce(
            this=doubles.multiplied(steps, power.copy(), safe=False, coarse=True),
            expressions=[case((doubles.finite(value.copy()), number(0)))],
        )
    scaled = doubles.multiplied(value, power, safe=False, coarse=True)
    found = doubles.divided(doubles.rounded(scaled), power.copy(), plain=True)
    return exp.Coalesce(this=found, expressions=[value.copy()])


def _above_zero(name: str, least: type[exp.Expr]) -> Writer:
    def writer(args: Args, _made: Domain) -> exp.Expr:
        arg = as_kind(args[0], Kind.NUMBER)
        return case((binary(least, arg, number(0)), call(name, arg.copy())))

    return writer


def _bin(args: Args, made: Domain) -> exp.Expr:
    """In whole steps of the common denominator, so that an edge is the double nearest to it."""
    width = Fraction(args[1].literal)
    origin = Fraction(args[2].literal) if len(args) > 2 else Fraction(0)
    scale = lcm(width.denominator, origin.denominator)
    step, shift = number(width * scale), number(origin * scale)
    safe = not made.nullable
    scaled = as_kind(args[0], Kind.NUMBER)
    scaled = doubles.multiplied(scaled, number(scale), safe=safe, coarse=True)
    moved = doubles.added(scaled, shift, exp.Sub, safe=safe)
    place = call("FLOOR", doubles.divided(moved, step, plain=False))
    edge = doubles.multiplied(place, step.copy(), safe=safe, coarse=True)
    edge = doubles.added(edge, shift.copy(), exp.Add, safe=safe)
    if made.kind is Kind.INTEGER:
        return _as_whole(edge)
    return doubles.divided(edge, number(scale), plain=safe)


def _cased(function: str) -> Writer:
    """ASCII letters by the engine's own way in the collation "C", all others one by one."""

    def writer(args: Args, _made: Domain) -> exp.Expr:
        plain = call(function, args[0].sql)
        changed = call("TRANSLATE", plain.copy(), *map(exp.Literal.string, letters(function)))
        is_plain = exp.EQ(
            this=call("OCTET_LENGTH", args[0].sql.copy()),
            expression=call("LENGTH", args[0].sql.copy()),
        )
        return case((is_plain, plain), otherwise=changed)

    return writer


def _trimmed(name: str) -> Writer:
    return lambda args, _: call(name, args[0].sql, exp.Literal.string(blanks()))


def _counted(name: str) -> Writer:
    return lambda args, _: _as_whole(call(name, *(arg.sql for arg in args)))


def _substring(args: Args, made: Domain) -> exp.Expr:
    positions = args[1:]
    least = [ends(arg.domain)[0] for arg in positions]
    if made.nullable or least[0] < 1 or (len(least) > 1 and least[1] < 0):
        raise _refused("SUBSTRING from a position that may be below 1")
    return call("SUBSTR", args[0].sql, *(_small(arg.sql) for arg in positions))


def _end(name: str) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        if made.nullable:
            raise _refused(f"{name} by a number without bounds")
        return call(name, args[0].sql, _small(args[1].sql))

    return writer


def _cut(value: exp.Expr) -> exp.Expr:
    return call("LEFT", value, exp.Literal.number(REPLACED_MAX))


def _concat(args: Args, _made: Domain) -> exp.Expr:
    return chain(exp.DPipe, [_cut(arg.sql) for arg in args])


def _replace(args: Args, _made: Domain) -> exp.Expr:
    text, old, new = (arg.sql for arg in args)
    return call("REPLACE", _cut(text), old, new)


def _ends_with(args: Args, _made: Domain) -> exp.Expr:
    text, part = (arg.sql for arg in args)
    return binary(exp.EQ, call("RIGHT", text, call("LENGTH", part)), part.copy())


def _contains(args: Args, _made: Domain) -> exp.Expr:
    found = call("STRPOS", *(arg.sql for arg in args))
    return binary(exp.GT, found, exp.Literal.number(0))


def _split_part(args: Args, _made: Domain) -> exp.Expr:
    text, sign, place = args
    if not sign.literal or not 0 < abs(place.literal) < 1 << 31:
        raise _refused("SPLIT_PART by nothing, or at such a place,")
    return call("SPLIT_PART", text.sql, sign.sql, _small(place.sql))


def _padded(name: str) -> Writer:
    return lambda args, _: call(name, args[0].sql, _small(args[1].sql), args[2].sql)


def _repeat(args: Args, _made: Domain) -> exp.Expr:
    return call("REPEAT", _cut(args[0].sql), exp.Literal.number(max(args[1].literal, 0)))


def _like(args: Args, _made: Domain) -> exp.Expr:
    pattern = exp.Literal.string(args[1].literal)
    escape = exp.Literal.string(args[2].literal if len(args) > 2 else "")
    found = exp.Like(this=args[0].sql, expression=pattern)
    return exp.Paren(this=exp.Escape(this=found, expression=escape))


def _moment(arg: Written) -> exp.Expr:
    return as_kind(arg, Kind.TIMESTAMP)


def _part(name: str, moment: exp.Expr) -> exp.Expr:
    return exp.Extract(this=exp.Var(this=name), expression=moment)


def _extracted(name: str) -> Writer:
    return lambda args, _: _as_whole(call("TRUNC", _part(name, _moment(args[0]))))


def _passed(moment: exp.Expr) -> exp.Expr:
    """Microseconds since 1970."""
    seconds = binary(exp.Mul, _part("EPOCH", moment), exp.Literal.number(_MICROSECONDS))
    return _as_whole(seconds)


def _epoch(args: Args, _made: Domain) -> exp.Expr:
    passed = cast(_passed(_moment(args[0])), Kind.NUMBER)
    return doubles.divided(passed, number(_MICROSECONDS), plain=True)


def _epoch_ms(args: Args, _made: Domain) -> exp.Expr:
    seconds = _part("EPOCH", _moment(args[0]))
    return _as_whole(call("ROUND", binary(exp.Mul, seconds, exp.Literal.number(1000))))


def _start(unit: str, moment: exp.Expr) -> exp.Expr:
    return call("DATE_TRUNC", exp.Literal.string(unit), moment)


def _date_trunc(args: Args, made: Domain) -> exp.Expr:
    return cast(_start(args[0].literal.lower(), _moment(args[1])), made.kind)


_SECONDS: Final = {"hour": 3600, "minute": 60, "second": 1}
_OF_YEAR: Final = {"year": 1, "quarter": 4, "month": 12}


def _number_of(unit: str, moment: exp.Expr) -> exp.Expr:
    """The number of the unit that a time is in."""
    if unit in _OF_YEAR:
        years = binary(exp.Mul, _as_whole(_part("YEAR", moment)), whole(_OF_YEAR[unit]))
        if unit == "year":
            return years
        return binary(exp.Add, years, _as_whole(_part(unit.upper(), moment.copy())))
    seconds = _as_whole(_part("EPOCH", _start(unit, moment)))
    length = whole({"week": 7 * 86400, "day": 86400, **_SECONDS}[unit])
    first = whole(4 * 86400 if unit == "week" else 0)  # 1970 began on a Thursday
    since = binary(exp.Sub, seconds, first)
    return exp.paren(exp.Div(this=since, expression=length, typed=True, safe=False))


def _date_diff(args: Args, _made: Domain) -> exp.Expr:
    unit = args[0].literal.lower()
    one, other = (_number_of(unit, _moment(arg)) for arg in args[1:])
    return binary(exp.Sub, other, one)


def _date_add_days(args: Args, made: Domain) -> exp.Expr:
    moment, days = (arg.sql for arg in args)
    if made.nullable:  # NULL becomes a number of days that leaves the calendar
        days = clamp(days, whole(-_DAYS_MAX), whole(_DAYS_MAX))
    step: exp.Expr = _small(days)
    if made.kind is not Kind.DATE:
        step = binary(exp.Mul, step, cast(exp.Literal.string("1 day"), "INTERVAL"))
    later = binary(exp.Add, moment, step)
    if not made.nullable:
        return later
    # the calendar of the engine ends soon before ours, so that days are counted first
    passed = binary(exp.Sub, cast(moment.copy(), Kind.DATE), write_value(date.min, Kind.DATE))
    day = exp.Add(this=passed, expression=days.copy())
    inside = exp.Between(this=day, low=whole(0), high=whole((date.max - date.min).days))
    return case((inside, later))


def _make_date(args: Args, _made: Domain) -> exp.Expr:
    given = [arg.sql for arg in args]
    limits = ((1, 9999), (1, 12), (1, 31))
    year, month, day = (
        _small(clamp(x.copy(), *map(whole, limit))) for x, limit in zip(given, limits, strict=True)
    )
    days = binary(exp.Sub, day, exp.Literal.number(1))
    first = call("MAKE_DATE", year, month, exp.Literal.number(1))
    made_of = binary(exp.Add, first, days)
    parts = [
        binary(exp.EQ, _as_whole(_part(name, made_of.copy())), part)
        for name, part in zip(("YEAR", "MONTH", "DAY"), given, strict=True)
    ]
    return case((chain(exp.And, parts), made_of))


def _to(args: Args, made: Domain) -> exp.Expr:
    (arg,), kind = args, made.kind
    value, of = arg.sql, arg.domain.kind
    if of is kind:
        return value
    if arg.literal is None:
        return write_value(None, kind)
    if Kind.TEXT in (of, kind) and (of is Kind.TEXT or of is Kind.NUMBER):
        raise _refused(f"Casting {of.value} to {kind.value}")
    if kind is Kind.BOOLEAN:
        return binary(exp.NEQ, value, number(0) if of is Kind.NUMBER else whole(0))
    if of is Kind.BOOLEAN and kind is not Kind.TEXT:
        return cast(_small(value), kind)
    if of is Kind.NUMBER:
        return whole_of(value)
    return cast(value, kind)


def whole_of(value: exp.Expr) -> exp.Expr:
    """A number as BIGINT, halves to even (of a decimal away from zero); NULL beyond 64 bits."""
    low = exp.GTE(this=value, expression=doubles.power(63))
    least = exp.LT(this=value.copy(), expression=number(-(1 << 63)))
    return case((exp.or_(low, least), exp.null()), otherwise=cast(value.copy(), "BIGINT"))


WRITERS: Final[Mapping[str, Writer]] = MappingProxyType({
    **COMMON,
    "add": _sum(exp.Add),
    "subtract": _sum(exp.Sub),
    "multiply": _multiply,
    "divide": _divide,
    "int_divide": _int_divide,
    "modulo": _modulo,
    "negate": _negate,
    "abs": lambda args, made: call("ABS", as_kind(args[0], made.kind)),
    "sign": lambda args, made: cast(call("SIGN", as_kind(args[0], Kind.NUMBER)), made.kind),
    "floor": _rounding(lambda x: call("FLOOR", x)),
    "ceil": _rounding(lambda x: call("CEIL", x)),
    "trunc": _rounding(lambda x: call("TRUNC", x)),
    "round": _round,
    "sqrt": _above_zero("SQRT", exp.GTE),
    "ln": _above_zero("LN", exp.GT),
    "log10": _above_zero("LOG10", exp.GT),
    "exp": lambda args, _: doubles.exponential(as_kind(args[0], Kind.NUMBER)),
    "bin": _bin,
    "lower": _cased("LOWER"),
    "upper": _cased("UPPER"),
    "length": _counted("LENGTH"),
    "strlen": _counted("OCTET_LENGTH"),
    "trim": _trimmed("BTRIM"),
    "ltrim": _trimmed("LTRIM"),
    "rtrim": _trimmed("RTRIM"),
    "substring": _substring,
    "left": _end("LEFT"),
    "right": _end("RIGHT"),
    "concat": _concat,
    "replace": _replace,
    "starts_with": lambda args, _: call("STARTS_WITH", *(arg.sql for arg in args)),
    "ends_with": _ends_with,
    "contains": _contains,
    "position": _counted("STRPOS"),
    "repeat": _repeat,
    "split_part": _split_part,
    "lpad": _padded("LPAD"),
    "rpad": _padded("RPAD"),
    "like": _like,
    "year": _extracted("YEAR"),
    "quarter": _extracted("QUARTER"),
    "month": _extracted("MONTH"),
    "week": _extracted("WEEK"),
    "day": _extracted("DAY"),
    "dayofweek": _extracted("DOW"),
    "dayofyear": _extracted("DOY"),
    "hour": _extracted("HOUR"),
    "minute": _extracted("MINUTE"),
    "second": _extracted("SECOND"),
    "epoch": _epoch,
    "epoch_ms": _epoch_ms,
    "date_trunc": _date_trunc,
    "date_add_days": _date_add_days,
    "date_diff": _date_diff,
    "make_date": _make_date,
    "to_integer": _to,
    "to_number": _to,
    "to_decimal": lambda args, _: _to_digits(as_kind(args[0], Kind.NUMBER), args[1].literal),
    "to_text": _to,
    "to_boolean": _to,
    "to_date": _to,
    "to_timestamp": _to,
})  # fmt: skip
