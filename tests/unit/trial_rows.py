"""Public rows for learners, from -1 to 1: the real questions and the real noise, but no door."""

from fractions import Fraction

import numpy as np

from noisegate.learners.matrix import Coordinate
from noisegate.noise.bits import SYSTEM
from trials import TrialRows

REACH = 4096


def on_grid(rows, reach=REACH):
    """The rows as the door would see them."""
    return np.rint(np.clip(rows, -1, 1) * reach) / reach


def unit_columns(count):
    """As many columns from -1 to 1."""
    ends = Fraction(-1), Fraction(1)
    return tuple(Coordinate(f"x{place}", None, *ends, f"x{place}") for place in range(count))


def unlabelled(rows, amount, *, noise=True, gaussian=False, reach=REACH, **keys):
    """Rows to ask about; without ``noise`` they are told as they are."""
    bits = SYSTEM if noise else None
    return TrialRows(
        rows * reach, Fraction(amount), reach=reach, gaussian=gaussian, bits=bits, **keys
    )


def trial(rows, told, amount, **how):
    """The same with the class of each row."""
    return unlabelled(rows, amount, keys=told, classes=int(told.max()) + 1, **how)


def clouds(rows, kinds, *, columns, spread, apart, seed):
    """Rows of as many classes, each a cloud around a place on an axis of its own."""
    coins = np.random.default_rng(seed)
    told = coins.integers(0, kinds, rows)
    found = coins.normal(0, spread, (rows, columns)) + np.eye(kinds, columns)[told] * apart
    return on_grid(found), told


def right(lines, rows, told):
    """The share of rows that lines tell right; one line is that of the second class."""
    found = rows @ np.array(lines)[:, :-1].T + np.array(lines)[:, -1]
    picked = found[:, 0] > 0 if len(lines) == 1 else found.argmax(1)
    return float(np.mean(picked == told))
