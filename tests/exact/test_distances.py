"""How far guesses are off, on all small tables and all their neighbours: moves and laws, exactly.

Each audit is also run on deliberately broken copies, which it must catch.
"""

from fractions import Fraction
from itertools import product
from types import MappingProxyType

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from noisegate.accounting.pure import pure_loss
from noisegate.accounting.zcdp import zcdp_loss
from noisegate.algebra.expression import Field, Literal
from noisegate.algebra.relation import Table
from noisegate.algebra.tally import Grouping, Marginals, Term
from noisegate.curator.measurement import Measurement
from noisegate.errors import Unsupported
from noisegate.exact import real
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.noise.bits import SYSTEM
from noisegate.privacy.domain import Column, Kind, TableDomain
from noisegate.privacy.event import ExponentialEvent
from noisegate.privacy.unit import PrivacyUnit
from noisegate.transforms.distances import FINE_MAX, GUESS_MAX, WEIGHT_MAX, Distances
from noisegate.transforms.query import Query
from refusals import about

SETS = ((0,), (1,), (0, 1))
ONE = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)
PEOPLE = TableDomain(
    dataset="d",
    name="people",
    unit=PrivacyUnit(column=None),
    columns=MappingProxyType({n: Column(name=n, kind=Kind.INTEGER) for n in ("a", "b")}),
)
BY = tuple(Grouping(name=name, expression=Field(name), keys=(0, 1)) for name in ("a", "b"))
TALLY = Marginals(relation=Table(PEOPLE), by=BY, sets=SETS, term=ONE)
GUESSES = [[1, 3], [4, 0], [3, 0, 1, 2]]
WEIGHTED = Distances.of(GUESSES, weights=[1, 4, 2], less=[3, -2, 0], fine=2)


@pytest.fixture(autouse=True)
def _precise():
    before, ctx.prec = ctx.prec, 128
    yield
    ctx.prec = before


def tables_of(counts):
    """The tables of a and b, of a 2 × 2 table of counts."""
    square = np.array(counts, np.int64).reshape(2, 2)
    return [square.sum(axis=1), square.sum(axis=0), square.reshape(-1)]


def neighbours(most=3):
    """All tables with at most so many rows in a cell, and one row more anywhere."""
    for counts in product(range(most + 1), repeat=4):
        for place in range(4):
            yield tables_of(counts), tables_of([n + (i == place) for i, n in enumerate(counts)])


def worst_moves(values):
    """The largest changes over all neighbours: of each number, in L1 and squared in L2."""
    changes = np.array([np.abs(values(one) - values(other)) for one, other in neighbours()])
    return changes.max(axis=0).tolist(), changes.sum(axis=1).max(), (changes**2).sum(axis=1).max()


@pytest.mark.parametrize("distances", [Distances.of(GUESSES), WEIGHTED], ids=["plain", "weighted"])
def test_a_row_moves_each_distance_by_its_reach_and_all_by_their_norms(distances):
    query = Query(TALLY, distances)
    each, l1, l2 = worst_moves(distances.apply)
    assert each == list(distances.reaches)  # attained, so no smaller bound is true
    assert l1 == query.l1s[0].value
    assert l2 == query.l2s[0].squared


