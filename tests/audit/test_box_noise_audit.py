"""Noise on cells of numbers that all change: an audit passes the honest draw and catches copies.

False alarms: each audit reports an honest mechanism once in 10⁹ runs; the copies are missed less
than once in 10⁴ runs.
"""

import numpy as np
import pytest
from audit_tools import passes

from noisegate.mechanisms.additive.box_noise import BoxNoise
from noisegate.noise import box
from noisegate.privacy.distance import LInf1

TRIALS, CELLS, WIDTH = 100_000, 2, 2
MOVED = LInf1(CELLS)  # one unit changes every number by 1
HONEST = BoxNoise.for_epsilon(1, width=WIDTH, sensitivity=MOVED)
ONE_CELL = BoxNoise.for_epsilon(1, width=WIDTH, sensitivity=LInf1(1))


def hits(mechanism, exact):
    """How often no number is above 0."""
    answers = np.full((TRIALS, CELLS * WIDTH), exact, np.int64)
    return int((mechanism.sample(answers) <= 0).all(axis=1).sum())


@pytest.mark.parametrize(("mechanism", "is_honest"), [(HONEST, True), (ONE_CELL, False)])
def test_two_cells_that_change_are_paid_for_twice(mechanism, is_honest):
    assert passes(1, hits(mechanism, 0), hits(mechanism, 1), trials=TRIALS) == is_honest


def test_a_draw_of_each_number_by_itself_is_no_cheaper_way(monkeypatch):
    """A copy whose numbers have radii of their own: ε is then paid for every number."""

    def apart(scale, cells, width, *, bits):
        return box.box_noise(scale, cells * width, 1, bits=bits).reshape(cells, width)

    monkeypatch.setattr("noisegate.mechanisms.additive.box_noise.box_noise", apart)
    assert not passes(1, hits(HONEST, 0), hits(HONEST, 1), trials=TRIALS)
