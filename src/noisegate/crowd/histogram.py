"""Counts of a secret sample by declared groups, those below a crowd hidden.

What survey offices do, with the guarantee that it has. Large counts carry no noise at all but that
of sampling; small ones are not shown.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Required, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.crowd.blending import Blending, Sampled, solved
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer, HalfWidths
from noisegate.desk.desk import Desk
from noisegate.desk.job import Drawn, Measured, Receipt, drawn_of
from noisegate.desk.order import Columns, R_co
from noisegate.desk.plan import Fact
from noisegate.desk.plot import drawn, framed, nothing
from noisegate.desk.price import Step
from noisegate.desk.release import Charged, loading, read_held
from noisegate.desk.terms import Terms
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction, positive, shown
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.base import failure_of, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.privacy.release import Release as Measurements
from noisegate.releases.ask.order import ReleaseOrder, RunTerms
from noisegate.releases.cells.axes import Axis, chosen_cells, keys_of
from noisegate.releases.cells.grid import Grid, asked_sql, grid_of
from noisegate.sql.laws.counted import between, most
from noisegate.sql.laws.sampling import chance_of
from noisegate.sql.question import Block, Question
from noisegate.sql.reading.reader import read
from noisegate.transforms.stability import stability_of

FORMAT: Final = "noisegate-crowd/1"
_ONE_EACH: Final = (
    "Ask about one row of each unit, such as SELECT BIN(age, 10), COUNT(*) FROM (SELECT"
)


class CrowdTerms(RunTerms, total=False):
    """What is said of a crowd; see `CrowdAsked`."""

    table: str | None
    columns: Columns | None
    where: str | None
    probability: Required[Numeric]
    crowd: int | None
    epsilon: Numeric | None
    delta: Numeric | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdAsked(ReleaseOrder[R_co, "CrowdExpected"]):
    """Counts of a secret sample, small ones hidden.

    ``probability`` is the sampling probability of each person. Two of ``crowd``, ``epsilon`` and
    ``delta`` are given; the third follows.
    """

    probability: Numeric
    crowd: int | None = None
    epsilon: Numeric | None = None
    delta: Numeric | None = None
    sql: str | None = None
    table: str | None = None
    columns: Columns | None = None
    where: str | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdOrder(CrowdAsked["CrowdRelease"]):
    """The counts themselves."""

    name: Literal["crowd-histogram"] = "crowd-histogram"

    def job(self, desk: Desk) -> "CrowdJob":
        """The counts."""
        return crowd_job(desk, self)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdExpected:
    """How many cells there are, and which of them would be hidden."""

    cells: int
    noise: CrowdCounts
    numbers: tuple[str, ...] = ("n",)  # as of the plan of a question: it counts

    def facts(self, confidence: Numeric) -> list[Fact]:  # noqa: ARG002 - as others
        """In words, one fact a line."""
        return [
            ("cells", f"{self.cells:,}"),
            ("sample", f"each person with probability {shown(self.noise.probability)}"),
            ("crowd", f"{self.noise.crowd} of the sample"),
        ]

    def margins(self, confidence: Numeric) -> dict[str, float | None]:  # noqa: ARG002 - as others
        """It grows with the root of the count, which nobody knows yet."""
        return {"n": None}

    def to_dict(self, confidence: Numeric) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        noise = self.noise
        return {
            "cells": self.cells, "probability": float(noise.probability), "crowd": noise.crowd,
        }  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdNumber:
    """A number of people. The exact one lies between ``low`` and ``high``, at the confidence."""

    value: float
    low: int
    high: int
    hidden: int  # cells that are not shown
    confidence: Fraction

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        hidden = f"; {self.hidden:,} cells hidden" if self.hidden else ""
        return f"{self.value:,.10g} (between {self.low:,} and {self.high:,}{hidden})"


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CrowdRelease(Charged):
    """Counts of a sample, by the cells of ``axes``: 0 where fewer than the crowd were in it.

    Immutable: reading it again never draws again and never costs.
    """

    kind: ClassVar[str] = "crowd"
    form: ClassVar[str] = FORMAT
    axes: tuple[Axis, ...]
    counts: NDArray[np.int64]
    noise: CrowdCounts
    value: str

    def __post_init__(self) -> None:
        own = np.array(self.counts, np.int64).reshape([axis.size for axis in self.axes])
        own.flags.writeable = False
        object.__setattr__(self, "counts", own)

    # what is known

    @property
    def sampled(self) -> Sampled:
        """The guarantee as that of a crowd: with its whole curve of ε and δ."""
        blending = Blending(crowd=self.noise.crowd)
        return blending.sampled(self.noise.probability, counts=True)

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Which cells are not shown."""
        gone: NDArray[np.bool_] = self.counts == 0
        return gone

    @property
    def values(self) -> NDArray[np.float64]:
        """Estimated numbers of people, 0 in hidden cells."""
        return self.counts / float(self.noise.probability)

    def bounds(self, confidence: Numeric = 0.95) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ends of a confidence interval for the people of every cell, each by itself.

        Claim: outside with at most 1 - confidence, whatever the count is. Why: `between`; a hidden
            cell had fewer than the crowd in the sample, and is treated as if it had one less.
        """
        failure = float(failure_of(confidence))
        low, high = between(self.counts, self.noise.probability, failure)
        unseen = most(np.array([self.noise.crowd - 1]), self.noise.probability, failure)
        return np.where(self.hidden, 0, low), np.where(self.hidden, unseen, high)

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> CrowdNumber:  # noqa: ANN401
        """The people of some cells: ``release.query(age=(20, 39), ward=["north", "west"])``.

        Claim: as `bounds`. Why: the sampled people of several cells are a sample of their people;
            each hidden cell adds none to crowd - 1 to it.
        """
        counts = self.counts[np.ix_(*chosen_cells(self.axes, where))]
        shown_ones, hidden = int(counts.sum()), int((counts == 0).sum())
        unseen = hidden * (self.noise.crowd - 1)
        p, failure = self.noise.probability, float(failure_of(confidence))
        low, _ = between(np.array([shown_ones]), p, failure)
        _, high = between(np.array([shown_ones + unseen]), p, failure)
        return CrowdNumber(
            value=shown_ones / float(p),
            low=int(low[0]),
            high=int(high[0]),
            hidden=hidden,
            confidence=fraction(confidence),
        )

    @property
    def total(self) -> CrowdNumber:
        """All people in cells."""
        return self.query()

    # forms

    @property
    def headline(self) -> str:
        """What it is."""
        return (
            f"{int((~self.hidden).sum()):,} of {self.counts.size:,} cells, a crowd of "
            f"{self.noise.crowd} in a secret sample of {shown(self.noise.probability)}"
        )

    def answer(self, rows: int | None = None) -> Answer:
        """The cells as an answer; hidden ones have no number."""
        count = self.counts.size if rows is None else min(rows, self.counts.size)
        gone = self.hidden.ravel()[:count]
        numbers = self.values.ravel()[:count]
        shown_ones = pa.array(np.round(numbers).astype(np.int64), mask=gone)
        keys = keys_of(self.axes, count, labels=rows is not None)
        table = keys.append_column(self.value, shown_ones)

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            low, high = (each.ravel()[:count] for each in self.bounds(confidence))
            off = np.ceil(np.maximum(high - numbers, numbers - low) + 0.5).astype(np.int64)
            bars = tuple(
                None if is_gone else width
                for width, is_gone in zip(off.tolist(), gone.tolist(), strict=True)
            )
            return (*[None] * len(self.axes), bars)

        words = self._words()
        return self.stating(table, half_widths, words, unsigned=(self.value,))

    def plot(self, confidence: Numeric = 0.95) -> Any:  # noqa: ANN401 - altair may be missing
        """A picture of the cells that are shown, an altair chart."""
        answer = self.answer(self.counts.size)
        if self.hidden.all():
            words = "All cells are hidden: there is nothing to draw."
            return framed(nothing(words), answer, title=None)
        notes = self._words()[:1] if self.hidden.any() else ()
        return framed(drawn(answer, confidence), answer, title=None, notes=notes)

    def _words(self) -> tuple[str, ...]:
        noise = self.noise
        limit = int(most(np.array([noise.crowd - 1]), noise.probability, 0.05)[0])
        hidden = (
            f"Cells with fewer than {noise.crowd} people in the sample are hidden; each holds at "
            f"most {limit:,} people, with 95 %."
        )
        return hidden, "The guarantee holds as long as nobody knows who is in the sample."

    def record(self) -> dict[str, Any]:
        """Axes and sampling, from which the ± follows."""
        return {
            "axes": [axis.to_record() for axis in self.axes],
            "noise": to_record(self.noise),
            "value": self.value,
        }

    def parquet(self, confidence: Numeric) -> pa.Table:
        """The cells, and how many of the sample are in each."""
        return self.to_arrow(confidence).append_column("sampled", pa.array(self.counts.ravel()))

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "CrowdRelease":
        """The release that `save` wrote to a Parquet file. Needs no gate."""
        table, record = read_held(file, cls)
        return cls.of(record, table.column("sampled").to_numpy())

    @classmethod
    def of(cls, record: Mapping[str, Any], counts: NDArray[np.int64]) -> "CrowdRelease":
        """The release of a record that was read, and of the counts beside it."""
        noise = from_record(record["noise"])
        if not isinstance(noise, CrowdCounts):
            raise SpecError(
                "The file does not hold a crowd release.", fix="Use it as written by save()."
            )
        return cls(
            axes=tuple(map(Axis.from_record, record["axes"])),
            counts=counts,
            noise=noise,
            value=record["value"],
            **record["standing"],
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdJob(Measured[CrowdRelease, CrowdExpected]):
    """Counts of a secret sample, small ones hidden."""

    kind: str = "crowd-histogram"
    endings: tuple[str, ...] = CrowdRelease.endings
    grid: Grid

    def found(self, curator: Curator) -> Drawn[Measurements] | None:
        """The latest table of the same cells and chance that hides no more than is asked, if any.

        To hide more of it is free, and so is another point of its curve: what was charged holds.
        """
        query = json.loads(self.measurement.question())["query"]
        wanted = self.expected.noise

        def is_such(text: str) -> bool:
            try:
                said = json.loads(text) if CrowdCounts.name in text else {}
            except ValueError:  # a question of another kind
                return False
            if not isinstance(said, dict) or said.get("query") != query:
                return False
            noise = from_record(said["mechanisms"][0])
            if not isinstance(noise, CrowdCounts) or noise.probability != wanted.probability:
                return False
            return noise.crowd <= wanted.crowd

        found = None
        for each in curator.ledger.settled(wanted=is_such):
            if each.answer is not None:
                found = Measurements.from_bytes(
                    each.answer, question=each.question, request_id=each.request_id, free=True
                )
        return None if found is None else drawn_of(found)

    def result(self, content: Measurements, receipt: Receipt) -> CrowdRelease:
        """The counts, 0 where they are hidden."""
        counts, noise = content.values[0], self.expected.noise
        return CrowdRelease(
            sql=self.sql,
            axes=self.grid.axes,
            counts=np.where(counts >= noise.crowd, counts, 0),
            noise=noise,
            value=self.grid.value,
            **receipt.standing,
        )


def crowd_job(desk: Desk, order: CrowdAsked[Any], question: Question | None = None) -> CrowdJob:
    """What is to be measured; whatever is wrong with the order is refused here, at no cost."""
    if desk.rules.sample is not None:
        raise SpecError(
            "A crowd draws its own sample.", fix="Use the gate itself, not gate.sample(...)."
        )
    grid = _grid(desk, order, question)
    p = chance_of(order.probability)
    crowd, loss = solved(
        p,
        crowd=order.crowd,
        epsilon=None if order.epsilon is None else Fraction(desk.step(order.epsilon)),
        delta=None if order.delta is None else positive(order.delta, name="delta"),
    )
    asked = desk.epsilon(Step(loss.epsilon))
    noise = CrowdCounts(probability=p, crowd=crowd, epsilon=loss.epsilon)
    hidden = (
        f"Cells with fewer than {crowd} people in the sample are hidden: most with fewer than "
        f"{float(crowd / p):,.0f} people."
    )
    off = f"A count of n people is off by about ± {1.96 * float((1 - p) / p) ** 0.5:.3g} √n."
    return CrowdJob(
        sql=grid.sql,
        epsilon=asked,
        expected=CrowdExpected(cells=int(np.prod(grid.shape)), noise=noise),
        notes=(hidden, off, *grid.caveats),
        measurement=Measurement(query=grid.query, mechanisms=(noise,)),
        grid=grid,
    )


def _grid(desk: Desk, order: CrowdAsked[Any], question: Question | None) -> Grid:
    tables = desk.curator.tables
    sql, edges = asked_sql(tables, order.sql, order.table, order.columns, order.where)
    question = question or read(sql, tables)
    for block in question.blocks:
        _require_one_row(block)
    return grid_of(question, sql, Terms(), edges=edges)


def _require_one_row(block: Block) -> None:
    """Refuse rows of which a unit may have several.

    Why: the guarantee is about counts that one coin moves by 1. A unit with rows in several cells
        is in or out of all of them at once, and one with several rows of a cell fills its crowd by
        itself, so that neither the coins nor the crowd would hide it.
    """
    facts = stability_of(block.relation)
    if facts.rows == 1 or not facts.is_private:
        return
    unit = next((table.unit.column for table in facts.tables if table.unit is not None), None)
    raise Unsupported(
        "One unit may have several rows here: it could be in several cells or form a crowd by "
        "itself, and sampling it once would not hide it.",
        fix=f"{_ONE_EACH} {unit}, MAX(age) AS age FROM visits GROUP BY {unit}) AS u GROUP BY 1.",
        about="several-rows",
    )