BROKEN = {
    "squares": lambda tables: np.array([
        int(((2 * x - np.array(g)) ** 2).sum()) for x, g in zip(tables, GUESSES, strict=True)
    ]),
    "fine twice": lambda tables: 2 * WEIGHTED.apply(tables),
    "the weight of another": Distances.of(GUESSES, weights=[4, 4, 2], fine=2).apply,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_numbers_that_move_further_are_caught(name):
    each, l1, l2 = worst_moves(BROKEN[name])
    assert any(a > b for a, b in zip(each, WEIGHTED.reaches, strict=True))
    assert l1 > WEIGHTED.l1
    assert l2 > WEIGHTED.l2_squared


# the choice


def law(scores, factor):
    """The exponential mechanism by its formula."""
    weights = [(real(factor) * int(score)).exp() for score in scores]
    total = sum(weights, arb(0))
    return [weight / total for weight in weights]


def worst_ratios(distances, factor):
    """The largest |log-ratio| of any choice between neighbours, and their largest range."""
    loss, spread = 0.0, 0.0
    for one, other in neighbours(2):
        laws = [law(distances.apply(tables), factor) for tables in (one, other)]
        ratios = [float((p / q).log()) for p, q in zip(*laws, strict=True)]
        loss, spread = max(loss, *map(abs, ratios)), max(spread, max(ratios) - min(ratios))
    return loss, spread


def choice_of(epsilon, distances=WEIGHTED):
    sensitivity = Query(TALLY, distances).moved * distances.reach
    noise = Exponential.for_epsilon(epsilon, score_sensitivity=sensitivity)
    return Measurement(query=Query(TALLY, distances), mechanisms=(noise,))


def test_a_choice_has_a_range_of_at_most_its_epsilon_and_nearly_that():
    choice = choice_of("3/2")
    event = choice.event()
    assert event == ExponentialEvent(epsilon=Fraction(3, 2))
    assert zcdp_loss(event).rho == Fraction(9, 32)
    loss, spread = worst_ratios(WEIGHTED, choice.mechanisms[0].factor)
    assert 1.1 < spread <= 1.5 + 1e-12  # (4 + 2) / (4 + 4) of it at these weights
    assert loss <= 1.5


def test_of_two_tables_the_range_is_reached():
    """One table comes nearer to its guess and the other goes away from it."""
    two = Distances.of([[9, 0], [0, 9], [0, 0, 0, 0]], weights=[3, 3, 1])
    spread = worst_ratios(two, choice_of(1, two).mechanisms[0].factor)[1]
    assert spread == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("less", [4, 2], ids=["forgets the weights", "forgets the fine parts"])
def test_a_choice_priced_with_too_little_is_caught(less):
    sensitivity = Fraction(WEIGHTED.reach, less)
    broken = Exponential.for_epsilon("3/2", score_sensitivity=sensitivity)
    assert worst_ratios(WEIGHTED, broken.factor)[1] > 1.5 * 1.4
    honest = Measurement(query=Query(TALLY, WEIGHTED), mechanisms=(broken,))
    assert honest.event().epsilon == Fraction(3, 2) * less  # the door asks the query, not a caller


def test_noise_on_distances_is_priced_by_all_of_them():
    query = Query(TALLY, WEIGHTED)  # reaches 2, 8, 4
    noisy = Measurement(query=query, mechanisms=(Geometric(scale=28),))
    assert pure_loss(noisy.event()).epsilon == Fraction(14, 28)
    rounded = Measurement(query=query, mechanisms=(DiscreteGaussian(variance=42),))
    assert zcdp_loss(rounded.event()).rho == 1  # (4 + 64 + 16) / (2 · 42)
    tables = Measurement(query=Query(TALLY), mechanisms=(Geometric(scale=2),) * 3)
    assert pure_loss(tables.event()).epsilon == Fraction(3, 2)


class Held:
    """A source of these tables."""

    def marginals(self, tally):
        assert tally == TALLY
        return tables_of([50, 0, 0, 0])


def test_the_place_that_comes_out_is_that_of_the_furthest():
    guesses = Distances.of([[50, 0], [0, 0], [50, 0, 0, 0]])
    noise = Exponential.for_epsilon(4, score_sensitivity=1)  # another place has odds below 2 e^-100
    choice = Measurement(query=Query(TALLY, guesses), mechanisms=(noise,))
    values, keys = choice.draw(Held(), SYSTEM)
    assert (values.tolist(), keys) == ([[1]], None)
    sharp = Geometric(scale="1/60")  # off with probability below 20 e^-60
    tables = Measurement(query=Query(TALLY), mechanisms=(sharp,) * 3)
    assert tables.draw(Held(), SYSTEM)[0].tolist() == [[50, 0, 50, 0, 50, 0, 0, 0]]
    off = Measurement(query=Query(TALLY, guesses), mechanisms=(sharp,))
    assert off.draw(Held(), SYSTEM)[0].tolist() == [[0, 50, 0]]


# what has no rule


@pytest.mark.parametrize("mechanisms", [
    (Exponential(factor=1, monotone=True),),
    (Exponential(factor=1), Exponential(factor=1)),
    (Geometric(scale=1), Exponential(factor=1)),
    (Geometric(scale=1),) * 3,
    (),
])  # fmt: skip
def test_other_mechanisms_on_distances_are_refused(mechanisms):
    with pytest.raises(Unsupported):
        Measurement(query=Query(TALLY, WEIGHTED), mechanisms=mechanisms)


def test_a_choice_by_score_needs_distances():
    with pytest.raises(Unsupported, check=about("scores", "mechanisms")):
        Measurement(query=Query(TALLY), mechanisms=(Exponential(factor=1),) * 3)


def plain(**more):
    parts = {"guesses": (b"\0" * 8,), "weights": (1,), "less": (0,), "fine": 1}
    return Distances(**(parts | more))


@pytest.mark.parametrize("parts", [
    {"guesses": ()}, {"guesses": (b"",)}, {"guesses": (b"\0" * 7,)}, {"guesses": [b"\0" * 8]},
    {"guesses": (bytearray(8),)}, {"guesses": (b"\xff" * 7 + b"\x7f",)},
    {"guesses": (b"\0" * 7 + b"\x80",)}, {"weights": (0,)}, {"weights": (-1,)},
    {"weights": (True,)}, {"weights": (Fraction(1),)}, {"weights": (WEIGHT_MAX + 1,)},
    {"weights": (1, 1)}, {"less": (0.5,)}, {"less": (GUESS_MAX + 1,)}, {"less": ()},
    {"fine": 0}, {"fine": FINE_MAX + 1}, {"fine": True},
], ids=repr)  # fmt: skip
def test_odd_guesses_are_refused(parts):
    plain()
    with pytest.raises(Unsupported):
        plain(**parts)


def test_guesses_are_of_these_tables_and_whole():
    with pytest.raises(Unsupported, check=about("guesses")):
        Query(TALLY, Distances.of(GUESSES[:2]))
    with pytest.raises(Unsupported, check=about("guesses")):
        Query(TALLY, Distances.of([*GUESSES[:2], [0, 0]]))
    with pytest.raises(Unsupported, check=about("whole")):
        Distances.of([[0.5]])


class Lower(int):
    """A weight that says less than it is."""

    def __mul__(self, other):
        return 0

    __rmul__ = __mul__


def test_a_weight_that_lies_is_refused():
    with pytest.raises(Unsupported):
        plain(weights=(Lower(5),))


def test_a_guess_cannot_change_after_it_was_checked():
    mine = np.array([1, 2], np.int64)
    found = Distances.of([mine])
    mine[:] = 9
    assert found.apply([np.array([1, 2])]).tolist() == [0]
    assert all(type(guess) is bytes for guess in found.guesses)


WIDE = st.integers(-(1 << 60), 1 << 60)


@given(
    st.lists(st.tuples(WIDE, WIDE), min_size=1, max_size=20),
    st.integers(1, WEIGHT_MAX), WIDE, st.integers(1, FINE_MAX),
)  # fmt: skip
def test_large_numbers_do_not_wrap(pairs, weight, less, fine):
    exact, guess = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    found = Distances.of([guess], weights=[weight], less=[less], fine=fine)
    limit = GUESS_MAX // fine
    total = sum(abs(max(-limit, min(limit, x)) * fine - g) for x, g in pairs)
    expected = max(-GUESS_MAX, min(GUESS_MAX, weight * (total - less)))
    assert found.apply([exact]).tolist() == [expected]
