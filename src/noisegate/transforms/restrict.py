"""Keeping only the rows with one key: how a table is cut into disjoint parts."""

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Relation, Table
from noisegate.errors import Unsupported
from noisegate.frozen import replace
from noisegate.privacy.domain import Column, Key, TableDomain
from noisegate.transforms.query import Query


def restrict(query: Query, *, column: str, key: Key) -> Query:
    """The same question about the rows of the one table below whose ``column`` holds ``key``.

    Claim: keeps the sensitivity, and questions about different keys of a column are about disjoint
        rows. Why: a filter on the table's own rows keeps or drops each by its own value, before any
        other step. Requires: a declared key, so that asking says nothing about which keys exist.
    """
    relation = _filtered(query.tally.relation, column, key)
    return Query(replace(query.tally, relation=relation), query.strategy)


def _filtered(relation: Relation, column: str, key: Key) -> Relation:
    if type(relation) is Table:
        _require_key(declared(relation.domain, column), key)
        return Filter(relation, Call("eq", (Field(column), Literal(key))))
    if type(relation) is Filter:
        return Filter(_filtered(relation.of, column, key), relation.condition)
    raise Unsupported(
        "Only a plain table can be split into parts.",
        fix="Ask about the table itself.",
        about="part",
    )


def declared(table: TableDomain, name: str) -> Column:
    """The column of that name, which must have declared keys."""
    column = table.columns.get(name)
    if column is None or column.keys is None or column.hidden:
        raise Unsupported(
            f"The keys of {name!r} are not declared, and the keys present in the rows are private.",
            fix=f"Declare them: columns={{{name!r}: {{'in': [...]}}}}.",
            about="keys",
        )
    return column


def _require_key(column: Column, key: Key) -> None:
    kinds = {type(known) for known in column.keys or ()}
    if type(key) not in kinds or key not in (column.keys or ()):
        raise Unsupported(
            f"{key!r} is not a declared key of {column.name!r}.",
            fix=f"Declare it: columns={{{column.name!r}: {{'in': [...]}}}}.",
            about="keys",
        )
