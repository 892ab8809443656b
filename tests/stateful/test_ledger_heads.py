"""A head that was kept elsewhere shows a ledger that was put back to an older state."""

import io
import json
import shutil
import stat
from dataclasses import replace
from fractions import Fraction

import psycopg
import pytest
from typer.testing import CliRunner

import noisegate
from noisegate.cli import app
from noisegate.desk.card import Card, verify
from noisegate.errors import SpecError
from noisegate.ledger.open import open_ledger, restore_ledger
from noisegate.ledger.signing import Signer, make_key, public_key
from noisegate.ledger.verify.anchor import Anchor, anchors_in, signed
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.forms.table import TableRelease
from refusals import about

ASKED = "SELECT COUNT(*) AS n FROM people"


def pay(ledger, request_id):
    ledger.open_account(
        "data", parent=None, accountant="pure", budget=ApproxDP(1), unit="one person"
    )
    event = DeclaredEvent(epsilon=Fraction(1, 10))
    ledger.reserve(
        request_id, question="q", event=event, account="data", kind="measurement"
    ).settle(b"42")


@pytest.fixture
def rolled_back(tmp_path):
    """A head, and the ledger as it was before."""
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with open_ledger(str(path)) as ledger:
        pay(ledger, "first")
        ledger.close()
        shutil.copy(path, copy)
        pay(ledger, "second")
        anchor = ledger.anchor()
    copy.replace(path)
    return str(path), anchor


def test_a_head_states_place_hash_time_and_ledger(ledger):
    pay(ledger, "first")
    anchor, last = ledger.anchor(), ledger.history()[-1]
    assert (anchor.seq, anchor.hash, anchor.at) == (last.seq, last.hash, last.at)
    assert anchor.ledger == ledger.history()[0].body["id"]
    assert Anchor.from_dict(json.loads(json.dumps(anchor.to_dict()))) == anchor
    pay(ledger, "second")
    assert ledger.verify(anchors=[anchor, ledger.anchor()]).ok


def test_a_ledger_put_back_to_an_older_state_is_seen_against_a_head(rolled_back):
    path, anchor = rolled_back
    with open_ledger(path) as ledger:
        assert ledger.verify().ok  # nothing in it tells
        (problem,) = ledger.verify(anchors=[anchor]).problems
        assert "log ends with entry 3: it was rolled back to an older state" in problem
        pay(ledger, "another")  # and so it is when it has gone on from there
        (problem,) = ledger.verify(anchors=[anchor]).problems
        assert "rolled back to an older state and went on from there" in problem


def test_a_restored_backup_of_a_server_is_seen_against_a_head(server):
    """As where a dump is loaded, or a replica is promoted that had not yet heard of the last."""
    address, backup = server.fresh(), io.StringIO()
    with open_ledger(address) as ledger:
        pay(ledger, "first")
        ledger.export(backup)
        pay(ledger, "second")
        anchor = ledger.anchor()
    with psycopg.connect(server.uri, autocommit=True) as admin:
        admin.execute(f"DROP SCHEMA {address.rpartition('=')[2]} CASCADE")
    backup.seek(0)
    with restore_ledger(backup, address) as ledger:
        assert ledger.verify().ok
        (problem,) = ledger.verify(anchors=[anchor]).problems
        assert "rolled back" in problem


def test_a_head_of_another_ledger_is_told_from_a_rollback():
    with open_ledger(":memory:") as one, open_ledger(":memory:") as other:
        (problem,) = one.verify(anchors=[other.anchor()]).problems
    assert "another ledger" in problem


# signatures


def test_a_key_is_for_its_owner_only_and_is_never_written_over(tmp_path):
    file = tmp_path / "head.key"
    public = make_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert public_key(file) == public
    assert public not in file.read_text()
    with pytest.raises(SpecError, check=about("key-file")):
        make_key(file)
    file.chmod(0o640)
    with pytest.raises(SpecError, check=about("key-mode")):
        public_key(file)
    other = tmp_path / "other.key"
    other.touch(mode=0o600)
    with pytest.raises(SpecError, check=about("key-kind")):
        public_key(other)


def test_a_signed_head_holds_and_a_changed_one_does_not(tmp_path):
    keys = [tmp_path / name for name in ("ours", "theirs")]
    ours, theirs = map(make_key, keys)
    with open_ledger(":memory:") as ledger:
        pay(ledger, "first")
        anchor = ledger.anchor()
        record = signed(anchor, Signer.load(keys[0]))
        line = json.dumps(record)
        assert "\n" not in line
        assert anchors_in(line) == anchors_in(line, key=ours) == [anchor]
        assert ledger.verify(anchors=anchors_in(line, key=ours)).ok
    with pytest.raises(SpecError, check=about("other-key")):
        anchors_in(line, key=theirs)
    with pytest.raises(SpecError, check=about("other-key")):
        anchors_in(json.dumps(anchor.to_dict()), key=ours)
    earlier = replace(anchor, seq=anchor.seq - 1)
    forged = [
        {**record, "seq": record["seq"] - 1},
        {**record, "at": "yesterday"},
        {**record, "signature": record["signature"][::-1]},
        {**record, "key": theirs},
        {**signed(earlier, Signer.load(keys[1])), "key": ours},
    ]
    for each in forged:
        with pytest.raises(SpecError, check=about("signature")):
            anchors_in(json.dumps(each))


