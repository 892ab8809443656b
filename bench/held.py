"""Releases of tables that nothing was tuned on: shapes that a seed makes, and no file holds.

Each shape is of a family that occurs (bumps, plateaus, heaped numbers, towns, roads) with random
sizes, places and weights. `auto` stands beside every published algorithm that is built in, on the
same tables at the same price; the best of them is chosen afterwards, by its mean error, which
nobody could do before paying, and is scored in draws of its own: the least of many noisy means is
luck, not hindsight. Of every release the stated ± of each answer at 95 % is compared with
the exact answer: the share within is told for all releases together, and for the worst of them,
and how many times as wide the ± is as would have been enough for 95 % of a usual release.

MWEM is left out of the tables with most rows, where it is slow and far behind.

Use another seed (``--held SEED``) after every change that looked at the figures of this one.
"""

from collections.abc import Callable, Iterator
from statistics import mean, median

import numpy as np

from grids import NEAR, error_of, random_ranges, random_rectangles, uniform
from noisegate.releases.cells.workload import Workload, prefixes
from predicted import CONFIDENCE, Case, made
from section import Effort, Shown, sample, standard_error
from show import Column, Row

CELLS, SIDE, ASKED, MWEM_ROWS = 1024, 64, 500, 100_000
EACH = 0.9  # of the questions of every release should be within their ±
ROWS = {1: (1_000, 100_000, 10_000_000), 2: (10_000, 1_000_000)}
PUBLISHED = {  # what is built in, by the name of its recipe
    1: {"cells": "IDENTITY", "haar": "PRIVELET", "tree": "HB", "dawa": "DAWA", "mwem": "MWEM",
        "ahp": "AHP"},
    2: {"cells": "IDENTITY", "quadtree": "QUADTREE", "uniform-grid": "UGRID", "kdtree": "KDTREE",
        "adaptive-grid": "AGRID", "privtree": "PRIVTREE", "dawa": "DAWA"},
}  # fmt: skip
Rng = np.random.Generator
Family = Callable[[Rng], np.ndarray]

COLUMNS: tuple[Column, ...] = (
    ("shape", "shape", ""),
    ("asked for", "workload", ""),
    ("rows", "rows", ",d"),
    ("auto E·rows", "auto", ".3g"),
    ("±", "auto_se", ".2g"),
    ("best published", "peer", ""),
    ("its E·rows", "peer_error", ".3g"),
    ("ratio", "ratio", ".2f"),
    ("± ", "off", ".2f"),
    ("target", "target", ""),
    ("met", "met", "met"),
    ("within ±, mean", "within", ".3f"),
    ("least release", "least", ".3f"),
    ("target ", "covered", ""),
    ("met ", "holds", "met"),
    ("± / needed", "wider", ".2f"),
)
SUMMARY: tuple[Column, ...] = (
    ("cells", "way", ""),
    ("of", "count", "d"),
    ("mean ratio", "regret", ".2f"),
    ("worst", "worst", ".2f"),
    ("within 10 %", "near", "d"),
    ("ahead", "ahead", "d"),
    ("within ±, mean over releases", "within", ".3f"),
    ("least release", "least", ".3f"),
    (f"below {EACH}", "below", ",d"),
    ("releases", "releases", ",d"),
    ("± / needed", "wider", ".2f"),
)


def measure(effort: Effort) -> Iterator[Shown]:
    """Both kinds of tables, from one seed."""
    rows: list[Row] = []
    for dimensions, families in ((1, LINES), (2, MAPS)):
        for place, (name, family) in enumerate(families.items()):
            if effort.quick and place > 1:
                continue
            shape = family(np.random.default_rng([effort.held, dimensions, place]))
            for workload, scale in _asked(dimensions, place, quick=effort.quick):
                row = compared(shape, workload, scale, effort, seed=place)
                rows.append({"shape": name, **row})
                effort.say(f"{name} {scale:,}: {row['ratio']:.2f} × {row['peer']}")
    kinds = {"rows of cells": LINES, "maps": MAPS}
    yield Shown(
        f"Shapes of seed {effort.held}, ε = 0.1: all together",
        SUMMARY,
        [summary(way, [row for row in rows if row["shape"] in of]) for way, of in kinds.items()],
    )
    yield Shown("Each shape", COLUMNS, [_shown(row) for row in rows])


