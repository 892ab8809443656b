"""Every kind of tally over random relations and hostile rows: equal whole numbers on all engines.

The generator is that of the sensitivity test, so what is compared here is what is claimed there.
"""

import threading
from dataclasses import replace
from fractions import Fraction
from random import Random
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest
import test_sensitivity as made
from hypothesis import given, settings

from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Sampled, Table
from noisegate.algebra.tally import Axis, Cells, Distinct, Grouping, Keys, Marginals, Sums, Term
from noisegate.errors import Unsupported
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.postgres.source import PostgresSource
from refusals import about

EXAMPLES, QUESTIONS = 3, 10  # of each test below; NOISEGATE_EXPLORE=1 tries others


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(duckdb, "connect", made.plain_connection)
    monkeypatch.setattr(threading, "Timer", made.NoClock)


@pytest.fixture(scope="module")
def engines(shared_database):
    """The tables of the generator on Postgres, and how to show them other rows."""
    random = Random(0)
    frames = made.frames_of(made.make_rows(random), random)
    places = shared_database.hold(frames, unique=[("drugs", ["code"])])
    return shared_database, PostgresSource(places, made.TABLES)


def asked(random, relation_of, postgres):
    """A question that Postgres does not refuse; and how many it did."""
    refused = 0
    while True:
        query = made.some_query(random, relation_of)
        try:
            postgres.require(query.tally)
        except Unsupported:
            refused += 1
            assert refused < 100
            continue
        return query


def require_equal(random, relation_of, engines):
    database, postgres = engines
    frames = made.frames_of(made.make_rows(random), random)
    database.show(frames)
    embedded = DuckDBSource(frames, made.TABLES)
    for _ in range(QUESTIONS):
        query = asked(random, relation_of, postgres)
        if isinstance(query.tally, Keys | Distinct):
            require_as_many_keys(embedded, postgres, query)
            query = SimpleNamespace(tally=replace(query.tally, keys_per_unit=1 << 20))
        one, other = made.collected(embedded, query), made.collected(postgres, query)
        np.testing.assert_equal(other, one, err_msg=repr(query.tally))


def require_as_many_keys(embedded, postgres, query):
    """Which keys of an owner with too many are kept is each engine's own; how many is not."""
    if isinstance(query.tally, Keys):
        one, other = (made.collected(engine, query) for engine in (embedded, postgres))
        assert sum(one.values()) == sum(other.values())


@settings(made.OFTEN, max_examples=EXAMPLES)
@given(random=made.RANDOMS)
def test_tallies_of_tables_of_persons_are_equal(engines, random):
    require_equal(random, made.shallow, engines)


@settings(made.OFTEN, max_examples=EXAMPLES)
@given(random=made.RANDOMS)
def test_tallies_of_deep_trees_are_equal(engines, random):
    require_equal(random, made.deep, engines)


@settings(made.OFTEN, max_examples=EXAMPLES)
@given(random=made.RANDOMS)
def test_tallies_of_rows_that_are_persons_are_equal(engines, random):
    require_equal(random, made.row_level, engines)


@settings(made.OFTEN, max_examples=2)
@given(random=made.RANDOMS)
def test_windows_and_partners_are_equal(engines, random):
    kinds = [made.windowed, made.partnered, made.numbered]
    require_equal(random, random.choice(kinds), engines)


def test_neighbours_on_a_server_move_by_at_most_their_claim(engines):
    """12 questions and one unit left out at a time: what equal numbers imply, seen directly."""
    database, postgres = engines
    random = Random(12)
    data = made.make_rows(random)
    database.show(made.frames_of(data, random))
    kinds = [made.shallow, made.deep, made.windowed]
    queries = [asked(random, kinds[n % 3], postgres) for n in range(12)]
    before = [made.collected(postgres, query) for query in queries]
    guesses = [made.guessed(*pair) for pair in zip(queries, before, strict=True)]
    for space, unit in [("patient", n) for n in range(made.PERSONS)] + [("doctor", 1)]:
        database.show(made.frames_of(made.without(data, space, unit), random))
        for query, guess, one in zip(queries, guesses, before, strict=True):
            made.require_claim(query, guess, one, made.collected(postgres, query))


