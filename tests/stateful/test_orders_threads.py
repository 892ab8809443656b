"""Threads that share one gate see each stored draw once, and the same price, plan and ±.

A thread that reads the ledger while another does must neither put a draw on the shelf twice (its ±
would be that of two draws) nor miss one that was seen (it would be bought again).
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from threading import Barrier
from time import sleep

import pytest
from accidents import books
from orders import ORDERS, gate_at, open_gate

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.errors import RequestConflict
from noisegate.gate import Gate
from noisegate.learners.queries import StatisticalQueries
from noisegate.sql.reuse.shelf import Shelf, _Known

THREADS, TRIALS = 6, 3
ASKED = (
    "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward",
    "SELECT COUNT(*) AS n FROM people",
    "SELECT SUM(age) AS s FROM people",
)


@contextmanager
def restless():
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.fixture(params=["memory", "sqlite"])
def gate(request, quick_path):
    where = ":memory:" if request.param == "memory" else str(quick_path / "ledger.db")
    return open_gate(where)


def at_once(work, count=THREADS):
    """What each of several threads gets that begin together."""
    start = Barrier(count)

    def begin(number):
        start.wait()
        return work(number)

    with restless(), ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def told(gate, sql):
    """All that a user is told: the plan's price and ±, then the answer, its ± and its price."""
    plan = gate.plan(sql, epsilon="1")
    answer = gate.sql(sql, epsilon="1/2")
    return (
        str(plan.price), str(plan), str(answer.rows), str(answer.margins()), str(answer.cost),
    )  # fmt: skip


def disagreements(gate, trials=TRIALS):
    """How often threads on a new gate over the same ledger were told anything else than one is."""
    for sql in ASKED:
        gate.sql(sql, epsilon="1/2")
    expected = {sql: told(gate, sql) for sql in ASKED}
    spent, odd = gate.spent, 0
    for _ in range(trials):
        shared = Gate(gate._curator, gate._rules)
        found = at_once(lambda number, gate=shared: told(gate, ASKED[number % len(ASKED)]))
        odd += sum(each != expected[ASKED[n % len(ASKED)]] for n, each in enumerate(found))
    assert gate.spent == spent
    return odd


def test_threads_on_a_new_gate_are_told_what_one_alone_is_told(gate):
    assert disagreements(gate) == 0


def test_that_check_catches_a_shelf_that_grows_while_it_is_read(gate, monkeypatch):
    def read(shelf):
        known = shelf._known
        for settled in shelf.ledger.settled(known.seen):
            known = shelf._known
            more = _Known(known.seen, known.sums).and_then([settled])
            sleep(0.001)  # another thread's turn
            shelf._known = more
        return shelf._known

    monkeypatch.setattr(Shelf, "_read", read)
    assert any(disagreements(gate, 1) for _ in range(50))


def test_threads_with_new_questions_pay_once_for_each(gate):
    """Half of the threads ask the same: as much is spent as for one of them, and they agree."""
    for trial in range(2):
        before = gate.spent.epsilon
        shared = Gate(gate._curator, gate._rules)
        sql = [f"SELECT COUNT(*) AS n FROM people WHERE age > {10 * trial + k}" for k in (1, 2)]
        found = at_once(lambda n, gate=shared, sql=sql: gate.sql(sql[n % 2], epsilon="1/2").rows)
        assert gate.spent.epsilon - before == 1
        for own in (0, 1):
            assert len({str(each) for each in found[own::2]}) == 1
    assert gate.ledger.verify().ok


def test_threads_that_sharpen_a_number_buy_the_difference_once(gate):
    sql = ASKED[1]
    gate.sql(sql, epsilon="1/2")
    shared = Gate(gate._curator, gate._rules)
    found = at_once(lambda _: shared.sql(sql, epsilon="1"))
    assert gate.spent.epsilon == 1
    again = Gate(gate._curator, gate._rules).sql(sql, epsilon="1")
    assert {str((each.rows, each.margins())) for each in found} == {
        str((again.rows, again.margins()))
    }


def check_shared(order, gate):
    """Threads with one order: paid once, and whoever is shown anything is shown the same."""

    def ask(_):
        seen = []
        try:
            order.ask(gate, seen.append, False)
        except RequestConflict as refusal:
            return str(refusal.fix)
        return seen

    found = at_once(ask, 3)
    shown = [seen for seen in found if isinstance(seen, list)]
    state = books(gate.ledger)
    assert shown
    assert state.unsettled == 0
    if order.kind == "session":
        assert len(shown) == 3
        return
    assert all(seen == shown[0] for seen in shown)
    assert order.kind == "recipe" or len(shown) == 3
    assert state.spent <= order.price * GRAINS_PER_ONE * Fraction(1001, 1000), "charged once"


def test_threads_that_share_a_session_of_queries_pay_its_price_once(gate):
    """Whoever asks first opens it; the same question has one answer, and counts once."""
    with StatisticalQueries(gate, epsilon="1/2", queries=3) as session:
        found = at_once(lambda number: session.mean(f"age < {30 + number % 2}"))
        assert session.asked == 2
        assert len(set(found[0::2])) == len(set(found[1::2])) == 1
        assert gate.spent.epsilon == Fraction(1, 2)
    state = books(gate.ledger)
    assert (state.reservations, state.unsettled) == (1, 0)


@pytest.mark.parametrize("name", ["series", "histogram", "many"])
def test_threads_with_one_order_pay_once_and_see_the_same(name, quick_path):
    check_shared(ORDERS[name], open_gate(str(quick_path / "l.db"), people=ORDERS[name].people))


@pytest.mark.audit
@pytest.mark.parametrize("order", ORDERS.values(), ids=str)
def test_threads_with_any_order_pay_once_and_see_the_same(order, quick_path):
    for number in range(8):
        check_shared(order, gate_at(quick_path / f"{number}.db", people=order.people))
