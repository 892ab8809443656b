"""Whole questions beside the plain query on the same rows, each next to what it must reach.

Alone: ``python bench/query.py``; with ``--large`` also 100 million rows, and how much memory they
take. Tables are made once and kept in .bench.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import duckdb
import numpy as np

from clock import Timing, once, peak_gib, side_by_side
from noisegate.errors import UnitWarning
from noisegate.root import open as open_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noisegate.gate import Gate

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".bench"
ROWS, LARGE = 10_000_000, 100_000_000
GROUPS, CHUNK, HIGH = 1000, 1_000_000, 500
ROWS_PER_USER = 10  # on average; the tail is heavy
EPSILON_MAX = 10**6
LEVELS = (0.25, 0.5, 0.75)
LARGE_GIB = 4.0

BY_GROUP = "SELECT g, COUNT(*) AS n, SUM({column}) AS s FROM ten GROUP BY g"
BY_USER = 'SELECT "user", g, COUNT(*) AS n, SUM(x) AS s FROM ten GROUP BY "user", g'
HOMES = """
name = "homes"
[budget]
epsilon = 1000000
[tables.homes]
source = "homes.parquet"
unit = "home"
rows_per_unit = 30
[tables.homes.columns]
user = {{ type = "integer" }}
kind = {{ in = [0, 1, 2, 3, 4] }}
[tables.ten]
source = "{data}"
unit = {{ column = "home", via = ["user -> homes.user"] }}
rows_per_unit = 30
[tables.ten.columns]
user = {{ type = "integer" }}
g = {{ in = {groups} }}
x = {{ type = "number", between = [0, 500] }}
"""
JOINS = (  # what, the question, the plain query where it is another
    (
        "rows per (household, group)",
        BY_GROUP.format(column="x"),
        'SELECT home, g, COUNT(*), SUM(x) FROM ten JOIN homes USING ("user") GROUP BY home, g',
    ),
    (
        "rows by a column of the other table",
        """SELECT kind, COUNT(*) AS n, SUM(x) AS s
        FROM ten JOIN homes ON ten."user" = homes."user" GROUP BY kind""",
        None,
    ),
)
QUARTILES = (
    "SELECT QUANTILE_CONT(y, 0.25) AS a, MEDIAN(y) AS b, QUANTILE_CONT(y, 0.75) AS c FROM ten"
)
CAPS: dict[str, dict[str, Any]] = {
    "rows": {},
    "10 groups per user": {"unit": "user", "rows_per_unit": 10, "groups_per_unit": 10},
    "10 rows per user": {"unit": "user", "rows_per_unit": 10},
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """The most that each of a row's fields may be."""

    fields: tuple[str, ...]
    most: float
    words: str

    def on(self, row: Row) -> Row:
        met = all(row[field] <= self.most for field in self.fields)
        return row | {"target": self.words, "met": met}


RATIOS = ("times_wall", "times_cpu")
RAW_AND_A_QUARTER = Target(RATIOS, 1.25, "1.25 × raw")
PAIRS_AND_A_HALF = Target(RATIOS, 1.5, "1.5 × per (user, group)")
TWICE_THE_JOIN = Target(RATIOS, 2, "2 × raw join")
FIVE_PARTITIONS = Target(RATIOS, 5, "5 × partition")
THREE_IMPORTS = Target(RATIOS, 3, "3 × import duckdb, pyarrow")
TWO_IMPORTS = Target(RATIOS, 2, "2 × import typer")
FIXED = Target(("cpu_ms",), 15, "15 ms")
FOUND = Target(("cpu_ms",), 3, "3 ms")
FOUR_GIB = Target(("peak_gib",), LARGE_GIB, "4 GiB")


def measure(
    rows: int = ROWS, *, repeats: int = 3, starts: int = 5, cache: Path = CACHE
) -> dict[str, list[Row]]:
    """Questions to one table, and processes from start to first answer."""
    data = table(rows, cache=cache)
    return {
        "questions": questions(data, repeats=repeats),
        "joins": joins(data, repeats=repeats),
        "fixed": fixed(cache=cache),
        "starts": processes(repeats=starts),
    }


