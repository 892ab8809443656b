"""Which of many overlapping questions reach a threshold: paid by the few that do, not by all.

The questions are declared before: sums over boxes of cells, in an order. Each is answered yes or
no, up to a number of yeses; then the run ends. Nothing else leaves: no count, and no more answers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, prod
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Required, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.accounting.search import digits_up
from noisegate.algebra.relation import Sampled
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.drawing import Chart, altair
from noisegate.desk.display.numbers import percent, with_margin
from noisegate.desk.display.plot import framed
from noisegate.desk.job import Measured, Receipt
from noisegate.desk.order import Box
from noisegate.desk.plan import Fact
from noisegate.desk.release import Charged, loading, read_held
from noisegate.desk.terms.price import inner_price
from noisegate.desk.terms.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import failure_of, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.mechanisms.selection.above_threshold import AboveThreshold
from noisegate.privacy.distance import L1
from noisegate.privacy.release import Release as Measurements
from noisegate.releases.ask.order import CellsOrder, CellsTerms
from noisegate.releases.cells.axes import Axis
from noisegate.releases.cells.grid import Grid, asked_sql, grid_of
from noisegate.releases.cells.workload import Workload, boxes_matrix
from noisegate.releases.forms.provenance import spec_of, workload_of
from noisegate.sql.laws.laws import Draws, Law
from noisegate.sql.laws.sampling import Sampling, sampling_of
from noisegate.sql.reading.reader import read
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Strategy

_BARS_MAX: Final = 40  # in a picture
_YES, _NO, _OPEN = "reaches it", "does not", "no answer"


class AboveTerms(CellsTerms, total=False):
    """What is compared; see `AboveOrder`."""

    questions: Required[str | Sequence[Box] | Workload]
    threshold: Required[Number]
    most: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AboveOrder(CellsOrder["AboveRelease", "AboveExpected"]):
    """Which of many sums reach a threshold.

    ``questions`` are ranges by the names of axes, ``[{"age": (20, 39)}, …]``, or "cells",
    "prefixes", "ranges". ``threshold`` is in the units of the sum. The run ends after ``most``
    yeses: fewer are more accurate at the same price.
    """

    name: Literal["above"] = "above"
    questions: str | Sequence[Box] | Workload
    threshold: Number
    most: int = 10

    def job(self, desk: Desk) -> "AboveJob":
        """What is to be compared; whatever is wrong with the order is refused here, at no cost."""
        grid, epsilon = _grid(desk, self)
        asked = workload_of(spec_of(self.questions, grid.axes), grid.shape)
        if self.most < 1:
            raise SpecError(f"most is {self.most!r}.", fix="Use a whole number of at least 1.")
        tally, sampling = grid.query.tally, None
        if grid.sample is not None:
            if grid.signed:
                raise SpecError(
                    "The sampling error is not known for sums that may be negative.",
                    fix="Use a sum of non-negative terms, or the gate itself.",
                    about="sign",
                )
            tally = replace(tally, relation=Sampled(tally.relation, grid.sample))
            sampling = sampling_of(grid.sample, grid.moved, grid.grain)
        query = Query(tally, Strategy(prod(grid.shape), (boxes_matrix(asked),)))
        threshold = fraction(self.threshold, name="threshold")
        noise = AboveThreshold.for_epsilon(
            inner_price(desk.step(epsilon), grid.sample),
            threshold=ceil(threshold / grid.grain),
            sensitivity=query.moved,
            cutoff=min(self.most, asked.size),
            monotone=not grid.signed,
        )
        bar = Bar(threshold=threshold, noise=noise, grain=grid.grain, sampling=sampling)
        cells = desk.funds(epsilon).noise(Fraction(1), l1=L1(grid.moved), l2=grid.query.l2s[0])
        return AboveJob(
            sql=grid.sql,
            epsilon=epsilon,
            expected=AboveExpected(bar=bar, asked=asked, cells=cells),
            notes=grid.caveats,
            measurement=Measurement(query=query, mechanisms=(noise,)),
            axes=grid.axes,
            cut=grid.cut,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A threshold in the units of the sum, and the noise of all comparisons with it."""

    threshold: Fraction
    noise: AboveThreshold
    grain: Fraction
    sampling: Sampling | None

    def margin(self, questions: int, confidence: Number) -> Fraction:
        """How far all answers may be off; of a sample, half of what may fail is for sampling.

        Why: a yes is a sum of the sample of at least the threshold less the noise, and a no one of
            less than the threshold and the noise; sums of all units lie within `Sampling.bounds` of
            these, for all questions at once, and bounds rise with the number. Rounding: up.
        """
        if self.sampling is None:
            return self.noise.accuracy(confidence, questions=questions) * self.grain
        failure = failure_of(confidence) / 2
        off = self.noise.accuracy(1 - failure, questions=questions) * self.grain
        ends = np.array([float(self.threshold)]), np.array([float(off)])
        (wide,) = self.sampling.widened(*ends, float(failure / questions)).tolist()
        return digits_up(Fraction(wide))

    def words(self, questions: int, confidence: Number) -> str:
        """The threshold with its ±, and how surely it holds."""
        middle, off = float(self.threshold), float(self.margin(questions, confidence))
        whole = self.threshold.denominator == 1
        said = with_margin(int(middle) if whole else middle, off)
        return f"{said} at {percent(confidence)} confidence for all together"

    def to_record(self) -> dict[str, Any]:
        """It as plain values."""
        return {
            "threshold": str(self.threshold),
            "noise": to_record(self.noise),
            "grain": str(self.grain),
            "sampling": None if self.sampling is None else self.sampling.to_record(),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Bar":
        """What `to_record` said."""
        noise = from_record(record["noise"])
        if not isinstance(noise, AboveThreshold):
            raise SpecError(
                "The file does not hold threshold questions.", fix="Use it as written by save()."
            )
        return cls(
            threshold=Fraction(record["threshold"]),
            noise=noise,
            grain=Fraction(record["grain"]),
            sampling=Sampling.from_record(record["sampling"]),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AboveRelease(Charged):
    """A yes or no for each of the ``questions`` that came before the run ended.

    Every yes is a sum of at least ``threshold`` - ``margin`` and every no one of less than
    ``threshold`` + ``margin``, all at once, at the confidence of `margin_at`.
    """

    kind: ClassVar[str] = "above"
    form: ClassVar[str] = "noisegate-above/1"
    axes: tuple[Axis, ...]
    questions: Workload
    answers: NDArray[np.bool_]
    bar: Bar
    words: tuple[str, ...]

    @property
    def threshold(self) -> Fraction:
        """What sums are compared with, in their units."""
        return self.bar.threshold

    @property
    def complete(self) -> bool:
        """Whether all questions were answered."""
        return self.answers.size == self.questions.size

    @property
    def yes(self) -> list[dict[str, str]]:
        """The questions that reach the threshold, by the names of axes."""
        return [self.asked(place) for place in np.flatnonzero(self.answers).tolist()]

    def asked(self, place: int) -> dict[str, str]:
        """A question as people read it: keys by the names of the axes of which it names some."""
        ends = zip(self.axes, self.questions.lows[place], self.questions.highs[place], strict=True)
        return {
            axis.name: axis.span(low, high)
            for axis, low, high in ends
            if (low, high) != (0, axis.size - 1)
        }

    def margin_at(self, confidence: Number = 0.95) -> Fraction:
        """How far all answers may be off, in the units of the sum. Rounding: up."""
        return self.bar.margin(self.questions.size, confidence)

    def answer(self, rows: int | None = None) -> Answer:
        """A row for each question that was answered: what it asks, and whether it is reached."""
        count = self.answers.size if rows is None else min(rows, self.answers.size)
        words = pa.array([self._said(place) for place in range(count)], pa.string())
        table = pa.table({"question": words, "reaches": pa.array(self.answers[:count])})
        ended = () if self.complete else ("The last yes that was paid for ended the run.",)
        return self.stating(table, lambda _: (None, None), (*ended, *self.words))

    def plot(self, confidence: Number = 0.95, title: str | None = None) -> Chart:
        """What is known of the sum of each question beside the threshold, an altair chart.

        Of many questions, those that reach it. ``.save("x.png")`` writes it.
        """
        alt = altair()
        said = [_YES if yes else _NO for yes in self.answers.tolist()]
        said += [_OPEN] * (self.questions.size - len(said))
        every = list(range(len(said)))
        few = every if len(said) <= _BARS_MAX else [i for i in every if said[i] == _YES] or every
        shown = few[:_BARS_MAX]
        left = Counter(said) - Counter(said[place] for place in shown)
        words = ", ".join(f"{count:,} {answer!r}" for answer, count in left.items())
        notes = [f"Not drawn: {words}."] if words else []
        middle, off = float(self.threshold), float(self.margin_at(confidence))
        least, most = middle - 2 * off, middle + 2 * off
        least = max(0.0, least) if self.bar.noise.monotone else least
        known = {
            _YES: (max(least, middle - off), most),
            _NO: (least, middle + off),
            _OPEN: (least, most),
        }
        asked = {place: f"{place + 1}. {self._said(place)}" for place in shown}
        points = [
            {"question": words, "answer": said[place], "from": ends[0], "to": ends[1]}
            for place, words in asked.items()
            for ends in [known[said[place]]]
        ]
        sure = self.bar.words(self.questions.size, confidence)
        scale = alt.Scale(domain=[least, most], nice=False)
        across = alt.X("from:Q", title=f"sum (threshold {sure})", scale=scale)
        down = alt.Y(
            "question:N", sort=list(asked.values()), title=None, axis=alt.Axis(labelLimit=360)
        )
        color = alt.Scale(domain=[_YES, _NO, _OPEN], range=["#5b8cc0", "#e08214", "#dddddd"])
        bars = alt.Chart(alt.InlineData(values=points)).mark_bar(height=10).encode(
            x=across, x2="to:Q", y=down,
            color=alt.Color("answer:N", title="where the sum lies", scale=color),
        )  # fmt: skip
        line = alt.Chart(alt.InlineData(values=[{"at": middle}])).mark_rule(strokeDash=[4, 3])
        chart = alt.layer(bars, line.encode(x="at:Q")).properties(width=420, height=alt.Step(18))
        return framed(chart, self.answer(0), title=title, notes=notes)

    def _said(self, place: int) -> str:
        return " · ".join(f"{name}: {keys}" for name, keys in self.asked(place).items()) or "all"

    def record(self) -> dict[str, Any]:
        """Axes, questions and noise, from which the ± follows."""
        return {
            "axes": [axis.to_record() for axis in self.axes],
            "questions": spec_of(self.questions, self.axes),
            "bar": self.bar.to_record(),
            "words": list(self.words),
        }

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "AboveRelease":
        """The release that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        axes = tuple(map(Axis.from_record, record["axes"]))
        return cls(
            axes=axes,
            questions=workload_of(record["questions"], tuple(axis.size for axis in axes)),
            answers=table.column("reaches").to_numpy(),
            bar=Bar.from_record(record["bar"]),
            words=tuple(record["words"]),
            **record["standing"],
        )

    @property
    def headline(self) -> str:
        """How many reach the threshold, and how surely."""
        reach = f"{int(self.answers.sum()):,} reach {self.bar.words(self.questions.size, 0.95)}"
        return f"{reach}, of {self.answers.size:,} answered ({self.questions.size:,} asked)"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AboveExpected:
    """How many questions would be compared with the threshold, and how far all may be off."""

    bar: Bar
    asked: Workload
    cells: Geometric | DiscreteGaussian | None = None  # of plain cells for the same price

    def margin(self, confidence: Number = 0.95) -> Fraction:
        """How far all answers may be off together, in the units of the sum. Rounding: up."""
        return self.bar.margin(self.asked.size, confidence)

    def plain(self, confidence: Number = 0.95) -> float | None:
        """How far the same sums may be off together if the cells were released instead."""
        if self.cells is None or self.bar.sampling is not None:
            return None
        largest = int(np.prod(self.asked.highs - self.asked.lows + 1, axis=1).max())
        failure = failure_of(confidence) / self.asked.size
        law = Law((Draws(self.bar.grain, largest, self.cells),))
        return law.half_width(1 - failure)

    def advice(self, confidence: Number) -> str | None:
        """Which of both errs less."""
        plain, own = self.plain(confidence), float(self.margin(confidence))
        if plain is None:
            return None
        better = (
            "plain cells would err less, and show the sums"
            if plain <= own
            else "comparing errs less"
        )
        return f"sums of plain cells for the same price: ± {plain:,.4g}; {better}"

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        return [
            ("asked", f"{self.asked.words} ({self.asked.size:,} questions)"),
            ("answered", f"yes or no, up to {self.bar.noise.cutoff:,} yes"),
            ("error", f"threshold {self.bar.words(self.asked.size, confidence)}"),
            *([] if (words := self.advice(confidence)) is None else [("instead", words)]),
        ]

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of the threshold, for all answers together."""
        return {"threshold": float(self.margin(confidence))}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = self.plain(confidence)
        return {
            "plain_cells": None if plain is None else round(plain, 9),
            "workload": self.asked.words,
            "questions": self.asked.size,
            "threshold": float(self.bar.threshold),
            "most": self.bar.noise.cutoff,
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AboveJob(Measured[AboveRelease, AboveExpected]):
    """Which questions reach a threshold."""

    kind: str = "above"
    endings: tuple[str, ...] = AboveRelease.endings
    axes: tuple[Axis, ...]
    cut: bool

    def result(self, content: Measurements, receipt: Receipt) -> AboveRelease:
        """A yes or no for each question until the run ended."""
        return AboveRelease(
            sql=self.sql,
            axes=self.axes,
            questions=self.expected.asked,
            answers=content.values[0].astype(np.bool_),
            bar=self.expected.bar,
            words=self.notes,
            cut=self.cut,
            **receipt.standing,
        )


def _grid(desk: Desk, order: AboveOrder) -> tuple[Grid, Fraction]:
    tables = desk.curator.tables
    sql, edges = asked_sql(tables, order.sql, order.table, order.columns, order.where)
    question = read(sql, tables)
    if question.terms.within is not None or question.terms.relative is not None:
        raise Unsupported("Threshold questions are paid for with epsilon.", fix="Give epsilon.")
    epsilon = desk.epsilon(order.epsilon, question.terms.epsilon)
    terms = Terms(rows_per_unit=order.rows_per_unit or question.terms.rows_per_unit)
    grid = grid_of(question, sql, terms, edges=edges)
    return grid.sampled(desk.rules.sample), epsilon
