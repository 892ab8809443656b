"""Tables with few filled cells: error of each cell, beside noise on all of them, clipped or cut.

relL1 = Σ|exact - released| / Σ exact over all cells, at the data's own scale. Ours is a sparse
release that shows some cells without rows and then raises its threshold by what it shows
(`SparseRelease.likely`, free); `auto` needs all cells listed.
"""

import json
from collections.abc import Iterator
from fractions import Fraction
from statistics import mean

import numpy as np

import sparse
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric, threshold_for
from noisegate.noise.bits import SYSTEM
from noisegate.planning.calibrate import geometric_scale
from noisegate.privacy.distance import L1
from noisegate.releases.cells.workload import cells
from noisegate.releases.recipes import recipe
from noisegate.releases.sparse.summary import least_error
from section import DATA, Effort, Shown, released, standard_error
from show import Column, Row
from trials import TrialAsk

FALSE = 1 << 16  # cells without rows to begin with, at most
TAXI = "TAXI-OD"
LARGE = f"{TAXI} × shift × company"
# data, ε: +clip, +threshold ln(n) / ε; 10 trials each, 2 for the last table
ANCHORS: dict[tuple[str, str], tuple[float, float]] = {
    ("ADULT", "0.1"): (1.16, 0.0402), ("ADULT", "1"): (0.117, 0.0104),
    ("ADULT-2D", "0.1"): (10.1, 0.0585), ("ADULT-2D", "1"): (1.01, 0.00712),
    ("GOWALLA", "0.1"): (0.0529, 0.00897), ("GOWALLA", "1"): (0.00535, 0.00105),
    ("SF-CABS-E", "0.1"): (0.711, 0.016), ("SF-CABS-E", "1"): (0.0714, 0.00294),
    ("STROKE", "0.1"): (17.1, 0.989), ("STROKE", "1"): (1.74, 0.271),
    (TAXI, "0.1"): (0.156, 0.0886), (TAXI, "1"): (0.0184, 0.0247),
    (LARGE, "0.1"): (286, 0.899), (LARGE, "1"): (28.6, 0.459),
}  # fmt: skip
COLUMNS: tuple[Column, ...] = (
    ("data", "data", ""),
    ("cells", "cells", ",d"),
    ("filled", "filled", ",d"),
    ("rows", "rows", ",d"),
    ("ε", "epsilon", ""),
    ("+clip", "clip", ".3g"),
    ("+threshold", "threshold", ".3g"),
    ("ours", "ours", ".3g"),
    ("±", "ours_se", ".1g"),
    ("ratio to the lower", "ratio", ".3f"),
    ("target", "target", ""),
    ("met", "met", "met"),
    ("our auto", "auto", ".3g"),
)


def measure(effort: Effort) -> Iterator[Shown]:
    """The errors, and then ten million filled cells of 2**64: time and memory."""
    rows = []
    for (data, epsilon), floor in ANCHORS.items():
        if effort.quick and data not in ("ADULT", TAXI):
            continue
        table = table_of(data)
        rows.append(compared(data, table, epsilon, floor, effort))
        effort.say(f"{data} ε = {epsilon}: {rows[-1]['ratio']:.2f} × the lower of both")
    yield Shown("Sparse tables: relL1", COLUMNS, rows)
    size = sparse.CELLS // (100 if effort.quick else 1)
    title = f"Sparse releases: {size:,} cells with rows, of 2**64"
    yield Shown(title, sparse.COLUMNS, sparse.measure(size))


def compared(
    data: str, table: np.ndarray, epsilon: str, floor: tuple[float, float], effort: Effort
) -> Row:
    """One row of the table."""
    flat, total = table.ravel(), int(table.sum())
    held = np.flatnonzero(flat)
    ours = [summary_error(held, flat, Fraction(epsilon)) / total for _ in range(effort.trials)]
    few = table.size <= FALSE
    auto = [auto_error(table, Fraction(epsilon)) / total for _ in range(effort.beside * few)]
    return {
        "data": data,
        "cells": table.size,
        "filled": held.size,
        "rows": total,
        "epsilon": epsilon,
        "clip": floor[0],
        "threshold": floor[1],
        "ours": mean(ours),
        "ours_se": standard_error(ours),
        "ratio": mean(ours) / min(floor),
        "target": "< 1.000",
        "met": mean(ours) < min(floor),
        "auto": mean(auto) if auto else None,
    }


def summary_error(held: np.ndarray, flat: np.ndarray, epsilon: Fraction) -> float:
    """Σ|exact - released| of a summary, in work for the cells that hold rows or are shown."""
    scale = geometric_scale(epsilon, sensitivity=L1(1))
    first = threshold_for(scale, domain=flat.size, cells=min(Fraction(flat.size, 4), FALSE))
    noise = SparseGeometric(scale=scale, domain=flat.size, threshold=first, tau=first)
    places, values = noise.summary(held.astype(np.uint64), flat[held], bits=SYSTEM)
    kept = values >= least_error(noise, values)
    at = places[kept].astype(np.int64)
    off = np.abs(values[kept] - flat[at]).sum()
    return float(off + flat[held].sum() - flat[at].sum())


def auto_error(table: np.ndarray, epsilon: Fraction) -> float:
    """The same of a table of which all cells are listed."""
    asked = cells(table.shape)
    found = recipe("auto").build(TrialAsk(table, epsilon, bits=SYSTEM), asked)
    return float(np.abs(released(found, asked) - table).sum())


def table_of(data: str) -> np.ndarray:
    """A table of the bench, at its own scale."""
    if not data.startswith(TAXI):
        one_d = data == "ADULT"
        name = "dpbench-1d/dpbench_1d_4096.npz" if one_d else "dpbench-2d/dpbench_2d_256x256.npz"
        return np.load(DATA / name)[data].astype(np.int64)
    sizes = json.loads((DATA / "tabular" / "nist-taxi-domain.json").read_text())
    stored = np.load(DATA / "tabular" / "nist-taxi.npz")
    names = ["pickup_community_area", "dropoff_community_area"]
    names += ["shift", "company_id"] if data == LARGE else []
    shape = [sizes[name] for name in names]
    places = np.ravel_multi_index([stored[name] for name in names], shape)
    return np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)
