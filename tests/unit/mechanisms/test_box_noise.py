"""Noise for whole cells: its exact law, its exact promise, and broken copies of both.

Chi-square tests alarm below a p-value of 1e-8; eleven of them raise a false alarm once in several
million runs. Every bin has at least 200 expected draws.
"""

from fractions import Fraction
from itertools import product
from math import comb, exp, log, prod

import numpy as np
import pytest
from scipy import stats

from noisegate.accounting.box import _sum, _tail_up, box_tail, box_variance
from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.errors import SpecError
from noisegate.exact import upper
from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.noise import box
from noisegate.noise.box import box_noise
from noisegate.noise.uniform import integer_below, uniform_below_each
from noisegate.privacy.distance import LInf1
from noisegate.privacy.event import BoxNoiseEvent, decode, encode

FALSE_ALARM = 1e-8
DRAWS = 60_000


def radius_masses(scale, width, length=400):
    """Pr[s] ∝ (2s + 1)^width e^(-s / scale)."""
    s = np.arange(length)
    weights = np.exp(width * np.log(2 * s + 1) - s / float(scale))
    return weights / weights.sum()


def mass(z, scale, width):
    """Pr[z]: the definition, normalised by the number of vectors of each size."""
    r = np.arange(400)
    shells = (2 * r + 1.0) ** width - np.where(r > 0, 2.0 * r - 1, 0) ** width
    return exp(-max(map(abs, z)) / scale) / (shells * np.exp(-r / scale)).sum()


def p_value(draws, scale):
    """Of vectors against the enumerated law; what is expected rarely is pooled."""
    width = draws.shape[1]
    reach = 12 if width < 3 else 4
    places = {z: mass(z, scale, width) for z in product(range(-reach, reach + 1), repeat=width)}
    seen = dict.fromkeys(places, 0)
    for z in map(tuple, draws.tolist()):
        if z in seen:
            seen[z] += 1
    often = [z for z in places if places[z] * len(draws) >= 200]
    expected = np.array([places[z] for z in often]) * len(draws)
    counts = np.array([seen[z] for z in often])
    expected = np.append(expected, len(draws) - expected.sum())
    counts = np.append(counts, len(draws) - counts.sum())
    assert expected[-1] >= 200
    assert expected.size > 5
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), expected.size - 1)


CASES = [
    (Fraction(1), 1),
    (Fraction(3), 1),
    (Fraction(1), 2),
    (Fraction(5, 2), 2),
    (Fraction(1), 3),
]


@pytest.mark.parametrize(("scale", "width"), CASES)
def test_the_drawn_law_is_the_enumerated_one(scale, width):
    assert p_value(box_noise(scale, DRAWS, width), float(scale)) > FALSE_ALARM


@pytest.mark.parametrize(("scale", "width"), CASES)
def test_a_sampler_that_forgets_its_coins_is_caught(scale, width, monkeypatch):
    monkeypatch.setattr(box, "_accepted", lambda radii, *_: np.ones(radii.size, np.bool_))
    assert p_value(box_noise(scale, DRAWS, width), float(scale)) < FALSE_ALARM


def test_numbers_that_python_adds_up_have_the_same_law(monkeypatch):
    """Geometric numbers from 3 on are far here: four cells in ten take the slow way."""
    monkeypatch.setattr(box, "FAR", 3)
    assert p_value(box_noise(2, 5_000, 1), 2.0) > FALSE_ALARM


@pytest.mark.parametrize("width", [1, 2, 3, 7])
def test_a_sum_of_geometric_numbers_times_its_coins_is_the_radius(width):
    """Exactly: C(s + w, w) times the coins is (2s + 1)^w, up to one constant."""
    quotients = {
        comb(s + width, width)
        * prod(Fraction(2 * s + 1, 2 * s + 2 * i) for i in range(1, width + 1))
        / (2 * s + 1) ** width
        for s in range(60)
    }
    assert len(quotients) == 1


