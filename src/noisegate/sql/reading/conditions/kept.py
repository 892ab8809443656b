"""Which values WHERE and joins leave: groups that no row can be in are not shown.

Facts follow from the question, the policy and public tables alone, so they are public. A mistake
here would leave a group out, or show an empty one; it could not leak.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pyarrow as pa

from noisegate.algebra.expression import Expression, Field, fields_of
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
from noisegate.algebra.schema import schema_of
from noisegate.privacy.domain import KEY_TYPES
from noisegate.sql.reading.conditions.constants import UNKNOWN, value_of
from noisegate.sql.reading.conditions.facts import Fact, Facts, Listed, declared, read_off
from noisegate.sql.reading.conditions.narrowing import either, linked, matched, narrowed

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
    listed = Listed(tuple(keyed), tuple(dict.fromkeys(zip(*columns, strict=True))))
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
            listed.append(Listed(tuple(name for name, _ in inside), tuple(rows)))
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
