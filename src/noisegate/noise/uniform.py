"""Uniform integers below any bound, by rejection."""

from math import prod

import numpy as np

from noisegate.errors import SpecError
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.geometric import Int64Array, Size


def uniform_below(bound: int, size: Size, *, bits: Bits = SYSTEM) -> Int64Array:
    """Integers in {0, …, bound - 1}, all equally likely, for bounds up to 2**63.

    Why: uniform words just wide enough, redrawn while they are at or above the bound.
    """
    if not 1 <= bound <= 1 << 63:
        raise SpecError(f"bound is {bound}.", fix="Use a bound from 1 to 2**63.")
    shape = size if isinstance(size, tuple) else (size,)
    out = np.zeros(prod(shape), np.int64)
    width = (bound - 1).bit_length()
    lanes = np.arange(out.size) if width else np.empty(0, np.int64)
    while lanes.size:
        words = bits.words(lanes.size, width).astype(np.uint64)
        kept = words < np.uint64(bound)
        out[lanes[kept]] = words[kept].astype(np.int64)
        lanes = lanes[~kept]
    return out.reshape(shape)
