"""Three data sets and the questions about them: a shop, the logs of a web site, a clinic.

Made by arithmetic with a fixed seed. All have missing values, ties, duplicates, decimals, units
with many rows and units with none, and keys that nobody declared; `STRAYS` are values outside a
declared list.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

HERE = Path(__file__).parent
WORLDS = ("shop", "logs", "clinic")
_HEAD = re.compile(r"-- (answered|refused|not offered)(?:, within (\d+) %)?(?:: (.*))?")
STRAYS = frozenset({"Atlantis", "fax", "kiosk", "tele"})  # of regions, channels, devices, kinds


@dataclass(frozen=True)
class Asked:
    """A question, and what is said about it: ``means`` is what DuckDB is asked instead."""

    world: str
    place: int
    outcome: str
    within: float
    reason: str
    means: str
    sql: str

    def __str__(self):
        return f"{self.world}-{self.place}"


def questions(world):
    found = []
    for place, text in enumerate((HERE / f"{world}.sql").read_text().split("\n\n"), start=1):
        head, *lines = text.strip().splitlines()
        outcome, within, reason = _HEAD.fullmatch(head).groups()
        means = [line.removeprefix("-- means ") for line in lines if line.startswith("-- means ")]
        sql = "\n".join(line for line in lines if not line.startswith("-- means "))
        share = float(within) / 100 if within else 1e-3
        found.append(Asked(world, place, outcome, share, reason or "", " ".join(means) or sql, sql))
    return found


def database(world):
    """The tables of a world in a DuckDB of its own."""
    con = duckdb.connect()
    for name, frame, casts in _TABLES[world]():
        con.register("frame", pa.table(frame))
        con.execute(f"CREATE TABLE {name} AS SELECT * REPLACE ({casts}) FROM frame")
        con.unregister("frame")
    return con


def written(world, folder):
    """The same tables as files beside the world's policy: the policy's path, and the tables."""
    con = database(world)
    for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        con.execute(f"COPY {name} TO '{folder}/{name}.parquet'")
    policy = Path(folder) / f"{world}.toml"
    policy.write_text((HERE / f"{world}.toml").read_text())
    return policy, con


def _some(dice, values, size, missing=0.0):
    """Values by falling frequency, some of them missing."""
    odds = 1.0 / np.arange(1, len(values) + 1)
    drawn = dice.choice(np.array(values, dtype=object), size, p=odds / odds.sum())
    return np.where(dice.random(size) < missing, None, drawn)


def _days(dice, first, last, size):
    start, end = np.datetime64(first, "s"), np.datetime64(last, "s")
    return start + dice.integers(0, int((end - start).astype(int)), size).astype("timedelta64[s]")


def _owners(dice, ids, mean, none):
    """How many rows each unit has: a heavy tail, and some units without any."""
    sizes = np.minimum(np.ceil(dice.pareto(1.6, len(ids)) * mean), 40).astype(int)
    return np.repeat(ids, np.where(dice.random(len(ids)) < none, 0, sizes))


def _gaps(dice, values, missing):
    return pa.array(values, mask=dice.random(len(values)) < missing)


def _shop():
    dice = np.random.default_rng(18)
    ids = np.arange(1, 1501) * 7
    regions = ["North", "South", "East", "West"]
    born = dice.integers(1940, 2007, ids.size)
    yield "customers", {
        "customer_id": ids,
        "region": _some(dice, [*regions, "Atlantis"], ids.size),
        "segment": _some(dice, ["consumer", "corporate", "home office"], ids.size, 0.05),
        "birth_year": _gaps(dice, born, 0.04),
        "joined": _days(dice, "2021-01-01", "2023-12-31", ids.size).astype("M8[D]"),
        "city": _some(dice, [f"City {c}" for c in "ABCDEFGHIJKLMNOPQRST"], ids.size, 0.02),
        "newsletter": _gaps(dice, dice.random(ids.size) < 0.4, 0.1),
        "email": np.array([f"c{i}@mail.example" for i in ids], dtype=object),
    }, "joined::DATE AS joined"  # fmt: skip
    who = _owners(dice, ids, 2.2, 0.12)
    orders = np.arange(who.size) + 10_000
    total = np.minimum(np.round(dice.lognormal(4, 1, who.size), 2), 1990)
    yield "orders", {
        "order_id": orders,
        "customer_id": who,
        "placed": _days(dice, "2023-01-01", "2024-12-31", who.size),
        "status": _some(dice, ["paid", "shipped", "returned", "cancelled"], who.size),
        "channel": _some(dice, ["web", "app", "store", "fax"], who.size),
        "total": np.where(dice.random(who.size) < 0.2, 49.99, total),
        "coupon": _some(dice, ["SPRING10", "spring20", "WELCOME", "VIP"], who.size, 0.6),
    }, "total::DECIMAL(10, 2) AS total, placed::TIMESTAMP AS placed"  # fmt: skip
    of = np.repeat(orders, dice.integers(1, 5, orders.size))
    yield "lines", {
        "order_id": of,
        "product_id": dice.integers(1, 37, of.size),
        "quantity": dice.integers(1, 9, of.size),
        "price": np.round(dice.uniform(1, 120, of.size), 2),
        "discount": dice.choice([0.0, 0.0, 0.05, 0.1, 0.25], of.size),
    }, "price::DECIMAL(8, 2) AS price, discount::DECIMAL(3, 2) AS discount"  # fmt: skip
    products = np.arange(1, 41)
    kinds = ["books", "games", "garden", "kitchen", "music"]
    yield "products", {
        "product_id": products,
        "name": np.array([f"{kinds[i % 5][:-1]} {i}" for i in products], dtype=object),
        "category": np.array([kinds[i % 5] for i in products], dtype=object),
        "list_price": products * 3.25,
        "launched": np.datetime64("2020-01-01") + (products * 37).astype("timedelta64[D]"),
    }, "list_price::DECIMAL(8, 2) AS list_price, launched::DATE AS launched"  # fmt: skip
    yield "regions", {
        "region": regions,
        "country": ["Norland", "Sudland", "Sudland", "Norland"],
        "tier": [1, 1, 2, 2],
    }, "region AS region"  # fmt: skip


def _logs():
    dice = np.random.default_rng(81)
    ids = np.arange(1, 1201) * 3
    countries = ["US", "DE", "IN", "BR", "FR", "JP", "GB", "NG", "KE", "IS"]
    yield "users", {
        "user_id": ids,
        "signup": _days(dice, "2024-01-01", "2024-06-30", ids.size).astype("M8[D]"),
        "country": _some(dice, countries, ids.size, 0.03),
        "plan": _some(dice, ["free", "pro", "team"], ids.size),
        "referrer": _some(dice, ["google", "newsletter", "friend", "x.com/ads"], ids.size, 0.3),
    }, "signup::DATE AS signup"  # fmt: skip
    who = _owners(dice, ids, 2.0, 0.15)
    sessions = np.arange(who.size) + 500
    started = _days(dice, "2024-03-01", "2024-07-01", who.size)
    yield "sessions", {
        "session_id": sessions,
        "user_id": who,
        "started": _gaps(dice, started, 0.01),
        "device": _some(dice, ["desktop", "mobile", "tablet", "kiosk"], who.size),
        "browser": _some(dice, ["Chrome", "Firefox", "Safari", "Edge", "Lynx"], who.size, 0.02),
        "seconds": _gaps(dice, np.minimum(dice.exponential(400, who.size).astype(int), 3600), 0.05),
    }, "started::TIMESTAMP AS started"  # fmt: skip
    of = np.repeat(np.arange(who.size), dice.integers(1, 7, who.size))
    pages = ["/", "/pricing", "/docs", "/docs/sql", "/blog", "/signup", "/checkout", "/thanks"]
    url = _some(dice, pages, of.size)
    alone = dice.random(of.size) < 0.01  # links that one person alone has
    url = np.where(alone, [f"/share/{i}?token={i * 7919 % 9973}" for i in range(of.size)], url)
    yield "views", {
        "session_id": sessions[of],
        "ts": started[of] + dice.integers(0, 1800, of.size).astype("timedelta64[s]"),
        "url": url,
        "status": dice.choice([200, 200, 200, 200, 301, 404, 500], of.size),
        "ms": _gaps(dice, np.round(np.minimum(dice.lognormal(5, 1, of.size), 9000), 1), 0.02),
        "bytes": dice.integers(200, 2_000_000, of.size),
    }, "ts::TIMESTAMP AS ts"  # fmt: skip


def _clinic():
    dice = np.random.default_rng(1318)
    ids = np.arange(1, 1001) + 90_000
    yield "patients", {
        "patient_id": ids,
        "born": _gaps(dice, _days(dice, "1930-01-01", "2020-12-31", ids.size).astype("M8[D]"), 0.02),
        "sex": _some(dice, ["f", "m", "x"], ids.size),
        "town": _some(dice, ["Milltown", "Maybury", "Ashford", "Oxley", "Tarn"], ids.size, 0.04),
        "smoker": _gaps(dice, dice.random(ids.size) < 0.25, 0.15),
        "weight": _gaps(dice, np.round(dice.normal(74, 14, ids.size), 1).clip(3, 180), 0.08),
        "name": np.array([f"Patient {i}" for i in ids], dtype=object),
    }, "born::DATE AS born"  # fmt: skip
    who = _owners(dice, ids, 2.0, 0.1)
    visits = np.arange(who.size) * 2 + 1
    wards = ["cardiology", "surgery", "paediatrics", "oncology", "outpatients"]
    cost = np.where(dice.random(who.size) < 0.15, 120.0, dice.gamma(2, 90, who.size).round(2))
    yield "visits", {
        "visit_id": visits,
        "patient_id": who,
        "ward": _some(dice, wards, who.size),
        "day": _days(dice, "2024-01-01", "2025-12-31", who.size).astype("M8[D]"),
        "kind": _some(dice, ["planned", "urgent", "follow-up", "tele"], who.size),
        "nights": _gaps(dice, np.minimum(dice.geometric(0.4, who.size) - 1, 30), 0.1),
        "cost": np.minimum(cost, 795),
        "note": _some(dice, ["ok", "see GP", "Refer: cardio", "refer: onco", "no show"], who.size, 0.3),
    }, "day::DATE AS day, cost::DECIMAL(9, 2) AS cost"  # fmt: skip
    of = np.repeat(visits, dice.choice([0, 1, 1, 2, 3], visits.size))
    drugs = ["amoxicillin", "ibuprofen", "metformin", "warfarin", "insulin", "morphine"]
    yield "prescriptions", {
        "visit_id": of,
        "drug": _some(dice, drugs, of.size),
        "days": dice.integers(1, 29, of.size),
        "dose": dice.choice([2.5, 5.0, 10.0, 20.0], of.size),
    }, "dose::DECIMAL(5, 1) AS dose"  # fmt: skip
    yield "drugs", {
        "drug": [*drugs, "placebo"],
        "class": ["antibiotic", "painkiller", "diabetes", "heart", "diabetes", "painkiller", "none"],
        "price": [2.1, 0.4, 1.15, 3.3, 7.25, 5.0, 0.1],
    }, "price::DECIMAL(6, 2) AS price"  # fmt: skip
    yield "wards", {
        "ward": wards,
        "building": ["A", "A", "B", "B", "C"],
        "beds": [30, 24, 18, 20, 0],
    }, "ward AS ward"  # fmt: skip


_TABLES = {"shop": _shop, "logs": _logs, "clinic": _clinic}
