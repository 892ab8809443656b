"""Counts of a secret sample at the door: what they are about, what they cost, what they show."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from door import FINE, ONE, by, curator, domain
from noisegate.accounting.crowd import histogram_delta
from noisegate.accounting.pure import pure_loss
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Sums
from noisegate.curator.measurement import Measurement
from noisegate.errors import OverBudget, SpecError, Unsupported
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.privacy.distance import L1
from noisegate.privacy.event import CrowdCountsEvent, decode, encode
from noisegate.transforms.query import Query

HALF = Fraction(1, 2)
CROWD = CrowdCounts(probability=HALF, crowd=10, epsilon=Fraction(7, 10))


def asked(unit=None, term=ONE, cap=None, mechanism=CROWD, terms=1):
    tally = Sums(
        relation=Table(domain(unit)),
        by=(by("ward", "north", "south", "west"),),
        terms=(term,) * terms,
        rows_per_unit=cap,
    )
    return Measurement(query=Query(tally), mechanisms=(mechanism,) * terms)


def test_a_use_costs_its_point_of_the_curve():
    event = asked().event()
    assert event == CrowdCountsEvent(probability=HALF, crowd=10, epsilon="0.7")
    assert decode(encode(event)) == event
    loss = pure_loss(event)
    curve = histogram_delta(HALF, 10, Fraction(7, 10))
    assert loss.epsilon == Fraction(7, 10)
    assert 1 <= loss.delta / curve < 1 + Fraction(1, 10**5)  # few digits, rounded up


def test_the_door_shows_large_counts_of_a_sample_and_charges_first():
    """False alarm: 10⁻¹¹, the chance that fewer than 10 of 75 coins show heads."""
    gatekeeper = curator(budget=1, delta="0.05")
    shown = gatekeeper.measure(asked()).values[0]
    north, south, west = shown.tolist()
    assert 10 <= north <= 75
    assert south == 0 or 10 <= south <= 25
    assert west == 0
    assert gatekeeper.ledger.balance(gatekeeper.account).spent.epsilon == Fraction(7, 10)
    assert (gatekeeper.measure(asked()).values[0] == shown).all()  # the same question is free
    with pytest.raises(OverBudget):
        gatekeeper.measure(asked(mechanism=CrowdCounts(probability=HALF, crowd=11, epsilon=HALF)))


@pytest.mark.parametrize(
    "refused",
    [
        lambda: asked(unit="id", term=FINE, cap=1),
        lambda: asked(unit="id", term=ONE, cap=1),
        lambda: asked(term=FINE),
        lambda: asked(terms=2),
    ],
)
def test_cells_that_count_no_people_are_refused(refused):
    with pytest.raises(Unsupported):
        refused()


def test_a_person_in_two_cells_has_no_price():
    with pytest.raises(SpecError):
        CROWD.event(L1(2))


@pytest.mark.parametrize(
    "change", [{"probability": 1}, {"probability": 0}, {"crowd": 0}, {"epsilon": 0}]
)
def test_nonsense_is_refused(change):
    with pytest.raises(SpecError):
        CrowdCounts(**{"probability": HALF, "crowd": 20, "epsilon": 1, **change})


def test_small_and_large_cells_have_the_binomial_law():
    """Each of six averages is beyond six standard errors once in 5 · 10⁸ runs."""
    mechanism = CrowdCounts(probability=Fraction(1, 3), crowd=4, epsilon=1)
    cells = np.array([0, 3, 5, 12, 1 << 20], np.int64)
    draws = np.stack([mechanism.sample(np.tile(cells, 200)) for _ in range(5)]).reshape(-1, 5)
    for people, found in zip(cells.tolist()[:4], draws.T[:4], strict=True):
        for value in range(4, people + 1):
            chance = binom.pmf(value, people, 1 / 3)
            spread = 6 * (chance * (1 - chance) / found.size) ** 0.5 + 6 / found.size
            assert abs(np.mean(found == value) - chance) < spread
        assert ((found == 0) | (found >= 4)).all()
    large = draws[:, 4] - (1 << 20) / 3
    assert abs(large.mean()) < 6 * (large.size * 2 / 9 * (1 << 20)) ** 0.5 / large.size
