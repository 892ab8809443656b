"""What DuckDB found, as NumPy arrays: batches of rows, and numbers for cells; lists of keys."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
from numpy.typing import NDArray
from pyarrow import ArrowException

from noisegate.algebra.tally import Grouping
from noisegate.arrow import arrow_column, arrow_table, type_of
from noisegate.sources.source import Whole

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = 1 << 18  # rows of a stream that are held at once
_FEW: Final = 1 << 13  # of rows with texts, which fit into one batch however long they are


def unsigned(rows: duckdb.DuckDBPyRelation) -> Iterator[NDArray[np.uint64]]:
    """The one column of a relation, unsigned."""
    return (columns[0].view(np.uint64) for columns in stream(rows))


def stream(rows: duckdb.DuckDBPyRelation, size: int = BATCH) -> Iterator[list[Whole]]:
    """The whole columns of a relation, without NULL, a batch at a time."""
    return ([_array(held) for held in batch.columns] for batch in record_batches(rows, size))


def record_batches(rows: duckdb.DuckDBPyRelation, size: int = _FEW) -> "Iterator[pa.RecordBatch]":
    """The rows of a relation, a batch at a time.

    An error on the way is the engine's, as any other: Arrow only passes on its words.
    """
    try:
        yield from rows.to_arrow_reader(size)
    except (ArrowException, OSError):
        raise duckdb.Error from None


def _array(column: "pa.Array") -> NDArray[Any]:
    """A column's own memory, 32 or 64 bits each."""
    kind = np.dtype(np.int32 if column.type.bit_width == 32 else np.int64)
    return np.frombuffer(column.buffers()[1], kind, len(column), kind.itemsize * column.offset)


def filled(found: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Whole:
    """A number for each cell, 0 where the engine found none."""
    values = found[name].astype(np.int64, copy=False)
    cells = np.zeros(int(np.prod(shape)), np.int64)
    cells[cells_of(found, shape)] = values
    return cells


def cells_of(found: Mapping[str, Any], shape: tuple[int, ...]) -> Whole:
    """The cells of the engine's rows, from the places of their keys."""
    places = [found[f"i{place}"].astype(np.int64, copy=False) for place in range(len(shape))]
    if not places:
        return np.zeros(1, np.int64)
    return np.ravel_multi_index(tuple(map(np.asarray, places)), shape).astype(np.int64)


def key_list(grouping: Grouping) -> "pa.Table":
    """The table (i, x) of a grouping's keys."""
    places = range(len(grouping.keys))
    return arrow_table({
        "i": arrow_column(places, type_of(places)),
        "x": arrow_column(grouping.keys, type_of(grouping.keys)),
    })  # fmt: skip
