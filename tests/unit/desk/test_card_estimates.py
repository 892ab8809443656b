"""What rests on an estimate says so: its entries, its words, and what it adds to the estimate."""

import json
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import noisegate as ng
from noisegate.accounting.pure import pure_loss
from noisegate.cli import app
from noisegate.desk.card import Card
from noisegate.desk.release import read_sealed
from noisegate.desk.sent import received, sent
from noisegate.privacy.event import Sequential, decode
from noisegate.privacy.guarantee import ESTIMATES

VISITS = pa.table({
    "person": np.arange(900) // 3,
    "age": np.arange(900) % 80,
    "weight": (np.arange(900) * 7 % 500).astype(float),
    "ward": np.array(["north", "south", "west"])[np.arange(900) % 3],
})  # fmt: skip
COLUMNS = {
    "age": {"between": [0, 79], "nullable": False},
    "ward": {"in": ["north", "south", "west"]},
}
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
CELLS = {"age": 10, "ward": None}
RELEASES = {
    "histogram": {"columns": CELLS},
    "cdf": {"columns": {"age": 10}},
    "above": {"columns": CELLS, "questions": "cells", "threshold": 20},
    "boxplot": {"columns": {"age": None, "ward": None}},
    "describe": {"columns": ["age", "ward"]},
    "synthetic": {"columns": ["ward", "weight"], "method": "independent", "choose": "bounds"},
}  # fmt: skip


def opened(accountant="pure", ledger=":memory:", **more):
    return ng.open(
        VISITS, table="visits", unit="person", columns=COLUMNS, epsilon=40,
        delta=0 if accountant == "pure" else "1e-9", accountant=accountant, ledger=ledger,
        **more,
    )  # fmt: skip


def reserved(gate, card):
    """The events of the entries that a card names."""
    named = {line["seq"] for line in card.record["ledger"]}
    entries = [each for each in gate.ledger.history() if each.seq in named]
    return [decode(each.body["event"]) for each in entries if each.kind == "reserve"]


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("name", RELEASES)
def test_a_card_names_the_estimates_that_a_release_rests_on(name, accountant):
    gate = opened(accountant, **({"rows_per_unit": 3} if name == "synthetic" else {}))
    before = len(gate.ledger.history())
    made = gate.release(name, epsilon=8, **RELEASES[name])
    new = [each for each in gate.ledger.history()[before:] if each.kind == "reserve"]
    for card in (made.card(), gate.release(name, epsilon=8, **RELEASES[name]).card()):
        assert card.verify(gate.ledger) == []
        lines = [line["seq"] for line in card.record["ledger"] if line["kind"] == "reserve"]
        assert lines == [each.seq for each in new]
        assert len(lines) > 1
        assert len(card.record["measurements"]) == len(lines)
        assert any("as estimated" in words for words in card.record["caveats"])
        promised = card.record["guarantee"]
        assert ESTIMATES in promised["sentence"]
        assert Fraction(promised["added"]["epsilon"]) < Fraction(promised["epsilon"])
        assert promised["added"] != card.record["change_one"]["added"]
        if accountant == "pure":
            whole = pure_loss(Sequential(events=tuple(reserved(gate, card)))).epsilon
            assert Fraction(promised["epsilon"]) == pytest.approx(whole)
            assert Fraction(promised["epsilon"]) <= whole == 8


@pytest.mark.parametrize("accountant", ["pure", "zcdp"])
@pytest.mark.parametrize("name", ["sql", "histogram"])
def test_a_cheap_release_on_a_dear_estimate_states_what_it_adds(name, accountant):
    gate = opened(accountant)
    looked = gate.caps("visits", epsilon=20)
    assert looked
    dear = gate.spent.epsilon
    assert dear > 19
    if name == "sql":
        made = gate.sql(COUNT.replace("ward, ", "").replace(" GROUP BY ward", ""), epsilon="0.1")
    else:
        made = gate.release(name, columns=CELLS, epsilon="0.1")
    stated = made.card().record["guarantee"]
    assert made.cost.epsilon <= Fraction(1, 10)
    assert made.guarantee.added.epsilon == pytest.approx(float(made.cost.epsilon), rel=0.2)
    assert Fraction(stated["added"]["epsilon"]) == made.guarantee.added.epsilon
    assert Fraction(stated["epsilon"]) > 19  # the bound that it shows tells about the dear look
    assert f"Given those, it adds {made.guarantee.added}." in str(made.guarantee)


@pytest.mark.parametrize("name", ["histogram", "cdf", "above", "describe"])
def test_a_saved_release_keeps_what_it_rests_on(name, tmp_path):
    gate = opened(ledger=tmp_path / "ledger.sqlite")
    made = gate.release(name, epsilon=8, **RELEASES[name])
    made.save(tmp_path / "made.parquet")
    loaded = type(made).load(tmp_path / "made.parquet")
    assert (loaded.promise, loaded.card()) == (made.promise, made.card())
    assert loaded.guarantee == made.guarantee
    answer = loaded.answer(0)
    assert set(answer.questions) == set(made.answer(0).questions)
    assert any("as estimated" in words for words in answer.caveats)
    card = read_sealed(tmp_path / "made.parquet")[1]
    assert card.verify(gate.ledger) == []
    (tmp_path / "card.json").write_text(card.to_json())
    gate.close()
    found = CliRunner().invoke(
        app,
        [
            "ledger",
            "verify",
            str(tmp_path / "ledger.sqlite"),
            "--head",
            str(tmp_path / "card.json"),
        ],
    )
    assert found.exit_code == 0, found.output


def test_a_card_without_the_entries_of_its_estimate_is_not_confirmed():
    gate = opened()
    card = gate.release("histogram", columns=CELLS, epsilon=2).card()
    own = card.record["ledger"][-2:]
    assert Card({**card.record, "ledger": own}).verify(gate.ledger) != []


def test_json_states_the_estimate():
    gate = opened()
    told = json.loads(gate.release("histogram", columns=CELLS, epsilon=2).to_json())
    assert ESTIMATES in told["guarantee"]
    assert any("as estimated" in words for words in told["caveats"])


def test_an_answer_that_is_sent_states_what_it_adds():
    answer = opened().sql(COUNT, epsilon=2)
    again = received(sent(answer), lambda level: sent(answer, level))
    assert again.guarantee == answer.guarantee
    assert again.guarantee.added is not None


def test_a_declared_bound_needs_no_estimate():
    made = opened().release("histogram", columns=CELLS, epsilon=2, rows_per_unit=3)
    assert made.guarantee.added is None
    assert ESTIMATES not in made.promise
    assert len(made.card().record["measurements"]) == 1
