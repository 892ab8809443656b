"""Where a target lies: its rows and level for the price of one, its spread by bins of residuals."""

from fractions import Fraction
from typing import Final, final

import numpy as np
from scipy.special import ndtr, ndtri

from noisegate.frozen import dataclass, replace
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.learners.linear.scores import UNIT, cells_of_score, hats
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic

SPANS: Final = np.geomspace(0.002, 0.34, 24)  # variances of a score from -1 to 1
_PLACES: Final = np.linspace(-1, 1, 41)  # and means of it
_AWAY: Final = 0.12  # the variance of such a mean: a guess
_KNOTS: Final = (7, 9)  # of a target of which nothing else is asked; with Gaussian noise
_WIDE: Final = np.geomspace(0.02, 0.5, 12)  # its deviation
_SHAPE: Final = 0.1  # of the rows at a knot: how far from normal it may be
_ROWS: Final = (3, 12)  # deviations of their noise: the fewest rows, and as many at least
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


def ask_level(ask: RowsAsk, share: Fraction) -> Level:
    """Where a target is of which nothing else is asked, by the numbers of rows at its knots.

    It is taken to be normal, anywhere in its bounds. The mean is by how likely each place, width
    and number of rows is, and by one over the target's deviation: errors count in parts of its
    variance, but narrow targets are rarer than wide ones.
    """
    knots = _KNOTS[ask.gaussian]
    counts = _counts(ask, share, knots)
    least = counts.variance**0.5
    most = max(_ROWS[1] * least, 2 * float(np.abs(counts.values).sum()))
    sizes = np.geomspace(_ROWS[0] * least, most, 40)
    parts, means, variances = _at_knots(knots)
    told = sizes[:, None, None] * parts
    unsure = (counts.variance + (_SHAPE * told) ** 2) ** 0.5
    off = np.abs(counts.values[:, 0] - told) / unsure
    off = np.log(unsure) + (off**2 / 2 if ask.gaussian else 2**0.5 * off)
    likely = -off.sum(axis=2) - means**2 / 2 / _FAR
    weights = np.exp(likely - likely.max())
    by = weights / variances**0.5
    found = float(np.sum(by * means) / by.sum())
    weights /= weights.sum()
    return Level(
        max(float(weights.sum(axis=1) @ sizes), 1.0),
        found,
        float(np.sum(weights * (means - found) ** 2)),
        float(np.sum(weights * variances)),
    )


def _at_knots(knots: int) -> tuple[Floats, Floats, Floats]:
    """For normal targets: the parts of rows at each of so many knots, means and variances."""
    normal = ndtri((np.arange(40) + 0.5) / 40)
    places = np.linspace(-1, 1, 81)[:, None, None]
    rows = np.clip(places + _WIDE[:, None] * normal, -1, 1).reshape(-1, 40)
    at = np.linspace(-1, 1, knots)
    parts = np.maximum(1 - np.abs(rows[..., None] - at) * (knots - 1) / 2, 0)
    return parts.mean(axis=1), rows.mean(axis=1), rows.var(axis=1)


def residual(line: Floats) -> Floats:
    """The weights of the residual: target less line."""
    return np.concatenate([-line[:-1], [1.0, -line[-1]]])


def ask_first(ask: RowsAsk, share: Fraction) -> tuple[float, float, float]:
    """The rows, the target's mean and how unsure it is, by the rows at both ends of its bounds."""
    counts = _counts(ask, share, 2)
    (low, high), noise = counts.values[:, 0].tolist(), counts.variance
    rows = max(low + high, noise**0.5, 1.0)
    unsure = 1 / (1 / _FAR + rows**2 / 2 / noise)
    return rows, (high - low) * rows / 2 / noise * unsure, unsure


def _counts(ask: RowsAsk, share: Fraction, knots: int) -> NoisySums:
    """The numbers of rows at knots of the target, each row in parts of the two beside it.

    A row is 1 of all knots together, so they cost no more than the number of rows.
    """
    line = residual(np.zeros(ask.columns))
    (parts,) = ask.totals(Statistic(hats(line, knots, ask.reach), (One(),)), [share])
    return NoisySums(parts.values / UNIT, parts.variance / UNIT**2)
