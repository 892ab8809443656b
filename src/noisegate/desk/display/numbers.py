"""Numbers and answers for human eyes: cells with ±, and the table a notebook shows."""

from datetime import date, datetime
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Any, Final

from noisegate.exact import Number, fraction
from noisegate.inert import html, line, lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noisegate.desk.answer import Answer

_ROWS_MAX: Final = 200  # of a table in a notebook
_BAR: Final = 96  # pixels
_NUMBERS: Final = ("int", "uint", "float", "double", "halffloat", "decimal")  # names of types
LEFT: Final = ' style="text-align:left"'  # words: Jupyter would put them on the right
LEAST: Final = "≥ "  # before a number of which a cap cuts off some
ZERO: Final = " ≈ 0"  # behind a number that may be noise alone
CHOSEN: Final = (
    "Noisy numbers decided which rows are shown: an extreme number may be extreme by its noise."
)


def bare(value: Any) -> str:  # noqa: ANN401 - a cell
    """A key, or a number without error bar."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return line(str(value))


def with_margin(value: Any, margin: float | None) -> str:  # noqa: ANN401 - a cell
    """A noisy number with its ±, to the places that the margin leaves meaningful.

    >>> with_margin(1234, 6), with_margin(41.23456, 0.5123), with_margin(0.5, None)
    ('1,234 ± 6', '41.23 ± 0.52', '0.5 ± ?')
    >>> with_margin(date(2020, 5, 1), 6), with_margin(datetime(2020, 5, 1), 33)
    ('2020-05-01 ± 6 d', '2020-05-01 00:00:00 ± 33 h')
    >>> with_margin("[12.5, 20.0]", 0.75)
    '[12.5, 20.0] ± 0.75'
    """
    if value is None:
        return "–"
    if isinstance(value, str):  # a list of numbers
        return f"{line(value)} ± {'?' if margin is None else f'{margin:,.6g}'}"
    if isinstance(value, date):
        unit = "h" if isinstance(value, datetime) else "d"
        return f"{value} ± {'?' if margin is None else f'{ceil(margin):,} {unit}'}"
    if margin is None or not isfinite(margin):
        return f"{value:,} ± ?" if isinstance(value, int) else f"{value:,.6g} ± ?"
    if margin == 0 or isinstance(value, int):
        return f"{value:,} ± {ceil(margin):,}"
    places = max(0, min(12, 1 - floor(log10(margin))))
    up = ceil(margin * 10**places * (1 - 1e-9)) / 10**places  # never shown smaller than it is
    return f"{value:,.{places}f} ± {up:,.{places}f}"


def is_noise(value: Any, margin: float | None) -> bool:  # noqa: ANN401 - a cell
    """Whether a number is no further from 0 than its ±; a date is not a number."""
    if isinstance(value, date):
        return False
    return value is not None and margin is not None and bool(abs(value) <= margin)


def marked(value: Any, margin: float | None) -> str:  # noqa: ANN401 - a cell
    """A noisy number with its ±, and a mark where it looks like something but may be nothing.

    >>> marked(106, 106), marked(0, 106), marked(300, 106)
    ('106 ± 106 ≈ 0', '0 ± 106', '300 ± 106')
    """
    return with_margin(value, margin) + (ZERO if value and is_noise(value, margin) else "")


def ends(value: float, width: float, *, from_zero: bool) -> tuple[float, float]:
    """The ends of an error bar as it is drawn.

    ``from_zero``: the exact number cannot be negative, so the bar ends at 0, or at the shown number
    where noise brought that below.

    >>> ends(4, 6, from_zero=True), ends(-2, 6, from_zero=True), ends(4, 6, from_zero=False)
    ((0, 10), (-2, 4), (-2, 10))
    """
    low = value - width
    return max(low, min(value, 0)) if from_zero else low, value + width


def percent(confidence: Number) -> str:
    """A confidence as people say it.

    >>> percent("0.95"), percent("0.999")
    ('95%', '99.9%')
    """
    return f"{float(fraction(confidence) * 100):.6g}%"


def rich_table(
    names: "Sequence[str]", rows: "Iterable[Sequence[object]]", title: str | None = None
) -> Any:  # noqa: ANN401 - rich is loaded only for a terminal
    """A table for a terminal that cuts nothing off; numbers with a ± end below each other."""
    from rich.table import Table  # noqa: PLC0415 - slow to load
    from rich.text import Text  # noqa: PLC0415

    texts = [[lines(str(cell)) for cell in row] for row in rows]
    above = None if title is None else Text(line(title))
    table = Table(title=above, title_justify="left", show_header=any(names))
    for place, name in enumerate(names):
        noisy = bool(texts) and all("±" in text[place] or text[place] == "–" for text in texts)
        table.add_column(Text(line(name)), overflow="fold", justify="right" if noisy else "left")
    for text in texts:
        table.add_row(*map(Text, text))
    return table


def answer_html(answer: "Answer", footer: str, confidence: Number = 0.95) -> str:
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


def facts_html(facts: "Sequence[tuple[str, str]]") -> str:
    """A plan's facts as a table."""
    rows = (f"<tr><th{LEFT}>{html(name)}</th><td{LEFT}>{html(fact)}</td></tr>"
            for name, fact in facts)  # fmt: skip
    return f"<table>{''.join(rows)}</table>"


def _bars(
    values: "Sequence[Any]", widths: "Sequence[float | int | None] | None", *, from_zero: bool
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
