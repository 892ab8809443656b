"""Exact numbers from a real engine, beside numbers found by hand or by a slow twin."""

from collections import defaultdict
from contextlib import suppress
from datetime import date, datetime
from fractions import Fraction
from hashlib import sha256
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from door import FINE, ONE, by, field, table
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
from noisegate.algebra.tally import Distinct, Keys, Sums, Term, Values
from noisegate.errors import SpecError
from noisegate.privacy.domain import Column, Kind, Step
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.query import Query
from noisegate.transforms.restrict import restrict

PEOPLE = table("people", "pid", ("pid", Kind.INTEGER), Column(name="ward", keys=("north", "south")))
VISITS = table("visits", "who", ("vid", Kind.INTEGER), ("who", Kind.INTEGER), ("code", Kind.TEXT),
               ("cost", Kind.NUMBER), ("day", Kind.DATE))  # fmt: skip
TAKEN = table("taken", "who", ("visit", Kind.INTEGER), ("dose", Kind.INTEGER),
              path=(Step(column="visit", table="visits", key="vid"),))  # fmt: skip
DRUGS = table("drugs", "public", ("name", Kind.TEXT), ("price", Kind.INTEGER), key=("name",))
TABLES = {each.name: each for each in (PEOPLE, VISITS, TAKEN, DRUGS)}

P, V, T, D = map(Table, (PEOPLE, VISITS, TAKEN, DRUGS))
NORTH, ANY = by("ward", "north", "south", None), ("a", "b", "c")
DATA = {
    "people": pa.table({
        "pid": pa.array([1, 2, 2, 3, None], pa.int64()),
        "ward": ["north", "north", "south", None, "north"],
    }),
    "visits": pa.table({
        "vid": pa.array([10, 11, 12, 13, 14, 15, 15, None], pa.int64()),
        "who": pa.array([1, 1, 1, 2, None, 2, 4, 4], pa.int64()),
        "code": ["a", "b", "a", "a", "a", None, "b", "c"],
        "cost": [1.5, -2.5, float("nan"), 100.0, 7.0, 3.0, None, float("inf")],
        "day": [date(2020, 1, 1)] * 4 + [None] * 4,
    }),
    "taken": pa.table({
        "visit": pa.array([10, 10, 12, 13, 14, 15, None, 99], pa.int64()),
        "dose": pa.array([1, 2, 3, 4, 5, 6, 7, 8], pa.int64()),
    }),
    "drugs": pa.table({"name": ["a", "b", None], "price": [5, 7, 9]}),
}  # fmt: skip


@pytest.fixture(scope="module")
def source():
    return DuckDBSource(DATA, TABLES)


def sums(source, relation, *groups, terms=(ONE,), cap=None):
    query = Query(Sums(relation=relation, by=groups, terms=terms, rows_per_unit=cap))
    return source.sums(query.tally).tolist()


def values(source, relation, *groups, term, cap=None):
    query = Query(Values(relation=relation, by=groups, term=term, rows_per_unit=cap))
    return [sorted(cell.tolist()) for cell in source.values(query.tally)]


def keys(source, relation, *names, cap):
    shown = tuple((name, Field(name)) for name in names)
    held = source.keys(Query(Keys(relation=relation, by=shown, keys_per_unit=cap)).tally)
    return dict(zip(held.take(np.arange(held.counts.size)), held.counts.tolist(), strict=True))


def distinct(source, relation, *groups, of, cap):
    tally = Distinct(relation=relation, by=groups, expression=Field(of), keys_per_unit=cap)
    return source.distinct(Query(tally).tally)[0].tolist()


def rows_of(count_of, value=1.0, name="x"):
    """A table t(u, x): for each unit so many rows; and a source of it."""
    units = [unit for unit, count in count_of.items() for _ in range(count)]
    here = table("t", "u", (name, Kind.NUMBER))
    data = pa.table({"u": pa.array(units, pa.string()), name: [value] * len(units)})
    return DuckDBSource({"t": data}, {"t": here}), Table(here)


# sums


def test_counts_are_of_rows_that_have_an_owner(source):
    assert sums(source, P, cap=9) == [[4]]
    assert sums(source, V, cap=9) == [[7]]


def test_cells_are_all_combinations_with_the_last_varying_fastest(source):
    groups = (by("ward", "south", "north", None), by("pid", 1, 2))
    assert sums(source, P, *groups, cap=9) == [[0, 1, 1, 1, 0, 0]]


