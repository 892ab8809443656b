"""A cancel cuts the engine's work for one question, and touches no other."""

import time
from contextlib import closing
from threading import Thread

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisegate.errors import Cancelled
from noisegate.orders import order_from
from noisegate.server.runs import Run
from noisegate.server.service import Service
from noisegate.server.settings import Settings
from noisegate.sources.stopping import Stop, stopping

ROWS = 100
POLICY = """
name = "long"
[budget]
epsilon = 10
[tables.visits]
source = "visits.parquet"
unit = "who"
rows_per_unit = 10
[tables.visits.columns]
who = { type = "integer" }
ward = { in = ["n", "s"] }
[analysts]
ana = 5
ben = 5
"""
PAIRS = 8_571_428  # of 60 million sums, those with 1 as the rest of a division by 7
SLEEP = "SELECT sum(sin(a.range * b.range)) FROM range(1000000) a, range(1000000) b"


@pytest.fixture
def service(tmp_path):
    random = np.random.default_rng(1)
    rows = {"who": np.ones(ROWS, int), "ward": np.array(["n", "s"])[random.integers(0, 2, ROWS)]}
    pq.write_table(pa.table(rows), tmp_path / "visits.parquet")
    (tmp_path / "long.toml").write_text(POLICY)
    with closing(Service([tmp_path / "long.toml"], settings=Settings(quantum=0.01))) as made:
        for name in ("ana", "ben"):
            made.people.add(name, "analyst")
        yield made


def view(service, name):
    return service.view(service.people.caller_of(name), "long")


def order():
    return order_from({"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "1"})


def source_of(service):
    return service._hosted["long"]._source


@pytest.fixture
def held(service, monkeypatch):
    """Questions that stay in the engine until they are cut; the sources of both, as they are."""
    source, real = source_of(service), type(source_of(service)).sums

    def long(self, tally):
        if held.on:
            self._run(lambda connection: connection.execute(SLEEP).fetchall(), ())
        return real(self, tally)

    class held:  # noqa: N801 - a switch
        on = True

    monkeypatch.setattr(type(source), "sums", long)
    return held


def until(it, seconds=30):
    last = time.monotonic() + seconds
    while not it():
        assert time.monotonic() < last
        time.sleep(0.005)


def test_a_cancelled_question_leaves_the_engine_and_goes_on_for_no_second_charge(service, held):
    """The key names the run: it goes on under the same charge, and the answer comes."""
    mine = view(service, "ana")
    run = mine.start(order(), key="k", fresh=True)
    until(lambda: mine.gate.spent.epsilon)
    time.sleep(0.1)
    spent = mine.gate.spent.epsilon
    assert spent == 1, "charged before the rows are read"
    run.cancel()
    with pytest.raises(Cancelled):
        run.result()
    until(lambda: run.settled and not service.queue.running)
    assert mine.gate.spent.epsilon == spent
    held.on = False
    again = mine.start(order(), key="k", fresh=True)
    assert again is not run
    assert again.wait(30)
    assert again.result().answer.table.num_rows == 1
    assert mine.gate.spent.epsilon == spent
    assert [(each["state"], each["price"]) for each in mine.history()] == [("done", 1.0)]


def test_a_cancel_touches_no_other_question(service, held):
    """Two are in the engine at the same time; one is cut, the other goes on and is right."""
    source, found = source_of(service), []
    stops = Stop(), Stop()

    def ask(stop, text):
        with stopping(stop):
            try:
                found.append(source._run(lambda c: c.execute(text).fetchall(), ()))
            except Cancelled:
                found.append("cancelled")

    pairs = "SELECT count(*) FROM range(30000) a, range(2000) b WHERE (a.range + b.range) % 7 = 1"
    threads = [Thread(target=ask, args=each) for each in zip(stops, (SLEEP, pairs), strict=True)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert all(thread.is_alive() for thread in threads), "both are at work"
    stops[0].set()
    threads[0].join(10)
    assert found == ["cancelled"]
    threads[1].join(60)
    assert found[1] == [(PAIRS,)]


def test_work_by_steps_stops_at_a_time_of_the_ladder():
    """Not at the next step: how many were paid for would tell of any moment that one likes."""
    run = Run(
        id="r", person="ana", dataset="long", order=order(), fresh=False, practice=False,
        face="http", created="", quantum=0.3,
    )  # fmt: skip
    assert run.begin()
    run.cancel()
    run.tell(0.5, "half")
    until(lambda: run.stop.is_set)
    assert time.monotonic() - run.begun_at > 0.29
    with pytest.raises(Cancelled):
        run.tell(0.6, "more")


def test_what_was_cancelled_asks_nothing_any_more(service):
    stop, source = Stop(), source_of(service)
    stop.set()
    with stopping(stop), pytest.raises(Cancelled):
        source._run(lambda connection: connection.execute("SELECT 1").fetchall(), ())
    assert source._run(lambda c: c.execute("SELECT 1").fetchall(), ()) == [(1,)]


def test_every_line_to_the_engine_is_locked_and_limited_alike(service):
    source = source_of(service)
    lines = [source._take() for _ in range(3)]
    text = "SELECT name, value FROM duckdb_settings() ORDER BY name"
    first, *others = (dict(line.connection.execute(text).fetchall()) for line in lines)
    apart = {name for other in others for name in first if other[name] != first[name]}
    assert apart == set()
    assert first["lock_configuration"] == "true"
    for line in lines:
        source._give_back(line, done=True, cut=False)
    assert len({id(line.connection) for line in lines}) == 3
