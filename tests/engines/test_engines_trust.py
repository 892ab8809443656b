"""What is not relied on: keys, casts, views and roles that allow more than they seem to."""

import engine_worlds
import pytest

import noisegate
from engines import READER
from noisegate.errors import PolicyError
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
