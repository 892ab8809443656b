"""Bars, lines, maps and boxes of released numbers: places in percent, which a template draws.

No library of charts: what is drawn has its escaping from the template, and its look from the page.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final, TypeAlias, final

from noisegate.desk.answer import Answer
from noisegate.desk.display.numbers import ends, percent
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.inert import line
from noisegate.releases.forms.boxplots import BoxplotRelease

BARS_MAX: Final = 40
CHARTS_MAX: Final = 4
_ROW: Final = 46  # pixels
_LABEL: Final = 30  # letters
_POINTS: Final = (25, 2000)  # along a line: fewer are bars
_NOISE: Final = "≈ 0"  # as `Answer.cells` marks what may be noise alone
_NAMED: Final = 12  # keys along a side that find room for their names
_Reach: TypeAlias = tuple[float, float | None, float | None]  # a number, its error bar
_SQUARES: Final = (5, 400, 60)  # of a map: keys of a side at least, squares written in, at most


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One number: its words, and where bar and error bar begin and end, in percent."""

    label: str
    value: str
    top: int
    start: float
    width: float
    low: float | None
    high: float | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One column of an answer."""

    caption: str
    words: str
    bars: tuple[Bar, ...]
    zero: float
    form: str = "bars"

    @property
    def height(self) -> int:
        """In pixels."""
        return _ROW * len(self.bars)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A column along a key that has an order: a line in a band, both as corners in percent."""

    caption: str
    words: str
    points: str
    band: str
    zero: float
    ends: tuple[str, str]
    top: str
    form: str = "line"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """A column over two keys: squares, darker where there is more; few enough have their number."""

    caption: str
    words: str
    squares: tuple[tuple[float, float, float, str, str], ...]  # x, y, share, words, number
    size: tuple[float, float]  # of one, in percent
    across: tuple[str, tuple[str, ...]]
    down: tuple[str, tuple[str, ...]]
    form: str = "heat"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BoxRow:
    """One box, in percent: the ends of its whiskers, its quartiles, its median and the ± of it."""

    label: str
    value: str
    top: int
    at: tuple[float, float, float, float, float]
    sure: tuple[float, float] | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """Five quantiles of each group on one scale, which begins at the least of them, not at zero."""

    caption: str
    words: str
    rows: tuple[BoxRow, ...]
    ends: tuple[str, str]
    form: str = "boxes"

    @property
    def height(self) -> int:
        """In pixels."""
        return _ROW * len(self.rows)


def boxes(made: BoxplotRelease, confidence: Number, cells: list[list[str]]) -> "Sequence[Boxes]":
    """A box for each group that has five numbers or dates; none where they are neither."""
    answer, keys = made.held, len(made.by)
    dated = any(isinstance(box.middle, date) for box in made.boxes)
    widths = answer.half_widths(confidence)[keys + 2]
    found: list[tuple[int, list[float], _Reach | None]] = []
    for row, values in enumerate(zip(*(c.to_pylist() for c in answer.table.columns), strict=True)):
        known = [_reach(_day(each), None, from_zero=False) for each in values[keys:]]
        if all(known) and len(found) < BARS_MAX:
            numbers = [each[0] for each in known if each]
            margin = None if widths is None else widths[row]
            found.append((row, numbers, _reach(numbers[2], margin, from_zero=False)))
    ends: list[float] = []
    for _, five, sure in found:
        ends += [*five, *(end for end in sure or () if end is not None)]
    if not ends or not isfinite(max(ends) - min(ends)) or max(ends) <= min(ends):
        return []
    low, high = min(ends), max(ends)
    at = _place(low, high)
    rows, said = [], []
    for place, (row, five, sure) in enumerate(found):
        _, left, right = sure or (0.0, None, None)
        label = _short(", ".join(cells[row][:keys])) or line(made.column)
        texts = cells[row][keys:]
        rows.append(
            BoxRow(
                label=label, value=f"median {texts[2]}", top=_ROW * place,
                at=(at(five[0]), at(five[1]), at(five[2]), at(five[3]), at(five[4])),
                sure=None if left is None or right is None else (at(left), at(right)),
            )
        )  # fmt: skip
        said.append(f"{label}: {', '.join(texts)}")
    more = answer.table.num_rows - len(rows)
    tail = f"{percent(made.whiskers)} and {percent(1 - made.whiskers)} of the rows"
    caption = (
        f"{line(made.column)}: median, quartiles, and whiskers at {tail}; the wide line is the ± "
        f"of the median at {percent(confidence)} confidence."
    ) + (f" The first {len(rows)} of {answer.table.num_rows:,} groups." if more else "")
    words = f"{caption} Each from whisker to whisker: {'; '.join(said)}"
    scale = (_dated(low), _dated(high)) if dated else (f"{low:,.4g}", f"{high:,.4g}")
    return [Boxes(caption=caption, words=words, rows=tuple(rows), ends=scale)]


