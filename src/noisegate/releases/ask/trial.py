"""Tries a recipe on given, public cells: the real questions and the real noise, but no door.

There is no ledger and no guarantee: the cells are in the open. It is for tests and benchmarks, and
for stewards who want to see on a table of their own making what a price would buy.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisegate.desk.price import Price, require_shares, variance_of
from noisegate.errors import Bug
from noisegate.mechanisms.base import Mechanism
from noisegate.privacy.distance import L1, L2
from noisegate.releases.ask.asking import Noisy
from noisegate.transforms.strategy import Block, Strategy


class _Moved:
    """The part of a query that prices look at: one unit moves one cell by 1."""

    def __init__(self, strategy: Strategy) -> None:
        self.l1s = tuple(L1(norm) for norm in strategy.l1s)
        self.l2s = tuple(L2(squared=norm) for norm in strategy.l2s_squared)


class TrialAsk:
    """Every row is one unit. ``spent`` are the shares so far, for each cell.

    ``amount`` is an ε, or a ρ with ``gaussian``; ``bits`` is where chance comes from, such as
    `noisegate.noise.bits.SYSTEM`: this room has none of its own.
    """

    def __init__(
        self,
        cells: ArrayLike,
        amount: Fraction,
        *,
        bits: Any,  # noqa: ANN401 - of the noise room, which this room may not import
        gaussian: bool = False,
    ) -> None:
        self._cells = np.asarray(cells, np.int64).reshape(-1)
        self._price, self._bits = Price(amount=amount, gaussian=gaussian), bits
        self.shape, self.gaussian, self.moved = tuple(np.shape(cells)), gaussian, Fraction(1)
        self.spent = np.zeros(self._cells.size)

    def sums(self, blocks: Sequence[Block], shares: Sequence[Fraction]) -> list[Noisy]:
        """All blocks, each with the noise that its share buys."""
        strategy = Strategy(self._cells.size, tuple(blocks))
        for block, share in zip(blocks, require_shares(shares), strict=True):
            norms = block.columns[1 if self.gaussian else 0]
            self._spend(float(share) * norms / norms.max())
        noises = self._price.noise(_Moved(strategy), shares)  # type: ignore[arg-type]
        exact = zip(noises, strategy.apply(self._cells), strict=True)
        return [Noisy(each.sample(x, bits=self._bits), variance_of(each)) for each, x in exact]

    def choose(
        self, mechanism_of: Callable[[Fraction], Mechanism[L1]], share: Fraction
    ) -> NDArray[np.int64]:
        """What a mechanism chooses by the cells."""
        (exact,) = require_shares([share])
        self._spend(np.full(self._cells.size, float(exact)))
        mechanism = self._price.choice(mechanism_of, exact, L1(1))
        mechanism.event(L1(1))  # refuses what has no price
        chosen: NDArray[np.int64] = mechanism.sample(self._cells, bits=self._bits)
        return chosen

    def furthest(self, block: Block, guesses: NDArray[np.int64], share: Fraction) -> int:
        """A question whose guess is nearly the furthest off."""
        strategy = Strategy(self._cells.size, (block,))
        choice = self._price.furthest(guesses, share, Fraction(strategy.reaches[0]))
        self._spend(np.full(self._cells.size, float(share)))
        return int(choice.sample(block.apply(self._cells), bits=self._bits)[0])

    def variance(self, block: Block, share: Fraction) -> float:
        """The variance that `sums` would have."""
        moved = _Moved(Strategy(self._cells.size, (block,)))
        (noise,) = self._price.noise(moved, [share])  # type: ignore[arg-type]
        return variance_of(noise)

    def done(self, part: float, words: str) -> None:  # noqa: ARG002 - see Ask
        """Nobody watches."""
        if not 0 <= part <= 1:
            raise Bug(
                "The recipe reports more progress than there is work.", fix="Report the recipe."
            )

    def _spend(self, shares: NDArray[np.float64]) -> None:
        self.spent = self.spent + shares
        if self.spent.max(initial=0) > 1 + 1e-9:
            raise Bug(
                "The recipe asks for more than its price.", fix="Report the recipe.", about="price"
            )
