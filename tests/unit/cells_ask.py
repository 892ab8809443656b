"""Asks a recipe's questions about given cells: the same strategies and noise, without a door."""

from noisegate.noise.bits import SYSTEM
from trials import TrialAsk


class CellsAsk(TrialAsk):
    """A trial with real chance."""

    def __init__(self, cells, epsilon, *, gaussian=False):
        super().__init__(cells, epsilon, bits=SYSTEM, gaussian=gaussian)
