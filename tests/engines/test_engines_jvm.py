"""Spark itself, a JVM with its Connect server: the same whole numbers as in DuckDB.

What the other server of Spark Connect is asked in many random questions, this one is asked in few:
each statement takes seconds here. Where there is no Spark, these tests are skipped and say so.
"""

import random
import threading
import time
from contextlib import suppress
from fractions import Fraction
from math import isclose

import engine_worlds
import folder_cases
import jvm
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_engines_functions as functions
import test_engines_tallies as tallies
import test_sensitivity as made
from test_engines_blocks import dealing, dealt
from test_engines_delta import CHANGED, add, remove
from test_engines_delta import table as delta_table
from test_engines_spark import REFUSED, on_spark, require_alike

import noisegate
from engines import OnJvm
from noisegate.algebra.expression import Field, domain_of
from noisegate.algebra.functions import FUNCTIONS
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import (
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Rows,
    Sums,
    Term,
    Values,
)
from noisegate.errors import Cancelled, PolicyError, SourceError, Unsupported
from noisegate.privacy.domain import Kind
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.spark.dialect import SPARK
from noisegate.sources.spark.server import Place, connect, stored_table
from noisegate.sources.spark.source import SparkSource
from noisegate.sources.stopping import Stop, stopping
from noisegate.sources.writing.expressions import write
from noisegate.transforms.query import Query
from refusals import about

LAST_BIT = {"exp", "ln", "log10", "power"}  # Java's own, which round otherwise than C's
QUESTIONS = [
    "SELECT ward, COUNT(*), SUM(age) FROM people WHERE age > 40 GROUP BY ward",
    "SELECT d.price, COUNT(*) FROM visits v JOIN drugs d ON v.code = d.code GROUP BY d.price",
]
PEOPLE = """
name = "people"
[budget]
epsilon = 100
[tables.people]
source = "{source}"
unit = "pid"
rows_per_unit = 1
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One server for all processes of the run."""
    if (why := jvm.missing()) is not None:
        pytest.skip(why)
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if folder.name.startswith("popen-") else folder
    found = OnJvm(shared / "jvm")
    yield found
    found.close()


@pytest.fixture(scope="module")
def clinic(spark):
    """Rows with every oddity, on Spark and in DuckDB."""
    chance = random.Random(5)
    frames = made.frames_of(made.make_rows(chance), chance)
    return SparkSource(spark.places(frames), made.TABLES), DuckDBSource(frames, made.TABLES)


@pytest.fixture(scope="module")
def gates(tmp_path_factory, spark):
    folder, rows = tmp_path_factory.mktemp("clinic"), engine_worlds.frames()
    files = engine_worlds.in_files(folder / "files", rows)
    cluster, _ = on_spark(folder / "spark", spark, rows)
    return [noisegate.open(file, analyst="ann", ledger=":memory:") for file in (files, cluster)]


@pytest.mark.parametrize("kind", [Sums, Marginals, Values, Keys, Distinct, Cells, Rows])
def test_every_kind_of_tally_is_equal_on_spark_itself(clinic, kind):
    source, embedded = clinic
    chance = random.Random(kind.__name__)
    relation_of = made.windowed if kind is Values else made.shallow
    query = tallies.asked(chance, relation_of, source)
    while type(query.tally) is not kind:
        query = tallies.asked(chance, relation_of, source)
    tallies.require_same(embedded, source, query)


def test_a_delta_table_is_that_of_its_log_on_spark_itself(spark, tmp_path):
    """Spark alone knows nothing of Delta: what its log says is read by us, a checkpoint too."""
    commits = (*CHANGED, [add("p3.parquet")], [remove("p1.parquet")])
    place = Place(spark.url, str(delta_table(tmp_path / "t", *commits, checkpoint=1)))
    session = connect(place)
    found = stored_table(session, place)
    assert [each.rpartition("/")[2] for each in found.files] == ["p2.parquet", "p3.parquet"]
    assert found.rows(session).count() == 30 + 40


@pytest.mark.parametrize("case", folder_cases.REFUSED)
def test_a_folder_that_says_something_else_is_refused_on_spark_itself(spark, tmp_path, case):
    """Of the file's column it would read nothing, and of files beside such folders no row."""
    folder = folder_cases.written(tmp_path / "t", folder_cases.REFUSED[case])
    with pytest.raises(SourceError, check=about("folder")):
        folder_cases.opened(folder, f"{spark.url}#{folder}")


