"""The ladder of times: no face tells that work is over before it may, whatever is asked of it."""

import json
import time
from contextlib import closing
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import pytest
from served import serving
from wires import Wire

from noisegate.errors import Cancelled, Forbidden, Waiting
from noisegate.gate import Gate
from noisegate.orders import order_from
from noisegate.server.service import Service
from noisegate.server.settings import Settings

QUANTUM = 1.5
COUNT = order_from({"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.1"})


@pytest.fixture
def slow(clinic):
    """A service whose first rung is far above what a question takes."""
    with closing(Service([clinic], settings=Settings(quantum=QUANTUM))) as made:
        made.people.add("ana", "analyst")
        yield made


def over(run):
    """Wait until its work is over, which only a test can see."""
    while not run.ended:
        time.sleep(0.01)


def test_a_result_does_not_leave_before_its_time(slow):
    run = slow.view(slow.people.caller_of("ana"), "clinic").start(COUNT)
    over(run)
    with pytest.raises(Waiting):
        run.result()
    assert run.wait()
    assert run.result().answer.table.num_rows == 1


def test_a_refusal_does_not_leave_before_its_time(slow):
    view = slow.view(slow.people.caller_of("ana"), "clinic")
    run = view.start(order_from(COUNT.to_dict() | {"sql": "SELECT COUNT(*) FROM nowhere"}))
    over(run)
    with pytest.raises(Waiting):
        run.result()


@pytest.mark.parametrize("what", ["result", "card", "entries"])
def test_http_gives_nothing_of_an_answer_before_its_time(slow, what):
    with serving(slow) as served:

        def call(path, body=None):
            headers = {
                "Authorization": f"Bearer {served.tokens['ana']}", "Prefer": "wait=0",
                "Content-Type": "application/json",
            }  # fmt: skip
            try:
                with urlopen(Request(served.url + path, data=body, headers=headers)) as reply:
                    return reply.status, reply.read()
            except HTTPError as error:
                return error.code, error.read()

        begun = time.monotonic()
        status, body = call("/datasets/clinic/orders", json.dumps(COUNT.to_dict()).encode())
        assert status == 202
        run = slow.held(json.loads(body)["id"])
        over(run)
        status, body = call(f"/orders/{run.id}/{what}")
        assert time.monotonic() - begun < QUANTUM
        assert status == 202, body


def test_who_cancels_early_does_not_learn_whether_the_work_was_over(slow, monkeypatch):
    """Short and long work are told alike: by the run, by the history, and by the store."""
    view, told = slow.view(slow.people.caller_of("ana"), "clinic"), []
    worked = Gate.run

    def long(gate, *args, **terms):
        time.sleep(0.5)
        return worked(gate, *args, **terms)

    for work in (worked, long):
        monkeypatch.setattr(Gate, "run", work)
        run = view.start(COUNT, fresh=True)
        if work is worked:
            over(run)
        else:
            time.sleep(0.1)
        run.cancel()
        early = view.history()[0]
        with pytest.raises(Cancelled) as why:
            run.result()
        slow.queue.close() if work is long else None  # waits for the work
        kept = slow.store.one("SELECT state FROM runs WHERE id = ?", run.id)
        seen = run.to_dict()
        told.append(
            (str(why.value), early["state"], early["price"], kept, seen["state"], seen["error"])
        )
    assert told[0] == told[1]
    assert told[0][1:4] == ("cancelled", None, ("cancelled",))


def test_a_plan_does_not_turn_free_before_the_answer_leaves(slow):
    view = slow.view(slow.people.caller_of("ana"), "clinic")
    run = view.start(COUNT)
    over(run)
    early = view.plan(COUNT)
    assert run.told == "running"
    assert early.price.epsilon == COUNT.epsilon
    assert run.wait()
    assert view.plan(COUNT).free


@pytest.mark.parametrize("person", ["ana", "ben"])
@pytest.mark.parametrize("sql", [COUNT.sql, COUNT.sql.lower()], ids=["same", "in other words"])
def test_what_was_made_is_not_shown_again_before_it_leaves(slow, person, sql):
    slow.people.add("ben", "analyst")
    run = slow.view(slow.people.caller_of("ana"), "clinic").start(COUNT)
    over(run)
    run.ended_at += 60  # as if it had taken long
    view = slow.view(slow.people.caller_of(person), "clinic")
    again = view.start(order_from(COUNT.to_dict() | {"sql": sql}))
    over(again)
    assert again.ended_at == run.ended_at
    other = view.start(order_from(COUNT.to_dict() | {"sql": sql + " WHERE cost > 5"}))
    over(other)
    assert other.ended_at < run.ended_at, "another question is not held"


def test_a_limit_does_not_tell_that_an_answer_is_there(slow):
    run = slow.view(slow.people.caller_of("ana"), "clinic").start(COUNT)
    over(run)
    run.ended_at += 60
    poor = slow.people.by_token(slow.people.new_token("ana", epsilon_question="0.01"))
    with pytest.raises(Forbidden):
        slow.view(poor, "clinic").start(COUNT)


def test_a_statement_that_times_out_gives_no_answer_before_its_time():
    wire = Wire(settings=Settings(quantum=QUANTUM))
    try:
        with psycopg.connect(wire.dsn(), autocommit=True) as client:
            client.execute("SET noisegate.epsilon = 0.1")
            client.execute("SET statement_timeout = 700")
            with pytest.raises(psycopg.errors.QueryCanceled):
                client.execute("SELECT COUNT(*) FROM visits WHERE cost > 7")
    finally:
        wire.stop()
