"""What all releases share: what they are saved as is known before paying, and can be read again."""

import json
from datetime import date
from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run

import noisegate
from noisegate.desk.release import _SEAL, ENDINGS, _sealed_facts
from noisegate.errors import SpecError
from noisegate.releases.forms.boxplots import BoxplotRelease
from noisegate.releases.forms.cdf import CdfRelease
from noisegate.releases.forms.cube import CubeRelease
from noisegate.releases.forms.running import SeriesRelease
from noisegate.releases.forms.table import TableRelease
from noisegate.releases.sparse.summary import SparseRelease
from noisegate.releases.thresholds.above import AboveRelease
from refusals import about

DAYS = [date(2026, 1, day) for day in range(1, 9)]
ROWS = pa.table({
    "age": [7 * i % 100 for i in range(200)],
    "lon": [i % 10 for i in range(200)],
    "ward": ["north", "south"] * 100,
    "day": DAYS * 25,
})  # fmt: skip
COLUMNS = {
    "age": {"between": [0, 99], "nullable": False},
    "lon": {"between": [0, 9], "nullable": False},
    "ward": {"in": ["north", "south"], "nullable": False},
    "day": {"between": [DAYS[0], DAYS[-1]], "nullable": False},
}
MAPS = {".geojson", ".geoparquet"}
KINDS = [
    ("histogram", {"columns": {"ward": None}}, set(ENDINGS), TableRelease),
    ("map", {"columns": {"age": 50, "lon": 5}}, {*ENDINGS, *MAPS}, TableRelease),
    (
        "table",
        {"columns": {"ward": None, "age": 50, "lon": 5}},
        {*ENDINGS, *MAPS},
        TableRelease,
    ),
    ("cube", {"columns": {"ward": None, "age": 50}}, set(ENDINGS), CubeRelease),
    ("sparse", {"columns": {"age": None, "lon": None}}, {*ENDINGS} - {".json"}, SparseRelease),
    ("boxplot", {"columns": {"age": None, "ward": None}}, set(ENDINGS), BoxplotRelease),
    ("boxplot", {"columns": {"day": None, "ward": None}}, set(ENDINGS), BoxplotRelease),
    ("cdf", {"columns": {"age": 25}}, set(ENDINGS), CdfRelease),
    (
        "series",
        {"columns": {"day": "day"}, "until": DAYS[3], "horizon": 8},
        set(ENDINGS),
        SeriesRelease,
    ),
    (
        "above",
        {"columns": {"ward": None}, "questions": "cells", "threshold": 50},
        set(ENDINGS),
        AboveRelease,
    ),
]


def gate_of(ledger=":memory:"):
    return noisegate.open(
        ROWS, epsilon=50, columns=COLUMNS, table="people", ledger=ledger, snapshot="1"
    )


@pytest.mark.parametrize(("name", "terms", "endings", "kind"), KINDS)
def test_every_release_is_saved_as_it_said_before_it_was_paid_and_read_again(
    tmp_path, name, terms, endings, kind
):
    gate = gate_of()
    assert set(gate.release_plan(name, epsilon=8, **terms).endings) == endings
    assert gate.spent.epsilon == 0
    seen = []
    made = gate.release(name, epsilon=8, progress=lambda part, _: seen.append(part), **terms)
    assert (seen[0], seen[-1], seen) == (0, 1, sorted(seen))
    assert gate.spent.epsilon > 0
    for ending in sorted(endings):
        made.save(tmp_path / f"x{ending}")
        assert (tmp_path / f"x{ending}").stat().st_size > 0
    with pytest.raises(SpecError, check=about("ending")):
        made.save(tmp_path / "x.doc")
    assert (made.free, made.cost, made.guarantee.loss.epsilon) == (False, made.cost, 8)
    assert json.loads(made.to_json())["guarantee"] == made.promise
    assert "adding or removing" in made.promise
    assert made.headline in repr(made)
    assert type(made).__name__ in repr(made)
    assert len(made.card().record["ledger"]) >= 2
    again = gate.release(name, epsilon=8, **terms)
    assert (again.free, str(again).splitlines()[:2]) == (True, str(made).splitlines()[:2])
    loaded = kind.load(tmp_path / "x.parquet")
    assert (loaded.free, loaded.promise, loaded.card()) == (True, made.promise, made.card())
    assert loaded.to_arrow(0.9).equals(made.to_arrow(0.9))
    loaded.save(tmp_path / "y.csv")
    assert (tmp_path / "x.csv").read_bytes() == (tmp_path / "y.csv").read_bytes()
    with pytest.raises(SpecError, check=about("kind")):
        kind.load(tmp_path / "x.csv")


@pytest.mark.filterwarnings("ignore:.*earlier version of noisegate")  # without the seal's name
def test_a_file_with_a_wrong_byte_is_refused_or_says_the_same(tmp_path):
    made = gate_of().release("histogram", columns={"ward": None}, epsilon=8)
    file = tmp_path / "x.parquet"
    made.save(file)
    whole = file.read_bytes()
    refused = 0
    for place in range(0, len(whole), 97):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            found = TableRelease.load(file)
        except SpecError:
            refused += 1
        else:
            assert found.to_arrow(0.9).equals(made.to_arrow(0.9))
            assert found.card() == made.card()
    assert refused > 0.4 * len(whole) / 97  # the schema is there twice, and read once


