"""What each cell was asked is what its unit loses, however the questions were chosen."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from door import ONE, WARDS, Watched, by, count_query, curator, table
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Sums
from noisegate.curator.measurement import Measurement
from noisegate.curator.parts import CellAccount
from noisegate.errors import Bug, OverBudget
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.domain import Kind
from noisegate.privacy.event import DeclaredEvent, DeclaredZCDPEvent, NothingEvent, Sequential
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Groups, Matrix, Strategy
from refusals import about

ROWS = Table(table("rows", None, ("g", Kind.INTEGER)))
CELLS = Sums(relation=ROWS, by=(by("g", 0, 1, 2, 3),), terms=(ONE,))


def groups(*labels):
    return Groups(np.array(labels, np.int32), max(labels) + 1)


def asked(*pairs, tally=CELLS):
    """Blocks and the ε of one unit of norm in each (or a Gaussian)."""
    blocks, prices = zip(*pairs, strict=True)
    noises = tuple(
        Geometric(scale=1 / Fraction(price)) if isinstance(price, str) else price
        for price in prices
    )
    return Measurement(query=Query(tally, Strategy(tally.cells, blocks)), mechanisms=noises)


def pure(epsilon):
    return DeclaredEvent(epsilon=Fraction(epsilon), delta=Fraction(0))


def test_groups_that_do_not_overlap_cost_like_the_dearest():
    left, right = groups(0, 0, -1, -1), groups(-1, -1, 0, 1)
    account = CellAccount.empty(4).after(asked((left, "1/2"), (right, "1/3")))
    assert account.event() == pure("1/2")
    again = account.after(asked((right, "1/3")))
    assert again.event() == pure("2/3")
    assert account.event() == pure("1/2")  # an account is never changed


def test_groups_that_overlap_add_up():
    account = CellAccount.empty(4).after(
        asked((groups(0, 0, 1, 1), "1/2"), (groups(0, 1, 2, 3), "1/3"))
    )
    assert account.event() == pure("5/6")


def test_weights_count_as_often_as_they_say():
    weighted = Matrix(csr_array(np.array([[3, 3, 0, 0], [0, 0, -5, 1]], np.int64)))
    account = CellAccount.empty(4).after(asked((weighted, "1/10")))
    assert account.event() == pure("1/2")
    assert account.after(asked((groups(0, 1, -1, 2), "1/4"))).event() == pure("11/20")


def test_a_unit_of_several_rows_counts_with_all_of_them():
    people = Table(table("people", "pid", ("pid", Kind.INTEGER), ("g", Kind.INTEGER)))
    capped = Sums(relation=people, by=CELLS.by, terms=(ONE,), rows_per_unit=5)
    sharp = DiscreteGaussian(variance=Fraction(50))
    account = CellAccount.empty(4).after(
        asked((groups(0, 0, 1, 1), "1/10"), (groups(0, 1, 2, 3), sharp), tally=capped)
    )
    rho = DeclaredZCDPEvent(rho=Fraction(1, 4))
    assert account.event() == Sequential(events=(pure("1/2"), rho))


blocks = st.one_of(
    st.lists(st.integers(-1, 1), min_size=4, max_size=4).filter(lambda x: max(x) >= 0).map(
        lambda x: groups(*x)
    ),
    st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=3).map(
        lambda rows: Matrix(csr_array(np.array(rows, np.int64)))
    ),
)  # fmt: skip


@given(st.lists(st.tuples(blocks, st.integers(1, 9)), min_size=1, max_size=6), st.data())
def test_no_unit_loses_more_than_the_account_says(rounds, data):
    """A unit moves the cells by v; the log-ratio of a geometric block is at most ‖A v‖₁ / scale."""
    account = CellAccount.empty(4)
    v = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=4, max_size=4)), np.int64)
    lost = Fraction(0)
    for block, price in rounds:
        account = account.after(asked((block, f"{price}/10")))
        moved = block.apply(v) - block.apply(np.zeros(4, np.int64))
        lost += int(np.abs(moved).sum()) * Fraction(price, 10)
    event = account.event()
    most = Fraction(0) if event == NothingEvent() else event.epsilon
    assert lost <= most * int(np.abs(v).sum())
    each = [
        sum(int(np.abs(block.apply(one)).sum()) * Fraction(price, 10) for block, price in rounds)
        for one in np.eye(4, dtype=np.int64)
    ]
    assert most == max(each)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=12))
def test_histories_are_told_apart_with_and_without_sorting(norms):
    account, price = CellAccount.empty(len(norms)), (Fraction(1), Fraction(0))
    for factor in (1, 1 << 30):
        account = account.plus(np.array(norms, np.int64) * factor, price)
        assert [account.costs[entry][0] for entry in account.entries] == [
            norm * (1 if factor == 1 else 1 + factor) for norm in norms
        ]


def test_other_questions_have_no_account():
    plain = Measurement(query=Query(CELLS), mechanisms=(Geometric(scale=Fraction(1)),))
    with pytest.raises(Bug):
        CellAccount.empty(4).after(plain)


# through the door


def wards(*pairs):
    return asked(*pairs, tally=count_query(by="ward").tally)


def allow(door, epsilon="0.6"):
    return door.allowance(DeclaredEvent(epsilon=epsilon), question="tree/1", request_id="tree")


def spent(door):
    return str(door.ledger.balance("clinic").spent)


def test_an_allowance_lets_a_recipe_refine_some_cells_and_not_others():
    door = curator()
    with allow(door) as recipe:
        recipe.whole.measure(wards((groups(0, 0, 0), "1/10")))
        recipe.whole.measure(wards((groups(0, -1, -1), "1/2"), (groups(-1, 0, 0), "1/4")))
        recipe.whole.measure(wards((groups(-1, 0, 1), "1/4")))
    assert spent(door) == "ε = 0.6"


def test_what_one_cell_has_no_room_for_is_refused_before_a_row_is_read_and_not_noted():
    source = Watched()
    door = curator(source=source)
    with allow(door) as recipe:
        recipe.whole.measure(wards((groups(0, -1, -1), "1/2")))
        with pytest.raises(OverBudget, check=about("allowance")):
            recipe.whole.measure(wards((groups(0, 1, 2), "1/5")))
        recipe.whole.measure(wards((groups(-1, 0, 1), "3/5")))
    assert (spent(door), source.reads) == ("ε = 0.6", 1)  # the cells are kept meanwhile


def test_cells_of_another_tally_and_plain_questions_add_up():
    door = curator()
    with allow(door, epsilon="0.9") as recipe:
        recipe.whole.measure(wards((groups(0, 1, -1), "3/10")))
        one = count_query().tally
        recipe.whole.measure(asked((groups(0), "3/10"), tally=one))
        plain = Measurement(query=Query(one), mechanisms=(Geometric(scale=Fraction(10, 3)),))
        recipe.whole.measure(plain)
        with pytest.raises(OverBudget):
            recipe.whole.measure(wards((groups(0, -1, -1), "1/100")))
        recipe.whole.measure(wards((groups(-1, -1, 0), "3/10")))
    assert spent(door) == "ε = 0.9"


def test_the_answers_are_those_of_the_groups():
    door = curator(budget=1000)
    with allow(door, epsilon=200) as recipe:
        release = recipe.whole.measure(wards((groups(0, 0, 1), "50"), (groups(1, -1, 0), "50")))
    # at ε = 50 an answer is off with probability below 4 e^-50
    assert release.values.tolist() == [[100, 0, 0, 75]]


def test_a_part_of_the_table_can_be_asked_with_a_strategy():
    door = curator(budget=1000)
    total = asked((groups(0), "50"), tally=count_query().tally)
    with allow(door, epsilon=60) as recipe:
        found = [part.measure(total).values.tolist() for part in recipe.whole.cut("ward", WARDS)]
    assert found == [[[75]], [[25]], [[0]]]
    assert spent(door) == "ε = 50"
