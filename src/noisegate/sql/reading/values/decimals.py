"""Decimals are exact, as in SQL: 0.06 + 0.01 is 0.07, and 1.005 rounds to 1.01.

Engines compute numbers in doubles. A double next to a decimal of known scale (`Domain.scale`) tells
which one it is, up to 15 digits; so whatever looks at a value closely, a comparison, a key, FLOOR
or a cast, looks at the decimal. Sums of many rows are rounded to a grain anyway, and need no such
care. DuckDB's types are followed: decimals and whole numbers stay decimals through + − × and %,
through choices, and through rounding; a division, or a double beside them, makes doubles.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from noisegate.algebra.expression import Call, Expression, Literal, Schema, domain_of
from noisegate.algebra.intervals import SCALE_MAX, decimals, scales
from noisegate.privacy.domain import WHOLE_MAX, Kind

_CONSTANT: Final = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
}  # fmt: skip


def scale_of(value: Expression, schema: Schema) -> int | None:
    """The digits behind the point of a decimal; None of anything else."""
    domain = domain_of(value, schema)
    return domain.scale if domain.kind is Kind.NUMBER else None


def exact(value: Expression, schema: Schema) -> Expression:
    """The value as the one double that stands for it, if it is a computed decimal."""
    if type(value) is not Call or value.function == "to_decimal":
        return value
    scale = scale_of(value, schema)
    return value if scale is None else to_scale(value, scale)


def to_scale(value: Expression, scale: int) -> Expression:
    """The decimal that a double is near to."""
    return Call("to_decimal", (value, Literal(scale)))


def units(value: Expression, scale: int) -> Expression:
    """A decimal as a whole number of its last digits."""
    return Call("to_integer", (Call("multiply", (value, Literal(10**scale))),))


def of_units(count: Expression, scale: int) -> Expression:
    """The decimal that is so many last digits."""
    return to_scale(Call("divide", (count, Literal(10**scale))), scale)


def rounded(value: Expression, digits: int, schema: Schema) -> Expression:
    """ROUND(x, digits) of a decimal: halves away from zero, and these are exact."""
    scale, low = scale_of(value, schema), domain_of(value, schema).low
    if scale is not None and -SCALE_MAX < digits < 0 and low is not None and low >= 0:
        moved = Call("add", (exact(value, schema), Literal(Fraction(10**-digits, 2))))
        return Call("bin", (exact(moved, schema), Literal(10**-digits)))  # so its values are known
    if scale is None or not 0 <= digits < SCALE_MAX:
        return Call("round", (value, Literal(digits)))
    if scale <= digits:
        return exact(value, schema)
    if digits == 0:
        return Call("round", (exact(value, schema),))
    moved = Call("multiply", (value, Literal(10**digits)))
    whole = Call("round", (to_scale(moved, scale - digits),))
    return of_units(whole, digits)


def rest(left: Expression, right: Expression, schema: Schema) -> Expression:
    """The rest x % y, of decimals in whole numbers of their last digits."""
    given = scales(domain_of(side, schema) for side in (left, right))
    if not given or not max(given):
        return Call("modulo", (left, right))
    most = max(given)
    return of_units(Call("modulo", (units(left, most), units(right, most))), most)


def doubled(value: Expression, schema: Schema) -> Expression:
    """A decimal of a row as a double, as SQL makes one of it beside a double."""
    if type(value) is Literal or scale_of(value, schema) is None:
        return value
    return Call("to_number", (exact(value, schema),))


def beside(values: Sequence[Expression], schema: Schema) -> list[Expression]:
    """Values that stand beside each other: a decimal beside a double becomes the nearest double."""
    if scales(domain_of(value, schema) for value in values if value != Literal(None)) is not None:
        return list(values)
    return [exact(value, schema) for value in values]


def computed(function: str, left: Expression, right: Expression, schema: Schema) -> Expression:
    """A sum, difference or product; of two constants their exact value."""
    if type(left) is Literal and type(right) is Literal and function in _CONSTANT:
        values = (left.value, right.value)
        if all(type(each) in (int, Fraction) for each in values):
            found = _CONSTANT[function](*values)
            whole = all(type(each) is int for each in values)
            if abs(found) <= WHOLE_MAX and (whole or decimals(Fraction(found)) is not None):
                return Literal(int(found) if whole else Fraction(found))
    return Call(function, tuple(beside((left, right), schema)))
