"""Synthetic rows before they are drawn: tables and noise. Made without a row."""

from typing import Any, final

from noisegate.desk.display.numbers import percent
from noisegate.desk.plan import Fact
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of
from noisegate.releases.cells.estimate import tail_factor


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticExpected:
    """What would be measured, for what, and with how much noise.

    ``columns`` are names and numbers of cells. ``rms`` is the noise of each cell if all ``tables``
    of the workload were measured with equal shares; a synthesizer that chooses some does better.
    ``noise`` is that of a cell of what the method will measure, whatever the rows are: what it is,
    the least and the most. How far the model is off without noise depends on the rows, and is not
    in it. The model has at most ``model_cells``.
    """

    columns: tuple[tuple[str, int], ...]
    method: str
    workload: str
    tables: int
    cells: int
    model_cells: int
    rms: float
    noise: tuple[tuple[str, float, float], ...]
    gaussian: bool

    def margin(self, confidence: Number = 0.95) -> float:
        """The ± of a cell if all tables were measured with equal shares."""
        return self.rms * tail_factor(float(failure_of(confidence)), gaussian=self.gaussian)

    def reaches(self, confidence: Number = 0.95) -> dict[str, tuple[float, float]]:
        """The ± of a cell of what will be measured, from the least to the most: noise alone."""
        factor = tail_factor(float(failure_of(confidence)), gaussian=self.gaussian)
        return {what: (factor * low, factor * high) for what, low, high in self.noise}

    def margins(self, confidence: Number) -> dict[str, float | None]:  # noqa: ARG002 - as others
        """The error depends on the rows."""
        return {"cell": None}

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        columns = ", ".join(f"{name} ({size})" for name, size in self.columns)
        cells = [
            f"{what} ± {low:.3g}" + (f" to {high:.3g}" if high > 1.005 * low else "")
            for what, (low, high) in self.reaches(confidence).items()
        ]
        return [
            ("columns", f"{columns} cells"),
            ("method", self.method),
            ("for", f"{self.workload}: {_of(self.tables, 'table')} with {_of(self.cells, 'cell')}"),
            ("noise", f"of a cell of {'; of '.join(cells)}; at {percent(confidence)} confidence"),
            ("error", "depends on the rows: the error of the model comes on top of the noise"),
            ("model", f"at most {self.model_cells:,} cells"),
        ]

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "columns": dict(self.columns),
            "method": self.method,
            "workload": self.workload,
            "tables": self.tables,
            "cells": self.cells,
            "model_cells": self.model_cells,
            "margin": self.margin(confidence),
            "noise": {what: list(ends) for what, ends in self.reaches(confidence).items()},
        }


def _of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
