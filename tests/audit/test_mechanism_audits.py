"""Every mechanism is audited by counting one event on two neighbours; every broken copy is caught.

False alarms: each audit reports an honest mechanism once in 10⁹ runs. The samples are sized so that
a broken copy is missed less than once in 10⁷ runs; most are missed far more rarely.
"""

import time
from dataclasses import replace
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from audit_tools import count_event, epsilon_lower, passes
from scipy.stats import binom, chi2, norm

from noisegate.mechanisms.above_threshold import AboveThreshold
from noisegate.mechanisms.bounds import PrivateBounds
from noisegate.mechanisms.exponential import Exponential
from noisegate.mechanisms.gaussian import DiscreteGaussian, RoundedGaussian
from noisegate.mechanisms.geometric import Geometric
from noisegate.mechanisms.key_selection import KeySelection, ThresholdedGeometric
from noisegate.mechanisms.laplace import Laplace
from noisegate.mechanisms.permute_and_flip import PermuteAndFlip
from noisegate.mechanisms.quantile import Quantile
from noisegate.mechanisms.quantiles import Quantiles
from noisegate.mechanisms.ranks import RankGoal, private_rank
from noisegate.mechanisms.top_k import TopK
from noisegate.mechanisms.truncated_geometric import TruncatedGeometric
from noisegate.noise.bits import SYSTEM

MANY = 200_000
FIFTH_LESS = Fraction(4, 5)


def both_ways(honest, broken):
    """Parameters of a test that must pass the one and fail the other."""
    return pytest.mark.parametrize(
        ("mechanism", "is_honest"),
        [pytest.param(honest, True, id="honest"), pytest.param(broken, False, id="broken")],
    )


# --- the tools themselves ------------------------------------------------------------------------


def test_the_lower_bound_on_epsilon_is_two_clopper_pearson_bounds():
    """The bounds are where exactly alpha / 2 of the law lies beyond what was counted."""
    p = exp(epsilon_lower(200, 1000, trials=1000, alpha=1e-3))  # the neighbour's bound is 1
    assert binom.sf(199, 1000, p) == pytest.approx(5e-4)
    q = p / exp(epsilon_lower(200, 100, trials=1000, alpha=1e-3))
    assert binom.cdf(100, 1000, q) == pytest.approx(5e-4)
    assert epsilon_lower(0, 0, trials=10, alpha=1e-3) < -1e300


def test_the_lower_bound_on_epsilon_takes_delta_off():
    plain = epsilon_lower(500, 100, trials=1000, alpha=1e-9)
    assert epsilon_lower(500, 100, trials=1000, alpha=1e-9, delta=0.1) < plain
    assert epsilon_lower(5, 0, trials=1000, alpha=1e-9, delta=0.1) < -1e300


# --- noise ---------------------------------------------------------------------------------------


def hits_at_most(mechanism, exact, bar):
    return int((mechanism.sample(np.full(MANY, exact)) <= bar).sum())


@both_ways(Geometric(scale=Fraction(1)), Geometric(scale=FIFTH_LESS))
def test_the_audit_passes_geometric_noise_and_sees_a_fifth_less(mechanism, is_honest):
    hits = hits_at_most(mechanism, 0, 0), hits_at_most(mechanism, 1, 0)
    assert passes(1, *hits, trials=MANY) == is_honest


@both_ways(
    TruncatedGeometric(scale=Fraction(1), top=5), TruncatedGeometric(scale=FIFTH_LESS, top=5)
)
def test_the_audit_passes_truncated_noise_and_sees_a_fifth_less(mechanism, is_honest):
    hits = hits_at_most(mechanism, 0, 0), hits_at_most(mechanism, 1, 0)
    assert passes(1, *hits, trials=MANY) == is_honest


@both_ways(Laplace(scale=Fraction(1)), Laplace(scale=FIFTH_LESS))
def test_the_audit_passes_laplace_noise_and_sees_a_fifth_less(mechanism, is_honest):
    hits = hits_at_most(mechanism, 0, -1), hits_at_most(mechanism, 1, -1)
    assert passes(1, *hits, trials=MANY) == is_honest


@both_ways(DiscreteGaussian(variance=Fraction(4)), DiscreteGaussian(variance=4 * FIFTH_LESS**2))
def test_the_audit_passes_discrete_gaussian_noise_and_sees_a_fifth_less(mechanism, is_honest):
    """σ = 2 and sensitivity 1 give (1, 0.00724878); the event is an answer of at least 4."""
    hits = MANY - hits_at_most(mechanism, 1, 3), MANY - hits_at_most(mechanism, 0, 3)
    assert passes(1, *hits, trials=MANY, delta=0.00724878) == is_honest


