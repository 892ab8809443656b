"""Public whole numbers that nothing can change, and rows on a grid; all exact in doubles.

Doubles add and multiply whole numbers without rounding as long as none passes 2**53, in whatever
order. So what a row adds does not depend on which rows stand beside it in a batch, which is what
sensitivity is about: with rounding, one row more could move what all others add.
"""

from hashlib import sha256
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisegate.errors import Unsupported
from noisegate.exact import EXACT_MAX
from noisegate.frozen import dataclass
from noisegate.sources.source import Whole

Floats: TypeAlias = NDArray[np.float64]  # whole numbers, as doubles
Norms: TypeAlias = tuple[int, int, int]  # largest number, sum of sizes, squared length
_PRODUCTS_AT_ONCE: Final = 1 << 18
_PIECE_MIN: Final = 16


@final
@dataclass(frozen=True, slots=True)
class Numbers:
    """An array of whole numbers in little-endian bytes.

    >>> Numbers.of([[1, 2], [3, 4]]).array.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    held: bytes
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = type(self.shape) is tuple and all(type(n) is int and n > 0 for n in self.shape)
        if not whole or type(self.held) is not bytes:
            raise Unsupported("The numbers are not stored as bytes.", fix="Use `Numbers.of`.")
        if len(self.held) != 8 * int(np.prod(self.shape)) or self.largest > EXACT_MAX:
            raise Unsupported(
                "The numbers have no shape, or exceed 2**53.", fix="Use coarser ones."
            )

    @classmethod
    def of(cls, values: ArrayLike) -> "Numbers":
        """From whole numbers, or doubles that are whole."""
        given = np.asarray(values)
        if not given.size or not np.all(np.isfinite(given)) or np.any(given != np.rint(given)):
            raise Unsupported("A number is not whole.", fix="Round to the grid first.")
        if np.abs(given).max() > EXACT_MAX:
            raise Unsupported("A number exceeds 2**53.", fix="Use coarser ones.")
        return cls(given.astype("<i8").tobytes(), given.shape)

    @property
    def array(self) -> Floats:
        """The numbers, as doubles."""
        return np.frombuffer(self.held, "<i8").reshape(self.shape).astype(np.float64)

    @property
    def whole(self) -> Whole:
        """The numbers, as integers."""
        return np.frombuffer(self.held, "<i8").reshape(self.shape)

    @property
    def largest(self) -> int:
        """The largest of them, without sign."""
        found = np.frombuffer(self.held, "<i8")
        return max(abs(int(found.min())), abs(int(found.max())))

    def digest(self) -> str:
        """A name for exactly these numbers."""
        return sha256(repr(self.shape).encode() + self.held).hexdigest()[:40]


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """What is public about rows: how many coordinates, their reach, how many keys.

    The Euclidean norm of the first ``clipped`` coordinates is at most ``norm``, if that is given;
    the others are within ±reach.
    """

    columns: int
    reach: int
    keys: int = 0
    norm: int | None = None
    clipped: int = 0

    def only(self, columns: tuple[int, ...] | None) -> "Shape":
        """The shape of some of the coordinates.

        Why: those among the first ``clipped`` are no longer than all of them.
        """
        if columns is None:
            return self
        if columns[-1] >= self.columns:
            raise Unsupported(
                "There are fewer coordinates than that.", fix="Use the columns' numbers."
            )
        clipped = sum(column < self.clipped for column in columns)
        return Shape(len(columns), self.reach, self.keys, self.norm, clipped)

    @property
    def squared(self) -> int:
        """The largest squared Euclidean norm of a row."""
        if self.norm is None:
            return self.columns * self.reach**2
        rest = self.columns - self.clipped
        return min(self.norm**2, self.clipped * self.reach**2) + rest * self.reach**2

    @property
    def longest(self) -> int:
        """The largest coordinate of a row."""
        if self.norm is None or self.clipped < self.columns:
            return self.reach
        return min(self.norm, self.reach)


def clip(rows: Floats, norm: int, clipped: int) -> Floats:
    """The rows, the first coordinates shortened to the norm where they are longer.

    Claim: a row's new coordinates are whole, and their Euclidean norm is at most ``norm``.
    Why: the squared length is a whole number below 2**53, so it is exact; roots, divisions and
        products of doubles are rounded correctly one by one, by at most 2**-53 of their size each,
        less than the 2**-40 taken off; cutting off digits only shortens. All depends on the row.
    """
    part = rows[:, :clipped]
    squared = np.einsum("ij,ij->i", part, part)
    far = squared > float(norm) ** 2
    if not far.any():
        return rows
    scale = norm * (1 - 2.0**-40) / np.sqrt(squared[far])
    found = rows.copy()
    found[far, :clipped] = np.trunc(part[far] * scale[:, None])
    return found


def times(rows: Floats, weights: Floats) -> Floats:
    """Rows times a matrix, in pieces that a BLAS does not spread over threads.

    For thin matrices threads cost more than they give, ten times as much where processors are busy.
    """
    found = np.empty((len(rows), weights.shape[1]))
    step = _piece(rows.shape[1] * weights.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        np.matmul(rows[part], weights, out=found[part])
    return found


def across(left: Floats, right: Floats) -> Floats:
    """The sum over rows of left ⊗ right, in pieces as in `times`."""
    found = np.zeros((left.shape[1], right.shape[1]))
    step = _piece(left.shape[1] * right.shape[1])
    for start in range(0, len(left), step):
        part = slice(start, start + step)
        found += left[part].T @ right[part]
    return found


def _piece(work: int) -> int:
    """How many rows, if each takes so many products."""
    return max(_PIECE_MIN, _PRODUCTS_AT_ONCE // work)
