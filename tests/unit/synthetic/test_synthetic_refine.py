"""Rows that are moved: closer to tables outside the model, and not after noise."""

from itertools import combinations
from math import prod

import numpy as np
import pytest

from noisegate.synthetic.model.model import Evidence, fit
from noisegate.synthetic.model.refine import refined

SIZES = (6, 5, 4, 8, 2)
PAIRS = list(combinations(range(5), 2))
COUNT = 4000


def table_of(rows, axes):
    shape = tuple(SIZES[a] for a in axes)
    cells = np.ravel_multi_index(tuple(rows[:, a].astype(np.int64) for a in axes), shape)
    return np.bincount(cells, minlength=prod(shape)).astype(float)


@pytest.fixture(scope="module")
def truth():
    """Rows whose columns all follow one hidden number."""
    chance = np.random.default_rng(1)
    hidden = chance.random(COUNT)
    columns = [(hidden * 0.6 + chance.random(COUNT) * 0.4) * size // 1 for size in SIZES]
    return np.stack(columns, axis=1).astype(np.uint32)


@pytest.fixture(scope="module")
def alone(truth):
    """Rows of a model that knows single columns only."""
    evidence = [Evidence((a,), table_of(truth, (a,)), 1.0) for a in range(5)]
    return fit(SIZES, evidence).rows(COUNT, seed=2)


def off(rows, truth):
    """The mean total variation between pairs of columns."""
    return np.mean(
        [np.abs(table_of(rows, p) - table_of(truth, p)).sum() / 2 / COUNT for p in PAIRS]
    )


def pairs_with_noise(truth, scale, seed=3):
    chance = np.random.default_rng(seed)
    tables = {axes: table_of(truth, axes) for axes in PAIRS}
    return [Evidence(a, t + chance.normal(0, scale, t.size), scale**2) for a, t in tables.items()]


def test_rows_come_close_to_tables_that_are_not_in_the_model(truth, alone):
    moved = refined(alone, SIZES, pairs_with_noise(truth, 0.5), seed=4, rounds=60)
    assert moved.shape == alone.shape
    assert moved.dtype == np.uint32
    assert all((moved[:, a] < size).all() for a, size in enumerate(SIZES))
    assert off(alone, truth) > 0.2
    assert off(moved, truth) < 0.01


def test_noise_is_not_followed(truth):
    """Rows that are right stay nearer to the truth than a tenth of what the noise would make."""
    evidence = pairs_with_noise(truth, 100.0)
    noise = np.mean(
        [np.abs(e.values - table_of(truth, e.axes)).sum() / 2 / COUNT for e in evidence]
    )
    moved = refined(truth, SIZES, evidence, seed=4)
    assert noise > 0.2
    assert off(moved, truth) < 0.1 * noise


def test_moderate_noise_leaves_rows_better_than_the_tables(truth, alone):
    evidence = pairs_with_noise(truth, 15.0)
    noise = np.mean(
        [np.abs(e.values - table_of(truth, e.axes)).sum() / 2 / COUNT for e in evidence]
    )
    moved = refined(alone, SIZES, evidence, seed=4, rounds=60)
    assert off(moved, truth) < noise < off(alone, truth)


def test_evidence_is_scaled_to_the_number_of_rows(truth, alone):
    evidence = [
        Evidence(e.axes, 10 * e.values, 100 * e.variance) for e in pairs_with_noise(truth, 0.5)
    ]
    same = refined(alone, SIZES, pairs_with_noise(truth, 0.5), seed=4, rounds=3)
    assert np.array_equal(refined(alone, SIZES, evidence, seed=4, rounds=3), same)


def test_sums_over_groups_are_met(truth, alone):
    labels = np.where(np.arange(30) % 7 < 3, np.arange(30) % 2, -1).astype(np.int32)
    have = table_of(truth, (0, 1))
    sums = np.array([have[labels == n].sum() for n in range(2)])
    evidence = [Evidence((0, 1), sums, 1.0, labels), Evidence((2,), table_of(truth, (2,)), 1.0)]
    moved = table_of(refined(alone, SIZES, evidence, seed=4), (0, 1))
    assert np.abs([moved[labels == n].sum() for n in range(2)] - sums).max() <= 10
    assert np.abs([table_of(alone, (0, 1))[labels == n].sum() for n in range(2)] - sums).max() > 50


def test_few_or_no_rows(truth):
    evidence = pairs_with_noise(truth, 1.0)
    assert refined(truth[:0], SIZES, evidence, seed=1).shape == (0, 5)
    assert refined(truth[:3], SIZES, evidence, seed=1).shape == (3, 5)
