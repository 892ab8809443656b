"""What synthesizers share: evidence from answers, trees over columns, and what they refuse."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import log, prod, sqrt
from typing import Final

import numpy as np

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.estimate import simplex
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Parts, Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import Evidence
from noisegate.synthetic.recipes import TablesWorkload
from noisegate.synthetic.sharing import exact_shares

_BEYOND: Final = 4.0  # squared standard deviations beyond the largest of so many draws
CELLS: Final = 1 << 18  # of a model, unless told: more is slower, and hardly nearer


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """A synthesizer for any sets, whose model has at most ``cells_max`` cells."""

    cells_max: int = CELLS

    def require(self, sizes: Sizes, workload: TablesWorkload) -> None:  # noqa: ARG002 - any sets
        """A model has room for each column at least."""
        if type(self.cells_max) is not int or self.cells_max < sum(sizes):
            raise SpecError(
                f"A model of {self.cells_max} cells cannot hold every column.",
                fix=f"Give cells_max as a whole number, at least {sum(sizes):,}.",
                about="cells",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds(Modelled):
    """One that asks in so many ``rounds``, if it is told."""

    rounds: int | None = None

    def require(self, sizes: Sizes, workload: TablesWorkload) -> None:
        """Some rounds, and room for each column."""
        if self.rounds is not None and (type(self.rounds) is not int or self.rounds < 1):
            raise SpecError(
                "rounds is not a valid count.",
                fix="Use a whole number of at least 1.",
                about="rounds",
            )
        super(Rounds, self).require(sizes, workload)  # noqa: UP008 - slots


def measured(ask: TablesAsk, sets: Sequence[Axes], shares: Sequence[Fraction]) -> list[Evidence]:
    """Noisy tables as evidence."""
    return [evidence_of(s, n) for s, n in zip(sets, ask.tables(sets, shares), strict=True)]


def evidence_of(axes: Axes, noisy: Noisy) -> Evidence:
    """One noisy table as evidence."""
    return Evidence(axes, np.asarray(noisy.values, np.float64), noisy.variance)


def singles_of(sizes: Sizes) -> list[Axes]:
    """Every column by itself."""
    return [(axis,) for axis in range(len(sizes))]


def columns_shares(
    sizes: Sizes, workload: TablesWorkload, budget: Fraction
) -> dict[Axes, Fraction]:
    """Shares for single columns: those that make their expected errors least, by weights."""
    wanted = {
        axes: (float(workload.weight(axes)) * sizes[axes[0]]) ** (2 / 3)
        for axes in singles_of(sizes)
    }
    return exact_shares(wanted, budget)


def groups_shares(sizes: Sizes, workload: TablesWorkload, budget: Fraction) -> dict[Axes, Fraction]:
    """The same where shares do not add up: one table of small columns says more than each of them.

    At pure ε a table has twice the share of two, so a quarter of their variance in each cell, and
    each cell of a column is the sum of as many cells as the others have.
    """

    def error(group: Axes) -> float:
        """√Σ|error| of the columns, if the group had the whole price."""
        cells = prod(sizes[a] for a in group)
        own = (float(workload.weight((a,))) * sizes[a] * sqrt(cells / sizes[a]) for a in group)
        return sqrt(sum(own))

    groups: list[Axes] = []
    for axis in sorted(range(len(sizes)), key=lambda axis: -sizes[axis]):
        more = {g: error((*g, axis)) - error(g) - error((axis,)) for g in groups}
        best = min(more, key=more.__getitem__, default=None)
        if best is not None and more[best] < 0:
            groups.remove(best)
            groups.append((*best, axis))
        else:
            groups.append((axis,))
    return exact_shares({g: error(g) for g in sorted(tuple(sorted(g)) for g in groups)}, budget)


def evened(parts: Parts, total: float) -> list[Floats]:
    """The columns: even, and what was measured beyond that as far as it is not noise.

    How uneven columns are, all of them together say [JS61], or one by itself that is surely more
    so; a cell that is off by more than noise makes any cell speaks for itself.
    """
    columns = [parts.table(axes) for axes in singles_of(parts.sizes)]
    variances = [parts.cell_variance(axes) for axes in singles_of(parts.sizes)]
    free = np.maximum(np.array(parts.sizes) - 1, 1)
    beyond = [(cells - cells.mean()) * len(cells) / total for cells in columns]
    noise = np.array(variances) * (np.array(parts.sizes) / total) ** 2
    own = np.array([float((off**2).sum()) for off in beyond]) / free - noise
    alike = max(0.0, float(np.average(own, weights=free / (1 + noise) ** 2)))
    surely = np.maximum(alike, own - np.sqrt(2 / free) * noise)
    found = []
    for off, signal, unsure in zip(beyond, surely.tolist(), noise.tolist(), strict=True):
        clear = off**2 > beyond_noise(len(off)) * unsure
        told = np.where(clear, np.maximum(signal, off**2), signal)
        cells = 1 + off * told / np.maximum(told + unsure, 1e-300)
        found.append(simplex(cells * total / len(off), total))
    return found


def shrunk(guess: Floats, beyond: Floats, noise: float) -> Floats:
    """A guess of a table, and what was measured beyond it as far as it is not noise.

    A cell is off by a variance in proportion to the guess, with the factor that the table as a
    whole shows [EM73]; one that is off by more than noise makes any cell speaks for itself.
    """
    freedom = prod(1 - 1 / size for size in guess.shape)
    excess = max(0.0, float((beyond**2).sum()) - noise * freedom * beyond.size)
    signal = np.maximum(guess, 0) * excess / max(float(guess.sum()), 1.0)
    clear = beyond**2 > beyond_noise(beyond.size) * noise
    signal[clear] = np.maximum(signal[clear], beyond[clear] ** 2)
    found: Floats = guess + beyond * signal / (signal + noise)
    return found


def beyond_noise(count: int) -> float:
    """Squared standard deviations that hardly any of so many draws is off."""
    return 2 * log(count) + _BEYOND


def pairs_of(sets: Iterable[Axes]) -> list[Axes]:
    """All pairs of columns that are in a set together."""
    return sorted({pair for axes in sets for pair in combinations(axes, 2)})


def equal(count: int, budget: Fraction = Fraction(1)) -> list[Fraction]:
    """So many equal shares."""
    return [budget / count] * count


def spanning(scores: Mapping[Axes, float]) -> list[Axes]:
    """The pairs of the heaviest trees over the columns, heaviest first [Kruskal]."""
    found: list[Axes] = []
    for pair in sorted(scores, key=lambda pair: (-scores[pair], pair)):
        if trees_joined([*found, pair]) > len(found):
            found.append(pair)
    return found


def trees_joined(pairs: Iterable[Axes]) -> int:
    """How many of the pairs a spanning tree (or trees) would have."""
    listed = list(pairs)
    columns = {axis for pair in listed for axis in pair}
    tree = trees_of(max(columns, default=0) + 1, listed)
    return len(columns) - len({tree[axis] for axis in columns})


def trees_of(count: int, pairs: Iterable[Axes]) -> list[int]:
    """For each of so many columns, a column that stands for all that pairs join it to."""
    found = list(range(count))
    for axes in pairs:
        first, *joined = {found[axis] for axis in axes}
        if joined:
            found = [first if each in joined else each for each in found]
    return found
