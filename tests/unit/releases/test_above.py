"""Which of many questions reach a threshold: the door's rules, the price, and the answers."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import noisegate
from door import ONE, by, curator, field, table
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Sums
from noisegate.curator.measurement import Measurement
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.privacy.domain import Kind
from noisegate.privacy.event import DeclaredEvent
from noisegate.releases.cells.workload import all_ranges, boxes_matrix, ranges
from noisegate.releases.thresholds.above import (
    AboveOrder,
    AboveRelease,
)
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Matrix, Strategy

ROWS = table("rows", None, ("g", Kind.INTEGER), ("v", Kind.INTEGER))
CELLS = Sums(relation=Table(ROWS), by=(by("g", 0, 1, 2),), terms=(ONE,))


def above(monotone=True, **more):
    spec = {"threshold": 50, "threshold_scale": 1, "query_scale": 2, "cutoff": 2} | more
    return AboveThreshold(monotone=monotone, **spec)


def matrix(rows):
    return Matrix(csr_array(np.array(rows, np.int64)))


def asked(rows, tally=CELLS):
    return Query(tally, Strategy(3, (matrix(rows),)))


def largest_move(rows):
    """How far one row of the table moves any one answer, and whether all move the same way."""
    strategy = Strategy(3, (matrix(rows),))
    here = np.array([5, 6, 7])
    moves = [
        strategy.apply(here + one)[0] - strategy.apply(here)[0] for one in np.eye(3, dtype=int)
    ]
    same = all((move >= 0).all() for move in moves)
    return max(int(np.abs(move).max()) for move in moves), same


def is_sound(rows, strategy):
    return strategy.reaches == (largest_move(rows)[0],) and (
        strategy.is_positive == largest_move(rows)[1]
    )


coefficients = st.lists(
    st.lists(st.integers(-4, 4), min_size=3, max_size=3), min_size=1, max_size=5
)


@given(coefficients)
def test_the_reach_of_a_strategy_is_the_largest_move_of_any_one_answer(rows):
    assert is_sound(rows, Strategy(3, (matrix(rows),)))


def test_a_reach_of_one_or_of_the_l1_norm_would_be_noticed(monkeypatch):
    rows = [[3, -1, 0], [3, 0, 1]]
    strategy = Strategy(3, (matrix(rows),))
    for wrong in (lambda self: (1,), lambda self: self.l1s):
        with monkeypatch.context() as patch:
            patch.setattr(Strategy, "reaches", property(wrong))
            assert not is_sound(rows, strategy)
    monkeypatch.setattr(Strategy, "is_positive", True)
    assert not is_sound(rows, strategy)


def test_groups_move_one_answer_by_one():
    groups = Strategy(3, (Groups(np.array([0, 0, 1], np.int32), 2),))
    assert (groups.reaches, groups.is_positive) == ((1,), True)


def test_the_price_is_that_of_the_largest_move_of_one_answer_not_of_all():
    wide = asked([[1, 1, 1]] * 1000)
    event = Measurement(query=wide, mechanisms=(above(),)).event()
    assert event == above().event(Fraction(1))
    steep = asked([[1, 3, 1]])
    assert Measurement(query=steep, mechanisms=(above(),)).event() == above().event(Fraction(3))
    people = table("people", "pid", ("pid", Kind.INTEGER), ("g", Kind.INTEGER))
    capped = Sums(relation=Table(people), by=CELLS.by, terms=(ONE,), rows_per_unit=4)
    query = asked([[1, 3, 1]], capped)
    assert Measurement(query=query, mechanisms=(above(),)).event() == above().event(Fraction(12))


@pytest.mark.parametrize(
    ("query", "mechanisms"),
    [
        (asked([[1, -1, 0]]), (above(),)),  # not monotone
        (asked([[1, 1, 0]], Sums(relation=Table(ROWS), by=CELLS.by,
                                 terms=(field("v", low=-5, high=5),))), (above(),)),
        (Query(CELLS), (above(),)),
        (asked([[1, 1, 0]]), (above(), above())),
        (asked([[1, 1, 0]]), (above(), Geometric(scale=1))),
        (Query(CELLS, Strategy(3, (matrix([[1, 0, 0]]), matrix([[1, 0, 0]])))),
         (above(), Geometric(scale=1))),
    ],
)  # fmt: skip
def test_what_has_no_rule_is_refused(query, mechanisms):
    with pytest.raises(Unsupported):
        Measurement(query=query, mechanisms=mechanisms)


def test_signed_sums_are_compared_as_such():
    made = Measurement(query=asked([[1, -1, 0]]), mechanisms=(above(monotone=False),))
    assert made.event() == above(monotone=False).event(Fraction(1))


def test_an_allowance_counts_a_comparison_for_what_it_is():
    rows = pa.table({"g": [0] * 200 + [1], "v": [1] * 201})
    source = DuckDBSource({"rows": rows}, {"rows": ROWS})
    door = curator(budget="100", table=ROWS, source=source)
    noise = above(threshold_scale="1/20", query_scale="1/10")
    made = Measurement(query=asked([[0, 1, 0], [1, 0, 0], [0, 0, 1]]), mechanisms=(noise,))
    with door.allowance(DeclaredEvent(epsilon=60), question="q", request_id="r") as allowed:
        found = allowed.whole.measure(made)
        assert found.values.tolist() == [[0, 1, 0]]  # noise of 10 or more: odds below e^-90
        assert allowed.used().events == (made.event(),)


# released

AGES = pa.table({"age": [22] * 400 + [47] * 300 + [80] * 5, "ward": ["n"] * 500 + ["s"] * 205})


def gate(**more):
    columns = {"age": {"between": [0, 99]}, "ward": {"in": ["n", "s"]}}
    return noisegate.open(
        AGES, table="people", epsilon=50, columns=columns, ledger=":memory:", **more
    )


def ask(door, **order):
    base = {"columns": {"age": 10, "ward": None}, "threshold": 150, "epsilon": 10}
    desk = Desk(door._curator, door._rules)
    return desk.run(AboveOrder(**base | order).job(desk))


def test_the_questions_that_reach_the_threshold_are_named():
    door = gate()
    found = ask(
        door, questions=[{"age": (20, 29)}, {"age": (60, 99)}, {"ward": "s"}, {}, {"age": 80}]
    )
    assert found.yes == [{"age": "20–29"}, {"ward": "s"}, {}]
    assert found.complete
    assert (found.cost.epsilon, door.spent.epsilon) == (10, 10)
    assert "20–29" in str(found)
    again = ask(door, questions=[{"age": (20, 29)}, {"age": (60, 99)}, {"ward": "s"}, {},
                                 {"age": 80}])  # fmt: skip
    assert (again.cost.epsilon, again.yes) == (0, found.yes)


def test_a_run_ends_after_the_yeses_that_were_paid_for():
    found = ask(gate(), questions=[{}, {"age": (0, 9)}, {"ward": "n"}, {"ward": "s"}], most=2)
    assert found.answers.tolist() == [True, False, True]
    assert not found.complete
    assert "ended the run" in str(found)


@pytest.mark.parametrize("sums", [None, "SELECT SUM(age - 50) FROM people GROUP BY BIN(age, 10)"])
def test_a_loaded_one_says_and_draws_the_same(tmp_path, sums):
    pytest.importorskip("altair")
    terms = {} if sums is None else {"sql": sums, "columns": None}
    found = ask(gate(), questions=[{"age": (20, 49)}, {"age": [90, None]}, {}], most=1, **terms)
    found.save(tmp_path / "x.parquet")
    again = AboveRelease.load(tmp_path / "x.parquet")
    assert (again.yes, again.complete, again.threshold) == (found.yes, found.complete, 150)
    assert [again.asked(i) for i in range(3)] == [{"age": "20–49"}, {"age": "90–99, (none)"}, {}]
    assert again.margin_at(0.9) == found.margin_at(0.9)
    assert again.plot().to_dict()["layer"] == found.plot().to_dict()["layer"]


def drawn(release):
    spec = release.plot().to_dict()
    points = next(each for each in spec["datasets"].values() if "question" in each[0])
    return spec, points


def test_a_picture_shows_what_each_answer_tells_of_its_sum():
    pytest.importorskip("altair")
    found = ask(gate(), questions=[{}, {"age": (0, 9)}, {"ward": "n"}, {"ward": "s"}], most=2)
    told = replace(found, answers=np.array([True, False, True]))
    off = float(told.margin_at())
    assert 0 < 2 * off < 150
    yes, no = (150 - off, 150 + 2 * off), (150 - 2 * off, 150 + off)
    spec, points = drawn(told)
    assert [(each["question"], each["answer"], each["from"], each["to"]) for each in points] == [
        ("1. all", "reaches it", *yes),
        ("2. age: 0–9", "does not", *no),
        ("3. ward: n", "reaches it", *yes),
        ("4. ward: s", "no answer", no[0], yes[1]),
    ]
    assert "threshold 150 ±" in spec["layer"][0]["encoding"]["x"]["title"]
    _, wide = drawn(replace(told, bar=replace(told.bar, threshold=Fraction(1))))
    assert {each["from"] for each in wide} == {0}  # no count is below


def test_of_many_questions_a_picture_shows_those_that_reach_it():
    pytest.importorskip("altair")
    found = ask(gate(), questions="ranges", columns={"age": 10}, most=3)
    for places, answered, shown, left in [
        ([2, 40], 60, ["3.", "41."], "58 'does not', 6 'no answer'"),
        ([], 66, [f"{place}." for place in range(1, 41)], "26 'does not'"),
    ]:
        told = replace(found, answers=np.isin(np.arange(answered), places))
        spec, points = drawn(told)
        assert [each["question"].split()[0] for each in points] == shown
        assert f"Not drawn: {left}." in " ".join(spec["title"]["subtitle"])


def test_the_plan_states_the_error_of_all_answers_and_costs_nothing():
    door = gate()
    order = AboveOrder(columns={"age": 10}, questions="ranges", threshold=100, epsilon=10, most=20)
    desk = Desk(door._curator, door._rules)
    plan = desk.plan(order.job(desk))
    assert (plan.price.epsilon, plan.fits, door.spent.epsilon) == (10, True, 0)
    found = desk.run(order.job(desk))
    for sure in (0.5, 0.95, 0.999):
        assert plan.expected.margin(sure) == found.margin_at(sure)
        assert plan.to_dict(sure)["margins"]["threshold"] == float(plan.expected.margin(sure))
        said = f"threshold 100 ± {plan.expected.margin(sure)} at {percent(sure)} confidence"
        assert any(said in fact for _, fact in plan.facts(sure))
    assert plan.expected.margin(0.5) < plan.expected.margin(0.999)
    for fresh, price in ((False, 0), (True, 10)):
        again = desk.plan(order.job(desk), fresh=fresh)
        assert again.price.epsilon == price
        assert ("free: released before" in str(again)) == (not fresh)
    true = all_ranges((11,)).answers(np.array([0, 0, 400, 0, 300, 0, 0, 0, 5, 0, 0]))
    answered = true[: found.answers.size]
    # fails with odds below 1e-9
    wide = found.margin_at(1 - 1e-9)
    assert all(answered[found.answers] >= 100 - wide)
    assert all(answered[~found.answers] < 100 + wide)


def test_boxes_are_rows_over_cells():
    some = ranges((3, 4), np.array([[0, 1], [2, 0]]), np.array([[1, 2], [2, 3]]))
    cells = np.arange(12)
    expected = some.answers(cells.astype(float))
    assert boxes_matrix(some).apply(cells).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "order",
    [
        {"questions": []},
        {"questions": "rows"},
        {"questions": [{"size": 3}]},
        {"questions": [{}], "most": 0},
        {"questions": [{}], "epsilon": 0},
        {"questions": [{}], "epsilon": None},
        {"questions": [{}], "threshold": "many"},
        {"questions": [{}], "columns": None},
        {"questions": [{}], "columns": {"height": None}},
    ],
)
def test_what_cannot_be_asked_is_refused_for_nothing(order):
    door = gate()
    with pytest.raises(NoisegateError) as caught:
        ask(door, **order)
    assert isinstance(caught.value, (SpecError, Unsupported))
    assert door.spent.epsilon == 0
