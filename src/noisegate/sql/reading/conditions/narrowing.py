"""Which values WHERE and joins leave: groups that no row can be in are not shown.

Facts follow from the question, the policy and public tables alone, so they are public. A mistake
here would leave a group out, or show an empty one; it could not leak.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from functools import reduce
from math import ceil, floor, inf, nextafter
from typing import Any, Final, TypeAlias

import pyarrow as pa

from noisegate.algebra.expression import Call, Expression, Field, Literal, fields_of
from noisegate.algebra.relation import (
    Among,
    Filter,
    Fold,
    Join,
    JoinKind,
    Matching,
    Partnered,
    PerUnit,
    Project,
    Relation,
    Sampled,
    Table,
    Union,
    Windowed,
)
from noisegate.algebra.rules_dates import UNITS
from noisegate.algebra.rules_logic import DAY
from noisegate.algebra.schema import schema_of
from noisegate.frozen import replace
from noisegate.privacy.domain import EPOCH, KEY_TYPES, Key, Kind, ordinal
from noisegate.sql.reading.conditions.facts import (
    UNKNOWN,
    Fact,
    Facts,
    PublicRows,
    days_between,
    declared,
    kept_rows,
    one_of,
    read_off,
    two_sided,
    value_of,
)

_TRUE: Final = Literal(value=True)
_FLIPPED: Final = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_OPPOSITE: Final = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_LAX: Final = frozenset({  # which have values where an argument is missing
    "is_null", "is_true", "coalesce", "case", "least", "greatest", "nullif", "or", "and",
})  # fmt: skip


def narrowed(facts: Facts, condition: Expression) -> Facts:
    """What a condition leaves: the facts of the rows for which it is true."""
    if type(condition) is Literal:
        return facts if condition.value is True else replace(facts, none=True)
    if type(condition) is Call and condition.function == "between":
        return reduce(narrowed, two_sided("ge", "le", condition), facts)
    name, args = (condition.function, condition.args) if type(condition) is Call else ("", ())
    if name == "and":
        return reduce(narrowed, args, facts)
    if name == "or":
        return either([narrowed(facts, each) for each in args])
    if name == "is_true":
        return narrowed(facts, args[0])
    turned = _turned(args[0]) if name == "not" else None
    return _tested(facts, condition) if turned is None else narrowed(facts, turned)


def _tested(facts: Facts, condition: Expression) -> Facts:
    """The same of a condition that is not an AND, OR or NOT: tried on public rows, and on keys."""
    facts = kept_rows(present(facts, condition), lambda row: _may_hold(condition, row), condition)
    for one, other in facts.same:
        for each, partner in ((one, other), (other, one)):
            said = _instead(condition, each, partner)
            facts = kept_rows(facts, lambda row, said=said: _may_hold(said, row), said)  # type: ignore[misc]
    fields = set(fields_of(condition))
    for name in fields if len(fields) == 1 else ():
        fact = facts.of.get(Field(name))
        if fact is not None and fact.domain.keys is not None:
            held = [key for key in fact.domain.keys if _may_hold(condition, {name: key})]
            lacks = _may_hold(condition, {name: None})
            unlisted = fact.domain.unlisted and (lacks or not fact.whole)
            domain = replace(fact.domain, keys=tuple(held), unlisted=unlisted,
                             nullable=fact.domain.nullable and lacks)  # fmt: skip
            facts = facts.having(Field(name), replace(fact, domain=domain))
    return _constrained(facts, condition)


def _instead(condition: Expression, old: Expression, new: Expression) -> Expression:
    """The condition about what is equal to a column."""
    if condition == old:
        return new
    if type(condition) is not Call:
        return condition
    return Call(condition.function, tuple(_instead(arg, old, new) for arg in condition.args))


def _may_hold(condition: Expression, row: Mapping[str, Any]) -> bool:
    return value_of(condition, row) in (True, UNKNOWN)


def _turned(condition: Expression) -> Expression | None:
    """What is true where the condition is false."""
    if type(condition) is not Call:
        return None
    name, args = condition.function, condition.args
    if name in ("and", "or"):
        other = "or" if name == "and" else "and"
        return Call(other, tuple(Call("not", (each,)) for each in args))
    if name == "not":
        return args[0]
    if name == "between":
        return Call("or", two_sided("lt", "gt", condition))
    return Call(_OPPOSITE[name], args) if name in _OPPOSITE else None


def present(facts: Facts, expression: Expression) -> Facts:
    """No column is missing without which the expression would be."""
    for name in _needed(expression):
        fact = facts.of.get(Field(name))
        if fact is not None and fact.domain.may_lack:
            unlisted = fact.domain.unlisted and not fact.whole
            domain = replace(fact.domain, nullable=False, unlisted=unlisted)
            known = replace(fact, domain=domain)
            facts = facts.having(Field(name), known)
            facts = kept_rows(facts, lambda row, name=name: row[name] is not None, Field(name))  # type: ignore[misc]
    return facts


def _needed(expression: Expression) -> Iterator[str]:
    if type(expression) is Field:
        yield expression.name
    elif type(expression) is Call and expression.function == "not":
        inner = expression.args[0]
        strict = type(inner) is Call and inner.function == "is_null"
        for arg in inner.args if strict and type(inner) is Call else (inner,):
            yield from _needed(arg)
    elif type(expression) is Call and expression.function not in _LAX:
        between = expression.function == "between"  # false above one end, whatever the other is
        for arg in expression.args[:1] if between else expression.args:
            yield from _needed(arg)


def _constrained(facts: Facts, condition: Expression) -> Facts:
    """What a comparison of an expression with constants says about the expression."""
    if type(condition) is not Call or condition.function in _LAX - {"is_null"}:
        known = type(condition) is Field or (
            type(condition) is Call and condition.function != "not"
        )
        return _compared(facts, "eq", condition, [_TRUE]) if known else facts
    name, args = condition.function, list(condition.args)
    if name == "is_null":
        old = facts.fact(args[0])
        if not old.domain.may_lack:
            return replace(facts, none=True)
        return facts.having(args[0], Fact(replace(old.domain, keys=()), whole=True, closed=True))
    if name in _FLIPPED and type(args[0]) is Literal:
        name, args = _FLIPPED[name], args[::-1]
    listed = [arg for arg in args[1:] if type(arg) is Literal and arg.value is not None]
    if name not in (*_FLIPPED, "in") or len(listed) < len(args) - 1 or not listed:
        return facts
    return _compared(facts, name, args[0], listed)


def _compared(
    facts: Facts, name: str, expression: Expression, constants: Sequence[Literal]
) -> Facts:
    if type(expression) is Literal:
        return facts
    fact = facts.fact(expression)
    kind, values = fact.domain.kind, [each.value for each in constants]
    if name in ("eq", "in"):
        if kind in KEY_TYPES and all(type(value) is KEY_TYPES[kind] for value in values):
            fact = one_of(fact, set(values), closed=True)  # type: ignore[arg-type]
        places = [_place(each, kind) for each in constants]
        low, high = (None, None) if None in places else (min(places), max(places))  # type: ignore[type-var]
    elif name == "ne":
        if fact.domain.keys is not None:
            keys = tuple(key for key in fact.domain.keys if key != values[0])
            fact = replace(fact, domain=replace(fact.domain, keys=keys))
        return facts.having(expression, fact)
    else:
        low, high = _ends(name, [_place(each, kind) for each in constants], kind)
    fact = _within(fact, low, high)
    return _inverted(facts.having(expression, fact), expression, low, high)


def _place(constant: Literal, kind: Kind) -> Fraction | None:
    """A constant among values of a kind."""
    if not kind.is_ordered or not constant.kind.is_ordered or constant.value is None:
        return None
    found = ordinal(constant.value)
    if {kind, constant.kind} == {Kind.DATE, Kind.TIMESTAMP}:
        return found * DAY if kind is Kind.TIMESTAMP else found / DAY
    return found


def _ends(
    name: str, places: Sequence[Fraction | None], kind: Kind
) -> tuple[Fraction | None, Fraction | None]:
    """The least and the largest value that a comparison leaves."""
    if None in places:
        return None, None
    at = places[0]
    if at is None:
        return None, None
    if kind is Kind.NUMBER:
        near = Fraction(float(at))
        beyond = {"lt": -inf, "gt": inf}.get(name)
        end = near if beyond is None else Fraction(nextafter(float(at), beyond))
        return (None, end) if name in ("lt", "le") else (end, None)
    if name in ("lt", "le"):
        return None, Fraction(floor(at) if name == "le" else ceil(at) - 1)
    return Fraction(ceil(at) if name == "ge" else floor(at) + 1), None


def _within(fact: Fact, low: Fraction | None, high: Fraction | None) -> Fact:
    domain = fact.domain
    if not domain.kind.is_ordered:
        return fact
    low = max((each for each in (low, domain.low) if each is not None), default=None)
    high = min((each for each in (high, domain.high) if each is not None), default=None)
    if low is not None and high is not None and low > high:
        empty = replace(domain, keys=(), nullable=False, unlisted=False)
        return Fact(empty, whole=True, closed=fact.closed)
    keys, whole = domain.keys, fact.whole
    if keys is not None:
        keys = tuple(
            key
            for key in keys
            if (low is None or ordinal(key) >= low) and (high is None or ordinal(key) <= high)
        )
    elif domain.kind is Kind.DATE:
        keys = days_between(low, high)
        whole = keys is not None
    return replace(fact, domain=replace(domain, low=low, high=high, keys=keys), whole=whole)


def _inverted(
    facts: Facts, expression: Expression, low: Fraction | None, high: Fraction | None
) -> Facts:
    """Years and truncated dates say between which days their dates lie."""
    if type(expression) is not Call or (low is None and high is None):
        return facts
    inner = expression.args[-1]
    days = expression.function == "year" or (
        expression.function == "date_trunc" and facts.fact(expression).domain.kind is Kind.DATE
    )
    if not days or type(inner) is not Field:
        return facts
    old = facts.fact(inner)
    moments = {
        "ge": None if low is None else _first(expression, low, 0),
        "lt": None if high is None else _first(expression, high, 1),
    }
    for name, day in moments.items():
        if day is not None:
            ends = _ends(
                name, [day * (DAY if old.domain.kind is Kind.TIMESTAMP else 1)], old.domain.kind
            )
            old = _within(old, *ends)
    return facts.having(inner, old)


def _first(expression: Call, at: Fraction, later: int) -> Fraction | None:
    """The day on which the year, or the unit of DATE_TRUNC, begins; or the one after it."""
    try:
        if expression.function == "year":
            return ordinal(UNITS["year"].start(floor(at) + later).date())
        unit = UNITS[str(expression.args[0].value).lower()]  # type: ignore[union-attr]
        moment = EPOCH + timedelta(days=floor(at))
        return ordinal(unit.start(unit.index(moment) + later).date())
    except (ValueError, OverflowError, KeyError):
        return None


def either(cases: Iterable[Facts]) -> Facts:
    """The facts of rows of which one of the cases holds."""
    possible = [each for each in cases if not each.none] or list(cases)
    if not possible:
        return Facts({}, none=True)
    first, *others = possible
    if not others:
        return first
    of = {
        each: _any([case.of[each] for case in possible])
        for each in first.of
        if all(each in case.of for case in possible)
    }
    listed = first.listed
    same = tuple(pair for pair in first.same if all(pair in case.same for case in others))
    for case in others:
        if [each.columns for each in case.listed] != [each.columns for each in listed]:
            return Facts(of, same=same)
        listed = tuple(
            PublicRows(one.columns, tuple(dict.fromkeys((*one.rows, *two.rows))))
            for one, two in zip(listed, case.listed, strict=True)
        )
    return Facts(of, listed, same)


def _any(facts: Sequence[Fact]) -> Fact:
    domains = [fact.domain for fact in facts]
    lows, highs = [each.low for each in domains], [each.high for each in domains]
    keys: tuple[Key, ...] | None = None
    if all(each.keys is not None for each in domains):
        keys = tuple(dict.fromkeys(key for each in domains for key in each.keys or ()))
    domain = replace(
        domains[0],
        low=None if None in lows else min(low for low in lows if low is not None),
        high=None if None in highs else max(high for high in highs if high is not None),
        keys=keys,
        nullable=any(each.nullable for each in domains),
    )
    return Fact(domain, all(each.whole for each in facts), all(each.closed for each in facts))


def linked(facts: Facts) -> Facts:
    """What is known of one side of a join's equality is known of the other."""
    for one, other in facts.same:
        for each, partner in ((one, other), (other, one)):
            known = facts.fact(partner)
            if known.whole and known.domain.keys is not None:
                facts = matched(facts, each, known)
    return facts


