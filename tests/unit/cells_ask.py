"""Asks a recipe's questions about given cells: the same strategies and noise, without a door."""

import numpy as np

from noisegate.noise.bits import SYSTEM
from noisegate.privacy.distance import L1, L2
from noisegate.releases.asking import Noisy, Price, require_shares, variance_of
from noisegate.transforms.strategy import Strategy


class _Cells:
    """The part of a query that prices look at."""

    def __init__(self, strategy):
        self.l1s = tuple(L1(norm) for norm in strategy.l1s)
        self.l2s = tuple(L2(squared=norm) for norm in strategy.l2s_squared)


class CellsAsk:
    """Every row is one unit. ``spent`` are the shares so far, for each cell."""

    def __init__(self, cells, epsilon, *, gaussian=False):
        self._cells = np.asarray(cells, np.int64).reshape(-1)
        self._price = Price(amount=epsilon, gaussian=gaussian)
        self.shape, self.gaussian, self.spent = (
            np.shape(cells),
            gaussian,
            np.zeros(self._cells.size),
        )

    def sums(self, blocks, shares):
        strategy = Strategy(self._cells.size, tuple(blocks))
        for block, share in zip(blocks, require_shares(shares), strict=True):
            norms = block.columns[1 if self.gaussian else 0]
            self.spent += float(share) * norms / norms.max()
        assert self.spent.max() <= 1 + 1e-9
        noises = self._price.noise(_Cells(strategy), shares)
        exact = zip(noises, strategy.apply(self._cells), strict=True)
        return [Noisy(noise.sample(x, bits=SYSTEM), variance_of(noise)) for noise, x in exact]

    def choose(self, mechanism_of, share):
        self.spent += float(*require_shares([share]))
        assert self.spent.max() <= 1 + 1e-9
        mechanism = mechanism_of(self._price.epsilon(share))
        mechanism.event(L1(1))
        return mechanism.sample(self._cells, bits=SYSTEM)

    def variance(self, block, share):
        (noise,) = self._price.noise(_Cells(Strategy(self._cells.size, (block,))), [share])
        return variance_of(noise)

    def done(self, part, words):
        assert 0 <= part <= 1
