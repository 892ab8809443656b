"""Trees of boxes: least squares, the variance of rectangles, shares of levels, pruning."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from cells_ask import CellsAsk
from hypothesis import given, settings
from hypothesis import strategies as st

from noisegate.errors import SpecError
from noisegate.mechanisms.partitions.boxes import halves, single, whole
from noisegate.releases.cells.estimate import simplex
from noisegate.releases.cells.spatial import Boxes, _shared, even_sums, fit, halved
from noisegate.releases.cells.workload import all_ranges, cells, ranges
from noisegate.releases.recipes.spatial.grids import divided
from noisegate.releases.recipes.spatial.kdtree import middles, with_halves
from noisegate.releases.trees.levels import (
    _slopes,
    best_shares,
    level_shares,
    level_weights,
    rehearsed,
)

SHAPES = [(1,), (7,), (8, 8), (5, 3), (16, 3), (3, 4, 2)]


def uneven():
    """A tree of boxes of several kinds: cuts, then halves, then nothing where it is single."""
    return Boxes.of((6, 4), with_halves(middles((6, 4), 2), 1))


def rows_of(boxes):
    """Which cells each box holds, as a matrix."""
    grid = np.indices(boxes.shape).reshape(len(boxes.shape), -1).T
    inside = [
        np.all((grid >= lo) & (grid <= hi), 1)
        for lo, hi in zip(boxes.lows, boxes.highs, strict=True)
    ]
    return np.array(inside, np.float64)


def leaves_of(boxes):
    return np.flatnonzero(boxes.parts == 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_level_of_halves_covers_the_table_once(shape):
    boxes = halved(shape)
    held = rows_of(boxes)
    for depth in range(boxes.depth + 1):
        assert np.array_equal(held[boxes.level(depth)].sum(axis=0), np.ones(held.shape[1]))
        labels = boxes.groups(depth).labels
        assert np.array_equal(
            held[boxes.level(depth)][labels, np.arange(labels.size)], np.ones(labels.size)
        )
    last = boxes.level(boxes.depth)
    assert single(boxes.lows[last], boxes.highs[last]).all()
    assert np.all(np.diff(boxes.parents) >= 0)
    for box in range(1, boxes.size):
        assert np.all(held[boxes.parents[box]] >= held[box])


def test_halves_of_long_boxes_come_nearer_to_squares():
    lows, highs = whole((64, 4))
    while not single(lows, highs).all():
        lows, highs, _ = halves(lows, highs)
        sizes = highs - lows + 1
        assert sizes.max() <= 4 or np.all(sizes[:, 1] == 4)


def dense(boxes, numbers, variances):
    """Weighted least squares over the leaves, by normal equations; counts of all boxes, covariance."""
    held, leaves = rows_of(boxes), leaves_of(boxes)
    volumes = held[leaves].sum(axis=1)
    design = held @ held[leaves].T / volumes
    known = np.isfinite(variances)
    weighted = design[known] / variances[known, None]
    covariance = np.linalg.inv(weighted.T @ design[known])
    return design, design @ (covariance @ (weighted.T @ numbers[known])), covariance


@pytest.mark.parametrize(
    "boxes", [halved((4, 4)), halved((5, 3)), uneven()], ids=["even", "odd", "cuts"]
)
@pytest.mark.parametrize("levels", ["all", "some"])
def test_two_passes_are_least_squares_and_know_their_covariance(boxes, levels):
    chance = np.random.default_rng(5)  # public test data, not noise
    numbers, variances = chance.normal(size=boxes.size), chance.uniform(1, 9, boxes.size)
    if levels == "some":
        inner = np.flatnonzero(boxes.parts > 0)
        variances[chance.choice(inner, inner.size // 2, replace=False)] = np.inf
    tree = fit(boxes, numbers, variances)
    _, counts, covariance = dense(boxes, numbers, variances)
    assert np.allclose(tree.counts, counts, atol=1e-9)
    leaves, held = leaves_of(boxes), rows_of(boxes)
    asked = all_ranges(boxes.shape, most=300)
    grid = np.indices(boxes.shape).reshape(2, -1).T
    inside = np.array(
        [
            np.all((grid >= lo) & (grid <= hi), 1)
            for lo, hi in zip(asked.lows, asked.highs, strict=True)
        ]
    )
    shares = inside @ held[leaves].T / held[leaves].sum(axis=1)
    expected = np.einsum("qi,ij,qj->q", shares, covariance, shares)
    assert np.allclose(tree.noise(asked.lows, asked.highs), expected, rtol=1e-9)
    partial = np.any((shares > 0) & (shares < 1), axis=1)
    found = tree.variance(asked.lows, asked.highs)
    assert np.array_equal(np.isinf(found), partial)
    assert np.allclose(found[~partial], expected[~partial], rtol=1e-9)
    assert np.allclose(asked.answers(tree.cells()), shares @ counts[leaves], atol=1e-9)


def three_passes(numbers, weights, fanout):
    """The linear-time solution for complete trees, as published; one list of arrays per level."""
    height = len(numbers) - 1
    down = [weights[0] * numbers[0]]
    for depth in range(1, height + 1):
        down.append(np.repeat(down[-1], fanout) + weights[depth] * numbers[depth])
    up = [down[-1]]
    for _ in range(height):
        up.insert(0, up[0].reshape(-1, fanout).sum(axis=1))
    totals = [
        sum(fanout**j * weights[height - j] for j in range(level + 1))
        for level in range(height + 1)
    ]
    found, carried = [], np.zeros(1)
    for depth in range(height + 1):
        level = height - depth
        if depth:
            carried = np.repeat(carried + weights[depth - 1] * found[-1], fanout)
        found.append((up[depth] - fanout**level * carried) / totals[level])
    return found


@pytest.mark.parametrize(("shape", "fanout"), [((8,), 2), ((8, 8), 4), ((4, 4, 4), 8)])
def test_on_complete_trees_it_is_the_published_three_pass_solution(shape, fanout):
    boxes = halved(shape)
    chance = np.random.default_rng(6)
    numbers = [
        chance.normal(size=boxes.level(d).stop - boxes.level(d).start)
        for d in range(boxes.depth + 1)
    ]
    weights = chance.uniform(1, 9, boxes.depth + 1)
    variances = np.concatenate(
        [np.full(n.size, 1 / w) for n, w in zip(numbers, weights, strict=True)]
    )
    tree = fit(boxes, np.concatenate(numbers), variances)
    assert np.allclose(tree.counts, np.concatenate(three_passes(numbers, weights, fanout)))


@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(0.1, 9)), min_size=2, max_size=5),
    st.floats(0, 20),
)
def test_parts_kept_at_zero_or_above_are_the_nearest_that_add_up(parts, total):
    centre, spread = (np.array(each) for each in zip(*parts, strict=True))
    size = centre.size
    counts = _shared(centre, spread, np.zeros(size, np.int64), np.array([total]))
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(total, abs=1e-6)
    best = np.inf
    for zeros in (set(z) for k in range(size) for z in combinations(range(size), k)):
        kept = np.array([i not in zeros for i in range(size)])
        push = (total - centre[kept].sum()) / spread[kept].sum()
        trial = np.where(kept, centre + spread * push, 0)
        if trial.min() >= -1e-9:
            best = min(best, np.sum((trial - centre) ** 2 / spread))
    assert np.sum((counts - centre) ** 2 / spread) == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("grain", [1.0, 0.25])
def test_mended_cells_are_whole_and_none_is_negative_and_the_total_stays(shape, grain):
    boxes = halved(shape)
    chance = np.random.default_rng(7)
    numbers = chance.normal(size=boxes.size) * 9 + 200 * boxes.volumes / boxes.volumes[0]
    tree = fit(boxes, numbers, np.full(boxes.size, 4.0))
    found = tree.mended(grain)
    assert found.dtype == np.int64
    assert found.shape == shape
    assert found.min() >= 0
    assert abs(found.sum() - max(tree.counts[0], 0) * grain) <= 0.5


def test_rounding_moves_no_box_by_one():
    boxes = uneven()
    chance = np.random.default_rng(8)
    exact = chance.uniform(0, 3, boxes.size)
    leaves = leaves_of(boxes)
    numbers = rows_of(boxes) @ (rows_of(boxes)[leaves].T @ (exact[leaves] / boxes.volumes[leaves]))
    tree = fit(boxes, numbers, np.ones(boxes.size))
    assert np.allclose(tree.counts, numbers)  # nothing to mend but to round
    held = rows_of(boxes) @ tree.mended().reshape(-1)
    assert np.abs(held - numbers).max() < 1
    assert np.abs(held - numbers)[leaves].max() > 0.1


def test_mending_a_sparse_map_does_not_shift_its_ranges():
    """Flat projections do: they take as much from the crowded corner as they leave in empty ones."""
    boxes = halved((32, 32))
    chance = np.random.default_rng(9)
    exact = np.zeros((32, 32))
    exact[:4, :4] = 1000
    last = boxes.level(boxes.depth)
    order = boxes.painted(np.arange(last.start, last.stop))
    numbers, variances = np.zeros(boxes.size), np.full(boxes.size, np.inf)
    noisy = exact.reshape(-1) + chance.normal(size=1024) * 20
    numbers[order], variances[last] = noisy, 400
    asked = random_rectangles((32, 32))
    truth = asked.answers(exact)

    def error(table):
        return np.sqrt(np.mean((asked.answers(table) - truth) ** 2))

    mended = fit(boxes, numbers, variances).mended()
    flat = simplex(noisy.reshape(32, 32), noisy.sum())
    assert error(mended) < error(noisy.reshape(32, 32)) < error(flat)


def test_pruning_keeps_what_boxes_hold_and_cuts_off_their_parts():
    boxes = halved((8, 8))
    exact = np.zeros((8, 8))
    exact[0, 0], exact[7, 7] = 40, 3
    numbers = rows_of(boxes) @ exact.reshape(-1)
    tree = fit(boxes, numbers, np.ones(boxes.size))
    short = tree.pruned(10)
    assert short.boxes.size == 13  # the whole, its quarters, and twice the quarters of one of them
    assert short.cells().sum() == pytest.approx(43)
    assert short.cells()[7, 7] == pytest.approx(3 / 16)
    assert short.cells()[0, 0] == pytest.approx(40)
    everything = np.array([[0, 0]]), np.array([[7, 7]])
    assert short.variance(*everything) == pytest.approx(tree.variance(*everything))
    quarter = np.array([[4, 4]]), np.array([[7, 7]])
    assert short.variance(*quarter) == pytest.approx(tree.variance(*quarter))
    assert np.isinf(short.variance(np.array([[6, 6]]), np.array([[7, 7]]))[0])
    assert tree.pruned(-1).boxes.size == boxes.size


@settings(max_examples=30)
@given(st.lists(st.floats(0, 4), min_size=4, max_size=4))
def test_rectangles_between_edges_get_the_share_of_the_area(ends):
    table = np.arange(12.0).reshape(4, 3)
    (x0, x1), (y0, y1) = sorted(ends[:2]), sorted(min(e, 3) for e in ends[2:])
    expected = sum(
        table[i, j] * max(0, min(x1, i + 1) - max(x0, i)) * max(0, min(y1, j + 1) - max(y0, j))
        for i, j in product(range(4), range(3))
    )
    found = even_sums(table, np.array([[x0, y0]]), np.array([[x1, y1]]))
    assert found[0] == pytest.approx(expected, abs=1e-9)


def test_a_rectangle_that_ends_before_it_begins_is_refused():
    with pytest.raises(SpecError):
        even_sums(np.ones((2, 2)), np.array([[1.0, 1.0]]), np.array([[0.0, 2.0]]))


# --- shares --------------------------------------------------------------------------------------


def random_rectangles(shape, count=200):
    chance = np.random.default_rng(9)
    sizes = np.stack([chance.integers(1, n + 1, count) for n in shape], axis=1)
    lows = (chance.random(sizes.shape) * (np.array(shape) - sizes + 1)).astype(np.int64)
    return ranges(shape, lows, lows + sizes - 1)


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_weights_of_levels_give_the_mean_variance_of_the_workload(gaussian):
    boxes, asked = halved((16, 16)), random_rectangles((16, 16))
    weights, fanouts = level_weights(boxes, asked)
    shares = np.array([0.1, 0.0, 0.3, 0.2, 0.4])
    noise = 1 / shares[shares > 0] if gaussian else 2 / shares[shares > 0] ** 2
    variances = np.full(boxes.size, np.inf)
    for depth, variance in zip(np.flatnonzero(shares), noise, strict=True):
        variances[boxes.level(depth)] = variance
    exact = fit(boxes, np.zeros(boxes.size), variances).noise(asked.lows, asked.highs).mean()
    assert _slopes(weights, fanouts, shares[None], gaussian=gaussian)[1] == pytest.approx(exact)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("shape", [(64,), (16, 16), (2**12,)])
def test_no_small_change_of_the_shares_is_better(gaussian, shape):
    weights, fanouts = level_weights(halved(shape), random_rectangles(shape, 60))
    best = best_shares(weights, fanouts, gaussian=gaussian)
    assert best.sum() == pytest.approx(1)

    def cost(shares):
        return float(_slopes(weights, fanouts, shares[None], gaussian=gaussian)[1][0])

    even = np.full(best.size, 1 / best.size)
    assert cost(best) < cost(even)
    for giver, taker in product(range(best.size), repeat=2):
        step = 0.01 * best[giver]
        moved = best.copy()
        moved[giver] -= step
        moved[taker] += step
        assert cost(moved) >= cost(best) * (1 - 1e-4)


def test_shares_are_fractions_of_the_price_and_the_last_level_has_one():
    for asked in (cells((9, 5)), random_rectangles((9, 5))):
        shares = level_shares(halved((9, 5)), asked, Fraction(7, 10), gaussian=False)
        assert 0 < sum(shares) <= Fraction(7, 10)
        assert sum(shares) > Fraction(699, 1000)
        assert shares[-1] > 0


def test_a_rehearsal_asks_nothing_and_knows_the_noise():
    ask = CellsAsk(np.zeros((4, 4), np.int64), Fraction(1))
    tree = rehearsed(ask, halved((4, 4)), [Fraction(1, 2), Fraction(0), Fraction(1, 2)])
    assert ask.spent.max() == 0
    whole_table = tree.noise(np.array([[0, 0]]), np.array([[3, 3]]))[0]
    alpha = np.exp(-0.5)
    each = 2 * alpha / (1 - alpha) ** 2
    assert whole_table == pytest.approx(1 / (1 / each + 1 / (16 * each)))


def test_grids_divide_boxes_as_evenly_as_cells_allow():
    lows, highs = np.array([[0, 0], [10, 0]]), np.array([[9, 4], [16, 4]])
    levels = divided(lows, highs, np.array([[4], [2]]))
    low, high, _ = levels[-1]
    sizes = high - low + 1
    assert np.prod(sizes, axis=1).sum() == 17 * 5
    first = sizes[low[:, 0] < 10]
    assert sorted(set(first[:, 0].tolist())) == [2]  # 10 cells in 5 of 2, as 4 would be uneven
    assert set(sizes[low[:, 0] >= 10][:, 0].tolist()) <= {2, 3}
