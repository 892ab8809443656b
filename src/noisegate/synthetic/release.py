"""Synthetic rows with a guarantee: to be reported, saved and read again at no cost."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, final

import pyarrow as pa
from pyarrow import csv

from noisegate.desk.card import Card
from noisegate.desk.card import card as card_of
from noisegate.desk.display.plot import write
from noisegate.desk.release import ENDINGS, loading, read_held
from noisegate.exact import Number as Numeric
from noisegate.files import written
from noisegate.frozen import dataclass
from noisegate.sheets import csv_table
from noisegate.sql.spelling import quoted
from noisegate.synthetic.model.fitted import FORMAT, Fitted
from noisegate.synthetic.report import Report, picture, report
from noisegate.synthetic.rows import SyntheticRows

_MODEL: Final = "noisegate.model"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SyntheticRelease(SyntheticRows):
    """Synthetic rows in the schema of a table. No row belongs to a person."""

    kind: ClassVar[str] = "synthetic"
    form: ClassVar[str] = FORMAT
    endings: ClassVar[tuple[str, ...]] = (*ENDINGS, ".arrow", ".duckdb")

    def report(self, confidence: Numeric = 0.95) -> Report:
        """The distance of the rows from what was measured: text, Markdown and HTML."""
        return report(self, confidence)

    def plot(  # type: ignore[override]  # a column comes first: made.plot("age")
        self, x: str | None = None, confidence: Numeric = 0.95
    ) -> Any:  # noqa: ANN401 - altair may be missing
        """A column as measured, with error bars, beside the synthetic rows: an altair chart."""
        return picture(self, x or self.fitted.layout.axes[0].name, confidence)

    def card(self, confidence: Numeric = 0.95) -> Card:
        """The release card: what was promised, and the tables that were measured with their ±."""
        if self.stated is not None:
            return self.stated
        lines = self.report(confidence).lines
        tables = [
            {
                "name": " × ".join(line.names) or "all rows",
                "error": {"least": line.margin, "most": line.margin},
            }
            for line in lines
        ]
        return Card({**card_of(self.answer(), confidence).record, "columns": tables})

    # files

    def writers(self, path: Path, confidence: Numeric) -> dict[str, Callable[[], Any]]:
        """The rows in many formats; a plot of the first column, the report, and the card."""
        drawn: Callable[[], Any] = lambda: write(self.plot(confidence=confidence), path)  # noqa: E731
        return super(SyntheticRelease, self).writers(path, confidence) | {  # noqa: UP008 - slots
            ".png": drawn,
            ".svg": drawn,
            ".csv": lambda: self._save_csv(path),
            ".arrow": lambda: self._save_arrow(path),
            ".duckdb": lambda: self._save_duckdb(path),
            ".html": lambda: self.report(confidence).save(path),
        }

    def _save_csv(self, path: Path) -> None:
        with written(path):
            csv.write_csv(csv_table(self.to_arrow()), str(path))

    def _save_arrow(self, path: Path) -> None:
        table = self.to_arrow()
        with (
            written(path),
            pa.OSFile(str(path), "wb") as sink,
            pa.ipc.new_file(sink, table.schema) as writer,
        ):
            writer.write_table(table)

    def _save_duckdb(self, path: Path) -> None:
        import duckdb  # noqa: PLC0415 - only when asked for

        name = quoted(self.fitted.layout.table)
        with written(path), duckdb.connect(str(path)) as connection:
            connection.register("synthetic_rows", self.to_arrow())
            connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM synthetic_rows")  # noqa: S608 - quoted

    def record(self) -> dict[str, Any]:
        """Nothing else: the model stands beside it."""
        return {}

    def facts(self) -> dict[str, str]:
        """The model and the tables it was fitted to."""
        return {_MODEL: b64encode(self.fitted.to_bytes()).decode()}

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "SyntheticRelease":
        """The release that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        fitted, _ = Fitted.from_bytes(b64decode(record["facts"][_MODEL]))
        kept = {"table": table.replace_schema_metadata(None)}
        return cls(fitted=fitted, count=table.num_rows, _kept=kept, **record["standing"])

    def to_dict(self, confidence: Numeric = 0.95) -> dict[str, Any]:
        """Plain JSON values: the rows, price, guarantee, method and report."""
        said = self.answer().to_dict(confidence) | {"sql": self.sql, "method": self.method}
        del said["margins"]  # rows have none
        return said | {"report": self.report(confidence).to_dict()}
