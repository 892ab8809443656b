"""Counts that decide which keys are shown: their exact law on all small neighbours.

A unit in several groups may be alone in some of them: what they show then is δ, and all else must
lose no more than the noise says. Broken copies, each a plausible mistake, must be caught.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import exp, log

import numpy as np
import pyarrow as pa
import pytest

from noisegate.algebra.expression import Call, Field, Literal
from noisegate.algebra.relation import Filter, Table
from noisegate.algebra.tally import Keys
from noisegate.mechanisms.keys.key_selection import ThresholdedGaussian, ThresholdedGeometric
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.unit import PrivacyUnit
from noisegate.sources.duckdb.source import DuckDBSource

TINY = 1e-12
REACH = 60  # beyond it there is less than TINY of any law here
GEOMETRIC = ThresholdedGeometric.for_budget(2, "0.02", keys_per_unit=2)
GAUSSIAN = ThresholdedGaussian.for_budget(2, "0.02", keys_per_unit=2)
BOTH = pytest.mark.parametrize("mechanism", [GEOMETRIC, GAUSSIAN], ids=lambda each: each.name)


def law(mechanism, count):
    """Hidden, then each shown value, from the definitions; an absent key is hidden for certain."""
    out = np.zeros(REACH + 1)
    if count == 0:
        out[0] = 1
        return out
    off = np.arange(-400, 401)
    size = float(getattr(mechanism, "scale", 0) or mechanism.variance)
    bell = isinstance(mechanism, ThresholdedGaussian)
    mass = np.exp(-(off**2) / (2 * size) if bell else -np.abs(off) / size)
    places = count + off - mechanism.threshold + 1
    np.add.at(out, np.clip(places, 0, REACH), mass / mass.sum())
    return out


def release(mechanism, counts):
    """The law of all keys together: their draws are independent."""
    found = np.ones(1)
    for count in counts:
        found = np.outer(found, law(mechanism, count)).reshape(-1)
    return found


def hockey_stick(p, q, epsilon):
    return max(np.maximum(p - exp(epsilon) * q, 0).sum(), np.maximum(q - exp(epsilon) * p, 0).sum())


def worst(mechanism, epsilon, *, keys=2, moved=1, counts=range(5)):
    """The largest δ at ε over all neighbours: one unit more in each of some keys."""
    found = 0.0
    for here in product((*counts, mechanism.threshold, mechanism.threshold + 3), repeat=2):
        for mask in product((0, 1), repeat=2):
            if 0 < sum(mask) <= keys:
                there = [n + moved * bit for n, bit in zip(here, mask, strict=True)]
                pair = release(mechanism, here), release(mechanism, there)
                found = max(found, hockey_stick(*pair, epsilon))
    return found


def test_a_unit_in_two_groups_loses_epsilon_and_delta_and_hardly_less():
    event = GEOMETRIC.event(2)
    assert event.epsilon == 2
    assert 0.9 * event.delta < worst(GEOMETRIC, event.epsilon) <= event.delta + TINY


def test_each_mistake_about_geometric_counts_is_caught():
    event = GEOMETRIC.event(2)
    epsilon, delta = event.epsilon, event.delta
    low = replace(GEOMETRIC, threshold=GEOMETRIC.threshold - 1)
    assert worst(low, epsilon) > delta + TINY
    for_one = ThresholdedGeometric.for_budget(2, "0.02", keys_per_unit=1)  # but it is in two
    assert worst(for_one, epsilon) > delta + TINY
    assert worst(GEOMETRIC, epsilon, moved=2) > delta + TINY  # two rows of one unit in a group
    assert worst(replace(GEOMETRIC, scale=GEOMETRIC.scale * Fraction(4, 5)), epsilon) > delta + TINY


def renyi(p, q, order):
    held = (p > 1e-200) & (q > 1e-200)
    assert p[~held].sum() < TINY
    return log(np.exp(order * np.log(p[held]) + (1 - order) * np.log(q[held])).sum()) / (order - 1)


def approximate_zcdp(mechanism, *, moved=1):
    """The largest D_a / a given E, and the largest chance that E fails, over all neighbours.

    E: no key shows that the unit alone holds.
    """
    loss = leak = 0.0
    around = (0, 1, 2, mechanism.threshold)
    for here in product(around, repeat=2):
        for mask in product((0, 1), repeat=2):
            there = [n + moved * bit for n, bit in zip(here, mask, strict=True)]
            p, q = (release(mechanism, each).reshape(REACH + 1, -1) for each in (here, there))
            for axis, n in enumerate(here):
                if n == 0:
                    q = np.where(np.indices(q.shape)[axis] > 0, 0, q)
            leak, q = max(leak, 1 - q.sum()), q / q.sum()
            for order in (1.5, 2, 8):
                pairs = ((p, q), (q, p))
                loss = max(loss, *(renyi(a, b, order) / order for a, b in pairs))
    return loss, leak


def test_gaussian_counts_are_approximately_as_concentrated_as_claimed():
    event = GAUSSIAN.event(2)
    rho = event.keys / (2 * event.variance)
    loss, leak = approximate_zcdp(GAUSSIAN)
    assert 0.9 * rho < loss <= rho + 1e-9
    assert 0.9 * event.delta < leak <= event.delta + TINY


def test_each_mistake_about_gaussian_counts_is_caught():
    event = GAUSSIAN.event(2)
    rho = float(event.keys / (2 * event.variance))
    low = replace(GAUSSIAN, threshold=GAUSSIAN.threshold - 1)
    assert approximate_zcdp(low)[1] > event.delta + TINY
    for_one = ThresholdedGaussian.for_budget(2, "0.02", keys_per_unit=1)
    assert approximate_zcdp(for_one)[0] > rho + 1e-9
    assert approximate_zcdp(GAUSSIAN, moved=2)[0] > rho + 1e-9


@BOTH
def test_chances_and_noise_are_those_of_the_law(mechanism):
    for n in range(12):
        low, high = mechanism.probability(n)
        assert low <= high
        assert float(low) == pytest.approx(1 - law(mechanism, n)[0], abs=1e-12)
    assert (
        1 - law(mechanism, mechanism.sure)[0] >= 0.999 > 1 - law(mechanism, mechanism.sure - 1)[0]
    )


@BOTH
def test_draws_follow_the_law(mechanism):
    """100,000 draws; each share within 6 standard deviations: a false alarm once in 10⁷ runs."""
    count, times = mechanism.threshold + 1, 100_000
    drawn = mechanism.sample(np.full(times, count))
    places = np.where(drawn == 0, 0, drawn - mechanism.threshold + 1)
    shares = np.bincount(np.clip(places, 0, REACH), minlength=REACH + 1) / times
    expected = law(mechanism, count)
    usual = expected * times > 100
    spread = np.sqrt(expected * (1 - expected) / times)
    assert (np.abs(shares - expected) <= 6 * spread)[usual].all()


# --- from rows -----------------------------------------------------------------------------------

COLUMNS = {
    "world": Column(name="world", kind=Kind.INTEGER, nullable=False),
    "who": Column(name="who", kind=Kind.INTEGER, nullable=False),
    "town": Column(name="town", kind=Kind.TEXT),
}
TABLE = TableDomain(dataset="d", name="t", unit=PrivacyUnit(column="who"), columns=COLUMNS)
OF_ONE = [(), ("a",), ("a", "a", "a"), ("a", "b"), ("b", None), ("a", "b", None, "a"), (None, None)]
WORLDS = list(product(OF_ONE, repeat=2))  # the rows of two units, each world by itself


@pytest.fixture(scope="module")
def source():
    rows = [
        (world, who, town)
        for world, units in enumerate(WORLDS)
        for who, towns in enumerate(units)
        for town in towns
    ]
    kinds = (pa.int64(), pa.int64(), pa.string())
    columns = zip(COLUMNS, kinds, zip(*rows, strict=True), strict=True)
    table = pa.table({name: pa.array(values, kind) for name, kind, values in columns})
    return DuckDBSource({"t": table}, {"t": TABLE})


def counts_of(source, world, cap):
    """How many units hold each key, as the engine counts them."""
    rows = Filter(Table(TABLE), Call("eq", (Field("world"), Literal(WORLDS.index(world)))))
    held = source.keys(Keys(relation=rows, by=(("town", Field("town")),), keys_per_unit=cap))
    keys = held.take(np.arange(held.counts.size))
    return dict(zip(keys, held.counts.tolist(), strict=True))


@pytest.mark.parametrize("cap", [1, 2])
def test_from_rows_of_units_to_what_is_shown_no_neighbour_tells_more(source, cap):
    """All tables of two units with such rows, and one unit less, by the exact law of all keys."""
    mechanism = ThresholdedGeometric.for_budget(1, "0.05", keys_per_unit=cap)
    event, most = mechanism.event(cap), 0.0
    found = {world: counts_of(source, world, cap) for world in WORLDS}
    for first, second in WORLDS:
        whole, less = found[first, second], found[first, ()]
        keys = sorted(whole, key=str)
        assert set(less) <= set(whole)
        pair = [release(mechanism, [each.get(key, 0) for key in keys]) for each in (whole, less)]
        most = max(most, hockey_stick(*pair, event.epsilon))
    assert 0.8 * event.delta < most <= event.delta + TINY
