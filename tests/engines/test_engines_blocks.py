"""Rows that leave an engine: blocks for programs, and batches for learners. The same on all."""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from random import Random

import engine_worlds
import numpy as np
import pyarrow as pa
import pytest
import test_sensitivity as made
from hypothesis import given, settings
from test_engines_datafusion import on_fusion
from test_engines_spark import on_spark
from test_engines_tallies import shown

import noisegate
from noisegate.algebra.blocks import Blocks, Program
from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Rows, Term
from noisegate.errors import Cancelled, SourceError, Unsupported
from noisegate.isolated.lockdown import can_lock
from noisegate.privacy.domain import Kind
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.asked import source as asked
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.stopping import Stop, stopping
from noisegate.transforms.blocks import BlockQuery

KEYS = ("a" * 64, "b" * 64)
LONG = "x" * 65_537
runs = pytest.mark.skipif(not can_lock(), reason="this machine cannot lock programs in")


def dealing(relation, blocks=4, **more):
    return Blocks(
        relation=relation, columns=tuple(schema_of(relation)), program=Program("…", "f"),
        blocks=blocks, ranges=((Fraction(0), Fraction(1)),), defaults=(Fraction(0),),
        seconds=Fraction(1), memory=32, **more,
    )  # fmt: skip


def dealt(source, tally, key=KEYS[0]):
    """The blocks, each written out: equal only if a program could see no difference."""
    return source.blocks(tally, key, lambda blocks: [
        [(name, str(column.dtype), repr(column.tolist())) for name, column in block.items()]
        for block in blocks
    ])  # fmt: skip


def some_blocks(random, relation_of, source):
    """Blocks that can be asked for, and that the engine does not refuse."""
    for _ in range(400):
        with suppress(Unsupported):
            relation = made.some_query(random, relation_of).tally.relation
            tally = dealing(relation, random.randint(1, 5))
            BlockQuery(tally)
            source.require(tally)
            return tally
    raise AssertionError(relation_of)


@pytest.mark.parametrize("relation_of", [made.shallow, made.deep, made.row_level])
@settings(made.OFTEN, max_examples=1)
@given(random=made.RANDOMS)
def test_blocks_of_random_relations_are_equal(engine, relation_of, random):
    source, embedded = shown(engine, random)
    for key in KEYS:
        tally = some_blocks(random, relation_of, source)
        assert dealt(source, tally, key) == dealt(embedded, tally, key), repr(tally)


KINDS = {
    "who": (Kind.TEXT, ["ann", "ann", "ann", "bob", "", "é", None, LONG]),
    "t": (Kind.TEXT, [None, "", "b", "é", LONG, "\\'%", "last", "too long an id"]),
    "n": (Kind.INTEGER, [7, None, -(1 << 63), (1 << 63) - 1, 0, 1, 2, 3]),
    "x": (Kind.NUMBER, [0.0, -0.0, None, float("nan"), float("inf"), 5e-324, 1.0, 2.0]),
    "b": (Kind.BOOLEAN, [None, True, False, True, None, False, True, True]),
    "d": (Kind.DATE, [date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1), *[None] * 4]),
    "at": (Kind.TIMESTAMP, [None, datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
                            *[None] * 5]),
}  # fmt: skip
ODD = made.table("odd", [made.column(name, kind) for name, (kind, _) in KINDS.items()],
                 PrivacyUnit(column="who", ids="who"))  # fmt: skip


def test_every_kind_of_value_arrives_and_who_has_no_id_does_not(engine):
    types = (pa.string(), pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.date32(),
             pa.timestamp("us"))  # fmt: skip
    columns = zip(KINDS.items(), types, strict=True)
    frame = pa.table({name: pa.array(held, kind) for (name, (_, held)), kind in columns})
    source = shows(engine, {"odd": frame}, {"odd": ODD})
    tally = dealing(Table(ODD), blocks=1)
    embedded = DuckDBSource({"odd": frame.slice(0, 7)}, {"odd": ODD})  # where a long id is one
    assert dealt(source, tally) == dealt(embedded, tally)
    (block,) = source.blocks(tally, KEYS[0], list)
    order = np.argsort([["ann", "bob", "", "é"].index(who) for who in block["who"]], kind="stable")
    found = {name: column[order] for name, column in block.items()}
    assert found["who"].tolist() == ["ann", "ann", "ann", "bob", "", "é"]
    assert found["t"].tolist() == ["", "b", None, "é", None, "\\'%"]  # of ann's rows, in order
    assert {name: str(column.dtype) for name, column in found.items()} == {
        "who": "object", "t": "object", "n": "float64", "x": "float64", "b": "object",
        "d": "datetime64[us]", "at": "datetime64[us]",
    }  # fmt: skip
    whole = [float("nan"), -(2.0**63), 7, 2.0**63, 0, 1]
    np.testing.assert_equal(found["n"], whole)
    np.testing.assert_equal(found["x"], [0, float("nan"), 0, float("nan"), float("nan"), 5e-324])
    assert not np.signbit(found["x"][:4]).any()
    assert found["b"].tolist() == [True, False, None, True, None, False]
    days = ["9999-12-31", "NaT", "0001-01-01", "1970-01-01", "NaT", "NaT"]
    np.testing.assert_equal(found["d"], np.array(days, "M8[us]"))
    times = ["0001-01-01", "9999-12-31T23:59:59.999999", "NaT", "NaT", "NaT", "NaT"]
    np.testing.assert_equal(found["at"], np.array(times, "M8[us]"))


