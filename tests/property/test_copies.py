"""Copies of tables give the whole numbers that their files give, and never those of other rows."""

import os
from dataclasses import replace
from fractions import Fraction
from random import Random
from types import MappingProxyType

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp
from test_sensitivity import (
    PEOPLE,
    ROWS,
    TABLES,
    VISITS,
    collected,
    column,
    deep,
    frames_of,
    make_rows,
    row_level,
    shallow,
    some_query,
)

import noisegate.sources.duckdb.source as engine
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Among,
    Filter,
    Join,
    Ordering,
    Project,
    Table,
    Window,
    Windowed,
)
from noisegate.algebra.tally import Grouping, Sums, Term
from noisegate.errors import SourceError
from noisegate.privacy.domain import Kind
from noisegate.sources.duckdb import copies
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.writing.words import as_
from refusals import about

pytestmark = pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
SEEDS = 20 if os.environ.get("NOISEGATE_EXPLORE") else 1  # of 12 questions
ONE = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
CODES = Grouping(name="code", expression=Field("code"), keys=("a", "b"), rest=True)
BY_CODE = Sums(relation=Table(VISITS), by=(CODES,), terms=(ONE,), rows_per_unit=3)
COST = Term(expression=Field("cost"), grain=Fraction(1, 4), low=-400, high=3600)


@pytest.fixture(autouse=True)
def copy_at_once(monkeypatch):
    monkeypatch.setattr(engine, "_OFTEN", 0)
    monkeypatch.setattr(copies, "_CALM_NS", -(1 << 62))


def written(folder, frames):
    folder.mkdir(exist_ok=True, parents=True)
    for name, frame in frames.items():
        pq.write_table(frame, folder / f"{name}.parquet")
    return {name: folder / f"{name}.parquet" for name in frames}


def visits_of(sizes):
    """A table of visits: unit 0 has sizes[0] rows, and so on."""
    who = [unit for unit, size in enumerate(sizes) for _ in range(size)]
    return pa.table({
        "vid": pa.array(range(len(who)), pa.int64()), "who": pa.array(who, pa.int64()),
        "cost": pa.array([float(n % 7) for n in range(len(who))], pa.float64()),
        "code": pa.array(["abc"[n % 3] for n in range(len(who))], pa.string()),
    })  # fmt: skip


def alone(file):
    return DuckDBSource({"visits": file}, {"visits": VISITS})


def kept(source):
    return {} if source._copies is None else source._copies._kept


def require_equal(folder, seeds, relation_of):
    """Each question has the same whole numbers from copies and from frames; what was copied."""
    read = set()
    for seed in seeds:
        random = Random(seed)
        frames = frames_of(make_rows(random), random)
        source = DuckDBSource(written(folder / str(seed), frames), TABLES)
        plain = DuckDBSource(frames, TABLES)
        for _ in range(12):
            query = some_query(random, relation_of)
            np.testing.assert_equal(collected(source, query), collected(plain, query))
        read.update(kept(source))
        assert not kept(plain)
    return read


@pytest.mark.parametrize("relation_of", [shallow, deep, row_level])
def test_a_copy_gives_the_whole_numbers_of_its_file(tmp_path, relation_of):
    read = require_equal(tmp_path, range(SEEDS), relation_of)
    wanted = {ROWS.name} if relation_of is row_level else {PEOPLE.name, VISITS.name, "taken"}
    assert wanted <= read
    assert "drugs" not in read


def test_a_join_along_the_link_has_the_same_rows_where_its_child_is_a_copy(tmp_path):
    """A visit that is written down twice is two partners of what was taken, and not four."""
    random = Random(0)
    rows = {
        **make_rows(random),
        "visits": [{"vid": 1, "who": 2, "cost": 3.0, "code": "a"}] * 2,
        "taken": [{"visit": 1, "code": "b", "dose": 1.0}],
    }
    frames = frames_of(rows, random)
    visits = Project(Table(VISITS), (("vid", Field("vid")), ("kind", Field("code"))))
    pairs = Join(Table(TABLES["taken"]), visits, ((Field("visit"), Field("vid")),))
    tally = Sums(relation=pairs, terms=(ONE,), rows_per_unit=9)
    source = DuckDBSource(written(tmp_path, frames), TABLES)
    for _ in range(3):
        assert source.sums(tally).tolist() == DuckDBSource(frames, TABLES).sums(tally).tolist()
        assert source.sums(tally).tolist() == [[2]]
    assert {"taken", "visits"} <= set(kept(source))


