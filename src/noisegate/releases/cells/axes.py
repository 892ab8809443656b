"""The axes of a released table: public keys in order, and which of them a person means.

>>> ages = Axis(name="age", keys=(0, 5, 10), ends=(5, 10, 15), whole=True)
>>> ages.labels
('0–4', '5–9', '10–14')
>>> ages.runs((5, 14)), ages.runs([0, 10])
([(1, 2)], [(0, 0), (2, 2)])
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from typing import Any, Final, TypeAlias, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.arrow import number_column
from noisegate.errors import SpecError
from noisegate.exact import fraction
from noisegate.frozen import dataclass
from noisegate.privacy import release

AxisKey: TypeAlias = str | int | date | datetime | Fraction | None
Runs: TypeAlias = list[tuple[int, int]]  # places from … to, both inside
_STEPS: Final = {"hour": "hours", "day": "days", "week": "weeks"}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}
_LASTS: Final = (  # how people name the end of a period of days, or of times
    timedelta(days=1),
    *(timedelta(**{unit: 1}) for unit in ("minutes", "seconds", "milliseconds", "microseconds")),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A column of the grid. None among ``keys`` is the group of rows without a value.

    With ``ends`` the keys are the lower edges of bins, and these the upper ones; ``whole`` says
    that what is binned are whole numbers, and ``low`` and ``high`` are their declared bounds. Keys
    that are ``periods``, such as months, are named by their first day or time.
    """

    name: str
    keys: tuple[AxisKey, ...]
    ends: tuple[int | Fraction, ...] | None = None
    whole: bool = False
    low: Fraction | None = None
    high: Fraction | None = None
    periods: bool = False

    @property
    def size(self) -> int:
        """How many keys there are."""
        return len(self.keys)

    @property
    def present(self) -> tuple[Any, ...]:
        """The keys but the one of rows without a value, which is the last."""
        return tuple(key for key in self.keys if key is not None)

    @property
    def is_ordered(self) -> bool:
        """Whether (low, high) means something: numbers and dates."""
        return not any(isinstance(key, str | bool) for key in self.present)

    @property
    def edges(self) -> NDArray[np.float64] | None:
        """The edges of bins, one more than there are bins; None where keys are not bins."""
        if self.ends is None:
            return None
        return np.array([float(self.present[0]), *map(float, self.ends)])

    @property
    def labels(self) -> tuple[str, ...]:
        """The keys as people read them."""
        missing = ["(none)"] * (self.size - len(self.present))
        if self.ends is None:
            return (*map(str, self.present), *missing)
        bins = zip(self.present, self.ends, strict=True)
        return (*(self._label(low, end) for low, end in bins), *missing)

    def _label(self, low: Any, end: Any) -> str:  # noqa: ANN401 - numbers
        if not self.whole:
            return f"{float(low):g} to {float(end):g}"
        return str(low) if end - low == 1 else f"{low}–{end - 1}"

    def span(self, low: int, high: int) -> str:
        """The keys from one place to another as people read them: bins side by side are one."""
        labels, last = self.labels, min(high, len(self.present) - 1)
        if low >= last or not self.is_ordered:
            return ", ".join(labels[low : high + 1])
        text = f"{labels[low]} to {labels[last]}"
        if self.ends is not None:
            text = self._label(self.present[low], self.ends[last])
        return ", ".join([text, *labels[last + 1 : high + 1]])

    def runs(self, asked: Any) -> Runs:  # noqa: ANN401 - as people write it
        """The places that are meant: a key, a list of keys, or a pair (low, high) of an order.

        Both ends of a pair count, as BETWEEN in SQL; None is an open end. Bins of numbers that are
        not whole end before their upper edge, and so does a pair of them. Dates may be ISO texts.
        """
        if isinstance(asked, tuple):
            if len(asked) != 2:
                raise SpecError(
                    f"A range of {self.name!r} is not a pair.",
                    fix="Use (low, high), or a list.",
                    about="pair",
                )
            return [self._range(*asked)]
        listed = list(asked) if isinstance(asked, list | set | range | np.ndarray) else [asked]
        places = sorted({self._place(key) for key in listed})
        if not places:
            raise SpecError(
                f"A list of keys of {self.name!r} is empty.",
                fix="Leave the axis out to include all keys.",
                about="no-key",
            )
        breaks = [i for i in range(1, len(places)) if places[i] != places[i - 1] + 1]
        starts, ends = [0, *breaks], [*breaks, len(places)]
        return [(places[a], places[b - 1]) for a, b in zip(starts, ends, strict=True)]

    def _place(self, key: Any) -> int:  # noqa: ANN401 - as people write it
        wanted = self.meant(key)
        for place, known in enumerate(self.keys):
            if known == wanted and isinstance(known, bool) == isinstance(wanted, bool):
                return place
        raise SpecError(
            f"{self.name!r} has no key {key!r}.", fix=f"Its keys: {self._some()}.", about="key"
        )

    def meant(self, said: Any) -> Any:  # noqa: ANN401 - as people write it
        """A number or a date as the keys have it."""
        if isinstance(said, float):
            return fraction(said, name=self.name)
        first = self.present[0] if self.present else None
        return date_of(said, type(first)) if isinstance(first, date) else said

    def _range(self, low: Any, high: Any) -> tuple[int, int]:  # noqa: ANN401
        if not self.is_ordered:
            raise SpecError(
                f"The keys of {self.name!r} have no order.",
                fix="Give a list of keys instead of a range.",
                about="order",
            )
        keys = self.present
        try:
            if self.ends is not None:
                first, last = self._first_bin(low), self._last_bin(high)
            else:
                low, high = self.meant(low), self.meant(high)
                first = sum(low is not None and key < low for key in keys)
                last = sum(high is None or key <= high for key in keys) - 1
        except TypeError:
            raise SpecError(
                f"A range of {self.name!r} has the wrong type.",
                fix=f"Its keys: {self._some()}.",
                about="type",
            ) from None
        if first > last:
            raise SpecError(
                f"The range of {self.name!r} is empty.",
                fix=f"Use low ≤ high, among its keys: {self._some()}.",
                about="empty",
            )
        if self.periods:
            self._require_whole(low, high, keys[last + 1 :])
        return first, last

    def _require_whole(self, low: Any, high: Any, later: Sequence[Any]) -> None:  # noqa: ANN401
        """Refuse a range that begins or ends inside a period; its last day or second is its end."""
        keys = self.present
        begins = low is None or low in keys or low < keys[0]
        ends = high is None or not later or high in keys or later[0] - high in _LASTS
        if not begins or not ends:
            raise SpecError(
                f"{high if begins else low} is inside a period of {self.name!r}.",
                fix=f"Begin and end at a boundary: {self._some()}.",
                about="period",
            )

    def ended(self, until: Any, unit: str | None, *, all_in: bool) -> int:  # noqa: ANN401 - a value
        """How many periods have ended with ``until``: a key, or the last value of its period.

        ``unit`` is that of periods of time; ``all_in``: no later value is declared.
        """
        keys = self.present
        count = sum(1 for key in keys if key <= until)
        if not count:
            raise SpecError("No period has ended yet.", fix=f"Use until={keys[0]!r} or later.")
        end, latest = self._end(count - 1, unit), count == len(keys)
        last = end - _LASTS[0] if isinstance(end, date) else end
        named = until in (keys[count - 1], last) or (latest and all_in)
        if not named and not (isinstance(end, date) and end - until in _LASTS):
            beyond = latest and until > last
            raise SpecError(
                f"{until} is beyond the declared periods: later rows would never be counted."
                if beyond
                else f"{until} is inside a period, which has not ended.",
                fix=f"Use until={last}, the end of its period.",
                about="beyond" if beyond else "period",
            )
        return count

    def _end(self, at: int, unit: str | None) -> Any:  # noqa: ANN401 - as the keys are
        """When a period of time has ended; else its last number."""
        key = self.present[at]
        if self.ends is not None:
            return self.ends[at] - self.whole
        return after(key, unit or "day") if isinstance(key, date) else key

    def _first_bin(self, low: Any) -> int:  # noqa: ANN401
        keys = self.present
        if low is None:
            return 0
        wanted = fraction(low, name=self.name)
        if wanted <= max(keys[0], self.low if self.low is not None else keys[0]):
            return 0
        if wanted in keys:
            return keys.index(wanted)
        raise self._between_edges(wanted)

    def _last_bin(self, high: Any) -> int:  # noqa: ANN401
        ends = [end - self.whole for end in self.ends or ()]
        if high is None:
            return len(ends) - 1
        wanted = fraction(high, name=self.name)
        if wanted >= min(ends[-1], self.high if self.high is not None else ends[-1]):
            return len(ends) - 1
        if wanted in ends:
            return ends.index(wanted)
        raise self._between_edges(wanted)

    def _between_edges(self, asked: Fraction) -> SpecError:
        bins = self.labels[: len(self.present)]
        shown = ", ".join(bins if len(bins) <= 4 else (*bins[:2], "…", bins[-1]))
        held = self.present[0] < asked < (self.ends or (0,))[-1]
        return SpecError(
            f"{float(asked):g} is {'inside a bin' if held else 'beyond the bins'} of "
            f"{self.name!r}.",
            fix=f"Begin and end at an edge of a bin: {shown}.",
            about="bin" if held else "beyond",
        )

    def _some(self) -> str:
        more = ", …" if self.size > 8 else ""
        return ", ".join(map(_written, self.keys[:8])) + more

    # other forms

    def column(self) -> pa.Array:
        """The keys as an Arrow column; bins by their lower edge."""
        if any(type(key) is int or isinstance(key, Fraction) for key in self.keys):
            return number_column(self.keys)
        return pa.array(self.keys)

    def to_record(self) -> dict[str, Any]:
        """The axis as JSON values."""
        record: dict[str, Any] = {"name": self.name, "keys": list(map(key_record, self.keys))}
        if self.ends is not None:
            record |= {"ends": [str(end) for end in self.ends], "whole": self.whole}
            bounds = {"low": self.low, "high": self.high}
            record |= {name: str(at) for name, at in bounds.items() if at is not None}
        return record | ({"periods": True} if self.periods else {})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Axis":
        """The axis that `to_record` wrote."""
        bounds = {name: Fraction(record[name]) for name in ("low", "high") if name in record}
        ends = record.get("ends")
        return cls(
            name=record["name"],
            keys=tuple(map(key_of, record["keys"])),
            ends=None if ends is None else tuple(map(plain_number, ends)),
            whole=bool(record.get("whole", False)),
            periods=bool(record.get("periods", False)),
            **bounds,
        )


