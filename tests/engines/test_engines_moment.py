"""One allowance is about one moment: rows that move meanwhile are in one part of it."""

import os
import threading
import time
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import psycopg
import pytest

import noisegate
from engines import READER
from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.curator.measurement import Measurement
from noisegate.errors import SourceError
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.distance import L1
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.event import DeclaredEvent, PoissonSampled
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.postgres.server import Place
from noisegate.sources.postgres.source import PostgresSource
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Strategy
from refusals import about

ONE = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)
NOISE = (Geometric.for_epsilon(30, sensitivity=L1(1)),)  # others than exact: 1 in 10 ** 13
POLICY = """
name = "live"
[budget]
epsilon = 1000
[tables.t]
source = "{url}#{schema}.t"
every_row_is_one_person = true
[tables.t.columns]
ward = {{ in = ["a", "b", "c", "d"] }}
"""


def made(database, rows="('a')", how="(ward text)"):
    """A table t on the server."""
    run = database.owner.execute
    run(f"CREATE TABLE {database.schema}.t {how}")
    run(f"GRANT SELECT ON {database.schema}.t TO {READER}")
    run(f"INSERT INTO {database.schema}.t VALUES {rows}")


@pytest.fixture
def door(tmp_path, database):
    """One person in one ward, and the way to move that person."""
    made(database)
    file = tmp_path / "live.toml"
    file.write_text(POLICY.format(url=database.url, schema=database.schema))
    return noisegate.open(file, ledger=":memory:").door


def move(database, ward):
    database.owner.execute(f"UPDATE {database.schema}.t SET ward = %s", (ward,))


def plain(door):
    return Measurement(
        query=Query(tally=Sums(relation=Table(door.tables["t"]), terms=(ONE,))), mechanisms=NOISE
    )


def number(release):
    return int(release.values[0].ravel()[0])


def test_a_person_who_moves_is_in_one_part_of_an_allowance(door, database):
    with door.allowance(DeclaredEvent(epsilon=30), question="q", request_id="q") as allowed:
        seen = []
        for ward, part in zip("abcd", allowed.whole.cut("ward", list("abcd")), strict=True):
            move(database, ward)
            seen.append(number(part.measure(plain(door))))
    assert seen == [1, 0, 0, 0]
    assert door.ledger.balance(door.account).spent.epsilon == 30


def test_a_person_who_moves_is_in_one_cell_of_an_allowance(door, database):
    by = (Grouping(name="ward", expression=Field("ward"), keys=("a", "b", "c", "d")),)
    with door.allowance(DeclaredEvent(epsilon=30), question="q", request_id="q") as allowed:
        seen = []
        for place, ward in enumerate("abcd"):
            move(database, ward)
            labels = np.full(4, -1, np.int32)
            labels[place] = 0
            tally = Sums(relation=Table(door.tables["t"]), by=by, terms=(ONE,))
            query = Query(tally, Strategy(4, (Groups(labels, 1),)))
            asked = Measurement(query=query, mechanisms=NOISE)
            seen.append(number(allowed.whole.measure(asked)))
    assert seen == [1, 0, 0, 0]


def test_the_next_allowance_is_about_the_rows_of_its_own_moment(door, database):
    move(database, "b")
    with door.allowance(DeclaredEvent(epsilon=30), question="q", request_id="q") as allowed:
        parts = allowed.whole.cut("ward", list("abcd"))
        assert [number(part.measure(plain(door))) for part in parts] == [0, 1, 0, 0]


def test_a_moment_that_is_lost_is_not_replaced_by_another(door, database):
    with door.allowance(DeclaredEvent(epsilon=300), question="q", request_id="q") as allowed:
        first, second, *_ = allowed.whole.cut("ward", list("abcd"))
        assert number(first.measure(plain(door))) == 1
        database.owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (READER,)
        )
        move(database, "b")
        with pytest.raises(SourceError):
            second.measure(plain(door))
        with pytest.raises(SourceError, check=about("moment")):
            second.measure(plain(door))
    assert number(door.measure(plain(door))) == 1  # outside of it, questions go on


def test_an_allowance_that_cannot_begin_costs_nothing(door, database):
    database.owner.execute(f"ALTER TABLE {database.schema}.t ADD COLUMN more int")
    with (
        pytest.raises(SourceError, check=about("drift")),
        door.allowance(DeclaredEvent(epsilon=30), question="q", request_id="q"),
    ):
        pass
    assert door.ledger.balance(door.account).spent.epsilon == 0


def test_no_session_is_left_behind_by_an_allowance(door, database):
    asked = "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = %s"
    before = database.owner.execute(asked, (READER,)).fetchone()
    for name in ("one", "two", "three"):
        with door.allowance(DeclaredEvent(epsilon=30), question=name, request_id=name):
            pass
    time.sleep(0.1)
    assert database.owner.execute(asked, (READER,)).fetchone()[0] <= before[0] + 1


def domain_of_people(column=None):
    return TableDomain(
        dataset="d", name="t", unit=PrivacyUnit(column="who", ids="who"),
        columns=MappingProxyType({"x": column or Column(name="x", kind=Kind.INTEGER)}),
    )  # fmt: skip


def people(database, how="(who bigint, x int)", rows="(1, 5), (2, 7)"):
    made(database, rows, how)
    domain = domain_of_people()
    return PostgresSource({"t": Place(database.url, database.schema, "t")}, {"t": domain}), Sums(
        relation=Table(domain), terms=(ONE,), rows_per_unit=1
    )


