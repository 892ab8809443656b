"""Accuracy of releases on real data, beside published algorithms and our other recipes.

Recipes get the real noise on given cells (`TrialAsk`), and what is scored is what would be
released: whole numbers, none negative. The data are not part of the repository.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from anchors import ONE_D, TWO_D, Peer
from noisegate.errors import NoisegateError
from noisegate.noise.bits import SYSTEM
from noisegate.releases.estimate import Estimate
from noisegate.releases.finish import finish
from noisegate.releases.recipes import RECIPES, recipe
from noisegate.releases.trial import TrialAsk
from noisegate.releases.workload import Workload, cells, prefixes, ranges
from run import Column, cell, machine

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
RESULTS = ROOT / ".bench" / "accuracy.json"
PICTURE = ROOT / ".bench" / "map.png"

EPSILON = Fraction(1, 10)
NEAR = 1.1  # within 10 % of the best published algorithm
BESIDE = {1: ("tree", "dawa", "haar", "fourier"), 2: ("adaptive-grid", "quadtree", "dawa")}
MAP, MAP_EPSILONS = "BEIJING-CABS-E", (1.0, 0.1, 0.01, 0.001)
LESS, LESS_FROM = 3, 0.1  # at least 3 × lower from this ε downwards
SURE = 5  # standard errors: one false alarm in a million

Row = dict[str, Any]
ERRORS: tuple[Column, ...] = (
    ("workload", "workload", ""),
    ("data", "data", ""),
    ("rows", "rows", ",d"),
    ("auto E·rows", "auto", ".3g"),
    ("±", "auto_se", ".2g"),
    ("CPU s", "cpu_s", ".2f"),
    ("best peer", "peer", ""),
    ("its E·rows", "peer_error", ".3g"),
    ("ratio", "ratio", ".2f"),
    ("met", "met", "met"),
    ("DAWA's", "dawa_published", ".3g"),
    ("HB+NN's", "nn", ".3g"),
    *((f"our {name}", name, ".3g") for name in dict.fromkeys((*BESIDE[1], *BESIDE[2]))),
)
MAPS: tuple[Column, ...] = (
    ("ε", "epsilon", "g"),
    ("plain", "plain", ".4g"),
    ("±", "plain_se", ".2g"),
    ("2α/(1-α²)", "exact", ".4g"),
    ("equal", "equal", "met"),
    ("auto", "auto", ".4g"),
    ("± ", "auto_se", ".2g"),
    ("× lower", "lower", ".1f"),
    ("target", "target", ""),
    ("met", "met", "met"),
)
SUMMARY: tuple[Column, ...] = (
    ("cells", "way", ""),
    ("of", "count", ",d"),
    ("met", "met_count", ",d"),
    ("auto's mean regret", "regret", ".2f"),
    ("DAWA's mean regret", "dawa", ".2f"),
    ("met ", "met", "met"),
)


def main() -> None:
    """Each section is shown as soon as it is known; all of it is kept."""
    options = _options()
    console = Console() if sys.stdout.isatty() else Console(width=200)
    if not DATA.is_dir():
        console.print(f"The data are not here: put them into {DATA.relative_to(ROOT.parent)}, "
                      "next to the repository, as its README describes.")  # fmt: skip
        sys.exit(1)
    trials = options.trials or (3 if options.quick else 10)
    beside = trials if options.beside is None else options.beside
    console.print(f"[bold]{machine()}, {trials} trials")
    say = lambda text: console.print(f"[dim]{text}", highlight=False)  # noqa: E731
    for section, title, measure in (
        ("1d", "One dimension, 4096 cells, ε = 0.1", one_d),
        ("2d", "Two dimensions, 128 × 128 cells, ε = 0.1", two_d),
    ):
        if section in options.only:
            rows = measure((trials, beside), quick=options.quick, say=say)
            _show(console, title, ERRORS, rows)
            _show(console, "Against the best peer of each", SUMMARY, summary(rows))
            _keep(section, trials, rows)
    if "map" in options.only:
        rows = headline(trials, say=say)
        _show(console, f"{MAP}, 256 × 256: mean |error| per cell", MAPS, rows)
        console.print(f"pictures in {PICTURE.relative_to(ROOT)}: exact; plain; auto")
        _keep("map", trials, rows)
    console.print(f"kept in {RESULTS.relative_to(ROOT)}")


def _keep(section: str, trials: int, rows: list[Row]) -> None:
    """Beside the sections of earlier runs."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[section] = {"machine": machine(), "trials": trials, "rows": rows}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False))


