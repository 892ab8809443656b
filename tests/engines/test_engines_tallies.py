"""Every kind of tally over random relations and hostile rows: equal whole numbers on all engines.

The generator is that of the sensitivity test, so what is compared here is what is claimed there.
"""

import threading
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from random import Random
from types import SimpleNamespace

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import test_link_sensitivity as linked
import test_sensitivity as made
from hypothesis import given, settings

from cases import mostly_long
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Join, JoinKind, Matching, Project, Sampled, Table
from noisegate.algebra.tally import (
    Axis,
    Cells,
    Distinct,
    Grouping,
    Keys,
    Marginals,
    Sums,
    Term,
    Values,
)
from noisegate.errors import Unsupported
from noisegate.privacy.domain import Kind, PrivacyUnit, Step
from noisegate.sources.asked.statements import is_grouped
from noisegate.sources.asked.weights import counted_once
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.spark.dialect import STAGED
from noisegate.sources.writing.weights import is_by_row
from noisegate.sources.writing.words import is_placed
from noisegate.sql.estimates.profiles import farthest_query, range_query
from noisegate.transforms.query import Query
from refusals import about

EXAMPLES = 2  # of each test below, with `questions` each; NOISEGATE_EXPLORE=1 tries others


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(duckdb, "connect", made.plain_connection)
    monkeypatch.setattr(threading, "Timer", made.NoClock)


def shown(engine, random):
    """New rows, on the engine and in files."""
    frames = made.frames_of(made.make_rows(random), random)
    return engine.show(frames, made.TABLES), DuckDBSource(frames, made.TABLES)


def asked(random, relation_of, source):
    """A question that the engine does not refuse."""
    for _ in range(400):
        query = made.some_query(random, relation_of)
        with suppress(Unsupported):
            source.require(query.tally)
            return query
    raise AssertionError(relation_of)


def require_equal(random, relation_of, engine):
    source, embedded = shown(engine, random)
    for _ in range(engine.questions):
        require_same(embedded, source, asked(random, relation_of, source))


def require_same(embedded, source, query):
    if isinstance(query.tally, Keys | Distinct):
        require_as_many_keys(embedded, source, query)
        query = SimpleNamespace(tally=replace(query.tally, keys_per_unit=1 << 20))
    one, other = made.collected(embedded, query), made.collected(source, query)
    np.testing.assert_equal(other, one, err_msg=repr(query.tally))


def require_as_many_keys(embedded, source, query):
    """Which keys of an owner with too many are kept is each engine's own; how many is not."""
    if isinstance(query.tally, Keys):
        one, other = (made.collected(each, query) for each in (embedded, source))
        assert sum(one.values()) == sum(other.values())


@settings(made.OFTEN, max_examples=EXAMPLES)
@given(random=made.RANDOMS)
def test_tallies_of_tables_of_persons_are_equal(engine, random):
    require_equal(random, made.shallow, engine)


@pytest.mark.long
@settings(made.OFTEN, max_examples=EXAMPLES)
@given(random=made.RANDOMS)
def test_tallies_of_deep_trees_are_equal(engine, random):
    require_equal(random, made.deep, engine)


@settings(made.OFTEN, max_examples=EXAMPLES)
@given(random=made.RANDOMS)
def test_tallies_of_rows_that_are_persons_are_equal(engine, random):
    require_equal(random, made.row_level, engine)


@pytest.mark.long
@settings(made.OFTEN, max_examples=2)
@given(random=made.RANDOMS)
def test_windows_and_partners_are_equal(engine, random):
    kinds = [made.windowed, made.numbered]
    kinds += [made.partnered] if engine.dialect.correlates else []
    require_equal(random, random.choice(kinds), engine)


def test_partners_are_compared_or_refused(engine):
    source, _ = shown(engine, Random(3))
    query = made.some_query(Random(3), made.partnered)
    if not engine.dialect.correlates:
        with pytest.raises(Unsupported, check=about("engine")):
            source.require(query.tally)


