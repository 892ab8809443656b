"""Values on the wire are what psycopg's own reader and writer say they are."""

import math
import struct
from datetime import date, time
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer

from noisegate.server.wire import types
from noisegate.server.wire.answering import Outcome, copied
from noisegate.server.wire.commands import Copy
from noisegate.server.wire.messages import BINARY, TEXT, Malformed

MICROSECONDS = st.datetimes()
VALUES = {
    types.BOOL: st.booleans(),
    types.INT2: st.integers(-(2**15), 2**15 - 1),
    types.INT4: st.integers(-(2**31), 2**31 - 1),
    types.INT8: st.integers(-(2**63), 2**63 - 1),
    types.OID: st.integers(0, 2**32 - 1),
    types.FLOAT8: st.floats(allow_nan=False),
    types.NUMERIC: st.decimals(allow_nan=False, allow_infinity=False, places=6)
    | st.decimals(-(10**30), 10**30, places=2),
    types.TEXT: st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    types.DATE: st.dates(),
    types.TIMESTAMP: MICROSECONDS,
    types.TIME: st.times(),
    types.BYTEA: st.binary(max_size=20),
    types.KNOWN[1016]: st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5),
    types.KNOWN[1009]: st.lists(
        st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        max_size=5,
    ),
}
READ = [kind for kind in VALUES if kind not in (types.TIME, types.BYTEA)]
LOADERS = Transformer()


@pytest.mark.parametrize("form", [TEXT, BINARY])
@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.name)
def test_what_we_write_psycopg_reads(kind, form):
    loader = LOADERS.get_loader(kind.oid, psycopg.pq.Format(form))

    @given(VALUES[kind])
    def check(value):
        assert loader.load(types.written(value, kind, form)) == value

    check()


@pytest.mark.parametrize("form", [TEXT, BINARY])
@pytest.mark.parametrize("kind", READ, ids=lambda kind: kind.name)
def test_what_we_write_we_read(kind, form):
    @given(VALUES[kind])
    def check(value):
        raw = types.written(value, kind, form)
        assert types.read_value(raw, kind.oid, form) == value

    check()


@pytest.mark.parametrize(
    "value", [1, -5, 2**40, 1.5, "text", True, date(2024, 2, 29), Decimal("12.50"), [1, 2], ["a"]]
)
@pytest.mark.parametrize("form", [PyFormat.TEXT, PyFormat.BINARY])
def test_what_psycopg_writes_we_read(value, form):
    dumper = LOADERS.get_dumper(value, form)
    raw = bytes(dumper.dump(value))
    found = types.read_value(raw, dumper.oid, BINARY if form is PyFormat.BINARY else TEXT)
    assert found == value or dumper.oid == 0


@given(
    st.sampled_from(sorted(types.KNOWN)), st.sampled_from([TEXT, BINARY]), st.binary(max_size=30)
)
def test_reading_a_value_is_total(oid, form, raw):
    try:
        found = types.read_value(raw, oid, form)
    except Malformed as refusal:
        found = refusal.state
    assert found is not None


def test_numbers_that_are_none():
    for value, text in ((math.nan, b"NaN"), (math.inf, b"Infinity"), (-math.inf, b"-Infinity")):
        assert types.written(value, types.FLOAT8, TEXT) == text
    assert types.written(None, types.INT8, BINARY) is None
    assert types.written(Decimal("NaN"), types.NUMERIC, BINARY) == struct.pack(
        "!HhHH", 0, 0, 0xC000, 0
    )


def test_every_kind_of_column_has_a_type():
    kinds = {
        pa.int64(): 20, pa.float64(): 701, pa.string(): 25, pa.bool_(): 16, pa.date32(): 1082,
        pa.timestamp("us"): 1114, pa.timestamp("us", "UTC"): 1184, pa.decimal128(9, 2): 1700,
        pa.uint32(): 26, pa.uint64(): 1700, pa.list_(pa.int64()): 1016, pa.null(): 25,
        pa.time64("us"): 1083, pa.binary(): 17, pa.struct([("a", pa.int64())]): 25,
    }  # fmt: skip
    assert {kind: types.of_arrow(kind).oid for kind in kinds} == kinds


def test_copy_writes_as_postgres_does():
    columns = (("a", types.TEXT), ("b", types.INT8), ("c", types.TIME))
    rows = [('x\ty"\\\n', None, time(1, 2)), (",", 2, None), ("", 3, None)]
    outcome = Outcome(columns, rows)
    assert b"".join(copied(outcome, Copy(""))) == (
        b'x\\ty"\\\\\\n\t\\N\t01:02:00\n,\t2\t\\N\n\t3\t\\N\n'
    )
    assert b"".join(copied(outcome, Copy("", "csv", header=True))) == (
        b'a,b,c\n"x\ty""\\\n",,01:02:00\n",",2,\n"",3,\n'
    )
    first, *_, last = copied(outcome, Copy("", "binary"))
    assert first.startswith(b"PGCOPY\n\xff\r\n\0")
    assert last == b"\xff\xff"