@both_ways(RoundedGaussian(sigma=Fraction(2)), RoundedGaussian(sigma=2 * FIFTH_LESS))
def test_the_audit_passes_rounded_gaussian_noise_and_sees_a_fifth_less(mechanism, is_honest):
    delta = norm.cdf(0.25 - 2) - exp(1) * norm.cdf(-0.25 - 2)
    hits = MANY - hits_at_most(mechanism, 1, 3), MANY - hits_at_most(mechanism, 0, 3)
    assert passes(1, *hits, trials=MANY, delta=delta) == is_honest


# --- choices -------------------------------------------------------------------------------------

CANDIDATES = 20
LEADER = np.array([1] + [0] * (CANDIDATES - 1))
FOLLOWER = 1 - LEADER  # every score moves by one, the first against the others


def hits_first(mechanism, scores, trials):
    return count_event(lambda: mechanism.sample(scores), lambda out: out[0] == 0, trials=trials)


@pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip])
@pytest.mark.parametrize("is_honest", [True, False], ids=["honest", "without the factor 2"])
def test_the_audit_passes_a_choice_and_sees_the_missing_factor_two(kind, is_honest):
    mechanism = kind.for_epsilon(4, score_sensitivity=1)
    mechanism = mechanism if is_honest else replace(mechanism, factor=2 * mechanism.factor)
    hits = [hits_first(mechanism, scores, 5000) for scores in (LEADER, FOLLOWER)]
    assert passes(4, *hits, trials=5000) == is_honest


TOP_TWO = TopK.for_epsilon(4, k=2, score_sensitivity=1)


@both_ways(TOP_TWO, replace(TOP_TWO, factor=4 * TOP_TWO.factor))
def test_the_audit_passes_top_k_and_sees_epsilon_spent_on_every_pick(mechanism, is_honest):
    """The broken copy forgets both the two sides and the two picks."""
    hits = [hits_first(mechanism, scores, 5000) for scores in (LEADER, FOLLOWER)]
    assert passes(4, *hits, trials=5000) == is_honest


# --- sparse vector -------------------------------------------------------------------------------

SPARSE = AboveThreshold.for_epsilon(4, threshold=0, sensitivity=1, cutoff=4)
PATTERN = [0, 1] * 4
LIKELY = np.array([-1, 1] * 4)  # the pattern's own signs; the neighbour moves against all of them


@pytest.mark.audit
@both_ways(SPARSE, replace(SPARSE, query_scale=SPARSE.query_scale / 4))
def test_the_audit_passes_sparse_vectors_and_sees_the_missing_cutoff(mechanism, is_honest):
    trials = 20_000
    hits = [
        count_event(
            lambda values=values: mechanism.sample(values),
            lambda out: out.tolist() == PATTERN,
            trials=trials,
        )
        for values in (LIKELY, np.zeros(8, np.int64))
    ]
    assert passes(4, *hits, trials=trials) == is_honest


# --- quantiles -----------------------------------------------------------------------------------

MEDIAN = Quantile.for_epsilon(2, tau="1/2", low=0, high=50)
HERE, THERE = np.array([0, 10, 40]), np.array([10, 40])


@both_ways(MEDIAN, replace(MEDIAN, factor=2 * MEDIAN.factor))
def test_the_audit_passes_a_median_and_sees_sensitivity_one_quarter(mechanism, is_honest):
    trials = 5000
    hits = [
        count_event(
            lambda data=data: mechanism.sample(data), lambda out: out[0] < 10, trials=trials
        )
        for data in (HERE, THERE)
    ]
    assert passes(2, *hits, trials=trials) == is_honest


PAIR = Quantiles.for_epsilon(1, taus=("1/2", "3/4"), low=0, high=50, tie_bits=0)


@both_ways(PAIR, replace(PAIR, epsilon_levels=(Fraction(4), Fraction(4))))
def test_the_audit_passes_two_quantiles_and_sees_levels_that_overspend(mechanism, is_honest):
    trials = 2000
    hits = [
        count_event(
            lambda data=data: mechanism.sample(data), lambda out: out[0] < 10, trials=trials
        )
        for data in (HERE, THERE)
    ]
    assert passes(1, *hits, trials=trials) == is_honest