def _place(low: float, high: float) -> Callable[[float], float]:
    """Where a number stands between two, in percent."""
    return lambda number: round(100 * (number - low) / (high - low), 2)


def _day(value: Any) -> Any:  # noqa: ANN401 - a cell
    """A date as a number of days; anything else as it is."""
    plain = isinstance(value, date) and not isinstance(value, datetime)
    return value.toordinal() if plain else value


def _dated(day: float) -> str:
    """The date of a number of days, within the calendar."""
    return date.fromordinal(int(min(max(day, 1), date.max.toordinal()))).isoformat()


def charts(
    answer: Answer, confidence: Number = 0.95, *, cells: list[list[str]] | None = None
) -> "Sequence[Chart | Line | Heat]":
    """A chart of each column of numbers with a ±, if there are rows to compare.

    ``cells`` are the rows as people read them.
    """
    if answer.table.num_rows < 2:
        return []
    texts = answer.cells(confidence) if cells is None else cells
    widths = answer.half_widths(confidence)
    noisy = [place for place, each in enumerate(widths) if each is not None]
    others = [place for place, each in enumerate(widths) if each is None]
    if len(noisy) == 1 and len(others) == 2:
        pair, bars = (others[0], others[1]), widths[noisy[0]] or ()
        if (map_ := _heat(answer, texts, pair, noisy[0], bars)) is not None:
            return [map_]
    drawn: Sequence[Chart | Line | None]
    if len(others) == 1 and _is_ordered(answer, others[0]):
        drawn = [_line(answer, texts, others[0], at, widths[at], confidence) for at in noisy]
    else:
        shown = texts[:BARS_MAX]
        labels = [_short(", ".join(row[place] for place in others)) for row in shown]
        drawn = [
            _chart(answer, at, widths[at] or (), labels, [row[at] for row in shown], confidence)
            for at in noisy
        ]
    return [each for each in drawn if each is not None][:CHARTS_MAX]


