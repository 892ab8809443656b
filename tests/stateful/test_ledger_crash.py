"""The ledger is broken at every step: killed, starved of disk, cut off from its server.

After each accident it opens again, is sound, has charged at least what was revealed and never more
than the budget, and the same requests can be brought to their end.
"""

import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from fractions import Fraction
from itertools import count
from pathlib import Path

import psycopg
import pytest

from cases import mostly_long
from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.errors import LedgerError, NoisegateError, RequestConflict
from noisegate.ledger.open import open_ledger
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP
from refusals import about

BUDGET = 3
COSTS = {"r1": Fraction(1, 2), "r2": Fraction(1, 3), "a1": Fraction(1)}
USED = Fraction(1, 4)


def costs(epsilon):
    return DeclaredEvent(epsilon=epsilon)


def opened(address):
    ledger = open_ledger(address)
    for name, parent, also in (
        ("data", None, ()),
        ("share", "data", ()),
        ("ann", "data", ["share"]),
    ):
        ledger.open_account(
            name,
            parent=parent,
            also=also,
            accountant="pure",
            budget=ApproxDP(BUDGET),
            unit="one person",
        )
    return ledger


def reserve(ledger, request_id, epsilon, kind="measurement"):
    return ledger.reserve(request_id, question="q", event=costs(epsilon), account="ann", kind=kind)


def tell(address, reveal, *, allowance="a1"):
    """The story of a small day; ``reveal`` is called with each answer as the world sees it."""
    with opened(address) as ledger:
        for request_id in ("r1", "r2"):
            reservation = reserve(ledger, request_id, COSTS[request_id])
            answer = reservation.answer or reservation.settle(os.urandom(4).hex().encode())
            reveal(request_id, answer)
        reservation = reserve(ledger, allowance, COSTS["a1"], kind="allowance")
        if reservation.answer is None:
            reveal(f"inside-{allowance}", b"drawn")
        answer = reservation.answer or reservation.close(costs(USED), b"tree")
        reveal(allowance, answer)


