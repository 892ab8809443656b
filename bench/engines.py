"""The same questions on every engine, each beside the plain query of the same meaning.

    python bench/engines.py [--rows 10000000] [--engines duckdb,postgres,datafusion,sail,spark]
    python bench/run.py --only engines --only sizes     the same, kept for the page of benchmarks

Each engine has a process of its own, whose peak memory is told: that of the plain queries, too,
which have no limit (`query.py` measures questions alone). Servers have others. Spark itself is
installed by `make .spark/.installed`. What a question at the level of users must do in any case is
the plain aggregation per (user, group), with its bound: that is what it stands beside.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import duckdb

import query
from clock import Timing, once, peak_gib
from noisegate.root import open as open_gate
from query import CACHE, GROUPS, HIGH, Target
from show import Column, Row, console, machine, show

ROOT = Path(__file__).parents[1]
ROWS = 10_000_000
ENGINES = ("duckdb", "postgres", "datafusion", "sail", "spark")
INSIDE = ("duckdb", "datafusion")  # these work in this process
RAW_AND_THREE_TENTHS = Target(("times_wall",), 1.3, "1.3 × raw")
SIZES = (10_000_000, 50_000_000, 100_000_000)
COLUMNS: tuple[Column, ...] = (
    ("engine", "engine", ""),
    ("rows", "rows", ",d"),
    ("question", "way", ""),
    ("raw s", "raw_s", ",.2f"),
    ("noisegate s", "wall_s", ",.2f"),
    ("× raw", "times_wall", ",.2f"),
    ("raw CPU s", "raw_cpu_s", ",.2f"),
    ("noisegate CPU s", "cpu_s", ",.2f"),
    ("× raw CPU", "times_cpu", ",.2f"),
    ("s per billion rows", "billion_s", ",.0f"),
    ("driver GiB", "peak_gib", ",.2f"),
    ("target", "target", ""),
    ("met", "met", "met"),
    ("why not", "failed", ""),
)
POLICY = """
name = "{name}"
[budget]
epsilon = 1000000
[tables.ten]
source = "{ten}"
{unit}
[tables.ten.columns]
user = {{ type = "integer" }}
g = {{ in = {groups} }}
x = {{ type = "number", between = [0, {high}] }}
y = {{ type = "number", between = [0, {high}] }}
"""
HOMES = """
[tables.homes]
source = "{homes}"
unit = "home"
rows_per_unit = 30
[tables.homes.columns]
user = {{ type = "integer" }}
kind = {{ in = [0, 1, 2, 3, 4] }}
"""
UNITS = {
    "rows": "every_row_is_one_person = true",
    "users": 'unit = "user"\nrows_per_unit = 10',
    "homes": 'unit = { column = "home", via = ["user -> homes.user"] }\nrows_per_unit = 30',
}
BY_GROUP = "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM ten GROUP BY g"
BOUNDED = """SELECT {key}, SUM(LEAST(n, {cap})) AS n, SUM(s) AS s FROM
    (SELECT {unit}, {key}, COUNT(*) AS n, SUM(x) AS s FROM {of} GROUP BY {unit}, {key}) AS parts
    GROUP BY {key}"""
MEDIANS = {
    "duckdb": "SELECT quantile_disc(y, 0.5) AS m FROM ten",
    "postgres": "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY y) AS m FROM ten",
    "datafusion": "SELECT median(y) AS m FROM ten",
    "sail": "SELECT median(y) AS m FROM ten",
    "spark": "SELECT percentile(y, 0.5) AS m FROM ten",
}
QUESTIONS: dict[str, tuple[str, str, str]] = {  # what, of which policy, the question, the plain one
    "COUNT and SUM per group": ("rows", BY_GROUP, BY_GROUP),
    "the same, 10 rows per user": (
        "users",
        BY_GROUP,
        BOUNDED.format(key="g", cap=10, unit='"user"', of="ten"),
    ),
    "along a foreign key, 30 rows per household": (
        "homes",
        """SELECT kind, COUNT(*) AS n, SUM(x) AS s
        FROM ten JOIN homes ON ten."user" = homes."user" GROUP BY kind""",
        BOUNDED.format(
            key="kind", cap=30, unit="home", of='ten JOIN homes ON ten."user" = homes."user"'
        ),
    ),
    "median": ("rows", "SELECT MEDIAN(y) AS m FROM ten", ""),
}


def measure(rows: int = ROWS, *, engines: tuple[str, ...] = ENGINES, repeats: int = 2) -> list[Row]:
    """A row for each engine and question; an engine that cannot be asked has one saying why."""
    folder = tables(rows)
    found: list[Row] = []
    for engine in engines:
        command = [sys.executable, __file__, "--one", engine, "--folder", str(folder)]
        command += ["--repeats", str(repeats)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            found.append({"engine": engine, "way": "all", "failed": "see what it said above"})
            continue
        found += [row | {"rows": rows} for row in json.loads(done.stdout.splitlines()[-1])]
    return found


def sizes(rows: tuple[int, ...] = SIZES) -> list[Row]:
    """DuckDB alone, by rows: once after one to warm up, and what a billion would take."""
    return [
        row | {"billion_s": row["wall_s"] * 1e9 / each}
        for each in rows
        for row in measure(each, engines=("duckdb",), repeats=1)
        if "wall_s" in row
    ]


def tables(rows: int, cache: Path = CACHE) -> Path:
    """Folders of Parquet files: rows of users with a heavy tail, and the households of users."""
    folder = cache / f"engines-{rows}"
    if not (folder / "homes").exists():
        (folder / "ten").mkdir(parents=True, exist_ok=True)
        data = query.table(rows, cache=cache)
        (folder / "ten" / "part-0.parquet").unlink(missing_ok=True)
        (folder / "ten" / "part-0.parquet").hardlink_to(data)
        with duckdb.connect() as plain:
            homes = '"user", "user" // 3 AS home, "user" % 5 AS kind'
            homes = f"SELECT DISTINCT {homes} FROM read_parquet('{data}')"
            (folder / "new").mkdir(exist_ok=True)
            plain.execute(f"COPY ({homes}) TO '{folder}/new/part-0.parquet'")
        (folder / "new").rename(folder / "homes")
    return folder


def ask_all(engine: str, folder: Path, *, repeats: int) -> list[Row]:
    """Each question after its plain counterpart, in turns; one warm-up of both."""
    found: list[Row] = []
    with ExitStack() as stack:
        raw, sources = stack.enter_context(STARTS[engine](folder))
        gates = {name: gate(Path(stack.enter_context(_folder())), name, sources) for name in UNITS}
        for way, (policy, question, plain) in QUESTIONS.items():
            asked = partial(gates[policy].sql, question, epsilon=100, fresh=True)
            said = plain or MEDIANS[engine]
            calls: list[Callable[[], Any]] = [partial(raw, said), asked]
            for call in calls:
                call()
            rounds = [[once(call) for call in calls] for _ in range(repeats)]
            one, other = (Timing.of(list(runs)) for runs in zip(*rounds, strict=True))
            row = {"engine": engine, "way": way, "raw_s": one.wall_ms / 1e3,
                   "wall_s": other.wall_ms / 1e3, "times_wall": other.wall_ms / one.wall_ms,
                   "peak_gib": peak_gib()}  # fmt: skip
            if engine in INSIDE:  # CPU time is of this process
                row |= {"raw_cpu_s": one.cpu_ms / 1e3, "cpu_s": other.cpu_ms / 1e3,
                        "times_cpu": other.cpu_ms / one.cpu_ms}  # fmt: skip
            found.append(RAW_AND_THREE_TENTHS.on(row))
            shown = f"{row['raw_s']:.2f} s raw, {row['wall_s']:.2f} s noisegate"
            print(f"{engine}, {way}: {shown}", file=sys.stderr, flush=True)
    return found


def gate(folder: Path, name: str, sources: dict[str, str]) -> Any:
    """A gate in front of the tables, every row or every user or every household a unit."""
    text = POLICY.format(name=name, ten=sources["ten"], unit=UNITS[name], high=HIGH,
                         groups=list(range(GROUPS)))  # fmt: skip
    if name == "homes":
        text += HOMES.format(homes=sources["homes"])
    (folder / "ten.toml").write_text(text)
    return open_gate(folder / "ten.toml", ledger=":memory:")


@contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        yield name


Started = tuple[Callable[[str], Any], dict[str, str]]


@contextmanager
def _duckdb(folder: Path) -> Iterator[Started]:
    with duckdb.connect() as plain:
        for name in ("ten", "homes"):
            rows = f"read_parquet('{folder}/{name}/*.parquet')"
            plain.execute(f"CREATE VIEW {name} AS SELECT * FROM {rows}")
        files = {name: f"{folder}/{name}/part-0.parquet" for name in ("ten", "homes")}
        yield lambda sql: plain.sql(sql).to_arrow_table(), files


@contextmanager
def _datafusion(folder: Path) -> Iterator[Started]:
    import datafusion  # noqa: PLC0415

    plain = datafusion.SessionContext()
    for name in ("ten", "homes"):
        plain.register_parquet(name, str(folder / name))
    places = {name: f"datafusion://{folder}/{name}" for name in ("ten", "homes")}
    yield lambda sql: plain.sql(sql).to_arrow_table(), places


@contextmanager
def _postgres(folder: Path) -> Iterator[Started]:
    import psycopg  # noqa: PLC0415

    sys.path.append(str(ROOT / "tests"))
    from servers import Server  # type: ignore[import-not-found]  # noqa: PLC0415

    server = Server()
    try:
        with psycopg.connect(server.uri, autocommit=True) as owner:
            _filled(owner, folder)
            owner.execute("CREATE ROLE reader LOGIN")
            owner.execute("GRANT SELECT ON ten, homes TO reader")
            url = server.uri.replace("postgres:@", "reader@")
            places = {name: f"{url}#public.{name}" for name in ("ten", "homes")}
            yield lambda sql: owner.execute(sql).fetchall(), places
    finally:
        server.stop()


def _filled(owner: Any, folder: Path) -> None:
    """The tables, with the same rows and no index."""
    columns = {
        "ten": '"user" bigint, g integer, x double precision, y double precision',
        "homes": '"user" bigint, home bigint, kind bigint',
    }
    for name, types in columns.items():
        owner.execute(f"CREATE UNLOGGED TABLE {name} ({types})")
        shown = ", ".join(each.split()[0] for each in types.split(", "))
        with tempfile.TemporaryDirectory() as place, duckdb.connect() as plain:
            file = Path(place, "rows.csv")
            rows = f"SELECT {shown} FROM read_parquet('{folder}/{name}/*.parquet')"
            plain.execute(f"COPY ({rows}) TO '{file}' (HEADER false)")
            with (
                file.open("rb") as parts,
                owner.cursor().copy(f"COPY {name} FROM STDIN (FORMAT csv)") as copy,
            ):
                while part := parts.read(1 << 20):
                    copy.write(part)
        owner.execute(f"VACUUM ANALYZE {name}")


@contextmanager
def connected(
    folder: Path, url: str, names: tuple[str, ...] = ("ten", "homes")
) -> Iterator[Started]:
    """A session of a Spark Connect server, and the addresses of its tables."""
    from noisegate.sources.spark.server import Place, connect  # noqa: PLC0415

    session = connect(Place(url, str(folder)))
    for name in names:
        session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    places = {name: f"{url}#{folder}/{name}" for name in names}
    yield lambda sql: session.sql(sql.replace('"', "`")).toArrow(), places


SAIL = """
import sys
from pysail.spark import SparkConnectServer
SparkConnectServer(port=int(sys.argv[1])).start(background=False)
"""


@contextmanager
def _sail(folder: Path) -> Iterator[Started]:
    jvm = _jvm()
    port = jvm.free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", SAIL, str(port)], env=os.environ | {"RUST_LOG": "off"}
    )
    try:
        time.sleep(3)
        with connected(folder, f"sc://localhost:{port}") as found:
            yield found
    finally:
        server.kill()
        server.wait()


@contextmanager
def _spark(folder: Path) -> Iterator[Started]:
    with spark_server() as url, connected(folder, url) as found:
        yield found


@contextmanager
def spark_server() -> Iterator[str]:
    """With the compilers of a server that stays, and memory of 3 GB."""
    jvm = _jvm()
    if (why := jvm.missing()) is not None:
        raise SystemExit(why)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        server = jvm.Server(Path(name), memory="3g", quick=False)
        try:
            yield server.url
        finally:
            server.close()
            time.sleep(1)


def _jvm() -> Any:
    sys.path.append(str(ROOT / "tests" / "engines"))
    import jvm  # type: ignore[import-not-found]  # noqa: PLC0415

    return jvm


STARTS = {"duckdb": _duckdb, "postgres": _postgres, "datafusion": _datafusion, "sail": _sail,
          "spark": _spark}  # fmt: skip


def main() -> None:
    """All engines, a table of their own each; or one, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, ROWS])
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--one", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with catch_warnings():
            simplefilter("ignore")
            found = ask_all(options.one, options.folder, repeats=options.repeats)
        print(json.dumps(found))
        return
    to = console(width=140)
    to.print(f"[bold]{machine()}")
    for rows in options.rows:
        found = measure(rows, engines=tuple(options.engines.split(",")), repeats=options.repeats)
        show(to, f"Engines: {rows:,} rows, {GROUPS:,} groups", COLUMNS, found)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