def test_a_row_whose_value_is_no_key_is_in_no_cell(source):
    assert sums(source, P, by("ward", "south", "east"), cap=9) == [[1, 0]]
    assert sums(source, V, by("day", date(2020, 1, 1), None), cap=9) == [[4, 3]]
    assert sums(source, P, by("ward", None), cap=9) == [[1]]


def test_several_terms_are_added_in_one_pass_and_missing_values_add_nothing(source):
    terms = (ONE, field("cost", low=-100), field("cost", Fraction(1, 2), low=-100, high=300))
    # 1.5, -2.5, 100, 3; halves are rounded to even numbers
    assert sums(source, V, terms=terms, cap=9) == [[7], [2 - 2 + 100 + 3], [3 - 5 + 200 + 6]]


@pytest.mark.parametrize(
    ("low", "high", "total"),
    [(0, 10, 2 + 0 + 10 + 3), (2, 2, 8), (-1, 1, 2), (50, 60, 50 * 3 + 60)],
)
def test_the_clamp_is_the_last_step_before_the_sum(low, high, total, source):
    assert sums(source, V, terms=(field("cost", low=low, high=high),), cap=9) == [[total]]


def test_constants_are_clamped_and_rounded_too(source):
    half = Term(expression=Literal(Fraction(7, 2)), grain=Fraction(1), low=0, high=3)
    wide = Term(expression=Literal(5), grain=Fraction(1, 10), low=-99, high=99)
    nothing = Term(expression=Literal(None, Kind.INTEGER), grain=Fraction(1), low=5, high=9)
    assert sums(source, P, terms=(half, wide, nothing), cap=9) == [[12], [200], [0]]


def test_no_value_is_beyond_its_terms_bounds():
    random, columns, terms = Random(7), [], []
    for place in range(120):
        low, high = (Fraction(random.randint(-60, 60), random.choice([1, 2, 3])) for _ in range(2))
        kind = random.choice([Kind.INTEGER, Kind.NUMBER])
        with suppress(SpecError):  # bounds out of order, or not whole where they must be
            columns.append(Column(name=f"x{place}", kind=kind, between=(low, high)))
            grain = Fraction(random.randint(1, 9), random.randint(1, 9))
            least, most = (
                round(low / grain - random.random()),
                round(high / grain + random.random()),
            )
            terms.append(field(f"x{place}", grain, least, max(most, 1)))
    values = [-(10**6), -41, -1, 0, 1, 2, 41, 10**6, None]
    for stored in (pa.int64(), pa.float64()):
        column = pa.array(values, stored)
        data = pa.table({"k": list(range(9)), **{each.name: column for each in columns}})
        here = table("t", None, ("k", Kind.INTEGER), *columns)
        source = DuckDBSource({"t": data}, {"t": here})
        found = sums(source, Table(here), by("k", *range(9)), terms=tuple(terms))
        for term, sum_of in zip(terms, found, strict=True):
            assert sum_of.pop() == 0
            assert all(term.low <= value <= term.high for value in sum_of)


def test_whole_numbers_with_bounds_that_are_not_whole_stay_within_their_term():
    try:
        column = Column(name="x", kind=Kind.INTEGER, between=(Fraction(0), Fraction(3, 2)))
    except SpecError:
        return  # refused: that is as good
    here = table("t", None, column)
    source = DuckDBSource({"t": pa.table({"x": [2]})}, {"t": here})
    assert sums(source, Table(here), terms=(field("x", Fraction(3, 4), 0, 2),))[0][0] <= 2


# weights


def test_a_units_rows_weigh_at_most_the_cap_together():
    source, rows = rows_of({"a": 1, "b": 2, "c": 3, "d": 1000})
    assert sums(source, rows, terms=(FINE,), cap=2) == [[1024 + 3 * 2 * 1024]]
    assert sums(source, rows, cap=2) == [[1 + 2 + 2 + 2]]


@pytest.mark.parametrize("value", [7, -7, 1, -1, 0])
def test_weighted_values_are_rounded_towards_zero(value):
    source, rows = rows_of({"a": 3}, value=float(value))
    moved = int(Fraction(2 * 3 * value, 3))  # int() cuts towards zero
    assert sums(source, rows, terms=(field("x", low=-9, high=9), ONE), cap=2) == [[moved], [2]]
    halves = int(Fraction(8 * 3 * value, max(8, 3 * abs(value))))
    assert sums(source, rows, terms=(field("x", low=-8, high=8),), cap=1) == [[halves]]


