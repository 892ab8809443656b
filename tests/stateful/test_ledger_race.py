"""Many hands on one budget: exactly as many succeed as the budget pays for."""

import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread

import pytest

from noisegate.errors import LedgerError, OverBudget
from noisegate.ledger.open import open_ledger
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP

THREADS = 32
CHILD = """
import sys
from noisegate.errors import OverBudget
from noisegate.ledger.open import open_ledger
from noisegate.privacy.event import DeclaredEvent

address, name, tries = sys.argv[1], sys.argv[2], int(sys.argv[3])
won = 0
with open_ledger(address) as ledger:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(tries):
        try:
            ledger.reserve(
                f"{name}-{number}", question="q", event=DeclaredEvent(epsilon="1/10"),
                account="data", kind="measurement",
            ).settle(b"answer")
            won += 1
        except OverBudget:
            pass
print(won)
"""


def budget_of(address, epsilon):
    ledger = open_ledger(address)
    ledger.open_account(
        "data", parent=None, accountant="pure", budget=ApproxDP(epsilon), unit="one person"
    )
    return ledger


def reserve(ledger, request_id, epsilon="1/10", account="data"):
    event = DeclaredEvent(epsilon=epsilon)
    return ledger.reserve(
        request_id, question="q", event=event, account=account, kind="measurement"
    )


def try_to_reserve(ledger, request_id, account="data"):
    try:
        reserve(ledger, request_id, account=account).settle(b"answer")
    except OverBudget:
        return 0
    return 1


def test_two_processes_racing_for_one_budget_never_pass_it(address):
    with budget_of(address, "2.05") as ledger:
        command = [sys.executable, "-c", CHILD, address]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        racers = [subprocess.Popen([*command, name, "15"], **pipes) for name in ("one", "two")]
        for racer in racers:
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        won = [int(racer.communicate(timeout=60)[0]) for racer in racers]
        assert [racer.returncode for racer in racers] == [0, 0]
        assert sum(won) == 20  # floor(2.05 / 0.1)
        assert ledger.balance("data").reservations == 20
        assert ledger.verify().ok


@pytest.mark.parametrize("connections", [1, 4])
def test_32_threads_racing_for_one_budget_never_pass_it(address, connections):
    ledgers = [budget_of(address, "1.25") for _ in range(connections)]
    start = Barrier(THREADS)

    def race(number):
        start.wait()
        return try_to_reserve(ledgers[number % connections], f"r{number}")

    with ThreadPoolExecutor(THREADS) as pool:
        won = sum(pool.map(race, range(THREADS)))
    assert won == 12  # floor(1.25 / 0.1)
    assert ledgers[0].balance("data").unsettled == 0
    assert ledgers[0].verify().ok
    for ledger in ledgers:
        ledger.close()


def test_threads_that_ask_for_two_purposes_never_pass_the_one_share(address):
    ledgers = [budget_of(address, 9) for _ in range(4)]
    terms = {"accountant": "pure", "unit": "one person"}
    ledgers[0].open_account("data/ann", parent="data", budget=ApproxDP("1.25"), **terms)
    for why in ("data/for a", "data/for b"):
        ledgers[0].open_account(why, parent="data", budget=ApproxDP(5), **terms)
        ledgers[0].open_account(
            f"{why}/ann", parent=why, also=["data/ann"], budget=ApproxDP(5), **terms
        )
    start = Barrier(16)

    def race(number):
        start.wait()
        account = f"data/for {'ab'[number % 2]}/ann"
        return try_to_reserve(ledgers[number % 4], f"r{number}", account)

    with ThreadPoolExecutor(16) as pool:
        won = sum(pool.map(race, range(16)))
    assert won == ledgers[0].balance("data/ann").reservations == 12  # floor(1.25 / 0.1)
    spent = [ledgers[0].balance(name).spent.epsilon for name in ("data/for a", "data/for b")]
    assert sum(spent) == ledgers[0].balance("data").spent.epsilon
    assert ledgers[0].verify().ok
    for ledger in ledgers:
        ledger.close()


def test_racers_of_one_request_pay_once_and_see_the_same_bytes(address):
    ledgers = [budget_of(address, 1) for _ in range(4)]
    start = Barrier(8)

    def race(number):
        start.wait()
        reservation = reserve(ledgers[number % 4], "same", 1)
        return reservation.answer or reservation.settle(b"answer %d" % number)

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(race, range(8)))
    assert len(answers) == 1
    assert ledgers[0].find("same", "q", "data") in answers
    assert ledgers[0].balance("data").reservations == 1
    for ledger in ledgers:
        ledger.close()


def fork():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about threads
        return os.fork()


def in_child(action):
    """Run an action in a forked child; True if it returned True there."""
    pid = fork()
    if pid == 0:
        try:
            os._exit(0 if action() else 1)
        except BaseException:  # noqa: BLE001 - whatever it was, the parent shall see a failure
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def in_thread(action):
    """The result of an action in a new thread; None if it hangs."""
    results = []
    thread = Thread(target=lambda: results.append(action()), daemon=True)
    thread.start()
    thread.join(timeout=10)
    return results[0] if results else None


def test_a_connection_never_crosses_a_fork(address):
    with budget_of(address, 1) as ledger:
        reserve(ledger, "parent")
        assert ledger._connection is not None
        assert in_child(lambda: ledger._connection is None)
        assert in_child(lambda: reserve(ledger, "child").settle(b"child") == b"child")
        assert in_child(lambda: in_thread(lambda: reserve(ledger, "child").answer) == b"child")
        assert reserve(ledger, "child").answer == b"child"
        assert reserve(ledger, "parent").settle(b"parent") == b"parent"
        assert ledger.verify().ok


def refused(action):
    try:
        action()
    except LedgerError:
        return True
    return False


def test_a_fork_does_not_multiply_a_budget_in_memory():
    """Nobody would see what a child charges to its copy; nor does it wait for a thread's lock."""
    ledger = budget_of(":memory:", 10_000)
    stop = Event()

    def work():
        while not stop.is_set():
            ledger.note("busy")

    thread = Thread(target=work)
    thread.start()
    try:
        asked = (lambda: reserve(ledger, "child"), lambda: ledger.balance("data"))
        assert all(in_child(lambda: all(map(refused, asked))) for _ in range(5))
    finally:
        stop.set()
        thread.join()
    assert reserve(ledger, "parent").settle(b"parent") == b"parent"
    assert ledger.balance("data").reservations == 1


def test_a_fork_amid_other_threads_work_leaves_both_sides_working(address):
    with budget_of(address, 10_000) as ledger:
        stop = Event()

        def work():
            number = 0
            while not stop.is_set():
                number += 1
                reserve(ledger, f"thread-{number}").settle(b"answer")

        thread = Thread(target=work)
        thread.start()
        try:
            for number in range(5):
                assert in_child(lambda number=number: try_to_reserve(ledger, f"c-{number}") == 1)
        finally:
            stop.set()
            thread.join()
        assert all(reserve(ledger, f"c-{number}").answer for number in range(5))
        assert ledger.verify().ok
