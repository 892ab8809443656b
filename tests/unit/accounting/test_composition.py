"""Composition theorems: published numbers, brute force on small mechanisms, refusals."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest

from noisegate.errors import SpecError
from noisegate.planning.composition import (
    advanced_mixed_up,
    exponential_delta_up,
    exponential_epsilon_up,
    optimal_delta_up,
    optimal_epsilon_up,
    sequential,
)
from noisegate.privacy.loss import ApproxDP
from refusals import about

TENTH, MILLIONTH = Fraction(1, 10), Fraction(1, 10**6)


def test_a_hundred_tenths_cost_what_the_papers_say():
    assert float(optimal_epsilon_up(TENTH, count=100, delta=MILLIONTH)) == pytest.approx(
        4.774568, abs=5e-7
    )
    advanced = 10 * math.tanh(0.05) + math.sqrt(2 * math.log(1e6))
    same = advanced_mixed_up([ApproxDP(TENTH)] * 100, delta=MILLIONTH)
    assert float(same) == pytest.approx(advanced)


def test_ten_large_steps_gain_almost_nothing():
    found = optimal_epsilon_up(Fraction(1), count=10, delta=MILLIONTH)
    assert float(found) == pytest.approx(9.99998, abs=5e-6)
    assert found < 10


def test_steps_on_the_same_units_add_up():
    losses = [ApproxDP("0.1", "1e-6"), ApproxDP("0.3"), ApproxDP("0.2", "1e-7")]
    assert sequential(losses) == ApproxDP("0.6", "1.1e-6")
    assert sequential([]) == ApproxDP(0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("total", ["0", "0.1", "0.5", "1.05", "3"])
def test_optimal_composition_equals_the_enumerated_randomised_response(count, total):
    step, total = 0.35, Fraction(total)
    truth = math.exp(step) / (1 + math.exp(step))
    exact = 0.0
    for lies in range(count + 1):
        here = truth ** (count - lies) * (1 - truth) ** lies
        there = truth**lies * (1 - truth) ** (count - lies)
        exact += math.comb(count, lies) * max(0.0, here - math.exp(total) * there)
    found = optimal_delta_up(Fraction("0.35"), count=count, total=total)
    assert float(found) == pytest.approx(exact, abs=1e-14)


def test_optimal_epsilon_is_the_first_that_keeps_delta():
    for count in (1, 2, 5, 40):
        found = optimal_epsilon_up(TENTH, count=count, delta=Fraction(1, 1000))
        assert optimal_delta_up(TENTH, count=count, total=found) <= Fraction(1, 1000)
        if found > 0:
            less = found * (1 - Fraction(1, 10**9))
            assert optimal_delta_up(TENTH, count=count, total=less) > Fraction(1, 1000)


def test_optimal_composition_at_its_edges():
    assert optimal_epsilon_up(TENTH, count=5, delta=Fraction(0)) == Fraction(1, 2)
    assert optimal_epsilon_up(TENTH, count=5, delta=Fraction(1)) == 0
    assert optimal_delta_up(TENTH, count=5, total=Fraction(1, 2)) == 0


def test_deltas_of_the_steps_use_up_part_of_delta():
    plain = optimal_epsilon_up(TENTH, count=100, delta=MILLIONTH)
    loaded = optimal_epsilon_up(TENTH, count=100, delta=MILLIONTH, delta_each=Fraction(1, 10**9))
    left = MILLIONTH - 100 * Fraction(1, 10**9)
    assert plain < loaded
    assert float(loaded) == pytest.approx(
        float(optimal_epsilon_up(TENTH, count=100, delta=left)), rel=1e-6
    )
    with pytest.raises(SpecError, check=about("own-delta")):
        optimal_epsilon_up(TENTH, count=100, delta=MILLIONTH, delta_each=MILLIONTH)


def test_sharper_theorems_are_sharper():
    for count in (10, 100, 1000):
        optimal = optimal_epsilon_up(TENTH, count=count, delta=MILLIONTH)
        assert optimal < advanced_mixed_up([ApproxDP(TENTH)] * count, delta=MILLIONTH)


def test_mixed_steps_keep_their_delta():
    assert advanced_mixed_up([], delta=MILLIONTH) == 0
    with pytest.raises(SpecError, check=about("delta")):
        advanced_mixed_up([ApproxDP(TENTH, MILLIONTH)], delta=MILLIONTH)


@pytest.mark.parametrize(("epsilon", "count", "total"), [
    (0.5, 5, 1.0), (1.0, 3, 0.7), (0.1, 20, 0.4), (1.0, 8, 4.0),
])  # fmt: skip
def test_the_worst_shift_of_exponential_mechanisms_is_among_the_candidates(epsilon, count, total):
    def delta(shift):
        high = (math.exp(-shift) - math.exp(-epsilon)) / (1 - math.exp(-epsilon))
        return sum(
            math.comb(count, i) * high ** (count - i) * (1 - high) ** i
            * max(0.0, math.exp(count * shift - i * epsilon) - math.exp(total))
            for i in range(count + 1)
        )  # fmt: skip

    dense = max(delta(epsilon * step / 5000) for step in range(5001))
    found = exponential_delta_up(Fraction(epsilon), count=count, total=Fraction(total))
    assert dense * (1 - 1e-12) <= found <= dense * (1 + 1e-5)


def test_exponential_mechanisms_compose_better_than_any_pure_steps():
    choices = exponential_epsilon_up(TENTH, count=50, delta=MILLIONTH)
    assert choices < optimal_epsilon_up(TENTH, count=50, delta=MILLIONTH)
    assert exponential_delta_up(TENTH, count=50, total=choices) <= MILLIONTH
    one = exponential_epsilon_up(TENTH, count=1, delta=Fraction(1, 10**12))
    assert float(one) == pytest.approx(0.1, rel=1e-5)


def test_more_steps_never_cost_less():
    found = [optimal_epsilon_up(TENTH, count=k, delta=MILLIONTH) for k in (1, 2, 3, 10, 30, 100)]
    assert all(less <= more for less, more in pairwise(found))


@pytest.mark.parametrize(("epsilon", "count", "slack"), [(0, 1, 1), (1, 0, 1), (1, True, 1)])
def test_impossible_compositions_are_refused(epsilon, count, slack):
    with pytest.raises(SpecError):
        exponential_epsilon_up(Fraction(epsilon), count=count, delta=Fraction(slack))


def test_a_slack_outside_the_unit_interval_is_refused():
    with pytest.raises(SpecError, check=about("delta")):
        exponential_epsilon_up(TENTH, count=1, delta=Fraction(0))
