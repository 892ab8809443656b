"""Whoever edits the file behind the ledger's back is named by `verify`."""

import sqlite3
from fractions import Fraction

import psycopg
import pytest

from noisegate.errors import LedgerError
from noisegate.ledger.entry import Entry, Head
from noisegate.ledger.open import open_ledger
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP
from refusals import about


def make_story(address):
    with open_ledger(address) as ledger:
        ledger.open_account(
            "data", parent=None, accountant="pure", budget=ApproxDP(3), unit="one person"
        )
        for number in range(2):
            reserve(ledger, f"r{number}").settle(b"answer")
        reserve(ledger, "open")
        return ledger.head()


def reserve(ledger, request_id, epsilon=Fraction(1, 2)):
    event = DeclaredEvent(epsilon=epsilon)
    return ledger.reserve(
        request_id, question="count", event=event, account="data", kind="measurement"
    )


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "ledger.db")


@pytest.fixture
def pinned(path):
    return make_story(path)


def tamper(path, *statements):
    """Edit the file with the guards taken off and put back, as a clever intruder would."""
    connection = sqlite3.connect(path, isolation_level=None)
    guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    guards = guards.fetchall()
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement)
    for _, sql in guards:
        connection.execute(sql)
    connection.close()


def problems(path, **options):
    with open_ledger(path) as ledger:
        found = ledger.verify(**options)
    assert found.ok == (not found.problems)
    return " ".join(found.problems)


def test_an_untouched_ledger_has_no_problems(path, pinned):
    assert problems(path, pinned_head=pinned) == ""


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (
            "UPDATE entries SET body = replace(body, 'count', 'total') WHERE seq = 2",
            "Entry 2: its content does not have its hash.",
        ),
        (
            "UPDATE entries SET at = 'yesterday' WHERE seq = 4",
            "Entry 4: its content does not have its hash.",
        ),
        ("UPDATE entries SET kind = 'note' WHERE seq = 4", "Entry 4: its content does not"),
        ("UPDATE entries SET kind = 'gift' WHERE seq = 4", "'gift' that cannot be read"),
        ("UPDATE entries SET body = 'x' WHERE seq = 2", "Entry 2: An entry is not JSON."),
        ("UPDATE entries SET body = '{\"x\":0.5}' WHERE seq = 2", "holds the float 0.5"),
        ("UPDATE entries SET body = body || ' ' WHERE seq = 2", "not in canonical form"),
        ("DELETE FROM entries WHERE seq = 3", "Entry 4: number 3 was expected."),
        ("DELETE FROM entries", "The log is empty."),
        (
            "UPDATE accounts SET spent_amount = '0'",
            "Account 'data' differs from what the log says.",
        ),
        ("UPDATE accounts SET epsilon = '9'", "Account 'data' differs from what the log says."),
        ("UPDATE accounts SET unsettled = 0", "Account 'data' differs from what the log says."),
        ("DELETE FROM accounts", "Account 'data' is in the log but not stored."),
        ("UPDATE answers SET answer = x'00' WHERE seq = 3", "The answer of entry 3 is not the one"),
        ("DELETE FROM answers WHERE seq = 3", "The answer of entry 3 is missing."),
        ("INSERT INTO answers VALUES (99, x'00')", "The answer of entry 99 is not the one"),
        ("UPDATE requests SET settled = NULL WHERE request_id = 'r0'", "Request 'r0' differs"),
        ("UPDATE requests SET settled = 3 WHERE request_id = 'open'", "Request 'open' differs"),
        ("UPDATE requests SET charges = '{}' WHERE request_id = 'r0'", "Request 'r0' differs"),
        ("DELETE FROM requests WHERE request_id = 'r0'", "Request 'r0' is in the log but not"),
        ("UPDATE requests SET request_id = 'x' WHERE request_id = 'r0'", "Request 'x' is stored"),
    ],
)
def test_an_edit_behind_the_ledgers_back_is_named(path, pinned, edit, named):
    tamper(path, edit)
    assert named in problems(path)


def test_two_swapped_entries_are_named(path, pinned):
    tamper(
        path,
        "UPDATE entries SET seq = 99 WHERE seq = 3",
        "UPDATE entries SET seq = 3 WHERE seq = 4",
        "UPDATE entries SET seq = 4 WHERE seq = 99",
    )
    found = problems(path)
    assert "Entry 3: it does not follow the entry before it." in found
    assert "Entry 4: its content does not have its hash." in found


def cut_tail(path):
    """Remove the last reservation so carefully that the rest is a valid shorter ledger."""
    tamper(
        path,
        "DELETE FROM entries WHERE seq = 6",
        "DELETE FROM requests WHERE request_id = 'open'",
        "UPDATE accounts SET reservations = 2, unsettled = 0, spent_amount ="
        " (SELECT json_extract(body, '$.charges.data[0]') || '' FROM entries WHERE seq = 2)",
    )
    connection = sqlite3.connect(path, isolation_level=None)
    grains = int(connection.execute("SELECT spent_amount FROM accounts").fetchone()[0])
    connection.execute("UPDATE accounts SET spent_amount = ?", (str(2 * grains),))
    connection.close()


