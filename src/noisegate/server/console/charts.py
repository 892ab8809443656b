"""Bars with error bars: released numbers become places in percent; a template draws them.

No library of charts: what is drawn has its escaping from the template, and its look from the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from typing import Any, Final, final

from noisegate.desk.answer import Answer
from noisegate.desk.display import ends, percent
from noisegate.exact import Number
from noisegate.inert import line

BARS_MAX: Final = 40
CHARTS_MAX: Final = 4
_ROW: Final = 46  # pixels
_LABEL: Final = 40  # letters


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

    @property
    def height(self) -> int:
        """In pixels."""
        return _ROW * len(self.bars)


def charts(answer: Answer, confidence: Number = 0.95, most: int = BARS_MAX) -> list[Chart]:
    """A chart of each column of numbers with a ±, if there are rows to compare."""
    if answer.table.num_rows < 2:
        return []
    widths = answer.half_widths(confidence)
    shown = answer.cells(confidence)[:most]
    keys = [place for place, each in enumerate(widths) if each is None]
    labels = [_short(", ".join(row[place] for place in keys)) for row in shown]
    drawn = [
        _chart(answer, place, each, labels, [row[place] for row in shown], confidence)
        for place, each in enumerate(widths)
        if each is not None
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

    def at(number: float) -> float:
        return round(100 * (number - low) / (high - low), 2)

    bars = []
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


def _reach(
    value: Any,  # noqa: ANN401 - a cell
    width: float | None,
    *,
    from_zero: bool,
) -> tuple[float, float | None, float | None] | None:
    """A number and the ends of its error bar; None where there is nothing to draw."""
    if value is None or isinstance(value, date | str | bool) or not isfinite(float(value)):
        return None
    if width is None or not isfinite(float(width)):
        return float(value), None, None
    return float(value), *ends(float(value), float(width), from_zero=from_zero)


def _short(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"
