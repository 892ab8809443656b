"""The gate as analysts see it: terms, balance, tables, and what it says of itself."""

from fractions import Fraction

import pytest
from people_gates import BY_K, COUNT, HIGH, gate_of, people

from noisegate.errors import OverBudget, SpecError
from refusals import about


def test_terms_that_do_not_exist_are_refused_by_name():
    with pytest.raises(SpecError, match="'epsilom'"):
        gate_of().plan(COUNT, epsilom=1)


@pytest.mark.parametrize("ways", [{}, {"within": 1, "relative": "0.1"}])
def test_a_price_or_one_accuracy_is_given(ways):
    with pytest.raises(SpecError, check=about("price")):
        gate_of().sql(COUNT, **ways)


def test_numbers_are_read_as_people_write_them():
    gate = gate_of(budget=1)
    for _ in range(10):
        gate.sql(COUNT, epsilon=0.1, fresh=True)
    assert gate.spent.epsilon == 1
    assert gate.remaining.epsilon == 0
    with pytest.raises(OverBudget):
        gate.sql(COUNT, epsilon="1e-9", fresh=True)


def test_what_the_caller_says_goes_before_what_the_sql_says():
    sql = COUNT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5)")
    gate = gate_of()
    assert gate.plan(sql).price.epsilon == Fraction(1, 2)
    assert gate.plan(sql, epsilon="0.25").price.epsilon == Fraction(1, 4)
    assert gate.plan(sql, within=3).margins()["n"] <= 3


def test_balance_and_history_are_those_of_the_ledger():
    gate = gate_of(budget=2)
    gate.sql(BY_K, epsilon="0.5")
    assert (gate.spent.epsilon, gate.remaining.epsilon) == (Fraction(1, 2), Fraction(3, 2))
    assert gate.ledger.balance("clinic").spent == gate.spent
    assert [entry.kind for entry in gate.history()][-2:] == ["reserve", "settle"]
    assert gate.ledger.verify().problems == []


def test_step_by_step_is_the_same_question_as_sql():
    gate = gate_of()
    first = gate.sql(BY_K, epsilon=1)
    again = gate.table("people").group_by("k").count().ask(epsilon=1)
    assert again.free
    assert [tuple(row) for row in again.rows] == list(first.rows)


def test_a_gate_says_what_it_protects_and_what_is_left():
    gate = gate_of(people(unit="pid", rows_per_unit_max=3), budget=2)
    gate.sql(COUNT, epsilon="0.5")
    words = repr(gate)
    for said in ("'people'", "'pid'", "spent ε = 0.5", "left ε = 1.5", "memory only"):
        assert said in words
    assert set(gate.tables) == {"people"}


def test_what_the_caller_caps_is_what_counts():
    gate = gate_of(people(unit="pid", rows_per_unit_max=3))
    for cap, exact in [(1, 40), (2, 80), (3, 120), (5, 120)]:  # 40 persons of 3 rows each
        answer = gate.sql(COUNT, epsilon=HIGH, rows_per_unit=cap)
        assert answer.rows[0][0] == pytest.approx(exact, abs=1)


def test_confidence_widens_the_promise():
    gate = gate_of()
    prices = [
        gate.plan(COUNT, within=10, confidence=level).price.epsilon for level in ("0.5", "0.95")
    ]
    assert prices[0] < prices[1]
