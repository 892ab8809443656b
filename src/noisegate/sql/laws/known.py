"""Noisy numbers with the law of their error, and which mechanism made them, by its name."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor
from sys import float_info
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, final

import numpy as np
from numpy.typing import NDArray

from noisegate.algebra.tally import Grouping, Sums
from noisegate.frozen import dataclass
from noisegate.sql.laws.laws import Draws, Interval, Law, Noise, combined
from noisegate.sql.laws.selected import between
from noisegate.transforms.query import Query

if TYPE_CHECKING:
    from noisegate.mechanisms.keys.key_selection import KeySelection, Thresholded
    from noisegate.mechanisms.quantiles.brackets import Brackets
    from noisegate.mechanisms.quantiles.quantiles import Quantiles


Bars: TypeAlias = Callable[[Fraction], Interval]
_WHOLE_MAX: Final = 2.0**62
_LEVELS: Final = (Fraction(90, 100), Fraction(95, 100), Fraction(99, 100))


@final
@dataclass(frozen=True, slots=True)
class Known:
    """Noisy numbers of all cells, in their own unit; all cells err by the same law.

    ``at_least``: they are counts of groups that are shown because the number is so large.
    """

    values: NDArray[Any]
    law: Law
    at_least: int | None = None

    def bars(self, confidence: Fraction) -> Interval:
        """Where the exact number lies; of what is shown for its size, given that it is shown."""
        if self.at_least is not None:
            (draws,) = self.law.draws
            low, high = between(
                self.values,
                at_least=self.at_least,
                noise=draws.noise,
                failure=float(1 - confidence),
            )
            return Interval(np.maximum(low, 1.0), high.astype(np.float64))
        return Interval.around(self.values.astype(np.float64), self.law.half_width(confidence))


def grains_of(query: Query) -> tuple[Fraction, ...]:
    """What the numbers of a query count in. Whoever is in a sample stands for those who are not."""
    if not isinstance(query.tally, Sums):
        return (Fraction(1),)
    return tuple(term.grain / (query.sample or 1) for term in query.tally.terms)


def listed(values: NDArray[np.int64], by: Sequence[Grouping]) -> NDArray[np.int64]:
    """The cells of listed keys; those of the rest are not shown."""
    shape = tuple(grouping.size for grouping in by)
    shown = tuple(slice(len(grouping.keys)) for grouping in by)
    return values.reshape(shape)[shown].reshape(-1)


def released(values: NDArray[np.int64], noise: Noise, grain: Fraction) -> Known:
    """What one measurement says; whole numbers stay whole."""
    return Known(scaled(values, grain), Law((Draws(grain, 1, noise),)))


def scaled(values: NDArray[np.int64], grain: Fraction) -> NDArray[Any]:
    """Whole multiples of the grain as numbers; whole where the grain is 1."""
    return values if grain == 1 else values * float(grain)


def rounded(known: Known, *, exact_is_whole: bool) -> tuple[NDArray[np.int64], Bars]:
    """The nearest whole numbers, and their bars.

    Claim: rounding adds at most 1/2. Where the exact number is whole too, both are whole numbers
        apart, so the fraction of the half-width is cut off. Whole numbers stay as they are.
    """
    if known.values.dtype == np.int64:
        return known.values, known.bars
    whole = np.clip(np.rint(known.values), -_WHOLE_MAX, _WHOLE_MAX).astype(np.int64)

    def bars(confidence: Fraction) -> Interval:
        width = known.law.half_width(confidence) + 0.5
        return Interval.around(whole.astype(np.float64), floor(width) if exact_is_whole else width)

    return whole, bars


def pooled(answers: Sequence[Known]) -> Known:
    """Several independent answers to one question as one: the best, and what makes it better.

    Answers are weighed for the least variance. One is left out where its share is so small that the
    bars would be wider with it, by what `laws.py` allows for: more answers never widen a bar.
    """
    best, *others = sorted(answers, key=lambda answer: answer.law.variance)
    taken = [best]
    for answer in others:
        both = _average([*taken, answer])
        if any(both.law.half_width(level) > best.law.half_width(level) for level in _LEVELS):
            break
        best = both
        taken.append(answer)
    return best


def _average(answers: Sequence[Known]) -> Known:
    """The weighted average with the least variance."""
    precisions = [1 / Fraction(max(answer.law.variance, float_info.min)) for answer in answers]
    total = sum(precisions)
    weights = [precision / total for precision in precisions]
    pairs = list(zip(weights, answers, strict=True))
    values = sum((float(weight) * answer.values for weight, answer in pairs), np.zeros(1))
    return Known(values, combined([(weight, answer.law) for weight, answer in pairs]))


# by name, since mechanisms that a question does not use are not loaded


def is_brackets(noise: object) -> "TypeGuard[Brackets]":
    """Whether it chooses quantiles with how far each may be off."""
    return _name(noise) in ("brackets/1", "brackets/2")


def is_quantiles(noise: object) -> "TypeGuard[Quantiles]":
    """Whether it chooses many quantiles at once."""
    return _name(noise) == "quantiles/1"


def is_key_selection(noise: object) -> "TypeGuard[KeySelection]":
    """Whether it shows large groups for certain."""
    return _name(noise) == "key-selection/1"


def is_thresholded(noise: object) -> "TypeGuard[Thresholded]":
    """Whether it finds groups by their noisy counts."""
    return _name(noise) in ("thresholded-geometric/1", "thresholded-gaussian/1")


def _name(noise: object) -> str:
    return str(getattr(noise, "name", ""))