def matched(facts: Facts, expression: Expression, partner: Fact) -> Facts:
    """The facts where the expression equals a value of the partner's: never NULL."""
    facts = present(facts, expression)
    fact = facts.fact(expression)
    found = fact.domain.keys is None and not partner.closed  # privately, as without the partner
    if not partner.whole or partner.domain.keys is None or found:
        return facts
    keys = set(partner.domain.keys)
    return kept_rows(
        facts.having(expression, one_of(fact, keys, closed=partner.closed)),
        lambda row: value_of(expression, row) in (UNKNOWN, *keys),
        expression,
    )


Public: TypeAlias = Callable[[str], pa.Table]
_ROWS_MAX: Final = 20_000  # of a public table that is looked at row by row


def facts_of(relation: Relation, public: Public | None = None) -> Facts:
    """The facts of a relation's rows."""
    rules: dict[type, Callable[[Any, Public | None], Facts]] = {
        Table: _table,
        Filter: lambda of, given: linked(narrowed(facts_of(of.of, given), of.condition)),
        Sampled: lambda of, given: facts_of(of.of, given),
        Project: _project,
        Join: _join,
        Matching: _matching,
        Partnered: _partnered,
        PerUnit: _per_unit,
        Union: lambda of, given: either([facts_of(part, given) for part in of.parts]),
        Windowed: _windowed,
    }
    return rules[type(relation)](relation, public)


