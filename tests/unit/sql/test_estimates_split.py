"""Shares of a price: worst relative errors are equal and least; laws of sums; consistent tables."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import optimize, stats

from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.sql.drafts.groups import Marginals, law_of, subsets, to_measure
from noisegate.sql.drafts.split import split
from noisegate.sql.laws.known import Known, pooled, released, rounded
from noisegate.sql.laws.laws import Draws, Interval, Law, combined, noise_variance

ONE = Fraction(1)


def test_separate_numbers_get_equal_relative_errors():
    assert split([{0: 1.0}, {1: 2.0}, {2: 5.0}], pieces=3, gaussian=False).shares == (
        Fraction(1, 8), Fraction(1, 4), Fraction(5, 8),
    )  # fmt: skip
    assert split([{0: 1.0}, {1: 3.0}], pieces=2, gaussian=True).shares == (
        Fraction(1, 10), Fraction(9, 10),
    )  # fmt: skip


def test_the_parts_of_one_mean_follow_the_cube_root_rule():
    found = split([{0: 27.0, 1: 1.0}], pieces=2, gaussian=False).shares
    assert found == (Fraction(9, 10), Fraction(1, 10))
    assert split([{0: 9.0, 1: 1.0}], pieces=2, gaussian=True).shares[0] == Fraction(9, 10)


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_split_is_as_good_as_a_general_optimiser_finds(gaussian):
    errors = [{0: 1.0}, {0: 0.5, 1: 2.0}, {1: 0.2, 2: 3.0, 3: 1.0}, {3: 0.7}]
    squares = np.zeros((4, 4))
    for row, weights in enumerate(errors):
        for piece, weight in weights.items():
            squares[row, piece] = weight**2
    power = 1 if gaussian else 2

    def worst(logs):
        shares = np.exp(logs) / np.exp(logs).sum()
        return (squares / shares**power).sum(axis=1).max()

    best = optimize.minimize(
        worst, np.zeros(4), method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-7}
    ).fun
    found = split(errors, pieces=4, gaussian=gaussian)
    assert found.worst <= best * 1.01
    assert sum(found.shares) == 1
    assert worst(np.log([float(share) for share in found.shares])) <= best * 1.02


def test_many_pieces_all_get_something():
    found = split([{j: 1.0 + 1000.0 * (j == 0)} for j in range(300)], pieces=300, gaussian=False)
    assert sum(found.shares) == 1
    assert min(found.shares) > 0


@pytest.mark.parametrize("scale", ["0.3", "1", "20", "1e9"])
@pytest.mark.parametrize("count", [2, 40])
def test_the_width_of_a_sum_of_geometric_noise_is_that_of_its_exact_law(scale, count):
    """For small scales against the convolution of masses, else against Laplace convolutions."""
    noise = Geometric(scale=scale)
    law = Law((Draws(ONE, count, noise),))
    spread = law.variance**0.5
    assert law.variance == pytest.approx(count * noise_variance(noise))
    for confidence in (Fraction(1, 2), Fraction(95, 100), Fraction(9999, 10000)):
        width = law.half_width(confidence)
        if noise.scale <= 20:
            exact = _sum_width(noise.scale, count, float(confidence))
            assert exact <= width <= exact + 0.1 * spread + 1
        else:
            normal = stats.norm.ppf((1 + float(confidence)) / 2) * spread
            assert 0.8 * normal < width < 1.5 * normal


def _sum_width(scale, count, confidence):
    places = np.arange(-4096, 4096)
    mass = np.exp(-np.abs(places) / float(scale))
    spectrum = np.fft.fft(np.fft.ifftshift(mass / mass.sum())) ** count
    total = np.fft.fftshift(np.fft.ifft(spectrum).real)
    inside = np.cumsum(np.bincount(np.abs(places), weights=total))
    return int(np.searchsorted(inside, confidence - 1e-12))


def test_the_width_of_gaussian_sums_is_the_normal_one_and_tiny_failures_are_bounded():
    noise = DiscreteGaussian(variance=400)
    law = Law((Draws(ONE, 3, noise), Draws(Fraction(1, 2), 4, noise)))
    assert law.variance == pytest.approx(1600)
    assert 78.4 <= law.half_width(Fraction(95, 100)) <= 78.4 * 1.05
    far = law.half_width(1 - Fraction(1, 10**12))
    assert 40 * stats.norm.isf(5e-13) <= far <= 40 * 7.6
    small = Law((Draws(ONE, 2, DiscreteGaussian(variance=Fraction(1, 4))),))
    assert small.half_width(Fraction(95, 100)) == pytest.approx(1, abs=0.15)


def test_one_draw_has_the_mechanisms_own_interval_and_none_has_no_width():
    noise = Geometric(scale=10)
    assert Law((Draws(Fraction(1, 4), 1, noise),)).half_width(Fraction(95, 100)) == pytest.approx(
        7.5
    )
    assert Law(()).half_width(Fraction(95, 100)) == 0
    both = combined(
        [(ONE, Law((Draws(ONE, 1, noise),))), (Fraction(-1), Law((Draws(ONE, 1, noise),)))]
    )
    assert both == Law((Draws(ONE, 2, noise),))


SIZES = (3, 4, 2)
FAMILIES = {
    "rollup": [(0, 1, 2), (0, 1), (0,), ()],
    "cube": list(subsets((0, 1, 2))),
    "odd": [(0, 1), (1, 2), (0, 1, 2), ()],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_consistent_tables_are_those_of_generalised_least_squares(family):
    sets = FAMILIES[family]
    generator = np.random.default_rng(5)
    noises = {s: Geometric(scale=2 + place) for place, s in enumerate(sets)}
    measured = {s: generator.normal(50, 9, int(np.prod([SIZES[j] for j in s]))) for s in sets}
    cells = list(product(*map(range, SIZES)))
    designs = {s: _design(s, cells) for s in sets}
    weights = np.concatenate(
        [np.full(measured[s].size, noise_variance(noises[s]) ** -0.5) for s in sets]
    )
    design = np.vstack([designs[s] for s in sets]) * weights[:, None]
    answer = np.concatenate([measured[s] for s in sets]) * weights
    best = np.linalg.lstsq(design, answer, rcond=None)[0]
    covariance = np.linalg.pinv(design.T @ design)
    laws = {s: Law((Draws(ONE, 1, noises[s]),)) for s in sets}
    tables = Marginals({s: Known(measured[s], laws[s]) for s in sets}, SIZES)
    for s in sets:
        np.testing.assert_allclose(tables.known(s).values, designs[s] @ best, rtol=1e-10)
        variance = np.diag(designs[s] @ covariance @ designs[s].T)
        np.testing.assert_allclose(tables.known(s).law.variance, variance, rtol=1e-10)
    if (0, 1, 2) in sets and (0,) in sets:
        finest = tables.known((0, 1, 2)).values.reshape(SIZES)
        np.testing.assert_allclose(finest.sum(axis=(1, 2)), tables.known((0,)).values, rtol=1e-9)


def _design(columns, cells):
    places = list(product(*(range(SIZES[j]) for j in columns)))
    return np.array([[float(tuple(c[j] for j in columns) == p) for c in cells] for p in places])


def test_a_large_rollup_is_consistent_at_once():
    sizes, sets = (10, 100, 100), [(0, 1, 2), (0, 1), (0,), ()]
    law = Law((Draws(ONE, 1, Geometric(scale=30)),))
    generator = np.random.default_rng(1)
    tables = Marginals(
        {s: Known(generator.random(int(np.prod([sizes[j] for j in s]))) * 1e9, law) for s in sets},
        sizes,
    )
    finest = tables.known((0, 1, 2)).values.reshape(sizes)
    np.testing.assert_allclose(finest.sum(axis=2).ravel(), tables.known((0, 1)).values, rtol=1e-9)
    np.testing.assert_allclose(finest.sum(), tables.known(()).values[0], rtol=1e-9)


def test_few_groups_are_added_up_and_many_are_measured_in_every_set():
    rollup = [(0, 1), (0,), ()]
    assert to_measure(rollup, (2, 2), gaussian=False) == ((0, 1),)
    assert to_measure(rollup, (50, 50), gaussian=False) == tuple(rollup)
    assert to_measure(rollup, (3, 3), gaussian=True) == tuple(rollup)
    assert to_measure([(0,), (1,)], (100, 100), gaussian=False) == ((0,), (1,))
    assert to_measure([(0, 1)], (3, 3), gaussian=False) == ((0, 1),)
    noise = Geometric(scale=5)
    laws = {(0, 1): Law((Draws(ONE, 1, noise),))}
    assert law_of(laws, (2, 2), ()) == Law((Draws(ONE, 4, noise),))


def test_two_answers_are_pooled_by_their_variances():
    fine, coarse = DiscreteGaussian(variance=100), DiscreteGaussian(variance=300)
    one, other = (released(np.array([v]), n, ONE) for v, n in ((8, fine), (4, coarse)))
    both = pooled([one, other])
    assert both.values.tolist() == [7.0]
    assert both.law.variance == pytest.approx(75)
    assert pooled([one]).values.dtype == np.int64


def test_a_weak_answer_never_widens_the_bars_of_a_strong_one():
    strong = released(np.array([100]), Geometric(scale=3), ONE)
    levels = [Fraction(place, 100) for place in (90, 95, 99)]
    for scale in (1000, 30, 10, 6, 4, 3):
        both = pooled([released(np.array([90]), Geometric(scale=scale), ONE), strong])
        for level in levels:
            assert both.law.half_width(level) <= strong.law.half_width(level)
        if scale == 1000:
            assert (both.values.dtype, both.values.tolist()) == (np.int64, [100])
        if scale == 3:
            assert both.values.tolist() == [95.0]


def test_rounding_adds_a_half_to_the_width_and_whole_numbers_stay():
    noise, level = Geometric(scale=10), Fraction(95, 100)
    fine = released(np.array([1000 * 1024 + 300, -5]), noise, Fraction(1, 1024))
    whole, bars = rounded(fine, exact_is_whole=False)
    assert (whole.dtype, whole.tolist()) == (np.int64, [1000, 0])
    width = fine.law.half_width(level) + 0.5
    assert bars(level).high.tolist() == [1000 + width, width]
    answers = [released(np.array([value]), noise, ONE) for value in (7, 10, 10)]
    both = pooled(answers)
    whole, bars = rounded(both, exact_is_whole=True)
    assert whole.tolist() == [9]
    width = both.law.half_width(level)
    assert bars(level).high[0] - 9 == np.floor(width + 0.5) <= noise.interval(level)
    same, _ = rounded(answers[0], exact_is_whole=True)
    assert same is answers[0].values
    far = rounded(Known(np.array([1e300, -1e300]), both.law), exact_is_whole=True)[0]
    assert far.tolist() == [1 << 62, -(1 << 62)]


def test_a_noise_too_small_for_a_double_has_no_width():
    """At ε = 1000 the variance is below all doubles."""
    law = Law((Draws(ONE, 3, Geometric(scale=Fraction(1, 1000))),))
    assert law.half_width(Fraction(95, 100)) == 0
    assert law.half_width(1 - Fraction(1, 10**12)) == 0


def test_interval_arithmetic_holds_for_all_points_inside():
    generator = np.random.default_rng(3)
    a, b = (np.sort(generator.normal(0, 3, (2, 500)), axis=0) for _ in range(2))
    x, y = Interval(*a), Interval(*b)
    p, q = (e[0] + (e[1] - e[0]) * generator.random(500) for e in (a, b))
    for found, exact in ((x - y, p - q), (x * y, p * q), (x.square(), p * p)):
        assert (found.low <= exact + 1e-12).all()
        assert (exact <= found.high + 1e-12).all()
    positive = Interval(np.abs(b).min(axis=0) + 0.1, np.abs(b).max(axis=0) + 0.1)
    ratio, inside = x.over(positive), p / (np.abs(b).mean(axis=0) + 0.1)
    assert ((ratio.low <= inside + 1e-12) & (inside <= ratio.high + 1e-12)).all()
    nothing = x.over(Interval(np.full(500, -1.0), np.ones(500)))
    assert np.isinf(nothing.low).all()
