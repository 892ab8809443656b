"""The fast quantiles against a slow reference: the same runs, the same hidden digits, the same law.

The reference lists runs value by value and draws the digits of ties after sorting, as one would
write it down. Laws are exact: every outcome of every digit and call is walked, nothing is sampled.
"""

from collections import Counter
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, permutations, product
from math import ceil, exp, floor

import numpy as np
import pytest

from noisegate.mechanisms.quantiles import quantiles
from noisegate.mechanisms.quantiles.quantiles import Quantiles, plan
from noisegate.mechanisms.quantiles.ranks import _far_runs, runs_near
from noisegate.noise.bits import Bits

LEVELS = [Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(89, 97), Fraction(1)]


class Script(Bits):
    """Gives the listed digits, once."""

    def __init__(self, digits):
        self._digits = digits

    def words(self, count, width):
        assert count == len(self._digits)
        assert all(digit < 1 << width for digit in self._digits)
        return np.array(self._digits, np.uint16)


# --- runs ----------------------------------------------------------------------------------------


def slow_runs(data, tau, points, reach):
    """Distinct values and gaps of the window, one at a time, from the definition of a score."""
    goal, data = tau * len(data), sorted(data)
    low, high = max(0, floor(goal) - reach), min(len(data), ceil(goal) + reach)
    if low > 0:
        low = sum(x < data[low] for x in data)
    if high < len(data):
        high = sum(x <= data[high - 1] for x in data)
    values = sorted(set(data[low:high]))
    runs = [(value, 1) for value in values]
    runs += [(a + 1, b - a - 1) for a, b in pairwise(values)]
    if low == 0:
        runs.append((0, values[0] if values else points))
    if high == len(data) and values:
        runs.append((values[-1] + 1, points - values[-1] - 1))
    return {(first, length, score(data, first, tau)) for first, length in runs if length}


def score(data, point, tau):
    goal = tau * len(data)
    upto, below = sum(x <= point for x in data), sum(x < point for x in data)
    return -int(max(0, goal - upto, below - goal) * tau.denominator)


def listed(runs):
    rows = zip(runs.first.tolist(), runs.length.tolist(), runs.score.tolist(), strict=True)
    found = [row for row in rows if row[1]]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("tau", LEVELS)
@pytest.mark.parametrize("points", [4, 60, 10**12])
def test_runs_are_those_of_the_slow_reference_with_and_without_ties(tau, points):
    chance = np.random.default_rng(points % 1009)  # public test data, not noise
    for count in (0, 1, 2, 40, 90):
        data = np.sort(chance.integers(0, points, count))
        for reach in (1, 5, 30, 200):
            near, is_all = runs_near(data, tau, points=points, reach=reach)
            assert listed(near) == slow_runs(data.tolist(), tau, points, reach)
            whole = slow_runs(data.tolist(), tau, points, count + 1)
            far = set() if is_all else listed(_far_runs(data, tau, near, points=points))
            assert listed(near) | far == whole
            assert not listed(near) & far


# --- hidden digits -------------------------------------------------------------------------------


@pytest.mark.parametrize("tie_bits", [1, 2])
def test_digits_given_before_sorting_have_the_law_of_digits_given_after(tie_bits):
    mechanism = Quantiles.for_epsilon(1, taus=("1/2",), low=0, high=9, tie_bits=tie_bits)
    size = 1 << tie_bits
    for values in [(), (4,), (3, 3, 3), (0, 9, 0), (9, 4, 4, 0)]:
        scripts = list(product(range(size), repeat=len(values)))
        slow = Counter(
            tuple(sorted(x * size + d for x, d in zip(sorted(values), script, strict=True)))
            for script in scripts
        )
        for order in set(permutations(values)):
            fast = Counter(
                tuple(mechanism._keys(np.array(order, np.int64), Script(script)).tolist())
                for script in scripts
            )
            assert fast == slow


# --- the joint law -------------------------------------------------------------------------------


def chances(block, goal, points):
    errors = [-score(block, point, goal.tau) / goal.tau.denominator for point in range(points)]
    weights = [exp(-float(goal.factor) * error) for error in errors]
    return [weight / sum(weights) for weight in weights]


def fast_law(monkeypatch, mechanism, data):
    """The law of `Quantiles.sample`: all digits, and all outcomes of each call, walked."""
    digits = list(product(range(1 << mechanism.tie_bits), repeat=len(data)))
    law, scripts = Counter(), [(given, (), 1 / len(digits)) for given in digits]
    while scripts:
        given, script, chance = scripts.pop()
        left = iter(script)

        def walk(block, goal, times, *, points, bits, left=left, so_far=(given, script, chance)):
            point = next(left, None)
            if point is None:
                digits, before, chance = so_far
                odds = chances(block.tolist(), goal, points)
                scripts.extend((digits, (*before, i), chance * odds[i]) for i in range(points))
                raise StopIteration
            return point

        monkeypatch.setattr(quantiles, "private_ranks", walk)
        try:
            found = mechanism.sample(np.array(data, np.int64), bits=Script(given))
        except StopIteration:
            continue
        law[tuple(found.tolist())] += chance
    return law


def slow_law(mechanism, data):
    """The same from the description: sort, give digits, cut at what was released."""
    law, size, last = Counter(), 1 << mechanism.tie_bits, len(mechanism.taus)
    digits = list(product(range(size), repeat=len(data)))
    for given in digits:
        keys = [x * size + digit for x, digit in zip(sorted(data), given, strict=True)]
        states = [({-1: 0, last: mechanism.points * size - 1}, 1.0)]
        for epsilon, nodes in zip(mechanism.epsilon_levels, plan(mechanism.taus), strict=True):
            for node in nodes:
                states = list(_deeper(states, keys, node, epsilon, last))
        for released, chance in states:
            found = tuple(released[i] // size for i in range(last))
            law[found] += chance / len(digits)
    return law


def _deeper(states, keys, node, epsilon, last):
    factor = epsilon / (2 * max(node.tau, 1 - node.tau))
    goal = quantiles.RankGoal(node.tau, factor)
    for released, chance in states:
        low, high = released[node.left], released[node.right]
        block = [key - low for key in keys if low <= key and (key < high or node.right == last)]
        for point, odds in enumerate(chances(block, goal, high - low + 1)):
            yield {**released, node.index: low + point}, chance * odds


@pytest.mark.parametrize("taus", [("1/2",), ("1/3", "2/3"), ("1/4", "1/2", "3/4")])
@pytest.mark.parametrize("tie_bits", [0, 1])
def test_the_joint_law_of_all_quantiles_is_that_of_the_slow_reference(monkeypatch, taus, tie_bits):
    mechanism = Quantiles.for_epsilon(3, taus=taus, low=0, high=2 - tie_bits, tie_bits=tie_bits)
    for count in range(4 - tie_bits):
        for data in combinations_with_replacement(range(3 - tie_bits), count):
            fast = fast_law(monkeypatch, mechanism, data[::-1])
            slow = slow_law(mechanism, data)
            assert fast.keys() == slow.keys()
            assert abs(sum(fast.values()) - 1) < 1e-12
            assert all(abs(fast[found] - slow[found]) < 1e-12 for found in slow)
