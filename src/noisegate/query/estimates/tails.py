"""What contribution bounds lose: estimated from noisy numbers of units by size, with a model.

A unit of size s (its rows, or what it adds) loses s - C beyond a bound C. A released histogram says
about how many units there are of each size, up to a few units that noise can hide; yet few large
units may add much. So what lies beyond the last bin that stands clear of its noise is
extrapolated. The model, which nothing proves:

- From there on the numbers fall at least as smoothly as before: log λ_k = c - a k - b k²/2 over
  bins whose sizes grow by a constant factor, k from the last clear bin on, a ≥ 0.1 and b ≥ 0. Zipf
  (b = 0) and lognormal sizes are such, and Poisson and exponential ones nearly. All (a, b, c) on a
  grid are weighed by how well they agree with the noisy numbers: a posterior. Before,
  the factor by which numbers fall from bin to bin is taken to be anything from 0 to 0.9 alike.
- With a chance of one in five, before any number is seen, there is another group of larger units:
  few enough to be hidden by noise, around any size, much alike or not.
- Large units spread over groups as all rows do, each unit by itself.

Nothing can certify that nobody has a million rows: one unit is invisible at any price that hides
it. `bench/truth.py` holds the model to account, by how often the ± covers the exact answer.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, sqrt
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.query.estimates.laws import Floats

Whole: TypeAlias = NDArray[np.int64]

_NEIGHBOURS: Final = (1, 2, 4, 8)  # bins that are looked at together
_ALARM: Final = 0.01  # the chance that noise alone makes the next bin stand clear
_FADING: Final = 0.75  # of that chance, for each bin that lies between
_DOUBT: Final = 1e-6  # the least such chance
_BACK, _AHEAD = 5, 16  # bins before and after the last clear one that the curve is fitted to
_REACH: Final = 20  # bins beyond it that it is extrapolated to
_FARTHEST: Final = 14  # bins beyond it in which a bound may lie
_MISFIT: Final = 0.25  # of a number: how far the curve may be off
_RARE, _USUAL = 0.05, 0.7  # units that are expected less often are left out of a bar, of a guess
_ANOTHER: Final = 0.2  # how likely another group of units is taken to be, before any number is seen
_OTHERS: Final = (
    1.0,
    2.0,
    4.0,
    7.0,
    12.0,
)  # how many units are in it, times the scale of the noise
_WHERE: Final = tuple(range(1, 15, 2))  # bins beyond the last clear one that it may lie around
_WIDE: Final = (0.8, 2.5)  # its spread, in bins
_NEARLY: Final = 0.995  # of all curves, by weight, are looked at further
_LIKELIEST: Final = 24  # curves that it is added to
_SURE: Final = 0.9  # of all curves, for the ends of a bar
_UNLIKE: Final = 0.25  # of what is lost: how far large units may differ from others
_APART: Final = 0.5  # the same of groups: those that all are in lose least, at best nothing
_TWO: Final = 2.0  # standard deviations at 95 %
_SLOPES: Final = (0.1, 0.14, 0.18, 0.22, 0.26, 0.3, 0.35, 0.4, 0.5,
                  0.6, 0.75, 0.9, 1.1, 1.4, 1.8, 2.5, 4.0, 7.0)  # fmt: skip
_BENDS: Final = (0.0, 0.01, 0.03, 0.06, 0.1, 0.16, 0.25, 0.4, 0.8, 2.0)
_HEIGHTS: Final = np.linspace(-2.5, 1.5, 13)  # logarithms, from the highest number


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a bound ``cap`` loses, in rows' worth: ``kept`` and ``lost`` add up to all there is.

    ``spread`` is a standard deviation of ``lost``: noise of the look, and doubt about the tail.
    ``squares`` is Σ e² over units that lose e: how unevenly they may spread over groups.
    """

    cap: float
    kept: float
    lost: float
    spread: float
    squares: float
    unlike: float = _UNLIKE

    @property
    def factor(self) -> float:
        """What bounded sums are multiplied by, so that they estimate all there is."""
        return 1 + self.lost / self.kept

    @property
    def share(self) -> float:
        """What is lost, of all there is."""
        return self.lost / (self.kept + self.lost)

    def off(self, share: Floats, *, signed: bool = False) -> Floats:
        """A standard deviation of sums that are a ``share`` of all, in rows' worth.

        Why: let each of the units that lose e be in a group by itself with chance p, the group's
            share. What the group loses has mean p Σe and variance p (1 - p) Σe². Sums of either
            sign may lose e or -e for each unit, whatever they are themselves.
        """
        held = np.clip(np.abs(share), 0.0, 1.0)
        apart = np.ones_like(held) if signed else held * (1 - held)
        found: Floats = np.sqrt(
            (held * self.spread) ** 2 + apart * self.squares + (self.unlike * held * self.lost) ** 2
        )
        return found

    def average_off(self, share: Floats) -> Floats:
        """A standard deviation of averages of a group, of values whose own one is 1.

        Why: the average of all is that of the rest, moved by (lost share) times the difference of
            what was lost. That is an average over few units, each in the group with chance p.
        """
        held = np.clip(share, 1e-9, 1.0)
        among: Floats = np.hypot(np.sqrt(self.squares / held), _UNLIKE * self.lost)
        return among / (self.kept + self.lost)


