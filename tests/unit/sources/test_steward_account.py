"""The steward's own account: a share of its own, which composes in the budget of the data set."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import noisegate as ng
from noisegate.cli import app
from noisegate.errors import OverBudget, PolicyError
from noisegate.root import policy_page, read_policy
from refusals import about

COUNT = "SELECT COUNT(*) AS n FROM visits"
ROWS = pa.table({"person": np.arange(300) // 3, "age": np.arange(300) % 80})
POLICY = """
name = "clinic"
source = "."
[budget]
epsilon = 1
{more}
[tables.visits]
unit = "person"
rows_per_unit = 3
[tables.visits.columns]
person = {{ type = "integer" }}
age = {{ type = "integer", between = [0, 79] }}
"""
OWN = "[steward]\nepsilon = 0.2\n"
LISTED = OWN + "[analysts]\nana = 0.9\n"


@pytest.fixture
def clinic(tmp_path):
    csv.write_csv(ROWS, tmp_path / "visits.csv")

    def written(more=OWN):
        (tmp_path / "clinic.toml").write_text(POLICY.format(more=more))
        return tmp_path / "clinic.toml"

    return written


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.parametrize("more", [OWN, LISTED], ids=["open", "listed"])
def test_the_stewards_looks_have_a_budget_of_their_own_and_count_in_the_whole(clinic, more):
    policy = clinic(more)
    steward = ng.open(policy, analyst="steward")
    assert steward.remaining.epsilon == Fraction(1, 5)
    steward.sql(COUNT, epsilon="0.15")
    with pytest.raises(OverBudget):
        steward.sql("SELECT AVG(age) AS a FROM visits", epsilon="0.1")
    ledger = steward.ledger
    assert ledger.balance("clinic").spent.epsilon == Fraction(3, 20)
    assert ledger.balance("clinic/steward").parent == "clinic"
    ana = ng.open(policy, analyst="ana")
    assert ana.remaining.epsilon == Fraction(17, 20)  # what is left of the whole
    assert ana.sql(COUNT, epsilon="0.15").free  # what was released is free for everybody
    ana.sql("SELECT AVG(age) AS a FROM visits", epsilon="0.85")
    with pytest.raises(OverBudget):
        steward.sql("SELECT SUM(age) AS a FROM visits", epsilon="0.05")
    assert ledger.verify().ok


def test_a_listed_policy_without_a_stewards_share_gives_none(clinic):
    with pytest.raises(PolicyError, check=about("share")):
        ng.open(clinic("[analysts]\nana = 0.9\n"), analyst="steward")


@pytest.mark.parametrize(
    "more",
    [
        "[steward]\nepsilon = 2\n",
        "[steward]\nepsilon = 0.1\ndelta = 1e-6\n",
        "[steward]\nepsilon = 0\n",
        "[steward]\nepsilon = 0.1\nevery = 'day'\n",
        f"{OWN}[analysts]\nsteward = 0.1\n",
    ],
)
def test_a_share_that_cannot_be_kept_is_refused(clinic, more):
    with pytest.raises(PolicyError):
        read_policy(clinic(more))


def test_the_steward_asks_and_describes_at_the_command_line(clinic):
    policy = clinic(LISTED)
    asked = run("ask", policy, COUNT, "--as", "steward", "--epsilon", "0.05", "--json")
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout)["price"] == 0.05
    told = run("describe", policy, "--as", "steward", "--epsilon", "0.1", "--json")
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["remaining"] == pytest.approx(0.05, abs=0.01)
    over = run("ask", policy, COUNT, "--as", "steward", "--epsilon", "0.3")
    assert over.exit_code != 0
    gate = ng.open(policy, analyst="ana")
    assert {
        entry.body["account"] for entry in gate.ledger.history() if entry.kind == "reserve"
    } == {"clinic/steward"}


def test_the_share_changes_in_ledger_and_policy_in_one_go(clinic):
    policy = clinic()
    ng.open(policy, analyst="steward").sql(COUNT, epsilon="0.1")
    changed = run("ledger", "budget", policy, "steward", "0.4", "--reason", "a new table")
    assert changed.exit_code == 0, changed.output
    assert read_policy(policy).steward.epsilon == Fraction(2, 5)
    assert ng.open(policy, analyst="steward").remaining.epsilon == Fraction(3, 10)


def test_a_raised_budget_leaves_the_stewards_share(clinic):
    policy = clinic()
    ng.open(policy, analyst="steward").sql(COUNT, epsilon="0.1")
    changed = run("ledger", "budget", policy, "clinic", "2", "--reason", "more")
    assert changed.exit_code == 0, changed.output
    assert ng.open(policy, analyst="steward").remaining.epsilon == Fraction(1, 10)


def test_a_draft_has_a_share_for_the_steward(tmp_path):
    csv.write_csv(ROWS, tmp_path / "visits.csv")
    made = run(
        "init", tmp_path / "visits.csv", "--unit", "person", "--to", tmp_path / "drafted.toml"
    )
    assert made.exit_code == 0, made.output
    drafted = read_policy(tmp_path / "drafted.toml")
    assert drafted.steward.epsilon == Fraction(1, 10)
    assert drafted.steward.epsilon < drafted.budget.epsilon
    assert "steward's own looks" in policy_page(tmp_path / "drafted.toml")
