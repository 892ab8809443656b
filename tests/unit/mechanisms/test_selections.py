"""A choice among sums: what it is charged, and how far a unit moves any one of them."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from door import by, curator, domain, field, showing, table
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import PerUnit, Table
from noisegate.algebra.tally import Grouping, Marginals, Sums, Term, Values
from noisegate.curator.measurement import Measurement
from noisegate.errors import Unsupported
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.mechanisms.selection.noisy_max import NoisyMax
from noisegate.mechanisms.selection.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.selection.prior import PriorExponential
from noisegate.mechanisms.selection.top_k import TopK
from noisegate.privacy.domain import Kind
from noisegate.privacy.event import (
    DeclaredEvent,
    ExponentialEvent,
    PermuteAndFlipEvent,
    TopKEvent,
)
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Strategy
from refusals import about

VISITS = table("visits", "who", ("who", Kind.INTEGER), ("code", Kind.TEXT), ("cost", Kind.NUMBER))
ROWS, CODES = Table(VISITS), by("code", "a", "b", "c")
FINE = Term(expression=Literal(1), grain=Fraction(1, 1024), low=0, high=1024)
COSTS = tuple(field("cost", Fraction(1, 1024), low=0, high=1024 * top) for top in (3, 5, 2))
PER_CODE = PerUnit(ROWS, (("code", Field("code")),), ())


def sums(*, relation=ROWS, groups=(CODES,), terms=(FINE,), rows=2):
    return Query(Sums(relation=relation, by=groups, terms=terms, rows_per_unit=rows))


def chosen(query, mechanism):
    return Measurement(query=query, mechanisms=(mechanism,))


# the price

EVENTS = [
    (Exponential(factor=1, monotone=True), lambda e: ExponentialEvent(epsilon=e)),
    (PermuteAndFlip(factor=1, monotone=True), lambda e: PermuteAndFlipEvent(epsilon=e)),
    (TopK(k=2, factor=1, monotone=True), lambda e: TopKEvent(k=2, epsilon_each=e)),
    (NoisyMax(k=2, factor=1, monotone=True), lambda e: DeclaredEvent(epsilon=2 * e)),
]


@pytest.mark.parametrize(("mechanism", "event"), EVENTS, ids=lambda each: getattr(each, "name", ""))
def test_a_choice_is_charged_by_how_far_a_unit_moves_any_one_sum(mechanism, event):
    assert chosen(sums(), mechanism).event() == event(2 * 1024)
    assert chosen(sums(groups=(), terms=COSTS), mechanism).event() == event(2 * 5 * 1024)
    assert chosen(sums(relation=PER_CODE), mechanism).event() == event(1024)


def test_without_monotone_sums_it_is_charged_twice():
    signed = (FINE, field("cost", low=-2000, high=5))
    mechanism = Exponential(factor=1)
    assert chosen(sums(terms=signed), mechanism).event().epsilon == 2 * 2 * 2000
    for kind in (Exponential, PermuteAndFlip):
        with pytest.raises(Unsupported, check=about("monotone")):
            chosen(sums(terms=signed), kind(factor=1, monotone=True))
    falling = tuple(field("cost", low=-high, high=0) for high in (3, 4))
    assert chosen(sums(terms=falling), Exponential(factor=1, monotone=True)).event().epsilon == 8


def test_terms_of_both_signs_are_not_monotone_together():
    both = (field("cost", low=0, high=3), field("cost", low=-3, high=0))
    with pytest.raises(Unsupported, check=about("monotone")):
        chosen(sums(terms=both), TopK(k=1, factor=1, monotone=True))


@pytest.mark.parametrize(
    ("query", "mechanisms"),
    [
        (sums(), (Exponential(factor=1), Exponential(factor=1))),
        (sums(), (Exponential(factor=1), Geometric(scale=1))),
        (sums(), (TopK(k=4, factor=1),)),
        (sums(), (NoisyMax(k=3, factor=1),)),
        (sums(groups=(), terms=COSTS), (TopK(k=4, factor=1),)),
        (
            Query(Values(relation=ROWS, term=field("cost"), rows_per_unit=1)),
            (PermuteAndFlip(factor=1),),
        ),
    ],
)
def test_a_choice_without_a_rule_is_refused(query, mechanisms):
    with pytest.raises(Unsupported):
        Measurement(query=query, mechanisms=mechanisms)


def test_a_choice_takes_one_block_of_combinations_and_no_more():
    block = Groups(np.array([0, 1, 1], np.int32), 2)
    with pytest.raises(Unsupported, check=about("scores")):
        chosen(Query(sums().tally, Strategy(3, (block, block))), Exponential(factor=1))
    found = chosen(Query(sums().tally, Strategy(3, (block,))), Exponential(factor=1))
    assert found.event().epsilon == 2 * Query(sums().tally, Strategy(3, (block,))).any_one
    for weights in ((1, 1, 1), (1,)):
        with pytest.raises(Unsupported, check=about("candidates")):
            chosen(found.query, PriorExponential(factor=1, weights=weights))
    with pytest.raises(Unsupported, check=about("sums")):
        _ = Query(sums().tally, Strategy(3, (block,))).single


def test_tables_of_one_cell_are_candidates_too():
    """A key alone: rows without it are in no cell, so each table counts who has all of its keys."""
    one = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
    groups = tuple(
        Grouping(name=name, expression=Field(name), keys=(key,))
        for name, key in (("ward", "north"), ("ward", "south"), ("id", 1))
    )
    sets = ((0,), (1,), (2,), (0, 2), (1, 2))
    query = Query(Marginals(relation=Table(domain()), by=groups, sets=sets, term=one))
    assert query.single == 1
    door = curator(budget="400")
    ask = chosen(query, TopK.for_epsilon(300, k=5, score_sensitivity=1, monotone=True))
    assert ask.event() == TopKEvent(k=5, epsilon_each=60)
    order = [sets[place] for place in door.measure(ask).values[0].tolist()]
    assert order[:2] == [(0,), (2,)]  # 75 and 50; then 25, 25, 25
    assert set(order) == set(sets)
    with pytest.raises(Unsupported, check=about("candidates")):
        chosen(query, NoisyMax(k=5, factor=1))
    several = Query(
        Marginals(relation=ROWS, by=(CODES,), sets=((), (0,)), term=FINE, rows_per_unit=3)
    )
    assert several.single == 3 * 1024
    per_code = Query(
        Marginals(relation=PER_CODE, by=(CODES,), sets=((), (0,)), term=FINE, rows_per_unit=3)
    )
    assert per_code.single == 3 * 1024  # of all codes together a unit has several rows
    assert Query(replace(per_code.tally, sets=((0,),))).single == 1024


# the claim, on rows


def rows_of(chance, owners):
    counts = chance.integers(0, 6, owners)
    who = np.repeat(np.arange(owners), counts)
    code = chance.choice(list("abcd"), who.size)
    return pa.table({"who": who, "code": code, "cost": chance.uniform(-1, 9, who.size)})


def most_moved(query, rows, owners):
    whole = showing(rows, VISITS).sums(query.tally)
    moved = []
    for owner in range(owners):
        left = rows.filter(pa.compute.not_equal(rows["who"], owner))
        moved.append(whole - showing(left, VISITS).sums(query.tally))
    return np.array(moved)


@pytest.mark.parametrize(
    ("query", "least"),
    [
        (sums(), 2 * 1024),
        (sums(groups=(), terms=COSTS), 2 * 3 * 1024),
        (sums(relation=PER_CODE, rows=3), 1024),
        (sums(relation=PER_CODE, rows=1), 512),
    ],
)
def test_no_unit_moves_a_sum_further_and_none_moves_one_down(query, least):
    chance, furthest = np.random.default_rng(7), 0
    for _ in range(3):
        moved = most_moved(query, rows_of(chance, 6), 6)
        assert moved.min() >= 0
        furthest = max(furthest, int(moved.max()))
    assert least <= furthest <= query.single


# through the door


def test_a_choice_is_drawn_once_and_found_again():
    door = curator(budget="60")
    people = domain()
    one = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
    query = Query(
        Sums(relation=Table(people), by=(by("ward", "north", "south", "west"),), terms=(one,))
    )
    ask = chosen(query, NoisyMax.for_epsilon(50, k=1, score_sensitivity=1, monotone=True))
    found = door.measure(ask)
    assert found.values.shape == (1, 2)
    place, gap = found.values[0].tolist()
    assert place == 0  # 75, 25, 0: another one wins with e^-2500
    assert 49 <= gap <= 51  # noise above 1 comes with e^-50 each
    again = door.measure(ask)
    assert again.free
    assert again.values.tolist() == found.values.tolist()


def test_terms_and_cells_are_candidates_in_order():
    door = curator(budget="60")
    tall = Term(expression=Call("negate", (Field("id"),)), grain=Fraction(1), low=-9, high=0)
    query = Query(
        Sums(
            relation=Table(domain()),
            by=(by("ward", "north", "south", "west"),),
            terms=(tall, tall),
        )
    )
    ask = chosen(query, TopK.for_epsilon(50, k=2, score_sensitivity=9, monotone=True))
    assert sorted(door.measure(ask).values[0].tolist()) == [2, 5]  # no rows: 0 beats -25
