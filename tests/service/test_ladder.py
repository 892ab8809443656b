"""The ladder of times: no face tells that work is over before it may, whatever is asked of it."""

import json
import time
from contextlib import closing
from threading import Event
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import pytest
from served import serving
from wires import Wire

import noisegate
from noisegate.errors import Cancelled, Forbidden, Waiting
from noisegate.gate import Gate
from noisegate.orders import order_from
from noisegate.server.runs import Run
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

        status, body = call("/datasets/clinic/orders", json.dumps(COUNT.to_dict()).encode())
        assert status == 202
        run = slow.held(json.loads(body)["id"])
        over(run)
        status, body = call(f"/orders/{run.id}/{what}")
        assert time.monotonic() < run.ended_at
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


@pytest.fixture
def drawn(monkeypatch):
    """Set when what was drawn is to be stored, which only a test can see."""
    found, real = Event(), Run.pause
    monkeypatch.setattr(Run, "pause", lambda run: (found.set(), real(run)))
    return found


def open_account(service, name):
    caller = service.people.caller_of(name)
    return service.view(caller, "clinic")


def test_nothing_tells_anybody_that_rows_were_read_before_its_time(slow, drawn, clinic):
    """Neither plans, of whomever, nor the ledger, nor another process that shares it."""
    slow.people.add("ben", "analyst")
    views = [open_account(slow, name) for name in ("ana", "ben")]
    beside = noisegate.open(clinic, analyst="ben")  # as another process has it
    run = views[0].start(COUNT)
    assert drawn.wait(10)
    ledger = views[0].hosted.ledger
    charged, head = ledger.balance("clinic"), ledger.head()
    assert (charged.unsettled, charged.reservations) == (1, 1), "the charge is there"
    plans = [view.plan(COUNT) for view in views] + [beside.plan(COUNT)]
    poor = slow.people.by_token(slow.people.new_token("ana", epsilon_question="0.01"))
    with pytest.raises(Forbidden):
        slow.view(poor, "clinic").start(COUNT)
    assert time.monotonic() - run.begun_at < QUANTUM, "all of this was early"
    assert not any(plan.free for plan in plans)
    assert ledger.head() == head
    assert run.wait(30)
    assert run.stored_at - run.begun_at == pytest.approx(QUANTUM)
    assert run.ended_at - run.stored_at == pytest.approx(QUANTUM / 5)
    assert all(plan.free for plan in [views[1].plan(COUNT), beside.plan(COUNT)])


def test_each_step_of_a_question_is_stored_at_a_time_of_the_ladder(clinic):
    """Also what is given back; how long the step before it took moves the next one by whole times."""
    described = order_from(
        {"kind": "release", "name": "describe", "table": "visits", "epsilon": "0.5"}
    )
    with closing(Service([clinic], settings=Settings(quantum=0.08))) as made:
        made.people.add("ana", "analyst")
        run, times = None, []
        real = Run.pause

        def noted(each):
            real(each)
            times.append(each.stored_at - each.begun_at)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "pause", noted)
            run = open_account(made, "ana").ask(described, seconds=60)
        assert len(times) > 1
        steps = [each / 0.08 for each in times]
        assert steps == [pytest.approx(round(each)) for each in steps]
        assert run.ended_at - run.begun_at > times[-1]


def wheres(count):
    """Questions that nobody has asked."""
    sql = (f"{COUNT.sql} WHERE cost > {n}" for n in range(count))
    return [order_from(COUNT.to_dict() | {"sql": each}) for each in sql]


def test_who_waits_for_a_time_keeps_nobody_from_work(clinic):
    """More are begun than are at work: four of two people take less than two rungs of 1.5 s."""
    with closing(Service([clinic], settings=Settings(quantum=QUANTUM))) as made:
        for name in ("ana", "ben"):
            made.people.add(name, "analyst")
        begun = time.monotonic()
        runs = [
            open_account(made, name).start(order)
            for order, name in zip(wheres(4), ("ana", "ben", "ana", "ben"), strict=True)
        ]
        assert all(run.wait(30) for run in runs)
        assert time.monotonic() - begun < 3 * QUANTUM


def test_a_worker_is_free_when_the_end_of_its_work_is_told(clinic, monkeypatch):
    """So neither the start of the next question nor its charge tells when the rows were read."""
    with closing(Service([clinic], settings=Settings(quantum=0.4, workers=1))) as made:
        made.people.add("ana", "analyst")
        view, charged, real = open_account(made, "ana"), [], Gate.run

        def noted(gate, *args, **terms):
            charged.append(time.monotonic())
            return real(gate, *args, **terms)

        monkeypatch.setattr(Gate, "run", noted)
        runs = [view.start(order) for order in wheres(3)]
        assert runs[-1].told == "queued"
        assert all(run.wait(30) for run in runs)
        for place in (1, 2):
            assert runs[place - 1].ended_at <= runs[place].begun_at <= charged[place]


def test_who_waited_in_the_queue_does_not_climb_the_ladder_for_it(clinic):
    """Twelve questions and one worker: each is told on the ladder of its own work."""
    with closing(Service([clinic], settings=Settings(quantum=0.1, workers=1))) as made:
        made.people.add("ana", "analyst")
        runs = [open_account(made, "ana").start(order) for order in wheres(12)]
        assert all(run.wait(60) for run in runs)
        waited = [run.begun_at - runs[0].begun_at for run in runs]
        assert waited[-1] > 1, "a rung of that would be 1.6 s or more from the start"
        steps = [(run.stored_at - run.begun_at) / 0.1 for run in runs]
        assert steps == [pytest.approx(round(each)) for each in steps]
        assert sorted(steps)[6] < 8, "half of them at least"


def test_progress_is_told_on_the_ladder():
    run = Run(
        id="1", person="ana", dataset="clinic", order=COUNT, fresh=False, practice=False,
        face="http", created="", quantum=0.3,
    )  # fmt: skip
    assert run.begin()
    run.tell(0.25, "measuring")
    run.tell(0.5, "measuring more")
    early = run.progress, run.words, run.to_dict()["progress"]
    assert time.monotonic() - run.begun_at < 0.3, "all of this was early"
    assert early == (0.0, "", 0.0)
    time.sleep(max(0.0, run.begun_at + 0.3 - time.monotonic()))
    assert (run.progress, run.words) == (0.5, "measuring more")
    run.tell(0.75, "nearly done")
    assert run.progress == 0.5, "what was told stays until the next time"


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
