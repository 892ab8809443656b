"""The model of highest entropy: exact on small domains, and rows that follow it."""

from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from scipy.stats import chi2

from noisegate.errors import SpecError
from noisegate.synthetic.model.junction import cells_with, junction_tree
from noisegate.synthetic.model.model import Evidence, Model, Potential, fit
from refusals import about

SIZES = (3, 4, 2, 3, 2)
ALL = tuple(range(len(SIZES)))
LOOP = [(0, 1), (1, 2), (0, 2), (2, 3), (4,)]  # three columns measured pair by pair
ROWS = 1000.0


def table_of(cells, axes):
    return cells.sum(axis=tuple(a for a in ALL if a not in axes)).ravel()


@pytest.fixture(scope="module")
def cells():
    return np.random.default_rng(7).dirichlet(np.full(prod(SIZES), 0.5)).reshape(SIZES) * ROWS


@pytest.fixture(scope="module")
def noisy(cells):
    """A model of tables with noise that do not agree."""
    chance = np.random.default_rng(8)
    sets = [*LOOP, (1, 4)]
    tables = [table_of(cells, axes) for axes in sets]
    return fit(
        SIZES,
        [
            Evidence(a, t + chance.normal(0, 5, t.size), 25.0)
            for a, t in zip(sets, tables, strict=True)
        ],
    )


def whole(model):
    """All cells by brute force: the exponential of the sum of potentials."""
    logs = np.zeros(SIZES)
    for each in model.potentials:
        shape = [SIZES[a] if a in each.axes else 1 for a in ALL]
        logs = logs + each.table(each.values, SIZES).reshape(shape)
    found = np.exp(logs - logs.max())
    return found / found.sum() * model.total


def test_tables_without_noise_are_reproduced(cells):
    model = fit(SIZES, [Evidence(axes, table_of(cells, axes), 0.0) for axes in LOOP], rounds=60)
    for axes in LOOP:
        assert np.abs(model.table(axes) - table_of(cells, axes)).max() < 1e-6
    assert model.total == pytest.approx(ROWS, abs=1e-9)


def test_a_chain_is_the_product_of_its_conditionals(cells):
    chain = [(0, 1), (1, 2), (2, 3)]
    model = fit(SIZES, [Evidence(axes, table_of(cells, axes), 0.0) for axes in chain])
    ab, bc, cd = (table_of(cells, axes).reshape([SIZES[a] for a in axes]) for axes in chain)
    expected = np.einsum("ab,bc,cd->abcd", ab, bc / bc.sum(1)[:, None], cd / cd.sum(1)[:, None])
    assert np.abs(model.table((0, 1, 2, 3)) - expected.ravel()).max() < 1e-6
    even = np.repeat(expected.ravel() / 2, 2)  # nothing is known about the last column
    assert np.abs(model.table(ALL) - even).max() < 1e-6


def test_elimination_is_brute_force(noisy):
    everything = whole(noisy)
    sets = [axes for size in range(6) for axes in combinations(ALL, size)]
    found = noisy.tables(sets)
    assert list(found) == sets
    for axes in sets:
        assert np.abs(found[axes] - table_of(everything, axes)).max() < 1e-9
        assert found[axes].sum() == pytest.approx(noisy.total, rel=1e-12)


def test_noisy_tables_are_fitted_like_by_least_squares(cells):
    """On a tree with all cells far above 0, the nearest tables that agree are in reach: those
    that the model has, with no more than a thousandth of the noise between them."""
    chance = np.random.default_rng(9)
    steady, sets = cells + 40, [(0, 1), (1, 2), (1,)]
    noisy = {
        axes: table_of(steady, axes) + chance.normal(0, 5, prod(SIZES[a] for a in axes))
        for axes in sets
    }
    total = steady.sum()
    model = fit(SIZES, [Evidence(axes, noisy[axes], 25.0) for axes in sets], total=total, rounds=40)
    places = {cell: n for n, cell in enumerate(product(*(range(SIZES[a]) for a in (0, 1, 2))))}
    design, answers = [np.full(len(places), 1e6)], [total * 1e6]
    for axes in sets:
        for number, chosen in enumerate(product(*(range(SIZES[a]) for a in axes))):
            design.append(
                np.array(
                    [
                        all(cell[a] == v for a, v in zip(axes, chosen, strict=True))
                        for cell in places
                    ],
                    float,
                )
            )
            answers.append(noisy[axes][number])
    best = np.linalg.lstsq(np.array(design), np.array(answers), rcond=None)[0].reshape(SIZES[:3])
    for axes in sets:
        wanted = best.sum(axis=tuple(a for a in (0, 1, 2) if a not in axes)).ravel()
        assert np.abs(model.table(axes) - wanted).max() < 0.15  # the entropy's share: θσ / 300