def test_neighbours_on_a_server_move_by_at_most_their_claim(engine):
    """Questions and one unit left out at a time: what equal numbers imply, seen directly."""
    random = Random(12)
    data = made.make_rows(random)
    source = engine.show(made.frames_of(data, random), made.TABLES)
    kinds = [made.shallow, made.deep, made.windowed]
    count = 12 if engine.name == "Postgres" else engine.questions
    queries = [asked(random, kinds[n % 3], source) for n in range(count)]
    before = [made.collected(source, query) for query in queries]
    guesses = [made.guessed(*pair) for pair in zip(queries, before, strict=True)]
    for space, unit in [("patient", n) for n in range(made.PERSONS)] + [("doctor", 1)]:
        frames = made.frames_of(made.without(data, space, unit), random)
        source = engine.show(frames, made.TABLES)
        for query, guess, one in zip(queries, guesses, before, strict=True):
            made.require_claim(query, guess, one, made.collected(source, query))


COUNTED = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)


def test_a_sample_of_units_is_the_same_on_all_engines(engine):
    """A coin is the SHA-256 of a key and the unit's name, so that it does not matter who tosses."""
    source, embedded = shown(engine, Random(5))
    seen = set()
    for key in ("a" * 64, "b" * 64, "c" * 64):
        for table in (made.PEOPLE, made.VISITS, made.DRUGS_TAKEN):
            relation = Sampled(Table(table), Fraction(1, 2), key)
            tally = Sums(relation=relation, terms=(COUNTED,), rows_per_unit=3)
            held = source.sums(tally).tolist()
            assert embedded.sums(tally).tolist() == held
            seen.add(held[0][0])
    assert len(seen) > 2


def test_a_row_that_is_a_unit_has_a_coin_of_its_own(engine):
    """Of 6 rows, 32 samples hold between 60 and 132 in all, but with a chance of 10**-6.

    The keys are fixed, so that this is decided once and for all.
    """
    source, _ = shown(engine, Random(6))
    sums = [
        Sums(relation=Sampled(Table(made.ROWS), Fraction(1, 2), f"{n:064x}"), terms=(COUNTED,))
        for n in range(32 if engine.name == "Postgres" else 8)
    ]
    held = [int(source.sums(each)[0, 0]) for each in sums]
    assert 60 < sum(held) * 32 / len(sums) < 132
    assert len(set(held)) > 2


def test_one_sample_of_rows_that_are_units_is_the_same_in_every_reading(engine):
    """Each row has a letter: what other questions find of the sample, of other columns, agrees."""
    data, chance = made.make_rows(Random(6)), Random(7)
    letters = [chr(97 + place) for place in range(24)]
    data["rows"] = [
        {"ward": "north", "code": each, "age": ord(each), "bmi": chance.choice(made.ODD)}
        for each in letters
    ]
    source = engine.show(made.frames_of(data, chance), made.TABLES)
    ages = Term(expression=Field("age"), grain=Fraction(1), low=0, high=120)
    by = Grouping(name="code", expression=Field("code"), keys=tuple(letters))
    told = Sums(relation=Table(made.ROWS), terms=(COUNTED,), by=(by,))
    alone = Sums(relation=Table(made.ROWS), terms=(ages,))
    found = []
    for key in ("a" * 64, "b" * 64):
        with source.sample(Fraction(1, 2), key) as drawn:
            held = drawn.sums(told)[0]
            assert drawn.sums(alone)[0, 0] == held @ [ord(each) for each in letters]
            if engine.name == "Postgres":  # rows that go meanwhile would change all numbers
                rows = f"{engine.database.schema}.rows"
                engine.database.owner.execute(f"DELETE FROM {rows} WHERE code = '{key[0]}'")
            assert drawn.sums(told)[0].tolist() == held.tolist()
            found.append(held.tolist())
        assert 2 < held.sum() < 22  # fewer or more come once in 10⁴ keys; these are fixed
    assert found[0] != found[1]


# What plain SQL counts of the rows that are somebody's.
LINKED = {"join": 10, "left join": 10, "join from the partner": 10, "left join from there": 11,
          "rows": 5, "semi-join": 5}  # fmt: skip


IDS = {
    "numbers": ("int64", "int64"), "texts": ("string", "string"),
    "texts to numbers": ("string", "int64"), "numbers to texts": ("int64", "string"),
}  # fmt: skip


