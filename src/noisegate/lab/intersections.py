"""A map of street crossings at four prices: the error is that of the noise, whatever the map.

The counts are one question with a cell for each place of the grid, so the price is paid once.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import sinh
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.exact import Number, positive
from noisegate.extras import extra
from noisegate.frozen import dataclass
from noisegate.releases.cells.chance import public_coins
from noisegate.root import open as open_gate

SIDE: Final = 255  # 65,025 cells
_CROSSINGS: Final = 80_000
_TOWNS: Final = 40
_SQL: Final = "SELECT x, y, COUNT(*) AS n FROM crossings GROUP BY x, y"
PRICES: Final = ("1", "0.1", "0.01", "0.001")
Cells = NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One release of the map: errors beside what the law of the noise says, and the cells."""

    epsilon: Fraction
    mean_error: float
    expected_mean: float
    max_error: int
    expected_max: float
    auto_mean: float
    cells: Cells


def run(prices: Sequence[Number] = PRICES, *, side: int = SIDE) -> tuple[Cells, list[Drawn]]:
    """The exact map, and one release of it for each price, plain and by the method `auto`."""
    rows, exact = _map(side)
    facts = {name: {"in": list(range(side))} for name in ("x", "y")}
    gate = open_gate(rows, table="crossings", epsilon=1_000_000, columns=facts)
    drawn = []
    for price in prices:
        epsilon = positive(price, name="epsilon")
        noisy = np.zeros_like(exact)
        counted = gate.sql(_SQL, epsilon=epsilon, fresh=True).table
        noisy[counted["x"].to_numpy().astype(int), counted["y"].to_numpy().astype(int)] = counted[
            "n"
        ].to_numpy()
        release = gate.release(
            "map",
            table="crossings",
            columns={"x": None, "y": None},
            epsilon=epsilon,
            workload="cells",
        )
        error = np.abs(noisy - exact)
        drawn.append(
            Drawn(
                epsilon=epsilon,
                mean_error=float(error.mean()),
                expected_mean=1 / sinh(float(epsilon)),
                max_error=int(error.max()),
                expected_max=_expected_max(float(epsilon), exact.size),
                auto_mean=float(np.abs(release.values.reshape(side, side) - exact).mean()),
                cells=noisy,
            )
        )
    return exact, drawn


def picture(exact: Cells, drawn: Sequence[Drawn], *, blocks: int = 51) -> Any:  # noqa: ANN401 - altair
    """The exact map and the noisy ones side by side, in squares of several cells."""
    alt = extra("altair", "plot")
    shown = [("exact", exact), *((f"ε = {float(d.epsilon):g}", d.cells) for d in drawn)]
    wide = exact.shape[0] // blocks
    most = int(_blocks(exact, wide).max())
    panels = []
    for title, cells in shown:
        counts = np.clip(_blocks(cells, wide), 0, most)
        x, y = np.indices(counts.shape)
        data = alt.Data(
            values=[
                {"x": a, "y": b, "n": n}
                for a, b, n in zip(
                    x.ravel().tolist(), y.ravel().tolist(), counts.ravel().tolist(), strict=True
                )
            ]
        )
        panels.append(
            alt.Chart(data, title=title, width=153, height=153)
            .mark_rect()
            .encode(
                x=alt.X("x:O", axis=None),
                y=alt.Y("y:O", axis=None, sort="descending"),
                color=alt.Color(
                    "n:Q", title="crossings", scale=alt.Scale(type="sqrt", scheme="blues")
                ),
            )
        )
    return alt.hconcat(*panels)


def _blocks(cells: Cells, wide: int) -> Cells:
    side = cells.shape[0] // wide
    whole = cells[: side * wide, : side * wide]
    found: Cells = whole.reshape(side, wide, side, wide).sum(axis=(1, 3))
    return found


def _expected_max(epsilon: float, cells: int) -> float:
    """The mean of the largest of so many |noise|: Σ over m of P(largest > m).

    For geometric noise with a = e^-ε, P(|noise| > m) = 2 a^(m+1) / (1 + a).
    """
    most = int(60 / epsilon)
    tails = 2 * np.exp(-epsilon * np.arange(1, most + 1)) / (1 + np.exp(-epsilon))
    return float(-np.expm1(cells * np.log1p(-np.minimum(tails, 1 - 1e-16))).sum())


def _map(side: int) -> tuple[pa.Table, Cells]:
    """Crossings in towns of many sizes, and their counts by place."""
    chance = public_coins("crossings")
    sizes = 1 / np.arange(1, _TOWNS + 1)
    town = chance.choice(_TOWNS, _CROSSINGS, p=sizes / sizes.sum())
    centres = chance.uniform(0, side, (_TOWNS, 2))
    spread = chance.uniform(side / 60, side / 10, _TOWNS)
    places = centres[town] + chance.normal(0, 1, (_CROSSINGS, 2)) * spread[town, None]
    found = np.clip(places, 0, side - 1).astype(np.int64)
    exact = np.zeros((side, side), np.int64)
    np.add.at(exact, (found[:, 0], found[:, 1]), 1)
    return pa.table({"x": found[:, 0], "y": found[:, 1]}), exact
