"""Kill the door at every named step of every kind of order: what was seen is paid for, once.

A kill between two transactions leaves the ledger's file as it is then, so a copy of it, opened
anew, is what the next process finds. Kills at random moments, also inside transactions, are in
`test_orders_killed.py`.
"""

import pytest
from accidents import Diary, ask_again, books, reopened
from orders import ORDERS

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.curator.allowance import Allowance
from noisegate.curator.curator import Curator, _release
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.rules import Rules, stored_answer
from noisegate.privacy.event import NothingEvent

USUAL = ("after sample", "after settle", "after close")


def grains(epsilon):
    return epsilon * GRAINS_PER_ONE


def check_afterwards(order, moment):
    """The same order after a crash at this moment is stored, run under its charge, or refused."""
    with reopened(moment.where, order) as gate:
        before = books(gate.ledger)
        seen, anew = ask_again(order, gate)
        after = books(gate.ledger)
    assert after.open_allowances == before.open_allowances, "what was left open is never resumed"
    assert anew == (order.kind == "recipe" and before.open_allowances > 0)
    if moment.seen:
        assert before.spent >= grains(order.least), "what was seen is charged"
    if order.kind == "question":
        assert seen[: len(moment.seen)] == moment.seen, "what was seen stays so"
        assert after.spent == pytest.approx(grains(order.price), rel=1e-3), "charged once"
        assert after.unsettled == 0
    elif order.kind == "recipe" and not anew:
        assert not moment.seen or (seen, after) == (moment.seen, before)
        assert after.spent <= grains(order.price)
    else:
        assert after.spent > before.spent, "what is drawn anew is charged anew"
    if order.kind == "recipe" and before.open_allowances:
        assert before.spent == pytest.approx(grains(order.price), rel=1e-3), "nothing goes back"


def check_whole_story(order, diary):
    check_rows_are_read_under_a_charge(diary)
    for moment in diary.last(USUAL):
        check_afterwards(order, moment)


def check_rows_are_read_under_a_charge(diary):
    """No row is read, and nothing drawn or seen, before a reservation is durable."""
    open_ones = 0
    for moment in diary.moments:
        open_ones += moment.step == "after reserve"
        if moment.step in ("before collect", "after sample"):
            assert open_ones > 0
            assert moment.unsettled > 0, "the charge is in the file before a row is read"
        open_ones -= moment.step in ("before settle", "before close")


@pytest.mark.parametrize("order", ORDERS.values(), ids=str)
def test_a_crash_at_a_step_wastes_budget_and_never_privacy(order, quick_path):
    check_whole_story(order, Diary(quick_path).keep(order))


@pytest.mark.audit
@pytest.mark.parametrize("order", ORDERS.values(), ids=str)
def test_a_crash_at_any_step_wastes_budget_and_never_privacy(order, quick_path):
    diary = Diary(quick_path).keep(order)
    assert len(diary.moments) >= 8
    for moment in diary.moments:
        check_afterwards(order, moment)


def measure_first(curator, measurement, *, request_id=None):
    """A door that draws before it charges."""
    drawn = curator._draw(measurement, "q", "r").to_bytes()
    entry = curator.ledger.reserve(
        "r", question="q", event=measurement.event(), account=curator.account, kind="measurement"
    )
    return _release(entry.answer or entry.settle(drawn), "q", "r", free=False)


def resume_all(rules, tx, earlier, asked):
    """A ledger that runs an allowance again under its charge."""
    return None if earlier.settled is None else stored_answer(tx, earlier.settled)


BROKEN = {
    "it charges after the draw": ("sql", Curator, "measure", measure_first),
    "it shows what it did not store": ("sql", Ledger, "_settle_request", lambda *words: words[-1]),
    "it resumes an allowance": ("histogram", Rules, "_resume", resume_all),
    "it gives back what it drew": ("clusters", Allowance, "_event", lambda _: NothingEvent()),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_that_check_catches_a_door_that_is_broken(fault, quick_path, monkeypatch):
    name, owner, method, broken = BROKEN[fault]
    monkeypatch.setattr(owner, method, broken)
    if method == "_resume":  # the recipe asks for the attempt that is open
        monkeypatch.setattr(Ledger, "attempts", lambda *_, **__: (0, 0))
    with pytest.raises(AssertionError):
        check_whole_story(ORDERS[name], Diary(quick_path).keep(ORDERS[name]))
