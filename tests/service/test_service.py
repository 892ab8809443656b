"""The service: who may ask, what a key means, turns, limits, pauses, approvals, the access log."""

import asyncio
import threading
import time
from contextlib import closing
from datetime import timedelta
from fractions import Fraction

import pytest

from noisegate.errors import (
    Cancelled,
    Forbidden,
    NotFound,
    OperatorError,
    OverBudget,
    Paused,
    RequestConflict,
    SpecError,
    Unauthenticated,
)
from noisegate.orders import order_from
from noisegate.server import views
from noisegate.server.access import AuditLog
from noisegate.server.people import People
from noisegate.server.queue import FairQueue
from noisegate.server.refusals import body_of, status_of
from noisegate.server.runs import Run
from noisegate.server.service import Service
from noisegate.server.settings import Settings
from noisegate.server.store import Store
from refusals import about

COUNT = order_from({"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "0.1"})


def sql(text, **terms):
    return order_from({"kind": "sql", "sql": text, **terms})


# who is there


def test_a_token_is_recognised_and_a_changed_one_is_not(service):
    text = service.people.new_token("ana", label="laptop")
    assert service.people.by_token(text).name == "ana"
    for wrong in (text[:-1], text + "x", "ng_", "", "ng__", text.replace("ng_", "xx_"), "ng_é_é"):
        with pytest.raises(Unauthenticated):
            service.people.by_token(wrong)


def test_the_store_holds_no_secret_of_a_token(service, clinic):
    text = service.people.new_token("ana")
    service.people.set_password("ana", "correct horse battery")
    secret = text.split("_", 2)[2].encode()
    for file in clinic.parent.glob("clinic.toml.service*"):
        held = file.read_bytes()
        assert secret not in held
        assert b"correct horse" not in held


@pytest.mark.parametrize("end", ["revoke", "expire", "disable"])
def test_a_token_that_ended_opens_nothing(service, end):
    people = service.people
    text = people.new_token("ana", expires=timedelta(seconds=-1) if end == "expire" else None)
    if end == "revoke":
        people.revoke(people.tokens("ana")[0].id)
    elif end == "disable":
        people.disable("ana")
    with pytest.raises(Unauthenticated):
        people.by_token(text)
    assert people.scram("ana").keys == ()


def test_passwords_are_checked_and_short_ones_refused(service):
    people = service.people
    people.add("eve", "analyst", "correct horse battery")
    assert people.by_password("eve", "correct horse battery").role == "analyst"
    for name, word in (
        ("eve", "wrong horse battery"),
        ("nobody", "correct horse battery"),
        ("ana", ""),
    ):
        with pytest.raises(Unauthenticated):
            people.by_password(name, word)
    with pytest.raises(SpecError):
        people.set_password("eve", "short")


def test_a_name_that_nobody_has_gets_a_salt_like_any_other(service):
    first, again = service.people.scram("nobody"), service.people.scram("nobody")
    assert (first.salt, first.keys) == (again.salt, ())
    assert len(first.salt) == len(service.people.scram("ana").salt)
    assert first.salt != service.people.scram("somebody").salt
    assert People(service.store).scram("nobody").salt == first.salt  # also after a restart


def test_a_data_set_that_is_not_theirs_looks_absent(service, callers):
    people = service.people
    people.add("eve", "analyst")  # has no share in the policy
    eve = people.by_token(people.new_token("eve"))
    other = people.by_token(people.new_token("ana", datasets=["payroll"]))
    seen = set()
    for caller, name in ((eve, "clinic"), (other, "clinic"), (callers["ana"], "payroll")):
        with pytest.raises(NotFound) as found:
            service.view(caller, name)
        seen.add(str(found.value))
    assert len(seen) == 1
    assert service.views(eve) == service.views(other) == []


def test_stewards_and_auditors_look_and_do_not_ask(service, callers):
    for name in ("sam", "aud"):
        view = service.view(callers[name], "clinic")
        assert view.facts()["budget"] is None
        with pytest.raises(Forbidden, check=about("asker")):
            view.start(COUNT)


def test_facts_hold_no_hidden_column_and_nothing_of_rows(service, callers):
    facts = service.view(callers["ana"], "clinic").facts()
    patients = next(table for table in facts["tables"] if table["name"] == "patients")
    assert [column["name"] for column in patients["columns"]] == [
        "patient_id", "birth_year", "sex", "town",
    ]  # fmt: skip
    assert facts["budget"]["remaining"] == 2


# orders


def test_an_answer_is_paid_for_once_and_everybody_has_it(service, callers):
    ana, ben = (service.view(callers[name], "clinic") for name in ("ana", "ben"))
    first = ana.ask(COUNT).result()
    again, other = ana.ask(COUNT).result(), ben.ask(COUNT).result()
    assert [each.price.epsilon for each in (first, again, other)] == [Fraction(1, 10), 0, 0]
    assert first.to_dict()["rows"] == again.to_dict()["rows"] == other.to_dict()["rows"]
    assert ben.gate.spent.epsilon == 0


def test_a_key_is_one_run_also_for_fresh_draws_and_after_a_restart(service, callers, clinic):
    view = service.view(callers["ana"], "clinic")
    runs = [view.ask(COUNT, key="k", fresh=True) for _ in range(3)]
    assert len({run.id for run in runs}) == 1
    assert view.gate.spent.epsilon == Fraction(1, 10)
    with pytest.raises(RequestConflict, check=about("key")):
        view.start(sql("SELECT COUNT(*) FROM patients", epsilon="0.1"), key="k", fresh=True)
    service.close()
    later = Service([clinic], settings=Settings(quantum=0))
    found = later.view(callers["ana"], "clinic").ask(COUNT, key="k", fresh=True)
    assert found.result().to_dict() == runs[0].result().to_dict()
    (listed,) = later.view(callers["ana"], "clinic").history()
    assert listed["price"] == 0.1
    assert later.view(callers["ana"], "clinic").gate.spent.epsilon == Fraction(1, 10)
    later.close()


def test_a_fresh_release_with_a_key_is_paid_for_once_also_after_a_restart(service, callers, clinic):
    record = {"kind": "release", "name": "histogram", "table": "visits", "columns": {"ward": None}}
    order = order_from({**record, "epsilon": "0.5"})
    view, found = service.view(callers["ana"], "clinic"), []
    found += [view.ask(order, fresh=True, key=key).result() for key in ("a", "b")]
    service.close()
    later = Service([clinic], settings=Settings(quantum=0))
    view = later.view(callers["ana"], "clinic")
    found += [view.ask(order, fresh=True, key=key).result() for key in ("a", "b")]
    rows, prices = ([str(each.to_dict()[name]) for each in found] for name in ("rows", "price"))
    assert rows[:2] == rows[2:]
    assert prices == ["0.5"] * 4
    assert view.gate.spent.epsilon == 1
    later.close()


def test_without_a_key_fresh_draws_are_paid_each(service, callers):
    view = service.view(callers["ana"], "clinic")
    for _ in range(2):
        view.ask(COUNT, fresh=True)
    assert view.gate.spent.epsilon == Fraction(1, 5)


def test_many_threads_with_one_key_pay_once(service, callers):
    view, found = service.view(callers["ana"], "clinic"), []
    threads = [
        threading.Thread(target=lambda: found.append(view.ask(COUNT, key="k", fresh=True)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({str(run.result().to_dict()["rows"]) for run in found}) == 1
    assert view.gate.spent.epsilon == Fraction(1, 10)


def test_what_is_refused_spends_nothing_and_is_logged(service, callers):
    view = service.view(callers["ana"], "clinic")
    with pytest.raises(OverBudget):
        for place in range(3):
            view.ask(sql("SELECT COUNT(*) FROM visits", epsilon=1), fresh=True, key=str(place))
    assert view.gate.spent.epsilon == 2
    assert service.log.lines(limit=1)[0].detail["refused"] == "over-budget"


def test_practice_is_free_and_says_so(service, callers):
    view = service.view(callers["ana"], "clinic")
    result = view.ask(COUNT, practice=True).result()
    assert result.to_dict()["practice"] is True
    assert view.gate.spent.epsilon == 0


def test_practice_never_runs_out(service, callers):
    view = service.view(callers["ana"], "clinic")
    for place in range(4):  # four times ε = 1 of a share of 2
        view.ask(
            sql("SELECT COUNT(*) FROM visits", epsilon=1), practice=True, fresh=True, key=str(place)
        )
    assert view.gate.spent.epsilon == 0


def test_the_same_order_again_needs_no_turn(service, callers):
    view = service.view(callers["ana"], "clinic")
    first = view.ask(COUNT)
    service.queue.close()
    again = view.ask(COUNT)
    assert again.result().to_dict()["rows"] == first.result().to_dict()["rows"]
    assert (again.result().price.epsilon, again.result().to_dict()["remaining"]) == (0, 1.9)
    assert len(service.log.lines(person="ana")) == 2


def test_a_session_is_refused_before_anything(service, callers):
    view = service.view(callers["ana"], "clinic")
    with pytest.raises(SpecError, check=about("session")):
        view.start(
            order_from({"kind": "many", "table": "visits", "columns": {"ward": None}, "epsilon": 1})
        )


def test_runs_belong_to_their_caller_and_come_back_for_free(service, callers):
    ana, ben, sam = (callers[name] for name in ("ana", "ben", "sam"))
    run = service.view(ana, "clinic").ask(COUNT)
    assert service.run_of(ana, run.id) is run
    assert service.run_of(sam, run.id) is run
    with pytest.raises(NotFound):
        service.run_of(ben, run.id)
    service._runs.clear()
    again = service.run_of(ana, run.id)
    assert again.wait(30)
    assert again.result().to_dict()["rows"] == run.result().to_dict()["rows"]
    assert again.result().price == run.result().price  # it is the same run
    service._runs.clear()
    assert service.run_of(ana, run.id).wait(30)
    assert service.store.one("SELECT price FROM runs WHERE id = ?", run.id) == ("1/10",)


def test_history_is_ones_own_but_for_those_who_see_all(service, callers):
    for name in ("ana", "ben"):
        service.view(callers[name], "clinic").ask(COUNT)
    seen = {name: len(service.view(callers[name], "clinic").history()) for name in callers}
    assert seen == {"ana": 1, "ben": 1, "sam": 2, "aud": 2}


@pytest.mark.parametrize(
    "record",
    [
        {"kind": "release", "name": "histogram", "table": "visits", "columns": {"ward": None}, "epsilon": "0.5"},
        {"kind": "choose", "sql": "SELECT ward, COUNT(*) FROM visits GROUP BY ward", "epsilon": "0.5"},
        {"kind": "caps", "table": "visits", "epsilon": "0.5"},
        {"kind": "bounds", "table": "visits", "column": "cost", "epsilon": 1},
        {"kind": "statistic", "expressions": ["cost / 800"], "table": "visits", "epsilon": "0.5"},
        {"kind": "fit", "model": "KMeans", "table": "visits", "columns": ["cost"], "options": {"n_clusters": 2}, "epsilon": "0.5"},
    ],
    ids=lambda record: record["kind"],
)  # fmt: skip
def test_every_kind_of_order_gives_json(service, callers, record):
    run = service.view(callers["ana"], "clinic").ask(order_from(record))
    assert run.result().to_json().startswith(b"{")


def test_a_release_leaves_as_parquet_arrow_and_csv(service, callers):
    order = order_from(
        {
            "kind": "release",
            "name": "histogram",
            "table": "visits",
            "columns": {"ward": None},
            "epsilon": 1,
        }
    )
    result = service.view(callers["ana"], "clinic").ask(order).result()
    assert result.to_parquet()[:4] == b"PAR1"
    assert b"ward" in result.to_csv()
    assert len(result.to_arrow()) > 0


# limits, pauses, approvals


def test_a_tokens_limits_hold_also_for_what_is_still_running(service, callers):
    people = service.people
    text = people.new_token("ana", epsilon_question="0.2", epsilon_hour="0.3")
    view = service.view(people.by_token(text), "clinic")
    with pytest.raises(Forbidden, check=about("token")):
        view.start(sql("SELECT COUNT(*) FROM visits", epsilon="0.25"))
    runs = [view.start(COUNT, fresh=True, key=str(place)) for place in range(3)]
    with pytest.raises(Forbidden, check=about("token")):
        view.start(COUNT, fresh=True)
    assert all(run.wait(30) for run in runs)
    assert view.gate.spent.epsilon == Fraction(3, 10)
    assert view.ask(COUNT).result().price.epsilon == 0  # what is released stays free


def test_a_paused_data_set_answers_nobody_and_spends_nothing(service, callers):
    view = service.view(callers["ana"], "clinic")
    with pytest.raises(Forbidden):
        service.pause(callers["ana"], "clinic")
    service.pause(callers["sam"], "clinic")
    with pytest.raises(Paused):
        view.start(COUNT)
    assert view.ask(COUNT, practice=True).state == "done"
    service.resume(callers["sam"], "clinic")
    assert view.ask(COUNT).state == "done"


def test_dear_questions_wait_for_a_steward(clinic):
    service = Service([clinic], settings=Settings(quantum=0, approve_above=Fraction(1, 5)))
    people = service.people
    people.add("ana", "analyst")
    people.add("sam", "steward")
    ana, sam = (people.by_token(people.new_token(name)) for name in ("ana", "sam"))
    view = service.view(ana, "clinic")
    run = view.start(sql("SELECT COUNT(*) FROM visits", epsilon="0.5"))
    assert (run.state, run.wait(0.05), view.gate.spent.epsilon) == ("waiting", False, 0)
    with pytest.raises(Forbidden):
        service.approve(ana, run.id)
    service.approve(sam, run.id)
    assert run.wait(30)
    assert run.result().price.epsilon == Fraction(1, 2)
    service.close()


def test_a_run_that_waits_can_be_cancelled_at_no_cost(clinic):
    service = Service([clinic], settings=Settings(quantum=0, approve_above=Fraction(1, 5)))
    service.people.add("ana", "analyst")
    view = service.view(service.people.caller_of("ana"), "clinic")
    run = view.start(sql("SELECT COUNT(*) FROM visits", epsilon="0.5"))
    run.cancel()
    with pytest.raises(Cancelled):
        run.result()
    assert view.gate.spent.epsilon == 0
    service.close()


# turns


def test_a_burst_of_one_person_delays_nobody_else():
    queue, order, gate = FairQueue(1), [], threading.Event()
    queue.submit("first", gate.wait)
    for place in range(5):
        queue.submit("greedy", lambda place=place: order.append(("greedy", place)))
    queue.submit("modest", lambda: order.append(("modest", 0)))
    gate.set()
    queue.close()
    assert order.index(("modest", 0)) == 1
    assert [place for name, place in order if name == "greedy"] == [0, 1, 2, 3, 4]


# the access log


def test_the_access_log_shows_a_change(service, callers):
    view = service.view(callers["ana"], "clinic")
    for _ in range(3):
        view.ask(COUNT)
    assert service.log.broken() is None
    line = service.log.lines(person="ana", limit=1)[0]
    assert (line.action, line.dataset, line.detail["rows"]) == ("ask", "clinic", 1)
    service.store.all("UPDATE access SET person = ? WHERE seq = 1", "ben")
    assert service.log.broken() == 1


def test_nothing_leaves_that_could_not_be_logged(service, callers, monkeypatch):
    view = service.view(callers["ana"], "clinic")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(AuditLog, "write", full)
        with pytest.raises(OperatorError):
            view.ask(COUNT)
    assert view.ask(COUNT).result().price.epsilon == 0  # charged, and found again
    assert view.gate.spent.epsilon == Fraction(1, 10)


def test_the_log_holds_no_answer(service, callers):
    result = service.view(callers["ana"], "clinic").ask(COUNT).result()
    ((number,),) = result.to_dict()["rows"]
    kept = str([line.to_dict() for line in service.log.lines()])
    assert f"[{number}]" not in kept
    assert "answer" not in kept


# refusals


def test_operators_errors_are_opaque_to_analysts():
    error = OSError(2, "No such file or directory", "secret-file.csv")
    assert "secret-file" not in str(body_of(error))
    assert body_of(error)["reference"] != body_of(error)["reference"]
    assert "secret-file" in str(body_of(error, steward=True))
    assert (status_of(error), status_of(OverBudget("a", fix="b"))) == (500, 402)


def test_times_are_on_a_ladder():
    run = Run(
        id="1", person="ana", dataset="clinic", order=COUNT, fresh=False, practice=False,
        face="http", created="", quantum=0.05,
    )  # fmt: skip
    run.begin()
    run.finish(SpecError("no", fix="yes"))
    assert run.ended_at - run.begun_at == pytest.approx(0.05)


# the store on a server


def test_the_same_store_on_a_postgres_server(server, clinic):
    address = server.fresh()
    first, second = Store(address), Store(address)
    logs = [AuditLog(first), AuditLog(second)]

    def write(log):
        for _ in range(10):
            log.add("ana", "look", face="http")

    threads = [threading.Thread(target=write, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(logs[0].lines()), logs[1].broken()) == (20, None)
    service = Service([clinic], state=address, settings=Settings(quantum=0))
    service.people.add("ana", "analyst", "correct horse battery")
    caller = service.people.by_token(service.people.new_token("ana"))
    runs = [service.view(caller, "clinic").ask(COUNT, key="k", fresh=True) for _ in range(2)]
    assert runs[0].id == runs[1].id
    service.close()
    first.close()
    second.close()


# the ladder of times


def test_nobody_is_told_of_an_end_before_its_time(clinic):
    """By the state of a run, its progress, or the history: each would tell how long rows took."""
    with closing(Service([clinic], settings=Settings(quantum=1.5))) as service:
        service.people.add("ana", "analyst")
        service.people.add("aud", "auditor")
        ana, aud = (service.people.caller_of(name) for name in ("ana", "aud"))
        view = service.view(ana, "clinic")
        run = view.start(COUNT)
        while not run.ended:
            time.sleep(0.01)
        assert run.state == "done"
        before = time.monotonic()
        assert not run.wait(0)
        assert not asyncio.run(run.until(0))
        assert time.monotonic() - before < 0.5
        told = run.to_dict()
        assert (told["state"], told["progress"], told["error"]) == ("running", 0.0, None)
        assert [each["state"] for each in view.history()] == ["running"]
        assert run.wait(30)
        assert (run.to_dict()["state"], run.to_dict()["progress"]) == ("done", 1.0)
        (seen,) = view.history()
        assert (seen["state"], seen["finished"]) == ("done", None)
        assert service.view(aud, "clinic").history()[0]["finished"] is not None


def test_the_head_of_the_ledger_is_for_those_who_see_all(service, callers):
    assert service.view(callers["aud"], "clinic").head()["seq"] >= 0
    with pytest.raises(Forbidden, check=about("role")):
        service.view(callers["ana"], "clinic").head()


def test_looks_count_towards_what_a_token_may_spend(service):
    """Their results state no price; the log and the limits of tokens do."""
    token = service.people.new_token("ana", epsilon_hour=1)
    ana = service.people.by_token(token)
    view = service.view(ana, "clinic")
    view.ask(order_from({"kind": "caps", "table": "visits", "epsilon": "0.7"}))
    look = order_from({"kind": "bounds", "table": "visits", "column": "cost", "epsilon": "0.7"})
    with pytest.raises(Forbidden, check=about("token")):
        view.ask(look)
    assert [each["price"] for each in view.history()] == [0.7]
    again = view.ask(order_from({"kind": "caps", "table": "visits", "epsilon": "0.7"}))
    assert again.result().price.epsilon == 0


def test_a_run_that_is_cancelled_at_work_says_so_at_once():
    run = Run(
        id="r", person="ana", dataset="clinic", order=COUNT, fresh=False, practice=False,
        face="http", created="",
    )  # fmt: skip
    assert run.begin()
    run.cancel()
    assert run.wait(0)
    with pytest.raises(Cancelled, match="stays charged"):
        run.result()
    run.stop.set()  # as a clock does, at a time of the ladder
    with pytest.raises(Cancelled):
        run.tell(0.5, "half")


@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_is_as_of_the_moment_when_it_was_begun(service, callers, clinic, monkeypatch, fresh):
    """Found on another day it has its own numbers and price, though today's question was asked."""
    today = sql(
        "SELECT CURRENT_DATE AS today, COUNT(*) AS n FROM visits WHERE day < CURRENT_DATE",
        epsilon="0.1",
    )
    monkeypatch.setattr(views, "now", lambda: "2024-05-01T23:59:59.999+00:00")
    run = service.view(callers["ana"], "clinic").ask(today, key="k", fresh=fresh)
    service.close()
    monkeypatch.setattr(views, "now", lambda: "2024-05-02T00:00:00.000+00:00")
    with closing(Service([clinic], settings=Settings(quantum=0))) as later:
        view = later.view(callers["ana"], "clinic")
        other = view.ask(today).result().to_dict()
        found = [view.ask(today, key="k", fresh=fresh).result().to_dict()]
        later._runs.clear()
        (again := later.run_of(callers["ana"], run.id)).wait(30)
        found.append(again.result().to_dict())
        for each in found:
            assert each["rows"] == run.result().to_dict()["rows"]
            assert each["price"] == 0.1
        assert (found[0]["rows"][0][0], other["rows"][0][0]) == ("2024-05-01", "2024-05-02")
        assert view.gate.spent.epsilon == Fraction(1, 5)
