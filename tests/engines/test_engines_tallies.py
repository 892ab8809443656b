"""Every kind of tally over random relations and hostile rows: equal whole numbers on all engines.

The generator is that of the sensitivity test, so what is compared here is what is claimed there.
"""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import test_sensitivity as made
from hypothesis import given, settings

from noisegate.algebra.tally import Distinct, Keys
from noisegate.errors import Unsupported
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.sources.postgres.source import PostgresSource

EXAMPLES, QUESTIONS = 6, 16


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
    duckdb = DuckDBSource(frames, made.TABLES)
    for _ in range(QUESTIONS):
        query = asked(random, relation_of, postgres)
        if isinstance(query.tally, Keys | Distinct):
            require_as_many_keys(duckdb, postgres, query)
            query = SimpleNamespace(tally=replace(query.tally, keys_per_unit=1 << 20))
        one, other = made.collected(duckdb, query), made.collected(postgres, query)
        np.testing.assert_equal(other, one, err_msg=repr(query.tally))


def require_as_many_keys(duckdb, postgres, query):
    """Which keys of an owner with too many are kept is each engine's own; how many is not."""
    if isinstance(query.tally, Keys):
        one, other = (made.collected(engine, query) for engine in (duckdb, postgres))
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


@settings(made.OFTEN, max_examples=3)
@given(random=made.RANDOMS)
def test_windows_and_partners_are_equal(engines, random):
    kinds = [made.windowed, made.partnered, made.numbered]
    require_equal(random, random.choice(kinds), engines)