def _chart(
    answer: Answer,
    place: int,
    widths: Sequence[float | int | None],
    labels: Sequence[str],
    texts: Sequence[str],
    confidence: Number,
) -> Chart | None:
    name = answer.columns[place]
    values = answer.table[place].to_pylist()[: len(labels)]
    from_zero = name in answer.unsigned()
    reach = [_reach(*pair, from_zero=from_zero) for pair in zip(values, widths, strict=False)]
    known = [end for each in reach if each for end in each if end is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    if not known or not isfinite(high - low) or high <= low:
        return None
    at, bars = _place(low, high), []
    for row, each in enumerate(reach):
        value, left, right = each or (0.0, None, None)
        start, end = sorted((at(0), at(value)))
        bars.append(
            Bar(
                label=labels[row], value=texts[row], top=_ROW * row, start=start,
                width=round(end - start, 2), low=None if left is None else at(left),
                high=None if right is None else at(right),
            )
        )  # fmt: skip
    left_out = answer.table.num_rows - len(bars)
    more = f" The first {len(bars)} of {answer.table.num_rows:,} rows." if left_out else ""
    said = "; ".join(f"{bar.label or 'all'}: {bar.value}" for bar in bars)
    caption = f"{line(name)}, with error bars at {percent(confidence)} confidence.{more}"
    return Chart(caption=caption, words=f"{line(name)}: {said}", bars=tuple(bars), zero=at(0))


def _is_ordered(answer: Answer, place: int) -> bool:
    """Whether a key goes along a line: many numbers or dates, each once, in their order."""
    few, many = _POINTS
    if not few <= answer.table.num_rows <= many:
        return False
    keys = [key for key in answer.table[place].to_pylist() if key is not None]
    plain = all(isinstance(key, int | float | Decimal | date) for key in keys)
    return plain and not any(isinstance(key, bool) for key in keys) and keys == sorted(set(keys))


def _line(
    answer: Answer,
    texts: list[list[str]],
    key: int,
    place: int,
    widths: Sequence[float | int | None] | None,
    confidence: Number,
) -> Line | None:
    name, keys = answer.columns[place], answer.table[key].to_pylist()
    from_zero = name in answer.unsigned()
    cells = zip(keys, answer.table[place].to_pylist(), widths or (), strict=False)
    reach = [
        found
        for at, value, width in cells
        if at is not None and (found := _reach(value, width, from_zero=from_zero))
    ]
    known = [end for each in reach for end in each if end is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    if len(reach) < 2 or not isfinite(high - low) or high <= low:
        return None

    def corner(place: int, number: float) -> str:
        return f"{100 * place / (len(reach) - 1):.2f},{100 * (high - number) / (high - low):.2f}"

    upper = [corner(at, v if top is None else top) for at, (v, _, top) in enumerate(reach)]
    lower = [corner(at, v if under is None else under) for at, (v, under, _) in enumerate(reach)]
    said = [row[key] for row, each in zip(texts, keys, strict=True) if each is not None]
    axis = line(answer.columns[key])
    caption = f"{line(name)} by {axis}; the band is ± at {percent(confidence)} confidence."
    most = max(each[0] for each in reach)
    told = f"{len(reach):,} points from {said[0]} to {said[-1]}; the most is {most:,.4g}."
    return Line(
        caption=caption, points=" ".join(corner(at, v) for at, (v, *_) in enumerate(reach)),
        words=f"{caption} {told}",
        band=" ".join([*upper, *reversed(lower)]), zero=round(100 * high / (high - low), 2),
        ends=(said[0], said[-1]), top=f"{high:,.4g}",
    )  # fmt: skip


def _heat(
    answer: Answer,
    texts: list[list[str]],
    keys: tuple[int, int],
    place: int,
    widths: Sequence[float | int | None],
) -> Heat | None:
    """A map, if there are enough keys on both sides and each pair stands once."""
    (down, across), (least, written, most) = keys, _SQUARES
    rows, columns = (list(dict.fromkeys(row[side] for row in texts)) for side in (down, across))
    values = answer.table[place].to_pylist()
    known = [float(each) for each in values if each is not None and isfinite(float(each))]
    sides = len(rows), len(columns)
    if min(sides) < 2 or max(sides) < least or max(sides) > most or not known:
        return None
    if len({(row[down], row[across]) for row in texts}) < len(texts):
        return None
    top, name = max(known), line(answer.columns[place])
    size = 100 / len(columns), 100 / len(rows)
    squares = []
    for row, value in zip(texts, values, strict=True):
        x, y = columns.index(row[across]) * size[0], rows.index(row[down]) * size[1]
        share = max(0.0, float(value or 0)) / top if top > 0 else 0.0
        few = len(texts) <= written and len(columns) <= _NAMED
        number = row[place].partition(" ± ")[0] if few else ""
        if number and _NOISE in row[place]:
            number = f"({number})"
        words = f"{row[down]}, {row[across]}: {row[place]}"
        squares.append((round(x, 3), round(y, 3), round(share, 3), words, number))
    sides_named = tuple(line(answer.columns[side]) for side in (down, across))
    found = [each for each in widths if each is not None and isfinite(float(each))]
    sure = f" Each is ± {min(found):,.4g} to {max(found):,.4g}." if found else ""
    noise = " In brackets: may be noise alone." if any("(" in each[4] for each in squares) else ""
    caption = f"{name} by {sides_named[0]} (down) and {sides_named[1]} (across); darker is more."
    caption = f"{caption}{sure}{noise}"
    return Heat(
        caption=caption, words=f"{caption} From {min(known):,.4g} to {top:,.4g}.",
        squares=tuple(squares), size=(round(size[0], 3), round(size[1], 3)),
        across=(sides_named[1], tuple(map(_short, _ends(columns)))),
        down=(sides_named[0], tuple(map(_short, _ends(rows)))),
    )  # fmt: skip


def _ends(keys: list[str]) -> list[str]:
    """The names along a side: all of them, or the first and the last."""
    return keys if len(keys) <= _NAMED else [keys[0], keys[-1]]


def _reach(
    value: Any,  # noqa: ANN401 - a cell
    width: float | None,
    *,
    from_zero: bool,
) -> "_Reach | None":
    """A number and the ends of its error bar; None where there is nothing to draw."""
    if value is None or isinstance(value, date | str | bool) or not isfinite(float(value)):
        return None
    if width is None or not isfinite(float(width)):
        return float(value), None, None
    return float(value), *ends(float(value), float(width), from_zero=from_zero)


def _short(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"
