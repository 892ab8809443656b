"""The rows themselves, for a mechanism that minimises a loss over all of them."""

from collections.abc import Iterable
from typing import Any, final

import numpy as np

from noisegate.frozen import dataclass
from noisegate.sources.source import Batch, Whole
from noisegate.transforms.statistics.numbers import Shape


@final
@dataclass(frozen=True, slots=True)
class WholeRows:
    """Of each row its coordinates, the place of its key, and what it weighs in parts of a row."""

    def total(self, batches: Iterable[Batch], shape: Shape) -> list[Whole]:
        """One array with a line for each row."""
        parts = [np.empty((0, shape.columns + 2), np.int64)]
        for batch in batches:
            weights = np.ones(len(batch)) if batch.weights is None else batch.weights
            parts.append(np.column_stack([batch.coordinates, batch.places, weights]))
        return [np.vstack(parts).astype(np.int64)]

    def to_record(self) -> dict[str, Any]:
        """All rows are one thing."""
        return {"rows": "all"}
