"""SQL counting questions as sets of cells: SQL's own counts, or a refusal."""

from datetime import date, timedelta
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.errors import SpecError, Unsupported
from noisegate.synthetic.questions import columns_for, counting_grid
from refusals import about, listed

DICE = Random(5)
DAYS = [date(2026, 1, 1) + timedelta(days=each) for each in range(365)]
COUNT = 400
ROWS = pa.table({
    "age": [DICE.choice([None, *range(100)]) for _ in range(COUNT)],
    "sex": [DICE.choice("FM") for _ in range(COUNT)],
    "cost": [DICE.choice([None, *np.arange(0, 10.25, 0.25).tolist()]) for _ in range(COUNT)],
    "day": [DICE.choice(DAYS) for _ in range(COUNT)],
    "ok": [DICE.choice([True, False, None]) for _ in range(COUNT)],
})  # fmt: skip
FACTS = {
    "age": {"between": [0, 99]},
    "sex": {"in": ["F", "M"]},
    "cost": {"between": [0, 10]},
    "day": {"between": [DAYS[0], DAYS[-1]]},
}
COLUMNS = {"age": 10, "sex": None, "cost": [0, 2.5, 5, 11], "day": "month", "ok": None}


@pytest.fixture(scope="module")
def gate():
    return noisegate.open(ROWS, epsilon=10, table="people", columns=FACTS)


ENGINE = duckdb.connect()
ENGINE.register("people", ROWS)


def cells_of(gate, grid):
    (cells,) = gate._curator._source.sums(grid.grid.query.tally)
    return cells


def exact(sql):
    return ENGINE.execute(sql).fetchone()[0]


ATOMS = [
    "age < 30", "age <= 29", "age > 59", "20 <= age", "age BETWEEN 40 AND 69", "age <> 250",
    "age NOT BETWEEN 10 AND 19", "age IS NULL", "age IS NOT NULL", "BIN(age, 10) IN (30, 50)",
    "sex = 'F'", "sex <> 'F'", "sex IN ('F', 'M')", "sex NOT IN ('M', NULL)",
    "cost < 2.5", "cost >= 5", "cost IS NULL", "cost > 10", "cost <= 10", "2.5 > cost",
    "day >= DATE '2026-04-01'", "day < '2026-12-01'", "day <= DATE '2026-06-30'",
    "day BETWEEN DATE '2026-02-01' AND DATE '2026-02-28'",
    "DATE_TRUNC('month', day) = DATE '2026-05-01'",
    "ok", "NOT ok", "ok IS NULL", "ok = false", "(ok AND age < 50) IS TRUE", "TRUE",
]  # fmt: skip


def random_condition(depth):
    if depth == 0:
        return DICE.choice(ATOMS)
    one, other = random_condition(depth - 1), random_condition(DICE.randrange(depth))
    return DICE.choice([f"({one}) AND ({other})", f"({one}) OR ({other})", f"NOT ({one})"])


def plain(condition):
    return condition.replace("BIN(age, 10)", "(age // 10) * 10")


def test_conditions_count_what_sql_counts(gate):
    grid = counting_grid(gate.tables, columns=COLUMNS)
    cells = cells_of(gate, grid)
    for condition in [*ATOMS, *(random_condition(DICE.randrange(1, 4)) for _ in range(80))]:
        sql = f"SELECT COUNT(*) FROM people WHERE {condition}"
        wanted = exact(f"SELECT COUNT(*) FROM people WHERE {plain(condition)}")
        assert cells[grid.mask(sql)].sum() == wanted, condition
    assert cells[grid.mask("SELECT COUNT(*) AS n FROM people")].sum() == COUNT


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("age < 25", "bin 'age'.*20.*29"),
        ("age = 3", "bin"),
        ("cost <= 5", "bin 'cost'"),
        ("day < DATE '2026-04-02'", "bin 'day'"),
    ],
)
def test_what_would_cut_a_bin_is_refused_with_the_fix(gate, condition, words):
    grid = counting_grid(gate.tables, columns=COLUMNS)
    with pytest.raises(SpecError, check=listed(words)) as refused:
        grid.mask(f"SELECT COUNT(*) FROM people WHERE {condition}")
    assert "finer" in refused.value.fix


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM people WHERE age < cost",
        "SELECT COUNT(*) FROM people WHERE age + 1 < 20",
        "SELECT COUNT(*) FROM people WHERE sex LIKE 'F%'",
        "SELECT COUNT(*) FROM people GROUP BY sex",
        "SELECT COUNT(*) / 2 FROM people",
        "SELECT SUM(age) FROM people",
        "SELECT COUNT(*), COUNT(*) FROM people",
    ],
)
def test_what_is_no_counting_question_is_refused(gate, sql):
    grid = counting_grid(gate.tables, columns={"age": 1, "sex": None})
    with pytest.raises(Unsupported):
        grid.mask(sql)


def test_questions_choose_their_own_grid(gate):
    asked = [
        f"SELECT COUNT(*) FROM people WHERE {condition}"
        for condition in (
            "age BETWEEN 18 AND 64 AND sex = 'F'", "age = 30 OR cost < 1.25", "cost >= 7.5 AND ok",
            "day >= DATE '2026-04-01'", "65 < age", "age <= 12.5 AND sex IN ('M')",
        )
    ]  # fmt: skip
    name, columns = columns_for(gate.tables, asked)
    assert (name, columns["day"], columns["sex"]) == ("people", "month", None)
    assert columns["age"] == [0, 13, 18, 30, 31, 65, 66, 100]
    grid = counting_grid(gate.tables, questions=asked)
    block = grid.block(asked)
    assert block.apply(cells_of(gate, grid)).tolist() == [exact(sql) for sql in asked]
    assert block.shape == (6, grid.cells)
    assert set(block.matrix.data.tolist()) == {1}


def test_a_real_column_has_no_bin_that_ends_with_a_number(gate):
    with pytest.raises(Unsupported, check=about("whole")):
        columns_for(gate.tables, ["SELECT COUNT(*) FROM people WHERE cost <= 5"])
