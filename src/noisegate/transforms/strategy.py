"""Whole-number questions about the cells of a tally, such as all levels of a tree at once.

A strategy is a list of blocks; each block gets one noise. Its sensitivity is computed from the
block itself, never stated by a caller.

>>> halves = Groups(np.array([0, 0, 1, 1], np.int32), 2)
>>> [block.tolist() for block in Strategy(4, (halves,)).apply(np.array([5, 1, 2, 0]))]
[[6, 2]]
"""

from dataclasses import InitVar, dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import Unsupported

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Whole: TypeAlias = NDArray[np.int64]
SUM_MAX: Final = 1 << 62  # no answer is larger, so that 64 bits never wrap
ENTRY_MAX: Final = 1 << 31
_Integer = TypeVar("_Integer", np.int32, np.int64)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Sums of cells: cell j is in group ``labels[j]``, or in none where that is -1."""

    labels: NDArray[np.int32]
    size: int

    def __post_init__(self) -> None:
        labels = _frozen(self.labels)
        if type(labels) is not np.ndarray or labels.dtype != np.int32 or labels.ndim != 1:
            raise Unsupported(
                "Labels are not an int32 vector.", fix="Give one label per cell.", about="cells"
            )
        if type(self.size) is not int or not 1 <= self.size <= max(1, labels.size):
            raise Unsupported(
                "There are no groups, or more groups than cells.", fix="Merge some cells."
            )
        if labels.size and not -1 <= labels.min() <= labels.max() < self.size:
            raise Unsupported("A label does not name a group.", fix="Number the groups from 0.")
        object.__setattr__(self, "labels", labels)

    @property
    def cells(self) -> int:
        """How many cells it asks about."""
        return self.labels.size

    @property
    def columns(self) -> tuple[Whole, Whole]:
        """For each cell, how far it moves the answers in L1, and squared in L2: one answer by 1."""
        held = (self.labels >= 0).astype(np.int64)
        return held, held

    def apply(self, cells: Whole) -> Whole:
        """The sums, exactly: halves of the numbers are added as doubles below 2**53."""
        held = self.labels >= 0
        labels, limit = self.labels[held], SUM_MAX // max(1, self.labels.size)
        values = np.clip(cells[held], -limit, limit)
        low = values & 0xFFFFFF
        high = (values - low) >> 24
        sums = [np.bincount(labels, part.astype(np.float64), self.size) for part in (low, high)]
        return sums[0].astype(np.int64) + (sums[1].astype(np.int64) << 24)

    def digest(self) -> str:
        """A name for exactly these groups."""
        return _digest(b"groups", self.size, self.labels.astype("<i4"))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Any whole-number combinations of cells: one for each row of a sparse matrix."""

    given: InitVar["csr_array"]
    held: tuple[bytes, bytes, bytes] = field(init=False, repr=False)  # which nothing can change
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self, given: "csr_array") -> None:
        from scipy.sparse import csr_array  # noqa: PLC0415

        found = given
        if type(found) is not csr_array or found.dtype != np.int64 or found.ndim != 2:
            raise Unsupported("This is not a sparse int64 matrix.", fix="Give a scipy csr_array.")
        own = found.copy()
        try:
            own.check_format(full_check=True)  # places outside of the cells would read other memory
        except ValueError:
            raise Unsupported(
                "The indices of the matrix do not name cells.",
                fix="Build it with scipy.",
                about="cells",
            ) from None
        own.sum_duplicates()
        own.eliminate_zeros()
        rows, columns = own.shape
        if not 1 <= rows <= SUM_MAX >> 40 or not 1 <= columns <= SUM_MAX >> 40:
            raise Unsupported("The matrix is empty or too large.", fix="Ask about fewer cells.")
        if own.nnz and not -ENTRY_MAX <= own.data.min() <= own.data.max() <= ENTRY_MAX:
            raise Unsupported(
                "A coefficient exceeds 31 bits.", fix="Use a larger quantisation step."
            )
        parts = own.data, own.indices.astype(np.int64), own.indptr.astype(np.int64)
        object.__setattr__(self, "held", tuple(part.tobytes() for part in parts))
        object.__setattr__(self, "shape", (int(rows), int(columns)))

    @property
    def matrix(self) -> "csr_array":
        """The matrix, to calculate with."""
        return _matrix(self.held, self.shape)

    @property
    def cells(self) -> int:
        """How many cells it asks about."""
        return self.shape[1]

    @property
    def size(self) -> int:
        """How many answers it has."""
        return self.shape[0]

    @property
    def columns(self) -> tuple[Whole, Whole]:
        """For each cell, the sums of its absolute and of its squared entries over all rows."""
        return _columns(self.held, self.shape)

    def apply(self, cells: Whole) -> Whole:
        """The combinations, in 64 bits that cannot wrap: cells are clamped before."""
        most = int(np.abs(self.matrix).sum(axis=1).max(initial=0))
        limit = SUM_MAX // max(1, most)
        found: Whole = self.matrix @ np.clip(cells, -limit, limit)
        return found

    def digest(self) -> str:
        """A name for exactly this matrix."""
        data, indices, indptr = (np.frombuffer(part, np.int64).astype("<i8") for part in self.held)
        return _digest(b"matrix", self.size, indptr, indices, data)


