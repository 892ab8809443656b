"""Many tables in one pass: each is exactly the sum over its own groupings, of weighed rows."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import isfinite
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from door import FINE, ONE, by, field, table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Fold, Folded, PerUnit, Sampled, Table
from noisegate.algebra.tally import Grouping, Marginals, Sums, Term
from noisegate.errors import Unsupported
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Kind
from noisegate.sources.adding import SUM_MAX, add_up
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.checks import CELLS_MAX
from noisegate.transforms.distances import Distances
from noisegate.transforms.query import Query
from refusals import about

COLUMNS = ("a", Kind.TEXT), ("b", Kind.INTEGER), ("c", Kind.BOOLEAN), ("x", Kind.NUMBER)
ROWS, OWNED = table("t", None, *COLUMNS), table("t", "id", *COLUMNS)
REST = Grouping(name="a", expression=Field("a"), keys=("u", None, "v"), rest=True)
BY = (REST, by("b", 3, 1, -2), by("c", None, True, False), by("a", "v", "w"))
SETS = ((), (0,), (1, 2), (0, 1), (0, 2, 3), (1, 3), (0, 1, 2, 3))


def rows(seed=1, count=300):
    random = Random(seed)
    pick = random.choice
    return pa.table({
        "id": pa.array([pick([1, 1, 1, 1, 2, 3, 4, None]) for _ in range(count)], pa.int64()),
        "a": [pick(["u", "v", "w", "x", None]) for _ in range(count)],
        "b": pa.array([pick([-2, 1, 3, 7, None]) for _ in range(count)], pa.int64()),
        "c": [pick([True, False, None]) for _ in range(count)],
        "x": [pick([0.0, 1.5, -7.25, 1e300, float("nan"), None]) for _ in range(count)],
    })  # fmt: skip


def source(domain, given=None):
    return DuckDBSource({"t": rows() if given is None else given}, {"t": domain})


def marginals(domain, *, term=ONE, sets=SETS, cap=None, groupings=BY, relation=None):
    return Marginals(
        relation=relation or Table(domain), by=groupings, sets=sets, term=term, rows_per_unit=cap
    )


def alone(tally, each):
    """The same table as a sum by itself."""
    groupings = tuple(tally.by[place] for place in each)
    return Sums(
        relation=tally.relation,
        by=groupings,
        terms=(tally.term,),
        rows_per_unit=tally.rows_per_unit,
    )


def assert_same(engine, tally):
    found = engine.marginals(Query(tally).tally)
    assert [each.size for each in found] == list(tally.sizes)
    for each, one in zip(tally.sets, found, strict=True):
        assert one.dtype == np.int64
        assert one.tolist() == engine.sums(alone(tally, each))[0].tolist()


MEAN = field("x", Fraction(1, 4), -40, 40)
THIRDS = field("x", Fraction(1, 3), -40, 40)
TERMS = [ONE, replace(ONE, low=-3, high=0, expression=Literal(-2)), MEAN, THIRDS,
         field("b", 1, -5, 5)]  # fmt: skip


@pytest.mark.parametrize("term", TERMS, ids=range(len(TERMS)))
def test_every_table_is_the_sum_over_its_own_groupings(term):
    assert_same(source(ROWS), marginals(ROWS, term=term))


def weighed_by_hand(given, tally):
    """Each row by itself: of n rows of an owner each weighs min(1, cap / n), towards zero."""
    held = [row for row in given.to_pylist() if row["id"] is not None]
    sizes, found = Counter(row["id"] for row in held), []
    for each in tally.sets:
        groupings = [tally.by[place] for place in each]
        cells = np.zeros([grouping.size for grouping in groupings], np.int64)
        for row in held:
            number = tally.term.constant
            if number is None and row["x"] is not None and isfinite(row["x"]):
                steps = round(Fraction(row["x"]) / tally.term.grain)
                number = max(tally.term.low, min(tally.term.high, steps))
            at = [place_of(grouping, row[grouping.name]) for grouping in groupings]
            if number is not None and None not in at:
                weight = min(Fraction(1), Fraction(tally.rows_per_unit, sizes[row["id"]]))
                cells[tuple(at)] += int(number * weight)
        found.append(cells.ravel().tolist())
    return found


def place_of(grouping, key):
    if key in grouping.keys:
        return grouping.keys.index(key)
    return len(grouping.keys) if grouping.rest else None


@pytest.mark.parametrize(("term", "cap"), [(ONE, 1000), (ONE, 1), (FINE, 3), (MEAN, 2)])
def test_of_many_rows_each_weighs_less(term, cap):
    given, tally = rows(), marginals(OWNED, term=term, cap=cap)
    found = source(OWNED, given).marginals(Query(tally).tally)
    assert [each.tolist() for each in found] == weighed_by_hand(given, tally)


def test_relations_are_those_of_a_sum():
    few = Filter(Table(OWNED), Call("lt", (Field("b"), Literal(3))))
    assert_same(source(OWNED), marginals(OWNED, relation=few, cap=1000, term=FINE))
    each = PerUnit(
        Table(OWNED),
        keys=(("a", Field("a")),),
        folded=(Folded(name="n", fold=Fold.COUNT, expression=Literal(1)),),
    )
    tally = marginals(
        OWNED, relation=each, cap=1000, term=field("n", 1, 0, 9),
        groupings=(BY[0], BY[3]), sets=((0,), (1,), (0, 1), ()),
    )  # fmt: skip
    assert_same(source(OWNED), tally)


def test_no_rows_and_only_the_total():
    none = rows().slice(0, 0)
    assert_same(source(ROWS, none), marginals(ROWS))
    assert_same(source(ROWS), marginals(ROWS, sets=((),), groupings=()))
    assert source(ROWS).marginals(marginals(ROWS, sets=((),)))[0].tolist() == [300]


def test_many_sets_of_many_groupings_are_one_statement():
    columns = [(f"c{place}", Kind.INTEGER) for place in range(40)]
    domain, random = table("t", None, *columns), np.random.default_rng(5)
    data = {name: random.integers(-1, 3, 50) for name, _ in columns}
    pairs = tuple(combinations(range(40), 2))
    tally = marginals(domain, groupings=tuple(by(name, 0, 1) for name, _ in columns), sets=pairs)
    found = DuckDBSource({"t": pa.table(data)}, {"t": domain}).marginals(tally)
    names = list(data)
    for (one, other), each in zip(pairs, found, strict=True):
        held = data[names[one]], data[names[other]]
        assert each.tolist() == [
            int(np.sum((held[0] == i) & (held[1] == j))) for i in (0, 1) for j in (0, 1)
        ]


# adding up


def plain_sums(batches, sizes, sets):
    tables = []
    for each in sets:
        cells = np.zeros([sizes[axis] for axis in each], object)
        for row in (row for batch in batches for row in zip(*batch, strict=True)):
            at = tuple(row[axis] for axis in each)
            if all(place < sizes[axis] for place, axis in zip(at, each, strict=True)):
                cells[at] += int(row[-1])
        tables.append([max(-SUM_MAX, min(SUM_MAX, n)) for n in cells.reshape(-1).tolist()])
    return tables


@pytest.mark.parametrize("most", [3, 1 << 30, (1 << 40) - 1])
def test_sums_are_exact_however_large_the_numbers_are(most):
    random = np.random.default_rng(most)
    sizes, sets = [2, 3, 1], [(), (0,), (0, 1), (1, 2), (0, 1, 2)]
    batches = [
        [*(random.integers(0, n + 1, 50) for n in sizes), random.integers(-most, most + 1, 50)]
        for _ in range(3)
    ]
    assert [each.tolist() for each in add_up(batches, sizes, sets)] == plain_sums(
        batches, sizes, sets
    )


@pytest.mark.parametrize("constant", [1, -3, 1 << 40, -(1 << 40)])
def test_a_constant_is_added_as_often_as_there_are_rows(constant):
    many = (1 << 20) + 1  # beyond 2**60 at the largest
    batch = [np.zeros(many, np.int64)]
    (found,) = add_up([batch], [1], [(0,)], constant=constant)
    assert found.tolist() == [max(-SUM_MAX, min(SUM_MAX, constant * many))]


# rules


def test_each_table_moves_as_its_own_sum_does():
    per = PerUnit(Table(OWNED), keys=(("a", Field("a")),), folded=())
    groupings = (by("a", "u", "v"), Grouping(name="b", expression=Literal("z"), keys=("z",)), REST)
    sets = ((0,), (1,), (0, 1), (2,), ())
    query = Query(marginals(OWNED, relation=per, cap=3, groupings=groupings, sets=sets, term=FINE))
    singles = [Query(alone(query.tally, each)) for each in sets]
    assert query.l1s == tuple(single.l1s[0] for single in singles)
    assert query.l2s == tuple(single.l2s[0] for single in singles)
    assert len({l2.squared for l2 in query.l2s}) == 2  # some hold a unit once per cell


def test_distances_of_tables_move_by_their_weights():
    tally = marginals(OWNED, cap=3, term=FINE, sets=((0,), (1, 2)))
    guesses = [np.zeros(size, np.int64) for size in tally.sizes]
    query = Query(tally, Distances.of(guesses, weights=[5, 2], fine=4))
    moved = 3 * 1024
    assert query.moved == moved
    assert query.l1s == (L1(moved * 4 * 7),)
    assert query.l2s == (L2(squared=moved**2 * 16 * 29),)


@pytest.mark.parametrize("sets", [
    (), ((0, 0),), ((1, 0),), ((9,),), ((-1,),), ((True,),), ((0,), (0,)), [(0,)], ([0],), (0,),
    ((0.0,),),
], ids=repr)  # fmt: skip
def test_sets_are_rising_places_each_once(sets):
    with pytest.raises(Unsupported):
        Query(marginals(ROWS, sets=sets))


def test_tables_have_no_more_cells_than_one_table_may_have():
    wide = tuple(by(name, *range(5000)) for name in ("b", "b"))
    with pytest.raises(Unsupported, check=about("groups")):
        Query(marginals(ROWS, groupings=wide, sets=((0, 1),)))
    square = (by("b", *range(1 << 12)), by("b", *range(1 << 11)), by("b", 0, 1))
    sets = (0, 1), (0, 1, 2)  # half of what is allowed, and all of it
    with pytest.raises(Unsupported, check=about("groups")):
        Query(marginals(ROWS, groupings=square, sets=sets))
    assert Query(marginals(ROWS, groupings=square, sets=sets[1:])).tally.cells == CELLS_MAX


def test_terms_and_groupings_have_the_rules_of_a_sum():
    with pytest.raises(Unsupported, check=about("cap")):
        Query(marginals(ROWS, cap=2))
    with pytest.raises(Unsupported, check=about("no-cap")):
        Query(marginals(OWNED))
    with pytest.raises(Unsupported, check=about("type")):
        Query(marginals(ROWS, term=field("a")))
    with pytest.raises(Unsupported, check=about("keys")):
        Query(marginals(ROWS, groupings=(by("a", "u", "u"),), sets=((0,),)))
    with pytest.raises(Unsupported, check=about("bounds")):
        Query(marginals(ROWS, term=Term(expression=Literal(1), grain=Fraction(1), low=0, high=0)))


def test_a_sample_has_no_rule():
    """Tables are kept for several rounds, and a sample's coins are for one draw."""
    with pytest.raises(Unsupported, check=about("sample")):
        Query(marginals(ROWS, relation=Sampled(Table(ROWS), Fraction(1, 2))))


def test_questions_are_told_apart_by_their_sets_and_guesses():
    one = marginals(ROWS, sets=((0,), (1,)))
    guesses = [np.zeros(size, np.int64) for size in one.sizes]
    other = [*guesses[:1], guesses[1] + 1]
    records = [
        Query(one).to_record(),
        Query(replace(one, sets=((1,), (0,)))).to_record(),
        Query(replace(one, sets=((0,),))).to_record(),
        Query(one, Distances.of(guesses)).to_record(),
        Query(one, Distances.of(other)).to_record(),
        Query(one, Distances.of(guesses, weights=[1, 2])).to_record(),
        Query(one, Distances.of(guesses, less=[0, 2])).to_record(),
        Query(one, Distances.of(guesses, fine=2)).to_record(),
    ]
    assert len({repr(record) for record in records}) == len(records)
    assert Query(one, Distances.of(guesses)).to_record() == records[3]