def _asked(dimensions: int, place: int, *, quick: bool) -> list[tuple[Workload, int]]:
    """Ranges and running totals by turns, at every scale."""
    if dimensions == 1:
        asked = random_ranges(CELLS, ASKED) if place % 2 else prefixes(CELLS)
    else:
        asked = random_rectangles(SIDE, ASKED)
    return [(asked, scale) for scale in ROWS[dimensions][: 1 if quick else None]]


def compared(shape: np.ndarray, asked: Workload, scale: int, effort: Effort, *, seed: int) -> Row:
    """One cell of the table."""
    case = Case(size=shape.shape, workload=_spec(asked))
    errors: dict[str, list[float]] = {"auto": []}
    within: list[float] = []
    needed: list[float] = []
    tables = [sample(shape, scale, 1000 * seed + trial) for trial in range(effort.trials)]
    for table in tables:
        _, release = made("auto", case, table)
        away = np.abs(asked.answers(release.values) - asked.answers(table))
        errors["auto"].append(float(np.linalg.norm(away)) / asked.size)
        widths = np.array(release.widths(asked, CONFIDENCE) or [None] * asked.size, np.float64)
        within.append(float(np.mean(away <= np.where(np.isfinite(widths), widths, -1.0))))
        needed.append(float(np.quantile(away / np.maximum(widths, 0.5), CONFIDENCE)))
        errors.setdefault("UNIFORM", []).append(uniform(table, asked))
        for method, published in PUBLISHED[shape.ndim].items():
            slow = method == "mwem" and scale > MWEM_ROWS
            error = None if slow else error_of(method, table, asked)
            if error is not None:
                errors.setdefault(published, []).append(error)
    ours = errors.pop("auto")
    best = min(errors, key=lambda name: mean(errors[name]))
    method = {name: key for key, name in PUBLISHED[shape.ndim].items()}.get(best)
    theirs = [
        error_of(method, table, asked) if method else uniform(table, asked) for table in tables
    ]
    return _beside(ours, best, [each for each in theirs if each is not None]) | {
        "workload": asked.words,
        "rows": scale,
        "within_each": within,
        "needed": needed,
    }


def _beside(ours: list[float], best: str, theirs: list[float]) -> Row:
    ratio = mean(ours) / mean(theirs)
    far = sum((standard_error(each) / mean(each)) ** 2 for each in (ours, theirs)) ** 0.5
    return {
        "auto": mean(ours),
        "auto_se": standard_error(ours),
        "peer": best,
        "peer_error": mean(theirs),
        "ratio": ratio,
        "off": ratio * far,
    }


def _spec(asked: Workload) -> dict[str, object]:
    """A workload as a release keeps it."""
    return {"lows": asked.lows.tolist(), "highs": asked.highs.tolist(), "words": asked.words}


def _shown(row: Row) -> Row:
    within = mean(row["within_each"])
    return row | {
        "target": f"≤ {NEAR:.2f}",
        "met": row["ratio"] <= NEAR,
        "within": within,
        "least": min(row["within_each"]),
        "covered": f"≥ {CONFIDENCE}, each ≥ {EACH}",
        "holds": within >= CONFIDENCE and min(row["within_each"]) >= EACH,
        "wider": 1 / median(row["needed"]),
    }


def summary(way: str, rows: list[Row]) -> Row:
    """All cells of one kind."""
    ratios = [row["ratio"] for row in rows]
    within = [each for row in rows for each in row["within_each"]]
    return {
        "way": way,
        "count": len(rows),
        "regret": mean(ratios),
        "worst": max(ratios),
        "near": sum(ratio <= NEAR for ratio in ratios),
        "ahead": sum(ratio <= 1 for ratio in ratios),
        "within": mean(within),
        "least": min(within),
        "below": sum(share < EACH for share in within),
        "releases": len(within),
        "wider": 1 / median(each for row in rows for each in row["needed"]),
    }


# --- shapes: weights of cells, of which rows are drawn


def _bumps(rng: Rng) -> np.ndarray:
    at, places = np.arange(CELLS), rng.uniform(0, CELLS, rng.integers(2, 7))
    wide = rng.uniform(0.01, 0.15, places.size) * CELLS
    heights = rng.pareto(1.5, places.size) + 0.2
    return (heights * np.exp(-((at[:, None] - places) ** 2) / (2 * wide**2))).sum(axis=1) + 0.01


