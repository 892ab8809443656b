"""Two paid looks that make later questions better: rows per unit, and the range of a column.

Both are released histograms over public bins, so that everything made of them is post-processing:
they are bought once, stored like any answer, and plans use them at no cost afterwards.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from math import ceil, log, sqrt
from typing import Final, final

import numpy as np

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.intervals import LARGE
from noisegate.algebra.relation import Fold, Folded, PerUnit, Project, Relation
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass, replace
from noisegate.privacy.domain import WHOLE_MAX, Kind
from noisegate.sql.estimates.bounded import Loss
from noisegate.sql.estimates.tails import DIFFER, Model, Sizes
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

# rows per unit, in bins that grow by about a third: 1, 2, 3, 4, 6, 7, 10, …
STEPS: Final = tuple(sorted({round(1.33**power) for power in range(49)}))
# where sums are looked at, in parts of what a row adds at most: it may be far from any value
PARTS: Final = tuple(sorted({round(1.33**power) for power in range(64)}))
PART: Final = Fraction(1, 4096)
_SHRINK, _REACHED = Fraction(3, 4), 72  # of bins of values: by how much they differ, and how many
BIN: Final = Field("bin")  # what sizes are grouped by
_VALUE: Final = Field("value")  # of which bounds are looked for
DIGITS: Final = 64  # binary digits of a value before and after the point
DIGIT_BINS: Final = tuple(2.0 ** (power + 1) for power in range(-DIGITS, DIGITS + 1))
_POWERS: Final = tuple(Fraction(2) ** power for power in range(1 - DIGITS, DIGITS + 1))
_PLAIN: Final = 2.0  # times the error of a bound: what noise may be that needs no model instead
# Bins that stand clear, so many at least, tell how a tail goes on. On 19 laws of sizes (ε = .1, at
# most 500 units) bars held 0.83 with wide groups of those that have fewer, and 0.68 without.
_TELLING: Final = 4
_SURE: Final = 1e-3  # the chance that an empty bin widens a range


def rows_per_unit_query(
    relation: Relation,
    sized: Sequence[Term] = (),
    *,
    by: Sequence[Grouping] = (),
    zeros: bool = False,
) -> Query:
    """How many units have 1, 2, 3, 4, 5 to 6, … rows.

    With terms that size a unit up by what it adds, how many add so many times `PART` of what a row
    adds at most, to the term of which they add most; those that add nothing are in no bin, unless
    ``zeros``, as it was once. With groups, a unit's size is the Euclidean norm of what it has in
    each. A unit is in one bin, whatever the relation, so one unit moves one
    number by one.
    """
    if stability_of(relation).is_row_level:
        raise Unsupported(
            "Every row is one unit here, so there is no contribution bound to choose.",
            fix="Leave out the choice of caps.",
            about="units",
        )
    folded = [Folded("n", Fold.COUNT, Literal(1))]
    units = [Fraction(1)]
    if sized:
        spans = [_span(term, relation) for term in sized]
        folded = [Folded(f"n{i}", Fold.SUM, span) for i, span in enumerate(spans)]
        units = [term.reach * term.grain * PART for term in sized]
    counted = PerUnit(relation, (), tuple(folded))
    if by:
        keys = tuple((f"g{place}", each.expression) for place, each in enumerate(by))
        counted = PerUnit(
            PerUnit(relation, keys, tuple(folded)),
            (),
            tuple(
                Folded(each.name, Fold.SUM, _square(each.name, unit))
                for each, unit in zip(folded, units, strict=True)
            ),
        )
    steps, names = PARTS if sized else STEPS, tuple(each.name for each in folded)
    limits = (None,) * len(names) if by else tuple(units)
    skip = bool(sized) and not zeros
    binned = Project(counted, ((BIN.name, _bin(names, limits, steps, skip=skip)),))
    bins = Grouping(name=BIN.name, expression=BIN, keys=tuple(range(len(steps))))
    return Query(Sums(relation=binned, by=(bins,), terms=(_ONE,)))


@lru_cache(maxsize=64)
def _bin(
    names: tuple[str, ...],
    units: tuple[Fraction | None, ...],
    steps: tuple[int, ...],
    *,
    skip: bool,
) -> Expression:
    """The first step that no column exceeds, in its units; without one, in squares of steps.

    With ``skip`` a place that is no bin, where all columns are 0.
    """
    cases: list[Expression] = []
    if skip:
        nothing: list[Expression] = [Call("eq", (Field(name), Literal(0))) for name in names]
        cases += [reduce(lambda a, b: Call("and", (a, b)), nothing), Literal(-1)]
    for place, most in enumerate(steps[:-1]):
        within: list[Expression] = [
            Call("le", (Field(name), _literal(Fraction(most**2) if unit is None else most * unit)))
            for name, unit in zip(names, units, strict=True)
        ]
        cases += [reduce(lambda a, b: Call("and", (a, b)), within), Literal(place)]
    return Call("case", (*cases, Literal(len(steps) - 1)))


def range_query(
    relation: Relation,
    value: Expression,
    *,
    rows_per_unit: int | None,
    reach: Fraction | None = None,
    former: bool = False,
) -> Query:
    """How many values have which sign and which number of binary digits.

    With a ``reach``, which none exceeds: in which of `reach_bins` they are. Both are found by
    comparisons, which all engines make alike; ``former``: digits by a logarithm, as once. Rows
    without a value are in no bin.
    """
    if not domain_of(value, schema_of(relation)).kind.is_numeric:
        raise Unsupported(
            "The expression is not numeric.", fix="Ask about a numeric column.", about="number"
        )
    signed, most = _signed_digits(value), 2 * DIGITS + 1
    if not former:
        relation = Project(relation, ((_VALUE.name, value),))
        place = _place("lt", _POWERS)
        if reach is not None:
            ends = tuple(Fraction(end) for end in reach_bins(reach)[:-1])
            most, place = len(ends) + 1, _place("le", ends)
        signed = Call("multiply", (Call("sign", (_VALUE,)), place))
    by = Grouping(name="digits", expression=signed, keys=tuple(range(-most, most + 1)))
    term = _ONE if rows_per_unit is None else _WEIGHED
    return Query(Sums(relation=relation, by=(by,), terms=(term,), rows_per_unit=rows_per_unit))


def farthest_query(relation: Relation, value: Expression, reach: Fraction) -> Query:
    """How many units have their farthest value from 0 in which of `reach_bins`: each in one."""
    size = Call("abs", (value,))
    farthest = PerUnit(relation, (), (Folded(_VALUE.name, Fold.MAX, size),))
    return range_query(farthest, _VALUE, rows_per_unit=None, reach=reach)


def reach_bins(reach: Fraction) -> tuple[float, ...]:
    """Where bins of values up to ``reach`` end: they grow by a third each, down to a billionth."""
    return tuple(float(reach * _SHRINK**place) for place in reversed(range(_REACHED)))


@lru_cache(maxsize=512)
def _place(compare: str, ends: tuple[Fraction, ...], first: int = 1) -> Expression:
    """The place of the size of a value between ends, counted from ``first``; found by halves."""
    if not ends:
        return Literal(first)
    middle = len(ends) // 2
    below = Call(compare, (Call("abs", (_VALUE,)), _literal(ends[middle])))
    rest = _place(compare, ends[middle + 1 :], first + middle + 1)
    return Call("case", (below, _place(compare, ends[:middle], first), rest))


def _signed_digits(value: Expression) -> Expression:
    """The same by a logarithm, which rounds up just below a power of two."""
    size = Call("floor", (Call("log2", (Call("abs", (value,)),)),))
    lowest, highest = Literal(-DIGITS), Literal(DIGITS)
    digits = Call("least", (Call("greatest", (size, lowest)), highest))
    place = Call("add", (Call("to_integer", (digits,)), Literal(DIGITS + 1)))
    return Call("case", (
        Call("eq", (value, Literal(0))), Literal(0),
        Call("lt", (value, Literal(0))), Call("negate", (place,)), place,
    ))  # fmt: skip


def _span(term: Term, relation: Relation) -> Expression:
    """How far from 0 a value counts. What only its term bounds is held to that, to be added up."""
    span = Call("abs", (term.expression,))
    domain = domain_of(span, schema_of(relation))
    if domain.is_bounded or domain.kind is Kind.INTEGER:
        return span
    held = Call("least", (span, _literal(term.reach * term.grain)))
    return Call("case", (Call("is_null", (span,)), Literal(None), held))


def _square(name: str, unit: Fraction) -> Expression:
    """Of a number from 0 on, in whole units up to the last bin: beyond, all are alike."""
    number: Expression = Field(name)
    if unit != 1:
        number = Call("floor", (Call("divide", (number, _literal(unit))),))
    held = Call("least", (number, _literal(Fraction(PARTS[-1]))))
    whole = held if unit == 1 else Call("to_integer", (held,))
    return Call("multiply", (whole, whole))


def _literal(value: Fraction) -> Literal:
    """Whole where 64 bits hold it; what is beyond all doubles is reached by nobody."""
    if value.denominator == 1 and value <= WHOLE_MAX:
        return Literal(int(value))
    return Literal(min(value, LARGE))


_ONE: Final = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
_WEIGHED: Final = Term(expression=Literal(1), grain=Fraction(1, 1 << 16), low=0, high=1 << 16)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How many units have how many rows, as released: noisy numbers for each of `STEPS`.

    Where sums are looked at, there are `PARTS`, each a ``part`` of what a row adds at most, and
    rows are so much.
    What is made of it rests on a model of what noise hides: see `estimates/tails.py`.
    """

    table: str
    units: tuple[int, ...]
    scale: float = 0.0  # of the noise in each number
    part: Fraction = Fraction(1)
    step: Fraction | None = None  # sizes are multiples of it
    people: bool = False  # sizes are numbers of groups
    sums: bool = False  # sizes are what units add to direct sums that are weighed apart
    most: int | None = None  # no unit has more: there are no more groups
    former: bool = False  # caps are chosen as they were once
    filtered: bool = False  # of rows that conditions select

    @property
    def sizes(self) -> Sizes:
        """The numbers with their bins, as caps were first chosen by them."""
        return _sizes(self.units, self.scale, self.part, people=self.people)

    @property
    def fine(self) -> Sizes:
        """The same, as smaller caps are chosen by them."""
        return self._modelled(Model.FINE)

    @property
    def bars(self) -> Sizes:
        """The same, as bars are made by them."""
        return self._bars(wide=False)

    @property
    def wide(self) -> Sizes:
        """The same of numbers which tell how much they hold themselves: of few bins, other ones."""
        return self.bars if self.bars.clear >= _TELLING else self._bars(wide=True)

    def _bars(self, *, wide: bool) -> Sizes:
        model = Model.LEAKY if self.filtered else Model.TAILED
        return self._modelled(model, wide=wide, step=self.step)

    def _modelled(self, model: Model, *, wide: bool = False, step: Fraction | None = None) -> Sizes:
        """All of it said, so that caps and bars of the same look share what is made of it."""
        return _sizes(
            self.units, self.scale, self.part, people=self.people, model=model, wide=wide, step=step
        )

    @property
    def rows(self) -> float:
        """About how many rows there are."""
        return self.sizes.total

    @property
    def units_max(self) -> int:
        """More units than there are, in all but one of a thousand cases."""
        return max(1, ceil(sum(self.units) + 3 * self.scale * sqrt(2 * len(self.units)) + 1))

    @property
    def is_blind(self) -> bool:
        """Whether noise hides all units: then nobody knows what a cap loses."""
        return self.bars.is_blind and self.most is None

    def loss(self, cap: int | Fraction) -> Loss:
        """What a cap loses, and how sure that is."""
        found = self.bars.loss(float(cap))
        if self.most is None or cap < self.most:
            return found
        nothing = np.zeros_like(found.drawn)
        return replace(found, drawn=nothing, squares=nothing, within=0.0)

    def spread(self, cap: int | Fraction, kept: float, cells: int) -> Loss:
        """What a cap on norms loses, in rows' worth, where ``kept`` are left in so many groups."""
        lump = 1.0 if self.part == 1 else None
        return self.bars.spread(float(cap), kept, cells=cells, lump=lump)

    def partly(self, cap: int | Fraction, kept: float, norm: float) -> Loss:
        """The same where ``kept`` are left in some groups, and ``norm`` is that of all of these."""
        lump = 1.0 if self.part == 1 else None
        return self.bars.partly(float(cap), kept, norm, lump=lump)

    def lost(self, cap: int) -> float:
        """About which share of the rows does not count under a cap."""
        return self.loss(cap).share

    def best(
        self, epsilon: float, *, cells: int = 1, ratios: float = 0, differ: float = DIFFER
    ) -> int:
        """The cap with the least error of a count per cell, or of an average: see `Sizes.best`."""
        if not ratios:
            return ceil(self.best_part(epsilon, cells=cells))
        return ceil(self.sizes.best(epsilon, cells=cells, ratios=ratios, differ=differ))

    def best_part(self, epsilon: float, *, cells: int = 1) -> Fraction:
        """The same for counts and sums, also of less than a row's worth.

        That is the former choice, or a smaller cap where bars say that less is lost by it than
        noise would add: no unit is so large.
        """
        best = self.sizes.best(epsilon, cells=cells)
        return Fraction(best if self.former else self.fine.best(epsilon, cells=cells, most=best))

    def is_best_whole(self, epsilon: float, *, cells: int) -> bool:
        """Whether to bound nobody: that loses nothing and needs no model, for more noise."""
        if self.most is None:
            return False
        best = float(self.best_part(epsilon, cells=cells))
        error = self.fine.error(best, epsilon, cells=float(cells))
        return best >= self.most or sqrt(2) * self.most / epsilon <= _PLAIN * error

    def __str__(self) -> str:
        total = max(sum(self.units), 0)
        shown = (5, 10, 20, 50, 100)
        lines = [f"{self.table}: about {total:,} units with {self.rows:,.0f} rows"]
        lines += [f"a cap of {cap} rows per unit loses {self.lost(cap):.0%}" for cap in shown]
        return "\n".join(lines)


