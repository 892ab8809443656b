"""Quantiles by local noise: reaches against brute force, and the exact law over all neighbours."""

from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
import pytest

from noisegate.accounting.pure import pure_loss
from noisegate.exact import enclose
from noisegate.mechanisms.smooth.local_quantile import LocalQuantile, quantile_reaches
from noisegate.mechanisms.smooth.propose import ProposeTestRelease
from noisegate.mechanisms.smooth.smooth import UNIT, SmoothLaplace, SmoothStudent

TOP, SIZE = 4, 4
TABLES = [x for n in range(SIZE + 1) for x in combinations_with_replacement(range(TOP + 1), n)]
WIDE = ProposeTestRelease(bound=1, test_scale=1, threshold=30, scale=1, low=0, high=TOP)
PAIRS = [
    (small, tuple(sorted((*small, more))))
    for small in TABLES
    if len(small) < SIZE
    for more in range(TOP + 1)
]
LEVELS = [Fraction(1, 2), Fraction(1, 4), Fraction(0), Fraction(1)]


@cache
def found(tau, table):
    return quantile_reaches(np.array(table, np.int64), tau, WIDE)


def reach(tau, table, k):
    """A_k, also past the end of the list."""
    reaches = found(tau, table)[1]
    return reaches[k] if k < len(reaches) else TOP


