"""How Spark says each function that it has with the meaning of DuckDB; others are refused.

Its own functions mean different things from server to server (RINT, LEFT of a number below zero,
DATE_TRUNC's type), so that only those are used that were found to mean one thing on all of them.
Not here: regular expressions, texts as numbers or dates and numbers as text, LOG2, STRFTIME,
REVERSE, ILIKE. Whole results are BIGINT, since a server's INT would overflow in the next step.
"""

from collections.abc import Callable, Mapping
from datetime import date
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from noisegate.algebra.intervals import ends
from noisegate.algebra.rules_numbers import is_whole_division
from noisegate.algebra.rules_text import REPLACED_MAX
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.asked import doubles
from noisegate.sources.duckdb.functions import WRITERS as REFERENCE
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
    in_calendar,
    number,
    whole,
    write_value,
)

_DAYS_MAX: Final = 3_700_000  # more than there are from the year 1 to 9999
_MICROSECONDS: Final = 10**6
_EPOCH: Final = date(1970, 1, 1)


def _refused(what: str) -> Unsupported:
    return unsaid(what, "Spark")


def _small(value: exp.Expr) -> exp.Expr:
    """A whole number as the 32 bits that functions take."""
    return cast(value, "INT")


def _as_whole(sql: exp.Expr) -> exp.Expr:
    return cast(sql, "BIGINT")


def _multiply(args: Args, made: Domain) -> exp.Expr:
    product = binary(exp.Mul, *(as_kind(arg, made.kind) for arg in args))
    return product if made.kind is Kind.INTEGER else doubles.one_zero(product)


def _divide(args: Args, _made: Domain) -> exp.Expr:
    top, bottom = (as_kind(arg, Kind.NUMBER) for arg in args)
    return doubles.one_zero(binary(exp.Div, top, doubles.not_zero(bottom)))


def _int_divide(args: Args, made: Domain) -> exp.Expr:
    if is_whole_division([arg.domain for arg in args]):
        return binary(exp.IntDiv, args[0].sql, call("NULLIF", args[1].sql, whole(0)))
    quotient = doubles.one_zero(doubles.cut(_divide(args, made)))
    return cast(quotient, "BIGINT", may_fail=True) if made.kind is Kind.INTEGER else quotient


def _modulo(args: Args, made: Domain) -> exp.Expr:
    top, bottom = (as_kind(arg, made.kind) for arg in args)
    if made.kind is Kind.INTEGER:
        return binary(exp.Mod, top, call("NULLIF", bottom, whole(0)))
    return doubles.one_zero(binary(exp.Mod, top, doubles.not_zero(bottom)))


def _negate(args: Args, made: Domain) -> exp.Expr:
    zero = whole(0) if made.kind is Kind.INTEGER else number(0)
    return binary(exp.Sub, zero, as_kind(args[0], made.kind))


def _rounding(step: Callable[[exp.Expr], exp.Expr]) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        if args[0].domain.kind is Kind.INTEGER:
            return args[0].sql
        found = step(args[0].sql)
        if made.kind is Kind.INTEGER:
            return cast(found, "BIGINT", may_fail=True)
        return doubles.one_zero(found)

    return writer


def _power(args: Args, _made: Domain) -> exp.Expr:
    """Nothing of zero to a number below zero."""
    base, exponent = (as_kind(arg, Kind.NUMBER) for arg in args)
    some = doubles.not_zero(base)
    positive = exp.GTE(this=exp.paren(exponent.copy()), expression=number(0))
    return call("POW", case((positive, base.copy()), otherwise=some), exponent)


def _round(args: Args, made: Domain) -> exp.Expr:
    digits = args[1].literal if len(args) > 1 else 0
    if digits == 0 or (digits > 0 and made.kind is Kind.INTEGER):
        return _rounding(doubles.rounded)(args[:1], made)
    if made.kind is Kind.INTEGER:
        raise _refused("ROUND of whole numbers to tens")
    return doubles.to_digits(as_kind(args[0], Kind.NUMBER), digits)


def _cased(function: str) -> Writer:
    """ASCII letters by the engine's own way, where there are no others; else one by one."""
    ascii_letters = "".join(map(chr, range(65, 91))), "".join(map(chr, range(97, 123)))
    plain = ascii_letters if function == "LOWER" else ascii_letters[::-1]

    def writer(args: Args, _made: Domain) -> exp.Expr:
        text = args[0].sql
        lists = (one + other for one, other in zip(plain, letters(function), strict=True))
        is_plain = exp.EQ(
            this=call("OCTET_LENGTH", text.copy()), expression=call("CHAR_LENGTH", text.copy())
        )
        changed = call("TRANSLATE", text.copy(), *map(exp.Literal.string, lists))
        return case((is_plain, call(function, text)), otherwise=changed)

    return writer


