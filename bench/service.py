"""The service under load: 200 analysts against one budget, over HTTP on this machine.

    python bench/service.py [--seconds 300] [--analysts 200] [--rows 1000000]

Each analyst asks every ten seconds; half of the questions are new. Then all ask at once, and then
one question is asked again as fast as it goes. Clients are on the same cores. In the end what was
charged is compared with what was answered: each new question once, and nothing else. All of it once
for a table of persons with several rows each, and once for one whose every row is a person.

What the service's own process worked for an answer (CPU ms) says more than times do on a machine
that has other work: half of the everyday questions are new, all at once all are, and of those
answered before none is.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from keep import Run, Shown, every
from noisegate.ledger.open import open_ledger
from noisegate.server.service import Service
from show import Column, console

SECONDS, ENOUGH_S = 300, 60
EPSILON = Fraction(1, 1000)
PERIOD = 10.0
FAST = 64  # connections that ask the same again
COLUMNS: tuple[Column, ...] = (
    ("load", "load", ""),
    ("answers", "answers", ",d"),
    ("refused", "refused", ",d"),
    ("a second", "rate", ",.0f"),
    ("p50 ms", "p50", ",.0f"),
    ("CPU ms", "cpu", ",.1f"),
    ("p99 ms", "p99", ",.0f"),
    ("longest ms", "longest", ",.0f"),
    ("target", "target", ""),
    ("met", "met", "met"),
)
COUNTS = "SELECT ward, COUNT(*) AS n FROM visits WHERE age <> {} AND cost > {} GROUP BY ward"
POLICY = """
name = "visits"
[budget]
epsilon = 10000
[tables.visits]
source = "visits.parquet"
{unit}
[tables.visits.columns]
user_id = {{ type = "integer" }}
ward = {{ in = ["north", "south", "east", "west"] }}
age = {{ type = "integer", between = [0, 100] }}
cost = {{ type = "number", between = [0, 2000] }}
[analysts]
{analysts}
"""
UNITS = {  # whose rows they are
    "persons with 5 rows": 'unit = "user_id"\nrows_per_unit = 20',
    "rows are persons": "every_row_is_one_person = true",
}


@dataclass
class Seen:
    """What clients saw, and what the service's process worked meanwhile."""

    process: int
    times: list[float] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        self._start, self._worked = time.monotonic(), worked(self.process)

    def row(self, load: str, target: str, limit: float | None) -> dict[str, object]:
        times = np.array(self.times or [np.nan]) * 1000
        p99 = float(np.percentile(times, 99))
        cpu = (worked(self.process) - self._worked) * 1000 / max(1, len(self.times))
        return {
            "load": load, "answers": len(self.times), "refused": self.refused, "cpu": cpu,
            "rate": len(self.times) / (time.monotonic() - self._start),
            "p50": float(np.median(times)), "p99": p99, "longest": float(times.max()),
            "target": target, "met": None if limit is None else p99 <= limit,
        }  # fmt: skip


def worked(process: int) -> float:
    """The seconds that all threads of a process have worked."""
    told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


