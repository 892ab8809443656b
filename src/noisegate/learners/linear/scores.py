"""Questions about scores that are linear in the coordinates: slopes of a loss, and where rows lie.

Weights and scores are public real numbers, of rows from -1 to 1; here they become whole numbers.
A score's steps are so small beside what noise leaves that nothing is lost by them.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.learners.asking import Floats, NoisySums, RowsAsk
from noisegate.transforms.statistics.features import Feature, Linear, One, Products
from noisegate.transforms.statistics.numbers import Numbers
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import (
    Lookup,
    Nearest,
    Plain,
    Scores,
    Slopes,
    Soft,
    Weighing,
)

UNIT: Final = 1 << 10  # a slope of 1
PRODUCTS_MAX: Final = 128  # columns whose products are asked for
_STEPS: Final = 1 << 14  # of a weight, from 0 to 1
_WEIGHT_MAX: Final = 1 << 10
_ENTRIES: Final = 1 << 12  # of a table, to either side
_LEVELS: Final = 12  # of lengths, each 2^(1/4) of the next
_USUAL: Final = 1 / 3  # the mean square of coordinates that lie anywhere


def scores(weights: Floats, reach: int) -> Scores:
    """Real weights, the constant last, as whole ones."""
    held = np.clip(weights, -_WEIGHT_MAX, _WEIGHT_MAX) * _STEPS
    held = np.column_stack([held[:, :-1], held[:, -1] * reach])
    return Scores(Numbers.of(np.rint(held)))


def lookup(function: Callable[[Floats], Floats], reach: int, *, span: int = 16) -> Lookup:
    """A function of a score, in units, from -span to span (a power of two)."""
    middles = (np.arange(-_ENTRIES, _ENTRIES) + 0.5) * span / _ENTRIES
    shift = (_STEPS * reach * span // _ENTRIES).bit_length() - 1
    return Lookup(Numbers.of(np.rint(UNIT * function(middles))), shift, _ENTRIES)


def softmax_slopes(weights: Floats, reach: int) -> Soft:
    """The slopes of a softmax: a row's share in each class, less 1 in its own."""
    gaps = np.arange(_ENTRIES) * 16 / _ENTRIES
    shift = (_STEPS * reach * 16 // _ENTRIES).bit_length() - 1
    table = Lookup(Numbers.of(np.rint((1 << 20) * np.exp(-gaps))), shift)
    return Soft(scores(weights, reach), table, UNIT, less=True)


def hats(line: Floats, knots: int, reach: int) -> Soft:
    """A score from -1 to 1 in parts of the two knots beside it, by how near each is.

    Of knots 0, 1, … in steps of h, score k is 2kt - k² for t = (score + 1) / h, so the nearest is
    the highest, by 1 - 2f over the second, of which f is the part; by more over any other.
    """
    gaps = (np.arange(_ENTRIES) + 0.5) / _ENTRIES
    parts = np.append(np.rint((1 << 20) * (1 - gaps) / (1 + gaps)), 0)
    shift = (_STEPS * reach // _ENTRIES).bit_length() - 1
    places = np.arange(knots)[:, None]
    table = places * (knots - 1) * line
    table[:, -1:] += places * (knots - 1) - places**2
    return Soft(scores(table, reach), Lookup(Numbers.of(parts), shift), UNIT)


def cells_between(line: Floats, cuts: Floats, order: str, *, keyed: bool = False) -> Nearest:
    """Rows by which whole cuts, rising, their score along a whole line is between.

    The k-th score is k times the line's less the first k cuts: the highest of them is the k-th
    exactly where the score is between cuts k and k + 1.
    """
    table = np.arange(len(cuts) + 1)[:, None] * line
    table[1:, -1] -= np.cumsum(cuts)
    return Nearest(Scores(Numbers.of(table), order), keyed=keyed)


def cells_of_score(weights: Floats, cuts: Floats, reach: int, *, keyed: bool = False) -> Nearest:
    """Rows by which real cuts, rising, their score is between."""
    line = scores(weights[None], reach).weights.array[0]
    return cells_between(line, np.rint(cuts * _STEPS * reach), "linear", keyed=keyed)


@final
@dataclass(frozen=True, slots=True)
class Lengths:
    """Noisy numbers of rows by the length of their first coordinates; ``edges`` in grid units."""

    edges: Floats
    counts: NoisySums
    columns: int
    reach: int

    @property
    def square(self) -> float:
        """The mean square of a coordinate, from -1 to 1."""
        held = np.maximum(self.counts.values[:, 0], 0.0)
        middles = (self.edges / self.reach) ** 2 * (1 + 2**-0.5) / 2
        return float(held @ middles / max(held.sum(), 1.0) / self.columns)

    def covering(self, part: float) -> int:
        """A length that this part of the rows does not pass."""
        held = np.cumsum(np.maximum(self.counts.values[:, 0], 0.0))
        place = int(np.searchsorted(held, part * held[-1]))
        return int(self.edges[min(place, _LEVELS - 1)])

    def covering_all(self) -> int:
        """A length that no rows are seen to pass."""
        beyond = np.cumsum(self.counts.values[::-1, 0])[::-1]
        deviation = (np.arange(_LEVELS, 0, -1) * self.counts.variance) ** 0.5
        above = np.flatnonzero(beyond > 3 * deviation)
        return int(self.edges[above.max(initial=0)])


def ask_lengths(ask: RowsAsk, columns: int, rows: float, share: Fraction) -> Lengths | None:
    """The lengths of about so many rows in their first coordinates, if noise lets them be seen."""
    top = columns * ask.reach**2
    squares = np.rint(top * 2.0 ** (-np.arange(1, _LEVELS) / 2))[::-1]
    line = np.zeros(2 * ask.columns + 1)
    line[ask.columns : ask.columns + columns] = 1
    question = Statistic(cells_between(line, squares, "squares"), (One(),))
    (noise,) = ask.variance(question, [share])
    if rows < 8 * (_LEVELS * noise) ** 0.5:
        return None
    (counts,) = ask.totals(question, [share])
    return Lengths(np.ceil(np.sqrt(np.append(squares, top))), counts, columns, ask.reach)


def square_in(lengths: Lengths | None) -> float:
    """The mean square of a coordinate, or a guess."""
    return _USUAL if lengths is None else lengths.square


def shortened(
    weighing: Weighing, features: tuple[Feature, ...], norm: int | None, columns: int
) -> Statistic:
    """A question about rows that are shortened, if a norm is given."""
    if norm is None:
        return Statistic(weighing, features)
    return Statistic(weighing, features, norm, columns)


def noise_of(ask: RowsAsk, question: Statistic, shares: list[Fraction]) -> list[float]:
    """The noise variances that shares would buy; infinite where no noise is that large."""
    try:
        return ask.variance(question, shares)
    except SpecError:
        return [float("inf")] * len(shares)


def useful(ask: RowsAsk, norm: int, columns: int) -> int | None:
    """The norm, if shortening by it lessens the noise of sums of coordinates or their products."""
    wide: Feature = Products() if ask.columns <= PRODUCTS_MAX else One()
    features, shares = (Linear(), wide), [Fraction(1, 2)] * 2
    plain = noise_of(ask, Statistic(Plain(), features), shares)
    less = noise_of(ask, shortened(Plain(), features, norm, columns), shares)
    return norm if less[0] * less[1] < plain[0] * plain[1] / 2 else None


def square_of(triangle: Floats, size: int) -> Floats:
    """A symmetric matrix from its upper triangle."""
    found = np.zeros((size, size))
    first, second = np.triu_indices(size)
    found[first, second] = found[second, first] = triangle
    return found


def pulls(
    ask: RowsAsk, weighing: Slopes | Soft, norm: int | None, columns: int, shares: list[Fraction]
) -> tuple[Floats, Floats]:
    """Sums of slopes times 1 and coordinates, the constant last, and their noise variances."""
    question = shortened(weighing, (One(), Linear()), norm, columns)
    ones, sums = ask.totals(question, shares)
    values = np.column_stack([sums.values[:, :columns] / ask.reach, ones.values]) / UNIT
    noise = np.full(columns + 1, sums.variance / ask.reach**2)
    noise[-1] = ones.variance
    return values, noise / UNIT**2
