"""The contract of an engine: add whole numbers per cell, totally, in one pass."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from noisegate.privacy.domain import Column, Key


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Count the rows of a table, per declared key of ``by`` if given.

    ``where`` keeps only rows whose column holds one key. ``unit`` with ``rows_per_unit_max`` lets
    each unit count for at most so many rows. Rows without a declared key fall into no cell.
    """

    table: str
    by: Column | None = None
    where: tuple[tuple[Column, Key], ...] = ()
    unit: str | None = None
    rows_per_unit_max: int | None = None

    @property
    def cells(self) -> int:
        """How many numbers the engine returns: public, from the declared keys."""
        return 1 if self.by is None or self.by.keys is None else len(self.by.keys)


class Source(ABC):
    """Rows behind a wall. What `collect` returns is exact and must not leave the door.

    Steps on rows are total: no value of a row can make `collect` fail, and what it returns has a
    public shape. An error here is about reaching the rows, and its text never quotes them.
    """

    @abstractmethod
    def collect(self, tally: Tally) -> NDArray[np.int64]:
        """The exact numbers, one for each cell."""

    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of the table's columns: public by declaration."""
