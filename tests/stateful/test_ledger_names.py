"""One ledger, one name: charges are not lost or overspent by links, strays or older copies.

SQLite's write-ahead log and its locks go by a file's *name*. Two names of one file, or a log that
is taken away beside an open process, used to be two budgets: each test here lets more leave the
door than the budget allows, or forgets a charge, where the ledger does not look at its file.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import psycopg
import pytest

from noisegate.errors import LedgerError, OverBudget
from noisegate.ledger.open import inspect_ledger, open_ledger
from noisegate.ledger.stores import sqlite as sqlite_ledger
from noisegate.ledger.stores import sqlite_file
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP
from refusals import about

BUDGET = Fraction(1)
GOLDEN = Path(__file__).parents[1] / "golden" / "ledger_story_1.sqlite"


def opened(path):
    ledger = open_ledger(str(path))
    ledger.open_account(
        "data", parent=None, accountant="pure", budget=ApproxDP(BUDGET), unit="one person"
    )
    return ledger


def pay(ledger, request_id, epsilon="1/10"):
    event = DeclaredEvent(epsilon=Fraction(epsilon))
    reservation = ledger.reserve(
        request_id, question="q", event=event, account="data", kind="measurement"
    )
    return reservation.answer or reservation.settle(request_id.encode())


def left_the_door(ledger, name, epsilon, tries):
    """How much ε was answered before the ledger refused."""
    told = Fraction(0)
    for number in range(tries):
        try:
            pay(ledger, f"{name}-{number}", epsilon)
        except (OverBudget, LedgerError):
            break
        told += Fraction(epsilon)
    return told


def noted(path):
    with open_ledger(str(path)) as ledger:
        assert ledger.verify().ok
        return Fraction(ledger.balance("data").spent.epsilon)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.db"
    opened(path).close()
    return path


def other_process(path, name, tries, patience=30):
    """The same attack from a process of its own: how much ε left."""
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/..']; import test_ledger_names as t;"
        "from noisegate.errors import LedgerError\n"
        "t.sqlite_ledger.BUSY_TIMEOUT_S = float(sys.argv[5])\n"
        "try: told = t.left_the_door(t.opened(sys.argv[2]), sys.argv[3], '1/10', int(sys.argv[4]))\n"
        "except LedgerError: told = 0\n"
        "print(told)"
    )
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", code, here, str(path), name, str(tries), str(patience)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return Fraction(done.stdout.strip())


def test_a_hard_link_is_not_a_second_budget(path, tmp_path):
    link = tmp_path / "link.db"
    with opened(path) as ledger:
        told = left_the_door(ledger, "one", "1/10", 3)
        os.link(path, link)
        told += other_process(link, "two", 10)
        told += left_the_door(ledger, "three", "1/10", 10)
    link.unlink()
    assert told <= BUDGET
    assert noted(path) >= told


def test_a_ledger_with_two_names_is_refused_with_the_way_out(path, tmp_path):
    with opened(path) as ledger:
        pay(ledger, "before")
        os.link(path, tmp_path / "backup.db")  # as cp -al and rsnapshot do
        for action in (lambda: pay(ledger, "after"), lambda: ledger.balance("data")):
            with pytest.raises(LedgerError, check=about("names")):
                action()
    for name in ("ledger.db", "backup.db"):
        with pytest.raises(LedgerError, check=about("names")):
            open_ledger(str(tmp_path / name))
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)  # the way out that the message names
    copy.replace(path)
    assert noted(path) == Fraction(1, 10)


@pytest.mark.parametrize(
    ("ending", "fate"),
    [("-wal", "removed"), ("-shm", "removed"), ("-shm", "replaced"), ("-journal", "removed")],
)
def test_files_taken_away_beside_an_open_ledger_lose_no_charge(path, tmp_path, ending, fate):
    beside = Path(f"{path}{ending}")
    with opened(path) as ledger:
        told = left_the_door(ledger, "one", "1/10", 3)
        old = beside.read_bytes() if beside.exists() else b""
        told += left_the_door(ledger, "two", "1/10", 2)
        beside.unlink(missing_ok=True)
        if fate == "replaced" and old:
            beside.write_bytes(old)
        told += other_process(path, "three", 10)
        told += left_the_door(ledger, "four", "1/10", 10)
    assert told <= BUDGET
    assert noted(path) >= told


def test_a_charge_is_in_the_file_itself_when_it_is_made_whoever_reads_meanwhile(path, tmp_path):
    """What lies beside the file is never needed to know a charge, so it cannot be lost with it."""
    with opened(path) as ledger, opened(path) as reader:
        pay(ledger, "first")
        reader._connection.execute("BEGIN")
        reader._connection.execute("SELECT count(*) FROM entries").fetchone()
        paid = threading.Thread(target=lambda: pay(ledger, "second"))
        paid.start()
        paid.join(timeout=0.2)  # it may have to wait for the reader
        reader._connection.execute("COMMIT")
        paid.join()
        shutil.copy(path, tmp_path / "copy.db")
    assert noted(tmp_path / "copy.db") == Fraction(2, 10)


@pytest.fixture
def many_names(monkeypatch):
    """As where a link count does not tell: a file that is bound into two containers."""
    monkeypatch.setattr(sqlite_file, "links_of", lambda _: 1)


def test_a_file_bound_into_two_folders_has_one_lock(path, tmp_path, many_names):
    (tmp_path / "container").mkdir()
    inside = tmp_path / "container" / "other.db"
    os.link(path, inside)
    with opened(path) as one, opened(inside) as other:
        told = left_the_door(one, "one", "1/10", 4)
        told += left_the_door(other, "two", "1/10", 4)
        told += left_the_door(one, "three", "1/10", 4)
        assert told == BUDGET
        waits = threading.Thread(target=lambda: other.note("waits"))
        with one._file.turn(writing=True):
            waits.start()
            waits.join(timeout=0.1)
            assert waits.is_alive()
        waits.join()
    assert noted(path) == BUDGET


RACER = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/.."]
import test_ledger_names as t
from noisegate.ledger.stores import sqlite_file
sqlite_file.links_of = lambda _: 1
with t.opened(sys.argv[2]) as ledger:
    print("ready", flush=True)
    sys.stdin.readline()
    print(t.left_the_door(ledger, sys.argv[3], "1/20", 20))
"""


