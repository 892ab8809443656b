"""A released table in other forms: frames, files, pictures, screens; it never changes."""

import json
from dataclasses import FrozenInstanceError, replace
from datetime import date
from fractions import Fraction
from io import StringIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import noisegate
from noisegate.desk.terms.price import Price
from noisegate.errors import Bug, LedgerError, SpecError
from noisegate.releases.ask.transcript import Told, pack, unpack
from noisegate.releases.cells.estimate import Estimate
from noisegate.releases.forms import picture
from noisegate.releases.forms.geo import map_picture
from noisegate.releases.forms.table import TableRelease
from noisegate.transforms.strategy import Groups
from refusals import about, listed

DAYS = [date(2024, 1 + i % 3, 5) for i in range(300)]
ROWS = {
    "age": [i * 7 % 40 for i in range(300)],
    "ward": ["north", "south", "west"] * 100,
    "cost": [i % 10 / 2 for i in range(300)],
    "day": DAYS,
}
FACTS = {
    "age": {"between": [0, 39]},
    "ward": {"in": ["north", "south", "west"]},
    "cost": {"between": [0, 5], "nullable": False},
    "day": {"between": [date(2024, 1, 1), date(2024, 3, 31)], "nullable": False},
}


@pytest.fixture(scope="module")
def gate():
    return noisegate.open(pa.table(ROWS), epsilon=1000, columns=FACTS, table="visits")


@pytest.fixture(scope="module")
def release(gate):
    sql = "SELECT COUNT(*) AS n FROM visits GROUP BY BIN(age, 10), ward, DATE_TRUNC('month', day)"
    return gate.release("table", sql, epsilon=2, method="cells")


def test_sums_are_asked_by_the_names_of_axes(release):
    cells = release.values
    assert release.shape == (5, 3, 3)
    assert release.query(age=(10, 29), ward="south").value == cells[1:3, 1].sum()
    assert release.query(ward=["north", "west"], age=None).value == cells[4, [0, 2]].sum()
    month = date(2024, 2, 1)
    assert release.query(day=(month, month)).value == cells[:, :, 1].sum()
    assert release.total.value == int(release.total) == cells.sum()
    assert release.query(0.99).margin > release.query(0.5).margin > 0
    assert str(release.query(age=(0, 9))).count("±") == 1
    with pytest.raises(SpecError, check=about("axis"), match="'sex'"):
        release.query(sex="f")


def test_margins_are_those_of_single_cells(release):
    margins = release.margins(0.9)
    assert margins.shape == release.shape
    one = release.query(0.9, age=0, ward="north", day=date(2024, 1, 1))
    assert margins[0, 0, 0] == one.margin


def test_without_a_known_variance_or_a_model_there_is_no_margin_and_it_says_so(release):
    kept = {"estimate": Estimate(release.values.astype(float)), "plausible": None, "covers": []}
    blind = replace(release, making=replace(release.making, _kept=kept))
    assert blind.margins() is None
    assert blind.query(ward="west").margin is None
    assert "No ± is known for n, because the method has changed since" in blind.footer()
    assert str(blind.query()).endswith("± ? because the method has changed since the release")


def test_some_margins_may_be_known_and_others_not(release):
    def variance(lows, highs):
        return np.where(lows[:, 0] == 0, 4.0, np.nan)

    kept = {
        "estimate": Estimate(release.values.astype(float), variance),
        "plausible": None,
        "covers": [],
    }
    partly = replace(release, making=replace(release.making, _kept=kept))
    margins = partly.margins()
    assert np.isfinite(margins[0]).all()
    assert np.isnan(margins[1:]).all()
    assert partly.query(age=(10, 19)).margin is None
    assert partly.to_arrow(0.9)["n_margin"].null_count == release.values.size * 4 // 5


