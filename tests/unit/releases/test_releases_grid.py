"""The cells of a release: axes from SQL or from columns, what is meant by a range, refusals."""

from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.desk.terms.terms import Terms
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.grid import grid_of, sql_of
from noisegate.sql.reading.reader import read
from refusals import about, listed

ROWS = {
    "age": [31, 45, 62],
    "cost": [1.5, 2.5, 99.0],
    "ward": ["north", "south", "north"],
    "day": [date(2024, 1, 2)] * 3,
    "town": ["x", "y", "z"],
}
FACTS = {
    "age": {"between": [0, 110]},
    "cost": {"between": [0, 100]},
    "ward": {"in": ["north", "south"]},
    "day": {"between": [date(2024, 1, 1), date(2024, 3, 1)]},
}


@pytest.fixture(scope="module")
def gate():
    return noisegate.open(pa.table(ROWS), epsilon=1, columns=FACTS, table="rows")


@pytest.fixture
def grid(gate):
    def made(sql, **more):
        return grid_of(read(sql, gate.tables), sql, Terms(), **more)

    return made


@pytest.fixture
def by_columns(gate, grid):
    def made(columns, where=None, **more):
        sql, edges = sql_of(gate.tables, None, columns, where)
        return grid(sql, edges=edges, **more)

    return made


def test_the_cells_are_all_combinations_of_declared_groups_and_of_no_value(grid):
    found = grid("SELECT COUNT(*) FROM rows GROUP BY BIN(age, 10), ward")
    ages, wards = found.axes
    assert found.shape == (13, 2)
    assert (ages.name, ages.keys) == ("age", (*range(0, 111, 10), None))
    assert ages.edges.tolist() == [float(edge) for edge in range(0, 121, 10)]
    assert (wards.name, wards.keys, wards.edges) == ("ward", ("north", "south"), None)
    assert found.query.tally.cells == 26
    assert (found.moved, found.grain, found.whole, found.signed) == (1, 1, True, False)


def test_rows_without_a_value_have_no_cell_where_there_are_none(grid):
    said = "SELECT COUNT(*) FROM rows WHERE age IS NOT NULL AND cost > 1 GROUP BY BIN(age, 10)"
    assert grid(said).shape == (12,)
    assert grid("SELECT COUNT(*) FROM rows GROUP BY BIN(age, 10)", missing=False).shape == (12,)


def test_bins_of_any_width_have_edges_in_the_units_of_the_column(by_columns):
    (axis,) = by_columns({"cost": 0.1}, missing=False).axes
    assert axis.size == 1001
    assert axis.keys[:3] == (0, Fraction(1, 10), Fraction(1, 5))
    assert axis.labels[1] == "0.1 to 0.2"
    assert axis.runs((0.1, 0.3)) == [(1, 2)]


def test_bins_of_fractions_hold_the_rows_that_bin_itself_holds(gate, by_columns):
    """0.3 is in the bin of 0.3, although 0.3 / 0.1 is below 3 in doubles."""
    rows = pa.table({"x": [0.3, 0.7, 0.7]})
    gate = noisegate.open(rows, epsilon=1000, columns={"x": {"between": [0, 1]}})
    release = gate.release("cells", columns={"x": 0.1}, epsilon=100)
    assert release.values.tolist() == [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0]


def test_listed_edges_and_units_of_time_make_bins(by_columns):
    ages, days = by_columns({"age": [0, 18, 65.5, 110], "day": "month"}, missing=False).axes
    assert ages.keys == (0, 18, Fraction(131, 2))
    assert ages.edges.tolist() == [0, 18, 65.5, 111]  # an age of 110 is in the last one too
    assert days.keys == (date(2024, 1, 1), date(2024, 2, 1), date(2024, 3, 1))
    assert (days.periods, ages.periods) == (True, False)
    assert by_columns({"day": None}, missing=False).shape == (61,)


