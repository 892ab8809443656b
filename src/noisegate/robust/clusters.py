"""The distance to a good clustering: how few rows lie outside the best balls of a public grid.

A clustering with k centres is good if no row is further than the radius from all of them. Centres
are points of a public grid over the declared bounds; all sets of k of them are tried. Rows count at
the middle of public bins, so each set's exceptions are a sum of counted cells, one row changes each
by at most 1, and so their least.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import comb
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Sums
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError
from noisegate.exact import positive
from noisegate.robust.paying import Till
from noisegate.sql.choices.candidates import Candidates, candidates_of
from noisegate.sql.choices.scored import PAIRS_MAX, combined
from noisegate.sql.spelling import decimal

if TYPE_CHECKING:
    from noisegate.robust.distances import DistanceOrder

CELLS: Final = 1 << 10  # bins of all columns together, roughly
SETS_MAX: Final = 1 << 14
_COARSE: Final = "Rows count at the middle of public bins; the ± is of noise alone."
_DIGITS: Final = 6  # of ends and widths of bins


def cluster_candidates(till: Till, order: "DistanceOrder", table: str, terms: Terms) -> Candidates:
    """All sets of centres, and how many rows each leaves outside."""
    ends = _bounds(till, table, order.columns)
    bins = max(2, round(CELLS ** (1 / len(ends))))
    grid = _grid(order, ends)
    sets = comb(len(grid), order.clusters or 0)
    if not order.clusters or not 1 <= order.clusters < len(grid) or sets > SETS_MAX:
        raise SpecError(
            f"There would be {sets:,} sets of centres.",
            fix=f"Use fewer clusters or a smaller grid: up to {SETS_MAX:,} sets.",
            about="clusters",
        )
    found = _counted(till, order, table, terms, bins)
    tally = found.query.tally
    cells = _middles(tally, ends, bins)
    if sets * len(cells) > PAIRS_MAX:
        raise SpecError(
            f"{sets:,} sets of centres and {len(cells):,} bins are too many pairs.",
            fix=f"Use a smaller grid: up to {PAIRS_MAX:,} pairs.",
            about="clusters",
        )
    square = float(positive(order.radius or 0, name="radius")) ** 2
    apart = ((cells[:, None, :] - grid[None, :, :]) ** 2).sum(axis=2) > square
    chosen = combinations(range(len(grid)), order.clusters)
    outside = np.array([apart[:, list(each)].all(axis=1) for each in chosen])
    names = tuple(str(place) for place in range(sets))
    query = combined(tally, outside.astype(np.int64))
    return replace(
        found, names=names, query=query, monotone=query.is_monotone,
        caveats=(*found.caveats, _COARSE),
    )  # fmt: skip


def _bounds(till: Till, table: str, columns: Sequence[str]) -> list[tuple[Fraction, Fraction]]:
    """The declared bounds of the columns."""
    domain = next(d for n, d in till.curator.tables.items() if n.lower() == table.lower())
    known = {name.lower(): column.domain for name, column in domain.columns.items()}
    found = [known[name.lower()] for name in columns if name.lower() in known]
    ends = [
        (each.low, each.high) for each in found if each.low is not None and each.high is not None
    ]
    if not ends or len(ends) < len(columns) or any(low >= high for low, high in ends):
        raise SpecError(
            "A grid of centres needs columns with bounds.",
            fix="Declare their bounds, or give centers.",
            about="bounds",
        )
    return ends


def _grid(order: "DistanceOrder", ends: Sequence[tuple[Fraction, Fraction]]) -> NDArray[np.float64]:
    """The centres that may be chosen: the middles of equal parts of each column."""
    parts = [(2 * np.arange(order.grid) + 1) / (2 * order.grid) for _ in ends]
    axes = [float(a) + float(b - a) * each for (a, b), each in zip(ends, parts, strict=True)]
    return np.array(list(product(*axes)))


def _counted(till: Till, order: "DistanceOrder", table: str, terms: Terms, bins: int) -> Candidates:
    """The rows of each bin, counted."""
    keys = []
    for name, (low, high) in zip(order.columns, _bounds(till, table, order.columns), strict=True):
        width = _rounded((high - low) / bins)
        keys.append(f"FLOOR(({name} - {decimal(_rounded(low))}) / {decimal(width)})")
    where = "" if order.where is None else f" WHERE {order.where}"
    groups = ", ".join(str(place + 1) for place in range(len(keys)))
    sql = f"SELECT {', '.join(keys)}, COUNT(*) FROM {table}{where} GROUP BY {groups}"  # noqa: S608 - it is read, not run
    return candidates_of(till.read(sql), terms, accountant="pure")  # bounded as `scored` has it


def _rounded(exact: Fraction) -> Fraction:
    """As SQL writes it: bins are public as they are written."""
    return Fraction(f"{float(exact):.{_DIGITS}g}")


def _middles(
    tally: object, ends: Sequence[tuple[Fraction, Fraction]], bins: int
) -> NDArray[np.float64]:
    """The middle of each cell, not beyond the bounds."""
    assert isinstance(tally, Sums)  # noqa: S101 - of counts
    axes = []
    for grouping, (low, high) in zip(tally.by, ends, strict=True):
        places = np.array([float(key) for key in grouping.keys])  # type: ignore[arg-type]  # whole
        width = float(_rounded((high - low) / bins))
        middle = float(_rounded(low)) + (places + 0.5) * width
        axes.append(np.clip(middle, float(low), float(high)))
    return np.array(list(product(*axes)))