def questions(data: Path, *, repeats: int) -> list[Row]:
    """Each question after its plain counterpart, all in turns."""
    plain = duckdb.connect()
    plain.execute(f"CREATE VIEW ten AS SELECT * FROM read_parquet('{data}')")
    gates = {name: gate(data, name) for name in CAPS}
    values = plain.sql("SELECT y FROM ten").to_arrow_table().column("y").to_numpy()
    ranks = [int(level * (values.size - 1)) for level in LEVELS]
    few, many, exact = (BY_GROUP.format(column=name) for name in "xyd")

    def ask(name: str, sql: str) -> "Callable[[], Any]":
        return partial(gates[name].sql, sql, epsilon=100, fresh=True)

    def raw(sql: str) -> "Callable[[], Any]":
        return lambda: plain.sql(sql).to_arrow_table()

    ways: list[tuple[str, Callable[[], Any], Target | None]] = [
        ("COUNT and SUM of prices per group: plain DuckDB", raw(few), None),
        ("noisegate, every row one person", ask("rows", few), RAW_AND_A_QUARTER),
        ("COUNT and SUM of measurements per group: plain DuckDB", raw(many), None),
        ("noisegate, every row one person", ask("rows", many), RAW_AND_A_QUARTER),
        ("COUNT and SUM of decimals per group: plain DuckDB", raw(exact), None),
        ("noisegate, every row one person", ask("rows", exact), RAW_AND_A_QUARTER),
        ("COUNT and SUM per (user, group): plain DuckDB", raw(BY_USER), None),
        *(
            (f"noisegate, per group, {name}", ask(name, few), PAIRS_AND_A_HALF)
            for name in list(CAPS)[1:]
        ),
        ("quartiles: numpy.partition", lambda: np.partition(values, ranks), None),
        ("noisegate, quartiles", ask("rows", QUARTILES), FIVE_PARTITIONS),
    ]
    timings = side_by_side([call for _, call, _ in ways], repeats=repeats)
    found = list(_beside(ways, timings))
    found[-1]["rank_error"] = rank_error(values, ask("rows", QUARTILES)().rows[0])
    return found


def joins(data: Path, *, repeats: int) -> list[Row]:
    """Along a foreign key: the rows know a user, another table knows the household."""
    rows = f"SELECT * FROM read_parquet('{data}')"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "homes.toml").write_text(HOMES.format(data=data, groups=list(range(GROUPS))))
        with duckdb.connect() as plain:
            homes = f'SELECT DISTINCT "user", "user" // 3 AS home, "user" % 5 AS kind FROM ({rows})'
            plain.execute(f"COPY ({homes}) TO '{folder}/homes.parquet'")
            plain.execute(f"CREATE VIEW ten AS {rows}")
            plain.execute(f"CREATE VIEW homes AS FROM read_parquet('{folder}/homes.parquet')")
            gate = open_gate(folder / "homes.toml", ledger=":memory:")
            ways: list[tuple[str, Callable[[], Any], Target | None]] = []
            for what, sql, raw in JOINS:
                ways += [
                    (f"{what}: plain DuckDB", partial(_fetched, plain, raw or sql), None),
                    ("noisegate", partial(gate.sql, sql, epsilon=1, fresh=True), TWICE_THE_JOIN),
                ]
            timings = side_by_side([call for _, call, _ in ways], repeats=repeats)
        return list(_beside(ways, timings))


def _fetched(plain: "duckdb.DuckDBPyConnection", sql: str) -> Any:
    return plain.sql(sql).to_arrow_table()


def fixed(*, repeats: int = 20, cache: Path = CACHE) -> list[Row]:
    """What a question to 1,000 rows takes, new and asked again: all of it is overhead."""
    sql = "SELECT g, COUNT(*) AS n FROM ten WHERE x > {} GROUP BY g"
    with tempfile.TemporaryDirectory() as folder:
        small = gate(table(1000, cache=cache), "10 rows per user", ledger=f"{folder}/ledger")
        small.sql(sql.format(0), epsilon=1)
        new = [once(partial(small.sql, sql.format(n + 1), epsilon=1)) for n in range(repeats)]
        known = [once(partial(small.sql, sql.format(1), epsilon=1)) for _ in range(repeats)]
    return [
        target.on({"way": way, "wall_ms": time.wall_ms, "cpu_ms": time.cpu_ms})
        for way, time, target in (
            ("a new question to 1,000 rows", Timing.of(new), FIXED),
            ("the same again", Timing.of(known), FOUND),
        )
    ]


def _beside(
    ways: "list[tuple[str, Callable[[], Any], Target | None]]", timings: list[Timing]
) -> "Iterator[Row]":
    """Each timing beside the last plain one before it."""
    base = timings[0]
    for (way, _, target), timing in zip(ways, timings, strict=True):
        row: Row = {"way": way, "wall_ms": timing.wall_ms, "cpu_ms": timing.cpu_ms}
        if target is None:
            base = timing
            yield row
        else:
            ratios = {
                "times_wall": timing.wall_ms / base.wall_ms,
                "times_cpu": timing.cpu_ms / base.cpu_ms,
            }
            yield target.on(row | ratios)


def rank_error(
    values: "np.ndarray[Any, np.dtype[np.float64]]", answers: "tuple[Any, ...]"
) -> float:
    """The largest distance between a level and the ranks of its answer, as a share of all."""
    errors = []
    for level, answer in zip(LEVELS, answers, strict=True):
        below, upto = (values < answer).mean(), (values <= answer).mean()
        errors.append(max(0.0, below - level, level - upto))
    return max(errors)


