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
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.asked.functions import (
    FIRST_WEEK,
    MICROSECONDS,
    SECONDS,
    Own,
    as_whole,
    counted,
    days_to_add,
    moment,
    small,
)
from noisegate.sources.postgres import doubles
from noisegate.sources.writing.dialect import Args, Writer, Written, unsaid
from noisegate.sources.writing.functions import COMMON
from noisegate.sources.writing.letters import blanks
from noisegate.sources.writing.words import (
    as_kind,
    binary,
    call,
    case,
    cast,
    number,
    whole,
    write_value,
)

_MODEST: Final = Fraction(2) ** 400


def _refused(what: str) -> Unsupported:
    return unsaid(what, "Postgres")


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
    return as_whole(quotient) if made.kind is Kind.INTEGER else quotient


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
        return as_whole(found) if made.kind is Kind.INTEGER else found

    return writer


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
        return as_whole(edge)
    return doubles.divided(edge, number(scale), plain=safe)


def _trimmed(name: str) -> Writer:
    return lambda args, _: call(name, args[0].sql, exp.Literal.string(blanks()))


def _end(name: str) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        if made.nullable:
            raise _refused(f"{name} by a number without bounds")
        return call(name, args[0].sql, small(args[1].sql))

    return writer


def _ends_with(args: Args, _made: Domain) -> exp.Expr:
    text, part = (arg.sql for arg in args)
    return binary(exp.EQ, call("RIGHT", text, call("LENGTH", part)), part.copy())


def _contains(args: Args, _made: Domain) -> exp.Expr:
    found = call("STRPOS", *(arg.sql for arg in args))
    return binary(exp.GT, found, exp.Literal.number(0))


def _like(args: Args, _made: Domain) -> exp.Expr:
    pattern = exp.Literal.string(args[1].literal)
    escape = exp.Literal.string(args[2].literal if len(args) > 2 else "")
    found = exp.Like(this=args[0].sql, expression=pattern)
    return exp.Paren(this=exp.Escape(this=found, expression=escape))


def _part(name: str, time: exp.Expr) -> exp.Expr:
    return exp.Extract(this=exp.Var(this=name), expression=time)


def _extracted(name: str) -> Writer:
    return lambda args, _: as_whole(call("TRUNC", _part(name, moment(args[0]))))


def _passed(time: exp.Expr) -> exp.Expr:
    """Microseconds since 1970."""
    seconds = binary(exp.Mul, _part("EPOCH", time), exp.Literal.number(MICROSECONDS))
    return as_whole(seconds)


def _epoch(args: Args, _made: Domain) -> exp.Expr:
    passed = cast(_passed(moment(args[0])), Kind.NUMBER)
    return doubles.divided(passed, number(MICROSECONDS), plain=True)


def _epoch_ms(args: Args, _made: Domain) -> exp.Expr:
    seconds = _part("EPOCH", moment(args[0]))
    return as_whole(call("ROUND", binary(exp.Mul, seconds, exp.Literal.number(1000))))


def _start(unit: str, time: exp.Expr) -> exp.Expr:
    return call("DATE_TRUNC", exp.Literal.string(unit), time)


def _date_trunc(args: Args, made: Domain) -> exp.Expr:
    return cast(_start(args[0].literal.lower(), moment(args[1])), made.kind)


def _steps(unit: str, time: exp.Expr) -> exp.Expr:
    seconds = as_whole(_part("EPOCH", _start(unit, time)))
    since = binary(exp.Sub, seconds, whole(FIRST_WEEK if unit == "week" else 0))
    length = whole(SECONDS[unit])
    return exp.paren(exp.Div(this=since, expression=length, typed=True, safe=False))


def _date_add_days(args: Args, made: Domain) -> exp.Expr:
    time, days = args[0].sql, days_to_add(args[1].sql, made)
    step = days
    if made.kind is not Kind.DATE:
        step = binary(exp.Mul, days, cast(exp.Literal.string("1 day"), "INTERVAL"))
    later = binary(exp.Add, time, step)
    if not made.nullable:
        return later
    # the calendar of the engine ends soon before ours, so that days are counted first
    passed = binary(exp.Sub, cast(time.copy(), Kind.DATE), write_value(date.min, Kind.DATE))
    day = exp.Add(this=passed, expression=days.copy())
    inside = exp.Between(this=day, low=whole(0), high=whole((date.max - date.min).days))
    return case((inside, later))


def whole_of(value: exp.Expr) -> exp.Expr:
    """A number as BIGINT, halves to even (of a decimal away from zero); NULL beyond 64 bits."""
    low = exp.GTE(this=value, expression=doubles.power(63))
    least = exp.LT(this=value.copy(), expression=number(-(1 << 63)))
    return case((exp.or_(low, least), exp.null()), otherwise=cast(value.copy(), "BIGINT"))


_OWN: Final = Own(
    name="Postgres",
    rounded=_rounding(doubles.rounded),
    to_digits=_to_digits,
    whole_of=whole_of,
    truth=lambda value, kind: cast(small(value), kind),
    part=lambda name, time: as_whole(_part(name, time)),
    later=lambda day, days: binary(exp.Add, day, days),
    steps=_steps,
)
WRITERS: Final[Mapping[str, Writer]] = MappingProxyType({
    **COMMON,
    **_OWN.writers(),
    "add": _sum(exp.Add),
    "subtract": _sum(exp.Sub),
    "multiply": _multiply,
    "divide": _divide,
    "int_divide": _int_divide,
    "modulo": _modulo,
    "negate": _negate,
    "abs": lambda args, made: call("ABS", as_kind(args[0], made.kind)),
    "floor": _rounding(lambda x: call("FLOOR", x)),
    "ceil": _rounding(lambda x: call("CEIL", x)),
    "trunc": _rounding(lambda x: call("TRUNC", x)),
    "sqrt": _above_zero("SQRT", exp.GTE),
    "ln": _above_zero("LN", exp.GT),
    "log10": _above_zero("LOG10", exp.GT),
    "exp": lambda args, _: doubles.exponential(as_kind(args[0], Kind.NUMBER)),
    "bin": _bin,
    "trim": _trimmed("BTRIM"),
    "ltrim": _trimmed("LTRIM"),
    "rtrim": _trimmed("RTRIM"),
    "left": _end("LEFT"),
    "right": _end("RIGHT"),
    "starts_with": lambda args, _: call("STARTS_WITH", *(arg.sql for arg in args)),
    "ends_with": _ends_with,
    "contains": _contains,
    "position": counted("STRPOS"),
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
})  # fmt: skip