def shows(engine, frames, tables):
    """Other tables than those of the generator."""
    if engine.name == "Postgres":
        return type(engine)(engine.database).show(frames, tables)
    return engine.show(frames, tables)


def changed(one, other):
    return sum(a != b for a, b in zip(one, other, strict=True))


def test_one_unit_more_changes_one_block_of_a_deal(engine):
    random = Random(21)
    data = made.make_rows(random)
    tallies = [dealing(Table(each), blocks=5) for each in (made.VISITS, made.DRUGS_TAKEN)]

    def deals(data):
        source = engine.show(made.frames_of(data, random), made.TABLES)
        return [dealt(source, tally, key) for tally in tallies for key in KEYS]

    before, moved = deals(data), set()
    for unit in range(made.PERSONS // 2):
        found = [changed(*pair) for pair in zip(before, deals(made.without(data, "patient", unit)),
                                                strict=True)]  # fmt: skip
        assert max(found) <= 1
        moved |= set(found)
    assert moved == {0, 1}


def test_a_row_that_is_a_unit_is_in_one_block_by_a_number_of_its_own(engine):
    """What is missing comes last in the order of values, so that all others keep their numbers."""
    random = Random(22)
    data, tally = made.make_rows(random), dealing(Table(made.ROWS), blocks=5)
    more = {"owner": 99, "ward": None, "code": None, "age": None, "bmi": None}
    found = []
    for rows in (data["rows"], [*data["rows"], more], [*data["rows"], more, more]):
        source = engine.show(made.frames_of({**data, "rows": rows}, random), made.TABLES)
        source.blocks(tally, KEYS[0], lambda blocks: found.append([*blocks]))
    sizes = [sum(block["ward"].size for block in blocks) for blocks in found]
    assert sizes == [6, 7, 8]
    written = [[str(block) for block in blocks] for blocks in found]
    assert changed(*written[:2]) == changed(*written[1:]) == 1


def test_all_deals_of_a_sample_have_the_same_rows(engine):
    random = Random(23)
    source = engine.show(made.frames_of(made.make_rows(random), random), made.TABLES)
    for table in (made.ROWS, made.VISITS):
        tally, deals = dealing(Table(table), sample=Fraction(1, 2)), []
        with source.sample(Fraction(1, 2), KEYS[0]) as drawn:
            for key in KEYS:
                blocks = drawn.blocks(tally, key, list)
                rows = [zip(*(each.tolist() for each in b.values()), strict=True) for b in blocks]
                deals.append([[str(row) for row in block] for block in rows])
        one, other = (sorted(row for block in deal for row in block) for deal in deals)
        whole = sum(len(block["code"]) for block in source.blocks(tally, KEYS[0], list))
        assert 0 < len(one) < whole
        assert one == other
        assert deals[0] != deals[1]


COUNTED = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)


def test_rows_come_in_parts_and_in_order(engine):
    """No engine is asked for all rows at once; of whole numbers, Postgres hands over many."""
    size = 30_000
    frame = pa.table({"ward": ["a"] * size, "code": ["b"] * size, "age": np.arange(size) % 100,
                      "bmi": np.arange(size) / 7})  # fmt: skip
    table = replace(made.ROWS, name="many")
    source = shows(engine, {"many": frame}, {"many": table})
    age = Term(expression=Field("age"), grain=Fraction(1), low=0, high=120)
    parts = source.rows(Rows(relation=Table(table), terms=(age, COUNTED)), lambda batches: [
        (len(batch), int(batch.coordinates[:, 0].sum())) for batch in batches
    ])  # fmt: skip
    assert len(parts) > 1 or engine.name == "Postgres"
    assert sum(count for count, _ in parts) == size
    assert sum(total for _, total in parts) == size // 100 * 4950
    tally = replace(dealing(Table(table), blocks=100), columns=("bmi",))
    found = source.blocks(tally, KEYS[0], lambda blocks: [block["bmi"] for block in blocks])
    assert len(found) == 100
    assert 200 < min(map(len, found)) < 300 < max(map(len, found)) < 400
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(size) / 7)


