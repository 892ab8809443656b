"""Measure noise, ledger, door and questions, with --peers also the peers; never fails for speed.

Rates and ratios are of CPU time, in this very run: beside NumPy in turns, beside a peer right after
it. The door's ratios are of wall time, because there the disk is part of the answer. Questions
have both.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import door
import everyday
import ledger
import noise
import peers
import quantiles
import query
import sparse
from show import Column, console, load, machine, show

RESULTS = Path(__file__).parents[1] / ".bench" / "results.json"

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


def main() -> None:
    """Measure section by section, show each as soon as it is known, keep all of it."""
    options = _options()
    to = console(width=140)
    found: dict[str, Any] = {"machine": machine()}
    to.print(f"[bold]{found['machine']}")

    to.print("[dim]noise …")
    found["noise"] = noise.measure(options.cells, repeats=options.repeats)
    show(to, "Noise: speed, tables cached", SPEED, found["noise"]["speed"])
    show(to, "Noise: first use and memory", ROOM, found["noise"]["room"])

    to.print("[dim]ledger …")
    rates = ledger.measure(options.pairs)
    found["ledger"] = [{"store": store, "pairs_per_s": rate} for store, rate in rates.items()]
    show(to, "Ledger: reserve and settle", STORES, found["ledger"])

    to.print("[dim]door …")
    found["door"] = door.measure(options.rows)
    title = f"Door: questions to {options.rows:,} rows of Parquet"
    show(to, title, DOOR, found["door"]["questions"])
    show(to, "Door: whole processes", DOOR, found["door"]["processes"])

    to.print("[dim]questions …")
    found["query"] = query.measure(options.query_rows)
    title = f"Questions to {options.query_rows:,} rows of Parquet, {query.GROUPS:,} groups"
    show(to, title, QUESTIONS, found["query"]["questions"])
    show(to, "Along a foreign key", QUESTIONS, found["query"]["joins"])
    show(to, "What a question costs by itself", QUESTIONS, found["query"]["fixed"])
    show(to, "Whole processes", QUESTIONS, found["query"]["starts"])
    found["quantiles"] = quantiles.measure()
    show(to, "Quantiles alone", QUESTIONS, found["quantiles"])
    found["everyday"] = everyday.measure()
    show(to, "Everyday questions: medians", QUESTIONS, found["everyday"])
    if options.large:
        found["large"] = query.large()
        show(to, "Memory", QUESTIONS, found["large"])

    to.print("[dim]sparse …")
    found["sparse"] = sparse.measure(options.sparse_cells)
    title = f"Sparse releases: {options.sparse_cells:,} cells with rows, of 2**64"
    show(to, title, sparse.COLUMNS, found["sparse"])

    if options.peers:
        found["peers"] = peers.measure(say=lambda text: to.print(f"[dim]{text}"))
        title = f"Peers: {noise.HISTOGRAM_CELLS:,} cells, ours on floats is on a grid of 1/1024"
        show(to, title, BESIDE, found["peers"])

    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False))
    to.print(f"kept in {RESULTS.relative_to(RESULTS.parents[1])}; {load()}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true", help="install and measure the peers too")
    parser.add_argument("--large", action="store_true", help="100 million rows too, 2 GB on disk")
    parser.add_argument("--cells", type=int, default=noise.CELLS, help="draws per law")
    parser.add_argument("--repeats", type=int, default=5, help="runs per median")
    parser.add_argument("--rows", type=int, default=door.ROWS, help="rows behind the door")
    parser.add_argument("--query-rows", type=int, default=query.ROWS, help="rows for questions")
    parser.add_argument("--sparse-cells", type=int, default=sparse.CELLS, help="of 2**64")
    parser.add_argument("--pairs", type=int, default=500, help="questions for the ledger")
    return parser.parse_args()


if __name__ == "__main__":
    main()