def killed_at(address, step, arm):
    """Tell the story in a forked child that kills itself at a step; what it had revealed."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about threads
        pid = os.fork()
    if pid == 0:
        try:
            arm(step)
            tell(
                address, lambda name, answer: os.write(writer, b"%s %s\n" % (name.encode(), answer))
            )
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        lines = pipe.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0, dict(line.decode().split() for line in lines)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def arm_sqlite(step):
    """Die when SQLite starts its ``step``-th statement."""
    steps, connect = count(1), sqlite3.connect

    def traced(*args, **kwargs):
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(lambda _: die() if next(steps) == step else None)
        return connection

    sqlite3.connect = traced


def arm_postgres(step):
    """Die before the ``step``-th statement; a COMMIT is sent first, and its reply never read."""
    steps, execute = count(1), psycopg.Connection.execute

    def counted(self, query, *args, **kwargs):
        if next(steps) == step:
            if query == "COMMIT":
                self.pgconn.send_query(b"COMMIT")
                self.pgconn.flush()
            die()
        return execute(self, query, *args, **kwargs)

    psycopg.Connection.execute = counted


def check_after_accident(address, revealed):
    """What must hold then; how far the day had come: what is stored of it, and what was seen."""
    with opened(address) as ledger:
        assert ledger.verify().problems == []
        balance = ledger.balance("data")
        spent = Fraction(balance.charge.amount, GRAINS_PER_ONE)
        shown = [name for name in ("r1", "r2") if name in revealed]
        owed = sum((COSTS[name] for name in shown), Fraction(0))
        if "a1" in revealed:
            owed += USED
        elif "inside-a1" in revealed:
            owed += COSTS["a1"] if reserved_whole(ledger) else USED
        assert owed <= spent <= BUDGET
        for name in shown:
            assert ledger.find(name, "q", "ann").decode() == revealed[name]
        stored = [(entry.kind, entry.body.get("request")) for entry in ledger.history()]
        return str((stored, ledger.balances("ann"), sorted(revealed)))


def reserved_whole(ledger):
    return ledger.balance("ann").unsettled > 0


def check_resumes(address, revealed):
    """The same requests end well; only an allowance that was begun needs a new id."""
    seen = {}
    try:
        tell(address, seen.__setitem__)
    except RequestConflict:
        tell(address, seen.__setitem__, allowance="a2")
    for name in ("r1", "r2"):
        assert seen[name].decode() == revealed.get(name, seen[name].decode())
    with opened(address) as ledger:
        assert ledger.verify().problems == []
        assert ledger.balance("data").charge <= ledger.balance("data").limit


def kill_at_any_step(store, where, *, resume_all):
    """Called in a small process, since each step forks: a worker has a gigabyte to copy by then."""
    arm, resumed = {"sqlite": arm_sqlite, "postgres": arm_postgres}[store], set()
    for step in count(1):
        address = f"{where}_{step}"
        completed, revealed = killed_at(address, step, arm)
        came = check_after_accident(address, revealed)
        if resume_all or completed or came not in resumed:
            check_resumes(address, revealed)
        resumed.add(came)
        if completed:
            assert step > 50  # the story has that many statements; none was left out
            assert len(resumed) > 6  # before and amid each of the three requests, and after them
            return


SMALL = """
import sys
sys.path[:0] = {paths!r}
from test_ledger_crash import kill_at_any_step
kill_at_any_step({store!r}, {where!r}, resume_all={resume_all})
print("told to its end")
"""


@pytest.fixture
def told(server, quick_path):
    """In a process of its own, which imports the ledger and little else."""

    def run(store, *, resume_all):
        here = Path(__file__).parent
        script = SMALL.format(
            paths=[str(here), str(here.parent)],
            store=store,
            where=str(quick_path / "ledger") if store == "sqlite" else server.fresh(),
            resume_all=resume_all,
        )
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.parametrize("store", mostly_long(["sqlite", "postgres"], "sqlite"))
def test_a_kill_at_any_step_forgets_no_spend(store, told):
    """Looked at after each step; resumed once from whatever was stored and seen by then."""
    found = told(store, resume_all=False)
    assert (found.returncode, found.stdout) == (0, "told to its end\n"), found.stderr


@pytest.mark.audit
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_after_a_kill_at_any_step_the_day_is_resumed(store, told):
    found = told(store, resume_all=True)
    assert (found.returncode, found.stdout) == (0, "told to its end\n"), found.stderr


def refusal(action):
    """The ledger's complaint about an action, if it has one."""
    try:
        action()
    except LedgerError as error:
        return error
    return None


def test_a_full_disk_is_told_in_public_terms_and_loses_nothing(tmp_path):
    """Real SQLITE_FULL: the database may not grow beyond so many pages."""
    refusals = []
    with opened(str(tmp_path / "ledger.db")) as ledger:
        for number in range(20):
            request, answer = f"r{number}", os.urandom(20_000)
            pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
            ledger._connection.execute(f"PRAGMA max_page_count = {pages + number % 10}")
            before = ledger.balance("ann").reservations
            action = lambda: reserve(ledger, request, Fraction(1, 10)).settle(answer)  # noqa: B023, E731
            refusals.append(refusal(action))
            assert ledger.verify().problems == []
            assert ledger.balance("ann").reservations >= before
            again = reserve(ledger, request, Fraction(1, 10))
            assert (again.answer or again.settle(answer)) == answer
        assert ledger.balance("ann").reservations == 20
        assert ledger.verify().problems == []
    complaints = [error for error in refusals if error is not None]
    assert 8 <= len(complaints) < 20
    assert all("database or disk is full" in str(error) for error in complaints)
    assert all("same request id" in error.fix for error in complaints)


