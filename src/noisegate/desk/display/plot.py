"""An answer as a chart: bars, or lines over dates and numbers, always with error bars."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from io import StringIO
from pathlib import Path
from typing import Any, Final, final

import pyarrow as pa

from noisegate.arrow import holds_numbers
from noisegate.desk.display.drawing import Chart, altair, offline
from noisegate.desk.display.numbers import CHOSEN, bare, ends, percent
from noisegate.desk.noisy import HalfWidths, NoisyTable
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number
from noisegate.files import written
from noisegate.frozen import dataclass
from noisegate.inert import label as inert_label
from noisegate.privacy.loss import ApproxDP

_POINTS_MAX: Final = 5_000
_BARS_MAX: Final = 60  # more are a band along a line; of other keys, the largest are drawn
_LETTER: Final = 7  # pixels
_FIVE_DIGITS: Final = 10_000
_LOWER: Final = "Lower bounds (≥): a contribution bound leaves some out, by an unknown amount."
_PARTS_MAX: Final = 6  # of a picture
_ALIKE: Final = 20  # times as large: such numbers stand side by side
_NOT: Final = r"(?:(?!\b(?:SELECT|WHERE|HAVING|LIMIT|QUALIFY)\b).)*"
_WHOLE: Final = re.compile(rf'SELECT {_NOT} FROM [\w".]+ GROUP BY {_NOT}', re.IGNORECASE)  # noqa: S608
_ORDERED: Final = (int, float, date, datetime, type(None))
_NONE: Final = "(none)"  # as axes of releases have it
_OFFLINE: Final = (  # what a page may do: run its own scripts, and ask nobody for anything
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:\">"
)
_ROOM: Final = {"left": 12, "top": 5, "right": 72, "bottom": 5}  # for wider letters than measured
_BLUE, _INK = "#5b8cc0", "#1a1a1a"
_PALETTE: Final = [
    _BLUE,
    "#e08214",
    "#2a9d6f",
    "#b2497a",
    "#7b68b0",
    "#8c6d31",
    "#56a3c9",
    "#777777",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    """Which columns stand where. ``x`` None: the numbers of ``y`` side by side."""

    x: str | None
    y: tuple[str, ...]
    color: tuple[str, ...]


def plot(
    answer: NoisyTable,
    confidence: Number = 0.95,
    *,
    x: str | None = None,
    y: str | None = None,
    color: str | None = None,
    title: str | None = None,
) -> Chart:
    """An altair chart; ``.save("x.png")``, ``.svg`` and ``.html`` write it to a file.

    By default the first column without error bars is ``x``, the others are the ``color``, and each
    with error bars is ``y`` of a part of the picture; without any, the last that holds numbers.
    Dates and numbers on ``x`` give lines, anything else bars.
    """
    notes = [CHOSEN] if CHOSEN in answer.caveats else []
    chart = drawn(answer, confidence, x=x, y=y, color=color)
    noisy = answer.margins(confidence)
    numbers = ", ".join(name for name, widths in noisy.items() if widths)
    keys = ", ".join(name for name, widths in noisy.items() if widths is None)
    what = f"{numbers} by {keys}" if numbers and keys else ""
    return framed(chart, answer, title=title, notes=notes, what=what)


def drawn(
    answer: NoisyTable,
    confidence: Number,
    *,
    x: str | None = None,
    y: str | None = None,
    color: str | None = None,
) -> Chart:
    """The same without a frame. What was paid for is never refused: of no row, it says so."""
    if not answer.table.num_rows:
        return nothing("There is no row to draw.")
    pictures = _pictures(answer, answer.margins(confidence), x, y, color)
    parts = [_part(answer, confidence, each) for each in pictures]
    return parts[0] if len(parts) == 1 else altair().concat(*parts, columns=2)


def _part(answer: NoisyTable, confidence: Number, picture: _Picture) -> Chart:
    alt = altair()
    widths = answer.margins(confidence)
    if not (points := _points(answer, widths, picture)):
        return nothing(f"There is no number to draw: {', '.join(picture.y)}.")
    values = {each["x"] for each in points if each["x"] is not None}
    width = max(180, min(900, 44 * len({(each["x"], each["color"]) for each in points})))
    place, lines = _axis(alt, picture.x, values, width)
    nowhere = [each for each in points if each["x"] is None]
    if nowhere and lines:
        points = [each for each in points if each["x"] is not None]
        place = place.title(f"{picture.x}; {_NONE} is not drawn")
    for each in nowhere:
        each["x"] = _NONE
    if len(values) > _BARS_MAX and not lines:
        points = _largest(points)
        place = place.title(f"{picture.x}; the {_BARS_MAX} largest of {len(values):,}")
    if len(points) > _POINTS_MAX:
        place = place.title(f"{picture.x}; the first {_POINTS_MAX:,} of {len(points):,} numbers")
        points = points[:_POINTS_MAX]
    base = alt.Chart(alt.InlineData(values=points)).encode(x=place)
    if picture.color:
        name, scale = " · ".join(picture.color), _shades(alt, answer, picture)
        base = base.encode(color=alt.Color("color:N", title=name, sort=None, scale=scale))
    name = picture.y[0] if len(picture.y) == 1 else "value"
    sure = f" (± at {percent(confidence)} confidence)"
    label = name + (sure if any(widths[each] for each in picture.y) else "")
    base = base.encode(tooltip=_tooltip(alt, place, picture, name))
    colored, many = bool(picture.color), len(values) > _BARS_MAX
    layers = _layers(alt, base, label, lines=lines, colored=colored, many=many)
    return alt.layer(*layers).properties(width=560 if lines else width, height=300)


def nothing(words: str) -> Chart:
    """A picture that says why it is empty."""
    alt = altair()
    chart = alt.Chart(alt.InlineData(values=[{"words": words}])).mark_text(fontSize=14, color=_INK)
    return chart.encode(text="words:N").properties(width=560, height=120)


def require_numbers(columns: Sequence[str]) -> None:
    """Refuse to draw an answer without columns of numbers, before it is paid for."""
    if not columns:
        raise _nothing()


def _nothing() -> Unsupported:
    return Unsupported(
        "There is no numeric column to plot.", fix="Ask for a COUNT, SUM or AVG.", about="no-number"
    )


def framed(
    chart: Chart,
    answer: NoisyTable,
    *,
    title: str | None,
    notes: Sequence[str] = (),
    what: str = "",
) -> Chart:
    """A chart with what it shows, its price and its promise above it.

    Without a title, it is ``what`` is shown where that is all rows of a table, else the SQL.
    """
    lower = (_LOWER,) if answer.lower() else ()
    words = " ".join((*notes, *lower, answer.promise))
    cost = None if answer.practice else answer.cost
    sql = " ".join(answer.sql.split())
    said = what if what and _WHOLE.fullmatch(sql) else sql
    return priced(chart, title or said, cost, words)


def priced(chart: Chart, title: str, cost: ApproxDP | None, words: str) -> Chart:
    """A chart below its title, its price, if it has one, and what else is to be said.

    Every chart leaves through here, so that all its texts are inert.
    """
    price = "Nothing was paid" if cost is None else f"Price {cost}"
    if cost is not None and cost.epsilon == 0 and cost.delta == 0:
        price = "Free: answered from the ledger"
    below = f"{price}. {words}"
    title_and_price = {
        "text": _lines(title, width=76, most=2),
        "subtitle": _lines(below, width=90, most=4),
        "anchor": "start",
        "offset": 14,
        "subtitleColor": "#555555",
    }
    return offline(inert(_styled(chart).properties(title=title_and_price)))


def plain(answer: NoisyTable, confidence: Number = 0.95) -> Chart:
    """The chart of an answer without words, where these stand beside it."""
    return offline(inert(_styled(drawn(answer, confidence))))


def _styled(chart: Chart) -> Chart:
    return (
        chart.properties(padding=_ROOM)
        .configure_view(stroke=None)
        .configure_axis(
            gridColor="#e6e6e6", domainColor="#999999", labelFontSize=12, titlePadding=12
        )
        .configure_axisX(grid=False)
        .configure_title(fontSize=14, subtitleFontSize=11, subtitleLineHeight=15)
    )


def write(chart: Chart, file: Path) -> None:
    """A chart in the form of the file's ending, in small letters or capitals.

    A page holds its scripts, so that it needs no network, and has none.
    """
    ending = file.suffix[1:].lower()
    with written(file) as path:
        if ending != "html":
            chart.save(str(path), format=ending)
            return
        page = StringIO()
        chart.save(page, format=ending, inline=True)
        text = page.getvalue().replace("<head>", f"<head>\n  {_OFFLINE}", 1)
        path.write_text(text, encoding="utf-8")


def inert(part: Any) -> Any:  # noqa: ANN401 - a chart, or a part of one
    """The same chart, whose texts are only seen.

    They stand in pages, where a script could end in the middle of a key, and in XML, which has no
    controls: one of them ends the process that draws.
    """
    if isinstance(part, str):
        return inert_label(part)
    if isinstance(part, list | tuple):
        return [inert(each) for each in part]
    if isinstance(part, dict):
        return {name: inert(each) for name, each in part.items()}
    if not isinstance(part, altair().SchemaBase):
        return part
    held = {name: inert(each) for name, each in part._kwds.items()}  # noqa: SLF001 - no other way
    found = part.copy(deep=False)
    found._kwds.update(held)  # noqa: SLF001
    return found


def _pictures(
    answer: NoisyTable,
    widths: Mapping[str, HalfWidths],
    x: str | None,
    y: str | None,
    color: str | None,
) -> list[_Picture]:
    for name in (x, y, color):
        if name is not None and name not in answer.columns:
            raise SpecError(
                f"There is no column {name!r}.",
                fix=f"Use {', '.join(answer.columns)}.",
                about="column",
            )
    noisy = [name for name in answer.columns if widths[name]]
    drawn = [name for name in noisy if not pa.types.is_temporal(answer.table[name].type)]
    heights = [y] if y is not None else drawn or _numbers(answer)[-1:]
    if not heights:
        raise _nothing()
    known = {*noisy, *heights, *answer.unfollowed(), x, color}
    keys = [name for name in answer.columns if name not in known]
    if x is None and keys:
        x = keys.pop(0)
    colors = tuple(keys) if color is None else (color,)
    if x is None and _are_alike(answer, heights):
        return [_Picture(x=None, y=tuple(heights), color=colors)]
    return [_Picture(x=x, y=(height,), color=colors) for height in heights[:_PARTS_MAX]]


def _numbers(answer: NoisyTable) -> list[str]:
    """The columns that hold numbers."""
    return [each.name for each in answer.table.schema if holds_numbers(each.type)]


def _are_alike(answer: NoisyTable, names: Sequence[str]) -> bool:
    """Whether numbers are so near to each other that all are seen beside the largest."""
    held = [abs(each) for name in names for each in answer.table[name].to_pylist() if each]
    return not held or max(held) <= _ALIKE * min(held)


def _points(
    answer: NoisyTable, widths: Mapping[str, HalfWidths], picture: _Picture
) -> list[dict[str, Any]]:
    """One point for each number, under names that no chart grammar stumbles over."""
    found, unsigned = [], answer.unsigned()
    for place, row in enumerate(answer.rows):
        cells = dict(zip(answer.columns, row, strict=True))
        for name in picture.y:
            value, bars = cells[name], widths[name]
            if type(value) not in (int, float):
                continue
            width = None if bars is None else bars[place]
            low, high = (
                (None, None) if width is None else ends(value, width, from_zero=name in unsigned)
            )
            found.append(
                {
                    "x": name if picture.x is None else moment(cells[picture.x]),
                    "color": " · ".join(_said(cells[key]) for key in picture.color) or None,
                    "y": value,
                    "off": width,
                    "low": low,
                    "high": high,
                }
            )
    return found


def _said(value: Any) -> str:  # noqa: ANN401 - a cell
    return _NONE if value is None else bare(value)


def _largest(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the keys whose numbers are largest together, in the order that they have."""
    sums: Counter[Any] = Counter()
    for each in points:
        sums[each["x"]] += each["y"]
    kept = {key for key, _ in sums.most_common(_BARS_MAX)}
    return [each for each in points if each["x"] in kept]


