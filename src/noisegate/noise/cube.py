"""Continuous noise for a whole cell: density proportional to e^(-max|b| / scale).

A radius with the law of the sum of ``width`` + 1 exponential numbers times the scale, and a uniform
point of the cube of that radius, have this density [HT10]. Real numbers have no end, so what comes
out is a number near each, and how far off it may be.
"""

from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.geometric import geometric
from noisegate.noise.uniform import uniform_below

Floats: TypeAlias = NDArray[np.float64]
_STEPS: Final = 1 << 40  # in which exponential numbers are cut: the law of these is geometric
_HALF: Final = 1 << 52


def cube_noise(
    scale: Fraction, cells: int, width: int, *, bits: Bits = SYSTEM
) -> tuple[Floats, Floats]:
    """Numbers of shape (cells, width), and how far those of each cell may be off.

    Claim: there are independent b of this density, each of whose numbers is as near as is said.
    Why: an exponential number is a whole number of steps and a rest below one step; the steps are
        geometric, and independent of the rest, which is never drawn. A uniform number likewise. So
        the radius is short by less than width + 1 steps, and a number by that and by half of a
        2**52nd of the radius. Rounding: the bound has more than twice the room that doubles need.
    """
    steps = geometric(_STEPS, (cells, width + 1), bits=bits).sum(axis=1)
    radii = steps.astype(np.float64) * (float(scale) / _STEPS)
    places = uniform_below(2 * _HALF, (cells, width), bits=bits) - _HALF
    off = 2 * (width + 2) * float(scale) / _STEPS + radii * 2.0**-49
    return radii[:, None] * ((places + 0.5) / _HALF), off