@final
class Sizes:
    """Noisy numbers of units in bins (low, high], the noise of each two-sided geometric.

    ``lows`` and ``highs`` are the smallest and the largest size in each bin. ``apart``: sizes are
    numbers of groups. Then the best bound is one for groups that lose 1 of a unit, and not all that
    it loses; and bars are wide, since units in many groups are in others than units in few.
    """

    def __init__(
        self, units: Whole, scale: float, lows: Floats, highs: Floats, *, apart: bool = False
    ) -> None:
        self._units, self._scale = units.astype(np.float64), scale
        self._lows, self._highs, self._apart = lows, highs, apart
        self._losses: dict[float, tuple[Loss, float]] = {}  # by cap

    @cached_property
    def end(self) -> int:
        """One past the last bin that stands clear of noise, by itself or with its neighbours.

        Beyond these, units that noise may hide are guessed.
        """
        counts, first = self._units, self._body
        end = first
        while first < counts.size:
            chance = max(_ALARM * _FADING ** max(0, first - end - 1), _DOUBT)
            wide = next((each for each in (1, 2, 4) if first + each <= counts.size and
                         noise_tail(each, counts[first : first + each].sum() / self._scale)
                         < chance), 0)  # fmt: skip
            end = first + wide if wide else end
            first += wide or 1
        return end

    @cached_property
    def _body(self) -> int:
        """Where to search: one past the fewest neighbours that stand clear among all of them.

        Where none do, at one row's worth; rows are searched from the first on.
        """
        for wide in _NEIGHBOURS if self._highs[0] < 1 else ():
            sums = np.convolve(self._units, np.ones(wide), "valid") / self._scale
            place = int(np.argmax(sums))
            if sums.size * noise_tail(wide, float(sums[place])) < _ALARM:
                return place + wide
        return int(np.searchsorted(self._highs, 1.0))

    @cached_property
    def _curves(self) -> tuple[Floats, Floats]:
        """Weights of the likely curves, and the numbers of units that each expects beyond `end`."""
        last = max(self.end - 1, 0)
        first = max(0, last - _BACK)
        seen = self._units[first : last + 1 + _AHEAD]
        top = np.log(max(float(seen.max(initial=0.0)), self._scale, 1.0))
        axes = np.meshgrid(top + _HEIGHTS, _SLOPES, _BENDS, indexing="ij")
        height, slope, bend = (axis.reshape(-1, 1) for axis in axes)
        step = np.arange(first - last, self._units.size - last)
        curve = np.exp(np.clip(height - slope * step - bend * step**2 / 2, -30, 30))
        fit = self._fit(seen, curve) + _prior(slope + bend / 2)
        best = np.argsort(-fit)[:_LIKELIEST]
        groups = self._groups(step)
        more = (curve[best][:, None] + groups).reshape(-1, step.size)
        added = np.repeat(fit[best] - self._fit(seen, curve[best]), len(groups))
        added += self._fit(seen, more) + np.log(_ANOTHER / (1 - _ANOTHER) / len(groups))
        curve, fit = np.concatenate([curve, more]), np.concatenate([fit, added])
        weight = np.exp(fit - fit.max())
        order = np.argsort(-weight)
        likely = order[: 1 + int(np.searchsorted(np.cumsum(weight[order]), _NEARLY * weight.sum()))]
        guess = curve[likely, self.end - first : self.end - first + _REACH]
        doubt = guess + (_MISFIT * guess) ** 2
        told = doubt / (doubt + 2 * self._scale**2)  # how far the noisy numbers are believed
        noisy = self._units[self.end : self.end + _REACH]
        beyond = np.maximum(guess + told * (noisy - guess), 0.0)
        return weight[likely] / weight[likely].sum(), beyond

    @cached_property
    def _expected(self) -> tuple[Floats, Floats]:
        """The same numbers where more units than `_USUAL` are expected from a bin on; `_RARE`."""
        curves = self._curves[1]
        more = np.cumsum(curves[:, ::-1], axis=1)[:, ::-1]
        return curves * (more > _USUAL), curves * (more > _RARE)

    def _fit(self, seen: Floats, curve: Floats) -> Floats:
        """Logarithms of how likely the noisy numbers are."""
        near = curve[:, : seen.size]
        spread = np.sqrt(2 * self._scale**2 + near + (_MISFIT * near) ** 2)
        found: Floats = -(sqrt(2) * np.abs(seen - near) / spread + np.log(spread)).sum(axis=1)
        return found

    def _groups(self, step: NDArray[np.int64]) -> Floats:
        """Groups of units that noise may hide: how many, how large, how alike."""
        units, middle, wide = (
            axis.reshape(-1, 1) for axis in np.meshgrid(_OTHERS, _WHERE, _WIDE, indexing="ij")
        )
        shape = np.exp(-(((step - middle) / wide) ** 2) / 2)
        found: Floats = self._scale * units * shape / shape.sum(axis=1, keepdims=True)
        return found

    @property
    def largest(self) -> float:
        """About the largest size that stands clear of noise."""
        return float(self._highs[max(self.end - 1, 0)])

    @cached_property
    def total(self) -> float:
        """About what all units add up to."""
        return self._loss(0)[0].lost

    def loss(self, cap: float) -> Loss:
        """What a bound loses."""
        found, noise = self._loss(cap)
        weights, (usual, rare) = self._curves[0], self._expected
        tail = _excess(self._lows, self._highs, np.array([cap]))[:, self.end : self.end + _REACH]
        guess, most = _sums(tail, usual), _sums(tail, rare)
        high = most + 1.6 * np.sqrt(_sums(tail**2, rare))
        low = np.maximum(guess - 1.6 * np.sqrt(_sums(tail**2, usual)), 0.0)
        ((middle,),) = _quantiles(guess, weights, 0.5)
        ((top,),), ((least,),) = (
            _quantiles(high, weights, _SURE),
            _quantiles(low, weights, 1 - _SURE),
        )
        doubt = max(top - middle, middle - least) / _TWO
        return replace(found, spread=sqrt(noise + doubt**2))

    def _loss(self, cap: float) -> tuple[Loss, float]:
        """What a bound loses, off as far as in the middle of all curves; noise of that, squared."""
        if cap not in self._losses:
            self._lose([cap])
        return self._losses[cap]

    def _lose(self, caps: list[float]) -> None:
        """The same of many bounds at once, for `_loss`."""
        total, end = self.total if any(caps) else 0.0, self.end
        weights, usual = self._curves[0], self._expected[0]
        far, wide = (each(self._lows, self._highs, np.array(caps)) for each in (_excess, _wide))
        tail, near = far[:, end : end + _REACH], self._units[:end]
        middle, upper = _quantiles(_sums(tail, usual), weights, 0.5, 0.75)
        (uneven,) = _quantiles(_sums(tail**2, usual), weights, 0.5)
        noise = 2 * self._scale**2 * (far[:, :end] ** 2).sum(axis=1)
        noise += ((near * wide[:, :end]) ** 2).sum(axis=1)
        lost = np.maximum(0.0, far[:, :end] @ near + middle)
        squares = np.maximum(far[:, :end] ** 2 @ near + uneven, 0.0)
        spread = np.sqrt(noise + (upper - middle) ** 2 + uneven)
        for place, cap in enumerate(caps):
            kept = 0.0 if cap == 0 else max(total - float(lost[place]), float(self._highs[0]))
            found = Loss(
                cap=cap, kept=kept, lost=float(lost[place]), spread=float(spread[place]),
                squares=float(squares[place]), unlike=_APART if self._apart else _UNLIKE,
            )  # fmt: skip
            self._losses[cap] = found, float(noise[place])

    def best(self, epsilon: float, *, cells: int = 1, ratios: float = 0) -> float:
        """The bound with the least error of a sum per cell; with ``ratios``, of averages.

        That is noise of scale cap / ε, and what is not known of what the bound loses. ``ratios``
        is how many times as much noise an average has, in half-widths of its bounds: about 2.
        Above one row's worth bounds are whole.
        """
        last = self._highs[min(self._highs.size - 1, self.end + _FARTHEST)]
        ends: list[float] = self._highs.tolist()
        caps = sorted({high if high < 1 else ceil(high) for high in ends if high <= last})
        self._lose([cap for cap in caps if cap not in self._losses])
        return min(caps, key=lambda cap: self.error(cap, epsilon, cells=cells, ratios=ratios))

    def error(self, cap: float, epsilon: float, *, cells: int = 1, ratios: float = 0) -> float:
        """A standard deviation, to be expected, of a sum per cell in rows' worth; of an average."""
        loss, _ = self._loss(cap)
        if self._apart:
            loss = replace(loss, squares=min(loss.squares, loss.lost))
        noise, share = sqrt(2) * cap / epsilon, np.full(1, 1 / cells)
        if not ratios:
            return float(np.hypot(noise, loss.off(share)[0]))
        spread = 1 / 4  # of the half-width of the bounds: the values of units
        return float(
            np.hypot(ratios * noise * cells / loss.kept, spread * loss.average_off(share)[0])
        )


