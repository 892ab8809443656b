"""Which tables to measure for which shares, by how far off they will be afterwards.

A cell with a guess g is taken to be off by a variance t = κ·g, where κ is what the distance of the
whole table from its guess shows. Measured with a variance v, and shrunk towards the guess as far as
that is noise, it is off by √(t v / (t + v)): no more than the guess alone. The sum over all cells
falls with the share, ever more slowly, so shares go where they lower it most.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, log2, pi, sqrt
from typing import Final, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes
from noisegate.synthetic.asking import TablesAsk

MEAN: Final = sqrt(2 / pi)  # the mean size of noise of variance 1
_GROUPS: Final = 64
_STEPS: Final = np.concatenate([[0.0], np.geomspace(1e-4, 1, 48)])
_GRAIN: Final = 1 << 40
_LEAST: Final = 2.0**-30  # a smaller share buys nothing but noise


@final
@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A table: variances of its cells around their guess, in groups of so many, and its weight."""

    variances: Floats
    counts: Floats
    weight: float
    precision: float = 0.0  # known from earlier measurements

    @classmethod
    def of(
        cls, guess: Floats, distance: float, *, weight: float = 1.0, precision: float = 0.0
    ) -> "Item":
        """A table that is so far from its guess, Σ|exact - guess| over its cells."""
        cells = np.sort(np.maximum(guess, 1e-9))
        factor = (max(distance, 1e-9) / (MEAN * np.sqrt(cells).sum())) ** 2
        size = -(-len(cells) // _GROUPS)
        starts = np.arange(0, len(cells), size)
        counts = np.diff([*starts, len(cells)]).astype(np.float64)
        means = np.add.reduceat(cells, starts) / counts
        return cls(factor * means, counts, weight, precision)

    @property
    def gain(self) -> float:
        """How much a first share lowers the error: by weight, distance and cells."""
        return float(self.weight * self.off(np.zeros(1))[0] / self.counts.sum() ** (2 / 3))

    def off(self, precision: Floats) -> Floats:
        """Σ|error| over its cells, for each precision of new measurements."""
        known = np.maximum(self.precision + precision, 1e-300)[:, None]
        return MEAN * (np.sqrt(self.variances / (1 + self.variances * known)) @ self.counts)


def allotted(
    ask: TablesAsk, items: Mapping[Axes, Item], budget: Fraction
) -> tuple[dict[Axes, Fraction], float]:
    """Shares that lower the weighted sum of errors most, and what that sum will be."""
    if not items:
        return {}, 0.0
    steps = _STEPS * float(budget)
    whole = ask.variance(Fraction(1))
    precision = steps ** (1 if ask.gaussian else 2) / whole
    falls = list[tuple[float, float, Axes, float]]()
    left, total = float(budget), 0.0
    for axes, item in items.items():
        off = item.weight * item.off(precision)
        total += float(off[0])
        for low, high in _hull(steps, off):
            run, fall = steps[high] - steps[low], off[low] - off[high]
            falls.append((-fall / run, run, axes, fall))
    shares = dict.fromkeys(items, 0.0)
    for _, run, axes, fall in sorted(falls, key=lambda each: each[0]):
        part = min(1.0, left / run)
        shares[axes] += part * run
        total -= part * fall
        left -= part * run
        if left <= 0:
            break
    return exact_shares({a: s for a, s in shares.items() if s > 0}, budget), total


def exact_shares(shares: Mapping[Axes, float], budget: Fraction) -> dict[Axes, Fraction]:
    """Nearly the same in proportion, as fractions that add up to the budget.

    Each amount of noise is prepared for anew, which takes time. So shares are rounded down to
    powers of √½, then up where there is room; what is left goes to those of the commonest power.
    """
    scale = float(budget) / max(sum(shares.values()), 1e-300)
    alike: dict[float, list[Axes]] = {}
    for axes, share in shares.items():
        if scale * share > _LEAST:
            alike.setdefault(round(-2 * log2(scale * share), 6), []).append(axes)
    if not alike:
        return {}
    groups: dict[int, list[Axes]] = {}
    left = budget - sum(len(sets) * _power(ceil(level)) for level, sets in alike.items())
    for level in sorted(alike, key=lambda level: level - ceil(level)):
        more = len(alike[level]) * (_power(ceil(level) - 1) - _power(ceil(level)))
        raised = more <= left
        left -= raised * more
        groups.setdefault(ceil(level) - raised, []).extend(alike[level])
    common = max(groups, key=lambda level: len(groups[level]) * _power(level))
    found = {axes: _power(level) for level, sets in groups.items() for axes in sets}
    found |= {axes: found[axes] + left / len(groups[common]) for axes in groups[common]}
    return {axes: found[axes] for axes in shares if axes in found}


def _power(level: int) -> Fraction:
    """√½ to some power, rounded down."""
    return Fraction(int(_GRAIN * 2 ** (-level / 2)), _GRAIN)


def _hull(steps: Floats, off: Floats) -> Sequence[tuple[int, int]]:
    """Stretches of the convex hull below a falling curve."""
    x, y = steps.tolist(), off.tolist()  # single numbers of an array are slow
    kept: list[int] = []
    for new in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2:]
            if (y[b] - y[a]) * (x[new] - x[a]) < (y[new] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(new)
    return [(a, b) for a, b in pairwise(kept) if y[b] < y[a]]
