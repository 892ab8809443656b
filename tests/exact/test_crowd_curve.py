"""The curve of sample-then-suppress, beside exhaustive enumeration and figures found elsewhere."""

from fractions import Fraction
from itertools import pairwise, product
from math import comb, exp, log

import numpy as np
import pytest

from noisegate.accounting import crowd as room
from noisegate.accounting.biased import biased_delta, biased_form
from noisegate.accounting.crowd import (
    blended_delta,
    change_one,
    closed_form,
    histogram_delta,
    least_crowd,
    least_epsilon,
    least_loss,
)
from noisegate.errors import SpecError
from noisegate.exact import exp_down, log_up
from noisegate.privacy.loss import ApproxDP

TENTH, HALF = Fraction(1, 10), Fraction(1, 2)


def released(people: tuple[int, ...], p: Fraction, crowd: int) -> dict[tuple[int, ...], Fraction]:
    """The law of the table of two cells, by all samples of the people."""
    law: dict[tuple[int, ...], Fraction] = {}
    for sample in product((False, True), repeat=len(people)):
        chance = Fraction(1)
        counts = [0, 0]
        for person, taken in zip(people, sample, strict=True):
            chance *= p if taken else 1 - p
            counts[person] += taken
        shown = tuple(count if count >= crowd else 0 for count in counts)
        law[shown] = law.get(shown, Fraction(0)) + chance
    return law


def hockey_stick(one: dict, other: dict, grown: Fraction) -> Fraction:
    return sum(
        (max(chance - grown * other.get(shown, 0), Fraction(0)) for shown, chance in one.items()),
        Fraction(0),
    )


@pytest.mark.parametrize("p", [Fraction(1, 5), HALF, Fraction(4, 5)])
@pytest.mark.parametrize("crowd", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(7, 10), Fraction(2)])
def test_the_curve_is_the_divergence_of_all_neighbours(p, crowd, epsilon):
    grown = exp_down(epsilon)
    worst = Fraction(0)
    for size in range(1, 7):
        here, less = (released((0,) * n + (1,) * 2, p, crowd) for n in (size, size - 1))
        worst = max(worst, hockey_stick(here, less, grown), hockey_stick(less, here, grown))
    delta = histogram_delta(p, crowd, epsilon)
    assert delta >= worst
    larger = worst
    for size in range(7, 40):  # one cell alone: the others have the same law on both sides
        here, less = (cell(n, p, crowd) for n in (size, size - 1))
        larger = max(larger, hockey_stick(here, less, grown), hockey_stick(less, here, grown))
    assert 0 <= delta - larger < Fraction(1, 10**12)


def cell(people: int, p: Fraction, crowd: int) -> dict[int, Fraction]:
    law = {y: comb(people, y) * p**y * (1 - p) ** (people - y) for y in range(people + 1)}
    hidden = sum((law[y] for y in law if y < crowd), Fraction(0))
    return {0: hidden, **{y: chance for y, chance in law.items() if y >= crowd}}


ORACLES = [
    (TENTH, 20, 4.038e-5), (TENTH, 50, 3.569e-8), (Fraction(3, 10), 20, 1.769e-4),
    (Fraction(3, 10), 50, 1.789e-7), (HALF, 20, 6.003e-4), (HALF, 50, 9.241e-7),
    (HALF, 100, 5.301e-11),
]  # fmt: skip


@pytest.mark.parametrize(("p", "crowd", "delta"), ORACLES)
def test_known_points(p, crowd, delta):
    epsilon = log_up(1 / (1 - p))
    assert float(histogram_delta(p, crowd, epsilon)) == pytest.approx(delta, rel=6e-4)
    assert float(blended_delta(p, crowd, Fraction(0), epsilon)) == pytest.approx(delta, rel=6e-4)


def test_a_known_point_beside_an_older_bound():
    assert float(histogram_delta(TENTH, 20, HALF)) == pytest.approx(2.632e-11, rel=2e-4)  # [LQS12]


@pytest.mark.parametrize(
    ("p", "crowds"), [("0.05", (32, 63)), ("0.1", (36, 67)), ("0.25", (41, 73)), ("0.5", (50, 85))]
)
def test_least_crowds(p, crowds):
    epsilon = log_up(1 / (1 - Fraction(p)))
    targets = (ApproxDP(epsilon, "1e-6"), ApproxDP(epsilon, "1e-9"))
    assert tuple(least_crowd(Fraction(p), target) for target in targets) == crowds


def test_any_blending_mechanism_pays_at_least_what_a_table_of_counts_does():
    for epsilon in (Fraction(1, 5), Fraction(2, 5), Fraction(1)):
        counts = histogram_delta(Fraction(3, 10), 10, epsilon)
        assert counts <= blended_delta(Fraction(3, 10), 10, Fraction(0), epsilon) * (1 + TENTH**9)


def test_the_closed_form_is_above_the_curve():
    for p, crowd, within in product((TENTH, HALF), (20, 50), (Fraction(0), Fraction(1, 2))):
        loss = closed_form(p, crowd, within)
        assert blended_delta(p, crowd, within, loss.epsilon) <= loss.delta
    loss = closed_form(HALF, 50)
    assert float(loss.delta) == pytest.approx(1.632e-4, rel=6e-4)
    assert float(loss.epsilon) == pytest.approx(log(2), rel=1e-12)
    assert float(closed_form(HALF, 50, fraction=Fraction(9, 10)).delta) < 2e-9


def test_even_sampling_is_a_case_of_biased_sampling():
    even, biased = (
        closed_form(TENTH, 40, Fraction(1, 3)),
        biased_form(TENTH, TENTH, 40, Fraction(1, 3)),
    )
    assert float(biased.epsilon) == pytest.approx(float(even.epsilon), rel=1e-15)
    assert biased.delta == even.delta
    wide = biased_form(TENTH, Fraction(1, 5), 40, Fraction(1, 3), odd=5)
    assert wide.epsilon > even.epsilon
    assert wide.delta > even.delta


