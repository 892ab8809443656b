"""The caps of a question: as it says, else as they follow from the policy's caps of its tables.

A choice, not a claim: whatever a cap is, the engine keeps it. It should be the most that a unit
within the caps of all tables has in the final relation, so that such a unit is not scaled down; and
no more, since noise grows with it.
"""

from collections.abc import Iterator, Mapping

from noisegate.algebra.expression import Field, fields_of
from noisegate.algebra.relation import Join, JoinKind, PerUnit, Project, Relation, Table, Union
from noisegate.desk.terms.terms import Terms
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.question import Block
from noisegate.transforms.checks import CAP_MAX
from noisegate.transforms.stability import stability_of


def caps_of(block: Block, terms: Terms) -> Caps:
    """The caps of the question, else those that follow from the policy's."""
    caps = (table.domain.groups_per_unit_max for table in _tables(block.relation))
    groups = max((cap for cap in caps if cap is not None), default=None)
    rows = declared_rows(block.relation)
    return Caps(
        rows_per_unit=terms.rows_per_unit or (None if rows is None else min(rows, CAP_MAX)),
        groups_per_unit=terms.groups_per_unit or groups,
    )


def declared_rows(relation: Relation) -> int | None:
    """How many rows of one unit the policy's caps allow in a relation; None if it has none.

    In a join on a key each row of the other side has one partner at most, so there are as many rows
    as that side has; else all rows of a unit may pair up. A side without a cap bounds nothing.
    """
    if isinstance(relation, Table):
        return relation.domain.rows_per_unit_max
    if isinstance(relation, Union):
        parts = [declared_rows(part) for part in relation.parts]
        return None if None in parts else sum(part for part in parts if part is not None)
    if not isinstance(relation, Join):
        return declared_rows(relation.of)
    sides = [each for each in (relation.left, relation.right) if stability_of(each).is_private]
    rows = [declared_rows(side) for side in sides]
    if None in rows:
        return None
    left, *right = (each for each in rows if each is not None)
    if right:
        return _joined(relation, left, *right)
    compared = [name for pair in relation.on for each in pair for name in fields_of(each)]
    return left if compared else None  # else each row meets all of a public table


def most_rows(relation: Relation, rows_max: Mapping[str, int]) -> int | None:
    """The most rows that a relation can have, where those of its one table are declared."""
    while not isinstance(relation, Table):
        if isinstance(relation, Join | Union):
            return None
        relation = relation.of
    return rows_max.get(relation.domain.name)


def _joined(relation: Join, left: int, right: int) -> int:
    """How many rows sides of so many rows have together."""
    once_left, once_right = _on_keys(relation)
    if once_right:
        return min(left, right) if once_left and relation.kind is JoinKind.INNER else left
    if once_left:
        return right if relation.kind is JoinKind.INNER else left + right
    return left * right


def _on_keys(relation: Join) -> tuple[bool, bool]:
    """Whether the join compares a key of its left side, and one of its right."""
    steps = frozenset(
        (step.table, step.key) for table in stability_of(relation).tables for step in table.path
    )
    found = []
    for side, of in enumerate((relation.left, relation.right)):
        compared = (pair[side] for pair in relation.on)
        named = {each.name for each in compared if isinstance(each, Field)}
        found.append(any(key <= named for key in _keys(of, steps)))
    return found[0], found[1]


def _keys(relation: Relation, steps: frozenset[tuple[str, str]]) -> list[frozenset[str]]:
    """Sets of columns that no two rows of a unit share all values of, as the policy declares.

    ``steps`` are what foreign keys point to: a table and its key.
    """
    if isinstance(relation, Table):
        table = relation.domain
        found = [frozenset({key}) for name, key in steps if name == table.name]
        if table.key or table.rows_per_unit_max == 1:  # none is needed to tell one row apart
            found.append(frozenset(table.key))
        return found
    if isinstance(relation, PerUnit):
        return [frozenset(name for name, _ in relation.keys)]
    if isinstance(relation, Union):
        return []
    if isinstance(relation, Project):
        names = {e.name: name for name, e in relation.columns if isinstance(e, Field)}
        below = (key for key in _keys(relation.of, steps) if key <= names.keys())
        return [frozenset(names[name] for name in key) for key in below]
    if not isinstance(relation, Join):
        return _keys(relation.of, steps)
    once_left, once_right = _on_keys(relation)
    left = _keys(relation.left, steps) if once_right else []
    keeps = once_left and relation.kind is JoinKind.INNER
    return [*left, *(_keys(relation.right, steps) if keeps else [])]


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
