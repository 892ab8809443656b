"""Whole-number questions about cells: their answers and how far a unit moves them."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from door import ONE, by, table
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Keys, Sums
from noisegate.curator.measurement import Measurement
from noisegate.errors import Unsupported
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Kind
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import SUM_MAX, Groups, Matrix, Strategy
from refusals import about

ROWS = Table(table("rows", None, ("g", Kind.INTEGER)))
CELLS = Sums(relation=ROWS, by=(by("g", 0, 1, 2, 3),), terms=(ONE,))
LARGE = st.integers(-(2**60), 2**60)


def matrix(rows):
    return Matrix(csr_array(np.array(rows, np.int64)))


def halves(*labels):
    return Groups(np.array(labels, np.int32), max(labels) + 1)


matrices = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(-5, 5), min_size=width, max_size=width), min_size=1, max_size=6
    )
)


@given(st.lists(st.tuples(LARGE, st.integers(-1, 3)), min_size=4, max_size=30))
def test_groups_add_up_whole_numbers_exactly(pairs):
    values, labels = zip(*pairs, strict=True)
    limit = SUM_MAX // len(pairs)
    expected = [
        sum(max(-limit, min(limit, v)) for v, label in pairs if label == group)
        for group in range(4)
    ]
    groups = Groups(np.array(labels, np.int32), 4)
    assert groups.apply(np.array(values, np.int64)).tolist() == expected


@given(matrices, st.data())
def test_one_cell_moves_a_block_by_at_most_its_norms_and_some_cell_by_just_that(rows, data):
    strategy, width = Strategy(len(rows[0]), (matrix(rows),)), len(rows[0])
    cells = np.array(data.draw(st.lists(LARGE, min_size=width, max_size=width)), np.int64)
    small = cells % 1000
    moved = [
        [int(v) for v in np.abs(strategy.apply(small + one)[0] - strategy.apply(small)[0])]
        for one in np.eye(width, dtype=np.int64)
    ]
    assert strategy.l1s == (max(sum(m) for m in moved),)
    assert strategy.l2s_squared == (max(sum(v * v for v in m) for m in moved),)
    for one in np.eye(width, dtype=np.int64):  # also where cells are clamped
        step = np.abs(strategy.apply(cells + one)[0] - strategy.apply(cells)[0])
        assert sum(map(int, step)) <= strategy.l1s[0]


def test_the_sensitivity_of_a_query_is_that_of_its_cells_times_its_strategys():
    query = Query(CELLS, Strategy(4, (halves(0, 0, 1, 1), matrix([[3, -1, 0, 2], [4, 0, 0, 0]]))))
    assert query.l1s == (L1(1), L1(7))
    assert query.l2s == (L2(squared=1), L2(squared=25))
    people = Table(table("people", "pid", ("pid", Kind.INTEGER), ("g", Kind.INTEGER)))
    capped = Sums(relation=people, by=CELLS.by, terms=(ONE,), rows_per_unit=5)
    assert Query(capped, query.strategy).l1s == (L1(5), L1(35))
    assert Query(capped, query.strategy).l2s == (L2(squared=25), L2(squared=625))


def test_a_measurement_has_one_noise_for_each_block_and_says_what_it_asks():
    strategy = Strategy(4, (halves(0, 0, 1, 1), matrix([[1, 0, 0, 2]])))
    noises = Geometric(scale=Fraction(2)), DiscreteGaussian(variance=Fraction(9))
    measurement = Measurement(query=Query(CELLS, strategy), mechanisms=noises)
    first, second = measurement.event().events
    assert (first.sensitivity, second.sensitivity) == (L1(1), L2(squared=4))
    with pytest.raises(Unsupported, check=about("mechanisms"), match=r"2.*1"):
        Measurement(query=measurement.query, mechanisms=noises[:1])
    other = Query(CELLS, Strategy(4, (halves(0, 1, 0, 1), strategy.blocks[1])))
    asked = {m.question() for q in (measurement.query, other, Query(CELLS, strategy))
             for m in [Measurement(query=q, mechanisms=noises)]}  # fmt: skip
    assert len(asked) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Groups(np.array([0, 1]), 2),
        lambda: Groups(np.array([0, 2], np.int32), 2),
        lambda: Groups(np.array([-2, 0], np.int32), 2),
        lambda: Groups(np.array([0, 0], np.int32), 3),
        lambda: Matrix(csr_array(np.array([[0.5]]))),
        lambda: Matrix(np.array([[1]])),
        lambda: matrix([[2**40]]),
        lambda: Strategy(3, (halves(0, 1),)),
        lambda: Strategy(2, ()),
        lambda: Strategy(2, [halves(0, 1)]),
        lambda: Query(CELLS, Strategy(2, (halves(0, 1),))),
        lambda: Query(
            Sums(relation=ROWS, by=CELLS.by, terms=(ONE, ONE)),
            Strategy(4, (halves(0, 0, 1, 1),)),
        ),
        lambda: Query(
            Keys(relation=ROWS, by=(("g", CELLS.by[0].expression),), keys_per_unit=1),
            Strategy(4, (halves(0, 0, 1, 1),)),
        ),
        lambda: Query(CELLS, "tree"),
    ],
)
def test_what_has_no_rule_is_refused(make):
    with pytest.raises(Unsupported):
        make()


def test_what_was_checked_cannot_be_changed_afterwards():
    labels, entries = np.array([0, 1], np.int32), csr_array(np.array([[1, 2]], np.int64))
    groups, block = Groups(labels, 2), Matrix(entries)
    labels[0], entries.data[0] = 1, 99
    assert groups.labels.tolist() == [0, 1]
    assert [part.tolist() for part in block.columns] == [[1, 2], [1, 4]]
    with pytest.raises(ValueError, match="read-only"):
        block.matrix.data[0] = 99
    block.matrix.data = np.array([1 << 32, 1 << 32])  # a copy of its own, which nobody asks
    assert [part.tolist() for part in block.columns] == [[1, 2], [1, 4]]
    for array in (groups.labels, block.matrix.data, *block.columns):
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


def test_norms_are_remembered_by_the_entries_alone():
    block = matrix([[1, 2]])
    assert Strategy(2, (block,)).l1s == (2,)
    assert matrix([[1, 2]]).columns[0] is block.columns[0]
    object.__setattr__(block, "held", matrix([[-7, 2]]).held)
    assert (Strategy(2, (block,)).l1s, Strategy(2, (block,)).l2s_squared) == ((7,), (49,))


def test_a_matrix_that_points_outside_of_the_cells_is_refused():
    entries = csr_array(np.array([[1, 0], [0, 1]], np.int64))
    entries.indices[1] = 5
    with pytest.raises(Unsupported, check=about("cells")):
        Matrix(entries)
