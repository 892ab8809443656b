"""Tries a synthesizer on given, public rows: the real questions and the real noise, but no door.

There is no ledger and no guarantee: the rows are in the open. It is for tests and benchmarks.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.price import Price, require_shares, variance_of
from noisegate.errors import Bug, SpecError
from noisegate.mechanisms.base import NoiseMechanism
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.privacy.distance import L1, L2
from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.estimate import Floats
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.scoring import (
    Moved,
    coarse,
    distance_variance,
    distances_of,
    require_axes,
)
from noisegate.transforms.distances import Distances


class TrialTables:
    """Every row is one unit and holds the number of its cell in each column.

    ``amount`` is an ε, or a ρ with ``gaussian``; ``bits`` is where chance comes from, such as
    `noisegate.noise.bits.SYSTEM`. ``spent`` are the shares so far.
    """

    def __init__(
        self,
        rows: NDArray[Any],
        sizes: Sequence[int],
        amount: Fraction,
        *,
        gaussian: bool,
        bits: Any,  # noqa: ANN401 - of the noise room, which this room may not import
    ) -> None:
        self.sizes: Sizes = tuple(int(size) for size in sizes)
        self.gaussian, self.spent = gaussian, Fraction(0)
        self._columns = np.array(np.transpose(rows), np.int64)
        self._price, self._bits = Price(amount=amount, gaussian=gaussian), bits
        self._exact: dict[Axes, NDArray[np.int64]] = {}
        if self._columns.shape[0] != len(self.sizes):
            raise SpecError(
                "The rows have other columns.",
                fix="Give one size for each column.",
                about="columns",
            )
        if any(np.any((c < 0) | (c >= n)) for c, n in zip(self._columns, self.sizes, strict=True)):
            raise SpecError(
                "A row is outside all cells.", fix="Number the cells from 0.", about="cells"
            )

    def tables(self, sets: Sequence[Axes], shares: Sequence[Fraction]) -> list[Noisy]:
        """Noisy tables over sets of columns, flat."""
        if len(sets) != len(shares) or not sets:
            raise SpecError("There must be one share per table.", fix="Give one for each.")
        self._spend(sum(require_shares(shares), Fraction(0)))
        noises = self._noise([1] * len(sets), [1] * len(sets), shares)
        return [
            Noisy(noise.sample(self._table(axes), bits=self._bits), variance_of(noise))
            for axes, noise in zip(sets, noises, strict=True)
        ]

    def distances(self, guesses: Mapping[Axes, Floats], share: Fraction) -> Noisy:
        """How far each guess is off, Σ|exact - guess| over its cells, all with one noise."""
        scores = distances_of(guesses)
        (exact,) = require_shares([share])
        self._spend(exact)
        (noise,) = self._noise([scores.l1], [scores.l2_squared], [exact])
        return coarse(noise.sample(self._apply(guesses, scores), bits=self._bits), noise)

    def furthest(
        self,
        guesses: Mapping[Axes, Floats],
        share: Fraction,
        *,
        weights: Mapping[Axes, Fraction] | None = None,
        less: Mapping[Axes, float] | None = None,
    ) -> Axes:
        """A set whose weight · (distance - less) is near the largest."""
        scores = distances_of(guesses, weights=weights, less=less)
        (exact,) = require_shares([share])
        self._spend(exact)
        epsilon = self._price.exponential_epsilon(exact)
        choice = Exponential.for_epsilon(epsilon, score_sensitivity=scores.reach)
        (place,) = choice.sample(self._apply(guesses, scores), bits=self._bits).tolist()
        return tuple(guesses)[place]

    def variance(self, share: Fraction) -> float:
        """The variance of each cell of a table that the share buys."""
        (noise,) = self._noise([1], [1], require_shares([share]))
        return variance_of(noise)

    def distance_variance(self, count: int, share: Fraction) -> float:
        """The variance of each of ``count`` distances that the share buys."""
        return distance_variance(self._price, count, share, moved=Fraction(1))

    def done(self, part: float, words: str) -> None:  # noqa: ARG002 - see TablesAsk
        """Nobody watches."""
        if not 0 <= part <= 1:
            raise Bug("The synthesizer reports more progress than there is work.", fix="Report it.")

    def _noise(
        self, l1s: Sequence[int], l2s: Sequence[int], shares: Sequence[Fraction]
    ) -> tuple[NoiseMechanism[Any], ...]:
        """For numbers that a unit moves so far, in L1 and squared in L2."""
        moved = Moved(tuple(map(L1, l1s)), tuple(L2(squared=squared) for squared in l2s))
        return self._price.noise(moved, shares)  # type: ignore[arg-type]

    def _apply(self, guesses: Mapping[Axes, Floats], scores: Distances) -> NDArray[np.int64]:
        return scores.apply([self._table(axes) for axes in guesses])

    def _table(self, axes: Axes) -> NDArray[np.int64]:
        if axes not in self._exact:
            require_axes(axes, self.sizes)
            sizes = [self.sizes[axis] for axis in axes]
            cells = np.zeros(self._columns.shape[1], np.int64)
            for axis, size in zip(axes, sizes, strict=True):
                cells = cells * size + self._columns[axis]
            self._exact[axes] = np.bincount(cells, minlength=prod(sizes))
        return self._exact[axes]

    def _spend(self, share: Fraction) -> None:
        self.spent += share
        if self.spent > 1:
            raise Bug(
                "The synthesizer asks for more than its price.", fix="Report it.", about="price"
            )
