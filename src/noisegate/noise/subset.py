"""Some of many places, all choices equally likely, in work proportional to how many are chosen."""

import numpy as np

from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import CHUNK, Places, whole


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
        found = np.unique(np.concatenate([found, _below(bound, count - found.size, bits)]))
    return found


def _below(bound: int, count: int, bits: Bits) -> Places:
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
