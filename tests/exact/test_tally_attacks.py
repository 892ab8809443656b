"""Attacks on exact answers: neighbouring tables that move a number further than is claimed, or rows
that decide between an answer and a failure. Each test is one attack; nothing here draws noise.
"""

from datetime import date, datetime
from fractions import Fraction
from types import MappingProxyType

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisegate as ng
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import (
    Filter,
    Fold,
    Folded,
    Join,
    JoinKind,
    Matching,
    PerUnit,
    Project,
    Table,
    Union,
)
from noisegate.algebra.tally import Distinct, Grouping, Keys, Sums, Term, Values
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.errors import NoisegateError, SourceError
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import Column, Kind, Step, TableDomain
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.query import Query
from noisegate.transforms.restrict import restrict
from refusals import about

ONE = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
FINE = Term(expression=Literal(1), grain=Fraction(1, 1000), low=0, high=1000)  # for weights
MOST = 1 << 63


def column(name, kind=Kind.TEXT, between=None, **more):
    bounds = None if between is None else tuple(map(Fraction, between))
    return Column(name=name, kind=kind, between=bounds, **more)


def table(*columns, unit="pid", name="t", **more):
    """A table; ``unit`` is a column, "row" where every row is one person, or None for public."""
    owner = None if unit is None else PrivacyUnit(column=None if unit == "row" else unit)
    return TableDomain(
        dataset="d",
        name=name,
        unit=owner,
        columns=MappingProxyType({each.name: each for each in columns}),
        **more,
    )


def opened(domain, rows, *others):
    """A source of one table, and of others given as (domain, rows)."""
    pairs = [(domain, rows), *others]
    return DuckDBSource({d.name: r for d, r in pairs}, {d.name: d for d, _ in pairs})


def grouping(name, *keys, expression=None, **more):
    return Grouping(name=name, expression=expression or Field(name), keys=keys, **more)


def counts(relation, *by, cap=None, terms=(ONE,)):
    return Query(Sums(relation=relation, by=by, terms=terms, rows_per_unit=cap))


def moved(query, source, other):
    """How far the sums are apart: in L1, and squared in L2, for the first term."""
    apart = np.abs(source.sums(query.tally)[0] - other.sums(query.tally)[0]).astype(object)
    return apart.sum(), (apart**2).sum()


def assert_claimed(query, source, other):
    l1, l2_squared = moved(query, source, other)
    assert l1 <= query.l1s[0].value
    assert l2_squared <= query.l2s[0].squared


def held(source, relation, expression, cap=10):
    found = source.keys(Keys(relation=relation, by=(("k", expression),), keys_per_unit=cap))
    keys = [key for (key,) in found.take(np.arange(found.counts.size))]
    return dict(zip(keys, found.counts.tolist(), strict=True))


# one row lies in one cell, and is one owner's


@pytest.fixture
def collated(tmp_path):
    """A DuckDB file with columns that compare without case."""

    def make(rows):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.duckdb"
        with duckdb.connect(str(file)) as engine:
            engine.execute("CREATE TABLE t (pid VARCHAR COLLATE NOCASE, w VARCHAR COLLATE NOCASE)")
            engine.executemany("INSERT INTO t VALUES (?, ?)", rows)
        return file

    return make


SPELLINGS = ("north", "North", "NORTH")


def test_a_collation_puts_no_row_into_two_cells(collated):
    domain = table(column("w"))
    query = counts(Table(domain), grouping("w", *SPELLINGS), cap=2)
    source = opened(domain, collated([("a", "north"), ("a", "North")]))
    assert source.sums(query.tally).tolist() == [[1, 1, 0]]


def test_a_collation_makes_no_two_owners_one(collated):
    domain = table(column("w"))
    query = counts(Table(domain), grouping("w", *SPELLINGS), cap=1, terms=(FINE,))
    small, large = [("a", "north")], [("A", "NORTH")] * 9
    assert_claimed(query, opened(domain, collated(small + large)), opened(domain, collated(small)))


def test_a_collation_does_not_choose_the_spelling_of_a_key(collated):
    domain = table(column("w"))
    source = opened(domain, collated([("a", "NORTH"), ("b", "north"), ("c", "north")]))
    assert held(source, Table(domain), Field("w")) == {"NORTH": 1, "north": 2}


