"""One of several disjoint parts, as an order names it: by the rule of all parts, and a key.

Which units are in it, and what it is charged, is for the door alone (`curator/partition.py`): an
order holds words, and an event that somebody else wrote is never taken for one.
"""

from dataclasses import dataclass
from typing import TypedDict, final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PartOf:
    """A part of a table.

    Attributes:
        by: A column with declared keys, or conditions in order: a row is in the first that is true.
        key: Which part: the key of the column, or the condition.
        table: The table that is split, if several have the column.
        several: "first", where one unit may have rows in several parts: it counts in the first.
    """

    by: tuple[str, ...]
    key: str
    table: str = ""
    several: str = ""


class PartTerms(TypedDict, total=False):
    """A part as a dict; see `PartOf`."""

    by: str | list[str]
    key: str
    table: str
    several: str
