"""What one unit adds is scaled to its bound: a real engine beside the definition, without noise.

One table holds many worlds, whose units have different ids: a world is one more grouping, so one
question asks about all of them, and the norm of a unit is over the cells of its own world.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import isqrt
from random import Random

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from door import ONE, by, field, table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Join, JoinKind, Project, Table
from noisegate.algebra.tally import Grouping, Marginals, Sums, Term
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind, Step
from noisegate.sources.duckdb.files import Within
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.writing import weights
from noisegate.transforms.query import Query
from refusals import about

CELLS = 3
VECTORS = list(product(range(-3, 4), repeat=CELLS))
SIGN = Term(expression=Field("x"), grain=Fraction(1), low=-1, high=1)


def norm(vector, *, squared):
    """At least the norm, and whole."""
    if not squared:
        return sum(map(abs, vector))
    total = sum(each**2 for each in vector)
    return isqrt(total) + (isqrt(total) ** 2 < total)


def scaled(vectors, sizing, *, squared):
    """A unit's vectors times its weight, towards zero; ``sizing`` are vectors and their bounds."""
    ratios = [Fraction(bound, max(1, norm(v, squared=squared))) for v, bound in sizing]
    weight = min(Fraction(1), *ratios)
    return [[int(each * weight) for each in vector] for vector in vectors]


def source_of(here, **columns):
    rows = {name: pa.array(column, pa.int64()) for name, column in columns.items()}
    return DuckDBSource({"t": pa.table(rows)}, {"t": here}), Table(here)


def bounded(bound, *, squared):
    return {"squares_per_unit": bound**2} if squared else {"rows_per_unit": bound}


@pytest.fixture(scope="module")
def vectors():
    """Unit u adds VECTORS[u] to its cells, in rows of 1 or -1."""
    rows = [
        (u, c, 1 if x > 0 else -1)
        for u, vector in enumerate(VECTORS) for c, x in enumerate(vector) for _ in range(abs(x))
    ]  # fmt: skip
    units, cells, values = map(list, zip(*rows, strict=True))
    here = table("t", "u", ("u", Kind.INTEGER), ("c", Kind.INTEGER), ("x", Kind.INTEGER))
    return source_of(here, u=units, c=cells, x=values)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("bound", range(1, 7))
def test_all_small_vectors_are_scaled_to_their_bound_and_kept_within_it(vectors, bound, squared):
    source, rows = vectors
    unit = by("u", *range(len(VECTORS)))
    tally = Sums(
        relation=rows, by=(unit, by("c", *range(CELLS))), terms=(SIGN,),
        **bounded(bound, squared=squared),
    )  # fmt: skip
    found = source.sums(tally)[0].reshape(len(VECTORS), CELLS).tolist()
    for vector, got in zip(VECTORS, found, strict=True):
        assert [got] == scaled([vector], [(vector, bound)], squared=squared)
        assert sum(map(abs, got)) <= bound or squared
        assert sum(each**2 for each in got) <= bound**2
        inside = sum(each**2 for each in vector) <= bound**2 if squared else True
        if inside and (squared or sum(map(abs, vector)) <= bound):
            assert got == list(vector)


