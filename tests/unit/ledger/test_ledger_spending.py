"""What was spent by every theorem, and an export that becomes a ledger again."""

import json
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from noisegate.cli import app
from noisegate.lab.what_if import spending
from noisegate.ledger.open import open_ledger
from noisegate.ledger.stores.memory import MemoryLedger
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent, Repeated
from noisegate.privacy.loss import ApproxDP

COUNT = GeometricEvent(scale=Fraction(10), sensitivity=L1(1))  # ε = 1/10
DELTA = Fraction(1, 10**6)


def accounts(ledger):
    terms = {"budget": ApproxDP(20), "unit": "a person", "accountant": "pure"}
    ledger.open_account("clinic", parent=None, **terms)
    ledger.open_account("clinic/ann", parent="clinic", **terms)
    return ledger


def ask(ledger, name, event=COUNT, account="clinic", kind="measurement"):
    return ledger.reserve(name, question=name, event=event, account=account, kind=kind)


def by(found):
    return {row.method: row.epsilon for row in found.rows}


def test_a_hundred_counts_by_basic_and_by_the_optimum():
    """The optimum for 100 steps of ε = 1/10 at δ = 1e-6 is published: 4.7746."""
    ledger = accounts(MemoryLedger())
    for place in range(100):
        ask(ledger, f"{place}").settle(b"{}")
    found = spending(ledger, "clinic", delta=DELTA, methods=("basic", "optimal"))
    assert by(found)["basic"] == 10
    assert float(by(found)["optimal"]) == pytest.approx(4.774568, abs=1e-6)
    assert found.charged.epsilon == 10
    assert (found.questions, found.open) == (100, 0)


def test_of_an_allowance_that_was_closed_what_was_used_counts():
    ledger = accounts(MemoryLedger())
    reserved = Repeated(event=COUNT, count=50)
    ask(ledger, "closed", reserved, kind="allowance").close(Repeated(event=COUNT, count=3), b"{}")
    ask(ledger, "left open", reserved, kind="allowance")
    found = spending(ledger, "clinic", delta=DELTA, methods=("basic",))
    assert by(found)["basic"] == Fraction(3, 10) + 5
    assert found.charged.epsilon == Fraction(3, 10) + 5
    assert (found.questions, found.open) == (2, 1)


def test_an_analyst_spends_for_the_data_set_and_not_the_other_way():
    ledger = accounts(MemoryLedger())
    ask(ledger, "of ann", account="clinic/ann").settle(b"{}")
    ask(ledger, "of all").settle(b"{}")
    spent = {
        name: by(spending(ledger, name, delta=DELTA, methods=("basic",)))["basic"]
        for name in ("clinic", "clinic/ann")
    }
    assert spent == {"clinic": Fraction(1, 5), "clinic/ann": Fraction(1, 10)}


def test_on_the_command_line_every_data_set_is_reported(tmp_path):
    where = str(tmp_path / "a.ledger")
    with open_ledger(where) as ledger:
        ask(accounts(ledger), "n").settle(b"{}")
    said = CliRunner().invoke(app, ["ledger", "report", where, "--json"])
    (one,) = json.loads(said.stdout)["accounts"]
    assert (one["account"], one["questions"], one["open"]) == ("clinic", 1, 0)
    assert one["methods"]["basic"]["epsilon"] == one["charged"]["epsilon"] == 0.1
    assert one["methods"]["pld"]["epsilon"] == pytest.approx(0.1, abs=1e-3)
    table = CliRunner().invoke(app, ["ledger", "report", where, "--account", "clinic/ann"])
    assert "clinic/ann: 0 questions" in table.stdout


def test_an_export_becomes_the_same_ledger_and_overwrites_none(tmp_path):
    old, new = str(tmp_path / "old.ledger"), str(tmp_path / "new.ledger")
    with open_ledger(old) as ledger:
        ask(accounts(ledger), "n").settle(b'{"n": 1}')
        head = ledger.head()
    lines = tmp_path / "export.jsonl"
    lines.write_text(CliRunner().invoke(app, ["ledger", "export", old]).stdout)
    said = CliRunner().invoke(app, ["ledger", "restore", str(lines), new])
    assert said.exit_code == 0
    assert head in said.stdout
    with open_ledger(new) as ledger:
        assert ledger.find("n", "n", "clinic") == b'{"n": 1}'
    again = CliRunner().invoke(app, ["ledger", "restore", str(lines), new])
    assert again.exit_code != 0
    lines.write_text(lines.read_text().replace('"n"', '"m"', 1))
    forged = CliRunner().invoke(app, ["ledger", "restore", str(lines), str(tmp_path / "x.ledger")])
    assert forged.exit_code != 0
    assert not (tmp_path / "x.ledger").exists()
