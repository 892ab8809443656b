"""Noise of the size that the rows at hand need, where that size is itself a secret.

A median may jump over the whole range when one row comes, but rarely does. Let A_k be how far one
step can move the answer from anywhere within k steps of these rows. Noise times
S = max_k d_k A_k is private, where the public decays d_k fall by at most e^-β a step.

>>> noise = SmoothStudent.for_epsilon(1, low=0, high=1000)
>>> noise.bound([3, 5]) == 1000 * noise.decays[2]  # what is not given counts as the whole range
True
>>> bool(0 <= noise.sample(np.array([500, *[3] * 400]))[0] <= 1000)
True
>>> float(noise.scale), noise.beta
(1.49558126953, Fraction(1, 5))
"""

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import exp, sqrt
from operator import mul
from typing import ClassVar, Final, final

import numpy as np

from noisegate.accounting.search import digits_down, largest, least
from noisegate.accounting.smooth import laplace_delta_up, lognormal_rho_up, student_epsilon_up
from noisegate.errors import SpecError
from noisegate.exact import Number, exp_up, fraction, positive, shown, sqrt_down
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.continuous import Laplace, LaplaceLognormal, Shape, StudentT, rounded
from noisegate.privacy.event import (
    Event,
    Group,
    SmoothLaplaceEvent,
    SmoothLognormalEvent,
    SmoothStudentEvent,
)

UNIT: Final = 1 << 48  # decays and bounds are whole numbers of 1/UNIT
SCALE_MAX: Final = Fraction(1 << 50)
BETA_MIN: Final = Fraction(1, 10_000)
BETA_MAX: Final = Fraction(1 << 10)
SCALE_MIN: Final = Fraction(1, 1 << 40)
REACH_MAX: Final = 2 * base.INPUT_MAX  # the widest range: a shorter reach would hide a step
SIGMAS: Final = tuple(Fraction(hundredths, 100) for hundredths in range(1, 201))


