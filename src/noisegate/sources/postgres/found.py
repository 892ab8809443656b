"""What Postgres sends, as NumPy arrays: whole columns in the binary form of COPY."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from noisegate.sources.source import Whole

BATCH: Final = 1 << 18  # rows that are held at once
_HEADER: Final = 19
_TRAILER: Final = 2


def whole_columns(blocks: Iterable[bytes], columns: int) -> Iterator[list[Whole]]:
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


def _columns(data: bytes, row: np.dtype[np.void], columns: int) -> list[Whole]:
    found = np.frombuffer(data, row)
    return [found[f"v{place}"].astype(np.int64) for place in range(columns)]
