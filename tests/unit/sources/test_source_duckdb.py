import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from door import ONE, by, field, table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Table
from noisegate.algebra.tally import Distinct, Sums
from noisegate.errors import PolicyError, SourceError
from noisegate.privacy.domain import Column, Kind
from noisegate.sources.duckdb.facts import public_keys, stored_kinds
from noisegate.sources.duckdb.files import Within
from noisegate.sources.duckdb.source import DuckDBSource
from refusals import about, listed

pytestmark = pytest.mark.usefixtures("own_engine")
ROWS = {
    "id": [1, 1, 2, None],
    "ward": ["north", "south", None, "north"],
    "x": [1.0, float("nan"), 2, 3],
}
ID, WARD = ("id", Kind.INTEGER), ("ward", Kind.TEXT)
BY_ID, BY_WARD = by("id", 2, 1, 9), by("ward", "south", "north", "west")


def opened(data, *columns, unit=None, name="t", **more):
    """A source of one table, and its rows as a relation."""
    domain = table(name, unit, *columns, **more)
    return DuckDBSource({name: data}, {name: domain}), Table(domain)


def counted(opening, *groups, cap=None):
    source, rows = opening
    return source.sums(Sums(relation=rows, by=groups, terms=(ONE,), rows_per_unit=cap))[0].tolist()


def sources(folder):
    rows = pa.table(ROWS)
    pq.write_table(rows, folder / "t.parquet")
    (folder / "t.csv").write_text("id,ward,x\n1,north,1.0\n1,south,nan\n2,,2\n,north,3\n")
    (folder / "t2.csv").write_text("id;ward;x\n1;north;1.0\n1;south;nan\n2;;2\n;north;3\n")
    (folder / "t.tsv").write_text("id\tward\tx\n1\tnorth\t1.0\n1\tsouth\tnan\n2\t\t2\n\tnorth\t3\n")
    with duckdb.connect(str(folder / "t.duckdb")) as file:
        file.register("given", rows)
        file.execute("CREATE TABLE t AS FROM given")
    return {
        "arrow": rows,
        "pandas": pd.DataFrame(ROWS).astype({"id": "Int64"}),
        "polars": pl.DataFrame(ROWS, strict=False),
        "parquet": folder / "t.parquet",
        "csv": folder / "t.csv",
        "semicolons": str(folder / "t2.csv"),
        "tabs": folder / "t.tsv",
        "duckdb": folder / "t.duckdb",
    }


