"""Crowds on tables whose units have several rows: one row of each unit, or a true refusal."""

import shutil
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.crowd.histogram import CrowdRelease
from noisegate.curator.measurement import Measurement
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.additive.biased_crowd import BiasedCrowd
from noisegate.transforms.query import Query
from refusals import about

PEOPLE = 1000
WHO = np.arange(PEOPLE * 4) // 4
ROWS = pa.table({"who": WHO, "age": WHO % 60, "ward": np.array(["n", "s"])[WHO % 2]})
COLUMNS = {"age": {"between": [0, 60]}, "ward": {"in": ["n", "s"]}}
ONE_EACH = (
    "SELECT BIN(age, 20) AS age, COUNT(*) AS n FROM "
    "(SELECT who, MAX(age) AS age FROM v GROUP BY who) AS people GROUP BY 1"
)
CROWD = {"probability": "0.5", "crowd": 40, "delta": 1e-5}


def gate(**caps):
    return noisegate.open(
        ROWS, table="v", unit="who", epsilon=100, delta=1e-3, columns=COLUMNS, **caps
    )


@pytest.mark.parametrize("caps", [{}, {"rows_per_unit": 4}])
def test_a_crowd_of_one_row_of_each_unit_counts_units(caps):
    """About 340 people in each of three cells: bounds at 1 - 10⁻⁹ fail once in 10⁸ runs."""
    made = gate(**caps).release("crowd-histogram", sql=ONE_EACH, **CROWD)
    low, high = made.bounds("0.999999999")
    exact = np.bincount(np.arange(PEOPLE) % 60 // 20, minlength=low.size)
    assert (low.ravel() <= exact).all()
    assert (exact <= high.ravel()).all()
    assert made.cost.epsilon > 0


@pytest.mark.parametrize("caps", [{}, {"rows_per_unit": 4}])
@pytest.mark.parametrize("asked", ["COUNT(*)", "COUNT(DISTINCT who)"])
def test_rows_of_which_a_unit_has_several_are_refused_with_the_reason(asked, caps):
    door = gate(**caps)
    with pytest.raises(Unsupported, check=about("several-rows")) as caught:
        sql = f"SELECT ward, {asked} AS n FROM v GROUP BY ward"
        door.release("crowd-histogram", sql=sql, **CROWD)
    assert "SELECT who, MAX(age)" in caught.value.fix
    assert door.spent.epsilon == 0


# --- columns: each unit once, in the first of its cells ---------------------------------------


HARD_WHO = np.arange(9000) % 1500
DRAWN = np.random.default_rng(5)
HARD = pa.table(
    {
        "who": HARD_WHO,
        "age": DRAWN.integers(0, 100, 9000),
        "ward": np.array(["n", "s", "w", "undeclared", None], object)[DRAWN.integers(0, 5, 9000)],
    }
)


@pytest.fixture(scope="module")
def hard():
    columns = {"age": {"between": [0, 99], "nullable": False}, "ward": {"in": ["n", "s", "w"]}}
    return noisegate.open(HARD, table="v", unit="who", epsilon=100, delta=1e-2, columns=columns)


def first_cells(width, above=-1):
    """How many units have their first cell, of rows with declared wards, at each number."""
    held = HARD.to_pandas()
    held = held[(held.age > above) & held.ward.isin(["n", "s", "w"])]
    cell = held.age // width * 3 + held.ward.map({"n": 0, "s": 1, "w": 2}).astype(int)
    return np.bincount(cell.groupby(held.who).min(), minlength=300 // width)


def test_columns_count_each_unit_once_in_the_first_of_its_cells(hard):
    """NULLs and undeclared wards are left out. Bounds at 1 - 10⁻⁹: an alarm in 10⁸ runs."""
    asked = {"columns": {"age": 25, "ward": None}, "probability": "1/2", "crowd": 30}
    made = hard.release("crowd-histogram", **asked, where="age > 10", delta=1e-4)
    low, high = (each.ravel() for each in made.bounds("0.999999999"))
    exact = first_cells(25, above=10)
    assert (low <= exact).all()
    assert (exact <= high).all()
    assert (~made.hidden).sum() >= 4
    assert any("counts once" in each for each in made.answer().caveats)
    assert made.guarantee.unit.column == "who"


def test_units_that_stand_in_another_table_are_counted_once_too(tmp_path):
    """Prescriptions of the example clinic: the patient is two tables away. An alarm in 10⁸ runs."""
    examples = Path(__file__).parents[3] / "examples"
    shutil.copytree(examples / "clinic", tmp_path / "clinic")
    text = (examples / "clinic.toml").read_text().replace("delta = 1e-7", "delta = 1e-3")
    (tmp_path / "clinic.toml").write_text(text)
    door = noisegate.open(tmp_path / "clinic.toml", analyst="ana", ledger=":memory:")
    asked = {"table": "prescriptions", "columns": {"days": 7}, "probability": "1/2", "crowd": 28}
    made = door.release("crowd-histogram", **asked, delta="1e-5")
    files = {each: f"'{tmp_path}/clinic/{each}.csv'" for each in ("prescriptions", "visits")}
    counted = duckdb.sql(
        "SELECT cell, COUNT(*) FROM (SELECT v.patient_id, MIN(p.days // 7) AS cell FROM "
        f"{files['prescriptions']} p JOIN {files['visits']} v USING (visit_id) "
        "WHERE p.days IS NOT NULL GROUP BY 1) GROUP BY 1"
    ).fetchall()
    low, high = made.bounds("0.999999999")
    exact = np.zeros(low.size, int)
    for cell, count in counted:
        exact[int(cell)] += count
    assert (low <= exact).all()
    assert (exact <= high).all()
    assert exact.sum() > 100
    assert made.guarantee.unit.column == "patient_id"


def test_a_crowd_says_that_it_is_zero_knowledge_and_keeps_saying_it(hard, tmp_path):
    asked = {"columns": {"ward": None}, "probability": "1/2", "crowd": 40, "delta": 1e-4}
    assert "zero-knowledge" in str(hard.release_plan("crowd-histogram", **asked))
    made = hard.release("crowd-histogram", **asked)
    assert made.guarantee.zero_knowledge
    assert "zero-knowledge" in str(made.guarantee)
    assert made.card().to_dict()["guarantee"]["zero_knowledge"] is True
    made.save(tmp_path / "wards.parquet")
    assert CrowdRelease.load(tmp_path / "wards.parquet").guarantee == made.guarantee
    sampled = hard.sample("1/4").sql("SELECT COUNT(*) FROM v", epsilon=1, rows_per_unit=2)
    assert sampled.guarantee.zero_knowledge
    found = hard.sample("1/4").sql("SELECT ward, COUNT(*) FROM v GROUP BY 1", epsilon=1)
    assert not found.guarantee.zero_knowledge  # its cap was found in all rows
    plain = hard.sql("SELECT COUNT(*) FROM v", epsilon=1, rows_per_unit=2)
    assert not plain.guarantee.zero_knowledge
    assert "zero_knowledge" not in plain.guarantee.to_dict()


def test_a_sample_may_take_some_wards_more_often(hard):
    """By strata of the table, each has its exact curve. An alarm in 10⁸ runs."""
    asked = {"columns": {"age": 50, "ward": None}, "probability": "1/3", "epsilon": 1}
    asked |= {"delta": 1e-4, "biased": {"ward": {"w": "2/3"}}}
    made = hard.release("crowd-histogram", **asked)
    assert [float(each) for each in made.noise.probabilities] == pytest.approx(
        [1 / 3, 1 / 3, 2 / 3]
    )
    assert made.cost.epsilon == 1
    assert made.cost.delta == pytest.approx(float(made.delta(1)), rel=1e-4)
    exact = first_cells(50).reshape(2, 3)
    low, high = made.bounds("0.999999999")
    assert (low <= exact).all()
    assert (exact <= high).all()
    total = made.query("0.999999999")
    assert total.low <= exact.sum() <= total.high
    with pytest.raises(SpecError):
        _ = made.sampled


def test_a_bias_that_is_not_shown_has_the_general_guarantee(hard):
    asked = {"columns": {"age": 50}, "probability": "1/10", "epsilon": 1, "crowd": 20}
    made = hard.release("crowd-histogram", **asked, biased={"ward": {"w": "1/8"}})
    assert made.counts.shape == (2,)
    assert made.cost.delta == pytest.approx(float(made.delta(1)), rel=1e-4)
    low, high = made.bounds("0.999999999")
    assert low[0] <= 1500 <= high.sum()
    larger = hard.release("crowd-histogram", **asked | {"crowd": 21}, biased={"ward": {"w": "1/8"}})
    assert larger.free


@pytest.mark.parametrize(
    "wrong",
    [
        {"biased": {"colour": {"red": "1/8"}}},
        {"biased": {"ward": {"nowhere": "1/8"}}},
        {"biased": {"ward": {"w": 2}}},
        {"biased": {}},
        {"biased": {"ward": {"w": "1/2"}}, "epsilon": "0.01"},
        {"biased": {"ward": {"w": "1/2"}}, "columns": None, "sql": ONE_EACH},
    ],
)
def test_a_bias_that_cannot_be_is_refused_before_any_charge(hard, wrong):
    before = hard.spent
    asked = {"columns": {"age": 50}, "probability": "1/10", "epsilon": 1, "crowd": 20}
    with pytest.raises(SpecError):
        hard.release("crowd-histogram", **asked | wrong)
    with pytest.raises(SpecError):
        hard.release("crowd-points", **asked, biased={"ward": {"w": "1/8"}})
    assert hard.spent == before


def test_a_picture_hatches_hidden_cells_below_the_line_at_the_crowd(hard):
    asked = {"columns": {"age": 25, "ward": None}, "probability": "1/2", "crowd": 30}
    made = hard.release("crowd-histogram", **asked, where="age > 10", delta=1e-4)
    drawn = str(made.plot().to_dict())
    assert "k = 30 in the sample" in drawn
    assert "strokeDash" in drawn


def test_strata_that_do_not_fit_the_cells_have_no_price():
    rows = pa.table({"ward": ["n", "s", "w"]})
    door = noisegate.open(
        rows, table="v", epsilon=1, columns={"ward": {"in": ["n", "s", "w"]}}
    ).door
    query = Query(
        Sums(
            relation=Table(door.tables["v"]),
            by=(Grouping(name="ward", expression=Field("ward"), keys=("n", "s", "w")),),
            terms=(Term(expression=Literal(1), grain=Fraction(1), low=0, high=1),),
        )
    )
    two = BiasedCrowd(probabilities=("1/2", "1/10"), inner=1, apart=True, crowd=90, epsilon=1)
    with pytest.raises(Unsupported, check=about("strata")):
        Measurement(query=query, mechanisms=(two,))
