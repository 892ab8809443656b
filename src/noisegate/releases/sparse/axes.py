"""The axes of a table too large to list: numbers in steps, days, or listed keys, by their places.

>>> ages = SparseAxis(name="age", size=24, low=0, step=5)
>>> ages.runs((18, 30)), ages.runs([0, 7])
([(3, 6)], [(0, 0), (1, 1)])
"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from math import floor, lcm
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Literal, Schema, domain_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Axis, Grouping
from noisegate.arrow import arrow_column, type_of
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import fraction
from noisegate.frozen import dataclass
from noisegate.privacy.domain import EPOCH, Key, Kind
from noisegate.releases.cells.axes import date_of, key_of, key_record
from noisegate.sql.question import Block, GroupKey

Places: TypeAlias = NDArray[np.uint64]
Runs: TypeAlias = list[tuple[int, int]]  # places from … to, both inside
STEPS: Final = ("floor", "divide", "multiply")  # of numbers, which are read as they were


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAxis:
    """``keys`` in order, or ``size`` steps from ``low`` on: of numbers, or of ``days``."""

    name: str
    size: int
    low: Fraction = Fraction(0)
    step: Fraction = Fraction(1)
    keys: tuple[Key, ...] | None = None
    days: bool = False

    def column(self, places: Places) -> pa.Array:
        """The keys at these places. Steps of numbers are told by their lower ends."""
        if self.keys is not None:
            return arrow_column(self.keys, type_of(self.keys)).take(pa.array(places))
        if self.low.denominator != 1 or self.step.denominator != 1:
            return pa.array(float(self.low) + places.astype(np.float64) * float(self.step))
        # modulo 2**64: the keys are 64 bits wide, whatever is added on the way
        start, step = np.uint64(int(self.low) % (1 << 64)), np.uint64(int(self.step))
        found = (start + places * step).view(np.int64)
        return pa.array(found.astype(np.int32), pa.date32()) if self.days else pa.array(found)

    def runs(self, asked: Any) -> Runs:  # noqa: ANN401 - as people write it
        """The places that are meant: a key, a list of keys, or a pair (low, high), ends inside.

        None is an open end. A number means the step that holds it.
        """
        if not isinstance(asked, tuple):
            listed = asked if isinstance(asked, list) else [asked]
            return [(place, place) for place in sorted({self._place(key) for key in listed})]
        if len(asked) != 2 or self.keys is not None:
            raise SpecError(
                f"This is not a range of {self.name!r}.",
                fix="Use (low, high) of numbers, or a list.",
            )
        low, high = asked
        first = 0 if low is None else max(0, self._step_of(low, up=True))
        last = self.size - 1 if high is None else min(self.size - 1, self._step_of(high))
        if first > last:
            raise SpecError(
                f"The range of {self.name!r} is empty, or beyond its bounds.",
                fix=f"Use low ≤ high, {self._bounds()}.",
                about="empty",
            )
        return [(first, last)]

    def _place(self, key: Any) -> int:  # noqa: ANN401
        if self.keys is not None:
            if key in self.keys:
                return self.keys.index(key)
        elif 0 <= (place := self._step_of(key)) < self.size:
            return place
        raise SpecError(f"{self.name!r} has no key {key!r}.", fix=f"Use one {self._bounds()}.")

    def _bounds(self) -> str:
        if self.keys is not None:
            return f"of {', '.join(map(str, self.keys[:8]))}{', …' if self.size > 8 else ''}"
        first, last = self.column(np.array([0, self.size - 1], np.uint64)).to_pylist()
        return f"from {first} to {last}"

    def _step_of(self, value: Any, *, up: bool = False) -> int:  # noqa: ANN401
        if self.days:
            value = date_of(value)
            if not isinstance(value, date):
                raise SpecError(f"{self.name!r} is a date.", fix='For example: "2026-01-31".')
            value = (value - EPOCH.date()).days
        steps = (fraction(value, name=self.name) - self.low) / self.step
        return -floor(-steps) if up and self.step == 1 else floor(steps)

    def to_record(self) -> dict[str, Any]:
        """Plain JSON values."""
        keys = None if self.keys is None else [key_record(key) for key in self.keys]
        return {
            "name": self.name, "size": str(self.size), "low": str(self.low),
            "step": str(self.step), "days": self.days, "keys": keys,
        }  # fmt: skip

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "SparseAxis":
        """What `to_record` wrote."""
        keys = record["keys"]
        return cls(
            name=record["name"], size=int(record["size"]), low=Fraction(record["low"]),
            step=Fraction(record["step"]), days=record["days"],
            keys=None if keys is None else tuple(map(key_of, keys)),
        )  # fmt: skip


def places_of(axes: Sequence[SparseAxis], cells: Places) -> list[Places]:
    """The places of numbered cells along each axis: the digits of the numbers."""
    found, left = [], cells
    for axis in reversed(axes):
        if axis.size == 1 << 64:
            found.append(left)
            left = np.zeros_like(left)
        else:
            left, place = np.divmod(left, np.uint64(axis.size))
            found.append(place)
    return found[::-1]


def axes_of(
    block: Block, names: Sequence[str]
) -> tuple[tuple[Axis | Grouping, ...], tuple[SparseAxis, ...]]:
    """The axes of a block's groups: as the door counts along them, and as people read them."""
    schema = schema_of(block.relation)
    pairs = [_axis(key, name, schema) for key, name in zip(block.by, names, strict=True)]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def _axis(key: GroupKey, name: str, schema: Schema) -> tuple[Axis | Grouping, SparseAxis]:
    domain, asked = key.domain, key.expression
    is_bin = type(asked) is Call and asked.function == "bin"
    if (domain.keys is not None and not is_bin and domain.kind is not Kind.INTEGER) or key.closed:
        listed = tuple(each for each in domain.keys or () if each is not None)
        made = Grouping(name=name, expression=asked, keys=listed)
        return made, SparseAxis(name=name, size=len(listed), keys=listed)
    if is_bin:
        return _binned(asked, name, schema)  # type: ignore[arg-type]
    if domain.low is None or domain.high is None or domain.kind not in (Kind.INTEGER, Kind.DATE):
        raise Unsupported(
            f"The values of {name!r} are not declared.",
            fix="Declare the column's keys or bounds; for other numbers use BIN(x, width).",
        )
    low, size = int(domain.low), int(domain.high - domain.low) + 1
    if domain.kind is Kind.INTEGER:
        made_, step = Axis(name=name, expression=asked, low=low, size=size), _step(asked)
        return made_, SparseAxis(name=name, size=size, low=low * step, step=step)
    first = Literal(EPOCH.date() + timedelta(days=low))
    passed = Call("date_diff", (Literal("day"), first, asked))
    days = SparseAxis(name=name, size=size, low=Fraction(low), days=True)
    return Axis(name=name, expression=passed, low=0, size=size), days


