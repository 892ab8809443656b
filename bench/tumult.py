"""The gate and Tumult Analytics on the same release of Spark, over the same rows.

    python bench/run.py --only tumult [--engine-rows 10000000]

Each has a process of its own that starts Spark with two threads and 3 GB, and asks each question
twice: the second finds Spark warm. COUNT and SUM by group at ε = 1 together; where users are the
units, of at most ten rows each. What is off is the distance to the exact answer, caps included.
The plain query of the same meaning, in one more process, is what no gate on Spark can fall below.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import engines
import peers
from query import GROUPS, HIGH
from show import Column, Row

CAP, EPSILON, AT_LEAST, LIMIT_S = 10, 1.0, 5.0, 3_600
WAYS = {
    "rows": "COUNT and SUM per group, every row one person",
    "users": f"the same, at most {CAP} rows per user",
}
COLUMNS: tuple[Column, ...] = (
    ("question", "way", ""),
    ("system", "system", ""),
    ("from the start s", "first_s", ",.1f"),
    ("warm s", "warm_s", ",.2f"),
    ("mean |error| of COUNT", "count_error", ",.3g"),
    ("of SUM", "sum_error", ",.3g"),
    ("× as long, from the start", "times_first", ",.1f"),
    ("warm", "times_warm", ",.1f"),
    ("target", "target", ""),
    ("met", "met", "met"),
    ("why not", "failed", ""),
)


def measure(rows: int, *, say: Callable[[str], None] = lambda _: None) -> list[Row]:
    """Ours; and how many times as long the plain query and Tumult's answer take."""
    folder = engines.tables(rows)
    say("Tumult Analytics: installed at the first run, then measured …")
    try:
        theirs = _process([str(peers.environment("tumult", "--no-deps")),
                           str(peers.BENCH / "peers" / "run_tumult.py"), str(folder),
                           "--groups", str(GROUPS), "--high", str(HIGH), "--cap", str(CAP),
                           "--epsilon", str(EPSILON)])  # fmt: skip
    except peers.PeerError as why:
        theirs = {"failed": str(why)}
    ours = _process([sys.executable, __file__, str(folder)])
    plain = _process([sys.executable, __file__, str(folder), "--plain"])
    exact = _exact(folder)
    found: list[Row] = []
    for unit, way in WAYS.items():
        mine, least = (_row(way, unit, said, exact) for said in (ours, plain))
        found += [mine, least | _times(least, mine)]
        if "failed" in theirs:
            found.append({"way": way, "system": "Tumult Analytics"} | theirs)
            continue
        other = _row(way, unit, theirs, exact)
        times = _times(other, mine)
        met = min(times.values()) >= AT_LEAST
        found.append(other | times | {"target": f"≥ {AT_LEAST:g} × ours", "met": met})
    return found


def _times(other: Row, mine: Row) -> dict[str, float]:
    return {f"times_{each}": other[f"{each}_s"] / mine[f"{each}_s"] for each in ("first", "warm")}


def _process(command: list[str]) -> Any:
    """What a process says on its last line, and when it was started."""
    start = time.time()
    variables = os.environ | {"PYTHONWARNINGS": "ignore", "SPARK_LOCAL_IP": "127.0.0.1"}
    said = peers.call(command, LIMIT_S, "run", variables)
    return json.loads(said.splitlines()[-1]) | {"start": start}


def _row(way: str, unit: str, said: Any, exact: np.ndarray) -> Row:
    """Its first question pays for Spark's start; where another came first, that is not counted."""
    first, warm = (each for each in said["asked"] if each["unit"] == unit)
    starting = said["asked"][0]["start"] - said["start"]
    off = np.abs(np.array(warm["answer"]) - exact).mean(axis=0)
    return {
        "way": way,
        "system": said["release"],
        "first_s": starting + first["end"] - first["start"],
        "warm_s": warm["end"] - warm["start"],
        "count_error": off[1],
        "sum_error": off[2],
    }


def _exact(folder: Path) -> np.ndarray:
    asked = f"SELECT g, COUNT(*), SUM(x) FROM read_parquet('{folder}/ten/*') GROUP BY g ORDER BY g"
    with duckdb.connect() as plain:
        return np.array(plain.sql(asked).fetchall(), dtype=float)


def ask(folder: Path, *, plain: bool) -> Any:
    """Our side, or the plain queries: Spark's own server, for each unit the question twice."""
    found = []
    with ExitStack() as stack:
        url = stack.enter_context(engines.spark_server())
        for unit in WAYS:
            asked = stack.enter_context((_plain if plain else _gate)(folder, url, unit))
            for _ in range(2):
                start = time.time()
                shown = asked().sort_values("g")[["g", "n", "s"]].to_numpy(dtype=float)
                found.append({"unit": unit, "start": start, "end": time.time(),
                              "answer": shown.tolist()})  # fmt: skip
    return {"release": "plain Spark" if plain else "noisegate", "asked": found}


@contextmanager
def _gate(folder: Path, url: str, unit: str) -> Iterator[Callable[[], Any]]:
    with tempfile.TemporaryDirectory() as home:
        gate = engines.gate(Path(home), unit, {"ten": f"{url}#{folder}/ten"})
        yield lambda: gate.sql(engines.BY_GROUP, epsilon=EPSILON, fresh=True).to_pandas()


@contextmanager
def _plain(folder: Path, url: str, unit: str) -> Iterator[Callable[[], Any]]:
    with engines.connected(folder, url, ("ten",)) as (raw, _):
        question = "COUNT and SUM per group" if unit == "rows" else "the same, 10 rows per user"
        yield lambda: raw(engines.QUESTIONS[question][2]).to_pandas()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    print(json.dumps(ask(given.folder, plain=given.plain)))
