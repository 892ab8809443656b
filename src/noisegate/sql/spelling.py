"""Names and numbers as SQL writes them, and the table that is meant.

>>> quoted('od"d'), decimal(Fraction(-5, 4)), decimal(Fraction(3))
('"od""d"', '-1.25', '3')
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from noisegate.errors import SpecError
from noisegate.privacy.domain import Column, TableDomain

_PLACES_MAX: Final = 30


def quoted(name: str) -> str:
    """A name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def without_null(value: str, held: str, column: Column) -> str:
    """A value moved into bounds; NULL stays so, which LEAST and GREATEST pass over."""
    return f"CASE WHEN {value} IS NOT NULL THEN {held} END" if column.nullable else held


def decimal(number: Fraction) -> str:
    """An exact decimal, which is how SQL reads numbers."""
    places = 0
    while (number * 10**places).denominator != 1:
        places += 1
        if places > _PLACES_MAX:
            raise SpecError(
                "A number has no finite decimal expansion.", fix="Use one such as 0.25."
            )
    digits = str(abs(int(number * 10**places))).rjust(places + 1, "0")
    whole, rest = (digits[:-places], f".{digits[-places:]}") if places else (digits, "")
    return f"{'-' if number < 0 else ''}{whole}{rest}"


def table_named(tables: Mapping[str, TableDomain], table: str | None) -> str:
    """The table that is named, or else the only private one."""
    private = [name for name, domain in tables.items() if not domain.is_public]
    found = private[0] if table is None and len(private) == 1 else table
    if found is None or found not in tables:
        said = "No table is named." if found is None else f"There is no table {found!r}."
        raise SpecError(said, fix=f"Use {', '.join(private)}.", about="table")
    return found