def test_a_collation_leaves_the_parts_of_a_cut_disjoint(collated):
    domain = table(column("w", keys=SPELLINGS), unit="row")
    source = opened(domain, collated([("a", "North")]))
    query = counts(Table(domain))
    parts = [restrict(query, column="w", key=key) for key in SPELLINGS]
    assert [int(source.sums(part.tally)[0, 0]) for part in parts] == [0, 1, 0]


def test_texts_that_look_alike_are_different_keys():
    domain = table(column("w"))
    alike = ["é", "e\u0301", "E", "e", "e ", " e", "e\u200b"]
    source = opened(domain, pa.table({"pid": [1] * 7, "w": alike}))
    query = counts(Table(domain), grouping("w", *alike), cap=7)
    assert source.sums(query.tally).tolist() == [[1] * 7]


def test_the_cell_for_the_rest_is_not_taken_for_one_row():
    domain = table(column("w"))
    wards = PerUnit(Table(domain), (("w", Field("w")),), ())
    query = counts(wards, grouping("w", "north", rest=True), cap=5)
    rows = {"pid": [1] * 5, "w": list("abcde")}
    none = pa.table({name: values[:0] for name, values in rows.items()}).cast(pa.table(rows).schema)
    assert_claimed(query, opened(domain, pa.table(rows)), opened(domain, none))


@pytest.mark.parametrize("rest", [-1, 2, None, "yes"])
def test_a_grouping_has_a_rest_or_none(rest):
    domain = table(column("w"))
    with pytest.raises((NoisegateError, TypeError)):
        counts(Table(domain), grouping("w", "north", "south", rest=rest), cap=1)


def test_null_is_one_group_and_in_no_other():
    domain = table(column("w"))
    source = opened(domain, pa.table({"pid": [1, 1], "w": pa.array([None, "a"], pa.string())}))
    for rest in (False, True):
        query = counts(Table(domain), grouping("w", "a", None, rest=rest), cap=2)
        assert source.sums(query.tally)[0, :2].tolist() == [1, 1]


# bounds of a row


@pytest.mark.parametrize("high", [Fraction(7, 2), Fraction(1, 3), 1 << 70])
def test_whole_numbers_keep_within_bounds_that_are_not_whole(high):
    # an engine that rounds the bound would let a row through that the claim does not know
    term = Term(expression=Field("x"), grain=Fraction(7, 8), low=-4, high=4)
    try:
        domain = table(column("x", Kind.INTEGER, (-high, high)))
        query = counts(Table(domain), cap=1, terms=(term,))
    except NoisegateError:
        return
    source = opened(domain, pa.table({"pid": [1], "x": [100]}))
    assert abs(source.sums(query.tally)[0, 0]) <= query.l1s[0].value


@pytest.mark.parametrize("operation", ["int_divide", "modulo"])
def test_no_bound_hides_a_divisor_that_is_zero(operation):
    try:
        domain = table(column("x", Kind.INTEGER, (Fraction(1, 2), 9)))
    except NoisegateError:
        domain = table(column("x", Kind.INTEGER, (0, 9)))
    rest = Call(operation, (Literal(10), Field("x")))
    source = opened(domain, pa.table({"pid": [1], "x": [0]}))
    assert source.distinct(Distinct(relation=Table(domain), expression=rest, keys_per_unit=1)) == 0


GRAINS = [Fraction(n) for n in ("1", "3", "7/8", "1/3", "1/1073741824", f"{10**20}")]
WHOLES = [0, 1, -1, 5, 7, MOST - 1, -MOST, 1 << 53, None]
DOUBLES = [0.0, -0.0, 5e-324, 1e308, -1e308, np.inf, -np.inf, np.nan, 7.000000000000001, None]