@pytest.mark.parametrize("bound", range(1, 7))
def test_rows_weighed_one_by_one_add_their_part_rounded_towards_zero(vectors, bound):
    source, rows = vectors
    row = Term(expression=Literal(1), grain=Fraction(1, 4096), low=0, high=4096)
    wide = replace(SIGN, grain=SIGN.grain / 10, low=-10, high=10)
    listed = by("u", *range(len(VECTORS))), by("c", *range(CELLS - 1))  # the last is the rest
    groups = tuple(replace(each, rest=True) for each in listed)
    tally = Sums(relation=rows, by=groups, terms=(row, wide), rows_per_unit=bound)
    assert weights.is_by_row(tally)
    found = source.sums(tally).reshape(2, len(VECTORS) + 1, CELLS)
    assert not found[:, -1].any()
    for place, vector in enumerate(VECTORS):
        weight = 4096 * bound // max(sum(map(abs, vector)), bound)
        expected = [
            [abs(each) * weight for each in vector],
            [each * (10 * weight // 4096) for each in vector],
        ]
        assert found[:, place].tolist() == expected
        assert (np.abs(found[:, place]).sum(axis=1) <= [4096 * bound, 10 * bound]).all()


def test_rows_are_weighed_one_by_one_only_where_that_loses_little(vectors):
    """Of what the bound itself loses, a 32nd at most: whatever is lost by a grain a row."""
    groups = (replace(by("u", 1), rest=True),)
    row = Term(expression=Literal(1), grain=Fraction(1, 256), low=0, high=256)
    tally = Sums(relation=vectors[1], by=groups, terms=(row,), rows_per_unit=7)
    assert weights.is_by_row(tally)
    assert not weights.is_by_row(replace(tally, rows_per_unit=8))
    assert not weights.is_by_row(replace(tally, by=()))
    assert not weights.is_by_row(replace(tally, by=(by("u", 1),)))
    assert not weights.is_by_row(replace(tally, rows_per_unit=None, squares_per_unit=9))
    assert not weights.is_by_row(replace(tally, terms=(SIGN,)))
    assert weights.is_by_row(replace(tally, terms=(SIGN,), sized=(row,)))
    far = replace(row, expression=Field("s"), low=-(1 << 40), high=1 << 40)
    fine = replace(row, grain=Fraction(1, 1 << 24), low=0, high=1 << 24)
    assert weights.is_by_row(replace(tally, terms=(far, row)))
    assert not weights.is_by_row(replace(tally, terms=(far, fine)))  # beyond 64 bits


@pytest.mark.parametrize("steps", [1 << 16, 256])
def test_an_average_of_weighed_rows_is_theirs(steps):
    """997 rows under a bound of 7 have 460 of 65,536 parts each: what the count loses of its weight
    the sum loses, too. Of 256 parts it would be one: such an owner is folded, and loses none."""
    here = table("t", "u", *((name, Kind.INTEGER) for name in ("u", "g", "x")))
    source, rows = source_of(here, u=[1] * 997, g=[0] * 997, x=[-3] * 500 + [5] * 497)
    count = Term(expression=Literal(1), grain=Fraction(1, steps), low=0, high=steps)
    value = Term(expression=Field("x"), grain=Fraction(1, 1 << 20), low=-5 << 20, high=5 << 20)
    groups = (replace(by("g", 0), rest=True),)
    tally = Sums(relation=rows, by=groups, terms=(value, count), rows_per_unit=7)
    assert weights.is_by_row(tally)
    (total, _), (size, _) = source.sums(tally).tolist()
    mean = Fraction(-3 * 500 + 5 * 497, 997)
    assert size == (997 * 460 if steps > 256 else 256 * 7)
    assert abs(total * value.grain / (size * count.grain) - mean) < Fraction(1, 1 << 20)


@pytest.mark.parametrize("rows", [27, 28, 29, 300])  # more than 28 are folded
def test_owners_of_very_many_rows_add_the_bound_beside_others(rows):
    """Two of as many rows have sums of their own: else they would be rounded together."""
    here = table("t", "u", *((name, Kind.INTEGER) for name in ("u", "g", "x")))
    owners = [each for each in (1, 2) for _ in range(rows)]
    cells = [n % 3 for n in range(2 * rows)]
    values = [(-1) ** n * (n % 7) for n in range(2 * rows)]
    source, table_of = source_of(here, u=[*owners, 3], g=[*cells, 1], x=[*values, 6])
    count = Term(expression=Literal(1), grain=Fraction(1, 256), low=0, high=256)
    value = Term(expression=Field("x"), grain=Fraction(1, 100), low=-600, high=600)
    groups = (replace(by("g", 0, 1), rest=True),)
    tally = Sums(relation=table_of, by=groups, terms=(value, count), rows_per_unit=7)
    assert weights.is_by_row(tally)
    expected, weight = np.zeros((2, 3), int), 256 * 7 // rows
    for owner in (1, 2):
        whose = [(g, x) for u, g, x in zip(owners, cells, values, strict=True) if u == owner]
        for cell in range(3):
            here_ = [100 * x for g, x in whose if g == cell]
            if rows > 28:
                expected[:, cell] += [
                    int(Fraction(7 * sum(here_), rows)),
                    256 * 7 * len(here_) // rows,
                ]
            else:
                each = [int(Fraction(x * weight, 256)) for x in here_]
                expected[:, cell] += [sum(each), weight * len(here_)]
    expected[:, 1] += [600, 256]
    assert source.sums(tally).tolist() == expected.tolist()


# neighbours, by enumeration

VISITS = table("visits", "who", ("vid", Kind.INTEGER), ("who", Kind.INTEGER),
               ("world", Kind.INTEGER), ("code", Kind.INTEGER), ("cost", Kind.INTEGER))  # fmt: skip
TAKEN = table("taken", "who", ("visit", Kind.INTEGER), ("dose", Kind.INTEGER),
              path=(Step(column="visit", table="visits", key="vid"),))  # fmt: skip
KINDS = [(0, -2), (0, 3), (1, 3), (1, None), (None, 2), (7, 1)]  # code, and cost
DOSES = [(), (1,), (2, None), (-1, 2, 2)]  # of the drugs taken at a visit
ONE_VISIT = list(product(KINDS, DOSES))
HELD = [*[(one,) for one in ONE_VISIT], *combinations_with_replacement(ONE_VISIT[::3], 2),
        *combinations_with_replacement(ONE_VISIT[1::5], 4)]  # fmt: skip
OTHER = (((0, 3), (1, 1)), ((1, -2), (2,)), ((1, 3), ()))  # a second unit, in every world


@pytest.fixture(scope="module")
def worlds():
    """World 2w has both units, world 2w + 1 only the second."""
    visits, taken = [], []
    for world in range(2 * len(HELD)):
        units = [OTHER] if world % 2 else [OTHER, HELD[world // 2]]
        for place, held in enumerate(units):
            for (code, cost), doses in held:
                vid = len(visits)
                visits.append((vid, 2 * world + place, world, code, cost))
                taken += [(vid, dose) for dose in doses]
    frames = {}
    for here, rows in ((VISITS, visits), (TAKEN, taken)):
        columns = zip(*rows, strict=True)
        frames[here.name] = pa.table({
            name: pa.array(column, pa.int64())
            for name, column in zip(here.columns, columns, strict=True)
        })  # fmt: skip
    return DuckDBSource(frames, {"visits": VISITS, "taken": TAKEN})


DRUGS = Project(Table(TAKEN), (("at", Field("visit")), ("dose", Field("dose"))))
RELATIONS = {
    "visits": Table(VISITS),
    "drugs of a visit": Join(Table(VISITS), DRUGS, ((Field("vid"), Field("at")),)),
    "visits with drugs": Join(
        Table(VISITS), DRUGS, ((Field("vid"), Field("at")),), JoinKind.LEFT
    ),
    "all pairs of a unit": Join(
        Filter(Table(VISITS), Call("ge", (Field("cost"), Literal(-9)))), DRUGS,
        ((Literal(1), Literal(1)),),
    ),
}  # fmt: skip
COST, DOSE = field("cost", low=-2, high=3), field("dose", Fraction(1, 2), low=-2, high=4)
FINE = Term(expression=Literal(1), grain=Fraction(1, 32), low=0, high=32)  # see `is_by_row`
FINER = Term(expression=Literal(1), grain=Fraction(1, 1024), low=0, high=1024)


@pytest.fixture(scope="module")
def exact_of():
    """Exact numbers by relation, whatever the bounds are: asked for once."""
    return {}


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("name", RELATIONS)
def test_two_units_move_by_exactly_what_is_left_of_the_one_that_goes(
    worlds, exact_of, name, squared
):
    relation = RELATIONS[name]
    world = by("world", *range(2 * len(HELD)))
    listed = by("code", 0, 1, None)
    terms = (COST, FINE) if name == "visits" else (COST, DOSE)
    for bound, sized, rest in product((1, 3), ((), (ONE,), (COST,)), (False, True)):
        code = Grouping(name="code", expression=Field("code"), keys=listed.keys, rest=rest)
        asked = Sums(relation=relation, by=(world, code), terms=terms, sized=sized,
                     **bounded(bound, squared=squared))  # fmt: skip
        query, found = Query(asked), worlds.sums(asked)
        moved = found.reshape(len(terms), len(HELD), 2, code.size)
        moved = moved[:, :, 0] - moved[:, :, 1]
        for row, l1, l2 in zip(np.abs(moved).astype(object), query.l1s, query.l2s, strict=True):
            assert row.sum(axis=1).max() <= l1.value
            assert (row**2).sum(axis=1).max() <= l2.squared
        assert np.abs(moved).max() <= query.single
        every = Sums(
            relation=relation, by=(world, code), terms=(*terms, ONE), rows_per_unit=1 << 20
        )
        if (every_unit := exact_of.get((name, rest))) is None:
            every_unit = exact_of[name, rest] = worlds.sums(every)
        exact = every_unit.reshape(len(terms) + 1, len(HELD), 2, code.size)
        exact = (exact[:, :, 0] - exact[:, :, 1]).swapaxes(0, 1).tolist()
        whole = next((term.high for term in (FINE, ONE) if term in (*terms, *sized)), None)
        for unit, left in zip(exact, moved.swapaxes(0, 1).tolist(), strict=True):
            sizing = [(unit[place], bound * term.reach) for place, term in enumerate(terms)]
            if whole is not None:  # its rows, in parts of one, as the first constant counts them
                sizing = [([each * whole for each in unit[-1]], bound * whole)]
            assert left == scaled(unit[:-1], sizing, squared=squared)


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_a_unit_moves_sums_of_weighed_rows_by_what_its_rows_add(worlds, bound):
    world, code = by("world", *range(2 * len(HELD))), by("code", 0, None)
    code = replace(code, rest=True)
    asked = Sums(relation=Table(VISITS), by=(replace(world, rest=True), code),
                 terms=(COST, FINER), rows_per_unit=bound)  # fmt: skip
    assert weights.is_by_row(asked)
    query, found = Query(asked), worlds.sums(asked).reshape(2, len(HELD) * 2 + 1, code.size)
    moved = found[:, :-1].reshape(2, len(HELD), 2, code.size)
    moved = moved[:, :, 0] - moved[:, :, 1]
    for place, held in enumerate(HELD):
        expected, weight = np.zeros((2, 3), int), 1024 * bound // max(len(held), bound)
        for (key, cost), _ in held:
            cell = code.keys.index(key) if key in code.keys else 2
            expected[0, cell] += int(Fraction((cost or 0) * weight, 1024))  # cuts towards zero
            expected[1, cell] += weight
        assert moved[:, place].tolist() == expected.tolist()
    sizes = np.abs(moved).sum(axis=2).max(axis=1)
    assert (sizes <= [each.value for each in query.l1s]).all()


# which term is which


@pytest.mark.parametrize("squared", [False, True])
def test_a_term_that_is_asked_for_twice_is_no_other_term(squared):
    here = table("t", "u", ("u", Kind.INTEGER), ("c", Kind.INTEGER), ("x", Kind.INTEGER))
    source, rows = source_of(here, u=[1, 1, 1], c=[0, 1, 0], x=[900, 800, 0])
    wide = field("x", low=0, high=1000)
    for groups in ((), (by("c", 0, 1),)):
        for terms in ((SIGN, SIGN), (SIGN, wide, SIGN), (wide, wide, ONE)):
            asked = Sums(relation=rows, by=groups, terms=terms, sized=(wide, wide),
                         **bounded(1, squared=squared))  # fmt: skip
            found = source.sums(asked)
            alone = [
                source.sums(Sums(relation=rows, by=groups, terms=(term,), sized=asked.terms,
                                 **bounded(1, squared=squared)))[0].tolist()
                for term in terms
            ]  # fmt: skip
            assert found.tolist() == alone
            for row, l2 in zip(np.abs(found).astype(object), Query(asked).l2s, strict=True):
                assert (row**2).sum() <= l2.squared


def test_a_unit_with_as_many_squares_as_the_bound_is_not_scaled():
    """Where the root of the bound is no whole number."""
    here = table("t", "u", ("u", Kind.INTEGER), ("c", Kind.INTEGER), ("x", Kind.INTEGER))
    source, rows = source_of(here, u=[1, 1, 1], c=[0, 1, 2], x=[1, -1, 1])
    for squares, left in ((3, [1, -1, 1]), (2, [0, 0, 0])):
        asked = Sums(relation=rows, by=(by("c", 0, 1, 2),), terms=(SIGN,), squares_per_unit=squares)
        assert source.sums(asked)[0].tolist() == left


# numbers at the ends of what an engine holds


def test_the_widest_terms_and_heaviest_units_neither_fail_nor_leave_their_bound():
    """2,000 rows at the largest reach, of both signs: sums beyond 64 bits, squares beyond 100."""
    random = Random(3)
    here = table("t", "u", ("u", Kind.INTEGER), ("c", Kind.INTEGER), ("x", Kind.INTEGER))
    ends = (-(1 << 62), 1 << 62, (1 << 40) - 1, None)
    rows = [(random.randrange(3), random.randrange(2), random.choice(ends)) for _ in range(6000)]
    units, cells, values = map(list, zip(*rows, strict=True))
    source, whole = source_of(here, u=units, c=cells, x=values)
    wide = Term(expression=Field("x"), grain=Fraction(1), low=-(1 << 40), high=1 << 40)
    for how, limit in (({"rows_per_unit": 1 << 20}, 1 << 60), ({"rows_per_unit": 1}, 1 << 40),
                       ({"squares_per_unit": 1 << 16}, 1 << 48)):  # fmt: skip
        for sized in ((), (ONE,)):
            query = Query(
                Sums(relation=whole, by=(by("u", 0, 1, 2), by("c", 0, 1)), terms=(wide,),
                     sized=sized, **how)
            )  # fmt: skip
            found = source.sums(query.tally)[0].astype(object).reshape(3, 2)
            assert np.abs(found).sum(axis=1).max() <= query.l1s[0].value
            assert (found**2).sum(axis=1).max() <= query.l2s[0].squared
            assert np.abs(found).max() <= limit


def test_bounds_that_128_bits_do_not_hold_are_refused():
    here = table("t", "u", ("x", Kind.INTEGER))
    wide = Term(expression=Field("x"), grain=Fraction(1), low=0, high=1 << 40)
    with pytest.raises(Unsupported, check=about("bounds")):
        Query(Sums(relation=Table(here), terms=(wide,), squares_per_unit=(1 << 8) ** 2 + (1 << 20)))
    with pytest.raises(Unsupported, check=about("bounds")):
        Query(Sums(relation=Table(here), terms=(ONE,), sized=(wide,), squares_per_unit=1 << 20))
    for wrong in (0, -1, True, 2.0, Fraction(3)):
        with pytest.raises(Unsupported):
            Query(Sums(relation=Table(here), terms=(ONE,), squares_per_unit=wrong))
    with pytest.raises(Unsupported, check=about("squares")):
        Query(Sums(relation=Table(here), terms=(ONE,), squares_per_unit=4, rows_per_unit=2))


def test_what_no_engine_could_answer_is_refused():
    here = Table(table("t", "u", ("x", Kind.INTEGER)))
    for sized in (None, "", 0, [], [ONE]):
        with pytest.raises(Unsupported):
            Query(Sums(relation=here, terms=(ONE,), rows_per_unit=1, sized=sized))
    empty = Grouping(name="x", expression=Field("x"), keys=(), rest=True)
    with pytest.raises(Unsupported, check=about("keys")):
        Query(Sums(relation=here, by=(empty,), terms=(ONE,), rows_per_unit=1))


# rows that are drawn


def test_a_unit_is_counted_by_the_rows_that_it_adds_even_where_a_view_draws_them(tmp_path):
    """Two readings of half of 2,000 rows would differ: the bound fails in 1 of 2 then."""
    here = table("t", "u", *((name, Kind.INTEGER) for name in ("u", "g")), views=("t",))
    with duckdb.connect(tmp_path / "t.duckdb") as made:
        made.execute("CREATE TABLE base AS SELECT 1 AS u, range % 3 AS g FROM range(2000)")
        made.execute("CREATE VIEW t AS SELECT * FROM base WHERE random() < 0.5")
    source = DuckDBSource({"t": Within(tmp_path / "t.duckdb", "t")}, {"t": here})
    term = Term(expression=Literal(1), grain=Fraction(1, 1 << 20), low=0, high=1 << 20)
    groups = (replace(by("g", 0, 1), rest=True),)
    asked = Sums(relation=Table(here), by=groups, terms=(term,), rows_per_unit=1)
    twice = Marginals(relation=Table(here), by=groups, sets=((0,),), term=term, rows_per_unit=1)
    for _ in range(30):
        assert 0 < source.sums(asked).sum() <= 1 << 20
        assert 0 < source.marginals(twice)[0].sum() <= 1 << 20


@pytest.mark.parametrize(
    ("value", "grain", "ends", "each"),
    [
        (5, 1, (0, 3), 3),
        (-5, 1, (-2, 3), -2),
        (2, 1, (0, 9), 2),
        (1, 4, (0, 3), 0),
        (1, 4, (0, 8), 4),
    ],
)
def test_a_number_under_a_condition_is_clamped_as_one_of_a_column_is(value, grain, ends, each):
    names = ("u", "x", "y")
    here = table("t", "u", *((name, Kind.INTEGER) for name in names))
    source, rows = source_of(here, u=[1, 2, 3], x=[1, 1, 0], y=[value] * 3)
    meets = Call("eq", (Field("x"), Literal(1)))
    terms = tuple(
        Term(expression=Call("case", (meets, then)), grain=Fraction(1, grain), low=ends[0], high=ends[1])
        for then in (Literal(value), Field("y"))
    )  # fmt: skip
    assert source.sums(Sums(relation=rows, terms=terms)).tolist() == [[2 * each], [2 * each]]
