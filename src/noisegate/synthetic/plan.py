"""Synthetic rows before they are paid for: price, tables and noise. Made without a row."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

from noisegate.exact import Number
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.loss import ApproxDP
from noisegate.query.display import percent
from noisegate.releases.tails import tail_factor


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticPlan:
    """What would be measured, for what, and with how much noise.

    ``columns`` are names and numbers of cells. ``rms`` is the noise of each cell if all ``tables``
    of the workload were measured with equal shares; a synthesizer that chooses some does better.
    The model has at most ``model_cells``. ``price`` is what releasing now would charge.
    """

    sql: str
    columns: tuple[tuple[str, int], ...]
    method: str
    workload: str
    tables: int
    cells: int
    model_cells: int
    epsilon: Fraction
    price: ApproxDP
    fits: bool
    rms: float
    gaussian: bool
    words: tuple[str, ...] = ()

    def margin(self, confidence: Number = 0.95) -> float:
        """The ± of a cell if all tables were measured with equal shares."""
        return self.rms * tail_factor(float(failure_of(confidence)), gaussian=self.gaussian)

    def facts(self, confidence: Number = 0.95) -> list[tuple[str, str]]:
        """The plan in words, one fact a line."""
        columns = ", ".join(f"{name} ({size})" for name, size in self.columns)
        width = f"± {self.margin(confidence):.3g} at {percent(confidence)} confidence"
        paid = f"{self.price}" + ("" if self.fits else " (more than is left)")
        free = self.price.epsilon == 0 and self.price.delta == 0
        return [
            ("columns", f"{columns} cells"),
            ("method", self.method),
            ("for", f"{self.workload}: {_of(self.tables, 'table')} with {_of(self.cells, 'cell')}"),
            ("error", f"depends on the rows; with equal shares for all tables {width} a cell"),
            ("model", f"at most {self.model_cells:,} cells"),
            *(("mind", words) for words in self.words),
            ("price", "free: released before" if free else paid),
        ]

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values, for --json."""
        return {
            "sql": self.sql,
            "columns": dict(self.columns),
            "method": self.method,
            "workload": self.workload,
            "tables": self.tables,
            "cells": self.cells,
            "model_cells": self.model_cells,
            "epsilon": float(self.epsilon),
            "price": float(self.price.epsilon),
            "price_delta": float(self.price.delta),
            "fits": self.fits,
            "margin": self.margin(confidence),
            "confidence": float(confidence),
            "words": list(self.words),
        }

    def __str__(self) -> str:
        return "\n".join(f"{name:10}{fact}" for name, fact in self.facts())

    def _repr_html_(self) -> str:
        from noisegate.query.display import facts_html  # noqa: PLC0415 - notebooks only

        return facts_html(self.facts())


def _of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