@pytest.mark.parametrize(("name", "terms", "kind"), [(k[0], k[1], k[3]) for k in KINDS])
def test_a_file_with_fewer_rows_or_other_words_is_refused(tmp_path, name, terms, kind):
    made = gate_of().release(name, epsilon=8, **terms)
    made.save(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    pq.write_table(table.slice(1), tmp_path / "fewer.parquet")
    facts = dict(table.schema.metadata)
    facts[b"noisegate.card"] = facts[b"noisegate.card"].replace(
        b'"sql": "SELECT', b'"sql": "select'
    )
    pq.write_table(table.replace_schema_metadata(facts), tmp_path / "said.parquet")
    for file in ("fewer.parquet", "said.parquet"):
        with pytest.raises(SpecError, check=about("changed"), match=f"'{file}'"):
            kind.load(tmp_path / file)


def other_values(column):
    """The column with its first value changed, of the same type."""
    first, *rest = column.to_pylist()
    if isinstance(first, bool):
        first = not first
    elif isinstance(first, str):
        first += "x"
    else:
        first = first + 1 if isinstance(first, int | float) else first.replace(year=2025)
    return pa.array([first, *rest], column.type)


@pytest.mark.parametrize(("name", "terms", "kind"), [(k[0], k[1], k[3]) for k in KINDS])
def test_a_file_with_another_number_is_refused(tmp_path, name, terms, kind):
    """Written as whole as any, with all its facts, by whoever meant to tidy it up."""
    made = gate_of().release(name, epsilon=8, **terms)
    made.save(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    pq.write_table(table, tmp_path / "same.parquet", row_group_size=1, compression="zstd")
    assert kind.load(tmp_path / "same.parquet").to_arrow(0.9).equals(made.to_arrow(0.9))
    for place, column in enumerate(table.columns):
        if column.null_count < len(column):
            edited = table.set_column(place, table.field(place), other_values(column))
            pq.write_table(edited, tmp_path / "edited.parquet")
            with pytest.raises(SpecError, check=about("changed")):
                kind.load(tmp_path / "edited.parquet")
    gone = pa.nulls(len(table), table.column(0).type)
    pq.write_table(table.set_column(0, table.field(0), gone), tmp_path / "gone.parquet")
    with pytest.raises(SpecError, check=about("changed")):
        kind.load(tmp_path / "gone.parquet")


def test_a_file_of_an_earlier_version_is_read_with_a_warning(tmp_path):
    made = gate_of().release("histogram", columns={"ward": None}, epsilon=8)
    made.save(tmp_path / "x.parquet")
    table = pq.read_table(tmp_path / "x.parquet")
    facts = {name.decode(): text for name, text in table.schema.metadata.items()}
    unsealed = {name: text for name, text in facts.items() if name != _SEAL}
    for older in (unsealed | {_SEAL: _sealed_facts(table, facts)}, unsealed):
        pq.write_table(table.replace_schema_metadata(older), tmp_path / "older.parquet")
        with pytest.warns(UserWarning, match="saved by an earlier version of noisegate") as told:
            found = TableRelease.load(tmp_path / "older.parquet")
        assert found.to_arrow().equals(made.to_arrow())
        assert told[0].filename == __file__
    for seal in ("0" * 64, "", "2 "):
        wrong = facts | {_SEAL: seal}
        pq.write_table(table.replace_schema_metadata(wrong), tmp_path / "wrong.parquet")
        with pytest.raises(SpecError, check=about("changed")):
            TableRelease.load(tmp_path / "wrong.parquet")


def test_a_loaded_box_plot_and_distribution_function_say_what_they_said(tmp_path):
    gate = gate_of()
    boxes = gate.release("boxplot", columns={"age": None, "ward": None}, epsilon=8)
    boxes.save(tmp_path / "boxes.parquet")
    again = BoxplotRelease.load(tmp_path / "boxes.parquet")
    assert (again.boxes, again.rank_error(0.9)) == (boxes.boxes, boxes.rank_error(0.9))
    assert again.plot().to_dict()["layer"] == boxes.plot().to_dict()["layer"]
    share = gate.release("cdf", columns={"age": 25}, epsilon=8)
    share.save(tmp_path / "share.parquet")
    loaded = CdfRelease.load(tmp_path / "share.parquet")
    assert loaded.quantile(Fraction(1, 2)) == share.quantile(Fraction(1, 2))
    assert loaded.at(49) == share.at(49)


@pytest.mark.parametrize(
    ("name", "columns", "file"),
    [
        ("sparse", "age,lon", "x.json"),
        ("histogram", "age=50", "x.geojson"),
        ("table", "age=50,lon=5,ward", "x.geojson"),
        ("cube", "age=50,ward", "x.geojson"),
        ("histogram", "age=50", "x.doc"),
    ],
)
def test_a_file_that_cannot_be_is_refused_before_any_charge(tmp_path, name, columns, file):
    data, book = tmp_path / "people.parquet", tmp_path / "book"
    pq.write_table(ROWS.drop(["day"]), data)
    command = ("release", name, str(data), "--columns", columns, "--epsilon", "1", "--budget", "3",
               "--between", "age=0,99", "--between", "lon=0,9", "--keys", "ward=north,south",
               "--ledger", str(book))  # fmt: skip
    refused = run(*command, "--save", str(tmp_path / file), code=2)
    assert "unknown file ending" in refused.stderr
    made = json.loads(run(*command, "--save", str(tmp_path / "x.md"), "--json").stdout)
    assert (made["price"], made["remaining"]) == (1, pytest.approx(2))