@lru_cache(maxsize=64)
def _sizes(  # noqa: PLR0913 - what tells sizes
    units: tuple[int, ...],
    scale: float,
    part: Fraction,
    *,
    people: bool,
    model: Model = Model.FIRST,
    wide: bool = False,
    step: Fraction | None = None,
) -> Sizes:
    """Numbers of rows are whole: the second bin holds 2 alone."""
    highs = np.array(STEPS if part == 1 else PARTS) * float(part)
    lows = np.concatenate([[0.0], highs[:-1]]) + (part == 1)
    each = np.array(units, np.int64)
    grid = None if step is None else float(step)
    if grid is not None:  # bins without a multiple are empty
        lows, highs = (np.floor(ends / grid + 1e-9) * grid for ends in (lows, highs))
        held = highs > lows
        each, lows, highs = each[held], lows[held] + grid, highs[held]
    return Sizes(
        each, max(scale, 1e-9), lows, highs, apart=people, model=model, wide=wide, step=grid
    )


def valued(counts: Sequence[int]) -> tuple[int, ...]:
    """What `range_query` shows, without its bin of the smallest positive numbers.

    Rows without a value are in it too: GREATEST passes over NULL. So the ledgers have it.
    """
    nulls = len(counts) // 2 + 1
    return tuple(0 if place == nulls else count for place, count in enumerate(counts))


def range_of(values: Sequence[int], *, scale: float) -> tuple[Fraction, Fraction] | None:
    """The range that holds the bins which stand clear of noise, or None if none does.

    An empty bin reaches the threshold with probability below `_SURE` over all bins together.
    """
    most = 2 * DIGITS + 1
    threshold = scale * log(len(values) / (2 * _SURE))
    clear = [place - most for place, value in enumerate(values) if value > threshold]
    if not clear:
        return None
    return _end(clear[0], outward=-1), _end(clear[-1], outward=1)


def _end(place: int, *, outward: int) -> Fraction:
    """The end of a bin on the side that ``outward`` points to."""
    if place == 0:
        return Fraction(0)
    sign, power = (1 if place > 0 else -1), abs(place) - DIGITS - 1
    return sign * Fraction(2) ** (power + (1 if sign == outward else 0))
