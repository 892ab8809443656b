"""Functions of engines whose doubles overflow to infinity and whose times count microseconds.

Only those of an engine's own functions are used that mean one thing on all of them; the rest is
arithmetic. Whole results are BIGINT, since an engine's INT would overflow in the next step.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final, final

from sqlglot import exp

from noisegate.algebra.intervals import ends
from noisegate.algebra.rules_numbers import is_whole_division
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.asked import doubles
from noisegate.sources.asked.functions import (
    FIRST_WEEK,
    MICROSECONDS,
    OF_YEAR,
    SECONDS,
    Own,
    as_whole,
    days_to_add,
    moment,
    small,
)
from noisegate.sources.duckdb.functions import WRITERS as REFERENCE
from noisegate.sources.writing.dialect import Args, Writer, unsaid
from noisegate.sources.writing.functions import COMMON
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """What such an engine says in its own way about times."""

    name: str
    part: Callable[[str, exp.Expr], exp.Expr]  # YEAR, QUARTER, MONTH or DAY, of any whole type
    passed: Callable[[exp.Expr], exp.Expr]  # microseconds since 1970, as BIGINT
    at: Callable[[exp.Expr], exp.Expr]  # the time so many microseconds after 1970
    later: Callable[[exp.Expr, exp.Expr], exp.Expr]  # a date so many days later
    moved: Callable[[exp.Expr, exp.Expr], exp.Expr]  # a time so many days later

    def writers(self) -> Mapping[str, Writer]:
        """The functions that are made of these, and of arithmetic."""
        own = Own(
            name=self.name,
            rounded=_rounding(doubles.rounded),
            to_digits=doubles.to_digits,
            whole_of=doubles.whole_of,
            truth=cast,
            part=lambda name, time: as_whole(self.part(name, time)),
            later=self.later,
            steps=self._steps,
        )
        return {
            **COMMON,
            **own.writers(),
            **_ARITHMETIC,
            "left": self._end("LEFT"),
            "right": self._end("RIGHT"),
            "epoch": self._epoch,
            "epoch_ms": self._epoch_ms,
            "date_trunc": self._date_trunc,
            "date_add_days": self._date_add_days,
        }

    def _end(self, name: str) -> Writer:
        def writer(args: Args, made: Domain) -> exp.Expr:
            if made.nullable or ends(args[1].domain)[0] < 0:
                raise unsaid(f"{name} by a number that may be below 0 or has no bounds", self.name)
            return call(name, args[0].sql, small(args[1].sql))

        return writer

    def _epoch(self, args: Args, _made: Domain) -> exp.Expr:
        passed = cast(self.passed(moment(args[0])), Kind.NUMBER)
        return binary(exp.Div, passed, number(MICROSECONDS))

    def _epoch_ms(self, args: Args, _made: Domain) -> exp.Expr:
        passed = self.passed(moment(args[0]))
        half = case((exp.LT(this=passed, expression=whole(0)), whole(-500)), otherwise=whole(500))
        return binary(exp.IntDiv, binary(exp.Add, passed.copy(), half), whole(1000))

    def _steps(self, unit: str, time: exp.Expr) -> exp.Expr:
        length = whole(SECONDS[unit] * MICROSECONDS)
        first = whole(FIRST_WEEK * MICROSECONDS if unit == "week" else 0)
        since = binary(exp.Sub, self.passed(time), first)
        rest = binary(exp.Mod, binary(exp.Add, binary(exp.Mod, since, length), length), length)
        return binary(exp.IntDiv, binary(exp.Sub, since.copy(), rest), length.copy())

    def _date_trunc(self, args: Args, made: Domain) -> exp.Expr:
        """By numbers: an engine's own DATE_TRUNC may have fewer years than its times."""
        unit, time = args[0].literal.lower(), moment(args[1])
        if unit in OF_YEAR:
            months = {"year": whole(1), "month": self.part("MONTH", time.copy())}
            if unit == "quarter":
                before = binary(exp.Mul, as_whole(self.part("QUARTER", time.copy())), whole(3))
                months[unit] = binary(exp.Sub, before, whole(2))
            year, month = self.part("YEAR", time), small(months[unit])
            return cast(call("MAKE_DATE", year, month, small(whole(1))), made.kind)
        seconds = binary(exp.Mul, self._steps(unit, time), whole(SECONDS[unit]))
        if unit == "week":
            seconds = binary(exp.Add, seconds, whole(FIRST_WEEK))
        if made.kind is Kind.DATE:
            days = binary(exp.IntDiv, seconds, whole(86400))
            return self.later(write_value(_EPOCH, Kind.DATE), small(days))
        return self.at(binary(exp.Mul, seconds, whole(MICROSECONDS)))

    def _date_add_days(self, args: Args, made: Domain) -> exp.Expr:
        days = days_to_add(args[1].sql, made)
        later = (self.later if made.kind is Kind.DATE else self.moved)(args[0].sql, days)
        return in_calendar(later, made.kind) if made.nullable else later


def plain(name: str) -> Writer:
    """A function of the engine by its own name."""
    return lambda args, _: call(name, *(arg.sql for arg in args))


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


def _several(name: str) -> Writer:
    """LEAST and GREATEST take two at least."""
    return lambda args, made: COMMON[name](args if len(args) > 1 else [*args, *args], made)


_ARITHMETIC: Final[Mapping[str, Writer]] = {
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
}  # fmt: skip
