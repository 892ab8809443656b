"""Arrow columns from plain values, and back to NumPy.

`pa.array` and `to_numpy` do the same, but load pandas where it is installed, which takes as long as
a whole first answer may.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_WIDE: Final = 1 << 63
_DAY: Final = date(1970, 1, 1)
_START: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - times have no zone


def arrow_column(values: "Sequence[Any] | NDArray[Any]", kind: pa.DataType) -> pa.Array:
    """Values (None for missing) as boolean, int64, float64, decimal, text, date32, timestamp[us].

    >>> import pyarrow as pa
    >>> arrow_column([1, None, 3], pa.int64()).to_pylist()
    [1, None, 3]
    """
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    held = np.array([value is not None for value in listed], np.bool_)
    valid = None if held.all() else pa.py_buffer(np.packbits(held, bitorder="little"))
    if pa.types.is_string(kind):
        texts = [b"" if value is None else value.encode() for value in listed]
        ends = np.zeros(len(texts) + 1, np.int32)
        np.cumsum([len(text) for text in texts], out=ends[1:])
        parts = [pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(kind, len(texts), [valid, *parts])
    data = _fixed([0 if value is None else value for value in listed], kind)
    return pa.Array.from_buffers(kind, len(listed), [valid, pa.py_buffer(data)])


def number_column(values: Sequence[Any]) -> pa.Array:
    """Numbers (None for missing): whole ones where 64 bits hold them all, else doubles.

    >>> number_column([1, None]).type, number_column([1, 1 << 63]).type
    (DataType(int64), DataType(double))
    """
    whole = all(
        isinstance(value, int) and -_WIDE <= value < _WIDE for value in values if value is not None
    )
    plain = [None if value is None else int(value) if whole else float(value) for value in values]
    return arrow_column(plain, pa.int64() if whole else pa.float64())


def type_of(values: Sequence[Any]) -> pa.DataType:
    """The Arrow type of keys, which are all of one type or None; text where there is none."""
    types = {bool: pa.bool_(), int: pa.int64(), date: pa.date32(), datetime: pa.timestamp("us")}
    kinds = (type(value) for value in values if value is not None)
    return types.get(next(kinds, str), pa.string())


def _fixed(values: list[Any], kind: pa.DataType) -> NDArray[Any]:
    """Values of a fixed width, as Arrow lays them out."""
    if pa.types.is_boolean(kind):
        return np.packbits(np.array(values, np.bool_), bitorder="little")
    if pa.types.is_date(kind):
        days = [(value - _DAY).days if isinstance(value, date) else 0 for value in values]
        return np.array(days, np.int32)
    if pa.types.is_timestamp(kind):
        passed = [value - _START if isinstance(value, datetime) else 0 for value in values]
        return np.array(passed, "m8[us]").astype(np.int64)
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        digits = (round(Fraction(value) * 10**kind.scale) for value in values)
        limited = (max(-most, min(each, most)) for each in digits)
        return np.frombuffer(
            b"".join(each.to_bytes(16, "little", signed=True) for each in limited), np.uint8
        )
    return np.array(values, np.int64 if pa.types.is_integer(kind) else np.float64)


def arrow_table(columns: Mapping[str, pa.Array]) -> pa.Table:
    """Columns by name as a table."""
    return pa.Table.from_arrays(list(columns.values()), names=list(columns))


def numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """A column of 64-bit whole numbers or doubles without missing values."""
    whole: type = np.int64 if pa.types.is_int64(column.type) else np.float64
    width = np.uint64 if pa.types.is_uint64(column.type) else whole
    chunks: list[NDArray[Any]] = [
        np.frombuffer(chunk.buffers()[1], width, len(chunk), 8 * chunk.offset)
        for chunk in column.chunks
        if len(chunk)
    ]
    if not chunks:
        return np.zeros(0, width)
    return np.concatenate(chunks) if len(chunks) > 1 else chunks[0]


def holds_numbers(kind: pa.DataType) -> bool:
    """Whether values of a type are numbers; booleans are none."""
    from pyarrow import types  # noqa: PLC0415 - slow to load

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
