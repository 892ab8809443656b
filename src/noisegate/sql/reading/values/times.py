"""Dates and times of SQL: parts, units, names, and sums in which dates count in days."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from types import MappingProxyType
from typing import Final, TypeAlias

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal, Schema, domain_of
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import whole
from noisegate.sql.reading.values import decimals
from noisegate.sql.reading.values.operands import Operands
from noisegate.sql.reading.words import Node, refusal

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
    place = _plus(
        Call("multiply", (Call("year", (moment,)), Literal(12))), Call("month", (moment,))
    )
    place = _plus(place, Literal(months - 1))
    reached = domain_of(place, schema)
    if domain_of(moment, schema).is_bounded and not 12 <= reached.low <= reached.high <= _LAST:  # type: ignore[operator]
        raise _beyond()
    inside = Call("between", (place, Literal(12), Literal(_LAST)))
    kept = Call("least", (Literal(_LAST), Call("greatest", (Literal(12), place))))
    year = Call("int_divide", (kept, Literal(12)))
    month = _plus(Call("modulo", (kept, Literal(12))), Literal(1))
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
    since = Call("modulo", (_plus(Call("dayofweek", (moment,)), Literal(6)), Literal(7)))
    return _plus(since, Literal(1))


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


def _plus(one: Expression, other: Expression) -> Expression:
    return Call("add", (one, other))


def _beyond() -> Unsupported:
    return Unsupported(
        "A date is outside the years 1 to 9999.", fix="Use another date.", about="years"
    )


Reader: TypeAlias = Callable[[Node, Operands], Expression]
_BOTH: Final = ("this", "expression")
_QUIET: Final = ("typed", "safe", "date_part_boundary")
_PARTS: Final[dict[str, str]] = {
    **{part: part for part in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "week": "week", "epoch": "epoch", "dow": "dayofweek", "dayofweek": "dayofweek",
    "weekday": "dayofweek", "doy": "dayofyear", "dayofyear": "dayofyear", "dayofmonth": "day",
    "weekofyear": "week",
}  # fmt: skip
_DAYS: Final = {"DAY": 1, "DAYS": 1, "WEEK": 7, "WEEKS": 7}
_SECONDS: Final = {
    **dict.fromkeys(("SECOND", "SECONDS"), 1), **dict.fromkeys(("MINUTE", "MINUTES"), 60),
    **dict.fromkeys(("HOUR", "HOURS"), 3_600), **dict.fromkeys(("DAY", "DAYS"), 86_400),
    **dict.fromkeys(("WEEK", "WEEKS"), 604_800),
}  # fmt: skip
_MONTHS: Final = {
    "MONTH": 1, "MONTHS": 1, "QUARTER": 3, "QUARTERS": 3, "YEAR": 12, "YEARS": 12,
}  # fmt: skip


def part(name: str, node: Node, reading: Operands) -> Expression:
    """A part of a date or time, by its name."""
    found = _PARTS.get(name.lower())
    if found is None and name.lower() != "isodow":
        raise Unsupported(
            f"The part {name!r} of a date is not supported.",
            fix=f"Use one of {', '.join(sorted(set(_PARTS.values())))}.",
        )
    if found == "epoch":
        return _seconds(node, reading)
    ends = _ends_of_age(node)
    if found == "year" and ends is not None:
        return _full_years(ends, reading)
    between = _apart(node, reading) if found == "day" else None
    if between is not None:
        return Call("trunc", (Call("divide", (between, Literal(_SECONDS["DAY"]))),))
    moment = reading.taken(node, Kind.TIMESTAMP)
    return iso_weekday(moment) if found is None else Call(found, (moment,))


def _seconds(node: Node, reading: Operands) -> Expression:
    """EPOCH(x), seconds since 1970; of a difference of two times, the seconds between them."""
    between = _apart(node, reading)
    return between or Call("epoch", (reading.taken(node, Kind.TIMESTAMP),))


def _apart(node: Node, reading: Operands) -> Expression | None:
    """The seconds between two times, where this is their difference."""
    inner = node.unnest()
    if not isinstance(inner, exp.Sub) or isinstance(inner.expression, exp.Interval):
        return None
    ends = [reading.taken(end, Kind.TIMESTAMP) for end in (inner.this, inner.expression)]
    kinds = {reading.kind(end) for end in ends}
    if Kind.TIMESTAMP not in kinds or not kinds <= {Kind.TIMESTAMP, Kind.DATE}:
        return None
    return Call("subtract", (Call("epoch", (ends[0],)), Call("epoch", (ends[1],))))


def in_seconds(node: Node, reading: Operands) -> tuple[Expression, ...] | None:
    """The operands of a comparison of two times' difference with an INTERVAL, in seconds."""
    sides = [each.unnest() for each in (node.this, node.expression)]
    if sum(isinstance(side, exp.Interval) for side in sides) != 1:
        return None
    read: list[Expression | None] = []
    for side in sides:
        if isinstance(side, exp.Interval):
            number, unit = _words(side)
            if (seconds := _SECONDS.get(unit)) is None or not isinstance(side.this, exp.Literal):
                return None
            read.append(Literal(whole(exp.Literal.number(number), "An INTERVAL") * seconds))
        else:
            read.append(_apart(side, reading))
    return None if None in read else tuple(each for each in read if each is not None)