def processes(*, repeats: int) -> list[Row]:
    """From the start of a process to its exit, with a ledger of its own each time."""
    command = str(Path(sys.executable).with_name("noisegate"))
    people = str(ROOT / "examples" / "people.csv")
    sql = "SELECT COUNT(*) AS n FROM people"
    helps, asks, engines, typers = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats):
            ledger = str(Path(folder) / f"{number}.ledger")
            paid = ["--epsilon", "0.5", "--budget", "1", "--ledger", ledger, "--json"]
            engines.append(_process([sys.executable, "-c", "import duckdb, pyarrow"]))
            typers.append(_process([sys.executable, "-c", "import typer"]))
            helps.append(_process([command, "--help"]))
            asks.append(_process([command, "ask", people, sql, *paid]))
    pairs = (
        ("noisegate ask, from start to first answer", asks, engines, THREE_IMPORTS),
        ("noisegate --help", helps, typers, TWO_IMPORTS),
    )
    return [
        row
        for way, ours, imports, target in pairs
        for row in _beside(
            [("the imports", int, None), (way, int, target)],
            [Timing.of(imports), Timing.of(ours)],
        )
        if "target" in row
    ]


def _process(command: list[str]) -> Timing:
    used, start = _children_s(), perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return Timing((perf_counter() - start) * 1e3, (_children_s() - used) * 1e3)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def large(rows: int = LARGE, *, cache: Path = CACHE) -> list[Row]:
    """Peak memory of one question to many rows, each in a process of its own."""
    data = table(rows, cache=cache)
    found = []
    for name in ("plain", *CAPS):
        command = [sys.executable, __file__, "--peak", str(data), "--caps", name]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row: Row = {"way": f"{rows:,} rows, {name}", **json.loads(said)}
        found.append(row if name == "plain" else FOUR_GIB.on(row))
    return found


def peak(data: Path, name: str) -> Row:
    """One question in this process, and the most memory that it held at once."""
    sql = BY_GROUP.format(column="x")
    start = perf_counter()
    if name == "plain":
        with duckdb.connect() as plain:
            plain.sql(sql.replace("ten", f"read_parquet('{data}')")).to_arrow_table()
    else:
        gate(data, name).sql(sql, epsilon=1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "wall_ms": (perf_counter() - start) * 1e3,
        "cpu_ms": (used.ru_utime + used.ru_stime) * 1e3,
        "peak_gib": peak_gib(),
    }


def gate(data: Path, caps: str, *, ledger: str = ":memory:") -> "Gate":
    """A gate in front of the table."""
    values = {"between": [0, HIGH]}
    columns = {"g": {"in": list(range(GROUPS))}, "x": values, "y": values, "d": values}
    with catch_warnings():
        simplefilter("ignore", UnitWarning)  # "rows": every row is a unit, to compare with
        return open_gate(
            data, epsilon=EPSILON_MAX, columns=columns, table="ten", ledger=ledger, **CAPS[caps]
        )


def table(rows: int, *, cache: Path = CACHE) -> Path:
    """Rows of users with a heavy tail: a group, a price, a measurement, an exact price."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    path = cache / f"rows-{rows}-xyd.parquet"
    if path.exists():
        return path
    cache.mkdir(exist_ok=True)
    random = np.random.default_rng(0)
    users = max(1, rows // ROWS_PER_USER)
    shares = np.cumsum(random.pareto(1.2, users) + 0.2)
    shares /= shares[-1]
    partial_path, wide = path.with_suffix(".part"), pa.decimal128(21, 2)
    writer = None
    for start in range(0, rows, CHUNK):
        size = min(CHUNK, rows - start)
        chunk = pa.table({
            "user": np.minimum(shares.searchsorted(random.random(size)), users - 1),
            "g": random.integers(0, GROUPS, size, dtype=np.int32),
            "x": np.round(random.gamma(2, 20, size), 2),
            "y": random.gamma(2, 20, size),
            "d": pa.array(random.integers(0, HIGH, size)).cast(wide).cast(pa.decimal128(18, 2)),
        })  # fmt: skip
        writer = writer or pq.ParquetWriter(partial_path, chunk.schema)
        writer.write_table(chunk)
    if writer is not None:
        writer.close()
    partial_path.rename(path)
    return path


def main() -> None:
    """The same figures without the rest of the bench, one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="memory of 100 million rows instead")
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--caps", default="plain", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(json.dumps(peak(options.peak, options.caps)))
        return
    if options.large:
        found = large()
    else:
        sections = measure(options.rows, repeats=options.repeats)
        found = [row for rows in sections.values() for row in rows]
    for row in found:
        print("  ".join(f"{name} {_shown(value)}" for name, value in row.items()))


def _shown(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
