"""What an engine is asked for: sums or values per cell, units per key, rows per held cell."""

from collections.abc import Iterator
from fractions import Fraction
from math import isqrt, prod
from typing import TYPE_CHECKING, ClassVar, TypeAlias, final

from noisegate.algebra.expression import Expression, Field, Literal, fields_of
from noisegate.algebra.relation import Relation, expressions_of
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Key

if TYPE_CHECKING:
    from noisegate.algebra.blocks import Blocks  # for programs only


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """An expression and its groups. A row whose value is none of ``keys`` is in no cell.

    With ``rest`` there is one more cell, the last, for all such rows: then every row is in a cell,
    and cells add up to the same question without this grouping.
    """

    name: str
    expression: Expression
    keys: tuple[Key, ...]
    rest: bool = False

    @property
    def size(self) -> int:
        """How many cells it makes."""
        return len(self.keys) + self.rest


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A whole number per row: the expression in multiples of ``grain``, rounded and clamped.

    NULL adds nothing. ``low`` and ``high`` are whole; the clamp is the last step before the sum, so
    they hold whatever the expression does.
    """

    expression: Expression
    grain: Fraction
    low: int
    high: int

    @property
    def reach(self) -> int:
        """The furthest that one row can move the sum."""
        return max(abs(self.low), abs(self.high))

    @property
    def constant(self) -> int | None:
        """The number of every row, where all have the same; NULL adds nothing."""
        if type(self.expression) is not Literal:
            return None
        value = self.expression.value
        if not isinstance(value, int | Fraction):
            return 0
        return max(self.low, min(self.high, round(Fraction(value) / self.grain)))


class _OverCells:
    """A tally of cells: all combinations of the places along ``by``."""

    __slots__ = ()
    by: "tuple[Grouping | Axis, ...]"

    @property
    def cells(self) -> int:
        """How many cells there are, 1 without any axis: public, from what is declared."""
        return prod(axis.size for axis in self.by)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sums(_OverCells):
    """Sums of terms per cell, where what one owner adds is scaled down to a bound.

    Let v be what an owner adds to the cells of one term, and N its norm: the sum of absolute values
    (L1) where ``rows_per_unit`` is given, the Euclidean norm rounded up (L2) where
    ``squares_per_unit`` is. The bound of a term is what so many rows at its reach have at most, see
    `bound`. An owner has one weight, the least of 1 and bound / N over ``terms`` and ``sized``; all
    it adds is multiplied by that, and rounded towards zero: what it adds to a cell, or what each
    row does where that loses little (`sources/writing/weights.py`). So no cell is dropped, and
    ratios of sums are those of weighted rows. ``sized`` are terms that count for the weight without
    being asked for; a constant there makes it the weight of the owner's rows. Without any bound the
    relation must limit an owner's rows itself.

    Cells are all combinations of the groupings' keys, the last varying fastest.
    """

    relation: Relation
    by: tuple[Grouping, ...] = ()
    terms: tuple[Term, ...]
    rows_per_unit: int | None = None
    squares_per_unit: int | None = None
    sized: tuple[Term, ...] = ()

    @property
    def is_weighed(self) -> bool:
        """Whether owners have weights."""
        return self.rows_per_unit is not None or self.squares_per_unit is not None

    def bound(self, term: Term) -> int:
        """The largest norm, in grains, that an owner of weight 1 has in a term. Rounding: down."""
        if self.squares_per_unit is not None:
            return isqrt(self.squares_per_unit * term.reach**2)
        return (self.rows_per_unit or 0) * term.reach


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Marginals:
    """Sums of one term over several sets of groupings, in one pass over the rows.

    For each set, places in ``by``, there is a number for each combination of its keys. An owner of
    n rows gives each the weight min(1, rows_per_unit / n); what a row adds is rounded towards zero.
    """

    relation: Relation
    by: tuple[Grouping, ...]
    sets: tuple[tuple[int, ...], ...]
    term: Term
    rows_per_unit: int | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each set has: public, from the declared keys."""
        return tuple(prod(self.by[place].size for place in each) for each in self.sets)

    @property
    def cells(self) -> int:
        """How many cells there are in all."""
        return sum(self.sizes)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Values(_OverCells):
    """The values of a term per cell, NULLs left out, at most ``rows_per_unit`` of one owner.

    Of an owner with more, values at even steps of their order are kept.
    """

    relation: Relation
    by: tuple[Grouping, ...] = ()
    term: Term
    rows_per_unit: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The values of ``by`` (name, expression) and how many owners hold each; NULLs make no key.

    Of an owner with more than ``keys_per_unit``, those with the lowest hashes are kept.
    """

    relation: Relation
    by: tuple[tuple[str, Expression], ...]
    keys_per_unit: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(_OverCells):
    """How many values of ``expression`` there are per cell, NULL not counted.

    Of an owner with more than ``keys_per_unit`` pairs of cell and value, those with the lowest
    hashes are kept.
    """

    relation: Relation
    by: tuple[Grouping, ...] = ()
    expression: Expression
    keys_per_unit: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The whole numbers ``low``, …, ``low + size - 1`` as places 0, 1, …; no other is in a cell."""

    name: str
    expression: Expression
    low: int
    size: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cells(_OverCells):
    """How many rows are in each cell that holds any, of tables too large to list.

    A cell is the number that its places along ``by`` make, the last varying fastest. Of an owner
    with more than ``rows_per_unit`` rows in cells, those at even steps of their order are kept.
    """

    relation: Relation
    by: tuple[Axis | Grouping, ...]
    rows_per_unit: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(_OverCells):
    """The rows themselves, for statistics of them: whole coordinates, and the place of a key.

    A row with a NULL, or whose key is not listed, takes no part. An owner of n rows gives each the
    weight min(1, rows_per_unit / n) in parts of ``whole``, rounded towards zero.
    """

    relation: Relation
    by: tuple[Grouping, ...] = ()
    terms: tuple[Term, ...]
    rows_per_unit: int | None = None

    WHOLE: ClassVar[int] = 1 << 8  # parts of a row

    @property
    def whole(self) -> int:
        """What a row weighs whose owner has no more rows than the cap."""
        return 1 if self.rows_per_unit is None else self.WHOLE


Tally: TypeAlias = Sums | Marginals | Values | Keys | Distinct | Cells | Rows


def fields_used(tally: "Tally | Blocks") -> frozenset[str]:
    """The names of all fields that a tally speaks of, in its relation too."""
    found = {name for e in expressions_of(tally.relation) for name in fields_of(e)}
    return frozenset(found.union(*(fields_of(e) for e in _asked(tally))))


def _asked(tally: "Tally | Blocks") -> Iterator[Expression]:
    if not isinstance(tally, Tally):
        yield from map(Field, tally.columns)
        return
    if isinstance(tally, Keys):
        yield from (e for _, e in tally.by)
        return
    yield from (grouping.expression for grouping in tally.by)
    if isinstance(tally, Cells):
        return
    if isinstance(tally, Sums):
        yield from (term.expression for term in tally.sized)
    if isinstance(tally, Sums | Rows):
        yield from (term.expression for term in tally.terms)
    else:
        yield tally.expression if isinstance(tally, Distinct) else tally.term.expression
