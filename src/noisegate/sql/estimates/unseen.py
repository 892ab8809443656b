"""Units that the noise of a look hides: how many of which size there may be.

The look is noisy numbers of units in bins that grow by a constant factor. Beyond the last bin that
stands clear of noise, single large units may hold much of all rows. Let t be the logarithm of a
size, from that bin on, and density(t) = e^(c - a t - …). What is taken to be, before any number is
seen, are the curves of a model, and beside each there may be a group of larger units: few enough to
be hidden by noise, around any size. The more the noise can hide, the likelier it is, up to a scale
of `HIDING`. Tails that hold many times what is seen are less likely than others.

All curves on a grid are weighed by how well they agree with the noisy numbers, empty bins beyond
the last clear one too, and bins before it the less, the farther back they are. Of the posterior,
even draws are taken: of a curve, and of the numbers of units that it expects, each a Poisson
number; in bins before, of what the look and the curve say together. So the doubt about the index of
a tail, whether it ends, and whether a few very large units are there, are all in what is made of
the draws. They are the points of Weyl's sequence, so the same look always gives the same answer.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache, cached_property
from math import log, sqrt
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import dataclass
from noisegate.sql.laws.laws import Floats

DRAWS: Final = 1024
_BACK, _AHEAD = 12, 16  # bins before and after the last clear one that curves are fitted to
REACH: Final = 20  # bins beyond it that they are extrapolated to
_MISFIT, _FARTHER = 0.08, 0.03  # of a number: how far a curve may be off; more, a bin back
_FADING: Final = 0.9  # what a bin farther back counts, since curves may bend there
_AWAY: Final = 2.0  # deviations: from there on a clear number is less and less what curves expect
_STRANGE: Final = 6.0  # the most that one bin speaks against a curve
_PILED: Final = 1.0  # the same of the last clear bin, if it is above a curve that ends there
_ROUGH: Final = 0.25  # the same of units beyond the last clear bin
_INDEX: Final = (0.35, 0.6, 0.9, 1.2, 1.5, 1.9, 2.3, 2.8, 3.4, 4.2, 5.5, 8.0, 14.0, 25.0)
_BENDS: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.5, 12.0)
_BENT: Final = (0.2, *[0.8 / 7] * 7)  # how likely they are: tails without a bend are common
_BREAKS: Final = (0.0, 0.0, 4.0)
_SUDDEN: Final = (False, True, False)  # whether they bend ever more
_BROKEN: Final = (0.55, 0.4, 0.05)  # how likely these are
_HEIGHTS: Final = np.linspace(-1.8, 1.2, 13)  # logarithms, from the highest of the last bins
_USUAL: Final = 0.7  # units that are expected less often are left out of what a tail holds
# Units of another group, in scales of the noise; bins beyond the last clear one that it lies
# around; its spread, in bins; how likely each of the first is at a scale of `HIDING`.
_OTHERS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 7.0, 12.0), tuple(range(1, 17, 2)), (0.8, 2.5)
_LIKELY: Final = 0.1 / 7
HIDING: Final = 20.0
_SHARE: Final = 2.0  # of what is seen: groups that hold more are less likely, by a power
_CARRIERS: Final = 24  # curves that a group is added to, by weight
_PRIMES: Final = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73,
                  79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163,
                  167, 173)  # fmt: skip
_FEW, _TERMS = 8.0, 28  # Poisson numbers of a smaller mean are found term by term


@cache
def even(dimension: int) -> Floats:
    """Points that are spread evenly over (0, 1), and over cubes with those of other dimensions."""
    return np.arange(1.0, DRAWS + 1) * sqrt(_PRIMES[dimension]) % 1.0


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
    return -np.sign(side) * np.log1p(-np.abs(side))


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


class _Curves(ABC):
    """Even draws of the numbers of units in bins around ``end``, from which on noise hides them.

    A model says which curves there are, and which groups of larger units beside them. ``less``:
    tails that hold more than what is seen are less likely, by this power of it.
    """

    less: ClassVar[float]

    def __init__(self, units: Floats, scale: float, bins: Bins, end: int) -> None:
        self._units, self._scale, self._bins, self._end = units, scale, bins, end
        self._last = max(end - 1, 0)
        self.first = max(0, self._last - _BACK)  # that curves are fitted to, and units drawn of
        self._stop = min(end + REACH, units.size)
        self._seen = units[self.first : self._last + 1 + _AHEAD]
        held = float(np.maximum(units[:end], 0.0) @ bins.middle[:end])
        self._held = max(held, scale * float(bins.middle[self._last]))

    @abstractmethod
    def _curves(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """All curves, the logarithms of their chances, and which end, or leak, at the last bin."""

    @abstractmethod
    def _groups(self) -> tuple[Floats, Floats]:
        """Groups of units that noise may hide, and the logarithms of how likely each is."""

    def draws(self) -> tuple[Floats, NDArray[np.bool_]]:
        """A row a draw, a column a bin from `first` on; and which draws have another group.

        A number is between what a curve expects and what the look says, by how sure each is. Clear
        numbers that no curve comes near are what the look says.
        """
        curves, fit, smooth = self._weighed()
        picked = drawn(fit, DRAWS)
        seen, misfit = self._units[self.first : self._stop], self._misfit[: self._end - self.first]
        return numbers(curves[picked], seen, misfit, self._scale), picked >= smooth

    @cached_property
    def _misfit(self) -> Floats:
        """How far curves may be off in the bins that they are fitted to, of what they expect."""
        return _MISFIT + _FARTHER * self._back

    @cached_property
    def _back(self) -> Floats:
        """How many bins before the last clear one each bin of the fit is."""
        return np.maximum(self._last - self.first - np.arange(self._seen.size), 0.0)

    def _weighed(self) -> tuple[Floats, Floats, int]:
        """Curves from the first bin of the fit on, and the logarithms of their weights.

        The last is how many come first that are without another group.
        """
        curves, prior, ending = self._curves()
        fit = self._fit(curves, ending) + prior - np.log1p(self._share(curves) ** self.less)
        groups, likely = self._groups()
        picked = drawn(fit, _CARRIERS)
        carriers, ends = curves[picked], ending[picked]
        more = (carriers[:, None] + groups).reshape(-1, curves.shape[1])
        mass = np.log(np.exp(fit - fit.max()).sum()) + fit.max() - log(_CARRIERS)
        alone = np.repeat(self._fit(carriers, ends), len(groups))
        gained = self._fit(more, np.repeat(ends, len(groups))) - alone
        added = mass + gained + np.tile(likely, _CARRIERS)
        return np.concatenate([curves, more]), np.concatenate([fit, added]), len(curves)

    def _top(self) -> float:
        """The logarithm of the highest of the last clear bins."""
        near = slice(max(0, self._last - 2), self._last + 1)
        most = float((self._units[near] / self._bins.width[near]).max(initial=0.0))
        return log(max(most, self._scale, 1.0))

    def _grouped(
        self, axes: tuple[tuple[float, ...], ...], stop: int, power: float
    ) -> tuple[Floats, Floats]:
        """Groups of so many units, in scales, around bins, as wide; and how unlikely each is."""
        step = np.arange(self.first, stop) - self._last
        units, middle, wide = (a.reshape(-1, 1) for a in np.meshgrid(*axes, indexing="ij"))
        shape = np.exp(-(((step - middle) / wide) ** 2) / 2)
        groups = self._scale * units * shape / shape.sum(axis=1, keepdims=True)
        groups = groups[:, : self._stop - self.first]
        return groups, np.log1p((self._share(groups) / _SHARE) ** power)

    def _fit(self, curves: Floats, ending: NDArray[np.bool_]) -> Floats:
        """Logarithms of how likely the noisy numbers are."""
        near = np.ascontiguousarray(curves[:, : self._seen.size])
        spread = self._misfit * near
        spread *= spread
        spread += 2 * self._scale**2 + near
        np.sqrt(spread, out=spread)
        off = self._seen - near
        piled = ending & (off[:, self._last - self.first] > 0)
        np.abs(off, out=off)
        off *= sqrt(2)
        off /= spread
        np.minimum(off, _STRANGE, out=off)
        at_end = off[:, self._last - self.first]
        at_end[piled] = np.minimum(at_end[piled], _PILED)
        off += np.log(spread, out=spread)
        return -off @ _FADING**self._back

    def _share(self, curves: Floats) -> Floats:
        """What units beyond the last clear bin usually add up to, of what all others do."""
        tail = curves[:, self._end - self.first :]
        more = np.cumsum(tail[:, ::-1], axis=1)[:, ::-1]  # units expected from a bin on
        found: Floats = (tail * (more > _USUAL)) @ self._bins.middle[self._end : self._stop]
        return found / self._held


@final
class Unseen(_Curves):
    """The curves by which caps of averages and quantiles are chosen, and the largest of others.

    So answers are found where they were paid. log density(t) = c - a t - b t²/2 - k t⁺ with b, k ≥
    0: Zipf and Pareto sizes (b = k = 0, index a, down to 0.35), lognormal ones (b = 1 / σ²), and
    sizes with a limit (k); or with e^t - 1 - t in place of t²/2: exponential, gamma, and nearly
    Poisson ones. 1 / (1 + a) is spread evenly. Another group may be much alike or not.
    """

    less = 0.7

    def _curves(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        bins, span = self._bins, slice(self.first, self._stop)
        at = bins.log[span] - bins.log[self._last]
        index, bend, more, sudden = (axis.reshape(-1, 1) for axis in _axes())
        bent = np.where(sudden > 0, np.expm1(at) - at, at**2 / 2)
        line = -index * at - bend * bent - more * np.maximum(at, 0.0)
        shape = bins.width[span] * np.exp(np.clip(line, -40, 25))
        curves = (np.exp(self._top() + _HEIGHTS)[:, None, None] * shape).reshape(-1, at.size)
        return curves, np.tile(_prior(), _HEIGHTS.size), np.zeros(len(curves), np.bool_)

    def _groups(self) -> tuple[Floats, Floats]:
        groups, less = self._grouped(_OTHERS, self._units.size, 2)
        each, chance = len(groups) // len(_OTHERS[0]), _LIKELY * min(self._scale / HIDING, 1.0)
        return groups, np.log(chance / each) - less


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


_CURVED: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.5, 12.0)
_BODIES: Final = (0.3, 0.8, 2.0, 4.5)
_FLATTER: Final = (0.5, 0.7)
_KNEES: Final = (-3.0, -1.5, -0.5, 0.5)  # where densities turn, in logarithms of sizes
_NO_KNEE: Final = -60.0  # before all sizes
_NARROW: Final = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_BEFORE: Final = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75)  # how far back narrow laws have their middle
_ENDS, _ENDING = (0, 1, 2, 4), (0.0, 0.5)  # bins after which curves end, and their bends
_RESTS: Final = (0.1, 0.3)  # parts of curves that go on behind the last clear bin
_NEVER: Final = 99
# Indices of tails behind steeper curves, and parts that go on in them. Of 18 laws of sizes (20
# draws each, seed 77, ε = 1), bars of seven with tails that noise hides in part held 0.64 without
# these and 0.71 with them, those of others 0.92 and 0.94, 1.02 times as wide; likelier groups in
# their place made bars of geometric sizes ten times as wide. With knees, and these a third as
# likely as before, bars of Lomax sizes held 0.93 and 0.88 without, all of six smooth laws 0.93 and
# 0.91, and were 0.93 times as wide (`bench/truth_tails.py --held`).
_TAILS, _BEHIND = (1.2, 2.2), (0.15, 0.5)
_STEEPER: Final = 1.4  # times the index of the tail
_KINDS: Final = {"straight": 0.17, "smooth": 0.17, "sudden": 0.24, "body": 0.08, "flat": 0.03,
                 "cut": 0.2, "leaky": 0.06, "narrow": 0.11,
                 "tailed": 0.5, "knee": 1.0}  # fmt: skip
_DEEPER: Final = 8  # more below, down to a quarter of the noise: of curves that end there
# Units of another group, in scales of the noise; bins beyond the last clear one that it lies
# around; its spread, in bins; how likely each of the first is at a scale of `HIDING`, and by which
# power of the scale that falls.
_GROUPS: Final = (3.0, 5.0, 8.0, 12.0), tuple(range(1, 17)), (0.5, 1.5)
_CHANCES, _POWER = (0.05, 0.2, 0.2, 0.2), 2.5
# The same of wide groups.
_WIDE: Final = (3.0, 6.0, 10.0, 16.0), tuple(range(1, 17, 2)), (0.7, 4.0)
_WIDE_CHANCES: Final = (0.1, 0.25, 0.25, 0.25)
_NODE: Final = sqrt(0.6)  # Gauss's three points, for laws that change within a bin


@cache
def _shapes(*, leaky: bool, tailed: bool) -> tuple[Floats, Floats]:
    """Of all curves of one height: index, two bends, that of the body, slope, end, what goes on.

    And where they turn, if they do; and the logarithms of their chances.
    """
    found: list[tuple[float, ...]] = []
    chances: list[float] = []
    even = np.abs(np.gradient(1 / (1 + np.array(_INDEX))))

    def add(kind: str, rows: Sequence[tuple[float, ...]], part: float) -> None:
        found.extend(rows)
        chances.extend([_KINDS[kind] * part / len(rows)] * len(rows))

    for index, part in zip(_INDEX, (even / even.sum()).tolist(), strict=True):
        add("straight", [(index, 0, 0, 0, 1, _NEVER, 0)], part)
        add("smooth", [(index, bend, 0, 0, 1, _NEVER, 0) for bend in _CURVED], part)
        add("sudden", [(index, 0, bend, 0, 1, _NEVER, 0) for bend in _CURVED], part)
        add("body", [(index, 0, 0, bend, 1, _NEVER, 0) for bend in _BODIES], part)
        add("flat", [(index, 0, 0, 0, flat, _NEVER, 0) for flat in _FLATTER], part)
        add("cut", [(index, bend, 0, 0, 1, end, 0) for end in _ENDS for bend in _ENDING], part)
        if leaky:
            add("leaky", [(index, 0, 0, 0, 1, 0, rest) for rest in _RESTS], part)
        ends = [tail / index for tail in _TAILS if tailed and index > _STEEPER * tail]
        tails = [(index, 0.0, 0.0, 0.0, end, 0.0, rest) for end in ends for rest in _BEHIND]
        if tails:
            add("tailed", tails, part)
        if tailed:
            add("knee", [(index, 0, 0, 0, 1, _NEVER, 0, knee) for knee in _KNEES], part)
    add("narrow", [(b * m, b, 0, 0, 1, _NEVER, 0) for b in _NARROW for m in _BEFORE], 1.0)
    rows = [(*each, _NO_KNEE)[:8] for each in found]
    return np.array(rows, np.float64), np.log(chances)


@final
class Hidden(_Curves):
    """The curves of more laws, by which bars are made, with the chances of `_KINDS`.

    - straight: Zipf and Pareto sizes of index a, down to 0.35. 1 / (1 + a) is spread evenly.
    - smooth: less b t²/2, lognormal sizes; sudden: less b (e^t - 1 - t), exponential, gamma, and
      nearly Poisson ones; narrow: lognormal ones of units that are much alike, also within one bin.
    - body: less b t²/2 before the last clear bin alone: a Pareto tail behind another law.
    - flat: of a smaller index from there on, by one of `_FLATTER`.
    - cut: nobody is larger than some bin, the last clear one or one of the next. Whoever would have
      more may be in it, as where numbers are top-coded: so a last bin that stands out from those
      before speaks for an end.
    - leaky: the same, of most units, and a part of the curve goes on. That is so where conditions
      select rows: most units have few of theirs left, and those that keep all reach farther.
    - tailed: straight, and beyond the last clear bin a part goes on with a smaller index: a Pareto
      tail of few units, where most are much alike.
    - knee: as e^t before some size, and with index a far beyond: Lomax sizes, (1 + s / c)^-(1 + a).

    A ``wide`` group of larger units is spread over many sizes, so that noise hides more of it, and
    may hold most of what there is: of small tables a look sees little. That is for numbers which
    tell how much they hold themselves. Caps are chosen without leaky, ``tailed`` and knee curves:
    so they do not follow a few units that may be there, and answers are found where they were paid.
    """

    less = 0.4

    def __init__(  # noqa: PLR0913 - what is known of the units
        self,
        units: Floats,
        scale: float,
        bins: Bins,
        end: int,
        *,
        leaky: bool,
        tailed: bool,
        wide: bool,
    ) -> None:
        super().__init__(units, scale, bins, end)
        self._leaky, self._tailed, self._wide = leaky, tailed, wide

    def _curves(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        bins, span = self._bins, slice(self.first, self._stop)
        rows, prior = _shapes(leaky=self._leaky, tailed=self._tailed)
        wide = bins.width[span]
        index, bend, sudden, body, slope, end, rest, knee = (
            rows[:, place, None] for place in range(8)
        )
        middle = bins.log[span] - bins.log[self._last]
        half = wide * log(4 / 3) / 2
        shape = np.zeros((len(rows), middle.size))
        for node, weight in ((-_NODE, 5 / 18), (0.0, 8 / 18), (_NODE, 5 / 18)):
            at = middle + node * half
            after, square = np.maximum(at, 0.0), at**2 / 2
            line = -index * (at + (slope - 1) * after) - bend * square
            turn = at - np.logaddexp(0.0, at - knee) + np.logaddexp(0.0, -knee)
            line += (1 + index) * turn
            line -= sudden * (np.expm1(np.minimum(at, 8.0)) - at) + body * (square - after**2 / 2)
            shape += weight * np.exp(np.clip(line, -40, 25))
        shape *= wide * np.where(np.arange(self.first, self._stop) - self._last <= end, 1.0, rest)
        heights, deeper = self._heights()
        ending = rows[:, 5] == 0
        deep = ending & (rows[:, 6] == 0)
        parts = ((heights, shape, prior), (deeper, shape[deep], prior[deep]))
        high = [np.exp(at)[:, None, None] * each for at, each, _ in parts]
        curves = np.concatenate([each.reshape(-1, middle.size) for each in high])
        chances = np.concatenate([np.tile(each, at.size) for at, _, each in parts])
        ends = np.ones(len(curves), np.bool_)
        ends[: heights.size * ending.size] = np.tile(ending, heights.size)
        return curves, chances, ends

    def _heights(self) -> tuple[Floats, Floats]:
        """Logarithms of heights: around the highest of the last clear bins, and far below it."""
        heights = self._top() + _HEIGHTS
        least, below = log(max(self._scale / 4, 0.5)), heights[0] - 0.3
        return heights, np.linspace(least, below, _DEEPER if least < below else 0)

    def _groups(self) -> tuple[Floats, Floats]:
        axes, power = (_WIDE, 0.5) if self._wide else (_GROUPS, 2.0)
        groups, less = self._grouped(axes, self._stop, power)
        chances = np.array(_WIDE_CHANCES if self._wide else _CHANCES)
        chances *= min((self._scale / HIDING) ** _POWER, 1.0)
        each = len(groups) // chances.size
        return groups, np.log(np.repeat(chances, each) / each) - less
