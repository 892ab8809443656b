"""Noise for a whole cell at once: Pr[z] proportional to e^(-max|z| / scale) over whole vectors z.

With α = e^(-1/scale), α^r = Σ_{s ≥ r} (1 - α) α^s: the law is a mixture of uniform cubes. A radius
s with Pr[s] ∝ (2s + 1)^width α^s is drawn, then each number uniformly from {-s, …, s}.

The radius comes by rejection. The sum of w + 1 geometric numbers has Pr[s] ∝ C(s + w, w) α^s, and
(2s + 1)^w / C(s + w, w) is a constant times the product of (2s + 1) / (2s + 2i) over 1 ≤ i ≤ w:
w coins, each with a rational probability of at most 1, all of which must show 1.

`cube_noise` is continuous noise for a whole cell: density proportional to e^(-max|b| / scale).

A radius with the law of the sum of ``width`` + 1 exponential numbers times the scale, and a uniform
point of the cube of that radius, have this density [HT10]. Real numbers have no end, so what comes
out is a number near each, and how far off it may be.
"""

from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, positive, shown
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import CHUNK, Int64Array, whole
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, geometric
from noisegate.noise.law import SATURATION
from noisegate.noise.uniform import integer_below, uniform_below, uniform_below_each

WIDTH_MAX: Final = 1 << 15
# Geometric numbers from here on are added up as Python integers, so that no sum ever wraps. Twice
# width + 1 smaller ones stay below 2**62.
FAR: Final = 1 << 45


def box_noise(scale: Number, cells: int, width: int, *, bits: Bits = SYSTEM) -> Int64Array:
    """``cells`` independent vectors of ``width`` numbers, Pr[z] ∝ e^(-max|z| / scale) for each.

    Claim: every cell has exactly this law. Why: [HT10] for the law; the mixture of cubes and the
        coins are derived at the top of this file. Rounding: none; numbers are clamped to ±2**62,
        as all noise here. About one radius in e^(width / 2 scale) is kept, so wide cells need a
        large scale.

    >>> box_noise(20, 3, 5).shape
    (3, 5)
    """
    exact = checked_box(scale, width)
    whole(cells, "cells", least=0, below=1 << 40)
    out = np.empty((cells, width), np.int64)
    step = max(1, CHUNK // width)
    for start in range(0, cells, step):
        part = out[start : start + step]
        lanes = np.arange(len(part))
        while lanes.size:
            lanes = lanes[~_fill(part, lanes, exact, bits)]
    return out


def box_fits(scale: Fraction, width: int) -> bool:
    """Whether cells of this width can be drawn: soon enough, and without wrapping."""
    return SCALE_MIN <= scale <= SCALE_MAX and width <= WIDTH_MAX and width <= 8 * scale + 2


def checked_box(scale: Number, width: int) -> Fraction:
    """The scale as an exact number, large enough for this width."""
    exact = positive(scale, name="scale")
    wide = whole(width, "width", least=1, below=WIDTH_MAX + 1)
    if not box_fits(exact, wide):
        raise SpecError(
            f"scale is {shown(exact)} for cells of {wide}.",
            fix="Use a scale between 1/1000 and 2**40, and at least an eighth of the width: a "
            "finer grid has a larger scale.",
        )
    return exact


def _fill(out: Int64Array, lanes: Int64Array, scale: Fraction, bits: Bits) -> NDArray[np.bool_]:
    """Try once for each of these cells; says which of them were filled."""
    width = out.shape[1]
    draws = geometric(scale, (lanes.size, width + 1), bits=bits)
    near = np.asarray((draws < FAR).all(axis=1))
    radii = draws.sum(axis=1, where=near[:, None])
    kept = near & _accepted(radii, width, bits)
    out[lanes[kept]] = _in_cubes(radii[kept], width, bits)
    for place in np.flatnonzero(~near):
        found = _far_cell(draws[place].tolist(), scale, bits)
        if found is not None:
            kept[place], out[lanes[place]] = True, found
    return kept


def _accepted(radii: Int64Array, width: int, bits: Bits) -> NDArray[np.bool_]:
    """Whether all coins of a radius show 1: the i-th one with probability (2s + 1) / (2s + 2i)."""
    places = 2 * radii[:, None] + 2 * np.arange(1, width + 1)
    shown = uniform_below_each(places, bits=bits) <= 2 * radii[:, None]
    return np.asarray(shown.all(axis=1))


def _in_cubes(radii: Int64Array, width: int, bits: Bits) -> Int64Array:
    """For each radius ``width`` uniform numbers of at most that size."""
    reach = np.repeat(radii[:, None], width, axis=1)
    return uniform_below_each(2 * reach + 1, bits=bits) - reach


def _far_cell(draws: list[int], scale: Fraction, bits: Bits) -> list[int] | None:
    """The same with Python integers."""
    radius = sum(_unbounded(draw, scale, bits) for draw in draws)
    width = len(draws) - 1
    if any(integer_below(2 * (radius + i), bits) > 2 * radius for i in range(1, width + 1)):
        return None
    numbers = (integer_below(2 * radius + 1, bits) - radius for _ in range(width))
    return [max(-SATURATION, min(number, SATURATION)) for number in numbers]


def _unbounded(draw: int, scale: Fraction, bits: Bits) -> int:
    """A geometric number of any size: it has no memory, so beyond FAR it begins again."""
    total = 0
    while draw >= FAR:
        total, draw = total + FAR, int(geometric(scale, 1, bits=bits)[0])
    return total + draw


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
