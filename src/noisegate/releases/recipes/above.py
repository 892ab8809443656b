"""Which of many overlapping questions reach a threshold: paid by the few that do, not by all.

The questions are declared before: sums over boxes of cells, in an order. Each is answered yes or
no, up to a number of yeses; then the run ends. Nothing else leaves: no count, and no more answers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, prod
from typing import Any, ClassVar, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from noisegate.accounting.search import digits_up
from noisegate.algebra.relation import Sampled
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, fraction
from noisegate.ledger.entry import Entry
from noisegate.mechanisms.above_threshold import AboveThreshold
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.guarantee import Guarantee
from noisegate.privacy.loss import ApproxDP
from noisegate.query.answer import Answer
from noisegate.query.card import Card
from noisegate.query.display import percent, with_margin
from noisegate.query.estimates.purchase import inner_price
from noisegate.query.estimates.sampling import Sampling, sampling_of
from noisegate.query.plot import altair, framed
from noisegate.query.question import Terms
from noisegate.query.reading.reader import read
from noisegate.query.run import Rules
from noisegate.releases.axes import Axis
from noisegate.releases.grid import Grid, grid_of, sql_of
from noisegate.releases.held import PICTURES, Held, standing
from noisegate.releases.making import spec_of, workload_of
from noisegate.releases.workload import Workload
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Matrix, Strategy

ENTRIES_MAX: Final = 1 << 26  # cells of all questions together
_BARS_MAX: Final = 40  # in a picture
_YES, _NO, _OPEN = "reaches it", "does not", "no answer"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AboveOrder:
    """What is asked for, as people say it.

    ``questions`` are ranges by the names of axes, ``[{"age": (20, 39)}, …]``, or "cells",
    "prefixes", "ranges". ``threshold`` is in the units of the sum. The run ends after ``most``
    yeses: fewer are cheaper, that is, more precise at a price.
    """

    questions: Any
    threshold: Number
    most: int = 10
    sql: str | None = None
    table: str | None = None
    columns: Mapping[str, Any] | None = None
    where: str | None = None
    epsilon: Number | None = None
    rows_per_unit: int | None = None


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class AboveRelease(Held):
    """A yes or no for each question that came before the run ended.

    Every yes is a sum of at least ``threshold`` - ``margin`` and every no one of less than
    ``threshold`` + ``margin``, all at once, at the confidence of `margin_at`.
    """

    endings: ClassVar[tuple[str, ...]] = (".csv", ".json", *PICTURES, ".md")
    sql: str
    axes: tuple[Axis, ...]
    questions: Workload
    answers: NDArray[np.bool_]
    threshold: Fraction
    noise: AboveThreshold
    grain: Fraction
    sampling: Sampling | None
    cost: ApproxDP
    remaining: ApproxDP | None
    guarantee: Guarantee
    text: str  # of the question, as the ledger knows it
    request_id: str
    practice: bool = False
    log: Callable[[], Sequence[Entry]] = tuple
    stated: Card | None = None

    @property
    def complete(self) -> bool:
        """Whether all questions were answered."""
        return self.answers.size == self.questions.size

    @property
    def yes(self) -> list[dict[str, Any]]:
        """The questions that reach the threshold, as ranges of keys by the names of axes."""
        return [self.question(place) for place in np.flatnonzero(self.answers).tolist()]

    def question(self, place: int) -> dict[str, Any]:
        """A question by the names of axes: one key, or the first and the last of several."""
        found: dict[str, Any] = {}
        ends = zip(self.axes, self.questions.lows[place], self.questions.highs[place], strict=True)
        for axis, low, high in ends:
            if (low, high) != (0, axis.size - 1):
                labels = axis.labels[low], axis.labels[high]
                found[axis.name] = labels[0] if low == high else labels
        return found

    def margin_at(self, confidence: Number = 0.95) -> Fraction:
        """How far all answers may be off, in the units of the sum. Rounding: up."""
        size = self.questions.size
        return _margin(self.noise, self.grain, self.sampling, self.threshold, size, confidence)

    def answer(self, rows: int | None = None) -> Answer:
        """A row for each question that was answered: what it asks, and whether it is reached."""
        import pyarrow as pa  # noqa: PLC0415 - tables are made when asked for

        count = self.answers.size if rows is None else min(rows, self.answers.size)
        words = [self._asked(place) for place in range(count)]
        return Answer(
            sql=self.sql,
            table=pa.table({"question": pa.array(words, pa.string()),
                            "reaches": pa.array(self.answers[:count])}),
            half_widths=lambda _: (None, None),
            cost=self.cost,
            remaining=self.remaining,
            guarantee=self.guarantee,
            request_ids=(self.request_id,),
            questions=(self.text,),
            caveats=tuple(self._words()),
            practice=self.practice,
            log=self.log,
        )  # fmt: skip

    def plot(self, confidence: Number = 0.95, title: str | None = None) -> Any:  # noqa: ANN401
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
        least = max(0.0, least) if self.noise.monotone else least
        known = {
            _YES: (max(least, middle - off), most),
            _NO: (least, middle + off),
            _OPEN: (least, most),
        }
        asked = {place: f"{place + 1}. {self._asked(place)}" for place in shown}
        points = [
            {"question": words, "answer": said[place], "from": ends[0], "to": ends[1]}
            for place, words in asked.items()
            for ends in [known[said[place]]]
        ]
        whole = self.threshold.denominator == 1
        words = with_margin(int(middle) if whole else middle, off)
        sure = f"{words} at {percent(confidence)} confidence for all together"
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

    def _asked(self, place: int) -> str:
        """A question as people read it."""
        return " · ".join(f"{k}: {_said(v)}" for k, v in self.question(place).items()) or "all"

    def _words(self) -> Iterator[str]:
        if not self.complete:
            yield "The last yes that was paid for ended the run."
        if self.sampling is not None:
            chance = self.sampling.probability
            yield f"Of a secret sample that holds each unit with probability {chance}."

    def record(self) -> dict[str, Any]:
        """There is no Parquet file of it."""
        return {}

    @property
    def headline(self) -> str:
        """How many reach the threshold, and how surely."""
        reach = f"{int(self.answers.sum()):,} reach {float(self.threshold):g}"
        asked = f"of {self.answers.size:,} answered ({self.questions.size:,} asked)"
        return f"{reach} ± {float(self.margin_at()):g}, 95% confidence for all, {asked}"


def _said(keys: str | tuple[str, str]) -> str:
    return keys if isinstance(keys, str) else f"{keys[0]} to {keys[1]}"


def release_above(
    curator: Curator, rules: Rules, order: AboveOrder, *, fresh: bool = False
) -> AboveRelease:
    """Which questions reach it: from the ledger if this was asked before, else for its price."""
    grid, asked, measurement, noise = _job(curator, rules, order)
    request_id = curator.fresh_id() if fresh else None
    found = curator.measure(measurement, request_id=request_id)
    return AboveRelease(
        sql=grid.sql,
        axes=grid.axes,
        questions=asked,
        answers=found.values[0].astype(np.bool_),
        threshold=fraction(order.threshold, name="threshold"),
        noise=noise,
        grain=grid.grain,
        sampling=_sampling(grid),
        text=found.question,
        **standing(curator, rules, grid.query.tables, found),
    )


class AbovePlan(NamedTuple):
    """Price, whether it fits, and how far all answers may be off together."""

    price: ApproxDP
    fits: bool
    margin: Fraction

    def __str__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        return f"{self.price}, which {fits}.\nAll answers hold but for ± {float(self.margin):g}."


def plan_above(
    curator: Curator, rules: Rules, order: AboveOrder, confidence: Number = 0.95
) -> AbovePlan:
    """Price, whether it fits, and how far all answers may be off: free, reads no row."""
    grid, asked, measurement, noise = _job(curator, rules, order)
    price, fits = curator.price(measurement.event())
    if curator.find(measurement) is not None:
        price, fits = ApproxDP(0), True
    threshold = fraction(order.threshold, name="threshold")
    margin = _margin(noise, grid.grain, _sampling(grid), threshold, asked.size, confidence)
    return AbovePlan(price, fits, margin)


def _sampling(grid: Grid) -> Sampling | None:
    return None if grid.sample is None else sampling_of(grid.sample, grid.moved, grid.grain)


def _margin(
    noise: AboveThreshold,
    grain: Fraction,
    sampling: Sampling | None,
    threshold: Fraction,
    questions: int,
    confidence: Number,
) -> Fraction:
    """How far all answers may be off; of a sample, half of what may fail is for sampling.

    Why: a yes is a sum of the sample of at least the threshold less the noise, and a no one of
        less than the threshold and the noise; sums of all units lie within `Sampling.bounds` of
        these, for all questions at once, and bounds rise with the number. Rounding: up.
    """
    if sampling is None:
        return noise.accuracy(confidence, questions=questions) * grain
    failure = failure_of(confidence) / 2
    off = noise.accuracy(1 - failure, questions=questions) * grain
    ends = np.array([float(threshold)]), np.array([float(off)])
    (wide,) = sampling.widened(*ends, float(failure / questions)).tolist()
    return digits_up(Fraction(wide))


def boxes_matrix(asked: Workload) -> Matrix:
    """The questions as rows over the cells."""
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to load

    sizes = np.prod(asked.highs - asked.lows + 1, axis=1)
    if int(sizes.sum()) > ENTRIES_MAX:
        raise SpecError(
            f"The questions speak of more than {ENTRIES_MAX:,} cells together.",
            fix="Ask fewer or smaller ones, or use wider bins.",
        )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    cells = np.concatenate([_cells(asked.shape, *box) for box in zip(asked.lows, asked.highs)])  # noqa: B905
    shape = (asked.size, int(np.prod(asked.shape)))
    return Matrix(csr_array((np.ones(cells.size, np.int64), cells, starts), shape=shape))


def _cells(
    shape: Sequence[int], lows: NDArray[np.int64], highs: NDArray[np.int64]
) -> NDArray[np.int64]:
    places = np.ix_(*(np.arange(low, high + 1) for low, high in zip(lows, highs, strict=True)))
    return np.ravel_multi_index(np.broadcast_arrays(*places), tuple(shape)).reshape(-1)


def _job(
    curator: Curator, rules: Rules, order: AboveOrder
) -> tuple[Grid, Workload, Measurement, AboveThreshold]:
    grid, epsilon = _grid(curator, rules, order)
    asked = workload_of(spec_of(order.questions, grid.axes), grid.shape)
    if type(order.most) is not int or order.most < 1:
        raise SpecError(f"most is {order.most!r}.", fix="Use a whole number of at least 1.")
    tally = grid.query.tally
    if rules.sample is not None:
        if grid.signed:
            raise SpecError(
                "How far a sample is off is not known for sums of either sign.",
                fix="Use a sum from 0 on, or the gate itself.",
            )
        tally = replace(tally, relation=Sampled(tally.relation, rules.sample))
    query = Query(tally, Strategy(prod(grid.shape), (boxes_matrix(asked),)))
    noise = AboveThreshold.for_epsilon(
        inner_price(epsilon, rules.sample),
        threshold=ceil(fraction(order.threshold, name="threshold") / grid.grain),
        sensitivity=query.moved,
        cutoff=min(order.most, asked.size),
        monotone=not grid.signed,
    )
    return grid, asked, Measurement(query=query, mechanisms=(noise,)), noise


def _grid(curator: Curator, rules: Rules, order: AboveOrder) -> tuple[Grid, Fraction]:
    if (order.sql is None) == (order.columns is None):
        raise SpecError("Give SQL or columns.", fix='Use a SELECT, or columns={"age": 5}.')
    sql, edges = order.sql or "", None
    if order.columns is not None:
        sql, edges = sql_of(curator.tables, order.table, order.columns, order.where)
    question = read(sql, curator.tables)
    if question.terms.within is not None or question.terms.relative is not None:
        raise Unsupported("A threshold is bought by its price.", fix="Give epsilon.")
    epsilon = rules.price(order.epsilon, question.terms.epsilon)
    terms = Terms(rows_per_unit=order.rows_per_unit or question.terms.rows_per_unit)
    accountant = curator.ledger.balance(curator.account).accountant
    grid = grid_of(question, sql, terms, accountant=accountant, edges=edges)
    return grid.sampled(rules.sample), epsilon
