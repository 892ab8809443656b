"""What happens around an order: clocks jump, servers go, backups come back, versions differ."""

import sqlite3
from itertools import cycle

import psycopg
import pytest
from accidents import books, check_again, copy_ledger, watched
from orders import ORDERS, open_gate

from noisegate.errors import LedgerError
from noisegate.ledger.entry import Entry
from noisegate.ledger.open import open_ledger
from refusals import about

SOME = [ORDERS[name] for name in ("series", "histogram", "many")]
WRITES = ("before reserve", "before settle", "before close")
TIMES = ("2026-01-01", "1970-01-01", "2099-12-31", "2099-12-31", "0001-01-01", "9999-12-31")


def seen_by(order, gate):
    seen = []
    order.ask(gate, seen.append, False)
    return seen


every = pytest.mark.parametrize(  # a few of them always
    "order",
    [pytest.param(o, marks=() if o in SOME else pytest.mark.audit) for o in ORDERS.values()],
    ids=str,
)


@every
def test_a_clock_that_jumps_by_years_changes_nothing(order, quick_path):
    """Times are for people: neither ids nor the order of entries nor what is found hangs on them."""
    times = cycle(f"{day}T00:00:00.000000Z" for day in TIMES)
    with open_ledger(str(quick_path / "ledger.db"), _clock=lambda: next(times)) as ledger:
        gate = open_gate(ledger, people=order.people)
        check_again(order, gate, seen_by(order, gate))
        entries = ledger.history()
        assert [entry.seq for entry in entries] == list(range(len(entries)))
        assert len({entry.at for entry in entries}) > 3


@every
def test_a_server_that_ends_the_connection_before_each_write_charges_once(order, server):
    gate = open_gate(server.fresh(), people=order.people)
    ended = []

    def tell(step):
        if step in WRITES:
            backend = gate.ledger._connection.info.backend_pid
            ended.append(admin.execute("SELECT pg_terminate_backend(%s)", (backend,)).fetchone())

    with psycopg.connect(server.uri, autocommit=True) as admin, watched(tell):
        seen = seen_by(order, gate)
    assert ended == [(True,)] * len(ended)
    assert len(ended) >= 2
    assert books(gate.ledger).unsettled == 0
    check_again(order, gate, seen)
    gate.ledger.close()


@pytest.mark.audit
@pytest.mark.parametrize("step", ["after reserve", "after sample"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=str)
def test_a_server_that_crashes_amid_an_order_charges_once(order, step, fragile_server):
    gate, left = open_gate(fragile_server.fresh(), people=order.people), [step]

    def tell(name):
        if name in left:
            left.clear()
            fragile_server.crash()
            fragile_server.start()

    with watched(tell):
        seen = seen_by(order, gate)
    assert books(gate.ledger).unsettled == 0
    check_again(order, gate, seen)
    gate.ledger.close()


@every
def test_an_older_copy_that_comes_back_amid_an_order_shows_nothing(order, quick_path):
    where, backup = quick_path / "ledger.db", quick_path / "backup.db"
    gate, seen, left = open_gate(str(where), people=order.people), [], ["after sample"]
    copy_ledger(where, backup)

    def tell(name):
        if name in left:
            left.clear()
            copy_ledger(where, quick_path / "kept.db")
            backup.replace(where)

    with watched(tell), pytest.raises(LedgerError, check=about("replaced")) as refused:
        order.ask(gate, seen.append, False)
    assert seen == []
    assert "back" in refused.value.fix
    (quick_path / "kept.db").replace(where)
    gate.ledger.close()
    check_again(order, open_gate(str(where), people=order.people), seen)


@pytest.mark.parametrize("order", SOME[:1], ids=str)
def test_a_ledger_of_a_later_format_is_refused_and_not_changed(order, quick_path):
    where = quick_path / "ledger.db"
    gate = open_gate(str(where), people=order.people)
    seen_by(order, gate)
    gate.ledger.close()
    with sqlite3.connect(where) as later:
        later.execute("PRAGMA user_version = 4")
    later.close()
    before = where.read_bytes()
    with pytest.raises(LedgerError, check=about("format"), match=r"4.*3"):
        open_gate(str(where), people=order.people)
    with pytest.raises(
        LedgerError, check=about("format"), match="4"
    ):  # also the one that had it open
        order.ask(gate, print, False)
    assert where.read_bytes() == before


@pytest.mark.parametrize("order", SOME[:2], ids=str)
def test_entries_of_a_kind_that_is_not_known_are_told_by_verify_and_charge_nobody(
    order, quick_path
):
    gate = open_gate(str(quick_path / "ledger.db"), people=order.people)
    seen = seen_by(order, gate)
    spent, ledger = gate.spent, gate.ledger

    def write(tx):
        entry = Entry.after(tx.head(), "seal", {"account": "people", "key": "k"}, at="2030-01-01")
        tx.append(entry)

    ledger._write(write)
    assert ledger.verify().problems == [
        f"Entry {len(ledger.history()) - 1}: a 'seal' that cannot be read."
    ]
    assert seen_by(order, gate) == seen
    assert gate.spent == spent
