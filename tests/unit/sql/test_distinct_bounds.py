"""Different values: a unit counts with as many as it has of them, however many rows it has."""

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.orders import SqlOrder
from noisegate.sql import job
from noisegate.sql.steps import formerly

SQL = "SELECT COUNT(DISTINCT status) AS n FROM t"
KINDS = 60


@pytest.fixture(scope="module")
def rows():
    """Units with few statuses and up to 400 rows; some rows have none."""
    coins = np.random.default_rng(5)
    sizes = np.minimum((coins.pareto(1.8, 2000) * 6 + 1).astype(int), 400)
    who = np.repeat(np.arange(2000), sizes)
    few = coins.integers(0, KINDS, (2000, 4))
    status = [f"s{few[unit, coins.integers(4)]}" if coins.random() < 0.9 else None for unit in who]
    return pa.table({"who": who, "status": status, "g": coins.integers(0, 2, who.size)})


def opened(rows, accountant="pure", ledger=":memory:"):
    return ng.open(
        rows, epsilon=1000, delta=1e-6, table="t", unit="who", accountant=accountant, ledger=ledger,
        columns={"status": {"type": "text"}, "g": {"in": [0, 1]}},
    )  # fmt: skip


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_distinct_values_are_bounded_by_how_many_a_unit_has(rows, accountant):
    """A bound on rows made the ± 500 to 1,100. Fewer than 16 of 20 inside: 1 of 400 times."""
    gate = opened(rows, accountant)
    answers = [gate.sql(SQL, epsilon=3, fresh=True) for _ in range(20)]
    halves = [answer.margins()["n"][0] for answer in answers]
    assert max(halves) < KINDS
    inside = [abs(a.rows[0][0] - KINDS) <= half for a, half in zip(answers, halves, strict=True)]
    assert sum(inside) >= 16
    assert "the cap on different values per unit, as estimated" in str(answers[0])


@pytest.mark.parametrize("sql", [SQL, f"{SQL} GROUP BY g"])
def test_a_unit_moves_the_look_by_one_in_one_bin(rows, sql):
    """Whichever unit goes: of many rows, of one, of none with a status."""
    who = rows.column("who").to_numpy()
    sizes = np.bincount(who)
    order = SqlOrder.make(sql=sql, epsilon=1)
    (look,) = opened(rows)._question(order, fresh=True).asked.looks
    query = look.measurement.query
    for unit in (int(sizes.argmax()), int(sizes.argmin()), 7):
        fewer = opened(rows.filter(pa.array(who != unit)))
        exact = [each._curator._source.sums(query.tally).ravel() for each in (opened(rows), fewer)]
        assert np.abs(exact[0] - exact[1]).sum() <= 1 == query.l1s[0].value


def test_rows_bound_what_else_is_asked_beside(rows):
    plan = str(
        opened(rows).plan("SELECT COUNT(*) AS n, COUNT(DISTINCT status) AS m FROM t", epsilon=1)
    )
    assert "the cap on rows per unit" in plan
    assert "different values" not in plan


@pytest.mark.parametrize("sql", [SQL, f"{SQL} GROUP BY g"])
def test_what_was_paid_for_under_a_bound_on_rows_is_found(rows, tmp_path, monkeypatch, sql):
    read, ledger = job._reading, tmp_path / "t.ledger"
    with monkeypatch.context() as once:
        was = formerly.Formerly(by_rows=True)
        once.setattr(job, "_reading", lambda *args: was.read(read(*args)))
        bought = opened(rows, ledger=ledger).sql(sql, epsilon=1)
    monkeypatch.setattr(formerly, "VALUES_SINCE", "2000-01-01")
    assert not opened(rows, ledger=ledger).plan(sql, epsilon=1).free
    monkeypatch.setattr(formerly, "VALUES_SINCE", "9999-12-31")
    gate = opened(rows, ledger=ledger)
    assert gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows == bought.rows


@pytest.fixture(scope="module")
def listed():
    """Units with up to 400 rows and most of 60 whole numbers, of which some are rare."""
    coins = np.random.default_rng(8)
    sizes = np.minimum(np.maximum(1, coins.lognormal(2, 1.2, 3000)).astype(int), 400)
    who = np.repeat(np.arange(3000), sizes)
    rare = 1 / np.arange(1, KINDS + 1)
    return pa.table({
        "who": who, "p": coins.choice(KINDS, who.size, p=rare / rare.sum()),
        "g": coins.integers(0, 2, who.size),
    })  # fmt: skip


def opened_listed(rows, ledger=":memory:"):
    columns = {"p": {"between": [0, 200]}, "g": {"in": [0, 1]}}
    return ng.open(rows, epsilon=1000, table="t", unit="who", columns=columns, ledger=ledger)


FEW = (
    "SELECT COUNT(DISTINCT p) AS n FROM t",
    "SELECT g, COUNT(DISTINCT p) AS n FROM t GROUP BY g",
    "SELECT COUNT(*) AS m, COUNT(DISTINCT p) AS n FROM t",
    "SELECT COUNT(DISTINCT p) AS n, COUNT(DISTINCT p % 60) AS m FROM t",
)


@pytest.mark.parametrize("sql", FEW)
def test_where_few_values_exist_few_of_a_unit_are_enough(listed, sql):
    """With nearly all values of a unit the ± was 120 to 1,500, or 10 times that. Fewer than 14 of
    20 inside: 1 of 3,000 times.
    """
    gate, inside = opened_listed(listed), 0
    for _ in range(20):
        answer = gate.sql(sql, epsilon=1, fresh=True)
        place, half = answer.columns.index("n"), answer.margins()["n"][0]
        assert half < 2 * KINDS
        inside += abs(answer.rows[0][place] - KINDS) <= half
    assert inside >= 14


@pytest.mark.parametrize("sql", FEW[:3])
def test_what_was_paid_for_under_a_bound_on_nearly_all_values_is_found(
    listed, tmp_path, monkeypatch, sql
):
    read, ledger = job._reading, tmp_path / "t.ledger"
    with monkeypatch.context() as once:
        was = formerly.Formerly(all_values=True)
        once.setattr(job, "_reading", lambda *args: was.read(read(*args)))
        bought = opened_listed(listed, ledger).sql(sql, epsilon=1)
    monkeypatch.setattr(formerly, "FEW_SINCE", "2000-01-01")
    assert not opened_listed(listed, ledger).plan(sql, epsilon=1).free
    monkeypatch.setattr(formerly, "FEW_SINCE", "9999-12-31")
    gate = opened_listed(listed, ledger)
    assert gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows == bought.rows