def moment(value: Any) -> Any:  # noqa: ANN401 - a cell
    """A key for a chart; a day has its first hour, or it is the day before in half of the world."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return value.isoformat() if isinstance(value, datetime) else value


def _axis(alt: Any, name: str | None, values: set[Any], width: int) -> tuple[Any, bool]:  # noqa: ANN401
    """The place of a key, and whether keys are dates or numbers, which lines may join."""
    title = name or ""
    if values and all(_is_time(value) for value in values):
        return alt.X(
            "x:T", title=title, axis=alt.Axis(labelOverlap=True), scale=alt.Scale(padding=14)
        ), True
    if values and all(type(value) in (int, float) for value in values):
        whole = all(type(value) is int for value in values)
        axis = alt.Axis(format="d" if whole else "~g", tickMinStep=1 if whole else 0)
        return alt.X(
            "x:Q", title=title, axis=axis, scale=alt.Scale(zero=False, nice=False, padding=14)
        ), True
    axis = alt.Axis(labelAngle=label_angle(values, width / max(1, len(values))), labelLimit=160)
    scale = alt.Scale(paddingInner=0.3, paddingOuter=0.2)
    return alt.X("x:N", title=title, sort=None, axis=axis, scale=scale), False


def number_axis(alt: Any, values: Iterable[float]) -> Any:  # noqa: ANN401
    """An axis of numbers. Those of up to four digits, as years, are written without a comma."""
    known = list(values)
    most = max(map(abs, known), default=0)
    step = 1 if all(float(each).is_integer() for each in known) else 0
    return alt.Axis(format="~f", tickMinStep=step) if 1 <= most < _FIVE_DIGITS else alt.Axis()


def label_angle(labels: Iterable[object], room: float) -> int:
    """How labels are turned: not at all where each finds room, so many pixels, beside the next."""
    return 0 if all(_LETTER * len(str(each)) <= room for each in labels) else -40


def _shades(alt: Any, answer: NoisyTable, picture: _Picture) -> Any:  # noqa: ANN401
    """Colours of keys: from dark to bright where they have an order, else far apart."""
    columns = [answer.table[name].to_pylist() for name in picture.color]
    if len(columns) == 1 and all(type(key) in _ORDERED for key in columns[0]):
        return alt.Scale(scheme="viridis")
    few = len(set(zip(*columns, strict=True))) <= len(_PALETTE)
    return alt.Scale(range=_PALETTE) if few else alt.Scale(scheme="tableau20")


def _tooltip(alt: Any, place: Any, picture: _Picture, name: str) -> list[Any]:  # noqa: ANN401
    """What a page says of the number below the mouse."""
    keys = [(place.shorthand, picture.x), ("color:N", " · ".join(picture.color))]
    found = [alt.Tooltip(field, title=title) for field, title in keys if title]
    return [*found, alt.Tooltip("y:Q", title=name), alt.Tooltip("off:Q", title="±")]


def _is_time(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _layers(
    alt: Any,  # noqa: ANN401
    base: Any,  # noqa: ANN401
    label: str,
    *,
    lines: bool,
    colored: bool,
    many: bool,
) -> Sequence[Any]:
    """The numbers, and above them their error bars; of many along a line, a band."""
    height = alt.Y("y:Q", title=label, axis=alt.Axis(tickCount=6))
    ends = {"y": alt.Y("low:Q", title=label), "y2": alt.Y2("high:Q")}
    if lines:
        mark = {} if colored else {"color": _BLUE}
        if many:
            band = base.mark_area(opacity=0.25, **mark).encode(**ends)
            return [band, base.mark_line(strokeWidth=1.5, **mark).encode(y=height)]
        line = base.mark_line(point={"size": 36}, strokeWidth=2, **mark).encode(y=height)
        bars = base.mark_errorbar(ticks={"size": 6}, rule={"opacity": 0.7}, **mark).encode(**ends)
        return [bars, line]
    if colored:
        base = base.encode(xOffset=alt.XOffset("color:N", sort=None))
    fill = {} if colored else {"color": _BLUE}
    bar = base.mark_bar(**fill).encode(y=height)
    over = base.encode(color=alt.value(_INK))
    ticks = {"size": 8, "thickness": 1.4}
    return [bar, over.mark_errorbar(ticks=ticks, rule={"strokeWidth": 1.4}).encode(**ends)]


def _lines(text: str, *, width: int, most: int) -> list[str]:
    return textwrap.wrap(text, width=width, max_lines=most, placeholder=" …")
