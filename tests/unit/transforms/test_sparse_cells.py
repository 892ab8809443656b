"""Rows per cell of tables too large to list: numbers, caps, refusals, and the way through the door."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from door import ONE, by, curator, showing, table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Fold, Folded, PerUnit, Table
from noisegate.algebra.tally import Axis, Cells, Sums
from noisegate.curator.measurement import Measurement
from noisegate.errors import LedgerError, SourceError, Unsupported
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import WHOLE_MAX, Column, Kind
from noisegate.privacy.release import Release
from noisegate.sources.counting import count_cells
from noisegate.sources.duckdb import found as engine
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.query import Query
from refusals import about

COLUMNS = (("x", Kind.INTEGER), ("y", Kind.INTEGER), Column(name="c", keys=("red", "blue")))
ROWS = table("people", None, *COLUMNS)
OWNED = table("people", "id", ("id", Kind.INTEGER), *COLUMNS)
X = Axis(name="x", expression=Field("x"), low=-3, size=10)
WIDE = Axis(name="y", expression=Field("y"), low=-WHOLE_MAX, size=2 * WHOLE_MAX + 1)
C = by("c", "red", "blue")


def rows(listed):
    names = ("id", "x", "y", "c")
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.string())
    columns = list(zip(*listed, strict=True)) if listed else [[], [], [], []]
    return pa.table({n: pa.array(c, k) for n, c, k in zip(names, columns, kinds, strict=True)})


def held(tally, listed, domain=ROWS):
    found = showing(rows(listed), domain).cells(tally)
    assert found.cells.dtype == np.uint64
    assert np.all(found.cells[1:] > found.cells[:-1])
    return dict(zip(found.cells.tolist(), found.counts.tolist(), strict=True))


values = st.one_of(st.none(), st.integers(-5, 9), st.sampled_from([WHOLE_MAX, -WHOLE_MAX]))
people = st.tuples(
    st.integers(1, 3), values, values, st.sampled_from(["red", "blue", "green", None])
)


def place(axis, value):
    if isinstance(axis, Axis):
        inside = value is not None and axis.low <= value < axis.low + axis.size
        return value - axis.low if inside else None
    return axis.keys.index(value) if value in axis.keys else None


def cell_of(row, axes):
    number = 0
    for axis in axes:
        at = place(axis, dict(zip(("id", "x", "y", "c"), row, strict=True))[axis.name])
        if at is None:
            return None
        number = number * axis.size + at
    return number


@settings(max_examples=12)
@given(st.lists(people, max_size=30), st.sampled_from([(X,), (WIDE,), (C, X), (X, C), (C,)]))
def test_rows_are_counted_by_the_number_of_their_cell(listed, axes):
    found = held(Cells(relation=Table(ROWS), by=axes), listed)
    cells = Counter(cell_of(row, axes) for row in listed)
    del cells[None]
    assert found == cells


def test_the_last_of_two_to_the_64_cells_is_counted():
    half = Axis(name="x", expression=Field("x"), low=0, size=1 << 32)
    other = replace(half, name="y", expression=Field("y"), low=-(1 << 31))
    tally = Cells(relation=Table(ROWS), by=(half, other))
    assert tally.cells == Query(tally).tally.cells == 1 << 64
    listed = [(1, 0, -(1 << 31), None), (1, (1 << 32) - 1, (1 << 31) - 1, None)]
    assert held(tally, listed) == {0: 1, (1 << 64) - 1: 1}


def test_a_filter_is_kept():
    some = Filter(Table(ROWS), Call("gt", (Field("y"), Literal(0))))
    tally = Cells(relation=some, by=(X,))
    assert held(tally, [(1, 2, 1, "red"), (1, 2, 0, "red"), (1, 2, None, "red")]) == {5: 1}


def test_a_relation_that_bounds_the_rows_of_an_owner_needs_no_cap():
    one = Folded(name="x", fold=Fold.MAX, expression=Field("x"))
    tally = Cells(relation=PerUnit(of=Table(OWNED), keys=(), folded=(one,)), by=(X,))
    assert Query(tally).l1s == (L1(1),)
    listed = [(1, 2, 0, "red"), (1, 4, 0, "red"), (2, 4, 0, "red"), (3, None, 0, "red")]
    assert held(tally, listed, OWNED) == {7: 2}


def test_an_error_on_the_way_says_nothing_of_rows(monkeypatch):
    class Broken:
        def to_arrow_reader(self, _):
            yield pa.record_batch({"c": pa.array([1], pa.uint64())})
            raise pa.ArrowInvalid("Could not convert 'Alice' to INT64")

    stream = engine.stream
    monkeypatch.setattr(engine, "stream", lambda _: stream(Broken()))
    with pytest.raises(SourceError) as caught:
        held(Cells(relation=Table(ROWS), by=(X,)), [(1, 2, 3, "red")])
    assert "Alice" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def capped(cap):
    return Cells(relation=Table(OWNED), by=(X, C), rows_per_unit=cap)


def moved(tally, listed, owner):
    """How far one owner's rows move all cells together."""
    with_one = Counter(held(tally, listed, OWNED))
    with_one.subtract(held(tally, [row for row in listed if row[0] != owner], OWNED))
    return sum(map(abs, with_one.values()))


@settings(max_examples=12)
@given(st.lists(people, max_size=25), st.integers(1, 4))
def test_an_owner_moves_all_cells_by_at_most_the_cap(listed, cap):
    assert moved(capped(cap), listed, 1) <= Query(capped(cap)).l1s[0].value == cap


def test_without_the_cap_an_owner_moves_them_further():
    many = [(1, k % 7, 0, "red") for k in range(20)]
    assert moved(capped(3), many, 1) == 3
    assert moved(replace(capped(3), rows_per_unit=None), many, 1) == 20