def test_a_cut_tail_is_only_seen_against_a_pinned_head(path, pinned):
    cut_tail(path)
    assert problems(path) == ""
    assert f"The pinned head {pinned} is not in the log" in problems(path, pinned_head=pinned)


def rewrite(path, change):
    """Replace the body of the first reservation and reseal the whole chain after it."""
    connection = sqlite3.connect(path, isolation_level=None)
    rows = connection.execute(
        "SELECT seq, kind, at, body, previous_hash, hash FROM entries ORDER BY seq"
    ).fetchall()
    entries = [Entry.from_row(row) for row in rows]
    connection.close()
    resealed = entries[:2]
    for entry in entries[2:]:
        body = change(dict(entry.body)) if entry.seq == 2 else entry.body
        head = Head(resealed[-1].seq, resealed[-1].hash)
        resealed.append(Entry.after(head, entry.kind, body, at=entry.at))
    edits = [
        f"UPDATE entries SET body = '{entry.text}', previous_hash = '{entry.previous_hash}',"
        f" hash = '{entry.hash}' WHERE seq = {entry.seq}"
        for entry in resealed[2:]
    ]
    tamper(path, *edits)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda body: {**body, "charges": {"data": ["1", "0"]}}, "'data' is charged too little"),
        (lambda body: {**body, "charges": {}}, "does not charge its account and ancestors"),
        (
            lambda body: {**body, "charges": {"data": ["9" * 40, "0"]}},
            "'data' is over its limit",
        ),
        (lambda body: {**body, "event": {"event": "magic/1"}}, "'magic/1' is unknown"),
        (lambda body: {**body, "request": "open"}, "'open' is charged twice"),
        (lambda body: {**body, "account": "nobody"}, "cannot be read"),
    ],
)
def test_a_resealed_lie_about_a_price_is_found_by_pricing_again(path, pinned, change, named):
    rewrite(path, change)
    found = problems(path, pinned_head=pinned)
    assert named in found
    assert "does not have its hash" not in found
    assert "The pinned head" in found


def test_entries_and_answers_of_sqlite_are_append_only(path, pinned):
    connection = sqlite3.connect(path, isolation_level=None)
    for table in ("entries", "answers"):
        for statement in (f"UPDATE {table} SET seq = seq + 100", f"DELETE FROM {table}"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
    connection.close()
    assert problems(path, pinned_head=pinned) == ""


def test_entries_and_answers_of_postgres_are_append_only(server):
    address = server.fresh()
    schema = address.rpartition("=")[2]
    make_story(address)
    with psycopg.connect(server.uri, autocommit=True) as connection:
        for table in ("entries", "answers"):
            for statement in ("UPDATE {} SET seq = seq + 100", "DELETE FROM {}", "TRUNCATE {}"):
                with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                    connection.execute(statement.format(f"{schema}.{table}"))
        connection.execute(f"UPDATE {schema}.accounts SET spent_amount = '0'")
    assert "Account 'data' differs from what the log says." in problems(address)


def test_a_lost_answer_is_an_operators_error_not_a_new_draw(path, pinned):
    tamper(path, "DELETE FROM answers WHERE seq = 3")
    with open_ledger(path) as ledger, pytest.raises(LedgerError, check=about("answer"), match="3"):
        reserve(ledger, "r0")


def test_a_damaged_file_is_an_operators_error(path, pinned):
    with open(path, "r+b") as file:  # noqa: PTH123 - bytes in the middle
        file.seek(4096)
        file.write(b"\xff" * 8 * 4096)
    with pytest.raises(LedgerError, check=about("sqlite")):
        problems(path)


def test_a_log_that_lost_its_tail_while_in_use_is_noticed_by_whoever_saw_it(path, pinned):
    with open_ledger(path) as ledger:
        assert ledger.head() == pinned
        tamper(path, "DELETE FROM entries WHERE seq > 2")
        with pytest.raises(LedgerError, check=about("older")):
            reserve(ledger, "more")


def test_a_postgres_log_that_was_rolled_back_while_in_use_is_noticed(server):
    where = server.fresh()
    pinned = make_story(where)
    base, _, schema = where.partition("?")
    with open_ledger(where) as ledger:
        assert ledger.head() == pinned
        options = dict(pair.split("=", 1) for pair in schema.split("&"))
        name = options.pop("schema", "noisegate")
        rest = "&".join(f"{key}={value}" for key, value in options.items())
        with psycopg.connect(f"{base}?{rest}", autocommit=True) as raw:
            raw.execute(f'ALTER TABLE "{name}".entries DISABLE TRIGGER ALL')
            raw.execute(f'DELETE FROM "{name}".entries WHERE seq > 2')
        with pytest.raises(LedgerError, check=about("older")):
            reserve(ledger, "more")
