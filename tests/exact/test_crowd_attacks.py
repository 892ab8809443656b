"""Attacks on the curve of crowds: corners of p, k and ε, other mechanisms, other floats."""

import warnings
from fractions import Fraction
from itertools import pairwise, product
from math import comb, exp

import numpy as np
import pytest

from noisegate.accounting import crowd as room
from noisegate.accounting.biased import biased_delta, biased_form
from noisegate.accounting.crowd import (
    blended_delta,
    change_one,
    closed_form,
    histogram_delta,
)
from noisegate.accounting.pure import pure_loss
from noisegate.errors import SpecError
from noisegate.exact import exp_down, log_up
from noisegate.privacy.event import CrowdCountsEvent
from noisegate.privacy.loss import ApproxDP
from refusals import about

HALF = Fraction(1, 2)
NEAR = Fraction(1, 10**13)  # a double at 0.7 has steps of 10⁻¹⁶


def law(people, crowd):
    """Of what one cell shows, for people with these probabilities."""
    found = {0: Fraction(1)}
    for p in people:
        more = {}
        for count, chance in found.items():
            more[count] = more.get(count, 0) + chance * (1 - p)
            more[count + 1] = more.get(count + 1, 0) + chance * p
        found = more
    hidden = sum((chance for count, chance in found.items() if count < crowd), Fraction(0))
    return {0: hidden} | {count: chance for count, chance in found.items() if count >= crowd}


def divergence(one, other, grown):
    """The larger of both directions."""
    pairs = (one, other), (other, one)
    return max(
        sum(max(a.get(y, 0) - grown * b.get(y, 0), Fraction(0)) for y in {*a, *b}) for a, b in pairs
    )


def worst(p, crowd, epsilon, most):
    """The largest of all cells with up to ``most`` others."""
    grown = exp_down(epsilon)
    laws = [law([p] * people, crowd) for people in range(most + 2)]
    return max(divergence(*pair, grown) for pair in pairwise(laws))


CORNERS = [
    (p, crowd, log_up(1 / (1 - p)) * times)
    for p, crowd in [
        (Fraction(1, 9), 4), (HALF, 1), (HALF, 7), (Fraction(9, 10), 3),
        (1 - Fraction(1, 10**9), 2), (1 - Fraction(1, 1000), 9),
    ]
    for times in (Fraction(1, 10**5), Fraction(2, 3), 1 - NEAR, Fraction(1), 1 + NEAR, Fraction(3))
] + [
    (p, crowd, epsilon)
    for p, crowd in [(Fraction(1, 10**9), 1), (Fraction(1, 3000), 3)]
    for epsilon in (Fraction(1, 10), Fraction(3), Fraction(30))
]  # fmt: skip


@pytest.fixture(params=["long doubles", "doubles"])
def floats(request, monkeypatch):
    """Where a long double is a double, as on some machines."""

    class Plain:
        longdouble = np.float64

        def __getattr__(self, name):
            return getattr(np, name)

    if request.param == "doubles":
        monkeypatch.setattr(room, "np", Plain())
    histogram_delta.cache_clear()
    yield
    histogram_delta.cache_clear()


@pytest.mark.usefixtures("floats")
def test_no_neighbours_at_a_corner_are_further_apart_than_the_curve_says():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for p, crowd, epsilon in CORNERS:
            exact = worst(p, crowd, epsilon, 14)
            assert exact <= histogram_delta(p, crowd, epsilon), (p, crowd, epsilon)
            general = blended_delta(p, crowd, Fraction(0), epsilon)
            assert exact <= general, (p, crowd, epsilon)


def test_beyond_all_doubt_one_more_person_is_seen_where_all_are_sampled():
    """At a large ε only the table of k sampled people tells, which has the chance p^k."""
    for p, epsilon in product((Fraction(1, 3000), Fraction(7, 10)), (30, 39, 60, 99)):
        found = histogram_delta(p, 2, Fraction(epsilon))
        assert 0 <= found - p**2 < found / 10**9


def test_a_curve_of_coming_alone_would_be_below_the_truth():
    """A general mechanism that may be left: below ln 1/(1 - p) leaving costs more than coming."""
    p, crowd, epsilon = HALF, 20, log_up(Fraction(2)) * Fraction(3, 5)
    assert blended_delta(p, crowd, Fraction(0), epsilon) > 8 * histogram_delta(p, crowd, epsilon)