def test_processes_that_race_under_two_names_never_pass_the_budget(path, tmp_path):
    os.link(path, tmp_path / "other.db")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    here, names = str(Path(__file__).parent), ("ledger.db", "other.db")
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, here, tmp_path / name, name], **pipes)
        for name in names
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    told = [Fraction(racer.communicate(timeout=60)[0]) for racer in racers]
    (tmp_path / "other.db").unlink()
    assert sum(told) == BUDGET
    assert noted(path) == BUDGET


def test_a_thread_that_copies_the_file_does_not_let_another_writer_in(path, tmp_path):
    """Closing any descriptor of a file drops SQLite's own locks in the whole process."""
    with opened(path) as ledger:
        with ledger._file.turn(writing=True):
            ledger._connection.execute("BEGIN IMMEDIATE")
            shutil.copy(path, tmp_path / "copy.db")
            assert other_process(path, "meanwhile", 3, patience=0.1) == 0
            ledger._connection.execute("COMMIT")
        assert other_process(path, "after", 3) == Fraction(3, 10)


def test_closing_one_ledger_keeps_the_locks_of_another_in_the_process(path):
    with opened(path) as ledger:
        other = opened(path)
        with ledger._file.turn(writing=True):
            ledger._connection.execute("BEGIN IMMEDIATE")
            other.close()
            held = other_sqlite_is_locked_out(path)
            ledger._connection.execute("COMMIT")
        assert held


