"""A question as read from SQL: private blocks to be measured, and free SQL over what they release.

A block is one aggregating SELECT over private rows. Its released table is public; everything the
SQL does above it (HAVING, ORDER BY, LIMIT, windows, ratios, joins of released tables) is the
``outer`` SQL, which runs on released and public tables only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from fractions import Fraction
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, final, get_args, get_origin

from noisegate.algebra.expression import Expression
from noisegate.algebra.relation import Relation
from noisegate.errors import SpecError
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.domain import Domain
from noisegate.transforms.checks import CAP_MAX

T = TypeVar("T")
_ROWS_MAX: Final = 1 << 40
USUAL: Final = Fraction(95, 100)  # confidence, where nobody says another


class Function(Enum):
    """The aggregate functions that can be asked. The value is how plans call them."""

    COUNT = "COUNT(*)"
    COUNT_VALUES = "COUNT"
    COUNT_UNITS = "COUNT DISTINCT units"
    COUNT_DISTINCT = "COUNT DISTINCT"
    SUM = "SUM"
    AVG = "AVG"
    VAR_SAMP = "VAR_SAMP"
    VAR_POP = "VAR_POP"
    STDDEV_SAMP = "STDDEV_SAMP"
    STDDEV_POP = "STDDEV_POP"
    COVAR_SAMP = "COVAR_SAMP"
    COVAR_POP = "COVAR_POP"
    CORR = "CORR"
    QUANTILE = "QUANTILE"
    MIN = "MIN"
    MAX = "MAX"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """One aggregate: rows where an argument is NULL do not take part, as in SQL.

    ``args`` are none for COUNT and COUNT_UNITS, two for COVAR and CORR, else one. ``level`` is that
    of a QUANTILE. ``where`` is FILTER (WHERE ...), or None. ``name`` is its column in the block.
    """

    name: str
    function: Function
    args: tuple[Expression, ...] = ()
    level: Fraction | None = None
    where: Expression | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """A GROUP BY expression. ``domain.keys`` are its groups; None: keys must be found privately.

    ``closed`` says that WHERE leaves no row in any other group.
    """

    name: str
    expression: Expression
    domain: Domain
    closed: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One aggregating SELECT over private rows; its released table is called ``name``.

    The released table has a column for each key (by its name), for each aggregate (by its name),
    and, where there are several grouping sets, an INTEGER column ``grouping_id`` as in SQL's
    GROUPING(all keys). ``sets`` are the grouping sets as indexes into ``by``; an ordinary GROUP BY
    is the one set of all. ``path`` says in words how the rows were made.
    """

    name: str
    relation: Relation
    by: tuple[GroupKey, ...]
    sets: tuple[tuple[int, ...], ...]
    aggregates: tuple[Aggregate, ...]
    path: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is said about paying: by the caller, or by the SQL itself (OPTIONS, or a hint).

    ``choose`` names what shall be found privately where it is missing: bounds, caps.
    """

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    within: Fraction | None = None
    relative: Fraction | None = None
    confidence: Fraction | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    rows: int | None = None
    choose: tuple[str, ...] | None = None


def checked_terms(terms: Terms) -> Terms:
    """Refuse terms that are none, whether or not the question uses them."""
    if terms.confidence is not None:
        failure_of(terms.confidence)
    if terms.delta is not None and not 0 <= terms.delta < 1:
        raise SpecError("delta is no probability.", fix="Use a small delta such as 1e-6.")
    if terms.rows is not None and (type(terms.rows) is not int or not 1 <= terms.rows <= _ROWS_MAX):
        raise SpecError("rows is no number of rows.", fix="Say about how many there are.")
    for cap in (terms.rows_per_unit, terms.groups_per_unit):
        if cap is not None and (type(cap) is not int or not 1 <= cap <= CAP_MAX):
            raise SpecError("A cap per unit is not usable.", fix=f"Use 1 to {CAP_MAX}.")
    return terms


def require_known(terms: Mapping[str, object], order: type, *without: str) -> None:
    """Refuse a term that an order does not have, or that is said in another way."""
    known = {each.name for each in fields(order)} - {*without}
    if unknown := terms.keys() - known:
        raise SpecError(
            f"There is no term {min(unknown)!r}.", fix=f"Use {', '.join(sorted(known))}."
        )


def checked(order: T) -> T:
    """The order, unless a value of it is of another kind than its field, a dataclass's, says."""
    for each in fields(order):  # type: ignore[arg-type]
        if not _fits(getattr(order, each.name), each.type):
            raise _misfit(each.name, getattr(order, each.name))
    return order


def _misfit(name: str, value: object) -> SpecError:
    if isinstance(value, str):
        return SpecError(f"{name} is one text.", fix=f"Use {name}=[{value!r}], or what it takes.")
    return SpecError(f"{name} is not usable.", fix="Give it as its description says.")


def require_texts(**said: object) -> None:
    """Refuse what is neither a text nor left out."""
    for name, value in said.items():
        if value is not None and not isinstance(value, str):
            raise SpecError(f"{name} is not a text.", fix="Write it in quotes, or leave it out.")


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401, PLR0911 - a type as it is written
    """Whether a value can be meant; whatever else a type says is for those who read the value."""
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind in (str, bool, NoneType):
        return isinstance(value, kind)
    if kind in (float, Fraction):
        return isinstance(value, Real)
    if get_origin(kind) is Mapping:
        return isinstance(value, Mapping)
    if get_origin(kind) in (Sequence, tuple):
        of = get_args(kind)[0] is str
        listed = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
        return listed and (not of or all(isinstance(each, str) for each in value))  # type: ignore[attr-defined]
    return True


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Blocks, and the free SQL over their tables (and public ones) that makes the answer.

    ``columns`` are the names that the answer shows, in order; none where only the engine can say
    (such as SELECT COLUMNS(...)). ``picked`` are the columns of the block that they are, where the
    SQL does nothing else. ``explain`` says that only the plan is wanted: EXPLAIN SELECT.
    ``caveats`` are what the answer has to say about its meaning.
    """

    blocks: tuple[Block, ...]
    outer: str
    columns: tuple[str, ...]
    picked: tuple[str, ...] | None = None
    terms: Terms = Terms()
    explain: bool = False
    caveats: tuple[str, ...] = ()