def test_sizes_that_are_too_small_are_caught(tmp_path, monkeypatch):
    right = copies._sized

    def wrong(rows):
        query = right(rows)
        if rows.is_owned:
            query.select(
                *query.expressions[:-1], as_(exp.Literal.number(0), "m"), append=False, copy=False
            )
        return query

    monkeypatch.setattr(copies, "_sized", wrong)
    assert not require_equal(tmp_path / "counted", range(1), shallow)  # none was used
    monkeypatch.setattr(copies, "_WRONG", "SELECT 1 FROM {}.rows LIMIT 0")
    with pytest.raises(AssertionError):
        require_equal(tmp_path / "uncounted", range(3), shallow)


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("bound", [{"rows_per_unit": 3}, {"squares_per_unit": 9}])
def test_what_all_of_few_rows_add_is_not_clamped_as_what_one_owner_adds(tmp_path, bound, rest):
    rows, grains = 300, 1 << 46  # the parts of one owner end at 2**62, or 2**50
    frame = visits_of([1] * rows)
    term = replace(ONE, grain=Fraction(1, grains), high=grains)
    by = (replace(CODES, rest=rest),)
    tally = Sums(relation=Table(VISITS), by=by, terms=(term,), **bound)
    expected = [[rows // 3 * grains] * (2 + rest)]
    source = alone(written(tmp_path, {"visits": frame})["visits"])
    assert source.sums(tally).tolist() == expected
    assert kept(source)
    assert DuckDBSource({"visits": frame}, {"visits": VISITS}).sums(tally).tolist() == expected
    none = replace(tally, relation=Filter(Table(VISITS), Call("lt", (Field("vid"), Literal(0)))))
    assert not source.sums(none).any()


def test_whoever_is_beyond_the_bound_in_a_copy_is_scaled(tmp_path):
    source = alone(written(tmp_path, {"visits": visits_of([9, 1, 3, 4])})["visits"])
    some = Filter(Table(VISITS), Call("lt", (Field("vid"), Literal(6))))
    ranked = Window("late", Among.RANK, Literal(1), order=(Ordering(Field("cost")),))
    late = Call("gt", (Field("late"), Literal(2)))
    for tally in (
        BY_CODE,
        replace(BY_CODE, relation=Filter(Windowed(Table(VISITS), (ranked,)), late)),
        replace(BY_CODE, rows_per_unit=None, squares_per_unit=10),
        replace(BY_CODE, by=(), terms=(COST, ONE), sized=(COST,)),
        replace(BY_CODE, relation=some),
    ):
        found = source.sums(tally)
        assert kept(source)
        np.testing.assert_equal(found, DuckDBSource({"visits": visits_of([9, 1, 3, 4])}, {"visits": VISITS}).sums(tally))  # fmt: skip


def test_rows_that_were_written_later_are_read_and_the_old_copy_is_dropped(tmp_path):
    file = written(tmp_path, {"visits": visits_of([1, 1])})["visits"]
    source = alone(file)
    assert source.sums(BY_CODE).sum() == 2
    old = kept(source)["visits"]
    pq.write_table(visits_of([9, 1, 1]), file)
    assert source.sums(BY_CODE).sum() == 5  # the first unit counts as three rows
    assert source.sums(BY_CODE).sum() == 5
    assert kept(source)["visits"] is not old
    names = source._connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    assert sum(name.startswith("copy") for (name,) in names) == 1


def test_a_copy_stays_while_somebody_reads_it(tmp_path):
    file = written(tmp_path, {"visits": visits_of([1, 1])})["visits"]
    source = alone(file)
    with pytest.raises(SourceError, check=about("drift")), source._reading(BY_CODE) as writer:
        (name,) = writer.read
        pq.write_table(visits_of([1, 1, 1]), file)
        assert source.sums(BY_CODE).sum() == 3
        text = f"SELECT COUNT(*) FROM {name}.rows"
        assert source._connection.execute(text).fetchall() == [(2,)]
    with pytest.raises(duckdb.Error):
        source._connection.execute(text)


def test_a_table_that_is_declared_otherwise_is_read_from_its_file(tmp_path):
    source = alone(written(tmp_path, {"visits": visits_of([2, 3])})["visits"])
    total = replace(BY_CODE, by=(), terms=(COST,))
    assert source.sums(total)[0, 0] == 4 * (0 + 1 + 2 + 3 + 4)
    narrow = column("cost", Kind.NUMBER, between=(0, 1))
    other = replace(VISITS, columns=MappingProxyType({**VISITS.columns, "cost": narrow}))
    assert kept(source)
    assert source.sums(replace(total, relation=Table(other)))[0, 0] == 4 * 4


def test_an_engine_that_stumbled_copies_anew(tmp_path):
    source = alone(written(tmp_path, {"visits": visits_of([2, 3])})["visits"])
    assert source.sums(BY_CODE).sum() == 5
    with pytest.raises(SourceError):
        source._run(lambda connection: connection.execute("SELECT * FROM nowhere"), ())
    assert not kept(source)
    assert source.sums(BY_CODE).sum() == 5
    assert kept(source)


def test_what_cannot_be_copied_is_read_from_its_file(tmp_path, monkeypatch):
    file = written(tmp_path, {"visits": visits_of([2, 3])})["visits"]
    source = alone(file)
    monkeypatch.setattr(copies, "_sized", lambda _: exp.select("nothing").from_("nowhere"))
    for _ in range(2):
        assert source.sums(BY_CODE).sum() == 5
        assert not kept(source)


def test_large_and_unsettled_files_are_not_copied(tmp_path, monkeypatch):
    file = written(tmp_path, {"visits": visits_of([2, 3])})["visits"]
    monkeypatch.setattr(engine, "_OFTEN", 0)
    monkeypatch.setattr(copies, "_LENGTH_MAX", file.stat().st_size - 1)
    source = alone(file)
    assert source.sums(BY_CODE).sum() == 5
    monkeypatch.setattr(copies, "_LENGTH_MAX", 1 << 27)
    monkeypatch.setattr(copies, "_CALM_NS", 10**12)
    assert source.sums(BY_CODE).sum() == 5
    assert not kept(source)
    os.utime(file, (0, 0))  # its own times say so, and those of the file system do not
    assert source.sums(BY_CODE).sum() == 5
    assert not kept(source)
