"""The table that a notebook shows: numbers with ±, and a small bar behind each."""

from collections.abc import Sequence
from datetime import date
from math import isfinite
from typing import Any, Final

from noisegate.desk.display.numbers import LEFT, ends
from noisegate.desk.noisy import NoisyTable
from noisegate.exact import Number
from noisegate.inert import html

_ROWS_MAX: Final = 200
_BAR: Final = 96  # pixels
_NUMBERS: Final = ("int", "uint", "float", "double", "halffloat", "decimal")  # names of types


def answer_html(answer: NoisyTable, footer: str, confidence: Number = 0.95) -> str:
    """The answer as a table with a small bar behind each noisy number, and words below it."""
    widths = answer.half_widths(confidence)
    rows = range(min(answer.table.num_rows, _ROWS_MAX))
    text = answer.cells(confidence)
    unsigned = answer.unsigned()
    bars = [
        _bars(answer.table[i].to_pylist()[: len(rows)], each, from_zero=name in unsigned)
        for i, (name, each) in enumerate(zip(answer.columns, widths, strict=True))
    ]
    named = [not str(kind).startswith(_NUMBERS) for kind in answer.table.schema.types]
    right = [
        (LEFT if name else "") if each is None else ' style="text-align:right"'
        for each, name in zip(widths, named, strict=True)
    ]
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{right[i]}>{html(text[row][i])}{bars[i][row]}</td>" for i in range(len(right))
        )
        + "</tr>"
        for row in rows
    )
    head = "".join(
        f"<th{style}>{html(name)}</th>" for name, style in zip(answer.columns, right, strict=True)
    )
    left_out = answer.table.num_rows - len(rows)
    more = f"{left_out:,} more rows<br>" if left_out else ""
    words = "<br>".join(map(html, [*footer.split("\n"), answer.promise]))
    return (
        '<table style="font-variant-numeric:tabular-nums">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p><small>{more}{words}</small></p>"
    )


def _bars(
    values: Sequence[Any], widths: Sequence[float | int | None] | None, *, from_zero: bool
) -> list[str]:
    """A bar from 0 to each number, with its error bar; none where nothing is to compare."""
    if widths is None or len(values) < 2:
        return [""] * len(values)
    drawn = [
        None
        if value is None or width is None or isinstance(value, date | str)
        else (float(value), *ends(float(value), float(width), from_zero=from_zero))
        for value, width in zip(values, widths, strict=False)
    ]
    reached = [end for each in drawn if each for end in each]
    low, high = min([0.0, *reached]), max([0.0, *reached])
    if high - low <= 0 or not isfinite(high - low):
        return [""] * len(values)
    return ["" if each is None else _bar(*each, low, _BAR / (high - low)) for each in drawn]


def _bar(value: float, left: float, right: float, low: float, scale: float) -> str:
    start, end = sorted(((0 - low) * scale, (value - low) * scale))
    left, right = (left - low) * scale, (right - low) * scale
    return (
        f' <svg width="{_BAR + 2}" height="12" style="vertical-align:middle" aria-hidden="true">'
        f'<rect x="{start + 1:.1f}" y="2" width="{end - start:.1f}" height="8" '
        'fill="#4c78a8" fill-opacity="0.45"/>'
        f'<path d="M{left + 1:.1f} 6H{right + 1:.1f}M{left + 1:.1f} 3v6M{right + 1:.1f} 3v6" '
        'stroke="currentColor" fill="none"/></svg>'
    )
