"""Ten million cells that hold rows, of 2**64: released from a Parquet file into a ledger on disk.

At a small ε the threshold is high and few cells are shown; at a large one nearly all are. Each runs
in a process of its own, from opening the gate to the stored release, for its time and peak memory.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import duckdb

from clock import peak_gib
from show import Column, Row, console, show

CELLS = 10_000_000
EPSILONS = (1, 30)
TARGET_S, TARGET_GIB = 10, 2
SIDE = 1 << 32
COLUMNS: tuple[Column, ...] = (
    ("release", "way", ""),
    ("shown", "shown", ",d"),
    ("threshold", "threshold", ",d"),
    ("wall s", "wall_s", ".2f"),
    ("CPU s", "cpu_s", ".2f"),
    ("peak GiB", "peak_gib", ".2f"),
    ("ledger MB", "ledger_mb", ",.0f"),
    ("target", "target", ""),
    ("met", "met", "met"),
)


def measure(cells: int = CELLS) -> list[Row]:
    """A row for each ε."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "trips.parquet"
        write(data, cells)
        return [_in_a_process(data, epsilon) for epsilon in EPSILONS]


def write(data: Path, cells: int) -> None:
    """Two rows in each cell of a scattered set; both columns are 32 bits wide."""
    rows = f"SELECT i FROM range({cells}) AS t(i), range(2)"
    places = ", ".join(f"(hash(i * 2 + {k}) & {SIDE - 1})::BIGINT AS {name}"
                       for k, name in enumerate(("start", "stop")))  # fmt: skip
    duckdb.execute(f"COPY (SELECT {places} FROM ({rows})) TO '{data}'")


def release(data: Path, epsilon: int) -> Row:
    """One release, through the gate's own parts."""
    from noisegate.desk.desk import Desk  # noqa: PLC0415
    from noisegate.releases.sparse.job import SparseOrder  # noqa: PLC0415
    from noisegate.root import open as open_gate  # noqa: PLC0415 - counted as well

    wall, cpu = perf_counter(), process_time()
    columns = {name: {"between": [0, SIDE - 1]} for name in ("start", "stop")}
    ledger = data.with_name(f"{epsilon}.ledger")
    gate = open_gate(data, epsilon=100, columns=columns, ledger=ledger)
    order = SparseOrder(columns=dict.fromkeys(columns), epsilon=epsilon, expected=CELLS)
    desk = Desk(gate.door, gate.rules)
    found = desk.run(order.job(desk))
    return {
        "way": f"sparse release at ε = {epsilon}",
        "shown": int(found.cells.size),
        "threshold": found.noise.threshold,
        "wall_s": perf_counter() - wall,
        "cpu_s": process_time() - cpu,
        "peak_gib": peak_gib(),
        "ledger_mb": ledger.stat().st_size / 1e6,
        "target": f"≤ {TARGET_S} s, {TARGET_GIB} GiB",
    }


def _in_a_process(data: Path, epsilon: int) -> Row:
    command = [sys.executable, __file__, str(data), str(epsilon)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    row: Row = json.loads(found.stdout)
    return row | {"met": row["wall_s"] <= TARGET_S and row["peak_gib"] <= TARGET_GIB}


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(release(Path(sys.argv[1]), int(sys.argv[2]))))
    else:
        show(console(width=140), f"{CELLS:,} cells with rows, of 2**64", COLUMNS, measure())