def test_the_sensitivity_is_that_of_rows():
    assert Query(Cells(relation=Table(ROWS), by=(X,))).l1s == (L1(1),)
    assert Query(capped(4)).l1s == (L1(4),)
    assert Query(capped(4)).l2s == (L2(squared=16),)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cells(relation=Table(OWNED), by=(X,)),
        lambda: Cells(relation=Table(ROWS), by=()),
        lambda: Cells(relation=Table(ROWS), by=[X]),
        lambda: Cells(relation=Table(ROWS), by=(replace(X, size=0),)),
        lambda: Cells(relation=Table(ROWS), by=(replace(X, low=WHOLE_MAX),)),
        lambda: Cells(relation=Table(ROWS), by=(replace(X, low=0.5),)),
        lambda: Cells(relation=Table(ROWS), by=(replace(X, expression=Field("c")),)),
        lambda: Cells(relation=Table(ROWS), by=(replace(X, expression=Field("z")),)),
        lambda: Cells(relation=Table(ROWS), by=(WIDE, C)),
        lambda: Cells(relation=Table(ROWS), by=(replace(C, rest=True),)),
        lambda: Cells(relation=Table(ROWS), by=(replace(C, keys=("red", "red")),)),
        lambda: Cells(relation=Table(ROWS), by=(X, "y")),
    ],
)
def test_what_has_no_rule_is_refused(make):
    with pytest.raises(Unsupported):
        Query(make())


def measurement(tally, epsilon="5", threshold=30):
    query = Query(tally)
    noise = SparseGeometric.for_epsilon(
        epsilon, sensitivity=query.l1s[0], domain=tally.cells, threshold=threshold
    )
    return Measurement(query=query, mechanisms=(noise,))


def test_the_door_asks_for_noise_of_the_same_domain_and_of_this_kind():
    tally = Cells(relation=Table(ROWS), by=(X,))
    with pytest.raises(Unsupported, check=about("cells")):
        Measurement(query=Query(tally), mechanisms=measurement(
            Cells(relation=Table(ROWS), by=(WIDE,)), threshold=40).mechanisms)  # fmt: skip
    with pytest.raises(Unsupported, check=about("noise")):
        Measurement(query=Query(tally), mechanisms=(Geometric(scale=1),))
    sums = Sums(relation=Table(ROWS), by=(C,), terms=(ONE,))
    with pytest.raises(Unsupported, check=about("noise")):
        Measurement(query=Query(sums), mechanisms=measurement(tally).mechanisms)


def test_different_questions_have_different_texts():
    tallies = [Cells(relation=Table(ROWS), by=axes) for axes in ((X,), (X, C), (C, X))]
    tallies += [replace(tallies[0], by=(replace(X, size=11),)), capped(2), capped(3)]
    texts = {measurement(tally).question() for tally in tallies}
    assert len(texts) == len(tallies)


def test_a_release_is_drawn_once_and_the_same_from_the_ledger(tmp_path):
    """Two cells of 200 rows at ε = 5; one of them being off by 50 has odds below e^-200."""
    listed = [(1, 2, 7, "red")] * 200 + [(1, 3, 8, "blue")] * 200 + [(1, 1, 1, "red")]
    source = DuckDBSource({"people": rows(listed)}, {"people": ROWS})
    door = curator(tmp_path / "ledger.sqlite", budget="10", table=ROWS, source=source)
    asked = measurement(Cells(relation=Table(ROWS), by=(X,)))
    first = door.measure(asked)
    assert first.cells.tolist() == [5, 6]
    assert np.all(np.abs(first.values - 200) < 50)
    again = door.measure(asked)
    assert again.free
    assert (again.cells.tolist(), again.values.tolist()) == ([5, 6], first.values.tolist())
    assert door.remaining().epsilon == 5
    assert door.ledger.verify().ok


# storage


def release(values, **more):
    event = Geometric(scale=2).event(L1(1))
    return Release(values=values, event=event, question="q", request_id="r", **more)


def stored_and_read(made):
    return Release.from_bytes(made.to_bytes(), question="q", request_id="", free=True)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_cells_are_stored_as_they_are(count):
    cells = np.sort(np.array([(1 << 64) - 1 - k for k in range(count)], np.uint64))
    made = release(np.arange(count) - 2**60, cells=cells)
    found = stored_and_read(made)
    assert np.array_equal(found.cells, cells)
    assert np.array_equal(found.values, made.values)
    assert (found.event, found.request_id, found.keys) == (made.event, "r", None)


def test_many_numbers_are_stored_in_eight_bytes_each_and_few_as_text():
    many = release(np.arange(100_000).reshape(4, -1) - 2**62)
    assert len(many.to_bytes()) < 8 * 100_000 + 500
    assert np.array_equal(stored_and_read(many).values, many.values)
    assert release(np.arange(5)).to_bytes().startswith(b"{")
    assert stored_and_read(release(np.arange(5))).cells is None


@pytest.mark.parametrize("cut", [1, 8, 100])
def test_what_is_cut_off_cannot_be_read(cut):
    text = release(np.arange(9), cells=np.arange(9, dtype=np.uint64)).to_bytes()
    with pytest.raises(LedgerError):
        Release.from_bytes(text[:-cut], question="q", request_id="", free=True)


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 20), max_size=20), max_size=8), st.integers(1, 9))
def test_a_stream_is_counted_however_it_is_cut(batches, stretch):
    found = count_cells([np.array(b, np.uint64) for b in batches], stretch=stretch)
    expected = Counter(number for batch in batches for number in batch)
    assert dict(zip(*map(np.ndarray.tolist, found), strict=True)) == expected
    assert Fraction(int(found[1].sum())) == sum(map(len, batches))