def test_rows_outside_all_cells_have_no_share_of_the_weight_and_those_without_a_value_in_counts(
    source,
):
    costs = field("cost", Fraction(1, 100), low=-(10**6), high=10**6)
    assert sums(source, V, by("code", "b"), terms=(costs,), cap=1) == [[-250]]
    assert sums(source, V, by("code", "a"), terms=(costs,), cap=1) == [[150 + 10_000]]
    fine = Term(expression=Literal(1), grain=Fraction(1, 8), low=0, high=8)
    # of unit 1 there are 1.5 and a missing value in a; of unit 2 there is 100
    both = sums(source, V, by("code", "a"), terms=(costs, fine), cap=1)
    assert both == [[75 + 10_000], [8 + 8]]


def test_random_weights_are_those_of_a_slow_twin():
    random = Random(20_240_517)
    rows = [
        (random.choice("abcde"), random.choice("kl"), random.randint(-50, 50)) for _ in range(200)
    ]
    rows += [("f", "k", -3), (None, "k", 50)]
    here = table("t", "u", ("k", Kind.TEXT), ("x", Kind.INTEGER))
    columns = dict(zip(("u", "k", "x"), map(list, zip(*rows, strict=True)), strict=True))
    source = DuckDBSource({"t": pa.table(columns)}, {"t": here})
    for cap in (1, 3, 20, 100):
        added, expected = defaultdict(lambda: {"k": 0, "l": 0}), {"k": 0, "l": 0}
        for unit, key, x in rows:
            if unit is not None:
                added[unit][key] += max(-20, min(30, x))
        for vector in added.values():
            norm = sum(map(abs, vector.values()))
            weight = min(Fraction(1), Fraction(cap * 30, max(1, norm)))
            for key, number in vector.items():
                expected[key] += int(number * weight)
        found = sums(
            source, Table(here), by("k", "k", "l"), terms=(field("x", low=-20, high=30),), cap=cap
        )
        assert found == [[expected["k"], expected["l"]]]


def test_rows_without_an_owner_move_nothing():
    here = table("t", "u", ("k", Kind.TEXT))
    found = []
    for extra in (0, 50):
        data = pa.table({"u": ["a", "a", *[None] * extra], "k": ["x", "y", *["x"] * extra]})
        source, rows = DuckDBSource({"t": data}, {"t": here}), Table(here)
        found.append((
            sums(source, rows, by("k", "x", "y"), cap=1), keys(source, rows, "k", cap=2),
            distinct(source, rows, of="k", cap=2),
        ))  # fmt: skip
    assert found[0] == found[1]


# values


def test_values_are_those_of_each_cell_without_the_missing_ones(source):
    costs = field("cost", low=-50, high=50)
    assert values(source, V, by("code", "a", "b", "z", None), term=costs, cap=9) == [
        [2, 50], [-2], [], [3],
    ]  # fmt: skip
    assert values(source, V, term=costs, cap=9) == [[-2, 2, 3, 50]]


@pytest.mark.parametrize("owner", ["a", "b", "e"])
@pytest.mark.parametrize("cap", [1, 2, 3, 4, 10])
def test_of_many_values_those_at_even_steps_are_kept_from_a_start_of_the_owners(cap, owner):
    here = table("t", "u", ("x", Kind.INTEGER))
    numbers = [7, 3, 9, 1, 0, 5, 2, 8, 6, 4]
    data = pa.table({"u": [owner] * 10 + ["other"], "x": [*numbers, 77]})
    source = DuckDBSource({"t": data}, {"t": here})
    digits = sha256(owner.encode()).hexdigest()[:8]
    start = 10 * sum(1 << at for at, digit in enumerate(digits) if digit >= "8") // 256
    kept = [i - 1 for i in range(1, 11) if cap >= 10 or (i * cap + start) % 10 < cap]
    assert len(kept) == cap
    assert values(source, Table(here), term=field("x"), cap=cap) == [[*kept, 77]]