def test_one_sample_is_about_one_moment(database):
    source, tally = people(database)
    with source.still() as rows, rows.sample(Fraction(999, 1000), "0" * 64) as drawn:
        first = drawn.sums(tally)
        database.owner.execute(f"DELETE FROM {database.schema}.t")
        assert first.tolist() == drawn.sums(tally).tolist()
        assert first[0, 0] > 0  # these coins are always the same
    assert source.sums(tally).tolist() == [[0]]


def test_a_sampled_allowance_is_about_one_moment(tmp_path, database):
    made(database, "(1, 'a')", "(who bigint, ward text)")
    file = tmp_path / "live.toml"
    text = POLICY.format(url=database.url, schema=database.schema)
    file.write_text(
        text.replace("every_row_is_one_person = true", 'unit = "who"\nrows_per_unit = 1')
    )
    door = noisegate.open(file, ledger=":memory:").door
    event = PoissonSampled(event=DeclaredEvent(epsilon=90), probability=Fraction(1, 2))
    tally = Sums(relation=Table(door.tables["t"]), terms=(ONE,), rows_per_unit=1)
    asked = Measurement(query=Query(tally=tally), mechanisms=NOISE)
    with door.allowance(event, question="q", request_id="q") as allowed:
        first = number(allowed.whole.measure(asked))
        database.owner.execute(f"UPDATE {database.schema}.t SET who = who + 1")
        database.owner.execute(f"INSERT INTO {database.schema}.t SELECT 5, 'a'")
        assert number(allowed.whole.measure(asked)) == first <= 1


def test_a_question_that_waits_for_a_migration_sees_what_that_has_made(database):
    """The lock comes before the snapshot: else the catalogue would still show the old table."""
    source, tally = people(database)
    name, found = f"{database.schema}.t", []

    def ask():
        try:
            found.append(source.sums(tally))
        except SourceError as refusal:
            found.append(refusal)

    with psycopg.connect(database.owner.info.dsn) as migration:
        migration.execute(f"ALTER TABLE {name} RENAME TO raw")
        migration.execute(
            f"CREATE VIEW {name} AS SELECT g::bigint AS who, 1 AS x FROM generate_series(1, 1000) g "
            f"WHERE EXISTS (SELECT 1 FROM {database.schema}.raw WHERE who = 1)"
        )
        migration.execute(f"GRANT SELECT ON {name} TO {READER}")
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.5)
    asking.join()
    assert about("drift")(found[0])


def test_a_partition_that_is_attached_within_an_allowance_is_noticed(database):
    """No lock that a reader can take keeps one from being attached."""
    schema, run = database.schema, database.owner.execute
    run(f"CREATE TABLE {schema}.later (who bigint, x int)")
    run(f"INSERT INTO {schema}.later VALUES (1, 100)")
    run(f"CREATE TABLE {schema}.t (who bigint, x int) PARTITION BY RANGE (x)")
    run(f"CREATE TABLE {schema}.now PARTITION OF {schema}.t FOR VALUES FROM (0) TO (50)")
    run(f"GRANT SELECT ON {schema}.t TO {READER}")
    domain = domain_of_people()
    source = PostgresSource({"t": Place(database.url, schema, "t")}, {"t": domain})
    tally = Sums(relation=Table(domain), terms=(ONE,), rows_per_unit=1)
    with source.still() as rows:
        assert rows.sums(tally).tolist() == [[0]]
        run(f"ALTER TABLE {schema}.t ATTACH PARTITION {schema}.later FOR VALUES FROM (50) TO (200)")
        with pytest.raises(SourceError, check=about("drift")):
            rows.sums(tally)


def test_a_role_that_may_read_some_columns_is_answered(database):
    """LOCK TABLE is not for such a role."""
    schema, run = database.schema, database.owner.execute
    run(f"CREATE TABLE {schema}.t (who bigint, x int, secret text)")
    run(f"GRANT SELECT (who, x) ON {schema}.t TO {READER}")
    run(f"INSERT INTO {schema}.t VALUES (1, 2, 'z')")
    domain = domain_of_people()
    source = PostgresSource({"t": Place(database.url, schema, "t")}, {"t": domain})
    tally = Sums(relation=Table(domain), terms=(ONE,), rows_per_unit=1)
    with source.still() as rows:
        assert rows.sums(tally).tolist() == source.sums(tally).tolist() == [[1]]


def test_a_forked_child_has_no_part_in_the_moment_of_its_parent(database):
    source, tally = people(database)
    with source.still() as rows:
        assert rows.sums(tally).tolist() == [[2]]
        if (child := os.fork()) == 0:
            ended = 1
            try:
                rows.sums(tally)
            except SourceError as refusal:
                ended = int(not about("moment")(refusal))
            finally:
                os._exit(ended)
        assert os.waitpid(child, 0)[1] == 0
        database.owner.execute(f"DELETE FROM {database.schema}.t")
        assert rows.sums(tally).tolist() == [[2]]  # the parent's session goes on


def test_a_transaction_that_has_ended_is_not_taken_for_one_that_goes_on(database):
    """The connection is there, but each statement would be at a moment of its own."""
    source, tally = people(database)
    with source.still() as rows:
        rows._once._connection.execute("ROLLBACK")
        with pytest.raises(SourceError, check=about("moment")):
            rows.sums(tally)