def test_a_folder_without_a_value_is_a_missing_one_on_spark_itself(spark, tmp_path):
    folder = folder_cases.written(tmp_path / "t", folder_cases.READ["no value"])
    place = f"{spark.url}#{folder}"
    gate = folder_cases.opened(folder, place, 'city = { in = ["Paris", "Rome"] }')
    counts = "SELECT COUNT(*), COUNT(city) FROM t"
    assert folder_cases.count(gate, counts) == [[3, 1]]
    with pytest.raises(PolicyError, check=about("stored")):
        folder_cases.opened(folder, place, 'city = { type = "integer", between = [0, 9] }')


@pytest.mark.long
def test_partitions_in_other_folders_than_their_catalogue_says_are_refused(spark, tmp_path):
    """A folder of another value was read as that value, and one elsewhere not at all."""
    session = connect(Place(spark.url, ""))
    for name, at, why in (("plain", None, None), ("moved", "plain/ward=x", "folder"),
                          ("away", "elsewhere", "file")):  # fmt: skip
        session.sql(
            f"CREATE TABLE {name}_parts (pid BIGINT, ward STRING) USING parquet PARTITIONED BY "
            f"(ward) LOCATION '{tmp_path}/{name}'"
        ).toArrow()
        session.sql(f"INSERT INTO {name}_parts VALUES (1, 'a'), (2, 'b')").toArrow()
        place = Place(spark.url, f"`{name}_parts`")
        found = stored_table(session, place)
        assert sorted(found.rows(session).toArrow()["ward"].to_pylist()) == ["a", "b"]
        if at is None:
            continue
        where = f"{tmp_path}/{at}".replace("plain", name)
        session.sql(
            f"ALTER TABLE {name}_parts ADD PARTITION (ward = 'd') LOCATION '{where}'"
        ).toArrow()
        session.sql(f"INSERT INTO {name}_parts PARTITION (ward = 'd') VALUES (5)").toArrow()
        with pytest.raises(SourceError, check=about(why)):
            stored_table(session, place)


def test_names_of_folders_that_are_not_plain_are_refused_on_spark_itself(spark, tmp_path):
    folder = folder_cases.written(tmp_path / "t", {"city=S%C3%A3o/a": {"id": [1]}})
    with pytest.raises(SourceError, check=about("file")):
        folder_cases.opened(folder, f"{spark.url}#{folder}")


def test_files_with_columns_of_other_types_are_refused_on_spark_itself(spark):
    require_alike(spark)


def test_blocks_are_dealt_alike_by_spark_itself(clinic):
    source, embedded = clinic
    for table in (made.VISITS, made.ROWS):
        tally = dealing(Table(table))
        assert dealt(source, tally) == dealt(embedded, tally)


def test_a_text_of_other_bytes_than_utf_8_is_missing_in_a_block(spark):
    """Spark reads any bytes as text; a client that cannot tell them would refuse all rows."""
    texts = pa.array([b"\xff\xfe", "é".encode(), b"a\x00b"]).cast(pa.string(), safe=False)
    frame = pa.table({"who": ["1", "2", "3"], "t": texts})
    domain = made.table("texts", [made.column("t", Kind.TEXT)],
                        PrivacyUnit(column="who", ids="who"))  # fmt: skip
    source = SparkSource(spark.places({"texts": frame}), {"texts": domain})
    (block,) = source.blocks(dealing(Table(domain), blocks=1), "a" * 64, list)
    assert sorted(block["t"].tolist(), key=str) == [None, None, "é"]


@pytest.mark.long
def test_neighbours_on_spark_itself_move_by_at_most_their_claim(spark):
    """Owners of many rows are weighed: each moves counts and sums by no more than its bound."""
    chance = random.Random(3)
    data = made.make_rows(chance)
    by = Grouping(name="code", expression=Field("code"), keys=("a", "b", None), rest=True)
    cost = Term(expression=Field("cost"), grain=Fraction(1, 4), low=-400, high=3600)
    sums = Sums(relation=Table(made.VISITS), by=(by,), terms=(tallies.COUNTED, cost),
                rows_per_unit=2)  # fmt: skip
    query, found = Query(sums, None), []
    for rows in (data, *(made.without(data, "patient", unit) for unit in range(3))):
        frames = {"visits": made.frames_of(rows, chance)["visits"]}
        tables = {"visits": made.VISITS}
        source, embedded = (SparkSource(spark.places(frames), tables), DuckDBSource(frames, tables))
        found.append(source.sums(sums))
        assert found[-1].tolist() == embedded.sums(sums).tolist()
        made.require_claim(query, made.guessed(query, found[0]), found[0], found[-1])
    assert len({str(each) for each in found}) > 1


