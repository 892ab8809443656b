"""Releases of tables whose units have no declared bound estimate one, for a share of the price."""

from fractions import Fraction

import pyarrow as pa
import pytest

import noisegate
from noisegate.errors import OverBudget, Unsupported
from noisegate.releases.ask import asking
from refusals import about

ROWS = 60 * 5 + 40 * 2  # sixty people with five rows, forty with two
FACTS = {"ward": {"in": ["n", "s"]}, "age": {"between": [0, 100]}}


def table():
    owners = [f"a{i}" for i in range(60) for _ in range(5)]
    owners += [f"b{i}" for i in range(40) for _ in range(2)]
    wards = ["n" if i % 4 else "s" for i in range(ROWS)]
    return pa.table({"who": owners, "ward": wards, "age": [i % 100 for i in range(ROWS)]})


@pytest.fixture(params=["pure", "zcdp"])
def gate(request):
    delta = "1e-6" if request.param == "zcdp" else 0
    return noisegate.open(
        table(), epsilon=40, delta=delta, unit="who", columns=FACTS, accountant=request.param,
        ledger=":memory:",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("histogram", {"columns": {"ward": None}}),
        ("histogram", {"columns": {"age": 10}, "where": "ward = 'n'"}),
        ("histogram", {"sql": "SELECT ward, COUNT(*) AS n FROM data GROUP BY ward"}),
        ("cdf", {"columns": {"age": 10}}),
    ],
)
def test_a_bound_is_estimated_within_the_price_and_bought_once(gate, name, more):
    plan = gate.release_plan(name, epsilon=2, **more)
    assert plan.fits
    assert any("estimated first" in note for note in plan.notes)
    assert not any(note.rstrip().endswith(":") for note in plan.notes)
    assert gate.spent.epsilon == 0
    made = gate.release(name, epsilon=2, **more)
    assert made.cost == plan.price
    assert Fraction("1.99") < gate.spent.epsilon <= 2
    assert made.guarantee.loss.epsilon == pytest.approx(float(gate.spent.epsilon), rel=1e-9)
    before = gate.spent
    again = gate.release(name, epsilon=2, **more)
    assert again.cost.epsilon == 0
    assert again.to_pandas().equals(made.to_pandas())
    assert gate.spent == before


def test_the_bound_is_that_of_the_rows_and_the_numbers_are_right(gate):
    made = gate.release("histogram", columns={"ward": None}, epsilon=30)
    found = dict(zip(*(made.to_arrow().column(i).to_pylist() for i in (0, 1)), strict=True))
    exact = {
        "n": sum(1 for i in range(ROWS) if i % 4),
        "s": sum(1 for i in range(ROWS) if not i % 4),
    }
    # Two-sided geometric noise of scale at most 8/24: off by 5 in fewer than 1 of 10^6 runs.
    assert {ward: abs(found[ward] - n) <= 5 for ward, n in exact.items()} == {"n": True, "s": True}


@pytest.mark.parametrize(("epsilon", "blind"), [(30, False), ("1/100", True)])
def test_a_release_says_if_its_estimate_saw_nobody(gate, epsilon, blind):
    made = gate.release("histogram", columns={"ward": None}, epsilon=epsilon)
    for said in (str(made), made.card().to_markdown()):
        assert ("shows no unit" in said) == blind


def test_a_release_that_does_not_fit_is_refused_before_its_look_is_bought(gate):
    with pytest.raises(OverBudget):
        gate.release("histogram", columns={"ward": None}, epsilon=41)
    assert gate.spent.epsilon == 0


def test_a_release_that_is_told_its_accuracy_needs_a_bound(gate):
    sql = "SELECT ward, COUNT(*) AS n FROM data GROUP BY ward /* noisegate: within=10 */"
    with pytest.raises(Unsupported, check=about("cap")):
        gate.release("histogram", sql=sql)
    assert gate.spent.epsilon == 0


def test_a_series_has_a_declared_bound(gate):
    """An estimate from the rows of one state is not that of the next: each would be paid for."""
    with pytest.raises(Unsupported, check=about("cap")):
        gate.release("series", columns={"age": 10}, until=50, epsilon=1)
    assert gate.spent.epsilon == 0


def uneven():
    """Many units with few rows, and few with many: a total needs these, single cells do not."""
    owners = [f"a{i}" for i in range(1_900) for _ in range(3)]
    owners += [f"b{i}" for i in range(300) for _ in range(300)]
    return pa.table({"who": owners, "age": [i % 1000 for i in range(len(owners))]})


def opened(accountant="pure"):
    delta = "1e-6" if accountant == "zcdp" else 0
    return noisegate.open(
        uneven(), epsilon=40, delta=delta, accountant=accountant, unit="who", ledger=":memory:",
        columns={"age": {"type": "integer", "between": [0, 999]}},
    )  # fmt: skip


def bound_of(made):
    said = next(words for words in str(made).splitlines() if words.startswith("Capped: "))
    return int(said.split()[1].replace(",", ""))


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_the_same_in_sql_is_the_same_release(accountant):
    gate = opened(accountant)
    sql = "SELECT COUNT(*) AS n FROM data GROUP BY BIN(age, 100)"
    made = gate.release("histogram", columns={"age": 100}, epsilon=1)
    assert gate.release("histogram", sql=sql, epsilon=1).free
    assert bound_of(gate.release("histogram", sql=sql, epsilon=2)) >= bound_of(made) / 2


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_the_bound_suits_the_questions_of_the_release(accountant):
    """Single cells of a thousand have noise for few rows, the two halves for many."""
    gate = opened(accountant)
    cells = gate.release("histogram", columns={"age": 1}, epsilon=1)
    halves = gate.release("histogram", columns={"age": 500}, epsilon=1)
    assert bound_of(cells) <= 100
    assert bound_of(halves) >= 200
    assert f"as estimated: {bound_of(cells)}" in str(cells)


def test_what_was_paid_for_under_the_bound_of_a_total_is_found(monkeypatch):
    gate = opened()
    with monkeypatch.context() as before:
        before.setattr(asking, "_best", lambda known, bound, *_, **__: bound)
        made = gate.release("histogram", columns={"age": 1}, epsilon=1)
    monkeypatch.setattr(asking, "_SINCE", "9999-12-31")
    again = gate.release("histogram", columns={"age": 1}, epsilon=1)
    assert again.free
    assert bound_of(again) == bound_of(made) >= 200
    assert not gate.release_plan("histogram", columns={"age": 2}, epsilon=1).free


def test_bins_of_numbers_have_a_bound_too():
    rows = pa.table({"who": ["a", "a", "b"], "x": [0.1, 0.7, 0.9]})
    gate = noisegate.open(rows, epsilon=9, unit="who", columns={"x": {"between": [0, 1]}})
    sql = "SELECT BIN(x, 0.5) AS part, COUNT(*) AS n FROM data GROUP BY 1"
    assert gate.release("histogram", sql=sql, epsilon=1).shape == (4,)
    for each in (sql, sql.replace("BIN(x, 0.5)", "FLOOR(x / 0.5)")):
        assert len(gate.sql(each, epsilon=1, rows_per_unit=2)) >= 2
