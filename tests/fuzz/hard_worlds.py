"""Hard tables to ask about: NULLs everywhere, a unit with many rows, rows behind a foreign key.

A world is a folder with a policy and Parquet files, and the same without one unit, for some units. In
a *loose* one nothing is cut: caps are above all rows, bounds hold all values. In a *tight* one
caps bind, values leave their bounds, rows have no owner, and numbers are NaN or infinite.
"""

import tempfile
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

import noisegate as ng
from noisegate.curator.curator import Curator
from noisegate.gate import Gate
from noisegate.ledger.open import open_ledger

PERSONS = 12
HEAVY, LIGHT = 3, 7  # units that neighbours lack
WARDS = ("north", "south", "east", "west")
POLICY = """
name = "hard"
snapshot = "2026-01"
protects = "patient"
budget = {{ epsilon = {budget}, delta = 0.01, accountant = "{accountant}" }}
questions = {{ keys_delta = 1e-6 }}
analysts = {{ ana = {budget}, ben = {budget} }}

[tables.patients]
unit = "patient_id"
rows_per_unit = {rows}
groups_per_unit = {groups}
rows_max = 1000
[tables.patients.columns]
patient_id = {{ type = "integer" }}
name = {{}}
secret = {{ hidden = true }}
birth_year = {{ type = "integer", between = [1920, 2026] }}
age = {{ type = "integer", between = [0, 120] }}
sex = {{ in = ["f", "m", "x"], nullable = true }}
region = {{ in = ["north", "south"], nullable = true }}
town = {{}}
weight = {{ type = "number", between = [0, 200] }}
income = {{ type = "number", between = [-1000, 1000] }}
born = {{ type = "date", between = [1920-01-01, 2026-12-31] }}
smoker = {{ type = "boolean" }}

[tables.visits]
unit = "patient_id"
rows_per_unit = {rows}
groups_per_unit = {groups}
rows_max = 1000
[tables.visits.columns]
visit_id = {{ type = "integer" }}
patient_id = {{ type = "integer" }}
ward = {{ in = ["north", "south", "east", "west"] }}
day = {{ type = "date", between = [2024-01-01, 2025-12-31] }}
cost = {{ type = "number", between = [0, 800] }}
code = {{}}
seen = {{ type = "timestamp" }}
"odd name" = {{ type = "integer", between = [-5, 5] }}
"select" = {{ type = "boolean" }}

[tables.prescriptions]
unit = {{ column = "patient_id", via = ["visit_id -> visits.visit_id"] }}
rows_per_unit = {rows}
groups_per_unit = {groups}
rows_max = 1000
[tables.prescriptions.columns]
visit_id = {{ type = "integer" }}
drug = {{ references = "drugs.drug" }}
days = {{ type = "integer", between = [1, 28], nullable = false }}
dose = {{ type = "number" }}

[tables.drugs]
public = true
key = ["drug"]

[tables.codes]
public = true
"""
ROWS_POLICY = """
name = "rows"
snapshot = "2026-01"
budget = {{ epsilon = {budget}, delta = 0.01, accountant = "{accountant}" }}
questions = {{ keys_delta = 1e-6 }}
analysts = {{ ana = {budget}, ben = {budget} }}

[tables.patients]
every_row_is_one_person = true
[tables.patients.columns]
name = {{}}
age = {{ type = "integer", between = [0, 120] }}
sex = {{ in = ["f", "m", "x"], nullable = true }}
region = {{ in = ["north", "south"], nullable = true }}
town = {{}}
weight = {{ type = "number", between = [0, 200] }}
income = {{ type = "number", between = [-1000, 1000] }}
born = {{ type = "date", between = [1920-01-01, 2026-12-31] }}
smoker = {{ type = "boolean" }}

[tables.drugs]
public = true
key = ["drug"]

[tables.codes]
public = true
"""
TYPES = {
    "patient_id": pa.int64(), "name": pa.string(), "secret": pa.string(), "birth_year": pa.int64(),
    "age": pa.int64(), "sex": pa.string(), "region": pa.string(), "town": pa.string(),
    "weight": pa.float64(), "income": pa.decimal128(12, 2), "born": pa.date32(),
    "smoker": pa.bool_(), "visit_id": pa.int64(), "ward": pa.string(), "day": pa.date32(),
    "cost": pa.float64(), "code": pa.string(), "seen": pa.timestamp("us"), "odd name": pa.int64(),
    "select": pa.bool_(), "drug": pa.string(), "days": pa.int64(), "dose": pa.float64(),
    "class": pa.string(), "price": pa.int64(), "chapter": pa.string(),
}  # fmt: skip
COLUMNS = {
    "patients": ["patient_id", "name", "secret", "birth_year", "age", "sex", "region", "town", "weight", "income", "born", "smoker"],
    "visits": ["visit_id", "patient_id", "ward", "day", "cost", "code", "seen", "odd name", "select"],
    "prescriptions": ["visit_id", "drug", "days", "dose"],
    "drugs": ["drug", "class", "price"],
    "codes": ["code", "chapter"],
}  # fmt: skip
NAMES = ["Ann Lee", " bob ", "Cy%", "Dee_Émile", "", "o'Neil", 'quo"te', "İßŉſ", "12", "1e999"]
CODES = ["A1", "B2", "A2", "", "Z9"]
ODD = [float("nan"), float("inf"), float("-inf"), 1e308, -1e308, -0.0, 5e-324]
DRUGS = [
    {"drug": drug, "class": kind, "price": price}
    for drug, kind, price in [
        ("aspirin", "pain", 1), ("penicillin", "antibiotic", 7), ("none", None, None), ("", "pain", -3),
    ]
]  # fmt: skip
PUBLIC_CODES = [
    {"code": code, "chapter": chapter}
    for code, chapter in [("A1", "A"), ("A2", "A"), ("A1", "B"), ("B2", None), (None, "N")]
]


