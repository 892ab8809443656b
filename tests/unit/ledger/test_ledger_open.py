"""From an address to a ledger, and what is refused on the way."""

import hashlib
import sqlite3
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from noisegate.errors import LedgerError, PolicyError, SpecError, Unsupported
from noisegate.ledger.account import Account, Prices
from noisegate.ledger.entry import Entry, Head
from noisegate.ledger.open import open_ledger, restore_ledger
from noisegate.ledger.stores.memory import MemoryLedger
from noisegate.ledger.stores.sqlite import SQLiteLedger
from noisegate.ledger.verify.fold import fold
from noisegate.privacy.event import DeclaredEvent, encode
from noisegate.privacy.loss import ApproxDP
from refusals import about


def digest_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest(), {*path.parent.iterdir()}


def test_addresses_name_the_store(tmp_path):
    assert isinstance(open_ledger(":memory:"), MemoryLedger)
    for address in (tmp_path / "a.db", f"sqlite:///{tmp_path / 'b.db'}"):
        with open_ledger(address) as ledger:
            assert isinstance(ledger, SQLiteLedger)
            assert ledger.durable
    assert {"a.db", "b.db"} == {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("address", ["mysql://server/db", "", "sqlite:///", "sqlite://x"])
def test_an_unknown_kind_of_address_is_refused_without_showing_it(address):
    with pytest.raises(SpecError, check=about("kind")) as refusal:
        open_ledger(address)
    assert "server" not in refusal.value.problem  # an address may hold a password


def test_a_new_ledger_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "ledger.db"
    with open_ledger(str(path)) as ledger:
        ledger.note("hello")
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        assert modes == {0o600}
        assert {file.name for file in tmp_path.iterdir()} >= {"ledger.db", "ledger.db-journal"}


def test_commits_are_fully_synchronised(tmp_path):
    with SQLiteLedger(tmp_path / "ledger.db") as ledger:
        pragma = lambda name: ledger._connection.execute(f"PRAGMA {name}").fetchone()[0]  # noqa: E731
        assert pragma("journal_mode") == "persist"
        assert pragma("synchronous") == 3  # EXTRA
        assert pragma("fullfsync") == 1


def foreign_database(path, *, wal=False):
    connection = sqlite3.connect(path)
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE patients (name TEXT)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("kind", ["text", "short", "database", "wal", "journal", "other"])
def test_a_file_that_is_not_a_ledger_is_refused_and_not_changed(tmp_path, kind):
    path = tmp_path / "precious.db"
    if kind in ("text", "short"):
        path.write_bytes(b"dear diary\n" * (1000 if kind == "text" else 1))
    else:
        foreign_database(path, wal=kind == "wal")
    if kind == "journal":
        (tmp_path / "precious.db-journal").write_bytes(b"")
    if kind == "other":
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA application_id = 1196444487")
        connection.close()
    before = digest_of(path)
    with pytest.raises(LedgerError, check=about("not-a-ledger")):
        open_ledger(str(path))
    after = digest_of(path)
    assert before[0] == after[0]
    assert after[1] <= before[1]


def test_a_newer_format_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "ledger.db"
    open_ledger(str(path)).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 4")
    connection.close()
    before = digest_of(path)
    with pytest.raises(LedgerError, check=about("format"), match=r"4.*3"):
        open_ledger(str(path))
    assert digest_of(path) == before


def test_a_place_that_cannot_hold_a_ledger_is_refused_in_public_terms(tmp_path):
    with pytest.raises(LedgerError, check=about("path")):
        open_ledger(str(tmp_path / "missing" / "ledger.db"))
    with pytest.raises(LedgerError, check=about("path")):
        open_ledger(str(tmp_path))


def test_a_ledger_without_psycopg_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unsupported, check=about("package")):
        open_ledger("postgresql://localhost/db")


def test_a_schema_is_a_plain_name():
    with pytest.raises(SpecError, match="a-z"):
        open_ledger('postgresql://localhost/db?schema=x"; DROP')


def test_many_openers_of_a_new_file_make_one_ledger(tmp_path):
    path, start = str(tmp_path / "ledger.db"), Barrier(8)

    def open_at_once(_):
        start.wait()
        with open_ledger(path) as ledger:
            return ledger.history()[0].hash

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(open_at_once, range(8)))) == 1


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("fate", ["removed", "emptied", "replaced"])
def test_a_ledger_whose_file_is_taken_away_stops_instead_of_starting_anew(tmp_path, fate, closed):
    path = tmp_path / "ledger.db"
    with open_ledger(str(path)) as ledger:
        ledger.note("hello")
        if closed:
            ledger.close()
        path.rename(tmp_path / "elsewhere.db")
        if fate == "emptied":
            path.touch()
        if fate == "replaced":
            open_ledger(str(path)).close()
        expected = "path" if (fate, closed) == ("removed", True) else "replaced"
        with pytest.raises(LedgerError, check=about(expected)):
            ledger.note("is anybody there?")
        with pytest.raises(LedgerError):
            ledger.head()


