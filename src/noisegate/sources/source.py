"""The contract of an engine: whole numbers per cell, totally, in one pass."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Cells, Distinct, Keys, Marginals, Rows, Sums, Values
from noisegate.errors import Unsupported
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Key

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from noisegate.algebra.blocks import Blocks
    from noisegate.algebra.tally import Tally

Whole: TypeAlias = NDArray[np.int64]
SUM_MAX: Final = 1 << 60  # what a cell is clamped to, which moves no two answers further apart
Used = TypeVar("Used")
Block: TypeAlias = dict[str, NDArray[Any]]  # columns by name


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Keys that are present, and how many units hold each. Exact; must not leave the door.

    ``take`` turns a selection of places into keys, so that the others never become Python objects.
    """

    counts: Whole
    take: Callable[[Whole], list[tuple[Key, ...]]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCells:
    """Cells that hold rows, by their numbers in rising order, and how many rows each holds. Exact.

    The order is that of the numbers, so that nothing of the rows' own order is left in it.
    """

    cells: NDArray[np.uint64]
    counts: Whole


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows: coordinates (rows, columns), the place of each row's key, and its weight. Exact.

    Without keys all ``places`` are 0. Where units have no cap all weigh 1: ``weights`` is None.
    """

    coordinates: NDArray[np.int32] | NDArray[np.int16]
    places: NDArray[np.int32]
    weights: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.coordinates)


class Source(ABC):
    """Rows behind a wall. What these methods return is exact and must not leave the door.

    Steps on rows are total: no value of a row can make them fail. An error here is about reaching
    the rows, and its text never quotes them.
    """

    def require(self, tally: "Tally | Blocks") -> None:  # noqa: B027 - most can do all
        """Refuse what this engine cannot compute. Reads no row: the door asks before it charges."""

    @property
    def plans(self) -> bool:
        """Whether it has statements planned before they are charged, in `require_plan`."""
        return False

    def require_plan(self, tally: "Tally | Blocks") -> None:  # noqa: B027 - most plan as they read
        """Refuse what this engine cannot plan. Reads no row: the door asks before it charges."""

    @abstractmethod
    def sums(self, tally: Sums) -> Whole:
        """The sums, of shape (terms, cells)."""

    @abstractmethod
    def marginals(self, tally: Marginals) -> list[Whole]:
        """The sums over each set of groupings, in one pass."""

    @abstractmethod
    def values(self, tally: Values) -> list[Whole]:
        """The values of each cell, in any order."""

    @abstractmethod
    def keys(self, tally: Keys) -> Held:
        """The keys that are present."""

    @abstractmethod
    def distinct(self, tally: Distinct) -> Whole:
        """The numbers of distinct values, of shape (1, cells)."""

    @abstractmethod
    def cells(self, tally: Cells) -> HeldCells:
        """The cells that hold rows."""

    def sample(self, probability: Fraction, key: str) -> "AbstractContextManager[Source]":  # noqa: ARG002
        """The same tables with the rows of one sample of units, until it is left.

        Each unit is in it with ``probability``, by a coin that the secret ``key`` decides, and
        with all its rows in all tables. However often it is read, it is the same sample.
        """
        raise Unsupported("This engine cannot sample.", fix="Ask about all rows.")

    @contextmanager
    def still(self) -> Iterator[Self]:
        """The same tables as they are at one moment, until it is left: for all of one allowance.

        Why: disjoint parts and cells of an allowance are charged as one. If a row moved from one
            to another between two statements, its unit would be in both. A server is asked in one
            transaction. Files and frames must not change while an allowance is open: that they do
            not is the steward's word, as with every ``snapshot`` of a policy.
        """
        yield self

    @abstractmethod
    def rows(self, tally: Rows, use: Callable[[Iterator[Batch]], Used]) -> Used:
        """What ``use`` makes of the rows, which come in batches and in any order."""

    @abstractmethod
    def blocks(self, tally: "Blocks", key: str, use: Callable[[Iterator[Block]], Used]) -> Used:
        """What ``use`` makes of the blocks, in their order: the secret ``key`` deals owners."""

    def lies_in(self, table: str) -> Collection[str]:  # noqa: ARG002
        """Places that the engine itself knows the rows of a table by, whatever its address says."""
        return ()

    @abstractmethod
    def public(self, table: str) -> "pa.Table":
        """All rows of a public table: exact and free. Refuses any other."""
