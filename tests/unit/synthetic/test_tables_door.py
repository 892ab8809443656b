"""Tables and guesses of them through the door: prices, rounds, and what is kept meanwhile."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from door import FINE, ONE, Watched, by, count_query, curator, domain, table
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Marginals, Sums
from noisegate.curator.kept import Kept
from noisegate.curator.measurement import Measurement
from noisegate.desk.terms.price import Price
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.privacy.domain import Column, Kind
from noisegate.privacy.event import DeclaredEvent, DeclaredZCDPEvent
from noisegate.sources.duckdb.source import DuckDBSource
from noisegate.synthetic.asking import DoorTables, marginals_of
from noisegate.transforms.distances import Distances
from noisegate.transforms.query import Query
from refusals import about
from trials import TrialTables

A = Column(name="a", keys=("u", "v"))
PEOPLE = table("people", None, A, ("b", Kind.INTEGER))
OWNED = table("people", "id", A, ("b", Kind.INTEGER))
ROWS = pa.table(
    {
        "id": [1, 1, 1, 2, 3, 3],
        "a": ["u", "u", "v", "v", "w", None],
        "b": pa.array([0, 1, 2, 2, 1, None], pa.int64()),
    }
)
TABLES = {(0,): [2, 2], (1,): [1, 1, 2], (0, 1): [1, 1, 0, 0, 0, 2], (): [4]}  # on all lists
PLENTY = Fraction(150)  # of ε: wrong tables and choices come up once in 10**12 runs at most


class Rows(Watched):
    """The rows above, watched."""

    def __init__(self, people):
        self._inner = DuckDBSource({"people": ROWS}, {"people": people})
        self.reads, self.broken = 0, None


def columns(people=PEOPLE, term=ONE, cap=None):
    groupings = by("a", "u", "v"), by("b", 0, 1, 2)
    return [
        Query(Sums(relation=Table(people), by=(each,), terms=(term,), rows_per_unit=cap))
        for each in groupings
    ]


@pytest.fixture
def opened():
    """A door and an allowance behind it."""
    stack = []

    def open_(amount=PLENTY, *, gaussian=False, people=PEOPLE, asked=None):
        source = Rows(people)
        accountant, delta = ("zcdp", Fraction(1, 10**6)) if gaussian else ("pure", 0)
        budget = 10**6 if gaussian else amount
        door = curator(
            table=people, source=source, budget=budget, accountant=accountant, delta=delta
        )
        event = DeclaredZCDPEvent(rho=amount) if gaussian else DeclaredEvent(epsilon=amount)
        context = door.allowance(event, question="tables", request_id="1")
        allowance = context.__enter__()
        stack.append(context)
        price = Price(amount=amount, gaussian=gaussian)
        return DoorTables(allowance.whole, asked or columns(people), price), allowance, source

    yield open_
    for context in stack:
        context.__exit__(None, None, None)


def guesses(**off):
    """The tables themselves; ``off`` says how much is added to one cell."""
    found = {axes: np.array(cells, float) for axes, cells in TABLES.items() if axes}
    for axes, much in off.items():
        found[tuple(map(int, axes[1:]))][0] += much
    return found


def test_tables_are_those_of_the_rows_and_cost_their_shares(opened):
    ask, allowance, _ = opened()
    assert (ask.sizes, ask.gaussian) == ((2, 3), False)
    quarter = Fraction(1, 4)
    found = ask.tables(list(TABLES), [quarter] * 4)
    assert [noisy.values.tolist() for noisy in found] == list(TABLES.values())
    assert pure_loss(allowance.used()).epsilon == PLENTY
    with pytest.raises(OverBudget):
        ask.tables([(0,)], [Fraction(1, 10**6)])


def test_the_furthest_guess_and_how_far_all_are_off(opened):
    ask, allowance, _ = opened(20 * PLENTY)
    third = Fraction(1, 3)
    off = guesses(_0=1.25, _1=-2, _01=1)
    assert ask.distances(off, third).values.tolist() == [1, 2, 1]
    assert ask.furthest(off, third) == (1,)
    weights = {(0,): Fraction(2, 7), (1,): Fraction(1, 7), (0, 1): Fraction(5, 7)}
    assert ask.furthest(off, third, weights=weights, less=dict.fromkeys(off, 0.25)) == (0, 1)
    assert pure_loss(allowance.used()).epsilon == 20 * PLENTY


def test_under_zcdp_all_shares_together_are_the_whole_price(opened):
    rho, share = Fraction(3, 8), Fraction(1, 4)
    ask, allowance, _ = opened(rho, gaussian=True)
    ask.tables([(0,), (0, 1)], [share, share])
    ask.distances(guesses(), share)
    ask.furthest(guesses(), share)
    used = zcdp_loss(allowance.used()).rho
    assert rho * (1 - Fraction(1, 10**9)) < used <= rho
    with pytest.raises(OverBudget):
        ask.furthest(guesses(), Fraction(1, 1000))


def test_tries_have_the_noise_of_the_door(opened):
    ask, _, _ = opened(Fraction(1, 2), gaussian=True)
    rows = np.zeros((1, 2), int)
    trial = TrialTables(rows, (2, 3), Fraction(1, 2), gaussian=True, bits=None)
    for share in (Fraction(1, 3), Fraction(1, 100)):
        assert ask.variance(share) == trial.variance(share) == 1 / float(share)
        assert ask.distance_variance(5, share) == trial.distance_variance(5, share)
    (noisy,) = ask.tables([(0,)], [Fraction(1, 3)])
    assert noisy.variance == ask.variance(Fraction(1, 3))
    found = ask.distances(guesses(), Fraction(1, 3)).variance
    assert found == pytest.approx(ask.distance_variance(3, Fraction(1, 3)))


def test_an_owner_is_protected_with_all_its_rows(opened):
    cap = 2
    ask, allowance, _ = opened(people=OWNED, asked=columns(OWNED, FINE, cap))
    (noisy,) = ask.tables([(1,)], [Fraction(1, 2)])
    # the first owner has 3 rows, which weigh 682 of 1024 each; noise is below 1024 · 2 · 40 / 75
    assert np.abs(noisy.values - [682, 682 + 1024, 682 + 1024]).max() < 1100
    assert ask.furthest(guesses(_0=10**6), Fraction(1, 2)) == (0,)
    assert pure_loss(allowance.used()).epsilon == PLENTY


def test_rounds_about_the_same_tables_read_the_rows_once(opened):
    ask, _, source = opened()
    share = Fraction(1, 100)
    for _ in range(3):
        ask.furthest(guesses(), share)
        ask.tables([(0, 1)], [share])
        ask.distances(guesses(_0=3), share)
    assert source.reads == 1
    ask.tables([(), (0,)], [share, share])  # one is new
    assert source.reads == 2


def test_what_is_kept_is_dropped_when_the_allowance_closes():
    source = Rows(PEOPLE)
    tally = marginals_of(columns())
    kept = Kept(source)
    both = Marginals(relation=tally.relation, by=tally.by, sets=((0,), (0, 1)), term=tally.term)
    before = [each.tolist() for each in kept.marginals(both)]
    assert [each.tolist() for each in kept.marginals(both)] == before
    assert source.reads == 1
    with pytest.raises(ValueError, match="read-only"):
        kept.marginals(both)[0][0] = 9
    kept.forget()
    assert [each.tolist() for each in kept.marginals(both)] == before
    kept.marginals(both)
    assert source.reads == 3


def test_the_door_drops_what_was_kept(opened, monkeypatch):
    made = []
    forget = Kept.forget
    monkeypatch.setattr(Kept, "forget", lambda kept: (made.append(kept), forget(kept)))
    door = curator(table=PEOPLE, source=Rows(PEOPLE), budget=1)
    with door.allowance(DeclaredEvent(epsilon=1), question="q", request_id="1") as allowance:
        price = Price(amount=Fraction(1), gaussian=False)
        DoorTables(allowance.whole, columns(), price).tables([(0,)], [Fraction(1)])
        assert made == []
    (kept,) = made
    assert kept._tables == {}


def test_tables_that_find_no_room_are_read_again():
    source = Rows(PEOPLE)
    tally = marginals_of(columns())
    kept = Kept(source, most=4)
    sets = ((0,), (0, 1), (1,))  # 2, 6 and 3 cells: only the first is kept
    several = Marginals(relation=tally.relation, by=tally.by, sets=sets, term=tally.term)
    for reads in (1, 2):
        found = [each.tolist() for each in kept.marginals(several)]
        assert found == [TABLES[each] for each in sets]
        assert source.reads == reads
    assert sum(each.size for each in kept._tables.values()) == 2


def test_relations_and_terms_are_kept_apart():
    kept = Kept(Rows(PEOPLE))
    first = marginals_of(columns())
    one = Marginals(relation=first.relation, by=first.by, sets=((0,),), term=first.term)
    fine = Marginals(relation=first.relation, by=first.by, sets=((0,),), term=FINE)
    assert kept.marginals(one)[0].tolist() == [2, 2]
    assert kept.marginals(fine)[0].tolist() == [2048, 2048]


# parts


def test_parts_by_a_declared_key_are_asked_in_parallel():
    door = curator(table=PEOPLE, source=Rows(PEOPLE), budget=PLENTY)
    event = DeclaredEvent(epsilon=PLENTY)
    with door.allowance(event, question="parts", request_id="1") as allowance:
        found = []
        for part in allowance.whole.cut("a", ["u", "v"]):
            ask = DoorTables(part, columns(), Price(amount=PLENTY, gaussian=False))
            (noisy,) = ask.tables([(1,)], [Fraction(1, 2)])
            chosen = ask.furthest(guesses(_0=9), Fraction(1, 2))
            found.append((noisy.values.tolist(), chosen))
        assert found == [([1, 1, 0], (0,)), ([0, 0, 2], (0,))]
        assert pure_loss(allowance.used()).epsilon == PLENTY


def test_parts_of_owners_are_refused(opened):
    _, allowance, source = opened(people=OWNED, asked=columns(OWNED, FINE, 2))
    (part, _) = allowance.whole.cut("a", ["u", "v"])
    ask = DoorTables(part, columns(OWNED, FINE, 2), Price(amount=PLENTY, gaussian=False))
    with pytest.raises(Unsupported, check=about("parallel")):
        ask.furthest(guesses(), Fraction(1, 2))
    assert source.reads == 0


# questions


def test_a_question_about_tables_is_answered_once():
    tally = marginals_of(columns())
    asked = Marginals(relation=tally.relation, by=tally.by, sets=((0,), (1,)), term=tally.term)
    source = Rows(PEOPLE)
    door = curator(table=PEOPLE, source=source, budget=3)
    noisy = Measurement(query=Query(asked), mechanisms=(Geometric(scale=2),) * 2)
    first = door.measure(noisy)
    again = door.measure(noisy)
    assert first.values.shape == (1, 5)
    assert (again.values.tolist(), again.free) == (first.values.tolist(), True)
    assert source.reads == 1
    scores = Distances.of([np.zeros(2, int), np.zeros(3, int)])
    choice = Measurement(query=Query(asked, scores), mechanisms=(Exponential(factor=1),))
    assert door.measure(choice).values.shape == (1, 1)
    other = Distances.of([np.zeros(2, int), np.ones(3, int)])
    texts = {
        Measurement(query=Query(asked, each), mechanisms=(Exponential(factor=1),)).question()
        for each in (scores, other)
    }
    assert len(texts | {noisy.question()}) == 3


# refusals


def test_columns_are_single_sums_about_the_same_rows():
    one, two = columns()
    with pytest.raises(SpecError, check=about("sum")):
        marginals_of([])
    with pytest.raises(SpecError, check=about("rows")):
        marginals_of([one, count_query(domain(), by="ward")])
    with pytest.raises(SpecError, check=about("rows")):
        marginals_of([one, *columns(term=FINE)[1:]])
    both = Query(Sums(relation=Table(PEOPLE), by=(*one.tally.by, *two.tally.by), terms=(ONE,)))
    with pytest.raises(SpecError, check=about("grouping")):
        marginals_of([one, both])


@pytest.mark.parametrize("axes", [(1, 0), (0, 0), (2,), [0], (True,)])
def test_odd_columns_are_refused_before_a_row_is_read(opened, axes):
    ask, _, source = opened()
    with pytest.raises((SpecError, Unsupported, TypeError)):
        ask.tables([axes], [Fraction(1)])
    assert source.reads == 0


def test_odd_guesses_and_weights_are_refused_before_a_row_is_read(opened):
    ask, allowance, source = opened()
    share = Fraction(1, 2)
    with pytest.raises(Unsupported, check=about("guesses")):
        ask.furthest({(0,): np.zeros(3)}, share)
    with pytest.raises(SpecError, check=about("finite")):
        ask.distances({(0,): np.array([0, np.nan])}, share)
    with pytest.raises(SpecError, check=about("weight")):
        ask.furthest(guesses(), share, weights=dict.fromkeys(guesses(), Fraction(0)))
    with pytest.raises(SpecError, check=about("share")):
        ask.furthest(guesses(), Fraction(0))
    with pytest.raises(SpecError, check=about("shares")):
        ask.tables([(0,)], [share, share])
    assert source.reads == 0
    assert pure_loss(allowance.used()).epsilon == 0


def test_guesses_are_compared_in_parts_of_a_grain(opened):
    ask, _, _ = opened(20 * PLENTY)
    off = {(0,): np.array([2.4, 1.6]), (1,): np.array([1.1, 1.1, 2.1])}
    assert ask.distances(off, Fraction(1)).values.tolist() == [1, 0]  # 0.8 and 0.3
