"""A fork in the middle of an order: two processes go on, and one draw is all that anybody sees.

The child has a copy of everything but the engine's threads: its bits are keyed anew, its ledger and
its engine are opened anew, and an allowance or session that was open stays with the parent.
"""

import os
import signal
import warnings
from contextlib import suppress
from fractions import Fraction
from threading import Event, Thread

import numpy as np
import pytest
from accidents import books, watched
from orders import ORDERS, gate_at, open_gate

from noisegate.curator.owner import Agreement, Owner
from noisegate.errors import LedgerError, RequestConflict
from noisegate.federated.release import plain
from noisegate.ledger.open import open_ledger
from noisegate.privacy.loss import ApproxDP

PATIENCE_S = 20
SOME = [ORDERS[name] for name in ("sql", "choose", "series", "histogram", "clusters", "many")]
COUNT = "SELECT COUNT(*) AS n FROM people WHERE age > "


def fork(writer):
    """A child that cannot wait for ever; ``writer`` stays its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE_S)
    else:
        os.close(writer)
    return pid


def forked(child):
    """Run in a forked child: how it ended, and what it wrote, line by line."""
    reader, writer = os.pipe()
    pid = fork(writer)
    if pid == 0:
        code = 1
        with suppress(BaseException):
            try:
                child(lambda text: os.write(writer, f"{text}\n".encode()))
                code = 0
            except (RequestConflict, LedgerError):
                code = 7
        os._exit(code)
    return ended(pid, reader)


def ended(pid, reader):
    with os.fdopen(reader) as pipe:
        lines = pipe.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), lines


def parted(act, step, number=1):
    """Two processes go on with ``act`` from its ``number``-th such step: what each of them shows.

    The child goes first, to its end. Gives the parent's own, and how the child ended with what.
    """
    seen, child, left = [], [], [number]
    writers = []  # the child's way out, in the child alone

    def reveal(text):
        os.write(writers[0], f"{text}\n".encode()) if writers else seen.append(text)

    def tell(name):
        left[0] -= name == step
        if name == step and left[0] == 0:
            reader, writer = os.pipe()
            pid = fork(writer)
            writers.extend([] if pid else [writer])
            child.extend([ended(pid, reader)] if pid else [])

    code = 1
    try:
        with watched(tell):
            act(reveal)
        code = 0
    except RequestConflict:
        code = 7
        if not (writers or child):
            raise
    finally:
        if writers:
            os._exit(code)
    return code, seen, child


def check_parted(order, gate, step, number):
    """Whether there was such a step, and then that only one draw was shown."""
    code, seen, child = parted(lambda reveal: order.ask(gate, reveal, False), step, number)
    assert code == 0
    assert seen
    for ending, shown in child:
        if order.kind == "question":
            assert ending == 0
            assert shown == seen[-len(shown) :], "the first to settle is what both get"
        else:
            assert ending == 7, "what is open belongs to the parent"
            assert order.name == "many" or shown == []  # its model still answers, drawn before
    assert books(gate.ledger).unsettled == 0
    return bool(child)


@pytest.mark.parametrize("order", SOME, ids=str)
def test_a_fork_amid_an_order_shows_one_draw(order, quick_path):
    gate = open_gate(str(quick_path / "ledger.db"), people=order.people)
    assert check_parted(order, gate, "after collect", 1)


@pytest.mark.audit
@pytest.mark.parametrize(
    "step", ["after reserve", "before collect", "after collect", "after sample"]
)
@pytest.mark.parametrize("order", ORDERS.values(), ids=str)
def test_a_fork_at_any_step_shows_one_draw(order, step, quick_path):
    for number in range(1, 4):
        gate = gate_at(quick_path / f"{number}.db", people=order.people)
        if not check_parted(order, gate, step, number):
            break


def test_a_child_that_is_forked_amid_anothers_question_asks_by_itself(quick_path):
    """The engine's lock and threads are the parent's: a child waited for them for ever."""
    gate, stop = open_gate(str(quick_path / "ledger.db")), Event()

    def busy():
        while not stop.is_set():
            gate.sql(f"{COUNT}9", epsilon="1/100", fresh=True)  # whose draws add up

    thread = Thread(target=busy)
    thread.start()
    try:
        for age in range(4):
            ask = lambda write, age=age: write(gate.sql(f"{COUNT}{age}", epsilon="1/4").rows)  # noqa: E731
            code, lines = forked(ask)
            assert code == 0
            assert lines == [str(gate.sql(f"{COUNT}{age}", epsilon="1/4").rows)]
    finally:
        stop.set()
        thread.join()
    assert gate.ledger.verify().ok


def test_children_draw_bits_of_their_own(quick_path):
    """Each asks the same anew: noise of scale 3 million is the same once in a million."""
    gate = open_gate(str(quick_path / "ledger.db"))
    gate.sql(f"{COUNT}0", epsilon="1/1000")  # the parent's stream is keyed
    ask = lambda write: write(gate.sql(f"{COUNT}0", epsilon="1/1000000", fresh=True).rows)  # noqa: E731
    found = [forked(ask) for _ in range(4)]
    assert {code for code, _ in found} == {0}
    assert len({line for _, (line,) in found}) == 4


def test_a_budget_in_memory_is_not_doubled_by_a_fork():
    gate = open_gate(":memory:")
    for order in ("sql", "histogram", "many", "series", "choose"):
        code, lines = forked(lambda write, o=ORDERS[order]: o.ask(gate, write, False))
        assert (code, lines) == (7, [])
    assert gate.spent.epsilon == 0


def test_one_of_two_processes_contributes_to_a_sum_of_several_owners(quick_path):
    """Two vectors with noise of their own, under the same masks, would be two draws for one price."""
    agreed = Agreement(
        session="may", owners=3, drop_outs=0, colluding=1, block=plain(4), per_unit=1,
        epsilon=Fraction(1),
    )  # fmt: skip
    owners = []
    for number in range(3):
        ledger = open_ledger(str(quick_path / f"{number}.db"))
        ledger.open_account(
            "o", parent=None, accountant="pure", budget=ApproxDP(1), unit="one person"
        )
        owners.append(Owner(agreed, number, np.arange(4), ledger, "o"))
    roster = {n: owner.advertise() for n, owner in enumerate(owners)}
    pieces = {n: owner.share(roster) for n, owner in enumerate(owners)}
    heard = {n: texts[0] for n, texts in pieces.items() if n}
    act = lambda reveal: reveal(owners[0].contribute(heard).tolist())  # noqa: E731
    code, seen, child = parted(act, "after reserve")
    assert (code, seen) == (7, [])
    assert [(ending, len(shown)) for ending, shown in child] == [(0, 1)]