def some_patient(random, person, *, tight):
    return {
        "patient_id": None if tight and random.random() < 0.1 else person,
        "name": random.choice([*NAMES, None]), "secret": f"secret{person}",
        "birth_year": random.choice([1920, 1971, 2000, 2026, None, *([9999, -5] if tight else [])]),
        "age": random.choice([0, 7, 34, 51, 51, 88, 120, None, *([500, -7] if tight else [])]),
        "sex": random.choice(["f", "m", "m", "x", None, *(["?"] if tight else [])]),
        "region": random.choice(["north", "south", "south", None, *(["mars"] if tight else [])]),
        "town": random.choice(["Lund", "Lund", "Ystad", "Malmö", None]),
        "weight": random.choice([0.0, 55.5, 70.5, 82.25, 64.0, 200.0, None, *(ODD if tight else [])]),
        "income": random.choice(
            [Decimal("0.10"), Decimal("-12.35"), Decimal("999.99"), Decimal("12.50"), None]
            + [Decimal("5000000.01")] * tight
        ),
        "born": random.choice([date(1990, 2, 3), date(1969, 12, 31), date(2000, 2, 29), date(2017, 12, 25), None]
                              + [date.min, date.max] * tight),
        "smoker": random.choice([True, False, None]),
    }  # fmt: skip


def some_visit(random, number, person, *, tight):
    seen = datetime(2024, 1, 1) + timedelta(seconds=random.randrange(60_000_000))  # noqa: DTZ001 - no zone in tables
    return {
        "visit_id": None if tight and random.random() < 0.05 else number,
        "patient_id": None if tight and random.random() < 0.05 else person,
        "ward": random.choice([*WARDS, *([None, "attic"] if tight else [])]),
        "day": random.choice([date(2024, 1, 1), date(2025, 12, 31), seen.date(), None]),
        "cost": random.choice([0.0, 10.5, 20.0, 99.99, 800.0, None, *(ODD if tight else [])]),
        "code": random.choice([*CODES, None]), "seen": random.choice([seen, seen, None]),
        "odd name": random.choice([-5, -1, 0, 3, 5, None, *([1 << 62, -(1 << 63)] if tight else [])]),
        "select": random.choice([True, False, None]),
    }  # fmt: skip


def make_rows(seed, *, tight, times=1):
    """Rows of twelve persons by tables; person HEAVY has a third of all visits."""
    random = Random(seed)
    patients = [some_patient(random, person, tight=tight) for person in range(PERSONS)]
    if tight:
        patients += [
            some_patient(random, random.choice([HEAVY, 5]), tight=True) for _ in range(6 * times)
        ]
    visits = [
        some_visit(random, number, HEAVY if number % 3 == 0 else random.randrange(PERSONS), tight=tight)
        for number in range(40 * times)
    ]  # fmt: skip
    numbers = [visit["visit_id"] for visit in visits]
    prescriptions = [
        {"visit_id": random.choice([*numbers, *([None, 999] if tight else [])]),
         "drug": random.choice([drug["drug"] for drug in DRUGS] + ["magic"] * tight),
         "days": random.choice([1, 5, 28, *([0, 99] if tight else [])]),
         "dose": random.choice([0.5, 1.0, 2.25, None, *(ODD if tight else [])])}
        for _ in range(60 * times)
    ]  # fmt: skip
    return {"patients": patients, "visits": visits, "prescriptions": prescriptions,
            "drugs": DRUGS, "codes": PUBLIC_CODES}  # fmt: skip


