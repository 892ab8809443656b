"""Columns as cells and back: by declared facts alone, and within them."""

from datetime import date, datetime
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chisquare

import noisegate
from noisegate.errors import NoisegateError, Unsupported
from noisegate.privacy.domain import Kind
from noisegate.releases.cells.axes import Axis
from noisegate.synthetic.basis import basis_of, wanted_of
from noisegate.synthetic.columns import (
    Coding,
    Layout,
    spread,
    usual_edges,
    usual_unit,
    usual_width,
)
from refusals import listed

DAYBREAK, LATER = map(datetime.fromisoformat, ("2024-01-01 00:00", "2024-01-02 12:00"))
FACTS = {
    "sex": {"in": ["f", "m"]},
    "age": {"between": [0, 109], "nullable": False},
    "kids": {"between": [0, 9]},
    "cost": {"between": [-5, 95]},
    "day": {"between": [date(2024, 1, 10), date(2024, 12, 20)]},
    "seen": {"between": [DAYBREAK, LATER]},
}


def rows(count=4):
    return pa.table(
        {
            "id": pa.array(range(count)),
            "sex": ["f"] * count,
            "age": pa.array([30] * count),
            "kids": pa.array([2] * count),
            "sick": pa.array([True] * count),
            "cost": pa.array([1.5] * count),
            "day": pa.array([date(2024, 3, 1)] * count),
            "seen": pa.array([DAYBREAK] * count, pa.timestamp("us")),
            "note": ["x"] * count,
        }
    )


@cache
def tables():
    return noisegate.open(rows(), epsilon=1, table="people", columns=FACTS).tables


def basis(columns, **more):
    known = tables()
    determined = more.pop("determined", None)
    return basis_of(known, wanted_of(known, None, columns, determined), **more)


ALL = ["sex", "age", "kids", "sick", "cost", "day", "seen"]


@pytest.mark.parametrize(
    ("low", "high", "whole", "width"),
    [
        (0, 39, True, 1),
        (0, 40, True, 2),
        (0, 109, True, 5),
        (17, 90, True, 2),
        (0, 1, False, Fraction(1, 20)),
        (0, 10**6, True, 50_000),
        (-5, 95, False, 5),
        (Fraction(1, 1000), Fraction(2, 1000), False, Fraction(5, 100_000)),
    ],
)
def test_the_usual_bins_are_the_finest_round_ones_that_are_few(low, high, whole, width):
    bounds = Fraction(low), Fraction(high)
    assert usual_width(bounds, whole=whole) == width
    edges = usual_edges(bounds, whole=whole)
    assert len(edges) <= 41
    assert edges[0] <= bounds[0] < edges[1]
    assert edges[-2] <= bounds[1] < edges[-1]


@pytest.mark.parametrize(
    ("low", "high", "kind", "unit"),
    [
        (0, 30, Kind.DATE, "day"),
        (0, 200, Kind.DATE, "week"),
        (0, 365, Kind.DATE, "month"),
        (0, 2000, Kind.DATE, "quarter"),
        (0, 40_000, Kind.DATE, "year"),
        (0, 30 * 3_600_000_000, Kind.TIMESTAMP, "hour"),
        (0, 30 * 86_400_000_000, Kind.TIMESTAMP, "day"),
    ],
)
def test_the_usual_unit_of_time_is_the_finest_with_few_groups(low, high, kind, unit):
    assert usual_unit((Fraction(low), Fraction(high)), kind) == unit


def test_every_kind_of_column_comes_back_in_its_type_and_within_its_facts():
    layout = basis(ALL).layout
    assert [axis.name for axis in layout.axes] == ALL
    count = 400
    cells = np.stack([np.arange(count) % size for size in layout.sizes], axis=1)
    made = layout.decode(cells, seed=3)
    assert made.schema.names == ALL
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.bool_(), pa.float64(), pa.date32())
    assert tuple(made.schema.types) == (*kinds, pa.timestamp("us"))
    values = {name: made[name].to_pylist() for name in ALL}
    assert set(values["sex"]) == {"f", "m"}
    assert set(values["sick"]) == {True, False, None}
    assert None not in values["age"]
    bounds = {"age": (0, 109), "kids": (0, 9), "cost": (-5, 95), "day": FACTS["day"]["between"]}
    bounds["seen"] = FACTS["seen"]["between"]
    for name, (low, high) in bounds.items():
        known = [each for each in values[name] if each is not None]
        assert low <= min(known) <= max(known) <= high
        missing = cells[:, ALL.index(name)] == len(layout.axes[ALL.index(name)].present)
        assert [each is None for each in values[name]] == missing.tolist()


def test_a_value_lies_in_its_own_cell():
    """Noise of ε = 500 is 0 but for one draw in 10^200."""
    layout = basis(ALL).layout
    made = layout.decode(np.stack([np.arange(40) % s for s in layout.sizes], axis=1), seed=5)
    gate = noisegate.open(made, epsilon=10**4, table="people", columns=FACTS)
    for axis in layout.axes:
        found = gate.release("cells", columns={axis.name: _how(axis)}, epsilon=500)
        counts = np.bincount(np.arange(40) % axis.size, minlength=axis.size)
        assert found.values.tolist() == counts.tolist(), axis.name


