"""What is not relied on: keys, casts, views and roles that allow more than they seem to."""

import engine_worlds
import pytest

import noisegate
from engines import READER
from noisegate.errors import PolicyError, SourceError
from refusals import about

COUNT = "SELECT COUNT(*) FROM people"


@pytest.fixture
def clinic(tmp_path, database):
    """A policy, and the database that its rows are in."""
    return engine_worlds.on_server(tmp_path / "server", database, engine_worlds.frames()), database


def opened(file):
    return noisegate.open(file, analyst="ann", ledger=":memory:")


def replaced(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def test_a_key_says_nothing_about_rows_of_tables_that_inherit(clinic):
    """Each of them may hold the same key again, so that a join would repeat a private row."""
    file, database = clinic
    name = f"{database.schema}.drugs"
    database.owner.execute(f"CREATE TABLE {database.schema}.old_drugs () INHERITS ({name})")
    with pytest.raises(PolicyError, check=about("key")):
        opened(file)


def test_a_key_of_a_partitioned_table_is_kept_by_the_server(clinic):
    file, database = clinic
    name, run = f"{database.schema}.drugs", database.owner.execute
    run(f"DROP TABLE {name}")
    run(f"CREATE TABLE {name} (code text PRIMARY KEY, price bigint) PARTITION BY HASH (code)")
    run(f"CREATE TABLE {name}_0 PARTITION OF {name} FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    run(f"INSERT INTO {name} VALUES ('a', 1), ('b', 2)")
    run(f"GRANT SELECT ON {name} TO {READER}")
    assert opened(file).sql(COUNT, epsilon=1000).to_pandas().iloc[0, 0] == 60


def test_a_whole_number_can_be_the_key_of_a_public_table(clinic):
    """Its rows of later on are told apart, too: the key is not clamped to those of today."""
    file, database = clinic
    run = database.owner.execute
    run(f"CREATE TABLE {database.schema}.rates (age bigint PRIMARY KEY, rate bigint)")
    run(f"INSERT INTO {database.schema}.rates VALUES (40, 1), (41, 2)")
    run(f"GRANT SELECT ON {database.schema}.rates TO {READER}")
    source = f'source = "{database.url}#{database.schema}.rates"\npublic = true\nkey = ["age"]'
    file.write_text(f"{file.read_text()}[tables.rates]\n{source}\n")
    gate = opened(file)
    run(f"INSERT INTO {database.schema}.rates SELECT i, 3 FROM generate_series(42, 120) t(i)")
    ages = engine_worlds.frames()["people"].column("age").to_pylist()
    question = "SELECT COUNT(*) FROM people p JOIN rates r ON p.age = r.age"
    found = gate.sql(question, epsilon=1000).to_pandas().iloc[0, 0]
    exact = sum(age is not None and 40 <= min(max(age, 0), 120) <= 120 for age in ages)
    assert found == exact


def test_a_cast_of_somebodys_own_is_not_used(tmp_path, database):
    """Its function could read the rows of others."""
    schema, run = database.schema, database.owner.execute
    run(f"CREATE TYPE {schema}.mood AS ENUM ('ok', 'bad')")
    run(f"CREATE TABLE {schema}.t (who bigint, x {schema}.mood)")
    run(f"GRANT SELECT ON {schema}.t TO {READER}")
    file = tmp_path / "moods.toml"
    file.write_text(
        f'name = "moods"\n[budget]\nepsilon = 1000\n[tables.t]\n'
        f'source = "{database.url}#{schema}.t"\nunit = "who"\nrows_per_unit = 1\n'
        "[tables.t.columns]\nx = {}\n"
    )
    gate = noisegate.open(file, ledger=":memory:")
    run(
        f"CREATE FUNCTION {schema}.label({schema}.mood) RETURNS text LANGUAGE sql SECURITY DEFINER "
        f"AS $$ SELECT COUNT(*)::text FROM {schema}.t $$"
    )
    run(f"CREATE CAST ({schema}.mood AS text) WITH FUNCTION {schema}.label({schema}.mood)")
    with pytest.raises(SourceError, check=about("drift")):
        gate.sql("SELECT COUNT(*) FROM t WHERE x = 'ok'", epsilon=1)
    with pytest.raises(PolicyError, check=about("cast")):
        noisegate.open(file, ledger=":memory:")


def test_a_vouched_view_with_another_definition_is_noticed(clinic):
    file, database = clinic
    name, people = f"{database.schema}.shown", f"{database.schema}.people"
    database.owner.execute(f"CREATE VIEW {name} AS SELECT * FROM {people}")
    database.owner.execute(f"GRANT SELECT ON {name} TO {READER}")
    replaced(file, people, name)
    gate = opened(replaced(file, "[tables.people]\n", "[tables.people]\ntrusted_view = true\n"))
    assert gate.sql(COUNT, epsilon=1000).to_pandas().iloc[0, 0] == 60
    database.owner.execute(
        f"CREATE OR REPLACE VIEW {name} AS SELECT pid, ward, (SELECT COUNT(*) FROM {people}) AS age, "
        f"born, city FROM {people}"
    )
    with pytest.raises(SourceError, check=about("drift")):
        gate.sql("SELECT COUNT(*) FROM people WHERE age > 3", epsilon=1)


@pytest.fixture
def granted(database):
    """A way to let the reader be a member of roles, which ends with the test."""
    given = []

    def grant(role):
        database.owner.execute(f"GRANT {role} TO {READER}")
        given.append(role)

    yield grant
    for role in given:
        database.owner.execute(f"REVOKE {role} FROM {READER}")
    database.owner.execute(f"ALTER ROLE {READER} INHERIT")


@pytest.mark.parametrize("role", ["pg_execute_server_program", "pg_write_all_data"])
def test_a_role_of_the_server_that_does_more_than_read_is_refused(clinic, granted, role):
    file, _ = clinic
    granted(role)
    with pytest.raises(PolicyError, check=about("role")):
        opened(file)


def test_a_role_that_can_become_a_writer_is_refused(clinic, granted):
    file, database = clinic
    writer = f"writer_{database.schema}"
    database.owner.execute(f"CREATE ROLE {writer}")
    database.owner.execute(f"GRANT INSERT ON {database.schema}.people TO {writer}")
    database.owner.execute(f"ALTER ROLE {READER} NOINHERIT")
    granted(writer)
    with pytest.raises(PolicyError, check=about("role")):
        opened(file)


def test_a_password_of_a_key_in_the_address_is_refused(clinic):
    file, _ = clinic
    with pytest.raises(PolicyError, check=about("password")):
        opened(replaced(file, "?host=", "?sslpassword=secret&host="))


BUDGET = """
name = "{name}"
[budget]
epsilon = 1
[tables.visits]
source = "{source}"
unit = "who"
rows_per_unit = 1
[tables.visits.columns]
cost = {{ between = [0, 100] }}
"""


@pytest.mark.parametrize(("old", "new"), [
    ("/postgres?", "/%70ostgres?"),
    ("host=/", "host=//"),
    ("host=/", "host=/./"),
    ("?host=", "?application_name=x&host="),
    ("#", "#"),
    (".visits", ".visits_all"),
    ("host=/dev", "host=/dev/../proc/self/root/dev"),
])  # fmt: skip
def test_one_table_has_one_budget_by_whatever_name_it_is_reached(tmp_path, database, old, new):
    """Another spelling of the address, another way to the socket, and its only partition."""
    schema, run = database.schema, database.owner.execute
    run(f"CREATE TABLE {schema}.visits (who bigint, cost float8) PARTITION BY RANGE (who)")
    run(f"CREATE TABLE {schema}.visits_all PARTITION OF {schema}.visits DEFAULT")
    run(f"GRANT SELECT ON {schema}.visits, {schema}.visits_all TO {READER}")
    first = f"{database.url}#{schema}.visits"
    ledger = tmp_path / "ledger.db"
    for name, source in (("one", first), ("two", first.replace(old, new))):
        (tmp_path / f"{name}.toml").write_text(BUDGET.format(name=name, source=source))
    noisegate.open(tmp_path / "one.toml", ledger=ledger)
    with pytest.raises(PolicyError, check=about("origin")):
        noisegate.open(tmp_path / "two.toml", ledger=ledger)
    noisegate.open(tmp_path / "one.toml", ledger=ledger)  # its own account, as before
