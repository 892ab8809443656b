"""Choices that read cells: the laws of the DAWA partition and of the Fourier cut, exactly.

Each audit is also run on a deliberately broken copy, which it must catch.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp
from types import SimpleNamespace

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from noisegate.errors import SpecError
from noisegate.exact import real
from noisegate.mechanisms import base
from noisegate.mechanisms.partitions import dawa_partition, fourier_cut
from noisegate.mechanisms.partitions.dawa_partition import (
    DawaPartition,
    cheapest,
    evenness,
    shifted,
    walk,
)
from noisegate.mechanisms.partitions.fourier_cut import FourierCut
from noisegate.privacy.distance import L1
from refusals import about

# --- the partition --------------------------------------------------------------------------------


def partitions(cells):
    """All lists of starts that are made of allowed stretches."""
    if cells == 0:
        return [[]]
    found = []
    for level in range(cells.bit_length()):
        start = cells - (1 << level)
        if start >= 0 and start % max(1, (1 << level) // 4) == 0:
            found += [[*before, start] for before in partitions(start)]
    return found


def by_hand(costs, cells):
    """The cheapest partition; of equals, the one whose last stretches are longer."""

    def total(starts):
        ends = [*starts[1:], cells]
        cost = 0
        for start, end in zip(starts, ends, strict=True):
            level = (end - start).bit_length() - 1
            quarter = max(1, (1 << level) // 4)
            cost += int(costs[level][(start % (1 << level)) // quarter][start >> level])
        return cost, starts[::-1]

    return min(partitions(cells), key=total)


@given(st.integers(1, 11), st.data())
def test_dynamic_programming_finds_the_first_of_the_cheapest_partitions(cells, data):
    values = np.zeros(cells, np.int64)
    costs = [
        [np.array(data.draw(st.lists(st.integers(-2, 2), min_size=len(p), max_size=len(p))), np.int64)
         for p in shifted(values, level)]
        for level in range(cells.bit_length())
    ]  # fmt: skip
    assert cheapest(costs, cells).tolist() == by_hand(costs, cells)


@given(st.integers(0, 4), st.data())
def test_the_cost_of_a_stretch_is_its_distance_to_the_median_and_moves_by_one_at_most(level, data):
    size = 1 << level
    row = data.draw(st.lists(st.integers(-50, 50), min_size=size, max_size=size))
    least = min(sum(abs(x - m) for x in row) for m in row)
    assert evenness(np.array([row])).tolist() == [least]
    for place in range(size):
        moved = [x + (j == place) for j, x in enumerate(row)]
        assert abs(int(evenness(np.array([moved]))[0]) - least) <= 1


def three_cells(x, penalty, scale, *, single_noise=True, most=9):
    """The law on three cells: all noises up to ``most``, and how much of the law that leaves out."""
    alpha = exp(-1 / scale)
    mass = (1 - alpha) * alpha ** np.arange(most)
    names = 5 if single_noise else 2
    grids = np.meshgrid(*[np.arange(most)] * names, indexing="ij", sparse=True)
    weight = np.ones([1] * names)
    for grid in grids:
        weight = weight * mass[grid]
    first, last = grids[0], grids[1]
    g = grids[2:] if single_noise else [0, 0, 0]
    pairs = abs(x[0] - x[1]), abs(x[1] - x[2])
    single = 3 * penalty - g[0] - g[1] - g[2]
    front = pairs[0] + 2 * penalty - first - g[2]
    back = pairs[1] + 2 * penalty - g[0] - last
    is_back = (back <= front) & (back <= single)
    is_front = ~is_back & (front <= single)
    law = [float(weight[np.broadcast_to(chosen, weight.shape)].sum())
           for chosen in (is_back, is_front, ~is_back & ~is_front)]  # fmt: skip
    return np.array(law), 1 - weight.sum()


def worst_partition(scale, penalty, **broken):
    """The largest log-ratio between neighbours that is proven."""
    worst = 0.0
    for x in product(range(3), repeat=3):
        here, lost = three_cells(x, penalty, scale, **broken)
        for place in range(3):
            moved = tuple(v + (j == place) for j, v in enumerate(x))
            there = three_cells(moved, penalty, scale, **broken)[0]
            for p, q in ((here, there), (there, here)):
                worst = max(worst, float(np.log(np.maximum(p, 1e-300) / (q + lost)).max()))
    return worst


def test_the_small_law_is_that_of_the_program():
    """Every noise up to 3 for three cells, walked through the mechanism itself."""
    mechanism, x = DawaPartition(scale=1, penalty=1), np.array([2, 0, 1])
    values = range(3)
    for noises in product(values, repeat=5):
        single, pairs = noises[2:], noises[:2]
        script = iter([np.array(single), np.array(pairs[:1]), np.array(pairs[1:])])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dawa_partition, "geometric", lambda *_, script=script, **__: next(script))
            found = mechanism.sample(x).tolist()
        costs = {
            (0, 1): 1 + 2 - pairs[1] - single[0],
            (0, 2): 2 + 2 - pairs[0] - single[2],
            (0, 1, 2): 3 - sum(single),
        }
        best = min(costs.values())
        assert tuple(found) == next(k for k, cost in costs.items() if cost == best)


@pytest.mark.parametrize("penalty", [0, 1, 3])
def test_a_partition_of_three_cells_loses_at_most_epsilon_and_nearly_that(penalty):
    event = DawaPartition.for_epsilon(4, penalty=penalty).event(L1(1))
    assert event.epsilon == 4
    assert 3.3 < worst_partition(1 / 2, penalty) <= 4


def test_a_partition_with_a_fifth_less_noise_is_caught():
    assert worst_partition(2 / 5, 1) > 4.4


def test_a_partition_without_noise_on_single_cells_is_caught():
    assert worst_partition(1 / 2, 1, single_noise=False) > 8


def test_a_unit_with_many_rows_pays_for_each_step():
    assert DawaPartition(scale=4, penalty=0).event(L1(6)).epsilon == 3


def test_even_stretches_are_found_without_noise():
    cells = np.repeat([5, 0, 9], [12, 20, 32])
    found = DawaPartition(scale=Fraction(1, 500), penalty=2).sample(cells)
    assert {12, 32} <= set(found.tolist())
    assert found.size <= 6


@pytest.mark.parametrize("shape", [(2, 2), (8, 8), (16, 4), (4, 4, 4), (3, 5), (1, 7)])
def test_a_walk_visits_every_place_once_and_squares_step_by_step(shape):
    order = walk(shape)
    assert sorted(order.tolist()) == list(range(int(np.prod(shape))))
    if len(set(shape)) == 1:
        places = np.stack(np.unravel_index(order, shape), axis=1)
        assert np.abs(np.diff(places, axis=0)).sum(axis=1).tolist() == [1] * (order.size - 1)


def test_extreme_cells_do_not_wrap():
    cells = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).min] * 8)
    assert DawaPartition(scale=1, penalty=1).sample(cells)[0] == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: DawaPartition(scale=0, penalty=1),
        lambda: DawaPartition(scale=1, penalty=-1),
        lambda: DawaPartition(scale=1, penalty=0.5),
        lambda: DawaPartition(scale=1, penalty=1, sides=(3,)),
        lambda: DawaPartition(scale=1, penalty=1, sides=("1/2", 3)),
        lambda: DawaPartition.for_epsilon(0, penalty=1),
        lambda: DawaPartition(scale=1, penalty=1).sample(np.zeros(0, np.int64)),
        lambda: DawaPartition(scale=1, penalty=1).sample(np.zeros(3)),
        lambda: FourierCut(factor=0, cuts=(1,), noises=(0,), weights=(1,)),
        lambda: FourierCut(factor=1, cuts=(2, 1), noises=(0, 0), weights=(1,)),
        lambda: FourierCut(factor=1, cuts=(0, 1), noises=(0, 0), weights=(1,)),
        lambda: FourierCut(factor=1, cuts=(1,), noises=(0, 1), weights=(1,)),
        lambda: FourierCut(factor=1, cuts=(1,), noises=(0,), weights=(0,)),
        lambda: FourierCut(factor=1, cuts=(1,), noises=(0,), weights=("1/2",)),
        lambda: FourierCut(factor=1, cuts=[1], noises=(0,), weights=(1,)),
        lambda: FourierCut(factor=1, cuts=(1,), noises=(0,), weights=(1,), grain=0),
        lambda: FourierCut(factor=1, cuts=(1,), noises=(0,), weights=(1,), grain="1/2"),
        lambda: FourierCut(factor=1, cuts=(1,), noises=(0,), weights=(1,), grain=1 << 91),
        lambda: FourierCut.for_epsilon(1, cuts=(1,), noises=(0,), weights=()),
        lambda: FourierCut.for_epsilon(1, cuts=(1,), noises=(0,), weights=(1,), grain=0),
        lambda: FourierCut.for_epsilon(1, cuts=(1,), noises=(0,), weights=(1,), grain=float("inf")),
        lambda: CUT.sample(np.zeros(1, np.int64)),
        lambda: CUT.sample(np.zeros(99, np.int64)),
    ],
)
def test_a_bad_parameter_is_refused_with_a_fix(make):
    with pytest.raises(SpecError) as refusal:
        make()
    assert refusal.value.fix


# --- the cut --------------------------------------------------------------------------------------

CUT = FourierCut.for_epsilon(1, cuts=(1, 2, 3, 5), noises=(0, 40, 90, 200), weights=(50, 40, 30, 9))


def exact_tails(cut, cells):
    """By definition, in ball arithmetic."""
    size, found = len(cells), []
    squares = []
    for j in range(size // 2 + 1):
        angles = [2 * j * i * arb.pi() / size for i in range(size)]
        parts = [sum((int(x) * f(a) for x, a in zip(cells, angles, strict=True)), arb(0))
                 for f in (arb.cos, arb.sin)]  # fmt: skip
        weight = int(cut.weights[j.bit_length() - 1]) if j else 0
        twice = 1 if j == 0 or 2 * j == size else 2
        squares.append(twice * weight**2 * sum((part * part for part in parts), arb(0)))
    for at in cut.cuts:
        total = sum(squares[int(at) :], arb(0))
        found.append(abs(float(total.mid())) ** 0.5 / int(cut.grain))
    return found


@pytest.mark.parametrize("size", [2, 3, 8, 13, 16, 19])
def test_what_a_cut_drops_is_measured_right(size):
    chance = np.random.default_rng(size)
    for largest in (3, 10**6):
        cells = chance.integers(0, largest, size)
        found, expected = CUT.tails(cells), exact_tails(CUT, cells)
        assert np.all(np.abs(found + 0.5 - expected) <= 0.5 + 2e-3)


@pytest.mark.parametrize("size", [4, 7, 8, 15, 16])
def test_one_step_of_a_cell_moves_no_tail_by_more_than_the_reach(size):
    chance, most = np.random.default_rng(size), 0
    for largest in (1, 20, 10**7):
        for _ in range(40):
            cells = chance.integers(0, largest, size)
            for place in range(size):
                moved = cells + (np.arange(size) == place)
                most = max(most, int(np.abs(CUT.tails(moved) - CUT.tails(cells)).max()))
    assert most <= CUT.reach(L1(1))


@pytest.mark.parametrize("size", [2, 7, 16, 45, 53])
@pytest.mark.parametrize("grain", [1, 3 << 40])
def test_where_cells_are_clamped_lengths_are_off_by_less_than_half_a_grain(size, grain):
    """Beyond the clamp it goes on as if there were no more: the error is that of the clamp."""
    cut = FourierCut(factor=1, cuts=(1, 3), noises=(0, 9), weights=(1 << 28,) * 5, grain=grain)
    chance, limit = np.random.default_rng(size), cut.limit(size)
    before, ctx.prec = ctx.prec, 128
    for cells in (
        np.arange(size) % 2 * limit,
        chance.integers(-limit, limit, size, endpoint=True),
        chance.choice([-limit, limit], size),
    ):
        expected = np.array(exact_tails(cut, cells))
        assert np.all(np.abs(cut.tails(cells) + 0.5 - expected) < 1)
    ctx.prec = before
    assert cut.tails(np.full(size, limit // 2) + np.arange(size) % 2 * (1 << 60)).tolist() == (
        cut.tails(np.where(np.arange(size) % 2, limit, limit // 2)).tolist()
    )


@pytest.mark.parametrize("size", [2053, 4099, 65537])
def test_a_chirp_makes_no_number_larger_by_more_than_four(size):
    """NumPy takes chirps for these primes, in transforms of a length that it chooses."""
    places = np.arange(1 - size, size).astype(np.float64)
    chirp = np.exp(1j * np.pi * (places**2 % (2 * size)) / size)
    for length in (2 * size, 1 << (2 * size).bit_length()):
        assert np.abs(np.fft.fft(chirp, length)).max() < 4 * size**0.5


def test_the_reach_is_reached_where_octaves_are_full():
    """A lone cell has the same length at every frequency: 15 cells have the octaves 1, 2-3, 4-7."""
    cut = FourierCut.for_epsilon(1, cuts=(1,), noises=(0,), weights=(5000, 4000, 3000))
    one = np.zeros(15, np.int64)
    one[3] = 1
    assert 0 <= cut.reach(L1(1)) - int(cut.tails(one)[0]) <= 5


def worst_ratio(cut, pairs):
    """The largest log-ratio between the exact laws of neighbours."""
    before, ctx.prec = ctx.prec, 128
    worst = 0.0
    for here, there in pairs:
        laws = []
        for cells in (here, there):
            costs = cut.tails(cells) + np.array([int(n) for n in cut.noises])
            weights = [(-real(cut.factor * int(cost))).exp() for cost in costs]
            laws.append([weight / sum(weights, arb(0)) for weight in weights])
        ratios = [abs(float((a / b).log())) for a, b in zip(*laws, strict=True)]
        worst = max(worst, *ratios)
    ctx.prec = before
    return worst


def steps(step=1):
    """Random series of 15 cells, and each with one cell moved."""
    chance = np.random.default_rng(3)
    for largest in (1, 3, 30):
        for _ in range(25):
            cells = chance.integers(0, largest, 15) * step
            yield from ((cells, cells + step * (np.arange(15) == place)) for place in range(15))


SHARP = {"cuts": (1, 8), "noises": (0, 20_000), "weights": (150, 150, 150)}


def test_a_cut_loses_at_most_epsilon():
    cut = FourierCut.for_epsilon(1, **SHARP)
    assert cut.event(L1(1)).epsilon == 1
    assert cut.event(L1(3)).epsilon == 3 - 2 * Fraction(4, 801)  # it is rounded once, not thrice
    assert 0.7 < worst_ratio(cut, steps()) <= 0.5**0.5  # only one of these tails moves at all


def both_ways(size=31, first=8):
    """Slow waves that grow with a row in the first cell, and fast ones that shrink."""
    places = np.arange(size)
    slow, fast = (
        sum(np.cos(2 * np.pi * wave * places / size) for wave in waves)
        for waves in (range(1, first), range(first, size // 2 + 1))
    )
    cells = np.rint(10_000 * slow - 40 * fast).astype(np.int64)
    return cells, cells + (places == 0)


def test_two_tails_move_apart_by_all_that_is_claimed_and_by_less_than_twice_the_reach():
    cut = FourierCut.for_epsilon(1, cuts=(1, 8), noises=(0, 10**6), weights=(30_000,) * 4)
    pair = both_ways()
    moved = np.diff(cut.tails(pair[1]) - cut.tails(pair[0]))[0]
    assert 0.99 * cut.apart(L1(1)) < -moved <= cut.apart(L1(1)) < 1.42 * cut.reach(L1(1))
    even = int(np.diff(-cut.tails(pair[0]))[0])  # both cuts cost the same, but for the row
    rare = replace(cut, noises=(Fraction(0), Fraction(even + 5 * int(1 / cut.factor))))
    assert 0.97 < worst_ratio(rare, [pair]) <= 1


def test_a_cut_that_forgets_how_many_frequencies_an_octave_has_is_caught(monkeypatch):
    monkeypatch.setattr(FourierCut, "apart", lambda cut, _: 2 * max(cut.weights))
    assert worst_ratio(FourierCut.for_epsilon(1, **SHARP), steps()) > 1.2


CAP = 5 << 17  # five rows of a unit, in 2^-17ths
CAPPED = SHARP | {"weights": (150 << 20,) * 3, "grain": CAP << 20}


def test_a_coarse_cut_of_units_that_move_far_loses_at_most_epsilon():
    cut = FourierCut.for_epsilon(1, moved=L1(CAP), **CAPPED)
    assert cut.event(L1(CAP)).epsilon == 1
    assert 0.7 < worst_ratio(cut, steps(CAP)) <= 0.5**0.5
    spread = [(np.arange(15) * CAP, np.arange(15) * CAP + np.arange(15) % 5 * (CAP // 30))]
    assert worst_ratio(cut, spread) <= 0.5**0.5


def test_a_cut_for_fewer_rows_than_a_unit_has_is_caught():
    cut = FourierCut.for_epsilon(1, moved=L1(CAP // 3), **CAPPED)
    assert cut.event(L1(CAP)).epsilon > 2.9
    assert worst_ratio(cut, steps(CAP)) > 1.4


def at_a_boundary():
    """Two cells, and one step that takes their difference to a whole number of grains."""
    for whole in range(1, 40):
        yield np.array([whole * 1000, 1]), np.array([whole * 1000, 0])


BOUNDARY = {"cuts": (1, 3), "noises": (0, 9), "weights": (1,), "grain": 1000}


def test_one_step_over_a_boundary_is_paid_for(monkeypatch):
    cut = FourierCut.for_epsilon(1, **BOUNDARY)
    assert {int((cut.tails(b) - cut.tails(a))[0]) for a, b in at_a_boundary()} == {1}
    assert 0.2 < worst_ratio(cut, at_a_boundary()) <= 0.5
    fair = FourierCut.apart
    monkeypatch.setattr(FourierCut, "apart", lambda *given: fair(*given) - 4)
    assert worst_ratio(FourierCut.for_epsilon(1, **BOUNDARY), at_a_boundary()) > 9


def test_a_cut_that_rounds_cells_before_it_measures_them_is_caught(monkeypatch):
    """A unit that moves 15 cells by 15 small steps moves them all over a boundary."""
    cells = np.arange(15) % 2 * 20 * CAP - 1
    pairs = [(cells, cells + np.arange(15) % 2)]
    cut = FourierCut.for_epsilon(1, moved=L1(15), **CAPPED | {"grain": 15 << 20})
    assert worst_ratio(cut, pairs) <= 0.5
    rounding = {"clamped": lambda *given: base.clamped(*given) // CAP * CAP}
    monkeypatch.setattr(fourier_cut, "base", SimpleNamespace(**vars(base) | rounding))
    assert worst_ratio(cut, pairs) > 9


def test_a_cut_that_does_not_clamp_is_caught(monkeypatch):
    """Doubles beyond 2^59 are 128 apart: one step is as good as 128."""
    cells = np.where(np.arange(15) == 3, (1 << 59) + 64, 0)
    pairs = [(cells, cells + (np.arange(15) == 3))]
    cut = FourierCut.for_epsilon(1, **SHARP | {"weights": (1, 1, 1)})
    assert worst_ratio(cut, pairs) <= 0.5
    as_is = {"clamped": lambda exact, _: exact}
    monkeypatch.setattr(fourier_cut, "base", SimpleNamespace(**vars(base) | as_is))
    assert worst_ratio(cut, pairs) > 9


def test_a_cut_is_drawn_by_its_odds(monkeypatch):
    seen = []

    def spy(contest, *_, **__):
        seen.append(contest)
        return np.array([2])

    monkeypatch.setattr(fourier_cut, "choose_each", spy)
    cells = np.arange(13) ** 2
    assert CUT.sample(cells).tolist() == [3]
    (contest,) = seen
    assert contest.factor == CUT.factor
    assert (-contest.scores).tolist() == (CUT.tails(cells) + np.array([0, 40, 90, 200])).tolist()


def test_extreme_cells_of_a_series_do_not_overflow():
    cells = np.array([np.iinfo(np.int64).max, np.iinfo(np.int64).min] * 8)
    assert int(CUT.sample(cells)[0]) in (1, 2, 3, 5)


def one_step_that_turns_all_roundings(cells, cut):
    """A flat spectrum whose squares lie just below the middle of two floats of their sum.

    A step of 2^24 in the first cell lifts some above it: running sums, rounded down before, are
    rounded up.
    """
    last, most = cells // 2, cut.limit(cells)
    phases = np.pi * np.arange(last + 1) ** 2 / cells

    def series(squares):
        waves = np.sqrt(squares) * np.exp(1j * phases)
        waves[[0, -1]] = 0
        return np.fft.irfft(waves, cells)

    highest = 2 * last * (0.99 * most / np.abs(series(np.ones(last + 1))).max()) ** 2
    exponent = np.floor(np.log2(highest))
    square, unit = 0.999 * 2.0**exponent / last, 2.0 ** (exponent - 53)
    step, lifted = 1 << 24, np.cos(phases) > 0.05
    slack = 0.02 * 4 * np.sqrt(square / 2) * step
    whole = np.floor(square / unit)
    here = series(np.where(lifted, (whole + 0.5) * unit - slack, whole * unit) / 2)
    here = np.rint(here).astype(np.int64)
    return here, here + step * (np.arange(cells) == 0), L1(step)


def test_many_cuts_are_refused_since_their_sum_would_be_rounded_too_often(monkeypatch):
    cells = 1 << 17
    cuts = {"factor": 1, "weights": (1,) * 17, "grain": 1 << 34}
    some = FourierCut(cuts=(1, cells // 2 + 1), noises=(0, 0), **cuts)
    here, there, moved = one_step_that_turns_all_roundings(cells, some)
    assert np.abs(some.tails(here) - some.tails(there)).max() <= some.reach(moved)
    every = {"cuts": tuple(range(1, cells // 2 + 1)), "noises": (0,) * (cells // 2)}
    with pytest.raises(SpecError, check=about("cuts")):
        FourierCut(**every, **cuts)
    monkeypatch.setattr(fourier_cut, "CUTS_MAX", cells)  # a broken copy
    broken = FourierCut(**every, **cuts)
    assert np.abs(broken.tails(here) - broken.tails(there)).max() > broken.reach(moved)