KINDS = ["arrow", "pandas", "polars", "parquet", "csv", "semicolons", "tabs", "duckdb"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source_counts_the_same(kind, tmp_path):
    data = sources(tmp_path)[kind]
    assert set(stored_kinds({"t": data})["t"]) == {"id", "ward", "x"}
    rows = opened(data, ID, WARD, ("x", Kind.NUMBER))
    assert counted(rows) == [4]
    assert counted(rows, BY_WARD) == [1, 2, 0]
    assert counted(rows, BY_ID) == [1, 2, 0]
    assert counted(rows, BY_ID, BY_WARD) == [0, 0, 0, 1, 1, 0, 0, 0, 0]
    source, relation = rows
    north = Filter(relation, Call("eq", (Field("ward"), Literal("north"))))
    assert counted((source, north)) == [2]
    total = source.sums(Sums(relation=relation, terms=(field("x"), ONE)))
    assert (total.tolist(), total.dtype) == ([[6], [4]], np.int64)  # NaN adds nothing


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_an_owner_are_nobodys_and_left_out(kind, tmp_path):
    capped = opened(sources(tmp_path)[kind], ID, unit="id")
    assert counted(capped, cap=2) == [3]
    assert counted(capped, BY_ID, cap=2) == [1, 2, 0]


def test_a_frame_column_without_a_type_of_its_own_is_refused_on_opening_and_leaves_no_words():
    mixed = pd.DataFrame({"a": pd.Series([1, "verysecret"], dtype=object), "b": [1, 2]})
    with pytest.raises(SourceError, check=about("type"), match="'a'") as refusal:
        opened(mixed, ("b", Kind.INTEGER))
    assert counted(opened(mixed.drop(columns="a"), ("b", Kind.INTEGER))) == [2]
    assert refusal.value.__context__ is None
    assert "secret" not in str(refusal.value)


def test_an_empty_table_counts_zero():
    empty = pa.table({"g": pa.array([], pa.string())})
    rows = opened(empty, ("g", Kind.TEXT), unit="g")
    assert counted(rows, cap=3) == [0]
    assert counted(rows, by("g", "a"), cap=3) == [0]
    assert counted(opened(empty)) == [0]
    assert rows[0].distinct(
        Distinct(relation=rows[1], expression=Field("g"), keys_per_unit=1)
    ).tolist() == [[0]]


@pytest.mark.parametrize(
    "row", ["oops", "9" * 44, "1e400", "\x00", "'", '"a\nb"', '""""', "é", "a\u2028b", " "]
)
def test_no_row_can_make_a_count_fail(row, tmp_path):
    (tmp_path / "t.csv").write_text(f"id,ward\n1,north\n{row},south\n1,south\n")
    rows = opened(tmp_path / "t.csv", ID, WARD)
    assert counted(rows, BY_ID)[1] == 2
    assert counted(rows, BY_WARD) == [2, 1, 0]
    assert counted(rows) == [3]


@pytest.mark.parametrize(
    "row",
    [
        b"7,2,3,4",
        b"7",
        b'"7,x',
        b'7,"x',
        b'7,"x"y',
        b"7,a\rb",
        b"7,\xff",
        b'7,"' + b"x" * 3_000_000,
    ],
)
def test_a_file_that_is_no_table_is_refused_before_any_question(row, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"id,ward\n1,north\n" + row + b"\n" + b"2,south\n" * 50)
    with pytest.raises(SourceError, check=about("unreadable")) as refusal:
        opened(tmp_path / "t.csv", ID, WARD)
    assert refusal.value.__context__ is None


def test_types_are_not_guessed_from_rows(tmp_path):
    (tmp_path / "t.csv").write_text("id\n01\n1\n")
    assert stored_kinds({"t": tmp_path / "t.csv"}) == {"t": {"id": Kind.TEXT}}
    assert counted(opened(tmp_path / "t.csv", ("id", Kind.TEXT)), by("id", "01", "1")) == [1, 1]


def test_hostile_names_stay_names():
    name, key = 'a"; DROP TABLE t; --', "x' OR '1'='1"
    rows = opened(pa.table({name: [key, "y"]}), (name, Kind.TEXT), name='we"ird')
    assert counted(rows, by(name, key, "z")) == [1, 0]


@pytest.mark.parametrize("wanted", ["read_csv('{}')", "read_text('{}')", "'{}'"])
def test_the_engine_reaches_no_other_file(wanted, tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    source, _ = opened(tmp_path / "t.csv")
    with pytest.raises(duckdb.Error):
        source._connection.execute(f"SELECT * FROM {wanted.format(tmp_path / 'secret.csv')}")
    with pytest.raises(duckdb.Error):
        source._connection.execute("SET enable_external_access = true")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("missing.csv", None, "file"), ("t.xlsx", "a\n1\n", "ending"), ("t.csv", "a,a\n1,2\n", "header"),
     ("t.csv", "", "header"), ("t.parquet", "not parquet", "unreadable"), ("t.duckdb", "not duckdb", "unreadable")],
)  # fmt: skip
def test_unreachable_rows_are_refused_in_public_terms(name, text, said, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SourceError, check=listed(said)):
        opened(tmp_path / name)


def test_a_source_that_breaks_later_says_nothing_about_rows(tmp_path):
    (tmp_path / "t.csv").write_text("a\nverysecret\n")
    rows = opened(tmp_path / "t.csv")
    (tmp_path / "t.csv").unlink()
    with pytest.raises(SourceError) as refusal:
        counted(rows)
    assert "secret" not in str(refusal.value)
    assert refusal.value.__context__ is None


