"""A released table as a picture: bars or a line over one axis, a heat map over two."""

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import cos, radians
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.accounting.search import digits_up
from noisegate.desk.answer import Answer
from noisegate.desk.display.drawing import Chart, altair
from noisegate.desk.display.numbers import percent
from noisegate.desk.display.plot import drawn, framed, inert, label_angle, number_axis
from noisegate.errors import SpecError
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.releases.cells.axes import Axis, require_names
from noisegate.releases.cells.workload import Workload, marginals, prefixes

_BARS_MAX: Final = 40
_POINTS_MAX: Final = 2_000  # along a line; more are added up
_PIXELS: Final = 420  # about so many, along each axis
_SQUARES_MAX: Final = 128  # along each axis; more are added up
_SQUARE: Final = 64  # pixels of one at most
_WRITTEN: Final = 256  # squares with numbers in them, if these find room
_LETTER: Final = 8  # pixels
_DARK: Final = 0.7  # of the ends of two colours
_DEGREES: Final = (("lon", "lng"), ("lat",))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawable:
    """What a picture needs of a table; ``frame`` says price and promise.

    ``running``: running totals along its one axis are what it was released for.
    """

    axes: tuple[Axis, ...]
    values: NDArray[Any]
    value: str
    whole: bool
    widths: Callable[[Workload, Number], list[Any] | None]
    frame: Answer
    running: bool = False


def picture(
    release: Drawable,
    confidence: Number = 0.95,
    *,
    x: str | None = None,
    y: str | None = None,
    title: str | None = None,
) -> Chart:
    """An altair chart of one or two axes; ``.save("x.png")``, ``.svg`` and ``.html`` write it.

    Of more axes, each has a part of the picture by itself, unless one or two are chosen.
    """
    names = [axis.name for axis in release.axes]
    what = f"{release.value} by {', '.join(names)}"
    if not names:
        raise SpecError("A single number cannot be plotted.", fix="Print it.")
    require_names(release.axes, (x, y))
    if x is None and y is None and len(names) == 2:
        x, y = reversed(names) if _is_map(release.axes[1], release.axes[0]) else names
    if x is not None and y is not None and x != y:
        chart, notes = _heat(release, names.index(x), names.index(y), confidence)
        return framed(chart, release.frame, title=title, notes=notes, what=what)
    chosen = names if x is None and y is None else [x or y or names[0]]
    parts = [_along(release, names.index(name), confidence, running=False) for name in chosen]
    notes = ["All other columns are summed over."] if len(names) > 1 else []
    if release.running:
        parts.insert(0, _along(release, 0, confidence, running=True))
    columns = 1 if release.running else 2
    chart = parts[0] if len(parts) == 1 else altair().concat(*parts, columns=columns)
    return framed(chart, release.frame, title=title, notes=notes, what=what)


def in_degrees(x: str, y: str) -> bool:
    """Whether two axes are longitude and latitude, by their names."""
    return all(name.lower().startswith(at) for name, at in zip((x, y), _DEGREES, strict=True))


def _is_map(x: Axis, y: Axis) -> bool:
    return x.ends is not None and y.ends is not None and in_degrees(x.name, y.name)


def height_of(xs: tuple[float, float], ys: tuple[float, float]) -> float:
    """How high a map between degrees is for its width, where it is true in its middle."""
    middle = min(abs(sum(ys)) / 2, 80)
    return (ys[1] - ys[0]) / ((xs[1] - xs[0]) * cos(radians(middle)))