def require_names(axes: Sequence[Any], names: Iterable[str | None]) -> None:
    """Refuse names that are no axis."""
    known = [axis.name for axis in axes]
    for name in names:
        if name is not None and name not in known:
            raise SpecError(
                f"There is no axis {name!r}.", fix=f"Use {', '.join(known)}.", about="axis"
            )


def runs_of(axes: Sequence[Axis], where: Mapping[str, Any]) -> list[Runs]:
    """What is meant along each axis; all of it where nothing is said."""
    require_names(axes, where)
    return [
        axis.runs(where[axis.name]) if axis.name in where else [(0, axis.size - 1)] for axis in axes
    ]


def chosen_cells(axes: Sequence[Axis], where: Mapping[str, Any]) -> list[NDArray[np.int64]]:
    """The same as places."""
    return [
        np.concatenate([np.arange(low, high + 1) for low, high in runs])
        for runs in runs_of(axes, where)
    ]


def keys_of(axes: Sequence[Axis], count: int, *, labels: bool = False) -> pa.Table:
    """The keys of the first cells, the last axis varying fastest; or as people read them."""
    places = np.unravel_index(np.arange(count), [axis.size for axis in axes])
    columns = [pa.array(axis.labels) if labels else axis.column() for axis in axes]
    arrays = [column.take(pa.array(at)) for column, at in zip(columns, places, strict=True)]
    return pa.table(arrays, names=[axis.name for axis in axes])


