"""Whole numbers per row: which grain a sum is kept in, and how the expressions are put together."""

from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from math import ceil, floor
from typing import Final

from noisegate.algebra.expression import Call, Expression, Literal
from noisegate.algebra.intervals import LARGE
from noisegate.algebra.tally import Term
from noisegate.errors import Unsupported
from noisegate.privacy.domain import EPOCH, Domain, Kind

LEVELS_BITS: Final = 26  # steps of a sum over the largest value: rounding stays far below noise
COUNT_BITS: Final = 20  # steps of one row where rows have weights
POINT_BITS: Final = 24  # steps of a quantile's grid
FAR: Final = (
    1 << 15
)  # steps of at least 2**-39 of the largest value: 2**40 are the most there can be
WHOLE_MAX: Final = 1 << 31  # whole numbers up to here are added as they are


def all_of(conditions: Iterable[Expression]) -> Expression | None:
    """All conditions at once, or None if there are none."""
    found = list(dict.fromkeys(conditions))
    return reduce(lambda one, other: Call("and", (one, other)), found) if found else None


def masked(expression: Expression, conditions: Iterable[Expression]) -> Expression:
    """The expression where all conditions hold, else NULL."""
    condition = all_of(conditions)
    return expression if condition is None else Call("case", (condition, expression))


def present(expression: Expression) -> Expression:
    """Whether there is a value."""
    return Call("not", (Call("is_null", (expression,)),))


def literal(value: Fraction, kind: Kind) -> Literal:
    """A constant of the kind; numbers must be doubles already, see `middle`."""
    return Literal(int(value)) if kind is Kind.INTEGER else Literal(value)


def middle(low: Fraction, high: Fraction, kind: Kind) -> Fraction:
    """A public number about half-way, whole or a double, so that every engine subtracts the same.

    Values counted from here reach half as far as the bounds are apart, and so does the noise.
    """
    half = (low + high) / 2
    if abs(half) > LARGE:
        raise Unsupported(
            "The squares of such values exceed the range of doubles.", fix="Use narrower bounds."
        )
    return Fraction(floor(half)) if kind is Kind.INTEGER else Fraction(float(half))


def require_bounds(domain: Domain, what: str) -> tuple[Fraction, Fraction]:
    """Both bounds, or a refusal that says how to get them."""
    if domain.low is None or domain.high is None:
        raise Unsupported(
            f"{what} needs bounds, because one value could otherwise move it by any amount.",
            fix="Declare between = [low, high] for the column, ask of rows WHERE x BETWEEN low AND "
            "high, write GREATEST(low, LEAST(high, x)) where x is never NULL, or have bounds "
            'estimated for a share of ε: choose="bounds".',
            about="bounds",
        )
    return domain.low, domain.high


def numeric(expression: Expression, domain: Domain, what: str) -> tuple[Expression, Domain]:
    """The expression as a number: dates as days since 1970, times as hours."""
    if domain.kind.is_numeric:
        return expression, domain
    if domain.kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise Unsupported(
            f"{what} of {domain.kind.value} has no meaning.", fix="Cast to a number.", about="type"
        )
    low, high = require_bounds(domain, what)
    is_date = domain.kind is Kind.DATE
    unit, ticks = ("day", 1) if is_date else ("hour", 3_600_000_000)
    start = Literal(EPOCH.date() if is_date else EPOCH)
    passed = Call("date_diff", (Literal(unit), start, expression))
    bounds = Fraction(floor(low / ticks)), Fraction(floor(high / ticks))
    return passed, Domain(
        kind=Kind.INTEGER, low=bounds[0], high=bounds[1], nullable=domain.nullable
    )


def count_term(conditions: Iterable[Expression], *, cap: int | None) -> Term:
    """One for each row where the conditions hold; a power of two for it where rows have weights."""
    grain = Fraction(1) if cap is None else Fraction(1, 1 << _bits(COUNT_BITS, cap))
    one = masked(Literal(1), conditions)
    return Term(expression=one, grain=grain, low=0, high=int(1 / grain))


def is_count(term: Term) -> bool:
    """Whether it counts rows, all or some."""
    one = term.expression
    return (one.args[-1] if isinstance(one, Call) and one.function == "case" else one) == Literal(1)


def sum_term(expression: Expression, domain: Domain, *, cap: int | None) -> Term:
    """The expression as it is added up, in steps that lose nothing worth mentioning.

    Whole numbers are added as they are. Others, and all where rows have weights, are rounded to a
    power of two, about 2**26 steps over the magnitude: n rows that all round alike err by at most
    n · 2**-26 of it, which noise exceeds up to many millions of rows.
    """
    low, high = require_bounds(domain, "A sum")
    size = max(abs(low), abs(high))
    grain = Fraction(1)
    if cap is not None or domain.kind is not Kind.INTEGER or size >= WHOLE_MAX:
        grain = _grain(size, _bits(LEVELS_BITS, cap))
    return _term(expression, low, high, grain)


def value_term(expression: Expression, domain: Domain) -> Term:
    """The expression as a quantile sees it: whole numbers, or a grid of about 2**24 points.

    There are fewer where bounds are close together, of values that are far from 0.
    """
    low, high = require_bounds(domain, "A quantile")
    grain = Fraction(1)
    if domain.kind is not Kind.INTEGER or high - low >= 1 << (POINT_BITS + 8):
        grain = _grain(max(high - low, max(abs(low), abs(high)) / FAR), POINT_BITS)
    return _term(expression, low, high, grain)


def _term(expression: Expression, low: Fraction, high: Fraction, grain: Fraction) -> Term:
    bottom, top = floor(low / grain), ceil(high / grain)
    return Term(expression=expression, grain=grain, low=bottom, high=max(top, bottom + 1))


def _bits(bits: int, cap: int | None) -> int:
    """Fewer steps where one unit adds many rows, so that noise fits into its range."""
    return max(8, bits - (0 if cap is None else (cap - 1).bit_length()))


def _grain(size: Fraction, bits: int) -> Fraction:
    """The power of two that fits about 2**bits times into ``size``."""
    if size == 0:
        return Fraction(1)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    return Fraction(2) ** (power - bits)