def test_outer_bins_reach_to_the_bounds_as_they_hold_all_beyond(by_columns):
    (ages,) = by_columns({"age": [50, 60, 70]}, missing=False).axes
    assert ages.labels == ("0–59", "60–110")
    assert ages.runs((0, 59)) == [(0, 0)]
    with pytest.raises(SpecError, check=about("bin"), match="50"):
        ages.runs((50, 59))
    (costs,) = by_columns({"cost": [-5, 50, 200]}, missing=False).axes
    assert costs.edges.tolist() == [-5, 50, 200]
    (one,) = by_columns({"age": [50, 60]}, missing=False).axes  # a single bin holds them all
    assert one.labels == ("0–110",)


def test_a_condition_stays_one(by_columns):
    with pytest.raises(Unsupported, check=about("syntax")):
        by_columns({"ward": None}, where="age > 3 GROUP BY age --")


def test_axes_are_named_as_the_select_shows_them_or_after_their_column(grid):
    sql = "SELECT ward AS w, SUM(age) AS s FROM rows GROUP BY ward, MONTH(day), dayofweek(day)"
    found = grid(sql)
    assert [axis.name for axis in found.axes] == ["w", "month_day", "dayofweek_day"]
    assert found.value == "s"
    assert grid("SELECT COUNT(*) AS ward FROM rows GROUP BY ward").value == "ward_"


@pytest.mark.parametrize(
    ("by", "name"),
    [
        ("age", "age"),
        ("BIN(age, 10)", "age"),
        ("BIN(LEAST(age, 60), 10)", "age"),
        ("DATE_TRUNC('month', day)", "day"),
        ("UPPER(ward)", "ward"),
        ("CASE WHEN age < 18 THEN 'young' ELSE 'old' END", "age"),
        ("EXTRACT(dow FROM day)", "dayofweek_day"),
        ("BIN(EXTRACT(doy FROM day), 7)", "dayofyear_day"),
        ("FLOOR(age / 10)", "floor_age"),
        ("age >= 18", "ge_age"),
    ],
)
def test_an_axis_without_a_name_says_what_was_made_of_its_column(grid, by, name):
    (axis,) = grid(f"SELECT COUNT(*) FROM rows GROUP BY {by}").axes
    assert axis.name == name


def test_given_edges_are_bins_of_their_column(by_columns):
    assert [axis.name for axis in by_columns({"age": [0, 18, 110]}).axes] == ["age"]


def test_sums_of_whole_numbers_stay_whole_and_others_are_kept_in_grains(grid):
    whole = grid("SELECT SUM(age) FROM rows GROUP BY ward")
    assert (whole.whole, whole.grain, whole.moved) == (True, 1, 110)
    other = grid("SELECT SUM(cost) FROM rows GROUP BY ward")
    assert (other.whole, other.moved * other.grain) == (False, 100)
    assert grid("SELECT SUM(age - 50) FROM rows GROUP BY ward").signed


