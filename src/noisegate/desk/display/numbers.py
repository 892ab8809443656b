"""Numbers for human eyes: cells with ±, in terminals and notebooks."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from math import ceil, floor, isfinite, log10
from typing import Any, Final

from noisegate.exact import Number, fraction
from noisegate.inert import html, line, lines

LEFT: Final = ' style="text-align:left"'  # words: Jupyter would put them on the right
LEAST: Final = "≥ "  # before a number of which a cap cuts off some
ZERO: Final = " ≈ 0"  # behind a number that may be noise alone
OPEN: Final = " ± ?"  # behind a number whose error has no bound
CHOSEN: Final = (
    "Noisy numbers decided which rows are shown: an extreme number may be extreme by its noise."
)
TIMED: Final = "The clock was read when this was asked, in UTC: later it is another question."


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
        return (f"{value:,}" if isinstance(value, int) else f"{value:,.6g}") + OPEN
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
    names: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None
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


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    """A plan's facts as a table."""
    rows = (f"<tr><th{LEFT}>{html(name)}</th><td{LEFT}>{html(fact)}</td></tr>"
            for name, fact in facts)  # fmt: skip
    return f"<table>{''.join(rows)}</table>"
