"""Stated rank errors against exact laws: kept by the worst values, and broken by half of them."""

from fractions import Fraction

import numpy as np
import pytest

from noisegate.mechanisms.quantiles.quantile import error_range
from noisegate.mechanisms.quantiles.quantiles import _STEPS, Quantiles, _tail, plan

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
FIVE = (Fraction(1, 20), *QUARTILES, Fraction(19, 20))


def errors(values, points, tau):
    """How many ranks each point is off."""
    goal = float(tau) * values.size
    upto, below = (np.searchsorted(values, points, side=side) for side in ("right", "left"))
    return np.maximum(np.maximum(goal - upto, below - goal), 0)


def choice(values, points, node, epsilon):
    """The law of one call."""
    weights = np.exp(-float(epsilon / error_range(node.tau)) * errors(values, points, node.tau))
    return weights / weights.sum()


def chance_beyond(mechanism, values, ranks):
    """Exactly how often one of three quartiles is further off: both sides follow the median."""
    (root,), sides = plan(mechanism.taus)
    first, second = mechanism.epsilon_levels
    points, kept = np.arange(mechanism.points), 0.0
    within = {tau: errors(values, points, tau) <= ranks for tau in mechanism.taus}
    for cut, chance in enumerate(choice(values, points, root, first)):
        parts = (
            (values[values < cut], points[: cut + 1]),
            (values[values >= cut], points[cut:]),
        )
        both = chance * within[Fraction(1, 2)][cut]
        for node, (block, reach) in zip(sides, parts, strict=True):
            both *= choice(block, reach, node, second) @ within[mechanism.taus[node.index]][reach]
        kept += both
    return 1 - kept


@pytest.mark.parametrize("confidence", [Fraction(4, 5), Fraction(19, 20), Fraction(99, 100)])
def test_even_values_keep_the_ranks_of_even_ones_and_break_half_of_them(confidence):
    mechanism = Quantiles.for_epsilon(Fraction(1, 2), taus=QUARTILES, low=0, high=599, tie_bits=0)
    values, ranks = np.arange(0, 600, 2), mechanism.rank_error(confidence, even=True)
    assert chance_beyond(mechanism, values, ranks) <= 1 - confidence
    assert chance_beyond(mechanism, values, ranks // 2) > 1 - confidence
    assert ranks < mechanism.rank_error(confidence) / 2


@pytest.mark.parametrize("points", [2, 100, 10**6])
def test_the_worst_values_keep_the_ranks_and_break_half_of_them(points):
    """All values are one point: all others are equally far off, as near as they may be."""
    mechanism = Quantiles.for_epsilon(
        Fraction(1, 10), taus=[Fraction(1, 2)], low=0, high=points - 1, tie_bits=0
    )
    ranks = mechanism.rank_error("0.95")

    def chance(off):
        others = (points - 1) * np.exp(-off / 10)
        return others / (1 + others)

    assert chance(ranks + 1) <= 0.05 < chance(ranks / 2)
    assert chance(0.9 * ranks) > 0.05 or points == 2


@pytest.mark.parametrize("scales", [(3.0, 1.0), (10.0, 9.0)])
def test_added_errors_have_their_exact_tail_rounded_up(scales):
    """Two exponential errors: the closed form of their sum."""
    one, other = scales
    reach = sum(scales) * 5
    at = np.arange(_STEPS + 1) * reach / _STEPS
    exact = (one * np.exp(-at / one) - other * np.exp(-at / other)) / (one - other)
    found = _tail(np.array([one, 0.0, other]), reach)
    assert (found >= exact).all()
    assert (found <= exact * 1.03 + 1e-9).all()


def test_each_answer_is_surer_than_all_and_all_than_the_sum_of_single_failures():
    mechanism = Quantiles.for_epsilon(1, taus=FIVE, low=0, high=99)
    each, together = mechanism.rank_errors("0.95"), mechanism.rank_error("0.95")
    assert each == each[::-1]
    assert each[2] < each[1] < each[0] <= together < mechanism.rank_error("0.99")
    alone = mechanism.rank_error(1 - Fraction(1, 20 * len(FIVE)))
    assert together <= alone
    assert together == 87  # 128 if each call fails alone, and outer levels are sought first
    assert mechanism.rank_error(1 - Fraction(1, 10**400)) > 5000  # beyond doubles: still a bound


def test_of_two_middle_levels_that_nearer_to_the_middle_comes_first():
    (root,), sides, last = plan(FIVE)
    assert root.index == 2
    assert [(node.index, node.tau) for node in sides] == [(1, Fraction(1, 2)), (3, Fraction(1, 2))]
    assert [node.tau for node in last] == [Fraction(1, 5), Fraction(4, 5)]
