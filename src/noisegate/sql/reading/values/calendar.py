"""Months, last days and names of days, made of functions of the closed list."""

from datetime import date, timedelta
from typing import Final

from noisegate.algebra.expression import Call, Expression, Literal, Schema, domain_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind

DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_LAST: Final = 9_999 * 12 + 11  # December 9999, in months


def later_days(moment: Expression, days: Expression) -> Expression:
    """Some days later; of constants, that constant."""
    if type(moment) is Literal and type(days) is Literal and isinstance(moment.value, date):
        try:
            return Literal(moment.value + timedelta(days=int(days.value)))  # type: ignore[arg-type]
        except (OverflowError, TypeError):
            raise _beyond() from None
    return Call("date_add_days", (moment, days))


def later_months(moment: Expression, months: int, schema: Schema) -> Expression:
    """Some months later, on the same day, or the last one of a month that is shorter."""
    if type(moment) is Literal and isinstance(moment.value, date):
        return _constant(moment.value, months)
    if domain_of(moment, schema).kind is not Kind.DATE:
        raise Unsupported(
            "An INTERVAL of months can be added to a date, not to a timestamp.",
            fix="Use CAST(x AS DATE) first.",
            about="timestamp",
        )
    place = _sum(Call("multiply", (Call("year", (moment,)), Literal(12))), Call("month", (moment,)))
    place = _sum(place, Literal(months - 1))
    reached = domain_of(place, schema)
    if domain_of(moment, schema).is_bounded and not 12 <= reached.low <= reached.high <= _LAST:  # type: ignore[operator]
        raise _beyond()
    inside = Call("between", (place, Literal(12), Literal(_LAST)))
    kept = Call("least", (Literal(_LAST), Call("greatest", (Literal(12), place))))
    year = Call("int_divide", (kept, Literal(12)))
    month = _sum(Call("modulo", (kept, Literal(12))), Literal(1))
    return Call("case", (inside, _in_month(year, month, Call("day", (moment,)), Literal(30))))


def last_day(moment: Expression) -> Expression:
    """The last day of the month."""
    return _in_month(Call("year", (moment,)), Call("month", (moment,)), Literal(31), Literal(30))


def _in_month(year: Expression, month: Expression, *days: Expression) -> Expression:
    """The first of these days that the month has, else its last one."""
    tried = (*days, Literal(29), Literal(28))
    return Call("coalesce", tuple(Call("make_date", (year, month, day)) for day in tried))


def iso_weekday(moment: Expression) -> Expression:
    """From Monday, 1, to Sunday, 7."""
    since = Call("modulo", (_sum(Call("dayofweek", (moment,)), Literal(6)), Literal(7)))
    return _sum(since, Literal(1))


def named(place: Expression, first: int, names: tuple[str, ...], schema: Schema) -> Expression:
    """The name of a place, counted from ``first``."""
    args: list[Expression] = []
    for number, name in enumerate(names[:-1]):
        args += [Call("eq", (place, Literal(first + number))), Literal(name)]
    chosen = Call("case", (*args, Literal(names[-1])))
    if not domain_of(place, schema).may_lack:
        return chosen
    return Call("case", (Call("not", (Call("is_null", (place,)),)), chosen))


def _constant(moment: date, months: int) -> Literal:
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise _beyond()
    for day in range(moment.day, 27, -1):
        try:
            return Literal(moment.replace(year=year, month=month + 1, day=day))
        except ValueError:
            continue
    return Literal(moment.replace(year=year, month=month + 1))


def _sum(one: Expression, other: Expression) -> Expression:
    return Call("add", (one, other))


def _beyond() -> Unsupported:
    return Unsupported(
        "A date is outside the years 1 to 9999.", fix="Use another date.", about="years"
    )
