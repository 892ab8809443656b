"""Functions that engines of others say alike, made of the few steps that each says in its own way.

A writer gets its arguments, each NULL or a value of its domain, and the domain of the result for
arguments that are not missing. Results have the type of their kind.
"""

from collections.abc import Callable, Mapping
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.intervals import ends
from noisegate.algebra.rules_text import REPLACED_MAX
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.writing.dialect import Args, Writer, Written, unsaid
from noisegate.sources.writing.letters import letters
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

DAYS_MAX: Final = 3_700_000  # more than there are from the year 1 to 9999
MICROSECONDS: Final = 10**6
SECONDS: Final = {"week": 7 * 86400, "day": 86400, "hour": 3600, "minute": 60, "second": 1}
OF_YEAR: Final = {"year": 1, "quarter": 4, "month": 12}
FIRST_WEEK: Final = 4 * 86400  # 1970 began on a Thursday
_CAPITALS: Final = "".join(map(chr, range(65, 91))), "".join(map(chr, range(97, 123)))


def small(value: exp.Expr) -> exp.Expr:
    """A whole number as the 32 bits that functions take."""
    return cast(value, "INT")


def as_whole(value: exp.Expr) -> exp.Expr:
    """A number that is whole already, as BIGINT: an INT would overflow in the next step."""
    return cast(value, "BIGINT")


def moment(arg: Written) -> exp.Expr:
    """A date or a time, as a time."""
    return as_kind(arg, Kind.TIMESTAMP)


def counted(name: str) -> Writer:
    """A function whose result is a number of letters or bytes."""
    return lambda args, _: as_whole(call(name, *(arg.sql for arg in args)))


