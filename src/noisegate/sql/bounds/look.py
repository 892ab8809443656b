"""One look: what is measured for it, and what is on the shelf of it."""

from fractions import Fraction
from math import inf, sqrt
from typing import Final, TypeAlias, final

from noisegate.algebra.expression import Expression, Field
from noisegate.curator.measurement import Measurement
from noisegate.frozen import dataclass
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.privacy.release import Release
from noisegate.sql.bounds.sized import Counted
from noisegate.sql.question import Block
from noisegate.sql.reuse.shelf import Shelf
from noisegate.transforms.query import Query

About: TypeAlias = tuple[bool, bool] | None  # a cap, on groups or not, on sums or not; on values
_NOISES: Final = (Geometric, DiscreteGaussian)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Bounds of an expression in a block, or a cap; ``waits`` for bounds that are still to find."""

    block: Block
    expression: Expression | None
    counted: Counted | None
    measurement: Measurement
    epsilon: Fraction  # of the step
    whole: Fraction = Fraction(0)  # that of the question
    times: int | None = None  # at bounds, by the farthest value of each unit: its rows that count
    price: Fraction = Fraction(0)  # for which it could be asked for
    waits: bool = False

    @property
    def words(self) -> str:
        """What is looked for."""
        if self.counted is not None:
            return self.counted.words
        if type(self.expression) is Field:
            return f"the bounds of {self.expression.name}"
        return "the bounds of an expression"

    @property
    def about(self) -> About:
        """What the numbers are that its bound changes."""
        return None if self.counted is None else (self.counted.people, bool(self.counted.sums))

    @property
    def paid(self) -> str:
        """The same with its price, before it is known."""
        return f"{self.words}: estimated first, for ε = {float(self.price):.3g}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a look showed: noisy numbers, the scale of their noise, and whether that is Gaussian."""

    release: Release
    seq: int  # of its entry in the ledger
    values: tuple[int, ...]
    scale: float
    gaussian: bool = False


def sight_of(look: Look, shelf: Shelf) -> Sight | None:
    """What the first look showed that was paid for and is no noisier than this one.

    Always the same one, so that a question that is asked again is the same question.
    """
    (noise,) = look.measurement.mechanisms
    return first_of(shelf, look.measurement.query, (type(noise),), scale_of(look.measurement))


def guess_of(look: Look, shelf: Shelf) -> Sight | None:
    """What an earlier look showed, however noisy: a guess for plans, until this one is paid for."""
    return None if look.counted is None else first_of(shelf, look.measurement.query)


def first_of(
    shelf: Shelf, query: Query, kinds: tuple[type, ...] = _NOISES, scale: float = inf
) -> Sight | None:
    """The first look of a query on the shelf that has no more noise than this, of these kinds."""
    for offer in shelf.offers(query, 0):
        noise = offer.noise
        if offer.cells == 1 and isinstance(noise, kinds) and _scale(noise) <= scale:
            return Sight(
                release=offer.release, seq=offer.seq, values=tuple(offer.values.tolist()),
                scale=_scale(noise), gaussian=type(noise) is DiscreteGaussian,
            )  # fmt: skip
    return None


def scale_of(measurement: Measurement) -> float:
    """The scale of the noise of a look."""
    (noise,) = measurement.mechanisms
    return _scale(noise)


def _scale(noise: object) -> float:
    """Of two-sided geometric noise, or of such noise with the variance of this one."""
    assert isinstance(noise, _NOISES)  # noqa: S101 - so they are made
    if isinstance(noise, DiscreteGaussian):
        return sqrt(noise.variance / 2)
    return float(noise.scale)