def _ends_of_age(node: Node) -> list[Node] | None:
    """Those of AGE(later, earlier). AGE(x) is about today."""
    inner = node.unnest()
    is_age = isinstance(inner, exp.Anonymous) and inner.name.upper() == "AGE"
    return inner.expressions if is_age and len(inner.expressions) == len(_BOTH) else None


def _full_years(ends: Sequence[Node], reading: Operands) -> Expression:
    """The full years between two dates: birthdays, as in 20240131 - 20000229, without the rest."""
    later, earlier = (_as_number(reading.taken(end, Kind.DATE), reading) for end in ends)
    return Call("int_divide", (Call("subtract", (later, earlier)), Literal(10_000)))


def _as_number(moment: Expression, reading: Operands) -> Expression:
    if reading.kind(moment) is not Kind.DATE:
        raise Unsupported(
            "The AGE of a timestamp is not supported.", fix="Use CAST(x AS DATE).", about="age"
        )
    year, month, day = (Call(part, (moment,)) for part in ("year", "month", "day"))
    month = Call("multiply", (month, Literal(100)))
    return _plus(_plus(Call("multiply", (year, Literal(10_000))), month), day)


def _sum(node: Node, reading: Operands) -> Expression:
    """Sums and differences, where dates count in days."""
    back = isinstance(node, exp.Sub)
    first, second = node.this, node.expression
    if isinstance(first, exp.Interval) and not back:
        first, second = second, first
    if isinstance(second, exp.Interval):
        return _moved(first, second, reading, back=back)
    left, right = _summands((first, second), reading)
    kinds = (reading.kind(left), reading.kind(right))
    if kinds == (Kind.DATE, Kind.DATE) and back:
        return Call("date_diff", (Literal("day"), right, left))
    if kinds == (Kind.DATE, Kind.INTEGER):
        return _later(left, right, back=back)
    if kinds == (Kind.INTEGER, Kind.DATE) and not back:
        return _later(right, left, back=False)
    if Kind.TIMESTAMP in kinds and {*kinds} <= {Kind.TIMESTAMP, Kind.DATE} and back:
        raise Unsupported(
            "The difference of two timestamps is an INTERVAL, which cannot be used by itself.",
            fix="Compare it with INTERVAL 7 DAY, or write x > y + INTERVAL 1 YEAR; for a number "
            "use EPOCH(x - y), in seconds, or DATE_DIFF('minute', y, x).",
        )
    if not all(kind.is_numeric for kind in kinds):
        return Call("subtract" if back else "add", (left, right))
    return decimals.computed("subtract" if back else "add", left, right, reading.schema)


def _summands(nodes: tuple[Node, Node], reading: Operands) -> tuple[Expression, ...]:
    """What is added up: a column without a type is a number, or a date beside a date."""
    read = [None if reading.without_type(node) else reading.operand(node) for node in nodes]
    dates = any(value is not None and reading.kind(value) is Kind.DATE for value in read)
    kind = Kind.DATE if dates else Kind.NUMBER
    return tuple(
        reading.operand(node, kind) if value is None else value
        for node, value in zip(nodes, read, strict=True)
    )