# columns


MOMENT = datetime(2020, 5, 17, 12)  # noqa: DTZ001 - times in tables have no zone
STORED = {
    "whole": ([1, 2], pa.int8(), Kind.INTEGER, 2),
    "unsigned": ([1, 2**64 - 1], pa.uint64(), Kind.INTEGER, 1),  # the second is beyond 64 bits
    "double": ([0.5, float("inf")], pa.float64(), Kind.NUMBER, 1),
    "half": ([0.5, 2.5], pa.float32(), Kind.NUMBER, 2),
    "decimal": ([Decimal("0.10"), Decimal("9.99")], pa.decimal128(9, 2), Kind.NUMBER, 2),
    "date": ([date(2020, 1, 1), date(2021, 1, 1)], pa.date32(), Kind.DATE, 2),
    "time": ([MOMENT, None], pa.timestamp("us"), Kind.TIMESTAMP, 1),
    "seconds": ([MOMENT, MOMENT], pa.timestamp("s"), Kind.TIMESTAMP, 1),
    "zoned": ([MOMENT, MOMENT], pa.timestamp("us", "Europe/Paris"), Kind.TIMESTAMP, 1),
    "flag": ([True, False], pa.bool_(), Kind.BOOLEAN, 2),
    "text": (["a", ""], pa.large_string(), Kind.TEXT, 2),
}


@pytest.mark.parametrize("name", STORED)
def test_columns_of_all_kinds_are_read_as_they_are(name):
    values, stored, kind, different = STORED[name]
    data = pa.table({"x": pa.array(values, stored)})
    assert stored_kinds({"t": data}) == {"t": {"x": kind}}
    source, rows = opened(data, ("x", kind))
    found = source.distinct(Distinct(relation=rows, expression=Field("x"), keys_per_unit=1))
    assert found.tolist() == [[different]]


def test_columns_that_questions_cannot_use_are_no_columns():
    data = pa.table({
        "x": [{"a": 1}], "y": [[1]], "z": [b"a"], "fine": [1],
    })  # fmt: skip
    assert stored_kinds({"t": data}) == {"t": {"fine": Kind.INTEGER}}


@pytest.mark.parametrize("kept", ["file", "table"])
@pytest.mark.parametrize(("kind", "key"), [(Kind.TIMESTAMP, MOMENT), (Kind.DATE, MOMENT.date())])
def test_times_with_a_zone_are_read_as_those_in_utc_wherever_the_engine_runs(
    kept, kind, key, tmp_path, monkeypatch
):
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    texts = ["2020-05-17 14:00+02", "2020-05-17 12:00 UTC", "2020-05-17 02:00-10", "infinity",
             "-infinity", "290309-12-22 (BC) 00:00+00", "294247-01-10 04:00:54+00"]  # fmt: skip
    values = ", ".join(f"('{text}'::TIMESTAMPTZ)" for text in texts)
    with duckdb.connect(str(tmp_path / "t.duckdb")) as file:
        file.execute("SET TimeZone = 'Europe/Paris'")
        file.execute(f"CREATE TABLE t AS FROM (VALUES {values}, (NULL)) AS v(x)")
        file.execute(f"COPY (FROM t WHERE isfinite(x)) TO '{tmp_path}/t.parquet'")
    data = tmp_path / "t.parquet" if kept == "file" else Within(tmp_path / "t.duckdb", "t")
    opening = opened(data, ("x", kind))
    assert counted(opening, by("x", key, None)) == [3, 2 if kept == "file" else 5]
    assert stored_kinds({"t": data}) == {"t": {"x": Kind.TIMESTAMP}}


