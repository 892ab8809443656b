"""A table described: rows, missing values, means, quartiles and keys, each number with its ±.

The numbers are a long table: a line for each number, counts in one column and values in others,
by their kind. On a screen there is a row for each column of the table instead.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, final

import pyarrow as pa

from noisegate.desk.answer import Answer
from noisegate.desk.display.numbers import CHOSEN
from noisegate.desk.release import PICTURES, Held, loading, read_held
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.releases.forms.kept_answer import HeldAnswer, answer_of, record_of

FORMAT: Final = "noisegate-description/1"
ROWS, MISSING, MEAN, COUNT = "rows", "missing", "mean", "count"
QUARTILES: Final = ("q25", "median", "q75")
KEYS_SHOWN: Final = 5  # of each column on a screen
_NOTHING: Final = "–"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Description(HeldAnswer):
    """A table described: a row for each number. ``kinds`` are those of the described columns."""

    kind: ClassVar[str] = "description"
    form: ClassVar[str] = FORMAT
    endings: ClassVar[tuple[str, ...]] = tuple(
        each for each in Held.endings if each not in PICTURES
    )
    table: str
    kinds: Mapping[str, str]

    @property
    def cut(self) -> bool | None:
        """Whether a contribution bound leaves out some rows, nobody knows how many."""
        return bool(self.held.lower())

    def value(self, column: str | None, statistic: str, key: object = None) -> Any:  # noqa: ANN401 - of any kind
        """One number: ``value("age", "median")``, ``value("ward", "count", "north")``.

        None where it is not among them. The number of rows is ``value(None, "rows")``.
        """
        sought = (column, statistic, None if key is None else str(key))
        found = [row[3:] for row in self.held.rows if row[:3] == sought]
        return next((each for row in found for each in row if each is not None), None)

    def texts(self, confidence: Number = 0.95) -> dict[tuple[Any, Any, Any], str]:
        """Each number with its ± as text, by column, statistic and key."""
        pairs = zip(self.held.rows, self.held.cells(confidence), strict=True)
        return {
            row[:3]: next(
                text for each, text in zip(row[3:], cells[3:], strict=True) if each is not None
            )
            for row, cells in pairs
            if any(each is not None for each in row[3:])
        }

    def shown(self, confidence: Number = 0.95) -> Answer:
        """A row for each column, for a screen."""
        texts = self.texts(confidence)
        rows = [
            (
                column,
                kind,
                texts.get((column, MISSING, None), _NOTHING),
                self._values(column, texts),
            )
            for column, kind in self.kinds.items()
        ]
        names = ("column", "type", MISSING, "values")
        columns = [list(each) for each in zip(*rows, strict=True)] or [[]] * len(names)
        table = pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})
        return replace(self.held, table=table, half_widths=lambda _: (None,) * len(names))

    def _values(self, column: str, texts: Mapping[tuple[Any, Any, Any], str]) -> str:
        """Mean and quartiles, or the keys that most rows seem to have."""
        counts = self._counts(column)
        numbers = {each: texts.get((column, each, None)) for each in (MEAN, *QUARTILES)}
        listed = [f"{name} {text}" for name, text in numbers.items() if text is not None]
        listed += [f"{key} {texts[column, COUNT, key]}" for key in list(counts)[:KEYS_SHOWN]]
        more = len(counts) - KEYS_SHOWN
        return " · ".join([*listed, *([f"{more:,} more"] if more > 0 else [])]) or _NOTHING

    def _counts(self, column: str) -> dict[str, float]:
        """The counts of a column's keys, the largest first."""
        found = {row[2]: row[3] for row in self.held.rows if row[:2] == (column, COUNT)}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def footer(self, confidence: Number = 0.95) -> str:
        """How many rows there are, price, balance and what the ± means; then the caveats."""
        noisy = any(each is not None for each in self.held.half_widths(confidence))
        some = any(len(self._counts(column)) > KEYS_SHOWN for column in self.kinds)
        words = f"{self._headline(confidence)} · {self.held.footer(confidence)}"
        return "\n".join([words, *([CHOSEN] if noisy and some else [])])

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain JSON values: a row for each number."""
        return self.held.to_dict(confidence) | {"table": self.table, "types": dict(self.kinds)}

    def record(self) -> dict[str, Any]:
        """What is described, and the ± of the numbers."""
        lower = {"lower": list(self.held.lower()), "amounts": list(self.held.amounts())}
        return record_of(self.held) | lower | {"table": self.table, "kinds": dict(self.kinds)}

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "Description":
        """The description that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        lower, amounts = tuple(record["lower"]), tuple(record["amounts"])
        held = answer_of(
            table, record, lower=lambda: lower, amounts=lambda: amounts, unsigned=lambda: amounts
        )
        stated = record["standing"]["stated"]
        return cls(held=held, table=record["table"], kinds=dict(record["kinds"]), stated=stated)

    @property
    def headline(self) -> str:
        """How many rows and columns there are."""
        return self._headline(0.95)

    def _headline(self, confidence: Number) -> str:
        rows = self.texts(confidence)[None, ROWS, None]
        count = len(self.kinds)
        return f"{self.table}: {rows} rows, {count} column{'' if count == 1 else 's'}"
