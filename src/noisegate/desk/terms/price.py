"""Where a price becomes noise: ε or ρ, of all rows or of a secret sample.

An ε that is asked of an account means: this order alone is (ε, δ)-private, δ the account's. What
it buys there is a `Step`: the ε of a pure step that costs as much. Where ε itself adds up that is
the ε asked for, shares are shares of it, and sums carry geometric noise. Elsewhere it is √(2ρ) of
the ρ that implies (ε, δ), since an ε-private step has ρ = ε²/2 [BS16]; shares are shares of ρ.
Behind this page a price is a step, and steps of one order add up by `together`.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import exp, expm1, floor, isqrt
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.accountant import GRAINS_PER_ONE
from noisegate.accounting.search import digits_down
from noisegate.desk.terms.terms import USUAL
from noisegate.errors import Bug, SpecError
from noisegate.exact import sqrt_down
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import Mechanism, NoiseMechanism
from noisegate.privacy import event as events
from noisegate.privacy.distance import L1, L2
from noisegate.privacy.event import Event
from noisegate.transforms.query import Query

if TYPE_CHECKING:
    from noisegate.mechanisms.partitions.furthest import Furthest

VARIANCE_MIN: Final = 1e-30  # of noise so narrow that a double takes it for none
_DELTA_MAX: Final = Fraction(1, 2)  # of those in a sample
_FINE: Final = 10**32  # of a step: so fine that its ρ is right to a grain
_ROUNDING: Final = Fraction(1000, GRAINS_PER_ONE)  # ρ for what each of many charges rounds up


@final
class Step(Fraction):
    """An ε that is bought already: that of a pure step. Arithmetic gives plain numbers."""

    __slots__ = ()


def step_of(rho: Fraction) -> Step:
    """The pure step that costs ρ: √(2ρ). Rounding: down, by so little that nobody can ask for it.

    An order may be charged in many entries, each rounded up to a grain. All of them fit.
    """
    return Step(_root(2 * max(rho - _ROUNDING, Fraction(0))))


def together(steps: Iterable[Fraction], *, rho: bool) -> Step:
    """What steps are together: their sum, or the root of that of their squares. Rounding: up."""
    if not rho:
        return Step(sum(steps, Fraction(0)))
    return Step(_root(sum((each * each for each in steps), Fraction(0)), up=True))


def without(whole: Fraction, steps: Iterable[Fraction], *, rho: bool) -> Step:
    """What is left of a step after others. Rounding: down."""
    used = together(steps, rho=rho)
    return Step(_root(whole**2 - used**2) if rho else whole - used)


def share_of(whole: Fraction, share: Fraction, *, rho: bool) -> Step:
    """A share of a step: of its ε, or of its ρ. Rounding: down."""
    return Step(_root(whole**2 * share) if rho else whole * share)


def _root(square: Fraction, *, up: bool = False) -> Fraction:
    scaled = square * _FINE * _FINE
    found = isqrt(floor(scaled))
    return Fraction(found + (up and found * found < scaled), _FINE)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Funds:
    """The price of the whole question, and how shares of it are turned into noise."""

    epsilon: Fraction
    gaussian: bool

    def share(self, share: Fraction) -> Fraction:
        """The ε that a share buys: ε · share, or √(2ρ) of a share of ρ. Rounding: down."""
        if not self.gaussian:
            return self.epsilon * share
        return digits_down(self.epsilon * sqrt_down(share))

    def choice(self, share: Fraction) -> Fraction:
        """The same for a choice by ranks, which costs a quarter of the ρ of other steps."""
        return self.share(share) * (2 if self.gaussian else 1)

    def noise(self, share: Fraction, *, l1: L1, l2: L2) -> Geometric | DiscreteGaussian:
        """The better noise for a share."""
        geometric = Geometric.for_epsilon(self.share(share), sensitivity=l1)
        if not self.gaussian:
            return geometric
        gaussian = DiscreteGaussian.for_rho(share * self.epsilon**2 / 2, sensitivity=l2)
        return geometric if geometric.interval(USUAL) <= gaussian.interval(USUAL) else gaussian


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
        """What a step buys: itself, or ρ = ε² / 2; of a sample, the ε whose amplified price it is.

        No theorem prices Gaussian noise in a recipe about a sample: it is pure in every account.
        """
        if sample is not None:
            from noisegate.accounting.amplification import inner_epsilon_down  # noqa: PLC0415

            inner = digits_down(inner_epsilon_down(epsilon, probability=sample))
            return cls(amount=inner, gaussian=False, sample=sample)
        gaussian = accountant != "pure"
        return cls(amount=epsilon**2 / 2 if gaussian else Fraction(epsilon), gaussian=gaussian)

    def event(self, share: Fraction = Fraction(1)) -> Event:
        """A share of it, to be reserved."""
        amount = share * self.amount
        if self.gaussian:
            return events.DeclaredZCDPEvent(rho=amount)
        paid = events.DeclaredEvent(epsilon=amount)
        return (
            paid
            if self.sample is None
            else events.PoissonSampled(event=paid, probability=self.sample)
        )

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
        if not self.gaussian or type(sharp.event(moved)) is events.ExponentialEvent:
            return sharp
        return mechanism_of(self.epsilon(share) / moved.value)

    def furthest(self, guesses: NDArray[np.int64], share: Fraction, moved: Fraction) -> "Furthest":
        """The choice of a question that a share buys, where a unit moves each answer so far."""
        from noisegate.mechanisms.partitions.furthest import Furthest  # noqa: PLC0415 - by recipes

        (exact,) = require_shares([share])
        epsilon = self.exponential_epsilon(exact)
        return Furthest.for_epsilon(epsilon, guesses=guesses.tolist(), score_sensitivity=moved)

    def _epsilon(self, share: Fraction, over: int) -> Fraction:
        if not self.gaussian:
            return share * self.amount
        fine = 1 << 40
        return Fraction(isqrt(floor(over * share * self.amount * fine * fine)), fine)


def inner_price(price: Fraction, sample: Fraction | None) -> Fraction:
    """What those in a sample may pay, so that all pay the price; without one, the price."""
    if sample is None:
        return Fraction(price)
    from noisegate.accounting.amplification import inner_epsilon_down  # noqa: PLC0415

    return digits_down(inner_epsilon_down(price, probability=sample))


def inner_delta(delta: Fraction, sample: Fraction | None) -> Fraction:
    """The same for δ: δ' = p δ is that of all."""
    return delta if sample is None else min(delta / sample, _DELTA_MAX)


def variance_of(noise: NoiseMechanism[Any]) -> float:
    """The variance of each number; never 0, so that recipes can weigh by it."""
    if isinstance(noise, Geometric):
        loss = 1 / float(noise.scale)
        return max(2 * exp(-loss) / expm1(-loss) ** 2, VARIANCE_MIN)
    if isinstance(noise, DiscreteGaussian):
        return float(noise.variance)
    raise Bug("The variance of this noise is not known.", fix="Report the recipe.")


def require_shares(shares: Sequence[Fraction]) -> list[Fraction]:
    """Shares that buy something."""
    if any(type(share) is not Fraction or not 0 < share <= 1 for share in shares):
        raise SpecError(
            "A share is not between 0 and 1.", fix="Give fractions of the price.", about="share"
        )
    return list(shares)