def test_more_crowd_less_delta():
    deltas = [histogram_delta(Fraction(1, 4), k, Fraction(1, 5)) for k in range(5, 30)]
    assert all(more > less for more, less in pairwise(deltas))


def test_least_loss_turns_the_curve_round():
    p, crowd, delta = Fraction(1, 4), 30, Fraction(1, 10**5)
    for within in (None, Fraction(1, 10)):
        epsilon = least_loss(p, crowd, delta, within=within)
        less = epsilon * (1 - Fraction(1, 10**4))
        if within is None:
            assert histogram_delta(p, crowd, epsilon) <= delta < histogram_delta(p, crowd, less)
        else:
            assert blended_delta(p, crowd, within, epsilon) <= delta
            assert blended_delta(p, crowd, within, less) > delta


def test_a_change_costs_less_than_two_steps():
    loss = change_one(TENTH, ApproxDP("0.2", "1e-6"))
    assert float(loss.epsilon) == pytest.approx(0.2 - log(0.9), rel=1e-12)
    assert loss.delta == Fraction(1, 10**6)


def test_small_probabilities_are_searched_to_the_end():
    p, epsilon = Fraction(1, 100), Fraction(1, 20)
    found = histogram_delta(p, 8, epsilon)
    sizes = range(117, 126, 2)
    tried = [hockey_stick(cell(n, p, 8), cell(n - 1, p, 8), exp_down(epsilon)) for n in sizes]
    assert max(tried) <= found < max(tried) * Fraction(101, 100)


def sides(p, crowd, epsilon, most):
    """The divergence of a cell with 0, 1, … others and one with a person more; and the reverse."""
    laws, grown = [cell(n, p, crowd) for n in range(most + 2)], exp_down(epsilon)
    come = [hockey_stick(more, less, grown) for less, more in pairwise(laws)]
    return come, [hockey_stick(less, more, grown) for less, more in pairwise(laws)]


@pytest.mark.parametrize("p", [Fraction(1, 4), HALF, Fraction(4, 5)])
@pytest.mark.parametrize("crowd", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(1, 5), Fraction(1, 2)])
def test_both_directions_are_worst_where_the_proof_has_it(p, crowd, epsilon, monkeypatch):
    search = room._Search(np.longdouble(float(p)), crowd, 0.0, float(epsilon))
    come, leave = sides(p, crowd, epsilon, 50)
    assert come[search.crossing(search.high)] == max(come)
    assert not search.both or leave[search.crossing(search.low)] == max(leave)
    found = histogram_delta.__wrapped__(p, crowd, epsilon)
    assert 0 <= found - max(*come, *leave) < found / 10**15
    monkeypatch.setattr(room._Search, "crossing", lambda *_: 3 * crowd + 20)
    assert histogram_delta.__wrapped__(p, crowd, epsilon) < max(come)  # a search elsewhere


def test_an_epsilon_that_needs_many_people_has_an_exact_price_at_once():
    """Leaving would be worst among two million others, of whom fewer than 120 are never sampled."""
    found = float(histogram_delta(Fraction(1, 100), 120, Fraction(1, 100)))
    assert found == pytest.approx(1.41697e-15, rel=1e-5)  # the sum of `scipy.stats.binom`


@pytest.mark.parametrize(
    "call",
    [
        lambda: histogram_delta(Fraction(1), 5, HALF),
        lambda: histogram_delta(HALF, 0, HALF),
        lambda: histogram_delta(HALF, 5, Fraction(0)),
        lambda: histogram_delta(HALF, 100_000, HALF),
        lambda: blended_delta(HALF, 5, Fraction(1), HALF),
        lambda: closed_form(HALF, 5, fraction=HALF),
        lambda: biased_form(HALF, TENTH, 5),
        lambda: biased_delta(HALF, TENTH, 5, Fraction(1)),
        lambda: biased_delta(TENTH, HALF, 5, Fraction(1, 2)),
        lambda: biased_form(TENTH, HALF, 5, odd=5),
        lambda: change_one(Fraction(1), ApproxDP(1)),
        lambda: least_crowd(HALF, ApproxDP(1)),
        lambda: least_loss(HALF, 5, Fraction(0)),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(SpecError):
        call()


def test_where_blending_begins():
    assert least_epsilon(HALF, Fraction(0)) == 0
    assert float(least_epsilon(HALF, Fraction(1))) == pytest.approx(log(1 + (exp(1) - 1) / 2))


def test_two_tables_of_one_sample_tell_more_than_two_samples():
    """All people, and all but one: their difference is that person. Fresh samples hide it."""
    p, crowd, epsilon, others = HALF, 6, Fraction(7, 10), 16
    grown = exp_down(2 * epsilon)  # what two releases promise together
    delta = histogram_delta(p, crowd, epsilon)

    def shown(count):
        return count if count >= crowd else 0

    def one_sample(people):
        law = {}
        for y, person in product(range(others + 1), range(people + 1)):
            chance = comb(others, y) * p ** (others + people)
            key = shown(y + person), shown(y)
            law[key] = law.get(key, 0) + chance
        return law

    def two_samples(people):
        first, second = cell(others + people, p, crowd), cell(others, p, crowd)
        pairs = product(first.items(), second.items())
        return {(a, b): chance * other for (a, chance), (b, other) in pairs}

    broken, kept = (hockey_stick(law(1), law(0), grown) for law in (one_sample, two_samples))
    assert kept <= 2 * delta
    assert broken > Fraction(4, 10) > 2 * delta