def test_values_of_a_unit_are_capped_over_all_cells_together():
    here = table("t", "u", ("k", Kind.INTEGER), ("x", Kind.INTEGER))
    data = pa.table({"u": ["a"] * 40, "k": list(range(4)) * 10, "x": list(range(40))})
    source = DuckDBSource({"t": data}, {"t": here})
    found = values(source, Table(here), by("k", 0, 1, 2, 3), term=field("x"), cap=8)
    assert [len(cell) for cell in found] == [2, 2, 2, 2]
    some = values(source, Table(here), by("k", 3), term=field("x"), cap=8)
    assert len(some[0]) == 8  # what is in no cell takes no place


# keys and distinct values


def test_a_key_counts_its_owners_not_their_rows(source):
    assert keys(source, V, "code", cap=9) == {("a",): 2, ("b",): 2, ("c",): 1, (None,): 1}
    pairs = keys(source, V, "code", "day", cap=9)
    assert {pair: n for pair, n in pairs.items() if None not in pair} == {
        ("a", date(2020, 1, 1)): 2, ("b", date(2020, 1, 1)): 1,
    }  # fmt: skip


def test_of_many_keys_the_same_few_are_kept_whatever_others_hold():
    here = table("t", "u", ("k", Kind.INTEGER))
    wanted = {"u": ["a"] * 50, "k": list(range(50))}
    alone = DuckDBSource({"t": pa.table(wanted)}, {"t": here})
    kept = keys(alone, Table(here), "k", cap=7)
    assert (len(kept), set(kept.values())) == (7, {1})
    more = {"u": ["b"] * 50 + wanted["u"] + ["c"] * 9, "k": [*range(50), *wanted["k"], *range(9)]}
    crowd = DuckDBSource({"t": pa.table(more)}, {"t": here})
    only = Filter(Table(here), Call("ge", (Field("k"), Literal(0))))
    together = keys(crowd, only, "k", cap=7)
    assert set(kept) <= set(together)
    assert sum(together.values()) == 21


def test_units_do_not_all_keep_the_same_keys():
    here = table("t", "u", ("k", Kind.INTEGER))
    data = {"u": [str(u) for u in range(30) for _ in range(50)], "k": list(range(50)) * 30}
    found = keys(DuckDBSource({"t": pa.table(data)}, {"t": here}), Table(here), "k", cap=1)
    assert len(found) > 5  # each keeps 1 of 50; fewer than 6 different ones has odds below 1e-20


def test_rows_that_are_persons_hold_one_key_each():
    here = table("t", None, ("k", Kind.TEXT), ("at", Kind.TIMESTAMP))
    noon = datetime(2020, 5, 17, 12)  # noqa: DTZ001 - times in tables have no zone
    data = pa.table({"k": ["x", "x", "y", None], "at": pa.array([noon, noon, None, noon])})
    source = DuckDBSource({"t": data}, {"t": here})
    assert keys(source, Table(here), "k", cap=1) == {("x",): 2, ("y",): 1, (None,): 1}
    pairs = {("x", noon): 2, ("y", None): 1, (None, noon): 1}
    assert keys(source, Table(here), "k", "at", cap=1) == pairs
    assert distinct(source, Table(here), of="k", cap=1) == [2]


def test_distinct_values_are_counted_once_per_cell(source):
    assert distinct(source, V, of="code", cap=9) == [3]
    assert distinct(source, V, by("who", 1, 2, 4), of="code", cap=9) == [2, 1, 2]
    assert distinct(source, V, by("who", 1, 2, 4), of="code", cap=1) == [1, 1, 1]


# relations


def test_a_foreign_key_gives_rows_to_the_owners_it_names(source):
    doses = field("dose")
    # visit 14 is nobody's, 15 belongs to 2 and to 4, 99 is no visit
    assert sums(source, T, terms=(ONE, doses), cap=9) == [[6], [1 + 2 + 3 + 4 + 6 + 6]]
    per = PerUnit(
        T, (), (Folded("n", Fold.COUNT, Field("dose")), Folded("d", Fold.MAX, Field("dose")))
    )
    assert values(source, per, term=field("n")) == [[1, 2, 3]]
    assert values(source, per, term=field("d")) == [[3, 6, 6]]


def test_private_rows_join_with_their_owners_only(source):
    joined = Join(P, V, ((Literal(1), Literal(1)),))
    # 1: one row with three visits, 2: two with two, 3 and 4 have no partner
    assert sums(source, joined, by("who", 1, 2, 4), cap=99) == [[3, 4, 0]]
    same = Join(P, V, ((Field("ward"), Field("code")),))
    assert sums(source, same, cap=9) == [[0]]


