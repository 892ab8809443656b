"""Summaries of many noisy cells have the law of the dense algorithm; broken copies are caught.

Closed forms are compared to 30 digits. Draws are compared with exact masses by chi-square tests
that alarm below 1e-9 each; about 25 of them in one run raise a false alarm once in 40 million runs.
Zero cells are independent in the dense algorithm, so their outcomes may be pooled over cells.
"""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats

from noisegate.errors import Bug, SpecError
from noisegate.exact import real
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.keys import sparse_geometric, sparse_priority
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric, shown_chance, threshold_for
from noisegate.mechanisms.keys.sparse_priority import SparsePriority
from noisegate.privacy.distance import L1

ALARM = 1e-9
SCALE = Fraction(2)
ALPHA = float(np.exp(-1 / 2))
M = 1000
HELD = np.array([0, 1, 2, 17, 500, 501, 998, 999], np.uint64)
COUNTS = np.array([1, 2, 9, 4, 30, 3, 1, 6], np.int64)


def noise_mass(z):
    return (1 - ALPHA) / (1 + ALPHA) * ALPHA ** np.abs(z)


def p_value(seen, masses):
    """Pearson's test; bins with fewer than 100 expected are pooled."""
    seen, expected = np.asarray(seen, float), np.asarray(masses, float) * np.sum(seen)
    assert abs(sum(masses) - 1) < 1e-9
    small = expected < min(100, expected.max())
    seen = np.append(seen[~small], seen[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 100:
        seen[0], expected[0] = seen[0] + seen[-1], expected[0] + expected[-1]
        seen, expected = seen[:-1], expected[:-1]
    return stats.chisquare(seen, expected).pvalue


def shown_masses(count, theta, tau, *, signed, top=60):
    """The dense law of what is shown of a cell: index 0 is nothing, then -top, …, top."""
    masses, z = np.zeros(2 * top + 2), np.arange(-400, 401)
    v = count + z
    size = np.abs(v) if signed else v
    chance = np.where(size >= theta, np.minimum(1, size / tau), 0)
    weight = np.maximum(size, tau) * np.where(v > 0, 1, -1)
    np.add.at(masses, 1 + top + np.clip(weight, -top, top), noise_mass(z) * chance)
    masses[0] = 1 - masses[1:].sum()
    return masses


def draws(mechanism, trials, top=60):
    """How often each cell was shown as what, in the bins of `shown_masses`."""
    seen = np.zeros((mechanism.domain, 2 * top + 2), np.int64)
    sizes = []
    for _ in range(trials):
        cells, values = mechanism.summary(HELD, COUNTS)
        assert np.all(cells[1:] > cells[:-1])
        seen[cells.astype(int), 1 + top + np.clip(values, -top, top)] += 1
        sizes.append(np.setdiff1d(cells, HELD).size)
    seen[:, 0] = trials - seen[:, 1:].sum(axis=1)
    return seen, np.array(sizes)


def smallest_p(mechanism, trials):
    """The least p-value of all comparisons with the dense algorithm."""
    theta, tau, signed = mechanism.threshold, mechanism.tau, mechanism.signed
    seen, sizes = draws(mechanism, trials)
    free = np.setdiff1d(np.arange(M), HELD.astype(int))
    empty = shown_masses(0, theta, tau, signed=signed)
    found = [p_value(seen[free].sum(axis=0), empty)]
    for cell, count in zip(HELD.astype(int), COUNTS, strict=True):
        found.append(p_value(seen[cell], shown_masses(count, theta, tau, signed=signed)))
    p = 1 - empty[0]
    each = trials - seen[free, 0]  # one binomial number for each free cell: are places uniform?
    spread = ((each - trials * p) ** 2).sum() / (trials * p * (1 - p))
    found.append(2 * min(stats.chi2.cdf(spread, free.size), stats.chi2.sf(spread, free.size)))
    cuts = stats.binom.ppf([0.25, 0.5, 0.75], free.size, p)  # of the number in one summary
    masses = np.diff([0, *stats.binom.cdf(cuts, free.size, p), 1])
    found.append(p_value(np.bincount(np.digitize(sizes, cuts, right=True), minlength=4), masses))
    return min(found)


FILTER = SparseGeometric(scale=SCALE, domain=M, threshold=4, tau=4)
KINDS = {
    "filter": FILTER,
    "signed filter": SparseGeometric(scale=SCALE, domain=M, threshold=4, tau=4, signed=True),
    "sample": SparseGeometric(scale=SCALE, domain=M, threshold=3, tau=9),
    "unbiased": SparseGeometric(scale=SCALE, domain=M, threshold=1, tau=12, signed=True),
}
TRIALS = 600


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_has_the_law_of_noise_on_all_cells(kind):
    assert smallest_p(KINDS[kind], TRIALS) > ALARM


def broken(monkeypatch, name, change):
    good = getattr(sparse_geometric, name)
    monkeypatch.setattr(sparse_geometric, name, lambda *args, **more: change(good, *args, **more))


MUTANTS = {
    "a tail one too high": ("marked_tails", lambda good, *a: (good(*a)[0], good(*a)[1] + 1)),
    "too few cells": (
        "shown_chance",
        lambda good, scale, theta, tau, signed: good(scale, theta, 2 * tau, signed=signed),
    ),
    "the first free cells": (
        "subset",
        lambda good, bound, count, bits: good(bound // 2, count, bits=bits),
    ),
    "a fixed number": ("binomial", lambda good, n, p, size, bits: np.array([80])),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_catches_a_broken_copy(mutant, monkeypatch):
    broken(monkeypatch, *MUTANTS[mutant])
    assert smallest_p(FILTER, 300) < ALARM


def test_cells_that_hold_rows_are_never_drawn_as_free(monkeypatch):
    searchsorted = np.searchsorted
    for _ in range(30):
        draws(FILTER, 1)
    monkeypatch.setattr(
        sparse_geometric.np, "searchsorted",
        lambda a, v, side="left": searchsorted(a, v, side="left"),
    )  # fmt: skip
    with pytest.raises(AssertionError):  # a cell is shown twice
        draws(SparseGeometric(scale=SCALE, domain=M, threshold=1, tau=1), 200)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("theta", "tau"), [(1, 1), (1, 7), (3, 3), (4, 20), (20, 21)])
def test_the_chance_of_a_cell_without_rows_is_the_sum_over_its_noise(theta, tau, signed):
    before, ctx.prec = ctx.prec, 200
    try:
        alpha = real(-1 / SCALE).exp()
        each = (1 - alpha) / (1 + alpha)
        total = sum((each * alpha**i * min(Fraction(1), Fraction(i, tau)).numerator
                     / min(Fraction(1), Fraction(i, tau)).denominator
                     for i in range(theta, 400)), arb(0))  # fmt: skip
        claimed = shown_chance(SCALE, theta, tau, signed=signed).compute()
        assert abs(claimed - total * (2 if signed else 1)) < 1e-30
        if theta == 1 and signed:  # the closed form of [CPST12]
            known = 2 * alpha * (1 - alpha**tau) / (tau * (1 - alpha**2))
            assert abs(claimed - known) < 1e-30
    finally:
        ctx.prec = before


def test_it_costs_what_the_geometric_mechanism_costs():
    made = SparseGeometric.for_epsilon("0.5", sensitivity=L1(3), domain=1 << 64, threshold=300)
    assert made.event(L1(3)) == Geometric.for_epsilon("0.5", sensitivity=L1(3)).event(L1(3))


def test_the_threshold_is_the_least_that_keeps_the_number_of_false_cells():
    theta = threshold_for(Fraction(1), domain=1 << 64, cells=Fraction(1000))

    def expected(t):
        return 2.0**64 * np.exp(-t) / (1 + np.exp(-1))

    assert expected(theta) <= 1000 < expected(theta - 1)


def test_the_largest_domain_is_summarised_at_its_ends():
    top = (1 << 64) - 1
    cells = np.array([0, 1, top - 1, top], np.uint64)
    mechanism = SparseGeometric(scale=Fraction(1), domain=1 << 64, threshold=36, tau=36)
    shown, values = mechanism.summary(cells, np.full(4, 1000))
    assert set(cells.tolist()) <= set(shown.tolist())
    assert np.all(values >= 36)
    # about 3130 false cells, spread over the whole: each sixteenth of the domain holds some
    sixteenths = np.bincount((shown >> np.uint64(60)).astype(int), minlength=16)
    assert 2600 < shown.size < 3700
    assert sixteenths.min() > 100


@pytest.mark.parametrize(
    "make",
    [
        lambda: SparseGeometric(scale=1, domain=1 << 64, threshold=1, tau=1),
        lambda: SparseGeometric(scale=1, domain=(1 << 64) + 1, threshold=99, tau=99),
        lambda: SparseGeometric(scale=1, domain=0, threshold=9, tau=9),
        lambda: SparseGeometric(scale=1, domain=9, threshold=0, tau=9),
        lambda: SparseGeometric(scale=1, domain=9, threshold=9, tau=8),
        lambda: SparseGeometric(scale=1, domain=9, threshold=9, tau=9, signed=1),
        lambda: SparsePriority(scale=1, domain=1 << 64, threshold=1, size=10),
        lambda: SparsePriority(scale=1, domain=9, threshold=1, size=0),
        lambda: FILTER.sample(np.zeros(5, np.int64)),
    ],
)
def test_what_cannot_be_summarised_is_refused(make):
    with pytest.raises(SpecError):
        make()


@pytest.mark.parametrize("cells", [[3, 3], [4, 3], [3, 1000]])
def test_cells_out_of_order_are_a_bug(cells):
    with pytest.raises(Bug):
        FILTER.summary(np.array(cells, np.uint64), np.array([1, 1]))


# priority sampling

SMALL = np.array([6, 1, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0], np.int64)
PRIORITY = SparsePriority(scale=SCALE, domain=20, threshold=1, size=4)


def features(shown):
    """What is told of one sample: which of three cells are in it, its bar, how many are free."""
    held = shown[:, [0, 6, 16]] > 0
    low = np.where(shown > 0, shown, 1 << 40).min(axis=1)
    bar = np.digitize(low / 256, [1, 2, 3, 4, 6, 9])
    free = np.count_nonzero(shown[:, SMALL == 0], axis=1)
    return held @ [1, 2, 4] + 8 * bar + 64 * free


def dense_samples(trials, *, tilt=1):
    """Priority sampling of all noisy cells, as it is defined. A tilt is a mistake."""
    draw = Geometric(scale=SCALE).sample
    noisy = draw(np.tile(SMALL, (trials, 1)).reshape(-1)).reshape(trials, -1)
    marks = np.random.default_rng(7).integers(1, (1 << 24) + 1, noisy.shape) // tilt + (tilt > 1)
    ranks = np.where(noisy >= 1, (np.maximum(noisy, 0) << 32) // marks, -1)
    order = np.argsort(-ranks, axis=1, kind="stable")
    bars = np.maximum(np.take_along_axis(ranks, order[:, [4]], axis=1), 0)
    out = np.zeros_like(noisy)
    kept = np.take_along_axis(ranks, order[:, :4], axis=1) >= 0
    values = np.maximum(np.take_along_axis(noisy, order[:, :4], axis=1) * 256, bars)
    np.put_along_axis(out, order[:, :4], np.where(kept, values, 0), axis=1)
    return out


def two_sample_p(one, other):
    size = max(one.max(), other.max()) + 1
    table = np.stack([np.bincount(one, minlength=size), np.bincount(other, minlength=size)])
    rare = table.sum(axis=0) < 200
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    return stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue


def sparse_samples(mechanism, trials):
    return np.stack([mechanism.sample(SMALL) for _ in range(trials)])


@pytest.fixture(scope="module")
def dense():
    return features(dense_samples(200_000))


@pytest.mark.parametrize("first", [0, 3])
def test_a_priority_sample_has_the_law_of_sampling_all_cells(first, dense, monkeypatch):
    """Wherever the levels begin: at 3, several bands are drawn."""
    monkeypatch.setattr(SparsePriority, "_first_level", lambda self: first)
    assert two_sample_p(features(sparse_samples(PRIORITY, 1200)), dense) > ALARM


@pytest.mark.long
def test_the_comparison_of_samples_catches_broken_copies(dense, monkeypatch):
    """Of 2,000 samples χ² has a noncentrality of 270: missed once in 10⁹ runs or less."""
    assert two_sample_p(features(dense_samples(2500, tilt=2)), dense) < ALARM
    monkeypatch.setattr(SparsePriority, "_first_level", lambda self: 3)
    band = SparsePriority._band
    monkeypatch.setattr(SparsePriority, "_band", lambda self, level, above: band(self, level, None))
    assert two_sample_p(features(sparse_samples(PRIORITY, 2000)), dense) < ALARM


def test_a_large_priority_sample_is_of_its_size_and_estimates_the_total():
    """One standard deviation of the estimate is below 3 %; 15 % is beyond five."""
    cells = np.arange(5000, dtype=np.uint64) * np.uint64(1 << 20)
    mechanism = SparsePriority(scale=Fraction(1), domain=1 << 40, threshold=18, size=2000)
    shown, values = mechanism.summary(cells, np.full(5000, 100))
    assert shown.size == 2000
    # 5000 cells of 100, and about 12,000 false ones of nearly 19 on average
    expected = 5000 * 100 + (1 << 40) * np.exp(-18) / (1 + np.exp(-1)) * (18 + 1 / (np.e - 1))
    assert abs(values.sum() / sparse_priority.GRAINS / expected - 1) < 0.15
