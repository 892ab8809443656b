"""A recipe about one secret sample, in closed form: its price, what is given back, broken prices.

A unit in the sample moves each count by 1. The second question is chosen by the first answer, so
recipes end with different prices; each transcript is compared with its own.
"""

from fractions import Fraction
from itertools import product
from math import exp, log

import pytest

from noisegate.accounting.amplification import inner_epsilon_down, poisson
from noisegate.privacy.loss import ApproxDP

REACH = 40  # of the noise that is added up: beyond there is less than e^-20
CASES = [(Fraction(1, 2), 1, 1), (Fraction(1, 10), 2, 2), (Fraction(9, 10), Fraction(1, 2), 3)]


def price(epsilon, p):
    return float(poisson(ApproxDP(epsilon), probability=p).epsilon)


def mass(noise, epsilon):
    alpha = exp(-float(epsilon))
    return (1 - alpha) / (1 + alpha) * alpha ** abs(noise)


def transcripts(first, second):
    """(what was asked, chance without the unit, chance with it in the sample)."""
    for one in range(-REACH, REACH + 1):
        here, there = mass(one, first), mass(one - 1, first)
        if one <= 0:  # then it ends
            yield first, here, there
            continue
        for two in range(-REACH, REACH + 1):
            yield first + second, here * mass(two, second), there * mass(two - 1, second)


def ratios(first, second, p):
    """For each transcript the ε that it asked of the sample, and its log-ratio."""
    chance = float(p)
    for asked, without, inside in transcripts(first, second):
        yield asked, log(1 - chance + chance * inside / without)


@pytest.mark.parametrize(("p", "first", "second"), CASES)
def test_each_transcript_is_within_the_amplified_price_of_what_it_asked(p, first, second):
    found = {}
    for asked, ratio in ratios(first, second, p):
        found.setdefault(asked, []).append(ratio)
    assert set(found) == {first, first + second}
    for asked, seen in found.items():
        assert max(seen) <= price(asked, p) + 1e-12
        assert min(seen) >= -price(asked, p) - 1e-12
    whole = found[first + second]
    assert max(whole) == pytest.approx(price(first + second, p), abs=1e-9)  # it is attained


@pytest.mark.parametrize(("p", "first", "second"), CASES)
def test_amplifying_each_question_by_itself_would_promise_too_much(p, first, second):
    """The broken price: one sample, charged as if each question had a sample of its own."""
    worst = max(ratio for _, ratio in ratios(first, second, p))
    assert worst > price(first, p) + price(second, p) + 0.03


@pytest.mark.parametrize(("p", "first", "second"), CASES)
def test_two_recipes_with_the_same_coins_would_pass_the_sum_of_their_prices(p, first, second):
    """Keys are never used twice: with own coins, two recipes are two independent mixtures."""
    chance = float(p)
    for one, two in product((first, second), repeat=2):
        shared = log(1 - chance + chance * exp(float(one + two)))  # both answers tell most
        own = sum(log(1 - chance + chance * exp(float(each))) for each in (one, two))
        assert own == pytest.approx(price(one, p) + price(two, p))
        assert shared > own + 0.01


@pytest.mark.parametrize("p", [Fraction(1, 100), Fraction(1, 3), Fraction(9, 10)])
def test_fresh_coins_for_each_question_cost_no_more_than_one_sample(p):
    """The amplified price is convex and 0 at 0: one sample is the dearer way, and is what is paid.

    So a sample that were drawn anew between questions would break no promise, only the numbers.
    """
    for one, two in product((Fraction(1, 10), Fraction(1), Fraction(5)), repeat=2):
        assert price(one, p) + price(two, p) <= price(one + two, p)


@pytest.mark.parametrize("p", [Fraction(1, 100), Fraction(1, 3), Fraction(9, 10)])
def test_steps_given_the_past_add_up_to_less_than_half_the_square(p):
    """What a filter of zCDP needs: the factor of each step, given any past, in both directions.

    Before the step the unit is r times likelier in the sample, up to e^past; the step changes that
    by e^±step. Its price is the growth of ε', and the squares of all growths are at most the
    square of their sum.
    """
    chance, past = float(p), Fraction(0)
    growths = []
    for step in (Fraction(1, 2), Fraction(2), Fraction(1, 10), Fraction(3)):
        grown = price(past + step, p) - price(past, p)
        for r in (exp(-float(past)), 1.0, exp(float(past) / 2), exp(float(past))):
            before = 1 - chance + chance * r
            for sign in (1, -1):
                after = 1 - chance + chance * r * exp(sign * float(step))
                assert abs(log(after / before)) <= grown + 1e-12
        growths.append(grown)
        past += step
    assert sum(growths) == pytest.approx(price(past, p))
    assert sum(each**2 for each in growths) <= price(past, p) ** 2


@pytest.mark.parametrize("p", [Fraction(1, 1000), Fraction(1, 3), Fraction(99, 100)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(10)])
def test_the_recipe_gets_all_that_the_price_buys(p, epsilon):
    inner = inner_epsilon_down(epsilon, probability=p)
    assert poisson(ApproxDP(inner), probability=p).epsilon <= epsilon + Fraction(1, 10**15)
    assert price(inner, p) == pytest.approx(float(epsilon), rel=1e-12)
    assert inner > epsilon
