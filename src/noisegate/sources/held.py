"""What a public table's own rows say about its columns."""

from fractions import Fraction
from typing import Any, Final

from noisegate.frozen import replace
from noisegate.privacy.domain import KEY_TYPES, Column

_LISTED_MAX: Final = 10_000
_EXACT: Final = 10**15  # doubles hold all decimals of so many units of their last digit


def held_column(column: Column, values: list[Any]) -> Column:
    """A column with its values as keys, where these are few, and the ends of its numbers."""
    held = [value for value in values if value is not None]
    keys, between = column.keys, column.between
    if keys is None and column.kind in KEY_TYPES and len(values) <= _LISTED_MAX:
        keys = tuple(sorted(held)) or None
    if between is None and column.kind.is_numeric and held:
        low, high = Fraction(min(held)), Fraction(max(held))
        if max(-low, high) * 10 ** (column.scale or 0) < _EXACT:
            between = low, high if low < high else low + 1
    return replace(column, keys=keys, between=between)