def without(rows, person):
    """All rows but this person's."""
    gone = {row["visit_id"] for row in rows["visits"] if row["patient_id"] == person} - {None}
    return {
        **rows,
        "patients": [row for row in rows["patients"] if row["patient_id"] != person],
        "visits": [row for row in rows["visits"] if row["patient_id"] != person],
        "prescriptions": [row for row in rows["prescriptions"] if row["visit_id"] not in gone],
    }


def without_row(rows, place):
    """All rows but one, where every row is one person."""
    left = rows["patients"][:place] + rows["patients"][place + 1 :]
    return {**rows, "patients": left}


def frames_of(rows, columns):
    return {
        name: pa.table({each: pa.array([row[each] for row in rows[name]], TYPES[each]) for each in listed})
        for name, listed in columns.items()
    }  # fmt: skip


KINDS = {  # world: accountant, tight, every row is one person, how many times the rows
    "loose": ("pure", False, False, 1),
    "loose-rows": ("pure", False, True, 1),
    "loose-zcdp": ("zcdp", False, False, 1),
    "tight": ("pure", True, False, 1),
    "tight-zcdp": ("zcdp", True, False, 1),
    "tight-rows": ("zcdp", True, True, 1),
    "tight-many": ("pure", True, False, 20),
}
BUDGET = {"pure": 1_000_000, "zcdp": 1000}


@dataclass(frozen=True)
class World:
    """A policy in a folder, its raw rows, and folders of its neighbours."""

    name: str
    seed: int
    folder: Path
    others: tuple[Path, ...]
    frames: dict[str, pa.Table]

    @property
    def loose(self):
        return self.name.startswith("loose")

    def gate(self, analyst="ana"):
        """A gate with a ledger of its own; the engine is shared."""
        return self.gates([analyst])[analyst]

    def gates(self, analysts, budget=None):
        """Gates of one new ledger; all have the budget of the data set, or this ε."""
        first = opened(self.folder)
        curator, book = first._curator, open_ledger(":memory:")
        terms, root = first.ledger.balance(curator.account), curator.account.partition("/")[0]
        allowed = (
            terms.budget if budget is None else replace(terms.budget, epsilon=Fraction(budget))
        )
        for name in ("", *(f"/{analyst}" for analyst in analysts)):
            book.open_account(
                root + name, parent=root if name else None, accountant=terms.accountant,
                budget=allowed, unit="one patient",
            )  # fmt: skip
        tables = {name: replace(each, origin=name) for name, each in curator.tables.items()}
        held = {"source": curator._source, "tables": tables, "ledger": book}
        return {
            each: Gate(Curator(**held, account=f"{root}/{each}"), first._rules) for each in analysts
        }

    @property
    def neighbours(self):
        return [opened(folder)._curator._source for folder in self.others]


@cache
def opened(folder):
    return ng.open(folder / "hard.toml", ledger=":memory:", analyst="ana")


@cache
def temporary():
    return tempfile.TemporaryDirectory(prefix="fuzz-worlds-")  # one for all, gone with the process


def world(name, seed=0):
    """The world of this name and seed; made once a process."""
    return made_world(name, seed)


@cache
def made_world(name, seed):
    accountant, tight, by_row, times = KINDS[name]
    rows = make_rows(seed, tight=tight, times=times)
    if by_row:
        worlds = [rows, without_row(rows, 0), without_row(rows, HEAVY)]
    else:
        worlds = [rows, without(rows, HEAVY), without(rows, LIGHT)]
    columns = {
        n: c for n, c in COLUMNS.items() if not by_row or n in ("patients", "drugs", "codes")
    }
    text = (ROWS_POLICY if by_row else POLICY).format(
        budget=BUDGET[accountant], accountant=accountant,
        rows=3 * times if tight else 2000, groups=2 if tight else 20,
    )  # fmt: skip
    folders = []
    for place, each in enumerate(worlds):
        folder = Path(temporary().name) / f"{name}-{seed}-{place}"
        folder.mkdir()
        frames = frames_of(each, columns)
        for table, frame in frames.items():
            pq.write_table(frame, folder / f"{table}.parquet")
        (folder / "hard.toml").write_text(text)
        folders.append(folder)
    return World(name, seed, folders[0], tuple(folders[1:]), frames_of(rows, columns))
