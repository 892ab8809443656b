"""Interval arithmetic over many cells at once: bounds that hold whenever those put in hold."""

from dataclasses import dataclass
from typing import final

import numpy as np

from noisegate.sql.laws.laws import Floats


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """For each cell a lower and an upper bound; infinite where nothing is known."""

    low: Floats
    high: Floats

    @classmethod
    def around(cls, values: Floats, half_width: float) -> "Interval":
        """The values, give or take."""
        return cls(values - half_width, values + half_width)

    def __add__(self, shift: float) -> "Interval":
        return Interval(self.low + shift, self.high + shift)

    def __sub__(self, other: "Interval") -> "Interval":
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: "Interval") -> "Interval":
        with np.errstate(invalid="ignore"):
            ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        whole = np.isnan(ends).any(axis=0)  # 0 · ∞: nothing is known
        return Interval(
            np.where(whole, -np.inf, np.fmin.reduce(ends)),
            np.where(whole, np.inf, np.fmax.reduce(ends)),
        )

    def over(self, count: "Interval") -> "Interval":
        """Divided by a number that is positive; nothing is known where it may be 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(self.low < 0, self.low / count.low, self.low / count.high)
            high = np.where(self.high > 0, self.high / count.low, self.high / count.high)
        known = count.low > 0
        return Interval(np.where(known, low, -np.inf), np.where(known, high, np.inf))

    def square(self) -> "Interval":
        """The squares: from 0 where the interval holds 0."""
        ends = np.square(self.low), np.square(self.high)
        holds = (self.low <= 0) & (self.high >= 0)
        return Interval(np.where(holds, 0.0, np.minimum(*ends)), np.maximum(*ends))

    def root(self) -> "Interval":
        """The square roots of what is not negative."""
        return Interval(np.sqrt(np.maximum(self.low, 0)), np.sqrt(np.maximum(self.high, 0)))

    def clipped(self, low: float, high: float) -> "Interval":
        """Cut to what is known beforehand; never empty."""
        return Interval(np.clip(self.low, low, high), np.clip(self.high, low, high))
