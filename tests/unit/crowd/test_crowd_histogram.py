"""Crowds through the gate: what is shown, hidden, charged, promised and kept in files."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

import noisegate as ng
from noisegate.crowd import blending
from noisegate.crowd.blending import Blending, DeclaredBlending, solved
from noisegate.crowd.histogram import CrowdRelease
from noisegate.crowd.points import CrowdPoints
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.sql.laws.sampling import between, most
from refusals import about, listed

TENTH = Fraction(1, 10)
PEOPLE = pa.table(
    {
        "id": list(range(3000)),
        "age": [n % 100 for n in range(3000)],
        "ward": ["north"] * 2000 + ["south"] * 995 + ["west"] * 5,
    }
)
COLUMNS = {
    "id": {"type": "integer"},
    "age": {"type": "integer", "between": [0, 99]},
    "ward": {"in": ["north", "south", "west"]},
}
ASKED = {"columns": {"ward": None}, "probability": "1/4", "epsilon": "0.5", "delta": "1e-5"}


@pytest.fixture
def gate():
    return ng.open(PEOPLE, epsilon=2, delta=1e-3, columns=COLUMNS)


def test_large_cells_are_shown_within_their_bounds_and_small_ones_hidden(gate):
    """False alarm: 2 in a million, the confidence of the two bounds."""
    made = gate.release("crowd-histogram", **ASKED)
    assert made.hidden.tolist() == [False, False, True]
    low, high = made.bounds("0.999999")
    for exact, least, greatest in zip((2000, 995, 5), low, high, strict=True):
        assert least <= exact <= greatest
    assert gate.spent.epsilon == Fraction(1, 2)
    assert 0 < gate.spent.delta <= Fraction(1, 10**5)
    assert made.noise.crowd == solved(Fraction(1, 4), epsilon=Fraction(1, 2), delta=TENTH**5)[0]


def test_a_crowd_is_drawn_once(gate):
    made = gate.release("crowd-histogram", **ASKED)
    again = gate.release("crowd-histogram", **ASKED)
    assert again.free
    assert (again.counts == made.counts).all()
    assert gate.release("crowd-histogram", fresh=True, **ASKED).cost.epsilon == Fraction(1, 2)


def test_to_hide_more_of_a_crowd_is_free_and_to_hide_less_is_not(gate):
    """A larger crowd, or another point of the curve, is made of the table that is there."""
    first = gate.release("crowd-histogram", columns={"age": 10}, probability="1/4", crowd=60, epsilon="0.5")  # fmt: skip
    spent = gate.spent
    shown = int(np.median(first.counts[first.counts > 0]))
    for terms in ({"crowd": shown, "epsilon": "0.5"}, {"crowd": shown, "epsilon": "0.3"}, {"crowd": 60, "epsilon": "0.3"}):  # fmt: skip
        asked = {"columns": {"age": 10}, "probability": "1/4"} | terms
        assert gate.release_plan("crowd-histogram", **asked).price.epsilon == 0
        made = gate.release("crowd-histogram", **asked)
        assert made.free
        limit = terms["crowd"]
        assert (made.counts == np.where(first.counts >= limit, first.counts, 0)).all()
        assert made.guarantee.loss == first.guarantee.loss  # what was paid for it
        assert made.noise.crowd == limit
    assert gate.spent == spent
    less = gate.release("crowd-histogram", columns={"age": 10}, probability="1/4", crowd=59, epsilon="0.5")  # fmt: skip
    other = gate.release("crowd-histogram", columns={"age": 10}, probability="1/5", crowd=60, epsilon="0.5")  # fmt: skip
    assert not less.free
    assert not other.free
    assert gate.spent.epsilon == 3 * spent.epsilon


def test_a_declared_mechanism_is_charged_once_and_never_vouched_for(monkeypatch):
    monkeypatch.setattr(blending, "least_loss", cache(blending.least_loss))  # half a second each
    gate = ng.open(PEOPLE, epsilon=2, delta="1.5e-4", columns=COLUMNS)
    declared = DeclaredBlending(
        mechanism="cells of 20, by Smith", blending=Blending(crowd=20, within="0.1"),
        probability="1/10", delta="1e-4",
    )  # fmt: skip
    table = gate.tables["data"]
    sentences = [str(declared.charge(gate.ledger, table, request_id="june")) for _ in range(2)]
    general = Blending(crowd=20, within="0.1").sampled("1/10").loss("1e-4")
    assert declared.loss == general
    assert 0 <= gate.spent.epsilon - general.epsilon < TENTH**20
    assert gate.spent.delta == TENTH**4
    assert sentences[0] == sentences[1]
    assert "declared, not checked" in sentences[0]
    assert "by Smith" in sentences[0]
    with pytest.raises(OverBudget):
        declared.charge(gate.ledger, table, request_id="july")


@pytest.mark.parametrize("wrong", [{"mechanism": " "}, {"probability": 0}, {"delta": 0}])
def test_nothing_is_declared_without_a_name_a_chance_and_a_delta(wrong):
    right = {"mechanism": "m", "blending": Blending(crowd=9), "probability": "1/2", "delta": "1e-3"}
    with pytest.raises(SpecError):
        DeclaredBlending(**(right | wrong))


def test_sums_of_cells_count_what_hidden_ones_may_hold(gate):
    made = gate.release("crowd-histogram", **ASKED)
    both = made.query("0.999999", ward=["north", "west"])
    assert both.hidden == 1
    assert both.low <= 2005 <= both.high
    assert made.total.value == made.values.sum()
    assert str(made.query(ward="north")).count("between") == 1
    with pytest.raises(SpecError):
        made.query(colour="red")


def test_any_two_of_crowd_epsilon_delta_say_the_third(gate):
    asked = {"columns": {"ward": None}, "probability": "1/4"}
    plans = [
        gate.release_plan("crowd-histogram", **asked, crowd=40, delta="1e-6"),
        gate.release_plan("crowd-histogram", **asked, crowd=40, epsilon="0.5"),
        gate.release_plan("crowd-histogram", **asked, epsilon="0.5", delta="1e-6"),
    ]
    assert [plan.expected.noise.crowd for plan in plans[:2]] == [40, 40]
    assert plans[0].price.delta <= TENTH**6
    assert plans[2].price.delta <= TENTH**6
    assert all(plan.fits for plan in plans)
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"crowd": 40},
        {"crowd": 40, "epsilon": 1, "delta": "1e-6"},
        {"crowd": 0, "epsilon": 1},
        {"crowd": 40, "epsilon": -1},
        {"epsilon": 1, "delta": 0},
        {"crowd": 40, "epsilon": 1, "probability": 1},
        {"crowd": 40, "epsilon": 1, "columns": {"colour": None}},
        {"crowd": 40, "epsilon": 1, "columns": None},
        {"crowd": 40, "epsilon": 1, "sql": "SELECT COUNT(*) FROM data GROUP BY ward"},
        {"crowd": 40, "epsilon": 1, "method": "tree"},
    ],
)
def test_nonsense_is_refused_before_any_charge(gate, wrong):
    with pytest.raises((SpecError, Unsupported)):
        gate.release("crowd-histogram", **{"columns": {"ward": None}, "probability": "1/4"} | wrong)
    assert gate.spent.epsilon == 0


@pytest.mark.parametrize(("probability", "words"), [("1e-9", "sample"), ("1e-5", "epsilon")])
def test_tiny_samples_are_refused_in_words_of_the_sample(gate, probability, words):
    with pytest.raises(SpecError, check=listed(words)):
        gate.release_plan("crowd-histogram", columns={"ward": None}, probability=probability, crowd=5, delta="1e-6")  # fmt: skip
    assert gate.spent.epsilon == 0


def test_people_with_several_rows_are_no_crowd():
    gate = ng.open(PEOPLE, unit="id", rows_per_unit=3, epsilon=2, delta=1e-3, columns=COLUMNS)
    with pytest.raises(Unsupported, check=about("several-rows")):
        sql = "SELECT ward, COUNT(*) FROM data GROUP BY ward"
        gate.release("crowd-histogram", sql=sql, probability="1/4", crowd=40, epsilon=1)


def test_a_crowd_shares_the_budget_with_everything_else(gate):
    gate.sql("SELECT COUNT(*) FROM data", epsilon=1.6)
    with pytest.raises(OverBudget):
        gate.release("crowd-histogram", **ASKED)


def test_files_hold_all_of_it(gate, tmp_path):
    made = gate.release("crowd-histogram", **ASKED)
    made.save(tmp_path / "wards.parquet")
    again = CrowdRelease.load(tmp_path / "wards.parquet")
    assert (again.counts == made.counts).all()
    assert str(again.query(ward="north")) == str(made.query(ward="north"))
    assert again.card().to_markdown() == made.card().to_markdown()
    assert "nobody knows who is in the sample" in made.card().to_markdown()
    made.save(tmp_path / "wards.csv")
    assert (tmp_path / "wards.csv").read_text().splitlines()[-1].startswith("west,,")
    with pytest.raises(SpecError):
        made.save(tmp_path / "wards.exe")


@pytest.mark.parametrize("people", [0, 1, 7, 60, 500])
def test_bounds_cover_whatever_the_count_is(people):
    sampled = np.arange(people + 1)
    chances = binom.pmf(sampled, people, 0.1)
    low, high = between(sampled, TENTH, 0.05)
    assert chances[(people < low) | (people > high)].sum() <= 0.05
    above = most(sampled, TENTH, 0.05)
    assert chances[people > above].sum() <= 0.05


def test_a_picture_shows_cells_and_says_where_all_are_hidden(gate):
    made = gate.release("crowd-histogram", **ASKED)
    hiding = replace(made, counts=np.where(np.arange(made.counts.size) == 0, 0, 10**6))
    title = hiding.plot().to_dict()["title"]
    assert "are hidden" in " ".join(title["subtitle"])
    assert "hidden" not in str(replace(made, counts=np.full_like(made.counts, 10**6)).plot().title)
    ages = gate.release("crowd-histogram", **ASKED | {"columns": {"age": 50}})
    assert [row[0] for row in ages.shown().rows] == ["0–49", "50–99", "(none)"]
    assert ages.to_arrow()["age"].to_pylist() == [0, 50, None]
    empty = replace(made, counts=np.zeros_like(made.counts)).plot()
    assert "nothing to draw" in str(empty.to_dict())


def test_words_say_what_is_and_is_not_promised():
    blending = Blending(crowd=20, within="0.1")
    assert "19 others" in str(blending)
    assert "known" in str(blending.sampled("1/2"))
    sampled = Blending(crowd=50).sampled("1/2", counts=True)
    general = Blending(crowd=50).sampled("1/2")
    assert sampled.delta("0.7") == pytest.approx(float(general.delta("0.7")), rel=1e-9)
    assert sampled.loss("1e-6").epsilon <= general.loss("1e-6").epsilon
    assert sampled.change_one("1e-6").epsilon > sampled.loss("1e-6").epsilon
    points = sampled.curve(["0.5", "0.7", "1"])
    assert [p.delta for p in points] == sorted((p.delta for p in points), reverse=True)
    assert sampled.plot(["0.5", "1"]).to_dict()["mark"]["type"] == "line"
    for wrong in ({"crowd": 0}, {"crowd": 5, "within": -1}):
        with pytest.raises(SpecError):
            Blending(**wrong)
    with pytest.raises(SpecError):
        blending.sampled(1)
    with pytest.raises(SpecError):
        blending.sampled("1/2", counts=True)


@pytest.fixture(scope="module")
def points():
    gate = ng.open(PEOPLE, epsilon=2, delta=1e-3, columns=COLUMNS)
    asked = {"columns": {"age": 20, "ward": None}, "probability": "1/2"}
    return gate.release("crowd-points", **asked, crowd=20, epsilon=1)


def test_points_lie_in_the_cells_that_are_shown(points):
    made = points.histogram
    table = points.to_pandas()
    assert len(table) == points.size == made.counts.sum()
    counted = table.groupby([table["age"] // 20, "ward"]).size()
    for (age, ward), count in counted.items():
        cell = made.axes[0].keys.index(age * 20), made.axes[1].keys.index(ward)
        assert made.counts[cell] == count
    assert set(table["ward"]) <= {"north", "south"}
    assert points.cost.epsilon == 1
    assert points.guarantee == made.guarantee


def test_smooth_averages_are_within_their_bound(points):
    """False alarm: once in a million runs, the confidence; the true bound is wider still."""
    shown, hidden = points.smooth_error(slope=1, spread=100, confidence="0.999999")
    exact = np.mean(PEOPLE["age"].to_numpy())
    assert abs(points.mean(lambda age, **_: age) - exact) <= shown + hidden
    assert shown < 25
    narrow, _ = points.smooth_error(slope=1, spread=100, confidence="0.5")
    assert narrow < shown
    with pytest.raises(SpecError):
        points.smooth_error(slope=-1, spread=1)


def test_points_are_kept_in_files(points, tmp_path):
    points.save(tmp_path / "people.csv")
    assert len((tmp_path / "people.csv").read_text().splitlines()) == points.size + 1
    points.save(tmp_path / "people.parquet")
    again = CrowdPoints.load(tmp_path / "people.parquet")
    assert again.to_arrow().equals(points.to_arrow())
    assert (again.promise, again.card()) == (points.promise, points.card())
    assert again.smooth_error(slope=1, spread=9) == points.smooth_error(slope=1, spread=9)
    assert again.free
    points.save(tmp_path / "people.md")
    assert "Release card" in (tmp_path / "people.md").read_text()
    with pytest.raises(SpecError):
        points.save(tmp_path / "people.exe")


def test_points_are_drawn_along_two_numbers_and_else_as_the_histogram(points):
    pytest.importorskip("altair")
    assert points.plot().to_dict() == points.histogram.plot().to_dict()
    costly = PEOPLE.append_column("cost", [np.arange(PEOPLE.num_rows) % 50])
    facts = {**COLUMNS, "cost": {"between": [0, 49], "nullable": False}}
    gate = ng.open(costly, epsilon=2, delta=1e-3, columns=facts)
    asked = {"columns": {"ward": None, "age": 50, "cost": 25}, "probability": "1/2", "crowd": 20}
    made = gate.release("crowd-points", **asked, epsilon=1)
    spec = made.plot().to_dict()
    drawn = {name: made.columns[name].tolist() for name in ("age", "cost", "ward")}
    assert [spec["encoding"][name]["title"] for name in ("x", "y", "color")] == list(drawn)
    (rows,) = spec["datasets"].values()
    found = [(row["x"], row["y"], row["color"]) for row in rows]
    assert found == list(zip(*drawn.values(), strict=True))


def test_a_crowd_of_nobody_has_no_points(gate):
    asked = {"columns": {"age": 1, "ward": None}, "probability": "1/10", "epsilon": "0.5"}
    nobody = gate.release("crowd-points", **asked, crowd=60)
    assert nobody.size == 0
    with pytest.raises(SpecError):
        nobody.mean(lambda age, **_: age)
    assert "to draw" in str(nobody.plot().to_dict())


def test_other_crowds_are_not_known(gate):
    for wrong in ({"name": "crowd-map"}, {"name": "crowd-points", "rows_per_unit": 2}):
        with pytest.raises(SpecError):
            gate.release_plan(
                **{"columns": {"ward": None}, "probability": "1/4", "crowd": 9, "epsilon": 1}
                | wrong
            )
    plan = gate.release_plan(
        "crowd-points", columns={"ward": None}, probability="1/4", crowd=9, epsilon=1
    )
    assert {".csv", ".png"} <= set(plan.endings)