def test_a_left_join_keeps_the_owner_of_the_left(source):
    left = Join(P, V, ((Field("pid"), Field("who")),), JoinKind.LEFT)
    assert sums(source, left, by("who", 1, 2, None), cap=99) == [[3, 4, 1]]
    assert sums(source, left, by("pid", 1, 2, 3), cap=99) == [[3, 4, 1]]


def test_a_public_partner_is_everybodys(source):
    inner = Join(V, D, ((Field("code"), Field("name")),))
    assert sums(source, inner, terms=(ONE, field("price")), cap=9) == [[5], [5 * 3 + 7 * 2]]
    other = Join(D, V, ((Field("name"), Field("code")),))
    assert sums(source, other, by("who", 1, 2, 4), cap=9) == [[3, 1, 1]]
    left = Join(V, D, ((Field("code"), Field("name")),), JoinKind.LEFT)
    assert sums(source, left, terms=(ONE, field("price")), cap=9) == [[7], [29]]


def test_matching_looks_at_the_units_own_rows(source):
    assert sums(source, Matching(P, V, ()), by("pid", 1, 2, 3), cap=9) == [[1, 2, 0]]
    assert sums(source, Matching(P, V, (), negated=True), by("pid", 1, 2, 3), cap=9) == [[0, 0, 1]]
    ward = ((Field("ward"), Literal("north")),)
    assert sums(source, Matching(V, P, ((Literal("north"), Field("ward")),)), cap=9) == [[5]]
    assert sums(source, Matching(P, V, ward, negated=True), by("pid", 1, 2, 3), cap=9) == [
        [0, 1, 1]
    ]


def test_matching_with_a_public_table_is_a_condition_and_null_matches_nothing(source):
    on = ((Field("code"), Field("name")),)
    assert sums(source, Matching(V, D, on), by("code", *ANY, None), cap=9) == [[3, 2, 0, 0]]
    assert sums(source, Matching(V, D, on, negated=True), by("code", *ANY, None), cap=9) == [
        [0, 0, 1, 1]
    ]


def test_a_union_keeps_all_rows_and_their_owners(source):
    parts = (Project(P, (("x", Field("pid")),)), Project(V, (("x", Field("who")),)))
    assert sums(source, Union(parts), by("x", 1, 2, 3, 4), cap=99) == [[4, 4, 1, 2]]
    assert sums(source, Union(parts), by("x", 1, 2, 3, 4), terms=(FINE,), cap=2) == [
        [4 * 512, 4 * 512, 1024, 2 * 1024]
    ]


def test_folds_ignore_missing_values_and_a_sum_over_none_is_zero():
    bounds = Column(name="x", kind=Kind.NUMBER, between=(Fraction(-10), Fraction(10)))
    here = table("t", "u", ("u", Kind.INTEGER), bounds, ("k", Kind.TEXT))
    data = pa.table({
        "u": [1, 1, 1, 2, 2, 4], "x": [1.5, -2.5, float("nan"), 100.0, 3.0, None],
        "k": ["a", "b", "a", "a", None, None],
    })  # fmt: skip
    source = DuckDBSource({"t": data}, {"t": here})
    folds = {
        "rows": (Fold.COUNT, Literal(1)), "values": (Fold.COUNT, Field("x")),
        "kinds": (Fold.COUNT_DISTINCT, Field("k")), "total": (Fold.SUM, Field("x")),
        "most": (Fold.MAX, Field("x")), "least": (Fold.MIN, Field("x")),
    }  # fmt: skip
    folded = tuple(Folded(name, fold, value) for name, (fold, value) in folds.items())
    per = PerUnit(Table(here), (("u", Field("u")),), folded)
    halves = tuple(field(name, Fraction(1, 2), low=-99, high=99) for name in folds)
    found = sums(source, per, by("u", 1, 2, 3, 4), terms=halves)
    assert dict(zip(folds, found, strict=True)) == {
        "rows": [6, 4, 0, 2],
        "values": [4, 4, 0, 0],
        "kinds": [4, 2, 0, 0],
        "total": [-2, 26, 0, 0],
        "most": [3, 20, 0, 0],
        "least": [-5, 6, 0, 0],
    }


