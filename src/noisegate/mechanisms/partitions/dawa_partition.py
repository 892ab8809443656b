"""A partition of cells into stretches that are nearly even: the first stage of DAWA.

Candidates are stretches of 2^k cells that start at multiples of a quarter of their length. A
stretch costs the sum of its distances to its median, which is whole and moves by at most 1 with a
cell, plus a public penalty, less geometric noise. The cheapest partition is released, by dynamic
programming over the noisy costs alone. Ties go to the longer last stretch, then to the one before.

>>> cells = np.array([7] * 8 + [90] * 8)
>>> DawaPartition(scale=Fraction(1, 100), penalty=3).sample(cells)
array([0, 8])
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.partitions.boxes import require_table
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, geometric
from noisegate.privacy.distance import L1
from noisegate.privacy.event import DeclaredEvent
from noisegate.transforms.query import Query

PENALTY_MAX: Final = 1 << 40
CELLS_MAX: Final = 1 << 24
_COST_MAX: Final = 1 << 60  # of all stretches of a partition, without noise


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DawaPartition(base.Mechanism[L1]):
    """Releases the first cells of the stretches of the cheapest partition, in rising order.

    With ``sides`` the cells are those of a table of that shape, taken in the order of `walk`.
    """

    name: ClassVar[str] = "dawa-partition/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    scale: Fraction
    penalty: int
    sides: tuple[Fraction, ...] = ()

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        base.require_whole(self, "penalty", least=0, most=PENALTY_MAX)
        sides = tuple(positive(side, name="side") for side in self.sides)
        if any(side.denominator != 1 for side in sides) or len(sides) == 1:
            raise SpecError("The sides are not those of a table.", fix="Give two or more, whole.")
        base.store(self, "sides", sides)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, penalty: int, shape: tuple[int, ...] = ()
    ) -> "DawaPartition":
        """The least noise whose event costs exactly ``epsilon`` for cells that move by 1."""
        sides = tuple(Fraction(side) for side in shape) if len(shape) > 1 else ()
        scale = 2 / positive(epsilon, name="epsilon")
        return cls(scale=scale, penalty=penalty, sides=sides)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """The cells of one sum, as a row, or as a table of these sides."""
        require_table(query, self.sides)

    def event(self, sensitivity: L1, /) -> DeclaredEvent:
        """What releasing the partition is.

        Claim: (2 s / scale)-differentially private for cells of L1 sensitivity s.
        Adjacency: that of ``sensitivity``.
        Why: [LHMW14, Thm 3] with smaller noise. Let one cell move by 1, and fix a partition; b is
            its stretch that holds the cell. Fix all noise but that of b. The partition is released
            exactly if it comes before all others with b, which depends neither on the cell nor on
            the noise of b, and before all others without b: if cost(b) - G(b) < T, in the order
            that breaks ties, where T is the least of those others less the rest of this one. Each
            of those others has one stretch with the cell, so T moves by at most 1, and so does
            cost(b), as the least of Σ|x - m| over m does. So the bar that G(b) must reach moves by
            at most 2, and Pr[G ≥ t] = e^(-t/scale) for t ≥ 0 (1 below) changes by at most
            e^(2/scale). Ties are broken by a fixed order, as if it were an infinitely small part
            of the cost. A change of s steps of 1 is s times that. Every stretch needs its noise,
            also one of a single cell, whose cost is 0.
        Rounding: none; costs are whole.
        """
        return DeclaredEvent(epsilon=2 * sensitivity.value / self.scale)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """Where the stretches start: 0 first."""
        if exact.ndim != 1 or not 1 <= exact.size <= CELLS_MAX:
            raise SpecError(
                "The cells are not one-dimensional.", fix=f"Give 1 to {CELLS_MAX} cells."
            )
        values = base.clamped(exact, _COST_MAX // (4 * exact.size))
        if self.sides:
            values = values[walk(tuple(int(side) for side in self.sides))]
        costs = [
            [
                evenness(part) + self.penalty - geometric(self.scale, part.shape[0], bits=bits)
                for part in shifted(values, level)
            ]
            for level in range(values.size.bit_length())
        ]
        return cheapest(costs, values.size)


def shifts(level: int) -> int:
    """How many starts a stretch of 2^level cells has within its own length."""
    return min(4, 1 << level)


def shifted(values: Int64Array, level: int) -> list[Int64Array]:
    """All stretches of a level: for each shift, the rows of an array."""
    length, steps = 1 << level, shifts(level)
    parts = []
    for start in range(0, length, length // steps):
        count = max(0, values.size - start) >> level
        parts.append(values[start : start + (count << level)].reshape(count, length))
    return parts


def evenness(parts: Int64Array) -> Int64Array:
    """The least Σ|x - m| over m of each row: its upper half less its lower half."""
    half = parts.shape[1] // 2
    if not half or not parts.shape[0]:
        return np.zeros(parts.shape[0], np.int64)
    ordered = np.partition(parts, half, axis=1)
    found: Int64Array = ordered[:, half:].sum(axis=1) - ordered[:, :half].sum(axis=1)
    return found


def cheapest(costs: list[list[Int64Array]], cells: int) -> Int64Array:
    """The starts of the cheapest partition. Of equals, the longer last stretch wins."""
    tables = [[part.tolist() for part in level] for level in costs]
    best, lengths = [0] * (cells + 1), [0] * (cells + 1)
    for end in range(1, cells + 1):
        least, length = None, 0
        for level, table in enumerate(tables):
            size = 1 << level
            start = end - size
            if start < 0:
                break
            quarter = size // len(table)
            if start % quarter:
                break  # and so at all higher levels
            cost = best[start] + table[(start % size) // quarter][start >> level]
            if least is None or cost <= least:
                least, length = cost, size
        best[end], lengths[end] = least or 0, length
    starts, end = [], cells
    while end:
        end -= lengths[end]
        starts.append(end)
    return np.array(starts[::-1], np.int64)


def walk(shape: tuple[int, ...]) -> Int64Array:
    """All places of a table along a Hilbert curve, so that near ones are near [Ski04].

    >>> walk((2, 2)).tolist()
    [0, 1, 3, 2]
    """
    axes = list(np.indices(shape).reshape(len(shape), -1))
    digits = max(1, (max(shape) - 1).bit_length())
    for power in range(digits - 1, 0, -1):
        low = (1 << power) - 1
        for axis in range(len(axes)):
            is_set = (axes[axis] >> power) & 1
            swap = (axes[0] ^ axes[axis]) & low & (is_set - 1)
            axes[0] = axes[0] ^ (low & -is_set) ^ swap
            axes[axis] = axes[0] if axis == 0 else axes[axis] ^ swap
    for axis in range(1, len(axes)):
        axes[axis] = axes[axis] ^ axes[axis - 1]
    flip = np.zeros_like(axes[0])
    for power in range(digits - 1, 0, -1):
        flip ^= ((1 << power) - 1) & -((axes[-1] >> power) & 1)
    place = np.zeros_like(axes[0])
    for digit in range(digits - 1, -1, -1):
        for along in axes:
            place = place << 1 | ((along ^ flip) >> digit) & 1
    return np.argsort(place, kind="stable").astype(np.int64)
