"""How long quantiles take, against NumPy's own selection in the same run."""

import time
from fractions import Fraction

import numpy as np
import pytest

from noisegate.mechanisms.quantiles import Quantiles
from noisegate.noise.choice import Contest, choose

QUARTILES = ("1/4", "1/2", "3/4")


def fastest(run, *, times=3):
    spent = []
    for _ in range(times):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return min(spent)


@pytest.mark.audit
def test_quartiles_of_ten_million_values_take_less_than_three_selections():
    """At ε = 4 an error of 10 ranks of 10⁷ has probability below 10⁻⁷."""
    values = np.random.default_rng(1).integers(0, 10**8, 10**7)  # public test data, not noise
    n = values.size
    mechanism = Quantiles.for_epsilon(4, taus=QUARTILES, low=0, high=10**8)
    bare = fastest(lambda: np.partition(values, [n // 4, n // 2, 3 * n // 4]))
    assert fastest(lambda: mechanism.sample(values)) < 3 * bare
    for found, level in zip(mechanism.sample(values).tolist(), (0.25, 0.5, 0.75), strict=True):
        below, upto = int((values < found).sum()), int((values <= found).sum())
        assert max(0, level * n - upto, below - level * n) < 1e-6 * n


@pytest.mark.audit
def test_a_thousand_small_cells_take_less_than_four_times_their_bare_races():
    """Relative to the race itself, so that a busy machine raises no alarm; about half a second."""
    cells = list(np.random.default_rng(2).integers(0, 10**6, (1000, 100)))
    mechanism = Quantiles.for_epsilon(1, taus=QUARTILES, low=0, high=10**6)
    contest = Contest(-np.arange(201), Fraction(1, 4), np.full(201, 1000))
    races = fastest(lambda: [choose(contest) for _ in range(3000)])
    assert fastest(lambda: mechanism.sample_cells(cells)) < 4 * races