@pytest.mark.parametrize("width", [1, 2, 3])
def test_cubes_of_a_random_radius_are_the_law(width):
    scale = 1.5
    radii = radius_masses(scale, width)
    for z in product(range(-4, 5), repeat=width):
        least = max(map(abs, z))
        cubes = sum(p / (2 * s + 1) ** width for s, p in enumerate(radii) if s >= least)
        assert cubes == pytest.approx(mass(z, scale, width), rel=1e-10)


def test_cells_of_one_number_have_geometric_noise():
    alpha = exp(-1 / 3)
    for z in range(-9, 10):
        geometric = (1 - alpha) / (1 + alpha) * alpha ** abs(z)
        assert mass((z,), 3, 1) == pytest.approx(geometric, rel=1e-12)
    for scale in (Fraction(1), Fraction(7, 2), Fraction(1000), Fraction(10**6)):
        found = BoxNoise(scale=scale, width=1).interval("0.95")
        assert found == Geometric(scale=scale).interval("0.95")


@pytest.mark.parametrize(("scale", "width"), [(10**6, 2000), (10**6, 4096), (50, 64), (2**40, 3)])
def test_large_cells_have_their_variance(scale, width):
    """The radius of a cell is nearly a gamma number: 40 of them, within 7 standard errors."""
    cells = 40
    squares = box_noise(scale, cells, width).astype(float) ** 2
    relative = squares.mean() / box_variance(Fraction(scale), width)
    spread = 4 / (width + 1) + 0.8 / width  # of s² and, given s, of the mean of uniform squares
    assert abs(relative - 1) < 7 * (spread / cells) ** 0.5


# --- the promise ----------------------------------------------------------------------------------


def worst_log_ratio(scale, change, *, reach=6):
    """Over all outputs near the answers, of cells that change by these vectors."""
    worst = 0.0
    for cell in change:
        ratios = [
            log(mass(z, scale, len(cell)))
            - log(mass([a - b for a, b in zip(z, cell, strict=True)], scale, len(cell)))
            for z in product(range(-reach, reach + 1), repeat=len(cell))
        ]
        worst += max(ratios)
    return worst


@pytest.mark.parametrize(
    "change", [[(1, 1)], [(2, -1)], [(1, 0), (1, 1)], [(3, 3), (0, 0)], [(1,), (2,), (1,)]]
)
def test_the_price_is_the_worst_ratio_of_masses(change):
    scale = 2
    moved = sum(max(map(abs, cell)) for cell in change)
    event = BoxNoise(scale=scale, width=len(change[0])).event(LInf1(moved))
    assert worst_log_ratio(scale, change) == pytest.approx(float(pure_loss(event).epsilon))


def test_noise_for_one_cell_does_not_protect_two():
    """The broken copy counts the largest change of all cells instead of their sum."""
    change = [(1, 1), (1, 1)]
    broken = BoxNoise.for_epsilon(1, width=2, sensitivity=LInf1(1))
    honest = BoxNoise.for_epsilon(1, width=2, sensitivity=LInf1(2))
    assert worst_log_ratio(float(broken.scale), change) == pytest.approx(2)
    assert worst_log_ratio(float(honest.scale), change) == pytest.approx(1)


def test_what_it_costs():
    event = BoxNoise(scale=10, width=4).event(LInf1(3))
    assert event == BoxNoiseEvent(scale=10, sensitivity=LInf1(3))
    assert decode(encode(event)) == event
    assert pure_loss(event).epsilon == Fraction(3, 10)
    assert zcdp_loss(event).rho == Fraction(9, 200)


# --- how far an answer is off ---------------------------------------------------------------------


def tail(scale, width, t):
    masses = radius_masses(scale, width, length=20_000)
    s = np.arange(masses.size)
    return float(masses[t + 1 :] @ (2 * (s - t) / (2 * s + 1))[t + 1 :])


