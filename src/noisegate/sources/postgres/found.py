"""What Postgres sends: whole columns, by COPY, as NumPy arrays; others, by a cursor, as Arrow."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from noisegate.privacy.domain import Kind
from noisegate.sources.asked.opening import arrow_types
from noisegate.sources.source import Whole

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

BATCH: Final = 1 << 18  # rows that are held at once
_HELD: Final = 1 << 14  # of them, as Python's own values
_HEADER: Final = 19
_TRAILER: Final = 2


def whole_columns(
    blocks: Iterable[bytes | bytearray | memoryview], columns: int
) -> Iterator[list[Whole]]:
    """The columns of rows of 64-bit numbers, none of them missing, a batch at a time."""
    row = np.dtype([("n", ">i2"), *((f"{k}{i}", t) for i in range(columns)
                                    for k, t in (("l", ">i4"), ("v", ">i8")))])  # fmt: skip
    held, skip = bytearray(), _HEADER
    for block in blocks:
        held += block
        if skip and len(held) >= skip:
            del held[:skip]
            skip = 0
        rows = 0 if skip else (len(held) - _TRAILER) // row.itemsize
        if rows >= BATCH:
            yield _columns(bytes(held[: rows * row.itemsize]), row, columns)
            del held[: rows * row.itemsize]
    rows = (len(held) - _TRAILER) // row.itemsize
    if rows > 0:
        yield _columns(bytes(held[: rows * row.itemsize]), row, columns)


def typed_rows(
    connection: "psycopg.Connection[Any]", text: str, kinds: Mapping[str, Kind]
) -> "Iterator[pa.RecordBatch]":
    """The rows of a statement, of columns of these kinds, a batch at a time."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    from noisegate.arrow import arrow_column  # noqa: PLC0415 - loads it, too

    types = arrow_types()
    with connection.cursor("rows", binary=True) as cursor:
        cursor.execute(text)
        while held := cursor.fetchmany(_HELD):
            columns = zip(zip(*held, strict=True), kinds.values(), strict=True)
            arrays = [arrow_column(column, types[kind]) for column, kind in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(kinds))


def _columns(data: bytes, row: np.dtype[np.void], columns: int) -> list[Whole]:
    found = np.frombuffer(data, row)
    return [found[f"v{place}"].astype(np.int64) for place in range(columns)]
