"""One secret sample for a whole recipe: one set of coins, one amplified price, nothing shown."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest

from door import FINE, ONE, Watched, by, count_query, counting, curator, domain, engine, table
from door import ROWS as DOOR_ROWS
from noisegate.accounting.amplification import poisson
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.algebra.expression import Field
from noisegate.algebra.relation import Join, Project, Table
from noisegate.algebra.tally import Axis, Cells, Distinct, Keys, Marginals, Sums, Values
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.curator.surprises import SurpriseSpec, open_surprises
from noisegate.errors import Bug, OverBudget, RequestConflict, SourceError, SpecError, Unsupported
from noisegate.gate import Gate, Rules
from noisegate.ledger.open import open_ledger
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.keys.key_selection import KeySelection
from noisegate.mechanisms.selection.outside_band import OutsideBand
from noisegate.privacy.domain import Kind, Step
from noisegate.privacy.event import DeclaredEvent, DeclaredZCDPEvent, NothingEvent, PoissonSampled
from noisegate.privacy.loss import ApproxDP
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Strategy

P = Fraction(3, 10)
PEOPLE = 2000
ROWS = pa.table({"id": range(PEOPLE), "ward": ["north", "south"] * (PEOPLE // 2)})
TIGHT = Geometric(scale=8)  # half of a row, 512 grains, is passed with probability 2 e^-64


def sampled(epsilon, p=P):
    return PoissonSampled(event=DeclaredEvent(epsilon=epsilon), probability=p)


def opened(door, epsilon, name="one"):
    return door.allowance(sampled(epsilon), question="recipe", request_id=name)


def spent(door):
    return door.ledger.balance("clinic").spent


def large(unit=None, **more):
    return curator(table=domain(unit), source=Watched(ROWS, domain(unit)), **more)


def rows(released):
    return (released + 512) // 1024


def wards(unit=None):
    return count_query(domain(unit), by="ward", cap=None if unit is None else 1, term=FINE)


@pytest.mark.parametrize("unit", [None, "id"])
def test_all_questions_of_a_recipe_read_one_sample_and_the_next_recipe_another(unit):
    """False alarms: two samples of 2000 agree in both wards once in a thousand, three times 10⁻⁹.

    A sample is beyond six standard deviations once in 5 · 10⁸ runs.
    """
    door, query = large(unit, budget=10**6), wards(unit)
    plain = Measurement(query=query, mechanisms=(TIGHT,))
    whole = Query(query.tally, Strategy(3, (Groups(np.zeros(3, np.int32), 1),)))
    both = Marginals(
        relation=query.tally.relation, by=query.tally.by, sets=((0,), ()), term=FINE,
        rows_per_unit=query.tally.rows_per_unit,
    )  # fmt: skip
    seen = []
    for name in ("one", "two", "three", "four"):
        with opened(door, 10**4, name) as allowed:
            first, again = (rows(allowed.whole.measure(plain).values[0]) for _ in range(2))
            total = allowed.whole.measure(Measurement(query=whole, mechanisms=(TIGHT,)))
            marginals = Measurement(query=Query(both), mechanisms=(TIGHT, TIGHT))
            tables = rows(allowed.whole.measure(marginals).values[0])
        assert first.tolist() == again.tolist() == tables[:3].tolist()
        assert first.sum() == rows(total.values[0, 0]) == tables[3]
        assert abs(first.sum() - PEOPLE * P) < 6 * (PEOPLE * P * (1 - P)) ** 0.5
        seen.append(first.tolist())
    assert len(set(map(tuple, seen))) > 1
    outside = rows(door.measure(plain).values[0])  # all rows again
    assert outside.tolist() == [1000, 1000, 0]


def test_every_kind_of_tally_reads_the_sample():
    """Of 2000 people 600 are expected: a tally of all would be 56 standard deviations away."""
    source = DuckDBSource({"people": ROWS}, {"people": domain()})
    relation, ids = Table(domain()), tuple(range(PEOPLE))
    with source.sample(P, "0" * 64) as drawn:
        (sums,) = drawn.sums(Sums(relation=relation, terms=(ONE,)))[0]
        (values,) = drawn.values(Values(relation=relation, term=FINE))
        keys = drawn.keys(Keys(relation=relation, by=(("id", Field("id")),), keys_per_unit=1))
        (different,) = drawn.distinct(
            Distinct(relation=relation, expression=Field("id"), keys_per_unit=1)
        )[0]
        cells = drawn.cells(
            Cells(
                relation=relation, by=(Axis(name="id", expression=Field("id"), low=0, size=PEOPLE),)
            )
        )
        (table_,) = drawn.marginals(
            Marginals(relation=relation, by=(by("id", *ids),), sets=((0,),), term=ONE)
        )
        counts = {int(sums), len(values), keys.counts.sum(), int(different), cells.counts.sum()}
        assert counts == {table_.sum()}
        assert 400 < table_.sum() < 800
        held = [key for (key,) in keys.take(np.arange(keys.counts.size))]
        assert sorted(held) == cells.cells.tolist() == np.flatnonzero(table_).tolist()
    with pytest.raises(Bug):
        drawn.sums(Sums(relation=relation, terms=(ONE,)))
    assert source.sums(Sums(relation=relation, terms=(ONE,)))[0, 0] == PEOPLE


@pytest.mark.parametrize("epsilon", [1, Fraction(7, 3)])
def test_the_whole_recipe_is_amplified_once_and_what_was_not_asked_is_given_back(epsilon):
    door = curator(budget=10)
    asked = counting(epsilon / 4)
    with opened(door, epsilon) as allowed:
        assert spent(door) == rounded(epsilon)
        assert isinstance(allowed.used(), NothingEvent)
        for _ in range(3):
            allowed.whole.measure(asked)
        assert allowed.used().probability == P
    assert spent(door) == rounded(3 * epsilon / 4)
    each = rounded(epsilon / 4).epsilon
    assert spent(door).epsilon > 3 * each  # as one sample is, not as three would be
    with opened(door, epsilon, "two") as allowed:
        for _ in range(4):
            allowed.whole.measure(asked)
        with pytest.raises(OverBudget):
            allowed.whole.measure(asked)
    with opened(door, epsilon, "three"):
        pass
    assert spent(door).epsilon == rounded(3 * epsilon / 4).epsilon + rounded(epsilon).epsilon


def test_questions_about_different_cells_of_the_sample_are_amplified_as_one():
    """A person is in one cell: two questions of ε about others cost what one costs, amplified."""
    door, cells = curator(budget=10), count_query(by="ward").tally
    with opened(door, 1) as allowed:
        for label in range(3):
            one = Groups(np.where(np.arange(3) == label, 0, -1).astype(np.int32), 1)
            query = Query(cells, Strategy(3, (one,)))
            allowed.whole.measure(Measurement(query=query, mechanisms=(Geometric(scale=1),)))
        with pytest.raises(OverBudget):
            allowed.whole.measure(Measurement(query=query, mechanisms=(Geometric(scale=100),)))
    assert spent(door) == rounded(Fraction(1))


def rounded(epsilon):
    """The amplified price, up to a grain."""
    grain = 720720 * 10**24
    exact = poisson(ApproxDP(epsilon), probability=P).epsilon
    return ApproxDP(Fraction(-(-exact * grain // 1), grain))


def test_an_account_of_rho_is_charged_half_the_square():
    door = curator(budget=20, delta="1e-6", accountant="zcdp")
    with opened(door, 2) as allowed:
        for _ in range(2):
            allowed.whole.measure(counting(1))
        loss = zcdp_loss(allowed.used())
        assert loss.rho == poisson(ApproxDP(2), probability=P).epsilon ** 2 / 2
        bell = Measurement(query=count_query(), mechanisms=(DiscreteGaussian(variance=100),))
        with pytest.raises(Unsupported):
            allowed.whole.measure(bell)


@pytest.mark.parametrize(
    ("event", "accountant"),
    [
        (PoissonSampled(event=DeclaredEvent(epsilon=1, delta="1e-9"), probability=P), "pure"),
        (PoissonSampled(event=DeclaredZCDPEvent(rho=1), probability=P), "zcdp"),
        (PoissonSampled(event=sampled(1), probability=P), "pure"),
        (sampled(1, p=1), "pure"),
        (sampled(1), "renyi-2"),
    ],
)
def test_what_no_theorem_prices_is_refused_for_nothing(event, accountant):
    source = Watched()
    door = curator(source=source, budget=10, delta="1e-3", accountant=accountant)
    with (
        pytest.raises(Unsupported),
        door.allowance(event, question="recipe", request_id="one"),
    ):
        pass
    assert source.reads == 0
    assert not door.ledger.balance("clinic").spent.epsilon


def test_no_delta_is_drawn_inside():
    door = curator(budget=10, delta="1e-3")
    keys = Keys(relation=Table(domain()), by=(("id", Field("id")),), keys_per_unit=1)
    finder = KeySelection.for_budget(1, Fraction(1, 10**6), keys_per_unit=1)
    with opened(door, 5) as allowed, pytest.raises(OverBudget):
        allowed.whole.measure(Measurement(query=Query(keys), mechanisms=(finder,)))
    assert spent(door).epsilon == 0


class Heard(Watched):
    """Keeps the coins that it was given."""

    def __init__(self, *args):
        super().__init__(*args)
        self.keys = []

    @contextmanager
    def sample(self, probability, key):
        self.keys.append(key)
        with super().sample(probability, key) as drawn:
            yield drawn


def test_coins_are_fresh_for_every_recipe_and_shown_nowhere():
    source = Heard()
    door = curator(source=source, budget=100)
    for name in "abc":
        with opened(door, 1, name) as allowed:
            told = str(allowed.whole.measure(counting(1)))
            allowed.finish(b"done")
        assert not any(key in told + str(door.ledger.history()) for key in source.keys)
    assert len(set(source.keys)) == 3
    assert {len(key) for key in source.keys} == {64}
    with opened(door, 1, "a") as again:  # found: no sample is drawn anew, and nothing is asked
        assert again.answer == b"done"
        with pytest.raises(RequestConflict):
            again.whole.measure(counting(1))
    assert source.reads == 3


def test_plans_toss_no_coin_and_read_no_row():
    source = Heard()
    door = curator(source=source, budget=100)
    gate = Gate(door, Rules(sample=P, epsilon=Fraction(1)))
    gate.plan("SELECT ward, COUNT(*) FROM people GROUP BY ward")
    gate.release_plan("histogram", columns={"ward": None})
    gate.release_plan("cube", columns={"ward": None}, sets=1)
    gate.release_plan("synthetic", columns=["ward"])
    gate.many_plan({"ward": None}, start=1)
    assert gate.release_plan("histogram", columns={"ward": None}).endings
    assert (source.reads, source.keys) == (0, [])
    assert spent(door).epsilon == 0
    gate.release("histogram", columns={"ward": None})
    assert len(source.keys) == 1


def test_a_recipe_that_crashed_stays_spent_and_cannot_go_on_with_other_coins(tmp_path):
    where = tmp_path / "ledger.sqlite"
    door = curator(where, budget=10)
    context = opened(door, 1)
    context.__enter__().whole.measure(counting("0.1"))
    door.ledger.close()
    ledger = open_ledger(str(where))
    other = Curator(source=Watched(), tables={"people": domain()}, ledger=ledger, account="clinic")
    assert spent(other) == rounded(Fraction(1))
    with pytest.raises(RequestConflict), opened(other, 1):
        pass


VISITS = table("visits", "id", ("id", Kind.INTEGER), ("visit", Kind.INTEGER))


def test_a_unit_is_in_the_sample_with_all_its_rows_in_all_tables():
    """By its name in both: a join loses nobody. Both were thinned: else 56 deviations off."""
    visits = pa.table({"id": [n // 3 for n in range(3 * PEOPLE)], "visit": range(3 * PEOPLE)})
    source = DuckDBSource(
        {"people": ROWS, "visits": visits}, {"people": domain("id"), "visits": VISITS}
    )
    people, their = Table(domain("id")), Table(VISITS)
    renamed = Project(their, (("who", Field("id")), ("visit", Field("visit"))))
    both = Join(people, renamed, ((Field("id"), Field("who")),))
    with source.sample(P, "0" * 64) as drawn:
        found = [
            int(drawn.sums(Sums(relation=each, terms=(FINE,), rows_per_unit=3))[0, 0]) // 1024
            for each in (people, their, both)
        ]
    assert found[1] == found[2] == 3 * found[0]
    assert 400 < found[0] < 800


def test_rows_that_name_their_unit_through_other_tables_go_with_it():
    """Tests belong to visits, visits to people: all are there, or none."""
    visits = pa.table({"visit": range(2 * PEOPLE), "id": [n // 2 for n in range(2 * PEOPLE)]})
    tests = pa.table({"of": [n // 2 for n in range(4 * PEOPLE)], "n": range(4 * PEOPLE)})
    far = table("tests", "id", ("of", Kind.INTEGER), ("n", Kind.INTEGER),
                path=(Step(column="of", table="visits", key="visit"),))  # fmt: skip
    data = {"people": ROWS, "visits": visits, "tests": tests}
    source = DuckDBSource(data, {"people": domain("id"), "visits": VISITS, "tests": far})
    whose = Sums(relation=Table(domain("id")), by=(by("id", *range(PEOPLE)),), terms=(FINE,), rows_per_unit=1)  # fmt: skip
    theirs = Sums(relation=Table(far), by=(by("n", *range(4 * PEOPLE)),), terms=(FINE,), rows_per_unit=4)  # fmt: skip
    with source.sample(P, "0" * 64) as drawn:
        people, held = drawn.sums(whose)[0] > 0, drawn.sums(theirs)[0] > 0
    assert 400 < people.sum() < 800
    assert (held.reshape(PEOPLE, 4) == people[:, None]).all()


def test_rows_of_two_tables_have_coins_of_their_own():
    """Agreeing in all of 2000 by chance: never. Without own coins they would."""
    others = table("others", None, ("id", Kind.INTEGER))
    source = DuckDBSource(
        {"people": ROWS, "others": ROWS.select(["id"])}, {"people": domain(), "others": others}
    )
    ids = by("id", *range(PEOPLE))
    with source.sample(P, "0" * 64) as drawn:
        one, other = (
            drawn.sums(Sums(relation=Table(each), by=(ids,), terms=(ONE,)))[0]
            for each in (domain(), others)
        )
    assert 400 < one.sum() < 800
    assert 600 < np.abs(one - other).sum() < 1100  # 2 · 2000 · 0.3 · 0.7 = 840, deviation 22


@pytest.mark.usefixtures("own_engine")
@pytest.mark.parametrize("cut", [False, True])
def test_an_engine_that_stumbles_or_is_stopped_reads_no_other_sample(cut):
    source = DuckDBSource({"people": ROWS}, {"people": domain()})
    tally = Sums(relation=Table(domain()), terms=(ONE,))
    with source.sample(P, "0" * 64) as drawn:
        drawn.sums(tally)
        drawn._give_back(
            drawn._take(), done=False, cut=cut
        )  # what happens after an error, or a cancel
        with pytest.raises(SourceError):
            drawn.sums(tally)
    assert source.sums(tally)[0, 0] == PEOPLE


@pytest.mark.usefixtures("own_engine")
@pytest.mark.parametrize("unit", [None, "id"])
def test_nothing_of_a_sample_is_left_when_it_is_over(unit):
    source = DuckDBSource({"people": ROWS}, {"people": domain(unit)})
    tables = source._connection.sql("SHOW ALL TABLES").fetchall()
    with source.sample(P, "0" * 64) as drawn:
        drawn.sums(wards(unit).tally)
        seen = ref(drawn)
        del drawn
    names = {row[2] for row in source._connection.sql("SHOW ALL TABLES").fetchall()}
    assert names - {row[2] for row in tables} <= {"keys0"}
    assert seen() is None  # at once, without a search for cycles


def test_statements_about_all_rows_are_not_used_for_the_sample():
    source = DuckDBSource({"people": ROWS}, {"people": domain("id")})
    tally = wards("id").tally
    whole = source.sums(tally)
    with source.sample(P, "0" * 64) as drawn:
        assert (drawn.sums(tally) < whole)[0, :2].all()
        assert not any("0" * 64 in text for text in source._written.values())
    assert (source.sums(tally) == whole).all()


def test_an_engine_without_samples_refuses_before_it_reads():
    class Bare(Watched):
        sample = Watched.__mro__[1].sample

    door = curator(source=Bare(), budget=1)
    with pytest.raises(Unsupported), opened(door, 1):
        pass
    assert spent(door).epsilon == 0


def test_a_sample_that_cannot_be_drawn_charges_nothing_and_its_name_stays_free(monkeypatch):
    """Code for samples is loaded when it is used: where that fails, nothing was reserved."""
    door = curator(source=engine(DOOR_ROWS, domain()), budget=1)
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, "noisegate.sources.duckdb.sample", None)
        with pytest.raises(ImportError), opened(door, 1):
            pass
    assert spent(door).epsilon == 0
    with opened(door, 1):
        pass


def test_threads_of_a_recipe_read_one_sample():
    """Rows are written down once, whoever comes first; 16 readings agree."""
    source = DuckDBSource({"people": ROWS}, {"people": domain()})
    tally = Sums(relation=Table(domain()), by=(by("id", *range(PEOPLE)),), terms=(ONE,))
    with source.sample(P, "0" * 64) as drawn, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: drawn.sums(tally)[0].tobytes(), range(16)))
        assert len(set(found)) == 1


def test_what_one_recipe_kept_is_not_shown_to_another():
    """Tables stay with the recipe that read them: of a sample, and of all rows."""
    door, query = large(budget=10**6), wards()
    tables = Marginals(relation=query.tally.relation, by=query.tally.by, sets=((0,),), term=FINE)
    asked = Measurement(query=Query(tables), mechanisms=(TIGHT,))
    whole = door.allowance(DeclaredEvent(epsilon=10**4), question="whole", request_id="whole")
    with opened(door, 10**4) as first, whole as second, opened(door, 10**4, "two") as third:
        found = [rows(each.whole.measure(asked).values[0]) for each in (first, second, third)]
        again = [rows(each.whole.measure(asked).values[0]) for each in (first, second, third)]
    assert [each.tolist() for each in found] == [each.tolist() for each in again]
    assert found[1].tolist() == [1000, 1000, 0]
    assert found[0].sum() < 800
    assert found[2].sum() < 800


def test_a_forked_child_asks_nothing_of_the_sample():
    """Its draws would be counted by nobody."""
    door = curator(budget=10)
    with opened(door, 1) as allowed:
        if (child := os.fork()) == 0:
            try:
                allowed.whole.measure(counting("0.1"))
            except RequestConflict:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        allowed.whole.measure(counting("0.1"))
    assert spent(door) == rounded(Fraction(1, 10))


@pytest.mark.parametrize("chance", [Fraction(0), Fraction(1), Fraction(-1, 2)])
def test_a_session_about_everybody_or_nobody_is_about_no_sample(chance):
    door = curator(budget=100)
    spec = SurpriseSpec(
        cells=count_query(by="ward"), reach=1, most=1, restarts=True,
        band=OutsideBand.for_epsilon(1, threshold=10, sensitivity=1, cutoff=1),
        number=Geometric(scale=1),
    )  # fmt: skip
    with (
        pytest.raises((Unsupported, SpecError)),
        open_surprises(door, spec, name="n", request_id="r", sample=chance) as session,
    ):
        session.ask(Groups(np.zeros(3, np.int32), 1), np.array([0], np.int64))
    assert spent(door).epsilon == 0


@pytest.mark.parametrize("people", [0, 1])
def test_a_sample_of_hardly_anybody_is_read_like_any_other(people):
    """No row, or one that is out: neither fails, and what is asked costs the same."""
    few = ROWS.slice(0, people)
    door = curator(source=Watched(few, domain()), budget=10)
    with opened(door, 1) as allowed:
        allowed.whole.measure(counting(1, by="ward"))
    assert spent(door) == rounded(Fraction(1))
