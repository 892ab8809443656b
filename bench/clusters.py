"""k-means of many rows in a Parquet file, through the door: five rounds, time and peak memory.

Each runs in a process of its own, from opening the gate to the centres. Rows lie around eight
points of a cube from 0 to 32; how far the furthest of these is from the nearest centre found is
shown beside. SuLQ's rounds begin at random and may stay where no point is, as they do without
noise.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from clock import peak_gib
from show import Column, Row, console, show

ROWS = (1_000_000, 10_000_000)
COLUMNS, CLUSTERS, ROUNDS, HIGH = 8, 8, 5, 32
METHODS = ("sulq", "auto")
CHUNK = 1_000_000
TARGET_S = 60
CLUSTERED: tuple[Column, ...] = (
    ("rows", "rows", ",d"),
    ("method", "method", ""),
    ("wall s", "wall_s", ".1f"),
    ("CPU s", "cpu_s", ".1f"),
    ("peak GiB", "peak_gib", ".2f"),
    ("off, of 32", "off", ".4f"),
    ("under 60 s", "met", "met"),
)


def measure(sizes: Sequence[int] = ROWS) -> list[Row]:
    """A row for each size and method."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for size in sizes:
            data = Path(directory) / f"{size}.parquet"
            write(data, size)
            found += [_in_a_process(data, size, method) for method in METHODS]
    return found


def middles() -> np.ndarray:
    """What rows lie around: far enough from the bounds that none is clamped."""
    return np.random.default_rng(0).uniform(HIGH / 4, HIGH * 3 / 4, (CLUSTERS, COLUMNS))


def write(data: Path, size: int) -> None:
    """Rows in equal parts around each point."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load
    import pyarrow.parquet as pq  # noqa: PLC0415

    coins, points = np.random.default_rng(1), middles()
    names = [f"x{place}" for place in range(COLUMNS)]
    with pq.ParquetWriter(data, pa.schema([(name, pa.float64()) for name in names])) as writer:
        for start in range(0, size, CHUNK):
            count = min(CHUNK, size - start)
            rows = points[np.arange(count) % CLUSTERS] + coins.normal(0, 1, (count, COLUMNS))
            writer.write_table(pa.table(dict(zip(names, rows.round(3).T, strict=True))))


def clustered(data: Path, size: int, method: str) -> Row:
    """One fit, at ε = 1."""
    from noisegate.learners import KMeans  # noqa: PLC0415
    from noisegate.root import open as open_gate  # noqa: PLC0415 - its memory counts

    wall, cpu = perf_counter(), process_time()
    names = [f"x{place}" for place in range(COLUMNS)]
    columns = {name: {"between": [0, HIGH]} for name in names}
    gate = open_gate(data, epsilon=1, columns=columns, table="points", ledger=":memory:")
    model = KMeans(CLUSTERS, epsilon=1, method=method, rounds=ROUNDS)
    centres = model.fit(gate.matrix("points", names)).cluster_centers_
    away = np.linalg.norm(middles()[:, None] - centres, axis=2).min(axis=1)
    return {
        "rows": size,
        "method": method,
        "wall_s": perf_counter() - wall,
        "cpu_s": process_time() - cpu,
        "peak_gib": peak_gib(),
        "off": float(away.max()),
    }


def _in_a_process(data: Path, size: int, method: str) -> Row:
    command = [sys.executable, __file__, str(data), str(size), method]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    row: Row = json.loads(found.stdout)
    return row | {"met": row["wall_s"] <= TARGET_S}


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(clustered(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
    else:
        show(console(width=140), "k-means of many rows", CLUSTERED, measure())
