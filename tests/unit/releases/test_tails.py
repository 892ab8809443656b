"""Sums of noise never reach further than stated: against exact laws, so nothing here is random."""

from fractions import Fraction
from itertools import product
from math import exp, log, pi, sqrt

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import gamma

from noisegate.desk.terms.price import Price
from noisegate.releases.cells.estimate import laplace_tail, reach, tail_factor

TIMES = (1.0, 1.96, 2.5, 5.0)


def of_mixture(t, spreads):
    """Pr[|S| > t] for S = √V Z: V has a given density."""
    return quad(lambda v: spreads(v) * 2 * ndtr(-t / sqrt(v)), 0, 60, limit=100)[0]


@pytest.mark.parametrize("t", TIMES)
def test_the_bound_is_the_mean_of_the_convex_majorant(t):
    turn = t * t / 3
    slope = t * exp(-1.5) / sqrt(2 * pi) * turn**-1.5
    at_turn = 2 * ndtr(-t / sqrt(turn))

    def majorant(v):
        return 2 * ndtr(-t / sqrt(v)) if v < turn else at_turn + slope * (v - turn)

    mean = quad(lambda v: exp(-v) * majorant(v), 0, turn)[0]
    mean += quad(lambda v: exp(-v) * majorant(v), turn, 80)[0]
    assert laplace_tail(t) == pytest.approx(min(1, mean), rel=1e-7)


@pytest.mark.parametrize("t", TIMES)
def test_no_sum_of_laplace_and_normal_noise_reaches_further(t):
    assert laplace_tail(t) >= exp(-sqrt(2) * t)
    assert laplace_tail(t) >= 2 * ndtr(-t)
    for count in (2, 3, 8):  # equal parts: V is a mean of exponential numbers
        assert laplace_tail(t) >= of_mixture(t, gamma(count, scale=1 / count).pdf)
    for part in (0.1, 0.3, 0.45):  # two unequal ones
        other = 1 - part

        def density(v, part=part, other=other):
            return (exp(-v / other) - exp(-v / part)) / (other - part)

        assert laplace_tail(t) >= of_mixture(t, density)
    for still in (0.2, 0.5):  # normal noise beside one of them
        beside = quad(
            lambda e, still=still: exp(-e) * 2 * ndtr(-t / sqrt(still + (1 - still) * e)), 0, 60
        )[0]
        assert laplace_tail(t) >= beside


def test_neither_tail_alone_would_do():
    assert exp(-sqrt(2) * tail_factor(0.01, gaussian=True)) > 0.01
    assert 2 * ndtr(-log(1 / 0.1) / sqrt(2)) > 0.1


def tail_of_normal(failure):
    return -tail_factor(failure, gaussian=True)


@pytest.mark.parametrize("failure", [0.3, 0.05, 1e-3, 1e-9, 1e-40])
def test_the_factor_is_the_least_that_the_bound_allows(failure):
    factor = tail_factor(failure, gaussian=False)
    assert laplace_tail(factor) <= failure < laplace_tail(factor - 1e-6)
    assert factor < 1.4 * max(-tail_of_normal(failure), log(1 / failure) / sqrt(2))


def geometric(epsilon, weight, far):
    """The law of weight · Z on whole numbers -far … far."""
    masses = np.zeros(2 * far + 1)
    steps = np.arange(-(far // weight), far // weight + 1)
    alpha = exp(-epsilon)
    masses[far + weight * steps] = (1 - alpha) / (1 + alpha) * alpha ** np.abs(steps)
    return masses


@pytest.mark.parametrize(
    ("epsilon", "times"), [(3.0, 1), (1.0, 1), (0.25, 1), (5.0, 6), (30.0, 1), (0.5, 1500)]
)
def test_no_sum_of_geometric_draws_exceeds_its_reach(epsilon, times):
    """By exact convolution of up to five draws, some with weights, at four confidences.

    Each draw is for a part of the price, such as a sixth.
    """
    price, far = Price(amount=Fraction(times * epsilon), gaussian=False), 300
    for weights, failure in product([(1,), (1, 1), (3, 1), (1,) * 5], [0.2, 0.05, 0.01, 1e-4]):
        law, variance = np.ones(1), 0.0
        for weight in weights:
            law = np.convolve(law, geometric(epsilon, weight, far))
            variance += weight**2 * 2 * exp(-epsilon) / (1 - exp(-epsilon)) ** 2
        (width,) = reach(np.array([variance]), failure, price, 1)
        places = np.abs(np.arange(law.size) - law.size // 2)
        assert law[places > width].sum() <= failure
        usual = 1.6 * (1 + tail_factor(failure, gaussian=False) * sqrt(variance))
        assert width < (usual if times == 1 else 1.01 * sqrt(variance / failure))


def test_gaussian_noise_is_as_wide_as_the_normal_law():
    price = Price(amount=Fraction(1, 2), gaussian=True)
    assert reach(np.array([4.0]), 0.05, price, 1) == pytest.approx(2 * 1.959964, rel=1e-6)
