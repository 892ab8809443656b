"""What was measured are nodes of one tree, whatever measured it."""

from fractions import Fraction

import numpy as np
import pytest
from cells_ask import CellsAsk
from scipy.sparse import csr_array

from noisegate.desk.terms.price import Price
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.ask.transcript import Listening, Told
from noisegate.releases.cells.workload import all_ranges, cells
from noisegate.releases.recipes import recipe
from noisegate.releases.trees.hierarchy import hierarchy
from noisegate.transforms.strategy import Groups, Matrix

rng = np.random.default_rng(4)


def groups(labels):
    found = np.array(labels, np.int32)
    return Groups(found, int(found.max()) + 1)


def heard(method, exact, workload, price=Fraction(1, 2)):
    """What a recipe asked for, and was told."""
    ask = Listening(CellsAsk(exact, price))
    recipe(method).build(ask, workload)
    told = Told(
        Price(amount=price, gaussian=False), shape=exact.shape, moved=1, rounds=tuple(ask.rounds)
    )
    recipe(method).build(told, workload)
    return told.heard


def known(tree):
    """By the cells of each measured node: its precision and value."""
    found = {}
    for level in tree.levels:
        for low, high, precision, info in zip(
            level.lows, level.highs, level.precisions, level.infos, strict=True
        ):
            if precision:
                cells_of = frozenset(tree.order[low:high].tolist())
                found[cells_of] = (precision, info / precision)
    return found


@pytest.mark.parametrize(
    ("method", "shape"),
    [
        ("adaptive", (60,)),
        ("planned", (60,)),
        ("tree", (60,)),
        ("dawa", (60,)),
        ("ahp", (60,)),
        ("kdtree", (12, 10)),
        ("privtree", (12, 10)),
        ("adaptive-grid", (12, 10)),
    ],
)
def test_every_measured_group_is_a_node_with_all_that_was_said_about_it(method, shape):
    exact = rng.poisson(rng.gamma(0.3, 40, shape))
    answers = heard(method, exact, all_ranges(shape))
    tree = hierarchy(shape, answers)
    precisions, sums = {}, {}
    for block, noisy in answers:
        for group in range(block.size):
            name = frozenset(np.flatnonzero(block.labels == group).tolist())
            precisions[name] = precisions.get(name, 0) + 1 / noisy.variance
            sums[name] = sums.get(name, 0) + noisy.values[group] / noisy.variance
    found = known(tree)
    assert set(found) == set(precisions) - {frozenset()}
    for name, (precision, value) in found.items():
        assert precision == pytest.approx(precisions[name])
        assert value == pytest.approx(sums[name] / precisions[name])


def test_a_tree_has_every_cell_once_and_halves_that_make_up_their_nodes():
    exact = rng.poisson(5, (7, 9))
    tree = hierarchy((7, 9), heard("kdtree", exact, cells((7, 9))))
    assert sorted(tree.order.tolist()) == list(range(63))
    singles = np.concatenate([level.lows[level.widths == 1] for level in tree.levels])
    assert sorted(singles.tolist()) == list(range(63))
    for level, below in zip(tree.levels, tree.levels[1:], strict=False):
        assert (below.lows[0::2] == level.lows[level.cut]).all()
        assert (below.highs[0::2] == below.lows[1::2]).all()
        assert (below.highs[1::2] == level.highs[level.cut]).all()


def test_of_groups_that_cross_the_later_ones_stay():
    rows, columns = groups([0, 0, 1, 1]), groups([0, 1, 0, 1])
    numbers = Noisy(np.array([5, 6]), 1.0)
    found = known(hierarchy((2, 2), [(rows, numbers), (columns, numbers)]))
    assert set(found) == {frozenset({0, 2}), frozenset({1, 3})}


def test_other_questions_have_no_tree():
    wave = Matrix(csr_array(np.array([[1, -1]], np.int64)))
    assert hierarchy((2,), [(wave, Noisy(np.array([3]), 1.0))]) is None
    assert hierarchy((2,), []) is None