def _step(asked: Expression) -> Fraction:
    """The width of the bins that FLOOR(x / width) or FLOOR(x * a / b) numbers, else 1."""
    width = Fraction(1)
    if type(asked) is Call and asked.function == "floor" and type(asked.args[0]) is Call:
        inner: Expression = asked.args[0]
        for name, power in (("divide", 1), ("multiply", -1)):
            if type(inner) is Call and inner.function == name and type(inner.args[1]) is Literal:
                width *= Fraction(inner.args[1].value) ** power  # type: ignore[arg-type]
                inner = inner.args[0]
    return width if width > 0 else Fraction(1)


def _binned(asked: Call, name: str, schema: Schema) -> tuple[Axis, SparseAxis]:
    """Bins by their numbers: whole ones by whole division, others as BIN computes them."""
    inside = domain_of(asked.args[0], schema)
    if inside.low is None or inside.high is None:
        raise Unsupported(f"{name!r} has no declared bounds.", fix="Declare between = [low, high].")
    constants = [Fraction(each.value) for each in asked.args[1:] if type(each) is Literal]  # type: ignore[arg-type]
    width, origin = (*constants, Fraction(0))[:2]
    first = floor((inside.low - origin) / width)
    size = floor((inside.high - origin) / width) - first + 1
    start = origin + first * width
    whole = inside.kind is Kind.INTEGER and start.denominator == width.denominator == 1
    number: Expression
    if whole:
        passed = Call("subtract", (asked.args[0], Literal(int(start))))
        number, low = Call("int_divide", (passed, Literal(int(width)))), 0
    else:
        scale = lcm(width.denominator, origin.denominator)
        grown = Call("multiply", (asked.args[0], Literal(scale)))
        shifted = Call("subtract", (grown, Literal(int(origin * scale))))
        divided = Call("divide", (shifted, Literal(int(width * scale))))
        number, low = Call("floor", (divided,)), first
    made = Axis(name=name, expression=number, low=low, size=size)
    return made, SparseAxis(name=name, size=size, low=start, step=width)
