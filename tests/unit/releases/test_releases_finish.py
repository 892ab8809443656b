"""The free last step: no negative numbers, whole ones, totals kept, and errors no larger."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from noisegate.releases.cells.estimate import finish, halved, rounded, simplex, whole
from noisegate.releases.cells.workload import all_ranges, cells, prefixes

some = settings(
    max_examples=400 if os.environ.get("NOISEGATE_EXPLORE") else 50
)  # the same each run
TABLES = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=1, max_dims=3, max_side=9),
    elements=st.floats(-50, 100, allow_nan=False),
)


@pytest.mark.parametrize("workload", [cells, all_ranges])
@some
@given(table=TABLES)
def test_released_counts_are_whole_not_negative_and_keep_the_total(workload, table):
    found = finish(table, workload(table.shape), is_whole=True, signed=False)
    assert found.dtype == np.int64
    assert found.shape == table.shape
    assert found.min() >= 0
    assert found.sum() == max(0, round(table.sum()))


@some
@given(table=TABLES)
def test_what_could_be_is_left_as_it_is(table):
    counts = np.rint(np.abs(table))
    for workload in (cells, all_ranges):
        found = finish(counts, workload(counts.shape), is_whole=True, signed=False)
        assert found.tolist() == counts.tolist()
    assert finish(table, cells(table.shape), is_whole=False, signed=True).tolist() == table.tolist()


@some
@given(table=TABLES)
def test_rounding_moves_no_cell_by_one_and_no_run_of_cells_by_more(table):
    counts = np.abs(table)
    assert np.all(np.abs(whole(counts) - counts) < 1 + 1e-6)
    moved = np.cumsum(rounded(counts)) - np.cumsum(counts)
    assert np.all(np.abs(moved) <= 0.5 + 1e-6)


def test_equal_remainders_are_rounded_up_all_over_the_table():
    found = whole(np.full(1000, 0.3))
    assert found.sum() == 300
    assert all(25 <= part.sum() <= 35 for part in np.split(found, 10))


@some
@given(table=TABLES)
def test_halves_keep_their_sums_wherever_they_can(table):
    total = max(0.0, float(table.sum()))
    mended = halved(table, total)
    assert mended.min() >= 0
    assert mended.sum() == pytest.approx(total, abs=1e-6)
    counts = np.abs(table)
    assert halved(counts, float(counts.sum())) == pytest.approx(counts, abs=1e-6)


@pytest.mark.parametrize("workload", [cells((512,)), all_ranges((512,), most=2000), prefixes(512)])
@pytest.mark.parametrize("kind", ["half empty", "sparse", "dense", "small"])
def test_it_never_hurts(kind, workload):
    """Mean square error of the workload over 20 seeded draws: at most 5 % above the plain noise."""
    seeded = np.random.default_rng(4)
    exact = {
        "half empty": np.repeat([0.0, 200.0], 256),
        "sparse": np.where(np.arange(512) % 20 == 0, 300.0, 0.0),
        "dense": np.full(512, 100.0),
        "small": np.arange(512) % 3 * 1.0,
    }[kind]
    before = after = 0.0
    for _ in range(20):
        noisy = exact + np.rint(seeded.laplace(scale=10, size=512))
        mended = finish(noisy, workload, is_whole=True, signed=False)
        before += np.mean(workload.answers(noisy - exact) ** 2)
        after += np.mean(workload.answers(mended - exact) ** 2)
    assert after <= before * 1.05


def test_empty_regions_become_empty():
    seeded, exact = np.random.default_rng(4), np.zeros((64, 64))
    exact[8:12, 40:44] = 100
    noisy = exact + np.rint(seeded.laplace(scale=10, size=exact.shape))
    errors = [
        np.mean(np.abs(each - exact))
        for each in (
            noisy,
            simplex(noisy, noisy.sum()),
            finish(noisy, cells(exact.shape), is_whole=True, signed=False),
        )
    ]
    assert errors[2] < errors[1] < errors[0] / 4


def test_the_nearest_table_alone_would_hurt_ranges():
    """Why numbers are mended by halves first: here the nearest table errs three times as much."""
    seeded, ranges = np.random.default_rng(4), all_ranges((1024,), most=2000)
    exact = np.repeat([0.0, 200.0], 512)
    noisy = exact + seeded.laplace(scale=10, size=1024)
    single = simplex(noisy, noisy.sum())
    wide = finish(noisy, ranges, is_whole=True, signed=False)
    errors = [np.sqrt(np.mean(ranges.answers(each - exact) ** 2)) for each in (single, wide)]
    assert errors[0] > 2 * errors[1]
