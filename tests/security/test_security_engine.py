"""The engine behind the door: no files but its own, limits on memory and time, no way to change them."""

from time import perf_counter

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from naive import Rewriter
from worlds import CANARY, EVE, eve, everything_in, gate, row, visits

import noisegate as ng
from noisegate.errors import PolicyError, SourceError
from noisegate.sources.duckdb.source import DuckDBSource
from refusals import about

SETTINGS = "SELECT name, value FROM duckdb_settings()"
SELF_JOIN = "SELECT COUNT(*) AS n FROM visits a JOIN visits b USING (who)"


def settings_of(connection):
    return dict(connection.execute(SETTINGS).fetchall())


def attempts(folder):
    (folder / "secret.csv").write_text(CANARY)
    return [
        f"SELECT content FROM read_text('{folder}/secret.csv')",
        f"FROM '{folder}/secret.csv'",
        f"SELECT file FROM glob('{folder}/*')",
        f"COPY (SELECT 1) TO '{folder}/out.csv'",
        f"ATTACH '{folder}/new.db'",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
    ]


def test_a_plain_engine_reads_writes_and_attaches(tmp_path):
    engine = Rewriter(visits=visits())._engine
    for sql in attempts(tmp_path)[:6]:
        engine.execute(sql).fetchall()
    assert settings_of(engine)["enable_external_access"] == "true"


@pytest.fixture(params=["frame", "csv", "parquet"])
def source(request, tmp_path):
    file = tmp_path / f"visits.{request.param}"
    if request.param == "frame":
        return gate(visits(eve()))._curator._source
    if request.param == "parquet":
        pq.write_table(visits(eve()), file)
    else:
        file.write_text(f"who,cost\n{EVE},1\n")
    return ng.open(file, unit="who", rows_per_unit=3, epsilon=9)._curator._source


def test_our_engine_does_none_of_it(source, tmp_path):
    for sql in attempts(tmp_path):
        with pytest.raises(duckdb.Error):
            source._connection.execute(sql).fetchall()
    assert not (tmp_path / "out.csv").exists()


def test_our_engine_is_limited_and_locked(source):
    found = settings_of(source._connection)
    assert found["enable_external_access"] == "false"
    assert found["lock_configuration"] == "true"
    assert found["memory_limit"] == "2.7 GiB"  # 3 GB
    assert source._seconds <= 3600


def test_an_engine_that_stumbled_comes_back_locked(source):
    with pytest.raises(SourceError):
        source._run(lambda connection: connection.execute("SELECT nothing"), ())
    assert settings_of(source._engine())["enable_external_access"] == "false"
    assert settings_of(source._engine())["lock_configuration"] == "true"


def test_a_question_that_takes_too_long_is_stopped_and_says_nothing_of_rows():
    """One person's 30,000 rows make 900 million pairs."""
    rows = visits(*[row(EVE, note=CANARY, ward="north")] * 30_000)
    mine = gate(rows)
    plan = mine.plan(SELF_JOIN, epsilon=1)
    tally = plan.expected.bought[0].draft.parts[0].query.tally
    source = DuckDBSource({"visits": rows}, mine.tables, seconds=1)
    start = perf_counter()
    with pytest.raises(SourceError) as failure:
        source.sums(tally)
    assert perf_counter() - start < 10
    assert CANARY not in everything_in(failure.value)
    assert failure.value.__cause__ is failure.value.__context__ is None
    (count,) = gate(visits()).plan("SELECT COUNT(*) AS n FROM visits", epsilon=1).expected.bought
    assert source.sums(count.draft.parts[0].query.tally).shape == (1, 1)  # and works again


def test_a_memory_limit_is_kept():
    source = DuckDBSource({"visits": visits()}, gate(visits()).tables, memory="100MB")
    assert settings_of(source._connection)["memory_limit"] == "95.3 MiB"


def test_the_engine_sees_no_column_that_is_hidden():
    source = gate(visits(eve()))._curator._source
    with pytest.raises(duckdb.Error):
        source._connection.execute("SELECT name FROM visits")
    listed = "SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal"
    columns = {name for (name,) in source._connection.execute(listed).fetchall()}
    assert columns == {"who", "ward", "cost", "age", "big", "note"}


