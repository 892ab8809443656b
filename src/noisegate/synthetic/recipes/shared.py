"""What synthesizers share: evidence from answers, trees over columns, and what they refuse."""

from collections.abc import Iterable, Mapping, Sequence
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
    root: dict[int, int] = {}

    def top(axis: int) -> int:
        while root.setdefault(axis, axis) != axis:
            axis = root[axis]
        return axis

    joined = 0
    for pair in pairs:
        one, two = map(top, pair)
        joined += one != two
        root[one] = two
    return joined


def require_cells(cells_max: int, sizes: Sizes) -> None:
    """A model has room for each column at least."""
    if type(cells_max) is not int or cells_max < sum(sizes):
        raise SpecError(
            f"A model of {cells_max} cells cannot hold every column.",
            fix=f"Give cells_max as a whole number, at least {sum(sizes):,}.",
            about="cells",
        )


def require_rounds(rounds: int | None) -> None:
    """A number of rounds, or none given."""
    if rounds is not None and (type(rounds) is not int or rounds < 1):
        raise SpecError(
            "rounds is not a valid count.", fix="Use a whole number of at least 1.", about="rounds"
        )