def other_sqlite_is_locked_out(path):
    code = (
        "import sqlite3, sys\n"
        "try: sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')\n"
        "except sqlite3.OperationalError: print('locked')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    return done.stdout == "locked\n"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_answer_does_not_leave_if_its_charge_went_to_a_file_without_a_name(
    path, tmp_path, monkeypatch, moment
):
    """The file is renamed away while the answer is committed: nobody will find it there."""
    with opened(path) as ledger:
        commit, event = sqlite_ledger._commit, DeclaredEvent(epsilon=Fraction(1, 10))
        reservation = ledger.reserve(
            "lost", question="q", event=event, account="data", kind="measurement"
        )

        def renamed(connection):
            if moment == "after":
                commit(connection)
            path.rename(tmp_path / "elsewhere.db")
            if moment == "before":
                commit(connection)

        monkeypatch.setattr(sqlite_ledger, "_commit", renamed)
        with pytest.raises(LedgerError, check=about("replaced")):
            reservation.settle(b"42")


def test_a_symbolic_link_that_is_turned_elsewhere_is_noticed(path, tmp_path):
    other, link = tmp_path / "other.db", tmp_path / "link.db"
    opened(other).close()
    link.symlink_to(path)
    with opened(link) as ledger:
        pay(ledger, "first")
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(LedgerError, check=about("replaced")):
            pay(ledger, "second")
    assert noted(path) == Fraction(1, 10)


# strangers beside the file


def test_a_write_ahead_log_of_another_history_is_refused_and_reported(path):
    wal = Path(f"{path}-wal")
    wal.write_bytes(b"any")
    with pytest.raises(LedgerError, check=about("history")):
        open_ledger(str(path))
    with inspect_ledger(str(path)) as looked_at:
        assert any("-wal" in problem for problem in looked_at.verify().problems)
        with pytest.raises(LedgerError, check=about("inspection")):
            looked_at.note("no")
    assert wal.read_bytes() == b"any"
    wal.unlink()
    with opened(path) as ledger:
        pay(ledger, "first")
        wal.write_bytes(b"any")
        with pytest.raises(LedgerError, check=about("history")):
            pay(ledger, "second")


def test_a_new_ledger_is_not_begun_over_what_is_left_of_another(path):
    path.unlink()
    Path(f"{path}-wal").write_bytes(b"any")
    with pytest.raises(LedgerError, check=about("history")):
        open_ledger(str(path))


