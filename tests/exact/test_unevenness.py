"""How uneven a row is, plus noise: its law is that of the geometric mechanism on one number.

The largest log-ratio between neighbours is then how far the number moves, over the scale.
"""

from fractions import Fraction
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisegate.accounting.pure import pure_loss
from noisegate.errors import SpecError
from noisegate.mechanisms import base
from noisegate.mechanisms.additive import geometric
from noisegate.mechanisms.base import INPUT_MAX
from noisegate.mechanisms.partitions import unevenness
from noisegate.mechanisms.partitions.unevenness import Unevenness, excess
from noisegate.privacy.distance import L1

HUGE = np.iinfo(np.int64).max


def by_hand(cells, parts):
    """The largest difference between half of the stretches and the others."""
    held = [int(each.sum()) for each in np.split(cells, np.arange(1, parts) * cells.size // parts)]
    return max(
        sum(held[at] if at in half else -held[at] for at in range(parts))
        for half in combinations(range(parts), parts // 2)
    )


def neighbours(size):
    """All small rows, and each with one row of the table more in one cell."""
    for row in product((-1, 0, 1, 3), repeat=size):
        cells = np.array(row, np.int64)
        yield from ((cells, cells + (np.arange(size) == place)) for place in range(size))


def furthest(number, pairs):
    return max(abs(number(here) - number(there)) for here, there in pairs)


@given(st.integers(1, 4), st.data())
def test_the_fuller_half_is_the_best_of_all_halves(half, data):
    parts = 2 * half
    row = data.draw(st.lists(st.integers(-99, 99), min_size=parts, max_size=3 * parts))
    assert excess(np.array(row), parts) == by_hand(np.array(row), parts)


@pytest.mark.parametrize(("size", "parts"), [(4, 2), (5, 2), (4, 4), (5, 4)])
def test_one_row_more_moves_it_by_one_at_most_so_it_loses_what_it_says(size, parts):
    assert furthest(lambda cells: excess(cells, parts), neighbours(size)) == 1
    event = Unevenness(scale=Fraction(5, 2), parts=parts).event(L1(1))
    assert pure_loss(event).epsilon == Fraction(2, 5)
    assert pure_loss(Unevenness(scale=5, parts=parts).event(L1(3))).epsilon == Fraction(3, 5)


@given(st.data())
def test_a_unit_with_many_rows_moves_it_by_no_more_than_these(data):
    some = st.lists(st.integers(-50, 50), min_size=19, max_size=19).map(np.array)
    here, step = data.draw(some), data.draw(some)
    assert abs(excess(here + step, 8) - excess(here, 8)) <= np.abs(step).sum()


def test_stretches_that_share_a_cell_are_caught():
    def shared(cells):
        return abs(int(cells[:3].sum() - cells[2:].sum() + 2 * cells[2]))

    assert furthest(shared, neighbours(4)) == 2


def test_distances_of_all_parts_to_their_mean_are_caught():
    """That is what an unevenness might be as well; but it moves by up to 3/2 for four parts."""

    def distance(cells):
        return np.abs(4 * cells - cells.sum()).sum() / 4

    assert furthest(distance, neighbours(4)) == 1.5


def test_the_noise_is_that_of_the_event(monkeypatch):
    drawn = []

    def noise(scale, shape, *, bits):
        drawn.append((scale, shape, bits))
        return np.full(shape, 7)

    monkeypatch.setattr(geometric, "discrete_laplace", noise)
    cells = np.array([9, 1, 1, 9, 2])
    found = Unevenness(scale=Fraction(7, 3), parts=4).sample(cells, bits="coins")
    assert found.tolist() == [excess(cells, 4) + 7]
    assert drawn == [(Fraction(7, 3), (1,), "coins")]


def test_extreme_cells_do_not_wrap(monkeypatch):
    monkeypatch.setattr(geometric, "discrete_laplace", lambda _, shape, **__: np.zeros(shape, int))
    mechanism = Unevenness(scale=1, parts=2)
    low, high = np.array([-HUGE] * 4 + [HUGE] * 4), np.array([HUGE - 1] + [HUGE] * 7)
    assert mechanism.sample(low).tolist() == [INPUT_MAX]
    assert mechanism.sample(high).tolist() == [0]
    broken = {"clamped": lambda exact, _: exact}
    monkeypatch.setattr(unevenness, "base", SimpleNamespace(**vars(base) | broken))
    assert mechanism.sample(low).tolist() != [INPUT_MAX]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Unevenness(scale=0, parts=8),
        lambda: Unevenness(scale=1, parts=3),
        lambda: Unevenness(scale=1, parts=0),
        lambda: Unevenness(scale=1, parts="8"),
        lambda: Unevenness(scale=1, parts=128),
        lambda: Unevenness(scale=1, parts=8).sample(np.ones(7, np.int64)),
        lambda: Unevenness(scale=1, parts=8).sample(np.ones((8, 8), np.int64)),
        lambda: Unevenness(scale=1, parts=8).sample(np.ones(8)),
    ],
)
def test_what_makes_no_sense_is_refused(make):
    with pytest.raises(SpecError):
        make()
