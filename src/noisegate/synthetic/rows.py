"""Synthetic rows and the model that they are drawn from: to be drawn and asked at no cost.

What is kept is the evidence (noisy tables and their variances) and the model that was fitted to it.
Rows are drawn from the model when they are needed: that is public arithmetic, so the same rows come
out again, and another number of them costs nothing.
"""

from collections.abc import Mapping
from math import ceil, sqrt
from typing import Any, Final

import numpy as np
import pyarrow as pa

from noisegate.desk.answer import Answer
from noisegate.desk.release import Charged
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction
from noisegate.frozen import dataclass, field
from noisegate.mechanisms.base import failure_of
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.forms.numbers import Number
from noisegate.synthetic.columns import Cells
from noisegate.synthetic.model.bars import direct, likely, reach
from noisegate.synthetic.model.constraints import masks_of, places
from noisegate.synthetic.model.fitted import Fitted

ROWS_MAX: Final = 100_000_000
_SHOWN: Final = 20  # rows on a screen
_NOBODYS: Final = (
    "The rows are synthetic: none belongs to a person. The report states how far their tables may "
    "be off."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SyntheticRows(Charged):
    """Rows in the schema of a table, and what they say about the original."""

    fitted: Fitted
    count: int
    _kept: dict[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, as in the original."""
        return tuple(column.name for column in self.fitted.layout.columns)

    @property
    def method(self) -> str:
        """The synthesizer that made it."""
        return self.fitted.method

    @property
    def words(self) -> tuple[str, ...]:
        """What was done."""
        return self.fitted.words

    @property
    def total(self) -> Number:
        """The number of rows of the original."""
        return self.query()

    # rows

    @property
    def cells(self) -> Cells:
        """The rows as numbers of cells of the measured columns."""
        if "cells" not in self._kept:
            fitted = self.fitted
            self._kept["cells"] = fitted.draw(self.count, seed=fitted.seed, given={})
        found: Cells = self._kept["cells"]
        return found

    def to_arrow(self, confidence: Numeric | None = None) -> pa.Table:  # noqa: ARG002 - no ±
        """The rows."""
        if "table" not in self._kept:
            layout = self.fitted.layout
            self._kept["table"] = layout.decode(self.cells, seed=self.fitted.seed)
        return self._kept["table"]

    def sample(
        self, rows: int, where: Mapping[str, Any] | None = None, *, seed: int = 0
    ) -> pa.Table:
        """More rows of the same model, free: ``made.sample(500, where={"ward": "north"})``.

        A condition on a column is a key, a list of keys, or a pair (low, high). Another ``seed``
        gives other rows.
        """
        require_rows(rows)
        if type(seed) is not int or not 0 <= seed < 1 << 32:
            raise SpecError("The seed is not a number of 32 bits.", fix="Use 0, 1, 2, …")
        given = places(self.fitted.layout, where or {})
        own = self.fitted.seed ^ (seed + 1)
        cells = self.fitted.draw(rows, seed=own, given=given)
        return self.fitted.layout.decode(cells, seed=own)

    # asking

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The number of such rows in the original: ``made.query(age=(20, 39), ward="north")``.

        It comes from the model, which is more accurate than counting synthetic rows. The exact
        number is within its ±, at the confidence, for each question by itself. Where a measured
        table holds all its columns, that is proven; else it rests on a model: columns say no more
        about each other than measured tables do. `bounds` are proven for all questions.
        """
        return self._number(confidence, where, proven=False)

    def bounds(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The same number with a ± that is proven whatever the rows are, and often wide."""
        return self._number(confidence, where, proven=True)

    def _number(self, confidence: Numeric, where: Mapping[str, Any], *, proven: bool) -> Number:
        fitted, sampling = self.fitted, self.fitted.sampling
        failure = float(failure_of(confidence)) / (1 if sampling is None else 2)
        cells, sizes = places(fitted.layout, where), fitted.layout.sizes
        grain, masks = float(fitted.grain), masks_of(sizes, cells)
        shown = fitted.model.total * fitted.model.part(cells)
        known = None if fitted.total is None else fitted.total / grain
        evidence = (*fitted.evidence, *(each.evidence(0.0) for each in fitted.impossible))
        low, high = reach(
            sizes, evidence, masks, failure=failure, gaussian=fitted.gaussian, total=known
        )
        shown = min(max(shown, low), high)
        if not proven and direct(sizes, evidence, masks, known) is None:
            variance = likely(sizes, evidence, masks, shown, max(fitted.model.total, 1.0))
            half = tail_factor(failure, gaussian=False) * sqrt(variance)
            low, high = max(low, shown - half), min(high, shown + half)
        value = round(shown * grain)
        half = max(high * grain - value, value - low * grain, 0)
        if sampling is not None:
            half = float(sampling.widened(np.array([value]), np.array([half]), failure)[0])
        margin = ceil(half - 1e-9) if np.isfinite(half) else None
        return Number(value=value, margin=margin, confidence=fraction(confidence))

    def answer(self, rows: int | None = None) -> Answer:
        """The rows, or the first of them, as an answer: no column has error bars."""
        table = self.to_arrow() if rows is None else self.to_arrow().slice(0, rows)
        left = self.count - table.num_rows
        more = [f"{left:,} more rows."] if left else []
        no_widths = (None,) * len(self.columns)
        return self.stating(table, lambda _: no_widths, (*more, _NOBODYS, *self.words))

    def shown(self, confidence: Numeric = 0.95) -> Answer:  # noqa: ARG002 - its cells follow
        """Its first rows as an answer, for a screen."""
        return self.answer(_SHOWN)

    @property
    def headline(self) -> str:
        """The number of rows, and the method."""
        return f"{self.count:,} synthetic rows by {self.method!r}"

    def __len__(self) -> int:
        return self.count


def require_rows(rows: int) -> None:
    """A number of rows that can be drawn."""
    if type(rows) is not int or not 1 <= rows <= ROWS_MAX:
        raise SpecError(
            f"{rows!r} is not a valid number of rows.", fix=f"Use 1 to {ROWS_MAX:,}.", about="rows"
        )
