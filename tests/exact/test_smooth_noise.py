"""Noise times a secret smooth bound: the exact condition of each law, and copies that break it."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from noisegate.accounting.smooth import laplace_delta_up, lognormal_rho_up, student_epsilon_up
from noisegate.mechanisms.base import INPUT_MAX
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.mechanisms.smooth.smooth import (
    UNIT,
    SmoothLaplace,
    SmoothLognormal,
    SmoothNoise,
    SmoothStudent,
)

SCALE, BETA = Fraction(2), Fraction(1, 8)


def student(z):
    return np.log(2 * np.sqrt(3) * 3 / np.pi) - 2 * np.log(3 + z * z)


def laplace(z):
    return -np.abs(z) - np.log(2)


def lognormal(sigma):
    """The log-density of X e^(σY) on a grid of Y; a smooth mean, so trapezoids are near exact."""
    y = np.linspace(-10, 10, 201)[:, None]
    weight = np.exp(-y * y / 2) * (y[1] - y[0]) / np.sqrt(2 * np.pi)

    def log_density(z):
        rate = np.exp(-sigma * y)
        with np.errstate(under="ignore"):
            return np.log((weight * rate * np.exp(-np.abs(z) * rate)).sum(axis=0) / 2)

    return log_density


def pairs(scale, beta):
    """Neighbours' (place, width): moves of up to the narrower width, widths e^±β apart."""
    for part, log_width in product((0, 0.3, 1), (-1, -0.4, 0, 0.4, 1)):
        width = np.exp(float(beta) * log_width)
        for sign in (-1, 1):
            yield sign * part * min(width, 1) / float(scale), width


def log_ratio(log_density, z, move, width):
    """Of noise of width 1 at 0 over noise of ``width`` at ``move``."""
    return log_density(z) - (log_density((z - move) / width) - np.log(width))


def worst_ratio(log_density, scale, beta):
    z = np.sinh(np.linspace(-15, 15, 40_001))
    return max(log_ratio(log_density, z, *each).max() for each in pairs(scale, beta))


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(40)])
@pytest.mark.parametrize("beta", [Fraction(1, 100), Fraction(1, 8), Fraction(2)])
def test_student_noise_has_exactly_its_epsilon(scale, beta):
    claim = float(student_epsilon_up(scale, beta))
    assert worst_ratio(student, scale, beta) == pytest.approx(claim, rel=1e-4)
    assert worst_ratio(student, scale, beta) <= claim


@pytest.mark.parametrize("scale", [Fraction(1, 100), Fraction(1, 4), Fraction(49, 100)])
@pytest.mark.parametrize("beta", [Fraction(1, 100), Fraction(1, 2), Fraction(2)])
def test_narrow_student_noise_has_no_ratio_above_its_epsilon(scale, beta):
    worst = worst_ratio(student, scale, beta)
    claim = float(student_epsilon_up(scale, beta))
    assert 0.5 * claim < worst <= claim


def test_a_beta_that_is_larger_than_priced_breaks_the_promise():
    """The broken copy: bounds that move by 2β for noise that was priced at β."""
    assert worst_ratio(student, SCALE, 2 * BETA) > 1.2 * float(student_epsilon_up(SCALE, BETA))


def test_laplace_noise_has_the_delta_of_the_formula_and_no_pair_has_more():
    epsilon = 1 / SCALE + 3 * BETA
    claim = float(laplace_delta_up(SCALE, BETA, epsilon))
    z = np.linspace(-60, 60, 400_001)
    step = z[1] - z[0]

    def delta(move, width):
        first = np.exp(laplace(z))
        second = np.exp(laplace((z - move) / width)) / width
        return np.maximum(first - np.exp(float(epsilon)) * second, 0).sum() * step

    found = [delta(move, width) for move, width in pairs(SCALE, BETA)]
    assert max(found) == pytest.approx(claim, rel=1e-4)


def test_the_delta_of_smooth_laplace_noise_is_the_published_one():
    assert float(laplace_delta_up(SCALE, Fraction(1, 10), Fraction(1))) == pytest.approx(
        1.584e-4, rel=1e-3
    )
    assert float(laplace_delta_up(SCALE, Fraction(1, 20), Fraction(1))) == pytest.approx(
        5.350e-7, rel=1e-3
    )


def worst_renyi(log_density, scale, beta):
    """The largest D_a/a over orders and neighbours."""
    z = np.sinh(np.linspace(-9, 9, 2001))
    logs, worst = log_density(z), 0.0
    for move, width in pairs(scale, beta):
        ratio = logs - (log_density((z - move) / width) - np.log(width))
        for order in (1.01, 2, 4, 8, 16, 64):
            powers = logs + (order - 1) * ratio
            top = powers.max()
            log_moment = top + np.log(np.trapezoid(np.exp(powers - top), z))
            worst = max(worst, log_moment / (order - 1) / order)
    return worst