def linked_rows(without=None, vid="int64", pid="int64"):
    """Visits that are written down several times, and what was taken at each; some is nobody's."""
    visits = [(1, 1, "a"), (1, 1, "b"), (1, 1, "c"), (2, 1, "a"), (2, 1, "a"), (3, 2, "c"),
              (4, 3, "a"), (5, None, "b"), (None, 1, "c")]  # fmt: skip
    taken = [(1, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (None, 6), (9, 7)]
    kept = [each for each in visits if without is None or each[1] != without]
    return {
        "visits": pa.table({
            "vid": pa.array([each[0] for each in kept], pa.int64()).cast(vid),
            "pid": pa.array([each[1] for each in kept], pa.int64()).cast(pid),
            "code": pa.array([each[2] for each in kept], pa.string()),
        }),
        "taken": pa.table({
            "vid": pa.array([vid for vid, _ in taken], pa.int64()).cast(vid),
            "dose": pa.array([dose for _, dose in taken], pa.int64()),
        }),
    }  # fmt: skip


def linked_tables(vid):
    unit, kind = (
        PrivacyUnit(column="pid", ids="patient"),
        {"int64": Kind.INTEGER}.get(vid, Kind.TEXT),
    )
    visits = [made.column("vid", kind), made.column("code", Kind.TEXT)]
    taken = [made.column("vid", kind), made.column("dose", Kind.INTEGER)]
    link = (Step(column="vid", table="visits", key="vid"),)
    return made.table("visits", visits, unit), made.table("taken", taken, unit, path=link)


@pytest.mark.parametrize("kinds", mostly_long(IDS, "texts to numbers"))
def test_a_linked_key_that_repeats_has_the_rows_of_plain_sql(engine, request, kinds):
    """However owners are found: a row is its owner's once, and meets each partner once."""
    vid, pid = IDS[kinds]
    if engine.name == "Postgres":
        engine = type(engine)(request.getfixturevalue("database"))
    tables = linked_tables(vid)
    visits, taken = map(Table, tables)
    seen = Project(visits, (("named", Field("vid")), ("code", Field("code"))))
    along, back = ((Field("vid"), Field("named")),), ((Field("named"), Field("vid")),)
    relations = {
        "join": Join(taken, seen, along),
        "left join": Join(taken, seen, along, JoinKind.LEFT),
        "join from the partner": Join(seen, taken, back),
        "left join from there": Join(seen, taken, back, JoinKind.LEFT),
        "rows": taken,
        "semi-join": Matching(taken, seen, along),
    }
    shown = {}
    for without in (None, 1, 2, 3):
        frames = linked_rows(without, vid, pid)
        named = {each.name: each for each in tables}
        for source in (engine.show(frames, named), DuckDBSource(frames, named)):
            for name, relation in relations.items():
                for cap in (2, 100):
                    query = Query(Sums(relation=relation, terms=(COUNTED,), rows_per_unit=cap))
                    held = source.sums(query.tally)
                    full = shown.setdefault((type(source), name, cap), held)
                    made.require_claim(query, None, full, held)
    for (_, name, cap), held in shown.items():
        assert cap == 2 or held.tolist() == [[LINKED[name]]], name


@pytest.mark.parametrize("seed", mostly_long((0, 1, 2), 0))
def test_questions_along_links_move_by_at_most_their_claim(engine, request, seed):
    if engine.name == "Postgres":
        engine = type(engine)(request.getfixturevalue("database"))
    assert linked.require_neighbours(seed, engine.show)


SIZED = {
    "doubles": (made.ROWS, Field("bmi")),
    "whole numbers": (made.ROWS, Field("age")),
    "products": (made.ROWS, Call("multiply", (Field("bmi"), Field("age")))),
    "of units of many rows": (made.VISITS, Field("cost")),
}


@pytest.mark.parametrize("reach", [None, Fraction(1000)])
@pytest.mark.parametrize("name", mostly_long(SIZED, "doubles", "of units of many rows"))
def test_rows_by_the_size_of_a_value_are_equal(engine, name, reach):
    """By which bounds are found; powers of two and what lies next to them are among the values."""
    chance, (table, value) = Random(f"{name} {reach}"), SIZED[name]
    data = made.make_rows(chance)
    edges = [2.0**power for power in (-70, -64, -63, -1, 0, 9, 62, 63, 64, 65)]
    near = [np.nextafter(edge, side) for edge in edges for side in (0, np.inf)]
    odd = [sign * each for each in [*edges, *near, 0.0] for sign in (1, -1)] + made.ODD
    data["rows"] = [
        {"ward": "north", "code": "a", "age": chance.choice([-9, 0, 1, 512, 2**53 + 1, None]),
         "bmi": each}
        for each in odd
    ]  # fmt: skip
    frames = made.frames_of(data, chance)
    source, embedded = engine.show(frames, made.TABLES), DuckDBSource(frames, made.TABLES)
    rows = None if table is made.ROWS else 3
    queries = [range_query(Table(table), value, rows_per_unit=rows, reach=reach)]
    if rows is not None and reach is not None:
        queries.append(farthest_query(Table(table), value, reach))
    for query in queries:
        source.require(query.tally)
        require_same(embedded, source, query)


def test_an_empty_table_is_equal_too(engine):
    frames = {
        name: rows.slice(0, 0)
        for name, rows in made.frames_of(made.make_rows(Random(7)), Random(7)).items()
    }
    source, embedded = engine.show(frames, made.TABLES), DuckDBSource(frames, made.TABLES)
    random = Random(8)
    for _ in range(engine.questions):
        query = asked(random, random.choice([made.shallow, made.row_level]), source)
        require_same(embedded, source, query)


def test_many_columns_are_tallied_at_once(engine):
    """More than a server's GROUPING takes: 40 columns, alone, in pairs, and all rows."""
    source, embedded = shown(engine, Random(10))
    by = tuple(
        Grouping(
            name=f"g{n}", expression=Field("code"), keys=("a", "b", None)[n % 2 :], rest=n % 3 == 0
        )
        for n in range(40)
    )
    sets = (*((n,) for n in range(40)), (0, 39), (38, 3), ())
    tally = Marginals(relation=Table(made.VISITS), by=by, sets=sets, term=COUNTED, rows_per_unit=2)
    np.testing.assert_equal(source.marginals(tally), embedded.marginals(tally))


def test_a_missing_key_stays_where_other_lists_have_none(engine):
    """An engine may take the equality of one list, which is plain, for that of all of them."""
    source, embedded = shown(engine, Random(14))
    whole = Call("is_null", (Field("cost"),))
    by = (
        Grouping(name="code", expression=Field("code"), keys=("a", "b", None)),
        Grouping(name="none", expression=whole, keys=(True, False)),
    )
    tally = Sums(relation=Table(made.VISITS), by=by, terms=(COUNTED,), rows_per_unit=9)
    held = source.sums(tally)
    assert held.tolist() == embedded.sums(tally).tolist()
    assert held[0, 4:].sum() > 0  # those without a code


def test_cells_beyond_63_bits_keep_their_numbers(engine):
    source, embedded = shown(engine, Random(9))
    axes = tuple(
        Axis(name=name, expression=Field(name), low=-10, size=1 << 32) for name in ("vid", "who")
    )
    tally = Cells(relation=Table(made.VISITS), by=axes, rows_per_unit=3)
    one, other = embedded.cells(tally), source.cells(tally)
    assert one.cells.tolist() == other.cells.tolist()
    assert one.counts.tolist() == other.counts.tolist()
    assert len(other.cells) > 3


@pytest.mark.parametrize("grains", [8, 128, 1 << 16])  # owners folded, some, rows weighed
@pytest.mark.parametrize("steps", [1 << 10, 1 << 22])  # a sum of an owner in 64 bits, and not
def test_owners_of_many_rows_are_scaled_alike(engine, steps, grains):
    source, embedded = shown(engine, Random(23))
    size = Term(expression=Literal(1), grain=Fraction(1, grains), low=grains, high=grains)
    cost = Term(expression=Field("cost"), grain=Fraction(1, steps), low=-9 * steps, high=50 * steps)
    by = (Grouping(name="g", expression=Field("code"), keys=("a", None), rest=True),)
    paid = replace(cost, low=0)  # weighed by a shift
    tally = Sums(relation=Table(made.VISITS), by=by, terms=(cost, size, paid), rows_per_unit=2)
    assert (counted_once(tally, source._writer(tally)) is None) == is_by_row(tally) == (grains > 8)
    held = source.sums(tally)
    assert held.tolist() == embedded.sums(tally).tolist()
    assert held.tolist() != embedded.sums(replace(tally, rows_per_unit=100)).tolist()


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize("grouped", [False, True])
def test_sums_of_nothing_but_zero_are_zero(engine, rows, grouped):
    """Planners that work such a sum out beforehand failed in the statement, after the charge."""
    source, embedded = shown(engine, Random(23))
    none = Term(expression=Literal(0), grain=Fraction(1), low=-1, high=1)
    cost = Term(expression=Field("cost"), grain=Fraction(1), low=0, high=50)
    by = (Grouping(name="g", expression=Field("code"), keys=("a", None), rest=True),) * grouped
    relation = Table(made.VISITS)
    for terms in (
        (none,),
        (none, cost),
        (cost, none, replace(none, expression=Literal(None, Kind.NUMBER))),
    ):
        tally = Sums(relation=relation, by=by, terms=terms, rows_per_unit=rows, sized=(none,))
        assert source.sums(tally).tolist() == embedded.sums(tally).tolist()
    assert source.sums(tally)[0].any()


@pytest.mark.parametrize("keys", [(1, 2, 3), (2,), (-1, 0, 1)])
@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("steps", [1, 1 << 22])  # in one piece of 64 bits, and in two
def test_rows_that_find_their_places_one_by_one_have_the_same_sums(sail, keys, rest, steps):
    """As they do on Spark itself."""
    source, embedded = shown(sail, Random(29))
    cost = Term(expression=Field("cost"), grain=Fraction(1, steps), low=-9 * steps, high=50 * steps)
    who = Grouping(name="who", expression=Field("who"), keys=keys, rest=rest)
    code = Grouping(name="code", expression=Field("code"), keys=("a", None), rest=rest)
    terms = (cost, COUNTED, replace(COUNTED, expression=Literal(None, Kind.NUMBER)))
    for by, once in (((who,), True), ((who, replace(who, rest=False)), True), ((who, code), False)):
        tally = Sums(relation=Table(made.VISITS), by=by, terms=terms)
        assert not is_placed(tally, source.dialect)
        plain = source.sums(tally)
        source.dialect = STAGED
        source._written.clear()
        assert is_placed(tally, source.dialect) is once
        assert source.sums(tally).tolist() == plain.tolist() == embedded.sums(tally).tolist()
        assert plain[:2].any(axis=1).all() or keys[0] < 0
        del source.dialect


@pytest.mark.long
@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("who", (1, 2, 3)),
        ("who", (3, 1, 2)),
        ("who", (2,)),
        ("who", tuple(range(-100, 0, 1))),
        ("who", tuple(range(0, 200, 2))),
        ("who", (-(2**63) + 1, 2**63 - 1)),
        ("who", (1, None)),
        ("code", ("a", "b")),
        ("code", ("b", None, "a")),
        ("code", ("a", *(one + other for one in "abcdefghi" for other in "abcdefghi"))),
    ],
)
def test_keys_have_their_places_however_these_are_found(engine, name, keys, rest):
    source, embedded = shown(engine, Random(31))
    by = (Grouping(name="g", expression=Field(name), keys=tuple(dict.fromkeys(keys)), rest=rest),)
    row = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
    for cap in (2, 100, None):
        tally = Sums(relation=Table(made.VISITS), by=by, terms=(row,), rows_per_unit=cap)
        held = source.sums(tally)
        assert held.tolist() == embedded.sums(tally).tolist()
        assert held.any() or not rest


