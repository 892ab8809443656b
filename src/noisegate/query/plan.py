"""A question before it is paid for: price, noise, error and why. Made without touching a row."""

from dataclasses import dataclass
from typing import Any, final

from noisegate.curator.measurement import Measurement
from noisegate.exact import Number, fraction
from noisegate.mechanisms.base import to_record
from noisegate.privacy.loss import ApproxDP


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be measured, what it would cost now, and how far the answer may be off."""

    measurement: Measurement
    key_column: str | None
    count_column: str
    price: ApproxDP  # 0 if the question was answered before
    fits: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the answer's columns."""
        keys = () if self.key_column is None else (self.key_column,)
        return (*keys, self.count_column)

    def margin(self, confidence: Number = 0.95) -> int:
        """The half-width of each number's error: public, the same whatever the data."""
        return self.measurement.mechanism.interval(fraction(confidence, name="confidence"))

    def to_dict(self, confidence: Number = 0.95) -> dict[str, Any]:
        """Plain values, for --json."""
        query = self.measurement.query
        return {
            "columns": list(self.columns),
            "cells": query.tally.cells,
            "mechanism": to_record(self.measurement.mechanism),
            "sensitivity": str(query.l1.value),
            "stability": list(query.path),
            "margin": self.margin(confidence),
            "confidence": float(confidence),
            "price": float(self.price.epsilon),
            "price_delta": float(self.price.delta),
            "fits": self.fits,
        }

    def __str__(self) -> str:
        facts = self.to_dict()
        lines = [
            f"columns     {', '.join(self.columns)} ({facts['cells']} cells)",
            f"mechanism   {facts['mechanism']}",
            f"stability   {'; '.join(facts['stability'])}",
            f"error       ± {facts['margin']:,} per cell at 95% confidence",
            f"price       {self.price}" + ("" if self.fits else " (more than is left)"),
        ]
        return "\n".join(lines)
