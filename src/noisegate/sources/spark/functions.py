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
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.asked import doubles
from noisegate.sources.asked.functions import (
    FIRST_WEEK,
    MICROSECONDS,
    OF_YEAR,
    SECONDS,
    Own,
    as_whole,
    counted,
    days_to_add,
    moment,
    small,
)
from noisegate.sources.duckdb.functions import WRITERS as REFERENCE
from noisegate.sources.writing.dialect import Args, Writer, unsaid
from noisegate.sources.writing.functions import COMMON
from noisegate.sources.writing.letters import blanks
from noisegate.sources.writing.words import (
    as_kind,
    binary,
    call,
    case,
    cast,
    in_calendar,
    number,
    whole,
    write_value,
)

_EPOCH: Final = date(1970, 1, 1)


def _refused(what: str) -> Unsupported:
    return unsaid(what, "Spark")


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


def _plain(name: str) -> Writer:
    return lambda args, _: call(name, *(arg.sql for arg in args))


def _end(name: str) -> Writer:
    def writer(args: Args, made: Domain) -> exp.Expr:
        if made.nullable or ends(args[1].domain)[0] < 0:
            raise _refused(f"{name} by a number that may be below 0 or has no bounds")
        return call(name, args[0].sql, small(args[1].sql))

    return writer


def _like(args: Args, _made: Domain) -> exp.Expr:
    escape = args[2].literal if len(args) > 2 else None
    said, sign = doubles.pattern(args[1].literal, escape)
    found = exp.Like(this=args[0].sql, expression=exp.Literal.string(said))
    return exp.Paren(this=exp.Escape(this=found, expression=exp.Literal.string(sign)))


def _extracted(name: str, less: int = 0) -> Writer:
    def writer(args: Args, _made: Domain) -> exp.Expr:
        found = as_whole(call(name, moment(args[0])))
        return binary(exp.Sub, found, whole(less)) if less else found

    return writer


def _passed(time: exp.Expr) -> exp.Expr:
    """Microseconds since 1970; the session is in UTC."""
    zoned = exp.Cast(this=time, to=exp.DataType.build("TIMESTAMPLTZ"))
    return as_whole(call("UNIX_MICROS", zoned))


def _epoch(args: Args, _made: Domain) -> exp.Expr:
    passed = cast(_passed(moment(args[0])), Kind.NUMBER)
    return binary(exp.Div, passed, number(MICROSECONDS))


def _epoch_ms(args: Args, _made: Domain) -> exp.Expr:
    passed = _passed(moment(args[0]))
    half = case((exp.LT(this=passed, expression=whole(0)), whole(-500)), otherwise=whole(500))
    return binary(exp.IntDiv, binary(exp.Add, passed.copy(), half), whole(1000))


def _steps(unit: str, time: exp.Expr) -> exp.Expr:
    length = whole(SECONDS[unit] * MICROSECONDS)
    first = whole(FIRST_WEEK * MICROSECONDS if unit == "week" else 0)
    since = binary(exp.Sub, _passed(time), first)
    rest = binary(exp.Mod, binary(exp.Add, binary(exp.Mod, since, length), length), length)
    return binary(exp.IntDiv, binary(exp.Sub, since.copy(), rest), length.copy())


def _date_trunc(args: Args, made: Domain) -> exp.Expr:
    """By numbers: a server's own DATE_TRUNC may have fewer years than its times."""
    unit, time = args[0].literal.lower(), moment(args[1])
    if unit in OF_YEAR:
        months = {"year": whole(1), "month": call("MONTH", time.copy())}
        if unit == "quarter":
            before = binary(exp.Mul, as_whole(call("QUARTER", time.copy())), whole(3))
            months[unit] = binary(exp.Sub, before, whole(2))
        first = call("MAKE_DATE", call("YEAR", time), small(months[unit]), small(whole(1)))
        return cast(first, made.kind)
    length = whole(SECONDS[unit])
    seconds = binary(exp.Mul, _steps(unit, time), length)
    if unit == "week":
        seconds = binary(exp.Add, seconds, whole(FIRST_WEEK))
    if made.kind is Kind.DATE:
        days = binary(exp.IntDiv, seconds, whole(86400))
        return call("DATE_ADD", write_value(_EPOCH, Kind.DATE), small(days))
    passed = binary(exp.Mul, seconds, whole(MICROSECONDS))
    return cast(call("TIMESTAMP_MICROS", passed), Kind.TIMESTAMP)


def _date_add_days(args: Args, made: Domain) -> exp.Expr:
    time, days = args[0].sql, days_to_add(args[1].sql, made)
    if made.kind is Kind.DATE:
        later = call("DATE_ADD", time, days)
    else:
        later = binary(exp.Add, time, call("MAKE_DT_INTERVAL", days))
    return in_calendar(later, made.kind) if made.nullable else later


def _several(name: str) -> Writer:
    """LEAST and GREATEST take two at least."""
    return lambda args, made: COMMON[name](args if len(args) > 1 else [*args, *args], made)


_OWN: Final = Own(
    name="Spark",
    rounded=_rounding(doubles.rounded),
    to_digits=doubles.to_digits,
    whole_of=doubles.whole_of,
    truth=cast,
    part=lambda name, time: as_whole(call(name, time)),
    later=lambda day, days: call("DATE_ADD", day, days),
    steps=_steps,
)
WRITERS: Final[Mapping[str, Writer]] = MappingProxyType({
    **COMMON,
    **_OWN.writers(),
    **{name: REFERENCE[name]
       for name in ("add", "subtract", "abs", "sqrt", "ln", "log10", "exp")},
    "least": _several("least"),
    "greatest": _several("greatest"),
    "multiply": _multiply,
    "divide": _divide,
    "int_divide": _int_divide,
    "modulo": _modulo,
    "negate": _negate,
    "floor": _rounding(doubles.lower_whole),
    "ceil": _rounding(doubles.upper_whole),
    "trunc": _rounding(doubles.cut),
    "power": _power,
    "bin": doubles.bin_of,
    "trim": lambda args, _: call("BTRIM", args[0].sql, exp.Literal.string(blanks())),
    "ltrim": lambda args, _: call("LTRIM", exp.Literal.string(blanks()), args[0].sql),
    "rtrim": lambda args, _: call("RTRIM", exp.Literal.string(blanks()), args[0].sql),
    "left": _end("LEFT"),
    "right": _end("RIGHT"),
    "starts_with": _plain("STARTSWITH"),
    "ends_with": _plain("ENDSWITH"),
    "contains": _plain("CONTAINS"),
    "position": counted("INSTR"),
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
})  # fmt: skip
