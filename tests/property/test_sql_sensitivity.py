"""Random SQL over random rows: what is measured for it moves by at most the claim.

The questions are those of `random_questions`, whose answers are held to be DuckDB's own, and others
by bins of numbers; the rows here are odder, so that no unit is like another: rows without owners, owners without rows, visits
of one number with two patients, values beyond their bounds. Every tally that the question is made
of is collected with and without each patient. Nothing here draws noise.
"""

import os
import sys
from datetime import date, timedelta
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest
from test_sensitivity import collected, require_claim

sys.path.append(str(Path(__file__).parents[1] / "unit"))  # last: both folders have a conftest
from random_questions import question
from reading_oracle import TABLES

from noisegate.errors import Unsupported
from noisegate.privacy.domain import EPOCH
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sql.drafts.draft import draft
from noisegate.sql.drafts.groups import Caps
from noisegate.sql.reading.reader import read
from noisegate.transforms.query import Query

PATIENTS = 5
# Questions of each seed, 5 neighbours each, of one to five tallies; `make fuzz` tries more.
QUESTIONS, SEEDS = (12, 20) if os.environ.get("NOISEGATE_EXPLORE") else (6, 2)
TYPES = {
    "patients": {"patient_id": pa.int64(), "region": pa.string(), "age": pa.int64(), "weight": pa.float64(),
                 "born": pa.date32(), "smoker": pa.bool_(), "name": pa.string()},
    "visits": {"visit_id": pa.int64(), "patient_id": pa.int64(), "code": pa.string(), "cost": pa.float64(),
               "seen": pa.timestamp("us")},
    "bills": {"visit_id": pa.int64(), "amount": pa.float64()},
    "notes": {"pid": pa.int64(), "words": pa.int64()},
    "codes": {"code": pa.string(), "chapter": pa.string()},
    "regions": {"region": pa.string(), "country": pa.string()},
    "survey": {"code": pa.string(), "score": pa.int64()},
    "doctors": {"doctor_id": pa.int64()},
}  # fmt: skip
CODES = ["A1", "A2", "B2", "Z9"]
NUMBERS = [None, float("nan"), float("inf"), -3.0, 0.07, 7.25, 999.99, 5000.0]


def some_rows(pick):
    owners = [*range(PATIENTS), None]
    return {
        "patients": [
            (pick.choice(owners), pick.choice(["north", "south", "east", None]), pick.choice([None, -1, 7, 51, 300]),
             pick.choice(NUMBERS), pick.choice([None, date(1973, 7, 31), date(2017, 12, 25)]),
             pick.choice([True, False, None]), pick.choice(["Ann", " bob ", "", None]))
            for _ in range(8)
        ],
        "visits": [
            (pick.choice([v, v, v, 0, None]), pick.choice([0, *owners]), pick.choice(CODES), pick.choice(NUMBERS),
             pick.choice([None, EPOCH + timedelta(days=19_782.5), EPOCH + timedelta(days=19_722.9)]))
            for v in range(14)
        ],
        "bills": [(pick.choice([*range(15), None]), pick.choice(NUMBERS)) for _ in range(14)],
        "notes": [(pick.choice(owners), pick.choice([None, 3, 1 << 40])) for _ in range(6)],
        "codes": [("A1", "A"), ("A2", "A"), ("B2", "B"), ("C3", None)],
        "regions": [("north", "X"), ("south", "Y"), ("east", "Y")],
        "survey": [("A1", 3), ("Q", None)],
        "doctors": [(0,), (1,)],
    }  # fmt: skip


def without(rows, patient):
    """The tables without a patient. A bill of a visit that names two stays with the other."""
    kept = [row for row in rows["visits"] if row[1] != patient]
    return {
        **rows,
        "patients": [row for row in rows["patients"] if row[0] != patient],
        "visits": kept,
        "notes": [row for row in rows["notes"] if row[0] != patient],
    }


def source_of(rows):
    frames = {
        name: pa.table({
            column: pa.array([row[place] for row in rows[name]], kind)
            for place, (column, kind) in enumerate(types.items())
        })
        for name, types in TYPES.items()
    }  # fmt: skip
    return DuckDBSource(frames, TABLES)


BINNED = {
    "patients p": ["weight", "age"],
    "visits v": ["cost"],
    "bills b": ["amount"],
    "bills b JOIN visits v USING (visit_id)": ["amount", "cost"],
    "visits v LEFT JOIN bills b ON v.visit_id = b.visit_id": ["amount", "cost"],
    "patients p LEFT JOIN visits v USING (patient_id)": ["weight", "cost"],
}
BINS = [
    "FLOOR({} / 12.5) * 12.5", "FLOOR(({} - -0.7) / 30) * 30 + -0.7", "ROUND({}, -1)", "ROUND({} / 100, 1)",
    "CAST({} / 50 AS INTEGER) * 50", "CAST({} / 40 AS DECIMAL(9, 1))", "TRUNC({} / 4) / 10", "-CEIL({} / 0.2e2) * 2.5",
    "COALESCE(ROUND({}, -2), 0.5)",
]  # fmt: skip


def binned(pick):
    """A question by one or two keys that are numbers, some of them made in a sub-query."""
    source, columns = pick.choice(sorted(BINNED.items()))
    keys = [pick.choice(BINS).format(pick.choice(columns)) for _ in range(pick.randint(1, 2))]
    asked = pick.choice(["COUNT(*)", "SUM({})", "AVG({})", "COUNT(DISTINCT {})", "MEDIAN({})"])
    asked = asked.format(pick.choice(columns))
    if pick.random() < 0.3:
        source = f"(SELECT {keys[0]} AS x, {pick.choice(columns)} AS y FROM {source}) WHERE x > 3"
        keys, asked = ["x", "ROUND(x, 0)"], "SUM(y)"
    named = ", ".join(f"{key} AS k{place}" for place, key in enumerate(keys))
    by = pick.choice(["ALL", f"CUBE ({', '.join(keys)})"])
    return f"SELECT {named}, {asked} AS a FROM {source} GROUP BY {by}"


def tallies_of(sql, cap):
    """Every query that the question would measure, as far as it can be told beforehand."""
    for block in read(sql, TABLES, lines=True).blocks:
        caps = Caps(rows_per_unit=cap, groups_per_unit=cap, keys_per_unit=None)
        drafted = draft(block, caps)
        yield from (*drafted.keys, *(part.query for part in drafted.parts))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("made", [question, binned])
def test_what_random_sql_measures_moves_by_at_most_its_claim(made, seed, monkeypatch):
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda path: connect(path, config={"threads": 1}))
    pick = Random(seed)
    rows = some_rows(pick)
    here = source_of(rows)
    others = [source_of(without(rows, patient)) for patient in range(PATIENTS)]
    asked = moved = 0
    while asked < QUESTIONS:
        sql = made(pick)
        try:
            queries = list(tallies_of(sql, pick.choice([1, 2, 5])))
        except Unsupported:
            continue  # bounds that no expression has
        asked += 1
        for query in queries:
            require_moves(query, here, others)
        moved += bool(queries)
    assert moved > QUESTIONS / 2


def require_moves(query: Query, here, others):
    before = collected(here, query)
    for other in others:
        require_claim(query, None, before, collected(other, query))
