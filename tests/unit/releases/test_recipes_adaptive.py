"""Recipes that look before they ask: DAWA, AHP and Fourier. Shares, recovery, refusals, the door."""

from fractions import Fraction
from itertools import pairwise
from math import inf, sqrt

import numpy as np
import pytest
from cells_ask import CellsAsk

from door import FINE, ONE, count_query, curator, domain
from noisegate.accounting.pure import PureAccountant
from noisegate.accounting.zcdp import ZCDPAccountant
from noisegate.desk.terms.price import Price
from noisegate.errors import SpecError
from noisegate.privacy.distance import L1
from noisegate.privacy.event import DeclaredEvent, DeclaredZCDPEvent
from noisegate.releases.ask.asking import DoorAsk, Noisy
from noisegate.releases.ask.shares import Law
from noisegate.releases.ask.transcript import Listening
from noisegate.releases.cells.workload import all_ranges, cells, prefixes, ranges
from noisegate.releases.recipes import recipe
from noisegate.releases.recipes.ahp import Ahp, clusters
from noisegate.releases.recipes.dawa import Dawa, coverage
from noisegate.releases.recipes.fourier import Fourier, _Error, _Waves, block, rebuild
from noisegate.releases.recipes.tree import Tree
from refusals import about

LOUD = Fraction(10**5)  # waves have numbers of 16 bits, so this is not much
PIECES = np.repeat([40, 0, 7, 300], [16, 8, 24, 16])
CHANCE = np.random.default_rng(11)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("truth", [PIECES, PIECES[:50], np.repeat(PIECES, 4).reshape(16, 16)])
@pytest.mark.parametrize("made", [Dawa(), Ahp()], ids=["dawa", "ahp"])
def test_even_cells_come_back_without_noise(made, truth, gaussian):
    price = 10**5 if gaussian else 800
    ask, workload = (
        CellsAsk(truth, Fraction(price), gaussian=gaussian),
        all_ranges(truth.shape, most=100),
    )
    estimate = made.build(ask, workload)
    assert np.allclose(estimate.cells, truth, atol=0.1)
    assert ask.spent.max() == pytest.approx(1)
    assert estimate.variance is None
    assert made.predict(ask, workload).rms is None


def test_dawa_shares_one_sum_among_even_cells_and_is_better_than_a_tree_there():
    truth, workload = np.repeat([0, 30, 0, 3], [1000, 24, 2000, 1072]), cells((4096,))

    def error(made):
        estimate = made.build(CellsAsk(truth, Fraction(1)), workload)
        return np.mean((estimate.cells - truth) ** 2)

    assert np.mean([error(Dawa()) for _ in range(3)]) < error(Tree()) / 4  # it is about a 30th


def test_a_mended_partition_is_whole_and_not_negative_in_any_number_of_dimensions():
    for shape in ((60,), (7, 9), (4, 4, 4)):
        truth = CHANCE.integers(0, 3, shape)
        estimate = Dawa().build(CellsAsk(truth, Fraction(1)), all_ranges(shape, most=100))
        table = estimate.mend(1.0)
        assert table.shape == shape
        assert table.min() >= 0
        assert abs(table.sum() - max(0.0, estimate.cells.sum())) <= 1 / 2 + 1e-9


def test_coverage_is_the_part_of_each_group_that_is_asked_for():
    labels = np.array([0, 0, 1, 1, 1, 2], np.int32)
    workload = ranges((6,), np.array([[1], [0]]), np.array([[3], [5]]))
    found = coverage(workload, labels, np.array([2, 3, 1]))
    assert np.allclose(found, [[1 / 2, 2 / 3, 0], [1, 1, 1]])


def test_clusters_are_of_cells_that_look_alike_wherever_they_are():
    seen = np.array([9.0, 0, 100, 9.5, 0, 101, 0])
    labels = clusters(seen, 4.0)
    assert [sorted(np.flatnonzero(labels == k).tolist()) for k in range(3)] == [
        [2, 5], [0, 3], [1, 4, 6],
    ]  # fmt: skip
    assert clusters(np.zeros(4), 4.0).tolist() == [0] * 4
    assert len(set(clusters(seen[:1], 4.0).tolist())) == 1