def _counted(name: str) -> Writer:
    return lambda args, _: _as_whole(call(name, *(arg.sql for arg in args)))


def _plain(name: str) -> Writer:
    return lambda args, _: call(name, *(arg.sql for arg in args))


def _substring(args: Args, made: Domain) -> exp.Expr:
    positions = args[1:]
    least = [ends(arg.domain)[0] for arg in positions]
    if made.nullable or least[0] < 1 or (len(least) > 1 and least[1] < 0):
        raise _refused("SUBSTRING from a position that may be below 1")
    return call("SUBSTR", args[0].sql, *(_small(arg.sql) for arg in positions))


def _end(name: str) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        if made.nullable or ends(args[1].domain)[0] < 0:
            raise _refused(f"{name} by a number that may be below 0 or has no bounds")
        return call(name, args[0].sql, _small(args[1].sql))

    return writer


def _cut(value: exp.Expr) -> exp.Expr:
    return call("LEFT", value, exp.Literal.number(REPLACED_MAX))


def _concat(args: Args, _made: Domain) -> exp.Expr:
    return chain(exp.DPipe, [_cut(arg.sql) for arg in args])


def _replace(args: Args, _made: Domain) -> exp.Expr:
    text, old, new = (arg.sql for arg in args)
    return call("REPLACE", _cut(text), old, new)


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
    escape = args[2].literal if len(args) > 2 else None
    said, sign = doubles.pattern(args[1].literal, escape)
    found = exp.Like(this=args[0].sql, expression=exp.Literal.string(said))
    return exp.Paren(this=exp.Escape(this=found, expression=exp.Literal.string(sign)))


def _moment(arg: Written) -> exp.Expr:
    return as_kind(arg, Kind.TIMESTAMP)


def _extracted(name: str, less: int = 0) -> Writer:
    def writer(args: Args, _made: Domain) -> exp.Expr:
        found = _as_whole(call(name, _moment(args[0])))
        return binary(exp.Sub, found, whole(less)) if less else found

    return writer


def _passed(moment: exp.Expr) -> exp.Expr:
    """Microseconds since 1970; the session is in UTC."""
    zoned = exp.Cast(this=moment, to=exp.DataType.build("TIMESTAMPLTZ"))
    return _as_whole(call("UNIX_MICROS", zoned))


def _epoch(args: Args, _made: Domain) -> exp.Expr:
    passed = cast(_passed(_moment(args[0])), Kind.NUMBER)
    return binary(exp.Div, passed, number(_MICROSECONDS))


def _epoch_ms(args: Args, _made: Domain) -> exp.Expr:
    passed = _passed(_moment(args[0]))
    half = case((exp.LT(this=passed, expression=whole(0)), whole(-500)), otherwise=whole(500))
    return binary(exp.IntDiv, binary(exp.Add, passed.copy(), half), whole(1000))


_SECONDS: Final = {"week": 7 * 86400, "day": 86400, "hour": 3600, "minute": 60, "second": 1}
_OF_YEAR: Final = {"year": 1, "quarter": 4, "month": 12}


def _number_of(unit: str, moment: exp.Expr) -> exp.Expr:
    """The number of the unit that a time is in."""
    if unit in _OF_YEAR:
        years = binary(exp.Mul, _as_whole(call("YEAR", moment)), whole(_OF_YEAR[unit]))
        if unit == "year":
            return years
        return binary(exp.Add, years, _as_whole(call(unit.upper(), moment.copy())))
    length = whole(_SECONDS[unit] * _MICROSECONDS)
    first = whole(4 * 86400 * _MICROSECONDS if unit == "week" else 0)  # 1970 began on a Thursday
    since = binary(exp.Sub, _passed(moment), first)
    rest = binary(exp.Mod, binary(exp.Add, binary(exp.Mod, since, length), length), length)
    return binary(exp.IntDiv, binary(exp.Sub, since.copy(), rest), length.copy())


def _date_trunc(args: Args, made: Domain) -> exp.Expr:
    """By numbers: a server's own DATE_TRUNC may have fewer years than its times."""
    unit, moment = args[0].literal.lower(), _moment(args[1])
    if unit in _OF_YEAR:
        months = {"year": whole(1), "month": call("MONTH", moment.copy())}
        if unit == "quarter":
            before = binary(exp.Mul, _as_whole(call("QUARTER", moment.copy())), whole(3))
            months[unit] = binary(exp.Sub, before, whole(2))
        first = call("MAKE_DATE", call("YEAR", moment), _small(months[unit]), _small(whole(1)))
        return cast(first, made.kind)
    length = whole(_SECONDS[unit])
    seconds = binary(exp.Mul, _number_of(unit, moment), length)
    if unit == "week":
        seconds = binary(exp.Add, seconds, whole(4 * 86400))
    if made.kind is Kind.DATE:
        days = binary(exp.IntDiv, seconds, whole(86400))
        return call("DATE_ADD", write_value(_EPOCH, Kind.DATE), _small(days))
    passed = binary(exp.Mul, seconds, whole(_MICROSECONDS))
    return cast(call("TIMESTAMP_MICROS", passed), Kind.TIMESTAMP)


