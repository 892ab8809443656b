"""Releases under a contribution bound say that it leaves some out: their counts are lower bounds."""

import json

import duckdb
import pyarrow as pa
import pytest

import noisegate

CAP = 5
UNITS = 320
PRICE = 100  # noise of at most 8 with probability 1 - 10^-30: what is lost is the bound's alone

POLICY = """
name = "visits"
source = "visits.duckdb"
protects = "person"

[budget]
accountant = "{accountant}"
epsilon = 20_000
{delta}

[tables.visits]
unit = "person"
rows_per_unit = {cap}
{holds}

[tables.visits.columns]
person = {{ type = "integer" }}
ward = {{ in = ["a", "b", "c"] }}
x = {{ type = "integer", between = [0, 40] }}
y = {{ type = "integer", between = [0, 40] }}
"""

COLUMNS = {"ward": None}
PLANE = {"x": 10, "y": 10}
ORDERS = [
    ("histogram", {"columns": COLUMNS}),
    ("table", {"columns": {"ward": None, "x": 10}}),
    ("histogram", {"columns": {"x": 5}, "method": "tree"}),
    ("map", {"columns": PLANE}),
    ("cube", {"columns": {"ward": None, "x": 10, "y": 10}, "sets": 2}),
    ("sparse", {"columns": {"x": None, "ward": None}}),
    ("series", {"columns": {"x": 10}, "until": 39}),
]


def opened(where, *, accountant="pure", cap=CAP, holds=False):
    """A table of units with 1 to 40 rows each, under a policy."""
    with duckdb.connect(str(where / "visits.duckdb")) as made:
        made.execute(
            "CREATE OR REPLACE TABLE visits AS SELECT person, substr('abc', 1 + (person + n) % 3, 1)"
            " AS ward, (person + n) % 41 AS x, (person * n) % 41 AS y"
            f" FROM range({UNITS}) AS u(person), range(40) AS r(n) WHERE n <= person % 40"
        )
    delta = "" if accountant == "pure" else "delta = 1e-6"
    said = "rows_per_unit_holds = true" if holds else ""
    policy = where / "policy.toml"
    policy.write_text(POLICY.format(accountant=accountant, delta=delta, cap=cap, holds=said))
    return noisegate.open(policy, ledger=":memory:")


ROWS = sum(1 + person % 40 for person in range(UNITS))
KEPT = sum(min(CAP, 1 + person % 40) for person in range(UNITS))


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(("name", "more"), ORDERS)
def test_a_release_under_a_bound_says_that_it_is_below_the_table(tmp_path, accountant, name, more):
    gate = opened(tmp_path, accountant=accountant)
    made = gate.release(name, epsilon=PRICE, **more)
    answer, value = made.answer(), made.answer().columns[-1]
    assert made.cut is True
    assert tuple(answer.lower()) == (value,)
    assert all(row[-1].startswith("≥ ") or row[-1] == "–" for row in answer.cells())
    assert "≥" in made.footer()
    assert made.to_dict()["lower_bounds"] == [value]
    assert made.card().to_dict()["lower_bounds"] == [value]
    assert "lower bounds: a contribution bound" in made.card().to_markdown()
    assert any("lower bounds" in words and f"{CAP} row" in words for words in answer.caveats)
    kept = made.query() if hasattr(made, "query") else None
    assert kept is not None
    assert str(kept).startswith("≥ ")
    # What is shown is what the bound leaves, and less than there is. Rounding towards zero loses at
    # most a 32nd of it.
    assert KEPT * 0.9 < float(kept) < KEPT * 1.05 < ROWS


def pictured(made):
    """What stands above the picture."""
    return " ".join(made.plot().to_dict()["title"]["subtitle"])


@pytest.mark.long
@pytest.mark.parametrize("holds", [False, True])
@pytest.mark.parametrize(("name", "more"), ORDERS)
def test_a_picture_says_so_too(tmp_path, name, more, holds):
    gate = opened(tmp_path, cap=40 if holds else CAP, holds=holds)
    assert ("Lower bounds" in pictured(gate.release(name, epsilon=PRICE, **more))) is not holds
    shares = gate.release("cdf", columns={"x": 10}, epsilon=PRICE)
    assert "Lower bounds" not in pictured(shares)
    assert ("that a contribution bound keeps" in pictured(shares)) is not holds


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(("name", "more"), ORDERS)
def test_where_nobody_exceeds_the_bound_nothing_is_below(tmp_path, accountant, name, more):
    gate = opened(tmp_path, accountant=accountant, cap=40, holds=True)
    made = gate.release(name, epsilon=PRICE, **more)
    assert made.cut is False
    assert made.answer().lower() == ()
    assert not any("≥" in words for row in made.answer().cells() for words in row)
    assert made.to_dict()["lower_bounds"] == made.card().to_dict()["lower_bounds"] == []
    assert not any("lower bound" in words for words in made.answer().caveats)
    assert not str(made.query()).startswith("≥")
    assert float(made.query()) == pytest.approx(ROWS, rel=0.03)  # a series ends before x = 40


