"""Box plots and distribution functions: ranks and bands that hold, asked once."""

from datetime import date, datetime, timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.csv import write_csv
from typer.testing import CliRunner

import noisegate
from noisegate.cli import app
from noisegate.errors import NoisegateError
from noisegate.releases.forms.boxplots import BoxplotRelease
from refusals import about

FACTS = {
    "age": {"between": [0, 99]},
    "cost": {"between": [0, 10]},
    "ward": {"in": ["north", "south"]},
    "day": {"between": [date(2024, 1, 1), date(2024, 3, 31)]},
}


def rows(count=2000, seed=1):
    rng = np.random.default_rng(seed)
    days = [date(2024, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 91, count)]
    return pa.table({
        "age": rng.integers(0, 80, count),
        "cost": rng.random(count) * 10,
        "ward": rng.choice(["north", "south"], count),
        "day": pa.array(days, pa.date32()),
    })  # fmt: skip


def gate_of(data=None, **more):
    data = rows() if data is None else data
    return noisegate.open(data, epsilon=20, table="visits", columns=FACTS, **more)


def test_a_box_plot_is_five_quantiles_of_each_group_within_its_ranks():
    """At ranks that hold with 1 - 1e-9."""
    gate, data = gate_of(), rows()
    found = gate.release("boxplot", columns={"age": None, "ward": None}, epsilon=2)
    assert [box.group for box in found.boxes] == [("north",), ("south",)]
    ranks = found.rank_error(1 - Fraction(1, 10**9))
    for box in found.boxes:
        ages = np.array(data.filter(pa.compute.equal(data["ward"], box.group[0]))["age"])
        five = (box.low, box.lower, box.middle, box.upper, box.high)
        for level, value in zip((0.05, 0.25, 0.5, 0.75, 0.95), five, strict=True):
            assert np.sum(ages < value) <= level * ages.size + ranks
            assert np.sum(ages <= value) >= level * ages.size - ranks


def test_a_box_plot_is_drawn_once_and_has_a_free_plan(tmp_path):
    gate, ask = gate_of(), {"columns": {"cost": None}, "epsilon": 1, "whiskers": 0.1}
    assert gate.release_plan("boxplot", **ask).price.epsilon == 1
    first = gate.release("boxplot", **ask)
    again = gate.release("boxplot", **ask)
    assert again.free
    assert again.boxes == first.boxes
    assert gate.spent.epsilon == 1
    told = again.to_dict()
    assert told["rank_error"] == again.rank_error() > again.rank_error(0.5)
    assert told["rank_error_even"] == again.rank_error(even=True) < again.rank_error() / 2
    assert f"± {again.rank_error(even=True)} where values lie evenly" in repr(again)
    spoken = [line for line in str(again).splitlines() if "rank" in line]
    assert [line.count("±") for line in spoken] == [3, 3]  # all five; middle, quartiles, whiskers
    first.save(tmp_path / "b.json")
    first.save(tmp_path / "b.parquet")
    assert "1 box of cost" in repr(first)


def test_the_picture_of_a_box_plot_has_its_boxes(tmp_path):
    pytest.importorskip("altair")
    found = gate_of().release("boxplot", columns={"age": None, "ward": None}, epsilon=1)
    spec = found.plot(title="Ages").to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rule", "bar", "tick", "rule"]
    assert found.plot().to_dict() != found.plot(0.999).to_dict()


@pytest.mark.parametrize("column", ["age", "cost", "day"])
def test_the_margin_of_a_median_is_drawn_within_the_declared_bounds(column):
    pytest.importorskip("altair")
    found = gate_of(rows(40)).release("boxplot", columns={column: None, "ward": None}, epsilon=0.01)
    spec = found.plot(0.99).to_dict()
    low, high = FACTS[column]["between"]
    if column == "day":
        low, high = low.isoformat(), high.isoformat()
    (drawn,) = spec["datasets"].values()
    assert all(low <= row["least"] <= row["middle"] <= row["most"] <= high for row in drawn)
    assert any(row["least"] == low or row["most"] == high for row in drawn)
    assert spec["layer"][0]["encoding"]["y"]["scale"].get("zero", False) is False


def test_a_box_plot_has_a_margin_in_values_also_from_its_file(tmp_path):
    data = rows(3000)
    gate = gate_of(data)
    found = gate.release("boxplot", columns={"age": None}, epsilon=20)
    found.save(tmp_path / "b.parquet")
    read = BoxplotRelease.load(tmp_path / "b.parquet")
    ages = np.array(data["age"])
    names = ("low", "lower", "middle", "upper", "high")
    for name, level in zip(names, (5, 25, 50, 75, 95), strict=True):
        exact = np.quantile(ages, level / 100)
        (width,) = found.held.margins(0.999)[name]
        assert abs(getattr(found.boxes[0], name) - exact) <= width <= 4
        assert read.held.margins(0.999)[name] == (width,)
        assert read.held.margins(0.95)[name] == found.held.margins(0.95)[name]
    assert read.held.margins(0.99999)["middle"] is None
    assert gate.spent.epsilon == 20


