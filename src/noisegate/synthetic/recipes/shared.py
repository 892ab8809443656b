"""What synthesizers share: evidence from answers, trees over columns, and what they refuse."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Final

import numpy as np

from noisegate.errors import SpecError
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.asking import TablesAsk
from noisegate.synthetic.model.model import Evidence
from noisegate.synthetic.recipes import TablesWorkload
from noisegate.synthetic.sharing import exact_shares

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
        super(Rounds, self).require(sizes, workload)


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
