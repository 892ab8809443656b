# ruff: noqa: E501 - a question is a line
"""Tables of other shapes, drawn from a seed: nothing is tuned on those that are reported.

Each has another law of rows per unit, another number of units, and values of its own: positive with
a heavy tail, of either sign, whole, or much alike within a unit. Eight questions are asked of each.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truth_worlds import World, keep

Rows = NDArray[Any]
Law = Callable[[np.random.Generator, int], Rows]


def zipf(index: float) -> Law:
    return lambda rng, units: np.minimum(rng.zipf(index, units), 4_000)


def lognormal(middle: float, spread: float) -> Law:
    return lambda rng, units: np.maximum(1, rng.lognormal(middle, spread, units).astype(int))


def hidden(usual: float, share: float, large: float) -> Law:
    """Few units that are alike, each with many rows."""

    def rows(rng: np.random.Generator, units: int) -> Rows:
        small = 1 + rng.poisson(usual, units)
        return np.where(rng.random(units) < share, 1 + rng.poisson(large, units), small)

    return rows


def geometric(mean: float) -> Law:
    return lambda rng, units: rng.geometric(1 / mean, units)


def poisson(mean: float) -> Law:
    return lambda rng, units: 1 + rng.poisson(mean, units)


LAWS: tuple[tuple[str, int, Law], ...] = (
    ("zipf13", 5_000, zipf(1.35)), ("zipf17", 8_000, zipf(1.7)), ("zipf22", 20_000, zipf(2.2)),
    ("logwide", 4_000, lognormal(1.0, 1.6)), ("lognarrow", 6_000, lognormal(2.0, 0.6)),
    ("hidden2", 5_000, hidden(2, 0.02, 150)), ("hidden", 10_000, hidden(4, 0.004, 60)),
    ("few", 400, lognormal(1.0, 1.0)), ("geometric", 3_000, geometric(9)),
    ("poisson", 2_000, poisson(3)),
)  # fmt: skip


def rows_of(law: Law, units: int, seed: int) -> Callable[[Path], None]:
    """Rows of a unit share part of their group and of their value."""

    def make(folder: Path) -> None:
        rng = np.random.default_rng(seed)
        rows = law(rng, units)
        who = np.repeat(np.arange(units), rows)
        home = rng.integers(0, 12, units)  # 12 of 40 groups have rows
        level = rng.normal(0, 0.5, units)
        near = rng.random(who.size) < rng.uniform(0.1, 0.8)
        amount = np.minimum(rng.lognormal(3, 0.9, who.size) * np.exp(level[who]), 1_000)
        order = np.arange(who.size)
        keep(folder, "entries", {
            "entry_id": order, "unit_id": who,
            "part": np.where(near, home[who], rng.integers(0, 12, who.size)),
            "amount": np.round(amount, 1),
            "change": np.round(np.clip(rng.normal(0.3, 1.0, who.size) + level[who], -5, 5), 2),
            "flag": rng.random(who.size) < 0.3,
        })  # fmt: skip
        below = np.repeat(order, rng.integers(0, 4, order.size))
        keep(folder, "details", {"entry_id": below, "size": 1 + rng.poisson(1, below.size)})

    return make


POLICY = """[tables.entries]
unit = "unit_id"
[tables.entries.columns]
entry_id = { type = "integer" }
part = { type = "integer", between = [0, 39] }
amount = { type = "number", between = [0, 1000] }
change = { type = "number", between = [-5, 5] }
flag = { type = "boolean" }
[tables.details]
unit = { column = "unit_id", via = ["entry_id -> entries.entry_id"] }
[tables.details.columns]
entry_id = { type = "integer" }
size = { type = "integer", between = [0, 12] }
"""
QUESTIONS = (
    "SELECT COUNT(*) AS n FROM entries",
    "SELECT part, COUNT(*) AS n FROM entries GROUP BY part",
    "SELECT flag, SUM(amount) AS s FROM entries GROUP BY flag",
    "SELECT SUM(change) AS s FROM entries WHERE part < 4",
    "SELECT AVG(amount) AS mean FROM entries",
    "SELECT flag, AVG(change) AS mean FROM entries GROUP BY flag",
    "SELECT MEDIAN(amount) AS middle FROM entries",
    "SELECT e.flag, SUM(d.size) AS pieces FROM details d JOIN entries e ON d.entry_id = e.entry_id GROUP BY e.flag",
)


def held(seed: int) -> tuple[World, ...]:
    """One table for each law."""
    return tuple(
        World(
            name=f"{name}-{seed}",
            caps={"entries": (20, 5), "details": (40, 5)},
            make=rows_of(law, units, 100 * seed + place),
            true={"entries": "TRUE", "details": "TRUE"},
            policy=POLICY,
            questions=QUESTIONS,
        )
        for place, (name, units, law) in enumerate(LAWS)
    )
