"""An average of few whole numbers costs what that of the same numbers costs."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import noisegate

PEOPLE = 2000
ROWS = pa.table({
    "who": np.arange(PEOPLE * 3) // 3,
    "whole": np.arange(PEOPLE * 3) % 2,
    "number": (np.arange(PEOPLE * 3) % 2).astype(float),
    "steps": np.arange(PEOPLE * 3) % 6,
    "stepped": (np.arange(PEOPLE * 3) % 6).astype(float),
    "ward": ["n", "s", None] * PEOPLE,
})  # fmt: skip
COLUMNS = {
    "whole": {"type": "integer", "between": [0, 1]},
    "number": {"type": "number", "between": [0, 1]},
    "steps": {"type": "integer", "between": [0, 5]},
    "stepped": {"type": "number", "between": [0, 5]},
    "ward": {"in": ["n", "s"]},
}


def gate(*, unit, accountant):
    more = {"unit": "who", "rows_per_unit": 3} if unit else {}
    spent = {} if accountant == "pure" else {"accountant": accountant, "delta": 1e-6}
    return noisegate.open(ROWS, table="t", epsilon=100, columns=COLUMNS, **more, **spent)


@cache
def counted(*, unit, accountant):
    """A gate whose rows were counted, for plans."""
    door = gate(unit=unit, accountant=accountant)
    door.sql("SELECT COUNT(*) FROM t", epsilon=1)
    return door


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("function", ["AVG", "STDDEV", "VAR_POP"])
@pytest.mark.parametrize(("whole", "number"), [("whole", "number"), ("steps", "stepped")])
def test_it_has_the_same_noise(function, whole, number, unit, accountant):
    door = counted(unit=unit, accountant=accountant)
    plans = [
        door.plan(f"SELECT {function}({each}) AS x FROM t", epsilon="0.7")
        for each in (whole, number)
    ]
    found = [dict(plan.facts()) for plan in plans]
    assert found[0]["noise"] == found[1]["noise"]
    assert found[0]["error"] == found[1]["error"]
    assert ("depends" in found[0]["error"]) == (function == "STDDEV")


@pytest.mark.parametrize("unit", [False, True])
def test_the_average_is_right(unit):
    """At ε = 50 noise is below 10⁻³; a wrong middle would be off by 1/2."""
    door = gate(unit=unit, accountant="pure")
    asked = "SELECT AVG(whole) AS a, AVG(steps) AS b, STDDEV_POP(whole) AS c FROM t"
    (row,) = door.sql(asked, epsilon=50).rows
    assert row == pytest.approx((0.5, 2.5, 0.5), abs=0.02)


def test_a_released_count_tells_the_error_of_averages_of_the_same_rows():
    door = gate(unit=True, accountant="pure")
    for rows in ("", "WHERE steps > 2", "GROUP BY ward"):
        asked = f"SELECT AVG(whole) AS x FROM t {rows}"
        door.sql(f"SELECT COUNT(*) FROM t {rows}", epsilon=1)
        assert "depends" not in dict(door.plan(asked, epsilon="0.7").facts())["error"]
