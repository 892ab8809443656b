"""The benchmark of many questions: it runs on tiny tables, and shows what it measured."""

import importlib
import sys
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from noisegate.releases.cells.workload import all_ranges

BENCH = Path(__file__).parents[3] / "bench"
DICE = np.random.default_rng(3)


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    before = set(sys.modules)
    yield importlib.import_module("many")
    for name in set(sys.modules) - before:
        if str(BENCH) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def rows(bench):
    sizes = bench.SIZES | {"age": 90}
    return pa.table({name: DICE.integers(0, size, 400) for name, size in sizes.items()})


def test_the_exact_counts_are_those_of_sql(bench, rows):
    asked = bench.random_questions(30)
    engine = duckdb.connect()
    engine.register("adult", rows)
    exact = [engine.execute(bench.sql_of(each)).fetchone()[0] for each in asked]
    assert bench.counts(rows, asked).tolist() == exact


def test_a_session_is_scored_by_all_its_answers(bench, rows):
    row = bench.session(rows, bench.random_questions(12), "zcdp", Fraction(4))
    assert (row["asked"], row["cells"]) == (12, 9 * 16 * 7 * 2 * 5 * 2)
    assert row["promised"] <= 12
    assert row["mean"] <= row["largest"]
    assert row["sure"] > row["stated"]
    assert set(row) >= {field for _, field, _ in bench.SESSIONS}


def test_a_curve_that_falls_and_rises_has_its_best_inside(bench, monkeypatch):
    monkeypatch.setattr(bench, "ROUNDS", (1, 2, 20))
    table = DICE.multinomial(3000, DICE.dirichlet(np.full(16, 0.3)))
    row = bench.curve_row(table, all_ranges((16,)), Fraction(1, 2), 2)
    assert row["met"] == (row["best"] == 2)
    assert bench.error(table.astype(float), table, all_ranges((16,))) == 0