def test_a_sum_beyond_64_bits_is_missing_and_stops_nothing():
    here = table("t", "u", ("x", Kind.INTEGER))
    data = pa.table({"u": [1, 1, 2], "x": [2**62, 2**62, 3]})
    source = DuckDBSource({"t": data}, {"t": here})
    per = PerUnit(Table(here), (), (Folded("s", Fold.SUM, Field("x")),))
    assert sums(source, per, terms=(ONE, field("s", high=9))) == [[2], [3]]


def test_groups_per_unit_are_rows_of_units_and_groups(source):
    per = PerUnit(V, (("code", Field("code")),), (Folded("n", Fold.COUNT, Literal(1)),))
    assert sums(source, per, by("code", *ANY, None), cap=9) == [[2, 2, 1, 1]]
    # 1, 2 and 4 have two groups each
    assert sums(source, per, by("code", *ANY, None), terms=(FINE,), cap=1) == [
        [1024, 1024, 512, 512]
    ]


def test_restricted_questions_are_about_disjoint_rows(source):
    query = Query(Sums(relation=P, terms=(ONE,), rows_per_unit=9))
    parts = [restrict(query, column="ward", key=key) for key in ("north", "south")]
    assert [source.sums(part.tally).tolist() for part in parts] == [[[2]], [[1]]]
    both = restrict(parts[0], column="ward", key="south")
    assert source.sums(both.tally).tolist() == [[0]]


