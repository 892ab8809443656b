"""Mechanisms on a secret sample, by enumeration: the mixture of their laws on all samples.

A table is a tuple of units; each is in the sample by a coin of its own. One more unit must change
no law by more than the amplified price, in both directions.
"""

from fractions import Fraction
from itertools import product
from math import exp, expm1, log, log1p

import numpy as np
import pytest
from test_local_quantile import TABLES, TOP, found, law
from test_mechanism_sparse_vector import log_chance, spec_of
from test_sparse_geometric import shown_masses

from noisegate.accounting.amplification import poisson
from noisegate.accounting.pure import pure_loss
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothStudent
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent, PoissonSampled
from noisegate.privacy.loss import ApproxDP

P = Fraction(1, 4)


def samples(units):
    """All samples of a table, with their chances."""
    for coins in product((0, 1), repeat=len(units)):
        chance = np.prod([float(P) if coin else 1 - float(P) for coin in coins])
        yield chance, tuple(unit for unit, coin in zip(units, coins, strict=True) if coin)


def mixed(law_of, units):
    """The law of a mechanism on a sample of these units."""
    return sum(chance * law_of(kept) for chance, kept in samples(units))


def losses(law_of, tables, more):
    """ln of how much likelier outcomes become by one more unit, and by one less."""
    for units in tables:
        without = mixed(law_of, units)
        for unit in more:
            yield np.abs(np.log(mixed(law_of, (*units, unit)) / without)).max()


def amplified(epsilon):
    return float(poisson(ApproxDP(epsilon), probability=P).epsilon)


def test_a_smooth_median_of_a_sample_keeps_the_amplified_price():
    tau, noise = Fraction(1, 2), SmoothStudent.for_epsilon(2, low=0, high=TOP)
    laws = {x: law(noise, found(tau, x)[0], noise.bound(found(tau, x)[1])) for x in TABLES}
    tables = [x for x in TABLES if len(x) < 4]
    worst = max(losses(lambda x: laws[tuple(sorted(x))], tables, range(TOP + 1)))
    assert float(P) * 2 < worst <= amplified(2)  # p ε, the broken price, is passed


def test_a_smooth_median_with_delta_has_the_amplified_delta():
    tau, noise = Fraction(1, 2), SmoothLaplace.for_budget(1, "1e-2", low=0, high=TOP)
    laws = {x: law(noise, found(tau, x)[0], noise.bound(found(tau, x)[1])) for x in TABLES}
    event = PoissonSampled(event=noise.event(1), probability=P)
    claim = pure_loss(event)
    assert claim == poisson(pure_loss(noise.event(1)), probability=P)
    for units in (x for x in TABLES if len(x) < 4):
        for more in range(TOP + 1):
            one, other = (
                mixed(lambda x: laws[tuple(sorted(x))], t) for t in (units, (*units, more))
            )
            for a, b in ((one, other), (other, one)):
                passed = np.maximum(a - exp(claim.epsilon) * b, 0).sum()
                assert passed <= float(claim.delta)


@pytest.mark.parametrize("count", [0, 3])
def test_a_sparse_cell_of_a_sample_keeps_the_amplified_price(count):
    """The cell of the unit; others do not change. Scale 2: ε = 1/2 in the sample."""
    masses = {n: shown_masses(n, 4, 6, signed=False) + 1e-300 for n in range(count + 2)}
    event = PoissonSampled(event=GeometricEvent(scale=2, sensitivity=L1(1)), probability=P)
    worst = max(losses(lambda x: masses[len(x)], [("unit",) * count], ["unit"]))
    assert worst == pytest.approx(float(pure_loss(event).epsilon), abs=1e-12)  # it is attained
    assert worst > float(P) / 2 + 0.02  # p ε, the broken price


def test_a_run_of_thresholds_on_a_sample_keeps_the_amplified_price():
    """Thirty surprising noes and then a surprising yes, all of which each unit makes less so."""
    mechanism = AboveThreshold.for_epsilon(2, threshold=100, sensitivity=1, cutoff=1)
    answers = (*[False] * 30, True)

    def law_of(units):
        values = [*[160 - len(units)] * 30, 40 + len(units)]
        return np.exp(np.array([log_chance(spec_of(mechanism), values, answers)]))

    event = PoissonSampled(event=mechanism.event(1), probability=P)
    assert pure_loss(event) == poisson(ApproxDP(2), probability=P)
    worst = max(losses(law_of, [(), ("unit",), ("unit", "unit")], ["unit"]))
    assert float(P) * 2 < worst <= amplified(2)  # p ε, the broken price, is passed


@pytest.mark.parametrize("edges", [2, 5])
def test_coins_of_single_edges_do_not_hide_a_vertex_for_the_amplified_price(edges):
    """Why vertices are refused: whether any edge of one is there, told by randomised response.

    That is private for a vertex; but one of its edges is in the sample more often than p.
    """
    epsilon = 2.0
    there = 1 - (1 - float(P)) ** edges
    loss = log1p(there * expm1(epsilon)) if there < 1 else epsilon
    assert loss > amplified(2) + 0.2
    assert loss <= epsilon
    assert log(1 + float(P) * expm1(epsilon)) == pytest.approx(amplified(2))
