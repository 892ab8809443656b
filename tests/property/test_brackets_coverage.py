"""Brackets of quantiles on shapes of data: coverage, width, and what a narrower copy would do.

Each shape is drawn 200 times. If the true chance is what is claimed, 0.95, fewer than 172 hits have
a chance below 3e-7, so that all shapes together raise a false alarm in fewer than 1 in 10^4 runs.
"""

from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest

from noisegate.mechanisms.quantiles.brackets import Brackets

POINTS = 1 << 24
USES, FEWEST = 200, 172


HALF = Fraction(1, 2)


def shapes(count):
    chance = np.random.default_rng(count)  # public test data, not noise
    half, some = count // 2, chance.random(count)
    normal = chance.normal(0, 1, count)
    side = np.where(np.arange(count) < half, -1, 1)
    return {
        "uniform": some * POINTS,
        "lognormal": np.exp(normal) * 2**17,
        "whole numbers": chance.binomial(100, 0.4, count) * (POINTS // 128),
        "a gap at the median": POINTS / 2 + side * 0.3 * POINTS + normal * POINTS / 100,
        "half at zero": np.where(some < 0.55, 0, some * POINTS),
        "narrow": POINTS / 3 + normal * 50,
        "two atoms": np.where(side < 0, 10, POINTS - 10),
        "heavy tail": 1000 / some,
        "powers of two": 2.0 ** chance.integers(0, 24, count),
    }


def exact_quantiles(values, tau):
    """QUANTILE_CONT and QUANTILE_DISC."""
    at = tau * (values.size - 1)
    low, high = int(values[floor(at)]), int(values[ceil(at)])
    disc = int(values[max(ceil(tau * values.size), 1) - 1])
    return float(low + (high - low) * (at - floor(at))), float(disc)


def drawn(shape, count, epsilon, tau, uses=USES):
    values = np.sort(np.clip(shapes(count)[shape], 0, POINTS - 1).astype(np.int64))
    mechanism = Brackets.for_epsilon(epsilon, taus=(tau,), low=0, high=POINTS - 1)
    return mechanism, mechanism.uses(values, uses), exact_quantiles(values, tau)


@pytest.mark.long
@pytest.mark.parametrize(("count", "epsilon", "tau"), [
    (100, "1", HALF), (2000, "1", HALF), (2000, "0.1", HALF), (1, "1", HALF),
    (2000, "1", Fraction(9, 10)),
])  # fmt: skip
@pytest.mark.parametrize("shape", shapes(10))
def test_brackets_cover_on_every_shape(shape, count, epsilon, tau):
    mechanism, found, truths = drawn(shape, count, epsilon, tau)
    for confidence in ("0.95", "0.99"):
        low, high = (each[:, 0] for each in mechanism.ends(found, confidence))
        for truth in truths:
            assert np.sum((low <= truth) & (truth <= high)) >= FEWEST


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "uses"), [("uniform", 4_000), ("lognormal", 1_000), ("heavy tail", 1_000)]
)
def test_brackets_are_within_a_few_times_the_error_where_values_are_spread(shape, uses):
    """The 95 % error is a whole number of grid points; 4 times, 2.7 times and twice are usual."""
    mechanism, found, truths = drawn(shape, 20_000, "1", Fraction(1, 2), uses=uses)
    low, high = (each[:, 0] for each in mechanism.ends(found, "0.95"))
    errors = np.abs(mechanism.centres(found)[:, 0] - truths[0])
    assert np.median(high - low) / 2 < 5 * ceil(np.quantile(errors, 0.95))


def test_a_copy_of_half_the_width_misses_where_values_have_a_gap():
    mechanism, found, truths = drawn("a gap at the median", 2000, "1", Fraction(1, 2))
    low, high = (each[:, 0] for each in mechanism.ends(found, "0.95"))
    middle = mechanism.centres(found)[:, 0]
    half = np.maximum(middle - low, high - middle) // 2
    assert np.sum(np.abs(middle - truths[1]) <= half) < FEWEST
