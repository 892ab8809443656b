"""Units that the noise of a look hides, as caps are chosen: how many of which size there may be.

Bars are made by `hidden.py`, which knows more laws. By this model caps of averages and quantiles
are chosen and the largest cap of counts and sums, so that answers are found where they were paid.

The look is noisy numbers of units in bins that grow by a constant factor. Beyond the last bin that
stands clear of noise, single large units may hold much of all rows. Let t be the logarithm of a
size, from that bin on. What is taken to be, before any number is seen:

- log density(t) = c - a t - b t²/2 - k t⁺ with b, k ≥ 0: Zipf and Pareto sizes (b = k = 0, index a,
  down to 0.35), lognormal ones (b = 1 / σ²), and sizes with a limit (k); or with e^t - 1 - t in
  place of t²/2: exponential, gamma, and nearly Poisson ones. 1 / (1 + a) is spread evenly.
- With some chance there is another group of larger units besides: few enough to be hidden by noise,
  around any size, much alike or not. The more the noise can hide, the larger is the chance, up to a
  scale of 20.
- Tails that hold many times what is seen are less likely than others.

All curves on a grid are weighed by how well they agree with the noisy numbers, the farther back
the less exactly. Of the posterior, even draws are taken: of a curve, and of the numbers of units
that it expects, each a Poisson number; in bins before, of what the look and the curve say together.
So the doubt about the index of a tail, and the chance that a few very large units are there or not,
are both in what is made of the draws.

The draws are the points of Weyl's sequence, so the same look always gives the same answer.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from math import log, sqrt
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.sql.laws.laws import Floats

DRAWS: Final = 1024
_BACK, _AHEAD = 12, 16  # bins before and after the last clear one that curves are fitted to
REACH: Final = 20  # bins beyond it that they are extrapolated to
_MISFIT, _FARTHER = 0.08, 0.03  # of a number: how far a curve may be off; more, a bin back
_FADING: Final = 0.9  # what a bin farther back counts, since curves may bend there
_AWAY: Final = 2.0  # deviations: from there on a clear number is less and less what curves expect
_STRANGE: Final = 6.0  # the most that one bin speaks against a curve
_ROUGH: Final = 0.25  # the same of units beyond the last clear bin
_INDEX: Final = (0.35, 0.6, 0.9, 1.2, 1.5, 1.9, 2.3, 2.8, 3.4, 4.2, 5.5, 8.0, 14.0, 25.0)
_BENDS: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.5, 12.0)
_BENT: Final = (0.2, *[0.8 / 7] * 7)  # how likely they are: tails without a bend are common
_BREAKS: Final = (0.0, 0.0, 4.0)
_SUDDEN: Final = (False, True, False)  # whether they bend ever more
_BROKEN: Final = (0.55, 0.4, 0.05)  # how likely these are
_HEIGHTS: Final = np.linspace(-1.8, 1.2, 13)  # logarithms, from the highest of the last bins
_LESS: Final = 0.7  # tails that hold more than what is seen are less likely, by this power of it
_USUAL: Final = 0.7  # units that are expected less often are left out of what a tail holds
# Units of another group, in scales of the noise; bins beyond the last clear one that it lies
# around; its spread, in bins; how likely each of the first is at a scale of `HIDING`.
_OTHERS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 7.0, 12.0), tuple(range(1, 17, 2)), (0.8, 2.5)
_LIKELY: Final = 0.1 / 7
HIDING: Final = 20.0
_SHARE: Final = 2.0  # of what is seen: groups that hold more are less likely, by the square
_CARRIERS: Final = 24  # curves that a group is added to, by weight
_PRIMES: Final = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73,
                  79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163,
                  167, 173)  # fmt: skip
_FEW, _TERMS = 8.0, 28  # Poisson numbers of a smaller mean are found term by term


@cache
def even(dimension: int) -> Floats:
    """Points that are spread evenly over (0, 1), and over cubes with those of other dimensions."""
    found: Floats = np.arange(1.0, DRAWS + 1) * sqrt(_PRIMES[dimension]) % 1.0
    return found


@cache
def evens() -> Floats:
    """The same for each bin, a column each."""
    return np.stack([even(place + 4) for place in range(REACH)], axis=1)


@cache
def even_normals() -> Floats:
    """The same for each bin."""
    return np.stack([even_normal(place + 4) for place in range(REACH)], axis=1)


@cache
def normals() -> Floats:
    """The same of the standard normal law, for bins that curves are fitted to."""
    return np.stack([even_normal(place + 4 + REACH) for place in range(_BACK + 1)], axis=1)


@cache
def _axes() -> tuple[Floats, ...]:
    """Indices, bends and breaks of all curves of one height."""
    index, bend, place = np.meshgrid(_INDEX, _BENDS, range(len(_BREAKS)), indexing="ij")
    return index, bend, np.array(_BREAKS)[place], np.array(_SUDDEN, np.float64)[place]


@cache
def _prior() -> Floats:
    """Logarithms of how likely these are, before any number is seen."""
    even_index = np.abs(np.gradient(1 / (1 + np.array(_INDEX))))
    found: Floats = np.log(even_index)[:, None, None] + np.log(_BENT)[:, None] + np.log(_BROKEN)
    return found.reshape(-1)


@cache
def even_normal(dimension: int) -> Floats:
    """The same for the standard normal law."""
    from scipy.special import ndtri  # noqa: PLC0415 - only when asked for

    found: Floats = ndtri(even(dimension))
    return found


@cache
def even_laplace(dimension: int) -> Floats:
    """The same for the Laplace law of scale 1."""
    side = 2 * even(dimension) - 1
    found: Floats = -np.sign(side) * np.log1p(-np.abs(side))
    return found


@final
@dataclass(frozen=True, slots=True)
class Bins:
    """Where sizes lie: ``width`` in usual bins, ``log`` of the middle, and the middle itself."""

    width: Floats
    log: Floats
    middle: Floats

    @classmethod
    def of(cls, lows: Floats, highs: Floats, step: float | None) -> "Bins":
        """Multiples of a step reach half of one farther; others begin at an eighth of their end.

        Without a step, sizes from 1 on are whole.
        """
        step = float(lows[0] >= 1) if step is None else step
        low = lows - step / 2 if step else np.maximum(lows, highs / 8)
        high = highs + step / 2
        width = np.log(high / low)
        return cls(width / log(4 / 3), (np.log(low) + np.log(high)) / 2, np.sqrt(low * high))


@final
class Unseen:
    """Even draws of the numbers of units in bins around ``end``, from which on noise hides them."""

    def __init__(self, units: Floats, scale: float, bins: Bins, end: int) -> None:
        self._chance = _LIKELY * min(scale / HIDING, 1.0)
        self._units, self._scale, self._bins, self._end = units, scale, bins, end
        self._last = max(end - 1, 0)
        self._first = max(0, self._last - _BACK)
        self._seen = units[self._first : self._last + 1 + _AHEAD]
        held = float(np.maximum(units[:end], 0.0) @ bins.middle[:end])
        self._held = max(held, scale * float(bins.middle[self._last]))

    @property
    def first(self) -> int:
        """The first bin that curves are fitted to, and units are drawn of."""
        return self._first

    def draws(self) -> tuple[Floats, NDArray[np.bool_]]:
        """A row a draw, a column a bin from `first` on; and which draws have another group.

        A number is between what a curve expects and what the look says, by how sure each is. Clear
        numbers that no curve comes near are what the look says.
        """
        curves, fit, smooth = self._weighed()
        picked = drawn(fit, DRAWS)
        curve = curves[picked, : self._end - self._first + REACH]
        seen = self._units[self._first : self._first + curve.shape[1]]
        misfit = self._misfit[: self._end - self._first]
        return numbers(curve, seen, misfit, self._scale), picked >= smooth

    @cached_property
    def _misfit(self) -> Floats:
        """How far curves may be off in the bins that they are fitted to, of what they expect."""
        found: Floats = _MISFIT + _FARTHER * self._back
        return found

    @cached_property
    def _back(self) -> Floats:
        """How many bins before the last clear one each bin of the fit is."""
        return np.maximum(self._last - self._first - np.arange(self._seen.size), 0.0)

    def _weighed(self) -> tuple[Floats, Floats, int]:
        """Curves from the first bin of the fit on, and the logarithms of their weights.

        The last is how many come first that are without another group.
        """
        curves, prior = self._smooth()
        fit = self._fit(curves) + prior - np.log1p(self._share(curves) ** _LESS)
        groups, likely = self._groups()
        carriers = curves[drawn(fit, _CARRIERS)]
        more = (carriers[:, None] + groups).reshape(-1, curves.shape[1])
        mass = np.log(np.exp(fit - fit.max()).sum()) + fit.max() - log(_CARRIERS)
        gained = self._fit(more) - np.repeat(self._fit(carriers), len(groups))
        added = mass + gained + np.tile(likely, _CARRIERS)
        return np.concatenate([curves, more]), np.concatenate([fit, added]), len(curves)

    def _smooth(self) -> tuple[Floats, Floats]:
        bins, first = self._bins, self._first
        near = slice(max(0, self._last - 2), self._last + 1)
        most = float((self._units[near] / bins.width[near]).max(initial=0.0))
        top = log(max(most, self._scale, 1.0))
        at = bins.log[first:] - bins.log[self._last]
        index, bend, more, sudden = (axis.reshape(-1, 1) for axis in _axes())
        bent = np.where(sudden > 0, np.expm1(at) - at, at**2 / 2)
        line = -index * at - bend * bent - more * np.maximum(at, 0.0)
        shape = bins.width[first:] * np.exp(np.clip(line, -40, 25))
        curves = np.exp(top + _HEIGHTS)[:, None, None] * shape
        return curves.reshape(-1, at.size), np.tile(_prior(), _HEIGHTS.size)

    def _groups(self) -> tuple[Floats, Floats]:
        """Groups of units that noise may hide, and the logarithms of how likely each is."""
        step = np.arange(self._first - self._last, self._units.size - self._last)
        axes = np.meshgrid(*_OTHERS, indexing="ij")
        units, middle, wide = (axis.reshape(-1, 1) for axis in axes)
        shape = np.exp(-(((step - middle) / wide) ** 2) / 2)
        groups = self._scale * units * shape / shape.sum(axis=1, keepdims=True)
        less = np.log1p((self._share(groups) / _SHARE) ** 2)
        each = len(groups) // len(_OTHERS[0])
        return groups, np.log(self._chance / each) - less

    def _fit(self, curves: Floats) -> Floats:
        """Logarithms of how likely the noisy numbers are."""
        near = np.ascontiguousarray(curves[:, : self._seen.size])
        spread = self._misfit * near
        spread *= spread
        spread += 2 * self._scale**2 + near
        np.sqrt(spread, out=spread)
        off = self._seen - near
        np.abs(off, out=off)
        off *= sqrt(2)
        off /= spread
        np.minimum(off, _STRANGE, out=off)
        off += np.log(spread, out=spread)
        found: Floats = -off @ _FADING**self._back
        return found

    def _share(self, curves: Floats) -> Floats:
        """What units beyond the last clear bin usually add up to, of what all others do."""
        beyond = self._end - self._first
        tail = curves[:, beyond : beyond + REACH]
        more = np.cumsum(tail[:, ::-1], axis=1)[:, ::-1]  # units expected from a bin on
        found: Floats = (tail * (more > _USUAL)) @ self._bins.middle[self._end : self._end + REACH]
        return found / self._held


def drawn(fit: Floats, count: int) -> NDArray[np.intp]:
    """Places, so many, each as often as its weight says."""
    weight = np.cumsum(np.exp(fit - fit.max()))
    at = (np.arange(count) + 0.5) / count * weight[-1]
    found: NDArray[np.intp] = np.minimum(np.searchsorted(weight, at), fit.size - 1)
    return found


def numbers(curve: Floats, seen: Floats, misfit: Floats, scale: float) -> Floats:
    """Numbers of units by what a look has ``seen`` and curves say together, one draw a curve.

    ``misfit``, of the bins that stand clear: how far curves may be off there, of what they expect.
    """
    clear, size = misfit.size, curve.shape[1]
    noise = 2 * scale**2
    off = seen - curve
    rough = np.full(size, _ROUGH)
    rough[:clear] = misfit
    doubt = curve + (rough * curve) ** 2
    told = doubt / (doubt + noise)  # how far the noisy numbers are believed
    far = np.abs(off[:, :clear]) / np.sqrt(doubt[:, :clear] + noise)
    told[:, :clear] += (1 - told[:, :clear]) * np.clip(far / _AWAY - 1, 0.0, 1.0)
    mean = curve + told * off
    found = np.empty((DRAWS, size))
    found[:, :clear] = mean[:, :clear] + np.sqrt(told[:, :clear] * noise) * normals()[:, :clear]
    rest = _ROUGH * np.sqrt(1 - told[:, clear:])
    hidden = np.maximum(mean[:, clear:], 0.0)
    hidden = hidden * np.exp(even_normal(0)[:, None] * rest - rest**2 / 2)
    bins = slice(size - clear)
    found[:, clear:] = poisson(hidden, evens()[:, bins], even_normals()[:, bins])
    return found


def poisson(mean: Floats, at: Floats, normal: Floats) -> Floats:
    """Poisson numbers by their distribution function; large ones by the normal law.

    ``at`` are their places in the distribution, ``normal`` the normal numbers there.
    """
    rare = (mean > 0) & (mean <= _FEW)
    own, at_own = mean[rare], at[rare]
    below, counted = np.exp(-own), np.zeros_like(own)
    left = np.flatnonzero(at_own > below)  # few: most are 0
    own, at_own, below = own[left], at_own[left], below[left]
    term = below.copy()
    for number in range(1, _TERMS):
        if not left.size:
            break
        counted[left] = number
        term *= own / number
        below += term
        more = at_own > below
        left, own, at_own = left[more], own[more], at_own[more]
        below, term = below[more], term[more]
    found: Floats = np.rint(np.maximum(mean + np.sqrt(mean) * normal, 0.0))
    found[~(mean > _FEW)] = 0.0
    found[rare] = counted
    return found
