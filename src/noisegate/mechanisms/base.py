"""The contract of a mechanism, its plain record, and certified half-widths.

A mechanism is a frozen description without data: exact parameters in, exact integers out. It states
what one use is (`event`, priced by an accountant), draws (`sample`) and, where it adds noise, how
far an answer may be off (`interval`). A choice has no interval; it states a utility bound instead.

What a mechanism may be asked is its own to say (`require`), and which sensitivity its event is
given (`takes`). The door asks only mechanisms of its closed list (`catalogue.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import numpy as np

from noisegate.algebra.tally import Distinct, Marginals, Rows, Sums, Values
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, Real, fraction, positive, shown, upper
from noisegate.frozen import fields
from noisegate.noise.bits import SYSTEM, Bits
from noisegate.noise.chunks import Int64Array, Places
from noisegate.privacy.event import Event
from noisegate.transforms.query import Query

# Exact answers are clamped here and noise stops at ±2**62, so that their sum never wraps. Clamping
# moves no two answers further apart, so sensitivities stay what they are. Sums are clamped again,
# below anything that noise which stopped early could reach: what is released is then exactly the
# clamped sum with ideal noise, by post-processing, and not noise whose ends depend on the answer.
INPUT_MAX: Final = 1 << 60

Sensitivity = TypeVar("Sensitivity")
Record: TypeAlias = dict[str, Any]


class Takes(Enum):
    """Which sensitivity of a question `Mechanism.event` is given: a property of `Query`."""

    L1 = "l1s"  # of each number by itself: a term, a table, a block
    L2 = "l2s"
    BOX = "boxes"
    ROWS = "per_unit"  # of the question as a whole: rows, values or keys of one unit
    ANY_ONE = "any_one"  # of the question as a whole: how far one unit moves any one number

    @property
    def is_whole(self) -> bool:
        """Whether one mechanism reads all the numbers of a question."""
        return self in (Takes.ROWS, Takes.ANY_ONE)


class Mechanism(ABC, Generic[Sensitivity]):
    """A randomised step on integers. ``name`` is how a plan knows the kind."""

    __slots__ = ()
    name: ClassVar[str]
    takes: ClassVar[Takes]

    def require(self, query: Query, place: int) -> None:  # noqa: ARG002 - for heirs
        """Refuse a question that it has no rule for, as its mechanism number ``place``.

        By default every question: unknown means no.
        """
        raise no_rule(query)

    @abstractmethod
    def event(self, sensitivity: Sensitivity, /) -> Event:
        """What one use is, for accounting."""

    @abstractmethod
    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """One draw for the given exact integers."""


class Repeatable(Mechanism[Sensitivity]):
    """A mechanism that draws many independent uses together; `sample` is one of them."""

    __slots__ = ()

    @abstractmethod
    def uses(self, exact: Int64Array, count: int, *, bits: Bits = SYSTEM) -> Int64Array:
        """So many independent uses on the same integers, a use a row; each has its own price."""

    def sample(self, exact: Int64Array, *, bits: Bits = SYSTEM) -> Int64Array:
        """One use."""
        found: Int64Array = self.uses(exact, 1, bits=bits)[0]
        return found


class NoiseMechanism(Mechanism[Sensitivity]):
    """A mechanism that adds independent noise to every cell."""

    __slots__ = ()

    @abstractmethod
    def interval(self, confidence: Number) -> int:
        """The smallest t with Pr[|error| ≤ t] ≥ confidence, for one cell that was not clamped.

        Rounding: up. Where the tail lies within its enclosure of 1 - confidence, t is one larger.
        """


class OfCells(Mechanism[Sensitivity]):
    """A mechanism that is given only the cells that hold rows, of up to 2**64 numbered ones."""

    __slots__ = ()

    @abstractmethod
    def summary(
        self, cells: Places, counts: Int64Array, *, bits: Bits = SYSTEM
    ) -> tuple[Places | None, Int64Array]:
        """The cells that are shown, if any are, and what is released."""


def no_rule(query: Query) -> Unsupported:
    """The refusal of a question that a mechanism has no rule for."""
    return Unsupported(
        f"The door has no rule for this noise on {type(query.tally).__name__.lower()}.",
        fix="Use geometric or discrete Gaussian noise for sums.",
        about="noise",
    )


def require_numbers(query: Query) -> None:
    """Refuse all but numbers that are added up: noise on each of them is noise for the sum."""
    if not isinstance(query.tally, Sums | Marginals | Rows | Distinct) or query.asks == "rows":
        raise no_rule(query)


def require_values(query: Query) -> None:
    """Refuse all but the values of rows."""
    if not isinstance(query.tally, Values):
        raise no_rule(query)


def to_record(mechanism: Mechanism[Any]) -> Record:
    """The mechanism as plain JSON values; numbers are text, so nothing is rounded."""
    record: Record = {"mechanism": mechanism.name}
    for field in fields(mechanism):  # type: ignore[arg-type]  # every mechanism is a dataclass
        record[field.name] = _plain(getattr(mechanism, field.name))
    return record


def _plain(value: object) -> str | bool | list[str] | Record:
    if isinstance(value, bool):
        return value
    if isinstance(value, Mechanism):
        return to_record(value)
    return [str(item) for item in value] if isinstance(value, tuple) else str(value)


def clamped(exact: Int64Array, limit: int = INPUT_MAX) -> Int64Array:
    """The exact answers within ±limit. Refuses other types than int64, which is a public fact."""
    if type(exact) is not np.ndarray or exact.dtype != np.int64:  # a masked array hides from noise
        raise SpecError("The exact answers are not int64.", fix="Give a plain array of int64.")
    return np.clip(exact, -limit, limit)


def noisy(values: Int64Array, noise: Int64Array) -> Int64Array:
    """Clamped answers plus noise, clamped again."""
    released: Int64Array = np.clip(values + noise, -INPUT_MAX, INPUT_MAX)
    return released


def store(mechanism: Mechanism[Any], field: str, value: object) -> None:
    """Set a field of a frozen mechanism while it is being checked."""
    object.__setattr__(mechanism, field, value)


def store_positive(
    mechanism: Mechanism[Any], field: str, *, least: Fraction | None = None, most: Fraction
) -> None:
    """Keep the field as an exact number above 0 and inside the samplers' range."""
    exact = positive(getattr(mechanism, field), name=field)
    if exact > most or (least is not None and exact < least):
        lowest = "above 0" if least is None else f"of at least {least}"
        raise SpecError(
            f"{field} is {shown(exact)}.", fix=f"Use a {field} {lowest} and at most {most}."
        )
    store(mechanism, field, exact)


