"""Where a target lies: its rows and level for the price of one, its spread by bins of residuals."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, final

import numpy as np
from scipy.special import ndtr

from noisegate.learners.asking import Floats, RowsAsk
from noisegate.learners.linear.scores import UNIT, cells_of_score, hats
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic

SPANS: Final = np.geomspace(0.002, 0.34, 24)  # variances of a score from -1 to 1
_PLACES: Final = np.linspace(-1, 1, 41)  # and means of it
_AWAY: Final = 0.12  # the variance of such a mean: a guess
KNOTS: Final = 9  # of a target of which nothing else is asked
_FAR: Final = 0.5  # the variance of the mean, for whatever width: a guess
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
        held = self.weights * (near + 1e-3)
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
class Level:
    """The rows and the mean of the target, how unsure that is, and the target's variance."""

    rows: float
    mean: float
    unsure: float
    variance: float


@final
@dataclass(frozen=True, slots=True)
class Places:
    """Noisy numbers of rows at knots of the target, each with this noise variance."""

    counts: Floats
    noise: float

    @property
    def level(self) -> Level:
        """What they say, where all rows are between two knots, any two, and anyhow in between.

        If n rows are at k knots, each has n / k of them, give or take as many: a normal prior of
        which the posterior is known. All k are as likely, and all sizes of n that are more than
        noise. The mean is by how likely each is, and by one deviation of the target: errors count
        in parts of its variance, but narrow targets are rarer than wide ones.
        """
        knots, least = len(self.counts), self.noise**0.5
        at, step = np.linspace(-1, 1, knots), 2 / (knots - 1)
        sizes = np.geomspace(3 * least, max(12 * least, 2 * float(np.abs(self.counts).sum())), 40)
        first, last = (each[:, None, None] for each in np.triu_indices(knots, 1))
        inside = (np.arange(knots) >= first) & (np.arange(knots) <= last)
        many = (last - first + 1)[:, 0]
        each = (sizes / many)[..., None]
        spread = np.where(inside, each**2, 0.0) + self.noise
        far = self.counts - np.where(inside, each, 0.0)
        off = np.abs(far) / np.sqrt(spread)
        off = np.where(off < 2**0.5, off**2 / 2, 2**0.5 * off - 1)  # as far out as Laplace noise is
        likely = -np.sum(off + np.log(spread) / 2, axis=2)
        kept = each**2 / spread
        held = np.where(inside, np.maximum(each + kept * far, 0.0), 0.0)
        rows = held.sum(axis=2) + 1e-9
        mean = held @ at / rows
        away = (at - mean[..., None]) ** 2
        variance = np.maximum(np.sum(held * away, axis=2) / rows - step**2 / 6, step**2 / 20)
        blur = (
            self.noise
            * np.sum(np.where(inside, kept * away, 0.0), axis=2)
            / np.maximum(rows, least) ** 2
        )
        likely += -(mean**2) / 2 / _FAR - np.log(knots + 1 - many)
        weights = np.exp(likely - likely.max())
        by = weights / variance**0.5
        found = float(np.sum(by * mean) / by.sum())
        weights /= weights.sum()
        return Level(
            max(float(np.sum(weights * rows)), least, 1.0),
            found,
            float(np.sum(weights * (blur + (mean - found) ** 2))),
            float(np.sum(weights * variance)),
        )


def residual(line: Floats) -> Floats:
    """The weights of the residual: target less line."""
    return np.concatenate([-line[:-1], [1.0, -line[-1]]])


def ask_places(ask: RowsAsk, share: Fraction, *, knots: int) -> Places:
    """The numbers of rows at knots of the target, each row in parts of the two beside it.

    A row is 1 of all knots together, so they cost no more than the number of rows.
    """
    line = residual(np.zeros(ask.columns))
    (parts,) = ask.totals(Statistic(hats(line, knots, ask.reach), (One(),)), [share])
    return Places(parts.values[:, 0] / UNIT, parts.variance / UNIT**2)
