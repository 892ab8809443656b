"""What was asked for a part of the rest is found again, however many entries of the ledger it is."""

import copy
import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

import noisegate as ng
from noisegate import orders
from noisegate.cli import app
from noisegate.desk import desk
from noisegate.learners import KMeans
from noisegate.privacy.loss import ApproxDP

COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
VISITS = pa.table({
    "person": np.arange(900) // 3,
    "age": np.arange(900) % 80,
    "ward": np.array(["north", "south", "west"])[np.arange(900) % 3],
})  # fmt: skip
COLUMNS = {
    "age": {"between": [0, 79], "nullable": False},
    "ward": {"in": ["north", "south", "west"]},
}
HISTOGRAM = {"kind": "release", "name": "histogram", "columns": {"age": 10, "ward": None}}
ASKED = {
    "sql": {"kind": "sql", "sql": COUNT},
    "sql, declared": {"kind": "sql", "sql": COUNT, "rows_per_unit": 3},
    "sql, two blocks": {
        "kind": "sql",
        "sql": "SELECT (SELECT COUNT(*) FROM visits) + (SELECT SUM(age) FROM visits) AS s",
    },
    "histogram": HISTOGRAM,
    "histogram, declared": {**HISTOGRAM, "rows_per_unit": 3},
    "cube": {
        "kind": "release",
        "name": "cube",
        "columns": {"age": 10, "ward": None},
        "sets": 1,
        "rows_per_unit": 3,
    },
    "boxplot": {"kind": "release", "name": "boxplot", "columns": {"age": None, "ward": None}},
    "describe": {"kind": "release", "name": "describe", "columns": ["age", "ward"]},
}


def opened(accountant, ledger):
    return ng.open(
        VISITS, table="visits", unit="person", columns=COLUMNS, epsilon=4,
        delta=0 if accountant == "pure" else "1e-9", accountant=accountant, ledger=ledger,
    )  # fmt: skip


def numbers(release):
    told = release.to_dict()
    return told["tables"] if "tables" in told else told["rows"]


# Every order with both parts and in both accounts, and both parts in both accounts.
PAIRS = [
    (name, said, ("pure", "zcdp")[(place + whole) % 2])
    for place, name in enumerate(ASKED)
    for whole, said in enumerate(["1/10 of rest", "rest"])
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "said", "accountant"), PAIRS)
def test_an_order_for_a_part_of_the_rest_is_paid_once(name, said, accountant, tmp_path):
    durable = name in ("sql", "histogram")
    gate = opened(accountant, tmp_path / "ledger.sqlite" if durable else ":memory:")
    order = orders.order_from({**ASKED[name], "epsilon": said})
    gate.sql("SELECT COUNT(*) AS n FROM visits", epsilon="0.2", rows_per_unit=1)
    first = gate.run(order)
    spent, shown = gate.spent, numbers(first)
    assert gate.plan(order).free
    for _ in range(2):
        again = gate.run(order)
        assert again.free
        assert numbers(again) == shown
    assert gate.spent == spent
    assert gate.ledger.verify().ok


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_each_of_many_orders_for_a_part_of_the_rest_is_found_again(accountant):
    gate = opened(accountant, ":memory:")
    count = desk._TRIED + 4  # more than prices that are tried without a note
    asked = [f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}" for age in range(count)]
    for sql in asked:
        gate.sql(sql, epsilon="1/10 of rest")
    spent = gate.spent
    for sql in asked:
        assert gate.sql(sql, epsilon="10% of the rest").free
    assert gate.spent == spent


def test_what_is_free_leaves_no_note():
    gate = opened("pure", ":memory:")
    gate.sql(COUNT, epsilon="1/10 of rest")
    before = len(gate.ledger.history())
    for spaces in range(5):
        assert gate.sql(COUNT + " " * spaces, epsilon="1/10 of rest").free
        gate.sql(f"EXPLAIN {COUNT}{' ' * spaces}", epsilon="rest")
    assert len(gate.ledger.history()) == before


def test_an_order_that_was_settled_can_be_copied():
    gate = opened("pure", ":memory:")
    settled = gate.settled(orders.order_from({**HISTOGRAM, "epsilon": "1/10 of rest"}))
    for again in (copy.copy(settled), copy.deepcopy(settled), pickle.loads(pickle.dumps(settled))):
        assert (again, copy.copy(again.epsilon)) == (settled, settled.epsilon)
        assert again.epsilon.order == settled.epsilon.order
    assert orders.order_from(json.loads(settled.to_json())) == settled


def test_a_new_draw_of_a_part_of_the_rest_is_found_from_then_on():
    gate = opened("pure", ":memory:")
    order = orders.order_from({**HISTOGRAM, "epsilon": "1/10 of rest"})
    gate.run(order)
    assert gate.run(order, fresh=True).cost.epsilon > 0
    spent = gate.spent
    assert gate.run(order).free
    assert gate.spent == spent


def test_a_fit_for_a_part_of_the_rest_is_paid_once():
    gate = opened("zcdp", ":memory:")
    rows = gate.matrix("visits", ["age"], rows_per_unit=3)
    first, again = (KMeans(n_clusters=2, epsilon="1/2 of rest").fit(rows) for _ in range(2))
    assert (first.cost_.epsilon > 0, again.cost_.epsilon) == (True, 0)


def test_a_raised_budget_buys_more_for_the_same_part_of_the_rest(tmp_path):
    order = orders.order_from({**HISTOGRAM, "epsilon": "1/10 of rest"})
    gate = opened("pure", tmp_path / "ledger.sqlite")
    gate.run(order)
    gate.ledger.change_budget("visits", ApproxDP(100), reason="more")
    assert not gate.plan(order).free


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_at_the_command_line_it_is_paid_once(accountant, tmp_path):
    csv.write_csv(VISITS, tmp_path / "visits.csv")
    delta = "" if accountant == "pure" else "delta = 1e-9\n"
    (tmp_path / "visits.toml").write_text(
        f'name = "visits"\nsource = "."\nprotects = "person"\n\n[budget]\nepsilon = 4\n{delta}'
        f'accountant = "{accountant}"\n\n[analysts]\nana = 2\n\n[tables.visits]\nunit = "person"\n\n'
        '[tables.visits.columns]\nperson = { type = "integer" }\n'
        'age = { type = "integer", between = [0, 79] }\n'
        'ward = { in = ["north", "south", "west"] }\n'
    )
    policy, who = str(tmp_path / "visits.toml"), ["--analyst", "ana", "--json"]
    for words in (
        ["ask", policy, COUNT],
        ["release", "histogram", policy, "--columns", "age=10,ward"],
    ):
        prices = []
        for _ in range(3):
            found = CliRunner().invoke(app, [*words, *who, "--epsilon", "1/10 of rest"])
            assert found.exit_code == 0, found.output
            prices.append(json.loads(found.stdout)["price"])
        assert prices[0] > 0
        assert prices[1:] == [0, 0]
