"""Bounds that the question's own conditions leave: of rows WHERE age < 20, no age is above 19.

A column with a list of keys and no bounds has those of the list.

The term of a sum is clipped to its bounds whatever they are, so a mistake here could clip a value;
it could not leak. Narrower bounds mean less noise for the same ε.
"""

from fractions import Fraction
from math import ceil, floor
from typing import Any, Final

from noisegate.algebra.expression import Expression, Field, Schema, domain_of
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import Relation
from noisegate.algebra.schema import schema_of
from noisegate.frozen import replace
from noisegate.privacy.domain import Domain, Key, Kind, ordinal
from noisegate.sql.drafts.recipe import ADDITIVE, conditions_of
from noisegate.sql.question import Aggregate, Block, Function
from noisegate.sql.reading.conditions.facts import Facts
from noisegate.sql.reading.conditions.narrowing import facts_of, narrowed

SINCE: Final = "2026-11-18"  # ledgers that began later hold no sums with wider bounds
_KINDS: Final = (Kind.INTEGER, Kind.NUMBER, Kind.DATE, Kind.TIMESTAMP)


def schema_within(block: Block, where: Expression | None = None) -> Schema:
    """The columns of a block's rows, of those for which ``where`` holds too."""
    return schema_of(block.relation) if block.wide else _schema(block.relation, where)


@remembered
def _schema(relation: Relation, where: Expression | None) -> Schema:
    facts = _facts(relation)
    facts = facts if where is None else narrowed(facts, where)
    schema = schema_of(relation)
    return {name: _within(domain, name, facts) for name, domain in schema.items()}


def alike(block: Block, *, apart: bool) -> tuple[Expression, ...]:
    """Conditions that hold for the rows of all counts, averages and, unless ``apart``, sums.

    None where these are about different rows: then all rows are what they have in common.
    """
    found = {
        conditions_of(each, schema_within(block, each.where))
        for each in block.aggregates
        if each.function in ADDITIVE and not (apart and each.function is Function.SUM)
    }
    return found.pop() if len(found) == 1 else ()


def is_narrowed(block: Block) -> bool:
    """Whether conditions leave less of any column that is aggregated."""
    whole = schema_of(block.relation)
    return any(schema_within(block, each.where) != whole for each in block.aggregates)


def _is_zero(aggregate: Aggregate, block: Block) -> bool:
    """Whether it is a sum of values that are all 0, or missing, by their bounds."""
    if aggregate.function is not Function.SUM:
        return False
    domain = domain_of(aggregate.args[0], schema_within(block, aggregate.where))
    return domain.kind.is_numeric and domain.low == domain.high == 0


def without_zeros(block: Block) -> Block:
    """The block with sums of nothing but 0 set apart: they need no noise, and no price."""
    if block.noisy_zeros:
        return block
    zeros = tuple(each for each in block.aggregates if _is_zero(each, block))
    measured = tuple(each for each in block.aggregates if each not in zeros)
    return replace(block, aggregates=measured, zeros=zeros) if zeros else block


@remembered
def _facts(relation: Relation) -> Facts:
    return facts_of(relation)


def _within(domain: Domain, name: str, facts: Facts) -> Domain:
    if domain.kind not in _KINDS:
        return domain
    fact = facts.of.get(Field(name))
    known = [domain] if fact is None or facts.none else [domain, fact.domain]
    lows = [each.low for each in known if each.low is not None]
    highs = [each.high for each in known if each.high is not None]
    missing, narrowed = not (lows and highs), bool(lows or highs)
    if listed := [key for key in domain.keys or () if missing and key is not None]:
        ends: Any = min(listed), max(listed)  # as they are, which fractions take long over
        lows, highs = lows or [ordinal(ends[0])], highs or [ordinal(ends[1])]
    if not lows or not highs or max(lows) > min(highs):
        return domain
    low, high = max(lows), min(highs)
    keys = _between(domain.keys, low, high) if domain.keys and narrowed else domain.keys
    return domain if keys == () else replace(domain, low=low, high=high, keys=keys)


def _between(keys: tuple[Key, ...], low: Fraction, high: Fraction) -> tuple[Key, ...]:
    """Keys within bounds; whole ones are compared as such, which fractions take long over."""
    first, last = ceil(low), floor(high)
    return tuple(
        key
        for key in keys
        if (first <= key <= last if type(key) is int else low <= ordinal(key) <= high)
    )