class LocalNoise(base.Repeatable[int]):
    """Noise for one whole number by what one step can do to it, here and near here.

    A row is the number, then its reaches A_0, A_1, …: A_k bounds how far one step moves it from
    anywhere within k steps of these rows. What a step is, the number says; a unit's coming or
    going is some steps. A statistic hands on ``depth`` reaches, or ends where A_k is high - low.
    """

    __slots__ = ()
    low: int
    high: int

    @property
    @abstractmethod
    def depth(self) -> int:
        """How many reaches are looked at: public."""

    @abstractmethod
    def one_step(self) -> Event:
        """What one use is, where a unit's coming or going is one step."""

    def event(self, steps: int, /) -> Event:
        """What one use is, where a unit's coming or going is at most so many steps.

        Claim: `one_step`, as it protects ``steps`` steps together. Adjacency: that of the steps.
        Why: the steps come or go one after the other. Rounding: that of `one_step`.
        """
        size = base.whole_count(steps, name="steps")
        return self.one_step() if size == 1 else Group(event=self.one_step(), size=size)

    def _require_range(self) -> None:
        for field in ("low", "high"):
            base.require_whole(self, field, least=-base.INPUT_MAX, most=base.INPUT_MAX)
        if self.low >= self.high:
            raise SpecError("The range is empty.", fix="Use low < high.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothNoise(LocalNoise):
    """A whole number in low, …, high plus noise times a smooth bound, kept inside this range.

    ``scale`` is how many bounds wide the noise is, and ``beta`` how much a step may change the
    logarithm of the bound.
    """

    scale: Fraction
    beta: Fraction
    low: int
    high: int

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        base.store_positive(self, "beta", least=BETA_MIN, most=BETA_MAX)
        self._require_range()
        if self.scale * (self.high - self.low) > SCALE_MAX:
            raise SpecError("The noise is too wide for the grid.", fix="Use a coarser grid.")

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The law of the noise before it is scaled."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """The standard deviation of the noise, in bounds."""

    @property
    def depth(self) -> int:
        """As many as there are decays."""
        return len(self.decays)

    @property
    def decays(self) -> Sequence[int]:
        """d_0, d_1, … until they no longer fall, as whole numbers of 1/UNIT."""
        return _decays(self.beta)

    def bound(self, reaches: Sequence[int]) -> int:
        """The smooth bound S = max_k d_k A_k, as a whole number of 1/UNIT.

        ``reaches`` are A_0, A_1, …: bounds on how far one step moves the number, from anywhere
        within k steps. All after the last count as high - low.

        Claim: S ≥ A_0, and S(x) ≤ e^β S(x') for neighbours, provided that A_k(x) ≤ A_{k+1}(x')
            for all k; where a list may end early, only if its end changes no maximum.
        Why: d_0 = 1 and d_k ≤ e^β d_{k+1}, so d_k A_k(x) ≤ e^β d_{k+1} A_{k+1}(x') [NRS07].
            Cutting A_k off at high - low keeps both, as does a least bound, the last decay times
            high - low. Rounding: none; all are whole numbers.
        """
        most, decays = self.high - self.low, self.decays
        held = [max(0, min(int(reach), most)) for reach in reaches[: len(decays)]]
        last = decays[min(len(held), len(decays) - 1)] * most
        return max(last, max(map(mul, decays, held), default=0))

    @abstractmethod
    def one_step(self) -> Event:
        """What one use is, where a unit's coming or going is one step.

        Claim: that of `accounting.smooth`, for f + scale · S · Z. Adjacency: one step.
        Why: A_0 and β are about one step. The number is whole, so rounding the noise is rounding
            the sum; the grid is public and owes nothing to S. Keeping the result inside low, …,
            high is post-processing, as is noise that stops at ±2**62.
        Rounding: none; the draw is the exactly rounded real.
        """

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """Draws for one row: the number, then its reaches A_0, A_1 and so on."""
        row = base.clamped(exact, REACH_MAX).ravel()
        held, width = np.clip(row[0], self.low, self.high), self.width(row[1:].tolist())
        noise = rounded(self.shape, width, (count, 1), bits=bits)
        found: Int64Array = np.clip(held + noise, self.low, self.high)
        return found

    def width(self, reaches: Sequence[int]) -> Fraction:
        """How wide the noise is at these reaches. Exact: never leaves the door."""
        return self.scale * Fraction(self.bound(reaches), UNIT)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothStudent(SmoothNoise):
    """Student's t with three degrees of freedom, whose promise is a pure ε."""

    name: ClassVar[str] = "smooth-student/1"

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, low: int, high: int, beta: Number | None = None
    ) -> "SmoothStudent":
        """The least noise whose event costs at most ``epsilon``; β is ε/5 if none is given.

        A β below ε/3 leaves something for the noise. Where reaches grow evenly with k, as those of
        a median do, 0.23 ε is best; where they start high, less.
        """
        price = positive(epsilon, name="epsilon")
        smooth = _given(beta, price / 5)
        _require_room(price > 3 * smooth)
        scale = least(
            lambda scale: student_epsilon_up(scale, smooth) <= price,
            guess=1 / (price - 3 * smooth),
        )
        return cls(scale=scale, beta=smooth, low=low, high=high)

    @property
    def shape(self) -> Shape:
        """Student's t."""
        return StudentT(3)

    @property
    def spread(self) -> float:
        """√3 scales."""
        return float(self.scale) * sqrt(3)

    def one_step(self) -> SmoothStudentEvent:
        """Claim: see `accounting.smooth.student_epsilon_up`."""
        return SmoothStudentEvent(scale=self.scale, beta=self.beta)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothLaplace(SmoothNoise):
    """Laplace noise, charged at the point ``epsilon`` of its curve of (ε, δ)."""

    name: ClassVar[str] = "smooth-laplace/1"
    epsilon: Fraction

    def __post_init__(self) -> None:
        SmoothNoise.__post_init__(self)
        base.store_positive(self, "epsilon", most=2 * BETA_MAX)
        self.one_step()

    @classmethod
    def for_budget(
        cls, epsilon: Number, delta: Number, *, low: int, high: int, beta: Number | None = None
    ) -> "SmoothLaplace":
        """The noise whose event costs ``epsilon`` and at most ``delta``.

        Half of ε pays for the move, unless β is given; then as much as δ allows.
        """
        price, chance = positive(epsilon, name="epsilon"), chance_of(delta)
        if beta is None:
            scale = 2 / price
            found = largest(
                lambda b: b <= price / 2 and laplace_delta_up(scale, b, price) <= chance,
                guess=price / 64,
            )
            smooth = _usual(found)
        else:
            smooth = positive(beta, name="beta")
            _require_room(price > smooth)
            widest = (1 << 20) / (price - smooth)
            _require_room(laplace_delta_up(widest, smooth, price) <= chance)
            scale = least(
                lambda s: 1 / s <= price - smooth and laplace_delta_up(s, smooth, price) <= chance,
                guess=2 / (price - smooth),
            )
        return cls(scale=scale, beta=smooth, low=low, high=high, epsilon=price)

    @property
    def shape(self) -> Shape:
        """Laplace."""
        return Laplace()

    @property
    def spread(self) -> float:
        """√2 scales."""
        return float(self.scale) * sqrt(2)

    def one_step(self) -> SmoothLaplaceEvent:
        """Claim: see `accounting.smooth.laplace_delta_up`."""
        return SmoothLaplaceEvent(scale=self.scale, beta=self.beta, epsilon=self.epsilon)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothLognormal(SmoothNoise):
    """Laplace times lognormal noise X e^(σY), for accounts that add up ρ."""

    name: ClassVar[str] = "smooth-lognormal/1"
    sigma: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "sigma", least=SIGMAS[0], most=SIGMAS[-1])
        SmoothNoise.__post_init__(self)

    @classmethod
    def for_rho(
        cls, rho: Number, *, low: int, high: int, beta: Number | None = None
    ) -> "SmoothLognormal":
        """The noise whose event costs at most ``rho``; β is √(2ρ)/8 if none is given.

        σ is that of the least standard deviation, among hundredths.
        """
        price = positive(rho, name="rho")
        root = sqrt_down(2 * price)
        smooth = _given(beta, digits_down(root / 8))
        rest = {sigma: root - smooth / sigma for sigma in SIGMAS if smooth < root * sigma}
        _require_room(bool(rest))
        sigma = min(rest, key=lambda each: exp_up(5 * each * each / 2) / rest[each])
        scale = least(
            lambda scale: lognormal_rho_up(scale, smooth, sigma) <= price, guess=1 / rest[sigma]
        )
        return cls(scale=scale, beta=smooth, low=low, high=high, sigma=sigma)

    @property
    def shape(self) -> Shape:
        """The law of X e^(σY)."""
        return LaplaceLognormal(self.sigma)

    @property
    def spread(self) -> float:
        """√2 e^(σ²) scales."""
        return float(self.scale) * sqrt(2) * exp(self.sigma**2)

    def one_step(self) -> SmoothLognormalEvent:
        """Claim: see `accounting.smooth.lognormal_rho_up`."""
        return SmoothLognormalEvent(scale=self.scale, beta=self.beta, sigma=self.sigma)