def test_frames_have_a_row_for_each_cell_the_last_axis_fastest(release):
    table = release.to_arrow(0.95)
    assert table.column_names == ["age", "ward", "day", "n", "n_margin"]
    assert table["n"].to_pylist() == release.values.reshape(-1).tolist()
    assert table["age"].to_pylist()[:9] == [0] * 9
    assert table["age"].to_pylist()[-1] is None
    assert release.to_pandas()["ward"].tolist()[:4] == ["north"] * 3 + ["south"]
    assert release.to_polars()["n"].to_list() == table["n"].to_pylist()
    assert release.to_numpy().tolist() == release.values.tolist()
    assert release.to_csv().splitlines()[0] == "age,ward,day,n,n_margin"
    record = json.loads(release.to_json())
    assert (record["method"], record["shape"]) == (release.method, [5, 3, 3])
    assert record["rows"][0][:3] == [0, "north", "2024-01-01"]


def test_a_release_cannot_be_changed(release):
    with pytest.raises(FrozenInstanceError):
        release.values = None
    with pytest.raises(ValueError, match="read-only"):
        release.values[0] = 1
    copy = release.to_numpy()
    copy[:] = -1
    assert release.values.min() >= 0


def test_a_saved_release_is_read_without_a_gate_with_its_errors_and_card(release, tmp_path):
    release.save(tmp_path / "r.parquet")
    read = TableRelease.load(tmp_path / "r.parquet")
    assert read.values.tolist() == release.values.tolist()
    assert read.axes == release.axes
    assert read.query(age=(10, 29)) == release.query(age=(10, 29))
    assert read.margins().tolist() == release.margins().tolist()
    assert read.card().record == release.card().record
    assert (str(read.guarantee), read.remaining, read.free) == (str(release.guarantee), None, True)
    assert "left" not in read.footer()
    read.save(tmp_path / "again.parquet")
    assert TableRelease.load(tmp_path / "again.parquet").to_arrow().equals(release.to_arrow())


def test_a_release_of_numbers_is_read_as_it_was_saved(gate, tmp_path):
    made = gate.release("cells", "SELECT SUM(cost) FROM visits GROUP BY BIN(cost, 0.5)", epsilon=1)
    made.save(tmp_path / "r.parquet")
    read = TableRelease.load(tmp_path / "r.parquet")
    assert read.values.tolist() == made.values.tolist()
    assert read.query(cost=(1, 2.5)) == made.query(cost=(1, 2.5))


def test_files_that_are_no_release_or_were_changed_are_refused(release, tmp_path):
    file = tmp_path / "r.parquet"
    release.save(file)
    table = pq.read_table(file)
    pq.write_table(table.take(list(range(table.num_rows))[::-1]), tmp_path / "turned.parquet")
    pq.write_table(table.replace_schema_metadata({}), tmp_path / "bare.parquet")
    (tmp_path / "text.parquet").write_text("no")
    for name, words in (("turned", "changed"), ("bare", "kind"), ("text", "kind"),
                        ("missing", "kind")):  # fmt: skip
        with pytest.raises(SpecError, check=listed(words)):
            TableRelease.load(tmp_path / f"{name}.parquet")
    with pytest.raises(SpecError, check=about("ending")):
        release.save(tmp_path / "r.xyz")


def test_every_ending_is_written(gate, tmp_path):
    made = gate.release("histogram", columns={"ward": None}, epsilon=1, method="cells")
    for ending in ("csv", "json", "md", "svg", "html", "png"):
        made.save(tmp_path / f"r.{ending}")
        assert (tmp_path / f"r.{ending}").stat().st_size > 50


def points(drawn):
    sets = drawn.get("datasets")
    found = next(iter(sets.values())) if sets else drawn["data"]["values"]
    return json.loads(found) if isinstance(found, str) else found


def test_a_map_is_saved_for_atlases(gate, tmp_path):
    made = gate.release("map", columns={"age": 20, "cost": 2.5}, epsilon=1, method="cells")
    made.save(tmp_path / "r.geojson")
    made.save(tmp_path / "r.geoparquet")
    assert b"geo" in pq.read_schema(tmp_path / "r.geoparquet").metadata
    found = json.loads((tmp_path / "r.geojson").read_text())
    assert found["type"] == "FeatureCollection"
    assert len(found["features"]) == 4  # a cost of 5, the bound, is in the boxes that end there
    assert found["bbox"] == [0, 0, 5, 40]
    assert sum(each["properties"]["count"] for each in found["features"]) == made.total.value


