"""The centre of most numbers, and how far a changed one can move it: the centre of attention.

>>> import numpy as np
>>> attention(np.array([5, 6, 7, 1000]), range_end=1024).tolist()  # of 4 numbers, 3 are most
[12, 997, 2019]
"""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

REACHES_MAX: Final = 4096  # a public number; what comes after counts as the whole range


def attention(numbers: NDArray[np.int64], *, range_end: int) -> NDArray[np.int64]:
    """Twice the middle of the shortest interval that holds most numbers, then A_0, A_1, ….

    Numbers lie in 0, …, ``range_end``; the results count halves of a step, and lie in twice that.
    What follows the last A_k is 2 · range_end. Ties between intervals go to the leftmost.

    Claim: for lists of one length that differ in one number, the middles differ by at most A_0 of
        either, and A_k of one is at most A_{k+1} of the other.
    Why: [NRS07]. Let L_t be the length of the shortest interval with t of the m numbers, range_end
        for t > m, and t₀ = ⌊(m + 1) / 2⌋ + 1; A_k = L_{t₀+k} + L_{t₀+k+1}. An interval with t + 1
        numbers of one list holds t of the other, so L_t ≤ L'_{t+1}, and the second claim follows.
        Two intervals with t₀ numbers each share one that is not changed, as 2 (t₀ - 1) > m - 1, so
        their middles are at most half of L_{t₀} + L'_{t₀} ≤ L_{t₀} + L_{t₀+1} apart.
    Rounding: none; all are whole.
    """
    points = np.sort(np.clip(numbers, 0, range_end))
    count = points.size
    most = (count + 1) // 2 + 1
    if most > count:
        return np.array([range_end], np.int64)
    spans = points[most - 1 :] - points[: count - most + 1]
    start = int(spans.argmin())
    middle = int(points[start] + points[start + most - 1])
    listed = range(most, min(count, most + REACHES_MAX) + 1)
    lengths = [int((points[t - 1 :] - points[: count - t + 1]).min()) for t in listed]
    if listed[-1] == count:
        lengths.append(range_end)
    return np.array([middle, *map(sum, pairwise(lengths))], np.int64)
