"""169 everyday questions over three schemas: what is answered means what DuckDB says it means.

Each question in `shop.sql`, `logs.sql` and `clinic.sql` states its outcome. What is answered is
asked twice. With an ε so large that there is no noise, rows and values are DuckDB's own: groups
that are declared and empty may be shown too, rows whose key is outside a declared list (`STRAYS`)
are in no group. At ε = 1 the 95 % intervals cover DuckDB's answer. What is refused, or not offered,
is so before any charge, for the reason that is stated.
"""

import json
from collections import Counter
from copy import copy
from datetime import datetime
from decimal import Decimal
from functools import cache
from math import isclose

import pytest
from everyday_worlds import STRAYS, WORLDS, questions, written
from scipy import stats
from sqlglot import parse_one

import noisegate as ng
from noisegate.errors import Unsupported
from noisegate.root import Hosted, read_policy
from noisegate.server.wire.statements import spelled
from refusals import listed

HUGE = 333_333
SHARED = 3  # questions of one gate: an account has 10**6 at most
ALARM = 1e-6
BARS = 90  # questions with error bars
COUNTS = {"answered": 148, "refused": 21}


ALL = [one for world in WORLDS for one in questions(world)]
ANSWERED = [one for one in ALL if one.outcome == "answered"]


@cache
def opened(world, folder):
    policy, con = written(world, folder)
    return policy, con


@cache
def hosted(policy):
    return Hosted(read_policy(policy), ledger=":memory:")


@cache
def gate_of(policy, number=0):
    """A gate with a ledger of its own, in front of rows that are opened once."""
    host = copy(hosted(policy))
    host.ledger, host._read = host._book(":memory:"), {}
    return host.gate(None)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    return {world: opened(world, tmp_path_factory.mktemp(world)) for world in WORLDS}


def plain(value):
    """A value so that both sides write it alike."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)  # a list of quantiles
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, datetime):
        return value.date() if value.time().isoformat() == "00:00:00" else value
    return (
        float(value)
        if isinstance(value, Decimal | int | float) and not isinstance(value, bool)
        else value
    )


def exact(con, asked):
    rows = [tuple(map(plain, row)) for row in con.execute(asked.means).fetchall()]
    return [row for row in rows if not STRAYS & {each for each in row if isinstance(each, str)}]


def alike(one, other, within):
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(
            alike(*pair, within) for pair in zip(one, other, strict=True)
        )
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=within, abs_tol=max(within, 1e-2))
    return one == other


def is_empty(row, noisy):
    return all(row[at] is None or abs(row[at]) < 1 for at in noisy)


@pytest.mark.parametrize("asked", ANSWERED, ids=str)
def test_without_noise_the_answer_is_that_of_duckdb(worlds, asked):
    policy, con = worlds[asked.world]
    answer = gate_of(policy, 1 + asked.place // SHARED).sql(asked.sql, epsilon=HUGE)
    left = exact(con, asked)
    margins = answer.margins()
    noisy = [at for at, name in enumerate(answer.columns) if margins[name] is not None]
    for row in (tuple(map(plain, row)) for row in answer.rows):
        same = next((each for each in left if alike(row, each, asked.within)), None)
        if same is not None:
            left.remove(same)
        else:
            assert noisy, (row, left)
            assert is_empty(row, noisy), (row, left)
    assert left == []


def apart(one, other):
    """How far two numbers are apart, or of two lists the furthest."""
    if isinstance(one, tuple):
        return max(map(apart, one, other))
    return abs(one - other)


def checked(gate, con, asked):
    """Of the cells with a ±, how many there are and how many cover DuckDB's number."""
    try:
        answer = gate.sql(asked.sql, epsilon=1, fresh=True)
    except Unsupported as refusal:  # too few people for groups that nobody declared
        if refusal.about != "no-group":
            raise
        return []
    truth = exact(con, asked)
    margins = list(answer.margins().values())
    rows = [tuple(map(plain, row)) for row in answer.rows]
    keys = [
        at for at, each in enumerate(margins)
        if each is None and {row[at] for row in rows} & {row[at] for row in truth}
    ]  # fmt: skip
    held = []
    for place, row in enumerate(rows):
        same = [each for each in truth if all(each[at] == row[at] for at in keys)]
        if len(same) != 1:
            continue
        for at, each in enumerate(margins):
            if (
                each is not None
                and each[place] is not None
                and same[0][at] is not None
                and row[at] is not None
            ):
                held.append(apart(row[at], same[0][at]) <= each[place] + 1e-9)
    return held


@pytest.mark.long
def test_the_error_bars_at_epsilon_1_cover_duckdbs_answers(worlds):
    """One cell of each question, as cells of one question may share their noise.

    They are then independent, so that fewer hold than this in a run out of a million.
    """
    gates = {world: (gate_of(policy), con) for world, (policy, con) in worlds.items()}
    held = [held for asked in ANSWERED if (held := checked(*gates[asked.world], asked))]
    first = [each[0] for each in held]
    assert len(first) >= BARS
    assert sum(first) >= stats.binom.ppf(ALARM, len(first), 0.95), (sum(first), len(first))


@pytest.mark.parametrize("asked", [one for one in ALL if one.outcome != "answered"], ids=str)
def test_what_is_not_answered_is_refused_before_it_is_paid(worlds, asked):
    policy, con = worlds[asked.world]
    con.execute(asked.sql).fetchall()  # DuckDB has an answer
    gate = gate_of(policy)
    before = gate.spent
    with pytest.raises(ng.NoisegateError) as refused:
        gate.sql(asked.sql, epsilon=1)
    assert gate.spent == before
    if asked.outcome == "refused":
        assert listed(asked.reason)(refused.value)


def test_the_list_has_not_shrunk():
    assert Counter(one.outcome for one in ALL) == COUNTS
    assert len({one.sql for one in ALL}) == len(ALL) >= 150


def test_a_question_is_the_same_as_postgres_clients_have_it_spelled(worlds):
    """Those with a schema in their names, or with parameters, are written out anew."""
    for one in ANSWERED:
        tree = parse_one(one.sql, dialect="duckdb")
        if parse_one(spelled(tree), dialect="duckdb") == tree:
            continue  # the same to the reader
        gate = gate_of(worlds[one.world][0])
        first, again = (
            gate.plan(sql, epsilon=1).to_dict("0.95") for sql in (one.sql, spelled(tree))
        )
        assert first | {"sql": ""} == again | {"sql": ""}, one.sql
