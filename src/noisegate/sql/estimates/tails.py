"""What contribution bounds lose: estimated from noisy numbers of units by size, with a model.

A unit of size s (its rows, or what it adds) loses s - C beyond a bound C. A released histogram says
about how many units there are of each size, up to a few units that noise can hide; yet few large
units may add much. What lies beyond the last bin that stands clear of its noise is drawn from a
posterior (`unseen.py`), so that what is lost has a distribution: its median is what is added to an
answer, and the ± holds 95 of 100 draws of it together with the noise. Nothing proves the model, and
these neither:

- Large units spread over groups about as all rows do, each unit by itself.
- Within a bin sizes are as smooth as between bins; units that stand out may be anywhere in it.

Nothing can certify that nobody has a million rows: one unit is invisible at any price that hides
it. `bench/truth.py` holds the model to account, by how often the ± covers the exact answer.
"""

from enum import Enum
from functools import cached_property
from math import ceil, inf, sqrt
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.frozen import replace
from noisegate.sql.estimates.bounded import (
    STRANGE_ALL,
    STRANGE_ONE,
    STRANGERS,
    Loss,
    median,
)
from noisegate.sql.estimates.norms import alike_of, lump_of, rows_of
from noisegate.sql.estimates.unseen import (
    DRAWS,
    HIDING,
    Bins,
    Hidden,
    Unseen,
    even,
    even_normal,
)
from noisegate.sql.laws.laws import Floats

Whole: TypeAlias = NDArray[np.int64]

_NEIGHBOURS: Final = (1, 2, 4, 8)  # bins that are looked at together
_ALARM: Final = 0.01  # the chance that noise alone makes the next bin stand clear
_FADING: Final = 0.75  # of that chance, for each bin that lies between
_RARER: Final = (0.005, 0.6)  # both, where empty bins are weighed by the model
_DOUBT: Final = 1e-6  # the least such chance
_FARTHEST: Final = 16  # bins beyond the last clear one in which a bound may lie
_UNLIKE: Final = 0.25  # of what is lost: how far large units differ from others, for caps
# Of how far draws are off their median, how far the truth is: less, the less noise hides. Chosen
# on tables of made-up shapes, so that 95 of 100 exact answers are covered. The most: on 14 laws
# of sizes (14 draws each, seed 1, ε = .1) bars held 0.93 at 0.8, of 2.8 times the error, and 0.94
# at 1, of 3.3 times.
_NEAR: Final = (0.3, 0.034, 0.9)  # without noise; more, for each unit of its scale; at most
# More, for each bin that is missing to so many that are so many scales high: few bins say little
# of how a tail falls. On 6 laws of few rows (16 draws each, seed 2, ε = .1) bars held 0.84, and
# 0.79 without.
_ENOUGH, _CLEAR, _FEWER = 6, 3.0, 0.2
_APART: Final = 0.5  # the same of groups: those that all are in lose least, at best nothing
_TYPICAL: Final = 0.96  # of all draws: those that are no farther off, for the choice of a bound
_RARE: Final = (0.88, 1.55)  # the same as a quantile; how many deviations that is of normal laws
_SPREAD: Final = 1.5  # times their mean distance from the middle, about a standard deviation
_STEEP: Final = 6.0  # the most that logarithms of densities fall or rise within one of sizes
# Of how far draws are off their median, where only some groups are known. Of counts of 300 products
# by Zipf's law (3,500 users, zCDP, ε = .3 and .4, 24 draws each) bars held .81 and .91 at 1, and 1
# and .99 so (.86 of 16 at ε = .6).
_FARTHER: Final = 1.4
_BETWEEN: Final = 38  # the dimension of draws of how rows are spread over groups
_ODD: Final = 1 / 8  # of a bin's width over √12: how far its mean may be off where sizes are smooth
DIFFER: Final = 0.1  # of the half-width of bounds: by what averages of units differ, about


class Model(Enum):
    """How units that noise hides are drawn: as caps were first chosen by, by more laws, by all."""

    FIRST = "unseen"
    FINE = "hidden"
    TAILED = "tailed"
    LEAKY = "leaky"