def test_ids_of_different_types_are_compared_as_text_and_never_rounded():
    one = table("one", "id", ("a", Kind.INTEGER))
    two = table("two", "id", ("b", Kind.INTEGER))
    data = {
        "one": pa.table({"id": [1, 2**53, 2**53 + 1], "a": [1, 2, 3]}),
        "two": pa.table({"id": ["1", "01", "1.0", str(2**53 + 1)], "b": [1, 2, 3, 4]}),
    }
    source = DuckDBSource(data, {"one": one, "two": two})
    joined = Join(Table(one), Table(two), ((Literal(1), Literal(1)),))
    assert sums(source, joined, by("a", 1, 2, 3), by("b", 1, 2, 3, 4), cap=9) == [
        [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    ]


# sums of doubles: quick where it is exact, else in 128 bits

ODD = [float("nan"), float("inf"), -float("inf"), None, 1e300, -1e300, 5e-324, -0.0, 0.5, 0.7, 12.5,
       12.25, -3.0, 0.69999, 0.70001, 12.2500001, *(k / 16 + 1 / 32 for k in range(-9, 200, 7))]  # fmt: skip


def a_sum(of, low, high, grain):
    term = Term(expression=of, grain=Fraction(grain), low=low, high=high)
    return Sums(relation=Table(ROWS), by=(by("g", 0, 1),), terms=(ONE, term))


ROWS = table("rows", None, ("g", Kind.INTEGER),
             Column(name="x", kind=Kind.NUMBER, between=(Fraction(7, 10), Fraction(49, 4))))  # fmt: skip


def rounded_half_to_even(value, low, high, grain):
    if value is None or not np.isfinite(value):
        return 0
    inside = min(max(Fraction(value), low), high)
    return round(inside / grain)


@pytest.mark.parametrize("stored", [pa.float64(), pa.float32(), pa.decimal128(20, 5)])
@pytest.mark.parametrize("grain", ["1/16", "1/1024", "4"])
def test_doubles_are_added_like_whole_numbers(stored, grain, tmp_path, monkeypatch):
    values = [v for v in ODD if v is None or stored != pa.decimal128(20, 5) or abs(v) < 1e9]
    held = pa.array(values, pa.float64()).cast(stored, safe=False)
    rows = pa.table({"g": pa.array([k % 3 for k in range(len(values))], pa.int32()), "x": held})
    pq.write_table(rows, tmp_path / "rows.parquet")
    source = DuckDBSource({"rows": tmp_path / "rows.parquet"}, {"rows": ROWS})
    low, high, step = 0, int(16 / Fraction(grain)), Fraction(grain)
    tally = a_sum(Field("x"), low, high, step)
    read = [None if v is None else float(v) for v in held.to_pylist()]
    bounds = (Fraction(0.7), Fraction(49, 4))  # the nearest double of 7/10
    expected = [
        sum(rounded_half_to_even(v, *bounds, step) for v, k in zip(read, rows["g"].to_pylist(),
            strict=True) if k == key)
        for key in (0, 1)
    ]  # fmt: skip
    quick = source.sums(tally)
    assert quick[1].tolist() == expected
    monkeypatch.setattr("noisegate.sources.writing.tallies.EXACT_MAX", 0)
    source._written.clear()
    assert source.sums(tally).tolist() == quick.tolist()


def test_statistics_of_a_file_decide_nothing(tmp_path):
    values = [1.0, 2.0, float("nan"), 3.0]  # the file says: from 1 to 3
    rows = pa.table({"g": pa.array([0] * 4, pa.int32()), "x": values})
    pq.write_table(rows, tmp_path / "rows.parquet")
    told = pq.read_metadata(tmp_path / "rows.parquet").row_group(0).column(1).statistics
    assert (told.min, told.max) == (1.0, 3.0)
    source = DuckDBSource({"rows": tmp_path / "rows.parquet"}, {"rows": ROWS})
    assert source.sums(a_sum(Field("x"), 0, 13, 1)).tolist() == [[4, 0], [6, 0]]


def test_what_doubles_cannot_hold_is_asked_again_in_whole_numbers(monkeypatch):
    rows = pa.table({"g": pa.array([0] * 9 + [1], pa.int32()), "x": [1.25] * 10})
    source = DuckDBSource({"rows": rows}, {"rows": ROWS})
    asked = []
    ask = source._few
    monkeypatch.setattr(
        source, "_few", lambda tally, wide: asked.append(wide) or ask(tally, wide=wide)
    )
    tally = a_sum(Field("x"), 0, 64, "1/4")
    for most, times in ((64 * 9, 1), (64 * 9 - 1, 2)):
        monkeypatch.setattr("noisegate.sources.writing.tallies.EXACT_MAX", most)
        source._written.clear()
        asked.clear()
        assert source.sums(tally).tolist() == [[9, 1], [45, 5]]
        assert len(asked) == times


def test_not_a_number_in_a_sum_of_doubles_is_noticed(monkeypatch):
    """Were the engine ever to let one through, the answer would come from whole numbers."""
    rows = pa.table({"g": pa.array([0, 0, 1], pa.int32()), "x": [1.0, float("nan"), 2.0]})
    source = DuckDBSource({"rows": rows}, {"rows": ROWS})
    through = lambda term, relation, opened: opened.stored(term.expression)  # noqa: E731
    monkeypatch.setattr("noisegate.sources.writing.tallies._light_value", through)
    assert source.sums(a_sum(Field("x"), 0, 13, 1)).tolist() == [[2, 1], [1, 2]]


@pytest.mark.parametrize("bounds", [None, (Fraction(-4), Fraction(4))])
def test_one_row_more_rounds_no_other_row_otherwise(bounds, monkeypatch):
    """The way of adding depends on how many rows there are; the number of a row must not."""
    held = Column(name="x", kind=Kind.NUMBER, between=bounds)
    loose = table("rows", None, ("g", Kind.INTEGER), held)
    shifted = Call("multiply", (Field("x"), Literal(Fraction(1, 2))))
    terms = (field("x", 1, -4, 4), Term(expression=shifted, grain=Fraction(1, 2), low=-9, high=9))
    tally = Sums(relation=Table(loose), by=(by("g", 0),), terms=terms)
    halves = [k + 0.5 for k in range(-4, 5)] * 3
    rows = pa.table({"g": pa.array([0] * len(halves), pa.int32()), "x": halves})
    source = DuckDBSource({"rows": rows}, {"rows": loose})
    quick = source.sums(tally).tolist()
    for most in (0, 4 * len(halves) - 1):
        monkeypatch.setattr("noisegate.sources.writing.tallies.EXACT_MAX", most)
        source._written.clear()
        assert source.sums(tally).tolist() == quick


def test_statements_are_kept_apart_by_types():
    rows = pa.table({"g": pa.array([0, 1], pa.int32()), "x": [1.0, 2.0]})
    source = DuckDBSource({"rows": rows}, {"rows": ROWS})
    for one, other in ((Literal(True), Literal(1)), (Literal(1), Literal(Fraction(1)))):
        tallies = [
            Sums(relation=Filter(Table(ROWS), Call("eq", (each, each))), by=(), terms=(ONE,))
            for each in (one, other)
        ]
        assert tallies[0] != tallies[1]  # whatever Python says of True and 1
        source._written.clear()
        for tally in tallies:
            source.sums(tally)
        assert len(source._written) == 2
