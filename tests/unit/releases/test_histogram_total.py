"""A histogram of many cells with few rows each keeps its total, and says how far it is off."""

import numpy as np
import pyarrow as pa
import pytest

import noisegate

ROWS = 4000


def places(spread):
    coins = np.random.default_rng(4)
    middle = coins.uniform(20, 80, (4, 2))[coins.integers(0, 4, ROWS)]
    return np.clip(middle + coins.normal(0, spread, (ROWS, 2)), 0, 99.99)


@pytest.mark.long
@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("spread", [2, 30])
def test_the_total_of_a_sparse_histogram_is_that_of_the_rows(spread, unit):
    """10,000 cells of 0.4 rows in the mean. One draw each, at a confidence of 1 - 10⁻⁴.

    A total is measured for 1/50 of the price: a deviation of √2 · 50 units' rows, 71 or 283; it is
    beyond ten deviations once in 10⁶ draws, where it was off by half of all rows.
    """
    found = places(spread)
    table = pa.table({"x": found[:, 0], "y": found[:, 1], "who": np.arange(ROWS) // 4})
    bounds = {name: {"between": [0, 100], "nullable": False} for name in "xy"}
    more = {} if unit is None else {"unit": unit, "rows_per_unit": 4}
    door = noisegate.open(table, epsilon=100, columns=bounds, **more)
    deviation = 2**0.5 * 50 * (4 if unit else 1)
    made = door.release("histogram", columns={"x": 1, "y": 1}, epsilon=1)
    total = made.query("0.9999")
    assert total.value == made.values.sum()
    assert abs(total.value - ROWS) <= 10 * deviation
    assert abs(total.value - ROWS) <= total.margin
    assert made.total.margin <= 20 * deviation
    assert made.values.min() >= 0