def test_a_persons_rows_are_capped_as_in_questions():
    rows = pa.table({"pid": [1, 1, 2], "ward": ["north", "south", "north"]})
    facts = {"ward": {"in": ["north", "south"]}}
    gate = noisegate.open(rows, epsilon=1, unit="pid", rows_per_unit=3, columns=facts)
    sql = "SELECT COUNT(*) FROM data GROUP BY ward"
    question = read(sql, gate.tables)
    found = grid_of(question, sql, Terms())
    assert found.moved * found.grain == 3
    assert "Capped: 3 rows per person" in found.caveats[0]
    fewer = grid_of(question, sql, Terms(groups_per_unit=1))
    assert fewer.moved * fewer.grain == 3
    units = "SELECT COUNT(DISTINCT pid) FROM data GROUP BY ward"
    once = grid_of(read(units, gate.tables), units, Terms(groups_per_unit=2))
    assert once.moved * once.grain == 2


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT COUNT(*) FROM rows", "group-by"),
        ("SELECT COUNT(*), SUM(age) FROM rows GROUP BY ward", "aggregate"),
        ("SELECT AVG(age) FROM rows GROUP BY ward", "aggregate"),
        ("SELECT COUNT(*) FROM rows GROUP BY town", "groups"),
        ("SELECT COUNT(*) FROM rows GROUP BY ROLLUP (ward, age)", "grouping"),
        ("SELECT ward, COUNT(*) AS n FROM rows GROUP BY ward HAVING n > 1", "select SELECT"),
        ("SELECT ward, COUNT(*) FROM rows GROUP BY ward ORDER BY 2 LIMIT 1", "select SELECT"),
        ("EXPLAIN SELECT COUNT(*) FROM rows GROUP BY ward", "select SELECT"),
        ("SELECT COUNT(*) FROM rows GROUP BY BIN(age, 0)", "width"),
        (
            "SELECT COUNT(*) FROM rows GROUP BY age, BIN(cost, 0.02), DATE_TRUNC('day', day)",
            "cells",
        ),
    ],
)
def test_what_is_no_grid_is_refused_with_a_way_out(grid, sql, words):
    with pytest.raises(Unsupported, check=listed(words)) as refused:
        grid(sql)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "no-column"),
        ({"x": 1}, "column 'x'"),
        ({"age": 0}, "bins"),
        ({"age": -5}, "bins"),
        ({"age": True}, "width"),
        ({"age": {}}, "width"),
        ({"age": "wide"}, "number bin width"),
        ({"age": [0, 10, 10, 20]}, "bins"),
        ({"age": [0, 20, 10]}, "bins"),
        ({"age": [5]}, "bins"),
        ({"age": [0, 50, 150, 200]}, "outside"),
        ({"age": [200, 300]}, "outside"),
        ({"age": [-20, -10]}, "outside"),
        ({"age": [-20, 0, 50]}, "outside"),
        ({"cost": None}, "groups"),
        ({"cost": 1e-9}, "many-bins 100,000,000,001.*10,000"),
        ({"day": 5}, "time"),
        ({"day": "minute"}, "time"),
        ({"day": ["2024-01-01", "2024-02-01"]}, "time"),
        ({"town": [0, 1]}, "bounds"),
        ({"town": None}, "groups"),
    ],
)
def test_bins_that_are_none_are_refused(by_columns, columns, words):
    with pytest.raises(NoisegateError, check=listed(words)) as refused:
        by_columns(columns)
    assert refused.value.fix


BINS = Axis(
    name="age", keys=(0, 5, 10, None), ends=(5, 10, 15), whole=True, low=Fraction(2),
    high=Fraction(12),
)  # fmt: skip
WARDS = Axis(name="ward", keys=("north", "south", "west"))
DAYS = Axis(name="day", keys=tuple(date(2024, 1, d) for d in (1, 8, 15)))
MONTHS = Axis(name="month", keys=tuple(date(2024, m, 1) for m in (1, 2, 3)), periods=True)

HOURS = Axis(name="hour", keys=tuple(datetime(2024, 1, 1, h) for h in (8, 9, 10)), periods=True)  # noqa: DTZ001 - as in tables


