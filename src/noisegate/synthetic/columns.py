"""How the columns of a table become cells, and how cells become values again.

Everything here follows from declared facts: keys, bounds, kinds. A value that comes back from a bin
is spread evenly over it, whole where the column is whole, within the declared bounds.

>>> ages = Axis(name="age", keys=(0, 10, None), ends=(10, 20), whole=True)
>>> coding = Coding(kind=Kind.INTEGER, axis=ages, bounds=(Fraction(0), Fraction(14)))
>>> coding.decode(np.array([1, 1, 2, 0, 1]), seed=7).to_pylist()
[13, 14, None, 2, 11]
"""

from collections.abc import Mapping
from datetime import date, datetime
from fractions import Fraction
from math import ceil, floor, log10
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Kind, ordinal
from noisegate.releases.cells.axes import Axis, after, key_of, key_record
from noisegate.releases.cells.chance import public_coins
from noisegate.steward.practice import TYPES

Cells: TypeAlias = NDArray[np.integer[Any]]
Bounds: TypeAlias = tuple[Fraction, Fraction]
UNITS: Final = ("hour", "day", "week", "month", "quarter", "year")
_SPAN: Final = {  # about how many days a unit of time has: for the number of cells alone
    "hour": Fraction(1, 24),
    "day": Fraction(1),
    "week": Fraction(7),
    "month": Fraction(30),
    "quarter": Fraction(91),
    "year": Fraction(365),
}
_DAY: Final = 86_400 * 10**6  # in microseconds
BINS: Final = 40  # of a column, unless a width is given


def usual_width(bounds: Bounds, *, whole: bool) -> Fraction:
    """The finest of 1, 2, 5, 10, … (or 0.5, 0.2, …) that makes at most 40 bins."""
    reach = bounds[1] - bounds[0] + whole
    power = floor(log10(reach)) - 3
    while True:
        for digit in (1, 2, 5):
            width = digit * Fraction(10) ** power
            bins = floor(bounds[1] / width) - floor(bounds[0] / width) + 1
            if bins <= BINS and (not whole or width.denominator == 1):
                return width
        power += 1


def usual_unit(bounds: Bounds, kind: Kind) -> str:
    """The finest unit of time that makes at most 40 groups; for dates from a day on."""
    days = (bounds[1] - bounds[0]) / (1 if kind is Kind.DATE else _DAY)
    units = UNITS if kind is Kind.TIMESTAMP else UNITS[1:]
    return next((unit for unit in units if days / _SPAN[unit] < BINS - 1), "year")


