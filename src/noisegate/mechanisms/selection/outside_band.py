"""The sparse vector technique with two sides: which of many guesses are far off, and on which side.

A stream of counts comes with public guesses. Each is compared with a band around its guess, whose
two ends have noise of their own; as long as counts stay inside, all of them together cost one
noise of an end. Two separate ends make it as cheap as a one-sided run on counts: when a unit comes,
counts only rise, so only the upper end has to give way, and when it goes, only the lower one.

>>> band = OutsideBand.for_epsilon(1, threshold=100, sensitivity=1, cutoff=8)
>>> event = band.event(Fraction(1))
>>> event.epsilon_threshold + event.epsilon_queries
Fraction(1, 1)
"""

from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from noisegate.exact import Number, Real, positive, real
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.selection.above_threshold import Run, SparseVector, asked, cut_off, scales
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.noise.geometric import discrete_laplace
from noisegate.privacy.event import AboveThresholdEvent


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideBand(SparseVector):
    """Says for each difference in turn whether it is above (1), below (-1) or inside (0) a band.

    ``threshold`` is how far the ends are from 0, before their noise.
    """

    name: ClassVar[str] = "outside-band/1"
    threshold: int
    threshold_scale: Fraction
    query_scale: Fraction
    cutoff: int

    def __post_init__(self) -> None:
        self.require_fields(least=0)

    @classmethod
    def for_epsilon(
        cls, epsilon: Number, *, threshold: int, sensitivity: Number, cutoff: int
    ) -> "OutsideBand":
        """Scales whose event costs exactly ``epsilon``: each yes costs one side; see `scales`."""
        times = base.whole_count(cutoff, name="cutoff")
        held = scales(epsilon, sensitivity=sensitivity, times=times)
        return cls(threshold=threshold, cutoff=cutoff, **held)

    def event(self, sensitivity: Fraction, /) -> AboveThresholdEvent:
        """What a whole run is, however many differences it compares.

        Claim: ε₁ + ε₂ with ε₁ = Δ / threshold_scale and ε₂ = cutoff · Δ / query_scale; a run that
            ended after u yeses has log-ratios of at most ε₁ + u · Δ / query_scale.
        Adjacency: add/remove one unit, where a unit that comes raises each count by 0 to Δ; guesses
            are public, and may depend on all earlier answers.
        Why: compare x with x', which has one unit more: its differences are d' = d + m, 0 ≤ m ≤ Δ.
            A count d with noise Z is above if d + Z ≥ U, else below if d + Z ≤ L, with ends U and L
            of independent noise. From x to x', raise U by Δ and leave L: d + Z < U gives
            d' + Z < U + Δ, and d + Z > L gives d' + Z > L, so every no stays a no, with the same
            Z. An above stays one with Z + Δ - m, a below with Z - m: a shift by at most Δ. So the
            chance of any answers grows by at most e^(Δ / threshold_scale) for all noes together and
            e^(Δ / query_scale) for each yes. From x' to x lower L by Δ and leave U, likewise. This
            is [LSL17, Thm 5] with an end for each direction; one noise for both ends would need
            shifts of 2Δ.
        Rounding: none, but that noise stops at ±2**62, which a draw reaches with probability below
            e^(-2**21) at the largest scale.
        """
        reach = positive(sensitivity, name="sensitivity")
        return AboveThresholdEvent(
            epsilon_threshold=reach / self.threshold_scale,
            epsilon_queries=self.cutoff * reach / self.query_scale,
            cutoff=self.cutoff,
        )

    def start(self, *, bits: Bits = SYSTEM) -> "BandRun":
        """A run: the noise of both ends is drawn here, once."""
        above, below = discrete_laplace(self.threshold_scale, 2, bits=bits).tolist()
        return BandRun(self, top=self.threshold + above, bottom=-self.threshold - below, bits=bits)

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """So many whole runs, a run a row; each has its own price. `CUT` is where a run is over."""
        values = asked(exact)
        ends = self.threshold + discrete_laplace(self.threshold_scale, (2, count, 1), bits=bits)
        noise = discrete_laplace(self.query_scale, (count, values.size), bits=bits)
        return cut_off(_sides(values + noise, ends[0], -ends[1]), self.cutoff)

    def slack(self, failure: Fraction) -> int:
        """A w so that a count beyond the band by more than w is inside with Pr ≤ failure.

        Also, one that is more than w within it is outside, on one given side, with Pr ≤ failure.
        Claim: the noise of an end and of the count together pass w with that probability.
        Why: a sum of two geometric draws has a closed tail, see `sum_tail`. Rounding: up.
        """
        wide, narrow = self.query_scale, self.threshold_scale
        return base.smallest_whole(
            lambda w: base.surely_at_most(lambda: sum_tail(wide, narrow, w + 1), failure)
        )


def sum_tail(one: Fraction, other: Fraction, least: int) -> Real:
    """At least Pr[X + Y ≥ m], m ≥ 1, for two-sided geometric X and Y of these scales.

    Claim: for α ≠ β it is (1-α)²(1-β)² / ((α-β)(1-αβ)) · (f(α) - f(β)), where
        f(α) = α^(m+1) / ((1-α²)(1-α)). Equal scales are moved apart by a millionth, upwards.
    Why: the generating function of X is (1-α)² / (1 + α² - α(z + 1/z)); partial fractions in
        z + 1/z split the product of two. More spread of a symmetric unimodal law spreads the sum.
    """
    if one == other:
        other *= 1 + Fraction(1, 10**6)
    a, b = (real(-1 / scale).exp() for scale in (one, other))

    def part(x: Real) -> Real:
        return x ** (least + 1) / ((1 - x * x) * (1 - x))

    front = ((1 - a) * (1 - b)) ** 2 / ((a - b) * (1 - a * b))
    return front * (part(a) - part(b))


@final
class BandRun(Run):
    """A run of comparisons with a band. It never shows what it compared."""

    __slots__ = ("_bottom", "_top")

    def __init__(self, spec: OutsideBand, *, top: int, bottom: int, bits: Bits) -> None:
        super().__init__(spec, bits)
        self._top, self._bottom = top, bottom

    @property
    def yeses(self) -> int:
        """How many were given."""
        return self._spec.cutoff - self._left

    def ask(self, differences: Int64Array) -> Int64Array:
        """1, -1 or 0 for the next differences, cut after the first that is outside.

        Later ones may depend on these answers. The differences are clamped to ±2**60.
        """
        return self._told(differences, lambda noisy: _sides(noisy, self._top, self._bottom), most=1)


def _sides(noisy: Int64Array, top: Int64Array | int, bottom: Int64Array | int) -> Int64Array:
    """1 above the band, else -1 below it, else 0."""
    above = noisy >= top
    return above.astype(np.int64) - (~above & (noisy <= bottom))
