"""Relations: tables, and what may be made of them. Each row of a private relation has one owner.

The owner is not a column: no expression can see it. Every operator makes the rows of an owner from
that owner's rows and public rows alone, whatever others hold; the writers of `sources` keep this
by joining private relations on the owner always. `transforms/stability.py` is where it is claimed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import TypeAlias, final

from noisegate.algebra.expression import Expression
from noisegate.errors import Unsupported
from noisegate.privacy.domain import TableDomain


@final
@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a table, with its columns that are not hidden."""

    domain: TableDomain


@final
@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which ``condition`` is true (not false, not NULL)."""

    of: "Relation"
    condition: Expression


@final
@dataclass(frozen=True, slots=True)
class Project:
    """Each row with the columns ``(name, expression)`` instead of its own."""

    of: "Relation"
    columns: tuple[tuple[str, Expression], ...]


class JoinKind(Enum):
    """Which rows without a partner stay: none, or those of the left side."""

    INNER = "inner"
    LEFT = "left"


@final
@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows whose ``on`` expressions (left, right) are equal, and their owners, if two.

    The columns of both sides stay, so their names must differ: project before joining.
    """

    left: "Relation"
    right: "Relation"
    on: tuple[tuple[Expression, Expression], ...]
    kind: JoinKind = JoinKind.INNER


@final
@dataclass(frozen=True, slots=True)
class Matching:
    """The rows of ``of`` that have (or, if ``negated``, have not) a partner in ``other``.

    Partners agree in ``on`` (left, right); where ``other`` is private they are the same owner's.
    A NULL agrees with nothing, so negated keeps it: NOT EXISTS, not SQL's NOT IN.
    """

    of: "Relation"
    other: "Relation"
    on: tuple[tuple[Expression, Expression], ...]
    negated: bool = False


class Fold(Enum):
    """How the values of one owner's rows become one value. Exact, whatever the order of rows."""

    COUNT = "count"
    COUNT_DISTINCT = "count-distinct"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@final
@dataclass(frozen=True, slots=True)
class Folded:
    """One value per owner (and keys): ``fold`` of ``expression``; COUNT counts values, not NULLs.

    SUM needs bounds, adds whole multiples of a grain (1 for integers), so that no order of addition
    shows, and is 0 over no values.
    """

    name: str
    fold: Fold
    expression: Expression


@final
@dataclass(frozen=True, slots=True)
class PerUnit:
    """One row for each owner, or for each owner and value of ``keys`` (name, expression)."""

    of: "Relation"
    keys: tuple[tuple[str, Expression], ...]
    folded: tuple[Folded, ...]


@final
@dataclass(frozen=True, slots=True)
class Union:
    """The rows of all parts, which have the same column names and kinds (UNION ALL)."""

    parts: "tuple[Relation, ...]"


@final
@dataclass(frozen=True, slots=True)
class Sampled:
    """The rows of a secret sample of owners, each in it by a coin of its own.

    A coin shows heads with ``probability``, down to a multiple of 2**-256. It is drawn anew for
    every question: the door gives the ``key`` that decides the coins, and keeps it to itself.
    """

    of: "Relation"
    probability: Fraction
    key: str | None = None


Relation: TypeAlias = Table | Filter | Project | Join | Matching | PerUnit | Union | Sampled


def sample_of(relation: Relation) -> Sampled | None:
    """The one sample that a relation is made of: below steps that look at one owner's rows each.

    Refuses samples anywhere else: of one side of a join, say, or of a sample.
    """
    below: Relation = relation
    while type(below) in (Filter, Project, PerUnit):
        below = below.of  # type: ignore[union-attr]
    found = below if type(below) is Sampled else None
    inside = below.of if type(below) is Sampled else below
    if any(type(each) is Sampled for each in _all_of(inside)):
        raise Unsupported("Only the whole of a question is sampled.", fix="Sample once, at last.")
    return found


def keyed(relation: Relation, key: str) -> Relation:
    """The relation with the coins of its sample decided."""
    if type(relation) is Sampled:
        return replace(relation, key=key)
    if type(relation) in (Filter, Project, PerUnit):
        return replace(relation, of=keyed(relation.of, key))  # type: ignore[union-attr, arg-type]
    return relation


def _all_of(relation: Relation) -> Iterator[Relation]:
    """A relation and all below it."""
    yield relation
    for name in ("of", "other", "left", "right"):
        if (below := getattr(relation, name, None)) is not None:
            yield from _all_of(below)
    for part in getattr(relation, "parts", ()):
        yield from _all_of(part)


def expressions_of(relation: Relation) -> Iterator[Expression]:
    """All expressions in a relation, and in those below it."""
    if type(relation) is Filter:
        yield relation.condition
        yield from expressions_of(relation.of)
    elif type(relation) is Project:
        yield from (e for _, e in relation.columns)
        yield from expressions_of(relation.of)
    elif type(relation) is Join or type(relation) is Matching:
        for pair in relation.on:
            yield from pair
        both = (
            (relation.left, relation.right)
            if type(relation) is Join
            else (relation.of, relation.other)
        )
        for side in both:
            yield from expressions_of(side)
    elif type(relation) is PerUnit:
        yield from (e for _, e in relation.keys)
        yield from (folded.expression for folded in relation.folded)
        yield from expressions_of(relation.of)
    elif type(relation) is Sampled:
        yield from expressions_of(relation.of)
    elif type(relation) is Union:
        for part in relation.parts:
            yield from expressions_of(part)
