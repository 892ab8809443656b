"""The K-norm mechanism of the cube: one draw for a whole cell of numbers that change together.

Where one unit may change all ``width`` numbers of a cell by up to Δ, independent noise pays for the
sum of the changes, width · Δ. This noise pays for the largest one: about width · Δ / (√3 ε) on each
number instead of √2 · width · Δ / ε, 2.4 times less.

>>> from noisegate.accounting.pure import pure_loss
>>> mechanism = BoxNoise.for_epsilon("0.1", width=64, sensitivity=LInf1(256))
>>> str(pure_loss(mechanism.event(LInf1(256)))), mechanism.scale
('ε = 0.1', Fraction(2560, 1))
"""

from fractions import Fraction
from typing import ClassVar, final

from noisegate.accounting.box import box_tail
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms import base
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.box import box_fits, box_noise, checked_box
from noisegate.noise.chunks import Int64Array
from noisegate.privacy.distance import LInf1
from noisegate.privacy.event import BoxNoiseEvent
from noisegate.transforms.query import Query


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BoxNoise(base.NoiseMechanism[LInf1]):
    """Adds to each ``width`` numbers in a row one vector, Pr[z] ∝ e^(-max|z| / scale)."""

    name: ClassVar[str] = "box-noise/1"
    takes: ClassVar[base.Takes] = base.Takes.BOX
    scale: Fraction
    width: int

    def __post_init__(self) -> None:
        base.store(self, "scale", checked_box(self.scale, self.width))

    @staticmethod
    def fits(scale: Fraction, width: int) -> bool:
        """Whether there is such noise: wide cells need a large scale, hence a fine grid."""
        return box_fits(scale, width)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, width: int, sensitivity: LInf1) -> "BoxNoise":
        """The least noise whose event costs exactly ``epsilon``: scale = sensitivity / ε."""
        return cls(scale=sensitivity.value / positive(epsilon, name="epsilon"), width=width)

    def require(self, query: Query, place: int) -> None:
        """A block of a statistic of rows, with cells as wide as the noise."""
        blocks = query.statistic_blocks
        if place >= len(blocks):
            raise base.no_rule(query)
        if self.width != blocks[place].width:
            raise Unsupported("The noise was made for other cells.", fix="Use the block's width.")

    def event(self, sensitivity: LInf1, /) -> BoxNoiseEvent:
        """What one use is.

        Claim: (s / scale)-differentially private, where s bounds the sum over cells of the largest
            change in the cell. Adjacency: that of ``sensitivity``.
        Why: [HT10, Thm 4.1], [AS21]: the sum over cells of the largest number is a norm, so by the
            triangle inequality the mass of any output changes by at most e^(norm(change) / scale).
            The same sum over whole vectors normalises both, because they differ by a shift.
        Rounding: none.
        """
        return BoxNoiseEvent(scale=self.scale, sensitivity=sensitivity)

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """The answers, clamped to ±2**60, plus noise; a cell is ``width`` numbers in C order."""
        values = base.clamped(exact)
        if values.size % self.width:
            raise SpecError(
                f"The numbers are not whole cells of {self.width}.", fix="Give whole cells."
            )
        noise = box_noise(self.scale, values.size // self.width, self.width, bits=bits)
        return base.noisy(values, noise.reshape(values.shape))

    def interval(self, confidence: Number) -> int:
        """A certified half-width for one number; see `box_tail`. Rounding: up."""
        failure = base.failure_of(confidence)
        return base.smallest_whole(
            lambda t: base.surely_at_most(lambda: box_tail(self.scale, self.width, t), failure)
        )