@pytest.mark.parametrize("beta", [Fraction(1, 100), Fraction(1, 16)])
def test_lognormal_noise_has_no_renyi_divergence_above_its_rho(beta):
    law, rho = lognormal(0.25), float(lognormal_rho_up(SCALE, beta, Fraction(1, 4)))
    assert 0.4 * rho < worst_renyi(law, SCALE, beta) <= rho
    assert worst_renyi(law, SCALE / 2, beta) > rho  # half of the noise is too little
    assert worst_renyi(law, SCALE, 4 * beta + Fraction(1, 20)) > rho  # as is a large β


def test_a_move_under_lognormal_noise_costs_its_share_and_no_less():
    log_density, move = lognormal(0.25), 1e-4
    slope = (log_density(np.zeros(1)) - log_density(np.full(1, move)))[0] / move
    assert slope == pytest.approx(np.exp(1.5 * 0.25**2), rel=1e-3)


def reaches_of_line(place, top, far):
    """A_k of a number on 0, …, top whose neighbours are the places beside it; moves grow by far."""
    return [max(abs(x) ** 2 for x in range(place - k, place + k + 1)) for k in range(far + 1)]


@pytest.mark.parametrize("beta", [Fraction(1, 3), Fraction(1, 50)])
def test_a_bound_is_smooth_to_the_last_digit(beta):
    noise = SmoothStudent(scale=1, beta=beta, low=0, high=400)
    upper_growth = float(beta) * (1 + 1e-12)
    for place in range(-12, 12):
        here = noise.bound(reaches_of_line(place, 20, 30))
        there = noise.bound(reaches_of_line(place + 1, 20, 30))
        assert here >= UNIT * place**2
        assert abs(np.log(here) - np.log(there)) <= upper_growth


def test_a_bound_without_decays_is_not_smooth():
    """The broken copy: local sensitivity alone changes from 0 to everything in one step."""
    local = [place**2 for place in range(3)]
    assert local[0] == 0 < local[1]
    noise = SmoothStudent(scale=1, beta="1/3", low=0, high=400)
    found = [noise.bound(reaches_of_line(place, 20, 30)) for place in range(3)]
    assert max(found) <= min(found) * np.exp(2 / 3)


def test_decays_fall_by_no_more_than_beta_and_never_reach_zero():
    for beta in (Fraction(1, 10_000), Fraction(1, 7), Fraction(5)):
        decays = np.array(SmoothStudent(scale=1, beta=beta, low=0, high=9).decays, np.float64)
        steps = np.diff(np.log(decays))
        assert decays[0] == UNIT
        assert decays[-1] >= 1
        assert steps.max() < 0
        assert steps.min() >= -float(beta) * (1 + 1e-12) - 1e-14


def test_a_list_that_goes_on_as_it_ends_changes_nothing_past_the_last_decay():
    noise = SmoothStudent(scale=1, beta=1, low=0, high=1000)
    length = len(noise.decays)
    assert noise.bound([2] * length) == noise.bound([2] * (length + 50)) == 2 * UNIT
    assert noise.bound([]) == 1000 * UNIT
    assert noise.bound([-5, 0]) == 1000 * noise.decays[2]


@pytest.mark.parametrize(
    "noise",
    [
        SmoothStudent.for_epsilon(1, low=-50, high=50),
        SmoothLaplace.for_budget(1, "1e-6", low=-50, high=50),
        SmoothLognormal.for_rho("1/8", low=-50, high=50),
    ],
    ids=lambda noise: noise.name,
)
def test_answers_stay_in_the_range_and_are_exact_where_nobody_can_move_them(noise):
    still = [0] * len(noise.decays)
    assert {int(noise.sample(np.array([7, *still]))[0]) for _ in range(50)} == {
        7
    }  # noise of 1e-12: 1 in 10**12 moves
    moved = [int(noise.sample(np.array([10**9, 100]))[0]) for _ in range(50)]
    assert -50 <= min(moved) <= max(moved) == 50
    assert noise.sample(np.array([2**63 - 1, *still])).tolist() == [50]


def test_a_reach_across_the_widest_range_is_seen_whole(monkeypatch):
    """Cut to what numbers are cut to, it would be half of what a step can do."""
    ends, wide = {"low": -INPUT_MAX, "high": INPUT_MAX}, 2 * INPUT_MAX
    seen = []
    monkeypatch.setattr(SmoothNoise, "width", lambda _, reaches: seen.append(reaches) or 1)
    SmoothStudent(scale=Fraction(1, 1 << 11), beta=1, **ends).sample(np.array([0, wide]))
    assert seen == [[wide]]
    test = ProposeTestRelease(bound=wide - 1, test_scale=1, threshold=50, scale=1, **ends)
    assert test.sample(np.array([0, wide])).tolist() == [0, -INPUT_MAX]  # but with e^-50
