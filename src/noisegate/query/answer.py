"""What an analyst holds: a table of noisy numbers with error bars, price, balance and guarantee."""

from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, final

from noisegate.exact import Number
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.query.plan import Plan

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A stored release, shown. Reading it again never draws again and never costs."""

    plan: Plan
    rows: tuple[tuple[Any, ...], ...]
    cost: ApproxDP
    remaining: ApproxDP
    guarantee: Guarantee
    request_id: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order asked for."""
        return self.plan.columns

    @property
    def free(self) -> bool:
        """Whether it was answered from the ledger, without a new charge."""
        return self.cost.epsilon == 0 and self.cost.delta == 0

    def margins(self, confidence: Number = 0.95) -> dict[str, tuple[int, ...]]:
        """Half-widths: the exact number lies within ± this of the shown one, so confidently.

        The statement is about the noise alone, for each cell by itself: where rows per unit are
        capped, about the capped number.
        """
        margin = self.plan.margin(confidence)
        return {self.plan.count_column: tuple(margin for _ in self.rows)}

    def to_arrow(self) -> "pa.Table":
        """The answer as an Arrow table."""
        import pyarrow as pa  # noqa: PLC0415 - only when asked for

        values = list(zip(*self.rows, strict=True)) or [() for _ in self.columns]
        return pa.table(dict(zip(self.columns, map(list, values), strict=True)))

    def to_pandas(self) -> "pd.DataFrame":
        """The answer as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """The answer as a Polars frame."""
        import polars as pl  # noqa: PLC0415 - only when asked for

        return pl.DataFrame(self.to_arrow())

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values: columns, rows, margins, price, remaining and the guarantee."""
        margin = self.plan.margin(confidence)
        shown = [[None] * (len(row) - 1) + [margin] for row in self.rows]
        return {
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "margins": shown,
            "confidence": float(confidence),
            "rows_per_unit": self.plan.measurement.query.table.rows_per_unit_max,
            "price": float(self.cost.epsilon),
            "price_delta": float(self.cost.delta),
            "remaining": float(self.remaining.epsilon),
            "remaining_delta": float(self.remaining.delta),
            "free": self.free,
            "guarantee": str(self.guarantee),
        }

    def cells(self, confidence: Number = 0.95) -> list[list[str]]:
        """The rows as text, with ± behind every noisy number."""
        margin = self.plan.margin(confidence)
        return [[*map(str, row[:-1]), f"{row[-1]:,} ± {margin:,}"] for row in self.rows]

    def footer(self, confidence: Number = 0.95) -> str:
        """Price, balance and what the ± means, in one line."""
        paid = "free: answered from the ledger" if self.free else f"price {self.cost}"
        line = f"{paid} · left {self.remaining:left} · ± at {float(confidence):.0%} confidence"
        table = self.plan.measurement.query.table
        if table.rows_per_unit_max is None:
            return line
        return f"{line}, with at most {table.rows_per_unit_max} rows of one {table.unit.noun}"

    def __str__(self) -> str:
        return "\n".join(["\t".join(self.columns), *map("\t".join, self.cells()), self.footer()])

    def _repr_html_(self) -> str:
        row = partial(_html_row, tag="td")
        body = "".join(row(cells) for cells in self.cells())
        head = _html_row(list(self.columns), tag="th")
        return (
            f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
            f"<p><small>{escape(self.footer())}<br>{escape(str(self.guarantee))}</small></p>"
        )


def _html_row(cells: list[str], *, tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
