"""What values of columns and expressions can be, as far as the question and public facts say.

`value_of` is what an expression is for known values of its columns, as far as it can be told.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cache, lru_cache
from math import ceil, floor
from typing import Any, Final, final

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of, fields_of
from noisegate.algebra.intervals import KEYS_MAX
from noisegate.algebra.rules_dates import TIMES, UNITS
from noisegate.errors import NoisegateError
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import EPOCH, KEY_TYPES, Domain, Key, Kind

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


def _first_of(order: tuple[Any, ...]) -> Callable[[Sequence[Any]], Any]:
    return lambda args: min(args, key=order.index)


def _case(args: Sequence[Any]) -> Any:  # noqa: ANN401
    for place in range(0, len(args) - 1, 2):
        if args[place] is UNKNOWN or args[place] is True:
            return UNKNOWN if args[place] is UNKNOWN else args[place + 1]
    return args[-1] if len(args) % 2 else None


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
    "and": _first_of((False, UNKNOWN, None, True)),
    "between": _first_of((False, UNKNOWN, None, True)),
    "or": _first_of((True, UNKNOWN, None, False)),
    "is_null": lambda args: UNKNOWN if args[0] is UNKNOWN else args[0] is None,
    "is_true": lambda args: UNKNOWN if args[0] is UNKNOWN else args[0] is True,
    "case": _case,
    "coalesce": lambda args: next((arg for arg in args if arg is not None), None),
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


_DAYS_MAX: Final = 800


@final
@dataclass(frozen=True, slots=True)
class Fact:
    """What a value can be. ``whole``: its keys are all there are; ``closed``: by the question."""

    domain: Domain
    whole: bool = False
    closed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no row can have it."""
        return self.domain.keys == () and self.whole and not self.domain.may_lack


@final
@dataclass(frozen=True, slots=True)
class PublicRows:
    """Rows of public tables, as far as columns of them are still in sight."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def each(self) -> Iterator[dict[str, Any]]:
        """The rows by name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def keeping(self, condition: Callable[[dict[str, Any]], bool]) -> "PublicRows":
        """Those for which the condition holds."""
        pairs = zip(self.rows, self.each(), strict=True)
        return replace(self, rows=tuple(row for row, named in pairs if condition(named)))


@final
@dataclass(frozen=True, slots=True)
class Facts:
    """What columns and expressions can be. ``none``: no row is left at all.

    ``listed`` are rows of public tables, ``same`` pairs of columns that a join has made equal.
    """

    of: dict[Expression, Fact]
    listed: tuple[PublicRows, ...] = ()
    same: tuple[tuple[Expression, Expression], ...] = ()
    none: bool = False

    @property
    def schema(self) -> dict[str, Domain]:
        """The columns with what they can be."""
        return {each.name: fact.domain for each, fact in self.of.items() if type(each) is Field}

    def fact(self, expression: Expression) -> Fact:
        """What an expression can be."""
        if type(expression) is Field:
            return self.of[expression]
        found = _imaged(self, expression)
        known = self.of.get(expression)
        return found if known is None else _both(known, found)

    def together(self, columns: Sequence[Expression]) -> list[tuple[tuple[int, ...], set[Any]]]:
        """Which columns are one public table's, by place, and what they hold in one row each."""
        found = []
        for each in self.listed:
            names: dict[Expression, int] = {Field(n): at for at, n in enumerate(each.columns)}
            for one, other in (*self.same, *(pair[::-1] for pair in self.same)):
                if other in names:
                    names.setdefault(one, names[other])
            places = tuple(place for place, one in enumerate(columns) if one in names)
            if len(places) > 1:
                inside = [names[columns[place]] for place in places]
                found.append((places, {tuple(row[at] for at in inside) for row in each.rows}))
        return found

    def having(self, expression: Expression, fact: Fact) -> "Facts":
        """The facts and one more."""
        return replace(self, of={**self.of, expression: fact}, none=self.none or fact.is_empty)


def declared(domain: Domain) -> Fact:
    """What is known of a value before any condition."""
    if domain.kind is Kind.BOOLEAN:
        return Fact(replace(domain, keys=domain.keys or (False, True)), whole=True)
    if domain.kind is Kind.DATE and domain.keys is None:
        days = days_between(domain.low, domain.high)
        return Fact(replace(domain, keys=days), whole=days is not None)
    return Fact(domain, whole=_is_whole(domain))


@cache
def days_between(low: Fraction | None, high: Fraction | None) -> tuple[Key, ...] | None:
    """All days between bounds, where these are few."""
    if low is None or high is None or high - low >= KEYS_MAX:
        return None
    return tuple(EPOCH.date() + timedelta(days=day) for day in range(floor(low), floor(high) + 1))


def _is_whole(domain: Domain) -> bool:
    """Whether the keys of a column are all values that it can have: bounds are clamped to."""
    if domain.kind is not Kind.INTEGER or not domain.keys:
        return False
    if domain.low is None or domain.high is None or len(domain.keys) <= domain.high - domain.low:
        return False
    return domain.keys[0] == int(domain.low) and domain.keys[-1] == int(domain.high)