def calls_of(name, chance, count):
    """Some calls of a function that have words here; none of a function that is refused."""
    kinds = [kind for kind, names in functions.made.RESULTS.items() if name in names]
    found = []
    for _ in range(60):
        call = functions.made.call_of(chance, name, 1, chance.choice(kinds))
        with suppress(Unsupported):
            domain_of(call, functions.made.SCHEMA)
            write(call, functions.made.SCHEMA, functions.made.field, SPARK)
            found.append(call)
    return found[:count]


@pytest.mark.long
def test_each_function_has_the_same_values_on_spark_itself(spark, monkeypatch):
    """Two calls of each over a dozen rows, in two statements."""
    names, said = sorted(FUNCTIONS), set()
    monkeypatch.setattr(functions, "same", nearly)
    for first in range(0, len(names), 48):
        chance = random.Random(first)
        rows = functions.made.make_rows(chance)
        calls = [call for name in names[first : first + 48] for call in calls_of(name, chance, 2)]
        found = functions.require_equal_columns(spark, rows, calls)
        said |= {call.function for call in found}
    assert set(names) - said == functions.REFUSED_BY["Spark"]


def nearly(call, one, other):
    """Equal; of functions that round otherwise, up to the last bit or two."""
    if call.function in LAST_BIT and isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=2**-50)
    return one == other


def test_questions_have_the_same_answers_on_spark_itself(gates):
    """At ε = 20,000 noise on a count is 0 but with a chance of e**-20000/4, so answers are equal."""
    for question in QUESTIONS:
        files, cluster = (gate.sql(question, epsilon=20_000) for gate in gates)
        assert cluster.cost == files.cost
        assert cluster.to_pandas().round(3).equals(files.to_pandas().round(3)), question
    before = gates[1].spent
    for question in REFUSED:
        with pytest.raises(Unsupported, check=about("engine")):
            gates[1].sql(question, epsilon=1)
    assert gates[1].spent == before


def test_a_session_of_spark_itself_is_a_source_and_keeps_its_settings(spark):
    """With folders of partitions, whose names are a column of texts, and a table by its name."""
    folder = spark.root / "parted"
    for ward in ("1", "02"):
        (folder / f"ward={ward}").mkdir(parents=True, exist_ok=True)
        rows = pa.table({"pid": [1, 1, int(ward)], "x": [1.0, float("nan"), 5.0]})
        pq.write_table(rows, folder / f"ward={ward}" / "x.parquet")
    session = connect(Place(spark.url, str(folder)))
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    gate = noisegate.open(
        session, table=str(folder), unit="pid", rows_per_unit=9, epsilon=90_000,
        columns={"ward": {"in": ["1", "02", "2"]}, "x": {"between": [0, 9]}},
    )  # fmt: skip
    asked = "SELECT ward, COUNT(*), SUM(x) FROM parted GROUP BY ward"
    found = gate.sql(asked, epsilon=40_000).to_pandas()
    assert found.iloc[:, 1].tolist() == [3, 3, 0]
    assert found.iloc[:, 2].round(1).tolist() == [6, 6, 0]
    assert session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    session.sql(
        f"CREATE TABLE IF NOT EXISTS kept (pid BIGINT, x DOUBLE) USING parquet LOCATION '{folder}/ward=1'"
    )
    kept = stored_table(session, Place(spark.url, "`kept`"))
    assert kept.folders == frozenset({f"spark:file://{folder}"})
    session.read.parquet(str(folder)).createOrReplaceTempView("seen")
    with pytest.raises(PolicyError, check=about("view")):
        stored_table(session, Place(spark.url, "`seen`"))


def test_a_cancel_ends_the_work_of_spark_itself(gates):
    source, stop = gates[1].door._source, Stop()
    threading.Timer(1, stop.set).start()
    before = time.monotonic()
    with pytest.raises(Cancelled), stopping(stop):
        source._table("SELECT sum(sin(a.id * b.id)) AS n FROM range(9000000) a, range(9000) b")
    assert time.monotonic() - before < 30
    assert source._table("SELECT 1 AS n").num_rows == 1