def test_pictures_are_bars_lines_or_a_heat_map(gate, release):
    bars = (
        gate.release("histogram", columns={"age": 10}, epsilon=1, method="cells").plot().to_dict()
    )
    assert {each["x"] for each in points(bars)} == {
        "0–9", "10–19", "20–29", "30–39", "(none)",
    }  # fmt: skip
    series = (
        gate.release("series", columns={"day": "month"}, epsilon=1, method="cells").plot().to_dict()
    )
    running, each = (series["datasets"][part["data"]["name"]] for part in series["concat"])
    assert [point["y"] for point in running] == np.cumsum([point["y"] for point in each]).tolist()
    assert "running total" in series["concat"][0]["layer"][0]["encoding"]["y"]["title"]
    assert each[0]["x"] == "2024-01-01T00:00:00"
    square = (
        gate.release("map", columns={"age": 1, "cost": 0.5}, epsilon=1, method="cells")
        .plot()
        .to_dict()
    )
    assert len(points(square)) == 40 * 11
    point = points(square)[0]
    assert (point["x"], point["x2"], point["y"], point["y2"]) == (0, 1, 0, 0.5)
    assert len(points(release.plot(x="ward").to_dict())) == 3
    two = points(release.plot(x="ward", y="age").to_dict())
    assert sum(each["n"] for each in two) == release.query(age=(0, 39)).value
    every = release.plot().to_dict()
    parts = [every["datasets"][each["data"]["name"]] for each in every["concat"]]
    assert [len(each) for each in parts] == [axis.size for axis in release.axes]
    assert {sum(point["y"] for point in each) for each in parts} == {release.total.value}
    with pytest.raises(SpecError, check=about("axis")):
        release.plot(x="sex")


def test_few_squares_have_numbers_and_all_have_their_margin(gate, release):
    spec = release.plot(x="ward", y="age").to_dict()
    assert [each["mark"]["type"] for each in spec["layer"]] == ["rect", "text"]
    held = {(each["x"], each["y"]): each for each in points(spec)}
    for ward, age, low in [("north", (10, 19), 10), ("south", (30, 39), 30)]:
        number = release.query(ward=ward, age=age)
        assert (held[ward, low]["n"], held[ward, low]["off"]) == (number.value, number.margin)
    offs = sorted(each["off"] for each in held.values())
    said = f"{offs[0]:g} to {offs[-1]:g}" if offs[0] < offs[-1] else f"{offs[0]:g}"
    assert f"Each number is ± {said} at 95% confidence." in " ".join(spec["title"]["subtitle"])
    many = gate.release("map", columns={"age": 1, "cost": 0.5}, epsilon=1, method="cells").plot()
    assert many.to_dict()["mark"]["type"] == "rect"


def test_negative_sums_have_two_colours_around_zero(gate):
    sql = "SELECT SUM(age - 35) AS s FROM visits GROUP BY ward, DATE_TRUNC('month', day)"
    made = gate.release("table", sql, epsilon=500, method="cells")
    assert made.values.min() < 0
    scale = made.plot().to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert scale == {"scheme": "blueorange", "domainMid": 0}


def test_rows_without_a_value_are_told_and_years_have_no_comma():
    rows = pa.table({"year": [2001, None, 1990] * 9, "size": [12_000, 70_000, None] * 9})
    columns = {"year": {"between": [1980, 2019]}, "size": {"between": [0, 99_999]}}
    gate = noisegate.open(rows, table="rows", epsilon=9, columns=columns, ledger=":memory:")
    made = gate.release("histogram", columns={"year": 10, "size": 10_000}, epsilon=1)
    spec = made.plot(x="year", y="size").to_dict()
    assert "Rows without year or size are not drawn." in " ".join(spec["title"]["subtitle"])
    sides = spec["layer"][0]["encoding"]
    assert sides["x"]["axis"] == {"format": "~f", "tickMinStep": 1}
    assert sides["y"]["axis"] == {}
    whole = gate.release("histogram", columns={"year": 10}, where="size > 0", epsilon=1)
    assert "not drawn" not in " ".join(whole.plot().to_dict()["title"]["subtitle"])


