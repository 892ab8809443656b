"""A sample of fixed size from geometric noise on up to 2**64 cells: priority sampling.

Every noisy cell v ≥ θ has a mark U, uniform on {1, …, 2**24}, and the priority Q = ⌊v 2**32 / U⌋,
in units of 1/256; of equal ones the lower cell goes first. The ``size`` cells of highest priority
are shown, as max(256 v, Q₁) where Q₁ is the highest priority of the others.

Cells without rows are drawn by levels, from high priorities down, until there are enough. Q is at
least 256 · 2**j exactly where U ≤ v 2**(24-j), that is, where v ≥ A with A = ⌈U / 2**(24-j)⌉, which
is uniform on {1, …, 2**j}: the law of `marked_tails` at τ = 2**j.
"""

from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, final

import numpy as np

from noisegate.exact import Number, Real, lower
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import require_whole, store_positive
from noisegate.mechanisms.keys import sparse_geometric
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Places
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN
from noisegate.noise.law import Certified
from noisegate.noise.uniform import uniform_below
from noisegate.planning.calibrate import geometric_scale
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent

GRAINS: Final = 256  # what is shown is in units of 1 / GRAINS
_BITS: Final = 24  # of U, and the highest level
_LARGE: Final = 1 << 30  # priorities treat larger values alike


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparsePriority(sparse_geometric.Summarised):
    """Shows ``size`` of the noisy cells v ≥ threshold, large ones more likely, in 256ths."""

    name: ClassVar[str] = "sparse-priority/1"
    scale: Fraction
    domain: int
    threshold: int
    size: int

    def __post_init__(self) -> None:
        store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        require_whole(self, "domain", least=1, most=sparse_geometric.DOMAIN_MAX)
        require_whole(self, "threshold", least=1, most=sparse_geometric.MARK_MAX)
        require_whole(self, "size", least=1, most=sparse_geometric.SHOWN_MAX >> 4)
        sparse_geometric.require_few(self._chance(self._first_level()), self.domain)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, sensitivity: L1, domain: int, threshold: int, size: int
    ) -> "SparsePriority":
        """The least noise whose event costs exactly ``epsilon``."""
        scale = geometric_scale(epsilon, sensitivity=sensitivity)
        return cls(scale=scale, domain=domain, threshold=threshold, size=size)

    def event(self, sensitivity: L1, /) -> GeometricEvent:
        """What one use is.

        Claim: (s / scale)-differentially private, as the geometric mechanism on all cells.
        Adjacency: that of ``sensitivity``, over all cells of the domain together.
        Why: what leaves has exactly the law of a sample of all noisy cells, which is
            post-processing [CPST12, DLT07]. Every cell of at least the last level's priority is
            drawn, so the highest ones are among them. Rounding: none.
        """
        return GeometricEvent(scale=self.scale, sensitivity=sensitivity)

    def summary(
        self, cells: Places, counts: Int64Array, *, bits: Bits = SYSTEM
    ) -> sparse_geometric.Summary:
        """See `Summarised`. Numbers are in 256ths."""
        values = sparse_geometric.noisy_counts(cells, counts, self.domain, self.scale, bits)
        marks = 1 + uniform_below(1 << _BITS, values.size, bits=bits)
        kept = values >= self.threshold
        taken, shown, values = cells, cells[kept], values[kept]
        ranks = _priorities(values, marks[kept])
        level, above = self._first_level(), None
        while True:
            others = sparse_geometric.free_cells(self._band(level, above), self.domain, taken, bits)
            tails, tail_ranks = self._tails(level, above, others.size, bits)
            shown, values = np.concatenate([shown, others]), np.concatenate([values, tails])
            ranks = np.concatenate([ranks, tail_ranks])
            taken = np.sort(np.concatenate([taken, others]))
            enough = np.count_nonzero(ranks >= GRAINS << level) > self.size
            if enough or 1 << level <= self.threshold:
                break
            level, above = level - 1, level
        order = np.lexsort((shown, -ranks))
        bar = int(ranks[order[self.size]]) if order.size > self.size else 0
        order = order[: self.size]
        order = order[np.argsort(shown[order])]  # nothing tells which of them hold rows
        return shown[order], np.maximum(values[order] * GRAINS, bar)

    def _first_level(self) -> int:
        """The highest level at which cells without rows alone are likely enough."""
        return _first_level(
            self.scale, self.threshold, (2 * self.size + 100) / Fraction(self.domain)
        )

    def _chance(self, level: int) -> Certified:
        return _chance(self.scale, self.threshold, level)

    def _band(self, level: int, above: int | None) -> Certified:
        """How likely a cell is of this level, given that it is not of the one above."""
        low = self._chance(level)
        if above is None:
            return low
        high = self._chance(above)

        def compute() -> Real:
            return (low.compute() - high.compute()) / (1 - high.compute())

        return Certified(("band", low.name, high.name), compute)

    def _tails(
        self, level: int, above: int | None, count: int, bits: Bits
    ) -> tuple[Int64Array, Int64Array]:
        """Values and priorities of cells without rows of this level, but not of the one above.

        Why: those of the level above are drawn too and dropped, which leaves the others' law.
        """
        values, ranks = np.empty(count, np.int64), np.empty(count, np.int64)
        lanes = np.arange(count)
        while lanes.size:
            first, tails = sparse_geometric.marked_tails(
                self.scale, self.threshold, 1 << level, lanes.size, bits
            )
            fine = 1 << (_BITS - level)
            marks = (first - 1) * fine + 1 + uniform_below(fine, lanes.size, bits=bits)
            found = _priorities(tails, marks)
            fits = np.ones(lanes.size, np.bool_) if above is None else found < GRAINS << above
            values[lanes[fits]], ranks[lanes[fits]] = tails[fits], found[fits]
            lanes = lanes[~fits]
        return values, ranks


def _chance(scale: Fraction, threshold: int, level: int) -> Certified:
    return sparse_geometric.shown_chance(scale, threshold, max(1 << level, threshold), signed=False)


@lru_cache(maxsize=256)
def _first_level(scale: Fraction, threshold: int, wanted: Fraction) -> int:
    for level in range(_BITS, 0, -1):
        if lower(_chance(scale, threshold, level).compute) >= wanted:
            return level
    return 0


def _priorities(values: Int64Array, marks: Int64Array) -> Int64Array:
    return (np.minimum(values, _LARGE) << (_BITS + 8)) // marks