@pytest.mark.parametrize(("name", "more"), ORDERS)
def test_a_smaller_bound_than_the_one_that_nobody_exceeds_cuts(tmp_path, name, more):
    gate = opened(tmp_path, cap=40, holds=True)
    assert gate.release(name, epsilon=PRICE, rows_per_unit=CAP, **more).cut is True


@pytest.mark.parametrize(("name", "more"), ORDERS)
def test_a_release_of_rows_that_are_units_is_not_below(name, more):
    rows = pa.table({"ward": ["a", "b", "c"] * 100, "x": [*range(30)] * 10, "y": [7] * 300})
    facts = {"ward": {"in": ["a", "b", "c"]}, "x": {"between": [0, 40]}, "y": {"between": [0, 40]}}
    gate = noisegate.open(rows, epsilon=1000, ledger=":memory:", columns=facts)
    made = gate.release(name, epsilon=PRICE, **more)
    assert made.cut is False
    assert made.answer().lower() == ()


@pytest.mark.parametrize(("name", "more"), ORDERS)
def test_a_saved_release_says_it_again_and_an_older_one_does_not_know(
    tmp_path, monkeypatch, name, more
):
    gate = opened(tmp_path)
    made = gate.release(name, epsilon=PRICE, **more)
    made.save(tmp_path / "new.parquet")
    again = type(made).load(tmp_path / "new.parquet")
    assert again.cut is True
    assert again.answer().cells() == made.answer().cells()
    assert str(again.query()) == str(made.query())
    # An earlier version wrote no such field.
    plain = json.dumps
    monkeypatch.setattr(
        "noisegate.desk.release.json.dumps",
        lambda record, **how: plain(
            {n: each for n, each in record.items() if n != "cut"}
            if isinstance(record, dict)
            else record,
            **how,
        ),
    )
    made.save(tmp_path / "old.parquet")
    monkeypatch.undo()
    older = type(made).load(tmp_path / "old.parquet")
    assert older.cut is None
    assert older.answer().lower() == ()
    assert older.answer().rows == made.answer().rows


def test_sums_of_both_signs_are_cut_and_not_below(tmp_path):
    made = opened(tmp_path).release(
        "histogram", sql="SELECT SUM(x - 20) FROM visits GROUP BY ward", epsilon=PRICE
    )
    assert made.cut is True
    assert made.answer().lower() == ()
    assert not str(made.query()).startswith("≥")


def test_shares_of_a_distribution_function_are_not_lower_bounds(tmp_path):
    gate = opened(tmp_path)
    made = gate.release("cdf", columns={"x": 5}, epsilon=PRICE)
    assert made.cut is True
    assert made.answer().lower() == ()
    assert "≥" not in str(made)
    assert any("Capped" in words for words in made.answer().caveats)
    made.save(tmp_path / "cdf.parquet")
    assert type(made).load(tmp_path / "cdf.parquet").cut is True


def test_a_description_has_the_same_flag(tmp_path):
    assert opened(tmp_path).describe(epsilon=PRICE).cut is True
    assert opened(tmp_path, cap=40, holds=True).describe(epsilon=PRICE).cut is False


@pytest.mark.parametrize("holds", [False, True])
def test_a_map_says_it_box_by_box(tmp_path, holds):
    gate = opened(tmp_path, cap=40, holds=holds)
    made = gate.release("map", columns=PLANE, epsilon=PRICE, method="tree")
    made.save(tmp_path / "map.geojson")
    boxes = json.loads((tmp_path / "map.geojson").read_text())["features"]
    assert {each["properties"].get("lower_bound", False) for each in boxes} == {not holds}


@pytest.mark.parametrize("holds", [False, True])
def test_threshold_questions_say_it(tmp_path, holds):
    gate = opened(tmp_path, cap=40, holds=holds)
    made = gate.release(
        "above", columns=COLUMNS, questions="cells", threshold=100, epsilon=PRICE, most=3
    )
    assert made.cut is not holds
    assert any("Capped" in words for words in made.answer().caveats) is not holds


@pytest.mark.parametrize("holds", [False, True])
def test_gaps_and_values_of_threshold_sessions_are_below(tmp_path, holds):
    gate = opened(tmp_path, cap=40, holds=holds)
    made = gate.run(noisegate.orders.ThresholdsOrder(
        threshold=10, questions=["SELECT COUNT(*) FROM visits"], values=True, bound=40,
        epsilon=PRICE,
    ))  # fmt: skip
    assert tuple(made.lower()) == (() if holds else ("gap", "value"))
    assert made.cells()[0][3].startswith("≥ ") is not holds
    with gate.thresholds(threshold=10, count=1, values=True, bound=40, epsilon=PRICE) as session:
        heard = session.ask("SELECT COUNT(*) FROM visits")
        assert ("by ≥ " in str(heard)) is not holds
        assert tuple(session.answer().lower()) == tuple(made.lower())