@pytest.mark.parametrize(
    ("kind", "keys", "counts"),
    [
        (Kind.INTEGER, (1, 2, 12, 1000, -1), [3, 1, 1, 1, 0]),
        (Kind.TEXT, ("1", "01", " 1", "1.0", "1.5"), [1, 1, 1, 0, 1]),
        (Kind.DATE, (date(2020, 5, 17), None), [1, 9]),
        (Kind.BOOLEAN, (True, False), [2, 0]),
    ],
)
def test_values_of_another_type_are_read_or_missing(kind, keys, counts):
    texts = ["1", "01", " 1", "1.5", "12", "1e3", "x", "2020-05-17", "true", None]
    rows = opened(pa.table({"x": texts}), ("x", kind))
    assert counted(rows, by("x", *keys)) == counts


def test_values_are_clamped_into_the_declared_bounds_as_they_are_read():
    column = Column(name="x", kind=Kind.NUMBER, between=(0, 10))
    values = [-5.0, 3.0, 50.0, float("inf"), float("-inf"), float("nan"), None]
    source, rows = opened(pa.table({"x": values}), column)
    assert source.sums(Sums(relation=rows, terms=(field("x", low=-99, high=99),))).tolist() == [
        [13]
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1.5, 2.5], Kind.NUMBER), ([date(2020, 1, 1)], Kind.DATE), ([True], Kind.BOOLEAN)],
)
def test_ids_that_are_neither_whole_nor_text_are_refused(values, kind):
    with pytest.raises(PolicyError, check=about("id")):
        opened(pa.table({"id": values}), ("id", kind), unit="id")


def test_ids_beyond_doubles_stay_apart():
    ids = [2**53 + step for step in range(100)]
    for stored in (pa.int64(), pa.uint64(), pa.string()):
        data = pa.table(
            {"id": pa.array([str(each) if stored == pa.string() else each for each in ids], stored)}
        )
        assert counted(opened(data, unit="id"), cap=1) == [100]


def test_a_column_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(PolicyError, check=about("column"), match="'b'") as refusal:
        opened(pa.table({"a": [1]}), ("b", Kind.INTEGER))
    assert "a" in refusal.value.fix


def test_the_engine_sees_no_column_that_questions_cannot_use():
    data = pa.table({"a": [1], "hidden": [2], "other": [3]})
    source, _ = opened(
        data, ("a", Kind.INTEGER), Column(name="hidden", kind=Kind.INTEGER, hidden=True)
    )
    seen = "SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal"
    assert source._connection.execute(seen).fetchall() == [("a",)]


# public tables


def test_a_public_table_is_read_exactly_and_a_private_one_is_not():
    prices = pa.table({"code": ["a", "b"], "price": [1.5, float("nan")], "note": ["x", "y"]})
    hidden = Column(name="note", hidden=True)
    source, _ = opened(prices, ("code", Kind.TEXT), ("price", Kind.NUMBER), hidden, unit="public")
    assert source.public("t").to_pydict() == {"code": ["a", "b"], "price": [1.5, None]}
    source, _ = opened(prices, ("code", Kind.TEXT))
    with pytest.raises(PolicyError, check=about("public")):
        source.public("t")


def test_a_key_that_repeats_is_refused_and_missing_values_are_no_repetition():
    twice = pa.table({"a": [1, 1], "b": [1, 2]})
    columns = (("a", Kind.INTEGER), ("b", Kind.INTEGER))
    opened(twice, *columns, unit="public", key=("a", "b"))
    opened(pa.table({"a": [1, None, None]}), columns[0], unit="public", key=("a",))
    with pytest.raises(PolicyError, check=about("key")):
        opened(twice, *columns, unit="public", key=("a",))
    with pytest.raises(PolicyError, check=about("key")):  # as they are read, not as they are stored
        opened(pa.table({"a": ["1", "01"]}), columns[0], unit="public", key=("a",))
    with pytest.raises(PolicyError, check=about("key")):  # equal in a join
        opened(pa.table({"a": [0.0, -0.0]}), ("a", Kind.NUMBER), unit="public", key=("a",))


def test_keys_of_a_public_column_are_listed_once_and_in_order():
    assert public_keys(pa.table({"code": ["b", None, "a", "b"]}), "t", "code", None) == ("a", "b")
    with pytest.raises(PolicyError, check=about("column")):
        public_keys(pa.table({"code": ["b"]}), "t", "nope", None)


