"""How Spark says each function that it has with the meaning of DuckDB; others are refused.

Its own functions mean different things from server to server (RINT, LEFT of a number below zero,
DATE_TRUNC's type), so that only those are used that were found to mean one thing on all of them.
Not here: regular expressions, texts as numbers or dates and numbers as text, LOG2, STRFTIME,
REVERSE, ILIKE. Most are those of `asked/plain.py`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.asked import doubles
from noisegate.sources.asked.functions import as_whole, counted, moment
from noisegate.sources.asked.plain import Plain, plain
from noisegate.sources.writing.dialect import Args, Writer
from noisegate.sources.writing.letters import blanks
from noisegate.sources.writing.words import binary, call, cast, whole


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


_TIMES: Final = Plain(
    name="Spark",
    part=call,
    passed=_passed,
    at=lambda passed: cast(call("TIMESTAMP_MICROS", passed), Kind.TIMESTAMP),
    later=lambda day, days: call("DATE_ADD", day, days),
    moved=lambda time, days: binary(exp.Add, time, call("MAKE_DT_INTERVAL", days)),
)
WRITERS: Final[Mapping[str, Writer]] = MappingProxyType({
    **_TIMES.writers(),
    "trim": lambda args, _: call("BTRIM", args[0].sql, exp.Literal.string(blanks())),
    "ltrim": lambda args, _: call("LTRIM", exp.Literal.string(blanks()), args[0].sql),
    "rtrim": lambda args, _: call("RTRIM", exp.Literal.string(blanks()), args[0].sql),
    "starts_with": plain("STARTSWITH"),
    "ends_with": plain("ENDSWITH"),
    "contains": plain("CONTAINS"),
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
})  # fmt: skip
