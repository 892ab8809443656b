"""DPBench's rows of cells and maps: `auto` beside the best published algorithm and our recipes.

Recipes get the real noise on given cells (`TrialAsk`), and what is scored is what would be
released: whole numbers, none negative.
"""

from collections.abc import Iterator
from fractions import Fraction
from statistics import mean
from time import process_time

import numpy as np

from anchors import ONE_D, TWO_D, Peer
from noisegate.errors import NoisegateError
from noisegate.noise.bits import SYSTEM
from noisegate.releases.cells.workload import Workload, prefixes, ranges
from noisegate.releases.recipes import RECIPES, recipe
from noisegate.transforms.strategy import Groups
from section import DATA, Effort, Shown, released, sample, standard_error
from show import Column, Row
from trials import TrialAsk

EPSILON = Fraction(1, 10)
NEAR = 1.1  # within 10 % of the best published algorithm
UNIFORM, DRAWS = "UNIFORM", 16  # run here, so many times on each of our own tables
FURTHER = 50  # times as many trials are the most, where fewer do not tell
BESIDE = {1: ("tree", "dawa", "haar", "fourier"), 2: ("adaptive-grid", "quadtree", "dawa")}

ERRORS: tuple[Column, ...] = (
    ("workload", "workload", ""),
    ("data", "data", ""),
    ("rows", "rows", ",d"),
    ("auto E·rows", "auto", ".3g"),
    ("±", "auto_se", ".2g"),
    ("trials", "trials", ",d"),
    ("CPU s", "cpu_s", ".2f"),
    ("best peer", "peer", ""),
    ("its E·rows", "peer_error", ".3g"),
    ("ratio", "ratio", ".2f"),
    ("± ", "off", ".2f"),
    ("target", "target", ""),
    ("met", "met", "met"),
    ("EFPA's, not private", "leaky", ".3g"),
    ("DAWA's", "dawa_published", ".3g"),
    ("HB+NN's", "nn", ".3g"),
    *((f"our {name}", name, ".3g") for name in dict.fromkeys((*BESIDE[1], *BESIDE[2]))),
)
SUMMARY: tuple[Column, ...] = (
    ("cells", "way", ""),
    ("of", "count", ",d"),
    ("met", "met_count", ",d"),
    ("auto's mean regret", "regret", ".2f"),
    ("DAWA's mean regret", "dawa", ".2f"),
    ("met ", "met", "met"),
)


def one_d(effort: Effort) -> Iterator[Shown]:
    """DPBench's rows of cells, at three scales, for running totals and ranges."""
    stored = np.load(DATA / "dpbench-1d" / "dpbench_1d_4096.npz")
    asked = {"range": random_ranges(4096), "prefix": prefixes(4096)}
    rows = []
    for (name, data, scale), peer in ONE_D.items():
        if effort.quick and (data not in ("ADULT", "HEPTH") or scale > 100_000):
            continue
        row = compared(stored[data], asked[name], scale, peer, (effort.trials, effort.beside))
        rows.append({"workload": name, "data": data, **row})
        effort.say(f"{name} {data} {scale:,}: {row['ratio']:.2f} × {row['peer']}")
    yield from _tables("One dimension, 4096 cells, ε = 0.1", rows)


def two_d(effort: Effort) -> Iterator[Shown]:
    """DPBench's maps, at two scales, for rectangles."""
    stored = np.load(DATA / "dpbench-2d" / "dpbench_2d_256x256.npz")
    asked = random_rectangles(128)
    rows = []
    for (data, scale), peer in TWO_D.items():
        if effort.quick and data not in ("STROKE", "ADULT-2D"):
            continue
        shape = stored[data].reshape(128, 2, 128, 2).sum(axis=(1, 3))
        row = compared(shape, asked, scale, peer, (effort.trials, effort.beside))
        rows.append({"workload": "rectangle", "data": data, **row})
        effort.say(f"{data} {scale:,}: {row['ratio']:.2f} × {row['peer']}")
    yield from _tables("Two dimensions, 128 × 128 cells, ε = 0.1", rows)


def _tables(title: str, rows: list[Row]) -> Iterator[Shown]:
    yield Shown(title, ERRORS, rows)
    yield Shown("Against the best peer of each", SUMMARY, summary(rows))