# memory that questions share


def opened_with_memory():
    domain = table("t", None, ID)
    return DuckDBSource({"t": pa.table({"id": [1]})}, {"t": domain}, memory="60MB")


def test_no_question_fails_for_want_of_memory_that_another_has():
    """Four that fit one by one and not together, 60 MB: each is right in the end."""
    source = opened_with_memory()
    text = "SELECT len(list(range)) FROM range(1800000)"
    start = threading.Barrier(4)

    def ask(_):
        start.wait()
        return source._run(lambda connection: connection.execute(text).fetchall(), ())

    engine = source._connection
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [[(1800000,)]] * 4
    assert source._connection is engine, "memory that ran out does no harm to the engine"
    limit = source._connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert limit == ("57.2 MiB",)


def test_a_question_that_is_too_large_by_itself_is_refused_and_the_next_one_is_answered():
    source, asked = opened_with_memory(), []

    def large(connection):
        asked.append(1)
        return connection.execute("SELECT len(list(range)) FROM range(9000000)").fetchall()

    with pytest.raises(SourceError):
        source._run(large, ())
    assert len(asked) == 1, "nobody else was at work, so that asking again is no help"
    assert source._run(lambda c: c.execute("SELECT 1").fetchall(), ()) == [(1,)]


RANGES = [(0, 1, 2, 3), (3, 4), (-2, -1, 0), (2,), (-(2**63) + 1, -(2**63) + 2), (2**63 - 1,)]


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("keys", RANGES)
@pytest.mark.parametrize("stored", [pa.int64(), pa.int8()])
def test_consecutive_whole_keys_are_placed_as_listed_ones_are(keys, rest, stored):
    """Without a list of them in the engine."""
    far = [-(2**63) + 1, 2**63 - 1] if stored == pa.int64() else [-128, 127]
    x = pa.array([0, 1, 2, 2, 3, 4, None, -1, -2, *far], stored)
    source, rows = opened(pa.table({"x": x}), ("x", Kind.INTEGER))
    turned = [list(keys), [*reversed(keys), -77, 99]]  # the second is no range
    tallies = [
        Sums(relation=rows, by=(replace(by("x", *each), rest=rest),), terms=(ONE,))
        for each in turned
    ]
    (placed,), (listed_too,) = (source.sums(each).tolist() for each in tallies)
    held = [sum(value == key for value in x.to_pylist()) for key in keys]
    assert placed == held + [len(x) - sum(held)] * rest
    assert listed_too[: len(keys)] == held[::-1]
    (line,) = source._free
    assert line.listed[0][0] == (*reversed(keys), -77, 99)


@pytest.mark.parametrize("kind", ["parquet", "duckdb"])
def test_whole_numbers_of_units_are_added_up_by_number(tmp_path, kind):
    """Where the file is large for their range; sums are exact at both ends of it, and of NULL."""
    random = np.random.default_rng(3)
    ids = random.integers(-30_000, 30_001, 400_000)
    ids[:3] = -30_000, 30_000, 30_000
    rows = pa.table({
        "id": pa.array(ids, mask=random.random(ids.size) < 0.01), "x": random.random(ids.size),
    })  # fmt: skip
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        pq.write_table(rows, path)
    else:
        with duckdb.connect(str(path)) as file:
            file.register("given", rows)
            file.execute("CREATE TABLE t AS FROM given")
    source, asked = opened(path, ID, unit="id")
    with duckdb.connect() as plain:
        plain.register("t", rows)
        counts = "SELECT COUNT(*) n FROM t WHERE id IS NOT NULL GROUP BY id"
        text = f"SELECT SUM(LEAST(n, 5))::BIGINT FROM ({counts})"
        truth = plain.execute(text).fetchall()[0][0]
    (found,) = counted((source, asked), cap=5)
    assert found == truth
    (setting,) = (
        source._engine().execute("SELECT current_setting('perfect_ht_threshold')").fetchone()
    )
    assert 2**setting > 60_001
