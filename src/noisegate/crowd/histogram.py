"""Counts of a secret sample by declared groups, those below a crowd hidden.

What survey offices do, with the guarantee that it has. Large counts carry no noise at all but that
of sampling; small ones are not shown.
"""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Required, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.crowd.blending import (
    Bias,
    Blending,
    Noise,
    Sampled,
    biased_noise,
    column_of,
    delta_at,
    range_of,
    said_range,
    solved,
    strata_of,
)
from noisegate.crowd.once import Asked, cells_of
from noisegate.crowd.picture import CELLS_MAX, crowd_bars
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.desk.display.plot import drawn, framed, nothing
from noisegate.desk.job import Drawn, Measured, Receipt, drawn_of
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.order import Columns, R_co
from noisegate.desk.plan import Fact
from noisegate.desk.release import Charged, loading, read_held
from noisegate.desk.terms.price import Step
from noisegate.errors import SpecError
from noisegate.exact import Number as Numeric
from noisegate.exact import fraction, positive
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.biased_crowd import BiasedCrowd
from noisegate.mechanisms.additive.crowd_counts import CrowdCounts
from noisegate.mechanisms.base import failure_of, to_record
from noisegate.mechanisms.catalogue import from_record
from noisegate.privacy.event import Event
from noisegate.privacy.release import Release as Measurements
from noisegate.releases.ask.order import ReleaseOrder, RunTerms
from noisegate.releases.cells.axes import Axis, chosen_cells, keys_of
from noisegate.releases.cells.grid import Grid
from noisegate.sql.laws.sampling import between, chance_of, most
from noisegate.sql.question import Question

FORMAT: Final = "noisegate-crowd/1"


