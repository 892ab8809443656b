"""What a recipe promises that stops before all it reserved is used: in each room that has one.

Why it is not what was used: `test_accounting_attacks.py`.
"""

from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

import noisegate
from noisegate.accounting.pure import promised
from noisegate.desk import job
from noisegate.learners.fitting import Task, learn
from noisegate.learners.queries import StatisticalQueries
from noisegate.privacy.event import (
    DeclaredEvent,
    DeclaredZCDPEvent,
    KeySelectionEvent,
    NothingEvent,
    Sequential,
)
from noisegate.privacy.loss import ApproxDP
from noisegate.synthetic import synthesis
from noisegate.transforms.statistics.features import One
from noisegate.transforms.statistics.statistic import Statistic
from noisegate.transforms.statistics.weighings import Plain

ROWS = pa.table({"age": list(range(8)) * 20, "ward": ["north", "south"] * 80})
FACTS = {"age": {"between": [0, 7]}, "ward": {"in": ["north", "south"]}}
SQL = "SELECT COUNT(*) FROM people GROUP BY age"
HALF = DeclaredZCDPEvent(rho=Fraction(1, 2))
FEW = {"rounds": 2, "replays": 2}


def opened(accountant="zcdp"):
    delta = 0 if accountant == "pure" else "1e-6"
    return noisegate.open(
        ROWS, epsilon=10, delta=delta, accountant=accountant, table="people", columns=FACTS
    )


def loss_of_all(gate):
    return gate._curator.loss_of(gate._desk.price(1).event())  # what ε = 1 reserves


def two_of_five(ask):
    """Rounds of a fifth of the price, interrupted after the second."""
    for turn in range(5):
        if turn == 2:
            raise KeyboardInterrupt
        (counts,) = ask.totals(Statistic(Plain(), (One(),)), [Fraction(1, 5)])
        ask.keep({"count": counts.values})


def test_an_epsilon_alone_is_promised_as_it_was_used_and_all_else_as_reserved():
    pure, leaky = DeclaredEvent(epsilon=1), KeySelectionEvent(epsilon=1, delta="1e-9")
    assert promised(pure, HALF) == pure
    assert promised(NothingEvent(), HALF) == NothingEvent()
    for used in (leaky, DeclaredZCDPEvent(rho=1), Sequential(events=(pure, leaky))):
        assert promised(used, HALF) == HALF


def test_a_model_that_was_interrupted_promises_what_it_reserved_or_its_epsilon():
    task = Task("rounds", {}, two_of_five)
    gate = opened()
    paid = learn(gate.matrix(columns=["age"]), task, epsilon=1).receipt
    assert paid.guarantee.loss == loss_of_all(gate)
    assert paid.cost.epsilon < Fraction(2, 3) * paid.guarantee.loss.epsilon  # about √(2/5)
    pure = learn(opened("pure").matrix(columns=["age"]), task, epsilon=1).receipt
    assert pure.guarantee.loss == pure.cost
    assert pure.cost.epsilon == Fraction(2, 5)


def test_a_table_promises_what_it_reserved_however_early_it_stopped():
    gate = opened()
    made = gate.release("mwem", SQL, epsilon=1, **FEW)
    assert made.guarantee.loss == loss_of_all(gate)
    assert made.cost.epsilon <= made.guarantee.loss.epsilon
    again = gate.release("mwem", SQL, epsilon=1, **FEW)
    assert (again.free, again.guarantee) == (True, made.guarantee)


def test_a_promise_of_what_was_used_is_caught(monkeypatch):
    monkeypatch.setattr(job, "promised", lambda used, _reserved: used)
    gate = opened()
    made = gate.release("privtree", SQL, epsilon=1)  # its tree costs less than its share
    assert made.guarantee.loss != loss_of_all(gate)


def test_rows_of_a_model_of_tables_promise_what_they_reserved():
    gate = opened()
    made = gate.release("synthetic", columns=["age", "ward"], epsilon=1)
    assert made.guarantee.loss == loss_of_all(gate)


def test_questions_promise_what_they_reserved_from_the_first_on():
    gate = opened()
    with StatisticalQueries(gate, epsilon=1, queries=20) as session:
        session.mean("age >= 4")
        assert session.guarantee.loss == loss_of_all(gate)
        assert session.spent.epsilon < session.guarantee.loss.epsilon / 2


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
def test_the_model_of_a_session_promises_all_of_it_unless_it_is_an_epsilon(accountant):
    gate = opened(accountant)
    with gate.many({"age": None, "ward": None}, epsilon=1, surprises=4, start=1) as session:
        session.sql("SELECT COUNT(*) FROM people WHERE age < 4")
        model, spent = session.model, session.balance.spent
    assert model.guarantee.loss == (spent if accountant == "pure" else session.plan.price)
    assert model.cost == spent
    assert spent.epsilon < session.plan.price.epsilon


# what is made of releases


def require_covered(made, *parts):
    """Rows that are made of releases tell what those told, whoever paid for them."""
    assert made.guarantee.loss.epsilon == sum(Fraction(each) for each in parts)


def test_rows_that_are_made_with_evidence_promise_what_it_lost_too():
    """Sharp evidence makes sharp rows, and it was paid for by others: ε = 1/100 was said of them."""
    gate = opened("pure")
    sharp = gate.release("cells", "SELECT COUNT(*) FROM people GROUP BY ward", epsilon=5)
    asked = gate.sql("SELECT age, COUNT(*) FROM people GROUP BY age", epsilon=2)
    terms = {"columns": ["ward", "age"], "epsilon": "0.01"}
    require_covered(gate.release("synthetic", evidence=[sharp], **terms), "0.01", 5)
    require_covered(gate.release("synthetic", evidence=[sharp, sharp], **terms), "0.01", 5)
    both = gate.release("synthetic", evidence=[sharp, asked], **terms)
    require_covered(both, "0.01", 5, 2)
    assert "made with evidence" in both.promise
    assert both.cost.epsilon == Fraction("0.01")
    require_covered(gate.release("synthetic", evidence=[both], **terms), "0.01", "7.01")
    unnamed = [replace(asked, request_ids=()) for _ in range(2)]  # nothing tells that they are one
    require_covered(gate.release("synthetic", evidence=unnamed, **terms), "0.01", 2, 2)


def test_a_session_that_knows_releases_promises_of_its_model_what_they_lost_too():
    gate = opened("pure")
    sharp = gate.release("cells", "SELECT COUNT(*) FROM people GROUP BY ward", epsilon=5)
    columns = {"ward": None, "age": None}
    with gate.many(columns, epsilon="0.1", surprises=2, evidence=[sharp]) as session:
        require_covered(session.model, session.balance.spent.epsilon, 5)


def test_rows_that_forget_their_evidence_are_caught(monkeypatch):
    monkeypatch.setattr(synthesis, "lost", lambda _: ApproxDP(0))
    gate = opened("pure")
    sharp = gate.release("cells", "SELECT COUNT(*) FROM people GROUP BY ward", epsilon=5)
    made = gate.release("synthetic", evidence=[sharp], columns=["ward"], epsilon="0.01")
    with pytest.raises(AssertionError):
        require_covered(made, "0.01", 5)
