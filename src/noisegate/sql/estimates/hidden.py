"""Units that the noise of a look hides, for the ± of answers: how many of which size there may be.

The look is noisy numbers of units in bins that grow by a constant factor. Beyond the last bin that
stands clear of noise, single large units may hold much of all rows. Let t be the logarithm of a
size, from that bin on, and density(t) = e^(c - a t - …). What is taken to be, before any number is
seen, with the chances of `_KINDS`:

- straight: Zipf and Pareto sizes of index a, down to 0.35. 1 / (1 + a) is spread evenly.
- smooth: less b t²/2, lognormal sizes; sudden: less b (e^t - 1 - t), exponential, gamma, and nearly
  Poisson ones; narrow: lognormal ones of units that are much alike, also within one bin.
- body: less b t²/2 before the last clear bin alone: a Pareto tail behind another law.
- flat: of a smaller index from there on, by one of `_FLATTER`.
- cut: nobody is larger than some bin, the last clear one or one of the next. Whoever would have
  more may be in it, as where numbers are top-coded: so a last bin that stands out from those before
  speaks for an end.
- leaky: the same, of most units, and a part of the curve goes on. That is so where conditions
  select rows: most units have few of theirs left, and those that keep all reach farther.
- Beside each curve there may be a group of larger units: few enough to be hidden by noise, around
  any size. The more the noise can hide, the likelier it is, up to a scale of `_HIDING`. A ``wide``
  one is spread over many sizes, so that noise hides more of it, and may hold most of what there is:
  of small tables a look sees little. That is for numbers which tell how much they hold themselves.
- Tails that hold many times what is seen are less likely than others.

All curves on a grid are weighed by how well they agree with the noisy numbers, empty bins beyond
the last clear one too, and bins before it the less, the farther back they are. Of the posterior,
even draws are taken: of a curve, and of the numbers of units that it expects, each a Poisson
number; in bins before, of what the look and the curve say together. So the doubt about the index of
a tail, whether it ends, and whether a few very large units are there, are all in what is made of
the draws. The same look always gives the same draws.

Caps are chosen without leaky curves: so they do not follow a few units that may be there, and
answers are found where they were paid.
"""

from functools import cache, cached_property
from math import log, sqrt
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.sql.estimates.unseen import (
    DRAWS,
    REACH,
    Bins,
    drawn,
    numbers,
)
from noisegate.sql.laws.laws import Floats

_BACK, _AHEAD = 12, 16  # bins before and after the last clear one that curves are fitted to
_MISFIT, _FARTHER = 0.08, 0.03  # of a number: how far a curve may be off; more, a bin back
_FADING: Final = 0.9  # what a bin farther back counts, since curves may bend there
_STRANGE: Final = 6.0  # the most that one bin speaks against a curve
_PILED: Final = 1.0  # the same of the last clear bin, if it is above a curve that ends there
_INDEX: Final = (0.35, 0.6, 0.9, 1.2, 1.5, 1.9, 2.3, 2.8, 3.4, 4.2, 5.5, 8.0, 14.0, 25.0)
_BENDS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 4.5, 12.0)
_BODIES: Final = (0.3, 0.8, 2.0, 4.5)
_FLATTER: Final = (0.5, 0.7)
_NARROW: Final = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_BEFORE: Final = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75)  # how far back narrow laws have their middle
_ENDS, _ENDING = (0, 1, 2, 4), (0.0, 0.5)  # bins after which curves end, and their bends
_RESTS: Final = (0.1, 0.3)  # parts of curves that go on behind the last clear bin
_NEVER: Final = 99
_KINDS: Final = {"straight": 0.17, "smooth": 0.17, "sudden": 0.24, "body": 0.08, "flat": 0.03,
                 "cut": 0.2, "leaky": 0.06, "narrow": 0.11}  # fmt: skip
