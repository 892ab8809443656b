"""The everyday questions of `tests/questions` beside plain DuckDB on the same rows, one by one."""

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from clock import once
from noisegate.root import open as open_gate

sys.path.append(str(Path(__file__).parents[1] / "tests" / "questions"))
from everyday_worlds import WORLDS, questions, written

Row = dict[str, Any]
EPSILON = 1000  # so that undeclared groups are found and measured


def measure(most: int | None = None) -> list[Row]:
    """For each schema the medians over its answered questions, and of the ratios of each."""
    found = []
    for world in WORLDS:
        asked = [one for one in questions(world) if one.outcome == "answered"][:most]
        with tempfile.TemporaryDirectory() as folder:
            policy, con = written(world, folder)
            gate = open_gate(policy, ledger=":memory:")
            pairs = [_pair(gate, con, one) for one in asked]
        plain, ours = zip(*pairs, strict=True)
        for way, times in (("plain DuckDB", plain), ("noisegate", ours)):
            row: Row = {
                "way": f"{world}, {len(asked)} questions: {way}",
                "wall_ms": median(time.wall_ms for time in times),
                "cpu_ms": median(time.cpu_ms for time in times),
            }
            if times is ours:
                row["times_wall"] = median(b.wall_ms / a.wall_ms for a, b in pairs)
                row["times_cpu"] = median(b.cpu_ms / max(a.cpu_ms, 0.01) for a, b in pairs)
            found.append(row)
    return found


def _pair(gate: Any, con: Any, asked: Any) -> tuple[Any, Any]:
    """Times of DuckDB and of ours, each after one run to warm up."""
    calls = (
        lambda: con.execute(asked.sql).fetchall(),
        lambda: gate.sql(asked.sql, epsilon=EPSILON, fresh=True),
    )
    for call in calls:
        call()
    return once(calls[0]), once(calls[1])


if __name__ == "__main__":
    for line in measure():
        print(line)
