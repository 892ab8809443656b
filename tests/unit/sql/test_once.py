"""What a question takes from the ledger and works out: each once."""

import duckdb
import pytest

import noisegate
from noisegate.ledger.stores.sqlite import SQLiteLedger

SQL = "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM rows WHERE x > {} GROUP BY g"


@pytest.fixture
def gate(tmp_path):
    name = tmp_path / "rows.parquet"
    duckdb.sql(f"""COPY (SELECT i % 7 AS who, i % 3 AS g, i % 10 AS x FROM range(60) AS t(i))
        TO '{name}'""")
    return noisegate.open(
        name, epsilon=9, unit="who", rows_per_unit=5, ledger=tmp_path / "ledger",
        columns={"g": {"in": [0, 1, 2]}, "x": {"between": [0, 9]}},
    )  # fmt: skip


@pytest.fixture
def turns(monkeypatch):
    """How the ledger was opened: True to write."""
    found, turn = [], SQLiteLedger._in_transaction

    def counted(self, work, *, writing):
        found.append(writing)
        return turn(self, work, writing=writing)

    monkeypatch.setattr(SQLiteLedger, "_in_transaction", counted)
    return found


def test_a_question_opens_the_ledger_six_times_and_one_that_is_known_twice(gate, turns):
    gate.sql(SQL.format(1), epsilon=1)
    turns.clear()
    gate.sql(SQL.format(2), epsilon=1)
    assert turns == [False, False, False, True, True, False]  # charged, and settled
    turns.clear()
    gate.sql(SQL.format(2), epsilon=1)
    assert turns == [False] * 2


def test_nothing_is_drafted_for_a_cap_that_is_declared(gate, monkeypatch):
    monkeypatch.setattr("noisegate.sql.bounds.looks.counted_of", None)
    assert gate.sql(SQL.format(1), epsilon=1).rows
    with pytest.raises(TypeError):
        gate.sql(SQL.format(1), epsilon=1, choose="caps")


def test_what_does_not_fit_is_refused_before_anything_is_charged(gate):
    with pytest.raises(noisegate.NoisegateError, match="ε = 9 left"):
        gate.sql(SQL.format(1), epsilon=10)
    assert gate.spent.epsilon == 0