@pytest.mark.parametrize("reach", [1, 2, None])
def test_a_race_near_the_goal_has_the_law_of_the_whole_race(reach):
    """χ² on nine points; a false alarm once in 10⁹ runs. The small reach sends many draws far."""
    data, trials = np.array([1, 2, 2, 4, 6, 6, 6, 7]), 2000
    goal = RankGoal(Fraction(1, 2), Fraction(1, 4))
    errors = np.array(
        [max(0, 4 - (data <= o).sum(), (data < o).sum() - 4) for o in range(9)], float
    )
    expected = np.exp(-errors / 4)
    expected *= trials / expected.sum()
    drawn = [private_rank(data, goal, points=9, bits=SYSTEM, reach=reach) for _ in range(trials)]
    counted = np.bincount(drawn, minlength=9)
    assert ((counted - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 8)


# --- keys and bounds -----------------------------------------------------------------------------


class TooEager:
    """Key selection that takes a key's count for one more than it is."""

    def __init__(self, keys):
        self.sample = lambda counts: keys.sample(np.where(counts > 0, counts + 1, 0))


KEYS = KeySelection(epsilon=1, delta="0.05")
COUNTS = ThresholdedGeometric.for_budget(1, "0.05", keys_per_unit=1)


@pytest.mark.parametrize(
    ("mechanism", "is_honest"),
    [
        pytest.param(KEYS, True, id="optimal"),
        pytest.param(TooEager(KEYS), False, id="optimal, one count too eager"),
        pytest.param(COUNTS, True, id="threshold"),
        pytest.param(
            replace(COUNTS, threshold=COUNTS.threshold - 1), False, id="threshold one too low"
        ),
    ],
)
def test_the_audit_passes_key_selection_and_sees_a_threshold_one_too_low(mechanism, is_honest):
    trials = 20_000
    hits = [int((mechanism.sample(np.full(trials, n)) > 0).sum()) for n in (1, 0)]
    assert passes(1, *hits, trials=trials, delta=0.05) == is_honest


BOUNDS = PrivateBounds(scale=Fraction(1), threshold=4, digits=3)


@both_ways(BOUNDS, replace(BOUNDS, scale=Fraction(1, 2)))
def test_the_audit_passes_private_bounds_and_sees_half_the_noise(mechanism, is_honest):
    trials = 1000
    hits = [
        count_event(
            lambda n=n: mechanism.sample(np.array([0, 0, 0, 0, 0, n, 0])),
            lambda out: out.tolist() == [2, 3],
            trials=trials,
        )
        for n in (4, 3)
    ]
    assert passes(1, *hits, trials=trials) == is_honest


# --- long ----------------------------------------------------------------------------------------


@pytest.mark.audit
@pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip])
@pytest.mark.parametrize("is_honest", [True, False], ids=["honest", "half as sharp again"])
def test_the_long_audit_sees_a_choice_that_is_half_as_sharp_again(kind, is_honest):
    trials = 60_000
    mechanism = kind.for_epsilon(2, score_sensitivity=1)
    mechanism = mechanism if is_honest else replace(mechanism, factor=mechanism.factor * 3 / 2)
    hits = [hits_first(mechanism, scores, trials) for scores in (LEADER, FOLLOWER)]
    assert passes(2, *hits, trials=trials) == is_honest


SPARSE_LONG = AboveThreshold.for_epsilon(1, threshold=0, sensitivity=1, cutoff=4)


@pytest.mark.audit
@both_ways(SPARSE_LONG, replace(SPARSE_LONG, query_scale=SPARSE_LONG.query_scale / 4))
def test_the_long_audit_sees_the_missing_cutoff_at_a_small_epsilon(mechanism, is_honest):
    trials = 120_000
    hits = [
        count_event(
            lambda values=values: mechanism.sample(values),
            lambda out: out.tolist() == PATTERN,
            trials=trials,
        )
        for values in (LIKELY, np.zeros(8, np.int64))
    ]
    assert passes(1, *hits, trials=trials) == is_honest


@pytest.mark.audit
def test_a_quantile_of_ten_million_values_takes_less_than_two_seconds():
    values = np.random.default_rng(1).integers(0, 1 << 40, 10**7)  # public test data, not noise
    mechanism = Quantile.for_epsilon("0.1", tau="1/2", low=0, high=1 << 40)
    start = time.perf_counter()
    median = int(mechanism.sample(values)[0])
    assert time.perf_counter() - start < 2
    error = abs(int((values < median).sum()) - 5 * 10**6)
    assert error <= mechanism.rank_error("0.999999999")
