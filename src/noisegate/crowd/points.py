"""Points that stand for the people of a secret sample: redrawn inside their cells, outliers gone.

A crowd's histogram over cells of numbers says how many of the sample are in each cell that is
shown. Each of them becomes a point drawn evenly from its cell. That is made of the histogram alone,
so the promise is the same, and one set of points answers every smooth question. To add Laplace
noise to the points themselves, as [GHLP12] do, moves them further and promises less.
"""

from collections.abc import Callable
from math import isnan, log, sqrt
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.crowd.histogram import CrowdAsked, CrowdExpected, CrowdRelease, crowd_job
from noisegate.desk.answer import Answer
from noisegate.desk.card import Card
from noisegate.desk.desk import Desk
from noisegate.desk.display.drawing import Chart, altair
from noisegate.desk.display.plot import framed, nothing
from noisegate.desk.job import Job, derived
from noisegate.desk.release import Held, loading, read_held
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release as Measurements
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.chance import Coins, public_coins

FORM: Final = "noisegate-crowd-points/1"
_POINTS_MAX: Final = 5_000  # in a picture
_CHANNELS: Final = ("x", "y", "color")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PointsOrder(CrowdAsked["CrowdPoints"]):
    """The points of a crowd's histogram."""

    name: Literal["crowd-points"] = "crowd-points"

    def job(self, desk: Desk) -> Job[Measurements, "CrowdPoints", CrowdExpected]:
        """The histogram, and what follows from it."""
        if self.biased is not None:
            raise SpecError(
                "The points of a biased sample would stand for its own people, not for all.",
                fix='Use "crowd-histogram" with biased, or points of an even sample.',
                about="biased",
            )
        return derived(self.name, crowd_job(desk, self), points_of, CrowdPoints.endings)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CrowdPoints(Held):
    """The points of a crowd's histogram. The same histogram always has the same points."""

    kind: ClassVar[str] = "crowd-points"
    form: ClassVar[str] = FORM
    histogram: CrowdRelease
    columns: dict[str, NDArray[Any]]
    stated: Card | None = None

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

    @property
    def headline(self) -> str:
        """What they are."""
        return f"{self.size:,} points of {self.histogram.headline}"

    def answer(self, rows: int | None = None) -> Answer:
        """The points as an answer has them, without error bars: see `smooth_error`."""
        shown = slice(rows)
        table = pa.table({name: pa.array(values[shown]) for name, values in self.columns.items()})
        below = self.histogram.answer(0)
        drawn = "Each point is drawn evenly from its cell; how many points a cell has was counted."
        return replace(
            below,
            table=table,
            half_widths=lambda _: [None] * len(self.columns),
            caveats=(drawn, *below.caveats),
        )

    def plot(self, confidence: Numeric = 0.95, title: str | None = None) -> Chart:
        """The points along two columns of numbers, coloured by another column, an altair chart.

        Where there are not two, the histogram says more.
        """
        axes = sorted(self.histogram.axes, key=lambda axis: axis.ends is None)
        if sum(axis.ends is not None for axis in axes) < 2:
            return self.histogram.plot(confidence)
        if not self.size:
            words = "No cell is shown: there are no points to draw."
            return framed(nothing(words), self.answer(0), title=title)
        alt, shown = altair(), dict(zip(_CHANNELS, axes, strict=False))
        points = zip(*map(self._values, shown.values()), strict=True)
        rows = [dict(zip(shown, point, strict=True)) for point in points if None not in point]
        places, tips = {}, []
        for name, axis in shown.items():
            field = f"{name}:{'N' if axis.ends is None else 'Q'}"
            place = getattr(alt, name.capitalize())(field, title=axis.name)
            places[name] = place if axis.ends is None else place.scale(zero=False, nice=False)
            tips.append(alt.Tooltip(field, title=axis.name))
        chart = alt.Chart(alt.InlineData(values=rows)).mark_circle(size=14, opacity=0.5)
        chart = chart.encode(**places, tooltip=tips).properties(width=420, height=300)
        notes = [f"{len(rows):,} of {self.size:,} points."] if len(rows) < self.size else []
        return framed(chart, self.answer(0), title=title, notes=notes)

    def _values(self, axis: Axis) -> list[Any]:
        """The first points along an axis, as a chart has them; None where a number is missing."""
        held = self.columns[axis.name][:_POINTS_MAX].tolist()
        if axis.ends is None:
            return ["(none)" if each is None else str(each) for each in held]
        return [None if isnan(each) else each for each in held]

    def record(self) -> dict[str, Any]:
        """What the points were made of."""
        return self.histogram.record() | {"counts": self.histogram.counts.ravel().tolist()}

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "CrowdPoints":
        """The points that `save` wrote to a Parquet file. Needs no gate."""
        _, record = read_held(file, cls)
        histogram = CrowdRelease.of(record, np.array(record["counts"], np.int64))
        return replace(points_of(histogram), stated=histogram.stated)

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
