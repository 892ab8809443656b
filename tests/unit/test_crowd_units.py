"""Crowds on tables whose units have several rows: one row of each unit, or a true refusal."""

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.errors import Unsupported
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
