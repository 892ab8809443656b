"""Measure noise, ledger, door and questions, with --peers also the peers; never fails for speed.

    python bench/run.py --only noise --only door     some sections
    python bench/run.py --resume                     those that this commit has no figures of

A section is a line of `SECTIONS`: a function from the options to tables (title, columns, rows).

Rates and ratios are of CPU time, in this very run: beside NumPy in turns, beside a peer right after
it. The door's ratios are of wall time, because there the disk is part of the answer. Questions
have both.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import door
import engines
import everyday
import ledger
import noise
import peers
import quantiles
import query
import sparse
import tumult
import typed
from keep import Run, Shown, every
from show import Column, console, machine

SPEED: tuple[Column, ...] = (
    ("law", "law", ""),
    ("draws", "size", ",d"),
    ("wall ms", "wall_ms", ",.2f"),
    ("CPU ms", "cpu_ms", ",.2f"),
    ("million/s", "draws_per_s", "millions"),
    ("NumPy's", "numpy", ""),
    ("× NumPy", "times_numpy", ",.3g"),
    ("target", "target", ""),
    ("met", "met", "met"),
)
ROOM: tuple[Column, ...] = (
    ("law", "law", ""),
    ("first use ms", "first_ms", ",.1f"),
    ("again ms", "again_ms", ",.2f"),
    ("draws", "size", ",d"),
    ("peak memory ÷ array", "peak_arrays", ".2f"),
    ("target", "target", ""),
    ("met", "met", "met"),
)
STORES: tuple[Column, ...] = (("ledger", "store", ""), ("pairs/s", "pairs_per_s", ",.0f"))
DOOR: tuple[Column, ...] = (
    ("door", "way", ""),
    ("wall ms", "wall_ms", ",.2f"),
    ("CPU ms", "cpu_ms", ",.2f"),
    ("time ÷ plain", "times_plain", ",.1f"),
    ("on top, ms", "more_ms", ",.2f"),
)
QUESTIONS: tuple[Column, ...] = (
    ("question", "way", ""),
    ("wall ms", "wall_ms", ",.1f"),
    ("CPU ms", "cpu_ms", ",.1f"),
    ("wall ÷ plain", "times_wall", ",.2f"),
    ("CPU ÷ plain", "times_cpu", ",.2f"),
    ("peak GiB", "peak_gib", ",.2f"),
    ("rank error", "rank_error", ".1e"),
    ("target", "target", ""),
    ("met", "met", "met"),
)
BESIDE: tuple[Column, ...] = (
    ("law", "law", ""),
    ("peer", "peer", ""),
    ("CPU ms", "cpu_ms", ",.1f"),
    ("million/s", "draws_per_s", "millions"),
    ("ours, CPU ms", "ours_cpu_ms", ",.2f"),
    ("ours is × as fast", "times_peer", ",.0f"),
    ("target", "target", ""),
    ("met", "met", "met"),
    ("why not", "failed", ""),
)


def _noise(said: argparse.Namespace) -> Iterator[Shown]:
    found = noise.measure(said.cells, repeats=said.repeats)
    yield Shown("Noise: speed, tables cached", SPEED, found["speed"])
    yield Shown("Noise: first use and memory", ROOM, found["room"])


def _ledger(said: argparse.Namespace) -> Iterator[Shown]:
    rates = ledger.measure(said.pairs)
    rows = [{"store": store, "pairs_per_s": rate} for store, rate in rates.items()]
    yield Shown("Ledger: reserve and settle", STORES, rows)


def _door(said: argparse.Namespace) -> Iterator[Shown]:
    found = door.measure(said.rows)
    yield Shown(f"Door: questions to {said.rows:,} rows of Parquet", DOOR, found["questions"])
    yield Shown("Door: whole processes", DOOR, found["processes"])


def _questions(said: argparse.Namespace) -> Iterator[Shown]:
    found = query.measure(said.query_rows)
    title = f"Questions to {said.query_rows:,} rows of Parquet, {query.GROUPS:,} groups"
    yield Shown(title, QUESTIONS, found["questions"])
    yield Shown("Along a foreign key", QUESTIONS, found["joins"])
    yield Shown("What a question costs by itself", QUESTIONS, found["fixed"])
    yield Shown("Whole processes", QUESTIONS, found["starts"])
    yield Shown(typed.TITLE, typed.COLUMNS, typed.beside(found["questions"], found["starts"]))


def _quantiles(said: argparse.Namespace) -> Iterator[Shown]:
    rows = quantiles.measure(said.query_rows)
    yield Shown("Quantiles alone", QUESTIONS, rows)


def _everyday(said: argparse.Namespace) -> Iterator[Shown]:
    yield Shown("Everyday questions: medians", QUESTIONS, everyday.measure(8 * said.quick or None))


def _memory(said: argparse.Namespace) -> Iterator[Shown]:
    rows = query.large(said.query_rows) if said.quick else query.large()
    yield Shown("Memory of one question", QUESTIONS, rows)


def _engines(said: argparse.Namespace) -> Iterator[Shown]:
    asked = tuple(said.engine or engines.ENGINES)
    rows = engines.measure(said.engine_rows, engines=asked, repeats=1)
    title = f"Engines: {said.engine_rows:,} rows, {query.GROUPS:,} groups"
    yield Shown(title, engines.COLUMNS, rows)


def _sizes(said: argparse.Namespace) -> Iterator[Shown]:
    most = said.most_rows
    rows = engines.sizes(tuple(each for each in engines.SIZES if each <= most) or (most,))
    yield Shown("DuckDB by rows", engines.COLUMNS, rows)


def _tumult(said: argparse.Namespace) -> Iterator[Shown]:
    title = f"Spark: {said.engine_rows:,} rows, {query.GROUPS:,} groups, ε = {tumult.EPSILON:g}"
    yield Shown(title, tumult.COLUMNS, tumult.measure(said.engine_rows, say=print))


def _sparse(said: argparse.Namespace) -> Iterator[Shown]:
    title = f"Sparse releases: {said.sparse_cells:,} cells with rows, of 2**64"
    yield Shown(title, sparse.COLUMNS, sparse.measure(said.sparse_cells))


def _peers(said: argparse.Namespace) -> Iterator[Shown]:
    found = peers.measure(said.peer_cells, say=print)
    title = f"{said.peer_cells:,} cells, million draws a second of CPU time"
    yield Shown(title, peers.SIDES, peers.side_by_side(found, said.peer_cells))
    yield Shown("Each peer; ours on floats is on a grid of 1/1024", BESIDE, found)


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Shown]]] = {
    "noise": _noise,
    "peers": _peers,
    "ledger": _ledger,
    "door": _door,
    "questions": _questions,
    "quantiles": _quantiles,
    "everyday": _everyday,
    "sparse": _sparse,
    "memory": _memory,
    "engines": _engines,
    "sizes": _sizes,
    "tumult": _tumult,
}
EFFORTS = {  # where it is not the median of --repeats runs
    "peers": "medians of up to 5 runs within 10 s; ours of 101",
    "ledger": "500 questions one after the other",
    "door": "medians of 25 runs; of 5 processes",
    "questions": "medians of 3 runs; of 5 processes, of 20 small questions",
    "quantiles": "medians of 3 runs",
    "everyday": "one run of each question, after one to warm up",
    "sparse": "one process each",
    "memory": "one process each",
    "engines": "one run of each question, after one to warm up",
    "sizes": "one run of each question, after one to warm up",
    "tumult": "one process each; one run of each question, after one from the start",
}
# For those who ask: they install, or take long.
ASIDE = ("peers", "memory", "engines", "sizes", "tumult")


def main() -> None:
    """Measure section by section, show each as soon as it is known, keep each by itself."""
    said = _options()
    to = console(width=140)
    to.print(f"[bold]{machine()}")
    usual = [name for name in SECTIONS if name not in ASIDE or getattr(said, name)]
    usually = f"medians of {said.repeats} runs"
    runs = [
        (
            Run(
                name,
                f"python bench/run.py --only {name}" + _said(said),
                "tiny sizes" if said.quick else EFFORTS.get(name, usually),
                quick=said.quick,
            ),
            partial(SECTIONS[name], said),
        )
        for name in said.only or usual
    ]
    every(runs, to, resume=said.resume)


SIZES = {  # in full, and with --quick
    "cells": (noise.CELLS, 200_000, "draws per law"),
    "repeats": (5, 3, "runs per median"),
    "rows": (door.ROWS, 50_000, "rows behind the door"),
    "query_rows": (query.ROWS, 200_000, "rows for questions"),
    "sparse_cells": (sparse.CELLS, 50_000, "of 2**64"),
    "peer_cells": (noise.HISTOGRAM_CELLS, 2_000, "cells that peers draw for"),
    "engine_rows": (engines.ROWS, 50_000, "rows on every engine"),
    "most_rows": (engines.SIZES[-1], 50_000, "rows of the largest size on DuckDB"),
    "pairs": (500, 50, "questions for the ledger"),
}


def _said(said: argparse.Namespace) -> str:
    """The sizes that are other than usual."""
    words = ["--quick"] * said.quick + [f"--engine {each}" for each in said.engine or ()]
    other = (name for name, sizes in SIZES.items() if getattr(said, name) != sizes[said.quick])
    words += [f"--{name.replace('_', '-')} {getattr(said, name)}" for name in other]
    return "".join(f" {each}" for each in words)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=tuple(SECTIONS), action="append")
    parser.add_argument("--peers", action="store_true", help="install and measure the peers too")
    parser.add_argument("--memory", action="store_true", help="100 million rows too, 2 GB on disk")
    parser.add_argument("--engines", action="store_true", help="every engine too, some 30 minutes")
    parser.add_argument("--engine", choices=engines.ENGINES, action="append", help="this one alone")
    parser.add_argument("--sizes", action="store_true", help="10, 50, 100 million rows on DuckDB")
    parser.add_argument("--tumult", action="store_true", help="Tumult Analytics on Spark too")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it works")
    parser.add_argument("--resume", action="store_true", help="leave out what this commit has")
    for name, (_, _, words) in SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=words)
    said = parser.parse_args()
    for name, sizes in SIZES.items():
        if getattr(said, name) is None:
            setattr(said, name, sizes[said.quick])
    return said


if __name__ == "__main__":
    main()
