"""Estimates from noisy sums: the variance of the noise is known, so it says how far to trust them.

All of it is arithmetic on what was released.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.transforms.statistics.numbers import Numbers
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Nearest, Scores

_STEPS: Final = 1 << 20
_USUAL: Final = 0.25  # the squared distance of a mean from the middle, in each column: a guess


@final
class Part:
    """A part of a learner's price, for another learner inside it."""

    def __init__(self, ask: RowsAsk, share: Fraction, *, until: float) -> None:
        self._ask, self._share, self._until = ask, share, until
        self.columns, self.reach, self.classes = ask.columns, ask.reach, ask.classes
        self.gaussian, self.objective = ask.gaussian, ask.objective

    def totals(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[NoisySums]:  # noqa: D102 - see RowsAsk
        return self._ask.totals(statistic, [self._share * share for share in shares])

    def variance(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[float]:  # noqa: D102 - see RowsAsk
        return self._ask.variance(statistic, [self._share * share for share in shares])

    def minimised(self, penalty: Fraction, share: Fraction) -> NoisySums:  # noqa: D102 - see RowsAsk
        return self._ask.minimised(penalty, self._share * share)

    def done(self, part: float, words: str) -> None:  # noqa: D102 - see RowsAsk
        self._ask.done(self._until * part, words)

    def keep(self, fitted: Mapping[str, NDArray[Any]]) -> None:
        """What the inner learner has is not what the outer one would give."""


def divided(share: Fraction, *weights: float) -> list[Fraction]:
    """A share in parts by weight, which add up to it.

    >>> divided(Fraction(1, 2), 1, 3)
    [Fraction(1, 8), Fraction(3, 8)]
    """
    ends = np.rint(_STEPS * np.cumsum((0.0, *weights)) / sum(weights))
    return [share * Fraction(int(step), _STEPS) for step in np.diff(ends)]


def for_means(ask: RowsAsk, share: Fraction) -> list[Fraction]:
    """How a share is divided between counts and sums of coordinates, so that means are best.

    A mean is off by (noise of the sums - mean x noise of the count) / rows. With amounts a and b
    the squares add up to v / a^p + w / b^p, where p is 2, or 1 for Gaussian noise: least where
    a : b = (v : w)^(1 / (p + 1)).
    """
    columns = ask.columns
    power = 2 if ask.gaussian else 3
    count = 1 / 2 if ask.gaussian else 2.0
    sums = columns / 2 if ask.gaussian else min(2.0 * columns**2, (columns + 1) * (columns + 2) / 3)
    return divided(share, (count * _USUAL) ** (1 / power), sums ** (1 / power))


def shrunk(seen: Floats, towards: Floats, noise: Floats | float, *, most: float = 1.0) -> Floats:
    """Each row drawn to a guess, the more the noise could explain how far it is from it [JS61].

    ``noise`` is the expected squared length of a row's noise; ``most`` is the largest part of a
    difference that is kept.

    >>> shrunk(np.array([[3.0, 0.0, 4.0]]), np.zeros((1, 3)), 37.5).tolist()
    [[1.5, 0.0, 2.0]]
    """
    away = seen - towards
    length = np.maximum(np.sum(away**2, axis=1), 1e-300)
    width = seen.shape[1]
    kept = np.clip(1 - max(1, width - 2) / width * noise / length, 0.0, most)
    found: Floats = towards + kept[:, None] * away
    return found


def joined(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The best estimate from two of one number, each with its variance."""
    (a, v), (b, w) = first, second
    return (a * w + b * v) / (v + w), v * w / (v + w)


def nearest(centers: Floats, reach: int) -> Nearest:
    """The cells of the nearest centre; centres from -1 to 1 are rounded to the grid."""
    held = np.rint(np.clip(centers, -1, 1) * reach)
    lengths = np.sum(held**2, axis=1, keepdims=True)
    return Nearest(Scores(Numbers.of(np.hstack([2 * held, -lengths]))))