def test_degrees_are_drawn_as_a_map_whatever_comes_first():
    rows = pa.table({"lat": [60.5] * 9, "lon": [5.5] * 9})
    columns = {"lat": {"between": [60, 62]}, "lon": {"between": [4, 8]}}
    gate = noisegate.open(rows, table="rows", epsilon=9, columns=columns, ledger=":memory:")
    made = gate.release("map", columns={"lat": 0.25, "lon": 0.5}, epsilon=1, method="cells")
    spec = made.plot().to_dict()
    sides = spec["layer"][0]["encoding"]
    assert (sides["x"]["title"], sides["y"]["title"]) == ("lon", "lat")
    # at 61.1° a degree to the east is 0.48 of one to the north: 4.5 are as wide as 2.17
    assert spec["height"] / spec["width"] == pytest.approx(2.25 / 2.17, rel=0.05)
    assert map_picture(made).to_dict()["height"] == pytest.approx(480 * 2.25 / 2.17, rel=0.01)


def test_very_long_axes_are_drawn_in_larger_steps(gate, monkeypatch):
    monkeypatch.setattr(picture, "_POINTS_MAX", 7)
    made = gate.release("series", columns={"age": 1}, epsilon=1, method="cells")
    spec = made.plot().to_dict()
    running, each = (spec["datasets"][part["data"]["name"]] for part in spec["concat"])
    assert [point["x"] for point in each] == [0, 6, 12, 18, 24, 30, 36]
    sums = [made.query(age=(low, min(low + 5, 39))) for low in range(0, 40, 6)]
    assert [(point["y"], point["off"]) for point in each] == [(n.value, n.margin) for n in sums]
    assert running[-1] == running[-1] | {"x": 39, "y": sum(n.value for n in sums)}
    assert "in 6 cells" in spec["concat"][1]["layer"][0]["encoding"]["y"]["title"]


def test_large_maps_are_drawn_in_larger_squares(gate, monkeypatch):
    monkeypatch.setattr(picture, "_SQUARES_MAX", 10)
    made = gate.release("map", columns={"age": 2, "cost": 0.25}, epsilon=1, method="cells")
    drawn = made.plot().to_dict()
    assert made.shape == (20, 21)
    assert len(points(drawn)) == 10 * 7
    assert sum(each["n"] for each in points(drawn)) == made.total.value
    assert "2 × 3 cells" in " ".join(drawn["title"]["subtitle"])


def test_it_shows_itself_on_screens(release):
    console = Console(record=True, width=120, file=StringIO())
    console.print(release)
    text = console.export_text()
    assert "10–19" in text
    assert "5 × 3 × 3 cells by" in text
    assert release.guarantee.unit.noun in text
    assert "<table" in release._repr_html_()
    assert "5 × 3 × 3 cells by" in release._repr_html_()
    assert "more cells" not in str(release)
    assert "visits" in release.promise
    assert repr(release).startswith("<TableRelease: 5 × 3 × 3 cells by 'cells'")


def test_a_transcript_is_read_as_it_was_written():
    rounds = (
        (np.arange(5), np.array([-(2**62), 2**62])),
        (np.array([[1, 2]], np.int64),),
    )
    record, (numbers,), found = unpack(pack({"a": "ü"}, [np.array([0.5])], rounds))
    assert (record, numbers.tolist()) == ({"a": "ü"}, [0.5])
    assert [[each.tolist() for each in told] for told in found] == [
        [each.tolist() for each in told] for told in rounds
    ]
    with pytest.raises(LedgerError, check=about("stored")):
        unpack(b"\x03\0\0\0\0\0\0\0{}")


def test_numbers_of_a_recipe_that_has_changed_stay_and_their_margins_are_not_known(release):
    other = replace(release.making, method="haar", _kept={})
    changed = replace(release, making=replace(other, rounds=other.rounds * 0))
    assert changed.query().value == release.query().value
    assert changed.query().margin is None


def test_a_recipe_cannot_ask_a_transcript_for_more():
    told = Told(Price(amount=1, gaussian=False), shape=(2,), moved=1)
    with pytest.raises(Bug):
        told.sums([Groups(np.array([0, 0], np.int32), 1)], [Fraction(1)])
