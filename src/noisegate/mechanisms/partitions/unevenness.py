"""How uneven a row of cells is: by how much the fuller half of it outweighs the emptier half.

The row is cut into a few equal stretches. Those that hold more are one half, those that hold less
the other, wherever they lie.

>>> flat, hump = np.full(64, 5), np.repeat([1, 9, 9, 1], 16)
>>> [excess(cells, 8) for cells in (flat, hump)]
[0, 256]
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.partitions.boxes import require_table
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent
from noisegate.transforms.query import Query

_PARTS_MAX: Final = 64


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Unevenness(base.Mechanism[L1]):
    """Releases the `excess` of a row's fuller half plus two-sided geometric noise."""

    name: ClassVar[str] = "unevenness/1"
    takes: ClassVar[base.Takes] = base.Takes.L1
    scale: Fraction
    parts: int

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=Geometric.LEAST, most=Geometric.MOST)
        base.require_whole(self, "parts", least=2, most=_PARTS_MAX)
        if self.parts % 2:
            raise SpecError("The number of parts is odd.", fix="Use an even number of parts.")

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """The cells of one sum, as a row."""
        self.require_cells((require_table(query),))

    def event(self, sensitivity: L1, /) -> GeometricEvent:
        """What one use is.

        Claim: on cells of L1 sensitivity s this is (s / scale)-differentially private.
        Adjacency: that of ``sensitivity``.
        Why: the excess is the largest, over all choices of half of the parts, of what these hold
            less what the others hold. Each such number takes every cell once, with + or -, so it
            moves by at most s if the cells do, and so does the largest of them. The rest is the
            geometric mechanism on one whole number of sensitivity s [GRS09].
        Rounding: none. Cells are clamped first, which moves no two of them further apart.
        """
        return GeometricEvent(scale=self.scale, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The excess plus noise: one number."""
        self.require_cells(exact.shape)
        value = np.array(
            [excess(base.clamped(exact, base.INPUT_MAX // exact.size), self.parts)], np.int64
        )
        return Geometric(scale=self.scale).sample(value, bits=bits)

    def require_cells(self, shape: tuple[int, ...]) -> None:
        """Refuse what is not a row, or has not enough cells for the parts."""
        if len(shape) != 1 or shape[0] < self.parts:
            raise SpecError(
                "There are too few cells.",
                fix=f"Give a row of {self.parts} or more.",
                about="cells",
            )


def excess(cells: Int64Array, parts: int) -> int:
    """What the fuller half of so many equal stretches holds more than the emptier half."""
    starts = np.arange(parts) * cells.size // parts
    held = np.sort(np.add.reduceat(cells, starts))
    return int(held[parts // 2 :].sum() - held[: parts // 2].sum())
