"""A clinic on Postgres and in files: units with many rows, foreign keys, NULLs, a public table."""

from datetime import date, datetime, timedelta
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

WARDS = ["north", "south", "west"]
POLICY = """
name = "clinic"
source = "{source}"
[budget]
epsilon = 1000000
delta = 0.01
accountant = "{accountant}"
[analysts]
ann = 900000
bob = 10
[tables.people]
unit = {{ column = "pid", ids = "patient" }}
[tables.people.columns]
ward = {{ in = ["north", "south", "west"] }}
age = {{ between = [0, 120] }}
born = {{ between = [1900-01-01, 2020-12-31] }}
city = {{}}
[tables.visits]
unit = {{ column = "pid", ids = "patient" }}
rows_per_unit = 4
groups_per_unit = 3
[tables.visits.columns]
vid = {{}}
cost = {{ between = [-100, 900] }}
code = {{ references = "drugs.code" }}
seen = {{}}
[tables.taken]
unit = {{ column = "pid", via = ["vid -> visits.vid"] }}
rows_per_unit = 6
[tables.taken.columns]
dose = {{ between = [0, 10] }}
[tables.drugs]
public = true
key = ["code"]
"""


def frames(seed=0, people=60):
    """Rows of everybody: some have many visits, some none; NULLs everywhere."""
    random = Random(seed)
    pids = list(range(1, people + 1))
    age = [random.choice([None, 0, 500, -3, 40, 41, random.randint(0, 120)]) for _ in pids]
    visits = [
        (vid, random.choice([1, 1, 1, *pids, None]),
         random.choice([None, float("nan"), float("inf"), -0.0, 1e308, 12.25, 7.5, 300.0]),
         random.choice(["a", "b", "é", "", "zzz", None]),
         random.choice([None, datetime(2020, 1, 1) + timedelta(hours=random.randint(0, 9000))]))  # noqa: DTZ001
        for vid in range(people * 4)
    ]  # fmt: skip
    taken = [
        (random.choice([vid, vid, None]), random.choice([None, 0.5, 11.0, 2.25]))
        for vid in range(people * 4)
        for _ in range(random.choice([0, 1, 3]))
    ]
    vid, who, cost, code, seen = zip(*visits, strict=True)
    return {
        "people": pa.table({
            "pid": pa.array(pids, pa.int64()),
            "ward": pa.array([random.choice([*WARDS, "east", None]) for _ in pids], pa.string()),
            "age": pa.array(age, pa.int64()),
            "born": pa.array([random.choice([None, date(1, 1, 1), date(1950, 2, 3)])
                              for _ in pids], pa.date32()),
            "city": pa.array([random.choice(["Ulm", "Köln", "ulm", None]) for _ in pids],
                             pa.string()),
        }),
        "visits": pa.table({
            "vid": pa.array(vid, pa.int64()), "pid": pa.array(who, pa.int64()),
            "cost": pa.array(cost, pa.float64()), "code": pa.array(code, pa.string()),
            "seen": pa.array(seen, pa.timestamp("us")),
        }),
        "taken": pa.table({
            "vid": pa.array([v for v, _ in taken], pa.int64()),
            "dose": pa.array([d for _, d in taken], pa.float64()),
        }),
        "drugs": pa.table({
            "code": pa.array(["a", "b", "é", ""], pa.string()),
            "price": pa.array([1, 2, 3, None], pa.int64()),
        }),
    }  # fmt: skip


def in_files(folder, rows, accountant="pure"):
    """The policy of the same rows as files."""
    folder.mkdir(exist_ok=True)
    for name, frame in rows.items():
        pq.write_table(frame, folder / f"{name}.parquet")
    return written(folder, ".", accountant)


def on_server(folder, database, rows, accountant="pure"):
    """The policy of the same rows on the server."""
    folder.mkdir(exist_ok=True)
    database.hold(rows, unique=[("drugs", ["code"])])
    return written(folder, database.url, accountant, schema=database.schema)


def written(folder, source, accountant, schema=None):
    text = POLICY.format(source=source, accountant=accountant)
    if schema is not None:
        for name in ("people", "visits", "taken", "drugs"):
            text = text.replace(
                f"[tables.{name}]", f'[tables.{name}]\nsource = "{source}#{schema}.{name}"'
            )
    file = folder / "clinic.toml"
    file.write_text(text)
    return file
