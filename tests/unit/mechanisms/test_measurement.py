"""A question with its noise: which mechanisms each tally takes, and what one use of them is."""

import json
from fractions import Fraction

import numpy as np
import pytest

from door import FINE, ONE, by, count_query, field, table
from noisegate.accounting.pure import pure_loss
from noisegate.algebra.expression import Field
from noisegate.algebra.relation import PerUnit, Table
from noisegate.algebra.tally import Distinct, Keys, Sums, Values
from noisegate.curator.measurement import Measurement
from noisegate.errors import SpecError, Unsupported
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.additive.laplace import Laplace
from noisegate.mechanisms.keys.key_selection import KeySelection, ThresholdedGeometric
from noisegate.mechanisms.partitions.fourier_cut import FourierCut
from noisegate.mechanisms.partitions.privtree import PrivTree
from noisegate.mechanisms.partitions.unevenness import Unevenness
from noisegate.mechanisms.quantiles.brackets import Brackets
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.quantiles import Quantiles
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.domain import Kind
from noisegate.privacy.event import DiscreteGaussianEvent, GeometricEvent, Sequential
from noisegate.sources.source import Held, HeldCells, Source
from noisegate.transforms.query import Query
from refusals import about

VISITS = table("visits", "who", ("who", Kind.INTEGER), ("code", Kind.TEXT), ("cost", Kind.NUMBER))
ROWS, CODES = Table(VISITS), by("code", "a", "b", "c")
PER_CODE = PerUnit(ROWS, (("code", Field("code")),), ())
TALLIES = {
    "sums": Sums(relation=ROWS, by=(CODES,), terms=(ONE,), rows_per_unit=3),
    "distinct": Distinct(relation=ROWS, by=(CODES,), expression=Field("cost"), keys_per_unit=3),
    "values": Values(relation=ROWS, by=(CODES,), term=field("cost"), rows_per_unit=3),
    "keys": Keys(relation=ROWS, by=(("code", Field("code")),), keys_per_unit=3),
}
NOISES = {
    "geometric": Geometric(scale=6),
    "gaussian": DiscreteGaussian(variance=18),
    "quantile": Quantile.for_epsilon(1, tau="1/2", low=0, high=100, values_per_unit=3),
    "quantiles": Quantiles.for_epsilon(1, taus=("1/4", "3/4"), low=0, high=100, values_per_unit=3),
    "brackets": Brackets.for_epsilon(1, taus=("1/4", "3/4"), low=0, high=100, values_per_unit=3),
    "key selection": KeySelection.for_budget(1, "1e-12", keys_per_unit=3),
    "thresholded": ThresholdedGeometric.for_budget(1, "1e-12", keys_per_unit=3),
    "laplace": Laplace(scale=6),
}
FITTING = {
    "sums": {"geometric", "gaussian"},
    "distinct": {"geometric", "gaussian"},
    "values": {"quantile", "quantiles", "brackets"},
    "keys": {"key selection", "thresholded"},
}


def measured(tally, *mechanisms):
    return Measurement(query=Query(tally), mechanisms=mechanisms)


@pytest.mark.parametrize("tally", TALLIES)
@pytest.mark.parametrize("noise", NOISES)
def test_each_tally_takes_the_mechanisms_that_have_a_rule_for_it(tally, noise):
    if noise in FITTING[tally]:
        assert measured(TALLIES[tally], NOISES[noise]).event() is not None
    else:
        with pytest.raises(Unsupported, check=about("noise")):
            measured(TALLIES[tally], NOISES[noise])


@pytest.mark.parametrize("tally", TALLIES)
def test_there_is_one_mechanism_for_each_number(tally):
    noise = NOISES[min(FITTING[tally])]
    for mechanisms in ((), (noise, noise)):
        with pytest.raises(Unsupported, check=about("mechanisms")):
            measured(TALLIES[tally], *mechanisms)


class Quiet(Geometric):
    """Geometric noise in name only."""

    def sample(self, exact, *, bits=None):
        return exact


def test_heirs_of_a_mechanism_are_refused():
    with pytest.raises(Unsupported, check=about("noise")):
        measured(TALLIES["sums"], Quiet(scale=1000))


# events


def test_each_noise_has_the_sensitivity_of_its_own_norm():
    assert measured(TALLIES["sums"], Geometric(scale=6)).event() == GeometricEvent(
        scale=6, sensitivity=L1(3)
    )
    assert measured(TALLIES["distinct"], DiscreteGaussian(variance=18)).event() == (
        DiscreteGaussianEvent(variance=18, sensitivity=L2(squared=9))
    )


def test_groups_per_unit_cost_gaussian_noise_their_root():
    tally = Sums(relation=PER_CODE, by=(CODES,), terms=(ONE,), rows_per_unit=3)
    assert measured(tally, DiscreteGaussian(variance=18)).event() == (
        DiscreteGaussianEvent(variance=18, sensitivity=L2(squared=3))
    )


def test_terms_are_paid_one_after_another():
    terms = (ONE, FINE, field("cost", low=-5, high=2))
    tally = Sums(relation=ROWS, terms=terms, rows_per_unit=2)
    event = measured(tally, Geometric(scale=8), Geometric(scale=4096), DiscreteGaussian(variance=9))
    assert event.event() == Sequential(
        events=(
            GeometricEvent(scale=8, sensitivity=L1(2)),
            GeometricEvent(scale=4096, sensitivity=L1(2048)),
            DiscreteGaussianEvent(variance=9, sensitivity=L2(squared=100)),
        )
    )
    pure = Sums(relation=ROWS, terms=terms[:2], rows_per_unit=2)
    loss = pure_loss(measured(pure, Geometric(scale=8), Geometric(scale=4096)).event())
    assert str(loss) == "ε = 0.75"


