"""What is not there is said: rows of nobody, numbers that may be noise alone, found bounds."""

import json

import numpy as np
import pyarrow as pa
import pytest

import noisegate

COUNT = 900
ROWS = pa.table({
    "who": pa.array([None if i % 9 == 0 else i // 3 for i in range(COUNT)], pa.int64()),
    "ward": ["north"] * (COUNT - 1) + ["south"],
    "cost": np.arange(COUNT) % 40 / 1.0,
})  # fmt: skip
COLUMNS = {"ward": {"in": ["north", "south", "west"]}, "cost": {"type": "number"}}


def gate(**who):
    more = {"unit": "who", "rows_per_unit": 3} if who.pop("unit", True) else {}
    return noisegate.open(ROWS, table="t", epsilon=100, columns=COLUMNS | who, **more)


@pytest.mark.parametrize("asked", ["COUNT(*)", "COUNT(DISTINCT who)", "COUNT(cost)"])
def test_rows_of_nobody_are_said_to_be_left_out(asked):
    door, sql = gate(), f"SELECT {asked} FROM t"
    said = "Rows of t whose who is NULL belong to no unit and are left out."
    assert said in door.plan(sql, epsilon=1).notes
    answer = door.sql(sql, epsilon=1)
    assert said in str(answer)
    assert said in answer.to_dict()["caveats"]


def test_where_every_row_has_an_owner_nothing_is_said():
    for door in (gate(unit=False), gate(who={"type": "integer", "nullable": False})):
        assert "belong to no unit" not in str(door.sql("SELECT COUNT(*) FROM t", epsilon=1))


def test_a_number_that_may_be_noise_alone_is_marked_wherever_it_is_shown():
    """At ε = 10⁻³ the ± of a count of 0 or 1 is 9,000: north has 800 and is marked too."""
    answer = gate().sql("SELECT ward, COUNT(*) AS n FROM t GROUP BY ward", epsilon="0.001")
    widths = answer.half_widths(0.95)[1]
    for (_, number), width, cells, told in zip(
        answer.rows, widths, answer.cells(), answer.within_noise(), strict=True
    ):
        assert told == [False, abs(number) <= width]
        assert cells[1].endswith(" ≈ 0") == (0 < abs(number) <= width)
    assert any(told for _, told in answer.within_noise())
    assert "≈ 0: may be noise alone" in answer.footer()
    assert "≈ 0" in answer._repr_html_()
    assert json.loads(answer.to_json())["within_noise"] == answer.within_noise()


def test_a_clear_number_is_not_marked():
    """North has 800 rows with an owner, ± 1 at ε = 10."""
    answer = gate().sql("SELECT COUNT(*) AS n FROM t", epsilon=10)
    assert answer.within_noise() == [[False]]
    assert "≈" not in str(answer)


def test_bounds_that_were_found_are_not_called_declared():
    answer = gate().sql("SELECT AVG(cost) AS x FROM t", epsilon=5, choose="bounds")
    assert "declared" not in str(answer)
    assert "as estimated" in str(answer.plan)


MEANS = [
    "AVG(cost)", "SUM(cost) / COUNT(*)", "STDDEV(cost)", "SUM(cost - 20)", "COUNT(*) - 5", "-COUNT(*)",
    "COUNT(*) FILTER (WHERE cost > 30) / COUNT(*)", "ABS(COUNT(*) - 10)",
]  # fmt: skip
AMOUNTS = [
    "COUNT(*)",
    "SUM(cost)",
    "COUNT(*) / 4",
    "SUM(cost) + 2 * COUNT(*)",
    "COUNT(DISTINCT cost)",
]


@pytest.mark.parametrize("sql", [*MEANS, *AMOUNTS])
def test_only_where_0_means_that_nothing_is_there_it_is_said_so(sql):
    known = {"type": "number", "between": [0, 40]}
    answer = gate(cost=known).sql(
        f"SELECT {sql} AS x FROM t WHERE cost < 3", epsilon="0.0001", rows_per_unit=1
    )
    assert answer.amounts() == (("x",) if sql in AMOUNTS else ())
    if sql in MEANS:
        assert answer.within_noise() == [[False]]
        assert "≈ 0" not in str(answer)