@pytest.mark.parametrize(
    ("axis", "asked", "runs"),
    [
        (BINS, (5, 9), [(1, 1)]),
        (BINS, (0, 9), [(0, 1)]),
        (BINS, (2, 12), [(0, 2)]),  # the declared bounds are all there is
        (BINS, (None, 9), [(0, 1)]),
        (BINS, (5, None), [(1, 2)]),
        (BINS, (-100, 1e6), [(0, 2)]),
        (BINS, None, [(3, 3)]),
        (BINS, 10, [(2, 2)]),
        (BINS, [0, 10, None], [(0, 0), (2, 3)]),
        (WARDS, ["west", "south"], [(1, 2)]),
        (DAYS, (date(2024, 1, 2), date(2024, 1, 15)), [(1, 2)]),
        (DAYS, date(2024, 1, 8), [(1, 1)]),
        (DAYS, "2024-01-08", [(1, 1)]),
        (DAYS, datetime(2024, 1, 8), [(1, 1)]),  # noqa: DTZ001 - as in tables
        (MONTHS, ("2024-01-01", "2024-02-29"), [(0, 1)]),
        (MONTHS, ("2024-02-01", "2024-02-01"), [(1, 1)]),
        (MONTHS, ("2023-12-24", "2024-01-31"), [(0, 0)]),
        (MONTHS, (None, "2030-01-01"), [(0, 2)]),
        (HOURS, ("2024-01-01 08:00", "2024-01-01 09:00"), [(0, 1)]),
        (HOURS, ("2024-01-01 09:00", "2024-01-01 09:59"), [(1, 1)]),
        (HOURS, ("2024-01-01 07:30", "2024-01-01 09:59:59.999999"), [(0, 1)]),
        (HOURS, (None, "2024-01-01 10:30"), [(0, 2)]),
        (DAYS, ("2024-01-02", None), [(1, 2)]),
        (BINS, np.array([0, 5]), [(0, 1)]),
        (BINS, range(0, 15, 5), [(0, 2)]),
    ],
)
def test_a_key_a_list_or_a_range_says_which_cells_are_meant(axis, asked, runs):
    assert axis.runs(asked) == runs


@pytest.mark.parametrize(
    ("axis", "asked", "words"),
    [
        (BINS, (5, 8), "bin"),
        (BINS, (3, 9), "bin"),
        (BINS, (10, 4), "empty"),
        (BINS, (100, 200), "beyond 100"),
        (BINS, (-9, -3), "beyond -3"),
        (DAYS, ("2025-01-01", None), "empty '2024-01-01'"),
        (DAYS, "8 January", "key '8 January'"),
        (DAYS, datetime(2024, 1, 8, 12), "key"),  # noqa: DTZ001 - as in tables
        (MONTHS, ("2024-01-01", "2024-02-15"), "period 2024-02-15"),
        (MONTHS, ("2024-01-15", None), "period 2024-01-15"),
        (MONTHS, ("2024-03-15", None), "empty 'month'"),
        (HOURS, ("2024-01-01 08:30", None), "period 2024-01-01 08:30:00"),
        (HOURS, (None, "2024-01-01 08:59:30"), "period 2024-01-01 08:59:30"),
        (BINS, (1, 2, 3), "pair"),
        (BINS, 7, "key"),
        (BINS, [], "no-key"),
        (WARDS, ("north", "south"), "order"),
        (WARDS, "east", "key 'east'"),
        (DAYS, (1, 2), "type"),
    ],
)
def test_what_is_no_set_of_cells_is_refused(axis, asked, words):
    with pytest.raises(SpecError, check=listed(words)):
        axis.runs(asked)


@pytest.mark.parametrize(
    ("axis", "run", "said"),
    [
        (BINS, (0, 0), "0–4"),
        (BINS, (1, 2), "5–14"),
        (BINS, (1, 3), "5–14, (none)"),
        (BINS, (2, 3), "10–14, (none)"),
        (BINS, (3, 3), "(none)"),
        (replace(BINS, whole=False), (0, 1), "0 to 10"),
        (WARDS, (1, 2), "south, west"),
        (DAYS, (0, 2), "2024-01-01 to 2024-01-15"),
    ],
)
def test_keys_side_by_side_are_said_as_one_range(axis, run, said):
    assert axis.span(*run) == said


@pytest.mark.parametrize(
    "axis",
    [
        BINS,
        WARDS,
        DAYS,
        MONTHS,
        HOURS,
        Axis(name="x", keys=(Fraction(1, 2), 1), ends=(1, Fraction(3, 2))),
    ],
)
def test_an_axis_is_read_as_it_was_written(axis):
    assert Axis.from_record(axis.to_record()) == axis