@pytest.mark.parametrize("noise", ["quantile", "quantiles"])
def test_quantiles_cost_what_a_units_values_cost_whatever_the_number_of_cells(noise):
    one = Values(relation=ROWS, term=field("cost"), rows_per_unit=3)
    for tally in (one, TALLIES["values"]):
        assert str(pure_loss(measured(tally, NOISES[noise]).event())) == "ε = 1"
    six = Values(relation=ROWS, term=field("cost"), rows_per_unit=6)
    assert str(pure_loss(measured(six, NOISES[noise]).event())) == "ε = 2"


def test_keys_cost_what_all_keys_of_a_unit_cost():
    for noise in ("key selection", "thresholded"):
        event = measured(TALLIES["keys"], NOISES[noise]).event()
        assert event.epsilon == 1
        assert 0 < event.delta <= Fraction(1, 10**12)
        one = Keys(relation=ROWS, by=(("code", Field("code")),), keys_per_unit=1)
        assert measured(one, NOISES[noise]).event().epsilon * 3 == 1


# questions


def test_a_question_is_one_text_that_names_rows_and_noise():
    question = measured(TALLIES["sums"], Geometric(scale=6)).question()
    assert question == measured(TALLIES["sums"], Geometric(scale=6)).question()
    assert set(json.loads(question)) == {"query", "mechanisms"}
    others = {
        measured(TALLIES[name], NOISES[noise]).question()
        for name in TALLIES
        for noise in FITTING[name]
    }
    others |= {question, measured(TALLIES["sums"], Geometric(scale=7)).question()}
    assert len(others) == 10  # 9 pairs, one of them the question, and the other scale


# draws


class Exact(Source):
    """Known numbers instead of rows."""

    def sums(self, tally):
        return np.array([[100, 200, 300]] * len(tally.terms))

    def marginals(self, tally):
        return [np.full(size, 100) for size in tally.sizes]

    def distinct(self, tally):
        return np.array([[100, 200, 300]])

    def values(self, tally):
        return [np.full(1000, 10), np.full(1000, 20), np.zeros(0, np.int64)]

    def keys(self, tally):
        names = [("b",), ("rare",), ("a",)]
        return Held(counts=np.array([500, 1, 400]), take=lambda places: [names[p] for p in places])

    def cells(self, tally):
        return HeldCells(cells=np.array([3, 70], np.uint64), counts=np.array([500, 400]))

    def rows(self, tally, use):
        raise NotImplementedError

    def blocks(self, tally, key, use):
        raise NotImplementedError

    def public(self, table):
        raise NotImplementedError


SHARP = Geometric(scale="1/50")  # an answer is off with probability below 2 e^-50


def test_sums_and_distinct_values_are_drawn_cell_by_cell():
    two = Sums(relation=ROWS, by=(CODES,), terms=(ONE, ONE), rows_per_unit=3)
    values, keys = measured(two, SHARP, SHARP).draw(Exact(), SYSTEM)
    assert (values.tolist(), keys) == ([[100, 200, 300]] * 2, None)
    values, keys = measured(TALLIES["distinct"], SHARP).draw(Exact(), SYSTEM)
    assert (values.tolist(), keys) == ([[100, 200, 300]], None)


def test_quantiles_are_drawn_cell_by_cell():
    # at 1000 equal values and ε = 1 another point has odds below 100 e^-80
    values, keys = measured(TALLIES["values"], NOISES["quantile"]).draw(Exact(), SYSTEM)
    assert (values.shape, values[:2, 0].tolist(), keys) == ((3, 1), [10, 20], None)
    assert 0 <= values[2, 0] <= 100  # an empty cell has an answer too
    values, _ = measured(TALLIES["values"], NOISES["quantiles"]).draw(Exact(), SYSTEM)
    assert values.shape == (3, 2)


@pytest.mark.parametrize("noise", ["key selection", "thresholded"])
def test_keys_leave_in_their_own_order_and_rare_ones_stay(noise):
    # the rare one shows with probability 1e-12 / 3 at most, the others stay with less than e^-50
    values, keys = measured(TALLIES["keys"], NOISES[noise]).draw(Exact(), SYSTEM)
    assert keys == (("a",), ("b",))
    assert values.shape == (2,)
    assert all(values > 0)


def test_a_choice_for_another_table_is_refused_before_it_is_paid():
    cells = count_query(by="ward")
    assert cells.tally.cells == 3
    with pytest.raises(Unsupported, check=about("shape")):
        Measurement(query=cells, mechanisms=(PrivTree.for_epsilon(1, shape=(4,)),))
    Measurement(query=cells, mechanisms=(PrivTree.for_epsilon(1, shape=(3,)),))


@pytest.mark.parametrize(
    "choice",
    [
        Unevenness(scale=3, parts=8),
        FourierCut(factor=1, cuts=(1,), noises=(0,), weights=(1,)),
    ],
)
def test_a_choice_for_more_cells_is_refused_before_it_is_paid(choice):
    few = Sums(relation=ROWS, by=(by("code", "a"),), terms=(ONE,), rows_per_unit=3)
    with pytest.raises(SpecError, check=about("cells")):
        measured(few, choice)


def test_how_uneven_a_row_is_costs_every_row_of_a_unit():
    measurement = measured(TALLIES["sums"], Unevenness(scale=6, parts=2))
    assert pure_loss(measurement.event()).epsilon == Fraction(3, 6)