def _table(relation: Table, public: Public | None) -> Facts:
    schema = schema_of(relation)
    found = Facts({Field(name): declared(domain) for name, domain in schema.items()})
    listed_some = any(domain.keys is not None for domain in schema.values())
    key_open = any(schema[name].keys is None for name in relation.domain.key if name in schema)
    many = listed_some and key_open  # its values were too many to be listed, so its rows are
    if not relation.domain.is_public or public is None or many:
        return found
    rows = public(relation.domain.name)
    if rows.num_rows > _ROWS_MAX:
        return found
    keyed = [name for name, domain in schema.items() if domain.kind in KEY_TYPES]
    columns = [rows.column(name).to_pylist() for name in keyed]
    listed = PublicRows(tuple(keyed), tuple(dict.fromkeys(zip(*columns, strict=True))))
    return read_off(replace(found, listed=(listed,)))


def _project(relation: Project, public: Public | None) -> Facts:
    below = facts_of(relation.of, public)
    listed = []
    for each in below.listed:
        inside = [
            (n, e)
            for n, e in relation.columns
            if set(fields_of(e)) and set(fields_of(e)) <= {*each.columns}
        ]
        rows = {tuple(value_of(e, row) for _, e in inside): None for row in each.each()}
        if inside and all(UNKNOWN not in row for row in rows):
            listed.append(PublicRows(tuple(name for name, _ in inside), tuple(rows)))
    of: dict[Expression, Fact] = {Field(name): below.fact(e) for name, e in relation.columns}
    names = {e: Field(name) for name, e in relation.columns}
    same = tuple((names[a], names[b]) for a, b in below.same if a in names and b in names)
    return Facts(of, tuple(listed), same, below.none)