class CrowdTerms(RunTerms, total=False):
    """What is said of a crowd; see `CrowdAsked`."""

    table: str | None
    columns: Columns | None
    where: str | None
    probability: Required[Numeric]
    crowd: int | None
    epsilon: Numeric | None
    delta: Numeric | None
    biased: Bias | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdAsked(ReleaseOrder[R_co, "CrowdExpected"]):
    """Counts of a secret sample, small ones hidden.

    ``probability`` is the sampling probability of each person. Two of ``crowd``, ``epsilon`` and
    ``delta`` are given; the third follows. ``biased`` gives the people of some declared keys of one
    column another probability: ``{"ward": {"west": "1/2"}}``.
    """

    probability: Numeric
    crowd: int | None = None
    epsilon: Numeric | None = None
    delta: Numeric | None = None
    biased: Bias | None = None
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
    noise: Noise
    numbers: tuple[str, ...] = ("n",)  # as of the plan of a question: it counts

    def facts(self, confidence: Numeric) -> list[Fact]:  # noqa: ARG002 - as others
        """In words, one fact a line."""
        return [
            ("cells", f"{self.cells:,}"),
            ("sample", f"each person with probability {said_range(self.noise)}"),
            ("crowd", f"{self.noise.crowd} of the sample"),
        ]

    def margins(self, confidence: Numeric) -> dict[str, float | None]:  # noqa: ARG002 - as others
        """It grows with the root of the count, which nobody knows yet."""
        return {"n": None}

    def to_dict(self, confidence: Numeric) -> dict[str, Any]:  # noqa: ARG002 - as others
        """Plain values, for JSON."""
        least, most = map(float, range_of(self.noise))
        said = {"cells": self.cells, "probability": least, "crowd": self.noise.crowd}
        return said if least == most else said | {"probability_most": most}


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
    noise: Noise
    value: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        own = np.array(self.counts, np.int64).reshape([axis.size for axis in self.axes])
        own.flags.writeable = False
        object.__setattr__(self, "counts", own)

    # what is known

    @property
    def sampled(self) -> Sampled:
        """The guarantee as that of a crowd: with its whole curve of ε and δ."""
        if not isinstance(self.noise, CrowdCounts):
            raise SpecError(
                "People of this sample had different probabilities.", fix="Use delta(epsilon)."
            )
        blending = Blending(crowd=self.noise.crowd)
        return blending.sampled(self.noise.probability, counts=True)

    def delta(self, epsilon: Numeric) -> Fraction:
        """The δ at an ε: another point of the curve that was paid for."""
        return delta_at(self.noise, epsilon)

    def _strata(self) -> list[tuple[NDArray[np.bool_], Fraction, Fraction]]:
        """Cells with the probabilities of their people: the least, and the largest."""
        noise, everywhere = self.noise, np.ones(self.counts.shape, bool)
        if isinstance(noise, CrowdCounts) or not noise.apart:
            return [(everywhere, *range_of(noise))]
        places = np.arange(self.counts.size).reshape(self.counts.shape)
        number = places // noise.inner % len(noise.probabilities)
        chances = enumerate(noise.probabilities)
        return [(number == stratum, each, each) for stratum, each in chances]

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Which cells are not shown."""
        gone: NDArray[np.bool_] = self.counts == 0
        return gone

    @property
    def values(self) -> NDArray[np.float64]:
        """Estimated numbers of people, 0 in hidden cells.

        Of a cell whose people had probabilities from p to p', the middle of both estimates.
        """
        found = np.zeros(self.counts.shape)
        for where, least, most_likely in self._strata():
            scale = (1 / float(least) + 1 / float(most_likely)) / 2
            found[where] = self.counts[where] * scale
        return found

    def bounds(self, confidence: Numeric = 0.95) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ends of a confidence interval for the people of every cell, each by itself.

        Claim: outside with at most 1 - confidence, whatever the count is. Why: `between`; a hidden
            cell had fewer than the crowd in the sample, and is treated as if it had one less. Of
            people with probabilities from p to p', no more are sampled than with p' for all, and
            no fewer than with p.
        """
        failure = float(failure_of(confidence))
        lows, highs = np.zeros_like(self.counts), np.zeros_like(self.counts)
        for where, least, likeliest in self._strata():
            lows[where] = between(self.counts[where], likeliest, failure)[0]
            highs[where] = between(self.counts[where], least, failure)[1]
            unseen = most(np.array([self.noise.crowd - 1]), least, failure)
            highs[where & self.hidden] = unseen
        return np.where(self.hidden, 0, lows), highs

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> CrowdNumber:  # noqa: ANN401
        """The people of some cells: ``release.query(age=(20, 39), ward=["north", "west"])``.

        Claim: as `bounds`. Why: the sampled people of several cells are a sample of their people;
            each hidden cell adds none to crowd - 1 to it. Strata share 1 - confidence evenly.
        """
        chosen = np.ix_(*chosen_cells(self.axes, where))
        strata = [each for each in self._strata() if each[0][chosen].any()]
        failure, low, high = float(failure_of(confidence)) / len(strata), 0, 0
        for held, least, likeliest in strata:
            counts = self.counts[chosen][held[chosen]]
            seen, unseen = int(counts.sum()), int((counts == 0).sum()) * (self.noise.crowd - 1)
            low += int(between(np.array([seen]), likeliest, failure)[0][0])
            high += int(between(np.array([seen + unseen]), least, failure)[1][0])
        return CrowdNumber(
            value=float(self.values[chosen].sum()),
            low=low,
            high=high,
            hidden=int(self.hidden[chosen].sum()),
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
            f"{self.noise.crowd} in a secret sample of {said_range(self.noise)}"
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
        """A picture of the cells, an altair chart: hidden ones hatched, with the line at the crowd.

        Of many cells it draws those that are shown alone.
        """
        answer = self.answer(self.counts.size)
        if self.hidden.all():
            words = "All cells are hidden: there is nothing to draw."
            return framed(nothing(words), answer, title=None)
        notes = self._words()[:1] if self.hidden.any() else ()
        if self.counts.size > CELLS_MAX:
            return framed(drawn(answer, confidence), answer, title=None, notes=notes)
        labels = [" · ".join(each) for each in product(*(axis.labels for axis in self.axes))]
        lines = np.zeros(self.counts.shape)
        for where, least, _ in self._strata():
            lines[where] = self.noise.crowd / float(least)
        low, high = self.bounds(confidence)
        chart = crowd_bars(
            labels, self.values.ravel(), (low.ravel(), high.ravel()), crowd=self.noise.crowd,
            lines=lines.ravel(), name=self.value,
        )  # fmt: skip
        title = f"People by {', '.join(axis.name for axis in self.axes)}"
        return framed(chart, answer, title=title, notes=notes)

    def _words(self) -> tuple[str, ...]:
        noise = self.noise
        limit = int(most(np.array([noise.crowd - 1]), range_of(noise)[0], 0.05)[0])
        hidden = (
            f"Cells with fewer than {noise.crowd} people in the sample are hidden; each holds at "
            f"most {limit:,} people, with 95 %."
        )
        holds = "The guarantee holds as long as nobody knows who is in the sample."
        return hidden, holds, *self.notes

    def record(self) -> dict[str, Any]:
        """Axes and sampling, from which the ± follows."""
        return {
            "axes": [axis.to_record() for axis in self.axes],
            "noise": to_record(self.noise),
            "value": self.value,
            "notes": list(self.notes),
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
        if not isinstance(noise, CrowdCounts | BiasedCrowd):
            raise SpecError(
                "The file does not hold a crowd release.", fix="Use it as written by save()."
            )
        return cls(
            axes=tuple(map(Axis.from_record, record["axes"])),
            counts=counts,
            noise=noise,
            value=record["value"],
            notes=tuple(record.get("notes", ())),
            **record["standing"],
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdJob(Measured[CrowdRelease, CrowdExpected]):
    """Counts of a secret sample, small ones hidden."""

    kind: str = "crowd-histogram"
    endings: tuple[str, ...] = CrowdRelease.endings
    grid: Grid
    axes: tuple[Axis, ...]  # that are shown

    def found(self, curator: Curator) -> Drawn[Measurements] | None:
        """The latest table of the same cells and chance that hides no more than is asked, if any.

        To hide more of it is free, and so is another point of its curve: what was charged holds.
        """
        query = json.loads(self.measurement.question())["query"]
        wanted = self.expected.noise

        def is_such(text: str) -> bool:
            try:
                said = json.loads(text) if wanted.name in text else {}
            except ValueError:  # a question of another kind
                return False
            if not isinstance(said, dict) or said.get("query") != query:
                return False
            noise = from_record(said["mechanisms"][0])
            if not isinstance(noise, type(wanted)) or noise.crowd > wanted.crowd:
                return False
            return wanted == replace(noise, crowd=wanted.crowd, epsilon=wanted.epsilon)

        found = None
        for each in curator.ledger.settled(wanted=is_such):
            if each.answer is not None:
                found = Measurements.from_bytes(
                    each.answer, question=each.question, request_id=each.request_id, free=True
                )
        return None if found is None else drawn_of(found)

    def is_simulated(self, event: Event, *first: Event) -> bool:  # noqa: ARG002 - however charged
        """Every crowd is that of a secret sample."""
        return True

    def result(self, content: Measurements, receipt: Receipt) -> CrowdRelease:
        """The counts, 0 where they are hidden."""
        counts, noise = content.values[0], self.expected.noise
        if isinstance(noise, BiasedCrowd) and not noise.apart:
            counts = counts.reshape(-1, len(noise.probabilities))[:, 0]
        return CrowdRelease(
            sql=self.sql,
            axes=self.axes,
            counts=np.where(counts >= noise.crowd, counts, 0),
            noise=noise,
            value=self.grid.value,
            notes=self.grid.caveats,
            cut=self.grid.cut,
            **receipt.standing,
        )


def crowd_job(desk: Desk, order: CrowdAsked[Any], question: Question | None = None) -> CrowdJob:
    """What is to be measured; whatever is wrong with the order is refused here, at no cost."""
    if desk.rules.sample is not None:
        raise SpecError(
            "A crowd draws its own sample.", fix="Use the gate itself, not gate.sample(...)."
        )
    asked = Asked(order.sql, order.table, order.columns, order.where)
    added = None if order.biased is None else column_of(order.biased)
    grid, shown_axes = cells_of(desk.curator.tables, asked, question, stratum=added)
    noise = _noise(desk, order, grid, apart=len(shown_axes) == len(grid.axes))
    least, p = range_of(noise)
    hidden = (
        f"Cells with fewer than {noise.crowd} people in the sample are hidden: most with fewer "
        f"than {float(noise.crowd / p):,.0f} people."
    )
    off = f"A count of n people is off by about ± {1.96 * float((1 - least) / least) ** 0.5:.3g} √n"
    if isinstance(noise, BiasedCrowd) and not noise.apart and least < p:
        off += (
            f", and by up to {percent((p - least) / (p + least))} as people's probabilities differ"
        )
    return CrowdJob(
        sql=grid.sql,
        epsilon=desk.epsilon(Step(noise.epsilon)),
        expected=CrowdExpected(cells=prod(axis.size for axis in shown_axes), noise=noise),
        notes=(hidden, f"{off}.", *grid.caveats),
        measurement=Measurement(query=grid.query, mechanisms=(noise,)),
        grid=grid,
        axes=shown_axes,
    )


def _noise(desk: Desk, order: CrowdAsked[Any], grid: Grid, *, apart: bool) -> Noise:
    """The mechanism; two of crowd, ε and δ give the third."""
    p = chance_of(order.probability)
    crowd = order.crowd
    epsilon = None if order.epsilon is None else Fraction(desk.step(order.epsilon))
    delta = None if order.delta is None else positive(order.delta, name="delta")
    if order.biased is not None:
        strata = strata_of(order.biased, grid.axes, p)
        sizes = [axis.size for axis in grid.axes]
        return biased_noise(strata, sizes, apart=apart, crowd=crowd, epsilon=epsilon, delta=delta)
    crowd, loss = solved(p, crowd=crowd, epsilon=epsilon, delta=delta)
    return CrowdCounts(probability=p, crowd=crowd, epsilon=loss.epsilon)
