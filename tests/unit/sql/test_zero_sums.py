"""A sum of values that are 0 by their bounds is 0: no noise, no price, no ±."""

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

import noisegate as ng
from cases import mostly_long
from noisegate.sql.job import _read as job_read

ROWS = 4000
TABLE = pa.table(
    {
        "who": [place // 5 for place in range(ROWS)],
        "n": [place % 100 for place in range(ROWS)],
        "cost": [None if place % 7 == 0 else Decimal(place % 50) / 4 for place in range(ROWS)],
        "g": ["ab"[place % 2] for place in range(ROWS)],
    },
    schema=pa.schema([
        ("who", pa.int64()), ("n", pa.int64()), ("cost", pa.decimal128(9, 2)), ("g", pa.string()),
    ]),
)  # fmt: skip
COLUMNS = {"n": {"between": [0, 99]}, "cost": {"between": [0, 20]}, "g": {"in": ["a", "b"]}}
ACCOUNTS = [{}, {"unit": "who"}, {"delta": 1e-6}, {"unit": "who", "delta": 1e-6}]


def opened(**more):
    return ng.open(TABLE, table="v", columns=COLUMNS, epsilon=100, **more)


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize(
    "zero", ["SUM(0 * n)", "SUM(0)", "SUM(CASE WHEN n > 50 THEN 0 ELSE 0 END)", "SUM(0.00 * cost)"]
)
def test_a_sum_of_nothing_but_0_is_0_and_leaves_the_price_to_the_others(account, zero):
    gate = opened(**account)
    plain = gate.plan("SELECT COUNT(*) AS c FROM v", epsilon=1)
    sql = f"SELECT COUNT(*) AS c, {zero} AS z FROM v"
    plan, answer = gate.plan(sql, epsilon=1), gate.sql(sql, epsilon=1)
    assert plan.epsilon == plain.epsilon
    assert plan.margins(0.95) == plain.margins(0.95)
    assert answer.rows[0][1] == 0
    assert answer.margins()["z"] is None
    assert gate.sql("SELECT COUNT(*) AS c FROM v", epsilon=1).free
    assert gate.sql(f"SELECT {zero} AS z FROM v", epsilon=1).cost.epsilon == 0


@pytest.mark.parametrize("account", ACCOUNTS)
def test_conditions_and_groups_leave_zeros_too(account):
    gate = opened(**account)
    where = gate.sql("SELECT COUNT(*) AS c, SUM(n) AS z FROM v WHERE n = 0", epsilon=1)
    assert where.margins()["z"] is None
    assert where.rows[0][1] == 0
    found = gate.sql("SELECT g, COUNT(*) AS c, SUM(n - n * 1) AS s FROM v GROUP BY g", epsilon=9)
    assert None not in found.margins()["s"]  # its bounds are -99 and 99
    sql = "SELECT g, SUM(0 * n) AS z, SUM(SUM(0 * n)) OVER () AS w FROM v GROUP BY ROLLUP (g)"
    assert {row[1:] for row in gate.sql(sql, epsilon=1).rows} == {(0, 0)}


def test_zeros_have_the_type_of_the_sum():
    gate = opened()
    sql = "SELECT COUNT(*) AS c, SUM({}) AS i, SUM({}) AS d FROM v"
    zero, other = (gate.sql(sql.format(*each), epsilon=1).to_arrow() for each in (
        ("0 * n", "0.00 * cost"), ("1 * n", "1.00 * cost"),
    ))  # fmt: skip
    assert zero.schema.types == other.schema.types


@pytest.mark.parametrize("also", ["", " WHERE n > (SELECT AVG(n) FROM v)"])
def test_what_was_bought_with_noisy_zeros_is_found_in_older_ledgers(monkeypatch, tmp_path, also):
    def noisy(*args):
        question = job_read(*args)
        blocks = (replace(each, noisy_zeros=True, near=True) for each in question.blocks)
        return replace(question, blocks=tuple(blocks))

    sql = f"SELECT COUNT(*) AS c, SUM(0 * n) AS z FROM v{also}"
    with monkeypatch.context() as once:
        once.setattr("noisegate.sql.job._read", noisy)
        bought = opened(ledger=tmp_path / "v.ledger").sql(sql, epsilon=1)
    assert bought.margins()["z"][0] > 99
    gate = opened(ledger=tmp_path / "v.ledger")
    monkeypatch.setattr("noisegate.sql.steps.formerly.SUMS_SINCE", "9999-12-31")
    assert gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows == bought.rows
    monkeypatch.setattr("noisegate.sql.steps.formerly.SUMS_SINCE", "2000-01-01")
    assert not gate.plan(sql, epsilon=1).free
    assert gate.sql(sql, epsilon=1).rows[0][1] == 0


@pytest.mark.parametrize(
    "asked",
    mostly_long(["SUM(z)", "COUNT(*), SUM(z)", "AVG(z), SUM(z)", "AVG(z)"], "SUM(z)", "AVG(z)"),
)
@pytest.mark.parametrize("declared", [True, False])
def test_values_that_are_all_0_are_told_as_about_0(asked, declared):
    """A look that saw nobody, or bounds from 0 to 0: both were charged, and divided by 0."""
    rows = pa.table({"who": list(range(3000)) * 2, "z": [0.0] * 6000})
    columns = {"z": {"between": [0, 50]}} if declared else {}
    terms = {} if declared else {"choose": "bounds"}
    for epsilon in (1, 100):
        gate = ng.open(rows, epsilon=100, table="t", unit="who", columns=columns, ledger=":memory:")
        answer = gate.sql(f"SELECT {asked} FROM t", epsilon=epsilon, **terms)
        *_, margins = answer.margins().values()
        if margins is None or margins[0] is None:
            continue  # bounds from 0 to 0 tell nothing of what is beyond them
        (margin,) = margins
        assert (
            abs(answer.rows[0][-1]) <= 3 * margin + 1
        )  # three times the ± is passed once in 8,000 answers
