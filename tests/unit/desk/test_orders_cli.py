"""Orders on the command line: printed in one place, planned and run in another."""

import json

import pytest
from command_line import run

COUNTED = "SELECT COUNT(*) AS n FROM people"
BY_WARD = "SELECT ward, COUNT(*) FROM people GROUP BY ward"
FACTS = ("--keys", "ward=north,south", "--between", "age=0,99", "--type", "age=integer")
OPENED = (*FACTS, "--budget", "100")
PRINTED = {
    "sql": ("ask", "people.csv", COUNTED, "--epsilon", "1"),
    "choose": ("choose", "people.csv", BY_WARD, "--epsilon", "1", "--gap", "-k", "1"),
    "smooth": ("smooth", "people.csv", "SELECT MEDIAN(age) AS m FROM people", "--epsilon", "1"),
    "distance": ("distance", "people.csv", BY_WARD, "--epsilon", "1"),
    "graph": ("graph", "people.csv", "edges", "--source", "age", "--target", "age + 1", "--nodes", "0:9",
              "--epsilon", "1"),
    "release": ("release", "cdf", "people.csv", "--columns", "age=10", "--epsilon", "1"),
    "apply": ("apply", "people.csv", "mean.py:mean", "--columns", "age", "--range", "0,99", "--blocks", "2",
              "--epsilon", "1", "--seconds", "0.3"),
    "many": ("many", "people.csv", "--questions", "asked.sql", "--columns", "ward", "--epsilon", "1"),
    "fit": ("learn", "people.csv", "PCA", "--columns", "age", "--set", "n_components=1", "--epsilon", "1"),
}  # fmt: skip
WRITTEN = {
    "caps": {"kind": "caps", "table": "people", "epsilon": 1},
    "bounds": {"kind": "bounds", "table": "people", "column": "age", "epsilon": 5},
    "statistic": {"kind": "statistic", "expressions": ["age >= 50"], "epsilon": "1"},
}


@pytest.fixture
def folder(tmp_path):
    rows = "".join(f"{i},{i * 7 % 100},{'north' if i % 4 else 'south'}\n" for i in range(400))
    (tmp_path / "people.csv").write_text("id,age,ward\n" + rows)
    (tmp_path / "mean.py").write_text("def mean(rows):\n    return len(rows['age']) / 9\n")
    (tmp_path / "asked.sql").write_text("SELECT COUNT(*) FROM people WHERE ward = 'north'\n")
    return tmp_path


def ordered(folder, record, *words, code=0):
    (folder / "order.json").write_text(json.dumps(record))
    return run("order", "people.csv", "order.json", *OPENED, *words, code=code, cwd=folder)


@pytest.mark.parametrize("kind", PRINTED)
def test_an_order_is_printed_for_nothing_and_run_elsewhere(kind, folder):
    record = json.loads(run(*PRINTED[kind], *OPENED, "--print-order", cwd=folder).stdout)
    assert record["kind"] == kind
    assert not (folder / "people.csv.ledger").exists()
    assert json.loads(ordered(folder, record, "--plan", "--json").stdout)["price"] > 0
    assert not (folder / "people.csv.ledger").exists()
    assert ordered(folder, record).stdout
    assert json.loads(ordered(folder, record, "--json").stdout)
    if kind != "many":  # a session is always a new one
        assert json.loads(ordered(folder, record, "--plan", "--json").stdout)["price"] == 0


@pytest.mark.parametrize("kind", WRITTEN)
def test_orders_that_have_no_command_are_run_too(kind, folder):
    unit = ("--unit", "id") if kind == "caps" else ()
    assert ordered(folder, WRITTEN[kind], *unit).stdout
    assert json.loads(ordered(folder, WRITTEN[kind], *unit, "--json").stdout)
    plan = ordered(folder, WRITTEN[kind], *unit, "--plan", "--json").stdout
    assert json.loads(plan)["price"] == 0


@pytest.mark.parametrize("text", ["{", "[1]", '{"kind": "sqll"}', '{"kind": "sql"}'])
def test_what_is_no_order_is_refused_with_code_2(text, folder):
    (folder / "order.json").write_text(text)
    run("order", "people.csv", "order.json", *OPENED, code=2, cwd=folder)
    assert not (folder / "people.csv.ledger").exists()


def test_what_the_account_cannot_pay_ends_with_code_3(folder):
    ordered(folder, {"kind": "sql", "sql": COUNTED, "epsilon": 500}, code=3)
