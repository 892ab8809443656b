"""Attacks on secret samples, crowds, kept tables and sessions: coins, races, copies, prices."""

import threading
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from door import ONE, Watched, by, count_query, curator, domain, field, table
from noisegate.accounting.amplification import poisson
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Fold, Folded, Join, PerUnit, Sampled, Table, Union
from noisegate.algebra.tally import Marginals, Sums, Values
from noisegate.curator.kept import Kept
from noisegate.curator.measurement import Measurement
from noisegate.curator.surprises import GUESS_MAX, SurpriseSpec, open_surprises
from noisegate.errors import OverBudget, RequestConflict, Unsupported
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.selection.outside_band import BandRun, OutsideBand
from noisegate.privacy.domain import Column, Kind
from noisegate.privacy.event import DeclaredEvent, ExponentialEvent, PoissonSampled, Sequential
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups

HALF = Fraction(1, 2)
WHOLE = Groups(np.zeros(3, np.int32), 1)  # 100 rows: 75 north, 25 south, 0 west


class Heard(Watched):
    """Keeps the coins that it was given; ``meanwhile`` happens while it reads."""

    def __init__(self, *args, meanwhile=lambda: None, **more):
        super().__init__(*args, **more)
        self.keys, self._meanwhile = [], meanwhile

    def sums(self, tally):
        below = tally.relation
        while not isinstance(below, Sampled | Table):
            below = below.of
        self.keys.append(getattr(below, "key", None))
        self._meanwhile()
        return super().sums(tally)


# samples


def sampled(scale=1, terms=1, unit=None):
    relation = Sampled(Table(domain(unit)), HALF)
    cap = None if unit is None else 1
    query = Query(Sums(relation=relation, terms=(ONE,) * terms, rows_per_unit=cap))
    return Measurement(query=query, mechanisms=(Geometric(scale=Fraction(scale)),) * terms)


def test_coins_are_long_fresh_and_shown_nowhere():
    """Keys of one length: no key and owner can be read as another key and another owner."""
    source = Heard()
    door = curator(source=source, budget=100)
    releases = [door.measure(sampled(), request_id=str(n)) for n in range(3)]
    assert len(set(source.keys)) == 3
    assert {len(key) for key in source.keys} == {64}
    told = "".join(f"{each}{each.question}{each.to_bytes()}" for each in releases)
    told += "".join(map(str, door.ledger.history()))
    kept = "".join(map(str, source._inner._written))
    assert not any(key in told + kept for key in source.keys)


