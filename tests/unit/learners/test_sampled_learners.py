"""Itemsets and statistical queries about a secret sample: one amplified price, scaled up, with ±."""

from fractions import Fraction
from math import log

import numpy as np
import pyarrow as pa
import pytest

import noisegate as ng
from noisegate.accounting.pure import pure_loss
from noisegate.errors import SpecError
from noisegate.learners.items.families import fit_family
from noisegate.learners.items.itemsets import FrequentItemsets
from noisegate.learners.items.net import NetDatabase
from noisegate.learners.queries import StatisticalQueries
from noisegate.privacy.event import PoissonSampled, decode

P = Fraction(1, 4)
COUNT = 6000
ROWS = pa.table({
    "bread": np.arange(COUNT) % 2 == 0, "milk": np.arange(COUNT) % 4 == 0,
    "beer": np.arange(COUNT) % 3 == 0, "cost": np.arange(COUNT) % 101, "who": np.arange(COUNT) // 2,
})  # fmt: skip
COLUMNS = {"cost": {"type": "integer", "between": [0, 100]}}
ITEMS = ["bread", "milk", "beer"]
SURE = 1 - Fraction(1, 10**7)


def gate(**more):
    return ng.open(ROWS, epsilon=100, columns=COLUMNS, **more)


def event_of(door):
    kept = [each for each in door.history() if each.kind in ("reserve", "close")]
    return decode(kept[0].body["event"])


def test_itemsets_of_a_sample_are_scaled_up_and_their_error_holds_sampling():
    """Baskets of units: bread in all 3,000, milk in half. Each ± fails once in 10⁷ runs."""
    door = gate(unit="who", rows_per_unit=2)
    found = FrequentItemsets(epsilon=1, support=0.05).fit(door.sample(P).matrix(columns=ITEMS))
    event = event_of(door)
    assert isinstance(event, PoissonSampled)
    assert Fraction(999, 1000) < pure_loss(event).epsilon <= 1
    exact = {("bread",): 3000, ("milk",): 1500}
    counts = {each.items: each.count for each in found.itemsets_}
    for items, count in exact.items():
        assert abs(counts[items] - count) <= found.within(SURE)
    assert abs(found.rows_ - COUNT / 2) <= found.rows_within(SURE)
    assert 1.96 * (3000 * 3) ** 0.5 < found.within(0.95) < 6 * (COUNT * 3) ** 0.5
    again = FrequentItemsets(epsilon=1, support=0.05).fit(door.sample(P).matrix(columns=ITEMS))
    assert again.free_
    assert again.within(0.95) == found.within(0.95)


def test_means_of_a_sample_hold_sampling():
    """Means of 1/2 and 50 over 6,000 rows: each ± fails once in 10⁷ runs."""
    door = gate()
    found = door.sample(P).statistic(["bread", "cost"], epsilon=1)
    assert Fraction(999, 1000) < pure_loss(event_of(door)).epsilon <= 1
    exact = np.array([0.5, ROWS["cost"].to_numpy().mean()])
    assert (np.abs(found.values - exact) <= found.within(SURE)).all()
    assert found.within(0.95)[0] > 1.96 * 0.5 * (3 / COUNT) ** 0.5
    assert (found.within(0.95) < np.array([0.1, 10])).all()
    noise = door.statistic(["bread", "cost"], epsilon=1)
    assert (found.within(0.95) > 2 * noise.within(0.95)).all()
    assert abs(found.rows - COUNT) < 7 * (COUNT * 3) ** 0.5


def test_a_tolerance_about_a_sample_counts_what_sampling_adds():
    door = gate()
    made = door.sample(P).statistic(["bread"], tolerance=0.1, rows=COUNT)
    assert made.within(0.95)[0] <= 0.11
    with pytest.raises(SpecError):
        door.sample(P).statistic(["bread"], tolerance=0.02, rows=COUNT)  # sampling alone is wider


def test_a_session_of_statistical_queries_reads_one_sample():
    """Of one sample, those with bread and those without are all of it; noise is below 0.002."""
    door = gate()
    with StatisticalQueries(door.sample(P), epsilon=20, queries=2) as session:
        one, other = session.mean("bread"), session.mean("NOT bread")
        assert abs(one + other - 1) < 0.02
        assert abs(one - 0.5) <= session.measured("bread").within(SURE)[0]
    event = event_of(door)
    assert isinstance(event, PoissonSampled)
    assert Fraction(1999, 100) < pure_loss(event).epsilon <= 20


def test_a_family_fitted_to_a_sample_knows_less_of_its_parameters():
    """A mean of about 50 with a standard deviation of 29: beyond eight errors once in 10¹⁴ runs."""
    door = gate()
    part, whole = (
        fit_family(each, "gaussian", "cost", epsilon=20) for each in (door.sample(P), door)
    )
    seen = ROWS["cost"].to_numpy()
    error = part.errors["mean"]
    assert abs(part.parameters["mean"] - seen.mean()) < 8 * error
    assert 0.9 * seen.std() / (COUNT / 4) ** 0.5 < error < 1.3 * seen.std() / (COUNT / 4) ** 0.5
    assert error > 1.8 * whole.errors["mean"]
    assert abs(part.rows - COUNT) < 7 * (COUNT * 3) ** 0.5


def test_a_net_of_databases_is_chosen_for_a_sample_and_promises_what_that_adds():
    """Half have bread: a database of two rows says so, unless noise is beyond 20 scales."""
    door = gate()
    part, whole = (
        NetDatabase(epsilon=20, size=2).fit(each.matrix(columns=["bread"]))
        for each in (door.sample(P), door)
    )
    assert abs(part.rows_ - COUNT) < 7 * (COUNT * 3) ** 0.5
    assert abs(part.answer(bread=1) - COUNT / 2) <= part.promise(SURE)
    assert part.answer(bread=1) == pytest.approx(part.rows_ / 2)
    fewer = (log(5) / 4) ** 0.5 * (part.rows_ - whole.rows_)  # by which all shares of rows differ
    assert part.promise(0.95) - whole.promise(0.95) - fewer > 1.96 * (COUNT * 3) ** 0.5
    assert Fraction(1999, 100) < part.cost_.epsilon <= 20