class Client:
    """One analyst on one connection."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._place, self._token = (parts.hostname, parts.port), token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, sql: str) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        body = json.dumps({"kind": "sql", "sql": sql, "epsilon": str(EPSILON)}).encode()
        head = (
            f"POST /datasets/visits/orders HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            f"{self._token}\r\nContent-Type: application/json\r\nPrefer: wait=60\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()
        said = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", said, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        return int(said[9:12])

    async def timed(self, sql: str, seen: Seen) -> None:
        start = time.perf_counter()
        try:
            status = await self.ask(sql)
        except (asyncio.IncompleteReadError, ConnectionError):  # closed while it was idle
            self._streams = None
            status = await self.ask(sql)
        if status == 200:
            seen.times.append(time.perf_counter() - start)
        else:
            seen.refused += 1


@contextmanager
def served(
    folder: Path, unit: str, analysts: int, rows: int
) -> Iterator[tuple[str, int, list[str]]]:
    """A service, its process, and a token for each analyst."""
    random = np.random.default_rng(1)
    table = {
        "user_id": random.integers(0, max(1, rows // 5), rows),
        "ward": np.array(["north", "south", "east", "west"])[random.integers(0, 4, rows)],
        "age": random.integers(0, 100, rows),
        "cost": np.round(random.gamma(2, 100, rows), 2),
    }
    pq.write_table(pa.table(table), folder / "visits.parquet")
    names = [f"a{place:03}" for place in range(analysts)]
    shares = "\n".join(f"{name} = 100" for name in names)
    policy = folder / "visits.toml"
    policy.write_text(POLICY.format(analysts=shares, unit=unit))
    made = Service([policy])
    for name in names:
        made.people.add(name, "analyst")
    tokens = [made.people.new_token(name) for name in names]
    made.close()
    command = [Path(sys.executable).parent / "noisegate", "serve", policy, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            said = next(line for line in process.stdout or () if "http" in line)
            found = re.search(r"https?://[\w.:]+", said)
            assert found, said
            yield found[0], process.pid, tokens
        finally:
            process.terminate()


async def everyday(clients: list[Client], seconds: float, seen: Seen) -> set[str]:
    """Every analyst every ten seconds; half of the questions are new."""
    new: set[str] = set()
    end = time.monotonic() + seconds

    async def one(place: int, client: Client) -> None:
        await asyncio.sleep(PERIOD * place / len(clients))
        number = 0
        while time.monotonic() < end:
            start = time.monotonic()
            fresh = (place + number) % 2 == 0
            sql = COUNTS.format(*((place, number) if fresh else (0, 0)))
            new.add(sql)
            await client.timed(sql, seen)
            number += 1
            await asyncio.sleep(max(0.0, PERIOD - (time.monotonic() - start)))

    await asyncio.gather(*(one(place, client) for place, client in enumerate(clients)))
    return new


async def burst(clients: list[Client], seen: Seen) -> set[str]:
    """All at once, each with a question of their own."""
    asked = {f"SELECT SUM(cost) AS s FROM visits WHERE age < {place % 100} AND cost < {200 + place}"
             for place in range(len(clients))}  # fmt: skip
    pairs = zip(clients, sorted(asked), strict=True)
    await asyncio.gather(*(client.timed(sql, seen) for client, sql in pairs))
    return asked


async def known(clients: list[Client], seconds: float, seen: Seen) -> None:
    """One question that was answered, again and again."""
    sql = COUNTS.format(0, 0)
    end = time.monotonic() + seconds

    async def one(client: Client) -> None:
        while time.monotonic() < end:
            await client.timed(sql, seen)

    await asyncio.gather(*(one(client) for client in clients[:FAST]))


async def run(
    url: str, process: int, tokens: list[str], seconds: float
) -> tuple[list[dict[str, object]], int]:
    clients, rows = [Client(url, token) for token in tokens], []
    await clients[0].ask("SELECT COUNT(*) AS n FROM visits")  # the first loads and reads
    await clients[0].ask(COUNTS.format(0, 0))  # two who ask it first at once would both pay
    seen = Seen(process)
    asked = {COUNTS.format(0, 0)} | await everyday(clients, seconds, seen)
    rows.append(seen.row(f"{len(clients)} analysts, one question in 10 s", "p99 ≤ 500 ms", 500))
    seen = Seen(process)
    asked |= await burst(clients, seen)
    rows.append(seen.row("all at once", "nobody refused", None))
    rows[-1]["met"] = seen.refused == 0
    seen = Seen(process)
    await known(clients, 30, seen)
    rows.append(seen.row("answered before", "500 a second", None))
    rows[-1]["met"] = rows[-1]["rate"] >= 500
    return rows, len(asked) + 1


def tables(said: argparse.Namespace) -> Iterator[Shown]:
    """What clients saw, and whether each new question was charged once, for both kinds of units."""
    for kind, unit in UNITS.items():
        with tempfile.TemporaryDirectory(prefix="noisegate-") as name:
            folder = Path(name)
            with served(folder, unit, said.analysts, said.rows) as (url, process, tokens):
                rows, asked = asyncio.run(run(url, process, tokens, said.seconds))
            with open_ledger(str(folder / "visits.toml.ledger")) as ledger:
                spent = ledger.balance("visits").spent.epsilon
        charged = {
            "load": f"charged ε = {float(spent):g} for {asked} different questions",
            "target": f"{float(EPSILON):g} each, once",
            "met": spent == asked * EPSILON,
        }
        yield Shown(f"The service: {kind}", COLUMNS, [*rows, charged])


def main() -> None:
    """Both kinds, shown as soon as they are known, and kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--analysts", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000_000)
    said = parser.parse_args()
    words = f"{said.analysts} analysts for {said.seconds:g} s, {said.rows:,} rows"
    asked = f" --seconds {said.seconds:g}" * (said.seconds != SECONDS)
    few = said.seconds < ENOUGH_S
    work = Run("service", f"python bench/service.py{asked}", words, quick=few)
    every([(work, partial(tables, said))], console(150), resume=False)


if __name__ == "__main__":
    main()
