"""`gate.bounds` and `gate.caps`: looks that are asked for by themselves."""

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.errors import Unsupported
from noisegate.orders import BoundsOrder, order_from
from refusals import about


def visits(**more):
    costs = np.arange(900) % 300 + 100.0
    rows = pa.table({"who": np.arange(900) // 3, "cost": costs})
    return ng.open(rows, epsilon=300, unit="who", table="visits", **more)


def test_bounds_are_found_without_a_declared_cap_where_the_order_has_one():
    gate = visits()
    with pytest.raises(Unsupported, check=about("no-cap")):
        gate.bounds("visits", "cost", epsilon=100)
    assert gate.spent.epsilon == 0
    low, high = gate.bounds("visits", "cost", epsilon=100, rows_per_unit=3)
    assert (low, high) == (64, 512)
    assert gate.spent.epsilon == 100
    assert gate.bounds("visits", "cost", epsilon=100, rows_per_unit=3) == (low, high)  # is free
    assert gate.spent.epsilon == 100


def test_a_cap_of_the_order_replaces_that_of_the_policy():
    gate, same = visits(rows_per_unit=3000), visits(rows_per_unit=3)
    order = BoundsOrder.make(table="visits", column="cost", epsilon=1, rows_per_unit=3)
    assert (
        gate.plan(order).expected.scale
        == same.plan(BoundsOrder.make(table="visits", column="cost", epsilon=1)).expected.scale
    )
    assert order_from(order.to_dict()) == order
