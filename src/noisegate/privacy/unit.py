"""Who is protected, and which tables count as neighbours."""

from collections.abc import Iterable
from enum import Enum
from typing import final

from noisegate.errors import SpecError
from noisegate.frozen import dataclass


class Adjacency(Enum):
    """The relation between neighbouring data sets. noisegate's claims are for ADD_REMOVE."""

    ADD_REMOVE = "adding or removing one unit"
    CHANGE_ONE = "changing one unit"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyUnit:
    """A person (or household, or device): all rows that share a value of ``column``.

    ``column`` None is the declared choice "every row is one person"; it is never assumed silently.

    ``ids`` names the id space. Equal ids of one space are one unit; equal ids of two spaces have
    nothing to do with each other, and their rows are never matched. A `TableDomain` fills it in
    where nothing was said: its own table's, which no other table shares.
    """

    column: str | None
    noun: str = "person"
    ids: str | None = None

    def __post_init__(self) -> None:
        if not {type(text) for text in (self.column, self.noun, self.ids)} <= {str, type(None)}:
            raise SpecError(
                "The name of a unit is not a string.", fix="Use plain text.", about="text"
            )

    def __str__(self) -> str:
        if self.column is None:
            return f"one row (declared: every row is one {self.noun})"
        return f"one {self.noun} (all rows with the same {self.column!r})"


def spaces_of(units: Iterable[PrivacyUnit]) -> dict[str | None, list[PrivacyUnit]]:
    """The units of each id space, each column once, in order."""
    found: dict[str | None, list[PrivacyUnit]] = {}
    for unit in units:
        known = found.setdefault(unit.ids or unit.column, [])
        if unit.column not in [one.column for one in known]:
            known.append(unit)
    return found


def protected(units: Iterable[PrivacyUnit]) -> str:
    """Who is protected, in words: one unit of any of these id spaces.

    >>> ids = {"noun": "customer", "ids": "customer"}
    >>> print(protected([PrivacyUnit(column="id", **ids), PrivacyUnit(column="buyer", **ids)]))
    one customer (all rows with the same 'id' or 'buyer')
    """
    words = []
    for known in spaces_of(units).values():
        columns = [repr(unit.column) for unit in known if unit.column is not None]
        many = f"one {known[0].noun} (all rows with the same {' or '.join(columns)})"
        words.append(many if len(columns) > 1 else str(known[0]))
    return " or ".join(dict.fromkeys(words))
