"""Points that stand for the people of a secret sample: redrawn inside their cells, outliers gone.

A crowd's histogram over cells of numbers says how many of the sample are in each cell that is
shown. Each of them becomes a point drawn evenly from its cell. That is made of the histogram alone,
so the promise is the same, and one set of points answers every smooth question. To add Laplace
noise to the points themselves, as [GHLP12] do, moves them further and promises less.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.crowd.histogram import CrowdRelease
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.query.card import Card
from noisegate.releases.axes import Axis
from noisegate.releases.chance import Coins, public_coins
from noisegate.releases.held import require_ending

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

FORMS: Final = (".parquet", ".csv", ".md")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrowdPoints:
    """The points of a crowd's histogram. The same histogram always has the same points."""

    histogram: CrowdRelease
    columns: dict[str, NDArray[Any]]

    @property
    def size(self) -> int:
        """How many points there are."""
        return int(self.histogram.counts.sum())

    @property
    def guarantee(self) -> Guarantee:
        """That of the histogram."""
        return self.histogram.guarantee

    @property
    def cost(self) -> ApproxDP:
        """That of the histogram."""
        return self.histogram.cost

    def mean(self, function: Callable[..., Any]) -> float:
        """The average of a function of the columns over all points, such as ``lambda x, y: x``."""
        if not self.size:
            raise SpecError("No cell is shown, so there are no points.", fix="Use wider cells.")
        return float(np.mean(function(**self.columns)))

    def smooth_error(
        self, *, slope: float, spread: float, confidence: Numeric = 0.95
    ) -> tuple[float, float]:
        """How far an average may be off: for people in shown cells, and what hidden ones may add.

        For functions that change by at most ``slope`` per unit along any axis, and by at most
        ``spread`` over all cells.
        Claim: the average over all people in cells is within the sum of both, with the confidence.
        Why: a point is off by at most the sides of its cell, on average by half of them;
            Hoeffding's bound over the n points adds little, and as much with the spread for the
            sample, each failing with half of 1 - confidence. A hidden cell has at most crowd - 1
            of the sample, which may lie anywhere.
        """
        if not self.size or slope < 0 or spread < 0:
            raise SpecError("There is nothing to bound.", fix="Use numbers of at least 0.")
        counts, failure = self.histogram.counts, float(failure_of(confidence))
        sides = sum(np.ix_(*(_sides(axis) for axis in self.histogram.axes)), np.zeros(()))
        half = float((counts * sides).sum()) / self.size / 2
        square = float((counts * sides**2).sum()) / self.size
        moved = slope * (half + sqrt(square * log(2 / failure) / (2 * self.size)))
        chosen = spread * sqrt(log(4 / failure) / (2 * self.size))
        unseen = int(self.histogram.hidden.sum()) * (self.histogram.noise.crowd - 1)
        return moved + chosen, spread * unseen / (unseen + self.size)

    def to_arrow(self) -> "pa.Table":
        """The points, a column for each axis."""
        import pyarrow as pa  # noqa: PLC0415 - only when asked for

        return pa.table({name: pa.array(values) for name, values in self.columns.items()})

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas frame."""
        return self.to_arrow().to_pandas()

    def card(self, confidence: Numeric = 0.95) -> Card:
        """The release card of the histogram."""
        return self.histogram.card(confidence)

    def save(self, file: str | Path) -> None:
        """Write the points as Parquet or CSV, or the card as Markdown."""
        path = Path(file)
        require_ending(path, FORMS)
        if path.suffix == ".md":
            path.write_text(self.card().to_markdown(), encoding="utf-8")
        elif path.suffix == ".csv":
            from pyarrow import csv  # noqa: PLC0415 - only when asked for

            csv.write_csv(self.to_arrow(), path)
        else:
            import pyarrow.parquet as pq  # noqa: PLC0415 - only when asked for

            pq.write_table(self.to_arrow(), path)


def points_of(histogram: CrowdRelease) -> CrowdPoints:
    """The points of a histogram: drawn by public coins, which follow from what was released."""
    chance = public_coins(histogram.question)
    counts = histogram.counts.ravel()
    order = chance.permutation(int(counts.sum()))
    cells = np.repeat(np.arange(counts.size), counts)[order]
    places = np.unravel_index(cells, histogram.counts.shape)
    columns = {
        axis.name: _drawn(axis, at, chance) for axis, at in zip(histogram.axes, places, strict=True)
    }
    return CrowdPoints(histogram=histogram, columns=columns)


def _drawn(axis: Axis, places: NDArray[np.intp], chance: Coins) -> NDArray[Any]:
    """A value for each place: any of its bin, or its key. Rows without a value have none."""
    if axis.ends is None:
        return np.array(axis.column().to_pylist(), object)[places]
    lows = np.array([float(key) for key in axis.present])
    sides = _sides(axis)[: lows.size]
    known = places < lows.size
    at = np.where(known, places, 0)
    values = lows[at] + sides[at] * chance.random(places.size)
    if axis.whole and known.all():
        return np.floor(values).astype(np.int64)
    return np.where(known, np.floor(values) if axis.whole else values, np.nan)


def _sides(axis: Axis) -> NDArray[np.float64]:
    """How wide each cell of an axis is; keys have no width."""
    if axis.ends is None:
        return np.zeros(axis.size)
    lows = [float(key) for key in axis.present]
    wide = [float(end) - low for low, end in zip(lows, axis.ends, strict=True)]
    return np.array([*wide, *[0.0] * (axis.size - len(wide))])