COUNTED = Term(expression=Literal(1), grain=Fraction(1), low=1, high=1)


def test_a_sample_of_units_is_the_same_on_all_engines(engines):
    """A coin is the SHA-256 of a key and the unit's name, so that it does not matter who tosses."""
    database, postgres = engines
    frames = made.frames_of(made.make_rows(Random(5)), Random(5))
    database.show(frames)
    embedded = DuckDBSource(frames, made.TABLES)
    seen = set()
    for key in ("a" * 64, "b" * 64, "c" * 64):
        for table in (made.PEOPLE, made.VISITS, made.DRUGS_TAKEN):
            relation = Sampled(Table(table), Fraction(1, 2), key)
            tally = Sums(relation=relation, terms=(COUNTED,), rows_per_unit=3)
            assert embedded.sums(tally).tolist() == postgres.sums(tally).tolist()
            seen.add(int(postgres.sums(tally)[0, 0]))
    assert len(seen) > 2


def test_a_row_that_is_a_unit_has_a_coin_of_its_own(engines):
    """Of 6 rows, 32 samples hold between 60 and 132 in all, but with a chance of 10**-6.

    The keys are fixed, so that this is decided once and for all.
    """
    database, postgres = engines
    frames = made.frames_of(made.make_rows(Random(6)), Random(6))
    database.show(frames)
    sums = [
        Sums(relation=Sampled(Table(made.ROWS), Fraction(1, 2), f"{n:064x}"), terms=(COUNTED,))
        for n in range(32)
    ]
    held = [int(postgres.sums(each)[0, 0]) for each in sums]
    assert 60 < sum(held) < 132
    with pytest.raises(Unsupported, check=about("engine")), postgres.sample(Fraction(1, 2), "a"):
        pass


def test_an_empty_table_is_equal_too(engines):
    database, postgres = engines
    frames = {
        name: rows.slice(0, 0)
        for name, rows in made.frames_of(made.make_rows(Random(7)), Random(7)).items()
    }
    database.show(frames)
    embedded, random = DuckDBSource(frames, made.TABLES), Random(8)
    for _ in range(QUESTIONS):
        query = asked(random, random.choice([made.shallow, made.row_level]), postgres)
        np.testing.assert_equal(made.collected(postgres, query), made.collected(embedded, query))


def test_many_columns_are_tallied_at_once(engines):
    """More than a server's GROUPING takes: 40 columns, alone, in pairs, and all rows."""
    database, postgres = engines
    frames = made.frames_of(made.make_rows(Random(10)), Random(10))
    database.show(frames)
    by = tuple(
        Grouping(
            name=f"g{n}", expression=Field("code"), keys=("a", "b", None)[n % 2 :], rest=n % 3 == 0
        )
        for n in range(40)
    )
    sets = (*((n,) for n in range(40)), (0, 39), (38, 3), ())
    tally = Marginals(relation=Table(made.VISITS), by=by, sets=sets, term=COUNTED, rows_per_unit=2)
    embedded = DuckDBSource(frames, made.TABLES)
    np.testing.assert_equal(postgres.marginals(tally), embedded.marginals(tally))


def test_cells_beyond_63_bits_keep_their_numbers(engines):
    database, postgres = engines
    frames = made.frames_of(made.make_rows(Random(9)), Random(9))
    database.show(frames)
    axes = tuple(
        Axis(name=name, expression=Field(name), low=-10, size=1 << 32) for name in ("vid", "who")
    )
    tally = Cells(relation=Table(made.VISITS), by=axes, rows_per_unit=3)
    one, other = DuckDBSource(frames, made.TABLES).cells(tally), postgres.cells(tally)
    assert one.cells.tolist() == other.cells.tolist()
    assert one.counts.tolist() == other.counts.tolist()
    assert len(other.cells) > 3
