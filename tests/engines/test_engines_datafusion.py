"""Parquet files in DataFusion through the gate: the same answers, and nothing but answers."""

# ruff: noqa: DTZ001, DTZ901 - times in tables have no zone here

import math
import os
import shutil
import signal
import threading
import time
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import engine_worlds
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_sensitivity as made
from test_engines_gate import QUESTIONS
from test_engines_spark import REFUSED

import noisegate
from noisegate.algebra.expression import Field
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Keys, Sums, Term
from noisegate.errors import (
    Cancelled,
    NoisegateError,
    PolicyError,
    SourceError,
    SpecError,
    Unsupported,
)
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.root import draft_policy
from noisegate.sources.asked.parquet import path_of
from noisegate.sources.datafusion import session
from noisegate.sources.datafusion.source import DataFusionSource
from noisegate.sources.stopping import Stop, stopping
from refusals import about

DAY, FAR, WHOLE_MAX = 86_400 * 10**6, 253_402_300_800 * 10**6, (1 << 63) - 1
# stored type, values as they lie in the file, kind, what they mean (None: NULL)
STORED = [
    (pa.uint32(), [4294967295, 0], Kind.INTEGER, [4294967295, 0]),
    (pa.int8(), [-3, 0], Kind.BOOLEAN, [True, False]),
    (pa.int64(), [WHOLE_MAX, -WHOLE_MAX - 1], Kind.TEXT, [str(WHOLE_MAX), str(-WHOLE_MAX - 1)]),
    (pa.float32(), [0.1, math.nan, -math.inf, 1e-45], Kind.NUMBER,
     [0.10000000149011612, None, None, 1.401298464324817e-45]),
    (pa.float64(), [2.5, -3.5, 1e19, math.nan, -(2.0**63)], Kind.INTEGER,
     [2, -4, None, None, -WHOLE_MAX - 1]),
    (pa.decimal128(12, 3), [Decimal("0.5"), Decimal("-1.115")], Kind.NUMBER, [0.5, -1.115]),
    (pa.decimal128(38, 0), [Decimal(10) ** 37, Decimal(WHOLE_MAX)], Kind.INTEGER,
     [None, WHOLE_MAX]),
    (pa.decimal128(5, 1), [Decimal("2.5"), Decimal("-2.5")], Kind.INTEGER, [3, -3]),
    (pa.bool_(), [True, False], Kind.TEXT, ["true", "false"]),
    (pa.large_string(), ["é", "x" * 65_537], Kind.TEXT, ["é", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["a", ""], Kind.TEXT, ["a", ""]),
    (pa.date32(), [-(2**31), 2**31 - 1, 2_932_896, -719_163], Kind.DATE,
     [None, None, date.max, None]),
    (pa.date32(), [-(2**31), 2**31 - 1, 1], Kind.TIMESTAMP, [None, None, datetime(1970, 1, 2)]),
    (pa.timestamp("us"), [WHOLE_MAX, FAR, FAR - 1, -WHOLE_MAX], Kind.TIMESTAMP,
     [None, None, datetime.max, None]),
    (pa.timestamp("ms"), [WHOLE_MAX, 1], Kind.TIMESTAMP, [None, datetime(1970, 1, 1, 0, 0, 0, 1000)]),
    (pa.timestamp("us", "Asia/Tokyo"), [DAY - 1, WHOLE_MAX], Kind.DATE, [date(1970, 1, 1), None]),
    (pa.timestamp("ns"), [1499, -1500], Kind.TIMESTAMP,
     [datetime(1970, 1, 1, 0, 0, 0, 1), datetime(1969, 12, 31, 23, 59, 59, 999998)]),
]  # fmt: skip
COUNT = "SELECT COUNT(*) FROM visits"
WORDS = {pa.date32().id: pa.int32(), pa.timestamp("us").id: pa.int64()}
LONG = "SELECT sum(sin(a.value)) AS n FROM generate_series(1, 4000000000) a"


def on_fusion(folder, rows, accountant="pure"):
    """The policy of the same rows, a folder of Parquet files for each table."""
    for name, frame in rows.items():
        (folder / name).mkdir(parents=True)
        half = frame.num_rows // 2
        pq.write_table(frame.slice(0, half), folder / name / "part-0.parquet")
        pq.write_table(frame.slice(half), folder / name / "part-1.parquet")
    return engine_worlds.written(folder, f"datafusion://{folder}", accountant)


def opened(file, ledger=":memory:"):
    return noisegate.open(file, analyst="ann", ledger=ledger)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("clinic"), engine_worlds.frames()
    files = engine_worlds.in_files(folder / "files", rows)
    return [opened(file) for file in (files, on_fusion(folder / "fusion", rows))]


@pytest.fixture
def clinic(tmp_path):
    return on_fusion(tmp_path / "fusion", engine_worlds.frames(2, people=20))


def replaced(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def test_answers_are_the_same_as_from_the_default_engine(world):
    """At ε = 20,000 noise on a count is 0 but with a chance of e**-20000/4, so answers are equal."""
    for question in QUESTIONS:
        files, fusion = (gate.sql(question, epsilon=20_000) for gate in world)
        assert fusion.cost == files.cost
        assert fusion.to_pandas().round(3).equals(files.to_pandas().round(3)), question


def test_a_question_that_is_nested_deeply_is_answered(world):
    """The engine's own parser would stop at 50 brackets, after the charge."""
    rows = "SELECT pid, cost FROM visits"
    for step in range(20):
        rows = f"SELECT pid, cost + 1 AS cost FROM ({rows}) AS t{step} WHERE cost > {step}"
    question = f"SELECT COUNT(*) FROM ({rows}) AS t"
    files, fusion = (gate.sql(question, epsilon=20_000).to_pandas() for gate in world)
    assert fusion.equals(files)


def test_releases_and_samples_are_made(world):
    fusion, sql = world[1], "SELECT code, COUNT(*) FROM visits GROUP BY code"
    assert fusion.release("histogram", sql, epsilon=9000) is not None
    assert fusion.release("sparse", sql, epsilon=900) is not None
    assert fusion.sample(0.5).sql(COUNT, epsilon=900) is not None
    found = fusion.release("synthetic", table="visits", columns=["code", "cost"], epsilon=9000)
    assert found is not None


def test_what_it_cannot_say_is_refused_before_it_is_paid_for(world):
    files, fusion = world
    before = fusion.spent
    for question in REFUSED:
        assert files.plan(question, epsilon=1).price
        for ask in (fusion.plan, fusion.sql):
            with pytest.raises(Unsupported, check=about("engine")):
                ask(question, epsilon=1)
    assert fusion.spent == before


def test_zcdp_prices_and_the_share_of_an_analyst_are_the_same(tmp_path):
    rows = engine_worlds.frames(1, people=20)
    files = engine_worlds.in_files(tmp_path / "files", rows, "zcdp")
    fusion = on_fusion(tmp_path / "fusion", rows, "zcdp")
    asked = "SELECT ward, COUNT(*) FROM people GROUP BY ward"
    one, other = (opened(file).sql(asked, epsilon=5) for file in (files, fusion))
    assert one.cost == other.cost
    bob = noisegate.open(fusion, analyst="bob", ledger=":memory:")
    with pytest.raises(noisegate.errors.OverBudget):
        bob.sql(asked, epsilon=11)


def test_a_public_table_is_the_same(world):
    files, fusion = (gate.door.public("drugs").sort_by("code").to_pylist() for gate in world)
    assert fusion == files


def test_stored_values_mean_what_the_policy_says(tmp_path):
    """And none can make a question fail: a missing value is beside them in each column."""
    named = [(f"x{n}", *each) for n, each in enumerate(STORED)]
    columns = MappingProxyType(
        {name: Column(name=name, kind=kind) for name, _, _, kind, _ in named}
    )
    unit = PrivacyUnit(column="who", ids="who")
    domain = TableDomain(dataset="d", name="t", unit=unit, columns=columns)
    frame = {"who": range(6)}
    for name, stored, values, _, _ in named:
        held = pa.array([*values, *[None] * (6 - len(values))], WORDS.get(stored.id, stored))
        frame[name] = held.view(stored) if stored.id in WORDS else held
    pq.write_table(pa.table(frame), tmp_path / "t.parquet")
    source = DataFusionSource({"t": tmp_path / "t.parquet"}, {"t": domain})
    for name, stored, _, _, expected in named:
        tally = Keys(relation=Table(domain), by=((name, Field(name)),), keys_per_unit=1)
        held = source.keys(tally)
        found = [key for (key,) in held.take(np.arange(held.counts.size))]
        wanted = Counter([*expected, *[None] * (6 - len(expected))])
        wanted.pop(-WHOLE_MAX - 1, None)  # which is no key, since its negative is no number
        assert dict(zip(found, held.counts.tolist(), strict=True)) == wanted, stored


def test_what_a_row_holds_is_not_read_from_others(tmp_path):
    """A file's statistics leave NaN out: where all else is 50, the engine would read 50 for it.

    So would a filter pass over NaN because of them; whatever that is, the row itself decides.
    """
    columns = MappingProxyType({"x": Column(name="x", kind=Kind.NUMBER)})
    domain = TableDomain(
        dataset="d", name="t", unit=PrivacyUnit(column="who", ids="who"), columns=columns
    )
    rows = pa.table({"who": [1, 2], "x": [math.nan, 50.0]})
    pq.write_table(rows, tmp_path / "t.parquet")
    source = DataFusionSource({"t": tmp_path / "t.parquet"}, {"t": domain})
    term = Term(expression=Field("x"), grain=Fraction(1), low=0, high=100)
    assert source.sums(Sums(relation=Table(domain), terms=(term,), rows_per_unit=1)) == [[50]]
    asked = "SELECT COUNT(*) AS n, MAX(x) AS x FROM base0 WHERE x > 60"
    (found,) = source._table(asked).to_pylist()
    assert found["n"] == 1
    assert math.isnan(found["x"])


def test_files_are_listed_once(clinic):
    gate, folder = opened(clinic), clinic.parent / "visits"
    held = gate.sql(COUNT, epsilon=20_000).to_pandas().iloc[0, 0]
    shutil.copy(folder / "part-0.parquet", folder / "part-2.parquet")
    asked = f"{COUNT} WHERE TRUE OR vid > 0"
    assert gate.sql(asked, epsilon=20_000).to_pandas().iloc[0, 0] == held
    assert opened(clinic).sql(COUNT, epsilon=20_000).to_pandas().iloc[0, 0] > held


@pytest.mark.parametrize("change", ["removed", "written anew"])
def test_a_file_that_changed_is_refused_before_it_is_paid_for(clinic, change):
    gate, file = opened(clinic), clinic.parent / "visits" / "part-0.parquet"
    rows = pq.read_table(file)
    file.unlink()
    if change == "written anew":
        pq.write_table(rows.slice(1), file)
    before = gate.spent
    with pytest.raises(SourceError, check=about("drift")) as told:
        gate.sql(COUNT, epsilon=1)
    assert "part-0" not in f"{told.value!r} {told.value.__cause__!r} {told.value.__context__!r}"
    assert gate.spent == before


def test_a_file_that_changes_meanwhile_releases_nothing_and_stays_charged(clinic, monkeypatch):
    gate, file = opened(clinic), clinic.parent / "visits" / "part-0.parquet"
    source = gate.door._source
    real = type(source)._asked

    def slow(self, *asked):
        os.utime(file, (1, 1))
        return real(self, *asked)

    monkeypatch.setattr(type(source), "_asked", slow)
    with pytest.raises(SourceError, check=about("drift")):
        gate.sql(COUNT, epsilon=1)
    assert gate.spent.epsilon == 1


def test_a_missing_folder_and_a_file_of_another_kind_are_named_to_the_steward(clinic):
    shutil.rmtree(clinic.parent / "taken")
    with pytest.raises(SourceError, check=about("file"), match="taken"):
        opened(clinic)
    (clinic.parent / "taken.parquet").write_text("no Parquet at all")
    with pytest.raises(SourceError, check=about("file")) as told:
        opened(clinic)
    assert told.value.__cause__ is told.value.__context__ is None
    (clinic.parent / "taken.parquet").unlink()
    (clinic.parent / "taken").mkdir()
    with pytest.raises(SourceError, check=about("file"), match="taken"):
        opened(clinic)


def test_files_with_other_columns_and_columns_of_other_types_are_refused(clinic):
    folder = clinic.parent / "taken"
    pq.write_table(pa.table({"vid": [1], "dose": ["much"]}), folder / "part-2.parquet")
    with pytest.raises(SourceError, check=about("drift")):
        opened(clinic)
    (folder / "part-2.parquet").unlink()
    with pytest.raises(PolicyError, check=about("stored")):
        opened(replaced(clinic, "city = {}", 'city = { type = "integer" }'))
    with pytest.raises(PolicyError, check=about("column")):
        opened(replaced(clinic, 'city = { type = "integer" }', "town = {}"))


def test_a_key_that_repeats_is_not_relied_on(clinic):
    folder = clinic.parent / "drugs"
    shutil.copy(folder / "part-0.parquet", folder / "part-2.parquet")
    with pytest.raises(PolicyError, check=about("key")):
        opened(clinic)


@pytest.mark.parametrize("address", ["datafusion://visits", "datafusion://data/visits.parquet"])
def test_an_address_has_the_whole_path(address):
    with pytest.raises(PolicyError, check=about("address")):
        path_of(address)


def test_rows_have_one_budget_and_one_owner_whatever_engine_reads_them(clinic, tmp_path):
    gate = opened(clinic, tmp_path / "ledger.sqlite")
    assert gate.spent.epsilon == 0
    part = tmp_path / "linked.parquet"
    part.symlink_to(clinic.parent / "visits" / "part-1.parquet")
    with pytest.raises(PolicyError, check=about("origin")):
        noisegate.open(part, epsilon=1, ledger=tmp_path / "ledger.sqlite")
    linked = tmp_path / "hard.parquet"
    linked.hardlink_to(clinic.parent / "visits" / "part-0.parquet")
    assert (
        noisegate.open(linked, epsilon=1, ledger=tmp_path / "other.sqlite").remaining.epsilon == 1
    )
    with pytest.raises(PolicyError, check=about("origin")):
        opened(clinic, tmp_path / "other.sqlite")
    source = f'source = "datafusion://{clinic.parent}/visits/part-0.parquet"'
    said = f"[tables.again]\n{source}\nevery_row_is_one_person = true\n"
    clinic.write_text(f"{clinic.read_text()}{said}[tables.again.columns]\ncost = {{}}\n")
    with pytest.raises(PolicyError, check=about("owner")):
        opened(clinic)


def test_a_session_reaches_nothing_but_its_tables(world, tmp_path):
    source = world[1].door._source
    file = tmp_path / "out.parquet"
    pq.write_table(pa.table({"a": [1]}), file)
    for text in (
        f"COPY (SELECT 1 AS a) TO '{tmp_path}/new.parquet'",
        f"CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION '{file}'",
        "CREATE TABLE t AS SELECT 1 AS a",
        "SET datafusion.catalog.information_schema = true",
        "INSERT INTO base0 SELECT * FROM base0",
        f"SELECT * FROM '{file}'",
        "SELECT * FROM information_schema.tables",
        "SELECT CAST('secret row' AS BIGINT) AS a",
    ):
        with pytest.raises(SourceError) as told:
            source._table(text)
        chain = [told.value, told.value.__cause__, told.value.__context__]
        assert not any("secret" in str(each) for each in chain)
    assert list(tmp_path.iterdir()) == [file]
    assert source._table("SELECT 1 AS n").num_rows == 1


def test_a_cancel_ends_one_question_and_touches_no_other(world):
    source, stops, found = world[1].door._source, (Stop(), Stop()), {}

    def ask(stop, name, text):
        try:
            with stopping(stop):
                found[name] = source._table(text).num_rows
        except NoisegateError as refusal:
            found[name] = refusal.code

    asked = zip(stops, ("long", "short"), (LONG, LONG.replace("0000000", "")), strict=True)
    threads = [threading.Thread(target=ask, args=each) for each in asked]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    stops[0].set()
    for thread in threads:
        thread.join(20)
    assert found == {"long": "cancelled", "short": 1}
    with pytest.raises(Cancelled), stopping(stops[0]):
        source._table("SELECT 1 AS n")
    before = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - before < 0.2  # nothing goes on behind our back


def test_a_question_that_takes_too_long_ends(world, monkeypatch):
    source = world[1].door._source
    monkeypatch.setattr(source, "_seconds", 0.2)
    with pytest.raises(SourceError):
        source._table(LONG)
    monkeypatch.undo()
    assert source._table("SELECT 1 AS n").num_rows == 1


def test_a_question_can_be_interrupted_and_another_asked(world):
    source = world[1].door._source
    clock = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    clock.start()
    with pytest.raises(KeyboardInterrupt):
        source._table(LONG)
    clock.join()
    assert source._table("SELECT 1 AS n").num_rows == 1


def test_a_question_beyond_its_memory_fails_and_others_go_on(world, monkeypatch):
    source = world[1].door._source
    source._lines._free.clear()
    monkeypatch.setattr(session, "_BYTES", 1 << 20)
    many = "SELECT array_agg(a.value) AS n FROM generate_series(1, 10000000) a"
    with pytest.raises(SourceError):
        source._table(many)
    monkeypatch.undo()
    source._lines._free.clear()
    assert source._table("SELECT 1 AS n").num_rows == 1


def test_a_forked_child_is_refused_instead_of_waiting_for_ever(world):
    if (child := os.fork()) == 0:
        ended = 1
        try:
            world[1].door._source._table("SELECT 1 AS n")
        except SourceError:
            ended = 0
        finally:
            os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0


def test_a_policy_is_drafted_from_the_files_themselves(clinic):
    with pytest.raises(SpecError, check=about("name")):
        draft_policy([f"datafusion://{clinic.parent}"])


def test_without_the_package_the_fix_is_said(clinic, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datafusion", None)
    with pytest.raises(Unsupported, check=about("package"), match=r"noisegate-dp\[datafusion\]"):
        opened(clinic)


def test_a_text_that_is_not_utf_8_is_told_when_the_files_are_opened(tmp_path):
    """And not by a question that is charged, whose failure would tell of the row."""
    held = pa.array([b"a", b"\xff"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, held.buffers())
    domain = made.table("odd", [made.column("t", Kind.TEXT)], PrivacyUnit(column=None))
    for rows in (2, 1):
        pq.write_table(pa.table({"t": texts.slice(0, rows)}), tmp_path / "odd.parquet")
        if rows == 1:
            assert DataFusionSource({"odd": tmp_path / "odd.parquet"}, {"odd": domain})
        else:
            with pytest.raises(SourceError, check=about("file")) as told:
                DataFusionSource({"odd": tmp_path / "odd.parquet"}, {"odd": domain})
            assert told.value.__context__ is None
