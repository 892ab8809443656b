"""Columns become a handle, a fit is charged once and found again, and stops where it is told."""

from fractions import Fraction
from importlib import import_module
from traceback import format_exception

import numpy as np
import pyarrow as pa
import pytest

import noisegate
from noisegate.desk.job import Attempts
from noisegate.errors import LedgerError, NoisegateError, OverBudget, Unsupported
from noisegate.learners.arrays import scorer
from noisegate.learners.fitting import Task, learn
from noisegate.transforms.statistics.features import Linear, One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import ByKey, Plain
from refusals import about, listed

COLUMNS = {
    "age": {"between": [0, 100]},
    "ward": {"in": ["north", "south"]},
    "stage": {"in": [1, 2, 3]},
}


COINS = np.random.default_rng(5)
ROWS = {
    "age": COINS.uniform(20, 60, 400),
    "ward": COINS.choice(["north", "south"], 400),
    "stage": COINS.integers(1, 4, 400),
    "sick": COINS.random(400) < 0.5,
    "free": COINS.normal(size=400),
}


def clinic():
    return noisegate.open(pa.table(ROWS), epsilon=20, columns=COLUMNS, table="clinic")


def sums(share=Fraction(1, 2)):
    def algorithm(ask):
        counts, totals = ask.totals(Statistic(Plain(), (One(), Linear())), [share, share])
        return {"count": counts.values, "mean": totals.values / counts.values / ask.reach}

    return Task("sums", {"share": str(share)}, algorithm)


def test_columns_become_coordinates_with_bounds():
    matrix = clinic().matrix(columns=["age", "ward", "stage", "sick", "LN(age + 1)"])
    assert [each.name for each in matrix.marks] == [
        "age", "ward=north", "ward=south", "stage", "sick", "LN(age + 1)",
    ]  # fmt: skip
    assert [each.name for each in matrix.codes] == ["age", "ward", "stage", "sick", "LN(age + 1)"]
    assert [(each.low, each.high) for each in matrix.marks[:5]] == [
        (0, 100), (0, 1), (0, 1), (1, 3), (0, 1),
    ]  # fmt: skip
    assert "no rows" in repr(matrix)


def test_a_column_with_one_key_is_refused_by_that_and_not_for_want_of_bounds():
    only = noisegate.open(pa.table(ROWS), epsilon=20, columns={"ward": {"in": ["north"]}})
    with pytest.raises(NoisegateError, check=about("one-key"), match="ward has one declared key"):
        only.matrix(columns=["ward", "sick"])


def test_a_row_without_a_key_takes_no_part():
    """GREATEST passes over NULL, so that such a row would have the least key."""
    stages = pa.array([None, 2, 3] * 100, pa.int64())
    facts = {"stage": {"in": [1, 2, 3], "nullable": True}}
    gate = noisegate.open(pa.table({"stage": stages}), epsilon=2000, columns=facts)
    found = learn(gate.matrix(columns=["stage"]), sums(), epsilon=1000).fitted
    assert found["count"].item() == pytest.approx(200, abs=1)


def test_without_names_all_declared_columns_are_taken():
    assert clinic().matrix(target="ward").columns == ("age", "stage", "sick")


