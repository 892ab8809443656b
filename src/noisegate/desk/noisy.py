"""Released numbers as a table with error bars: what every form of an answer is made from."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, TypeAlias

from noisegate.desk.display.numbers import (
    LEAST,
    OPEN,
    ZERO,
    bare,
    is_noise,
    marked,
    percent,
    with_margin,
)
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.ledger.verify.anchor import NO_LOG, Log
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP

if TYPE_CHECKING:
    import pyarrow as pa

    from noisegate.desk.plan import Plan


HalfWidths: TypeAlias = tuple[float | int | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NoisyTable:
    """A table with error bars, price, balance and guarantee.

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
    lower: Callable[[], Sequence[str]] = tuple  # lower bounds: a cap cuts off some
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
        cells = [cell for row in self.cells(confidence) for cell in row]
        if any(ZERO in cell for cell in cells):
            line += f"; {ZERO.strip()}: may be noise alone"
        if any(cell.endswith(OPEN) for cell in cells):
            line += f"; {OPEN.strip()}: no bound on the error is known"
        if self.lower():
            line += f"; {LEAST.strip()}: a contribution bound leaves some out, by an unknown amount"
        return "\n".join([line, *self._caveats()])

    def _caveats(self) -> list[str]:
        """What the error bars do not cover, and which columns have none."""
        unknown = ", ".join(self.unfollowed())
        more = [f"No ± is known for {unknown}."] if unknown else []
        return [*self.caveats, *more]