_HEIGHTS: Final = np.linspace(-1.8, 1.2, 13)  # logarithms, from the highest of the last bins
_DEEPER: Final = 8  # more below, down to a quarter of the noise: of curves that end there
_LESS: Final = 0.4  # the power of what a tail holds, by which it is less likely
_USUAL: Final = 0.7  # units that are expected less often are left out of what a tail holds
# Units of another group, in scales of the noise; bins beyond the last clear one that it lies
# around; its spread, in bins; how likely each of the first is at a scale of `_HIDING`, and by which
# power of the scale that falls.
_GROUPS: Final = (3.0, 5.0, 8.0, 12.0), tuple(range(1, 17)), (0.5, 1.5)
_CHANCES, _POWER, _HIDING = (0.05, 0.2, 0.2, 0.2), 2.5, 20.0
_SHARE: Final = 2.0  # of what is seen: groups that hold more are less likely
_POWERS: Final = (2.0, 0.5)  # by which power of it; of wide ones
# The same of wide groups.
_WIDE: Final = (3.0, 6.0, 10.0, 16.0), tuple(range(1, 17, 2)), (0.7, 4.0)
_WIDE_CHANCES: Final = (0.1, 0.25, 0.25, 0.25)
_CARRIERS: Final = 24  # curves that a group is added to, by weight
_NODE: Final = sqrt(0.6)  # Gauss's three points, for laws that change within a bin


@cache
def _shapes(*, leaky: bool) -> tuple[Floats, Floats]:
    """Of all curves of one height: index, two bends, that of the body, slope, end, what goes on.

    And the logarithms of their chances.
    """
    found: list[tuple[float, ...]] = []
    chances: list[float] = []
    even = np.abs(np.gradient(1 / (1 + np.array(_INDEX))))

    def add(kind: str, rows: list[tuple[float, ...]], part: float) -> None:
        found.extend(rows)
        chances.extend([_KINDS[kind] * part / len(rows)] * len(rows))

    for index, part in zip(_INDEX, (even / even.sum()).tolist(), strict=True):
        add("straight", [(index, 0, 0, 0, 1, _NEVER, 0)], part)
        add("smooth", [(index, bend, 0, 0, 1, _NEVER, 0) for bend in _BENDS], part)
        add("sudden", [(index, 0, bend, 0, 1, _NEVER, 0) for bend in _BENDS], part)
        add("body", [(index, 0, 0, bend, 1, _NEVER, 0) for bend in _BODIES], part)
        add("flat", [(index, 0, 0, 0, flat, _NEVER, 0) for flat in _FLATTER], part)
        add("cut", [(index, bend, 0, 0, 1, end, 0) for end in _ENDS for bend in _ENDING], part)
        if leaky:
            add("leaky", [(index, 0, 0, 0, 1, 0, rest) for rest in _RESTS], part)
    add("narrow", [(b * m, b, 0, 0, 1, _NEVER, 0) for b in _NARROW for m in _BEFORE], 1.0)
    return np.array(found, np.float64), np.log(chances)


