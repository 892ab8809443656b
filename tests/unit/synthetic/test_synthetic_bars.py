"""How far answers of a model may be off: from noisy tables, and Fréchet's inequalities."""

from itertools import combinations, product
from math import isinf, sqrt

import numpy as np
import pytest
from scipy.stats import binom

from noisegate.synthetic.model.bars import association, box, direct, likely, reach, singles
from noisegate.synthetic.model.constraints import Impossible, hardened, masks_of
from noisegate.synthetic.model.drawing import numbers
from noisegate.synthetic.model.model import Evidence, fit

SIZES = (3, 4, 2)
ROWS = np.stack([np.arange(600) % 3, np.arange(600) ** 2 % 4, np.arange(600) // 7 % 2], axis=1)


def exact(axes):
    cells = numbers(ROWS.T, axes, SIZES)
    return np.bincount(cells, minlength=int(np.prod([SIZES[a] for a in axes]))).astype(float)


def noisy(axes, deviation, chance):
    values = exact(axes)
    return Evidence(axes, values + deviation * chance.standard_normal(values.size), deviation**2)


def inside(masks):
    held = [np.ones(len(ROWS), bool), *(masks[axis][ROWS[:, axis]] for axis in masks)]
    return float(np.all(held, axis=0).sum())


def test_a_box_is_the_cells_inside_all_masks():
    masks = masks_of(SIZES, {0: [1, 2], 2: [0]})
    assert box(SIZES, (0, 2), masks).tolist() == [False, False, True, False, True, False]
    assert box(SIZES, (), {}).tolist() == [True]
    assert exact((0, 2))[box(SIZES, (0, 2), masks)].sum() == inside(masks)


def test_sharp_numbers_about_other_columns_widen_nothing():
    masks = masks_of(SIZES, {0: [1]})
    one, other = Evidence((0,), np.array([90.0, 80, 70]), 1e4), Evidence((1,), np.ones(4), 1e-4)
    alone = reach(SIZES, [one], masks, failure=0.05, gaussian=False)
    assert reach(SIZES, [one, other], masks, failure=0.05, gaussian=False) == alone
    assert alone[1] - 80 < 100 * 2.3  # of Laplace noise: 2.12


@pytest.mark.parametrize("variance", [1e14, 8.8e18, 1e30])  # one plus its inverse is about one
def test_noise_of_any_size_has_a_reach(variance):
    known = Evidence((0,), np.array([90.0, 80, 70]), variance)
    high = reach(SIZES, [known], masks_of(SIZES, {0: [1]}), failure=0.05, gaussian=False)[1]
    assert high / variance**0.5 == pytest.approx(2.165, abs=0.01)  # Laplace: 2.12


def test_all_tables_together_say_more_than_each():
    masks = masks_of(SIZES, {0: [1]})
    one, two = Evidence((0,), np.array([1.0, 4, 1]), 2.0), Evidence((0, 2), np.arange(6.0), 3.0)
    alone = direct(SIZES, [one], masks)
    assert (alone.value, alone.variance) == (4, 2)
    both = direct(SIZES, [one, two], masks)
    assert both.value == pytest.approx((4 / 2 + 5 / 6) / (1 / 2 + 1 / 6))
    assert both.variance == pytest.approx(1 / (1 / 2 + 1 / 6))
    assert direct(SIZES, [one], masks_of(SIZES, {2: [0]})) is None


def test_a_coarser_table_counts_where_it_is_not_cut():
    coarse = Evidence((0,), np.array([10.0, 7.0]), 1.0, np.array([0, 0, 1], np.int32))
    assert direct(SIZES, [coarse], masks_of(SIZES, {0: [0, 1]})).value == 10
    assert direct(SIZES, [coarse], masks_of(SIZES, {0: [0]})) is None
    partial = Evidence((0,), np.array([10.0]), 1.0, np.array([0, 0, -1], np.int32))
    assert direct(SIZES, [partial], masks_of(SIZES, {0: [0, 1]})).value == 10
    assert direct(SIZES, [partial], masks_of(SIZES, {0: [0, 1, 2]})) is None


def test_cells_of_one_column_come_from_all_tables_that_hold_it():
    tables = [Evidence((0,), exact((0,)), 1.0), Evidence((0, 1), exact((0, 1)), 1.0)]
    values, variances = singles(SIZES, tables, 0)
    assert values.tolist() == pytest.approx(exact((0,)).tolist())
    assert variances.tolist() == pytest.approx([1 / (1 + 1 / 4)] * 3)
    assert singles(SIZES, tables, 2) is None


@pytest.mark.parametrize("asked", [{0: [1]}, {0: [0, 2], 1: [0]}, {0: [1], 1: [0, 1], 2: [1]}, {}])
@pytest.mark.parametrize("total", [None, 600.0])
def test_bounds_hold_as_often_as_they_say(asked, total):
    """400 draws at 90 %: misses beyond this number have probability 1e-6."""
    chance = np.random.default_rng(len(asked))
    masks = masks_of(SIZES, asked)
    missed = 0
    for _ in range(400):
        tables = [noisy(axes, 8.0, chance) for axes in ((0, 1), (1, 2))]
        low, high = reach(SIZES, tables, masks, failure=0.1, gaussian=True, total=total)
        missed += not low <= inside(masks) <= high
        assert low <= high
    assert missed <= binom.isf(1e-6, 400, 0.1)


def test_a_table_with_all_columns_gives_narrower_bounds_than_parts():
    chance = np.random.default_rng(0)
    masks = masks_of(SIZES, {0: [1], 1: [0, 1], 2: [1]})
    parts = [noisy(axes, 2.0, chance) for axes in ((0, 1), (1, 2))]
    terms = {"failure": 0.05, "gaussian": True}
    wide = reach(SIZES, parts, masks, **terms)
    narrow = reach(SIZES, [*parts, noisy((0, 1, 2), 2.0, chance)], masks, **terms)
    assert narrow[1] - narrow[0] < (wide[1] - wide[0]) / 2
    assert reach(SIZES, [], masks, **terms) == (0, np.inf)


def test_large_parts_of_three_columns_are_bound_by_what_pairs_hold_outside():
    """What two pairs leave of all rows is less by 50 and more; noise of each sum is 12 at most."""
    asked = {0: [0, 1], 1: [0, 1], 2: [0]}
    masks = masks_of(SIZES, asked)
    pairs = [Evidence(axes, exact(axes), 1.0) for axes in ((0, 1), (0, 2), (1, 2))]
    low, high = reach(SIZES, pairs, masks, failure=0.05, gaussian=True)
    kept = inside({a: masks[a] for a in (0, 2)})
    lost = inside({0: masks[0], 1: ~masks[1]})
    assert kept - lost - 12 < low <= inside(masks) <= high < kept + 12
    sums = [inside({a: masks[a] for a in pair}) for pair in ((0, 1), (1, 2))]
    assert low > sum(sums) - 600 + 50  # what two pairs leave of all rows


def test_a_total_that_is_known_has_no_width():
    assert reach(SIZES, [], {}, failure=0.05, gaussian=False, total=600.0) == (600, 600)


def test_impossible_cells_are_empty_in_the_model_and_in_its_rows():
    chance = np.random.default_rng(3)
    tables = [noisy(axes, 3.0, chance) for axes in ((0, 1), (1, 2))]
    never = Impossible((0, 1), box(SIZES, (0, 1), masks_of(SIZES, {0: [1], 1: [1]})))
    assert never.held_by(ROWS, SIZES).sum() > 0
    free = fit(SIZES, tables)
    assert free.table((0, 1))[never.inside].sum() > 10
    model = hardened(fit(SIZES, [*tables, never.evidence(0.01)]), [never])
    assert model.table((0, 1))[never.inside].sum() == 0
    assert model.table((0, 1)).sum() == pytest.approx(free.total)
    assert not never.held_by(model.rows(5000, seed=1), SIZES).any()
    assert hardened(free, []) is free


def test_a_model_that_has_no_room_for_what_is_impossible_is_left_as_it_is():
    chance = np.random.default_rng(3)
    model = fit(SIZES, [noisy((0,), 3.0, chance), noisy((1,), 3.0, chance)])
    never = Impossible((0, 1), box(SIZES, (0, 1), masks_of(SIZES, {0: [1], 1: [1]})))
    assert hardened(model, [never], cells_max=10).cliques == model.cliques


def test_geometric_noise_of_a_high_price_is_bounded_too():
    """At ε = 3 noise is mostly 0 or ±1. 2000 draws at 95 %; beyond has probability 1e-6."""
    chance = np.random.default_rng(5)
    stays = np.exp(-3.0)
    variance = 2 * stays / (1 - stays) ** 2
    masks = masks_of(SIZES, {0: [1]})
    missed = 0
    for _ in range(2000):
        draws = chance.geometric(1 - stays, (2, 12))
        table = Evidence((0, 1), exact((0, 1)) + draws[0] - draws[1], variance)
        low, high = reach(SIZES, [table], masks, failure=0.05, gaussian=False)
        missed += not low <= inside(masks) <= high
    assert missed <= binom.isf(1e-6, 2000, 0.05)


def test_the_part_of_a_box_is_that_of_its_cells():
    chance = np.random.default_rng(8)
    model = fit(SIZES, [noisy(axes, 3.0, chance) for axes in ((0, 1), (1, 2))])
    table = model.table((0, 1, 2)).reshape(SIZES) / model.total
    assert model.part({}) == pytest.approx(1)
    assert model.part({2: 1}) == pytest.approx(table[:, :, 1].sum())
    cells = {0: [0, 2], 1: [1, 3], 2: [0]}
    assert model.part(cells) == pytest.approx(table[np.ix_(*cells.values())].sum())


def test_noise_far_below_zero_is_not_taken_for_certainty():
    """A table that is -1000 ± 30 says that there are few rows, not that there are none."""
    near, far = (
        Evidence(axes=(0,), values=np.full(SIZES[0], value), variance=100.0)
        for value in (0.0, -1000.0)
    )
    masks = {0: np.arange(SIZES[0]) == 0}
    low, high = reach(SIZES, [far], masks, failure=0.05, gaussian=False)
    assert (low, high) == reach(SIZES, [near], masks, failure=0.05, gaussian=False)
    assert low == 0
    assert high > 20


def test_association_is_that_of_measured_tables_without_their_noise():
    """Of a column and itself it is 1 where there are two values; independent columns have none."""
    same, apart = np.diag([300.0, 300.0]).ravel(), np.full(4, 150.0)
    for table, found in ((same, 1.0), (apart, 0.0)):
        assert association((2, 2), [Evidence((0, 1), table, 1e-9)]) == pytest.approx(
            found, abs=1e-6
        )
    assert association((2, 2), [Evidence((0, 1), apart, 100.0)]) > 0.005  # noise may hide as much
    alone = [Evidence((0,), np.ones(2), 1.0), Evidence((0, 1), np.ones(2), 1.0, np.arange(4) // 2)]
    assert association((2, 2), alone) is None
    assert isinf(likely((2, 2), alone, masks_of((2, 2), {0: [0], 1: [0]}), 1.0, 2.0))


@pytest.mark.parametrize("seed", range(6))
def test_likely_bounds_hold_and_are_far_narrower_than_proven_ones(seed):
    """Three columns that follow a hidden one, pairs measured: all cells of all three."""
    chance = np.random.default_rng([21, seed])
    sizes = (4, 5, 3)
    hidden = chance.integers(0, 3, 2000)
    columns = []
    for size in sizes:
        parts = chance.dirichlet(np.full(size, 4.0), 3).cumsum(axis=1)
        columns.append((chance.random(2000)[:, None] > parts[hidden]).sum(axis=1).clip(0, size - 1))
    sets = list(combinations(range(3), 2))
    tables = []
    for axes in sets:
        cells = numbers(np.array(columns), axes, sizes)
        values = np.bincount(cells, minlength=sizes[axes[0]] * sizes[axes[1]]).astype(float)
        tables.append(Evidence(axes, values + 6 * chance.standard_normal(values.size), 36.0))
    model, inside, proven, told = fit(sizes, tables), [], 0.0, 0.0
    for at in product(*map(range, sizes)):
        masks = masks_of(sizes, {axis: [value] for axis, value in enumerate(at)})
        true = np.all([column == value for column, value in zip(columns, at, strict=True)], axis=0)
        value = model.total * model.part({axis: [value] for axis, value in enumerate(at)})
        low, high = reach(sizes, tables, masks, failure=0.05, gaussian=True)
        half = 2 * sqrt(likely(sizes, tables, masks, value, model.total))
        proven, told = proven + high - low, told + min(high, value + half) - max(low, value - half)
        inside.append(abs(true.sum() - value) <= half)
    assert np.mean(inside) >= 0.9
    assert told < 0.6 * proven