def after(key: Any, unit: str) -> Any:  # noqa: ANN401 - a date or a time
    """When the stretch of time that begins with the key has ended."""
    if unit in _STEPS:
        return key + timedelta(**{_STEPS[unit]: 1})
    months = key.month - 1 + _MONTHS[unit]
    return key.replace(year=key.year + months // 12, month=months % 12 + 1)


def date_of(said: Any, kind: type[date] = date) -> Any:  # noqa: ANN401 - as people write it
    """An ISO text as the date or time that it names, midnight as its day; else as it is."""
    if kind is date and isinstance(said, datetime) and said.time() == time.min:
        return said.date()
    try:
        return kind.fromisoformat(said) if isinstance(said, str) else said
    except ValueError:
        return said


def _written(key: AxisKey) -> str:
    return repr(
        str(key) if isinstance(key, date) else float(key) if isinstance(key, Fraction) else key
    )


def key_record(key: AxisKey) -> Any:  # noqa: ANN401 - JSON
    """A key as a JSON value."""
    return {"number": str(key)} if isinstance(key, Fraction) else release.key_record(key)


def key_of(record: Any) -> Any:  # noqa: ANN401 - JSON, and a key
    """What `key_record` wrote."""
    if isinstance(record, dict) and "number" in record:
        return plain_number(record["number"])
    return release.key_of(record)


def plain_number(said: Any) -> int | Fraction:  # noqa: ANN401 - text or a number
    """A whole number as such, others as they are."""
    exact = Fraction(said)
    return int(exact) if exact.denominator == 1 else exact
