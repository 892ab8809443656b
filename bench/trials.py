"""Tries recipes, synthesizers and learners on given, public rows, for tests and benchmarks.

The real questions and the real noise, but no door: there is no ledger and no guarantee. ``amount``
is an ε, or a ρ with ``gaussian``; ``bits`` is where chance comes from; ``spent`` are the shares so
far.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisegate.desk.terms.price import Price, require_shares, variance_of
from noisegate.errors import Bug, SpecError
from noisegate.learners.asking import (
    NoisySums,
    lines_of,
    measured_of,
    minimiser,
    noise_variance,
    noises,
)
from noisegate.mechanisms.base import Mechanism, NoiseMechanism
from noisegate.mechanisms.selection.exponential import Exponential
from noisegate.privacy.distance import L1, L2
from noisegate.releases.ask.asking import Moved, Noisy
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.residuals import Axes, Sizes
from noisegate.synthetic.asking import (
    coarse,
    distance_variance,
    distances_of,
    require_axes,
)
from noisegate.transforms.distances import Distances
from noisegate.transforms.statistics.numbers import Shape
from noisegate.transforms.statistics.statistic import Batch, Statistic
from noisegate.transforms.strategy import Block, Strategy
from noisegate.transforms.whole_rows import WholeRows


def _moved(strategy: Strategy) -> Moved:
    """One unit moves one cell by 1."""
    return Moved(
        tuple(L1(norm) for norm in strategy.l1s),
        tuple(L2(squared=norm) for norm in strategy.l2s_squared),
    )


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
        bits: Any,
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
        noises = self._price.noise(_moved(strategy), shares)  # type: ignore[arg-type]
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
        moved = _moved(Strategy(self._cells.size, (block,)))
        (noise,) = self._price.noise(moved, [share])  # type: ignore[arg-type]
        return variance_of(noise)

    def done(self, part: float, words: str) -> None:  # noqa: ARG002
        """Nobody watches."""
        if not 0 <= part <= 1:
            raise Bug("A recipe is more than done.", fix="Report the recipe.")

    def _spend(self, shares: NDArray[np.float64]) -> None:
        self.spent = self.spent + shares
        if self.spent.max(initial=0) > 1 + 1e-9:
            raise Bug(
                "The recipe asks for more than its price.", fix="Report the recipe.", about="price"
            )


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
        bits: Any,
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
            raise SpecError("There is not one share for each table.", fix="Give one for each.")
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

    def done(self, part: float, words: str) -> None:  # noqa: ARG002
        """Nobody watches."""
        if not 0 <= part <= 1:
            raise Bug("A synthesizer is more than done.", fix="Report it.")

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


class TrialRows:
    """Given, public rows, each one unit: the real questions and the real noise, but no door.

    There is no ledger and no guarantee: it is for tests and benchmarks. ``amount`` is an ε, or a ρ
    with ``gaussian``; ``bits`` is where chance comes from, such as `noisegate.noise.bits.SYSTEM`,
    or None for no noise at all. ``spent`` are the shares so far.
    """

    def __init__(  # noqa: PLR0913 - each is a fact about the rows
        self,
        rows: NDArray[Any],
        amount: Fraction,
        *,
        reach: int,
        keys: NDArray[Any] | None = None,
        classes: int = 0,
        gaussian: bool = False,
        bits: Any = None,
    ) -> None:
        held = np.clip(np.rint(rows), -reach, reach).astype(np.int32)
        places = np.zeros(len(held), np.int32) if keys is None else np.asarray(keys, np.int32)
        self._batch = Batch(held, places)
        self.columns, self.reach, self.classes = held.shape[1], reach, classes
        self.objective = True
        self.gaussian, self.spent = gaussian, Fraction(0)
        self._price, self._bits = Price(amount=amount, gaussian=gaussian), bits

    @property
    def _shape(self) -> Shape:
        return Shape(self.columns, self.reach, self.classes)

    def totals(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[NoisySums]:
        """The sums of each feature, with the noise its share buys."""
        self.spent += sum(shares)
        if self.spent > 1:
            raise Bug(
                "The learner asks for more than its price.",
                fix="Report the learner.",
                about="price",
            )
        blocks = statistic.blocks(self._shape)
        chosen = noises(blocks, shares, self._price, 1)
        exact = [total.reshape(-1) for total in statistic.total([self._batch], self._shape)]
        if self._bits is not None:
            pairs = zip(chosen, exact, strict=True)
            exact = [noise.sample(numbers, bits=self._bits) for noise, numbers in pairs]
        return measured_of(exact, blocks, chosen, 1)

    def variance(self, statistic: Statistic, shares: Sequence[Fraction]) -> list[float]:
        """The variances that `totals` would have."""
        chosen = noises(statistic.blocks(self._shape), shares, self._price, 1)
        return [noise_variance(noise) for noise in chosen]

    def minimised(self, penalty: Fraction, share: Fraction) -> NoisySums:
        """The same of these rows; without noise, with a thousandth."""
        self.spent += share
        noise = minimiser(self._shape, self._price, share, 1, 1, penalty)
        (rows,) = WholeRows().total([self._batch], self._shape)
        if self._bits is None:
            quiet = replace(noise, scale=noise.scale / 1000, blur=noise.blur / 1000)
            return lines_of(noise, quiet.sample(rows.reshape(-1)))
        return lines_of(noise, noise.sample(rows.reshape(-1), bits=self._bits))

    def done(self, part: float, words: str) -> None:  # noqa: ARG002
        """Nobody watches."""
        if not 0 <= part <= 1:
            raise Bug("A learner is more than done.", fix="Report the learner.")

    def keep(self, fitted: Mapping[str, NDArray[Any]]) -> None:
        """Nobody interrupts."""