def _join(relation: Join, public: Public | None) -> Facts:
    left, right = facts_of(relation.left, public), facts_of(relation.right, public)
    inner = relation.kind is JoinKind.INNER
    pairs = [(a, b) for a, b in relation.on if set(fields_of(a)) and set(fields_of(b))]
    for one, other in pairs:
        right = matched(right, other, left.fact(one))
        left = matched(left, one, right.fact(other)) if inner else left
    if not inner:
        of: dict[Expression, Fact] = {
            each: replace(fact, domain=replace(fact.domain, nullable=True), closed=False)
            for each, fact in right.of.items()
            if type(each) is Field  # COALESCE has other values where there is no partner
        }
        alone = (replace(one, rows=(*one.rows, (None,) * len(one.columns))) for one in right.listed)
        right = Facts(of, tuple(alone))
    same = (*left.same, *right.same, *(pairs if inner else ()))
    listed = (*left.listed, *right.listed)
    return Facts(left.of | right.of, listed, same, left.none or right.none)


def _matching(relation: Matching, public: Public | None) -> Facts:
    found, other = facts_of(relation.of, public), facts_of(relation.other, public)
    if relation.negated:
        return found
    for one, partner in relation.on:
        if set(fields_of(one)) and set(fields_of(partner)):
            found = matched(found, one, other.fact(partner))
    return replace(found, none=found.none or other.none)


def _per_unit(relation: PerUnit, public: Public | None) -> Facts:
    below = facts_of(relation.of, public)
    of: dict[Expression, Fact] = {
        Field(name): declared(domain) for name, domain in schema_of(relation).items()
    }
    of |= {Field(name): below.fact(expression) for name, expression in relation.keys}
    for each in relation.folded:
        if each.fold in (Fold.MIN, Fold.MAX):
            fact = below.fact(each.expression)
            of[Field(each.name)] = replace(fact, domain=replace(fact.domain, nullable=True))
    return Facts(of, none=below.none)


def _partnered(relation: Partnered, public: Public | None) -> Facts:
    below = facts_of(relation.of, public)
    schema = schema_of(relation)
    return replace(
        below, of=below.of | {Field(f.name): declared(schema[f.name]) for f in relation.folded}
    )


def _windowed(relation: Windowed, public: Public | None) -> Facts:
    """Values of other rows are among those that rows have."""
    below, schema = facts_of(relation.of, public), schema_of(relation)
    of = dict(below.of)
    for each in relation.windows:
        of[Field(each.name)] = declared(schema[each.name])
        if each.how in (Fold.MIN, Fold.MAX, Among.FIRST, Among.LAST):
            fact = below.fact(each.expression)
            of[Field(each.name)] = replace(fact, domain=replace(fact.domain, nullable=True))
    return replace(below, of=of)
