"""Private bounds: a range of powers of two that holds nearly all values, found from the data.

Values are counted by sign and number of binary digits; geometric noise is added to all counters;
the range runs from the lowest to the highest counter that reaches a threshold. The ladder of
counters is public, so this is post-processing of one noisy histogram. If no counter reaches the
threshold, the whole ladder is the answer.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.accounting.tails import upper_tail
from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.mechanisms.base import (
    INPUT_MAX,
    Mechanism,
    clamped,
    failure_of,
    noisy,
    require_whole,
    smallest_whole,
    store_positive,
    surely_at_most,
)
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import SCALE_MAX, SCALE_MIN, discrete_laplace
from noisegate.privacy.distance import L1
from noisegate.privacy.event import GeometricEvent

DIGITS_MAX: Final = 60


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateBounds(Mechanism[L1]):
    """A range [low, high] for values of up to ``digits`` binary digits and either sign.

    Counter ``digits`` is for 0; counter digits ± j for values of sign ± with j digits, that is
    2**(j - 1) ≤ |x| < 2**j. Longer values count as having ``digits`` digits.
    """

    name: ClassVar[str] = "private-bounds/1"
    scale: Fraction
    threshold: int
    digits: int

    def __post_init__(self) -> None:
        store_positive(self, "scale", least=SCALE_MIN, most=SCALE_MAX)
        require_whole(self, "threshold", least=1, most=INPUT_MAX)
        require_whole(self, "digits", least=1, most=DIGITS_MAX)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, sensitivity: L1, digits: int, confidence: Number
    ) -> "PrivateBounds":
        """Noise that costs exactly ε, and the lowest threshold that no empty counter reaches.

        Claim: with the given confidence no counter without values reaches the threshold, so each
            end of a found range is within a factor 2 of a value, clamped to ±(2**digits - 1).
        Why: union bound over counters; an empty one reaches t with probability α^t / (1 + α).
        Rounding: up.
        """
        scale = sensitivity.value / positive(epsilon, name="epsilon")
        failure = failure_of(confidence) / (2 * digits + 1)
        threshold = smallest_whole(
            lambda t: surely_at_most(lambda: upper_tail(scale, t), failure), least=1
        )
        return cls(scale=scale, threshold=threshold, digits=digits)

    def event(self, sensitivity: L1, /) -> GeometricEvent:
        """What one use is, where a unit adds at most ``sensitivity`` values.

        Claim: (s / scale)-differentially private. Adjacency: add/remove.
        Why: a value enters one counter, so the histogram has L1 sensitivity s; the geometric
            mechanism [GRS09] and post-processing. Rounding: none.
        """
        return GeometricEvent(scale=self.scale, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The pair (low, high), given the counters."""
        counts = clamped(exact)
        if counts.shape != (2 * self.digits + 1,):
            raise SpecError("The counters do not match.", fix="Count with `histogram`.")
        released = noisy(counts, discrete_laplace(self.scale, counts.shape, bits=bits))
        passing = np.flatnonzero(released >= self.threshold) - self.digits
        low, high = (passing[0], passing[-1]) if passing.size else (-self.digits, self.digits)
        return np.array([_lowest(int(low)), _highest(int(high))], np.int64)

    def histogram(self, values: Int64Array) -> Int64Array:
        """How many values each counter holds."""
        top = (1 << self.digits) - 1
        inside = np.clip(clamped(values).ravel(), -top, top)
        edges = np.int64(1) << np.arange(self.digits, dtype=np.int64)
        length = np.searchsorted(edges, np.abs(inside), side="right")
        return np.bincount(
            self.digits + np.sign(inside) * length, minlength=2 * self.digits + 1
        ).astype(np.int64)

    def surely_kept(self, confidence: Number) -> int:
        """With this confidence every counter of so many values lies within the range.

        Claim: the count plus noise of at least -t reaches the threshold from threshold + t on.
        Why: union bound over the counters. Rounding: up.
        """
        failure = failure_of(confidence) / (2 * self.digits + 1)
        slack = smallest_whole(
            lambda t: surely_at_most(lambda: upper_tail(self.scale, t + 1), failure)
        )
        return self.threshold + slack


def _highest(place: int) -> int:
    """The largest value of a counter, numbered from -digits to digits."""
    return (1 << place) - 1 if place >= 0 else -(1 << (-place - 1))


def _lowest(place: int) -> int:
    return -_highest(-place)
