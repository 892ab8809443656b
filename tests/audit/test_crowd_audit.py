"""Crowds are audited on the neighbours that tell most apart; copies without a secret sample fail.

False alarms: each audit reports an honest mechanism once in 10⁹ runs.
"""

from fractions import Fraction

import numpy as np
import pytest
from audit_tools import passes

from noisegate.accounting.crowd import histogram_delta
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts

pytestmark = pytest.mark.audit
P, CROWD, EPSILON = Fraction(1, 2), 5, Fraction(7, 10)
TRIALS = 400_000


def honest(people):
    return CrowdCounts(probability=P, crowd=CROWD, epsilon=EPSILON).sample(people)


def without_sampling(people):
    return np.where(people >= CROWD, people, 0)


def without_hiding(people):
    return CrowdCounts(probability=P, crowd=1, epsilon=EPSILON).sample(people)


def everybody_sampled_twice_as_often(people):
    return CrowdCounts(probability=Fraction(9, 10), crowd=CROWD, epsilon=EPSILON).sample(people)


@pytest.mark.parametrize(
    ("mechanism", "is_honest"),
    [
        (honest, True),
        (without_sampling, False),
        (without_hiding, False),
        (everybody_sampled_twice_as_often, False),
    ],
)
def test_a_crowd_keeps_its_point_of_the_curve(mechanism, is_honest):
    delta = float(histogram_delta(P, CROWD, EPSILON))
    verdicts = []
    sizes = (1, CROWD, CROWD + 1, 2 * CROWD)
    for pair in [(n, n - 1) for n in sizes] + [(n - 1, n) for n in sizes]:
        here, there = (mechanism(np.full(TRIALS, n, np.int64)) for n in pair)
        seen = np.arange(2 * CROWD + 1)
        tells = [(here == y).sum() > np.exp(float(EPSILON)) * (there == y).sum() for y in seen]
        event = seen[tells]  # chosen on these draws, counted on others
        here, there = (mechanism(np.full(TRIALS, n, np.int64)) for n in pair)
        hits, others = (int(np.isin(drawn, event).sum()) for drawn in (here, there))
        verdicts.append(passes(float(EPSILON), hits, others, trials=TRIALS, delta=delta))
    assert all(verdicts) == is_honest
