"""What an analyst holds: a table of noisy numbers with error bars, price, balance and guarantee."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from noisegate.desk.display.prompt import SHOWN_MAX, aligned, more_than
from noisegate.desk.noisy import NoisyTable
from noisegate.exact import Number
from noisegate.extras import extra
from noisegate.files import write, written
from noisegate.frozen import dataclass
from noisegate.inert import json_text, line, lines

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from noisegate.desk.card import Card
    from noisegate.ledger.signing import Signer


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Answer(NoisyTable):
    """Released numbers as a table. Reading it again draws nothing and costs nothing.

    ``for ward, n in answer``, ``answer["n"]``, ``answer[0]``, ``len(answer)``; ``answer.value``
    and ``answer.margin`` are the number of an answer that has one, and its ±.
    """

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

    def __repr__(self) -> str:
        shown = self.cells()[:SHOWN_MAX]
        rows = aligned(self.columns, shown) if self.columns else ""
        left = more_than(len(shown), len(self), "rows")
        return lines("\n".join([rows, *left, self.footer().split("\n")[0]]))

    def __str__(self) -> str:
        rows = ["\t".join(map(line, self.columns)), *map("\t".join, self.cells())]
        return lines("\n".join([*rows, self.footer()]))

    def _repr_html_(self) -> str:
        from noisegate.desk.display.drawing import ROWS_MIN, image  # noqa: PLC0415
        from noisegate.desk.display.tables import answer_html  # noqa: PLC0415 - notebooks only

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