def test_a_cancel_in_the_middle_of_a_stream_ends_it(fusion):
    """A server may have sent all of these few rows by then; this engine waits to be asked."""
    source, _ = shown(fusion, Random(24))
    tally, stop, begun = dealing(Table(made.ROWS), blocks=2), Stop(), threading.Event()

    def slow(blocks):
        begun.set()
        while not stop.is_set:
            time.sleep(0.01)
        return list(blocks)

    clock = threading.Thread(target=lambda: (begun.wait(20), stop.set()))
    clock.start()
    with pytest.raises(Cancelled), stopping(stop):
        source.blocks(tally, KEYS[0], slow)
    clock.join(20)
    assert not clock.is_alive()
    assert len(source.blocks(tally, KEYS[0], list)) == 2


@pytest.fixture(scope="module")
def gates(request, engine, tmp_path_factory):
    """The same rows in files and on an engine."""
    folder, rows = tmp_path_factory.mktemp("clinic"), engine_worlds.frames()
    if engine.name == "Postgres":
        database = request.getfixturevalue("world_database")
        file = engine_worlds.on_server(folder / "asked", database, rows)
    elif engine.name == "Spark":
        file, _ = on_spark(folder / "asked", engine, rows)
    else:
        file = on_fusion(folder / "asked", rows)
    files = engine_worlds.in_files(folder / "files", rows)
    return [noisegate.open(each, analyst="ann", ledger=":memory:") for each in (files, file)]


@pytest.fixture(scope="module")
def world_database(server):
    from engines import Database

    found = Database(server)
    yield found
    found.close()


def total(rows):
    return np.nansum(rows["cost"])


TERMS = {"table": "visits", "columns": ["cost", "code"], "range": (-100_000, 100_000), "blocks": 1,
         "seconds": 0.3, "memory": 64, "rehearse": False}  # fmt: skip


@runs
def test_a_program_has_the_exact_answer_for_a_large_price(gates):
    """Of one block, whose total does not depend on the order; steps of 0.2, noise of scale 1."""
    rows = engine_worlds.frames()["visits"].to_pylist()
    costs = [row["cost"] for row in rows if row["pid"] is not None and row["cost"] is not None]
    exact = sum(np.clip(cost, -100, 900) for cost in costs if np.isfinite(cost))
    files, gate = gates
    before = gate.spent
    found = gate.apply(total, epsilon=200_000, **TERMS)
    assert found.values[0] == pytest.approx(exact, abs=30)  # further off once in 10¹² runs
    assert exact > 1000
    assert found.cost == files.apply_plan(total, epsilon=200_000, **TERMS).price
    spent = gate.spent
    assert spent != before
    assert gate.apply(total, epsilon=200_000, **TERMS).values == found.values
    assert gate.spent == spent


@runs
def test_an_error_in_the_middle_stays_charged_and_tells_nothing(gates, monkeypatch, capfd):
    """A cast that fails for about half of the rows, which each engine quotes in its words."""
    gate, real = gates[1], asked.blocks_query

    def broken(*args):
        secret = "CASE WHEN d.x > '8' THEN 'secret row' ELSE '1' END"
        return real(*args).where(f"CAST({secret} AS BIGINT) = 1", copy=False)

    monkeypatch.setattr(asked, "blocks_query", broken)
    terms, before = {**TERMS, "range": (-50_000, 100_000)}, gate.spent.epsilon
    with pytest.raises(SourceError) as told:
        gate.apply(total, epsilon=5, **terms)
    chain = f"{told.value!r} {told.value.__cause__!r} {told.value.__context__!r}"
    assert "secret" not in chain + "".join(capfd.readouterr())
    assert gate.spent.epsilon == before + 5
    monkeypatch.undo()
    assert gate.apply(total, epsilon=5, **terms).values
    assert gate.spent.epsilon == before + 5


def test_a_learner_finds_the_same_from_files_and_from_an_engine(gates):
    """Without noise to speak of: a scaler's means differ by rounding alone."""
    found = [
        noisegate.learners.StandardScaler(epsilon=20_000).fit(gate.matrix("visits", ["cost"]))
        for gate in gates
    ]
    assert found[0].mean_[0] == pytest.approx(found[1].mean_[0], abs=0.5)
    assert found[0].mean_[0] > 1
