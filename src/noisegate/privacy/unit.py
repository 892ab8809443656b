"""Who is protected, and which tables count as neighbours."""

from dataclasses import dataclass
from enum import Enum
from typing import final


class Adjacency(Enum):
    """The relation between neighbouring data sets. noisegate's claims are for ADD_REMOVE."""

    ADD_REMOVE = "adding or removing one unit"
    CHANGE_ONE = "changing one unit"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyUnit:
    """A person (or household, or device): all rows that share a value of ``column``.

    ``column`` None is the declared choice "every row is one person"; it is never assumed silently.
    """

    column: str | None
    noun: str = "person"

    def __str__(self) -> str:
        if self.column is None:
            return f"one row (declared: every row is one {self.noun})"
        return f"one {self.noun} (all rows with the same {self.column!r})"
