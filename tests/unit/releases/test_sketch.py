"""Sketches: hashed sums of which a cell moves one in each row, and what is made of them."""

from dataclasses import replace
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from cells_ask import CellsAsk
from scipy import stats

from noisegate.errors import SpecError
from noisegate.releases.cells.workload import all_ranges, ranges
from noisegate.releases.cells.workload import cells as every_cell
from noisegate.releases.forms.numbers import model_factor
from noisegate.releases.recipes import recipe
from noisegate.releases.recipes.sketch import Sensing, Sketch, hashes, pursuit
from noisegate.transforms.strategy import Strategy
from refusals import about

HUGE = Fraction(1000)  # an ε at which noise is 0 but for odds below e^-100


class Watched(CellsAsk):
    """Remembers the blocks that were asked about."""

    def sums(self, blocks, shares):
        self.blocks, self.shares = blocks, shares
        return super().sums(blocks, shares)


def few_large(size, count=10):
    """Some large cells far apart, 0 elsewhere."""
    out = np.zeros(size, np.int64)
    out[np.arange(count) * (size // count) + 3] = 1000 + 37 * np.arange(count)
    return out


def built(made, ask):
    some = ranges(ask.shape, np.zeros((1, len(ask.shape))), np.array(ask.shape)[None] - 1)
    made.require(ask.shape, some)
    assert made.predict(ask, some).rms is None
    return made.build(ask, some).cells


@pytest.mark.parametrize("made", [Sketch(), Sketch(signed=False), Sensing(), Sketch(depth=1)])
def test_a_cell_moves_each_row_by_one_and_the_shares_are_the_whole(made):
    ask = Watched(few_large(500), Fraction(1))
    built(made, ask)
    assert Strategy(500, tuple(ask.blocks)).l1s == (1,) * made.depth
    assert sum(ask.shares) == 1


def test_hashes_are_even_and_follow_from_the_salt_alone():
    """Chi-square tests of fixed hashes: no chance, the seeds are in the question."""
    made = hashes(100_000, 4, 100, 7, signed=True)
    again = hashes(100_000, 4, 100, 7, signed=True)
    other = hashes(100_000, 4, 100, 8, signed=True)
    assert np.array_equal(made.places, again.places)
    assert (made.places != other.places).mean() > 0.98
    for row in range(4):
        counts = np.bincount(made.places[row], minlength=100)
        assert stats.chisquare(counts).pvalue > 1e-6
        assert abs(made.signs[row].mean()) < 5 / sqrt(100_000)
        pairs = made.places[row][:-1] * 100 + made.places[row][1:]  # neighbours are unrelated
        assert stats.chisquare(np.bincount(pairs, minlength=10_000)).pvalue > 1e-6
    both = made.places[0].astype(int) * 100 + made.places[1]  # and so are rows
    assert stats.chisquare(np.bincount(both, minlength=10_000)).pvalue > 1e-6


def test_without_noise_a_wide_sketch_and_a_pursuit_give_back_few_cells():
    cells = few_large(4096)
    sketched = built(Sketch(width=4096, depth=7), CellsAsk(cells, HUGE))
    assert np.array_equal(np.round(sketched), cells)
    sensed = built(Sensing(), CellsAsk(cells, HUGE))
    assert np.array_equal(np.round(sensed), cells)
    flat = built(Sketch(signed=False, width=2048, depth=9), CellsAsk(cells, HUGE))
    held = np.flatnonzero(cells)
    assert np.abs(flat[held] / cells[held] - 1).max() < 0.05


def test_tables_of_several_axes_keep_their_shape():
    cells = few_large(64 * 32).reshape(64, 32)
    assert np.array_equal(np.round(built(Sensing(), CellsAsk(cells, HUGE))), cells)


def test_a_pursuit_finds_cells_that_share_sums():
    made = hashes(1000, 7, 40, 3, signed=True)
    cells = few_large(1000, 20)
    held = np.flatnonzero(cells)
    found, values = pursuit(made, made.sums(held, cells[held].astype(float)))
    assert found.tolist() == held.tolist()
    assert np.allclose(values, cells[held])


def test_the_noise_of_a_median_is_as_predicted():
    """Over 4096 empty cells at depth 5: a median of 5 numbers errs a little less than for large
    depths; the spread of the mean square is below 5 %."""
    ask = CellsAsk(np.zeros(4096, np.int64), Fraction(1))
    found = built(Sketch(depth=5, width=4096), ask)
    stated = Sketch(depth=5, width=4096).predict(ask, every_cell((4096,))).noise
    each = sqrt(2 * np.exp(-0.2) / (1 - np.exp(-0.2)) ** 2)
    assert stated == pytest.approx(each * 1.2533 / sqrt(5), rel=0.01)
    assert 0.6 * stated < found.std() < 1.1 * stated


@pytest.mark.parametrize("signed", [False, True])
def test_cells_that_share_sums_add_no_more_than_is_said(signed):
    """Rows in all of 1024 cells, in 64 of them (half as many as sums), or in 8; none is random."""
    made, asked = Sketch(signed=signed), every_cell((1024,))
    stated, found = made.predict(CellsAsk(np.zeros(1024, np.int64), HUGE), asked), []
    assert stated.share == 1 / 128
    for step in (1, 16, 128):
        cells = np.zeros(1024, np.int64)
        cells[::step] = 1000 * step
        away = built(made, CellsAsk(cells, HUGE)) - cells
        found.append(np.sqrt(np.mean(away**2)) / cells.sum())
    assert stated.share / 2 < max(found) < stated.share


def test_with_noise_a_pursuit_is_off_by_no_more_than_it_says():
    """Ten cells above 1000 at ε = 1: noise of a fitted cell has standard deviation 7 √2 / √7."""
    cells = few_large(1 << 14)
    found = built(Sensing(), CellsAsk(cells, Fraction(1)))
    held = np.flatnonzero(cells)
    assert np.abs(found[held] - cells[held]).max() < 12 * 7 * sqrt(2) / sqrt(7)
    assert np.count_nonzero(found) < 40


@pytest.mark.parametrize(
    "made",
    [
        Sketch(depth=0), Sketch(depth=65), Sketch(width=0), Sketch(width=101), Sketch(salt=-1),
        Sketch(salt="x"), Sensing(depth=1.5), Sensing(width=1000),
    ],
)  # fmt: skip
def test_what_is_no_sketch_is_refused(made):
    with pytest.raises(SpecError):
        made.require((100,), every_cell((100,)))


def test_sensing_refuses_tables_beyond_its_reach_and_recipes_know_both():
    small = every_cell((4,))
    with pytest.raises(SpecError, check=about("cells"), match="method='sketch'"):
        Sensing(width=10).require((1 << 20, 2), replace(small))
    assert recipe("sketch", depth=3) == Sketch(depth=3)
    assert recipe("sensing", salt=4) == Sensing(salt=4)


def test_what_a_pursuit_misses_is_within_its_margin_for_every_salt():
    """Of a table that is full everywhere. Noise is little beside what hashes do, which is fixed.

    Over 50 runs the least share was 0.9992, give or take 0.00003, and at half of the margin 0.58,
    give or take 0.006: the bounds are more than 30 of those away.
    """
    table = (8000 / (1 + np.arange(256) / 16)).astype(np.int64)
    asked = all_ranges(table.shape)
    exact, shares = asked.answers(table), []
    for salt in range(20):
        found = Sensing(salt=salt).build(CellsAsk(table, Fraction(1)), asked)
        sums, spread, seen = found.guess(asked.lows, asked.highs)
        away = np.abs(sums - exact) / (spread * model_factor(0.05, seen))
        shares.append([np.mean(away <= part) for part in (1, 0.5)])
    whole, half = np.min(shares, axis=0)
    assert whole > 0.95
    assert half < 0.8


def test_a_pursuit_that_misses_nothing_is_no_wider_for_it():
    """A median of 7 draws of scale 7 deviates by 3.395. One build says 3.47, give or take 0.22.

    Of four, a quarter off is 7 standard errors; what is the same for all would add a half.
    """
    sparse, one = few_large(400), np.ones((1, 1), np.int64)
    built = [Sensing().build(CellsAsk(sparse, Fraction(1)), every_cell((400,))) for _ in range(4)]
    spread = np.mean([each.guess(one, one).spread for each in built])
    assert 0.75 < spread / 3.395 < 1.25