@pytest.mark.parametrize("size", [2, 3, 16, 21, 64])
def test_all_frequencies_give_the_series_back(size):
    truth = CHANCE.integers(0, 1000, size)
    ask = CellsAsk(truth, LOUD)
    found = Fourier(frequencies=size // 2 + 1).build(ask, prefixes(size)).cells
    assert np.allclose(found, truth, atol=1e-2)
    blocks = [block(size, 0, size // 2 + 1)]
    back = rebuild(blocks, [b.apply(truth) for b in blocks], size)
    assert np.allclose(back, truth, atol=1e-8)


def test_chosen_cuts_keep_the_wave_that_is_there():
    """No cut is below it. One of 16 keeps all: of 12, more than 9 do so less than once in 10⁷ runs."""
    places = np.arange(256)
    truth = np.rint(500 + 300 * np.cos(2 * np.pi * 5 * places / 256)).astype(np.int64)
    kept = []
    for _ in range(12):
        ask = CellsAsk(truth, Fraction(1))
        estimate = Fourier().build(ask, all_ranges((256,), most=400))
        kept.append(int(estimate.words[0].replace("every", "256").split()[0]))
        assert np.abs(estimate.cells - truth).mean() < 10
        assert ask.spent.max() == pytest.approx(1, abs=1e-5)
    assert min(kept) >= 6
    assert sum(each < 60 for each in kept) >= 3


def test_with_many_rows_every_cell_is_measured_as_it_is():
    truth = CHANCE.integers(0, 10**6, 64)
    estimate = Fourier().build(CellsAsk(truth, Fraction(1)), cells((64,)))
    assert estimate.words == ("every cell, unchanged",)
    assert np.abs(estimate.cells - truth).max() < 200


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_predicted_error_of_all_frequencies_is_the_measured_one(gaussian):
    """False alarms: less than one in 10⁶. At least half of the noise is in 128 waves of one law, so
    the mean square of 6 runs has a deviation of at most √(5 / 768) = 0.08.
    """
    truth, workload = CHANCE.integers(0, 9, 256), cells((256,))
    made = Fourier(frequencies=129)
    ask = CellsAsk(truth, Fraction(1), gaussian=gaussian)
    predicted = made.predict(ask, workload).rms
    squares = [
        np.mean((made.build(CellsAsk(truth, Fraction(1), gaussian=gaussian), workload).cells - truth) ** 2)
        for _ in range(6)
    ]  # fmt: skip
    assert abs(np.mean(squares) / predicted**2 - 1) < 0.49  # a factor of two cannot hide


def test_what_a_workload_minds_of_a_frequency_is_its_mean_square_there():
    workload = all_ranges((32,), most=400)
    waves = _Waves(32, workload)
    rows = np.stack([workload.answers(e) for e in np.eye(32)], axis=1)
    power = (np.abs(np.fft.rfft(rows, axis=1)) ** 2).mean(axis=0)
    for (low, high), minded in zip(pairwise(waves.starts), waves.minded, strict=True):
        assert minded == pytest.approx(power[low:high].mean(), rel=0.2)
    assert waves.lengths.mean() == pytest.approx(rows.sum(axis=1).mean(), rel=0.05)


@pytest.mark.parametrize(("cells", "kept"), [(12, 4), (12, 7), (9, 1), (9, 3)])
def test_the_error_of_waves_is_that_of_dense_algebra(cells, kept):
    """Of all ranges: the noise through the pseudo-inverse, and what no wave holds."""
    every = all_ranges((cells,), most=400)
    ask = Listening(CellsAsk(np.arange(cells) ** 2, Fraction(1)))
    found = Fourier(frequencies=kept).build(ask, every)
    blocks, _, shares = _Waves(cells, every).plan(ask, kept, 16)
    waves = np.vstack([each.matrix.toarray() for each in blocks]) / 2**16
    each = [np.full(b.size, ask.variance(b, s)) for b, s in zip(blocks, shares, strict=True)]
    boxes = np.stack([every.answers(cell) for cell in np.eye(cells)], axis=1)
    back = np.linalg.pinv(waves, rcond=1e-4)
    noise = (boxes @ back) ** 2 @ np.concatenate(each) / 4**16
    outside = (boxes**2).sum(axis=1) - ((boxes @ back) * (boxes @ waves.T)).sum(axis=1)
    if 2 * kept - 2 == cells:
        assert found.variance(every.lows, every.highs) == pytest.approx(noise, rel=2e-3)
        return
    numbers = np.concatenate(ask.rounds[0]).reshape(-1, 2)[kept // 2 :] / 2**16
    twice = np.where(np.arange(kept // 2, kept) == 0, 1, 2)
    left = (twice * (numbers**2).sum(axis=1)).sum() / cells / twice.sum()
    guess = found.guess(every.lows, every.highs)
    assert guess.spread**2 == pytest.approx(noise + left * outside, rel=2e-3)
    assert guess.sums == pytest.approx(every.answers(found.cells))


@pytest.mark.parametrize(("size", "kept"), [(5, 3), (8, 4), (17, 9), (64, 31)])
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_coarsely_rounded_waves_have_no_more_noise_than_is_said(size, kept, bits):
    """Noise of deviation 1 on each wave, through what `rebuild` makes of it, for all ranges."""
    every, waves = all_ranges((size,), most=10**4), block(size, 0, kept, bits)
    given = np.eye(2 * kept, dtype=np.int64) << 40  # `rebuild` is linear
    back = np.stack([rebuild([waves], [each], size, bits) for each in given], axis=1) / 2**40
    exact = (np.stack([every.answers(each) for each in back.T], axis=1) ** 2).sum(axis=1)
    noisy = Noisy(np.zeros(2 * kept, np.int64), 1.0)
    said = _Error.of(_Waves(size, every), [noisy], inf, bits).noise(every.lows, every.highs)
    assert np.all(exact <= said * (1 + 1e-6))
    assert np.all(said <= exact * (1.001 + 4 * 0.5**bits))


@pytest.mark.parametrize("gaussian", [False, True])
def test_waves_of_capped_units_are_rounded_until_their_noise_can_be_drawn(gaussian):
    """Each unit counts in 2^-20ths: noise times 2^16 would be beyond what there is.

    Noise of a running total is 24 rows by the plan, of geometric law; 28 deviations are the limit.
    """
    rows = np.rint(10_000 * (2 + np.cos(np.arange(64) * 2 * np.pi / 64))).astype(np.int64)
    price = Fraction(1, 10 << (40 if gaussian else 20))
    ask = CellsAsk(rows << 20, price, gaussian=gaussian)
    assert Fourier(frequencies=2).predict(ask, prefixes(64)).noise / 2**20 < 30
    found = Fourier(frequencies=2).build(ask, prefixes(64)).cells / 2**20
    assert np.abs(np.cumsum(found - rows)).max() < 700
    ask = CellsAsk(rows << 20, price, gaussian=gaussian)
    Fourier().build(ask, prefixes(64))
    assert ask.spent.max() == pytest.approx(1)


@pytest.mark.parametrize("gaussian", [True, False])
def test_the_odds_of_cuts_for_capped_units_are_those_for_rows_at_a_part_of_the_price(gaussian):
    """Five rows of a unit, in 2^-17ths, at ε = 0.1: as one row at ε = 0.02. Grains differ a bit."""
    rows = np.rint(250 + 100 * np.cos(np.arange(4096) * 2 * np.pi * 11 / 4096)).astype(np.int64)
    odds = []
    for grain, moved in ((1, 1), (1 << 17, 5 << 17)):
        epsilon = Fraction(1, 50 * grain)
        ask = CellsAsk(rows * grain, epsilon**2 / 2 if gaussian else epsilon, gaussian=gaussian)
        ask.moved = Fraction(moved)
        cut = _Waves(4096, prefixes(4096)).choice(ask, Fraction(4, 5))
        choice = cut(epsilon / 5)
        costs = choice.tails(rows * grain) + np.array([int(noise) for noise in choice.noises])
        assert choice.limit(4096) > 10**6 * grain
        assert choice.event(L1(moved)).epsilon == epsilon / 5 * moved
        odds.append(dict(zip(cut.cuts, float(choice.factor) * costs, strict=True)))
    common = sorted(set(odds[0]) & set(odds[1]))
    plain, capped = ([each[place] for place in common] for each in odds)
    assert len(common) > 6
    assert capped == pytest.approx(plain, rel=0.01)
    assert min(plain, key=float) < plain[0] - 9


@pytest.mark.parametrize("gaussian", [False, True])
def test_whatever_may_be_chosen_can_be_measured_at_any_price(gaussian):
    """There is no noise of a deviation beyond 2^40.5 (geometric), or 2^39: that would be refused."""
    waves, rest, seen = _Waves(16, prefixes(16)), Fraction(4, 5), []
    for power in range(50, 66):
        epsilon = Fraction(1, round(2 ** (power / 2)))
        ask = CellsAsk(np.zeros(16), epsilon**2 if gaussian else epsilon, gaussian=gaussian)
        for cut in waves.choice(ask, rest).cuts[:-1]:
            blocks, _, shares = waves.plan(ask, cut, waves.bits(ask, cut, rest))
            each = zip(blocks, shares, strict=True)
            seen += [sqrt(ask.variance(block, share * rest)) for block, share in each]
    assert 2**37 < max(seen) < 2**39


@pytest.mark.parametrize("made", [Fourier(), Fourier(frequencies=25)])
def test_a_price_too_low_for_waves_is_refused_before_anything_is_spent(made):
    ask = CellsAsk(np.full(64, 1 << 33), Fraction(1, 1 << 33))
    for step in (made.predict, made.build):
        with pytest.raises(SpecError, check=about("price")):
            step(ask, prefixes(64))
    assert ask.spent.max() == 0


@pytest.mark.parametrize("gaussian", [True, False])
def test_a_choice_of_waves_rarely_costs_more_than_it_says(gaussian):
    """The exact odds of all cuts, for series that are hard to tell: at most 1 in 1000."""
    every = all_ranges((64,), most=400)
    for exact in (
        np.zeros(64, np.int64),
        np.random.default_rng(5).poisson(50, 64),
        np.arange(64) % 2 * 90,
    ):
        ask = CellsAsk(exact, Fraction(1), gaussian=gaussian)
        cut = _Waves(64, every).choice(ask, Fraction(4, 5))
        law = Law.of(ask, Fraction(1, 5))
        epsilon = 2 * law.amount**0.5 if gaussian else law.amount
        choice = cut(Fraction(epsilon))
        costs = choice.tails(exact) + np.array([int(noise) for noise in choice.noises])
        odds = np.exp(-float(choice.factor) * (costs - costs.min()))
        beyond = costs / cut.scale > cut.worst(law) * (1 + 1e-9)
        assert odds[beyond].sum() <= 1e-3 * odds.sum()
        dropped = [cut.dropped(kept, law) for kept in cut.cuts]
        assert np.all((choice.tails(exact) / cut.scale <= dropped) | beyond)


@pytest.mark.parametrize("gaussian", [True, False])
def test_no_series_costs_more_than_expected_and_some_cost_nearly_that(gaussian):
    """The exact mean square over the choice, for all that cuts may drop in equal steps of cost."""
    ask = CellsAsk(np.zeros(256, np.int64), Fraction(1, 10), gaussian=gaussian)
    cut = _Waves(256, all_ranges((256,), most=400)).choice(ask, Fraction(4, 5))
    law = Law.of(ask, Fraction(1, 5))
    noises = np.array(cut.noises) / cut.scale
    steep, found = cut._factor(law) * cut.scale, []
    for over in np.linspace(0, 12, 200) / steep:
        for first in range(noises.size):
            dropped = np.maximum(noises[-1] + over - noises, 0)
            dropped[:first] += 99 / steep  # these drop more, and are not chosen
            dropped[-1] = 0
            odds = np.exp(-steep * (noises + dropped))
            found.append(odds @ (noises**2 + dropped**2) / odds.sum())
    expected = cut.expected(law)
    assert np.sqrt(max(found)) <= expected * 1.001
    assert np.sqrt(max(found)) > expected * 0.95
    assert expected < cut.worst(law)


def test_dawa_errs_by_more_than_noise_on_uneven_rows_and_by_less_than_its_most():
    """Mean squares of one build are 99, give or take 54 (300 runs): about a gamma law.

    So those of six exceed 299, the square of the most, less often than once in 10^10.
    """
    workload = all_ranges((64,), most=400)
    table = np.random.default_rng(3).integers(0, 60, 64)
    told, exact = Dawa().predict(CellsAsk(table, Fraction(1)), workload), workload.answers(table)
    built = [Dawa().build(CellsAsk(table, Fraction(1)), workload).cells for _ in range(6)]
    rms = np.sqrt(np.mean([(workload.answers(each) - exact) ** 2 for each in built]))
    assert 3 * told.noise < rms < told.most


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (Dawa(partition=Fraction(1)), (8,)),
        (Dawa(thrift=Fraction(-1)), (8,)),
        (Dawa(), (1 << 12, 1 << 11)),
        (Ahp(look=Fraction(0)), (8,)),
        (Ahp(), (1 << 12, 1 << 11)),
        (Fourier(), (4, 4)),
        (Fourier(), (1,)),
        (Fourier(choice=Fraction(1)), (8,)),
        (Fourier(frequencies=6), (8,)),
        (Fourier(frequencies=0), (8,)),
    ],
)
def test_what_cannot_be_done_is_refused_before_paying(made, shape):
    low = np.zeros((1, len(shape)), np.int64)
    with pytest.raises(SpecError) as refusal:
        made.require(shape, ranges(shape, low, low))
    assert refusal.value.fix
    with pytest.raises(SpecError, check=about("workload")):
        made.require((9,), ranges(shape, low, low))


def test_shares_may_be_written_as_text_or_decimals():
    assert recipe("dawa", partition="0.3").require((8,), prefixes(8)) is None
    ask = CellsAsk(PIECES, Fraction(1))
    recipe("fourier", choice=0.25).build(ask, prefixes(64))
    assert ask.spent.max() == pytest.approx(1, abs=1e-5)


def test_the_error_of_a_partition_is_that_of_its_sums_and_of_what_is_not_even():
    """On even cells only noise is left: far below that of single cells, at the same price.

    The mean square of 40 releases is 0.056 of that of single cells, with a spread of 0.008 (400
    releases tried): a ninth is 7 deviations away.
    """
    truth, workload = np.full(1024, 50), prefixes(1024)
    single = sqrt(2 * 100) * sqrt(512)
    errors = []
    for _ in range(40):
        estimate = Dawa().build(CellsAsk(truth, Fraction(1, 10)), workload)
        errors.append(np.mean((workload.answers(estimate.cells) - workload.answers(truth)) ** 2))
    assert sqrt(np.mean(errors)) < single / 3


# --- through the door -----------------------------------------------------------------------------

NAMES = ("tree", "haar", "dawa", "ahp", "fourier", "convex")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cap", [None, 3])
def test_a_recipe_spends_its_price_at_the_door_and_no_more(name, cap):
    gaussian = name == "convex"
    owned = domain(unit=None if cap is None else "id")
    more = {"accountant": "zcdp", "delta": "1e-6"} if gaussian else {}
    door = curator(budget=3, table=owned, **more)
    cells_of = count_query(owned, by="ward", cap=cap, term=ONE if cap is None else FINE)
    price = Price(amount=Fraction(1, 10) if gaussian else Fraction(1), gaussian=gaussian)
    event = DeclaredZCDPEvent(rho=price.amount) if gaussian else DeclaredEvent(epsilon=price.amount)
    with door.allowance(event, question=name, request_id=name) as allowed:
        ask = DoorAsk(allowed.whole, cells_of, price, shape=(3,))
        assert ask.moved == (1 if cap is None else cap * FINE.high)
        estimate = recipe(name).build(ask, prefixes(3))
        assert estimate.cells.shape == (3,)
        used = allowed.used()
    loss = ZCDPAccountant() if gaussian else PureAccountant()
    spent = loss.price(used).as_fractions()[0]
    assert Fraction(9, 10) * price.amount < spent <= price.amount