def _how(axis):
    if axis.ends is not None:
        return axis.ends[0] - axis.keys[0]
    if isinstance(axis.keys[0], date):
        return "hour" if isinstance(axis.keys[0], datetime) else "month"
    return None


def test_a_layout_is_the_same_after_its_record():
    made = basis(
        ["sex", "age", "day"], determined={"sick": ("age", {(0, 49): False, (50, 109): True})}
    )
    layout = made.layout
    assert Layout.from_record(layout.to_record()) == layout
    assert [column.name for column in layout.columns] == ["sex", "age", "sick", "day"]


def test_a_determined_column_follows_its_map():
    maps = {"kids": ("sex", {"f": 1, "m": 2}), "sick": ("age", {(0, 49): False, (50, 109): True})}
    layout = basis(["sex", "age"], determined=maps).layout
    cells = np.stack([np.arange(300) % size for size in layout.sizes], axis=1)
    made = layout.decode(cells, seed=1).to_pydict()
    assert made["kids"] == [1 if sex == "f" else 2 for sex in made["sex"]]
    assert made["sick"] == [age >= 50 for age in made["age"]]


def test_the_units_own_column_is_numbered():
    gate = noisegate.open(
        rows(), epsilon=1, table="people", columns=FACTS, unit="id", rows_per_unit=2
    )
    made = basis_of(gate.tables, wanted_of(gate.tables, None, ["id", "sex"], None))
    assert made.layout.sizes == (2,)
    assert made.rows_per_unit == 2
    table = made.layout.decode(np.zeros((3, 1), np.int64), seed=0)
    assert table["id"].to_pylist() == [1, 2, 3]


def test_whole_values_are_even_over_their_bin():
    """All 7 values of a bin: chi-square at 1e-6."""
    lows, highs = np.full(7000, 3), np.full(7000, 10)
    found = spread(lows, highs, 4, whole=True)
    assert chisquare(np.bincount(found - 3, minlength=7)).pvalue > 1e-6


def test_bounds_that_were_found_make_bins_and_what_is_beyond_is_in_the_outer_ones():
    made = basis(["id"], found={"id": (Fraction(0), Fraction(64))})
    (axis,) = made.layout.axes
    assert (axis.keys[0], axis.ends[-1]) == (0, 66)
    assert 'WHEN "id" < 2 THEN 0' in made.sql


@pytest.mark.parametrize(
    ("columns", "more", "words"),
    [
        (None, {}, "undeclared 'id'.*'note'"),
        (["note"], {}, "undeclared"),
        (["none"], {}, "column 'none'"),
        ([], {}, "no-column"),
        ("age", {}, "no-column"),
        ({"age": -1}, {}, "bins"),
        ({"age": [0, 0]}, {}, "bins"),
        ({"sex": "month"}, {}, "argument DATE_TRUNC"),
        (["sex"], {"determined": {"kids": ("age", {})}}, "unmeasured"),
        (["sex"], {"determined": {"kids": "sex"}}, "determined"),
        (["sex"], {"determined": ["kids"]}, "determined"),
        (["sex"], {"determined": {"kids": ("sex", {"f": 1})}}, "map 'm'"),
        (["age"], {"determined": {"kids": ("age", {(0, 50): 1})}}, "map"),
        (["age"], {"determined": {"kids": ("age", {("a", "b"): 1})}}, "type"),
        (["sex"], {"determined": {"kids": ("sex", {"f": "x", "m": 2})}}, "type"),
        (["sex"], {"determined": {"kids": ("sex", {"f": 1.5, "m": 2})}}, "type"),
        (["age"], {"rows_per_unit": 0}, "cap"),
    ],
)
def test_what_has_no_cells_is_refused_with_what_to_do(columns, more, words):
    with pytest.raises(NoisegateError, check=listed(words)) as refused:
        basis(columns, **more)
    assert refused.value.fix


def test_the_refusal_names_the_columns_that_can_be_used():
    with pytest.raises(Unsupported) as refused:
        basis(None)
    assert "columns=['sex', 'age', 'kids', 'sick', 'cost', 'day', 'seen']" in refused.value.fix


def test_a_coding_without_bounds_spreads_over_its_edges():
    axis = Axis(name="x", keys=(Fraction(0), Fraction(1, 2)), ends=(Fraction(1, 2), Fraction(1)))
    found = Coding(kind=Kind.NUMBER, axis=axis).decode(np.array([0, 1] * 50), seed=1).to_numpy()
    assert found[::2].max() < 0.5 <= found[1::2].min()
    assert found.max() < 1


@pytest.mark.parametrize("choose", ["bounds", ["bounds", "bins"]])
def test_bounds_are_found_under_a_cap_that_the_order_gives(choose):
    chance = np.random.default_rng(1)  # public test data, not noise
    rows = pa.table({
        "who": np.repeat(np.arange(1000), 2), "age": chance.integers(20, 60, 2000),
    })  # fmt: skip
    gate = noisegate.open(rows, epsilon=20, delta=1e-6, table="t", unit="who")
    made = gate.release("synthetic", table="t", epsilon=5, choose=choose, rows_per_unit=2)
    assert gate.spent.epsilon == 5
    assert 1500 < made.to_arrow().num_rows < 2500
    with pytest.raises(NoisegateError) as refused:
        gate.release("synthetic", table="t", epsilon=5, choose=choose)
    assert "rows_per_unit" in str(refused.value)
    assert gate.spent.epsilon == 5