@pytest.mark.parametrize("between", [None, (-5, 7), (0, 1 << 62)])
def test_no_stored_number_moves_a_sum_beyond_the_reach(between):
    domain = table(
        column("at", Kind.INTEGER), column("whole", Kind.INTEGER, between),
        column("double", Kind.NUMBER, between), unit="row",
    )  # fmt: skip
    source = opened(domain, pa.table({
        "at": range(10), "whole": pa.array([*WHOLES, None], pa.int64()), "double": DOUBLES,
    }))  # fmt: skip
    terms = tuple(
        Term(expression=Field(name), grain=grain, low=-9, high=4)
        for grain in GRAINS
        for name in ("whole", "double")
    )
    query = counts(Table(domain), grouping("at", *range(10)), terms=terms)
    assert np.abs(source.sums(query.tally)).max() <= 9
    assert {l1.value for l1 in query.l1s} == {9}


def test_weights_round_towards_zero_on_both_sides():
    # rounding down would give n rows of -1 the weight -1 each
    domain = table(column("x", Kind.INTEGER))
    term = Term(expression=Field("x"), grain=Fraction(1), low=-1, high=1)
    query = counts(Table(domain), cap=3, terms=(term,))
    for sign in (-1, 1):
        source = opened(domain, pa.table({"pid": [1] * 100, "x": [sign] * 100}))
        assert abs(source.sums(query.tally)[0, 0]) <= query.l1s[0].value


# no row decides between an answer and a failure


def test_a_sum_of_one_unit_that_could_leave_the_range_of_doubles_is_refused():
    """Up to the widest bounds that can be declared: no row decides whether a sum is infinite."""
    domain = table(column("x", Kind.NUMBER, (-(10**301), 10**301)))
    total = PerUnit(Table(domain), (), (Folded("s", Fold.SUM, Field("x")),))
    odd = Call("floor", (Call("modulo", (Field("s"), Literal(2))),))
    with pytest.raises(NoisegateError, check=about("range")):
        counts(total, terms=(Term(expression=odd, grain=Fraction(1), low=-2, high=2),))


def test_no_text_grows_without_end():
    # if it did, whoever holds the text would decide whether the engine runs out of memory
    domain = table(column("name"))
    seed = Call("case", (Call("eq", (Field("name"), Literal("alice"))), Literal("a"), Literal("")))
    relation = Project(Table(domain), (("x", seed),))
    for _ in range(20):
        doubled = Call("concat", (Field("x"), Field("x")))
        relation = PerUnit(relation, (), (Folded("x", Fold.MAX, doubled),))
    term = Term(expression=Call("length", (Field("x"),)), grain=Fraction(1), low=0, high=1 << 30)
    source = opened(domain, pa.table({"pid": [1], "name": ["alice"]}))
    assert source.sums(counts(relation, terms=(term,)).tally)[0, 0] < 1 << 16


@pytest.mark.parametrize("pair", [(Literal(1), Literal(1)), (Field("w"), Literal("a"))])
def test_joins_that_compare_nothing_are_few(pair):
    # else a public table would multiply the rows of whoever is left by a filter, again and again
    relation = Table(table(column("w")))
    for place in range(3):
        public = table(column(f"y{place}"), unit=None, name=f"p{place}")
        relation = Join(relation, Table(public), (pair,))
        counts(relation, cap=1)
    public = table(column("z"), unit=None, name="q")
    with pytest.raises(NoisegateError, check=about("growth"), match="3"):
        counts(Join(relation, Table(public), (pair,)), cap=1)


@pytest.mark.parametrize("text", ["a,b\n1,2\n3\n", 'a,b\n1,"2\n', "a,b\n1,2,3\n"])
def test_a_file_of_which_no_column_is_used_is_read_on_opening_too(tmp_path, text):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(SourceError):
        opened(table(unit="row"), file)


@pytest.mark.parametrize("name", ["t*.csv", "t[1].csv", "t?.csv"])
def test_a_file_is_not_taken_for_a_pattern(tmp_path, name):
    (tmp_path / name).write_text("pid\n1\n")
    (tmp_path / "t1.csv").write_text("pid\n2\n3\n")
    domain = table(column("pid"))
    try:
        source = opened(domain, tmp_path / name)
    except SourceError:
        return
    assert source.sums(counts(Table(domain), cap=1).tally).tolist() == [[1]]


