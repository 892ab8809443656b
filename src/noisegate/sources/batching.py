"""Columns of rows as batches, for whatever makes statistics of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from noisegate.algebra.tally import Rows
from noisegate.sources.source import Batch, Whole


def batches(rows: Iterator[list[Whole]], tally: Rows) -> Iterator[Batch]:
    """Coordinates, places of keys and weights, a batch at a time."""
    first, columns = len(tally.by), len(tally.terms)
    most = max(max(-term.low, term.high) for term in tally.terms)
    kind: Any = np.int16 if most < 1 << 15 else np.int32
    for batch in rows:
        held = [column.astype(np.int32, copy=False) for column in batch]
        size = len(held[-1])
        weighs = len(held) > first + columns
        yield Batch(
            np.stack(held[first : first + columns], axis=1, dtype=kind, casting="unsafe"),
            held[0] if first else np.zeros(size, np.int32),
            held[-1] if weighs else None,
        )