@pytest.mark.usefixtures("floats")
def test_the_search_ends_where_nothing_is_hidden_with_the_truth():
    """However small ε: the largest is found among few others, and is no more than it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for (p, crowd), epsilon in product(
            ((HALF, 1), (HALF, 5), (Fraction(1, 3), 4)), (Fraction(3, 100), Fraction(1, 10**9))
        ):
            found = histogram_delta(p, crowd, epsilon)
            assert 0 <= found - worst(p, crowd, epsilon, 20) < Fraction(1, 10**11)


def test_probabilities_that_floats_take_for_0_or_1_are_refused():
    for p in (Fraction(1, 10**400), 1 - Fraction(1, 10**20)):
        with pytest.raises(SpecError, check=about("sample")):
            histogram_delta(p, 2, HALF)


def test_nobody_is_more_than_alike():
    less = Fraction(-1, 10)
    for claim in (
        lambda: closed_form(HALF, 20, less),
        lambda: biased_form(HALF, HALF, 20, less),
        lambda: blended_delta(HALF, 20, less, Fraction(1)),
    ):
        with pytest.raises(SpecError, check=about("within")):
            claim()


EVENTS = [
    CrowdCountsEvent(probability=p, crowd=crowd, epsilon=epsilon)
    for p, crowd, epsilon in product(
        (Fraction(1, 10), HALF), (20, 60), (Fraction(1, 5), Fraction(1))
    )
]
CHARGED = [pure_loss(event) for event in EVENTS]


@pytest.mark.usefixtures("floats")
def test_other_floats_charge_the_same():
    """Else a ledger that is verified on another machine would seem to have charged too little."""
    assert [pure_loss(event) for event in EVENTS] == CHARGED
    for event, charged in zip(EVENTS, CHARGED, strict=True):
        curve = histogram_delta(event.probability, event.crowd, event.epsilon)
        assert curve <= charged.delta <= curve * (1 + Fraction(1, 10**5))


def noisy(people, p, crowd, within, *, own):
    """Of a count of at least k and a sum with noise: swapping a 0 for a 1 moves it by e^within.

    Others have 0; ``own`` is the number of the one person who has 1.
    """
    alpha, found = exp(-within), {}
    for others, here in product(range(people + 1), range(own + 1)):
        chance = comb(people, others) * p**others * (1 - p) ** (people - others)
        chance *= (p if here else 1 - p) if own else 1
        if others + here < crowd:
            found[None] = found.get(None, 0.0) + chance
            continue
        for shown in range(-40, 41):
            mass = (1 - alpha) / (1 + alpha) * alpha ** abs(shown - here)
            key = others + here, shown
            found[key] = found.get(key, 0.0) + chance * mass
    return found


@pytest.mark.parametrize("within", [Fraction(1, 2), Fraction(2)])
@pytest.mark.parametrize("p", [Fraction(1, 5), HALF])
def test_a_mechanism_with_noise_keeps_the_general_theorem(p, within):
    """Both directions, near the least ε too, where most is charged to δ. Floats: to 10⁻¹²."""
    crowd = 4
    least = room.least_epsilon(p, within)
    for epsilon in (least, least * Fraction(5, 4), least * 3):
        delta, grown = float(blended_delta(p, crowd, within, epsilon)), exp(epsilon)
        for people in (3, 4, 7, 15):
            one, other = (noisy(people, float(p), crowd, float(within), own=n) for n in (1, 0))
            assert divergence(one, other, grown) <= delta + 1e-12


@pytest.mark.parametrize("probabilities", [(1, 1, 1), (3, 1, 2), (3, 3, 3), (1, 3, 3)])
@pytest.mark.parametrize("known", [(), (0,), (1,), (0, 1)])
def test_people_with_odds_of_their_own_keep_the_biased_form(probabilities, known):
    """Others with tenths of these probabilities, and some of whom the attacker knows all."""
    least, most, crowd = Fraction(1, 10), Fraction(3, 10), 4
    loss = biased_form(least, most, crowd, odd=len(known))
    others = [Fraction(n, 10) for n in probabilities * 3] + [Fraction(n) for n in known]
    grown = exp_down(loss.epsilon)
    for count, own in product(range(len(others) + 1), (least, most)):
        crowded = others[len(others) - count :]
        apart = divergence(law([*crowded, own], crowd), law(crowded, crowd), grown)
        assert apart <= loss.delta


@pytest.mark.parametrize("probabilities", [(1, 1, 1), (3, 1, 2), (3, 3, 3), (1, 3, 3)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(6, 5), Fraction(2)])
def test_counts_of_a_biased_sample_keep_their_delta_in_both_directions(probabilities, epsilon):
    """Every size of a cell up to 12 others, exactly."""
    least, most, crowd = Fraction(1, 10), Fraction(3, 10), 4
    delta, grown = biased_delta(least, most, crowd, epsilon), exp_down(epsilon)
    others = [Fraction(n, 10) for n in probabilities * 4]
    for count, own in product(range(len(others) + 1), (least, most)):
        crowded = others[:count]
        one, other = law([*crowded, own], crowd), law(crowded, crowd)
        assert divergence(one, other, grown) <= delta
        assert divergence(other, one, grown) <= delta


def test_one_who_is_surely_there_has_no_guarantee():
    known = [Fraction(1)] * 3
    assert divergence(law([*known, Fraction(1)], 4), law(known, 4), Fraction(10**9)) == 1


def test_a_change_of_one_person_keeps_its_own_guarantee():
    """Two cells: the person moves from one to the other."""
    p, crowd, epsilon = Fraction(3, 10), 2, Fraction(2, 5)
    loss = change_one(p, ApproxDP(epsilon, histogram_delta(p, crowd, epsilon)))
    grown = exp_down(loss.epsilon)
    for left, right in product(range(6), repeat=2):
        laws = [
            {
                (a, b): one * other
                for a, one in law([p] * (left + here), crowd).items()
                for b, other in law([p] * (right + 1 - here), crowd).items()
            }
            for here in (0, 1)
        ]
        assert divergence(*laws, grown) <= loss.delta