@final
class Sizes:
    """Noisy numbers of units in bins (low, high], the noise of each two-sided geometric.

    ``lows`` and ``highs`` are the smallest and the largest size in each bin. ``apart``: sizes are
    numbers of groups. Then the best bound is one for groups that lose 1 of a unit, and not all that
    it loses; and bars are wide, since units in many groups are in others than units in few.
    ``model``: how units that noise hides are drawn, and ``wide``: also groups of many sizes.
    ``step``: all sizes are multiples of it.
    """

    def __init__(  # noqa: PLR0913 - what is known of the sizes
        self,
        units: Whole | Floats,
        scale: float,
        lows: Floats,
        highs: Floats,
        *,
        apart: bool = False,
        model: Model = Model.FIRST,
        wide: bool = False,
        step: float | None = None,
    ) -> None:
        self._wide = wide
        self._model, self._fine, self._step = model, model is not Model.FIRST, step
        self._units, self._scale = units.astype(np.float64), scale
        self._lows, self._highs, self._apart = lows, highs, apart
        self._losses: dict[float, Loss] = {}  # by cap
        self._squares: dict[float, Loss] = {}

    @cached_property
    def end(self) -> int:
        """One past the last bin that stands clear of noise, by itself or with its neighbours.

        Beyond these, units that noise may hide are guessed.
        """
        counts, first = self._units, self._body[0]
        end = first
        alarm, fading = _RARER if self._fine else (_ALARM, _FADING)
        while first < counts.size:
            chance = max(alarm * fading ** max(0, first - end - 1), _DOUBT)
            wide = next((each for each in (1, 2, 4) if first + each <= counts.size and
                         noise_tail(each, counts[first : first + each].sum() / self._scale)
                         < chance), 0)  # fmt: skip
            end = first + wide if wide else end
            first += wide or 1
        return end

    @cached_property
    def _body(self) -> tuple[int, bool]:
        """Where to search: behind neighbours that stand clear, or not, at one row's worth."""
        for wide in _NEIGHBOURS if self._highs[0] < 1 else ():
            sums = np.convolve(self._units, np.ones(wide), "valid") / self._scale
            place = int(np.argmax(sums))
            if sums.size * noise_tail(wide, float(sums[place])) < _ALARM:
                return place + wide, True
        return int(np.searchsorted(self._highs, 1.0)), False  # rows: from the first on

    @property
    def is_blind(self) -> bool:
        """Whether nothing stands clear of noise, so that all there is may be of any size."""
        return self._body == (self.end, False)

    @cached_property
    def _tails(self) -> tuple[int, Floats, NDArray[np.bool_]]:
        """Draws of how many units there are in each bin from some bin on, about `end`."""
        if self._fine:
            hidden = Hidden(
                self._units,
                self._scale,
                self._bins,
                self.end,
                leaky=self._model is Model.LEAKY,
                tailed=self._model is not Model.FINE,
                wide=self._wide,
            )
            return hidden.first, hidden.draws()[0], np.ones(DRAWS, np.bool_)
        unseen = Unseen(self._units, self._scale, self._bins, self.end)
        return unseen.first, *unseen.draws()

    @cached_property
    def _bins(self) -> Bins:
        return Bins.of(self._lows, self._highs, self._step)

    @cached_property
    def _within(self) -> tuple[Floats, Floats]:
        """Where in their bins units lie: how far off the middle, and the doubt of all together.

        Both are in widths of bins. Why: with a density that falls as e^(-at) over the logarithm t,
            the mean of a bin of width h lies a h² / 12 below its middle. Units that are more, or
            fewer, than between their neighbours may all be anywhere in their bin; of others the
            mean is known to about an eighth of that.
        """
        bins, end = self._bins, self.end
        dense = np.log(np.maximum(self._units / bins.width, self._scale))
        slope = np.clip(np.gradient(dense, bins.log), -_STEEP, _STEEP)
        width = np.log(self._highs / np.maximum(self._lows, self._highs / 8))
        sides = np.pad(dense, 1, mode="edge")
        between = bins.width * np.exp((sides[:-2] + sides[2:]) / 2)
        units = np.maximum(self._units, 0.0)
        doubt = (np.abs(self._units - between) + _ODD * units) / sqrt(12)
        return (slope * width / 12)[:end], doubt[:end]

    @property
    def _near(self) -> float:
        """What part of their distance from the middle bars hold, of draws without another group."""
        if self._fine:
            return 1.0
        near = min(_NEAR[0] + _NEAR[1] * self._scale, _NEAR[2])
        if self._apart:  # few bins stand clear where there are few groups
            return near
        return near * (1 + _FEWER * max(0, _ENOUGH - self.clear))

    @property
    def clear(self) -> int:
        """How many bins stand clear of noise, each by itself."""
        return int(np.count_nonzero(self._units[: self.end] > _CLEAR * self._scale))

    @property
    def largest(self) -> float:
        """About the largest size that stands clear of noise."""
        return float(self._highs[max(self.end - 1, 0)])

    @cached_property
    def total(self) -> float:
        """About what all units add up to; nothing, where none stands clear of noise."""
        return self.loss(0).lost if self.end else 0.0

    def loss(self, cap: float) -> Loss:
        """What a bound loses."""
        if cap not in self._losses:
            self._losses[cap] = self._loss(cap)
        return self._losses[cap]

    def spread(self, cap: float, kept: float, *, cells: int, lump: float | None) -> Loss:
        """What a bound loses where sizes are norms over so many ``cells``: in rows, not in norms.

        ``kept`` are the rows that were measured under it; see `norms.py`.
        """
        norms, (first, units, _) = self._bins.middle, self._tails
        seen = np.zeros_like(norms)
        seen[:first] = np.maximum(self._units[:first], 0.0)
        seen[first : first + units.shape[1]] = units.mean(axis=0)
        lump = lump_of(norms, seen) if lump is None else lump
        alike = alike_of(norms, seen, max(cap, float(norms[0])), kept, lump, cells=cells)
        rows = rows_of(norms, alike, lump)
        least = self.loss(cap).kept
        held = min(max(kept, least), least * sqrt(max(cells, 1)))
        part = (alike - 1 / max(cells, 1)) / max(1 - 1 / max(cells, 1), 1e-9)
        unlike = STRANGE_ALL + (STRANGE_ONE - STRANGE_ALL) * part
        return replace(self._loss(cap, rows / norms), kept=held, held=None, unlike=unlike)

    def partly(self, cap: float, kept: float, norm: float, *, lump: float | None) -> Loss:
        """The same where ``kept`` are the rows of some groups, with such a ``norm``.

        Why: how many rows all groups keep is not known, nor by that how rows are spread over them.
            If a cap leaves groups their shares, it divides their sums t by one number r. It is the
            least if each unit is in one group: r₁, what norms lose. It is at most r₀, if no two
            lumps of a unit are in one group. And the norm of t = r c is no more than the norms n
            of units add up to: r ≤ Σ n / ‖c‖. In each draw r is anywhere between, by its logarithm.
        """
        norms, one, whole = self._bins.middle, self._loss(cap), self.loss(0).drawn
        if lump is None:
            lump = lump_of(norms[: self.end], np.maximum(self._units[: self.end], 0.0))
        rows = np.maximum(norms / lump, 1.0)
        total, lost = self._loss(0, rows).drawn, self._loss(cap, rows).drawn
        least = whole / np.maximum(whole - one.drawn, self._highs[0])
        most = total / np.maximum(total - lost, self._highs[0])
        most = np.maximum(np.minimum(most, whole / max(norm, 1e-300)), least)
        factor = np.maximum(least * (most / np.maximum(least, 1.0)) ** even(_BETWEEN), 1.0)
        held = max(kept, one.kept)
        drawn = held * (factor - 1)
        more = drawn / np.maximum(one.drawn, 1e-9) * (one.drawn > 0)
        return replace(
            one, kept=held, held=None, drawn=drawn, squares=one.squares * more**2,
            within=one.within * median(more), unlike=STRANGE_ONE, near=_FARTHER,
        )  # fmt: skip

    def squares(self, cap: float) -> Loss:
        """What a bound loses of squares: (size + cap) times what it loses of each size."""
        if cap not in self._squares:
            self._squares[cap] = replace(self._loss(cap, self._highs + cap), held=None)
        return self._squares[cap]

    def _loss(self, cap: float, rows: Floats | float = 1.0) -> Loss:
        """``rows``: how many there are in a unit of each size."""
        far, end = _excess(self._lows, self._highs, cap), self.end
        (shift, doubt), (first, units, groups) = self._within, self._tails
        above = (self._highs - np.clip(cap, self._lows, self._highs))[:end]
        far[:end] = np.maximum(far[:end] + shift * above, 0.0)
        far, above = far * rows, above * (rows if isinstance(rows, float) else rows[:end])
        near, tail, seen = far[:first], far[first:][: units.shape[1]], self._units[:first]
        noise = sqrt(2 * float((near**2).sum())) * self._scale
        within = float(np.linalg.norm(doubt * above))
        drawn = float(seen @ near) + np.hypot(noise, within) * even_normal(3) + units @ tail
        squares = np.maximum(float(seen @ near**2) + units @ tail**2, 0.0)
        drawn = np.maximum(drawn, 0.0)
        held = None if cap == 0 else self.loss(0).drawn - drawn
        kept = 0.0 if cap == 0 else max(self.total - median(drawn), float(self._highs[0]))
        return Loss(
            cap=cap, kept=kept, drawn=drawn, squares=squares,
            unlike=_APART if self._apart else STRANGERS,
            near=np.where(groups, max(self._near, min(self._scale / HIDING, 1.0)), self._near),
            within=within, held=held,
        )  # fmt: skip

    def best(
        self,
        epsilon: float,
        *,
        cells: int = 1,
        ratios: float = 0,
        differ: float = DIFFER,
        most: float = inf,
    ) -> float:
        """The bound with the least error of a sum per cell; with ``ratios``, of averages.

        It is at most ``most``, or the first one. Its error is noise of scale cap / ε, and what is
        not known of what the bound loses. ``ratios`` is how many times as much noise an average
        has, in half-widths of its bounds: about 2. Averages of units ``differ`` by so much of them.
        Above one row's worth bounds are whole.
        """
        last = min(self._highs[min(self._highs.size - 1, self.end + _FARTHEST)], most)
        ends: list[float] = self._highs.tolist()
        caps = sorted({high if high < 1 else ceil(high) for high in ends if high <= last})
        best, least = caps[0], inf
        for cap in caps:
            if not ratios and sqrt(2) * cap / epsilon >= least:
                break  # its noise alone is more
            error = self.error(cap, epsilon, cells=cells, ratios=ratios, differ=differ)
            if error < least:
                best, least = cap, error
        return best

    def error(
        self,
        cap: float,
        epsilon: float,
        *,
        cells: float = 1,
        ratios: float = 0,
        differ: float = DIFFER,
    ) -> float:
        """A standard deviation, to be expected, of a sum per cell in rows' worth; of an average.

        Draws that are far off are left out: few large units would cost all others dear.
        """
        loss = self.loss(cap)
        lost, squares = loss.lost, median(loss.squares)
        squares = min(squares, lost) if self._apart else squares
        far = np.sort(np.abs(loss.drawn - lost))
        typical = _SPREAD * float(far[: int(_TYPICAL * far.size)].mean())
        if self._fine:
            typical = float(far[int(_RARE[0] * far.size)]) / _RARE[1]
        noise, part = sqrt(2) * cap / epsilon, 1 / cells
        if not ratios:
            own = np.hypot(typical, (_APART if self._apart else _UNLIKE) * lost) * part
            return float(np.hypot(noise, np.hypot(own, sqrt(part * (1 - part) * squares))))
        among = np.hypot(sqrt(squares * cells), _UNLIKE * lost) / (loss.kept + lost)
        return float(np.hypot(ratios * noise * cells / loss.kept, differ * among))


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


def _excess(lows: Floats, highs: Floats, cap: float) -> Floats:
    """The mean of (size - cap)⁺ in each bin, if sizes in it are spread evenly over their logs."""
    low = np.maximum(lows, highs / 8)
    first = np.clip(cap, low, highs)
    wide = np.maximum(np.log(highs / low), 1e-12)
    spread = (highs - first - cap * np.log(highs / first)) / wide
    found: Floats = np.where(highs > low, spread, np.maximum(highs - cap, 0.0))
    return np.maximum(found, 0.0)
