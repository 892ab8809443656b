"""How a synthesizer asks: tables over some columns, and how far guesses of them are off.

It sees the rows through `TablesAsk` alone, so whatever it computes is private; a mistake in it
costs accuracy, never privacy. Numbers are in grains, as in all releases.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from noisegate.releases.ask.asking import Noisy
from noisegate.releases.cells.estimate import Floats
from noisegate.releases.fit.residuals import Axes, Sizes


class TablesAsk(Protocol):
    """What a synthesizer is given. Shares are of its whole price; together they are at most 1.

    A table over the columns ``axes`` has the cells of these columns, the last varying fastest.
    """

    sizes: Sizes  # how many cells each column has
    gaussian: bool

    def tables(self, sets: Sequence[Axes], shares: Sequence[Fraction]) -> list[Noisy]:
        """Noisy tables over sets of columns, flat, in one pass over the rows."""

    def distances(self, guesses: Mapping[Axes, Floats], share: Fraction) -> Noisy:
        """How far each guess is off, Σ|exact - guess| over its cells, all with one noise."""

    def furthest(
        self,
        guesses: Mapping[Axes, Floats],
        share: Fraction,
        *,
        weights: Mapping[Axes, Fraction] | None = None,
        less: Mapping[Axes, float] | None = None,
    ) -> Axes:
        """A set whose weight · (distance - less) is near the largest: the exponential mechanism."""

    def variance(self, share: Fraction) -> float:
        """The variance of each cell of a table that the share buys: free."""

    def distance_variance(self, count: int, share: Fraction) -> float:
        """The variance of each of ``count`` distances that the share buys: free."""

    def done(self, part: float, words: str) -> None:
        """Say how far it has come."""
