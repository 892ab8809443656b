"""A server that is lost, wrong, changed or closed: the charge stays, and nobody learns of rows."""

import os
import signal
import threading
import time
from datetime import date
from functools import partial

import engine_worlds
import pytest

import noisegate
from engines import READER
from noisegate.errors import Cancelled, NoisegateError, PolicyError, SourceError
from noisegate.sources.asked.pool import Pool
from noisegate.sources.postgres.link import Link
from noisegate.sources.stopping import Stop, stopping
from refusals import about

COUNT = "SELECT COUNT(*) FROM people"


@pytest.fixture
def clinic(tmp_path, database):
    """A policy, and the database that its rows are in."""
    return engine_worlds.on_server(tmp_path / "server", database, engine_worlds.frames()), database


def opened(file, ledger=":memory:"):
    return noisegate.open(file, analyst="ann", ledger=ledger)


def end_sessions(database):
    """As if the server had been restarted: every session of the reader ends."""
    database.owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (READER,)
    )


def replaced(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def test_a_server_that_came_back_is_asked_again(clinic):
    file, database = clinic
    gate = opened(file)
    end_sessions(database)
    assert gate.sql(COUNT, epsilon=1000).to_pandas().iloc[0, 0] == 60
    assert gate.spent.epsilon == 1000


def test_a_question_that_was_lost_midway_is_answered_later_for_one_charge(clinic, monkeypatch):
    file, database = clinic
    gate = opened(file)
    source, question = gate.door._source, "SELECT COUNT(*) FROM visits"
    price = gate.plan(question, epsilon=1000).price.epsilon
    run, lost = source._run, [True]

    def once(work):
        def broken(connection):
            if lost and lost.pop():
                end_sessions(database)
            return work(connection)

        return run(broken)

    monkeypatch.setattr(source, "_run", once)
    with pytest.raises(SourceError) as refusal:
        gate.sql(question, epsilon=1000)
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None
    assert gate.spent.epsilon == price > 0
    assert gate.sql(question, epsilon=1000).to_pandas().iloc[0, 0] > 100
    assert gate.spent.epsilon == price


def test_a_server_that_cannot_be_reached_is_said_to_be(clinic):
    file, _ = clinic
    with pytest.raises(SourceError, check=about("server")):
        opened(replaced(file, "host=", "host=/nowhere"))


def test_a_role_or_a_database_that_is_not_there_is_told_apart_from_that(clinic):
    file, _ = clinic
    with pytest.raises(SourceError, match="no such database or role"):
        opened(replaced(file, f"{READER}@", "nobody_at_all@"))


def test_a_table_that_is_not_there_is_named(clinic):
    file, _ = clinic
    with pytest.raises(SourceError, check=about("table")):
        opened(replaced(file, ".people", ".persons"))


def test_a_table_that_may_not_be_read_is_named(clinic):
    file, database = clinic
    database.owner.execute(f"REVOKE SELECT ON {database.schema}.people FROM {READER}")
    with pytest.raises(SourceError, check=about("role")):
        opened(file)


def test_a_role_that_may_write_or_is_a_superuser_is_refused(clinic):
    file, database = clinic
    database.owner.execute(f"GRANT DELETE ON {database.schema}.people TO {READER}")
    with pytest.raises(PolicyError, check=about("role")):
        opened(file)
    with pytest.raises(PolicyError, check=about("role")):
        opened(replaced(file, f"{READER}@", "postgres@"))


def test_a_password_in_a_policy_is_refused(clinic):
    file, _ = clinic
    with pytest.raises(PolicyError, check=about("password")) as refusal:
        opened(replaced(file, f"{READER}@", f"{READER}:geheim@"))
    assert "geheim" not in str(refusal.value)


def test_tables_on_two_engines_are_refused(clinic):
    file, database = clinic
    text = f'source = "{database.url}#{database.schema}.people"'
    with pytest.raises(PolicyError, check=about("engines")):
        opened(replaced(file, text, 'source = "people.csv"'))


@pytest.mark.parametrize("change", [
    "ALTER TABLE {}.people ALTER COLUMN age TYPE text",
    "ALTER TABLE {0}.people RENAME TO old; CREATE VIEW {0}.people AS SELECT * FROM {0}.old; "
    "GRANT SELECT ON {0}.people TO " + READER,
    "ALTER TABLE {}.people ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE {}.drugs DROP CONSTRAINT drugs_code_key",
])  # fmt: skip
def test_a_table_that_changes_its_form_is_noticed_before_it_is_read(clinic, change):
    file, database = clinic
    gate = opened(file)
    database.owner.execute(change.format(database.schema))
    with pytest.raises(SourceError, check=about("drift")):
        gate.sql(COUNT, epsilon=1)


def test_rows_that_are_added_are_counted_by_the_next_question(clinic):
    file, database = clinic
    gate = opened(file)
    database.owner.execute(f"INSERT INTO {database.schema}.people VALUES (1000, 'north', 5)")
    assert gate.sql(COUNT, epsilon=1000).to_pandas().iloc[0, 0] == 61


def test_a_view_needs_the_word_of_the_steward(clinic):
    file, database = clinic
    name = f"{database.schema}.shown"
    database.owner.execute(f"CREATE VIEW {name} AS SELECT * FROM {database.schema}.people")
    database.owner.execute(f"GRANT SELECT ON {name} TO {READER}")
    replaced(file, f"{database.schema}.people", name)
    with pytest.raises(PolicyError, check=about("view")):
        opened(file)
    replaced(file, "[tables.people]\n", "[tables.people]\ntrusted_view = true\n")
    assert opened(file).sql(COUNT, epsilon=1000).to_pandas().iloc[0, 0] == 60


def test_rows_that_are_reached_by_two_names_have_one_owner(clinic):
    """Another address of the same table, and a partition of it, are the same rows."""
    file, database = clinic
    owner, schema = database.owner, database.schema
    owner.execute(f"CREATE TABLE {schema}.part () INHERITS ({schema}.people)")
    owner.execute(f"GRANT SELECT ON {schema}.part TO {READER}")
    said = f'source = "{database.url}#{schema}.part"\nevery_row_is_one_person = true'
    file.write_text(f"{file.read_text()}[tables.part]\n{said}\n[tables.part.columns]\nage = {{}}\n")
    with pytest.raises(PolicyError, check=about("owner")):
        opened(file)


def test_settings_of_a_session_do_not_matter(clinic):
    """Behind a pool, a transaction may find any: they are pinned with each one."""
    file, _ = clinic
    gate = opened(file)
    with gate.door._source._links.taken() as link:
        link.connected().execute(
            "SET search_path = nowhere; SET datestyle = 'German'; SET timezone = 'Asia/Tokyo'"
        )
    question = "SELECT COUNT(*) FROM people WHERE CAST(born AS VARCHAR) = '1950-02-03'"
    expected = engine_worlds.frames()["people"].column("born").to_pylist().count(date(1950, 2, 3))
    assert gate.sql(question, epsilon=1000).to_pandas().iloc[0, 0] == expected


def test_a_public_key_must_be_kept_unique_by_the_server(clinic):
    file, database = clinic
    database.owner.execute(f"ALTER TABLE {database.schema}.drugs DROP CONSTRAINT drugs_code_key")
    with pytest.raises(PolicyError, check=about("key")):
        opened(file)


def test_a_text_is_not_read_as_a_number(clinic):
    file, _ = clinic
    with pytest.raises(PolicyError, check=about("stored")):
        opened(replaced(file, "city = {}", 'city = { type = "integer" }'))


def test_a_question_that_takes_too_long_ends(clinic):
    file, database = clinic
    gate = opened(file)
    source = gate.door._source
    source._links = Pool(partial(Link, source._url, seconds=0.001))
    heavy = "SELECT COUNT(*) FROM visits a JOIN visits b ON a.pid = b.pid JOIN visits c ON b.pid = c.pid"
    database.owner.execute(
        f"INSERT INTO {database.schema}.visits SELECT i, 1, 2, 'a', NULL FROM generate_series(1, 2000) t(i)"
    )
    with pytest.raises(SourceError):
        gate.sql(heavy, epsilon=1)


def test_an_error_of_the_server_is_not_told(clinic, monkeypatch):
    """Its DETAIL quotes values, as that of a failed cast does."""
    file, _ = clinic
    gate = opened(file)
    source = gate.door._source
    real = source._statement
    monkeypatch.setattr(
        source, "_statement",
        lambda *args: f"SELECT 'secret row'::bigint UNION ALL {real(*args)}",
    )  # fmt: skip
    with pytest.raises(SourceError) as refusal:
        gate.sql(COUNT, epsilon=1)
    chain = [refusal.value, refusal.value.__cause__, refusal.value.__context__]
    assert not any("secret" in str(each) for each in chain)


def test_a_question_can_be_interrupted_and_asked_again(clinic):
    file, database = clinic
    gate = opened(file)
    source = gate.door._source
    clock = threading.Timer(0.5, signal.raise_signal, (signal.SIGINT,))
    clock.start()
    with pytest.raises(KeyboardInterrupt):
        source._run(lambda connection: connection.execute("SELECT pg_sleep(20)"))
    clock.join()
    assert gate.sql(COUNT, epsilon=1000).to_pandas().iloc[0, 0] == 60
    time.sleep(0.1)
    running = "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE '%%pg_sleep(20)' AND state = 'active' AND usename = %s"
    assert database.owner.execute(running, (READER,)).fetchone() == (0,)


def test_a_forked_child_does_not_end_the_session_of_its_parent(clinic, tmp_path):
    file, _ = clinic
    gate = opened(file, tmp_path / "ledger.db")
    if (child := os.fork()) == 0:
        ended = 1
        try:
            ended = int(gate.sql(COUNT, epsilon=1000).to_pandas().iloc[0, 0] != 60)
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0
    sessions = [link._connection for link in gate.door._source._links._free]
    question = "SELECT COUNT(*) FROM people WHERE age > 0"
    assert gate.sql(question, epsilon=1000).to_pandas().iloc[0, 0] > 10
    assert [link._connection for link in gate.door._source._links._free] == sessions  # the same


def asked(source, stop, text, found):
    """One question in a thread of its own, which ends with its stop."""

    def ask():
        try:
            with stopping(stop):
                found[text] = source._run(lambda c: c.execute(text).fetchall())
        except NoisegateError as refusal:
            found[text] = refusal.code

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_cancel_ends_the_servers_work_for_one_question_and_touches_no_other(clinic):
    file, database = clinic
    source, stops, found = opened(file).door._source, (Stop(), Stop()), {}
    long, short = "SELECT pg_sleep(30)", "SELECT pg_sleep(1.2), 7"
    threads = [asked(source, *each, found) for each in zip(stops, (long, short), strict=True)]
    at_work = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND wait_event = 'PgSleep'"
    while database.owner.execute(at_work, (READER,)).fetchone() != (2,):
        time.sleep(0.02)
    stops[0].set()
    threads[0].join(10)
    assert found == {long: "cancelled"}
    assert database.owner.execute(at_work, (READER,)).fetchone() == (1,)
    threads[1].join(10)
    assert found[short] == [("", 7)]
    with pytest.raises(Cancelled), stopping(stops[0]):
        source._run(lambda c: c.execute("SELECT 1").fetchall())
    assert source._run(lambda c: c.execute("SELECT 1").fetchall()) == [(1,)]


def test_a_cancelled_release_stays_charged_and_its_moment_is_over(clinic, monkeypatch):
    """Its questions are asked in one transaction, which the cut ends."""
    file, _ = clinic
    gate = opened(file)
    source, stop = gate.door._source, Stop()
    real, begun = type(source).marginals, threading.Event()

    def long(self, tally):
        begun.set()
        self._run(lambda c: c.execute("SELECT pg_sleep(30)"))
        return real(self, tally)

    monkeypatch.setattr(type(source), "marginals", long)
    monkeypatch.setattr(type(source), "sums", long)
    clock = threading.Thread(target=lambda: (begun.wait(20), time.sleep(0.1), stop.set()))
    clock.start()
    before = time.monotonic()
    with pytest.raises(Cancelled), stopping(stop):
        gate.release(
            "histogram", table="people", columns={"ward": None}, rows_per_unit=1, epsilon=1
        )
    clock.join()
    assert time.monotonic() - before < 20
    assert gate.spent.epsilon == 1
