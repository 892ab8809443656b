"""Means that single values hardly move, with noise by what one value can do to them.

A trimmed mean leaves out a share of the values at each end. Huber's estimate is where the values
balance if none pulls further than ``clip``. Bounds of a column may then be wide: the noise is
scaled to the middle of the values, or to how many lie around the estimate, not to the bounds.

>>> from noisegate.mechanisms.smooth.smooth import SmoothStudent
>>> noise = SmoothStudent.for_epsilon(1, low=0, high=1000)
>>> trimmed_reaches(np.array([9, 1, 2, 990, 3, 4]), Fraction(1, 5), noise)[0]  # of 2, 3, 4, 9
4
>>> huber_reaches(np.array([9, 1, 2, 990, 3, 4]), 5, noise)[0]
5
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import fraction, shown
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import INPUT_MAX, clamped, require_whole, store
from noisegate.mechanisms.smooth.local_quantile import OfValues
from noisegate.mechanisms.smooth.smooth import LocalNoise, require_local
from noisegate.noise.chunks import Int64Array

_DENOMINATOR_MAX: Final = 10**6
_RANGE_MAX: Final = 1 << 30  # of values, so that 2**31 of them, from low on, add up in 62 bits


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTrimmedMean(OfValues):
    """The mean of values without ⌊trim · n⌋ at each end, or ``low`` of none, with ``noise``."""

    name: ClassVar[str] = "local-trimmed-mean/1"
    trim: Fraction
    noise: LocalNoise

    def __post_init__(self) -> None:
        exact = fraction(self.trim, name="trim")
        if not 0 < exact < Fraction(1, 2) or exact.denominator > _DENOMINATOR_MAX:
            raise SpecError(
                f"trim is {shown(exact)}.",
                fix="Use the share to leave out at each end, such as 0.1; below 1/2.",
                about="trim",
            )
        store(self, "trim", exact)
        _require_noise(self.noise)

    def handed(self, exact: Int64Array) -> Int64Array:
        """What the noise is given: the mean, then its reaches. Exact: never leaves the door."""
        value, reaches = trimmed_reaches(clamped(exact).ravel(), self.trim, self.noise)
        return np.array([value, *reaches])


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHuber(OfValues):
    """Huber's estimate: the least g with Σ clamp(x - g, ±clip) ≤ 0, with ``noise``."""

    name: ClassVar[str] = "local-huber/1"
    clip: int
    noise: LocalNoise

    def __post_init__(self) -> None:
        require_whole(self, "clip", least=1, most=INPUT_MAX)
        _require_noise(self.noise)

    def handed(self, exact: Int64Array) -> Int64Array:
        """What the noise is given: the estimate, then its reaches. Exact: never leaves the door."""
        value, reaches = huber_reaches(clamped(exact).ravel(), self.clip, self.noise)
        return np.array([value, *reaches])


def _require_noise(noise: LocalNoise) -> None:
    require_local(noise)
    if noise.high - noise.low > _RANGE_MAX:
        raise SpecError(
            "The grid of the values is too fine.", fix=f"Use at most {_RANGE_MAX:,} steps."
        )


