"""What the whole gate costs beside the plain query, and how long a process takes to answer."""

import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import duckdb

from clock import Timing, side_by_side
from noisegate.gate import Gate
from noisegate.root import open as open_gate

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 1_000_000
WARDS = ("east", "north", "south", "west")
COUNT = "SELECT COUNT(*) AS n FROM people"
BY_WARD = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"

Row = dict[str, Any]


def measure(rows: int = ROWS, *, repeats: int = 25, starts: int = 5) -> dict[str, list[Row]]:
    """Questions through the open gate, and whole processes from start to first answer."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        return {
            "questions": questions(folder, rows, repeats=repeats),
            "processes": processes(folder, repeats=starts),
        }


def questions(folder: Path, rows: int, *, repeats: int) -> list[Row]:
    """Each question in turns: plain DuckDB, ledger on disk, ledger in memory, and asked again."""
    data = folder / "people.parquet"
    _write_people(data, rows)
    plain = duckdb.connect()
    plain.execute(f"CREATE VIEW people AS SELECT * FROM read_parquet('{data}')")
    facts = {"ward": {"in": list(WARDS)}}
    kept = open_gate(data, epsilon=1000, columns=facts, ledger=folder / "people.ledger")
    passing = open_gate(data, epsilon=1000, columns=facts, ledger=":memory:")
    with plain, kept.ledger, passing.ledger:
        return _compared(plain, kept, passing, repeats)


def _compared(
    plain: duckdb.DuckDBPyConnection, kept: Gate, passing: Gate, repeats: int
) -> list[Row]:
    found = []
    for name, sql in (("COUNT(*)", COUNT), ("COUNT(*) GROUP BY ward", BY_WARD)):
        ways: dict[str, Callable[[], Any]] = {
            "plain DuckDB": lambda sql=sql: plain.execute(sql).fetchall(),
            "noisegate, ledger on disk": partial(_ask, kept, sql, fresh=True),
            "noisegate, ledger in memory": partial(_ask, passing, sql, fresh=True),
            "noisegate, asked before": partial(_ask, kept, sql, fresh=False),
        }
        timings = side_by_side(list(ways.values()), repeats=repeats)
        found += [
            _row(f"{name}: {way}", timing, timings[0])
            for way, timing in zip(ways, timings, strict=True)
        ]
    return found


def processes(folder: Path, *, repeats: int) -> list[Row]:
    """From the start of a process to its exit, with a ledger of its own each time."""
    data = folder / "small.csv"
    data.write_text("ward,age\n" + "".join(f"{WARDS[i % 4]},{20 + i % 60}\n" for i in range(1000)))
    sql = "SELECT COUNT(*) AS n FROM small"
    duck = f"import duckdb; print(duckdb.sql(\"SELECT COUNT(*) FROM '{data}'\").fetchall())"
    gate = str(Path(sys.executable).with_name("noisegate"))

    def ask(number: int) -> list[str]:
        ledger = str(folder / f"small-{number}.ledger")
        paid = ["--epsilon", "0.5", "--budget", "1", "--ledger", ledger, "--json"]
        return [gate, "ask", str(data), sql, *paid]

    commands: dict[str, Callable[[int], list[str]]] = {
        "plain DuckDB, first count of a small CSV": lambda _: [sys.executable, "-c", duck],
        "noisegate ask, first count of a small CSV": ask,
        "noisegate --help": lambda _: [gate, "--help"],
        "an empty Python process": lambda _: [sys.executable, "-c", "pass"],
    }
    rounds = [[_process(make(i)) for make in commands.values()] for i in range(repeats)]
    timings = [Timing.of(list(runs)) for runs in zip(*rounds, strict=True)]
    counting = 2  # only the first two do the same job
    beside = [timings[0]] * counting + [None] * (len(commands) - counting)
    return [_row(*each) for each in zip(commands, timings, beside, strict=True)]


def _ask(gate: Gate, sql: str, *, fresh: bool) -> Any:
    return gate.sql(sql, epsilon="1/1000", fresh=fresh).rows


def _row(way: str, timing: Timing, plain: Timing | None) -> Row:
    row = {"way": way, "wall_ms": timing.wall_ms, "cpu_ms": timing.cpu_ms}
    if plain is None:
        return row
    return row | {
        "times_plain": timing.wall_ms / plain.wall_ms,
        "more_ms": timing.wall_ms - plain.wall_ms,
    }


def _process(command: list[str]) -> Timing:
    before, start = _children_s(), perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return Timing((perf_counter() - start) * 1e3, (_children_s() - before) * 1e3)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _write_people(path: Path, rows: int) -> None:
    wards = ", ".join(f"'{ward}'" for ward in WARDS)
    people = f"SELECT i AS id, [{wards}][1 + (i * 7919 // 64) % 4] AS ward FROM range({rows}) t(i)"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({people}) TO '{path}' (FORMAT parquet)")
