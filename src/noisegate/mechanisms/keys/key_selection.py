"""Which undeclared keys may be shown: optimal selection, and thresholded noisy counts.

A key is a value that the policy did not declare, so its mere presence is data. A count here is the
number of units that hold the key; a unit adds at most 1 to each of at most ``keys_per_unit`` keys.

>>> keys = KeySelection.for_budget(1, "1e-5", keys_per_unit=1)
>>> keys.turn, keys.last, ThresholdedGeometric.for_budget(1, "1e-5", keys_per_unit=1).threshold
(11, 22, 13)
"""

from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, final

import numpy as np

from noisegate.accounting.search import digits_up
from noisegate.accounting.tails import discrete_gaussian_tail, upper_tail
from noisegate.algebra.tally import Keys
from noisegate.errors import SpecError
from noisegate.exact import Number, Real, enclose, lower, positive, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.coins import bernoulli
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN
from noisegate.noise.law import VARIANCE_MAX, VARIANCE_MIN, Certified
from noisegate.privacy.event import KeySelectionEvent, ThresholdedGaussianEvent
from noisegate.transforms.query import Query

EPSILON_MIN: Final = Fraction(1, 10**6)
EPSILON_MAX: Final = Fraction(100)
BELOW_ONE: Final = 1 - Fraction(1, 10**6)
HIDDEN: Final = 0
LEAK_MIN: Final = Fraction(1, 10**1000)  # of a δ that a count has: ledgers write it in digits
_RARELY: Final = Fraction(1, 1000)  # how rarely a group of `Finder.sure` units stays hidden


class Finder(base.Mechanism[int]):
    """Decides which of the present keys are shown, by how many units hold each."""

    __slots__ = ()
    takes: ClassVar[base.Takes] = base.Takes.ROWS

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Keys that rows hold."""
        if not isinstance(query.tally, Keys):
            raise base.no_rule(query)

    @property
    @abstractmethod
    def turn(self) -> int:
        """A count that is shown in about half of all cases."""

    @property
    @abstractmethod
    def sure(self) -> int:
        """A count from which on keys are shown always, or nearly so."""

    @abstractmethod
    def probability(self, n: int) -> tuple[Fraction, Fraction]:
        """Bounds around the chance that a key of n units is shown."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeySelection(Finder):
    """Shows a key held by n units with the largest probability π(n) that (ε, δ) per key allows."""

    name: ClassVar[str] = "key-selection/1"
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "epsilon", least=EPSILON_MIN, most=EPSILON_MAX)
        base.store_positive(self, "delta", most=BELOW_ONE)

    @classmethod
    def for_budget(cls, epsilon: Number, delta: Number, *, keys_per_unit: int) -> "KeySelection":
        """Equal shares per key, so that the event costs (ε, δ); or the largest ε there is."""
        keys = base.whole_count(keys_per_unit, name="keys_per_unit")
        return cls(
            epsilon=min(positive(epsilon, name="epsilon") / keys, EPSILON_MAX),
            delta=positive(delta, name="delta") / keys,
        )

    def event(self, keys_per_unit: int, /) -> KeySelectionEvent:
        """What one selection is.

        Claim: (ℓ ε, ℓ δ)-differentially private where a unit holds at most ℓ keys.
        Adjacency: add/remove. Why: each key's decision is (ε, δ)-private and the best such
            [DVGM22, Thm 1]; a unit touches ℓ independent ones. Rounding: none.
        """
        keys = base.whole_count(keys_per_unit, name="keys_per_unit")
        return KeySelectionEvent(
            epsilon=keys * self.epsilon, delta=min(keys * self.delta, Fraction(1))
        )

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """1 for each key that may be shown, given how many units hold each present key."""
        counts, last = base.clamped(exact).ravel(), self.last
        shown = (counts > last).astype(np.int64)
        unsure = np.flatnonzero((counts >= 1) & (counts <= last))
        unsure = unsure[np.argsort(counts[unsure], kind="stable")]
        sizes, starts = np.unique(counts[unsure], return_index=True)
        for n, lanes in zip(sizes.tolist(), np.split(unsure, starts[1:]), strict=False):
            shown[lanes] = bernoulli(self._chance(n), lanes.size, bits=bits)
        return shown.reshape(exact.shape)

    def probability(self, n: int) -> tuple[Fraction, Fraction]:
        """Bounds around π(n).

        Claim: π(0) = 0 and π(n + 1) = min(e^ε π(n) + δ, 1 - e^(-ε) (1 - π(n) - δ), 1); in closed
            form δ (e^(nε) - 1) / (e^ε - 1) up to ``turn``, then
            (1 - e^(-kε)) (1 + δ / (e^ε - 1)) + e^(-kε) π(turn) at turn + k, up to ``last``, then 1.
        Why: [DVGM22, Thm 2]. Rounding: outwards.
        """
        if n <= 0 or n > self.last:
            return (Fraction(0),) * 2 if n <= 0 else (Fraction(1),) * 2
        compute = self._chance(n).compute
        return lower(compute), upper(compute)

    @property
    def turn(self) -> int:
        """The count up to which the first rule decides; shown in about half of all cases."""
        return _turns(self.epsilon, self.delta)[0]

    @property
    def sure(self) -> int:
        """The least count that is shown for certain."""
        return self.last + 1

    @property
    def last(self) -> int:
        """The largest count that is not shown for certain."""
        return _turns(self.epsilon, self.delta)[1]

    def _chance(self, n: int) -> Certified:
        """π(n) for 1 ≤ n ≤ last."""
        turn = self.turn

        def mass() -> Real:
            if n <= turn:
                return _rising(n, self.epsilon, self.delta)
            fall = (-real((n - turn) * self.epsilon)).exp()
            level = 1 + real(self.delta) / real(self.epsilon).expm1()
            return (1 - fall) * level + fall * _rising(turn, self.epsilon, self.delta)

        return Certified(("key", self.epsilon, self.delta, n), mass)


