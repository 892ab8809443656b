"""A disk that is full or may only be read, at any write of any order; a slow engine; Ctrl-C.

Files that may not grow make real writes fail (EFBIG from the kernel), for anybody, also for root.
"""

import json
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from fractions import Fraction
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from accidents import books, check_again, watched
from orders import ORDERS, gate_at, open_gate

import noisegate
from noisegate.errors import LedgerError, SourceError

WRITES = ("before reserve", "before settle", "before close")
SOME = [ORDERS[name] for name in ("undeclared_keys", "histogram", "many")]


@contextmanager
def full_disk():
    """No file of this process may grow, nor be written to where it has not been."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def fail_at(order, gate, number):
    """The order, where the disk is full from its ``number``-th write on: what was seen, how it ended."""
    seen, left = [], [number]
    disk = full_disk()

    def tell(step):
        if step in WRITES:
            left[0] -= 1
            if left[0] == 0:
                disk.__enter__()

    refusal = None
    with watched(tell):
        try:
            order.ask(gate, seen.append, False)
        except LedgerError as error:
            refusal = error
        finally:
            if left[0] <= 0:
                disk.__exit__(None, None, None)
    return seen, refusal, left[0] > 0


def check_every_write(order, directory):
    for number in range(1, 40):
        gate = gate_at(directory / f"{number}.db", people=order.people)
        seen, refusal, done = fail_at(order, gate, number)
        if done:
            assert refusal is None
            assert number > 2
            return
        assert refusal is not None, "nobody is shown what could not be written"
        assert "SQLite reports" in refusal.problem
        assert refusal.fix
        check_again(order, gate, seen)


@pytest.mark.parametrize("order", SOME, ids=str)
def test_a_disk_that_is_full_at_any_write_shows_nothing_unpaid(order, quick_path):
    check_every_write(order, quick_path)


@pytest.mark.audit
@pytest.mark.parametrize("order", ORDERS.values(), ids=str)
def test_a_disk_that_is_full_at_any_write_of_any_order_shows_nothing_unpaid(order, quick_path):
    check_every_write(order, quick_path)


READER = """
import ctypes, sys
sys.path.insert(0, sys.argv[3])
from orders import ORDERS, open_gate
from noisegate.errors import LedgerError
# root may write to what is read-only, unless it gives up all capabilities (version 3, this process)
words = ctypes.c_uint32 * 6
assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), words()) == 0
try:
    gate = open_gate(sys.argv[1])
    ORDERS[sys.argv[2]].ask(gate, print, False)
except LedgerError as error:
    print("refused", error.problem, error.fix)
"""


@pytest.mark.parametrize("order", ["histogram"])
def test_a_ledger_that_may_only_be_read_is_refused_before_a_row_is_read(order, quick_path):
    where = quick_path / "ledger.db"
    open_gate(str(where)).ledger.close()
    before = where.read_bytes()
    where.chmod(0o444)
    quick_path.chmod(0o555)
    command = [sys.executable, "-c", READER, str(where), order, str(Path(__file__).parent)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    quick_path.chmod(0o755)
    assert found.stdout.startswith("refused "), found.stderr
    assert "write access" in found.stdout
    assert where.read_bytes() == before


def interrupted(directory, times, *orders):
    command = [sys.executable, Path(__file__).with_name("interrupts.py"), directory, str(times)]
    found = subprocess.run(
        [*command, *orders], capture_output=True, text=True, check=False, timeout=1200
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.mark.long
def test_ctrl_c_at_a_random_moment_is_ctrl_c_and_pays_for_what_was_seen(quick_path):
    """What the engine makes of it (errors of its own, or no ±) is not what the user gets."""
    assert interrupted(quick_path, 6, "sql")["interrupted"] > 0


def interrupt_at(order, gate, number):
    """The order, with Ctrl-C at its ``number``-th step: what was seen, and whether it came to it."""
    seen, left = [], [number]

    def tell(_):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    with watched(tell):
        try:
            order.ask(gate, seen.append, False)
        except KeyboardInterrupt:
            assert left[0] <= 0
    return seen, left[0] <= 0


@pytest.mark.audit
@pytest.mark.parametrize("order", ORDERS.values(), ids=str)
def test_ctrl_c_at_every_step_of_any_order_pays_for_what_was_seen(order, quick_path):
    for number in count(1):
        gate = gate_at(quick_path / f"{number}.db", people=order.people)
        seen, reached = interrupt_at(order, gate, number)
        check_again(order, gate, seen)
        gate.ledger.close()
        if not reached:
            assert number > 6
            return


@pytest.mark.audit
@pytest.mark.parametrize("half", [0, 1])
def test_ctrl_c_at_any_moment_of_any_order_pays_for_what_was_seen(half, quick_path):
    assert interrupted(quick_path, 10, *list(ORDERS)[half::2])["interrupted"] > 50


def test_a_question_that_is_stopped_runs_again_under_its_charge(quick_path):
    """The time limit is over while the engine adds up three million rows."""
    rows = pa.table({"x": np.arange(3_000_000)})
    gate = noisegate.open(
        rows, epsilon=2, table="t", ledger=str(quick_path / "ledger.db"),
        columns={"x": {"between": [0, 9]}},
    )  # fmt: skip
    for number, limit_s in enumerate((0.1, 0.03, 0.02, 0.01, 0.005, 0.002), 1):
        sql = f"SELECT SUM(x % 7) AS s, SUM(x % 9) AS t FROM t WHERE x % 11 < {number}"
        gate._curator._source._seconds = limit_s
        try:
            gate.sql(sql, epsilon="1/4")
        except SourceError:
            break
    charged = number * Fraction(1, 4)
    assert (gate.spent.epsilon, books(gate.ledger).unsettled) == (charged, 1)
    gate._curator._source._seconds = 3600
    answer = gate.sql(sql, epsilon="1/4")
    assert (gate.spent.epsilon, books(gate.ledger).unsettled) == (charged, 0)
    assert gate.sql(sql, epsilon="1/4").rows == answer.rows