def _prior(falls: Floats) -> Floats:
    """Logarithms of weights, so that the factor by which a curve first falls is spread evenly."""
    part = (10 * np.exp(-falls[:, 0])).astype(np.int64)
    found: Floats = -np.log(np.bincount(part, minlength=10)[part])
    return found


def noise_tail(draws: int, at: float) -> float:
    """The chance that the sum of so many Laplace draws of scale 1 is at least ``at``: 1, 2, 4 or 8.

    Two-sided geometric noise of a large scale is such noise, nearly. Of 8 draws: at most so much,
    by Chernoff's bound.
    """
    if at <= 0:
        return 1.0 - noise_tail(draws, -at) if at < 0 else 0.5
    if draws == _NEIGHBOURS[-1]:
        rate = (sqrt(draws**2 + at**2) - draws) / at
        return float(np.exp(-rate * at) / (1 - rate**2) ** draws)
    more = {1: 0.5, 2: (2 + at) / 4, 4: (48 + at * (33 + at * (9 + at))) / 96}
    return float(more[draws] * np.exp(-at))


def _wide(lows: Floats, highs: Floats, caps: Floats) -> Floats:
    """How far the mean beyond each cap may be off in each bin, since its law is not known."""
    found: Floats = (highs - np.clip(caps[:, None], lows, highs)) / sqrt(12)
    return found


def _excess(lows: Floats, highs: Floats, caps: Floats) -> Floats:
    """For each cap the mean of (size - cap)⁺ in each bin, if sizes are spread evenly over logs."""
    low, cap = np.maximum(lows, highs / 8), caps[:, None]
    first = np.clip(cap, low, highs)
    wide = np.maximum(np.log(highs / low), 1e-12)
    spread = (highs - first - cap * np.log(highs / first)) / wide
    found: Floats = np.where(highs > low, spread, np.maximum(highs - cap, 0.0))
    return np.maximum(found, 0.0)


def _sums(tails: Floats, curves: Floats) -> Floats:
    """What each tail adds up to over each curve. Too little work for the threads of ``@``."""
    found: Floats = np.einsum("tb,cb->tc", tails, curves)
    return found


def _quantiles(values: Floats, weights: Floats, *levels: float) -> list[Floats]:
    """Of each row of weighted values, the quantile of each level."""
    order = np.argsort(values, axis=1)
    below, rows = np.cumsum(weights[order], axis=1), np.arange(len(values))
    places = [(below < level).sum(axis=1) for level in levels]
    return [values[rows, order[rows, np.minimum(at, values.shape[1] - 1)]] for at in places]
