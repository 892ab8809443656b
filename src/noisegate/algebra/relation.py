"""Relations: tables, and what may be made of them. Each row of a private relation has one owner.

The owner is not a column: no expression can see it. Every operator makes the rows of an owner from
that owner's rows and public rows alone, whatever others hold; the writers of `sources` keep this
by joining private relations on the owner always. `transforms/stability.py` is where it is claimed.
"""

from collections.abc import Iterator
from enum import Enum
from fractions import Fraction
from typing import Final, TypeAlias, final

from noisegate.algebra.expression import Expression
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
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


Frame: TypeAlias = tuple[int | None, int | None]


class Among(Enum):
    """What a window says of a row besides folds: its rank, or the value of another row."""

    RANK = "rank"
    DENSE_RANK = "dense-rank"
    FIRST = "first"
    LAST = "last"


@final
@dataclass(frozen=True, slots=True)
class Ordering:
    """One expression that a window's rows are ordered by."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = False


@final
@dataclass(frozen=True, slots=True)
class Window:
    """One value for each row, from the rows of its owner that share the values of ``keys``.

    ``frame`` are the rows that are looked at, counted from the row at hand (-1 is the one before,
    None the end); rows that ``order`` does not tell apart are ordered by all their columns, so that
    no choice is the engine's. Without a frame they are all up to the row and its equals, or all
    where there is no order. FIRST and LAST need a frame, ranks have none.
    """

    name: str
    how: Fold | Among
    expression: Expression
    keys: tuple[Expression, ...] = ()
    order: tuple[Ordering, ...] = ()
    frame: Frame | None = None


@final
@dataclass(frozen=True, slots=True)
class Windowed:
    """Each row with one more column for each window over its owner's rows."""

    of: "Relation"
    windows: tuple[Window, ...]


@final
@dataclass(frozen=True, slots=True)
class Partnered:
    """Each row with folds of its partners: rows of ``other`` for which ``condition`` is true.

    The condition reads columns of both, whose names must differ. Where ``other`` is private,
    partners are the same owner's. A row without a partner has counts and sums of 0, and no MIN.
    """

    of: "Relation"
    other: "Relation"
    condition: Expression
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


Relation: TypeAlias = (
    Table | Filter | Project | Join | Matching | PerUnit | Windowed | Partnered | Union | Sampled
)
_OF_ONE_OWNER: Final = (Filter, Project, PerUnit, Windowed)  # steps over one relation


def sample_of(relation: Relation) -> Sampled | None:
    """The one sample that a relation is made of: below steps that look at one owner's rows each.

    Refuses samples anywhere else: of one side of a join, say, or of a sample.
    """
    below: Relation = relation
    while type(below) in _OF_ONE_OWNER:
        below = below.of  # type: ignore[union-attr]
    found = below if type(below) is Sampled else None
    inside = below.of if type(below) is Sampled else below
    if any(type(each) is Sampled for each in all_of(inside)):
        raise Unsupported("A sample must be the outermost step.", fix="Sample once, at the end.")
    return found


def keyed(relation: Relation, key: str) -> Relation:
    """The relation with the coins of its sample decided."""
    if type(relation) is Sampled:
        return replace(relation, key=key)
    if type(relation) in _OF_ONE_OWNER:
        return replace(relation, of=keyed(relation.of, key))  # type: ignore[union-attr, arg-type]
    return relation


def all_of(relation: Relation) -> Iterator[Relation]:
    """A relation and all below it."""
    yield relation
    for name in ("of", "other", "left", "right"):
        if (below := getattr(relation, name, None)) is not None:
            yield from all_of(below)
    for part in getattr(relation, "parts", ()):
        yield from all_of(part)


def expressions_of(relation: Relation) -> Iterator[Expression]:
    """All expressions in a relation, and in those below it."""
    for each in all_of(relation):
        yield from _own(each)


def _own(relation: Relation) -> Iterator[Expression]:
    if type(relation) is Filter:
        yield relation.condition
    elif type(relation) is Project:
        yield from (e for _, e in relation.columns)
    elif type(relation) is Join or type(relation) is Matching:
        for pair in relation.on:
            yield from pair
    elif type(relation) is PerUnit:
        yield from (e for _, e in relation.keys)
        yield from (folded.expression for folded in relation.folded)
    elif type(relation) is Windowed:
        for window in relation.windows:
            yield window.expression
            yield from window.keys
            yield from (each.expression for each in window.order)
    elif type(relation) is Partnered:
        yield relation.condition
        yield from (folded.expression for folded in relation.folded)
