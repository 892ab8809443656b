"""What the list of audits does not hold: runs of several yeses, and the law of a quick race.

False alarms: each audit reports an honest mechanism once in 10⁹ runs. The samples are sized so that
a broken copy is missed less than once in 10⁷ runs; most are missed far more rarely.
"""

import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from audit_tools import count_event, passes
from scipy.stats import chi2

from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.ranks import RankGoal, private_ranks
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.noise.bits import SYSTEM


def both_ways(honest, broken):
    """Parameters of a test that must pass the one and fail the other."""
    return pytest.mark.parametrize(
        ("mechanism", "is_honest"),
        [pytest.param(honest, True, id="honest"), pytest.param(broken, False, id="broken")],
    )


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


# --- quantiles ---------------------------------------------------------------------------------


@pytest.mark.long
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
    drawn = [
        int(private_ranks(data, goal, 1, points=9, bits=SYSTEM, reach=reach)[0])
        for _ in range(trials)
    ]
    counted = np.bincount(drawn, minlength=9)
    assert ((counted - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 8)


# --- long --------------------------------------------------------------------------------------

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
