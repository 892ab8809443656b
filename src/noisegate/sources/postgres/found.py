"""What Postgres sends: whole columns as NumPy arrays, by COPY; others as Arrow, by a cursor.

Each row of COPY is a message of its own, which takes the server and Python far longer than the few
bytes in it. So rows are numbered as they come, and so many of them are put into one text of bytes:
an aggregate with an order is never hashed, so that the server holds one such text at a time.
"""

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
_BITS: Final = 12  # of the number of rows in one text
_HEADER: Final = 19
_LENGTHS: Final = 6  # bytes before a text: how many columns, how many bytes; the end has two


def packed(text: str, columns: int) -> str:
    """A statement about rows of 64-bit numbers, none of them missing, with the rows packed."""
    names = [f"c{place}" for place in range(columns)]
    row = " || ".join(f"int8send(q.{name})" for name in names)
    rows = f"({text}) AS q({', '.join(names)})"
    numbered = f"SELECT q.*, row_number() OVER () >> {_BITS} AS b FROM {rows}"  # noqa: S608 - ours
    return f"SELECT string_agg({row}, '' ORDER BY q.b) FROM ({numbered}) AS q GROUP BY q.b"  # noqa: S608


def whole_columns(
    blocks: Iterable[bytes | bytearray | memoryview], columns: int
) -> Iterator[list[Whole]]:
    """The columns of packed rows, a batch at a time."""
    held, found, at = bytearray(), bytearray(), _HEADER
    for block in blocks:  # mostly one text each
        held += block
        while len(held) >= at + _LENGTHS:
            start = at + _LENGTHS
            end = start + int.from_bytes(held[at + 2 : start], "big")
            if len(held) < end:
                break
            found += held[start:end]
            del held[:end]
            at = 0
        if len(found) >= 8 * columns * BATCH:
            yield _columns(bytes(found), columns)
            found.clear()
    if found:
        yield _columns(bytes(found), columns)


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


def _columns(data: bytes, columns: int) -> list[Whole]:
    found = np.frombuffer(data, ">i8").reshape(-1, columns)
    return [found[:, place].astype(np.int64) for place in range(columns)]