def days_to_add(days: exp.Expr, made: Domain) -> exp.Expr:
    """A number of days within the calendar, or one that leaves it, in 32 bits."""
    return small(clamp(days, whole(-DAYS_MAX), whole(DAYS_MAX)) if made.nullable else days)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What an engine says in its own way."""

    name: str
    rounded: Writer  # to the nearest whole number
    to_digits: Callable[[exp.Expr, int], exp.Expr]
    whole_of: Callable[[exp.Expr], exp.Expr]  # a double as BIGINT, NULL beyond it
    truth: Callable[[exp.Expr, Kind], exp.Expr]  # a condition as a number
    part: Callable[[str, exp.Expr], exp.Expr]  # YEAR, QUARTER, MONTH or DAY, as BIGINT
    later: Callable[[exp.Expr, exp.Expr], exp.Expr]  # a date so many days later
    steps: Callable[[str, exp.Expr], exp.Expr]  # weeks, days, …, seconds since 1970, as BIGINT

    def writers(self) -> Mapping[str, Writer]:
        """The functions that are made of these."""
        return {
            **_SAME,
            "round": self._round,
            "substring": self._substring,
            "split_part": self._split_part,
            "date_diff": self._date_diff,
            "make_date": self._make_date,
            "to_decimal": self._to_decimal,
            **dict.fromkeys(_CASTS, self._to),
        }

    def _round(self, args: Args, made: Domain) -> exp.Expr:
        digits = args[1].literal if len(args) > 1 else 0
        if digits == 0 or (digits > 0 and made.kind is Kind.INTEGER):
            return self.rounded(args[:1], made)
        if made.kind is Kind.INTEGER:
            raise unsaid("ROUND of whole numbers to tens", self.name)
        return self.to_digits(as_kind(args[0], Kind.NUMBER), digits)

    def _to_decimal(self, args: Args, _made: Domain) -> exp.Expr:
        return self.to_digits(as_kind(args[0], Kind.NUMBER), args[1].literal)

    def _substring(self, args: Args, made: Domain) -> exp.Expr:
        positions = args[1:]
        least = [ends(arg.domain)[0] for arg in positions]
        if made.nullable or least[0] < 1 or (len(least) > 1 and least[1] < 0):
            raise unsaid("SUBSTRING from a position that may be below 1", self.name)
        return call("SUBSTR", args[0].sql, *(small(arg.sql) for arg in positions))

    def _split_part(self, args: Args, _made: Domain) -> exp.Expr:
        text, sign, place = args
        if not sign.literal or not 0 < abs(place.literal) < 1 << 31:
            raise unsaid("SPLIT_PART by nothing, or at such a place,", self.name)
        return call("SPLIT_PART", text.sql, sign.sql, small(place.sql))

    def _number_of(self, unit: str, time: exp.Expr) -> exp.Expr:
        """The number of the unit that a time is in."""
        if unit not in OF_YEAR:
            return self.steps(unit, time)
        years = binary(exp.Mul, self.part("YEAR", time), whole(OF_YEAR[unit]))
        if unit == "year":
            return years
        return binary(exp.Add, years, self.part(unit.upper(), time.copy()))

    def _date_diff(self, args: Args, _made: Domain) -> exp.Expr:
        unit = args[0].literal.lower()
        one, other = (self._number_of(unit, moment(arg)) for arg in args[1:])
        return binary(exp.Sub, other, one)

    def _make_date(self, args: Args, _made: Domain) -> exp.Expr:
        given = [arg.sql for arg in args]
        limits = ((1, 9999), (1, 12), (1, 31))
        year, month, day = (
            small(clamp(x.copy(), *map(whole, limit)))
            for x, limit in zip(given, limits, strict=True)
        )
        days = binary(exp.Sub, day, exp.Literal.number(1))
        made_of = self.later(call("MAKE_DATE", year, month, exp.Literal.number(1)), days)
        parts = [
            binary(exp.EQ, self.part(name, made_of.copy()), part)
            for name, part in zip(("YEAR", "MONTH", "DAY"), given, strict=True)
        ]
        return case((chain(exp.And, parts), made_of))

    def _to(self, args: Args, made: Domain) -> exp.Expr:
        (arg,), kind = args, made.kind
        value, of = arg.sql, arg.domain.kind
        if of is kind:
            return value
        if arg.literal is None:
            return write_value(None, kind)
        if Kind.TEXT in (of, kind) and (of is Kind.TEXT or of is Kind.NUMBER):
            raise unsaid(f"Casting {of.value} to {kind.value}", self.name)
        if kind is Kind.BOOLEAN:
            return binary(exp.NEQ, value, number(0) if of is Kind.NUMBER else whole(0))
        if of is Kind.NUMBER:
            return self.whole_of(value)
        if of is Kind.BOOLEAN and kind is not Kind.TEXT:
            return self.truth(value, kind)
        return cast(value, kind)


def _cased(function: str) -> Writer:
    """ASCII letters by the engine's own way, where there are no others; else one by one."""
    plain = _CAPITALS if function == "LOWER" else _CAPITALS[::-1]

    def writer(args: Args, _made: Domain) -> exp.Expr:
        text = args[0].sql
        lists = (one + other for one, other in zip(plain, letters(function), strict=True))
        is_plain = exp.EQ(
            this=call("OCTET_LENGTH", text.copy()), expression=call("CHAR_LENGTH", text.copy())
        )
        changed = call("TRANSLATE", text.copy(), *map(exp.Literal.string, lists))
        return case((is_plain, call(function, text)), otherwise=changed)

    return writer


def _cut(value: exp.Expr) -> exp.Expr:
    return call("LEFT", value, exp.Literal.number(REPLACED_MAX))


def _concat(args: Args, _made: Domain) -> exp.Expr:
    return chain(exp.DPipe, [_cut(arg.sql) for arg in args])


def _replace(args: Args, _made: Domain) -> exp.Expr:
    text, old, new = (arg.sql for arg in args)
    return call("REPLACE", _cut(text), old, new)


def _repeat(args: Args, _made: Domain) -> exp.Expr:
    return call("REPEAT", _cut(args[0].sql), exp.Literal.number(max(args[1].literal, 0)))


def _padded(name: str) -> Writer:
    return lambda args, _: call(name, args[0].sql, small(args[1].sql), args[2].sql)


def _sign(args: Args, made: Domain) -> exp.Expr:
    return cast(call("SIGN", as_kind(args[0], Kind.NUMBER)), made.kind)


_CASTS: Final = (
    "to_integer", "to_number", "to_text", "to_boolean", "to_date", "to_timestamp",
)  # fmt: skip
_SAME: Final[Mapping[str, Writer]] = {
    "sign": _sign,
    "lower": _cased("LOWER"),
    "upper": _cased("UPPER"),
    "length": counted("CHAR_LENGTH"),
    "strlen": counted("OCTET_LENGTH"),
    "concat": _concat,
    "replace": _replace,
    "repeat": _repeat,
    "lpad": _padded("LPAD"),
    "rpad": _padded("RPAD"),
}
