"""Times that are said from today: CURRENT_DATE - 30, DATE_TRUNC('month', NOW()).

The clock is public. It is read once, when the question is asked, and what is made of it stands in
the question as if it had been typed: so the same question is found again as long as that value
stays. One that changes within the hour is refused: a dashboard would pay anew at every refresh.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres

from noisegate.desk.display.numbers import TIMED
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.sql.reading.sight import plain_name
from noisegate.sql.reading.words import Node, at, attempt, fold

_CLOCKS: Final = (exp.CurrentTimestamp, exp.Localtimestamp)
_CALLED: Final = ("now", "get_current_timestamp", "transaction_timestamp")
_ZONES: Final = ("utc", "gmt", "z", "etc/utc", "+00", "+00:00")
_ROWS: Final = (exp.Column, exp.Query, exp.Subquery, exp.AggFunc, exp.Window, exp.Star)
_HOURLY: Final = sqlglot.parse_one("DATE_TRUNC('hour', NOW())", dialect="duckdb")


@final
@dataclass(frozen=True, slots=True)
class Clock:
    """The moment of a question, in UTC, and an engine's value of an expression without columns."""

    now: datetime
    value: Callable[[str], Any]


def in_utc(statement: Node) -> Node:
    """The statement with all times in UTC, and those that it writes in a format as constants."""
    return statement.transform(_plain, copy=False)


def _plain(node: Node) -> Node:
    called = isinstance(node, exp.Anonymous) and fold(node.name) == "timezone"
    if isinstance(node, exp.AtTimeZone) and _is_utc(node.args["zone"]):
        return exp.Paren(this=node.this)
    if called and len(node.expressions) == 2 and _is_utc(node.expressions[0]):
        return exp.Paren(this=node.expressions[1])
    return moment_of(node) or node


def _is_utc(zone: Node) -> bool:
    return isinstance(zone, exp.Literal) and fold(zone.name) in _ZONES


def moment_of(node: Node) -> Node | None:
    """The constant of a text that is written with a zone, or in a format of Postgres."""
    if isinstance(node, exp.Cast) and node.to.this == exp.DType.TIMESTAMPTZ:
        texts = [node.this]
    elif isinstance(node, exp.UnixToTime) and node.args.get("scale"):
        texts = [node.this, node.args["scale"]]  # TO_TIMESTAMP
    elif isinstance(node, exp.Anonymous) and fold(node.name) == "to_date":
        texts = node.expressions
    else:
        return None
    if not texts or not all(isinstance(each, exp.Literal) and each.is_string for each in texts):
        return None
    text, *formats = texts
    form = Postgres.format_time(formats[0]) if formats else None
    with suppress(ValueError):
        if form is None:
            moment = datetime.fromisoformat(text.name.strip())
        else:
            moment = datetime.strptime(text.name, form.name)  # noqa: DTZ007 - or none
        moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
        return _constant(moment.date() if isinstance(node, exp.Anonymous) else moment)
    return None


def settle(statement: Node, clock: Clock) -> tuple[str, ...]:
    """Write the values of the clock into the statement; in words, what each is."""
    said: dict[str, None] = {}
    for node in [each for whole in list(_timed(statement)) for each in _known(whole, clock)]:
        with at(node):
            value = _value(node, clock)
        said[f"{node.sql(dialect='duckdb')} is {_shown(value)} here."] = None
        made = _constant(value)
        if isinstance(node.parent, exp.Select):
            made = exp.alias_(made, plain_name(node), quoted=True)
        node.replace(made)
    return (*said, TIMED) if said else ()


def _known(whole: Node, clock: Clock) -> list[Node]:
    """The expression, if an engine has its value, or else what in it looks at the clock."""
    if attempt(lambda: clock.value(_at(whole, clock.now))) is not None:
        return [whole]
    return [each for each in whole.walk() if _is_clock(each)]


def _timed(node: Node) -> Iterator[Node]:
    """The largest expressions without columns that look at the clock."""
    inside = list(node.walk())
    if not any(map(_is_clock, inside)):
        return
    whole = isinstance(node, exp.Condition) and not any(isinstance(each, _ROWS) for each in inside)
    if whole and not isinstance(node, exp.Interval):
        yield node
        return
    for child in node.iter_expressions():
        yield from _timed(child)


def _is_clock(node: Node) -> bool:
    return isinstance(node, (*_CLOCKS, exp.CurrentDate)) or (
        isinstance(node, exp.Anonymous) and fold(node.name) in _CALLED
    )


def _value(node: Node, clock: Clock) -> Any:  # noqa: ANN401 - whatever the engine gives
    """What the expression is for all of this hour."""
    begun = clock.now.replace(minute=0, second=0, microsecond=0)
    moments = (clock.now, begun, begun + timedelta(minutes=59, seconds=59))
    now, *others = (clock.value(_at(node, each)) for each in moments)
    if all(other == now for other in others):
        return now
    hourly = node.transform(lambda each: _HOURLY.copy() if _is_clock(each) else each)
    raise Unsupported(
        f"{node.sql(dialect='duckdb')} changes within the hour, and each value would make a "
        "question with its own price.",
        fix=f"Write {hourly.sql(dialect='duckdb')}, or what it is now, {_shown(now)}.",
        about="clock",
    )


def _at(node: Node, moment: datetime) -> str:
    """The expression at a moment."""

    def said(each: Node) -> Node:
        if not _is_clock(each):
            return each
        return _constant(moment.date() if isinstance(each, exp.CurrentDate) else moment)

    return node.copy().transform(said).sql(dialect="duckdb", comments=False)


def _shown(value: Any) -> str:  # noqa: ANN401
    """A value as it can be typed."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    return f"DATE '{value}'" if isinstance(value, date) else exp.convert(value).sql()


def _constant(value: Any) -> Node:  # noqa: ANN401
    """A value as SQL."""
    if isinstance(value, datetime):
        return exp.cast(exp.Literal.string(value.isoformat(sep=" ")), "TIMESTAMP")
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "DATE")
    return exp.Paren(this=exp.convert(value))