def _along(release: Drawable, place: int, confidence: Number, *, running: bool) -> Any:  # noqa: ANN401
    """As an answer with one key is drawn, with error bars; or its running totals."""
    axis, value = release.axes[place], release.value
    asked = prefixes(axis.size) if running else marginals(release.values.shape, [(place,)])
    value = f"running total of {value}" if running else value
    step = -(-axis.size // _POINTS_MAX) if axis.is_ordered else 1
    places = np.arange(axis.size)
    if step > 1:
        starts = np.arange(0, len(axis.present), step)
        ends = np.minimum(starts + step, len(axis.present)) - 1
        places = ends if running else starts
        asked = Workload(asked.shape, asked.lows[places], asked.highs[ends], "parts of an axis")
        value = value if running else f"{value} in {step} cells"
    numbers = asked.answers(release.values)
    if release.whole:
        numbers = np.rint(numbers).astype(np.int64)
    as_text = (
        step == 1 and axis.size <= _BARS_MAX and (axis.ends is not None or not axis.is_ordered)
    )
    keys = (pa.array(axis.labels) if as_text else axis.column()).take(pa.array(places))
    widths = release.widths(asked, confidence)
    unsigned = (value,) if release.frame.unsigned() else ()
    answer = replace(
        release.frame,
        table=pa.table({axis.name: keys, value: numbers}),
        half_widths=lambda _: (None, None if widths is None else tuple(widths)),
        unsigned=lambda: unsigned,
        amounts=lambda: unsigned,
    )
    return drawn(answer, confidence, x=axis.name, y=value)


def _heat(release: Drawable, x: int, y: int, confidence: Number) -> tuple[Any, list[str]]:
    """Squares coloured by their numbers, and what is to be said of them."""
    alt = altair()
    across, down = _Side.of(release.axes[x], "x"), _Side.of(release.axes[y], "y")
    asked = _squares(release.values.shape, {y: down, x: across})
    numbers = asked.answers(release.values)
    numbers = np.rint(numbers).astype(np.int64) if release.whole else numbers
    widths = release.widths(asked, confidence) or [None] * asked.size
    points = [
        {**top, **left, "n": number, "off": off}
        for (top, left), number, off in zip(
            product(down.places(), across.places()),
            numbers.tolist(),
            widths,
            strict=True,
        )
    ]
    data = alt.InlineData(
        values=json.dumps(inert(points)), format={"type": "json"}
    )  # text: it is quick
    base = alt.Chart(data)
    low, high = float(numbers.min()), float(numbers.max())
    scale = alt.Scale(scheme="viridis")
    if low < 0:  # white is 0
        scale = alt.Scale(scheme="blueorange", domainMid=0)
    color = alt.Color("n:Q", title=release.value, scale=scale)
    tips = [alt.Tooltip("n:Q", title=release.value), alt.Tooltip("off:Q", title="±")]
    sides = across.encoding(alt) | down.encoding(alt)
    chart = base.mark_rect().encode(**sides, color=color, tooltip=tips)
    width, height = _pixels(across, down)
    if asked.size <= _WRITTEN and _LETTER * len(f"{high:,.0f}") <= width / across.count:
        dark = f"datum.n < {(low + high) / 2}"
        if low < 0:
            dark = f"datum.n < {_DARK * low} || datum.n > {_DARK * high}"
        ink = alt.condition(dark, alt.value("white"), alt.value("black"))
        places = ",d" if release.whole else ",.0f" if max(high, -low) >= 100 else ".3~g"
        text = alt.Text("n:Q", format=places)
        sides = across.middle(alt) | down.middle(alt)
        chart = alt.layer(chart, base.mark_text().encode(**sides, text=text, color=ink))
    steps = (across.step, down.step)
    notes = [f"Each square is {steps[0]} × {steps[1]} cells."] if max(steps) > 1 else []
    left_out = [side.axis.name for side in (across, down) if side.size < side.axis.size]
    if left_out:
        notes.append(f"Rows without {' or '.join(left_out)} are not drawn.")
    chart = chart.properties(width=width, height=height)
    return chart, [*notes, *_reach(widths, confidence)]


def _squares(shape: tuple[int, ...], sides: Mapping[int, "_Side"]) -> Workload:
    """The cells of each square, the second side varying fastest; others are summed over."""
    places = np.array(list(product(*(range(side.count) for side in sides.values()))), np.int64)
    lows = np.zeros((len(places), len(shape)), np.int64)
    highs = np.tile(np.array(shape, np.int64) - 1, (len(places), 1))
    for (axis, side), at in zip(sides.items(), places.T, strict=True):
        lows[:, axis] = at * side.step
        highs[:, axis] = np.minimum(lows[:, axis] + side.step, side.size) - 1
    return Workload(shape, lows, highs, "squares")


def _pixels(across: "_Side", down: "_Side") -> tuple[int, int]:
    """Width and height: a whole number for each square, so that none is cut."""
    width, height = float(_PIXELS), float(_PIXELS)
    if _is_map(across.axis, down.axis):
        ratio = height_of(across.ends, down.ends)
        width, height = min(width, width / ratio), min(height, height * ratio)
    return across.pixels(width), down.pixels(height)


def _reach(widths: Sequence[float | None], confidence: Number) -> list[str]:
    """How far numbers may be off, in words."""
    known = [each for each in widths if each is not None]
    if not known:
        return ["No ± is known."]
    ends = (digits_up(Fraction(each), 3) for each in (min(known), max(known)))
    said = " to ".join(dict.fromkeys(f"{float(each):,.9g}" for each in ends))
    return [f"Each number is ± {said} at {percent(confidence)} confidence."]


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
    def count(self) -> int:
        """How many squares there are."""
        return len(self.starts)

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last edge."""
        edges = self.axis.edges
        return (0.0, 1.0) if edges is None else (float(edges[0]), float(edges[-1]))

    def pixels(self, most: float) -> int:
        """About so many for all squares."""
        return self.count * min(_SQUARE, max(1, round(most / self.count)))

    def places(self) -> list[dict[str, Any]]:
        """Where the squares are."""
        starts, edges = self.starts, self.axis.edges
        if edges is None:
            labels = self.axis.labels
            return [{self.name: labels[start]} for start in starts]
        ends = [*starts[1:], self.size]
        corners = [
            (float(edges[start]), float(edges[end]))
            for start, end in zip(starts, ends, strict=True)
        ]
        return [
            {self.name: low, f"{self.name}2": high, f"{self.name}m": (low + high) / 2}
            for low, high in corners
        ]

    def encoding(self, alt: Any) -> dict[str, Any]:  # noqa: ANN401
        """Its part of the chart."""
        if self.axis.ends is None:
            return {self.name: self._channel(alt, f"{self.name}:O")}
        second = getattr(alt, f"{self.name.upper()}2")(f"{self.name}2:Q")
        return {self.name: self._channel(alt, f"{self.name}:Q"), f"{self.name}2": second}

    def middle(self, alt: Any) -> dict[str, Any]:  # noqa: ANN401
        """The same for what stands in the middle of squares."""
        field = f"{self.name}:O" if self.axis.ends is None else f"{self.name}m:Q"
        return {self.name: self._channel(alt, field)}

    def _channel(self, alt: Any, field: str) -> Any:  # noqa: ANN401
        channel, title = getattr(alt, self.name.upper()), self.axis.name
        if self.axis.ends is not None:
            axis = number_axis(alt, self.ends)
            return channel(field, title=title, axis=axis, scale=alt.Scale(zero=False, nice=False))
        labels, room = self.axis.labels, self.pixels(_PIXELS) / self.count
        angle = label_angle(labels, room) if self.name == "x" else 0
        axis = alt.Axis(labelAngle=angle, labelLimit=160)
        return channel(field, title=title, sort=None, axis=axis)
