"""Uniform integers below any bound, or many bounds, by rejection.

Some of many places, all choices equally likely, in work proportional to how many are chosen.
"""

import numpy as np
from numpy.typing import NDArray

from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import CHUNK, Int64Array, Places, Size, in_chunks, whole


def uniform_below(bound: int, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Integers in {0, …, bound - 1}, all equally likely, for bounds up to 2**63.

    Why: uniform words just wide enough, redrawn while they are at or above the bound.
    """
    exact = whole(bound, "bound", least=1, below=(1 << 63) + 1)
    return in_chunks(size, lambda count: _below(exact, count, bits))


def uniform_below_each(bounds: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
    """One such integer for each of many bounds from 1 to 2**62.

    Why: the low bits of a uniform word are uniform, so each lane takes as many as its bound has.
    """
    flat = bounds.reshape(-1).astype(np.uint64) - np.uint64(1)
    out = np.zeros(flat.size, np.uint64)
    for start in range(0, flat.size, CHUNK):
        last, part = flat[start : start + CHUNK], out[start : start + CHUNK]
        width, masks = int(last.max()).bit_length(), _ones(last)
        lanes = np.flatnonzero(last)
        while lanes.size:
            words = bits.words(lanes.size, width).astype(np.uint64) & masks[lanes]
            kept = words <= last[lanes]
            part[lanes[kept]] = words[kept]
            lanes = lanes[~kept]
    return out.astype(np.int64).reshape(bounds.shape)


def integer_below(bound: int, bits: Bits) -> int:
    """The same for one bound of any size."""
    while (found := bits.integer((bound - 1).bit_length())) >= bound:
        pass
    return found


def _ones(last: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each number the least 2**n - 1 that reaches it."""
    masks = last.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        masks |= masks >> np.uint64(shift)
    return masks


def _below(bound: int, count: int, bits: Bits) -> Int64Array:
    out = np.zeros(count, np.int64)
    width = (bound - 1).bit_length()
    lanes = np.arange(count) if width else np.empty(0, np.int64)
    while lanes.size:
        words = bits.words(lanes.size, width).astype(np.uint64)
        kept = words < np.uint64(bound)
        out[lanes[kept]] = words[kept].astype(np.int64)
        lanes = lanes[~kept]
    return out


def subset(bound: int, count: int, *, bits: Bits = SYSTEM) -> Places:
    """``count`` different numbers below ``bound`` ≤ 2**64, in rising order.

    Claim: every set of this size is equally likely. Why: the set is that of the first ``count``
        different values in a row of independent uniform draws, which no permutation of the values
        changes: each round draws as many as are missing, so it never passes the last one needed.
        Of more than half of all places, those that are left out are drawn instead.

    >>> subset(3, 3), subset(1 << 64, 2).size
    (array([0, 1, 2], dtype=uint64), 2)
    """
    bound = whole(bound, "bound", least=0, below=(1 << 64) + 1)
    count = whole(count, "count", least=0, below=bound + 1)
    if 2 * count > bound:
        kept = np.ones(bound, np.bool_)
        kept[subset(bound, bound - count, bits=bits).astype(np.int64)] = False
        return np.flatnonzero(kept).astype(np.uint64)
    found = np.empty(0, np.uint64)
    while found.size < count:
        found = np.unique(np.concatenate([found, _places_below(bound, count - found.size, bits)]))
    return found


def _places_below(bound: int, count: int, bits: Bits) -> Places:
    """Uniform numbers below the bound: words just wide enough, redrawn while they are too large."""
    out = np.zeros(count, np.uint64)
    width, last = (bound - 1).bit_length(), np.uint64(bound - 1)
    for start in range(0, count if width else 0, CHUNK):
        part = out[start : start + CHUNK]
        lanes = np.arange(part.size)
        while lanes.size:
            words = bits.words(lanes.size, width).astype(np.uint64)
            kept = words <= last
            part[lanes[kept]] = words[kept]
            lanes = lanes[~kept]
    return out
