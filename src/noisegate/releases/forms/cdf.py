"""Distribution functions with an error band: `gate.release("cdf", …)`.

A distribution function is a released histogram, added up; its band follows from the law of the
noise alone, so it speaks about the rows there are and not about a population they might be drawn
from.
"""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa

from noisegate.desk.answer import Answer
from noisegate.desk.based import Based
from noisegate.desk.card import Card
from noisegate.desk.display.drawing import Chart, altair
from noisegate.desk.display.numbers import percent
from noisegate.desk.display.plot import framed, moment, number_axis
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.release import Held, loading
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.base import failure_of
from noisegate.releases.cells.workload import Floats, Workload
from noisegate.releases.forms.table import TableRelease


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CdfRelease(Held):
    """The share of rows at or below each point, from a released histogram of one ordered axis.

    A Parquet file of it is one of the histogram, with more columns.
    """

    kind: ClassVar[str] = TableRelease.kind
    form: ClassVar[str] = TableRelease.form

    histogram: TableRelease

    @property
    def stated(self) -> Card | None:  # type: ignore[override]
        """The card of the histogram."""
        return self.histogram.stated

    def __post_init__(self) -> None:
        axes = self.histogram.axes
        if len(axes) != 1 or not axes[0].is_ordered or None in axes[0].keys:
            raise SpecError(
                "A distribution function needs a single ordered axis.",
                fix="Group by BIN(x, width).",
            )

    @property
    def points(self) -> tuple[Any, ...]:
        """Where it steps: the upper edges of bins, or the keys themselves."""
        axis = self.histogram.axes[0]
        if axis.ends is None:
            return axis.present
        return tuple(end - 1 if axis.whole else end for end in axis.ends)

    @property
    def values(self) -> Floats:
        """The estimate: never falls, ends at 1; 1 everywhere if no row is left by the noise."""
        counts: Floats = np.cumsum(np.maximum(np.asarray(self.histogram.values, np.float64), 0))
        if counts[-1] <= 0:
            return np.ones_like(counts)
        shares: Floats = counts / counts[-1]
        return shares

    def band(self, confidence: Numeric = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper ends, such that the exact function lies between them everywhere.

        Claim: at every point at once, with the confidence, for the rows there are. Why: the rows up
            to a point, C, and those beyond, R, are sums of cells; each is within its margin but for
            a chance of 1 / 2n of the failure, and C / (C + R) rises in C and falls in R. A bound of
            a function that never falls holds further on (back) too. Rounding: margins are rounded
            up, and the ends outwards.
        """
        count = self.histogram.shape[0]
        failure = failure_of(confidence) / (2 * count)
        ends = np.arange(count)[:, None]
        below = Workload((count,), np.zeros_like(ends), ends, "below")
        beyond = Workload((count,), ends[1:], np.full_like(ends[1:], count - 1), "beyond")
        lows, highs = [], []
        for asked in (below, beyond):
            widths = self.histogram.widths(asked, 1 - failure) if asked.size else []
            if widths is None:
                raise Unsupported(
                    f"The error of method {self.histogram.method!r} depends on the rows.",
                    fix='Release with method="tree".',
                )
            middle = asked.answers(np.asarray(self.histogram.values, np.float64))
            half = np.asarray(widths, np.float64)
            lows.append(np.maximum(middle - half, 0))
            highs.append(np.maximum(middle + half, 0))
        lows[1], highs[1] = np.append(lows[1], 0), np.append(highs[1], 0)
        with np.errstate(invalid="ignore"):
            low = np.where(lows[0] > 0, lows[0] / (lows[0] + highs[1]), 0)
            high = np.where(highs[0] + lows[1] > 0, highs[0] / (highs[0] + lows[1]), 1)
        high = np.where(lows[0] + lows[1] > 0, high, 1)  # there may be no row at all
        low = np.maximum.accumulate(np.nextafter(low, -1))
        low[-1] = 1.0  # all rows are up to the last point
        high = np.minimum.accumulate(np.nextafter(high, 2)[::-1])[::-1]
        return np.clip(low, 0, 1), np.clip(high, 0, 1)

    def at(self, value: Any, confidence: Numeric = 0.95) -> tuple[float, float, float]:  # noqa: ANN401
        """The share of rows at or below a point: estimate, lower and upper end."""
        if value not in self.points:
            raise SpecError(
                f"The function has no step at {value!r}.", fix=f"For example: {self.points[0]!r}."
            )
        place = self.points.index(value)
        low, high = self.band(confidence)
        return float(self.values[place]), float(low[place]), float(high[place])

    def quantile(self, tau: Numeric, confidence: Numeric = 0.95) -> tuple[Any, Any, Any]:
        """The first point with a share of at least τ: estimate, lowest and highest it may be.

        Any number of levels may be asked: the band holds for all of them at once.
        """
        level = float(fraction(tau, name="tau"))
        if not 0 <= level <= 1:
            raise SpecError("tau is not a level.", fix="Use one from 0 to 1.")
        low, high = self.band(confidence)
        last = len(self.points) - 1
        found = (int(np.searchsorted(each, level)) for each in (self.values, high, low))
        return tuple(self.points[min(place, last)] for place in found)

    @property
    def cost(self) -> Any:  # noqa: ANN401 - ApproxDP
        """What was charged now."""
        return self.histogram.cost

    @property
    def cut(self) -> bool | None:
        """Whether a contribution bound may leave out some of a unit's rows."""
        return self.histogram.cut

    @property
    def guarantee(self) -> Any:  # noqa: ANN401 - Guarantee
        """What is promised."""
        return self.histogram.guarantee

    def to_arrow(self, confidence: Numeric | None = 0.95) -> pa.Table:
        """The points, the function, and the ends of its band."""
        low, high = self.band(0.95 if confidence is None else confidence)
        axis = self.histogram.axes[0]
        return pa.table({axis.name: self._keys(), "share": self.values, "low": low, "high": high})

    def _keys(self) -> pa.Array:
        axis = self.histogram.axes[0]
        return axis.column() if axis.ends is None else pa.array(list(map(float, self.points)))

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values."""
        table = self.to_arrow(confidence)
        columns = {name: table[name].to_pylist() for name in table.column_names}
        plain = (int, float, str)
        rows = [
            [each if isinstance(each, plain) else str(each) for each in row]
            for row in zip(*columns.values(), strict=True)
        ]
        return {
            "columns": list(columns),
            "rows": rows,
            "confidence": float(fraction(confidence)),
            "guarantee": self.promise,
        }

    def plot(self, confidence: Numeric = 0.95, title: str | None = None) -> Chart:
        """Steps with their band, an altair chart."""
        alt = altair()
        axis, (low, high) = self.histogram.axes[0], self.band(confidence)
        dated = not isinstance(self.points[0], int | float | Fraction)
        xs = [moment(each) if dated else float(each) for each in self.points]
        rows = [
            {"x": x, "share": share, "low": a, "high": b}
            for x, share, a, b in zip(
                xs, self.values.tolist(), low.tolist(), high.tolist(), strict=True
            )
        ]
        x = alt.X("x:T", title=axis.name)
        if not dated:
            x = alt.X("x:Q", title=axis.name, axis=number_axis(alt, xs))
        tips = [alt.Tooltip(x.shorthand, title=axis.name)]
        tips += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("share", "low", "high")]
        base = alt.Chart(alt.InlineData(values=rows)).encode(x=x, tooltip=tips)
        scale = alt.Scale(domain=[0, 1])
        area = base.mark_area(opacity=0.3, interpolate="step-after").encode(
            y=alt.Y("low:Q", title="share of rows", scale=scale), y2="high:Q"
        )
        line = base.mark_line(interpolate="step-after").encode(y=alt.Y("share:Q", scale=scale))
        whose = "function of the rows that a contribution bound keeps" if self.cut else "function"
        words = f"All of the exact {whose} lies in the band at {percent(confidence)} confidence."
        steps = (area + line).properties(width=480)
        what = f"distribution function of {axis.name}"
        return framed(steps, self.answer(0), title=title, notes=[words], what=what)

    def answer(self, rows: int | None = None) -> Answer:
        """The shares as an answer has them; their margins hold everywhere at once."""
        kept = self.histogram.answer(0)
        axis = self.histogram.axes[0].name

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            low, high = self.band(confidence)
            return None, tuple(np.maximum(self.values - low, high - self.values)[:rows].tolist())

        keys = self._keys()
        return replace(
            kept,
            table=pa.table({axis: keys, "share": self.values}).slice(0, rows),
            half_widths=half_widths,
            lower=tuple,  # a share may be smaller or larger
            caveats=(*self.histogram.words, *self.rests.words),
        )

    def card(self, confidence: Numeric = 0.95) -> Card:
        """The release card of the histogram: all that was measured."""
        return self.histogram.card(confidence)

    def to_csv(self, file: str | Path | None = None, confidence: Numeric = 0.95) -> str:
        """The points, the function and its band, also written to a file if one is named."""
        return replace(
            self.answer(0), table=self.to_arrow(confidence), half_widths=lambda _: (None,) * 4
        ).to_csv(file, confidence)

    def record(self) -> dict[str, Any]:
        """That of the histogram."""
        return self.histogram.record()

    @property
    def rests(self) -> Based:
        """What that rests on."""
        return self.histogram.based

    def facts(self) -> dict[str, str]:
        """Those of the histogram."""
        return self.histogram.facts()

    def parquet(self, confidence: Numeric) -> pa.Table:
        """The histogram, with the function and its band beside it."""
        table, shares = self.histogram.parquet(confidence), self.to_arrow(confidence)
        for name in ("share", "low", "high"):
            table = table.append_column(name, shares[name])
        return table

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "CdfRelease":
        """The function that `save` wrote to a Parquet file. Needs no gate."""
        return cls(histogram=TableRelease.load(file))

    @property
    def headline(self) -> str:
        """How many steps there are, and how they were measured."""
        return f"{len(self.points):,} steps by {self.histogram.method!r}"