def test_evidence_about_groups_of_cells(cells):
    labels = np.array([0, 0, 1, -1, 1, 1, 2, 2, 2, -1, 0, 1], np.int32)
    table = table_of(cells, (0, 1))
    sums = np.array([table[labels == n].sum() for n in range(3)])
    model = fit(SIZES, [Evidence((0, 1), sums, 0.0, labels)], total=ROWS, rounds=60)
    found = model.table((0, 1))
    for number in (-1, 0, 1, 2):
        inside = found[labels == number]
        assert inside == pytest.approx(np.full(inside.size, inside.mean()), rel=1e-6)  # even inside
        if number >= 0:
            assert inside.sum() == pytest.approx(sums[number], abs=1e-6)
    assert found.sum() == pytest.approx(ROWS)


def test_the_total_is_the_weighted_mean_of_complete_tables():
    evidence = [
        Evidence((0,), np.array([10.0, 20.0, 30.0]), 2.0),  # 60 ± 6
        Evidence((1,), np.array([30.0, 20.0, 20.0, 20.0]), 6.0),  # 90 ± 24
        Evidence((1,), np.array([5.0]), 1.0, np.array([0, -1, -1, -1], np.int32)),
    ]
    assert fit(SIZES, evidence).total == pytest.approx((60 / 6 + 90 / 24) / (1 / 6 + 1 / 24))
    assert fit(SIZES, evidence, total=77.0).table((0,)).sum() == pytest.approx(77.0)
    with pytest.raises(SpecError, check=about("total")):
        fit(SIZES, evidence[2:])


def test_the_same_question_twice_is_one_answer():
    once = fit(SIZES, [Evidence((0,), np.array([12.0, 21.0, 30.0]), 0.5)], total=63.0)
    values = [np.array([10.0, 20.0, 33.0]), np.array([14.0, 22.0, 27.0])]
    twice = fit(SIZES, [Evidence((0,), each, 1.0) for each in values], total=63.0)
    assert np.abs(once.table((0,)) - twice.table((0,))).max() < 1e-9
    assert len(twice.potentials) == 1


def test_the_model_stays_within_its_cells(cells):
    sets = [(0, 1), (1, 2), (0, 2), (1, 3), (0, 3), (3, 4), (0,)]
    evidence = [Evidence(axes, table_of(cells, axes), 1.0) for axes in sets]
    model = fit(SIZES, evidence, cells_max=40)
    assert model.cells <= 40
    assert model.left_out == ((0, 3), (3, 4))
    kept = [axes for axes in sets if axes not in model.left_out]
    assert (
        model.cells
        == cells_with(kept, SIZES)
        == sum(prod(SIZES[a] for a in c) for c in model.cliques)
    )
    assert fit(SIZES, evidence).left_out == ()


def test_cliques_hold_all_sets_and_their_tree_is_one():
    chance = np.random.default_rng(3)
    sizes = tuple(int(s) for s in chance.integers(2, 9, 12))
    for _ in range(30):
        sets = [tuple(sorted(chance.choice(12, 2, replace=False).tolist())) for _ in range(14)]
        tree = junction_tree(sets, sizes)
        assert all(any(set(axes) <= set(clique.axes) for clique in tree) for axes in sets)
        assert {a for clique in tree for a in clique.axes} == set(range(12))
        for axis in range(12):  # the cliques of a column hang together: one of them is the top
            tops = [c for c in tree if axis in c.axes and axis not in c.shared]
            assert len(tops) == 1
        for clique in tree[1:]:
            assert set(clique.shared) == set(clique.axes) & set(tree[clique.parent].axes)
        assert cells_with(sets, sizes) == sum(prod(sizes[a] for a in c.axes) for c in tree)


