"""Bounds at the ends of what 64 bits, doubles and calendars hold: right at a huge ε, or refused free.

Medians within bounds beyond 64 bits wrapped, or failed after the charge.
"""

import os
from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noisegate as ng
from refusals import about

EXAMPLES = 100 if os.environ.get("NOISEGATE_EXPLORE") else 6  # the same ones in every run
LAST = 2**63 - 1
WHOLE = st.one_of(
    st.sampled_from([-LAST, LAST, -(2**62), 2**62, 2**53, -(2**53), 0, LAST - 1, 2**32]),
    st.integers(-LAST, LAST),
)
NUMBERS = st.one_of(
    st.sampled_from([0.0, 2.0**63, -(2.0**63), 2.0**64, 2.0**70, -(2.0**70), 1e30, 1e100, 1e300, 1e-300, 5e-324]),
    st.floats(-1e300, 1e300, allow_subnormal=True),
)  # fmt: skip


def told(bounds, values, kind, aggregate):
    """The answer at a huge price; None where it is refused, which must cost nothing."""
    gate = None
    try:
        columns = {"x": {"between": list(bounds)}}
        gate = ng.open(pa.table({"x": pa.array(values, kind)}), epsilon=10**6, columns=columns)
        return gate.sql(f"SELECT {aggregate} AS a FROM data", epsilon=10**4).rows[0][0]
    except ng.NoisegateError:
        assert gate is None or gate.spent.epsilon == 0, "refused after the charge"
        return None


def assert_near(found, exact, low, high):
    """Within a thousandth of the width of the bounds, and what doubles of this size can tell."""
    if found is not None:
        room = (float(high) - float(low)) / 1000 + 8 * 2.0**-53 * max(
            abs(float(low)), abs(float(high))
        )
        assert abs(float(found) - float(exact)) <= max(room, 1e-12 * abs(float(exact)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(WHOLE, WHOLE)
def test_whole_numbers_at_the_ends_of_64_bits(one, other):
    low, high = min(one, other), max(one, other)
    middle = low + (high - low) // 3
    values = [middle] * 101
    assert_near(told((low, high), values, pa.int64(), "MEDIAN(x)"), middle, low, high)
    assert_near(told((low, high), values, pa.int64(), "AVG(x)"), middle, low, high)


@settings(max_examples=EXAMPLES, deadline=None)
@given(NUMBERS, NUMBERS)
def test_numbers_at_the_ends_of_doubles(one, other):
    low, high = min(one, other), max(one, other)
    middle = low + (high / 3 - low / 3)
    values = [middle] * 101
    assert_near(told((low, high), values, pa.float64(), "MEDIAN(x)"), middle, low, high)
    assert_near(told((low, high), values, pa.float64(), "AVG(x)"), middle, low, high)


@pytest.mark.parametrize("aggregate", ["MEDIAN(x)", "MAX(x)", "SUM(x)", "STDDEV(x)", "SUM(x * x)"])
@pytest.mark.parametrize("high", [2.0**63, 2.0**70, 1e30, 1e160, 1e300])
def test_every_aggregate_within_wide_bounds_is_told_or_refused_for_nothing(aggregate, high):
    told((-high, high), [high / 2] * 50 + [-high] * 50, pa.float64(), aggregate)


def test_bounds_that_doubles_do_not_hold_are_refused_when_they_are_declared():
    for bounds in ([0, 10**400], [-(10**308), 10**308]):
        with pytest.raises(ng.NoisegateError, check=about("doubles")):
            ng.open(pa.table({"x": [1.0]}), epsilon=1, columns={"x": {"between": bounds}})


def test_calendars_that_end_do_not_end_a_question():
    ends = [date(1, 1, 1), date(9999, 12, 31)]
    rows = pa.table({"x": pa.array([ends[0], ends[1], date(5000, 6, 1)] * 50)})
    gate = ng.open(rows, epsilon=10**6, columns={"x": {"between": ends}})
    assert gate.sql("SELECT MAX(x) AS d FROM data", epsilon=10**4).rows[0][0] == ends[1]
    made = gate.release("synthetic", epsilon=100)
    assert max(made.to_arrow()["x"].to_pylist()) <= ends[1]
    first, late = datetime(9999, 12, 1), datetime(9999, 12, 31, 23, 59, 59)  # noqa: DTZ001
    rows = pa.table({"x": pa.array([late] * 50, pa.timestamp("us"))})
    gate = ng.open(rows, epsilon=10**6, columns={"x": {"between": [first, late]}})
    assert gate.release("synthetic", epsilon=100).to_arrow()["x"].to_pylist()


def test_releases_over_edges_beyond_64_bits_can_be_shown():
    rows = pa.table({"x": [1e29] * 50})
    gate = ng.open(
        rows, epsilon=10**4, delta="1e-6", columns={"x": {"between": [-(10**30), 10**30]}}
    )
    made = gate.release("histogram", columns={"x": [str(-(10**30)), "0", str(10**30)]}, epsilon=100)
    assert made.to_arrow()["x"].to_pylist()[:2] == [-1e30, 0.0]
    assert abs(made.to_arrow().columns[1].to_pylist()[1] - 50) < 3
    smooth = gate.smooth("SELECT MEDIAN(x) AS m FROM data", epsilon=100, delta="1e-9")
    assert smooth.to_csv()


def test_a_distribution_of_one_step_can_be_shown():
    """One bin has nothing beyond it, which counted as an unknown error, after the charge."""
    gate = ng.open(pa.table({"x": [0.5] * 50}), epsilon=100, columns={"x": {"between": [0, 1]}})
    assert gate.release("cdf", columns={"x": 10}, epsilon=9).to_csv()
