"""What values of columns and expressions can be, as far as the question and public facts say."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from functools import cache
from math import ceil, floor
from typing import Any, Final, final

from noisegate.algebra.expression import Call, Expression, Field, domain_of, fields_of
from noisegate.algebra.intervals import KEYS_MAX
from noisegate.privacy.domain import EPOCH, KEY_TYPES, Domain, Key, Kind
from noisegate.sql.reading.conditions.constants import UNKNOWN, value_of

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
class Listed:
    """Rows of public tables, as far as columns of them are still in sight."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def each(self) -> Iterator[dict[str, Any]]:
        """The rows by name."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def keeping(self, condition: Callable[[dict[str, Any]], bool]) -> "Listed":
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
    listed: tuple[Listed, ...] = ()
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
