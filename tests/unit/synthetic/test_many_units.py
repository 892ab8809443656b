"""Questions that count units with several rows: cells of units, one for each unit."""

from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.distance import L1
from noisegate.privacy.loss import ApproxDP
from noisegate.synthetic.questions import counting_grid
from refusals import about

COLUMNS = {
    "cost": {"between": [0, 100], "type": "integer"}, "place": {"in": ["north", "south", "west"]},
}  # fmt: skip
CONDITIONS = [
    "place = 'north'", "place <> 'north'", "cost < 30", "cost >= 30 AND place = 'west'",
    "cost IS NULL", "NOT (cost BETWEEN 20 AND 60)",
]  # fmt: skip


def visits():
    """Many rows of a patient, at several places, some undeclared; costs that are not known."""
    rng, n = np.random.default_rng(2), 900
    costs = [None if each < 5 else int(each) for each in rng.integers(0, 100, n)]
    patients = [None if each == 0 else int(each) for each in rng.integers(0, 150, n)]
    places = rng.choice(["north", "south", "west", "east"], n).tolist()
    return pa.table({"patient": patients, "cost": costs, "place": places})


def counting(condition):
    return f"SELECT COUNT(DISTINCT patient) FROM visits WHERE {condition}"


def opened(rows, **terms):
    said = {"unit": "patient", "rows_per_unit": 3, "epsilon": 10_000, "table": "visits"}
    return ng.open(rows, columns=COLUMNS, ledger=":memory:", **{**said, **terms})


@pytest.fixture(scope="module")
def asked():
    rows = visits()
    questions = [*map(counting, CONDITIONS), "SELECT COUNT(DISTINCT patient) FROM visits"]
    with duckdb.connect() as plain:
        plain.register("visits", rows)
        exact = [plain.execute(sql).fetchall()[0][0] for sql in questions]
    return SimpleNamespace(rows=rows, questions=questions, exact=exact, gate=opened(rows))


def cells(gate, questions):
    """The exact cells behind a gate, and the grid."""
    grid = counting_grid(gate.tables, questions=questions)
    return gate._curator._source.sums(grid.grid.query.tally)[0], grid


def test_each_question_is_a_sum_of_cells_of_units(asked):
    exact, grid = cells(asked.gate, asked.questions)
    assert [int(exact[grid.mask(sql)].sum()) for sql in asked.questions] == asked.exact
    assert grid.cells == 2 ** len(CONDITIONS)
    assert grid.grid.query.l1s == (L1(1),)  # whatever the cap of rows is


def test_neighbours_differ_by_one_in_one_cell(asked):
    """A unit that comes or goes, whatever rows it has, moves one cell by 1: all of them tried."""
    whole, _ = cells(asked.gate, asked.questions)
    patients = np.array([each or 0 for each in asked.rows["patient"].to_pylist()])
    for one in (1, 7, 149):
        less, _ = cells(opened(asked.rows.filter(pa.array(patients != one))), asked.questions)
        moved = whole - less
        assert (np.abs(moved).sum(), moved.max()) == (1, 1)
    one = pa.table({"patient": [999] * 40, "cost": [*range(40)], "place": ["north", "east"] * 20})
    more, _ = cells(opened(pa.concat_tables([asked.rows, one], promote_options="permissive")), asked.questions)  # fmt: skip
    assert (np.abs(more - whole).sum(), (more - whole).max()) == (1, 1)


def test_sessions_and_releases_count_units(asked):
    gate = opened(asked.rows, accountant="zcdp", delta=1e-6)
    plan = gate.many_plan(workload=asked.questions, epsilon=300, questions=20)
    before = gate.spent.epsilon
    with gate.many(workload=asked.questions, epsilon=300, questions=20) as session:
        found = session.answers(asked.questions)
        with pytest.raises(Unsupported, check=about("units")):
            session.sql(counting("cost < 31"))
    off = [abs(one.value - true) - one.margin for one, true in zip(found, asked.exact, strict=True)]
    assert max(off) <= 12  # beyond the ± at 95 %: below 1e-9
    assert float(gate.spent.epsilon - before) <= float(plan.price.epsilon) * (1 + 1e-9)
    made = gate.release("questions", workload=asked.questions, epsilon=300)
    for condition, true in zip(CONDITIONS, asked.exact, strict=False):
        assert abs(made.query(**{condition: 1}).value - true) <= 25  # ± 4 at 95 %
    assert gate.release("questions", workload=asked.questions, epsilon=300).cost == ApproxDP(0)
    assert made.card().record["price"]


@pytest.mark.parametrize(
    ("workload", "refusal"),
    [
        ([counting("cost < 3"), "SELECT COUNT(*) FROM visits WHERE cost < 3"], Unsupported),
        ([counting(f"cost < {high}") for high in range(13)], Unsupported),
        (["SELECT COUNT(DISTINCT patient) FROM visits"], Unsupported),
        (["WITH v AS (SELECT * FROM visits) SELECT COUNT(DISTINCT patient) FROM v WHERE cost < 3"], Unsupported),
        ([counting("cost < 3"), counting("cost < 4").replace("visits", "visits v")], SpecError),
    ],
)  # fmt: skip
def test_other_lists_are_refused_before_any_charge(asked, workload, refusal):
    before = asked.gate.spent
    for order in ("questions", "many"):
        with pytest.raises(refusal, check=about("units")):
            if order == "many":
                asked.gate.many(workload=workload, epsilon=1).__enter__()
            else:
                asked.gate.release("questions", workload=workload, epsilon=1)
    assert asked.gate.spent == before


def test_conditions_that_differ_in_case_alone_have_axes_of_their_own():
    rows = pa.table({"patient": [1, 1, 2, 3, 4], "place": ["a", "A", "A", "A", "b"]})
    gate = ng.open(
        rows, table="visits", unit="patient", rows_per_unit=2, epsilon=10, ledger=":memory:",
        columns={"place": {"in": ["a", "A", "b"]}},
    )  # fmt: skip
    questions = [counting("place = 'a'"), counting("place = 'A'"), counting("place = 'b'")]
    exact, grid = cells(gate, questions)
    assert [axis.name for axis in grid.grid.axes] == ["place = 'a'", "place = 'A' (2)", "place = 'b'"]  # fmt: skip
    assert [int(exact[grid.mask(sql)].sum()) for sql in questions] == [1, 3, 1]
    made = gate.release("questions", workload=questions, epsilon=1)
    assert {"place = 'a'", "place = 'A' (2)"} <= set(made.to_arrow().column_names)