def plain_reach(tau, table, k, *, short=0):
    """The largest gap over windows of k + 1 steps around the rank, without any cleverness."""
    rank = -(-tau.numerator * len(table) // tau.denominator)

    def x(i):
        return 0 if i < 1 else TOP if i > len(table) else sorted(table)[i - 1]

    return max(x(rank + t) - x(rank + t - k - 1) for t in range(k + 2 - short))


@pytest.mark.parametrize("tau", LEVELS)
def test_reaches_are_the_largest_windows(tau):
    for table in TABLES:
        assert [reach(tau, table, k) for k in range(7)] == [
            plain_reach(tau, table, k) for k in range(7)
        ]


@pytest.mark.parametrize("tau", LEVELS)
def test_one_value_moves_the_quantile_by_no_more_than_the_reach_and_reaches_are_nested(tau):
    for one, other in PAIRS:
        move = abs(found(tau, one)[0] - found(tau, other)[0])
        assert move <= min(reach(tau, one, 0), reach(tau, other, 0))
        for k in range(6):
            assert reach(tau, one, k) <= reach(tau, other, k + 1)
            assert reach(tau, other, k) <= reach(tau, one, k + 1)


def test_windows_that_stop_one_short_miss_a_move():
    """The broken copy: 0 ≤ t ≤ k instead of k + 1 leaves out the gap above the median."""
    tau = Fraction(1, 2)
    moves = [
        abs(found(tau, one)[0] - found(tau, other)[0]) > plain_reach(tau, table, 0, short=1)
        for one, other in PAIRS
        for table in (one, other)
    ]
    assert any(moves)


def test_leaving_out_reaches_that_do_not_matter_changes_no_bound():
    rows = np.sort(np.random.default_rng(5).integers(0, 10**6, 400))  # of the test, not of noise
    for beta in ("1/3", "1/50", "1/1000"):
        smooth = SmoothStudent(scale=1, beta=beta, low=0, high=10**6)
        exact = ProposeTestRelease(
            bound=1, test_scale=1, threshold=1000, scale=1, low=0, high=10**6
        )
        for tau in LEVELS:
            short = quantile_reaches(rows.copy(), tau, smooth)
            full = quantile_reaches(rows.copy(), tau, exact)
            assert short[0] == full[0]
            assert smooth.bound(short[1]) == smooth.bound(full[1])


def law(noise, value, bound):
    """Chances of low, …, high for a number and its bound, from the certified law."""
    width = noise.scale * Fraction(bound, UNIT)
    below = [0.0]
    for k in range(noise.low, noise.high):
        cut = (k - value + Fraction(1, 2)) / width
        below.append(enclose(lambda cut=cut: noise.shape.cdf(cut), bits=60)[0] / 2**60)
    return np.diff([*below, 1.0])


def laws_of(noise, tau, bound_of):
    return {x: law(noise, found(tau, x)[0], bound_of(x)) for x in TABLES}


def worst_loss(laws):
    ratios = [np.log(laws[one] / laws[other]) for one, other in PAIRS]
    return max(np.abs(ratio).max() for ratio in ratios)


@pytest.mark.parametrize("tau", [Fraction(1, 2), Fraction(1, 4)])
def test_no_neighbours_are_told_apart_by_more_than_epsilon(tau):
    noise = SmoothStudent.for_epsilon("1/2", low=0, high=TOP)
    laws = laws_of(noise, tau, lambda x: noise.bound(found(tau, x)[1]))
    assert 0.2 < worst_loss(laws) <= 0.5


def test_local_sensitivity_alone_tells_neighbours_apart():
    """The broken copy: noise by A_0 only, or a hundredth where it is 0."""
    tau, noise = Fraction(1, 2), SmoothStudent.for_epsilon("1/2", low=0, high=TOP)
    laws = laws_of(noise, tau, lambda x: max(UNIT // 100, UNIT * reach(tau, x, 0)))
    assert worst_loss(laws) > 5


def test_a_decay_that_is_too_fast_tells_neighbours_apart():
    """The broken copy: bounds that fall by β = 2 for noise that was priced at ε/5."""
    tau, noise = Fraction(1, 2), SmoothStudent.for_epsilon("1/2", low=0, high=TOP)
    fast = SmoothStudent(scale=1, beta=2, low=0, high=TOP)
    laws = laws_of(noise, tau, lambda x: fast.bound(found(tau, x)[1]))
    assert worst_loss(laws) > 0.6


def test_laplace_noise_keeps_its_delta():
    tau, noise = Fraction(1, 2), SmoothLaplace.for_budget(1, "1e-3", low=0, high=TOP)
    laws = laws_of(noise, tau, lambda x: noise.bound(found(tau, x)[1]))
    losses = [
        np.maximum(laws[a] - np.e * laws[b], 0).sum()
        for pair in PAIRS
        for a, b in (pair, pair[::-1])
    ]
    assert max(losses) <= 1e-3


def geometric(scale, size=400):
    """Chances of -size, …, size."""
    alpha = np.exp(-1 / float(scale))
    return alpha ** np.abs(np.arange(-size, size + 1)) * (1 - alpha) / (1 + alpha)


def ptr_law(noise, tau, table, distance_of):
    """Chances of nothing, then of low, …, high."""
    z = np.arange(-400, 401)
    passed = geometric(noise.test_scale)[z + distance_of(table) >= noise.threshold].sum()
    answers = np.clip(found(tau, table)[0] + z, noise.low, noise.high)
    values = np.bincount(answers, geometric(noise.scale), noise.high + 1)
    return np.array([1 - passed, *(passed * values)])


def ptr_delta(distance_of):
    tau, noise = Fraction(1, 2), ProposeTestRelease.for_budget(2, "1e-2", bound=1, low=0, high=TOP)
    loss = pure_loss(noise.event(1))
    laws = {x: ptr_law(noise, tau, x, distance_of) for x in TABLES}
    return float(loss.delta), max(
        np.maximum(laws[a] - np.exp(float(loss.epsilon)) * laws[b], 0).sum()
        for pair in PAIRS
        for a, b in (pair, pair[::-1])
    )


def distance(table):
    noise = ProposeTestRelease.for_budget(2, "1e-2", bound=1, low=0, high=TOP)
    return noise.distance(np.array(found(Fraction(1, 2), table)[1], np.int64))


def test_the_distance_is_the_least_k_with_a_reach_above_the_bound_and_moves_by_one():
    for table in TABLES:
        ends = [k for k in range(20) if reach(Fraction(1, 2), table, k) > 1]
        assert distance(table) == ends[0]
    assert max(abs(distance(one) - distance(other)) for one, other in PAIRS) == 1
    far = ProposeTestRelease.for_budget(2, "1e-2", bound=TOP, low=0, high=TOP)
    assert far.distance(np.array([TOP, TOP])) == far.depth  # no reach is above the range


def test_delta_is_how_likely_the_test_passes_at_distance_zero():
    noise = ProposeTestRelease.for_budget(2, "1e-2", bound=1, low=0, high=TOP)
    passed = geometric(noise.test_scale)[400 + noise.threshold :].sum()
    assert float(noise.event(1).delta) == pytest.approx(passed, rel=1e-12)


def test_propose_test_release_keeps_its_delta():
    claimed, worst = ptr_delta(distance)
    assert 1e-3 < claimed <= 1e-2
    assert worst <= claimed


def test_a_test_that_believes_every_proposal_breaks_the_promise():
    """The broken copy: it always passes, though a step may move the median by more."""
    claimed, worst = ptr_delta(lambda _: 99)
    assert worst > 5 * claimed


def test_the_distance_of_the_test_is_that_of_the_reaches():
    rows = np.array([0, 0, 0, 1, 1, 1, TOP, TOP])
    noise = ProposeTestRelease.for_budget(1, "1e-9", bound=1, low=0, high=TOP)
    reaches = quantile_reaches(rows, Fraction(1, 2), noise)[1]
    assert next(k for k, each in enumerate(reaches) if each > 1) == 2
    outcomes = [LocalQuantile(tau="1/2", noise=noise).sample(rows)[0] for _ in range(50)]
    assert outcomes == [0] * 50  # each passes with 2e-9
    far = LocalQuantile(tau="1/2", noise=noise).sample(np.full(500, 2))
    assert far[0] == 1
