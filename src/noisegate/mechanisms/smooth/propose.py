"""Propose a bound, test whether it is safe, and only then release.

The test counts how many steps away rows are for which the proposed bound does not hold, with noise.
If that seems far, the number is released with noise for the bound; else nothing is.

>>> noise = ProposeTestRelease.for_budget(1, "1e-6", bound=5, low=0, high=1000)
>>> noise.threshold, noise.sample(np.array([300, 900])).tolist()  # here a step moves it by 900
(27, [0, 0])
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, Real, positive, real, upper
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import clamped, require_whole, store_positive, whole_count
from noisegate.mechanisms.smooth.smooth import REACH_MAX, LocalNoise, chance_of
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN
from noisegate.privacy.event import ProposeTestReleaseEvent

THRESHOLD_MAX: Final = 1 << 12


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeTestRelease(LocalNoise):
    """Releases (1, number with noise) if the test passes, else (0, low)."""

    name: ClassVar[str] = "propose-test-release/1"
    bound: int
    test_scale: Fraction
    threshold: int
    scale: Fraction
    low: int
    high: int

    def __post_init__(self) -> None:
        store_positive(self, "test_scale", least=SCALE_MIN, most=SCALE_MAX)
        store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        require_whole(self, "threshold", least=1, most=THRESHOLD_MAX)
        self._require_range()
        require_whole(self, "bound", least=1, most=self.high - self.low)

    @classmethod
    def for_budget(
        cls, epsilon: Number, delta: Number, *, bound: int, low: int, high: int
    ) -> "ProposeTestRelease":
        """Half of ε for the test and half for the release, with at most ``delta``."""
        half, chance = positive(epsilon, name="epsilon") / 2, chance_of(delta)
        whole = whole_count(bound, name="bound")
        log = upper(lambda: -(real(chance) * (1 + (-real(half)).exp())).log() / real(half))
        if log > THRESHOLD_MAX:
            raise SpecError(
                "The price is too low for propose-test-release.", fix="Use a larger ε or δ."
            )
        return cls(
            bound=whole, test_scale=1 / half, threshold=max(1, -(-log // 1)), scale=whole / half,
            low=low, high=high,
        )  # fmt: skip

    @property
    def depth(self) -> int:
        """Twice the threshold: what is further away passes nearly surely."""
        return 2 * self.threshold

    def one_step(self) -> ProposeTestReleaseEvent:
        """What one use is, where a unit's coming or going is one step.

        Claim: (1/test_scale + bound/scale, δ), δ = Pr[noise of the test ≥ threshold].
        Adjacency: one step.
        Why: [DL09]. Let g be the least k with A_k above the bound, at most ``depth``. One step
            changes g by at most 1, since A_k(x) ≤ A_{k+1}(x'). If g > 0 for one of two
            neighbours, they differ by at most A_0 ≤ bound, and test and release compose. Else
            g = 0 for both: the tests have one law, and pass with probability δ. Rounding: δ up.
        """
        return ProposeTestReleaseEvent(
            epsilon_test=1 / self.test_scale,
            epsilon_release=self.bound / self.scale,
            delta=upper(self._passing),
        )

    def _passing(self) -> Real:
        alpha = (-real(1 / self.test_scale)).exp()
        return alpha**self.threshold / (1 + alpha)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """Draws for one row: the number, then its reaches A_0, A_1 and so on."""
        row = clamped(exact, REACH_MAX).ravel()
        distances = np.full(count, self.distance(row[1:]))
        passed = Geometric(scale=self.test_scale).sample(distances, bits=bits) >= self.threshold
        numbers = np.full(count, self.low, np.int64)
        held = np.full(int(passed.sum()), np.clip(row[0], self.low, self.high))
        released = Geometric(scale=self.scale).sample(held, bits=bits)
        numbers[passed] = np.clip(released, self.low, self.high)
        return np.stack([passed.astype(np.int64), numbers], axis=1)

    def distance(self, reaches: Int64Array) -> int:
        """The least k with A_k above the bound, at most ``depth``; a list that ends has the range.

        Exact: never leaves the door without noise.
        """
        seen = reaches[: self.depth]
        over = np.flatnonzero(seen > self.bound)
        if over.size:
            return int(over[0])
        return len(seen) if self.bound < self.high - self.low else self.depth

    def interval(self, confidence: Number) -> int:
        """How far a number that is released may be off, at this confidence."""
        return Geometric(scale=self.scale).interval(confidence)
