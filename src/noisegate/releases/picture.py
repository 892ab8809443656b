"""A released table as a picture: bars or a line over one axis, a heat map over two."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.query.answer import Answer
from noisegate.query.plot import altair, framed, plot
from noisegate.releases.axes import Axis
from noisegate.releases.workload import Workload, marginals

_BARS_MAX: Final = 40
_PIXELS: Final = 420  # about so many, along each axis
_SQUARES_MAX: Final = 128  # along each axis; more are added up


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawable:
    """What a picture needs of a table; ``frame`` says price and promise."""

    axes: tuple[Axis, ...]
    values: NDArray[Any]
    value: str
    whole: bool
    widths: Callable[[Workload, Number], list[Any] | None]
    frame: Answer


def picture(
    release: Drawable,
    confidence: Number = 0.95,
    *,
    x: str | None = None,
    y: str | None = None,
    title: str | None = None,
) -> Any:  # noqa: ANN401 - altair may be missing
    """An altair chart of one or two axes; ``.save("x.png")``, ``.svg`` and ``.html`` write it."""
    names = [axis.name for axis in release.axes]
    for name in (x, y):
        if name is not None and name not in names:
            raise SpecError(f"There is no axis {name!r}.", fix=f"Use {', '.join(names)}.")
    if x is None and y is None:
        if len(names) > 2:
            raise SpecError(
                f"There are {len(names)} axes.", fix=f"Choose one or two: plot(x={names[0]!r})."
            )
        x, y = (*names, None)[:2]
    if x is None or y is None or x == y:
        return _bars(release, names.index(x or y or names[0]), confidence, title)
    return _heat(release, names.index(x), names.index(y), title)


def _bars(release: Drawable, place: int, confidence: Number, title: str | None) -> Any:  # noqa: ANN401
    """As an answer with one key is drawn, with error bars."""
    import pyarrow as pa  # noqa: PLC0415 - only when asked for

    axis, asked = release.axes[place], marginals(release.values.shape, [(place,)])
    numbers = asked.answers(release.values)
    if release.whole:
        numbers = np.rint(numbers).astype(np.int64)
    as_text = axis.size <= _BARS_MAX and (axis.ends is not None or not axis.is_ordered)
    keys = pa.array(axis.labels) if as_text else axis.column()
    widths = release.widths(asked, confidence)
    answer = replace(
        release.frame,
        table=pa.table({axis.name: keys, release.value: numbers}),
        half_widths=lambda _: (None, None if widths is None else tuple(widths)),
    )
    return plot(answer, confidence, x=axis.name, y=release.value, title=title)


def _heat(release: Drawable, x: int, y: int, title: str | None) -> Any:  # noqa: ANN401
    alt = altair()
    gone = tuple(i for i in range(len(release.axes)) if i not in (x, y))
    table = release.values.sum(axis=gone)
    table = table if x > y else table.T
    across, down = _Side.of(release.axes[x], "x"), _Side.of(release.axes[y], "y")
    table = table[: down.size, : across.size]
    for place, side in enumerate((down, across)):
        table = np.add.reduceat(table, side.starts, axis=place)
    tops, lefts = down.places(), across.places()
    points = [
        {**top, **left, "n": value}
        for top, line in zip(tops, table.tolist(), strict=True)
        for left, value in zip(lefts, line, strict=True)
    ]
    color = alt.Color("n:Q", title=release.value, scale=alt.Scale(scheme="viridis"))
    data = alt.InlineData(values=json.dumps(points), format={"type": "json"})  # text: it is quick
    chart = alt.Chart(data).mark_rect().encode(
        **across.encoding(alt), **down.encoding(alt), color=color
    )  # fmt: skip
    steps = [side.step for side in (across, down)]
    notes = [f"Each square is {steps[0]} × {steps[1]} cells."] if max(steps) > 1 else []
    return framed(
        chart.properties(width=across.pixels, height=down.pixels),
        release.frame,
        title=title,
        notes=notes,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One side of a heat map: bins by their edges, other keys by their names."""

    axis: Axis
    name: str
    size: int
    step: int

    @classmethod
    def of(cls, axis: Axis, name: str) -> "_Side":
        """Rows without a value have no place between edges."""
        size = axis.size if axis.ends is None else len(axis.present)
        return cls(axis=axis, name=name, size=size, step=-(-size // _SQUARES_MAX))

    @property
    def starts(self) -> list[int]:
        """The first key of each square."""
        return list(range(0, self.size, self.step))

    @property
    def pixels(self) -> int:
        """A whole number for each square, so that none is cut."""
        return len(self.starts) * max(1, round(_PIXELS / len(self.starts)))

    def places(self) -> list[dict[str, Any]]:
        """Where the squares are."""
        starts, edges = self.starts, self.axis.edges
        if edges is None:
            labels = self.axis.labels
            return [{self.name: labels[start]} for start in starts]
        ends = [*starts[1:], self.size]
        return [
            {self.name: float(edges[start]), f"{self.name}2": float(edges[end])}
            for start, end in zip(starts, ends, strict=True)
        ]

    def encoding(self, alt: Any) -> dict[str, Any]:  # noqa: ANN401
        """Its part of the chart."""
        channel, title = getattr(alt, self.name.upper()), self.axis.name
        if self.axis.ends is None:
            return {self.name: channel(f"{self.name}:O", title=title, sort=None)}
        second = getattr(alt, f"{self.name.upper()}2")
        scale = alt.Scale(zero=False, nice=False)
        first = channel(f"{self.name}:Q", title=title, scale=scale)
        return {self.name: first, f"{self.name}2": second(f"{self.name}2:Q")}