def _plateaus(rng: Rng) -> np.ndarray:
    ends = np.sort(rng.integers(1, CELLS, rng.integers(4, 30)))
    levels = rng.lognormal(0, 1.5, ends.size + 1) * (rng.random(ends.size + 1) < 0.8)
    return levels[np.searchsorted(ends, np.arange(CELLS), side="right")] + 1e-3


def _spikes(rng: Rng) -> np.ndarray:
    found = np.full(CELLS, rng.uniform(0, 0.02))
    places = rng.choice(CELLS, rng.integers(5, 60), replace=False)
    found[places] += (rng.pareto(1.0, places.size) + 0.5) * 5
    return found


def _decay(rng: Rng) -> np.ndarray:
    return (1 + np.arange(CELLS)) ** -rng.uniform(0.5, 1.8)


def _heaped(rng: Rng) -> np.ndarray:
    """Round numbers are told more often."""
    at = np.arange(CELLS)
    step = int(rng.integers(5, 25))
    smooth = rng.gamma(2.0) * np.exp(-at / rng.uniform(80, 400)) * np.sqrt(at + 1)
    return smooth * np.where(at % step == 0, rng.uniform(5, 40), 1.0)


def _patchy(rng: Rng) -> np.ndarray:
    filled = np.zeros(CELLS)
    for start in rng.integers(0, CELLS, rng.integers(3, 12)):
        size = int(rng.integers(2, 40))
        filled[start : start + size] += rng.lognormal(0, 1.2, filled[start : start + size].size)
    return filled + 1e-4


def _flat(rng: Rng) -> np.ndarray:
    return rng.uniform(0.9, 1.1, CELLS)


def _towns(rng: Rng) -> np.ndarray:
    y, x = np.mgrid[:SIDE, :SIDE]
    found = np.full((SIDE, SIDE), 1e-3)
    for _ in range(rng.integers(4, 25)):
        (cy, cx), wide = rng.uniform(0, SIDE, 2), rng.uniform(0.5, 6)
        found += (rng.pareto(1.2) + 0.1) * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / (2 * wide**2))
    return found


def _roads(rng: Rng) -> np.ndarray:
    found = np.full((SIDE, SIDE), 1e-3)
    for _ in range(rng.integers(4, 15)):
        (a, b), (c, d) = rng.uniform(0, SIDE - 1, (2, 2))
        along = np.linspace(0, 1, 4 * SIDE)
        places = np.rint(a + (c - a) * along).astype(int), np.rint(b + (d - b) * along).astype(int)
        np.add.at(found, places, rng.lognormal(0, 1))
    return found


def _coast(rng: Rng) -> np.ndarray:
    x = np.arange(SIDE)
    shore = SIDE / 2 + np.cumsum(rng.normal(0, 1.2, SIDE))
    return np.where(x < shore[:, None], np.exp(-(shore[:, None] - x) / rng.uniform(5, 30)), 1e-4)


def _related(rng: Rng) -> np.ndarray:
    """Two numbers of which one nearly tells the other, both heaped."""
    y, x = np.mgrid[:SIDE, :SIDE]
    near = np.exp(-(np.abs(y - rng.uniform(0.5, 1.5) * x) / rng.uniform(1, 5)))
    return near * np.where(x % int(rng.integers(4, 12)) == 0, 8.0, 1.0) + 1e-4


def _scattered(rng: Rng) -> np.ndarray:
    found = np.full(SIDE * SIDE, 1e-5)
    places = rng.choice(found.size, rng.integers(40, 400), replace=False)
    found[places] += rng.pareto(1.0, places.size) + 0.1
    return found.reshape(SIDE, SIDE)


LINES: dict[str, Family] = {
    "bumps": _bumps, "plateaus": _plateaus, "spikes": _spikes, "decay": _decay, "heaped": _heaped,
    "patchy": _patchy, "flat": _flat,
}  # fmt: skip
MAPS: dict[str, Family] = {
    "towns": _towns, "roads": _roads, "coast": _coast, "related": _related,
    "scattered": _scattered,
}  # fmt: skip