def usual_edges(bounds: Bounds, *, whole: bool, width: Fraction | None = None) -> list[Fraction]:
    """The edges of the usual bins; what is beyond them is in the first or the last."""
    width = width or usual_width(bounds, whole=whole)
    first, last = floor(bounds[0] / width), floor(bounds[1] / width)
    return [width * place for place in range(first, last + 2)]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """A column that is measured: its cells are the keys of ``axis``.

    ``unit`` is that of times that are grouped; ``bounds`` are the declared or found ones.
    """

    kind: Kind
    axis: Axis
    bounds: Bounds | None = None
    unit: str | None = None

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.axis.name

    def decode(self, cells: Cells, *, seed: int) -> pa.Array:
        """A value for each number of a cell: its key, or one spread evenly over its bin."""
        if self.axis.ends is None and self.unit is None:
            return pa.array(list(self.axis.keys), TYPES[self.kind]).take(pa.array(cells))
        lows, highs = self._ranges()
        places = np.minimum(cells, len(lows) - 1)
        drawn = spread(lows[places], highs[places], seed, whole=self.kind is not Kind.NUMBER)
        missing = cells >= len(lows)
        kind = TYPES[self.kind]
        if self.kind is Kind.DATE:
            drawn = drawn.astype(np.int32)
        return pa.array(drawn, mask=missing).cast(kind) if missing.any() else _cast(drawn, kind)

    def _ranges(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The least value of each cell and the first beyond it, within the bounds."""
        whole = self.kind is not Kind.NUMBER
        starts = [self.number(key) for key in self.axis.present]
        ends = [self.number(end) for end in self.axis.ends or ()]
        ends = ends or [self._end(key) for key in self.axis.present]
        if self.bounds is not None:
            low, high = self.bounds[0], self.bounds[1] + whole
            starts = [min(max(at, low), end) for at, end in zip(starts, ends, strict=True)]
            ends = [max(min(at, high), start) for at, start in zip(ends, starts, strict=True)]
        if not whole:
            return np.array(list(map(float, starts))), np.array(list(map(float, ends)))
        lows, highs = list(map(ceil, starts)), list(map(ceil, ends))
        return np.array(lows, np.int64), np.maximum(np.array(highs, np.int64), np.array(lows) + 1)

    def number(self, key: Any) -> Fraction:  # noqa: ANN401 - a key or an edge
        """A key as a number; the day of a moment is its midnight."""
        if self.kind is Kind.TIMESTAMP and type(key) is date:
            key = datetime(key.year, key.month, key.day)  # noqa: DTZ001 - no zone, as in tables
        return ordinal(key)

    def _end(self, key: Any) -> Fraction:  # noqa: ANN401 - a date or a time
        """The number of the first moment after a group of time; calendars end after 9999."""
        try:
            return self.number(after(key, str(self.unit)))
        except (OverflowError, ValueError):
            return self.number(date.max) + (1 if self.kind is Kind.DATE else _DAY)

    def to_record(self) -> dict[str, Any]:
        """The column as JSON values."""
        bounds = None if self.bounds is None else list(map(str, self.bounds))
        return {
            "kind": self.kind.value,
            "axis": self.axis.to_record(),
            "bounds": bounds,
            "unit": self.unit,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Coding":
        """What `to_record` wrote."""
        bounds = record["bounds"]
        return cls(
            kind=Kind(record["kind"]),
            axis=Axis.from_record(record["axis"]),
            bounds=None if bounds is None else (Fraction(bounds[0]), Fraction(bounds[1])),
            unit=record["unit"],
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Determined:
    """A column that follows from the column ``of`` by a public map: never measured, always kept.

    ``pairs`` are (key, value), or ((low, high), value) with both ends inside. What is in none has
    no value.
    """

    name: str
    kind: Kind
    of: str
    pairs: tuple[tuple[Any, Any], ...]

    def decode(self, others: pa.Array) -> pa.Array:
        """The value for each value of the other column."""
        distinct = others.dictionary_encode()
        found = [self.value_of(key) for key in distinct.dictionary.to_pylist()]
        return pa.array(found, TYPES[self.kind]).take(distinct.indices)

    def require_values(self) -> None:
        """Raise a ValueError or TypeError where a value is of another kind than the column."""
        values = [value for _, value in self.pairs]
        if pa.array(values, TYPES[self.kind]).to_pylist() != values:
            raise ValueError(self.name)

    def value_of(self, key: Any) -> Any:  # noqa: ANN401 - any value
        """The value for one value of the other column."""
        for known, value in self.pairs:
            if isinstance(known, tuple):
                if known[0] <= key <= known[1]:
                    return value
            elif known == key and isinstance(known, bool) == isinstance(key, bool):
                return value
        return None

    def to_record(self) -> dict[str, Any]:
        """The column as JSON values."""
        pairs = [
            [[*map(key_record, known)] if isinstance(known, tuple) else key_record(known),
             key_record(value)]
            for known, value in self.pairs
        ]  # fmt: skip
        return {"name": self.name, "kind": self.kind.value, "of": self.of, "pairs": pairs}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Determined":
        """What `to_record` wrote."""
        pairs = tuple(
            (
                tuple(map(key_of, known)) if isinstance(known, list) else key_of(known),
                key_of(value),
            )
            for known, value in record["pairs"]
        )  # fmt: skip
        return cls(name=record["name"], kind=Kind(record["kind"]), of=record["of"], pairs=pairs)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """The column that names the unit: synthetic rows are numbered, and name nobody."""

    name: str
    kind: Kind

    def decode(self, count: int) -> pa.Array:
        """The numbers 1, 2, 3, and so on."""
        return pa.array(np.arange(1, count + 1)).cast(TYPES[self.kind])

    def to_record(self) -> dict[str, Any]:
        """The column as JSON values."""
        return {"name": self.name, "kind": self.kind.value}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Numbered":
        """What `to_record` wrote."""
        return cls(name=record["name"], kind=Kind(record["kind"]))


_KINDS: Final[Mapping[str, Any]] = {
    "coding": Coding,
    "determined": Determined,
    "numbered": Numbered,
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """All columns of the synthetic table, in the order of the original."""

    table: str
    columns: tuple[Coding | Determined | Numbered, ...]

    @property
    def codings(self) -> tuple[Coding, ...]:
        """The columns that are measured, as the model numbers them."""
        return tuple(each for each in self.columns if isinstance(each, Coding))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Their axes."""
        return tuple(each.axis for each in self.codings)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each has."""
        return tuple(axis.size for axis in self.axes)

    def place(self, name: str) -> int:
        """The number of a measured column."""
        names = [axis.name for axis in self.axes]
        if name not in names:
            raise SpecError(
                f"{name!r} is not a measured column.",
                fix=f"Use {', '.join(names)}.",
                about="column",
            )
        return names.index(name)

    def decode(self, cells: Cells, *, seed: int) -> pa.Table:
        """The rows: values for the cells of each row."""
        made: dict[str, Any] = {}
        for place, coding in enumerate(self.codings):
            own = (seed << 16) + place
            made[coding.name] = coding.decode(cells[:, place], seed=own)
        for column in self.columns:
            if isinstance(column, Determined):
                made[column.name] = column.decode(made[column.of])
            elif isinstance(column, Numbered):
                made[column.name] = column.decode(len(cells))
        return pa.table({column.name: made[column.name] for column in self.columns})

    def to_record(self) -> dict[str, Any]:
        """The layout as JSON values."""
        names = {kind: name for name, kind in _KINDS.items()}
        columns = [{names[type(each)]: each.to_record()} for each in self.columns]
        return {"table": self.table, "columns": columns}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Layout":
        """What `to_record` wrote."""
        columns = [
            _KINDS[name].from_record(held)
            for each in record["columns"]
            for name, held in each.items()
        ]
        return cls(table=record["table"], columns=tuple(columns))


def spread(lows: NDArray[Any], highs: NDArray[Any], seed: int, *, whole: bool) -> NDArray[Any]:
    """Values evenly from low to below high; others than whole ones end after a few digits."""
    parts = public_coins(seed).random(len(lows))
    widths = highs - lows
    if whole:
        found: NDArray[Any] = lows + np.minimum((parts * widths).astype(np.int64), widths - 1)
        return found
    positive = widths[widths > 0]
    digits = 3 - floor(log10(positive.min())) if positive.size else 0
    scale = 10.0 ** min(max(digits, 0), 15)
    cut: NDArray[Any] = np.maximum(np.floor((lows + parts * widths) * scale) / scale, lows)
    return cut


def _cast(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values).cast(kind)
