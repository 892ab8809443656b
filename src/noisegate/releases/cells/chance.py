"""Public coins, for what is drawn from released numbers: rows of a model, points of a cell, trials.

They follow from a seed that anybody may know, so the same release always has the same rows. No
number that depends on people is ever protected by them: that is what the room `noise` is for.

>>> one, other = (public_coins("what was asked").integers(1000) for _ in range(2))
>>> bool(one == other)
True
"""

from hashlib import sha256
from typing import TypeAlias

import numpy as np

Coins: TypeAlias = np.random.Generator


def public_coins(seed: int | str) -> Coins:
    """A generator that follows from a number or a text."""
    if isinstance(seed, str):
        return np.random.default_rng(list(sha256(seed.encode()).digest()))
    return np.random.default_rng(seed)
