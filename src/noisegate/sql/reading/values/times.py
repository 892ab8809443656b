"""Dates and times of SQL: parts, units, and sums in which dates count in days."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind
from noisegate.sql.reading.literals import whole
from noisegate.sql.reading.values import calendar, decimals
from noisegate.sql.reading.words import Node, refusal, require_only

if TYPE_CHECKING:
    from collections.abc import Callable

    from noisegate.sql.reading.values.expressions import Reading

Reader: TypeAlias = "Callable[[Node, Reading], Expression]"
_QUIET: Final = ("typed", "safe", "date_part_boundary")
_PARTS: Final[dict[str, str]] = {
    **{part: part for part in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "week": "week", "epoch": "epoch", "dow": "dayofweek", "dayofweek": "dayofweek",
    "weekday": "dayofweek", "doy": "dayofyear", "dayofyear": "dayofyear", "dayofmonth": "day",
    "weekofyear": "week",
}  # fmt: skip
_DAYS: Final = {"DAY": 1, "DAYS": 1, "WEEK": 7, "WEEKS": 7}
_MONTHS: Final = {
    "MONTH": 1, "MONTHS": 1, "QUARTER": 3, "QUARTERS": 3, "YEAR": 12, "YEARS": 12,
}  # fmt: skip


def part(name: str, node: Node, reading: "Reading") -> Expression:
    """A part of a date or time, by its name."""
    found = _PARTS.get(name.lower())
    if found is None and name.lower() != "isodow":
        raise Unsupported(
            f"The part {name!r} of a date is not supported.",
            fix=f"Use one of {', '.join(sorted(set(_PARTS.values())))}.",
        )
    if found == "epoch":
        return _seconds(node, reading)
    moment = reading.taken(node, Kind.TIMESTAMP)
    return calendar.iso_weekday(moment) if found is None else Call(found, (moment,))


def _seconds(node: Node, reading: "Reading") -> Expression:
    """EPOCH(x), seconds since 1970; of a difference of two times, the seconds between them."""
    inner = node.unnest()
    if isinstance(inner, exp.Sub) and not isinstance(inner.expression, exp.Interval):
        ends = [reading.taken(end, Kind.TIMESTAMP) for end in (inner.this, inner.expression)]
        kinds = {reading.kind(end) for end in ends}
        if Kind.TIMESTAMP in kinds and kinds <= {Kind.TIMESTAMP, Kind.DATE}:
            return Call("subtract", (Call("epoch", (ends[0],)), Call("epoch", (ends[1],))))
    return Call("epoch", (reading.taken(node, Kind.TIMESTAMP),))


def _epoch(node: Node, reading: "Reading") -> Expression:
    require_only(node, "this")
    return _seconds(node.this, reading)


def _sum(node: Node, reading: "Reading") -> Expression:
    """Sums and differences, where dates count in days."""
    require_only(node, "this", "expression", *_QUIET)
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
            fix="Use EPOCH(x - y), in seconds, or DATE_DIFF('minute', y, x).",
        )
    if not all(kind.is_numeric for kind in kinds):
        return Call("subtract" if back else "add", (left, right))
    return decimals.computed("subtract" if back else "add", left, right, reading.schema)


def _summands(nodes: tuple[Node, Node], reading: "Reading") -> tuple[Expression, ...]:
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
    return calendar.later_days(moment, days)


def _moved(node: Node, interval: exp.Interval, reading: "Reading", *, back: bool) -> Expression:
    """A date and an INTERVAL of days, weeks, months or years."""
    count, unit = _words(interval)
    months = _MONTHS.get(unit)
    moment = reading.taken(node, Kind.TIMESTAMP if months is None else Kind.DATE)
    if months is None or not isinstance(interval.this, exp.Literal):
        return _later(moment, _days(interval, reading), back=back)
    number = whole(exp.Literal.number(count), "An INTERVAL") * months
    return calendar.later_months(moment, -number if back else number, reading.schema)


def _days(interval: exp.Interval, reading: "Reading") -> Expression:
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


def _date_add(node: Node, reading: "Reading") -> Expression:
    require_only(node, "this", "expression")
    if not isinstance(node.expression, exp.Interval):
        raise refusal(node)
    return _moved(node.this, node.expression, reading, back=False)


def _calendar(node: Node, reading: "Reading") -> Expression:
    """Days and months by other names than numbers."""
    require_only(node, "this")
    moment = reading.taken(node.this, Kind.TIMESTAMP)
    if isinstance(node, exp.LastDay):
        return calendar.last_day(moment)
    if isinstance(node, exp.DayOfWeekIso):
        return calendar.iso_weekday(moment)
    if isinstance(node, exp.Dayname):
        place = Call("dayofweek", (moment,))
        return calendar.named(place, 0, calendar.DAYS, reading.schema)
    return calendar.named(Call("month", (moment,)), 1, calendar.MONTHS, reading.schema)


def _extract(node: Node, reading: "Reading") -> Expression:
    require_only(node, "this", "expression")
    return part(node.this.name, node.expression, reading)


def _truncated(node: Node, reading: "Reading") -> Expression:
    require_only(node, "this", "unit", *_QUIET)
    unit = Literal(node.args["unit"].name.lower())
    return Call("date_trunc", (unit, reading.taken(node.this, Kind.TIMESTAMP)))


def _difference(node: Node, reading: "Reading") -> Expression:
    require_only(node, "this", "expression", "unit", *_QUIET)
    unit = Literal(node.text("unit").lower() or "day")
    for untyped in map(reading.without_type, (node.expression, node.this)):
        if untyped is not None:
            untyped.take(Kind.TIMESTAMP)
    return Call("date_diff", (unit, *reading.agreed(node.expression, node.this)))


READERS: Final = MappingProxyType[type[exp.Expr], Reader]({
    exp.Add: _sum,
    exp.Sub: _sum,
    exp.DateAdd: _date_add,
    exp.LastDay: _calendar,
    exp.DayOfWeekIso: _calendar,
    exp.Dayname: _calendar,
    exp.Monthname: _calendar,
    exp.Extract: _extract,
    exp.TimestampTrunc: _truncated,
    exp.DateTrunc: _truncated,
    exp.DateDiff: _difference,
    exp.TimeToUnix: _epoch,
})  # fmt: skip
