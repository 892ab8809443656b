"""Dates and times: what is known about results. All lie in the years 1 to 9999, without zones.

What leaves these years by the bounds of its arguments is refused; where these have no bounds, rows
that leave them have no value.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cache
from math import ceil, floor
from typing import Final

from noisegate.algebra.intervals import KEYS_MAX, ends, loosened, number, plus, times, whole
from noisegate.algebra.signature import Literals, Rule, any_nullable
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.domain import EPOCH, Domain, Key, Kind, ordinal

_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR: Final = 3_600 * 10**6
_CLOCK: Final = frozenset("HIpMS")
_CALENDAR: Final = frozenset("aAwudbBmyYGVUWj")
_YEARS: Final = frozenset("yYG")
_SHORT: Final = frozenset("dmyHIMSj")  # which can be written without a zero before them
_CYCLE: Final = datetime(2000, 1, 1), datetime(2027, 12, 31)  # noqa: DTZ001 - all days of all weeks
_FORMAT_MAX: Final = 100
_LISTED_MAX: Final = timedelta(days=40_000)
_MONDAY: Final = datetime(1, 1, 1)  # noqa: DTZ001 - as all times here


@dataclass(frozen=True, slots=True)
class Unit:
    """A calendar unit: the number of the one a time is in, and the start of each."""

    index: Callable[[datetime], int]
    start: Callable[[int], datetime]


def _months(count: int) -> Unit:
    """Units of so many months, counted from the year 0."""
    return Unit(
        lambda at: (at.year * 12 + at.month - 1) // count,
        lambda i: datetime(i * count // 12, i * count % 12 + 1, 1),  # noqa: DTZ001
    )


def _spans(length: timedelta) -> Unit:
    """Units of one length, counted from a Monday."""
    return Unit(lambda at: (at - _MONDAY) // length, lambda i: _MONDAY + i * length)


UNITS: Final = {
    "year": _months(12),
    "quarter": _months(3),
    "month": _months(1),
    "week": _spans(timedelta(days=7)),
    "day": _spans(timedelta(days=1)),
    "hour": _spans(timedelta(hours=1)),
    "minute": _spans(timedelta(minutes=1)),
    "second": _spans(timedelta(seconds=1)),
}
TIMES: Final = ("hour", "minute", "second")  # units that dates do not have


def unit_named(name: str, arg: Domain, *, of: str) -> Unit:
    """The unit, or a refusal."""
    if name.lower() not in UNITS:
        raise Unsupported(
            f"{of} does not know the unit {name!r}.", fix=f"Use one of {', '.join(UNITS)}."
        )
    if name.lower() in TIMES and arg.kind is Kind.DATE:
        raise Unsupported(
            f"A date has no {name.lower()}s.", fix="Cast it: CAST(x AS TIMESTAMP).", about="unit"
        )
    return UNITS[name.lower()]


def part(low: int, high: int) -> Rule:
    """A part of a date that comes again, such as the month."""
    return lambda args, _: whole((Fraction(low), Fraction(high)), nullable=args[0].nullable)


def year(args: Sequence[Domain], _literals: Literals) -> Domain:
    """The year. Grouped by itself only where bounds were declared."""
    low, high = _between(args[0])
    listed = args[0].is_bounded
    return whole(
        (Fraction(low.year), Fraction(high.year)), nullable=args[0].nullable, listed=listed
    )


def date_trunc(args: Sequence[Domain], literals: Literals) -> Domain:
    """The start of the unit: a date for days and longer, also of a time; else a time."""
    arg = args[1]
    unit = unit_named(literals[0], arg, of="DATE_TRUNC")
    is_time = literals[0].lower() in TIMES
    kind = Kind.TIMESTAMP if is_time else Kind.DATE
    if not arg.is_bounded:
        return Domain(kind=kind, nullable=arg.nullable)
    first, last = (unit.index(at) for at in _between(arg))
    starts: list[Key] = [
        unit.start(i) if is_time else unit.start(i).date()
        for i in (range(first, last + 1) if last - first < KEYS_MAX else (first, last))
    ]
    keys = tuple(starts) if last - first < KEYS_MAX else None
    return Domain(
        kind=kind,
        low=ordinal(starts[0]),
        high=ordinal(starts[-1]),
        keys=keys,
        nullable=arg.nullable,
    )


def date_diff(args: Sequence[Domain], literals: Literals) -> Domain:
    """How many starts of the unit lie between two dates or times."""
    unit = None
    for arg in args[1:]:
        unit = unit_named(literals[0], arg, of="DATE_DIFF")
    nullable = any_nullable(args)
    if unit is None or not (args[1].is_bounded and args[2].is_bounded):
        return Domain(kind=Kind.INTEGER, nullable=nullable)
    (a_low, a_high), (b_low, b_high) = (
        tuple(unit.index(at) for at in _between(arg)) for arg in args[1:]
    )
    return whole((Fraction(b_low - a_high), Fraction(b_high - a_low)), nullable=nullable)


def date_add_days(args: Sequence[Domain], _literals: Literals) -> Domain:
    """Some days later."""
    moment, days = args
    least, most = _limits(moment.kind)
    if not (moment.is_bounded and days.is_bounded):
        return Domain(kind=moment.kind)
    size = 1 if moment.kind is Kind.DATE else 24 * _HOUR
    low, high = plus(ends(moment), times(ends(days), (size, size)))
    if not least <= low <= high <= most:
        raise _beyond()
    return Domain(kind=moment.kind, low=low, high=high, nullable=any_nullable(args))


def epoch(args: Sequence[Domain], _literals: Literals) -> Domain:
    """Seconds since 1970, with fractions."""
    (arg,) = args
    if not arg.is_bounded:
        return Domain(kind=Kind.NUMBER, nullable=arg.nullable)
    step = Fraction(24 * 3600) if arg.kind is Kind.DATE else Fraction(1, 10**6)
    low, high = ends(arg)
    return number(loosened((low * step, high * step)), nullable=arg.nullable)


def epoch_ms(args: Sequence[Domain], _literals: Literals) -> Domain:
    """Milliseconds since 1970; what lies between goes to the nearer one."""
    (arg,) = args
    if not arg.is_bounded:
        return Domain(kind=Kind.INTEGER, nullable=arg.nullable)
    step = Fraction(24 * 3600 * 1000) if arg.kind is Kind.DATE else Fraction(1, 1000)
    low, high = ends(arg)
    return whole((floor(low * step), ceil(high * step)), nullable=arg.nullable, listed=False)


def strftime(args: Sequence[Domain], literals: Literals) -> Domain:
    """A date or a time as text, by a constant format. Its groups are told where its days are."""
    (arg, _), form = args, literals[1]
    said = _signs(form)
    keys: tuple[Key, ...] | None = None
    if not said & _CLOCK:
        first, last = _between(arg) if arg.is_bounded else _CYCLE
        if arg.is_bounded or not said & _YEARS:
            keys = _written(form, first.date(), last.date())
    elif not said & _CALENDAR:
        keys = _written(form, None, None)
    return Domain(kind=Kind.TEXT, keys=keys, nullable=arg.nullable)


def _signs(form: str) -> frozenset[str]:
    """What follows the % signs of a format, or a refusal."""
    if not 0 < len(form) <= _FORMAT_MAX:
        raise Unsupported(
            "The format of STRFTIME is empty or too long.", fix="For example: '%Y-%m-%d'."
        )
    found, rest = set(), iter(form)
    for letter in rest:
        if letter == "%":
            sign = next(rest, "")
            known = _SHORT if sign == "-" else _CLOCK | _CALENDAR | {"%"}
            sign = next(rest, "") if sign == "-" else sign
            if sign not in known:
                raise Unsupported(
                    f"STRFTIME does not know %{sign}.",
                    fix=f"Use % before one of {' '.join(sorted(_CLOCK | _CALENDAR))}.",
                    about="format",
                )
            found.add(sign)
    return frozenset(found)


@cache
def _written(form: str, first: date | None, last: date | None) -> tuple[Key, ...] | None:
    """All texts of days, or of the times of a day, in order; None where they are too many."""
    if first is None or last is None:
        if "S" in _signs(form):
            return None
        moments = [_MONDAY + timedelta(minutes=minute) for minute in range(24 * 60)]
    else:
        if last - first > _LISTED_MAX or first.year < 1000:
            return None
        start = datetime(first.year, first.month, first.day)  # noqa: DTZ001
        moments = [start + timedelta(days=day) for day in range((last - first).days + 1)]
    texts = dict.fromkeys(moment.strftime(form) for moment in moments)
    return tuple(texts) if len(texts) <= KEYS_MAX else None


def make_date(args: Sequence[Domain], _literals: Literals) -> Domain:
    """The date of a year, a month and a day. No value where there is no such date."""
    years, months, days = args
    partial = not (_within(years, 1, 9999) and _within(months, 1, 12) and _within(days, 1, 28))
    nullable = any_nullable(args) or partial
    if years.low is None or years.high is None:
        return Domain(kind=Kind.DATE, nullable=nullable)
    if not _within(years, 1, 9999):
        raise _beyond()
    low, high = ordinal(date(int(years.low), 1, 1)), ordinal(date(int(years.high), 12, 31))
    return Domain(kind=Kind.DATE, low=low, high=high, nullable=nullable)


def _beyond() -> Unsupported:
    return Unsupported(
        "A date could lie outside the years 1 to 9999.",
        fix="Limit it, for example LEAST(GREATEST(x, DATE '1900-01-01'), DATE '2100-01-01').",
    )


def _within(arg: Domain, low: int, high: int) -> bool:
    return arg.low is not None and arg.high is not None and low <= arg.low and arg.high <= high


def _limits(kind: Kind) -> tuple[Fraction, Fraction]:
    """The first and the last value of the kind."""
    if kind is Kind.DATE:
        return ordinal(date.min), ordinal(date.max)
    return ordinal(datetime.min), ordinal(datetime.max)  # noqa: DTZ901


def _between(arg: Domain) -> tuple[datetime, datetime]:
    """The bounds as times; where none were declared, all there are."""
    least, most = _limits(arg.kind)
    low = least if arg.low is None else min(max(arg.low, least), most)
    high = most if arg.high is None else min(max(arg.high, least), most)
    step = timedelta(days=1) if arg.kind is Kind.DATE else _MICROSECOND
    return EPOCH + floor(low) * step, EPOCH + floor(high) * step