def _matrix(held: tuple[bytes, bytes, bytes], shape: tuple[int, int]) -> "csr_array":
    from scipy.sparse import csr_array  # noqa: PLC0415

    data, indices, indptr = (np.frombuffer(part, np.int64) for part in held)
    return csr_array((data, indices, indptr), shape=shape)


@lru_cache(maxsize=8)
def _columns(held: tuple[bytes, bytes, bytes], shape: tuple[int, int]) -> tuple[Whole, Whole]:
    """See `Matrix.columns`. Remembered by all entries, not by a name that could come to lie."""
    sizes = np.abs(_matrix(held, shape))
    squares = sizes.multiply(sizes)
    if squares.astype(np.float64).sum(axis=0).max(initial=0) > SUM_MAX >> 1:
        raise Unsupported("The coefficients are too large.", fix="Use a larger quantisation step.")
    one, two = (
        _frozen(np.asarray(part.sum(axis=0), np.int64).ravel()) for part in (sizes, squares)
    )
    return one, two


Block: TypeAlias = Groups | Matrix


@final
@dataclass(frozen=True, slots=True, eq=False)
class Strategy:
    """Blocks of questions about the same cells."""

    cells: int
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if type(self.blocks) is not tuple or not self.blocks:
            raise Unsupported("Nothing is asked.", fix="Give at least one block.")
        if {type(block) for block in self.blocks} - {Groups, Matrix}:
            raise Unsupported("A block is of an unknown type.", fix="Use Groups or Matrix.")
        if any(block.cells != self.cells for block in self.blocks):
            raise Unsupported("A block is about other cells.", fix="Ask about the same cells.")

    @property
    def l1s(self) -> tuple[int, ...]:
        """How far each block moves, in L1, if the cells move by 1 in L1.

        Claim: ‖A v‖₁ ≤ l1 · ‖v‖₁. Why: A v = Σ v_j A_j over columns, and ‖A_j‖₁ ≤ l1. Clamping
            cells moves no two vectors further apart in any cell. Rounding: none, all is whole.
        """
        return tuple(int(block.columns[0].max(initial=0)) for block in self.blocks)

    @property
    def l2s_squared(self) -> tuple[int, ...]:
        """How far each block moves, squared, in L2, if the cells move by 1 in L1.

        Claim: ‖A v‖₂² ≤ l2² · ‖v‖₁². Why: ‖A v‖₂ ≤ Σ |v_j| ‖A_j‖₂, by the triangle inequality.
        """
        return tuple(int(block.columns[1].max(initial=0)) for block in self.blocks)

    @property
    def reaches(self) -> tuple[int, ...]:
        """How far any one answer of each block moves, if the cells move by 1 in L1.

        Claim: |(A v)_i| ≤ reach · ‖v‖₁. Why: it is at most Σ |a_ij| |v_j|. Rounding: none.
        """
        return tuple(
            int(np.abs(block.matrix.data).max(initial=0)) if isinstance(block, Matrix) else 1
            for block in self.blocks
        )

    @property
    def is_positive(self) -> bool:
        """Whether no answer falls if a cell rises."""
        matrices = (block.matrix.data for block in self.blocks if isinstance(block, Matrix))
        return all(data.min(initial=0) >= 0 for data in matrices)

    @property
    def is_monotone(self) -> bool:
        """Whether no answer falls if a cell rises, or none rises."""
        matrices = [block.matrix.data for block in self.blocks if isinstance(block, Matrix)]
        falls = len(matrices) == len(self.blocks) and all(d.max(initial=0) <= 0 for d in matrices)
        return self.is_positive or falls

    def apply(self, cells: Whole) -> list[Whole]:
        """The exact answers, block by block."""
        return [block.apply(cells) for block in self.blocks]

    def to_record(self) -> list[list[Any]]:
        """The blocks by their kind, size and digest; equal exactly for equal questions."""
        return [[type(b).__name__.lower(), b.size, b.digest()] for b in self.blocks]


def _frozen(array: NDArray[_Integer]) -> NDArray[_Integer]:
    own = np.array(array)  # a plain one, whatever it was
    return np.frombuffer(own.tobytes(), own.dtype).reshape(own.shape)


def _digest(kind: bytes, size: int, *parts: NDArray[Any]) -> str:
    found = sha256(kind + b" %d" % size)
    for part in parts:
        found.update(b" %d " % part.size)
        found.update(np.ascontiguousarray(part).tobytes())
    return found.hexdigest()
