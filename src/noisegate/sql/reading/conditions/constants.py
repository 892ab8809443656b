"""What an expression is for known values of its columns, as far as it can be told beforehand."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.rules_dates import TIMES, UNITS
from noisegate.errors import NoisegateError
from noisegate.privacy.domain import Domain, Kind

UNKNOWN: Final = ...  # what depends on more than is given

_COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def value_of(expression: Expression, row: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value
    """The value where the columns are as ``row`` says; UNKNOWN where it cannot be told."""
    if type(expression) is Literal:
        return expression.value
    if type(expression) is Field:
        return row.get(expression.name, UNKNOWN)
    between = expression.function == "between"
    inner = two_sided("ge", "le", expression) if between else expression.args
    args = [value_of(arg, row) for arg in inner]
    if expression.function in _CHOICES:
        return _CHOICES[expression.function](args)
    if UNKNOWN in args or None in args:
        return UNKNOWN if UNKNOWN in args else None
    try:
        return _called(expression.function, *args)
    except (TypeError, ValueError, OverflowError, NoisegateError):
        return UNKNOWN


def two_sided(one: str, other: str, between: Call) -> tuple[Call, Call]:
    """Two comparisons for BETWEEN: one may be false where the other's end is missing."""
    value, low, high = between.args
    return Call(one, (value, low)), Call(other, (value, high))


@lru_cache(maxsize=1 << 14, typed=True)
def _called(function: str, *args: Any) -> Any:  # noqa: ANN401
    """The value of a function; where only its rule is known, if that leaves one.

    Kept, since every question asks it about all values that a column can have.
    """
    if function in _PLAIN:
        return _PLAIN[function](*_alike(args))
    first, *others = args
    given = Domain(kind=Literal(first).kind, keys=(first,), nullable=False)
    if given.kind is not Kind.TEXT:
        given = domain_of(Literal(first), {})
    made = Call(function, (Field("x"), *map(Literal, others)))
    domain = domain_of(made, {"x": given})
    keys = domain.keys or ()
    return keys[0] if len(keys) == 1 and not domain.nullable else UNKNOWN


def _alike(args: Sequence[Any]) -> Sequence[Any]:
    """Dates beside times are times."""
    if not any(isinstance(arg, datetime) for arg in args):
        return args
    return [
        datetime(arg.year, arg.month, arg.day)  # noqa: DTZ001 - no zone, as in tables
        if isinstance(arg, date) and not isinstance(arg, datetime)
        else arg
        for arg in args
    ]


def _and(args: Sequence[Any]) -> Any:  # noqa: ANN401
    order = (False, UNKNOWN, None, True)
    return min(args, key=order.index)


def _or(args: Sequence[Any]) -> Any:  # noqa: ANN401
    order = (True, UNKNOWN, None, False)
    return min(args, key=order.index)


def _case(args: Sequence[Any]) -> Any:  # noqa: ANN401
    for place in range(0, len(args) - 1, 2):
        if args[place] is UNKNOWN or args[place] is True:
            return UNKNOWN if args[place] is UNKNOWN else args[place + 1]
    return args[-1] if len(args) % 2 else None


def _coalesce(args: Sequence[Any]) -> Any:  # noqa: ANN401
    return next((arg for arg in args if arg is not None), None)


def _extreme(choose: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
    def chosen(args: Sequence[Any]) -> Any:  # noqa: ANN401
        held = [arg for arg in args if arg is not None]
        return UNKNOWN if UNKNOWN in args else choose(_alike(held)) if held else None

    return chosen


def _nullif(args: Sequence[Any]) -> Any:  # noqa: ANN401
    if UNKNOWN in args:
        return UNKNOWN
    return None if None not in args and operator.eq(*_alike(args)) else args[0]


def _like(flags: int) -> Callable[..., bool]:
    def matches(text: str, pattern: str, escape: str = "") -> bool:
        made, rest = "", iter(pattern)
        for letter in rest:
            if letter == escape:
                made += re.escape(next(rest))
            else:
                made += {"%": ".*", "_": "."}.get(letter, re.escape(letter))
        return re.fullmatch(made, text, flags | re.DOTALL) is not None

    return matches


def _trunc(unit: str, at: date) -> date:
    of = UNITS[unit.lower()]
    start = of.start(of.index(_alike([at, datetime.min])[0]))  # noqa: DTZ901
    return start if unit.lower() in TIMES else start.date()


def _whole(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """A function of whole numbers: others are computed as doubles, and not here."""

    def called(*args: Any) -> int | None:  # noqa: ANN401
        if any(type(arg) is not int for arg in args):
            raise TypeError
        return function(*args)

    return called


def _quotient(top: int, bottom: int) -> int | None:
    size = abs(top) // abs(bottom) if bottom else None
    return None if size is None else size if (top >= 0) == (bottom > 0) else -size


def _rest(top: int, bottom: int) -> int | None:
    whole = _quotient(top, bottom)
    return None if whole is None else top - bottom * whole


def _make_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _date_diff(unit: str, *moments: date) -> int:
    of = UNITS[unit.lower()]
    first, last = (of.index(at) for at in _alike([*moments, datetime.min])[:2])  # noqa: DTZ901
    return last - first


_CHOICES: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "and": _and,
    "between": _and,
    "or": _or,
    "is_null": lambda args: UNKNOWN if args[0] is UNKNOWN else args[0] is None,
    "is_true": lambda args: UNKNOWN if args[0] is UNKNOWN else args[0] is True,
    "case": _case,
    "coalesce": _coalesce,
    "least": _extreme(min),
    "greatest": _extreme(max),
    "nullif": _nullif,
}
_PLAIN: Final[dict[str, Callable[..., Any]]] = {
    **_COMPARED,
    "not": operator.not_,
    "in": lambda x, *listed: x in listed,
    "like": _like(0),
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": lambda x, part: part in x,
    "year": lambda x: x.year,
    "quarter": lambda x: (x.month + 2) // 3,
    "month": lambda x: x.month,
    "week": lambda x: x.isocalendar().week,
    "day": lambda x: x.day,
    "dayofweek": lambda x: x.isoweekday() % 7,
    "dayofyear": lambda x: x.timetuple().tm_yday,
    "date_trunc": _trunc,
    "date_diff": _date_diff,
    "date_add_days": lambda x, days: x + timedelta(days=days),
    "make_date": _make_date,
    "add": _whole(operator.add),
    "subtract": _whole(operator.sub),
    "multiply": _whole(operator.mul),
    "negate": _whole(operator.neg),
    "int_divide": _whole(_quotient),
    "modulo": _whole(_rest),
}
