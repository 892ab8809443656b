"""The fast path: sixteen random bits and one look-up per draw, exact by construction.

A table cuts [0, 1) into 2**16 cells. A cell that lies inside one outcome's interval holds that
outcome; the few cells that a boundary F(k) cuts are marked, and a draw that falls there reveals 48
more bits and searches the boundaries at 64 bits; a draw that still sits on a boundary (about one in
2**48 of those) is settled by `draw_by_inversion`. No step rounds: each one either proves
the outcome or asks for more bits, so the drawn law is the claimed law.
"""

from functools import lru_cache
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.noise.bits import Bits, Words
from noisegate.noise.chunks import IntArray
from noisegate.noise.law import Law, draw_by_inversion

_SMALL: Final = 1 << 12


@final
@dataclass(frozen=True)
class Widths:
    """How many bits each stage reveals. Tests shrink them to walk the whole tree of bits."""

    first: int = 16
    key: int = 64
    more: int = 64


class Table:
    """One law, ready to be drawn from. Immutable after construction, so threads may share it."""

    def __init__(self, law: Law, widths: Widths = Widths()) -> None:  # noqa: B008 - frozen
        self._law, self._widths = law, widths
        self._lowest, boundaries = _boundaries(law, widths.key)
        ceiling = (1 << widths.key) - 1
        # A key in [first, last] may lie on either side of the boundary: it is left to inversion.
        # F rises, so a bound of F(k) from below (above) may be raised to that of F(k - 1).
        first = np.array([min(lo, ceiling) for lo, _ in boundaries], np.uint64)
        last = np.array([min(max(hi - 1, lo), ceiling) for lo, hi in boundaries], np.uint64)
        self._first, self._last = np.maximum.accumulate(first), np.maximum.accumulate(last)
        self._cells: IntArray | None = None

    def sample(self, count: int, bits: Bits) -> IntArray:
        """``count`` independent draws, in the smallest integer type that holds likely outcomes."""
        if self._cells is None and count < _SMALL:
            return self._by_search(bits.words(count, self._widths.key), bits)
        cells = self._cells if self._cells is not None else self._fill()
        words = bits.words(count, self._widths.first)
        out = np.take(cells, words, mode="clip")  # in range by their width; "clip" skips a copy
        open_draws = np.flatnonzero(out == _undecided(out.dtype))
        if open_draws.size:
            settled = self._refine(words[open_draws], bits)
            out = _widened(out, settled)
            out[open_draws] = settled
        return out

    def _refine(self, words: Words, bits: Bits) -> IntArray:
        rest = self._widths.key - self._widths.first
        keys = words.astype(np.uint64) << np.uint64(rest)
        return self._by_search(keys | bits.words(words.size, rest).astype(np.uint64), bits)

    def _by_search(self, keys: Words, bits: Bits) -> IntArray:
        index, unsettled = self._search(keys)
        out: IntArray = index + self._lowest
        for lane in np.flatnonzero(unsettled):
            out[lane] = draw_by_inversion(
                self._law, int(keys[lane]), self._widths.key, bits, more=self._widths.more
            )
        return out

    def _search(self, keys: Words) -> tuple[IntArray, NDArray[np.bool_]]:
        """Per key: how many boundaries may lie at or below it, and whether that is unproven."""
        index = np.searchsorted(self._first, keys.astype(np.uint64), side="right")
        outside = (index == 0) | (index == self._first.size)
        return index, outside | (self._last[index - 1] >= keys)

    def _fill(self) -> IntArray:
        size, rest = 1 << self._widths.first, self._widths.key - self._widths.first
        low = np.arange(size, dtype=np.uint64) << np.uint64(rest)
        high = low + np.uint64((1 << rest) - 1)
        (at_low, open_low), (at_high, open_high) = self._search(low), self._search(high)
        outcomes = at_low + self._lowest
        dtype = np.dtype(np.int16 if np.abs(outcomes).max() < 1 << 15 else np.int64)
        undecided = open_low | open_high | (at_low != at_high)
        self._cells = np.where(undecided, _undecided(dtype), outcomes).astype(dtype)
        return self._cells


@lru_cache(maxsize=256)
def table_for(law: Law) -> Table:
    """The table of a law, built once. The cache key is the law's public parameters."""
    return Table(law)


def _boundaries(law: Law, width: int) -> tuple[int, list[tuple[int, int]]]:
    """The lowest k that matters at ``width`` bits, and enclosures of F(k), F(k + 1), … up to 1."""
    upwards = [law.cdf(law.start, width)]
    while upwards[-1][1] < 1 << width:
        upwards.append(law.cdf(law.start + len(upwards), width))
    downwards = upwards[:1]
    while downwards[-1][0] > 0:
        downwards.append(law.cdf(law.start - len(downwards), width))
    return law.start + 1 - len(downwards), [*reversed(downwards[1:]), *upwards]


def _undecided(dtype: "np.dtype[Any]") -> int:
    return int(np.iinfo(dtype).min)


def _widened(out: IntArray, settled: IntArray) -> IntArray:
    """Room for outcomes beyond the table: they come from inversion alone, once in 2**64 draws."""
    info = np.iinfo(out.dtype)
    fits = settled.size == 0 or (settled.min() > info.min and settled.max() <= info.max)
    return out if fits else out.astype(np.int64)