@pytest.mark.parametrize(
    "text", ["", "two words", "{}", '{"head": {"hash": "x"}}', '{"head": null}', "{" * 9, "{}\n{}"]
)
def test_what_states_no_head_is_refused(text):
    with pytest.raises(SpecError):
        anchors_in(text)


def test_many_heads_stand_in_one_file_a_line_each():
    with open_ledger(":memory:") as ledger:
        heads = []
        for number in range(3):
            pay(ledger, f"r{number}")
            heads.append(ledger.anchor())
    text = "\n".join(json.dumps(head.to_dict()) for head in heads)
    assert anchors_in(text + "\n") == heads
    assert anchors_in(heads[0].hash) == [Anchor(hash=heads[0].hash)]


# what analysts hold


@pytest.fixture
def gate(tmp_path):
    (tmp_path / "people.csv").write_text("id,ward\n1,a\n2,b\n3,a\n")
    facts = {"ward": {"in": ["a", "b"]}}
    return noisegate.open(tmp_path / "people.csv", epsilon=1, columns=facts)


def put_back(gate, work):
    """Do some work, and put the ledger back to what it was before."""
    path = gate.ledger.path
    gate.ledger.close()
    before = path.read_bytes()
    done = work()
    gate.ledger.close()
    path.write_bytes(before)
    return done, open_ledger(str(path))


def test_an_answer_and_its_card_are_anchors(gate):
    answer = gate.sql(ASKED, epsilon="1/4")
    head = answer.to_dict()["head"]
    settled = gate.ledger.history()[-1]
    assert (head["seq"], head["hash"]) == (settled.seq, settled.hash)
    card = Card.from_json(answer.card().to_json())
    assert card.to_dict()["head"] == head
    assert json.dumps(head, sort_keys=True) in card.to_markdown()
    assert verify(card, gate.ledger) == []
    for text in (answer.to_json(), card.to_json()):
        assert gate.ledger.verify(anchors=anchors_in(text)).ok


def test_a_card_does_not_confirm_against_a_ledger_that_was_put_back(gate):
    gate.sql(ASKED, epsilon="1/4")
    card, older = put_back(gate, lambda: gate.sql(ASKED, epsilon="1/4", fresh=True).card())
    with older:
        assert older.verify().ok
        assert any("rolled back to an older state" in text for text in verify(card, older))
        assert not older.verify(anchors=anchors_in(card.to_json())).ok


def test_a_saved_release_is_an_anchor_and_keeps_it(gate, tmp_path):
    file = tmp_path / "wards.parquet"
    gate.release("histogram", columns={"ward": None}, epsilon="1/4").save(file)
    loaded = TableRelease.load(file)
    assert loaded.card().to_dict()["head"] == loaded.to_dict()["head"]
    assert loaded.to_dict()["head"]["hash"] == gate.ledger.head()
    assert verify(loaded.card(), gate.ledger) == []


def test_a_card_without_a_head_is_read_and_confirmed_as_before(gate):
    record = gate.sql(ASKED, epsilon="1/4").card().to_dict()
    del record["head"]
    card = Card.from_json(json.dumps(record))
    assert verify(card, gate.ledger) == []
    assert "Head of the ledger" not in card.to_markdown()
    assert gate.ledger.verify(anchors=anchors_in(card.to_json())).ok  # its entries are anchors


def test_a_card_with_a_broken_head_is_not_confirmed(gate):
    record = gate.sql(ASKED, epsilon="1/4").card().to_dict()
    for head in ("x", {"hash": 3}, []):
        assert verify(Card({**record, "head": head}), gate.ledger) == [
            "The ledger head stated by the card cannot be read."
        ]


def test_the_command_line_sees_a_rollback_by_whatever_an_analyst_saved(gate, tmp_path):
    def asked():
        answer = gate.sql(ASKED, epsilon="1/4")
        answer.to_json(tmp_path / "answer.json")
        (tmp_path / "card.md").write_text(answer.card().to_markdown())
        (tmp_path / "card.json").write_text(answer.card().to_json())
        gate.release("histogram", columns={"ward": None}, epsilon="1/4").save(
            tmp_path / "wards.parquet"
        )
        said = run("head", str(gate.ledger.path), "--sign", str(tmp_path / "key"))
        (tmp_path / "heads.jsonl").write_text(said.output)
        names = ["answer.json", "card.md", "card.json", "wards.parquet", "heads.jsonl"]
        assert all(checked(name).exit_code == 0 for name in names)
        return names

    def run(*words):
        return CliRunner().invoke(app, ["ledger", *words])

    def checked(name, *more):
        return run("verify", str(gate.ledger.path), "--head", str(tmp_path / name), *more)

    public = run("key", str(tmp_path / "key")).output.strip()
    assert run("key", str(tmp_path / "key")).output.strip() == public
    names, older = put_back(gate, asked)
    older.close()
    for name in names:
        said = checked(name)
        assert said.exit_code == 5, name
        assert "rolled back to an older state" in said.output
    assert run("verify", str(gate.ledger.path)).exit_code == 0
    assert checked("heads.jsonl", "--key", public).exit_code == 5
    assert checked("heads.jsonl", "--key", public[::-1]).exit_code == 1  # refused, not compared