def _later(moment: Expression, days: Expression, *, back: bool) -> Expression:
    if back:
        constant = type(days) is Literal and type(days.value) is int
        days = Literal(-days.value) if constant else Call("negate", (days,))  # type: ignore[union-attr,operator]
    return later_days(moment, days)


def _moved(node: Node, interval: exp.Interval, reading: Operands, *, back: bool) -> Expression:
    """A date and an INTERVAL of days, weeks, months or years."""
    count, unit = _words(interval)
    months = _MONTHS.get(unit)
    moment = reading.taken(node, Kind.TIMESTAMP if months is None else Kind.DATE)
    if months is None or not isinstance(interval.this, exp.Literal):
        return _later(moment, _days(interval, reading), back=back)
    number = whole(exp.Literal.number(count), "An INTERVAL") * months
    return later_months(moment, -number if back else number, reading.schema)


def _days(interval: exp.Interval, reading: Operands) -> Expression:
    text = interval.this
    number, word = _words(interval)
    unit = _DAYS.get(word)
    if unit is None:
        raise Unsupported(
            "An INTERVAL must be in days, weeks, months or years.",
            fix="Use INTERVAL n DAY, or write the date.",
            about="interval",
        )
    if isinstance(text, exp.Literal):
        return Literal(whole(exp.Literal.number(number), "An INTERVAL") * unit)
    count = reading.taken(text, Kind.INTEGER)
    return count if unit == 1 else Call("multiply", (count, Literal(unit)))


def _words(interval: exp.Interval) -> tuple[str, str]:
    """The number and the unit of an INTERVAL."""
    words = [interval.this.name, interval.text("unit")]
    if isinstance(interval.this, exp.Literal) and not words[1]:
        words = interval.this.name.split()
    return (words[0], words[1].upper()) if len(words) == 2 else ("", "")


def _date_add(node: Node, reading: Operands) -> Expression:
    if not isinstance(node.expression, exp.Interval):
        raise refusal(node)
    return _moved(node.this, node.expression, reading, back=False)


def _calendar(node: Node, reading: Operands) -> Expression:
    """Days and months by other names than numbers."""
    moment = reading.taken(node.this, Kind.TIMESTAMP)
    if isinstance(node, exp.LastDay):
        return last_day(moment)
    if isinstance(node, exp.DayOfWeekIso):
        return iso_weekday(moment)
    if isinstance(node, exp.Dayname):
        place = Call("dayofweek", (moment,))
        return named(place, 0, DAYS, reading.schema)
    return named(Call("month", (moment,)), 1, MONTHS, reading.schema)


def _truncated(node: Node, reading: Operands) -> Expression:
    unit = Literal(node.args["unit"].name.lower())
    return Call("date_trunc", (unit, reading.taken(node.this, Kind.TIMESTAMP)))


def _difference(node: Node, reading: Operands) -> Expression:
    unit = Literal(node.text("unit").lower() or "day")
    for untyped in map(reading.without_type, (node.expression, node.this)):
        if untyped is not None:
            untyped.take(Kind.TIMESTAMP)
    return Call("date_diff", (unit, *reading.agreed(node.expression, node.this)))


READERS: Final = MappingProxyType[type[exp.Expr], tuple[tuple[str, ...], Reader]]({
    exp.Add: ((*_BOTH, *_QUIET), _sum),
    exp.Sub: ((*_BOTH, *_QUIET), _sum),
    exp.DateAdd: (_BOTH, _date_add),
    exp.LastDay: (("this",), _calendar),
    exp.DayOfWeekIso: (("this",), _calendar),
    exp.Dayname: (("this",), _calendar),
    exp.Monthname: (("this",), _calendar),
    exp.Extract: (_BOTH, lambda node, reading: part(node.this.name, node.expression, reading)),
    exp.TimestampTrunc: (("this", "unit", *_QUIET), _truncated),
    exp.DateTrunc: (("this", "unit", *_QUIET), _truncated),
    exp.DateDiff: ((*_BOTH, "unit", *_QUIET), _difference),
    exp.TimeToUnix: (("this",), lambda node, reading: _seconds(node.this, reading)),
})  # fmt: skip
