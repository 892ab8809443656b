"""What an analyst holds: a table of noisy numbers with error bars, price, balance and guarantee."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, final

from noisegate.desk.display.numbers import LEAST, ZERO, bare, is_noise, marked, percent, with_margin
from noisegate.desk.display.prompt import SHOWN_MAX, aligned, more_than
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.extras import extra
from noisegate.files import write, written
from noisegate.inert import json_text, line, lines
from noisegate.ledger.verify.anchor import NO_LOG, Log
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from noisegate.desk.card import Card
    from noisegate.desk.plan import Plan
    from noisegate.ledger.signing import Signer

HalfWidths: TypeAlias = tuple[float | int | None, ...] | None


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answer:
    """Released numbers as a table. Reading it again draws nothing and costs nothing.

    ``for ward, n in answer``, ``answer["n"]``, ``answer[0]``, ``len(answer)``; ``answer.value``
    and ``answer.margin`` are the number of an answer that has one, and its ±.

    ``half_widths`` gives the error bars of each column at a confidence. ``questions`` are the
    canonical texts under which the ledger stores the releases; ``log`` has the current head of the
    ledger and reads its entries.
    ``caveats`` say in words what the error bars do not cover.
    """

    sql: str
    table: "pa.Table"
    half_widths: Callable[[Number], Sequence[HalfWidths]]
    noise_widths: Callable[[Number], Sequence[HalfWidths]] | None = None  # None: all is noise
    cost: ApproxDP
    remaining: ApproxDP | None  # None: read from a file, away from its ledger
    guarantee: Guarantee
    plan: "Plan[Any] | None" = None  # None: of a release
    request_ids: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    practice: bool = False
    unfollowed: Callable[[], Sequence[str]] = tuple  # columns whose error is not known
    unsigned: Callable[[], Sequence[str]] = tuple  # that cannot be negative before noise
    amounts: Callable[[], Sequence[str]] = tuple  # of those, counts and sums: 0 is nothing at all
    lower: Callable[[], Sequence[str]] = tuple  # of those, lower bounds: a cap cuts off some
    log: Log = NO_LOG

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order asked for."""
        return tuple(self.table.column_names)

    @property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """The values, row by row."""
        if not self.columns:
            return ()
        return tuple(zip(*(column.to_pylist() for column in self.table.columns), strict=True))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)

    def __getitem__(self, at: str | int | slice) -> Any:  # noqa: ANN401 - of a column, or a row
        if not isinstance(at, str):
            return self.rows[at]
        if at not in self.columns:
            known = ", ".join(map(repr, self.columns))
            raise SpecError(f"There is no column {at!r}.", fix=f"There are {known}.")
        return tuple(self.table.column(at).to_pylist())

    @property
    def value(self) -> Any:  # noqa: ANN401 - whatever was asked for
        """The one value of an answer of one row and one column."""
        rows, columns = self.table.shape
        if (rows, columns) != (1, 1):
            raise SpecError(
                f"The answer has {rows:,} rows and {columns} columns.",
                fix="Use answer[column] or answer.rows.",
            )
        return self.rows[0][0]

    @property
    def margin(self) -> float | int | None:
        """The ± of `value` at 95 % confidence; `margins` has it at others, and of all cells."""
        _ = self.value
        widths = self.half_widths(0.95)[0]
        return None if widths is None else widths[0]

    @property
    def promise(self) -> str:
        """The guarantee in a sentence, or why there is none."""
        if self.practice:
            return "Practice: these numbers were made up, and say nothing about anybody."
        return str(self.guarantee) if self.questions else "Nothing private is in this answer."

    @property
    def free(self) -> bool:
        """Whether it was answered from the ledger, without a new charge."""
        return self.cost.epsilon == 0 and self.cost.delta == 0

    def margins(self, confidence: Number = 0.95) -> dict[str, HalfWidths]:
        """Half-widths of confidence intervals: the exact number is within ± this.

        For each cell by itself. The part of the noise is proven; that of contribution bounds,
        where their loss was estimated, rests on a model: `noise_margins` is the proven part, and
        `caveats` say what is not included. Columns and cells without error bars have None.
        """
        return dict(zip(self.columns, self.half_widths(confidence), strict=True))

    def noise_margins(self, confidence: Number = 0.95) -> dict[str, HalfWidths]:
        """The part of `margins` due to noise alone: proven, whatever the rows are."""
        widths = self.noise_widths or self.half_widths
        return dict(zip(self.columns, widths(confidence), strict=True))

    def within_noise(self, confidence: Number = 0.95) -> list[list[bool]]:
        """Row by row, which counts and sums are within their ± of 0.

        Such a number may be noise alone. This applies to counts and to sums of non-negative
        values; an average, a ratio or a difference may be near 0 anyway: False.
        """
        widths, amounts = self.half_widths(confidence), self.amounts()
        triples = zip(self.columns, self.table.columns, widths, strict=True)
        columns = [
            [is_noise(value, width) for value, width in zip(column.to_pylist(), each, strict=True)]
            if each is not None and name in amounts
            else [False] * len(column)
            for name, column, each in triples
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    # other forms

    def to_arrow(self, confidence: Number | None = None) -> "pa.Table":
        """The answer as an Arrow table; with a confidence, error bars have columns of their own.

        The margins of column ``n`` are called ``n_margin``.
        """
        import pyarrow as pa  # noqa: PLC0415 - only when asked for

        if confidence is None:
            return self.table
        arrays: list[Any] = []
        names: list[str] = []
        widths = self.half_widths(confidence)
        for name, column, each in zip(self.columns, self.table.columns, widths, strict=True):
            arrays.append(column)
            names.append(name)
            if each is not None:
                whole = all(width is None or isinstance(width, int) for width in each)
                arrays.append(pa.array(each, pa.int64() if whole else pa.float64()))
                names.append(f"{name}_margin")
        return pa.Table.from_arrays(arrays, names=names)

    def to_pandas(self, confidence: Number | None = None) -> "pd.DataFrame":
        """The answer as a pandas frame."""
        extra("pandas", "Frames of pandas")
        return self.to_arrow(confidence).to_pandas()

    def to_polars(self, confidence: Number | None = None) -> "pl.DataFrame":
        """The answer as a Polars frame."""
        return extra("polars", "Frames of Polars").DataFrame(self.to_arrow(confidence))  # type: ignore[no-any-return]

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain JSON values: columns, rows, margins, price, remaining and the guarantee."""
        return {
            "columns": list(self.columns),
            "rows": [
                [value.isoformat() if isinstance(value, date) else value for value in row]
                for row in self.rows
            ],
            "margins": self._plain_widths(self.half_widths, confidence),
            "noise_margins": self._plain_widths(self.noise_widths or self.half_widths, confidence),
            "within_noise": self.within_noise(confidence),
            "lower_bounds": list(self.lower()),
            "confidence": float(fraction(confidence)),
            "price": float(self.cost.epsilon),
            "price_delta": float(self.cost.delta),
            "remaining": None if self.remaining is None else float(self.remaining.epsilon),
            "remaining_delta": None if self.remaining is None else float(self.remaining.delta),
            "free": self.free,
            "guarantee": self.promise,
            "reused": list(self.reused),
            "caveats": self._caveats(),
            "practice": self.practice,
            "head": None if self.log.head is None else self.log.head.to_dict(),
        }

    def _plain_widths(
        self, widths: Callable[[Number], Sequence[HalfWidths]], confidence: Number
    ) -> list[list[float | int | None]]:
        """Row by row."""
        columns = [each or (None,) * len(self.rows) for each in widths(confidence)]
        return [list(row) for row in zip(*columns, strict=True)]

    def to_json(
        self,
        file: str | Path | None = None,
        confidence: Number = 0.95,
        *,
        sign: "Signer | None" = None,
    ) -> str:
        """`to_dict` as JSON text, also written to a file if one is named.

        With a `Signer` it also states the question, and can be checked by `noisegate verify`.
        """
        record = self.to_dict(confidence)
        if sign is not None:
            from noisegate.desk.signed import signed_answer  # noqa: PLC0415 - only when asked for

            record = signed_answer(self, record, sign)
        return also_in(json_text(record), file)

    def to_csv(self, file: str | Path | None = None, confidence: Number = 0.95) -> str:
        """Comma-separated rows with error bars, also written to a file if one is named.

        Text that a spreadsheet would evaluate gets an apostrophe: see `noisegate.read_csv`.
        """
        table = self.to_arrow(confidence)
        columns = (column.to_pylist() for column in table.columns)
        from noisegate.sheets import csv_text  # noqa: PLC0415 - quick answers

        return also_in(csv_text(table.column_names, list(zip(*columns, strict=True))), file)

    def to_parquet(self, file: str | Path, confidence: Number = 0.95) -> None:
        """A Parquet file with error bars; its metadata hold SQL, price and guarantee."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - only when asked for

        facts = {"sql": self.sql, "price": str(self.cost), "guarantee": str(self.guarantee)}
        facts |= {"confidence": str(confidence), "caveats": " ".join(self.caveats)}
        table = self.to_arrow(confidence)
        kept = {f"noisegate.{name}": text for name, text in facts.items()}
        with written(file) as path:
            pq.write_table(table.replace_schema_metadata(kept), path)

    def plot(self, confidence: Number = 0.95, **choices: str | None) -> Any:  # noqa: ANN401
        """A chart with error bars; see `noisegate.desk.display.plot.plot` for the choices."""
        from noisegate.desk.display.plot import plot  # noqa: PLC0415 - only when asked for

        return plot(self, confidence, **choices)

    def card(self, confidence: Number = 0.95) -> "Card":
        """The release card: what was measured and guaranteed, checkable against the ledger."""
        from noisegate.desk.card import card  # noqa: PLC0415 - only when asked for

        return card(self, confidence)

    # on a screen

    def cells(self, confidence: Number = 0.95) -> list[list[str]]:
        """The rows as text, with ± after every noisy number.

        ≈ 0 where the number may be noise alone, ≥ before a lower bound.
        """
        widths, amounts, lower = self.half_widths(confidence), self.amounts(), self.lower()
        triples = zip(self.columns, self.table.columns, widths, strict=True)
        columns = [
            list(map(bare, column.to_pylist()))
            if each is None
            else [
                (LEAST if name in lower and value is not None else "")
                + (marked if name in amounts else with_margin)(value, width)
                for value, width in zip(column.to_pylist(), each, strict=True)
            ]
            for name, column, each in triples
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    def footer(self, confidence: Number = 0.95) -> str:
        """Price, balance and what the ± means; then the caveats, one a line."""
        paid = f"price {self.cost}"
        if self.free:
            paid = "free: answered from the ledger" if self.questions else "free: no private row"
        if self.reused:
            paid += f" ({'; '.join(self.reused)})"
        if self.practice:
            paid = f"PRACTICE on made-up rows: nothing was paid ({paid})"
        line = paid if self.remaining is None else f"{paid} · left {self.remaining:left}"
        if self.table.num_rows and any(each is not None for each in self.half_widths(confidence)):
            line += f" · ± at {percent(confidence)} confidence"
        if any(ZERO in cell for row in self.cells(confidence) for cell in row):
            line += f"; {ZERO.strip()}: may be noise alone"
        if self.lower():
            line += f"; {LEAST.strip()}: a contribution bound leaves some out, by an unknown amount"
        return "\n".join([line, *self._caveats()])

    def _caveats(self) -> list[str]:
        """What the error bars do not cover, and which columns have none."""
        unknown = ", ".join(self.unfollowed())
        more = [f"No ± is known for {unknown}."] if unknown else []
        return [*self.caveats, *more]

    def __repr__(self) -> str:
        shown = self.cells()[:SHOWN_MAX]
        rows = aligned(self.columns, shown) if self.columns else ""
        left = more_than(len(shown), len(self), "rows")
        return lines("\n".join([rows, *left, self.footer().split("\n")[0]]))

    def __str__(self) -> str:
        rows = ["\t".join(map(line, self.columns)), *map("\t".join, self.cells())]
        return lines("\n".join([*rows, self.footer()]))

    def _repr_html_(self) -> str:
        from noisegate.desk.display.notebook import ROWS_MIN, image  # noqa: PLC0415
        from noisegate.desk.display.numbers import answer_html  # noqa: PLC0415 - notebooks only

        shown = answer_html(self, self.footer())
        known = (
            [each for each in column or () if each is not None] for column in self.half_widths(0.95)
        )
        if max(map(len, known), default=0) < ROWS_MIN:
            return shown
        from noisegate.desk.display.plot import plain  # noqa: PLC0415

        return shown + image(lambda: plain(self))


def also_in(text: str, file: str | Path | None) -> str:
    """A text, written to a file if one is named."""
    if file is not None:
        write(file, text)
    return text
