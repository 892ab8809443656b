"""What is said about a session of many questions: the plan, answers, the balance."""

from fractions import Fraction
from typing import Any, final

from noisegate.desk.display.numbers import LEAST, with_margin
from noisegate.desk.plan import Fact
from noisegate.exact import Number
from noisegate.frozen import dataclass, replace
from noisegate.privacy.loss import ApproxDP


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManyExpected:
    """The promise of a session. ``within`` is in the units of the count, at the ``confidence``.

    ``endless``: with the confidence, the surprises last for all questions, whatever they are.
    ``sure_within`` is the promise of such a session for the same price, where the rows are given.
    """

    columns: tuple[str, ...]
    cells: int
    questions: int
    surprises: int
    within: float
    number_within: float
    confidence: Fraction
    endless: bool
    sure_within: float | None = None
    sample: Fraction | None = None

    def facts(self, confidence: Number) -> list[Fact]:  # noqa: ARG002 - the session has its own
        """In words, one fact a line."""
        sure = f"all together at {float(self.confidence):.3g}"
        facts = [
            ("columns", f"{', '.join(self.columns)}: {self.cells:,} cells"),
            ("questions", f"{self.questions:,}"),
            ("answers", f"within ±{self.within:,.4g}, {sure}"),
            ("surprises", f"{self.surprises:,}, each answered within ±{self.number_within:,.4g}"),
        ]
        if self.sample is not None:
            words = f"each unit with probability {self.sample}, once for the first tables and once"
            facts.append(("sample", f"{words} for the session; what it adds comes on top"))
        if self.endless:
            facts.append(("proven", "the updates suffice for all questions"))
        elif self.sure_within is not None:
            sure = f"±{self.sure_within:,.4g} would be kept to the last question (sure)"
            facts.append(("proven", f"{sure}; here the updates may run out"))
        else:
            facts.append(("proven", "the promise; updates may run out, and then it ends"))
        return facts

    def margins(self, confidence: Number) -> dict[str, float | None]:  # noqa: ARG002 - its own
        """The ± of answers, and of those that are measured, at the confidence of the session."""
        return {"answer": self.within, "surprise": self.number_within}

    def to_dict(self, confidence: Number) -> dict[str, Any]:  # noqa: ARG002 - its own
        """Plain values, for JSON."""
        return {
            "columns": list(self.columns),
            "cells": self.cells,
            "questions": self.questions,
            "surprises": self.surprises,
            "within": self.within,
            "number_within": self.number_within,
            "confidence": float(self.confidence),
            "endless": self.endless,
            "sure_within": self.sure_within,
            "sample": None if self.sample is None else float(self.sample),
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManyAnswer:
    """A count. ``free``: it came from the model, and the door only said that it is near enough.

    The exact count lies within ± ``margin``, together with all others of the session, at its
    confidence. ``margin`` is None where nothing is promised: the session had no surprise left.
    ``caveats`` say which rows are not counted, or not wholly. ``lower``: it is a lower bound, as a
    contribution bound leaves some out.
    """

    sql: str
    value: int | float
    margin: float | None
    free: bool
    caveats: tuple[str, ...] = ()
    lower: bool = False

    def __int__(self) -> int:
        return round(self.value)

    def __float__(self) -> float:
        return float(self.value)

    @property
    def words(self) -> str:
        """Where it comes from."""
        if self.margin is None:
            return "from the model alone, without a promise: no update is left"
        return "from the model, checked" if self.free else "a surprise: measured"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "sql": self.sql,
            "value": self.value,
            "margin": self.margin,
            "free": self.free,
            "words": self.words,
            "caveats": list(self.caveats),
            "lower_bound": self.lower,
        }

    def __str__(self) -> str:
        noted = " ".join(["", *self.caveats])
        shown = with_margin(self.value, self.margin)
        return f"{LEAST if self.lower else ''}{shown} ({self.words}){noted}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManyBalance:
    """What a session has done so far."""

    asked: int
    surprises: int
    left: int
    spent: ApproxDP

    def __str__(self) -> str:
        return (
            f"{self.asked:,} questions, {self.surprises:,} updates ({self.left:,} left), "
            f"{self.spent} spent"
        )


def named(sql: str, answer: ManyAnswer) -> ManyAnswer:
    """The same answer, to this spelling of the question."""
    return replace(answer, sql=sql)