def one_d(trials: tuple[int, int], *, quick: bool, say: Callable[[str], None]) -> list[Row]:
    """DPBench's rows of cells, at three scales, for running totals and ranges."""
    stored = np.load(DATA / "dpbench-1d" / "dpbench_1d_4096.npz")
    asked = {"range": random_ranges(4096), "prefix": prefixes(4096)}
    rows = []
    for (name, data, scale), peer in ONE_D.items():
        if quick and (data not in ("ADULT", "HEPTH") or scale > 100_000):
            continue
        row = compared(stored[data], asked[name], scale, peer, trials)
        rows.append({"workload": name, "data": data, **row})
        say(f"{name} {data} {scale:,}: {row['ratio']:.2f} × {row['peer']}")
    return rows


def two_d(trials: tuple[int, int], *, quick: bool, say: Callable[[str], None]) -> list[Row]:
    """DPBench's maps, at two scales, for rectangles."""
    stored = np.load(DATA / "dpbench-2d" / "dpbench_2d_256x256.npz")
    asked = random_rectangles(128)
    rows = []
    for (data, scale), peer in TWO_D.items():
        if quick and data not in ("STROKE", "ADULT-2D"):
            continue
        shape = stored[data].reshape(128, 2, 128, 2).sum(axis=(1, 3))
        row = compared(shape, asked, scale, peer, trials)
        rows.append({"workload": "rectangle", "data": data, **row})
        say(f"{data} {scale:,}: {row['ratio']:.2f} × {row['peer']}")
    return rows


def compared(
    shape: np.ndarray, asked: Workload, scale: int, peer: Peer, trials: tuple[int, int]
) -> Row:
    """One cell of the tables: E · rows of auto and of other recipes, beside the best peer."""
    errors: dict[str, list[float]] = {}
    started, spent = process_time(), 0.0
    for trial in range(max(trials)):
        table = sample(shape, scale, trial)
        methods = ["auto"] * (trial < trials[0])
        methods += [m for m in BESIDE[table.ndim] if m in RECIPES and trial < trials[1]]
        for method in methods:
            started = process_time()
            error = error_of(method, table, asked)
            spent += (process_time() - started) * (method == "auto")
            if error is not None:
                errors.setdefault(method, []).append(error)
    ratio = mean(errors["auto"]) / (peer.error * scale)
    return {
        "rows": scale,
        **{method: mean(each) for method, each in errors.items()},
        "auto_se": standard_error(errors["auto"]),
        "trials": len(errors["auto"]),
        "cpu_s": spent / len(errors["auto"]),
        "peer": f"{peer.name} (own run)" if peer.own else peer.name,
        "peer_error": peer.error * scale,
        "dawa_published": None if peer.dawa is None else peer.dawa * scale,
        "nn": peer.other * scale if peer.other is not None and len(asked.shape) == 1 else None,
        "ratio": ratio,
        "met": ratio <= NEAR,
    }


def error_of(method: str, table: np.ndarray, asked: Workload) -> float | None:
    """E · rows of one release: ‖true - released‖₂ / questions."""
    try:
        ask = TrialAsk(table, EPSILON, bits=SYSTEM)
        values = released(recipe(method).build(ask, asked), asked)
    except NoisegateError:
        return None  # it cannot do this
    gaps = asked.answers(table) - asked.answers(values)
    return float(np.linalg.norm(gaps)) / asked.size


def released(estimate: Estimate, asked: Workload) -> np.ndarray:
    """Counts as the workbench would release them."""
    if estimate.mend is not None:
        return estimate.mend(1.0).reshape(asked.shape)
    return finish(estimate.cells.reshape(asked.shape), asked, is_whole=True, signed=False)


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