@final
class Hidden:
    """Even draws of the numbers of units in bins around ``end``, from which on noise hides them."""

    def __init__(
        self, units: Floats, scale: float, bins: Bins, end: int, *, leaky: bool, wide: bool
    ) -> None:
        self._leaky, self._wide = leaky, wide
        self._units, self._scale, self._bins, self._end = units, scale, bins, end
        self._last = max(end - 1, 0)
        self.first = max(0, self._last - _BACK)  # that curves are fitted to, and units drawn of
        self._stop = min(end + REACH, units.size)
        self._seen = units[self.first : min(self._last + 1 + _AHEAD, self._stop)]
        held = float(np.maximum(units[:end], 0.0) @ bins.middle[:end])
        self._held = max(held, scale * float(bins.middle[self._last]))

    def draws(self) -> Floats:
        """A row a draw, a column a bin from `first` on.

        A number is between what a curve expects and what the look says, by how sure each is. Clear
        numbers that no curve comes near are what the look says.
        """
        curves, fit = self._weighed()
        curve = curves[drawn(fit, DRAWS)]
        seen, misfit = self._units[self.first : self._stop], self._misfit[: self._end - self.first]
        return numbers(curve, seen, misfit, self._scale)

    @cached_property
    def _misfit(self) -> Floats:
        """How far curves may be off in the bins that they are fitted to, of what they expect."""
        found: Floats = _MISFIT + _FARTHER * self._back
        return found

    @cached_property
    def _back(self) -> Floats:
        """How many bins before the last clear one each bin of the fit is."""
        return np.maximum(self._last - self.first - np.arange(self._seen.size), 0.0)

    def _weighed(self) -> tuple[Floats, Floats]:
        """Curves from the first bin of the fit on, and the logarithms of their weights."""
        curves, prior, ending = self._curves()
        fit = self._fit(curves, ending) + prior - np.log1p(self._share(curves) ** _LESS)
        groups, likely = self._groups()
        picked = drawn(fit, _CARRIERS)
        carriers, ends = curves[picked], ending[picked]
        more = (carriers[:, None] + groups).reshape(-1, curves.shape[1])
        mass = np.log(np.exp(fit - fit.max()).sum()) + fit.max() - log(_CARRIERS)
        alone = np.repeat(self._fit(carriers, ends), len(groups))
        gained = self._fit(more, np.repeat(ends, len(groups))) - alone
        added = mass + gained + np.tile(likely, _CARRIERS)
        return np.concatenate([curves, more]), np.concatenate([fit, added])

    def _curves(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """All curves, the logarithms of their chances, and which end, or leak, at the last bin."""
        bins, span = self._bins, slice(self.first, self._stop)
        (rows, prior), wide = _shapes(leaky=self._leaky), bins.width[span]
        index, bend, sudden, body, slope, end, rest = (rows[:, place, None] for place in range(7))
        middle = bins.log[span] - bins.log[self._last]
        half = wide * log(4 / 3) / 2
        shape = np.zeros((len(rows), middle.size))
        for node, weight in ((-_NODE, 5 / 18), (0.0, 8 / 18), (_NODE, 5 / 18)):
            at = middle + node * half
            after, square = np.maximum(at, 0.0), at**2 / 2
            line = -index * (at + (slope - 1) * after) - bend * square
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
        near = slice(max(0, self._last - 2), self._last + 1)
        most = float((self._units[near] / self._bins.width[near]).max(initial=0.0))
        heights = log(max(most, self._scale, 1.0)) + _HEIGHTS
        least, below = log(max(self._scale / 4, 0.5)), heights[0] - 0.3
        return heights, np.linspace(least, below, _DEEPER if least < below else 0)

    def _groups(self) -> tuple[Floats, Floats]:
        """Groups of units that noise may hide, and the logarithms of how likely each is."""
        step = np.arange(self.first, self._stop) - self._last
        axes = np.meshgrid(*(_WIDE if self._wide else _GROUPS), indexing="ij")
        units, middle, wide = (axis.reshape(-1, 1) for axis in axes)
        shape = np.exp(-(((step - middle) / wide) ** 2) / 2)
        groups = self._scale * units * shape / shape.sum(axis=1, keepdims=True)
        chances = np.array(_WIDE_CHANCES if self._wide else _CHANCES)
        chances *= min((self._scale / _HIDING) ** _POWER, 1.0)
        each = len(groups) // chances.size
        less = np.log1p((self._share(groups) / _SHARE) ** _POWERS[self._wide])
        return groups, np.log(np.repeat(chances, each) / each) - less

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
        found: Floats = -off @ _FADING**self._back
        return found

    def _share(self, curves: Floats) -> Floats:
        """What units beyond the last clear bin usually add up to, of what all others do."""
        tail = curves[:, self._end - self.first :]
        more = np.cumsum(tail[:, ::-1], axis=1)[:, ::-1]  # units expected from a bin on
        found: Floats = (tail * (more > _USUAL)) @ self._bins.middle[self._end : self._stop]
        return found / self._held
