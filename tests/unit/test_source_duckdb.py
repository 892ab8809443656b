import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noisegate.errors import SourceError
from noisegate.privacy.domain import Column
from noisegate.sources.duckdb import DuckDBSource
from noisegate.sources.source import Tally

ROWS = {
    "id": [1, 1, 2, None],
    "ward": ["north", "south", None, "north"],
    "x": [1.0, float("nan"), 2, 3],
}
WARD = Column(name="ward", keys=("south", "north", "west"))
CODE = Column(name="id", keys=(2, 1, 9))


def sources(folder):
    table = pa.table(ROWS)
    pq.write_table(table, folder / "t.parquet")
    (folder / "t.csv").write_text("id,ward,x\n1,north,1.0\n1,south,nan\n2,,2\n,north,3\n")
    (folder / "t2.csv").write_text("id;ward;x\n1;north;1.0\n1;south;nan\n2;;2\n;north;3\n")
    return {
        "arrow": table,
        "pandas": pd.DataFrame(ROWS).astype({"id": "Int64"}),
        "polars": pl.DataFrame(ROWS, strict=False),
        "parquet": folder / "t.parquet",
        "csv": folder / "t.csv",
        "semicolons": str(folder / "t2.csv"),
    }


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "parquet", "csv", "semicolons"])
def test_every_kind_of_source_counts_the_same(kind, tmp_path):
    source = DuckDBSource(sources(tmp_path)[kind], table="t", used=["id", "ward"])
    assert source.columns() == ("id", "ward", "x")
    assert source.collect(Tally(table="t")).tolist() == [4]
    assert source.collect(Tally(table="t", by=WARD)).tolist() == [1, 2, 0]
    assert source.collect(Tally(table="t", by=CODE)).tolist() == [1, 2, 0]
    assert source.collect(Tally(table="t", where=((WARD, "north"),))).tolist() == [2]
    capped = Tally(table="t", unit="id", rows_per_unit_max=1)
    assert source.collect(capped).tolist() == [3]  # rows without an id count as one unit together
    assert source.collect(Tally(table="t")).dtype == np.int64


def test_a_frame_without_types_of_its_own_is_refused_without_its_words():
    with pytest.raises(SourceError, match="plain Arrow form") as refusal:
        mixed = pd.DataFrame({"a": pd.Series([1, "verysecret"], dtype=object), "b": [1, 2]})
        DuckDBSource(mixed, table="t", used=["a"])
    assert DuckDBSource(mixed, table="t", used=["b"]).collect(Tally(table="t")).tolist() == [2]
    assert DuckDBSource(mixed, table="t").columns() == ("a", "b")
    assert refusal.value.__context__ is None
    assert "secret" not in str(refusal.value)


def test_an_empty_table_counts_zero():
    source = DuckDBSource(pa.table({"g": pa.array([], pa.string())}), table="t", used=["g"])
    assert source.collect(Tally(table="t")).tolist() == [0]
    assert source.collect(Tally(table="t", unit="g", rows_per_unit_max=3)).tolist() == [0]
    assert source.collect(Tally(table="t", by=Column(name="g", keys=("a",)))).tolist() == [0]


@pytest.mark.parametrize(
    "row", ["oops", "9" * 44, "1e400", "\x00", "'", '"a\nb"', '""""', "é", "a\u2028b", " "]
)
def test_no_row_can_make_a_count_fail(row, tmp_path):
    (tmp_path / "t.csv").write_text(f"id,ward\n1,north\n{row},south\n1,south\n")
    source = DuckDBSource(tmp_path / "t.csv", table="t", used=["id", "ward"])
    assert source.collect(Tally(table="t", by=CODE))[1] == 2
    assert source.collect(Tally(table="t", by=WARD)).tolist() == [2, 1, 0]
    assert source.collect(Tally(table="t")).tolist() == [3]


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
    with pytest.raises(SourceError, match="read whole") as refusal:
        DuckDBSource(tmp_path / "t.csv", table="t", used=["id", "ward"])
    assert refusal.value.__context__ is None


def test_types_are_not_guessed_from_rows(tmp_path):
    (tmp_path / "t.csv").write_text("id\n01\n1\n")
    source = DuckDBSource(tmp_path / "t.csv", table="t", used=["id"])
    assert source.collect(Tally(table="t", by=Column(name="id", keys=("01", "1")))).tolist() == [
        1,
        1,
    ]


def test_hostile_names_stay_names(tmp_path):
    name, key = 'a"; DROP TABLE t; --', "x' OR '1'='1"
    table = pa.table({name: [key, "y"]})
    source = DuckDBSource(table, table='we"ird', used=[name])
    assert source.collect(
        Tally(table='we"ird', by=Column(name=name, keys=(key, "z")))
    ).tolist() == [1, 0]


@pytest.mark.parametrize("wanted", ["read_csv('{}')", "read_text('{}')", "'{}'"])
def test_the_engine_reaches_no_other_file(wanted, tmp_path):
    import duckdb

    (tmp_path / "t.csv").write_text("a\n1\n")
    (tmp_path / "secret.csv").write_text("a\n1\n")
    source = DuckDBSource(tmp_path / "t.csv", table="t")
    with pytest.raises(duckdb.Error):
        source._connection.execute(f"SELECT * FROM {wanted.format(tmp_path / 'secret.csv')}")
    with pytest.raises(duckdb.Error):
        source._connection.execute("SET enable_external_access = true")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("missing.csv", None, "no file"), ("t.xlsx", "a\n1\n", "none of"), ("t.csv", "a,a\n1,2\n", "name its"),
     ("t.csv", "", "name its"), ("t.parquet", "not parquet", "could not read")],
)  # fmt: skip
def test_unreachable_rows_are_refused_in_public_terms(name, text, said, tmp_path):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(SourceError, match=said):
        DuckDBSource(tmp_path / name, table="t")


def test_a_source_that_breaks_later_says_nothing_about_rows(tmp_path):
    (tmp_path / "t.csv").write_text("a\nverysecret\n")
    source = DuckDBSource(tmp_path / "t.csv", table="t")
    (tmp_path / "t.csv").unlink()
    with pytest.raises(SourceError) as refusal:
        source.collect(Tally(table="t"))
    assert "secret" not in str(refusal.value)
    assert refusal.value.__context__ is None
