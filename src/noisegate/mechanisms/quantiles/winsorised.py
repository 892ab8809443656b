"""The sum of numbers, cut to a range that is found privately first.

>>> import numpy as np
>>> noise = Winsorised.for_epsilon(2, high=1 << 20)
>>> total, low, high = noise.sample(np.full(1000, 300_000)).tolist()
>>> 0 <= low < high <= 1 << 20
True
>>> [type(event).__name__ for event in noise.event(1).events]
['ExponentialEvent', 'ExponentialEvent', 'GeometricEvent']
"""

from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.selection.scores import FACTOR_MAX
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX as WIDEST
from noisegate.noise.geometric import SCALE_MIN
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent, Sequential

POINTS: Final = 1 << 10  # where quartiles are looked for
HIGH_MAX: Final = 1 << 24
SCALE_MAX: Final = WIDEST / HIGH_MAX  # so that the noise of no range is refused


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Winsorised(base.Repeatable[int]):
    """Quartiles of numbers in 0, …, high, then the noisy sum of what lies near them.

    Each quartile is chosen with odds e^(-factor · rank error). Numbers are moved into the range
    from ``spread`` quartile ranges below the lower to as many above the upper; the noise of their
    sum is ``scale`` such ranges wide.
    """

    name: ClassVar[str] = "winsorised/1"
    factor: Fraction
    scale: Fraction
    high: int
    spread: int = 2

    def __post_init__(self) -> None:
        base.store_positive(self, "factor", most=FACTOR_MAX)
        base.store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        base.require_whole(self, "high", least=POINTS, most=HIGH_MAX)
        base.require_whole(self, "spread", least=0, most=1 << 10)
        if self.high % POINTS:
            raise SpecError(
                "The grid of the range is not even.", fix=f"Use a multiple of {POINTS}."
            )

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, high: int, changed: int = 1) -> "Winsorised":
        """A fourth of ε for each quartile, half of it for the sum."""
        price = positive(epsilon, name="epsilon") / base.whole_count(changed, name="changed")
        return cls(factor=price / 8, scale=2 / price, high=high)

    def event(self, changed: int, /) -> Sequential:
        """What one use is, where a unit changes up to so many of a fixed number of numbers.

        Claim: two choices and a sum, one after the other. Adjacency: any unit whose coming, going
            or changing does no more than that.
        Why: the choices are those of `Quantile.changed`. The range is made of what they chose, so
            given that, each changed number moves the sum by at most the width of the range, which
            is what ``scale`` counts in [Smi11]. Rounding: none.
        """
        count = base.whole_count(changed, name="changed")
        choice = self._quartile(1).changed(count)
        added = GeometricEvent(scale=self.scale, sensitivity=L1(count))
        return Sequential(events=(choice, choice, added))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """The noisy sum of numbers, counted from the low end of the range, and its two ends."""
        numbers = np.clip(base.clamped(exact), 0, self.high)
        quartiles = [self._quartile(which).uses(numbers, count, bits=bits) for which in (1, 3)]
        both, found = np.sort(np.hstack(quartiles), axis=1), np.empty((count, 3), np.int64)
        for lower, upper in set(map(tuple, both.tolist())):
            margin = self.spread * max(upper - lower, self._step)
            low, high = max(0, lower - margin), min(self.high, max(upper + margin, lower + 1))
            low = min(low, high - 1)
            total = (np.clip(numbers, low, high) - low).sum()
            uses = np.flatnonzero((both == (lower, upper)).all(axis=1))
            found[uses, 0] = self.noise(high - low).sample(np.full(uses.size, total), bits=bits)
            found[uses, 1:] = low, high
        return found

    def noise(self, width: int) -> Geometric:
        """The noise of the sum, for a range of this width."""
        return Geometric(scale=self.scale * width)

    def rank_error(self, confidence: Number) -> int:
        """How many ranks a quartile may be off, at this confidence."""
        return self._quartile(1).rank_error(confidence)

    @property
    def _step(self) -> int:
        return self.high // POINTS

    def _quartile(self, which: int) -> Quantile:
        tau = Fraction(which, 4)
        return Quantile(tau=tau, factor=self.factor, low=0, high=self.high, step=self._step)
