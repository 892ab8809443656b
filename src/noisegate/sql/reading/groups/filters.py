"""Aggregates with disjoint FILTERs become groups of one aggregate: a row counts in one of them.

``COUNT(*) FILTER (WHERE a = 1), COUNT(*) FILTER (WHERE a = 2)`` asks for one count of two groups,
and is priced like that: the door sees which group a row is in, and needs no proof from here. What
is not provably disjoint is asked as it is written. A mistake here could misread a question, and
could not leak.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from sqlglot import exp

from noisegate.algebra.expression import Call, Expression, Literal, domain_of
from noisegate.algebra.relation import Filter
from noisegate.algebra.schema import schema_of
from noisegate.sql.question import Aggregate, Block, Function, GroupKey
from noisegate.sql.reading.conditions.kept import Public, facts_of

_PLACE = "noisegate_filter"
_FUNCTIONS = frozenset(
    {Function.COUNT, Function.COUNT_VALUES, Function.SUM, Function.COUNT_UNITS, Function.AVG}
)
_MOST = 200  # filters


def grouped(block: Block, public: Public | None) -> tuple[Block, exp.Select | None]:
    """The block with one group for each filter, and a SELECT over it as it was; else unchanged."""
    wheres = tuple(dict.fromkeys(each.where for each in block.aggregates))
    kinds = dict.fromkeys(replace(each, name="", where=None) for each in block.aggregates)
    plain = len(block.sets) == 1 and all(key.domain.keys is not None for key in block.by)
    known = all(each.function in _FUNCTIONS for each in kinds)
    if None in wheres or not 1 < len(wheres) <= _MOST or not plain or not known:
        return block, None
    conditions: list[Expression] = [each for each in wheres if each is not None]
    if len(kinds) * len(wheres) > len(block.aggregates) or not _disjoint(block, conditions, public):
        return block, None
    pairs = [each for place, one in enumerate(conditions) for each in (one, Literal(place))]
    place = Call("case", tuple(pairs))
    relation = Filter(block.relation, Call("or", tuple(conditions)))
    domain = replace(domain_of(place, schema_of(block.relation)), nullable=False)
    key = GroupKey(name=_PLACE, expression=place, domain=domain, closed=True)
    made = replace(
        block, relation=relation, by=(*block.by, key), sets=(tuple(range(len(block.by) + 1)),),
        aggregates=tuple(replace(each, name=f"c{n}") for n, each in enumerate(kinds)),
    )  # fmt: skip
    return made, _shown(block, list(kinds), conditions)


def _disjoint(block: Block, conditions: Sequence[Expression], public: Public | None) -> bool:
    """Whether no row meets two of the conditions, by the question and public facts alone."""
    return all(
        facts_of(Filter(block.relation, Call("and", pair)), public).none
        for pair in combinations(conditions, 2)
    )


def shown_over(select: exp.Select, table: exp.Table, block: Block) -> exp.Subquery:
    """That SELECT in place of the block's table."""
    return select.from_(table).subquery(alias=block.name)


def _shown(block: Block, kinds: list[Aggregate], conditions: list[Expression]) -> exp.Select:
    """One row for each group, with a column for each aggregate as it was written."""
    keys = [exp.column(key.name, quoted=True) for key in block.by]
    items = [
        exp.alias_(_picked(each, kinds.index(_kind(each)), conditions), each.name, quoted=True)
        for each in block.aggregates
    ]
    select = exp.select(*keys, *items)
    return select.group_by(*keys) if keys else select


def _picked(aggregate: Aggregate, column: int, conditions: list[Expression]) -> exp.Expr:
    """One aggregate, from the group of its filter; a count is 0 where there is no such group."""
    place = exp.Literal.number(conditions.index(aggregate.where))  # type: ignore[arg-type]
    where = exp.Where(this=exp.EQ(this=exp.column(_PLACE), expression=place))
    found = exp.Filter(this=exp.Sum(this=exp.column(f"c{column}")), expression=where)
    if aggregate.function in (Function.SUM, Function.AVG):  # NULL of no rows
        return found
    return exp.Coalesce(this=found, expressions=[exp.Literal.number(0)])


def _kind(aggregate: Aggregate) -> Aggregate:
    return replace(aggregate, name="", where=None)
