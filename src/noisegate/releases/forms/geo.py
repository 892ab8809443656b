"""A released table as a map: boxes with their numbers and ±, as GeoJSON, GeoParquet or a picture.

Where the method cut the table into boxes, these are shown, else single cells. Both axes must be
bins of numbers; others are summed over.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.desk.answer import also_in
from noisegate.desk.display.drawing import Chart, altair
from noisegate.desk.display.plot import framed
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number
from noisegate.files import written
from noisegate.frozen import dataclass
from noisegate.inert import json_text
from noisegate.releases.cells.axes import require_names
from noisegate.releases.cells.spatial import even_sums
from noisegate.releases.cells.workload import Floats, Ints, Workload, marginals
from noisegate.releases.forms.numbers import TableNumbers
from noisegate.releases.forms.picture import height_of, in_degrees

_LONGITUDES: Final = ("lon", "lng", "x")
_PIXELS: Final = 480
_BOXES_MAX: Final = 20_000  # in a picture


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Map:
    """Boxes that share no area: ``rectangles`` are rows of x, y of the lower and the upper corner.

    ``margins`` are not numbers where they depend on the rows. ``degrees``: x and y are longitude
    and latitude. ``lower``: the numbers are lower bounds.
    """

    x: str
    y: str
    value: str
    rectangles: Floats
    numbers: NDArray[Any]
    margins: Floats
    confidence: str
    degrees: bool
    lower: bool = False

    def to_geojson(self, file: str | Path | None = None) -> str:
        """A FeatureCollection (RFC 7946), also written to a file if one is named."""
        features = [
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [ring]},
                "properties": {
                    self.value: number,
                    "margin": None if np.isnan(margin) else margin,
                    "confidence": self.confidence,
                    **({"lower_bound": True} if self.lower else {}),
                },
            }
            for ring, number, margin in zip(
                self._rings().tolist(), self.numbers.tolist(), self.margins.tolist(), strict=True
            )
        ]
        found: dict[str, Any] = {"type": "FeatureCollection", "features": features}
        if features:
            found["bbox"] = self.bounds()
        return also_in(json_text(found), file)

    def to_geoarrow(self) -> pa.Table:
        """An Arrow table with polygons as well-known binary and the metadata of GeoParquet 1.1."""
        rows = np.zeros(self.numbers.size, _POLYGON)
        rows["order"], rows["kind"], rows["rings"], rows["points"] = 1, 3, 1, 5
        rows["ring"] = self._rings().reshape(-1, 10)
        width = pa.binary(_POLYGON.itemsize)
        buffers = [None, pa.py_buffer(rows.tobytes())]
        shapes = pa.Array.from_buffers(width, rows.size, buffers).cast(pa.binary())
        corners = [pa.array(column) for column in self.rectangles.T]
        table = pa.table({
            "geometry": shapes,
            self.value: pa.array(self.numbers),
            "margin": pa.array(self.margins, from_pandas=True),
            "bbox": pa.StructArray.from_arrays(corners, ["xmin", "ymin", "xmax", "ymax"]),
        })  # fmt: skip
        return table.replace_schema_metadata({"geo": json.dumps(self._metadata())})

    def to_geoparquet(self, file: str | Path) -> None:
        """`to_geoarrow` in a file."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - only when asked for

        with written(file) as path:
            pq.write_table(self.to_geoarrow(), path)

    def _metadata(self) -> dict[str, Any]:
        column: dict[str, Any] = {
            "encoding": "WKB",
            "geometry_types": ["Polygon"],
            "orientation": "counterclockwise",
            "edges": "planar",
            "covering": {
                "bbox": {side: ["bbox", side] for side in ("xmin", "ymin", "xmax", "ymax")}
            },
        }
        if self.numbers.size:
            column["bbox"] = self.bounds()
        if not self.degrees:  # without the field, x and y are longitude and latitude
            column["crs"] = None
        return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}

    def _rings(self) -> Floats:
        """Five corners of each box, against the clock, the first again at the end."""
        left, low, right, high = self.rectangles.T
        corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
        return np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)

    def bounds(self) -> list[float]:
        """x, y of the lower and the upper corner of all boxes."""
        lows, highs = self.rectangles[:, :2].min(axis=0), self.rectangles[:, 2:].max(axis=0)
        return [*lows.tolist(), *highs.tolist()]


_POLYGON: Final = np.dtype([
    ("order", "u1"), ("kind", "<u4"), ("rings", "<u4"), ("points", "<u4"), ("ring", "<f8", 10),
])  # fmt: skip


def map_of(
    release: TableNumbers,
    confidence: Number = 0.95,
    *,
    x: str | None = None,
    y: str | None = None,
) -> Map:
    """The boxes of a release over two of its axes, by default its last two."""
    across, down = _chosen(release, x, y)
    edges = {place: _within(release, place) for place in (across, down)}
    lows, highs = _boxes(release, across, down)
    whole = np.ones(lows.shape[0], np.bool_)
    held = np.ones(lows.shape[0], np.bool_)
    for place, edge in edges.items():
        last = edge.size - 2  # rows without a value have no place on a map
        whole &= highs[:, place] <= last
        highs[:, place] = np.minimum(highs[:, place], last)
        if last and edge[last] == edge[last + 1]:  # it holds the upper bound alone: joined
            held &= lows[:, place] < last
            highs[highs[:, place] == last - 1, place] = last
    held &= np.all(lows <= highs, axis=1)
    lows, highs, whole = lows[held], highs[held], whole[held]
    asked = Workload(release.shape, lows, highs, "a map")
    numbers = asked.answers(release.values)
    corners = [edges[p][ends[:, p] + step] for ends, step in ((lows, 0), (highs, 1))
               for p in (across, down)]  # fmt: skip
    return Map(
        x=release.axes[across].name,
        y=release.axes[down].name,
        value=release.value,
        rectangles=np.stack(corners, axis=1),
        numbers=np.rint(numbers).astype(np.int64) if release.making.whole else numbers,
        margins=_margins(release, asked, whole, confidence),
        confidence=str(confidence),
        degrees=in_degrees(release.axes[across].name, release.axes[down].name),
        lower=bool(release.cut) and not release.making.signed,
    )


