"""Tables and entries as a prompt and a notebook show them: a short line each.

>>> print(aligned(("ward", "n"), [("north", "12 ± 3"), ("south", "1,204 ± 3")]))
ward           n
north     12 ± 3
south  1,204 ± 3
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Final, final, overload

from noisegate.desk.display.numbers import LEFT
from noisegate.inert import html, line
from noisegate.ledger.entry import Entry
from noisegate.privacy.domain import EPOCH, Column, Kind, TableDomain

SHOWN_MAX: Final = 20  # lines at a prompt
_KEYS: Final = 5  # that are named


def aligned(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns below each other; noisy numbers end below each other, and so do their names."""
    texts = [list(map(line, row)) for row in (names, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    noisy = [any("±" in cell for cell in column) for column in zip(*texts, strict=True)]
    padded = (
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, noisy, strict=True)
        )
        for row in texts
    )
    return "\n".join(text.rstrip() for text in padded)


def more_than(shown: int, count: int, what: str) -> list[str]:
    """A line that says how many are left out, if any are."""
    return [f"… {count - shown:,} more {what}"] if count > shown else []


class _Listed(ABC):
    """What is shown as a table of texts."""

    names: Sequence[str] = ()
    what = ""

    @abstractmethod
    def lines(self) -> list[Sequence[str]]:
        """The cells of each line."""

    def __repr__(self) -> str:
        found = self.lines()
        shown = found[:SHOWN_MAX]
        return "\n".join(
            [aligned(self.names, shown), *more_than(len(shown), len(found), self.what)]
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th{LEFT}>{html(name)}</th>" for name in self.names)
        rows = (
            f"<tr>{''.join(f'<td{LEFT}>{html(cell)}</td>' for cell in row)}</tr>"
            for row in self.lines()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


@final
class Tables(_Listed, Mapping[str, TableDomain]):
    """Tables by name, and what is public about them."""

    names = ("table", "column", "type", "public")
    what = "columns"

    def __init__(self, tables: Mapping[str, TableDomain]) -> None:
        self._tables = tables
        self.part = getattr(tables, "part", None)  # of the units: readers begin with its rows

    def __getitem__(self, name: str) -> TableDomain:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def lines(self) -> list[Sequence[str]]:
        """A line for each column, and one for whose rows they are."""
        return [each for name in self._tables for each in _table(name, self._tables[name])]


def _table(name: str, table: TableDomain) -> Iterator[Sequence[str]]:
    rows = "public" if table.unit is None else str(table.unit)
    yield (name, "", "", rows)
    for column in table.columns.values():
        yield ("", column.name, column.kind.value, _public(column))


def _public(column: Column) -> str:
    """What is declared about a column."""
    if column.hidden:
        return "hidden"
    if column.keys is not None:
        more = f", … ({len(column.keys):,})" if len(column.keys) > _KEYS else ""
        return f"in {', '.join(map(str, column.keys[:_KEYS]))}{more}"
    if column.between is not None:
        low, high = (plain_end(end, column.kind) for end in column.between)
        return f"between {low} and {high}"
    return ""


def plain_end(end: Fraction, kind: Kind) -> int | float | str:
    """A bound as it was declared.

    >>> plain_end(Fraction(19723), Kind.DATE), plain_end(Fraction(1, 2), Kind.NUMBER)
    ('2024-01-01', 0.5)
    """
    if kind is Kind.DATE:
        return (EPOCH + timedelta(days=int(end))).date().isoformat()
    if kind is Kind.TIMESTAMP:
        return (EPOCH + timedelta(microseconds=int(end))).isoformat()
    return int(end) if end.denominator == 1 else float(end)


@final
class Entries(_Listed, Sequence[Entry]):
    """Entries of a ledger."""

    names = ("no.", "at (UTC)", "kind", "about")
    what = "entries"

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @overload
    def __getitem__(self, at: int) -> Entry: ...

    @overload
    def __getitem__(self, at: slice) -> "Entries": ...

    def __getitem__(self, at: int | slice) -> "Entry | Entries":
        return Entries(self._entries[at]) if isinstance(at, slice) else self._entries[at]

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def lines(self) -> list[Sequence[str]]:
        """A line for each."""
        return [(str(each.seq), each.at[:19], each.kind, _about(each)) for each in self._entries]


def _about(entry: Entry) -> str:
    """What it is about, in a few words."""
    event = entry.body.get("event")
    named = str(event.get("event", "")) if isinstance(event, Mapping) else ""
    words = (entry.body.get("account"), entry.body.get("use"), named.partition("/")[0])
    return " · ".join(str(word) for word in words if word)
