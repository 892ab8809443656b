"""What was asked once is paid once: over windows, replicas and retries; and what stops it holds."""

import asyncio
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

from noisegate.errors import Forbidden, NotFound, Paused, RequestConflict, Unauthenticated
from noisegate.orders import order_from
from noisegate.root import hosting
from noisegate.server.agents.tools import Tools
from noisegate.server.runs import Run
from noisegate.server.service import Service
from noisegate.server.settings import Settings
from noisegate.server.views import View

QUICK = Settings(quantum=0)


def count(above=0, epsilon="0.1"):
    text = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {above}"
    return order_from({"kind": "sql", "sql": text, "epsilon": epsilon})


HISTOGRAM = order_from({
    "kind": "release", "name": "histogram", "table": "visits", "columns": {"ward": None},
    "epsilon": "0.2",
})  # fmt: skip


def dead(service, caller, order, key, created):
    """What a process leaves that died before it asked: a row of the store."""
    run = Run(
        id=key.ljust(32, "0"), person=caller.name, dataset="clinic", order=order, fresh=True,
        practice=False, face="http", created=created.isoformat(timespec="milliseconds"), key=key,
        token=caller.token, window=service._hosted["clinic"].window(caller.name),
    )  # fmt: skip
    service.store.do(lambda do: service._write(service.view(caller, "clinic"), run, do))


def rows(run):
    assert run.wait(30)
    return run.result().answer.table.to_pylist()


def spent(service):
    """By the ledger, of all accounts together."""
    return service._hosted["clinic"].ledger.balance("clinic").spent.epsilon


@pytest.fixture
def daily(clinic):
    """A service where ana has a share for each day."""
    text = clinic.read_text().replace("ana = 2", 'ana = { epsilon = 2, every = "day" }')
    clinic.write_text(text)
    with closing(Service([clinic], settings=QUICK)) as made:
        for name, role in (("ana", "analyst"), ("ben", "analyst"), ("sam", "steward")):
            made.people.add(name, role)
        yield made