def test_an_old_sqlite_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(Unsupported, match=r"3\.37"):
        open_ledger(str(tmp_path / "ledger.db"))


def test_a_creation_that_fails_leaves_a_place_for_the_next(tmp_path):
    path = str(tmp_path / "ledger.db")

    def broken_clock():
        raise LedgerError("The clock stands still.", fix="Wind it up.")

    with pytest.raises(LedgerError, match="stands still"):
        open_ledger(path, _clock=broken_clock)
    with open_ledger(path) as ledger:
        assert ledger.verify().ok


def test_any_other_complaint_of_sqlite_is_an_operators_error(tmp_path):
    with open_ledger(str(tmp_path / "ledger.db")) as ledger:
        with pytest.raises(LedgerError, check=about("sqlite")):
            ledger._write(lambda tx: tx._run("SELECT * FROM nowhere"))
        assert ledger.verify().ok


def test_a_store_without_a_first_entry_is_refused():
    ledger = open_ledger(":memory:")
    ledger._kept._rows.clear()
    with pytest.raises(LedgerError, check=about("first-entry")):
        ledger.head()
    with pytest.raises(LedgerError, check=about("first-entry")):
        ledger.note("hello")


def test_two_ledgers_with_the_same_history_have_different_chains():
    assert open_ledger(":memory:").head() != open_ledger(":memory:").head()


def test_an_export_without_a_first_entry_restores_nothing():
    with pytest.raises(LedgerError, check=about("first-entry")):
        restore_ledger([], ":memory:")


def test_an_account_with_an_unknown_accountant_or_hopeless_budget_is_refused():
    ledger = open_ledger(":memory:")
    terms = {"parent": None, "budget": ApproxDP(1), "unit": "one person"}
    with pytest.raises(SpecError, check=about("accountant")):
        ledger.open_account("data", accountant="magic", **terms)
    with pytest.raises(PolicyError, check=about("closed")):
        ledger.balance("data")
    assert len(ledger.history()) == 1


def test_the_fold_names_what_is_out_of_order():
    first = Entry.first("ab", at="noon")
    body = {"account": "a", "parent": "b", "accountant": "pure", "epsilon": "1", "delta": "0"}
    entries = [first]
    for kind, content in (
        ("account", {**body, "unit": "u"}),
        ("account", {**body, "unit": "u"}),
        ("ledger", {"format": 9, "id": "x"}),
        ("note", {"text": 3}),
        ("limit", {"account": "a", "epsilon": "x", "delta": "0"}),
    ):
        head = Head(entries[-1].seq, entries[-1].hash)
        entries.append(Entry.after(head, kind, content, at="noon"))
    assert fold(entries, open_ledger(":memory:")._rules.prices).problems == [
        "Entry 1: the parent of 'a' is missing.",
        "Entry 2: account 'a' was opened twice.",
        "Entry 2: the parent of 'a' is missing.",
        "Entry 3: 'ledger' is out of place.",
        "Entry 3: unknown format 9.",
        "Entry 4: a note without text.",
        "Entry 5: A stored budget is not a number.",
    ]


def test_the_fold_names_false_endings():
    ledger = open_ledger(":memory:")
    terms = {"parent": None, "accountant": "pure", "budget": ApproxDP(3), "unit": "one person"}
    ledger.open_account("data", **terms)
    for name, kind in (("m", "measurement"), ("a", "allowance")):
        event = DeclaredEvent(epsilon=1)
        ledger.reserve(name, question="q", event=event, account="data", kind=kind)
    entries = ledger.history()
    done = {"account": "data", "answer": "", "bytes": 0}
    grain = {"charges": {"data": ["1", "0"]}, "used": encode(DeclaredEvent(epsilon=1))}
    dear = {"charges": {"data": ["9" * 40, "0"]}, "used": encode(DeclaredEvent(epsilon=1))}
    for kind, content in (
        ("settle", {**done, "request": "a"}),
        ("close", {**done, **grain, "request": "m"}),
        ("close", {**done, **dear, "request": "a"}),
        ("settle", {**done, "request": "x"}),
    ):
        head = Head(entries[-1].seq, entries[-1].hash)
        entries.append(Entry.after(head, kind, content, at="noon"))
    assert fold(entries, ledger._rules.prices).problems == [
        "Entry 4: it does not fit its reservation.",
        "Entry 5: 'data' is charged too little.",
        "Entry 5: it does not fit its reservation.",
        "Entry 6: 'a' is settled twice.",
        "Entry 6: 'data' is charged afterwards.",
        "Entry 7: a 'settle' that cannot be read.",
    ]


def test_accounts_can_be_given_other_accountants_for_practice():
    asked = []

    def named(name):
        asked.append(name)
        raise Unsupported("No such accountant.", fix="Use pure.")

    with pytest.raises(Unsupported):
        Prices(named).limit(
            Account(name="a", parent=None, accountant="x", budget=ApproxDP(1), unit="u")
        )
    assert asked == ["x"]
