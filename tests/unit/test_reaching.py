"""Accuracy first where a contribution bound is estimated: the look comes first, then the price."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import noisegate as ng
from noisegate.cli import app
from noisegate.errors import NoisegateError, OverBudget, SpecError, Unsupported
from refusals import about

COUNT = "SELECT COUNT(*) AS n FROM t"
GROUPS = "SELECT w, COUNT(*) AS n FROM t GROUP BY w"
SIZES = np.random.default_rng(5).integers(1, 12, 3_000)
WHO = np.repeat(np.arange(SIZES.size), SIZES)
ROWS = pa.table({"who": WHO, "w": WHO % 4, "x": (WHO * 7 % 200).astype(float)})
POLICY = """
name = "t"
source = "."
[budget]
epsilon = 20
[questions]
max_epsilon = {most}
[tables.t]
unit = "who"
[tables.t.columns]
who = {{ type = "integer" }}
w = {{ in = [0, 1, 2, 3] }}
x = {{ type = "number", between = [0, 200] }}
"""


def opened(accountant="pure", epsilon=20):
    columns = {"w": {"in": [0, 1, 2, 3]}, "x": {"between": [0, 200]}}
    return ng.open(
        ROWS, table="t", unit="who", columns=columns, epsilon=epsilon, accountant=accountant,
        delta=0 if accountant == "pure" else "1e-6",
    )  # fmt: skip


@pytest.fixture
def policy(tmp_path):
    csv.write_csv(ROWS, tmp_path / "t.csv")

    def written(most):
        (tmp_path / "t.toml").write_text(POLICY.format(most=most))
        return tmp_path / "t.toml"

    return written


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize(
    ("sql", "within"), [(COUNT, 400), (GROUPS, 200), ("SELECT SUM(x) AS n FROM t", 20_000)]
)
def test_the_price_is_chosen_after_the_look_and_paid_once(sql, within, accountant):
    gate = opened(accountant)
    plan = gate.plan(sql, within=within)
    assert (plan.fits, gate.spent.epsilon) == (True, 0)
    assert any("which is bought first" in words for words in plan.notes)
    answer = gate.sql(sql, within=within)
    assert max(answer.margins()["n"]) <= 1.1 * within
    assert answer.cost.epsilon >= plan.price.epsilon > 0
    assert answer.guarantee.added.epsilon < answer.guarantee.loss.epsilon
    assert answer.card().verify(gate.ledger) == []
    spent = gate.spent
    again = gate.sql(sql, within=within)
    assert (again.free, again.rows, gate.spent) == (True, answer.rows, spent)
    assert gate.plan(sql, within=within).free


def test_a_look_that_is_there_is_used_and_the_plan_is_the_price():
    gate = opened()
    gate.caps("t", epsilon=2)
    plan = gate.plan(COUNT, within=400)
    spent = gate.spent.epsilon
    answer = gate.sql(COUNT, within=400)
    assert answer.cost == plan.price
    assert answer.cost.epsilon == gate.spent.epsilon - spent
    assert plan.margins()["n"] <= 400
    assert answer.margins()["n"][0] <= 440


def test_a_narrower_wish_costs_more():
    prices = []
    for within in (2_000, 200):
        gate = opened()
        gate.caps("t", epsilon=5)
        prices.append(gate.plan(COUNT, within=within).price.epsilon)
    assert prices[0] < prices[1]


@pytest.mark.parametrize(
    ("sql", "terms", "code"),
    [
        ("SELECT AVG(x) AS a FROM t", {"within": 5}, "rows"),
        ("SELECT MEDIAN(x) AS a FROM t", {"within": 5}, "accuracy"),
        (COUNT, {"relative": "0.1"}, "rows"),
        (COUNT, {"within": 400, "choose": ()}, "cap"),
        (COUNT, {"within": 400, "choose": "caps"}, "share"),
    ],
)
def test_what_cannot_be_foreseen_is_refused_before_the_charge(sql, terms, code):
    gate = opened()
    with pytest.raises(NoisegateError, check=about(code)):
        gate.sql(sql, **terms)
    assert gate.spent.epsilon == 0


def test_what_does_not_fit_at_its_least_is_refused_before_the_charge(policy):
    gate = opened(epsilon="0.001")
    with pytest.raises(OverBudget):
        gate.sql(COUNT, within=400)
    assert gate.spent.epsilon == 0
    gate = ng.open(policy("0.001"), ledger=":memory:")
    with pytest.raises(SpecError, check=about("max-price")):
        gate.sql(COUNT, within=400)
    assert gate.spent.epsilon == 0


def test_no_more_is_paid_than_one_question_may_cost(policy):
    gate = ng.open(policy("0.1"), ledger=":memory:")
    with pytest.raises(Unsupported, check=about("accuracy"), match="paid for"):
        gate.sql(COUNT, within=60)
    assert 0 < gate.spent.epsilon <= Fraction(1, 10)
    spent = gate.spent
    with pytest.raises(Unsupported, check=about("accuracy")):
        gate.sql(COUNT, within=60)
    assert gate.spent == spent  # the look is there, and no finer one is bought


def test_a_share_of_the_rows_can_be_asked_for():
    gate = opened()
    answer = gate.sql(COUNT, relative="0.05", rows=18_000)
    assert answer.margins()["n"][0] <= 1.1 * 0.05 * 18_000


def test_a_new_draw_keeps_the_look():
    gate = opened()
    first = gate.sql(COUNT, within=400)
    again = gate.sql(COUNT, within=400, fresh=True)
    assert 0 < again.cost.epsilon < first.cost.epsilon


def test_at_the_command_line(policy):
    words = ["ask", str(policy("10")), COUNT, "--within", "400", "--json"]
    prices = []
    for _ in range(2):
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
        told = json.loads(found.stdout)
        assert told["margins"][0][0] <= 440
        prices.append(told["price"])
    assert prices[0] > 0
    assert prices[1] == 0