def headline(trials: int, *, say: Callable[[str], None]) -> list[Row]:
    """The whole map: every cell with noise of its own, beside what auto makes of it."""
    table = np.load(DATA / "dpbench-2d" / "dpbench_2d_256x256.npz")[MAP].astype(np.int64)
    asked = cells(table.shape)
    rows: list[Row] = []
    pictures: dict[str, list[np.ndarray]] = {"plain": [], "auto": []}
    for epsilon in MAP_EPSILONS:
        found: dict[str, list[float]] = {"plain": [], "auto": []}
        for trial in range(trials):
            for way, method in (("plain", "cells"), ("auto", "auto")):
                ask = TrialAsk(table, Fraction(str(epsilon)), bits=SYSTEM)
                estimate = recipe(method).build(ask, asked)
                values = estimate.cells if way == "plain" else released(estimate, asked)
                found[way].append(float(np.abs(values - table).mean()))
                if trial == 0:
                    pictures[way].append(np.maximum(values, 0))
        rows.append(_map_row(epsilon, found, table.size))
        say(f"ε = {epsilon:g}: {rows[-1]['lower']:.1f} × lower")
    save_pictures([[table] * len(MAP_EPSILONS), pictures["plain"], pictures["auto"]])
    return rows


def _map_row(epsilon: float, found: dict[str, list[float]], count: int) -> Row:
    alpha = np.exp(-epsilon)
    exact = float(2 * alpha / (1 - alpha**2))
    spread = (2 * alpha / (1 - alpha) ** 2 - exact**2) / (count * len(found["plain"]))
    plain, auto = mean(found["plain"]), mean(found["auto"])
    low = epsilon <= LESS_FROM
    return {
        "epsilon": epsilon,
        "plain": plain,
        "plain_se": standard_error(found["plain"]),
        "exact": exact,
        "equal": bool(abs(plain - exact) <= SURE * np.sqrt(spread)),
        "auto": auto,
        "auto_se": standard_error(found["auto"]),
        "lower": plain / auto,
        "target": f"≥ {LESS} × lower" if low else None,
        "met": plain / auto >= LESS if low else None,
    }


def save_pictures(rows: list[list[np.ndarray]]) -> None:
    """Maps side by side as one PNG: dark is many, on a logarithmic scale common to all."""
    top = np.log1p(max(image.max() for row in rows for image in row))
    gap = 8
    lines = []
    for row in rows:
        shades = [255 - np.rint(255 * np.log1p(image) / top) for image in row]
        framed = [np.pad(shade, gap // 2, constant_values=200) for shade in shades]
        lines.append(np.hstack(framed))
    pixels = np.vstack(lines).astype(np.uint8)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(png(pixels))


def png(pixels: np.ndarray) -> bytes:
    """A grey picture: signature, size, lines without a filter."""
    height, width = pixels.shape
    head = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 0, 0, 0, 0])
    body = b"".join(b"\0" + line.tobytes() for line in pixels)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(body)), (b"IEND", b""))
    chunks = (
        len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def sample(shape: np.ndarray, rows: int, seed: int) -> np.ndarray:
    """So many rows drawn from the shape of a table, with replacement."""
    chances = shape.astype(float).ravel()
    drawn = np.random.default_rng(seed).multinomial(rows, chances / chances.sum())
    return drawn.reshape(shape.shape)


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


def standard_error(values: list[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def _show(console: Console, title: str, columns: tuple[Column, ...], rows: list[Row]) -> None:
    shown = [column for column in columns if any(row.get(column[1]) is not None for row in rows)]
    table = Table()
    for heading, _, style in shown:
        table.add_column(heading, justify="right" if style else "left")
    for row in rows:
        table.add_row(*(cell(row, field, style) for _, field, style in shown))
    console.print(f"\n[bold]{title}")
    console.print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("1d", "2d", "map"), action="append")
    parser.add_argument("--quick", action="store_true", help="3 trials of few tables")
    parser.add_argument("--trials", type=int, help="trials of auto; 10 unless told")
    parser.add_argument("--beside", type=int, help="trials of our other recipes; as many")
    options = parser.parse_args()
    options.only = options.only or ["1d", "2d", "map"]
    return options


if __name__ == "__main__":
    main()