def run_with_file_limit(path, bytes_max, revealed):
    """A child whose files may not grow beyond a size, so that writes themselves fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, bytes_max))
            try:
                tell(
                    path,
                    lambda name, answer: os.write(revealed, b"%s %s\n" % (name.encode(), answer)),
                )
                code = 0
            except LedgerError:
                code = 7
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_failing_write_at_any_size_forgets_no_spend(quick_path):
    codes = []
    for bytes_max in [*range(0, 60_000, 4096), 10_000_000]:
        path, (reader, writer) = str(quick_path / f"{bytes_max}.db"), os.pipe()
        codes.append(run_with_file_limit(path, bytes_max, writer))
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            revealed = dict(line.decode().split() for line in pipe.read().splitlines())
        check_after_accident(path, revealed)
        check_resumes(path, revealed)
    assert set(codes[:-1]) <= {0, 7}
    assert codes.count(7) > 5
    assert codes[-1] == 0


def test_a_server_crash_between_reserve_and_settle_keeps_the_charge(own_server):
    with opened(own_server.fresh()) as ledger:
        reservation = reserve(ledger, "r1", Fraction(1, 2))
        own_server.crash()
        own_server.start()
        assert reservation.settle(b"42") == b"42"
        assert ledger.balance("ann").reservations == 1
        own_server.crash()
        own_server.start()
        assert reserve(ledger, "r1", Fraction(1, 2)).answer == b"42"
        assert ledger.verify().problems == []


def test_a_server_that_comes_back_late_is_waited_for(own_server):
    with opened(own_server.fresh()) as ledger:
        own_server.crash()
        later = threading.Timer(0.3, own_server.start)
        later.start()
        assert reserve(ledger, "r1", Fraction(1, 2)).settle(b"42") == b"42"
        later.join()


def test_a_server_that_stays_away_is_an_operators_error(own_server, monkeypatch):
    monkeypatch.setattr("noisegate.ledger.stores.postgres.RETRY_AFTER_S", (0.0, 0.01))
    with opened(own_server.fresh()) as ledger:
        own_server.crash()
        with pytest.raises(LedgerError, check=about("server")):
            reserve(ledger, "r1", Fraction(1, 2))
        own_server.start()
        assert not reserve(ledger, "r1", Fraction(1, 2)).resumed


class Cable:
    """A Unix socket in front of the server that is cut at the next COMMIT, when armed.

    "before" the server hears of it, or "after" it has committed but before its reply arrives.
    """

    def __init__(self, directory, target):
        self._target, self.cut, self.cuts = target, None, 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.5432"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()
                threading.Thread(target=self._return, args=(client, server), daemon=True).start()

    def _carry(self, client, server):
        with suppress(OSError):
            while data := client.recv(65536):
                if self.cut and b"COMMIT\x00" in data:
                    self.cuts += 1
                    if self.cut == "after":
                        client.shutdown(socket.SHUT_RD)
                        self.cut = "reply"
                        server.sendall(data)
                        return
                    self.cut = None
                    break
                server.sendall(data)
        self._hang_up(client, server)

    def _return(self, client, server):
        with suppress(OSError):
            while data := server.recv(65536):
                if self.cut == "reply":
                    self.cut = None
                    break
                client.sendall(data)
        self._hang_up(client, server)

    def _hang_up(self, *ends):
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("kind", ["measurement", "allowance"])
def test_a_commit_in_doubt_is_looked_up_and_never_charged_twice(server, tmp_path, cut, kind):
    cable = Cable(tmp_path, f"{server.directory}/.s.PGSQL.5432")
    address = server.fresh()
    through = address.replace(f"host={server.directory}", f"host={tmp_path}")
    assert through != address
    with opened(through) as ledger:
        cable.cut = cut
        reservation = reserve(ledger, "r1", Fraction(1, 2), kind=kind)
        assert cable.cuts == 1
        assert not reservation.resumed
        cable.cut = cut
        if kind == "measurement":
            assert reservation.settle(b"42") == b"42"
        else:
            assert reservation.close(costs(USED), b"42") == b"42"
        assert cable.cuts == 2
    cable.close()
    with opened(address) as ledger:
        assert ledger.balance("ann").reservations == 1
        assert ledger.find("r1", "q", "ann") == b"42"
        assert ledger.verify().problems == []


def test_an_idle_connection_that_the_server_ended_is_replaced(server):
    address = server.fresh()
    with opened(address) as ledger:
        backend = ledger._connection.info.backend_pid
        with psycopg.connect(server.uri, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", (backend,))
        time.sleep(0.05)
        assert reserve(ledger, "r1", Fraction(1, 2)).settle(b"42") == b"42"
        assert ledger._connection.info.backend_pid != backend


def test_a_complaint_of_the_server_is_an_operators_error_and_no_reason_to_reconnect(server):
    with opened(server.fresh()) as ledger:
        backend = ledger._connection.info.backend_pid
        with pytest.raises(LedgerError, check=about("server")):
            ledger._write(lambda tx: tx.run("SELECT 1 / 0"))
        assert reserve(ledger, "r1", Fraction(1, 2)).settle(b"42") == b"42"
        assert ledger._connection.info.backend_pid == backend


def test_a_table_that_says_it_is_something_else_is_refused(server):
    address = server.fresh()
    schema = address.rpartition("=")[2]
    opened(address).close()
    with psycopg.connect(server.uri, autocommit=True) as admin:
        admin.execute(f"UPDATE {schema}.ledger_format SET application = 'shop'")
    with pytest.raises(LedgerError, check=about("not-a-ledger")):
        open_ledger(address)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
def test_an_error_inside_a_transaction_leaves_nothing(store, server, tmp_path):
    address = {
        "memory": ":memory:",
        "sqlite": str(tmp_path / "ledger.db"),
        "postgres": server.fresh(),
    }[store]
    with opened(address) as ledger:
        head = ledger.head()

        def half_done(tx):
            ledger._rules.note(tx, "half")
            account = tx.account("ann")
            tx.save_account(account.reserved(account.spent))
            tx.save_answer(99, b"half")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ledger._write(half_done)
        assert ledger.head() == head
        with pytest.raises(NoisegateError):
            reserve(ledger, "r1", Fraction(100))
        assert ledger.head() == head
        assert ledger.verify().problems == []


def test_a_server_without_fsync_is_refused(own_server):
    with psycopg.connect(own_server.uri, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET fsync = off")
        admin.execute("SELECT pg_reload_conf()")
    time.sleep(0.2)
    with pytest.raises(LedgerError, check=about("fsync")):
        open_ledger(own_server.fresh())


def test_a_schema_that_is_not_a_ledger_is_refused_and_not_changed(server):
    address = server.fresh()
    schema = address.rpartition("=")[2]
    with psycopg.connect(server.uri, autocommit=True) as admin:
        admin.execute(f"CREATE SCHEMA {schema}")
        admin.execute(f"CREATE TABLE {schema}.patients (name text)")
        with pytest.raises(LedgerError, check=about("not-a-ledger")):
            open_ledger(address)
        tables = admin.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)", (schema,)
        ).fetchall()
        assert tables == [("patients",)]
        admin.execute(f"DROP TABLE {schema}.patients")
        with opened(address):  # an empty schema that a steward made for us is fine
            admin.execute(f"UPDATE {schema}.ledger_format SET format = 4")
        with pytest.raises(LedgerError, check=about("format"), match=r"4.*3"):
            open_ledger(address)


def test_many_openers_of_a_new_schema_make_one_ledger(server):
    address, start, heads = server.fresh(), threading.Barrier(6), set()

    def open_at_once():
        start.wait()
        with open_ledger(address) as ledger:
            heads.add(ledger.head())

    threads = [threading.Thread(target=open_at_once) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heads) == 1