def journal_of(path):
    """A journal as a crash in mid-commit leaves it; the ledger itself goes on."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_spill = 1")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("PRAGMA user_version = 2")  # page 1, where commits are counted
    connection.execute("CREATE TABLE spill (x)")
    connection.executemany("INSERT INTO spill VALUES (?)", [("x" * 3000,)] * 50)
    left = Path(f"{path}-journal").read_bytes()
    connection.execute("ROLLBACK")
    connection.close()
    return left


def test_a_journal_of_an_older_state_is_refused_before_it_is_rolled_back(path):
    """SQLite would put old pages back, and `verify` would be content."""
    with opened(path) as ledger:
        pay(ledger, "first")
    old = journal_of(path)
    assert old.startswith(sqlite_file._JOURNAL_MAGIC)
    with opened(path) as ledger:
        for number in range(3):
            pay(ledger, f"more-{number}")
        Path(f"{path}-journal").write_bytes(old)
        with pytest.raises(LedgerError, check=about("history")):
            ledger.balance("data")
    with pytest.raises(LedgerError, check=about("history")):
        open_ledger(str(path))
    with inspect_ledger(str(path)) as looked_at:
        assert any("-journal" in problem for problem in looked_at.verify().problems)
    Path(f"{path}-journal").unlink()
    assert noted(path) == Fraction(4, 10)


def test_a_journal_that_a_crash_left_is_rolled_back_as_ever(path):
    with opened(path) as ledger:
        pay(ledger, "first")
    Path(f"{path}-journal").write_bytes(journal_of(path))
    assert noted(path) == Fraction(1, 10)


# older versions


def older(path):
    """The ledger as an older version left it: format 1, a write-ahead log, no origins."""
    shutil.copy(GOLDEN, path)
    connection = sqlite3.connect(path, isolation_level=None)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    return connection


def test_an_old_ledger_is_brought_to_the_new_form_with_its_write_ahead_log(tmp_path):
    path = tmp_path / "old.db"
    connection = older(path)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("UPDATE accounts SET unit = unit")
    for ending in ("", "-wal"):  # as a crash leaves them
        shutil.copy(f"{path}{ending}", f"{tmp_path / 'crashed.db'}{ending}")
    connection.close()
    for name in ("old.db", "crashed.db"):
        with open_ledger(str(tmp_path / name)) as ledger:
            assert ledger.verify().ok
            ledger.note("by a newer version")
        raw = sqlite3.connect(tmp_path / name)
        assert raw.execute("PRAGMA user_version").fetchone() == (3,)
        raw.close()
        assert not Path(f"{tmp_path / name}-wal").exists()


def test_an_older_version_that_has_the_ledger_open_keeps_a_newer_one_out(tmp_path, monkeypatch):
    """One of them would count in the write-ahead log and the other in the file."""
    monkeypatch.setattr(sqlite_ledger, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "old.db"
    connection = older(path)
    connection.execute("SELECT count(*) FROM entries").fetchone()
    with pytest.raises(LedgerError, check=about("sqlite")):
        open_ledger(str(path))
    connection.close()
    open_ledger(str(path)).close()


def test_a_ledger_that_another_program_switched_is_not_charged(path):
    with opened(path) as ledger:
        pay(ledger, "first")
        raw = sqlite3.connect(path, isolation_level=None)
        assert raw.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        with pytest.raises(LedgerError, check=about("journal")):
            pay(ledger, "second")
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.close()
    assert noted(path) == Fraction(1, 10)


# looking without touching


def test_verify_reports_a_ledger_with_two_names(path, tmp_path):
    with opened(path) as ledger:
        pay(ledger, "first")
    os.link(path, tmp_path / "backup.db")
    with inspect_ledger(str(path)) as looked_at:
        found = looked_at.verify()
    assert found.entries == 4
    assert len(found.problems) == 1
    assert "2 names" in found.problems[0]


def test_verify_works_where_nothing_can_be_written_and_says_what_is_unfinished(path, monkeypatch):
    with opened(path) as ledger:
        pay(ledger, "first")
    before = path.read_bytes()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with inspect_ledger(str(path)) as looked_at:
        assert looked_at.verify().ok
        assert looked_at.balance("data").spent == ApproxDP("1/10")
    Path(f"{path}-journal").write_bytes(journal_of(path))
    with inspect_ledger(str(path)) as looked_at:
        assert "interrupted" in looked_at.verify().problems[0]
    assert path.read_bytes() == before


def test_a_damaged_file_is_reported_by_an_inspection(path, tmp_path):
    os.link(path, tmp_path / "backup.db")
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8 * 4096)
    with inspect_ledger(str(path)) as looked_at, pytest.raises(LedgerError, check=about("sqlite")):
        looked_at.verify()


@pytest.mark.parametrize("version", [1, 2])
def test_a_schema_of_an_older_version_is_brought_to_the_new_form(server, version):
    address = server.fresh()
    schema = address.rpartition("=")[2]
    opened(address).close()
    with psycopg.connect(server.uri, autocommit=True) as admin:
        admin.execute(f"ALTER TABLE {schema}.accounts DROP COLUMN also")
        if version == 1:
            admin.execute(f"DROP TABLE {schema}.origins")
        admin.execute(f"UPDATE {schema}.ledger_format SET format = {version}")
        with opened(address) as ledger:
            pay(ledger, "first")
            assert ledger.verify().ok
        form = admin.execute(f"SELECT format FROM {schema}.ledger_format").fetchone()
    assert form == (3,)