TEXT_STEPS = ("lower", "upper", "trim", "ltrim", "rtrim")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_frame_with_texts_that_are_no_text_is_refused_or_answered(kind):
    width = np.int32 if kind == pa.string() else np.int64
    buffers = [None, pa.py_buffer(np.array([0, 1, 3], width).tobytes()), pa.py_buffer(b"a\xff\xfe")]
    rows = pa.table({"pid": [1, 2], "name": pa.Array.from_buffers(kind, 2, buffers)})
    domain = table(column("name"))
    try:
        source = opened(domain, rows)
    except SourceError:
        return
    for step in TEXT_STEPS:
        held(source, Table(domain), Call(step, (Field("name"),)))


ODD_TEXTS = [
    "1e400", "-1e400", "nan", "inf", "1_000", "0x10", " 7 ", "9" * 400, "infinity", "-infinity",
    "epoch", "now", "today", "290000-12-31", "0001-01-01 BC", "0000-00-00", "2020-02-30", "24:00:00",
    "2020-01-01 10:00:00 Europe/Berlin", "2020-01-01T00:00:00+14:59", "t", "yes", "", "\u200b", "😀",
]  # fmt: skip


@pytest.mark.parametrize("kind", list(Kind))
def test_no_text_makes_a_cast_fail(kind):
    # declared on reading, or asked for
    plain, read = table(column("x")), table(column("x", kind))
    rows = pa.table({"pid": range(len(ODD_TEXTS)), "x": ODD_TEXTS})
    cast = Call(f"to_{kind.value}", (Field("x"),))
    for domain, value in ((plain, cast), (read, Field("x"))):
        asked = Distinct(relation=Table(domain), expression=value, keys_per_unit=1)
        assert opened(domain, rows).distinct(asked)[0, 0] >= 0


STAMPS = [
    pa.array([0, 1 << 62, -(1 << 62), -MOST]).cast(pa.int64()).view(pa.timestamp(unit))
    for unit in ("s", "ms", "us", "ns")
]
DAYS = [
    pa.array([0, (1 << 31) - 1, -(1 << 31), 3_000_000], pa.int32()).view(pa.date32()),
    pa.array([0, 1 << 62, -(1 << 62), -MOST], pa.int64()).view(pa.date64()),
]


@pytest.mark.parametrize("values", [*STAMPS, *DAYS], ids=lambda values: str(values.type))
@pytest.mark.parametrize("kind", [Kind.DATE, Kind.TIMESTAMP, Kind.TEXT])
def test_no_moment_beyond_the_calendar_fails_after_opening(values, kind):
    domain = table(column("x", kind))
    try:
        source = opened(domain, pa.table({"pid": range(4), "x": values}))
    except NoisegateError:
        return
    for expression in (Field("x"), Call("to_text", (Field("x"),))):
        held(source, Table(domain), expression)


# the order of rows does not show


@pytest.mark.parametrize("fold", [None, Fold.MIN, Fold.MAX])
def test_which_zero_came_first_does_not_show(fold):
    domain = table(column("x", Kind.NUMBER))
    keys, folded = (((("x", Field("x")),), ()), ((), (Folded("x", fold or Fold.MIN, Field("x")),)))[
        fold is not None
    ]
    text = grouping("x", "0.0", "-0.0", expression=Call("to_text", (Field("x"),)))
    query = counts(PerUnit(Table(domain), keys, folded), text, cap=1)
    found = [
        opened(domain, pa.table({"pid": [1, 1], "x": zeros})).sums(query.tally).tolist()
        for zeros in ([0.0, -0.0], [-0.0, 0.0])
    ]
    assert found[0] == found[1]


def test_sums_within_a_unit_do_not_depend_on_the_order_of_rows():
    domain = table(column("x", Kind.NUMBER, (-(10**16), 10**16)))
    total = PerUnit(Table(domain), (), (Folded("s", Fold.SUM, Field("x")),))
    text = Call("to_text", (Field("s"),))
    values = [1e16, 1.0, -1e16, 0.1, 3.3, -7e15]
    found = [
        held(opened(domain, pa.table({"pid": [1] * 6, "x": order})), total, text)
        for order in (values, values[::-1], sorted(values))
    ]
    assert found[0] == found[1] == found[2]


# whose rows they are


