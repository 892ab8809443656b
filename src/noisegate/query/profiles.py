"""Two paid looks that make later questions better: rows per unit, and the range of a column.

Both are released histograms over public bins, so that everything made of them is post-processing:
they are bought once, stored like any answer, and plans use them for nothing afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from math import ceil, log, sqrt
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of
from noisegate.algebra.intervals import LARGE
from noisegate.algebra.relation import Fold, Folded, PerUnit, Project, Relation
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.errors import Unsupported
from noisegate.privacy.domain import WHOLE_MAX
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

# rows per unit, in bins that grow by about a third: 1, 2, 3, 4, 6, 7, 10, …
STEPS: Final = tuple(sorted({round(1.33**power) for power in range(49)}))
PART: Final = Fraction(1, 64)  # of what a row adds at most: the least bin where sums are looked at
DIGITS: Final = 64  # binary digits of a value before and after the point
_ALARM: Final = 0.05  # the chance that noise alone looks like units, in some bin
_POOLED: Final = (1, 2, 4, 8)  # neighbouring bins that are tried together
_DOUBT: Final = 1e-6  # the same far beyond all others
_GAP: Final = 5  # bins between those that stand clear, about a factor of four
_SURE: Final = 1e-3  # the chance that an empty bin widens a range


def rows_per_unit_query(relation: Relation, sized: Sequence[Term] = ()) -> Query:
    """How many units have 1, 2, 3, 4, 5 to 6, … rows.

    With terms that size a unit up by what it adds, how many add so many times `PART` of what a row
    adds at most, to the term of which they add most. A unit is in one bin, whatever the relation,
    so one unit moves one number by one.
    """
    if stability_of(relation).is_row_level:
        raise Unsupported("Every row is one unit here.", fix="There is no cap to choose.")
    folded = [Folded("n", Fold.COUNT, Literal(1))]
    units = [Fraction(1)]
    if sized:
        spans = [Call("abs", (term.expression,)) for term in sized]
        folded = [Folded(f"n{i}", Fold.SUM, span) for i, span in enumerate(spans)]
        units = [term.reach * term.grain * PART for term in sized]
    counted = PerUnit(relation, (), tuple(folded))
    cases: list[Expression] = []
    for place, most in enumerate(STEPS[:-1]):
        within: list[Expression] = [
            Call("le", (Field(each.name), _literal(most * unit)))
            for each, unit in zip(folded, units, strict=True)
        ]
        cases += [reduce(lambda a, b: Call("and", (a, b)), within), Literal(place)]
    binned = Project(counted, (("bin", Call("case", (*cases, Literal(len(STEPS) - 1)))),))
    by = Grouping(name="bin", expression=Field("bin"), keys=tuple(range(len(STEPS))))
    return Query(Sums(relation=binned, by=(by,), terms=(_ONE,)))


def range_query(relation: Relation, value: Expression, *, rows_per_unit: int | None) -> Query:
    """How many values have which sign and which number of binary digits."""
    if not domain_of(value, schema_of(relation)).kind.is_numeric:
        raise Unsupported("This is no number.", fix="Ask about a numeric column.")
    size = Call("floor", (Call("log2", (Call("abs", (value,)),)),))
    lowest, highest = Literal(-DIGITS), Literal(DIGITS)
    digits = Call("least", (Call("greatest", (size, lowest)), highest))
    place = Call("add", (Call("to_integer", (digits,)), Literal(DIGITS + 1)))
    signed = Call("case", (
        Call("eq", (value, Literal(0))), Literal(0),
        Call("lt", (value, Literal(0))), Call("negate", (place,)), place,
    ))  # fmt: skip
    most = 2 * DIGITS + 1
    by = Grouping(name="digits", expression=signed, keys=tuple(range(-most, most + 1)))
    term = _ONE if rows_per_unit is None else _WEIGHED
    return Query(Sums(relation=relation, by=(by,), terms=(term,), rows_per_unit=rows_per_unit))


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

    Where sums are looked at, a step is a ``part`` of what a row adds at most, and rows are so much.
    """

    table: str
    units: tuple[int, ...]
    scale: float = 0.0  # of the noise in each number
    part: Fraction = Fraction(1)

    @property
    def sizes(self) -> NDArray[np.float64]:
        """A typical number of rows for each bin: the middle of it."""
        lows = np.array([0, *STEPS[:-1]]) + int(self.part == 1)  # numbers of rows are whole
        middles: NDArray[np.float64] = (lows + np.array(STEPS)) / 2 * float(self.part)
        return middles

    @property
    def rows(self) -> float:
        """About how many rows there are."""
        return float(self._counts() @ self.sizes)

    def lost(self, cap: int) -> float:
        """About which share of the rows does not count under a cap."""
        beyond = np.maximum(self.sizes - cap, 0.0)
        return max(0.0, float(self._counts() @ beyond) / max(self.rows, float(self.part)))

    def best(self, epsilon: float, *, cells: int = 1) -> int:
        """The cap with the least error of a count per cell: rows lost, and noise cap / ε."""
        caps = sorted({max(1, ceil(step * self.part)) for step in STEPS})
        errors = [self.lost(cap) * self.rows / cells + sqrt(2) * cap / epsilon for cap in caps]
        return caps[int(np.argmin(errors))]

    def _counts(self) -> NDArray[np.float64]:
        """The numbers up to the last bin that stands clear of noise; the others count nothing.

        Bins are tried by themselves and pooled with their neighbours. Large bins weigh much, and by
        chance one seems clear now and then, so bins far beyond the others must be beyond doubt. A
        model of the tail, not a claim.
        """
        counts, end, first = np.array(self.units, np.float64), 0, 0
        while first < counts.size:
            chance = _ALARM if first <= end + _GAP else _DOUBT
            sums = np.cumsum(counts[first : first + _POOLED[-1]])
            wide = next((each for each in _POOLED if each <= sums.size and
                         sums[each - 1] > self.scale * _clear(each, chance)), 0)  # fmt: skip
            end = first + wide if wide else end
            first += wide or 1
        counts[end:] = 0.0
        return counts

    def __str__(self) -> str:
        total = max(sum(self.units), 0)
        shown = (5, 10, 20, 50, 100)
        lines = [f"{self.table}: about {total:,} units with {self.rows:,.0f} rows"]
        lines += [f"a cap of {cap} rows per unit loses {self.lost(cap):.0%}" for cap in shown]
        return "\n".join(lines)


@cache
def _clear(width: int, chance: float) -> float:
    """What ``width`` bins hold by noise alone with at most this chance, wherever they begin.

    For noise of scale 1 of either sign, the chance of t or more is at most the least of
    e^(-λt) / (1 - λ²)^width over 0 < λ < 1 (Chernoff).
    """
    tries = log(len(_POOLED) * len(STEPS) / chance)
    rates = np.linspace(0.01, 0.99, 99)
    return float(np.min((tries - width * np.log(1 - rates**2)) / rates))


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
