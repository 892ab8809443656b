"""Which undeclared keys may be shown: optimal selection, and thresholded noisy counts.

A key is a value that the policy did not declare, so its mere presence is data. A count here is the
number of units that hold the key; a unit adds at most 1 to each of at most ``keys_per_unit`` keys.

>>> keys = KeySelection.for_budget(1, "1e-5", keys_per_unit=1)
>>> keys.turn, keys.last, ThresholdedGeometric.for_budget(1, "1e-5", keys_per_unit=1).threshold
(11, 22, 13)
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final, final

import numpy as np

from noisegate.accounting.tails import upper_tail
from noisegate.errors import SpecError
from noisegate.exact import Number, Real, enclose, lower, positive, real, upper
from noisegate.mechanisms.base import (
    INPUT_MAX,
    Mechanism,
    clamped,
    noisy,
    require_whole,
    smallest_whole,
    store_positive,
    surely_at_most,
    whole_count,
)
from noisegate.noise.bernoulli import bernoulli
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, discrete_laplace
from noisegate.noise.law import Certified
from noisegate.privacy.event import KeySelectionEvent

EPSILON_MIN: Final = Fraction(1, 10**6)
EPSILON_MAX: Final = Fraction(100)
BELOW_ONE: Final = 1 - Fraction(1, 10**6)
HIDDEN: Final = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeySelection(Mechanism[int]):
    """Shows a key held by n units with the largest probability π(n) that (ε, δ) per key allows."""

    name: ClassVar[str] = "key-selection/1"
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        store_positive(self, "epsilon", least=EPSILON_MIN, most=EPSILON_MAX)
        store_positive(self, "delta", most=BELOW_ONE)

    @classmethod
    def for_budget(cls, epsilon: Number, delta: Number, *, keys_per_unit: int) -> "KeySelection":
        """Equal shares per key, so that the event costs (ε, δ); or the largest ε there is."""
        keys = whole_count(keys_per_unit, name="keys_per_unit")
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
        keys = whole_count(keys_per_unit, name="keys_per_unit")
        return KeySelectionEvent(
            epsilon=keys * self.epsilon, delta=min(keys * self.delta, Fraction(1))
        )

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """1 for each key that may be shown, given how many units hold each present key."""
        counts, last = clamped(exact).ravel(), self.last
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
        """The count up to which the first rule decides."""
        return _turns(self.epsilon, self.delta)[0]

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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdedGeometric(Mechanism[int]):
    """Noisy counts of present keys, shown where they reach ``threshold``; hidden keys become 0."""

    name: ClassVar[str] = "thresholded-geometric/1"
    scale: Fraction
    threshold: int

    def __post_init__(self) -> None:
        store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        require_whole(self, "threshold", least=1, most=INPUT_MAX)

    @classmethod
    def for_budget(
        cls, epsilon: Number, delta: Number, *, keys_per_unit: int
    ) -> "ThresholdedGeometric":
        """Noise that costs exactly ε, and the lowest threshold whose event stays within δ."""
        keys = whole_count(keys_per_unit, name="keys_per_unit")
        scale = keys / positive(epsilon, name="epsilon")
        share = positive(delta, name="delta")
        threshold = smallest_whole(
            lambda t: surely_at_most(lambda: keys * upper_tail(scale, t - 1), share), least=1
        )
        return cls(scale=scale, threshold=threshold)

    def event(self, keys_per_unit: int, /) -> KeySelectionEvent:
        """What one release of keys with their noisy counts is.

        Claim: (ℓ / scale, ℓ α^(t-1) / (1 + α))-differentially private for threshold t and at most ℓ
            keys per unit, each counted once. Adjacency: add/remove.
        Why: [KKMN09], [BNS19]. Keys present for both neighbours carry geometric noise; a key held
            by one unit alone is absent for the other and shows with Pr[1 + Z ≥ t].
        Rounding: δ up.
        """
        keys = whole_count(keys_per_unit, name="keys_per_unit")
        delta = upper(lambda: keys * upper_tail(self.scale, self.threshold - 1), digits_bits=128)
        return KeySelectionEvent(epsilon=keys / self.scale, delta=min(delta, Fraction(1)))

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The noisy count of each key, or 0 where the key stays hidden."""
        counts = clamped(exact)
        released = noisy(counts, discrete_laplace(self.scale, counts.shape, bits=bits))
        return np.where((counts >= 1) & (released >= self.threshold), released, HIDDEN)


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
    raise SpecError("The selection rule sits on a boundary.", fix="Change epsilon slightly.")
