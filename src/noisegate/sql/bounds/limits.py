"""The caps of a question: as it says, else as they follow from the policy's caps of its tables.

A choice, not a claim: whatever a cap is, the engine keeps it. It should be the most that a unit
within the caps of all tables has in the final relation, so that such a unit is not scaled down; and
no more, since noise grows with it.
"""

from collections.abc import Iterator, Mapping

from noisegate.algebra.expression import Call
from noisegate.algebra.known import remembered
from noisegate.algebra.relation import Filter, Join, Relation, Table, Union, all_of
from noisegate.desk.terms.terms import Terms
from noisegate.sql.drafts.declared import declared_rows
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.question import Block
from noisegate.sql.reading.conditions.narrowing import facts_of
from noisegate.transforms.checks import CAP_MAX


def caps_of(block: Block, terms: Terms) -> Caps:
    """The caps of the question, else those that follow from the policy's."""
    caps = (table.domain.groups_per_unit_max for table in _tables(block.relation))
    groups = max((cap for cap in caps if cap is not None), default=None)
    rows = declared_rows(block.relation)
    return Caps(
        rows_per_unit=terms.rows_per_unit or (None if rows is None else min(rows, CAP_MAX)),
        groups_per_unit=terms.groups_per_unit or groups,
    )


@remembered
def thins(relation: Relation) -> bool:
    """Whether conditions may leave some units few of their rows, and others all.

    They do not where a unit has one row, nor if they leave out rows without values alone.
    """
    filters = (each for each in all_of(relation) if type(each) is Filter)
    chosen = (Filter(each.of, Call("not", (each.condition,))) for each in filters)
    return declared_rows(relation, sure=True) != 1 and any(
        not facts_of(rest).none for rest in chosen
    )


def most_rows(relation: Relation, rows_max: Mapping[str, int]) -> int | None:
    """The most rows that a relation can have, where those of its one table are declared."""
    while not isinstance(relation, Table):
        if isinstance(relation, Join | Union):
            return None
        relation = relation.of
    return rows_max.get(relation.domain.name)


def _tables(relation: Relation) -> Iterator[Table]:
    """The tables whose rows a relation is made of; those of conditions are others."""
    if isinstance(relation, Table):
        yield relation
    elif isinstance(relation, Join):
        yield from _tables(relation.left)
        yield from _tables(relation.right)
    elif isinstance(relation, Union):
        for part in relation.parts:
            yield from _tables(part)
    else:
        yield from _tables(relation.of)
