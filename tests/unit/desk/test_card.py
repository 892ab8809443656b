"""A release card says what happened, and the ledger can be held against it."""

import json
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

from noisegate.desk.answer import Answer
from noisegate.desk.card import FORMAT, Card, verify
from noisegate.errors import SpecError
from noisegate.ledger.open import open_ledger
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.unit import PrivacyUnit
from refusals import about

COUNT = json.dumps({"mechanism": {"mechanism": "geometric/1", "scale": "10"}, "query": {"of": "n"}})
SUM = json.dumps({"mechanism": {"mechanism": "geometric/1", "scale": "10"}, "query": {"of": "s"}})


@pytest.fixture
def ledger():
    with open_ledger(":memory:") as ledger:
        ledger.open_account("clinic", parent=None, accountant="pure", budget=ApproxDP(1), unit="p")
        yield ledger


def pay(ledger, request, question):
    event = DeclaredEvent(epsilon=Fraction(1, 10), delta=Fraction(0))
    entry = ledger.reserve(
        request, question=question, event=event, account="clinic", kind="measurement"
    )
    entry.settle(b"[42]")


def answer(ledger, *, questions=(COUNT,), requests=(), cost="0.1"):
    unit = PrivacyUnit(column="patient")
    return Answer(
        sql="SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
        table=pa.table({"ward": ["north", "south"], "n": [42, 43]}),
        half_widths=lambda _: [None, (29, 30)],
        cost=ApproxDP(cost),
        remaining=ApproxDP("0.9"),
        guarantee=Guarantee(loss=ApproxDP("0.1"), unit=unit, scope="this answer about 'visits'"),
        plan=None,
        questions=questions,
        request_ids=requests,
        caveats=("At most 8 rows of one person count.",),
        log=ledger.log(),
    )


def test_a_card_states_promise_error_and_entries(ledger):
    pay(ledger, "clinic: a", COUNT)
    found = json.loads(answer(ledger).card().to_json())
    assert found["format"] == FORMAT
    assert found["guarantee"]["epsilon"] == "1/10"
    assert found["change_one"]["epsilon"] == "1/5"
    assert found["unit"] == {"column": "patient", "noun": "person"}
    assert found["columns"] == [
        {"name": "ward", "error": None},
        {"name": "n", "error": {"least": 29, "most": 30}},
    ]
    assert found["measurements"] == [json.loads(COUNT)]
    log = {entry.seq: entry for entry in ledger.history()}
    assert [line["kind"] for line in found["ledger"]] == ["reserve", "settle"]
    assert all(line["hash"] == log[line["seq"]].hash for line in found["ledger"])


def test_a_true_card_verifies_also_after_more_questions(ledger):
    pay(ledger, "clinic: a", COUNT)
    card = Card.from_json(answer(ledger).card().to_json())
    pay(ledger, "clinic: b", SUM)
    assert card.verify(ledger) == verify(card, ledger) == []


def test_a_free_answer_names_the_entries_that_were_paid_then(ledger):
    pay(ledger, "clinic: a", COUNT)
    card = answer(ledger, cost="0").card()
    assert card.to_dict()["free"]
    assert [line["request"] for line in card.to_dict()["ledger"]] == ["clinic: a"] * 2
    assert verify(card, ledger) == []


def test_a_fresh_draw_is_told_from_the_earlier_one(ledger):
    pay(ledger, "clinic: a", COUNT)
    pay(ledger, "clinic: b", COUNT)
    for request in ("clinic: a", "clinic: b"):
        card = answer(ledger, requests=(request,)).card()
        assert {line["request"] for line in card.to_dict()["ledger"]} == {request}
        assert verify(card, ledger) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda card: card["ledger"][0].update(hash="0" * 64), "is not the one"),
        (lambda card: card["ledger"][0].update(seq=99), "no entry with the number"),
        (lambda card: card["ledger"][1].update(at="2020-01-01"), "is not the one"),
        (lambda card: card["measurements"].append({"query": "other"}), "other measurements"),
        (lambda card: card["measurements"][0]["mechanism"].update(scale="1"), "other measurements"),
        (lambda card: card["ledger"].clear(), "names no entry"),
        (lambda card: card["ledger"].append("x"), "no entry with the number"),
        (lambda card: card.update(ledger=None), "format"),
    ],
)
def test_a_changed_card_does_not_verify(ledger, change, words):
    pay(ledger, "clinic: a", COUNT)
    record = json.loads(answer(ledger).card().to_json())
    assert verify(Card(record), ledger) == []
    change(record)
    assert any(words in problem for problem in verify(Card(record), ledger))


def test_a_card_of_another_ledger_does_not_verify(ledger):
    pay(ledger, "clinic: a", COUNT)
    card = answer(ledger).card()
    with open_ledger(":memory:") as other:
        other.open_account("clinic", parent=None, accountant="pure", budget=ApproxDP(1), unit="p")
        pay(other, "clinic: a", COUNT)
        assert verify(card, other) != []


def test_the_page_says_it_in_words(ledger):
    pay(ledger, "clinic: a", COUNT)
    page = answer(ledger).card().to_markdown()
    assert "ε = 0.1 for adding or removing one person" in page
    assert "ε = 0.2 for changing one person" in page
    assert "| n | 29 to 30 |" in page
    assert "- At most 8 rows of one person count." in page
    assert ledger.history()[-1].hash in page


def test_other_json_is_no_card():
    for text in ("{}", "[]", "x", '{"format": "noisegate-card/2"}'):
        with pytest.raises(SpecError, check=about("format")):
            Card.from_json(text)


def test_a_card_that_names_an_entry_twice_does_not_verify(ledger):
    pay(ledger, "r1", COUNT)
    record = answer(ledger, requests=("r1",)).card().to_dict()
    assert verify(Card(record), ledger) == []
    doubled = record | {"ledger": [*record["ledger"], record["ledger"][0]]}
    assert "The card names an entry twice." in verify(Card(doubled), ledger)


def test_made_up_numbers_have_no_card(ledger):
    pay(ledger, "r1", COUNT)
    with pytest.raises(SpecError, check=about("practice")):
        replace(answer(ledger), practice=True).card()
