"""Half-widths: they cover, and one less would not. The twins are plain sums and erfc in floats."""

from fractions import Fraction
from math import erfc, exp, fsum, sqrt

import numpy as np
import pytest

from noisegate.accounting.tails import upper_tail
from noisegate.exact import upper
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.laplace import Laplace
from noisegate.mechanisms.additive.rounded_gaussian import RoundedGaussian
from noisegate.mechanisms.additive.truncated_geometric import TruncatedGeometric
from noisegate.privacy.distance import L1

CONFIDENCES = [Fraction(1, 2), Fraction(9, 10), Fraction(19, 20), Fraction(999, 1000), "0.999999"]
SCALES = [Fraction(1, 3), Fraction(1), Fraction(10), Fraction(12345, 7)]


def outside_geometric(scale, t):
    alpha = exp(-1 / float(scale))
    return 2 * alpha ** (t + 1) / (1 + alpha)


def outside_discrete_gaussian(variance, t):
    reach = int(45 * sqrt(variance)) + t + 2
    weights = np.exp(-(np.arange(reach + 1, dtype=float) ** 2) / (2 * float(variance)))
    total = fsum(weights) + fsum(weights[1:])
    return 2 * fsum(weights[t + 1 :]) / total


def check_smallest(mechanism, confidence, outside):
    t = mechanism.interval(confidence)
    failure = 1 - float(Fraction(confidence))
    assert outside(t) <= failure * (1 + 1e-9)
    assert t == 0 or outside(t - 1) > failure * (1 - 1e-9)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("scale", SCALES)
def test_the_geometric_interval_is_the_smallest_that_covers(scale, confidence):
    check_smallest(Geometric(scale=scale), confidence, lambda t: outside_geometric(scale, t))


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("scale", SCALES)
def test_the_laplace_interval_is_the_smallest_that_covers(scale, confidence):
    check_smallest(Laplace(scale=scale), confidence, lambda t: exp(-(t + 0.5) / float(scale)))


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("sigma", SCALES)
def test_the_rounded_gaussian_interval_is_the_smallest_that_covers(sigma, confidence):
    check_smallest(
        RoundedGaussian(sigma=sigma),
        confidence,
        lambda t: erfc((t + 0.5) / (float(sigma) * sqrt(2))),
    )


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("variance", [Fraction(1, 9), 1, 100, 64**2, 64**2 + 1, 10**6])
def test_the_discrete_gaussian_interval_is_the_smallest_that_covers(variance, confidence):
    check_smallest(
        DiscreteGaussian(variance=Fraction(variance)),
        confidence,
        lambda t: outside_discrete_gaussian(variance, t),
    )


def test_wide_gaussians_approach_the_normal_quantile():
    assert DiscreteGaussian(variance=Fraction(10**20)).interval("0.95") == pytest.approx(
        1.959963984540054e10, rel=1e-9
    )


def test_intervals_reach_confidences_that_floats_cannot_hold():
    nearly = 1 - Fraction(1, 10**30)
    assert Geometric(scale=1).interval(nearly) == 69
    assert 100 < DiscreteGaussian(variance=100).interval(nearly) < 120
    assert DiscreteGaussian(variance=10**6).interval(nearly) == pytest.approx(11523.9, abs=2)


@pytest.mark.parametrize("confidence", ["1/2", "0.8", "0.9", "0.95", "0.99", "0.99999"])
@pytest.mark.parametrize("top", [1, 2, 3, 7, 40])
def test_the_truncated_interval_is_the_smallest_for_the_worst_count(top, confidence):
    mechanism = TruncatedGeometric(scale=Fraction(2), top=top)

    def worst(t):
        return max(
            fsum(float(mechanism.mass(m, n)[0]) for m in range(top + 1) if abs(m - n) > t)
            for n in range(top + 1)
        )

    check_smallest(mechanism, confidence, worst)


def test_truncated_masses_agree_with_the_published_ones_and_sum_to_one():
    mechanism = TruncatedGeometric.for_epsilon("0.7", top=10, sensitivity=L1(1))
    assert float(mechanism.mass(0, 3)[0]) == pytest.approx(0.0818239, abs=5e-8)
    assert float(mechanism.mass(10, 3)[0]) == pytest.approx(0.0049757, abs=5e-8)
    for n in range(11):
        low = sum(mechanism.mass(m, n)[0] for m in range(11))
        high = sum(mechanism.mass(m, n)[1] for m in range(11))
        assert low <= 1 <= high
        assert high - low < Fraction(1, 10**25)


def test_the_geometric_tail_agrees_with_the_published_one():
    assert float(upper(lambda: upper_tail(Fraction(1), 5))) == pytest.approx(0.004925834, abs=5e-10)


@pytest.mark.parametrize(
    "mechanism",
    [
        Laplace(scale=Fraction(20)),
        Geometric(scale=Fraction(20)),
        TruncatedGeometric(scale=Fraction(20), top=1000),
        DiscreteGaussian(variance=Fraction(400)),
        DiscreteGaussian(variance=Fraction(10**6)),
        RoundedGaussian(sigma=Fraction(20)),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_draws_fall_inside_the_interval_as_often_as_claimed(mechanism):
    """Six sigma on either side: a false alarm once in 10⁹ runs; the twins above fix the rest."""
    t, trials = mechanism.interval("0.9"), 40_000
    covered = np.abs(mechanism.sample(np.full(trials, 500)) - 500) <= t
    spread = 6.2 * sqrt(0.09 * trials)
    one_step = 0.01 * trials  # the law on whole numbers may cover up to one step more
    assert 0.9 * trials - spread <= covered.sum() <= 0.9 * trials + spread + one_step