@pytest.fixture
def later(monkeypatch):
    """Moves the day of shares on."""

    def move(days):
        class Later(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.now(tz) + timedelta(days=days)

        monkeypatch.setattr(hosting, "datetime", Later)

    return move


# windows


@pytest.mark.parametrize("record", [count(), HISTOGRAM], ids=["sql", "release"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_look_after_the_window_is_over_charges_nobody(daily, later, record, fresh):
    ana = daily.people.caller_of("ana")
    run = daily.view(ana, "clinic").ask(record, key="k", fresh=fresh)
    first, paid = run.result().to_dict()["rows"], spent(daily)
    assert paid > 0
    for days in (0, 1, 2):
        later(days)
        daily._runs.clear()
        daily._answers.clear()
        again = daily.run_of(ana, run.id)
        assert again.wait(30)
        assert again.result().to_dict()["rows"] == first
        daily._runs.clear()
        retried = daily.view(ana, "clinic").ask(record, key="k", fresh=fresh)
        assert retried.result().to_dict()["rows"] == first
        assert spent(daily) == paid


def test_a_key_that_was_not_answered_in_its_window_is_refused_after_it(daily, later):
    """Its name belongs to an account of a day that is over: nothing is charged there."""
    ana = daily.people.caller_of("ana")
    run = daily.view(ana, "clinic").start(count(), key="settled", fresh=True)
    rows(run)
    daily.store.all("UPDATE runs SET state = 'running'")  # it died after the answer was settled
    daily._runs.clear()
    dead(daily, ana, count(9), "dead", datetime.now(UTC))
    paid = spent(daily)
    later(1)
    view = daily.view(ana, "clinic")
    assert rows(view.start(count(), key="settled", fresh=True)) == rows(run)
    with pytest.raises(RequestConflict):
        view.ask(count(9), key="dead", fresh=True)
    assert spent(daily) == paid


@pytest.mark.parametrize("state", ["done", "running"], ids=["restart", "crash"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_part_of_the_rest_goes_on_at_the_same_price(clinic, state, fresh):
    """Under its key, though less is left by now; and what was made is found by its name."""
    clinic.write_text(clinic.read_text().replace("max_epsilon = 1", "max_epsilon = 2"))
    half = count(epsilon="1/2 of rest")
    with closing(Service([clinic], settings=QUICK)) as made:
        made.people.add("ana", "analyst")
        ana = made.people.caller_of("ana")
        first = made.view(ana, "clinic").ask(half, key="k", fresh=fresh)
        told, paid = rows(first), spent(made)
        assert paid == 1
        made.store.all("UPDATE runs SET state = ?", state)
    with closing(Service([clinic], settings=QUICK)) as made:
        if state == "done":
            assert rows(made.run_of(ana, first.id)) == told
        assert rows(made.view(ana, "clinic").ask(half, key="k", fresh=fresh)) == told
        assert spent(made) == paid


def test_what_was_paid_for_is_found_also_where_less_is_left(service, callers):
    ana = callers["ana"]
    first = service.view(ana, "clinic").ask(count(epsilon="1"), key="k", fresh=True)
    service.view(ana, "clinic").ask(count(5, epsilon="0.5"))
    service._runs.clear()
    assert rows(service.run_of(ana, first.id)) == rows(first)
    service._runs.clear()
    assert rows(service.view(ana, "clinic").ask(count(epsilon="1"), key="k", fresh=True))
    assert spent(service) == Fraction(3, 2)


@pytest.mark.parametrize("fresh", [True, False])
def test_what_a_dead_process_was_charged_counts_for_the_hour(clinic, fresh):
    with closing(Service([clinic], settings=QUICK)) as made:
        made.people.add("ana", "analyst")
        token = made.people.new_token("ana", epsilon_hour="1")
        ana = made.people.by_token(token)
        made.view(ana, "clinic").ask(count(epsilon="0.7"), key="k", fresh=fresh)
        left = "state = 'queued', finished = NULL, price = NULL, charged = NULL, pending = '7/10'"
        made.store.all(f"UPDATE runs SET {left}")  # as it dies between the charge and the log
    with closing(Service([clinic], settings=QUICK)) as made:
        view = made.view(ana, "clinic")
        view.ask(count(epsilon="0.7"), key="k", fresh=fresh)
        assert view.spent_this_hour() == Fraction(7, 10)
        with pytest.raises(Forbidden):
            view.ask(count(3, epsilon="0.7"))
        assert spent(made) == Fraction(7, 10)


def test_an_agent_asks_a_part_of_the_rest_for_the_price_that_it_was_shown(service, callers):
    tools, ana = Tools(service), callers["ana"]

    def use(name, **said):
        return asyncio.run(tools.call(ana, name, said)).facts

    planned = use("plan_question", sql=count().sql, epsilon="1/4 of rest")
    assert planned["price"] == 0.5
    service.view(ana, "clinic").ask(count(7, epsilon="1"))
    assert use("ask_question", plan_id=planned["plan_id"])["price"] == 0.5


def test_a_run_that_is_not_ones_own_is_not_even_looked_for(service, callers, monkeypatch):
    run = service.view(callers["ana"], "clinic").ask(count())
    service._runs.clear()
    asked = []
    monkeypatch.setattr(Service, "_again", lambda _, run: asked.append(run))
    with pytest.raises(NotFound):
        service.run_of(callers["ben"], run.id)
    assert asked == []


# limits of an hour


def test_the_limit_of_an_hour_does_not_forget_what_was_looked_at_again(service):
    caller = service.people.by_token(service.people.new_token("ana", epsilon_hour="0.5"))
    view = service.view(caller, "clinic")
    for above in (1, 2):
        run = view.ask(count(above, "0.2"))
        service._runs.clear()
        rows(service.run_of(caller, run.id))
        service._runs.clear()
        service._answers.clear()
        rows(view.start(count(above, "0.2"), key=f"{above}"))
    assert view.spent_this_hour() == view.gate.spent.epsilon == Fraction(2, 5)
    with pytest.raises(Forbidden):
        view.ask(count(3, "0.2"))


def test_a_retried_key_counts_by_the_time_of_its_charge(service):
    caller = service.people.by_token(service.people.new_token("ana", epsilon_hour="0.5"))
    view = service.view(caller, "clinic")
    dead(service, caller, count(1, "0.4"), "old", datetime.now(UTC) - timedelta(hours=2))
    rows(view.start(count(1, "0.4"), key="old", fresh=True))
    assert view.spent_this_hour() >= Fraction(2, 5)
    with pytest.raises(Forbidden):
        view.start(count(2, "0.2"))


# replicas


@pytest.fixture
def pair(service, clinic, monkeypatch):
    """Two processes' services on one store and ledger, which meet before they write."""
    meet, planned = threading.Barrier(2), View.price_of

    def both(view, run):
        price = planned(view, run)
        meet.wait(5)
        return price

    with closing(Service([clinic], settings=QUICK)) as other:
        monkeypatch.setattr(View, "price_of", both)
        yield service, other


def at_once(pair, caller, orders, keys):
    got = []

    def ask(service, order, key):
        try:
            got.append(rows(service.view(caller, "clinic").start(order, key=key, fresh=True)))
        except (RequestConflict, Forbidden) as error:
            got.append(type(error))

    threads = [
        threading.Thread(target=ask, args=each) for each in zip(pair, orders, keys, strict=True)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return got


def test_two_replicas_with_one_key_and_two_orders_answer_one(pair, callers):
    got = at_once(pair, callers["ana"], (count(1), count(2)), ("k", "k"))
    assert got.count(RequestConflict) == 1
    assert spent(pair[0]) == Fraction(1, 10)


def test_two_replicas_with_one_key_and_one_order_pay_once(pair, callers):
    first, second = at_once(pair, callers["ana"], (count(1), count(1)), ("k", "k"))
    assert first == second
    assert spent(pair[0]) == Fraction(1, 10)
    assert len(pair[0].store.all("SELECT id FROM runs")) == 1


def test_two_replicas_share_the_limit_of_an_hour(pair):
    caller = pair[0].people.by_token(pair[0].people.new_token("ana", epsilon_hour="0.15"))
    got = at_once(pair, caller, (count(1), count(2)), ("a", "b"))
    assert got.count(Forbidden) == 1
    assert spent(pair[0]) == Fraction(1, 10)


# what was stopped while it waited


@pytest.fixture
def careful(clinic):
    """A service where a steward approves whatever costs."""
    settings = Settings(quantum=0, approve_above=Fraction(1, 100))
    with closing(Service([clinic], settings=settings)) as made:
        made.people.add("ana", "analyst")
        made.people.add("sam", "steward")
        yield made


@pytest.mark.parametrize(
    ("stop", "refusal"),
    [("pause", Paused), ("revoke", Unauthenticated), ("disable", Unauthenticated)],
)
def test_an_approved_run_is_refused_if_it_was_stopped_meanwhile(careful, stop, refusal):
    people, sam = careful.people, careful.people.caller_of("sam")
    ana = people.by_token(people.new_token("ana"))
    run = careful.view(ana, "clinic").start(count())
    assert run.state == "waiting"
    if stop == "pause":
        careful.pause(sam, "clinic")
    elif stop == "revoke":
        people.revoke(ana.token)
    else:
        people.disable("ana")
    careful.approve(sam, run.id)
    assert run.wait(30)
    with pytest.raises(refusal):
        run.result()
    assert spent(careful) == 0


def test_an_approved_run_has_the_capabilities_of_its_token_alone(careful, monkeypatch):
    people, allowed = careful.people, []
    ana = people.by_token(people.new_token("ana", allow=[]))
    view = careful.view(ana, "clinic")
    found = View.gate_for

    def seen(view, run):
        gate = found(view, run)
        allowed.append(gate.door.allowed)
        return gate

    monkeypatch.setattr(View, "gate_for", seen)
    for fresh in (False, True):
        run = view.start(count(), fresh=fresh)
        careful.approve(people.caller_of("sam"), run.id)
        rows(run)
    assert allowed == [frozenset()] * 2


@pytest.mark.parametrize("forgotten", [True, False])
def test_several_entries_for_a_part_of_the_rest_are_paid_once(daily, forgotten):
    order = order_from({
        "kind": "release", "name": "describe", "table": "visits", "epsilon": "1/10 of rest",
    })  # fmt: skip
    view = daily.view(daily.people.caller_of("ana"), "clinic")
    first = view.ask(order, key="first").result().to_dict()["rows"]
    paid = spent(daily)
    assert paid > 0
    if forgotten:
        daily._answers.clear()
    assert view.ask(order, key="again").result().to_dict()["rows"] == first
    assert spent(daily) == paid