def test_a_target_is_classes_or_a_number_or_both():
    gate = clinic()
    assert gate.matrix(columns=["age"], target="ward").classes.keys == ("north", "south")
    assert gate.matrix(columns=["age"], target="ward").number is None
    stage = gate.matrix(columns=["age"], target="stage")
    assert (stage.classes.keys, stage.number.high) == ((1, 2, 3), 3)
    assert gate.matrix(columns=["stage"], target="sick").classes.keys == (0, 1)
    assert gate.matrix(columns=["stage"], target="age").classes is None


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"columns": ["free"]}, "bounds"),
        ({"columns": "age"}, "text"),
        ({"columns": ["age", "age"]}, "columns"),
        ({"columns": ["age"], "target": "age"}, "columns"),
        ({"columns": ["age"], "target": "free"}, "target"),
        ({"columns": ["height"]}, "column 'height'"),
        ({"columns": ["age"], "table": "other"}, "table"),
        ({"columns": ["age"], "where": "height > 1"}, "column 'height'"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_paid(terms, words):
    gate = clinic()
    with pytest.raises(NoisegateError, check=listed(words)):
        gate.matrix(**terms)
    assert gate.spent.epsilon == 0


def test_a_fit_is_charged_once_and_found_again():
    gate = clinic()
    first = learn(gate.matrix(columns=["age"]), sums(), epsilon=2)
    again = learn(gate.matrix(columns=["age"]), sums(), epsilon=2)
    assert (first.receipt.cost.epsilon, again.receipt.cost.epsilon, gate.spent.epsilon) == (2, 0, 2)
    assert again.receipt.free
    assert again.fitted["mean"].tolist() == first.fitted["mean"].tolist()
    anew = learn(gate.matrix(columns=["age"]), sums(), epsilon=2, fresh=True)
    assert gate.spent.epsilon == 4
    assert anew.fitted["mean"].tolist() != first.fitted["mean"].tolist()


@pytest.mark.parametrize("kept", [lambda held: b"", lambda held: b"model", lambda held: held[:99]])
def test_a_stored_fit_that_cannot_be_read_is_told(monkeypatch, kept):
    gate = clinic()
    learn(gate.matrix(columns=["age"]), sums(), epsilon=2)
    found = Attempts.found
    monkeypatch.setattr(Attempts, "found", lambda self: ("x", kept(found(self)[1])))
    with pytest.raises(LedgerError, check=about("stored")):
        learn(gate.matrix(columns=["age"]), sums(), epsilon=2)
    assert gate.spent.epsilon == 2


def test_what_a_learner_does_not_use_is_given_back_and_more_is_refused():
    gate = clinic()
    spare = learn(gate.matrix(columns=["age"]), sums(Fraction(1, 4)), epsilon=2)
    assert spare.receipt.cost.epsilon == gate.spent.epsilon == 1
    with pytest.raises(OverBudget):
        learn(gate.matrix(columns=["age"]), sums(Fraction(3, 4)), epsilon=2)
    assert gate.spent.epsilon == 1  # refused before it was drawn
    with pytest.raises(OverBudget):
        learn(gate.matrix(columns=["age"]), sums(), epsilon=20)


def test_an_interruption_keeps_what_was_paid_for():
    gate = clinic()

    def algorithm(ask):
        for turn in range(5):
            if turn == 2:
                raise KeyboardInterrupt
            (counts,) = ask.totals(Statistic(Plain(), (One(),)), [Fraction(1, 5)])
            ask.keep({"count": counts.values, "turn": np.array(turn)})
        raise AssertionError

    outcome = learn(gate.matrix(columns=["age"]), Task("rounds", {}, algorithm), epsilon=5)
    assert outcome.stopped
    assert int(outcome.fitted["turn"]) == 1
    assert outcome.receipt.cost.epsilon == gate.spent.epsilon == 2


def test_an_interruption_before_the_first_round_costs_nothing():
    gate = clinic()

    def algorithm(ask):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(gate.matrix(columns=["age"]), Task("none", {}, algorithm), epsilon=5)
    assert gate.spent.epsilon == 0


def test_filters_and_classes_reach_the_rows():
    """The noise at ε = 8 is below 4 rows but for 1e-12 of all runs."""
    gate = clinic()

    def algorithm(ask):
        (counts,) = ask.totals(Statistic(ByKey(), (One(),)), [Fraction(1)])
        return {"counts": counts.values[:, 0]}

    matrix = gate.matrix(columns=["age"], target="ward", where="age >= 40 AND ward <> 'south'")
    counts = learn(matrix, Task("counts", {}, algorithm), epsilon=8).fitted["counts"]
    wanted = int(((ROWS["age"] >= 40) & (ROWS["ward"] == "north")).sum())
    assert abs(counts[0] - wanted) < 4
    assert counts.size == 1  # WHERE leaves one class


def test_a_sample_is_learnt_from_at_its_amplified_price():
    """Counts are scaled up: 400 ± 8 standard deviations of sampling, and noise."""
    gate = clinic()
    outcome = learn(gate.sample("1/2").matrix(columns=["age"]), sums(), epsilon=2)
    assert outcome.receipt.cost.epsilon <= 2
    assert float(outcome.receipt.cost.epsilon) == pytest.approx(2, rel=1e-6)
    assert abs(float(outcome.fitted["count"][0, 0]) - 400) < 8 * 20 + 20


def test_private_rows_are_not_predicted():
    gate = clinic()
    model = noisegate.learners.GaussianNB(epsilon=2).fit(
        gate.matrix(columns=["age"], target="ward")
    )
    with pytest.raises(NoisegateError, check=about("private")):
        model.predict(gate.matrix(columns=["age"]))
    assert set(model.predict([[30.0], [50.0]])) <= {"north", "south"}


def test_memory_is_one_budget_for_all_arrays():
    budget = noisegate.memory(3)
    rows = np.linspace(0, 1, 50)[:, None]
    learn(budget.matrix(rows, bounds=(0, 1)), sums(), epsilon=1)
    learn(budget.matrix(rows[:10], bounds=(0, 1)), sums(), epsilon=1)
    assert budget.spent.epsilon == 2
    assert budget.remaining.epsilon == 1
    with pytest.raises(OverBudget):
        learn(budget.matrix(rows, bounds=(0, 1)), sums(), epsilon=2)


@pytest.mark.parametrize("bounds", [(1, 0), (0, float("inf")), {"x1": (0, 1)}, None])
def test_bounds_of_arrays_are_checked(bounds):
    with pytest.raises(NoisegateError):
        noisegate.memory(1).matrix(np.zeros((3, 1)), bounds=bounds)


SECRET = "Ms Sample of Northtown"
FRAME = import_module("pandas").DataFrame


@pytest.mark.parametrize(
    ("rows", "target"),
    [
        (np.array([[1.0], [SECRET]], object), None),
        (FRAME({"a": [1.0, SECRET]}), None),
        (np.ones((2, 1)), np.array([1.0, SECRET], object)),
    ],
)
def test_what_is_no_number_is_refused_without_quoting_it(rows, target):
    with pytest.raises(ValueError, match="not numbers") as refusal:
        noisegate.memory(1).matrix(rows, target, bounds=(0, 1), target_bounds=(0, 1))
    assert SECRET not in "".join(format_exception(refusal.value))


def test_a_column_cannot_stand_where_the_target_goes():
    frame = FRAME({"target": [1.0, 2.0]})
    with pytest.raises(NoisegateError, match="'target'"):
        noisegate.memory(1).matrix(frame, [0.0, 1.0], bounds=(0, 3), target_bounds=(0, 1))


class Constant:
    """Says 1 to everything."""

    def predict(self, X):  # noqa: N803 - scikit-learn's name
        return np.ones(len(X))


def test_scores_of_private_rows_are_noisy_and_paid():
    """300 of 400 are right; at ε = 4 the share is off by less than 0.1 but for 1e-8 of all runs."""
    budget = noisegate.memory(20)
    y = np.array([1.0] * 300 + [0.0] * 100)
    found = scorer(budget, epsilon=4)(Constant(), np.zeros((400, 1)), y)
    assert abs(found - 0.75) < 0.1
    assert budget.spent.epsilon == 4
    off = scorer(budget, epsilon=4, error_max=1)(Constant(), np.zeros((400, 1)), y)
    assert abs(off + 0.25) < 0.1
    with pytest.raises(NoisegateError):
        scorer(budget, epsilon=1, error_max=0)


TWO_UNITS = """
name = "clinic"
source = "."
[budget]
epsilon = 9
[tables.visits]
unit = "patient"
rows_per_unit = 1
columns.cost = { type = "integer", between = [0, 9] }
[tables.shifts]
unit = "nurse"
rows_per_unit = 1
columns.hours = { type = "integer", between = [0, 9] }
"""


def test_a_model_promises_about_the_table_it_was_learnt_from(tmp_path):
    """And to those whose rows these are: other tables may have other units."""
    for table, columns in (("visits", "patient,cost"), ("shifts", "nurse,hours")):
        (tmp_path / f"{table}.csv").write_text(f"{columns}\n1,2\n2,9\n3,5\n")
    (tmp_path / "clinic.toml").write_text(TWO_UNITS)
    gate = noisegate.open(tmp_path / "clinic.toml")
    promised = [
        learn(gate.matrix(table), Task("nothing", {}, lambda _: {}), epsilon=1).receipt.guarantee
        for table in ("visits", "shifts")
    ]
    assert [(each.unit.column, each.scope) for each in promised] == [
        ("patient", "this model of 'visits'"), ("nurse", "this model of 'shifts'"),
    ]  # fmt: skip


def test_text_without_keys_is_refused_by_name():
    rows = pa.table({"item": ["tea", "jam"], "age": [1, 2]})
    gate = noisegate.open(rows, epsilon=1, columns={"age": {"between": [0, 9]}})
    with pytest.raises(Unsupported, check=about("keys")):
        gate.matrix("data", ["age", "item"])
