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
        return "\n".join(f"{name:12}{fact}" for name, fact in self.facts())

    def facts(self, confidence: Number = 0.95) -> list[tuple[str, str]]:
        """The plan in words, one fact a line."""
        query, mechanism = self.measurement.query, to_record(self.measurement.mechanism)
        name = str(mechanism.pop("mechanism")).partition("/")[0]
        terms = ", ".join(f"{term} {value}" for term, value in mechanism.items())
        cells = query.tally.cells
        return [
            ("columns", f"{', '.join(self.columns)} ({cells} number{'s' if cells > 1 else ''})"),
            ("noise", f"{name}, {terms}"),
            ("because", "; ".join(query.path)),
            ("error", f"± {self.margin(confidence):,} each, at {float(confidence):.0%} confidence"),
            ("price", f"{self.price}" + ("" if self.fits else " (more than is left)")),
        ]