def test_a_row_whose_key_names_two_owners_counts_for_each_within_the_cap():
    visits = table(column("vid", Kind.INTEGER), name="visits")
    taken = table(
        column("vid", Kind.INTEGER), path=(Step(column="vid", table="visits", key="vid"),)
    )
    query = counts(Table(taken), cap=2, terms=(FINE,))
    rows = pa.table({"vid": [7] * 9})
    both = pa.table({"pid": [1, 1, 1, 2], "vid": [7, 7, 7, 7]})
    one = pa.table({"pid": [2], "vid": [7]})
    source, other = (opened(taken, rows, (visits, each)) for each in (both, one))
    assert_claimed(query, source, other)
    assert moved(query, source, other)[0] > 0


def test_a_unit_may_be_several_hops_away():
    visits = table(column("vid", Kind.INTEGER), name="visits")
    last = Step(column="visit", table="visits", key="vid")
    taken = table(
        column("visit", Kind.INTEGER), column("tid", Kind.INTEGER), name="taken", path=(last,)
    )
    given = table(path=(Step(column="tablet", table="taken", key="tid"), last))
    source = opened(
        given, pa.table({"tablet": [5, 5, 6, None]}),
        (taken, pa.table({"visit": [7, 8], "tid": [5, 6]})),
        (visits, pa.table({"pid": pa.array([1, None], pa.int64()), "vid": [7, 8]})),
    )  # fmt: skip
    assert source.sums(counts(Table(given), cap=9).tally).tolist() == [[2]]


def test_ids_that_differ_stay_apart_in_every_type():
    wide = [(1 << 53) + 1, 1 << 53]  # one double
    kinds = [
        (pa.int64(), wide), (pa.uint64(), [MOST, MOST + 1]), (pa.string(), ["7", "07"]),
        (pa.large_string(), ["a", "A"]), (pa.dictionary(pa.int8(), pa.string()), ["é", "e\u0301"]),
    ]  # fmt: skip
    for kind, ids in kinds:
        domain = table(column("w"))
        source = opened(domain, pa.table({"pid": pa.array(ids, kind), "w": ["a", "a"]}))
        assert held(source, Table(domain), Field("w")) == {"a": 2}


def test_a_hidden_id_lends_its_name_to_no_other_column():
    # the public column is called like the hidden id; grouping by it is not grouping by unit
    domain = table(column("code"), column("pid", Kind.INTEGER, hidden=True))
    public = table(column("c"), column("pid", Kind.INTEGER), unit=None, name="p")
    joined = Join(Table(domain), Table(public), ((Field("code"), Field("c")),))
    with pytest.raises(NoisegateError):
        counts(PerUnit(joined, (("pid", Field("pid")),), ()))


def test_a_name_that_an_engine_folds_opens_no_other_column(tmp_path):
    file, names = tmp_path / "t.parquet", ["pid", "a", "A", "A_1"]
    pq.write_table(pa.table([[1], ["x"], ["secret"], ["y"]], names=names), file)
    domain = table(column("A_1"))
    for rows in (file, pq.read_table(file)):
        try:
            source = opened(domain, rows)
        except NoisegateError:
            continue
        assert held(source, Table(domain), Field("A_1")) == {"y": 1}


@pytest.mark.parametrize("row", [2.5, "x", 1 << 63, date(2020, 1, 1)])
def test_no_row_decides_which_columns_a_frame_has(row):
    sql, told = "SELECT x, COUNT(*) AS n FROM t GROUP BY x", []
    for rows in ([1, 2], [1, 2, row]):
        frame = pd.DataFrame({"x": pd.Series(rows, dtype=object)})
        try:
            gate = ng.open(frame, table="t", epsilon=1, delta="1e-6")
        except NoisegateError:
            return  # told to the steward alone
        try:
            told.append(gate.plan(sql, epsilon="0.1").expected.columns)
        except NoisegateError as error:
            told.append(str(error))
    assert told[0] == told[1]


# claims about trees


