"""What sampling adds to the error of a number that stands for all units.

>>> bounds = between(np.array([40]), Fraction(1, 10), 0.05)  # people, of 40 counted
>>> [int(each[0]) for each in bounds]
[292, 537]

>>> people = Sampling(probability=Fraction(1, 10), reach=Fraction(1), ones=True)
>>> [end.tolist() for end in people.bounds(np.array([400.0]), np.array([400.0]), 0.05)]
[[292.0], [537.0]]
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import log
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.sql.laws.laws import Floats

_ROUNDS: Final = 4  # of bounds on an average that follow from each other

Whole: TypeAlias = NDArray[np.int64]
Chances: TypeAlias = NDArray[np.float64]


def between(sampled: Whole, p: Fraction, failure: float) -> tuple[Whole, Whole]:
    """Bounds on the number of people, from how many of them are in the sample.

    Claim: outside with at most the chance ``failure``, whatever the number of people is. Why: of N
        people y are sampled with a binomial chance; a number N is left out if y or more, or y or
        less, had a chance of at most half of that. Rounding: to the last place of doubles.
    """
    return least(sampled, p, failure / 2), most(sampled, p, failure / 2)


def least(sampled: Whole, p: Fraction, failure: float) -> Whole:
    """The smallest N with Pr[y or more] above the failure."""
    low = np.maximum(sampled - 1, -1)  # where y is 0, N = 0 is not left out
    return first_above(low, lambda people: _at_least(sampled, people, float(p)) > failure)


def most(sampled: Whole, p: Fraction, failure: float) -> Whole:
    """The largest N with Pr[y or less] above the failure."""
    return first_above(sampled, lambda people: _at_most(sampled, people, float(p)) <= failure) - 1


def first_above(low: Whole, holds: Callable[[Whole], NDArray[np.bool_]]) -> Whole:
    """The first number above ``low`` at which something holds that goes on holding."""
    step = np.ones_like(low)
    high = low + step
    while not (found := holds(high)).all():
        low = np.where(found, low, high)
        step = np.where(found, step, step * 2)
        high = np.where(found, high, low + step)
    while (high - low > 1).any():
        middle = (low + high) // 2
        found = holds(middle) & (high - low > 1)
        low = np.where(found | (high - low <= 1), low, middle)
        high = np.where(found, middle, high)
    return high


def _at_most(sampled: Whole, people: Whole, p: float) -> Chances:
    from scipy.special import bdtr  # noqa: PLC0415 - only when asked for

    return np.where(sampled >= people, 1.0, bdtr(sampled, np.maximum(people, 1), p))


def _at_least(sampled: Whole, people: Whole, p: float) -> Chances:
    from scipy.special import bdtrc  # noqa: PLC0415 - only when asked for

    above: Chances = bdtrc(np.maximum(sampled - 1, 0), np.maximum(people, 1), p)
    return np.where(sampled <= 0, 1.0, np.where(people < sampled, 0.0, above))


CHANCE_MIN: Final = Fraction(1, 10**6)


def chance_of(probability: Number) -> Fraction:
    """The chance of each unit to be in a sample, if it can be that of one."""
    chance = positive(probability, name="probability")
    if chance >= 1:
        raise SpecError(
            "The sampling probability is not below 1.",
            fix="Use a probability below 1.",
            about="sample",
        )
    if chance < CHANCE_MIN:
        raise SpecError(
            "A sample of less than one unit in a million is nearly empty; scaled up, its numbers "
            "would mean nothing.",
            fix="Use a larger probability, such as 0.01.",
            about="sample",
        )
    return chance


@final
@dataclass(frozen=True, slots=True)
class Sampling:
    """A sample that holds each unit with ``probability``; numbers of it are scaled up by 1/p.

    One unit adds from 0 to ``reach`` to a number; with ``ones``, 0 or 1 and nothing between.
    """

    probability: Fraction
    reach: Fraction
    ones: bool

    def bounds(self, low: Floats, high: Floats, failure: float) -> tuple[Floats, Floats]:
        """Where numbers of all units lie, if those of the sample, scaled up, are between the ends.

        Claim: outside with at most the chance ``failure``, whatever the numbers are. Why: of ones a
            sample holds a binomial number, see `between`. Else it holds Y = Σ aᵢ Bᵢ of C = Σ aᵢ,
            0 ≤ aᵢ ≤ w, whose variance is at most w p (1 - p) C, so |Y - p C| is at most
            √(2 w p (1 - p) L C) + w L / 3, L = ln(2 / failure) [BLM13], which is solved for C.
            Rounding: to the last places of doubles.
        """
        p = float(self.probability)
        held, more = np.maximum(low, 0) * p, np.maximum(high, 0) * p
        if self.ones:
            ends = np.floor(held + 1e-6), np.ceil(more - 1e-6)
            return (
                _each(ends[0], lambda n: least(n, self.probability, failure / 2)),
                _each(ends[1], lambda n: most(n, self.probability, failure / 2)),
            )
        strip = float(self.reach) * log(2 / failure)
        root = (2 * p * (1 - p) * strip) ** 0.5
        down = np.sqrt(root**2 + 4 * p * np.maximum(held - strip / 3, 0)) - root
        up = np.sqrt(root**2 + 4 * p * (more + strip / 3)) + root
        return (down / (2 * p)) ** 2, (up / (2 * p)) ** 2

    def strays(self, squares: Floats, largest: float, failure: float) -> Floats:
        """How far sums of the sample, scaled up, may be from those of all units, of either sign.

        Claim: further with at most the chance ``failure``, if unit i adds aᵢ, |aᵢ| ≤ ``largest``
            and Σ aᵢ² ≤ ``squares``. Why: Σ aᵢ (Bᵢ - p) / p is a sum of independent numbers around 0
            of size at most largest / p and variance at most (1 - p) / p · squares in all [BLM13].
            Rounding: to the last places of doubles.
        """
        p, length = float(self.probability), log(2 / failure)
        return np.sqrt(2 * (1 - p) / p * length * squares) + largest * length / (3 * p)

    def average_strays(
        self,
        span: float,
        few: Floats,
        many: Floats,
        failure: float,
        *,
        low: Floats | float = 0.0,
        high: Floats | float | None = None,
    ) -> Floats:
        """How far averages of the sample may be from those of all units.

        They are of values within a ``span``, of at least ``few`` rows in the sample, scaled up, and
        of at most ``many`` of all. Where no row may be there, they may be off by anything. Those of
        the sample lie from ``low`` to ``high`` above the least value, if that is known.

        Why: let t be the average, R the span, w what a unit's rows weigh, and zᵢ the sum of x - t
            over the weighed rows of unit i. They add up to 0, so the sample's average is off by
            Σ zᵢ Bᵢ over its rows. By Cauchy and Schwarz zᵢ² is at most w times the sum of (x - t)²
            over the rows of i, and over all rows these add up to at most t (R - t) for each, with
            values from 0 to R [Bhatia and Davis 2000]. So t is at most so far from what the sample
            shows as the largest t (R - t) says, first of all t and then of those that are left: if
            one of them holds, all do, since they are about the same sum.
        """
        weight = float(self.reach)
        first, last = np.zeros_like(many), np.full_like(many, span)
        off = np.full_like(many, np.inf)
        shown = span if high is None else high
        for _ in range(_ROUNDS):
            widest = np.clip(span / 2, first, last)
            squares = weight * many * widest * (span - widest)
            strays = self.strays(squares, weight * span, failure)
            off = np.where(few > 0, strays / np.where(few > 0, few, 1), np.inf)
            first, last = np.maximum(low - off, 0.0), np.minimum(shown + off, span)
            first, last = np.minimum(first, last), np.maximum(first, last)
        return off

    def to_record(self) -> list[Any]:
        """It as plain values."""
        return [str(self.probability), str(self.reach), self.ones]

    @classmethod
    def from_record(cls, record: Sequence[Any] | None) -> "Sampling | None":
        """What `to_record` said; None of none."""
        if record is None:
            return None
        probability, reach, ones = record
        return cls(Fraction(probability), Fraction(reach), ones)

    def widened(self, shown: Floats, half: Floats, failure: float) -> Floats:
        """Half-widths about all units, from those about the sample: each fails by ``failure``."""
        known = np.isfinite(half)
        around = np.where(known, half, 0.0)
        low, high = self.bounds(shown - around, shown + around, failure)
        return np.where(known, np.maximum(high - shown, shown - low), half)


def sampling_of(probability: Fraction, moved: int, grain: Fraction) -> Sampling:
    """Of sums in multiples of ``grain``, scaled up; a sampled unit moves them by ``moved``."""
    reach = moved * grain * probability
    return Sampling(probability, reach, ones=moved == reach == 1)


def sample_words(p: Fraction, *, in_bars: bool) -> str:
    """A caveat: that it is a sample, and what sampling adds."""
    held = "the ± includes the sampling error" if in_bars else "the ± covers the noise only"
    return (
        f"From a secret sample that holds each unit with probability {p}: {held}; that is about "
        f"± {float(1.96 * ((1 - p) / p) ** 0.5):.2g} √n for a count of n."
    )


def _each(values: Floats, bound: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Floats:
    """A bound for each of many values, of which few differ."""
    different, place = np.unique(values.astype(np.int64), return_inverse=True)
    return bound(different).astype(np.float64)[place.reshape(values.shape)]