def require_whole(mechanism: Mechanism[Any], field: str, *, least: int, most: int) -> None:
    """Refuse anything but a whole number in the range."""
    value = getattr(mechanism, field)
    if type(value) is not int or not least <= value <= most:  # a subclass could multiply otherwise
        raise SpecError(
            f"{field} is {shown(value)!r}.",
            fix=f"Use a whole {field} from {least} to {most}.",
            about="whole",
        )


def whole_count(value: int, *, name: str) -> int:
    """A count of at least 1, such as the values one unit may contribute."""
    if type(value) is not int or value < 1:
        raise SpecError(
            f"{name} is {shown(value)!r}.", fix=f"Use a whole {name} of at least 1.", about="whole"
        )
    return value


def failure_of(confidence: Number) -> Fraction:
    """1 - confidence, exactly, for a confidence strictly between 0 and 1."""
    exact = fraction(confidence, name="confidence")
    if not 0 < exact < 1:
        raise SpecError(
            f"confidence is {shown(confidence)}.",
            fix="Use a confidence such as 0.95.",
            about="confidence",
        )
    return 1 - exact


def surely_at_most(compute: Callable[[], Real], bound: Fraction) -> bool:
    """Whether a real number is proven to be at most the bound; evaluated to 128 bits."""
    return upper(compute, digits_bits=128) <= bound


def smallest_whole(is_enough: Callable[[int], bool], *, least: int = 0) -> int:
    """The smallest t ≥ least that is enough, where everything above an enough t is enough too."""
    if is_enough(least):
        return least
    below, step = least, 1
    while not is_enough(below + step):
        below, step = below + step, step * 2
    above = below + step
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if is_enough(middle) else (middle, above)
    return above