def truth(data, points):
    ages = np.array(data["age"])
    return np.array([np.mean(ages <= point) for point in points])


def test_the_band_holds_the_exact_function_everywhere_as_often_as_it_says():
    """Of 20 bands at 90 %, more than 13 miss less than once in 10^9 if each misses at most 1/10."""
    data, missed = rows(300), 0
    gate = gate_of(data)
    for _ in range(20):
        found = gate.release("cdf", columns={"age": 10}, epsilon=1, fresh=True)
        low, high = found.band(0.9)
        exact = truth(data, found.points)
        missed += bool(np.any((exact < low) | (exact > high)))
        assert np.all(low <= found.values + 1e-9)
        assert np.all(found.values <= high + 1e-9)
        assert (low[-1], found.values[-1], high[-1]) == (1, 1, 1)
    assert missed <= 13
    assert gate.spent.epsilon == 20


def test_a_distribution_function_rises_to_one_and_gives_quantiles_with_ends():
    data = rows()
    gate = gate_of(data)
    found = gate.release("cdf", columns={"age": 5}, epsilon=5)
    assert gate.release_plan("cdf", columns={"age": 5}, epsilon=5).price.epsilon == 0
    assert found.points[:2] == (4, 9)
    assert np.all(np.diff(found.values) >= 0)
    assert found.values[-1] == 1
    value, low, high = found.quantile("0.5", 1 - Fraction(1, 10**9))
    shares = zip(found.points, truth(data, found.points), strict=True)
    exact = next(point for point, share in shares if share >= 0.5)
    assert low <= exact <= high
    assert low <= value <= high
    share, least, most = found.at(39)
    assert least <= share <= most
    assert gate.release("cdf", columns={"age": 5}, epsilon=5).free


def test_a_band_narrows_with_what_is_paid_and_no_rows_leave_it_open():
    gate = gate_of()
    widths = []
    for epsilon in (Fraction(1, 10), 10):
        low, high = gate.release("cdf", columns={"age": 5}, epsilon=epsilon).band()
        widths.append(np.mean(high - low))
    assert widths[1] < widths[0] / 5
    empty = gate_of(rows(0)).release("cdf", columns={"age": 5}, epsilon=1)
    low, high = empty.band()
    assert (low[0], high[0]) == (0, 1)
    assert np.all(np.isfinite(empty.values))


def test_dates_have_distribution_functions_and_files(tmp_path):
    found = gate_of().release("cdf", columns={"day": "month"}, epsilon=5)
    assert len(found.points) == 3
    assert found.quantile(1)[0] == found.points[-1]
    found.save(tmp_path / "c.json")
    found.save(tmp_path / "c.csv")
    table = found.to_arrow()
    assert table.column_names == ["day", "share", "low", "high"]
    pytest.importorskip("altair")
    assert len(found.plot().to_dict()["layer"]) == 2


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("boxplot", {"columns": {"ward": None}}),
        ("boxplot", {"columns": {"weight": None}}),
        ("boxplot", {"columns": {}}),
        ("boxplot", {"columns": {"age": None}, "whiskers": 0.3}),
        ("boxplot", {"columns": {"age": None}, "whiskers": -1}),
        ("boxplot", {"columns": {"age": None}, "epsilon": -1}),
        ("boxplot", {"columns": {"age": None}, "table": "nowhere"}),
        ("boxplot", {"columns": {"age": None}, "points": 3}),
        ("boxplot", {}),
        ("cdf", {"columns": {"ward": None}}),
        ("cdf", {"columns": {"age": 5, "day": "month"}}),
        ("cdf", {"columns": {"age": 0}}),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_charge(name, ask):
    gate = gate_of()
    with pytest.raises(NoisegateError):
        gate.release(name, **({"epsilon": 1} | ask))
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(("name", "columns"), [("boxplot", "age,ward"), ("cdf", "age=10")])
def test_they_are_released_at_the_command_line(name, columns, tmp_path):
    write_csv(rows(200), tmp_path / "visits.csv")
    asked = [
        "release", name, str(tmp_path / "visits.csv"), "--columns", columns, "--budget", "2",
        "--epsilon", "1", "--between", "age=0,99", "--keys", "ward=north,south",
        "--save", str(tmp_path / "out.parquet"), "--save", str(tmp_path / "out.json"),
    ]  # fmt: skip
    for form in ([], ["--csv"], ["--json"], ["--plan"]):
        done = CliRunner().invoke(app, [*asked, *form])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "out.parquet").exists()


def test_a_timestamp_with_bounds_is_refused_as_a_timestamp():
    first, last = (datetime.fromisoformat(each) for each in ("2024-01-01", "2024-03-31"))
    at = pa.array([first] * 9, pa.timestamp("us"))
    known = {"at": {"between": [first, last]}}
    gate = noisegate.open(pa.table({"at": at}), epsilon=9, columns=known, table="data")
    with pytest.raises(NoisegateError, check=about("timestamp")) as refused:
        gate.release("boxplot", columns={"at": None}, epsilon=1)
    assert "Declare" not in refused.value.fix  # its bounds are declared
    assert gate.sql("SELECT MEDIAN(at) AS m FROM data", epsilon=1).rows