@pytest.mark.parametrize("confidence", ["0.5", "0.95", "0.9999"])
@pytest.mark.parametrize(("scale", "width"), [(1, 1), (Fraction(5, 2), 3), (8, 20), (40, 5)])
def test_the_interval_is_the_smallest_that_covers(scale, width, confidence):
    t = BoxNoise(scale=scale, width=width).interval(confidence)
    failure = 1 - float(Fraction(confidence))
    assert tail(scale, width, t) <= failure
    assert t == 0 or tail(scale, width, t - 1) > failure * (1 - 2 / float(scale) ** 2)


@pytest.mark.parametrize(("scale", "width", "t"), [(30, 1, 90), (30, 4, 50), (100, 2, 700)])
def test_the_integral_is_barely_above_the_sum(scale, width, t):
    scale = Fraction(scale)
    summed = upper(lambda: _sum(scale, width - 1, t) / _sum(scale, width, None))
    bound = upper(lambda: _tail_up(scale, width, t))
    assert float(summed) == pytest.approx(tail(scale, width, t), rel=1e-9)
    assert summed <= bound <= summed * (1 + 2 / scale**2)
    assert upper(lambda: box_tail(scale, width, t)) in (summed, bound)


@pytest.mark.parametrize(("scale", "width"), [(Fraction(1, 2), 1), (1, 3), (7, 20), (300, 2)])
def test_the_variance_is_that_of_the_enumerated_law(scale, width):
    masses = radius_masses(scale, width, length=20_000)
    s = np.arange(masses.size)
    assert box_variance(Fraction(scale), width) == pytest.approx(masses @ (s * (s + 1)) / 3)


def test_the_variance_of_long_sums_is_that_of_a_gamma_law():
    below, above = box_variance(Fraction(15_000), 1), box_variance(Fraction(16_000), 1)
    assert above / below == pytest.approx((16 / 15) ** 2, rel=1e-7)


def test_one_draw_for_a_cell_is_2_4_times_less_noise_than_one_for_each_number():
    width, epsilon = 64, Fraction(1)
    together = box_variance(256 / epsilon, width)
    apart = 2 * float(256 * width / epsilon) ** 2
    assert 2.35 < (apart / together) ** 0.5 < 2.45


# --- its parts, and refusals ----------------------------------------------------------------------


def test_a_bound_of_its_own_for_every_lane():
    """Each of 6 bounds: uniform by a chi-square test."""
    bounds = np.repeat([1, 2, 3, 7, 8, 1000], 20_000).reshape(6, -1)
    found = uniform_below_each(bounds)
    assert found.shape == bounds.shape
    assert not found[0].any()
    for bound, row in zip(bounds[1:, 0].tolist(), found[1:], strict=True):
        counts = np.bincount(row * min(bound, 8) // bound)
        shares = np.bincount(np.arange(bound) * min(bound, 8) // bound) / bound
        assert stats.chisquare(counts, shares * row.size).pvalue > FALSE_ALARM
    assert uniform_below_each(np.full(9, 1 << 62)).max() < 1 << 62
    assert {integer_below(3, box.SYSTEM) for _ in range(200)} == {0, 1, 2}


def test_what_is_no_cell_is_refused():
    for scale, width in ((0, 1), (1, 0), (1, 11), (1, True), (1 << 41, 1), (10, 1 << 20), (1, 1.5)):
        with pytest.raises(SpecError) as refusal:
            BoxNoise(scale=scale, width=width)
        assert refusal.value.fix
        assert type(width) is not int or not BoxNoise.fits(Fraction(scale), width) or width < 1
    assert BoxNoise.fits(Fraction(1), 10)
    with pytest.raises(SpecError):
        BoxNoise(scale=1, width=2).sample(np.zeros(3, np.int64))
    assert BoxNoise(scale=1, width=2).sample(np.zeros((5, 3, 2), np.int64)).shape == (5, 3, 2)
