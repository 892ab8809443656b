"""Memory that runs out over the rows: NumPy's words say how many there are."""

import re
from datetime import date, timedelta
from traceback import format_exception

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.errors import SourceError
from noisegate.learners import StandardScaler
from noisegate.sources.duckdb.source import DuckDBSource
from refusals import about

WORDS = "Unable to allocate 808 B for an array with shape (101,) and data type int64"
COLUMNS = {
    "age": {"type": "integer", "between": [0, 99]},
    "ward": {"in": ["north", "south"]},
    "day": {"type": "date", "between": [date(2026, 1, 1), date(2026, 1, 4)]},
}


def gate():
    rows = {
        "age": np.arange(101) % 100,
        "ward": ["north"] * 101,
        "day": [date(2026, 1, 1) + timedelta(days=n % 4) for n in range(101)],
    }
    return noisegate.open(pa.table(rows), epsilon=9, columns=COLUMNS, table="people")


def asked_many(door):
    with door.many({"ward": None}, table="people", epsilon=1, rows=100) as session:
        session.ask("SELECT COUNT(*) FROM people WHERE ward = 'north'")


ASKED = {
    "sums": lambda door: door.sql("SELECT COUNT(*) FROM people", epsilon=1),
    "quantiles": lambda door: door.sql("SELECT MEDIAN(age) FROM people", epsilon=1),
    "reaches": lambda door: door.smooth("SELECT MEDIAN(age) FROM people", epsilon=1),
    "choices": lambda door: door.choose("SELECT ward, COUNT(*) FROM people GROUP BY ward", epsilon=1),
    "tables": lambda door: door.release("table", columns={"ward": None}, epsilon=1),
    "series": lambda door: door.release("series", columns={"day": "day"}, epsilon=1),
    "sessions": asked_many,
    "models": lambda door: StandardScaler(epsilon=1).fit(door.matrix("people", ["age"])),
    "samples": lambda door: door.sample("1/2").sql("SELECT COUNT(*) FROM people", epsilon=1),
}  # fmt: skip


@pytest.mark.parametrize("kind", ASKED)
def test_no_refusal_tells_how_much_memory_the_rows_want(kind, monkeypatch):
    """With one row more it would be an array of shape (102,)."""
    door = gate()

    def full(*_):
        raise MemoryError(WORDS)

    monkeypatch.setattr(DuckDBSource, "_run", full)
    with pytest.raises(SourceError, check=about("memory")) as failure:
        ASKED[kind](door)
    told = "".join(format_exception(failure.value))
    assert "101" not in re.sub(r"line \d+, in", "", told)  # of the files themselves
    seen, held = [failure.value], failure.value.__context__
    while held is not None:
        seen, held = [*seen, held], held.__context__
    assert not any(isinstance(each, MemoryError) for each in seen)