def rectangle(release: TableNumbers, ranges: Mapping[str, tuple[float, float]]) -> float:
    """The sum between two numbers along each named axis of bins, also inside bins.

    Inside a bin rows are taken to lie evenly; how true that is, only the rows could tell. Free.
    """
    require_names(release.axes, ranges)
    ends = []
    for place, axis in enumerate(release.axes):
        if axis.name not in ranges:
            ends.append((0.0, float(axis.size)))
            continue
        edges = _edges(release, place)
        try:
            low, high = map(float, ranges[axis.name])
        except (TypeError, ValueError):
            raise SpecError(
                f"A range of {axis.name!r} is not a pair of numbers.",
                fix="For example: (2.5, 7).",
                about="pair",
            ) from None
        low_place, high_place = np.interp([low, high], edges, np.arange(edges.size))
        ends.append((float(low_place), float(high_place)))
    lows, highs = (np.array([[end[side] for end in ends]]) for side in (0, 1))
    return float(even_sums(np.asarray(release.values, np.float64), lows, highs)[0])


def map_picture(
    release: TableNumbers,
    confidence: Number = 0.95,
    *,
    x: str | None = None,
    y: str | None = None,
    title: str | None = None,
) -> Chart:
    """The boxes, coloured by their number for each cell."""
    alt = altair()
    found = map_of(release, confidence, x=x, y=y)
    if found.numbers.size > _BOXES_MAX:
        raise Unsupported("There are too many boxes to draw.", fix="Use plot() instead.")
    areas = np.prod(found.rectangles[:, 2:] - found.rectangles[:, :2], axis=1)
    density = found.numbers / (areas / areas.min(initial=np.inf))
    names = ("left", "low", "right", "high", "density", "n", "margin")
    columns = (*found.rectangles.T, density, found.numbers, found.margins)
    points = [
        {name: None if value != value else value for name, value in zip(names, row, strict=True)}  # noqa: PLR0124 - not a number
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    scale, flat = alt.Scale(zero=False, nice=False), alt.Scale(scheme="viridis", type="sqrt")
    chart = alt.Chart(alt.InlineData(values=points)).mark_rect().encode(
        x=alt.X("left:Q", title=found.x, scale=scale), x2="right:Q",
        y=alt.Y("low:Q", title=found.y, scale=scale), y2="high:Q",
        color=alt.Color("density:Q", title=f"{found.value} per smallest box", scale=flat),
        tooltip=[alt.Tooltip("n:Q", title=found.value), alt.Tooltip("margin:Q", title="±")],
    )  # fmt: skip
    height = _PIXELS
    if found.degrees:
        left, low, right, high = found.bounds()
        height = round(_PIXELS * height_of((left, right), (low, high)))
    chart = chart.properties(width=_PIXELS, height=height)
    return framed(chart, release.answer(0), title=title)


def _chosen(release: TableNumbers, x: str | None, y: str | None) -> tuple[int, int]:
    names = [axis.name for axis in release.axes]
    require_names(release.axes, (x, y))
    if len(names) < 2 or (x is not None and x == y):
        raise SpecError(
            "A map needs two axes.",
            fix="Release a table grouped by two numeric columns.",
            about="axes",
        )
    places = [names.index(name) for name in (x, y) if name is not None]
    left = [place for place in range(len(names)) if place not in places][-2:]
    if x is None and y is None:
        first, second = left
        is_across = names[first].lower().startswith(_LONGITUDES)
        return (first, second) if is_across else (second, first)
    if x is None:
        return left[-1], places[0]
    return (places[0], left[-1]) if y is None else (places[0], places[1])


def _edges(release: TableNumbers, place: int) -> Floats:
    edges = release.axes[place].edges
    if edges is None:
        raise SpecError(
            f"Axis {release.axes[place].name!r} has no bin edges.",
            fix="Group by BIN(column, width).",
        )
    return edges


def _within(release: TableNumbers, place: int) -> Floats:
    """The edges, none beyond the declared bounds: no row is there, and no degree either."""
    axis, edges = release.axes[place], _edges(release, place)
    low = -np.inf if axis.low is None else float(axis.low)
    high = np.inf if axis.high is None else float(axis.high) + axis.whole
    return np.clip(edges, low, high)


def _boxes(release: TableNumbers, across: int, down: int) -> tuple[Ints, Ints]:
    """The boxes that the method ended with, or all cells over the two axes."""
    tree = release.making.estimate(release.shape).tree
    if tree is not None and len(release.axes) == 2:
        return tree.boxes.lows[tree.leaves].copy(), tree.boxes.highs[tree.leaves].copy()
    cells = marginals(release.shape, [(across, down)])
    return cells.lows.copy(), cells.highs.copy()


def _margins(
    release: TableNumbers, asked: Workload, whole: NDArray[np.bool_], confidence: Number
) -> Floats:
    found, known = np.full(asked.size, np.nan), np.flatnonzero(whole)
    part = Workload(asked.shape, asked.lows[known], asked.highs[known], asked.words)
    widths = release.widths(part, confidence)
    if widths is not None:
        found[known] = np.array(widths, np.float64)
    return found
