"""Tables of a Spark server through the gate: the same answers, and nothing but answers."""

import logging
import shutil
import threading
import time

import engine_worlds
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_sensitivity as made
from test_engines_gate import QUESTIONS

import noisegate
from noisegate.errors import Cancelled, NoisegateError, PolicyError, SourceError, Unsupported
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.spark import facts
from noisegate.sources.spark.server import Place, connect, place_from, stored_table, told
from noisegate.sources.spark.source import SparkSource
from noisegate.sources.stopping import Stop, stopping
from refusals import about

REFUSED = [
    "SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(code, 'a')",
    "SELECT COUNT(*) FROM visits WHERE STRFTIME(seen, '%Y') = '2020'",
    "SELECT COUNT(*) FROM people WHERE CAST(city AS INTEGER) = 1",
]


def on_spark(folder, sail, rows, accountant="pure"):
    """The policy of the same rows in folders of a Spark server."""
    folder.mkdir(exist_ok=True)
    places = sail.write(rows)
    text = engine_worlds.POLICY.format(source=sail.url, accountant=accountant)
    for name, place in places.items():
        text = text.replace(f"[tables.{name}]", f'[tables.{name}]\nsource = "{sail.url}#{place}"')
    file = folder / "clinic.toml"
    file.write_text(text)
    return file, places


@pytest.fixture(scope="module")
def world(tmp_path_factory, sail):
    folder, rows = tmp_path_factory.mktemp("clinic"), engine_worlds.frames()
    files = engine_worlds.in_files(folder / "files", rows)
    spark, _ = on_spark(folder / "spark", sail, rows)
    return [noisegate.open(file, analyst="ann", ledger=":memory:") for file in (files, spark)]


def test_answers_are_the_same_from_files_and_from_a_cluster(world):
    """At ε = 20,000 noise on a count is 0 but with a chance of e**-20000/4, so answers are equal."""
    for question in QUESTIONS:
        files, spark = (gate.sql(question, epsilon=20_000) for gate in world)
        assert spark.cost == files.cost
        assert spark.to_pandas().round(3).equals(files.to_pandas().round(3)), question


def test_releases_and_samples_read_a_cluster(world):
    spark, sql = world[1], "SELECT code, COUNT(*) FROM visits GROUP BY code"
    assert spark.release("histogram", sql, epsilon=9000) is not None
    assert spark.release("sparse", sql, epsilon=900) is not None
    assert spark.sample(0.5).sql("SELECT COUNT(*) FROM visits", epsilon=900) is not None
    found = spark.release("synthetic", table="visits", columns=["code", "cost"], epsilon=9000)
    assert found is not None


def test_what_a_cluster_cannot_say_is_refused_before_it_is_paid_for(world):
    files, spark = world
    before = spark.spent
    for question in REFUSED:
        assert files.plan(question, epsilon=1).price
        for ask in (spark.plan, spark.sql):
            with pytest.raises(Unsupported, check=about("engine")):
                ask(question, epsilon=1)
    assert spark.spent == before


def test_files_are_listed_once_and_one_that_is_gone_is_refused(tmp_path, sail, capfd, caplog):
    """A file that comes later is not seen; without one, nothing is released and no word is told."""
    caplog.set_level(logging.DEBUG)
    file, places = on_spark(tmp_path, sail, engine_worlds.frames(2))
    gate = noisegate.open(file, analyst="ann", ledger=":memory:")
    ask = "SELECT COUNT(*) FROM visits"
    held = float(gate.sql(ask, epsilon=20_000).to_pandas().iloc[0, 0])
    first = places["visits"] / "part-0.parquet"
    shutil.copy(first, places["visits"] / "part-1.parquet")
    again = gate.sql(f"{ask} WHERE TRUE OR vid > 0", epsilon=20_000).to_pandas().iloc[0, 0]
    assert float(again) == held
    first.unlink()
    before = gate.spent.epsilon
    with pytest.raises(SourceError) as told:
        gate.sql(f"{ask} WHERE cost > 7", epsilon=1)
    assert gate.spent.epsilon == before + 1  # what was charged stays charged
    assert "part-0" not in f"{told.value!r} {told.value.__cause__!r} {told.value.__context__!r}"
    assert "part-0" not in caplog.text + "".join(capfd.readouterr())