def test_a_sample_of_rows_is_read_once_however_large_its_sums():
    """Rows have no order, so a second reading could be of others: whether there is one, tells."""
    rows = table("people", None, Column(name="x", kind=Kind.NUMBER, between=(0, 2**40)))
    source = DuckDBSource({"people": pa.table({"x": [2.0**40] * 30_000})}, {"people": rows})
    asked, read = [], source._few

    def watched(tally, *, wide):
        asked.append(wide)
        return read(tally, wide=wide)

    source._few = watched
    tally = Sums(relation=Table(rows), terms=(field("x", high=2**40),))
    source.sums(tally)
    assert asked == [False, True]  # beyond 2**53: added again in 128 bits
    asked.clear()
    (found,) = source.sums(
        Sums(relation=Sampled(Table(rows), HALF, "0" * 64), terms=tally.terms)
    ).tolist()
    assert len(asked) == 1
    assert found[0] % 2**40 == 0
    assert abs(found[0] // 2**40 - 15_000) < 600  # seven standard deviations: once in 10¹¹ runs


def test_several_sums_of_one_sample_are_amplified_together_and_not_each():
    event = sampled(terms=3).event()
    assert isinstance(event, PoissonSampled)
    assert isinstance(event.event, Sequential)
    assert len(event.event.events) == 3


def test_a_choice_about_a_sample_is_not_sold_as_one_of_bounded_range():
    """A sample with the person is a mixture: its log-ratios have no range of ε' any more."""
    tally = Values(relation=Sampled(Table(domain()), HALF), term=field("id"))
    choice = Quantile.for_epsilon(1, tau=HALF, low=0, high=100, values_per_unit=1)
    event = Measurement(query=Query(tally), mechanisms=(choice,)).event()
    loss = poisson(ApproxDP(1), probability=HALF)
    assert event == PoissonSampled(event=ExponentialEvent(epsilon=Fraction(1)), probability=HALF)
    assert pure_loss(event) == loss
    assert zcdp_loss(event).rho == loss.epsilon**2 / 2


def test_a_question_about_a_sample_and_one_about_all_rows_never_stand_for_each_other():
    source = Heard()
    door = curator(source=source, budget=100)
    whole = Measurement(
        query=Query(Sums(relation=Table(domain()), terms=(ONE,))), mechanisms=sampled().mechanisms
    )
    other = Sampled(Table(domain()), Fraction(1, 3))
    third = Measurement(
        query=Query(Sums(relation=other, terms=(ONE,))), mechanisms=sampled().mechanisms
    )
    for each in (sampled(), whole, third):
        assert door.find(each) is None
        door.measure(each)
    assert len(source.keys) == 3


# crowds

PUBLIC = table("wards", "public", ("name", Kind.TEXT), ("doctor", Kind.TEXT))
COUNT = (Folded("n", Fold.COUNT, Literal(1)),)


def crowd(relation, expression=ONE.expression, cap=None, epsilon="0.7", k=10):
    term = replace(ONE, expression=expression)
    tally = Sums(relation=relation, terms=(term,), rows_per_unit=cap)
    noise = CrowdCounts(probability=HALF, crowd=k, epsilon=epsilon)
    return Measurement(query=Query(tally), mechanisms=(noise,))


@pytest.mark.parametrize(
    "relation",
    [
        Union((Table(domain()), Table(domain()))),
        Union((Table(domain()), Filter(Table(domain()), Call("eq", (Field("id"), Literal(1)))))),
        Union((PerUnit(Table(domain("id")), (), COUNT), PerUnit(Table(domain("id")), (), COUNT))),
        PerUnit(Table(domain("id")), (("ward", Field("ward")),), COUNT),
        Table(domain("id")),
        Join(PerUnit(Table(domain("id")), (("ward", Field("id")),), COUNT), Table(PUBLIC), ((Field("ward"), Field("name")),)),
    ],
    ids=["rows twice", "some rows twice", "units twice", "a row per ward", "rows of a unit", "rows times public rows"],
)  # fmt: skip
@pytest.mark.parametrize("cap", [None, 1])
def test_no_person_is_counted_twice_in_a_crowd(relation, cap):
    with pytest.raises(Unsupported):
        crowd(relation, cap=cap)


def test_a_row_of_a_crowd_counts_once_whatever_it_says():
    """A term beyond 0 and 1 is clamped: 100 rows of large ids are 100 people."""
    door = curator(budget=10**4, delta="0.9")
    shown = door.measure(
        crowd(Table(domain()), Call("multiply", (Field("id"), Literal(1000))), k=1)
    )
    assert 0 < shown.values[0][0] <= 100


def test_another_point_or_crowd_is_another_sample_and_paid_for():
    """Else the two tables of one sample, with crowds k and k + 1, would show one person more."""
    door = curator(budget=3, delta="0.2")
    for epsilon, k in (("0.7", 10), ("0.8", 10), ("0.7", 11)):
        door.measure(crowd(Table(domain()), epsilon=epsilon, k=k))
    assert door.ledger.balance("clinic").spent.epsilon == Fraction(22, 10)
    with pytest.raises(OverBudget):
        door.measure(crowd(Table(domain()), epsilon="0.9"))


# kept tables


def test_every_round_about_a_kept_table_is_paid_for():
    source = Watched()
    door = curator(source=source, budget=1)
    tally = Marginals(
        relation=Table(domain()), by=(by("ward", "north", "south"),), sets=((0,), ()), term=ONE
    )
    noises = (Geometric(scale=Fraction(8)),) * 2
    with door.allowance(DeclaredEvent(epsilon=1), question="rounds", request_id="1") as allowed:
        for _ in range(4):  # two tables at 1/8
            allowed.whole.measure(Measurement(query=Query(tally), mechanisms=noises))
        with pytest.raises(OverBudget):
            allowed.whole.measure(Measurement(query=Query(tally), mechanisms=noises))
    assert source.reads == 1
    assert door.ledger.balance("clinic").spent.epsilon == 1


def test_a_table_that_is_kept_is_not_taken_for_one_of_other_keys():
    kept = Kept(
        DuckDBSource(
            {"people": pa.table({"id": [0, 1, 1], "ward": ["1", "1", "x"]})}, {"people": domain()}
        )
    )
    found = [
        kept.marginals(Marginals(relation=Table(domain()), by=(each,), sets=((0,),), term=ONE))[0].tolist()
        for each in (by("id", 1, 0), by("id", 0, 1), by("ward", "1", "0"), by("id", 1, 0))
    ]  # fmt: skip
    assert found == [[2, 1], [1, 2], [2, 0], [2, 1]]


# sessions


def begin(door, *, restarts=False):
    """Two surprises: comparisons for 20, or 20 each, and two numbers for 10."""
    times = 1 if restarts else 2
    spec = SurpriseSpec(
        cells=count_query(by="ward"), reach=1, most=2, restarts=restarts,
        band=OutsideBand.for_epsilon(20, threshold=10, sensitivity=1, cutoff=times),
        number=Geometric(scale=Fraction(1, 10)),
    )  # fmt: skip
    return open_surprises(door, spec, name="test", request_id="1")


def test_guesses_that_change_while_a_question_runs_are_those_that_were_checked():
    """A guess beyond all bounds would let a difference wrap: from far above to far below."""
    guesses = np.array([100], np.int64)
    far = np.iinfo(np.int64).min + 100

    def write():
        guesses[0] = far

    source = Heard(meanwhile=write)
    with begin(curator(source=source, budget=100)) as session:
        told = session.ask(WHOLE, guesses)
    assert guesses[0] == far
    assert (told.near, told.side) == (1, 0)


@pytest.mark.parametrize(("guess", "side"), [(-GUESS_MAX, 1), (GUESS_MAX, -1)])
def test_the_furthest_guesses_do_not_wrap(guess, side):
    with begin(curator(budget=100)) as session:
        told = session.ask(WHOLE, np.array([guess], np.int64))
    assert told.side == side
    assert abs(told.number - 100) < 5  # scale 1/10: beyond once in 10²¹ runs


def test_one_session_is_not_opened_twice():
    door = curator(budget=1000)
    with begin(door), pytest.raises(RequestConflict), begin(door):
        pass
    with pytest.raises(RequestConflict), begin(door):
        pass


def test_a_number_that_fails_after_its_comparison_is_paid_for(monkeypatch):
    """The comparison was drawn: to ask again is another one."""
    door = curator(budget=1000)
    with begin(door) as session:
        with monkeypatch.context() as patched:
            patched.setattr(Geometric, "sample", lambda *_, **__: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                session.ask(WHOLE, np.array([0], np.int64))
        assert session.answered == 1
        session.ask(WHOLE, np.array([0], np.int64))
        assert session.left == 0
    assert door.ledger.balance("clinic").spent.epsilon == 40


@pytest.mark.parametrize("restarts", [False, True])
def test_a_yes_counts_although_whoever_asked_was_interrupted(restarts, monkeypatch):
    """Right after the comparison: what is left would else tell of a yes that was given back."""
    compare = BandRun.ask

    def interrupted(run, differences):
        compare(run, differences)
        raise KeyboardInterrupt

    door = curator(budget=1000)
    with begin(door, restarts=restarts) as session:
        with monkeypatch.context() as patched:
            patched.setattr(BandRun, "ask", interrupted)
            with pytest.raises(KeyboardInterrupt):
                session.ask(WHOLE, np.array([0], np.int64))
        assert (session.answered, session.left) == (1, 1)
        session.ask(WHOLE, np.array([0], np.int64))
        with pytest.raises(RequestConflict):
            session.ask(WHOLE, np.array([0], np.int64))
    assert door.ledger.balance("clinic").spent.epsilon == (60 if restarts else 40)


def test_closing_waits_for_a_question_and_charges_it():
    reading, closed = threading.Event(), threading.Event()

    def wait():
        reading.set()
        assert not closed.wait(0.3)  # it is not closed under the question

    door = curator(source=Heard(meanwhile=wait), budget=1000)
    with begin(door) as session:
        asking = threading.Thread(target=session.ask, args=(WHOLE, np.array([0], np.int64)))
        asking.start()
        assert reading.wait(10)
        session.close()
        closed.set()
        asking.join()
    run = OutsideBand.for_epsilon(20, threshold=10, sensitivity=1, cutoff=2).event(Fraction(1))
    used = run.epsilon_threshold + run.epsilon_queries / 2 + 10
    assert 0 <= door.ledger.balance("clinic").spent.epsilon - used < Fraction(1, 10**20)