@pytest.mark.parametrize("cap", [None, 2])
@pytest.mark.parametrize("steps", [1, 1 << 20])  # grouped by value, and sent one by one
def test_values_are_equal_however_they_are_sent(engine, steps, cap):
    source, embedded = shown(engine, Random(29))
    term = Term(expression=Field("cost"), grain=Fraction(1, steps), low=-9 * steps, high=50 * steps)
    by = (Grouping(name="g", expression=Field("code"), keys=("a", "b", None)),)
    for each in ((), by):
        tally = Values(relation=Table(made.VISITS), by=each, term=term, rows_per_unit=cap)
        assert is_grouped(tally, engine.dialect) == (steps == 1 or engine.name == "Spark")
        one, other = (
            [sorted(cell.tolist()) for cell in held.values(tally)] for held in (embedded, source)
        )
        assert one == other
        assert sum(map(len, one)) > 3


@pytest.mark.parametrize("bound", [1 << 40, 1 << 59])
def test_wide_products_are_divided_exactly(engine, bound):
    """What an owner adds is up to 2**62, times its bound: beyond what decimals divide plainly."""
    source, embedded = shown(engine, Random(11))
    term = Term(expression=Field("vid"), grain=Fraction(1, bound), low=-bound, high=bound)
    tally = Sums(relation=Table(made.VISITS), terms=(term,), rows_per_unit=2, by=(
        Grouping(name="g", expression=Field("code"), keys=("a", "b"), rest=True),))  # fmt: skip
    assert source.sums(tally).tolist() == embedded.sums(tally).tolist()
