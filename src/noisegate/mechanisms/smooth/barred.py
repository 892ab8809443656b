"""A number with smooth noise, and how wide that noise was at most: which makes a proven ±.

The noise is scale · S · Z, and S, the smooth bound, is a secret of the rows. But one step changes
ln S by at most β, whatever the rows are, so ln S is a number of small sensitivity: it can be
released with noise of its own, for a share of the price.

>>> from noisegate.mechanisms.smooth.smooth import SmoothStudent
>>> noise = Barred(noise=SmoothStudent.for_epsilon(1, low=0, high=1000), bar=Fraction(48))
>>> level, number = noise.sample(np.array([500, *[3] * 400])).tolist()
>>> noise.interval("0.95", level) >= 1
True
"""

from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, enclose, exp_up, lower, real
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.smooth.smooth import REACH_MAX, UNIT, LocalNoise, SmoothNoise
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.continuous import Shape
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN
from noisegate.privacy.distance import L1
from noisegate.privacy.event import Event, Sequential

FINE: Final = 16  # levels of ln S for each β
BETA_BITS: Final = 256  # of β's denominator
_BITS: Final = 64
_QUANTUM: Final = 1 << 10  # quantiles of the noise are whole numbers of 1/_QUANTUM
_LEVELS_MAX: Final = 1 << 40


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Barred(LocalNoise):
    """Releases (level, number): the number with ``noise``, and a noisy level of its smooth bound.

    The level is ⌈16 ln S / β⌉ with geometric noise of scale ``bar``.
    """

    name: ClassVar[str] = "barred-smooth/1"
    noise: SmoothNoise
    bar: Fraction

    def __post_init__(self) -> None:
        base.store_positive(self, "bar", least=SCALE_MIN, most=SCALE_MAX)
        if not isinstance(self.noise, SmoothNoise):
            raise SpecError("Only noise by a smooth bound has a bar.", fix="Use SmoothStudent.")
        if (
            self.noise.beta.denominator.bit_length() > BETA_BITS
        ):  # `level` would take long for some S
            raise SpecError("beta has too many digits for a bar.", fix="Round it.", about="bar")

    @property
    def low(self) -> int:  # type: ignore[override]  # that of the noise
        """The least number."""
        return self.noise.low

    @property
    def high(self) -> int:  # type: ignore[override]
        """The largest."""
        return self.noise.high

    @property
    def depth(self) -> int:
        """As the noise has it."""
        return self.noise.depth

    @property
    def decays(self) -> tuple[int, ...]:
        """As the noise has them."""
        return tuple(self.noise.decays)

    def one_step(self) -> Event:
        """What one use is, where a unit's coming or going is one step.

        Claim: that of the noise, and then that of a geometric draw of sensitivity 16: 16/bar.
        Adjacency: one step.
        Why: S(x) ≤ e^β S(x') for neighbours (`SmoothNoise.bound`) [NRS07], so 16 ln S / β changes
            by at most 16, a whole number, and so does its ceiling. Both draws are independent
            given the rows: basic composition. Rounding: none; the ceiling is exact.
        """
        return self.event(1)

    def event(self, steps: int, /) -> Event:
        """The same where a unit's coming or going is at most so many steps.

        Claim: that of the noise for so many, and a geometric draw of sensitivity 16 · steps.
        Adjacency: that of the steps. Why: the steps come or go one after the other, each changing
            the level by at most 16. Rounding: that of the noise.
        """
        size = base.whole_count(steps, name="steps")
        level = Geometric(scale=self.bar).event(L1(FINE * size))
        return Sequential(events=(self.noise.event(size), level))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """Draws for one row: the number, then its reaches A_0, A_1 and so on."""
        row = base.clamped(exact, REACH_MAX).ravel()
        numbers = self.noise.uses(exact, count, bits=bits)
        level = np.full(count, self.level(row[1:].tolist()), np.int64)
        levels = Geometric(scale=self.bar).sample(level, bits=bits)
        return np.stack([levels, numbers[:, 0]], axis=1)

    def level(self, reaches: list[int]) -> int:
        """⌈16 ln S / β⌉ of the smooth bound. Exact: never leaves the door without noise.

        Why: S is rational, so its logarithm is no whole multiple of β/16 unless S is 1, and the
            enclosure tells on which side it lies.
        """
        bound, bits = self.noise.bound(reaches), _BITS
        if bound == UNIT:
            return 0
        times = FINE / self.noise.beta
        while True:
            ends = enclose(lambda: real(times) * real(Fraction(bound, UNIT)).log(), bits=bits)
            found = {-(-end // (1 << bits)) for end in ends}
            if len(found) == 1:
                return found.pop()
            bits *= 2

    def interval(self, confidence: Number, level: int) -> int:
        """How far the number may be off, in steps of the grid, where this level was released.

        Claim: |number - exact| is at most this, with the confidence.
        Why: with failure φ of the confidence, the noise of the level is below -q with at most φ/2,
            where it is beyond ±q with at most φ; else S ≤ e^(β (level + q) / 16). And |Z| is above
            z with at most φ/2. If neither fails, the noise is at most scale · S · z before it is
            rounded, and half a step after; numbers are kept inside low, …, high. Rounding: up.
        """
        failure, most = base.failure_of(confidence), self.high - self.low
        at = level + Geometric(scale=self.bar).interval(confidence)
        if abs(at) > _LEVELS_MAX or at * self.noise.beta / FINE > 64:
            return most
        widest = self.noise.scale * exp_up(at * self.noise.beta / FINE)
        reach = quantile_up(self.noise.shape, failure / 2)
        return min(most, ceil(widest * reach + Fraction(1, 2)))


@lru_cache(maxsize=256)
def quantile_up(shape: Shape, failure: Fraction) -> Fraction:
    """What |Z| passes with at most this probability. Rounding: up, to 1/1024.

    Claim: Pr[|Z| > z] ≤ failure. Why: both tails are alike, and 1 - F(z) ≤ failure/2 is certified.
    """

    def holds(steps: int) -> bool:
        inside = lower(lambda: shape.cdf(Fraction(steps, _QUANTUM)))
        return 2 * (1 - inside) <= failure

    return Fraction(base.smallest_whole(holds, least=1), _QUANTUM)
