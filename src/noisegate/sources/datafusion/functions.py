"""How DataFusion says each function that it has with the meaning of DuckDB; others are refused."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from noisegate.privacy.domain import Domain, Kind
from noisegate.sources.asked import doubles
from noisegate.sources.asked.functions import MICROSECONDS, as_whole, counted, moment
from noisegate.sources.asked.plain import Plain, plain
from noisegate.sources.duckdb.functions import WRITERS as REFERENCE
from noisegate.sources.writing.dialect import Args, Writer
from noisegate.sources.writing.letters import blanks
from noisegate.sources.writing.words import as_kind, binary, call, case, cast, whole

_SAME: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_PARTS: Final = {name: name for name in _SAME} | {"dayofweek": "dow", "dayofyear": "doy"}


def _extracted(part: str) -> Writer:
    return lambda args, _: as_whole(_part(part, moment(args[0])))


def _part(name: str, time: exp.Expr) -> exp.Expr:
    return call("DATE_PART", exp.Literal.string(name.lower()), time)


def _moved(time: exp.Expr, days: exp.Expr) -> exp.Expr:
    length = binary(exp.Mul, as_whole(days), whole(86_400 * MICROSECONDS))
    return cast(binary(exp.Add, as_whole(time), length), Kind.TIMESTAMP)


def _trimmed(name: str) -> Writer:
    return lambda args, _: call(name, args[0].sql, exp.Literal.string(blanks()))


def _like(args: Args, _made: Domain) -> exp.Expr:
    """Escaped by backslashes, which it takes no other sign for."""
    escape = args[2].literal if len(args) > 2 else None
    said, _ = doubles.pattern(args[1].literal, escape, "\\")
    return exp.paren(exp.Like(this=args[0].sql, expression=exp.Literal.string(said)))


def _to_text(args: Args, made: Domain) -> exp.Expr:
    """Of a time, a blank instead of its T, and no zeros at the end of a fraction."""
    (arg,) = args
    if arg.domain.kind is not Kind.TIMESTAMP or arg.literal is None:
        return _SHARED["to_text"](args, made)
    said = call("REPLACE", cast(arg.sql, Kind.TEXT), *map(exp.Literal.string, "T "))
    point = call("STRPOS", said.copy(), exp.Literal.string("."))
    short = call("RTRIM", said.copy(), exp.Literal.string("0"))
    return case((binary(exp.GT, point, whole(0)), short), otherwise=said)


_SHARED: Final = Plain(
    name="DataFusion",
    part=_part,
    passed=as_whole,
    at=lambda passed: cast(passed, Kind.TIMESTAMP),
    later=lambda day, days: cast(binary(exp.Add, cast(day, "INT"), days), Kind.DATE),
    moved=_moved,
).writers()
WRITERS: Final[Mapping[str, Writer]] = MappingProxyType({
    **_SHARED,
    "log2": REFERENCE["log2"],
    "sign": lambda args, made: cast(call("SIGNUM", as_kind(args[0], Kind.NUMBER)), made.kind),
    "trim": _trimmed("BTRIM"),
    "ltrim": _trimmed("LTRIM"),
    "rtrim": _trimmed("RTRIM"),
    "starts_with": plain("STARTS_WITH"),
    "ends_with": plain("ENDS_WITH"),
    "contains": plain("CONTAINS"),
    "position": counted("STRPOS"),
    "like": _like,
    "to_text": _to_text,
    **{name: _extracted(part) for name, part in _PARTS.items()},
})  # fmt: skip
