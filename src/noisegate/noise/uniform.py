"""Uniform integers below any bound, by rejection."""

import numpy as np

from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Size, in_chunks, whole


def uniform_below(bound: int, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Integers in {0, …, bound - 1}, all equally likely, for bounds up to 2**63.

    Why: uniform words just wide enough, redrawn while they are at or above the bound.
    """
    exact = whole(bound, "bound", least=1, below=(1 << 63) + 1)
    return in_chunks(size, lambda count: _below(exact, count, bits))


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
