"""One private quantile of values on a public grid.

>>> import numpy as np
>>> median = Quantile.for_epsilon(1, tau="1/2", low=0, high=100)
>>> median.factor, median.event(1).epsilon
(Fraction(1, 1), Fraction(1, 1))
>>> bool(0 <= median.sample(np.arange(50))[0] <= 100), median.rank_error("0.99")
(True, 10)
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Final, final

import numpy as np

from noisegate.errors import SpecError
from noisegate.exact import Number, fraction, positive, shown
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.quantiles.ranks import (
    DENOMINATOR_MAX,
    RankGoal,
    private_ranks,
    rank_error_up,
)
from noisegate.mechanisms.selection.scores import FACTOR_MAX
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import ExponentialEvent
from noisegate.transforms.query import Query

GRID_MAX: Final = 1 << 58


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile(base.Repeatable[int]):
    """Chooses a grid point with odds e^(-factor · rank error); errors count in ranks.

    The grid is low, low + step, …, high. Values are clamped into it and rounded down to it first;
    that is a step on each value alone, so it changes no sensitivity.
    """

    name: ClassVar[str] = "quantile/1"
    takes: ClassVar[base.Takes] = base.Takes.ROWS
    tau: Fraction
    factor: Fraction
    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        base.store(self, "tau", checked_tau(self.tau))
        base.store_positive(self, "factor", most=FACTOR_MAX)
        require_grid(self, width=self.high - self.low, step=self.step)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: Number,
        *,
        tau: Number,
        low: int,
        high: int,
        step: int = 1,
        values_per_unit: int = 1,
    ) -> "Quantile":
        """The sharpest choice whose event costs exactly ``epsilon``."""
        level = checked_tau(tau)
        units = base.whole_count(values_per_unit, name="values_per_unit")
        factor = positive(epsilon, name="epsilon") / (units * error_range(level))
        return cls(tau=level, factor=factor, low=low, high=high, step=step)

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Values of each cell."""
        base.require_values(query)

    def event(self, values_per_unit: int, /) -> ExponentialEvent:
        """What one choice is, where a unit holds at most ``values_per_unit`` values.

        Claim: log-ratios have range ε = factor · values · `error_range` (τ).
        Adjacency: add/remove. Changing one value moves a rank error by up to 1 instead.
        Why: one more value moves a rank by 0 or 1 and the goal τ n by τ, so either difference, and
            with it their maximum, moves by at most max(τ, 1 - τ) up or down. At τ = 0 and 1 the
            errors never fall, and rise by at most 1 [MT07, Thm 6], [Smi11]. Rounding: none.
        """
        units = base.whole_count(values_per_unit, name="values_per_unit")
        return ExponentialEvent(epsilon=self.factor * units * error_range(self.tau))

    def changed(self, values: int, /) -> ExponentialEvent:
        """What one choice is, where a unit changes up to so many of a fixed number of values.

        Claim: log-ratios have range ε = 2 · factor · values, for every τ. Adjacency: any unit whose
            coming, going or changing does no more than that.
        Why: the goal τ n stays. A changed value moves a rank by at most 1 up or down, and so each
            of the differences, and their maximum [MT07, Thm 6], [Smi11]. Rounding: none.
        """
        return ExponentialEvent(epsilon=2 * self.factor * base.whole_count(values, name="values"))

    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """One grid point for all the values (in any order); sorting them is most of the work."""
        data = sorted_points(exact, low=self.low, high=self.high, step=self.step)
        goal = RankGoal(self.tau, self.factor)
        found = private_ranks(data, goal, count, points=self.points, bits=bits)
        return self.low + self.step * found[:, None]

    def sample_cells(self, cells: Sequence[Int64Array], *, bits: Bits = SYSTEM) -> Int64Array:
        """One grid point for the values of each cell, as an array of shape (cells, 1)."""
        found = [np.empty((0, 1), np.int64), *(self.uses(exact, 1, bits=bits) for exact in cells)]
        return np.concatenate(found)

    def rank_error(self, confidence: Number) -> int:
        """How many ranks the answer may be off, at this confidence: ln(points / β) / factor.

        Among the values as they are clamped and rounded to the grid.
        """
        return rank_error_up(self.factor, points=self.points, failure=base.failure_of(confidence))

    def rank_errors(self, confidence: Number) -> tuple[int, ...]:
        """Likewise for each answer: there is one."""
        return (self.rank_error(confidence),)

    @property
    def points(self) -> int:
        """How many grid points there are."""
        return (self.high - self.low) // self.step + 1


def error_range(tau: Fraction) -> Fraction:
    """How far one value moves two rank errors against each other, in ranks, under add/remove."""
    return Fraction(1) if tau in (0, 1) else 2 * max(tau, 1 - tau)


def checked_tau(tau: Number) -> Fraction:
    """A level in [0, 1] that the rank scores can hold."""
    exact = fraction(tau, name="tau")
    if not 0 <= exact <= 1 or exact.denominator > DENOMINATOR_MAX:
        raise SpecError(
            f"tau is {shown(exact)}.",
            fix=f"Use a level from 0 to 1 with a denominator up to {DENOMINATOR_MAX}.",
        )
    return exact


def require_grid(mechanism: base.Mechanism[int], *, width: int, step: int) -> None:
    """Refuse a grid that is empty, uneven or too wide."""
    for field in ("low", "high"):
        base.require_whole(mechanism, field, least=-GRID_MAX, most=GRID_MAX)
    base.require_whole(mechanism, "step", least=1, most=base.INPUT_MAX)
    if width <= 0 or width % step:
        raise SpecError(
            "The grid does not run from low to high.",
            fix="Use low < high, a whole number of steps apart.",
        )


def sorted_points(exact: Int64Array, *, low: int, high: int, step: int) -> Int64Array:
    """The values as grid positions in rising order. As 32 bits they are sorted twice as fast."""
    points = grid_points(exact, low=low, high=high, step=step)
    if (high - low) // step >= 1 << 31:
        points.sort()
        return points
    narrow = points.astype(np.int32)
    narrow.sort()
    return narrow.astype(np.int64)


def grid_points(exact: Int64Array, *, low: int, high: int, step: int) -> Int64Array:
    """The values as grid positions in a new array, clamped and rounded down to the grid."""
    points = base.clamped(exact).ravel()
    np.clip(points, low, high, out=points)
    points -= low
    if step > 1:
        points //= step
    return points