@pytest.mark.audit  # it starts a second server, half a minute
def test_a_question_that_a_killed_server_lost_is_answered_later_for_one_charge(tmp_path, spark):
    """The address is a line of our own, behind which a server dies and another one stands."""
    (folder,) = spark.write({"people": engine_worlds.frames()["people"]}).values()
    dying = jvm.Server(tmp_path / "dying", memory="512m")
    line = jvm.Line(dying.port)
    file = tmp_path / "people.toml"
    file.write_text(PEOPLE.format(source=f"{line.url}#{folder}"))
    gate = noisegate.open(file, ledger=":memory:")
    source, question = gate.door._source, "SELECT COUNT(*) FROM people"
    price = gate.plan(question, epsilon=10).price.epsilon
    real, killed = source._statement, threading.Timer(2, dying.close)
    slow = "(SELECT sum(sin(a.id * b.id)) FROM range(9000000) a, range(9000) b)"
    source._statement = lambda *asked: f"SELECT * FROM ({real(*asked)}) WHERE 9 > {slow}"
    plan = source._plan  # before the charge: the server is lost after it
    source._plan = lambda text: (plan(text), killed.start())
    with pytest.raises(SourceError) as refusal:
        gate.sql(question, epsilon=10)
    killed.join()
    assert refusal.value.__cause__ is refusal.value.__context__ is None
    assert gate.spent.epsilon == price
    source._statement, source._plan, line.port = real, plan, spark.port
    assert round(gate.sql(question, epsilon=10).to_pandas().iloc[0, 0]) in range(50, 70)
    assert gate.spent.epsilon == price
    line.close()


@pytest.mark.audit  # it starts a server with a metastore, a minute
def test_hive_tables_of_parquet_are_read_by_name_and_others_are_refused(tmp_path):
    """Their files are those of the partitions in the catalogue; a folder beside them is none."""
    hive = {"spark.sql.catalogImplementation": "hive"}
    server = jvm.Server(tmp_path / "hive", **hive)
    session = connect(Place(server.url, ""))
    for name, form in {"plain": "STORED AS PARQUET", "orc": "STORED AS ORC", "csv": "USING csv",
                       "parted": "PARTITIONED BY (ward STRING) STORED AS PARQUET",
                       "versions": "STORED AS PARQUET TBLPROPERTIES ('transactional_properties' = 'insert')",
                       "lines": "STORED AS TEXTFILE"}.items():  # fmt: skip
        session.sql(f"CREATE TABLE {name} (pid BIGINT) {form}").toArrow()
    session.sql("CREATE VIEW seen AS SELECT * FROM plain").toArrow()
    session.sql("INSERT INTO plain VALUES (1), (2)").toArrow()
    session.sql("INSERT INTO parted VALUES (1, 'a'), (2, 'b'), (3, 'b')").toArrow()
    found = stored_table(session, Place(server.url, "`plain`"))
    assert sorted(found.rows(session).toArrow()["pid"].to_pylist()) == [1, 2]
    parted = stored_table(session, Place(server.url, "`parted`"))
    assert parted.types == {"pid": "bigint", "ward": "string"}
    beside = tmp_path / "hive" / "warehouse" / "parted" / "ward=c"
    beside.mkdir()
    pq.write_table(pa.table({"pid": [4]}), beside / "x.parquet")
    assert stored_table(session, Place(server.url, "`parted`")).files == parted.files
    session.sql(f"ALTER TABLE parted ADD PARTITION (ward = 'd') LOCATION '{tmp_path}/d'").toArrow()
    session.sql("INSERT INTO parted VALUES (5, 'd')").toArrow()
    with pytest.raises(SourceError, check=about("file")):
        stored_table(session, Place(server.url, "`parted`"))
    session.sql("CREATE TABLE moved (pid BIGINT) PARTITIONED BY (ward STRING) STORED AS PARQUET")
    other = tmp_path / "hive" / "warehouse" / "moved" / "ward=x"
    session.sql(f"ALTER TABLE moved ADD PARTITION (ward = 'd') LOCATION '{other}'").toArrow()
    session.sql("INSERT INTO moved PARTITION (ward = 'd') VALUES (5)").toArrow()
    with pytest.raises(SourceError, check=about("folder")):
        stored_table(session, Place(server.url, "`moved`"))
    for name in ("orc", "csv", "lines", "versions", "seen"):
        with pytest.raises(PolicyError, check=about("view")):
            stored_table(session, Place(server.url, f"`{name}`"))
    (tmp_path / "hive" / "warehouse" / "plain" / "_delta_log").mkdir()
    (tmp_path / "hive" / "warehouse" / "plain" / "_delta_log" / f"{0:020}.json").write_text("")
    with pytest.raises(SourceError, check=about("log")):
        stored_table(session, Place(server.url, "`plain`"))
    server.close()
