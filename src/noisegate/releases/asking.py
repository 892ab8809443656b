"""How a recipe asks: rounds of whole-number questions about cells, each for a share of its price.

A recipe sees the cells through `Ask` alone, so whatever it computes is private; a mistake in it
costs accuracy, never privacy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1, floor, isqrt
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.amplification import inner_epsilon_down
from noisegate.accounting.search import digits_down
from noisegate.curator.allowance import Scope
from noisegate.curator.measurement import Measurement
from noisegate.errors import Bug, SpecError
from noisegate.mechanisms.base import Mechanism, NoiseMechanism
from noisegate.mechanisms.furthest import Furthest
from noisegate.mechanisms.gaussian import DiscreteGaussian
from noisegate.mechanisms.geometric import Geometric
from noisegate.privacy.distance import L1
from noisegate.privacy.event import (
    DeclaredEvent,
    DeclaredZCDPEvent,
    Event,
    ExponentialEvent,
    PoissonSampled,
)
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Block, Strategy

VARIANCE_MIN: Final = 1e-30  # of noise so narrow that a double takes it for none


@final
@dataclass(frozen=True, slots=True)
class Noisy:
    """Numbers with independent noise of one variance."""

    values: NDArray[np.int64]
    variance: float


class Ask(Protocol):
    """What a recipe is given. Shares are of its whole price; about no cell they exceed 1 together.

    Blocks about different cells stand beside each other: what counts is what each cell was asked.
    One unit moves all cells together by at most ``moved``: a public number.
    """

    shape: tuple[int, ...]
    gaussian: bool
    moved: Fraction

    def sums(self, blocks: Sequence[Block], shares: Sequence[Fraction]) -> list[Noisy]:
        """All blocks in one pass over the rows, each with the noise that its share buys."""

    def choose(
        self, mechanism_of: Callable[[Fraction], Mechanism[L1]], share: Fraction
    ) -> NDArray[np.int64]:
        """What a mechanism chooses by the cells, made for the ε that the share buys per step of 1.

        A unit that may move the cells by s in all has s such steps, each at an s-th of the ε.
        """

    def furthest(self, block: Block, guesses: NDArray[np.int64], share: Fraction) -> int:
        """A question of the block whose guess is nearly the furthest off: exponential choice."""

    def variance(self, block: Block, share: Fraction) -> float:
        """The variance that `sums` would have: free."""

    def done(self, part: float, words: str) -> None:
        """Say how far the recipe has come."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a recipe may spend: an ε, or a ρ where Gaussian noise is added up (zCDP).

    With a ``sample`` it is what those in one secret sample pay, each unit with that chance.
    """

    amount: Fraction
    gaussian: bool
    sample: Fraction | None = None

    @classmethod
    def of(cls, epsilon: Fraction, *, accountant: str, sample: Fraction | None = None) -> "Price":
        """What ε buys: itself, or ρ = ε² / 2; of a sample, the ε whose amplified price it is.

        No theorem prices Gaussian noise in a recipe about a sample: it is pure in every account.
        """
        if sample is not None:
            inner = digits_down(inner_epsilon_down(epsilon, probability=sample))
            return cls(amount=inner, gaussian=False, sample=sample)
        gaussian = accountant != "pure"
        return cls(amount=epsilon**2 / 2 if gaussian else epsilon, gaussian=gaussian)

    def event(self, share: Fraction = Fraction(1)) -> Event:
        """A share of it, to be reserved."""
        amount = share * self.amount
        if self.gaussian:
            return DeclaredZCDPEvent(rho=amount)
        paid = DeclaredEvent(epsilon=amount)
        return paid if self.sample is None else PoissonSampled(event=paid, probability=self.sample)

    def to_record(self) -> dict[str, str]:
        """The amount by its measure, and the sample, if there is one."""
        record = {"rho" if self.gaussian else "epsilon": str(self.amount)}
        return record if self.sample is None else record | {"sample": str(self.sample)}

    def noise(self, query: Query, shares: Sequence[Fraction]) -> tuple[NoiseMechanism[Any], ...]:
        """The noise that the shares buy for a query's blocks (or its one term).

        Where that is narrower than can be drawn, the narrowest, which costs less.
        """
        triples = zip(query.l1s, query.l2s, [share * self.amount for share in shares], strict=True)
        if self.gaussian:
            variances = [l2.squared / (2 * rho) for _, l2, rho in triples]
            return tuple(
                DiscreteGaussian(variance=max(v, DiscreteGaussian.LEAST)) for v in variances
            )
        scales = [l1.value / epsilon for l1, _, epsilon in triples]
        return tuple(Geometric(scale=max(scale, Geometric.LEAST)) for scale in scales)

    def epsilon(self, share: Fraction) -> Fraction:
        """The ε of a choice. Under zCDP it costs at most ε²/2 [BS16], so ε² = 2 ρ, rounded down."""
        return self._epsilon(share, 2)

    def exponential_epsilon(self, share: Fraction) -> Fraction:
        """The ε of an exponential choice: its range is bounded, so it costs ε²/8 [CR21]."""
        return self._epsilon(share, 8)

    def choice(
        self, mechanism_of: Callable[[Fraction], Mechanism[L1]], share: Fraction, moved: L1
    ) -> Mechanism[L1]:
        """The choice that a share buys, made for its ε per step of 1; sharper if exponential."""
        sharp = mechanism_of(self.exponential_epsilon(share) / moved.value)
        if not self.gaussian or type(sharp.event(moved)) is ExponentialEvent:
            return sharp
        return mechanism_of(self.epsilon(share) / moved.value)

    def furthest(self, guesses: NDArray[np.int64], share: Fraction, moved: Fraction) -> Furthest:
        """The choice of a question that a share buys, where a unit moves each answer so far."""
        (exact,) = require_shares([share])
        epsilon = self.exponential_epsilon(exact)
        return Furthest.for_epsilon(epsilon, guesses=guesses.tolist(), score_sensitivity=moved)

    def _epsilon(self, share: Fraction, over: int) -> Fraction:
        if not self.gaussian:
            return share * self.amount
        fine = 1 << 40
        return Fraction(isqrt(floor(over * share * self.amount * fine * fine)), fine)


def variance_of(noise: NoiseMechanism[Any]) -> float:
    """The variance of each number; never 0, so that recipes can weigh by it."""
    if isinstance(noise, Geometric):
        loss = 1 / float(noise.scale)
        return max(2 * exp(-loss) / expm1(-loss) ** 2, VARIANCE_MIN)
    if isinstance(noise, DiscreteGaussian):
        return float(noise.variance)
    raise Bug("This noise has no variance here.", fix="Report the recipe.")


@final
class DoorAsk:
    """Asks through the door, within an allowance."""

    def __init__(
        self,
        scope: Scope,
        cells: Query,
        price: Price,
        *,
        shape: tuple[int, ...],
        progress: Callable[[float, str], None] | None = None,
    ) -> None:
        self._scope, self._cells, self._price, self._progress = scope, cells, price, progress
        self.shape, self.gaussian, self.moved = shape, price.gaussian, cells.moved

    def sums(self, blocks: Sequence[Block], shares: Sequence[Fraction]) -> list[Noisy]:  # noqa: D102 - see Ask
        query = self._query(blocks)
        noises = self._price.noise(query, require_shares(shares))
        release = self._scope.measure(Measurement(query=query, mechanisms=noises))
        ends = np.cumsum([block.size for block in blocks])[:-1]
        parts = np.split(release.values[0], ends)
        return [Noisy(p, variance_of(noise)) for p, noise in zip(parts, noises, strict=True)]

    def choose(  # noqa: D102 - see Ask
        self, mechanism_of: Callable[[Fraction], Mechanism[L1]], share: Fraction
    ) -> NDArray[np.int64]:
        (exact,) = require_shares([share])
        mechanism = self._price.choice(mechanism_of, exact, self._cells.l1s[0])
        release = self._scope.measure(Measurement(query=self._cells, mechanisms=(mechanism,)))
        chosen: NDArray[np.int64] = release.values[0]
        return chosen

    def furthest(self, block: Block, guesses: NDArray[np.int64], share: Fraction) -> int:  # noqa: D102
        query, strategy = self._query([block]), Strategy(block.cells, (block,))
        choice = self._price.furthest(guesses, share, query.moved * strategy.reaches[0])
        release = self._scope.measure(Measurement(query=query, mechanisms=(choice,)))
        return int(release.values[0, 0])

    def variance(self, block: Block, share: Fraction) -> float:  # noqa: D102 - see Ask
        (noise,) = self._price.noise(self._query([block]), require_shares([share]))
        return variance_of(noise)

    def done(self, part: float, words: str) -> None:  # noqa: D102 - see Ask
        if self._progress is not None:
            self._progress(part, words)

    def _query(self, blocks: Sequence[Block]) -> Query:
        cells = int(np.prod(self.shape))
        return Query(self._cells.tally, Strategy(cells, tuple(blocks)))


def require_shares(shares: Sequence[Fraction]) -> list[Fraction]:
    """Shares that buy something."""
    if any(type(share) is not Fraction or not 0 < share <= 1 for share in shares):
        raise SpecError("A share is not between 0 and 1.", fix="Give fractions of the price.")
    return list(shares)
