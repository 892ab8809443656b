"""Released numbers over cells: sums of them, and how far these may be off."""

from fractions import Fraction
from itertools import product
from math import ceil
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.desk.display.numbers import LEAST, with_margin
from noisegate.desk.release import Charged
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of
from noisegate.releases.cells.axes import Axis, runs_of
from noisegate.releases.cells.estimate import reach, tail_factor
from noisegate.releases.cells.spatial import Side
from noisegate.releases.cells.workload import Floats, Workload, cells
from noisegate.releases.fit.plausible import FAILURE
from noisegate.releases.forms.provenance import Making

_CAUTION: Final = 1.2  # a model is not the truth


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A sum of released cells. The exact one lies within ± ``margin``, at the ``confidence``.

    ``margin`` is None where it is not known; ``why`` says why. ``lower``: that is the sum of what a
    contribution bound leaves of the rows, so the sum of all is as large or larger.
    """

    value: int | float
    margin: int | float | None
    confidence: Fraction
    why: str | None = None
    lower: bool = False

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        shown = (LEAST if self.lower else "") + with_margin(self.value, self.margin)
        return shown if self.why is None else f"{shown} because {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TableNumbers(Charged):
    """Numbers over the cells of ``axes``: what is said of any sum of them, free."""

    axes: tuple[Axis, ...]
    values: NDArray[Any]
    value: str
    making: Making
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        own = np.array(self.values)
        own.flags.writeable = False
        object.__setattr__(self, "values", own)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of keys of each axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def method(self) -> str:
        """The recipe that made it."""
        return self.making.method

    @property
    def total(self) -> Number:
        """The sum of all cells."""
        return self.query()

    # asking

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some cells, free: ``release.query(age=(20, 39), ward=["north", "west"])``.

        By the name of an axis: a key, a list of keys, or a pair (low, high) with both ends inside.
        Axes that are not named are summed over.
        """
        boxes = np.array(list(product(*runs_of(self.axes, where))), np.int64).reshape(
            -1, len(self.axes), 2
        )
        asked = Workload(self.shape, boxes[:, :, 0], boxes[:, :, 1], "a query")
        found = sum(asked.answers(self.values).tolist())
        widths = self.widths(asked, confidence, together=True)
        return Number(
            value=round(found) if self.making.whole else found,
            margin=None if widths is None else widths[0],
            confidence=fraction(confidence),
            why=self.making.unknown if widths is None else None,
            lower=bool(self.cut) and not self.making.signed,
        )

    def margins(self, confidence: Numeric = 0.95) -> NDArray[Any] | None:
        """The ± of every cell, each by itself; NaN where it depends on the rows.

        None where it does so everywhere.
        """
        widths = self.widths(cells(self.shape), confidence)
        if widths is None:
            return None
        kind = np.float64 if None in widths or not self.making.whole else np.int64
        return np.array(widths, kind).reshape(self.shape)

    def widths(
        self, asked: Workload, confidence: Numeric, *, together: bool = False
    ) -> list[Any] | None:
        """Half-widths around the released sums, of each box or of all together; None: not known.

        Where the recipe knows the noise of a sum, see `_by_noise`; where it depends on the rows, a
        model of them tells, see `_by_model`. Of a sample, half of the failure is for that, and half
        for what sampling adds. Rounding: up.
        """
        failure, sampling = float(failure_of(confidence)), self.making.sampling
        failure = failure if sampling is None else failure / 2
        half = self._by_noise(asked, failure, together=together)
        unknown = ~np.isfinite(half)
        if unknown.any():
            half = np.where(unknown, self._by_model(asked, failure, together=together), half)
        if not np.isfinite(half).any():
            return None
        if sampling is not None:
            shown = asked.answers(self.values)
            half = sampling.widened(shown.sum(keepdims=True) if together else shown, half, failure)
        known = [each if np.isfinite(each) else None for each in half.tolist()]
        if not self.making.whole:
            return known
        return [None if each is None else ceil(each - 1e-9) for each in known]

    def _by_noise(self, asked: Workload, failure: float, *, together: bool) -> Floats:
        """Half-widths by the noise; infinite where more than that counts.

        Claim: the exact sum lies within, but for the failure. Why: the estimate before mending is
            the exact sum plus noise of the stated variance, a sum of draws: see `reach`. Where one
            is not above it and another not below it, each is beyond in one direction only, for half
            of the failure, as the noise is symmetric. What mending did is added; numbers that
            cannot be negative end at 0, but no ± is below half of the noise's.
        """
        making = self.making
        estimate = making.estimate(self.shape)
        if estimate.between is not None:
            sides = estimate.between(asked.lows, asked.highs)
        elif estimate.variance is not None:
            variance = np.asarray(estimate.variance(asked.lows, asked.highs), np.float64)
            sides = (Side(asked.answers(estimate.cells), variance),) * 2
        else:
            return np.full(1 if together else asked.size, np.inf)
        far = [reach(side.variance, failure, making.price, making.moved) for side in sides]
        ends = sides[0].sums - far[0], sides[1].sums + far[1]
        return self._half(asked, ends, (far[0] + far[1]) / 4, together=together)

    def _by_model(self, asked: Workload, failure: float, *, together: bool) -> Floats:
        """Half-widths where the rows count: by the recipe's own model, or by tables that could be.

        By the recipe's own, as many root mean square distances as for noise, and a fifth more, as
        no model is the truth. By drawn tables, as many as hold for the release as a whole: see
        `Plausible.factor`; at other confidences in proportion to noise. Infinite where there is no
        model.
        """
        making = self.making
        guess, half = making.estimate(self.shape).guess, np.full(1, np.inf)
        if guess is not None:
            sums, spread, seen = guess(asked.lows, asked.highs)
            far = spread * model_factor(failure, seen)
            half = self._half(asked, (sums - far, sums + far), far / 2, together=together)
        if np.isfinite(half).all():
            return half
        model = making.plausible(self.shape)
        if model is None:
            other = self._by_covers(asked, failure, together=together)
        else:
            shown = asked.answers(self.values)
            spread = model.spread(asked, shown, float(making.grain), together=together)
            tail, usual = (tail_factor(each, gaussian=False) for each in (failure, FAILURE))
            other = spread * (making.factor(model, self.values) * tail / usual)
        return np.where(np.isfinite(half), half, other)

    def _by_covers(self, asked: Workload, failure: float, *, together: bool) -> Floats:
        """Half-widths by what boxes hold at least and at most; infinite where nothing is covered.

        Claim: the exact sums lie within, but for the failure. Why: see `covers`; each cover may
            fail for its part, in one direction for half of that, as the noise is symmetric.
        """
        making = self.making
        found = making.covers(self.shape)
        part = failure / max(1, len(found)) / (asked.size if together else 1)
        low, high = np.full(asked.size, -np.inf), np.full(asked.size, np.inf)
        for cover in found:
            least, most = cover.between(asked)
            far = [reach(each.variance, part, making.price, making.moved) for each in (least, most)]
            low = np.maximum(low, least.sums - far[0])
            high = np.minimum(high, most.sums + far[1])
        return self._half(asked, (low, high), np.zeros(asked.size), together=together)

    def _half(
        self, asked: Workload, ends: tuple[Floats, Floats], least: Floats, *, together: bool
    ) -> Floats:
        """How far the ends, in grains, are from what is shown, or the least; infinite stays so."""
        grain, shown = float(self.making.grain), asked.answers(self.values)
        low, high, least = ends[0] * grain, ends[1] * grain, least * grain
        if together:  # several boxes may be off the same way
            low, high, least, shown = (e.sum(keepdims=True) for e in (low, high, least, shown))
        if not self.making.signed:
            low, high = np.maximum(low, 0), np.maximum(high, 0)
        return np.maximum(np.maximum(high - shown, shown - low), least)


def model_factor(failure: float, draws: int) -> float:
    """How many of a model's deviations, known from so many draws, count as a ±."""
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to load

    few = float(-stdtrit(draws, failure / 2)) / tail_factor(failure, gaussian=True)
    return _CAUTION * few * tail_factor(failure, gaussian=False)
