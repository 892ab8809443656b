"""Where sizes are norms: how many rows a unit of some norm has.

Gaussian noise is calibrated to the Euclidean norm n of what a unit has in all groups, so that is
what a look sees, and what a cap bounds; what is lost are rows m ≥ n. Units with many rows are in
more groups than others: m / n grows with n, and a cap loses more of all rows than of all norms.

The model: rows come in lumps of a size a, and two lumps of a unit are in the same group with a
chance s. Then n² is about a m (1 - s) + m² s. Where groups are what a unit is (its region), s = 1
and m = n; where each lump is in any of g groups, s = 1 / g. What was measured under the cap tells
s: all groups together are Σ m min(1, C / n) over units, with noise. Counts have lumps of one row;
of sums, the lower quartile of norms is taken. Where only some groups are known, or some rows of
each, s is not: see `Sizes.partly`.

>>> norms = np.array([1.0, 10.0, 100.0])
>>> rows_of(norms, 0.25, 1.0).round(1).tolist()
[1.0, 18.6, 198.5]
"""

from math import sqrt
from typing import Final

import numpy as np

from noisegate.sql.laws.laws import Floats

_STEPS: Final = 40  # halvings of the range of s


def rows_of(norms: Floats, alike: float, lump: float) -> Floats:
    """How many rows units of such norms have, if two lumps are ``alike`` with this chance."""
    half = lump * (1 - alike) / 2
    return (np.sqrt(half**2 + alike * norms**2) - half) / alike


def alike_of(
    norms: Floats, units: Floats, cap: float, kept: float, lump: float, *, cells: int
) -> float:
    """The chance s with which so many ``units`` keep so many rows under a cap."""
    held = units * np.minimum(1.0, cap / norms)
    low, high = 1.0 / max(cells, 1), 1.0
    for _ in range(_STEPS):
        middle = sqrt(low * high)
        if float(held @ rows_of(norms, middle, lump)) > kept:
            low = middle
        else:
            high = middle
    return high


def lump_of(norms: Floats, units: Floats) -> float:
    """The lower quartile of norms."""
    more = np.cumsum(np.maximum(units, 0.0))
    place = int(np.searchsorted(more, more[-1] / 4))
    return float(norms[min(place, norms.size - 1)])
