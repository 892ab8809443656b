"""Bounds of results. Ends are exact fractions; an unknown end is infinite.

Engines compute numbers in doubles. Rounding to the nearest double keeps order, so where an
operation is correctly rounded (+ − × ÷ √) the rounded ends of the exact result hold for certain.
Elsewhere (`loosened`) the ends move outwards by far more than a library function errs.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import inf
from typing import Any, Final, TypeAlias

from noisegate.privacy.domain import NUMBER_MAX, Domain, Key, Kind

End: TypeAlias = Any  # a Fraction, or a float where it is infinite
Span: TypeAlias = tuple[End, End]

KEYS_MAX: Final = 10_000  # groups that follow from bounds alone
WHOLE_SAFE: Final = 1 << 62  # no sum, difference or product kept within this overflows 64 bits
LARGE: Final = Fraction(NUMBER_MAX)  # bounds beyond are unknown
TINY: Final = 1 / LARGE
SCALE_MAX: Final = 15  # digits behind the point that doubles can tell apart
SLACK: Final = Fraction(1, 1 << 40)


def is_unknown(end: End) -> bool:
    """Whether it is infinite. Fractions never are, and some are beyond doubles."""
    return isinstance(end, float) and end in (inf, -inf)


def ends(domain: Domain) -> Span:
    """The bounds, infinite where unknown."""
    low, high = domain.low, domain.high
    return (-inf if low is None else low), (inf if high is None else high)


def doubled(domain: Domain) -> Span:
    """The bounds of the value as a double."""
    low, high = ends(domain)
    return nearest(low, -inf), nearest(high, inf)


def nearest(end: End, unknown: float) -> End:
    """The nearest double, or ``unknown`` beyond all that doubles can hold safely."""
    return unknown if is_unknown(end) or abs(end) > LARGE else Fraction(float(end))


def number(span: Span, *, nullable: bool, scale: int | None = None) -> Domain:
    """A number within the span, as doubles hold it."""
    return Domain(
        kind=Kind.NUMBER,
        low=_known(nearest(span[0], -inf)),
        high=_known(nearest(span[1], inf)),
        nullable=nullable,
        scale=None if scale is None or scale > SCALE_MAX else scale,
    )


def decimals(value: Fraction) -> int | None:
    """How many digits a number has behind the point; None if they have no end, or are too many."""
    found = (each for each in range(SCALE_MAX + 1) if (value * 10**each).denominator == 1)
    return next(found, None)


def scales(domains: Iterable[Domain]) -> list[int] | None:
    """The digits behind the point of values that are decimals or whole; None if some are not."""
    found = [0 if each.kind is Kind.INTEGER else each.scale for each in domains]
    return None if None in found else [each for each in found if each is not None]


def fits(span: Span) -> bool:
    """Whether whole numbers within the span are safe from overflow."""
    return bool(span[0] >= -WHOLE_SAFE and span[1] <= WHOLE_SAFE)


def whole(
    span: Span, *, nullable: bool, keys: Iterable[Key] | None = None, listed: bool = True
) -> Domain:
    """A whole number within the span, grouped by ``keys`` or else by all there are if few."""
    low, high = _known(span[0]), _known(span[1])
    if keys is None and listed and low is not None and high is not None:
        keys = range(int(low), int(high) + 1) if high - low < KEYS_MAX else None
    found = None if keys is None else tuple(keys)
    return Domain(kind=Kind.INTEGER, low=low, high=high, keys=found, nullable=nullable)


def truth(*, nullable: bool) -> Domain:
    """True or false."""
    return Domain(kind=Kind.BOOLEAN, keys=(False, True), nullable=nullable)


def is_safe(span: Span) -> bool:
    """Whether both ends are known, so that no double overflows."""
    return not (is_unknown(span[0]) or is_unknown(span[1]) or max(-span[0], span[1]) > LARGE)


def magnitude(span: Span) -> End:
    """The largest absolute value."""
    return max(abs(span[0]), abs(span[1]))


def plus(a: Span, b: Span) -> Span:
    """The sum a + b."""
    return _either(a[0], b[0]), _either(a[1], b[1])


def minus(a: Span, b: Span) -> Span:
    """The difference a − b."""
    return plus(a, (-b[1], -b[0]))


def times(a: Span, b: Span) -> Span:
    """The product a · b."""
    return corners(_product, a, b)


def over(a: Span, b: Span) -> Span:
    """The quotient a / b, unknown where b may be as good as zero."""
    return corners(_quotient, a, b) if b[0] >= TINY or b[1] <= -TINY else (-inf, inf)


def corners(function: Callable[[End, End], End], a: Span, b: Span) -> Span:
    """The span of a function that is monotone in each argument."""
    values = [function(x, y) for x in a for y in b]
    return min(values), max(values)


def loosened(span: Span) -> Span:
    """The span, wider by 2⁻⁴⁰ of its ends: for functions that are not correctly rounded."""
    low, high = min(span[0], LARGE), max(span[1], -LARGE)
    return low - abs(low) * SLACK, high + abs(high) * SLACK


def hull(spans: Iterable[Span]) -> Span:
    """The smallest span around all."""
    lows, highs = zip(*spans, strict=True)
    return min(lows), max(highs)


def listed_keys(domain: Domain) -> tuple[Key, ...] | None:
    """The groups of a value: its keys, or the whole numbers between its bounds if few."""
    if domain.keys is not None or domain.kind is not Kind.INTEGER:
        return domain.keys
    return whole(ends(domain), nullable=domain.nullable).keys


def mapped(keys: Iterable[Key] | None, function: Callable[..., Key | None]) -> list[Key] | None:
    """What the function makes of the keys, in order, each once; None adds no key."""
    if keys is None:
        return None
    found: set[Any] = {function(key) for key in keys if key is not None}
    return sorted(found - {None})


def known(span: Span) -> tuple[Fraction | None, Fraction | None]:
    """The ends as a `Domain` has them."""
    return _known(span[0]), _known(span[1])


def _known(end: End) -> Fraction | None:
    return None if is_unknown(end) else Fraction(end)


def _either(x: End, y: End) -> End:
    return next((end for end in (x, y) if is_unknown(end)), x + y)


def _product(x: End, y: End) -> End:
    return Fraction(0) if x == 0 or y == 0 else x * y


def _quotient(x: End, y: End) -> End:
    return Fraction(0) if is_unknown(y) else x / y