def test_the_same_folder_has_one_budget(tmp_path, sail):
    file, _ = on_spark(tmp_path, sail, engine_worlds.frames(3, people=5))
    gate = noisegate.open(file, analyst="ann", ledger=tmp_path / "ledger.sqlite")
    assert gate.spent.epsilon == 0
    other = tmp_path / "other.toml"
    said = file.read_text().replace('name = "clinic"', 'name = "other"')
    other.write_text(said.replace("sc://localhost", "sc://127.0.0.1"))
    with pytest.raises(noisegate.NoisegateError):
        noisegate.open(other, analyst="ann", ledger=tmp_path / "ledger.sqlite")


@pytest.mark.parametrize(("address", "why"), [
    ("sc://ann:hunter2@host#visits", "password"),
    ("sc://host:1/;token=hunter2#visits", "password"),
    ("sc://host:1/;use_ssl=true;x-header=1#visits", "address"),
])  # fmt: skip
def test_an_address_holds_no_secret(address, why):
    with pytest.raises(PolicyError, check=about(why)) as told:
        place_from(address)
    assert "hunter2" not in str(told.value)


def test_a_server_that_is_not_there_is_told_without_its_address(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1/;token=hunter2")
    monkeypatch.setattr("pyspark.sql.connect.client.retries.DefaultPolicy.__init__",
                        _no_patience)  # fmt: skip
    place = place_from("sc://#visits")
    with pytest.raises(SourceError, check=about("server")) as told:
        connect(place)
    assert "hunter2" not in f"{told.value!r} {told.value.__context__!r}"


def _no_patience(self, *args, **kwargs):
    from pyspark.sql.connect.client.retries import RetryPolicy

    RetryPolicy.__init__(self, max_retries=0)


def test_views_are_not_read_and_a_stored_table_is(sail):
    """Nothing keeps the rows of a view as they are; those of a Parquet table are files."""
    folder = sail.write({"t": pa.table({"a": [1, 2]})})["t"]
    session = connect(Place(sail.url, str(folder)))
    session.read.parquet(str(folder)).createOrReplaceTempView("seen")
    with pytest.raises(PolicyError, check=about("view")):
        stored_table(session, Place(sail.url, "`seen`"))
    session.sql(f"CREATE TABLE kept (a BIGINT) USING parquet LOCATION '{folder}'")
    found = stored_table(session, Place(sail.url, "`kept`"))
    assert found.folders == frozenset({f"spark:file://{folder}"})
    assert found.types == {"a": "bigint"}


def test_a_server_of_utf_8_tells_of_another_text_when_the_files_are_opened(sail):
    """Not after a charge. Spark itself takes any bytes for a text, and need not look."""
    held = pa.array([b"a", b"\xff"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, held.buffers())
    domain = made.table("odd", [made.column("t", Kind.TEXT)], PrivacyUnit(column=None))
    whole, broken = sail.write({"whole": pa.table({"t": texts.slice(0, 1)}),
                                "broken": pa.table({"t": texts})}).values()  # fmt: skip
    assert SparkSource({"odd": Place(sail.url, str(whole))}, {"odd": domain})
    with pytest.raises(SourceError, check=about("file")) as refusal:
        SparkSource({"odd": Place(sail.url, str(broken))}, {"odd": domain})
    assert refusal.value.__context__ is None


def test_files_with_columns_of_other_types_are_refused_when_they_are_opened(sail):
    require_alike(sail)


def test_columns_that_differ_by_case_alone_are_refused(sail):
    """Sail has two columns then, each missing in the other file: half of the rows had no owner."""
    folder = sail.write({"t": pa.table({"who": [1]})})["t"]
    pq.write_table(pa.table({"WHO": [2]}), folder / "part-1.parquet")
    with pytest.raises(SourceError, check=about("file")):
        stored_table(connect(place := Place(sail.url, str(folder))), place)


def require_alike(on):
    """Whichever file comes first; what one of them has not is missing there."""
    one = pa.table({"a": [1, 2], "b": [3, 4]})
    for unlike in (
        pa.table({"a": ["x"]}),
        pa.table({"a": [0.5]}),
        pa.table({"a": ["x"], "b": [5]}),
    ):
        for first, last in ((one, unlike), (unlike, one)):
            folder = on.write({"t": first})["t"]
            pq.write_table(last, folder / "part-1.parquet")
            with pytest.raises(SourceError, check=about("drift")), told():
                stored_table(connect(place := Place(on.url, str(folder))), place)
    folder = on.write({"t": pa.table({"b": [5]})})["t"]
    pq.write_table(one, folder / "part-1.parquet")
    session = connect(place := Place(on.url, str(folder)))
    found = stored_table(session, place)
    assert dict(found.types) == {"a": "bigint", "b": "bigint"}
    rows = found.rows(session).toArrow()
    assert sorted(rows["b"].to_pylist()) == [3, 4, 5]
    assert rows["a"].null_count == 1


def test_what_was_checked_is_what_is_read(sail):
    """A file that comes while a gate is opened is not seen, with whatever columns it has."""
    folder = sail.write({"t": pa.table({"x": [1, 2]})})["t"]
    data = {"t": Place(sail.url, str(folder))}
    types = facts.stored_kinds(data)["t"]
    pq.write_table(pa.table({"x": ["late"]}), folder / "part-1.parquet")
    columns = {"x": Column(name="x", kind=types["x"])}
    table = TableDomain(dataset="d", name="t", unit=None, columns=columns)
    assert facts.open_source(data, {"t": table}).public("t")["x"].to_pylist() == [1, 2]


def test_a_folder_of_partitions_is_one_place(sail):
    """What is in the names of folders is no column on this server; on Spark itself it is text."""
    folder = sail.root / "parted"
    for ward in ("1", "2"):
        (folder / f"ward={ward}").mkdir(parents=True)
        pq.write_table(pa.table({"a": [int(ward)]}), folder / f"ward={ward}" / "x.parquet")
    place = Place(sail.url, str(folder))
    found = stored_table(connect(place), place)
    assert found.types["a"] == "bigint"
    assert len(found.files) == 2
    assert found.folders == frozenset({f"spark:file://{folder}"})


def test_an_open_session_is_a_source(sail):
    """Its own settings stay as they are: questions are asked in a session beside it."""
    folder = sail.write({"t": pa.table({"pid": [1, 1, 2], "x": [1.0, 2.0, 5.0]})})["t"]
    session = connect(Place(sail.url, str(folder)))
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    gate = noisegate.open(session, table=str(folder), unit="pid", rows_per_unit=2, epsilon=90_000)
    answer = gate.sql("SELECT COUNT(*) FROM t", epsilon=20_000)
    assert answer.to_pandas().iloc[0, 0] == 3
    assert session.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


def test_a_cancel_ends_the_clusters_work_for_one_question_and_touches_no_other(world):
    source, stops, found = world[1].door._source, (Stop(), Stop()), {}

    def ask(stop, name, rows):
        text = f"SELECT sum(sin(a.id * b.id)) AS n FROM range({rows}) a CROSS JOIN range(1000) b"
        try:
            with stopping(stop):
                found[name] = source._table(text).num_rows
        except NoisegateError as refusal:
            found[name] = refusal.code

    asked = zip(stops, ("long", "short"), (30_000_000, 6_000), strict=True)
    threads = [threading.Thread(target=ask, args=each) for each in asked]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    stops[0].set()
    threads[0].join(20)
    assert found["long"] == "cancelled"
    threads[1].join(20)
    assert found["short"] == 1
    with pytest.raises(Cancelled), stopping(stops[0]):
        source._table("SELECT 1 AS n")
    assert source._table("SELECT 1 AS n").num_rows == 1


def test_a_question_that_a_cluster_takes_too_long_for_ends(world, monkeypatch):
    source = world[1].door._source
    monkeypatch.setattr(source, "_seconds", 0.3)
    with pytest.raises(SourceError):
        source._table("SELECT sum(sin(a.id * b.id)) AS n FROM range(30000000) a, range(1000) b")
    monkeypatch.undo()
    assert source._table("SELECT 1 AS n").num_rows == 1