def trimmed_reaches(values: Int64Array, trim: Fraction, noise: LocalNoise) -> tuple[int, list[int]]:
    """The trimmed mean, rounded down, and its reaches A_0, A_1 and so on.

    Let x_1 ≤ … ≤ x_n be the values, x_i = low for i < 1 and high for i > n, t = ⌊trim n⌋ and
    m = n - 2t those in the middle, T their mean and W_k = x_{n-t+1+k} - x_{t-k}.

    Claim: A_k = ⌊W_k / (m - k - 1)⌋ + 1, or the range where m - k - 1 < 1. One more or one less
        value moves ⌊T⌋ by at most A_0, and A_k(x) ≤ A_{k+1}(x').
    Adjacency: add/remove one value.
    Why: trim < 1/2, so one more value changes t by 0 or 1 and m by 1 or -1. Let y come. If t stays,
        the middle gains c = clamp(y, x_t, x_{n-t+1}), and T' - T = (c - T) / (m + 1). If t grows,
        the middle gains clamp(y, x_{t+1}, x_{n-t}) and loses x_{t+1} and x_{n-t}: together it
        loses a d in [x_{t+1}, x_{n-t}], and T' - T = (T - d) / (m - 1). T lies there too, so both
        are at most W_0 / (m - 1). Let y go. If t stays, the middle loses a value of its own, which
        is at most W_0 / (m - 1) likewise. If t shrinks, it is the second case seen from x': at most
        (x'_{n'-t'} - x'_{t'+1}) / (m' - 1) = (x'_{n-t} - x'_t) / m, and x'_{n-t} ≤ x_{n-t+1},
        x'_t ≥ x_t. Rounding down adds at most 1.
        For the second part: with one more value x'_i ≤ x_i ≤ x'_{i+1}, and n' - t' is n - t or
        n - t + 1, t' is t or t + 1; so x_{n-t+1+k} ≤ x'_{n-t+2+k} ≤ x'_{n'-t'+1+k+1} and
        x_{t-k} ≥ x'_{t-k} ≥ x'_{t'-k-1}. With one less, x'_{i-1} ≤ x_i ≤ x'_i, n' - t' is n - t - 1
        or n - t, t' is t or t - 1: x_{n-t+1+k} ≤ x'_{n-t+1+k} ≤ x'_{n'-t'+1+k+1} and
        x_{t-k} ≥ x'_{t-k-1} ≥ x'_{t'-k-1}. So W_k(x) ≤ W_{k+1}(x'), and m' ≤ m + 1 makes
        m' - (k + 1) - 1 ≤ m - k - 1.
    Rounding: none but those stated; all numbers are whole.
    """
    held = np.sort(np.clip(values, noise.low, noise.high))
    count = held.size
    cut = trim.numerator * count // trim.denominator
    middle = count - 2 * cut
    above_low = held[cut : count - cut] - noise.low  # sums of values far from 0 would wrap
    value = noise.low + (int(above_low.sum()) // middle if middle > 0 else 0)
    depth = max(0, min(noise.depth, middle - 1))
    steps = np.arange(depth)
    ends = np.concatenate([[noise.low], held, [noise.high]])  # x_0, …, x_{n+1}
    above = ends[np.minimum(count - cut + 1 + steps, count + 1)]
    below = ends[np.maximum(cut - steps, 0)]
    return value, ((above - below) // (middle - steps - 1) + 1).tolist()


def huber_reaches(values: Int64Array, clip: int, noise: LocalNoise) -> tuple[int, list[int]]:
    """The estimate θ = g(0), and its reaches A_0, A_1 and so on.

    Let G(g) = Σ clamp(x - g, ±clip), which falls in g, and g(v) the least whole g in low, …, high
    with G(g) ≤ v; high if there is none.

    Claim: A_k = max(g(-(k+1)c) - g(kc), g(-kc) - g((k+1)c)) with c = clip. One more or one less
        value moves θ by at most A_0, and A_k(x) ≤ A_{k+1}(x').
    Adjacency: add/remove one value. It holds for every ψ between ±c that does not fall, and so for
        all such M-estimates.
    Why: a value changes G by at most c everywhere. If G' ≤ G + v and G ≤ G' + v everywhere,
        then G'(g) ≤ u implies G(g) ≤ u + v, and G(g) ≤ u - v implies G'(g) ≤ u: so
        g(u + v) ≤ g'(u) ≤ g(u - v). With u = 0 and v = c, θ' lies between g(c) and g(-c), as θ
        does, which is A_0. With v = c and all u, g(kc) ≥ g'((k+1)c) and
        g(-(k+1)c) ≤ g'(-(k+2)c), and likewise the others: A_k(x) ≤ A_{k+1}(x').
    Rounding: none; all numbers are whole, and sums that wrap at 2**64 do so in both of the terms
        whose difference is taken. After the depth, reaches count as the range.
    """
    held = np.sort(np.clip(values, noise.low, noise.high))
    depth = min(noise.depth, held.size)  # beyond it no value pulls back: the range
    levels = clip * np.arange(-depth, depth + 1)
    found = _least(held, clip, levels, noise)  # of -depth, …, depth: it falls
    down, up = found[depth:], found[depth::-1]  # g(kc) and g(-kc), from k = 0 on
    reaches = np.maximum(up[1:] - down[:-1], up[:-1] - down[1:])
    return int(found[depth]), reaches.tolist()


def _least(held: Int64Array, clip: int, levels: Int64Array, noise: LocalNoise) -> Int64Array:
    """For each level the least g with G(g) ≤ level, by halving the range."""
    sums = np.concatenate([[0], np.cumsum(held)])
    low = np.full(levels.size, noise.low, np.int64)
    high = np.full(levels.size, noise.high, np.int64)
    while (low < high).any():
        middle = low + (high - low) // 2
        enough = _pull(held, sums, clip, middle) <= levels
        high, low = np.where(enough, middle, high), np.where(enough, low, middle + 1)
        low = np.minimum(low, high)
    return high


def _pull(held: Int64Array, sums: Int64Array, clip: int, at: Int64Array) -> Int64Array:
    """G at each point: those within the clip pull by how far they are, others by the clip."""
    first = np.searchsorted(held, at - clip, side="left")
    last = np.searchsorted(held, at + clip, side="right")
    inside = sums[last] - sums[first] - at * (last - first)
    return inside + clip * (held.size - last - first)