def _date_diff(args: Args, _made: Domain) -> exp.Expr:
    unit = args[0].literal.lower()
    one, other = (_number_of(unit, _moment(arg)) for arg in args[1:])
    return binary(exp.Sub, other, one)


def _date_add_days(args: Args, made: Domain) -> exp.Expr:
    moment, days = (arg.sql for arg in args)
    if made.nullable:  # NULL becomes a number of days that leaves the calendar
        days = clamp(days, whole(-_DAYS_MAX), whole(_DAYS_MAX))
    if made.kind is Kind.DATE:
        later = call("DATE_ADD", moment, _small(days))
    else:
        later = binary(exp.Add, moment, call("MAKE_DT_INTERVAL", _small(days)))
    return in_calendar(later, made.kind) if made.nullable else later


def _make_date(args: Args, _made: Domain) -> exp.Expr:
    given = [arg.sql for arg in args]
    limits = ((1, 9999), (1, 12), (1, 31))
    year, month, day = (
        _small(clamp(x.copy(), *map(whole, limit))) for x, limit in zip(given, limits, strict=True)
    )
    days = binary(exp.Sub, day, exp.Literal.number(1))
    first = call("MAKE_DATE", year, month, exp.Literal.number(1))
    made_of = call("DATE_ADD", first, days)
    parts = [
        binary(exp.EQ, _as_whole(call(name, made_of.copy())), part)
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
    if of is Kind.NUMBER:
        return doubles.whole_of(value)
    return cast(value, kind)


def _several(name: str) -> Writer:
    """LEAST and GREATEST take two at least."""
    return lambda args, made: COMMON[name](args if len(args) > 1 else [*args, *args], made)


WRITERS: Final[Mapping[str, Writer]] = MappingProxyType({
    **COMMON,
    **{name: REFERENCE[name]
       for name in ("add", "subtract", "abs", "sqrt", "ln", "log10", "exp")},
    "least": _several("least"),
    "greatest": _several("greatest"),
    "multiply": _multiply,
    "divide": _divide,
    "int_divide": _int_divide,
    "modulo": _modulo,
    "negate": _negate,
    "sign": lambda args, made: cast(call("SIGN", as_kind(args[0], Kind.NUMBER)), made.kind),
    "floor": _rounding(doubles.lower_whole),
    "ceil": _rounding(doubles.upper_whole),
    "trunc": _rounding(doubles.cut),
    "round": _round,
    "power": _power,
    "bin": doubles.bin_of,
    "lower": _cased("LOWER"),
    "upper": _cased("UPPER"),
    "length": _counted("CHAR_LENGTH"),
    "strlen": _counted("OCTET_LENGTH"),
    "trim": lambda args, _: call("BTRIM", args[0].sql, exp.Literal.string(blanks())),
    "ltrim": lambda args, _: call("LTRIM", exp.Literal.string(blanks()), args[0].sql),
    "rtrim": lambda args, _: call("RTRIM", exp.Literal.string(blanks()), args[0].sql),
    "substring": _substring,
    "left": _end("LEFT"),
    "right": _end("RIGHT"),
    "concat": _concat,
    "replace": _replace,
    "starts_with": _plain("STARTSWITH"),
    "ends_with": _plain("ENDSWITH"),
    "contains": _plain("CONTAINS"),
    "position": _counted("INSTR"),
    "repeat": _repeat,
    "split_part": _split_part,
    "lpad": _padded("LPAD"),
    "rpad": _padded("RPAD"),
    "like": _like,
    "year": _extracted("YEAR"),
    "quarter": _extracted("QUARTER"),
    "month": _extracted("MONTH"),
    "week": _extracted("WEEKOFYEAR"),
    "day": _extracted("DAY"),
    "dayofweek": _extracted("DAYOFWEEK", 1),
    "dayofyear": _extracted("DAYOFYEAR"),
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
    "to_decimal": lambda args, _: doubles.to_digits(as_kind(args[0], Kind.NUMBER), args[1].literal),
    "to_text": _to,
    "to_boolean": _to,
    "to_date": _to,
    "to_timestamp": _to,
})  # fmt: skip