class Thresholded(Finder):
    """Noisy counts of present keys, shown where they reach ``threshold``; hidden keys become 0.

    One draw is both the decision and the number.
    """

    __slots__ = ()
    threshold: int

    @property
    @abstractmethod
    def noise(self) -> Geometric | DiscreteGaussian:
        """What is added to each count."""

    @abstractmethod
    def tail(self, m: int) -> Real:
        """Pr[Z ≥ m] for m ≥ 1, or a little more."""

    @property
    def turn(self) -> int:
        """The threshold: a key of so many units is shown a bit more often than not."""
        return self.threshold

    @property
    def sure(self) -> int:
        """The least count that stays hidden in at most one of a thousand cases."""
        return self.threshold + base.smallest_whole(
            lambda more: base.surely_at_most(lambda: self.tail(more + 1), _RARELY)
        )

    def probability(self, n: int) -> tuple[Fraction, Fraction]:
        """Bounds around Pr[n + Z ≥ t], which is 1 - Pr[Z ≥ n - t + 1] if n ≥ t."""
        if n <= 0:
            return Fraction(0), Fraction(0)
        short = self.threshold - n
        if short > 0:
            return lower(lambda: self.tail(short)), upper(lambda: self.tail(short))
        return lower(lambda: 1 - self.tail(1 - short)), upper(lambda: 1 - self.tail(1 - short))

    def leak(self, keys: int) -> Fraction:
        """How likely it is at most that any of so many keys shows that one unit holds alone.

        Rounding: up, to so few digits that plans and charges agree.
        """
        return _leak(self.tail, self.threshold, keys)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The noisy count of each key, or 0 where the key stays hidden."""
        counts, released = base.clamped(exact), self.noise.sample(exact, bits=bits)
        return np.where((counts >= 1) & (released >= self.threshold), released, HIDDEN)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdedGeometric(Thresholded):
    """Counts with two-sided geometric noise."""

    name: ClassVar[str] = "thresholded-geometric/1"
    scale: Fraction
    threshold: int

    def __post_init__(self) -> None:
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        base.require_whole(self, "threshold", least=1, most=base.INPUT_MAX)

    @classmethod
    def for_budget(
        cls, epsilon: Number, delta: Number, *, keys_per_unit: int
    ) -> "ThresholdedGeometric":
        """Noise that costs ε, or the least there is, and the lowest threshold within δ."""
        keys = base.whole_count(keys_per_unit, name="keys_per_unit")
        scale = max(keys / positive(epsilon, name="epsilon"), SCALE_MIN)
        share = _share(delta)
        threshold = base.smallest_whole(
            lambda t: _leak(lambda m: upper_tail(scale, m), t, keys) <= share, least=1
        )
        return cls(scale=scale, threshold=threshold)

    @property
    def noise(self) -> Geometric:
        """What is added to each count."""
        return Geometric(scale=self.scale)

    def tail(self, m: int) -> Real:
        """Pr[Z ≥ m] = α^m / (1 + α)."""
        return upper_tail(self.scale, m)

    def event(self, keys_per_unit: int, /) -> KeySelectionEvent:
        """What one release of keys with their noisy counts is.

        Claim: (ℓ / scale, ℓ α^(t-1) / (1 + α))-differentially private for threshold t and at most ℓ
            keys per unit, each counted once. Adjacency: add/remove.
        Why: [KKMN09], [BNS19]. A key that the unit alone holds is absent without it, and else shows
            with Pr[1 + Z ≥ t]. Let E be that none of those shows: certain without the unit, and
            with it of a chance of 1 - δ or more. Draws are independent, so given E, all other keys
            show as ever: counts that differ by 1 in at most ℓ of them, with geometric noise, of
            which a part is shown. So with the unit the law is (1 - δ) times one within e^ε of that
            without it, and δ times another.
        Rounding: δ up.
        """
        keys = base.whole_count(keys_per_unit, name="keys_per_unit")
        return KeySelectionEvent(epsilon=keys / self.scale, delta=self.leak(keys))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdedGaussian(Thresholded):
    """Counts with discrete Gaussian noise: it grows with √ℓ where a unit holds ℓ keys."""

    name: ClassVar[str] = "thresholded-gaussian/1"
    variance: Fraction
    threshold: int

    def __post_init__(self) -> None:
        base.store_positive(self, "variance", least=VARIANCE_MIN, most=VARIANCE_MAX)
        base.require_whole(self, "threshold", least=2, most=base.INPUT_MAX)

    @classmethod
    def for_budget(cls, rho: Number, delta: Number, *, keys_per_unit: int) -> "ThresholdedGaussian":
        """The least noise that costs ρ, and the lowest threshold whose event stays within δ."""
        keys = base.whole_count(keys_per_unit, name="keys_per_unit")
        variance = max(keys / (2 * positive(rho, name="rho")), VARIANCE_MIN)
        threshold = _gaussian_threshold(variance, _share(delta), keys)
        return cls(variance=variance, threshold=threshold)

    @property
    def noise(self) -> DiscreteGaussian:
        """What is added to each count."""
        return DiscreteGaussian(variance=self.variance)

    def tail(self, m: int) -> Real:
        """Pr[Z ≥ m], half of both tails; of wide noise a bound that is tight to about 10⁻⁷."""
        return discrete_gaussian_tail(self.variance, m - 1) / 2

    def event(self, keys_per_unit: int, /) -> ThresholdedGaussianEvent:
        """What one release of keys with their noisy counts is.

        Claim: δ-approximate (ℓ / 2 variance)-zCDP, δ = ℓ Pr[1 + Z ≥ t], for threshold t and at most
            ℓ keys per unit, each counted once. Adjacency: add/remove.
        Why: with E as in `ThresholdedGeometric.event`, the law given E with the unit and that
            without it are both parts of counts with discrete Gaussian noise that differ by 1 in at
            most ℓ keys: an L2 distance of √ℓ [CKS20, Prop. 5]. That is the definition of
            approximate zCDP [BS16, Def. 8.1].
        Rounding: δ up.
        """
        keys = base.whole_count(keys_per_unit, name="keys_per_unit")
        return ThresholdedGaussianEvent(variance=self.variance, keys=keys, delta=self.leak(keys))


@lru_cache(maxsize=256)
def _gaussian_threshold(variance: Fraction, delta: Fraction, keys: int) -> int:
    def tail(m: int) -> Real:
        return discrete_gaussian_tail(variance, m - 1) / 2

    return base.smallest_whole(lambda t: _leak(tail, t, keys) <= delta, least=2)


def _share(delta: Number) -> Fraction:
    """A δ that a threshold can keep."""
    share = positive(delta, name="delta")
    if share < LEAK_MIN:
        raise SpecError(
            "delta is too small for any group to be shown.", fix="Use delta=1e-10.", about="delta"
        )
    return share


def _leak(tail: Callable[[int], Real], threshold: int, keys: int) -> Fraction:
    """ℓ Pr[1 + Z ≥ t], rounded up to six digits, and to `LEAK_MIN`; at most 1."""
    exact = upper(lambda: keys * tail(threshold - 1), digits_bits=128)
    return min(digits_up(max(exact, LEAK_MIN), digits=6), Fraction(1))


def _rising(n: int, epsilon: Fraction, delta: Fraction) -> Real:
    return real(delta) * real(n * epsilon).expm1() / real(epsilon).expm1()


@lru_cache(maxsize=256)
def _turns(epsilon: Fraction, delta: Fraction) -> tuple[int, int]:
    """Where the first rule hands over to the second, and where the second ends [DVGM22, Thm 2]."""

    def rise() -> Real:
        grown = real(epsilon).exp()
        return ((grown + 2 * real(delta) - 1) / ((grown + 1) * real(delta))).log() / real(epsilon)

    def fall() -> Real:
        room = real(epsilon).expm1() / real(delta) * (1 - _rising(turn, epsilon, delta))
        return room.log1p() / real(epsilon)

    if delta == Fraction(1, 2):
        return 1, 1  # π(1) = ½ and π(2) = 1 for every ε: the one case where both ends are whole
    turn = 1 + _whole_part(rise)
    return turn, turn + _whole_part(fall)


def _whole_part(compute: Callable[[], Real]) -> int:
    """⌊x⌋ of a real number that is not whole.

    A whole one would make e^ε, which is transcendental for rational ε ≠ 0, the root of a polynomial
    with rational coefficients; that polynomial vanishes for δ = ½ alone.
    """
    for bits in (64, 256, 1024, 4096):
        low, high = enclose(compute, bits=bits)
        if low >> bits == high >> bits:
            return low >> bits
    raise SpecError("The selection rule falls on a boundary.", fix="Change epsilon slightly.")