def test_the_free_sql_runs_in_another_engine_without_private_rows():
    mine = gate(visits(eve()))
    mine.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1)
    from noisegate.sql.outer.engine import run_outer

    for name in ("visits", "frame0"):
        with pytest.raises(ng.NoisegateError, check=about("table")):
            run_outer(f"SELECT * FROM {name}", {}, {"other": pa.table({"x": [1]})})


# files that change while a gate is open

CODES = """name = "clinic"
[budget]
epsilon = 9
[tables.people]
source = "people.{end}"
every_row_is_one_person = true
columns.code = {{ type = "text" }}
[tables.codes]
source = "codes.{end}"
public = true
key = ["code"]
"""
MEETING = "SELECT COUNT(*) AS n FROM people JOIN codes USING (code)"


def put(folder, name, codes, end):
    file = folder / f"{name}.{end}"
    if end == "csv":
        file.write_text("\n".join(["code,more", *(f"{code},x" for code in codes)]) + "\n")
    else:
        pq.write_table(pa.table({"code": codes, "more": ["x"] * len(codes)}), file)


@pytest.fixture(params=["csv", "parquet"])
def clinic(request, tmp_path):
    put(tmp_path, "people", ["a", "b"], request.param)
    put(tmp_path, "codes", ["a", "b"], request.param)
    (tmp_path / "clinic.toml").write_text(CODES.format(end=request.param))
    with ng.open(tmp_path / "clinic.toml") as made:
        yield made, lambda name, codes: put(tmp_path, name, codes, request.param)


def test_a_key_that_repeats_by_now_is_refused_before_the_charge(clinic):
    """With fifty rows of one code, a row that is one person would count fifty times at the price of one."""
    gate, change = clinic
    gate.sql(MEETING, epsilon=1)
    before = gate.ledger.head()
    change("codes", ["a"] * 50 + ["b"])
    for sql in (MEETING, f"{MEETING} WHERE code = 'a'"):
        with pytest.raises(PolicyError, check=about("key")):
            gate.sql(sql, epsilon=2)
    assert gate.ledger.head() == before
    change("codes", ["a", "b", "c"])
    assert gate.sql(f"{MEETING} WHERE code = 'b'", epsilon=2)


@pytest.mark.parametrize("name", ["people", "codes"])
def test_what_was_found_in_a_file_that_changed_meanwhile_is_not_used(clinic, name, monkeypatch):
    """One statement may read a file twice: how many rows a unit has, and then all of its rows."""
    (gate, change), run = clinic, DuckDBSource._run

    def changed_meanwhile(source, work, by):
        found = run(source, work, by)
        change(name, ["a", "b", "c"])
        return found

    monkeypatch.setattr(DuckDBSource, "_run", changed_meanwhile)
    with pytest.raises(SourceError, check=about("drift")):
        gate.sql(MEETING, epsilon=1)
    assert gate.spent.epsilon == 1
    monkeypatch.undo()
    gate.sql(MEETING, epsilon=1)
    assert gate.spent.epsilon == 1


COMPUTED = {
    "by the clock": "CREATE VIEW codes AS SELECT code FROM kept WHERE since <= now()",
    "by chance": "CREATE VIEW codes AS SELECT code FROM kept WHERE random() < 0.5",
    "by a column": "CREATE TABLE codes (i INT, code VARCHAR AS (CASE WHEN random() < 2 THEN 'a' END))",
}


@pytest.mark.parametrize("how", COMPUTED)
def test_a_key_is_of_stored_rows(tmp_path, how):
    """One row of each code now may be fifty when they are computed again: no file need change."""
    put(tmp_path, "people", ["a", "b"], "csv")
    with duckdb.connect(str(tmp_path / "c.duckdb")) as made:
        made.execute("CREATE TABLE kept AS SELECT 'a' AS code, now() AS since")
        made.execute(COMPUTED[how])
    policy, text = tmp_path / "clinic.toml", CODES.format(end="csv")
    policy.write_text(text.replace("codes.csv", "c.duckdb#codes"))
    with pytest.raises(PolicyError, check=about("key", "generated")):
        ng.open(policy)
    policy.write_text(text.replace("codes.csv", "c.duckdb#kept"))
    ng.open(policy).close()
    policy.write_text(text.replace("codes.csv", "c.duckdb#codes").replace('key = ["code"]', ""))
    ng.open(policy).close()