@lru_cache(maxsize=64)
def _decays(beta: Fraction) -> tuple[int, ...]:
    """Whole numbers of 1/UNIT from UNIT on, each at least e^-β of the one before it."""
    rate = exp_up(-beta)
    found = [UNIT]
    while (following := -(-found[-1] * rate.numerator // rate.denominator)) < found[-1]:
        found.append(following)
    return tuple(found)


def decays_of(noise: LocalNoise) -> Sequence[int]:
    """The decays of a smooth bound; of other noise none, so that all reaches count."""
    return getattr(noise, "decays", ())


def chance_of(delta: Number) -> Fraction:
    """A δ, exactly, above 0 and below 1."""
    exact = positive(delta, name="delta")
    if exact >= 1:
        raise SpecError(f"delta is {shown(exact)}.", fix="Use a δ below 1, such as 1e-6.")
    return exact


def require_local(noise: object) -> None:
    """Refuse anything else as the noise of a statistic."""
    if not isinstance(noise, LocalNoise):
        raise SpecError(
            "This noise does not scale with local sensitivity.",
            fix="Use SmoothStudent, or one next to it.",
        )


def _given(beta: Number | None, usual: Fraction) -> Fraction:
    return _usual(usual) if beta is None else fraction(beta, name="beta")


def _usual(beta: Fraction) -> Fraction:
    """A β that nobody named: where it is too small, that is the price's fault."""
    if beta < BETA_MIN:
        raise SpecError(
            "The price is too small for a smooth bound: each row of a unit has a part of it.",
            fix="Use a larger epsilon, or a smaller rows_per_unit.",
            about="smooth-price",
        )
    return beta


def _require_room(is_enough: bool) -> None:  # noqa: FBT001 - an assertion
    if not is_enough:
        raise SpecError("β takes up the whole price.", fix="Use a smaller beta, or a larger price.")
