"""How many rows of one unit a relation has, by what the policy declares of its tables."""

from noisegate.algebra.expression import Field, fields_of
from noisegate.algebra.relation import Join, JoinKind, PerUnit, Project, Relation, Table, Union
from noisegate.transforms.stability import stability_of


def declared_rows(relation: Relation, *, sure: bool = False) -> int | None:
    """How many rows of one unit the policy's caps allow in a relation; None if it has none.

    If ``sure``, only by caps that the steward says no unit exceeds.

    In a join on a key each row of the other side has one partner at most, so there are as many rows
    as that side has; else all rows of a unit may pair up. A side without a cap bounds nothing.
    """
    if isinstance(relation, Table):
        table = relation.domain
        return table.rows_per_unit_max if table.rows_per_unit_holds or not sure else None
    if isinstance(relation, Union):
        parts = [declared_rows(part, sure=sure) for part in relation.parts]
        return None if None in parts else sum(part for part in parts if part is not None)
    if not isinstance(relation, Join):
        return declared_rows(relation.of, sure=sure)
    sides = [each for each in (relation.left, relation.right) if stability_of(each).is_private]
    rows = [declared_rows(side, sure=sure) for side in sides]
    if None in rows:
        return None
    left, *right = (each for each in rows if each is not None)
    if right:
        return _joined(relation, left, *right)
    compared = [name for pair in relation.on for each in pair for name in fields_of(each)]
    return left if compared else None  # else each row meets all of a public table


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
