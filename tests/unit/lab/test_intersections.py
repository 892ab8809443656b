"""The map of crossings: errors follow the law of the noise, whatever the map."""

from math import sqrt

import numpy as np
import pytest

from noisegate.lab.intersections import _expected_max, picture, run


def test_the_error_of_a_cell_is_that_of_its_noise():
    """Mean |noise| over 2,601 cells: its deviation is 1/ε/51, so 5 of them are passed once in 1e6.

    The largest of so many is within 12/ε of its mean but once in 1e5.
    """
    exact, drawn = run(["1", "0.1"], side=51)
    assert exact.sum() == 80_000
    for each in drawn:
        scale = 1 / float(each.epsilon)
        assert each.mean_error == pytest.approx(
            each.expected_mean, abs=5 * scale / sqrt(exact.size)
        )
        assert abs(each.max_error - each.expected_max) < 12 * scale
    assert len(picture(exact, drawn, blocks=17).to_dict()["hconcat"]) == 3


def test_the_expected_maximum_is_that_of_many_draws():
    """The mean of 400 maxima deviates by about 1.3/ε/20: 5 of that are passed once in 1e6."""
    chance = np.random.default_rng(1)
    draws = chance.geometric(1 - np.exp(-0.5), (400, 1000, 2))
    largest = np.abs(draws[..., 0] - draws[..., 1]).max(axis=1).mean()
    assert _expected_max(0.5, 1000) == pytest.approx(largest, abs=5 * 1.3 / 0.5 / 20)