def test_a_start_saves_rounds(cells):
    first = [Evidence(axes, table_of(cells, axes), 1.0) for axes in LOOP]
    more = [*first, Evidence((3, 4), table_of(cells, (3, 4)), 1.0)]
    near = fit(SIZES, more, rounds=80)
    start = fit(SIZES, first, rounds=80)

    def off(model):
        return np.abs(model.table(ALL) - near.table(ALL)).max()

    assert off(fit(SIZES, more, start=start, rounds=1)) < 0.1 * off(fit(SIZES, more, rounds=1))


def test_rows_have_the_tables_of_the_model(noisy):
    rows = noisy.rows(5000, seed=1)
    assert rows.shape == (5000, 5)
    assert rows.dtype == np.uint32
    root = noisy.cliques[0]
    counts = counted(rows, root)
    assert np.abs(counts - noisy.table(root) * 5000 / noisy.total).max() < 1  # even steps
    for clique in noisy.cliques[1:]:
        off = np.abs(counted(rows, clique) - noisy.table(clique) * 5000 / noisy.total)
        assert off.max() < 1 + 2 * prod(SIZES) / prod(SIZES[a] for a in clique)
    assert np.array_equal(rows, noisy.rows(5000, seed=1))
    assert not np.array_equal(rows, noisy.rows(5000, seed=2))
    assert noisy.rows(0, seed=1).shape == (0, 5)


def test_rows_of_columns_outside_a_clique_follow_the_model(noisy):
    """Chi-square over all cells. Even steps only lower it: a false alarm in at most 1 of 10⁷."""
    expected = noisy.table(ALL) * 20_000 / noisy.total
    counts = counted(noisy.rows(20_000, seed=5), ALL)
    kept = expected > 1
    distance = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert distance < chi2.isf(1e-7, kept.sum())


@pytest.mark.parametrize("given", [{0: 1}, {3: [0, 2], 1: 3}, {4: 1, 0: [1, 2], 2: 0}])
def test_rows_with_given_values_follow_the_conditional_distribution(noisy, given):
    """Chi-square as above; the conditional distribution is by brute force."""
    everything = whole(noisy)
    for axis, allowed in given.items():
        inside = np.isin(np.arange(SIZES[axis]), allowed)
        everything = everything * inside.reshape([-1 if a == axis else 1 for a in ALL])
    expected = everything.ravel() / everything.sum() * 20_000
    counts = counted(noisy.rows(20_000, seed=6, given=given), ALL)
    assert not counts[expected == 0].any()
    kept = expected > 1
    distance = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    assert distance < chi2.isf(1e-7, kept.sum())


def test_given_values_that_cannot_be_are_refused(noisy):
    for given in ({0: 3}, {0: -1}, {5: 0}, {0: []}):
        with pytest.raises(SpecError):
            noisy.rows(10, seed=1, given=given)
    never = Potential((0,), np.array([-np.inf, 0.0, 0.0]), None)
    with pytest.raises(SpecError, check=about("no-rows")):
        Model(SIZES, 10.0, (never,)).rows(10, seed=1, given={0: 0})


def test_evidence_of_the_wrong_length_is_refused():
    with pytest.raises(SpecError, check=about("evidence")):
        fit(SIZES, [Evidence((0, 1), np.ones(11), 1.0)])
    with pytest.raises(SpecError, check=about("columns")):
        fit(SIZES, [Evidence((1, 0), np.ones(12), 1.0)])


def test_a_record_is_the_model(noisy):
    labels = np.arange(12, dtype=np.int32) % 3
    more = Model(
        SIZES,
        noisy.total,
        (*noisy.potentials, Potential((0, 1), np.array([0.1, 0.2, -0.5]), labels)),
    )
    again = Model.from_record(more.to_record())
    assert again.to_record() == more.to_record()
    assert np.array_equal(again.table(ALL), more.table(ALL))
    assert np.array_equal(again.rows(100, seed=3), more.rows(100, seed=3))


def test_no_evidence_is_the_even_distribution():
    model = fit(SIZES, [], total=144.0)
    assert model.table(ALL) == pytest.approx(np.ones(144))
    assert model.cells == sum(SIZES)


def counted(rows, axes):
    shape = tuple(SIZES[a] for a in axes)
    cells = np.ravel_multi_index(tuple(rows[:, a].astype(np.int64) for a in axes), shape)
    return np.bincount(cells, minlength=prod(shape))
