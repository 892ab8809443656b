"""All two-way tables of Adult, as a cube would release them, beside models of synthetic rows.

TVD is half of Σ|share - released share| over the cells of a table, averaged over all tables. The
promise is (ε, δ = 1e-9) by zCDP. The peers' figures are of one trial each (five of independent
columns), with their inference cut down to fit the time, and scored on synthetic rows.
"""

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from math import prod
from statistics import mean
from time import process_time

import numpy as np

from noisegate.noise.bits import SYSTEM
from noisegate.privacy.conversion import rho_of_budget_down
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.axes import Axis
from noisegate.releases.fit.marginals import plan_tables
from noisegate.releases.forms.marginal_tables import build_tables
from section import DATA, Effort, Shown, standard_error
from show import Column, Row
from trials import TrialAsk

DELTA = "1e-9"
# data, ε: two-way TVD of AIM, of independent columns, and of the best other (MST or MWEM+PGM)
ANCHORS: dict[tuple[str, str], tuple[float, float, float | None]] = {
    ("adult", "0.1"): (0.1443, 0.1689, 0.1482), ("adult", "1"): (0.0395, 0.0842, 0.0529),
    ("adult", "10"): (0.0336, 0.0781, 0.0411), ("adult-aim", "0.1"): (0.0832, 0.1165, None),
    ("adult-aim", "1"): (0.0277, 0.0822, 0.0386), ("adult-aim", "10"): (0.0150, 0.0802, None),
}  # fmt: skip
COLUMNS: tuple[Column, ...] = (
    ("data", "data", ""),
    ("ε", "epsilon", ""),
    ("our TVD", "ours", ".4f"),
    ("±", "ours_se", ".1g"),
    ("worst table", "worst", ".3f"),
    ("CPU s", "cpu_s", ".1f"),
    ("AIM", "aim", ".4f"),
    ("MST, MWEM+PGM", "other", ".4f"),
    ("independent", "independent", ".4f"),
    ("ratio to AIM", "ratio", ".2f"),
    ("target", "target", ""),
    ("met", "met", "met"),
)


def measure(effort: Effort) -> Iterator[Shown]:
    """Both versions of Adult at three prices."""
    rows = []
    for (data, epsilon), (aim, independent, other) in ANCHORS.items():
        if effort.quick and (data, epsilon) != ("adult-aim", "1"):
            continue
        table = Coded.of(data)
        rho = rho_of_budget_down(ApproxDP(epsilon, DELTA))
        started = process_time()
        found = [distances(table, rho) for _ in range(effort.trials)]
        ours = [mean(each) for each in found]
        row: Row = {
            "data": data,
            "epsilon": epsilon,
            "ours": mean(ours),
            "ours_se": standard_error(ours),
            "worst": mean(max(each) for each in found),
            "cpu_s": (process_time() - started) / effort.trials,
            "aim": aim,
            "other": other,
            "independent": independent,
            "ratio": mean(ours) / aim,
            "target": "< 1.00",
            "met": mean(ours) < aim,
        }
        rows.append(row)
        effort.say(f"{data} ε = {epsilon}: {row['ratio']:.2f} × AIM's")
    yield Shown(f"All two-way tables, (ε, {DELTA}): total variation distance", COLUMNS, rows)


class Coded:
    """Columns of small whole numbers."""

    def __init__(self, sizes: tuple[int, ...], columns: list[np.ndarray]) -> None:
        self.sizes, self.columns, self.rows = sizes, columns, len(columns[0])
        self._tables: dict[tuple[int, ...], np.ndarray] = {}

    @classmethod
    def of(cls, name: str) -> "Coded":
        sizes = json.loads((DATA / "tabular" / f"{name}-domain.json").read_text())
        with np.load(DATA / "tabular" / f"{name}.npz") as held:
            return cls(tuple(sizes.values()), [held[each].astype(np.int64) for each in sizes])

    def counts(self, axes: tuple[int, ...]) -> np.ndarray:
        """The exact table over some columns."""
        if axes not in self._tables:
            shape = [self.sizes[a] for a in axes]
            places = np.ravel_multi_index([self.columns[a] for a in axes], shape)
            self._tables[axes] = np.bincount(places, minlength=prod(shape)).reshape(shape)
        return self._tables[axes]


def distances(table: Coded, rho: Fraction) -> list[float]:
    """The TVD of each two-way table of one release."""
    made: dict[tuple[int, ...], TrialAsk] = {}

    def ask_of(axes: tuple[int, ...]) -> TrialAsk:
        if axes not in made:
            made[axes] = TrialAsk(table.counts(axes), rho, bits=SYSTEM, gaussian=True)
        return made[axes]

    pairs = list(combinations(range(len(table.sizes)), 2))
    plan = plan_tables(ask_of, table.sizes, pairs, shrink=True)
    axes = tuple(Axis(name=str(i), keys=tuple(range(n))) for i, n in enumerate(table.sizes))
    found = build_tables(ask_of, plan, axes)
    return [
        float(np.abs(each / each.sum() - table.counts(pair) / table.rows).sum() / 2)
        for pair, each in zip(found.sets, found.values, strict=True)
    ]
