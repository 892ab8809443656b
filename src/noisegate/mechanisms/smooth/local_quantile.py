"""A quantile with noise by what one value can do to it: as it is, not by a choice among points.

>>> from noisegate.mechanisms.smooth.propose import ProposeTestRelease
>>> from noisegate.mechanisms.smooth.smooth import SmoothStudent
>>> noise = SmoothStudent.for_epsilon(1, low=0, high=1000)
>>> bool(0 <= LocalQuantile(tau="1/2", noise=noise).sample(np.arange(900))[0] <= 1000)
True
>>> test = ProposeTestRelease.for_budget(1, "1e-6", bound=5, low=0, high=1000)
>>> quantile_reaches(np.array([0, 2, 3, 9]), Fraction(1, 2), test)  # windows around the 2
(2, [2, 7, 998, 1000])
"""

from abc import abstractmethod
from fractions import Fraction
from typing import ClassVar, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.mechanisms.quantiles.quantile import checked_tau
from noisegate.mechanisms.smooth.smooth import LocalNoise, decays_of, require_local
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.event import Event
from noisegate.transforms.query import Query


class OfValues(base.Mechanism[int]):
    """A number made of the values of each cell, with ``noise`` by its reaches."""

    __slots__ = ()
    takes: ClassVar[base.Takes] = base.Takes.ROWS
    noise: LocalNoise

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - there is one
        """Values of each cell."""
        base.require_values(query)
        require_local(self.noise)

    def event(self, values_per_unit: int, /) -> Event:
        """What one draw is, where a unit holds at most ``values_per_unit`` values.

        Claim: that of the noise, a value's coming or going being one step; see `quantile_reaches`,
            `trimmed_reaches`, `huber_reaches`.
        Adjacency: add/remove. Why: a unit's values come or go one after the other.
        Rounding: none.
        """
        return self.noise.event(values_per_unit)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """One draw for all the values, in any order."""
        return self.noise.sample(self.handed(exact), bits=bits)

    @abstractmethod
    def handed(self, exact: Int64Array) -> Int64Array:
        """What the noise is given: the number, then its reaches. Exact: never leaves the door."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQuantile(OfValues):
    """The value of rank ⌈τ n⌉, or ``low`` if there is none, with ``noise`` by its reaches."""

    name: ClassVar[str] = "local-quantile/1"
    tau: Fraction
    noise: LocalNoise

    def __post_init__(self) -> None:
        base.store(self, "tau", checked_tau(self.tau))
        require_local(self.noise)

    def handed(self, exact: Int64Array) -> Int64Array:
        """What the noise is given: the quantile, then its reaches. Exact: never leaves the door."""
        value, reaches = quantile_reaches(base.clamped(exact).ravel(), self.tau, self.noise)
        return np.array([value, *reaches])


def quantile_reaches(values: Int64Array, tau: Fraction, noise: LocalNoise) -> tuple[int, list[int]]:
    """The value x_m of rank m = ⌈τ n⌉, and its reaches A_0, A_1 and so on.

    Claim: A_k is the largest x_j - x_i with i ≤ m ≤ j and j - i = k + 1, where x_i is the smallest
        possible value for i < 1 and the largest for i > n. One more or one less value moves x_m by
        at most A_0, and A_k(x) ≤ A_{k+1}(x').
    Adjacency: add/remove one value.
    Why: with one more value, x'_i ≤ x_i ≤ x'_{i+1} and m' is m or m + 1. So x'_m' lies between
        x_{m-1} and x_m, or between x_m and x_{m+1}; and the window [i, j] around m lies inside
        the values of [i, j + 1] around m'. With one less, x'_{i-1} ≤ x_i ≤ x'_i and m' is m or
        m - 1: likewise, with [i - 1, j]. Windows that stop one short of this miss gaps [NRS07].
    Rounding: none. Reaches that no smooth bound would see are left at 0.
    """
    depth = min(noise.depth, values.size)  # then a window may hold all, and A_k is the range
    near = _around(np.clip(values, noise.low, noise.high), tau, noise, depth)
    value = int(near[depth])
    left, right = value - near[depth::-1], near[depth:] - value
    decays = decays_of(noise)
    weights = np.array(decays[:depth], np.float64) if decays else np.ones(depth)
    most, best = (left + right)[1:] * weights, 0.0
    reaches = np.zeros(depth, np.int64)
    for k in np.argsort(-most, kind="stable").tolist():
        if decays and most[k] * (1 + 1e-9) < best:
            break
        reaches[k] = (left[: k + 2] + right[k + 1 :: -1]).max()
        best = max(best, float(reaches[k] * weights[k]))
    return value, reaches.tolist()


def _around(values: Int64Array, tau: Fraction, noise: LocalNoise, reach: int) -> Int64Array:
    """x_{m - reach}, …, x_{m + reach}; only these are sorted."""
    rank, count = -(-tau.numerator * values.size // tau.denominator), values.size
    places = rank - 1 + np.arange(-reach, reach + 1)
    if count:
        first, last = max(0, int(places[0])), min(count - 1, int(places[-1]))
        values.partition((first, last))
        values[first : last + 1].sort()
    held = np.concatenate(([noise.low], values, [noise.high]))
    return held[np.clip(places + 1, 0, count + 1)]