def test_public_keys_that_become_equal_on_reading_are_refused():
    stamps = pa.array([1, 2], pa.int64()).view(pa.timestamp("ns"))  # one microsecond holds both
    cases = [
        (column("k", Kind.TIMESTAMP), stamps), (column("k", Kind.INTEGER, (0, 5)), pa.array([7, 9])),
        (column("k", Kind.NUMBER), pa.array([0.0, -0.0])), (column("k", Kind.INTEGER), pa.array(["1", "01"])),
        (column("k", Kind.BOOLEAN), pa.array(["t", "true"])),
    ]  # fmt: skip
    for each, values in cases:
        domain = table(each, unit=None, name="p", key=("k",))
        with pytest.raises(NoisegateError):
            opened(domain, pa.table({"k": values}))


def test_a_union_of_columns_that_are_read_otherwise_is_not_one_row_of_a_unit():
    one = table(column("pid", Kind.INTEGER, (0, 10)), name="a")
    other = table(column("pid", Kind.INTEGER), name="b")
    both = Union((Table(one), Table(other)))
    try:
        query = counts(PerUnit(both, (("pid", Field("pid")),), ()))
    except NoisegateError:
        return
    full, none = pa.table({"pid": [12]}), pa.table({"pid": pa.array([], pa.int64())})
    assert_claimed(query, opened(one, full, (other, full)), opened(one, none, (other, none)))


@pytest.mark.parametrize("step", ["plain", "filter", "project", "left", "match"])
def test_one_row_per_cell_holds_through_every_step_that_keeps_it(step):
    domain = table(column("w"), column("x", Kind.INTEGER))
    public = table(column("k"), column("z", Kind.INTEGER), unit=None, name="p", key=("k",))
    rows = PerUnit(Table(domain), (("w", Field("w")),), (Folded("n", Fold.COUNT, Literal(1)),))
    relation = {
        "plain": rows,
        "filter": Filter(rows, Call("ge", (Field("n"), Literal(1)))),
        "project": Project(rows, (("w", Field("w")), ("m", Field("n")))),
        "left": Join(rows, Table(public), ((Field("w"), Field("k")),), JoinKind.LEFT),
        "match": Matching(rows, Project(Table(domain), (("v", Field("w")),)), ((Field("w"), Field("v")),)),
    }[step]  # fmt: skip
    query = counts(relation, grouping("w", *"abcdefgh"), cap=4)
    assert query.l2s[0].squared == 4
    shown = (public, pa.table({"k": ["a", "b"], "z": [1, 2]}))
    people = pa.table({"pid": [1] * 16 + [2], "w": [*"abcdefgh" * 2, "a"], "x": range(17)})
    for cut in (8, 16):
        source = opened(domain, people.slice(16 - cut), shown)
        assert_claimed(query, source, opened(domain, people.slice(16), shown))


@pytest.mark.parametrize("tally", ["values", "keys", "distinct"])
def test_a_unit_with_a_million_values_still_gives_its_cap(tally):
    domain = table(column("x", Kind.INTEGER))
    many = pa.table({"pid": np.ones(1_000_000, np.int64), "x": np.arange(1_000_000)})
    source = opened(domain, many)
    term = Term(expression=Field("x"), grain=Fraction(1), low=0, high=1 << 20)
    if tally == "values":
        (values,) = source.values(Values(relation=Table(domain), term=term, rows_per_unit=7))
        assert values.size == 7
    elif tally == "keys":
        assert len(held(source, Table(domain), Field("x"), cap=7)) == 7
    else:
        asked = Distinct(relation=Table(domain), expression=Field("x"), keys_per_unit=7)
        assert source.distinct(asked).tolist() == [[7]]


# disguises at the door


def test_a_fold_is_one_of_the_folds():
    # another word could mean one thing to the rule of domains and another to the writer
    domain = table(column("w"))
    relation = PerUnit(Table(domain), (), (Folded("n", Kind.INTEGER, Literal(1)),))
    with pytest.raises(NoisegateError):
        counts(relation)


class Agreeable:
    """A unit that equals every other, and says that every row is one person."""

    column, noun = None, "person"
    __hash__ = None

    def __eq__(self, other):
        return True


class TwoFaced(tuple):
    """Keys that are the owner's alone for the first looks, and others for the writer."""

    __slots__ = ()
    looks, honest = 0, 0

    def __iter__(self):
        type(self).looks += 1
        return iter((("k", Field("pid" if self.looks <= self.honest else "w")),))


