"""How measurements are shown: one table a section, and what the figures depend on."""

import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

Column = tuple[str, str, str]  # heading, field of the row, format
Row = dict[str, Any]


def console(width: int) -> Console:
    """A terminal as wide as it is; a file as wide as told."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def show(to: Console, title: str, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Rows as a table, without the columns that no row has a value for."""
    shown = [column for column in columns if any(row.get(column[1]) is not None for row in rows)]
    table = Table()
    for heading, _, style in shown:
        table.add_column(heading, justify="right" if style else "left")
    for row in rows:
        table.add_row(*(cell(row, field, style) for _, field, style in shown))
    to.print(f"\n[bold]{title}")
    to.print(table)


def cell(row: Row, field: str, style: str) -> str:
    """One value as text; a dash where a row has none."""
    value = row.get(field)
    if value is None:
        return "–"
    if style == "met":
        return "yes" if value else "missed"
    if style == "millions":
        return f"{value / 1e6:,.4g}"
    return format(value, style)


def machine() -> str:
    """What the figures depend on, and how busy it is."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{now}, {python} on {platform.machine()}, {load()}"


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
