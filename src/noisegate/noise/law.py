"""Integer laws with a certified distribution function, and exact inversion of it.

A draw is U ∈ [0, 1), revealed bit by bit: after w bits it is known to lie in [v, v + 1) / 2**w. The
outcome is the integer k with F(k - 1) ≤ U < F(k). F is only ever known as an enclosure; whenever
the bits seen so far do not settle on which side of F(k) the draw lies, more bits are revealed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import cached_property
from typing import Final, TypeAlias, final

from noisegate.errors import SpecError
from noisegate.exact import Number, Real, enclose, fraction, real
from noisegate.frozen import dataclass, field
from noisegate.noise.bits import Bits

MORE_BITS: Final = 64
VARIANCE_MIN, VARIANCE_MAX = Fraction(1, 10**6), Fraction(1 << 92)  # of discrete Gaussians
SATURATION: Final = 1 << 62  # int64 outcomes stop here; mechanisms clamp their sums well below


class Law(ABC):
    """A distribution on the integers. Subclasses are frozen, so that tables can be cached."""

    start: int = 0  # some outcome near the middle
    support: tuple[int | None, int | None] = (None, None)

    @cached_property
    def _known(self) -> dict[Hashable, list[tuple[int, int]]]:  # to hash a law takes longer
        return {}

    @abstractmethod
    def cdf(self, k: int, bits: int) -> tuple[int, int]:
        """Integers with ``lo <= F(k) * 2**bits <= hi`` and ``hi - lo <= 2``."""


def invert(law: Law, v: int, width: int, *, guess: int | None = None) -> int | None:
    """The outcome of every U in [v, v + 1) / 2**width, or None if these bits do not settle it."""
    low, high = law.support
    if v == 0 and low is None:
        return None  # the whole lower tail is still possible

    def surely_above(k: int) -> bool:  # is U >= F(k) proven, so that the outcome exceeds k?
        if low is not None and k < low:
            return True
        return (high is None or k < high) and law.cdf(k, width)[1] <= v

    bottom = top = law.start if guess is None else guess
    step = 1
    while not surely_above(bottom):
        bottom, top, step = bottom - step, bottom, step * 2
    while surely_above(top):
        bottom, top, step = top, top + step, step * 2
    while top - bottom > 1:
        middle = (bottom + top) // 2
        bottom, top = (middle, top) if surely_above(middle) else (bottom, middle)
    return top if v + 1 <= law.cdf(top, width)[0] else None


def draw_by_inversion(
    law: Law, v: int, width: int, bits: Bits, *, guess: int | None = None, more: int = MORE_BITS
) -> int:
    """Settle a draw of which the first ``width`` bits, ``v``, are known; clamped to ±2**62.

    Claim: over a uniform v and fresh bits, the outcome has the law's distribution exactly.
    Why: `invert` answers only when all U with the given prefix lead to one outcome, so the answer
        equals the inverse of F at the fully revealed U; it stays open forever with probability 0.
    """
    while (outcome := invert(law, v, width, guess=guess)) is None:
        v, width = v << more | bits.integer(more), width + more
    return max(-SATURATION, min(outcome, SATURATION))


@final
@dataclass(frozen=True)
class Certified:
    """A real number given by a formula in ball arithmetic; equal when its name is equal."""

    name: Hashable
    compute: Callable[[], Real] = field(compare=False)

    @classmethod
    def exp_minus(cls, exponent: Fraction) -> "Certified":
        """e^(-exponent)."""
        # not a bound method: the ball must be made at the precision of each evaluation
        return cls(("exp", -exponent), lambda: (-real(exponent)).exp())  # noqa: PLW0108


Probability: TypeAlias = Fraction | Certified


def probability(p: "Number | Certified") -> Probability:
    """A number in [0, 1] as an exact or certified probability."""
    if isinstance(p, Certified):
        return p
    exact = fraction(p, name="probability")
    if not 0 <= exact <= 1:
        raise SpecError(
            f"probability is {p}.", fix="Use a probability between 0 and 1.", about="probability"
        )
    return exact


def as_real(p: Probability) -> Real:
    """The probability as a ball; only inside a `compute` function."""
    return p.compute() if isinstance(p, Certified) else real(p)


def clamp_to_unit(enclosure: tuple[int, int], bits: int) -> tuple[int, int]:
    """An enclosure of a probability, kept inside [0, 1]."""
    return max(enclosure[0], 0), min(enclosure[1], 1 << bits)


def enclose_probability(compute: Callable[[], Real], bits: int) -> tuple[int, int]:
    """`enclose` for a number known to lie in [0, 1]."""
    return clamp_to_unit(enclose(compute, bits=bits), bits)