PEOPLE = table(column("pid", Kind.INTEGER), column("w"))
CROWD = pa.table({"pid": [1] * 50, "w": [f"w{i}" for i in range(50)]})


def door():
    ledger = open_ledger(":memory:")
    ledger.open_account(
        "d", parent=None, accountant="pure", budget=ApproxDP(10**6), unit=str(PEOPLE.unit)
    )
    return Curator(source=opened(PEOPLE, CROWD), tables={"t": PEOPLE}, ledger=ledger, account="d")


def released(query):
    """What the door says with next to no noise, in multiples of the claimed sensitivity."""
    noise = Geometric.for_epsilon(100, sensitivity=query.l1s[0])
    release = door().measure(Measurement(query=query, mechanisms=(noise,)))
    return int(release.values[0, 0]) / query.l1s[0].value  # noqa: PD011 - a release, no frame


def test_a_table_that_equals_everything_is_not_behind_the_door():
    with pytest.raises((NoisegateError, TypeError)):
        disguised = TableDomain(dataset="d", name="t", unit=Agreeable(), columns=PEOPLE.columns)
        assert released(counts(Table(disguised))) <= 2


@pytest.mark.parametrize("honest", range(12))
def test_keys_that_change_their_minds_are_refused(honest):
    TwoFaced.looks, TwoFaced.honest = 0, honest
    with pytest.raises(NoisegateError):
        assert released(counts(PerUnit(Table(PEOPLE), TwoFaced(((),)), ()))) > 2


def test_a_measurement_keeps_its_noise():
    query = counts(Table(PEOPLE), cap=1)
    noises = [Geometric.for_epsilon("0.1", sensitivity=query.l1s[0])]
    try:
        asked = Measurement(query=query, mechanisms=noises)
    except NoisegateError:
        return
    before = asked.event()
    noises[0] = Geometric.for_epsilon(100, sensitivity=query.l1s[0])
    assert asked.event() == before


# one text for one question


def questions():
    nulls = [Literal(None, kind) for kind in Kind]
    values = [
        True, False, 0, 1, Fraction(1), Fraction(0), "1", "true", "0", "", "null", "None",
        date(2020, 1, 1), datetime(2020, 1, 1), "2020-01-01", "2020-01-01 00:00:00",  # noqa: DTZ001
        Fraction(1, 3), "1/3",
    ]  # fmt: skip
    domain = table(column("w"), column("field"), column("text"))
    for value in [*map(Literal, values), *nulls, Field("w"), Field("field"), Field("text")]:
        yield counts(Filter(Table(domain), Call("is_null", (value,))), cap=1)
    for by in ((), (grouping("w"),)[:0], (grouping("w", "a"),), (grouping("w", "a", None),),
               (grouping("w", "a", "None"),), (grouping("w", "a", rest=True),)):  # fmt: skip
        yield counts(Table(domain), *by, cap=1) if by else counts(Table(domain), cap=2)
    for name in ("pid", "w"):
        owned = table(column("w"), unit=name)
        yield counts(PerUnit(Table(owned), (("w", Field("w")),), ()), cap=1)


def test_different_questions_have_different_texts():
    texts = [
        Measurement(
            query=query, mechanisms=(Geometric.for_epsilon(1, sensitivity=query.l1s[0]),)
        ).question()
        for query in questions()
    ]
    assert len(texts) - len(set(texts)) == 1  # the question without groups stands there twice


def test_a_release_keeps_the_type_of_every_key():
    keys = [
        True, 1, "1", None, "", date(1, 1, 1), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        "2020-01-01", MOST - 1, -MOST + 1, "\u2028", '{"date": "2020-01-01"}',
    ]  # fmt: skip
    event = DeclaredEvent(epsilon=Fraction(1))
    release = Release(
        values=np.arange(len(keys)), event=event, question="q", request_id="r",
        keys=tuple((key,) for key in keys),
    )  # fmt: skip
    again = Release.from_bytes(release.to_bytes(), question="q", request_id="r", free=True)
    assert [(type(key), key) for (key,) in again.keys] == [(type(key), key) for key in keys]
    assert again.values.tolist() == release.values.tolist()  # noqa: PD011 - releases