def compared(
    shape: np.ndarray, asked: Workload, scale: int, peer: Peer, trials: tuple[int, int]
) -> Row:
    """One cell of the tables: E · rows of auto and of other recipes, beside the best peer.

    Where the asked trials do not tell whether it is within 10 %, auto is tried further.
    """
    errors: dict[str, list[float]] = {"auto": [], UNIFORM: []}
    spent, best, off = 0.0, peer.error * scale, 0.0
    for trial in range(FURTHER * max(trials)):
        if trial >= max(trials) and abs(mean(errors["auto"]) / best - NEAR) > 2 * off:
            break
        table = sample(shape, scale, trial)
        methods = ["auto"] * (trial < trials[0] or trial >= max(trials))
        methods += [m for m in BESIDE[table.ndim] if m in RECIPES and trial < trials[1]]
        for method in methods:
            started = process_time()
            error = error_of(method, table, asked)
            spent += (process_time() - started) * (method == "auto")
            if error is not None:
                errors.setdefault(method, []).append(error)
        against = [best] * len(errors["auto"])
        if peer.name == UNIFORM and methods[:1] == ["auto"]:
            errors[UNIFORM].append(uniform(table, asked))
            best, against = mean(errors[UNIFORM]), errors[UNIFORM]
        if len(against) > 1:
            ratio = mean(errors["auto"]) / best
            away = [ours - ratio * its for ours, its in zip(errors["auto"], against, strict=True)]
            off = standard_error(away) / best
    return {
        "rows": scale,
        **{method: mean(each) for method, each in errors.items() if method != UNIFORM},
        "auto_se": standard_error(errors["auto"]),
        "trials": len(errors["auto"]),
        "cpu_s": spent / len(errors["auto"]),
        "peer": f"{peer.name} (own run)" if peer.own or peer.name == UNIFORM else peer.name,
        "peer_error": best,
        "leaky": None if peer.leaky is None else peer.leaky * scale,
        "dawa_published": None if peer.dawa is None else peer.dawa * scale,
        "nn": peer.other * scale if peer.other is not None and len(asked.shape) == 1 else None,
        "ratio": mean(errors["auto"]) / best,
        "off": off,
        "target": f"≤ {NEAR:.2f}",
        "met": mean(errors["auto"]) / best <= NEAR,
    }


def error_of(method: str, table: np.ndarray, asked: Workload) -> float | None:
    """E · rows of one release, ‖true - released‖₂ / questions."""
    try:
        ask = TrialAsk(table, EPSILON, bits=SYSTEM)
        values = released(recipe(method).build(ask, asked), asked)
    except NoisegateError:
        return None  # it cannot do this
    return _error(table, values, asked)


def uniform(table: np.ndarray, asked: Workload) -> float:
    """The mean E · rows of UNIFORM on one table: all is spent on the total, then spread evenly."""
    (totals,) = TrialAsk(np.full(DRAWS, table.sum()), EPSILON, bits=SYSTEM).sums(
        [Groups(np.arange(DRAWS, dtype=np.int32), DRAWS)], [Fraction(1)]
    )
    return mean(
        _error(table, np.full(table.shape, total / table.size), asked) for total in totals.values
    )


def _error(table: np.ndarray, values: np.ndarray, asked: Workload) -> float:
    gaps = asked.answers(table) - asked.answers(values)
    return float(np.linalg.norm(gaps)) / asked.size


def summary(rows: list[Row]) -> list[Row]:
    """How many cells are met, and the mean of error / best peer's error beside DAWA's."""
    published = [row for row in rows if row["dawa_published"] is not None]
    found = []
    for way, some in (("all", rows), ("with a published figure of DAWA", published)):
        if some:
            regret = mean(row["ratio"] for row in some)
            dawa = (
                [row["dawa_published"] / row["peer_error"] for row in some]
                if some is published
                else None
            )
            met = all(row["met"] for row in some) if dawa is None else regret < mean(dawa)
            found.append({"way": way, "count": len(some), "regret": regret, "met": met,
                          "met_count": sum(row["met"] for row in some),
                          "dawa": mean(dawa) if dawa else None})  # fmt: skip
    return found


def random_ranges(size: int, count: int = 2000) -> Workload:
    """Lengths evenly from 1 to all, then places evenly."""
    chance = np.random.RandomState(9001)
    lengths = chance.randint(1, size + 1, count)
    lows = np.array([chance.randint(0, size - length + 1) for length in lengths])[:, None]
    return ranges((size,), lows, lows + lengths[:, None] - 1)


def random_rectangles(size: int, count: int = 2000) -> Workload:
    """Both sides evenly from 1 to all, then places evenly."""
    chance = np.random.RandomState(9001)
    lows, highs = [], []
    for _ in range(count):
        sides = [chance.randint(1, size + 1) for _ in range(2)]
        low = [chance.randint(0, size - side + 1) for side in sides]
        lows.append(low)
        highs.append([at + side - 1 for at, side in zip(low, sides, strict=True)])
    return ranges((size, size), np.array(lows), np.array(highs))
