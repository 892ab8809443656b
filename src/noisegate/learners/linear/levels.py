"""Where a target lies: its rows and level for the price of one, its spread by bins of residuals."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, final

import numpy as np
from scipy.special import ndtr

from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.linear.scores import UNIT, cells_of_score, halved
from noisegate.learners.noisy_sums import joined
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic

SPANS: Final = np.geomspace(0.002, 0.34, 24)  # variances of a score from -1 to 1
_PLACES: Final = np.linspace(-1, 1, 41)  # and means of it
_AWAY: Final = 0.12  # the variance of such a mean: a guess
CUTS: Final = np.linspace(-1, 1, 33)[1:-1]
_ROUGH: Final = 0.03  # of the rows: how far from normal residuals may be
_ALIKE: Final = 4  # neighbouring sums of bins, which tell nearly the same


@final
@dataclass(frozen=True, slots=True)
class Spread:
    """Where a score within span of a centre may lie: weights of its variances (down) and means."""

    weights: Floats
    span: float = 1.0
    centre: float = 0.0

    @property
    def mean(self) -> float:
        """Of the score."""
        return self.centre + float(self.weights.sum(axis=0) @ _PLACES) * self.span

    @property
    def unsure(self) -> float:
        """The variance of that mean."""
        places = self.centre + _PLACES * self.span
        return float(self.weights.sum(axis=0) @ (places - self.mean) ** 2)

    @property
    def is_thin(self) -> bool:
        """Whether it is most likely thinner than can be told."""
        return bool(self.weights[0].sum() > 1 / 2)

    @property
    def variance(self) -> float:
        """Of the score, as likely as not."""
        return float(self.weights.sum(axis=1) @ SPANS) * self.span**2

    @property
    def narrow(self) -> float:
        """The same, where an error counts in parts of it."""
        return float(1 / (self.weights.sum(axis=1) @ (1 / SPANS))) * self.span**2

    def told(self, level: float, unsure: float) -> "Spread":
        """The same, if the mean was also told so."""
        places = self.centre + _PLACES * self.span
        near = np.exp(-((places - level) ** 2) / 2 / (unsure + (self.span / len(_PLACES)) ** 2))
        held = self.weights * (near + 1e-12)
        return replace(self, weights=held / held.sum())

    @property
    def cut(self) -> float:
        """How far from its mean few rows lie."""
        place = int(np.searchsorted(np.cumsum(self.weights.sum(axis=1)), 0.8))
        wide = float(SPANS[min(place, len(SPANS) - 1)]) ** 0.5 * self.span
        return float(min(max(0.03, 2.5 * wide + 1.5 * self.unsure**0.5), 1 + abs(self.mean), 2.0))


def anywhere() -> Floats:
    """Weights of a spread that nothing is known about."""
    found = np.tile(np.exp(-(_PLACES**2) / 2 / _AWAY), (len(SPANS), 1))
    held: Floats = found / found.sum()
    return held


def ask_spread(ask: RowsAsk, line: Floats, span: float, rows: float, share: Fraction) -> Spread:
    """Mean and variance of a line's residuals by noisy numbers of rows in bins of them.

    Numbers of rows up to each bin, from the nearer end, are compared with those of normal
    residuals: whatever these look like from near, their place and width are told so.
    """
    question = Statistic(cells_of_score(residual(line), CUTS * span, ask.reach), (One(),))
    (counts,) = ask.totals(question, [share])
    below = ndtr((CUTS - _PLACES[:, None]) / np.sqrt(SPANS)[:, None, None])
    many = np.arange(1, len(CUTS) + 1)
    near = np.minimum(many, many[::-1])
    from_left = many <= len(CUTS) // 2 + 1
    left = np.cumsum(counts.values[:-1, 0])
    right = rows - np.cumsum(counts.values[:0:-1, 0])[::-1]
    noise = counts.variance * near + (_ROUGH * rows) ** 2
    far = (np.where(from_left, left, right) - rows * below) ** 2 / noise
    likely = -far.sum(axis=2) / 2 / _ALIKE
    held = anywhere() * np.exp(likely - likely.max())
    return Spread(held / held.sum(), span)


@final
@dataclass(frozen=True, slots=True)
class Halves:
    """The noisy number of rows and sum of the target; both have this noise variance."""

    rows: float
    total: float
    noise: float

    @property
    def many(self) -> float:
        """The rows, as far as they pass their noise."""
        return float(max(self.rows, self.noise**0.5, 1.0))

    @property
    def level(self) -> tuple[float, float]:
        """The mean of the target, drawn to 0 as far as noise hides it, and how unsure it is."""
        rows, unsure = self.many, self.noise * (1 + 1 / _AWAY)
        level = float(np.clip(self.total * rows / (rows**2 + unsure), -1, 1))
        return level, _AWAY * unsure / (rows**2 + unsure)

    def and_also(self, other: "Halves") -> "Halves":
        """Both looks together."""
        rows, noise = joined((self.rows, self.noise), (other.rows, other.noise))
        total, _ = joined((self.total, self.noise), (other.total, other.noise))
        return Halves(rows, total, noise)


def residual(line: Floats) -> Floats:
    """The weights of the residual: target less line."""
    return np.concatenate([-line[:-1], [1.0, -line[-1]]])


def ask_halves(ask: RowsAsk, share: Fraction) -> Halves:
    """The number of rows and the sum of the target, for the price of one.

    A target y from -1 to 1 is (1 + y)/2 of one number and (1 - y)/2 of another: a row is 1 of both
    together. Rows are their sum, and the target is their difference.
    """
    line = residual(np.zeros(ask.columns))
    (halves,) = ask.totals(Statistic(halved(line, ask.reach), (One(),)), [share])
    up, down = (halves.values[:, 0] / UNIT).tolist()
    return Halves(up + down, up - down, 2 * halves.variance / UNIT**2)