def read_off(facts: Facts) -> Facts:
    """The keys of listed columns are those of the rows that are left."""
    for listed in facts.listed:
        for place, name in enumerate(listed.columns):
            old, values = facts.of[Field(name)], {row[place] for row in listed.rows}
            held = values - {None}
            if len(held) > KEYS_MAX:
                continue
            shown = [key for key in old.domain.keys or () if key in held]
            keys = (*shown, *sorted(held - set(shown)))
            domain = replace(old.domain, keys=keys, nullable=None in values)
            facts = facts.having(Field(name), Fact(domain, whole=True, closed=old.closed))
    return facts


def kept_rows(facts: Facts, holds: Callable[[dict[str, Any]], bool], about: Expression) -> Facts:
    """Leave public rows out that the condition rules out."""
    fields = set(fields_of(about))
    listed = tuple(
        each.keeping(holds) if fields & {*each.columns} else each for each in facts.listed
    )
    return facts if listed == facts.listed else read_off(replace(facts, listed=listed))


def one_of(fact: Fact, values: set[Key], *, closed: bool) -> Fact:
    """A value that is one of those; declared ones first, in their order."""
    domain = fact.domain
    shown = [key for key in domain.keys or () if key in values]
    known = domain.keys is not None and (fact.whole or fact.closed)
    more = () if known else sorted(values - set(shown))  # type: ignore[type-var]
    keys = (*shown, *more)
    return Fact(
        replace(domain, keys=keys, nullable=False), whole=True, closed=fact.closed or closed
    )


def _both(one: Fact, other: Fact) -> Fact:
    """A value of which two facts are known; the first by the question."""
    if one.domain.keys is None or other.domain.keys is None or not other.whole:
        return one
    keys = tuple(key for key in one.domain.keys if key in set(other.domain.keys))
    nullable = one.domain.nullable and other.domain.nullable
    return replace(one, domain=replace(one.domain, keys=keys, nullable=nullable))


def _imaged(facts: Facts, expression: Expression) -> Fact:
    """What a computed value can be: that of each value that its one column can have."""
    domain = domain_of(expression, facts.schema)
    if domain.kind not in KEY_TYPES:
        return declared(domain)
    fields = set(fields_of(expression))
    rows: list[dict[str, Any]] | None = None
    closed = False
    listed = next((each for each in facts.listed if fields and fields <= {*each.columns}), None)
    if listed is not None:
        rows = list(listed.each())
    elif len(fields) == 1:
        (name,) = fields
        fact = facts.of[Field(name)]
        values, closed = _values(fact), fact.closed
        others = [
            (each, {*known.domain.keys, *([None] if known.domain.may_lack else [])})
            for each, known in facts.of.items()
            if type(each) is Call and known.domain.keys is not None and {*fields_of(each)} == fields
        ]
        rows = None if values is None else [{name: value} for value in values]
        rows = rows and [
            row
            for row in rows
            if all(value_of(each, row) in (UNKNOWN, *keys) for each, keys in others)
        ]
    found = None if rows is None else {value_of(expression, row) for row in rows}
    if found is None or UNKNOWN in found:
        return declared(domain)
    held = found - {None}
    if not all(type(value) is KEY_TYPES[domain.kind] for value in held):
        return Fact(domain)
    shown = [key for key in domain.keys or () if key in held]
    keys = (*shown, *sorted(held - set(shown)))
    domain = replace(domain, keys=keys, nullable=None in found and domain.nullable)
    return Fact(domain, whole=True, closed=closed)


def spanned(facts: Facts, key: Expression) -> Fact:
    """What a key can be: all whole numbers, or days, between its ends, where these are few.

    Of a computed key not all need be possible, but where the question itself names the ends.
    """
    fact = facts.fact(key)
    domain = fact.domain
    named = type(key) is not Call or key.function == "to_date" or key in facts.of
    whole = named and domain.kind in (Kind.INTEGER, Kind.DATE) and domain.keys is None
    if not whole or domain.low is None or domain.high is None:
        return fact
    first, last = ceil(domain.low), floor(domain.high)
    if last - first >= KEYS_MAX:
        return fact
    keys: tuple[Key, ...] = tuple(range(first, last + 1))
    if domain.kind is Kind.DATE:
        keys = tuple(EPOCH.date() + timedelta(days=day) for day in range(first, last + 1))
    return replace(fact, domain=replace(domain, keys=keys))


def _values(fact: Fact) -> list[Any] | None:
    """All values that rows can have, where they are few."""
    domain = fact.domain
    keys = domain.keys if fact.whole else None
    if keys is None and domain.kind is Kind.DATE:
        keys = days_between(domain.low, domain.high)
    if keys is None or (domain.kind is Kind.DATE and len(keys) > _DAYS_MAX):
        return None
    return [*keys, *([None] if domain.may_lack else [])]
