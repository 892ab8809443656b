"""Joins along the foreign key by which rows find their owners: one join does for both.

Claim: every row of such a join is its owner's, and all that the owner adds by it.
Why: rows c of a table have the owners of the rows k of their partner's that their link names. A
    question that joins the two by the same columns names the same k: each pair (c, k) is one of c's
    links, and its owner is k's. To look for c's owners first and then for partners of the same
    owner finds the same pairs, by reading the partner's table twice. That an equal value is an
    equal id must hold for every stored value: so both columns are read as ids are, and neither is
    clamped.
"""

from collections.abc import Mapping
from typing import Protocol

from sqlglot import exp

from noisegate.algebra.expression import Expression, Field
from noisegate.algebra.relation import Filter, Join, JoinKind, Project, Relation, Table
from noisegate.frozen import replace
from noisegate.privacy.domain import Kind, Step
from noisegate.sources.writing.dialect import Dialect
from noisegate.sources.writing.words import base_value, col


class OwnerReader(Protocol):
    """A writer of relations, as far as links are about it: how it reads columns and ids."""

    types: Mapping[str, Mapping[str, str]]

    @property
    def dialect(self) -> Dialect:
        """How the engine writes it."""

    def as_owner(self, column: str, alias: str) -> exp.Expr:
        """An id as it is compared."""


def sides(relation: Join, writer: OwnerReader) -> tuple[Relation, Relation]:
    """Both sides of a join, one of them without owners where the other one's are its owners."""
    left, right = relation.left, relation.right
    for one, other in relation.on:
        here, there = _column(left, one), _column(right, other)
        if here is None or there is None:
            continue
        if relation.kind is JoinKind.INNER and _is_link(here, there, writer):
            return _unowned(left), right
        if _is_link(there, here, writer):
            return left, _unowned(right)
    return left, right


def _column(relation: Relation, expression: Expression) -> tuple[Table, str] | None:
    """The base table and its column that an expression is, of some of its rows."""
    while type(expression) is Field:
        if isinstance(relation, Table):
            return relation, expression.name
        if not isinstance(relation, Filter | Project):
            return None
        if isinstance(relation, Project):
            expression = dict(relation.columns)[expression.name]
        relation = relation.of
    return None


def _is_link(here: tuple[Table, str], there: tuple[Table, str], writer: OwnerReader) -> bool:
    """Whether the first table's rows find their owners through this column of the second."""
    one, other, unit = here[0].domain, there[0].domain, there[0].domain.unit
    step = Step(column=here[1], table=other.name, key=there[1])
    if unit is None or one.path != (step, *other.path) or one.unit != unit:
        return False
    return all(_is_read_as_id(table, name, writer) for table, name in (here, there))


def _is_read_as_id(table: Table, name: str, writer: OwnerReader) -> bool:
    """Whether equal values of a column are equal ids, whatever is stored."""
    column, stored = table.domain.columns[name], writer.types[table.domain.name][name]
    if column.kind not in (Kind.INTEGER, Kind.TEXT) or stored == "bpchar":  # which has its padding
        return False
    read = base_value(column, stored, col(name, "t"), writer.dialect)
    return read.find(exp.TryCast) is None and _uncast(read) == _uncast(writer.as_owner(name, "t"))


def _uncast(value: exp.Expr) -> exp.Expr:
    """Without casts, which between whole numbers and texts change no id."""
    plain: exp.Expr = value.transform(lambda e: e.this if type(e) is exp.Cast else e)
    return plain


def _unowned(relation: Relation) -> Relation:
    if isinstance(relation, Table):
        bare = replace(
            relation.domain, unit=None, path=(), rows_per_unit_max=None, groups_per_unit_max=None
        )
        return replace(relation, domain=bare)
    assert isinstance(relation, Filter | Project)  # noqa: S101 - see `_column`
    return replace(relation, of=_unowned(relation.of))
