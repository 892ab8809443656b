"""Running totals of a table that grows: `gate.release("series", …, until=…)`.

The first call pays for the whole life of the series; each later one, with more rows and a later
``until``, costs nothing more. What was published stays as it was. See `curator.series` for what is
promised and why.

* Tree: every total is a sum of at most log₂ nodes, and each node is first combined with the nodes
  below it [Hon15]; a node over 2^k periods then has a little more than half of its own variance.
* Root: the totals are B (C x + z) with the square-root factor C [FHU23]. B is made from the rounded
  C itself, so the totals are unbiased.
"""

from collections.abc import Sequence
from datetime import date, datetime
from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar, Final, cast, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from noisegate.algebra.expression import Call, Expression, Field, Literal, domain_of, fields_of
from noisegate.algebra.schema import schema_of
from noisegate.algebra.tally import Sums, Term
from noisegate.curator.curator import Curator
from noisegate.curator.series import ROOT_MAX, Counter, Epoch, Series, root_factor
from noisegate.desk.answer import Answer
from noisegate.desk.desk import Desk
from noisegate.desk.display.plot import plot
from noisegate.desk.job import Drawn, Job, Progress, Receipt
from noisegate.desk.noisy import HalfWidths
from noisegate.desk.release import ENDINGS, Charged, loading, read_held
from noisegate.desk.terms.price import variance_of
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number as Numeric
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.base import failure_of
from noisegate.privacy.domain import Key, TableDomain, ordinal
from noisegate.privacy.event import Event
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.cells.axes import Axis, require_names
from noisegate.releases.cells.estimate import tail_factor
from noisegate.releases.cells.grid import Grid
from noisegate.releases.cells.workload import Floats, Ints
from noisegate.releases.forms.numbers import Number
from noisegate.releases.forms.table import TableExpected
from noisegate.sql.laws.sampling import Sampling, sample_words, sampling_of
from noisegate.sql.question import Block
from noisegate.sql.reading.reader import read

FORMAT: Final = "noisegate-series/1"
_KEPT: Final = ("value", "factor", "gaussian", "signed", "whole", "words")
METHODS: Final = ("auto", "tree", "root")


@final
@dataclass(frozen=True, slots=True, eq=False)
class RunningTotals:
    """Running totals after each period, in grains, and the variance of each."""

    values: Floats
    variances: Floats

    def __post_init__(self) -> None:
        for each in (self.values, self.variances):
            each.flags.writeable = False


def totals_of(counter: Counter, answers: Sequence[Ints]) -> RunningTotals:
    """The totals after each measured period. Those of earlier periods never change."""
    values, variances, base, spread = [], [], 0.0, 0.0
    for epoch in counter.epochs:
        own = answers[epoch.start : epoch.end]
        if not own:
            break
        variance = variance_of(counter.noise(epoch))
        solve = _tree if counter.factor == "tree" else _root
        found = solve(epoch, own, variance)
        values.append(base + found.values)
        variances.append(spread + found.variances)
        base, spread = float(values[-1][-1]), float(variances[-1][-1])
    if not values:
        return RunningTotals(np.zeros(0), np.zeros(0))
    return RunningTotals(np.concatenate(values), np.concatenate(variances))


def _tree(epoch: Epoch, answers: Sequence[Ints], variance: float) -> RunningTotals:  # noqa: ARG001
    """Every complete node with all that is below it, then the sum of the largest ones."""
    held: list[tuple[float, float]] = []  # of complete subtrees, the largest first
    values, variances = [], []
    for ending in answers:
        value, spread = float(ending[0]), 1.0  # spreads are in multiples of the variance
        for own in ending[1:].tolist():
            left, left_spread = held.pop()
            below = spread + left_spread
            weight = below / (below + 1)
            value = weight * own + (1 - weight) * (value + left)
            spread = weight
        held.append((value, spread))
        values.append(sum(each for each, _ in held))
        variances.append(sum(each for _, each in held))
    return RunningTotals(np.array(values), np.array(variances) * variance)


def _root(epoch: Epoch, answers: Sequence[Ints], variance: float) -> RunningTotals:
    """B y, where B is the matrix of running totals times the inverse of the whole-number factor."""
    count = len(answers)
    factor = np.array(root_factor(epoch.size)[:count], np.float64)
    inverse = np.zeros(count)
    inverse[0] = 1 / factor[0]
    for k in range(1, count):
        inverse[k] = -(factor[1 : k + 1] @ inverse[k - 1 :: -1]) / factor[0]
    back = np.cumsum(inverse)
    noisy = np.array([float(each[0]) for each in answers])
    return RunningTotals(np.convolve(back, noisy)[:count], variance * np.cumsum(back**2))


def predicted(counter: Counter, until: int) -> Floats:
    """The variance of each total, before anything is paid."""
    sizes = (len(counter.nodes(period)) for period in range(until))
    blank = [np.zeros(size if counter.factor == "tree" else 1, np.int64) for size in sizes]
    return totals_of(counter, blank).variances


def counter_of(
    grid: Grid, block: Block, *, amount: Fraction, gaussian: bool, method: str, horizon: int | None
) -> Counter:
    """The counter of a grid with one axis of periods; "auto" is the factor with the least error."""
    tally = grid.query.tally
    if not isinstance(tally, Sums) or len(tally.by) != 1 or len(grid.axes) != 1:
        raise SpecError(
            "A series needs a single ordered axis.", fix="Group by DATE_TRUNC('month', x)."
        )
    if method not in METHODS:
        raise SpecError(
            f"There is no method {method!r} for a series.", fix=f"Use {', '.join(METHODS)}."
        )
    (by,), row_level = tally.by, grid.query.stability.is_row_level
    (term,) = tally.terms
    if not row_level:
        if term.expression != Literal(1):
            raise Unsupported(
                "With several rows per unit, a series counts rows only.", fix="Use COUNT(*)."
            )
        term = Term(expression=Literal(1), grain=Fraction(1), low=0, high=1)

    def made(factor: str) -> Counter:
        return Counter(
            relation=block.relation,
            period=by.expression,
            periods=tuple(key for key in by.keys if key is not None),
            term=term,
            rows_per_unit=None if row_level else tally.rows_per_unit or grid.query.per_unit,
            amount=amount,
            gaussian=gaussian,
            horizon=horizon,
            factor=factor,  # type: ignore[arg-type]
            sample=grid.sample,
        )

    tree = made("tree")
    if method == "tree" or (method == "auto" and not (gaussian and row_level)):
        return tree
    if method == "auto" and max(epoch.size for epoch in tree.epochs) > ROOT_MAX:
        return tree
    root, last = made("root"), min(tree.epochs[-1].end, ROOT_MAX)
    if method == "root":
        return root
    return min((root, tree), key=lambda each: float(predicted(each, last).mean()))


def series_job(
    desk: Desk,
    grid: Grid,
    *,
    epsilon: Fraction,
    method: str,
    until: Any,  # noqa: ANN401 - a key of the axis
    horizon: int | None,
) -> "SeriesJob":
    """The series that is asked for; refuses what it cannot do, before any charge."""
    block = read(grid.sql, desk.curator.tables).blocks[0]
    price = desk.price(epsilon)
    counter = counter_of(
        grid, block, amount=price.amount, gaussian=price.gaussian, method=method,
        horizon=horizon,
    )  # fmt: skip
    until = periods_until(grid, counter.period, until)
    last = counter.epochs[-1].end
    if until > last:
        raise SpecError(
            f"The series ends after {last:,} periods.",
            fix="Use an earlier until, or start another series.",
        )
    rms = sqrt(float(predicted(counter, until).mean())) * float(_grain(counter))
    return SeriesJob(
        sql=grid.sql,
        epsilon=epsilon,
        expected=TableExpected(
            axes=grid.axes,
            method=f"series by {counter.factor}",
            workload="running totals",
            questions=until,
            rms=rms,
            gaussian=counter.gaussian,
        ),
        notes=(f"paid once for {last:,} periods", *_words(counter, cut=grid.cut)),
        grid=grid,
        counter=counter,
        until=until,
    )


def periods_until(grid: Grid, period: Expression, until: Any) -> int:  # noqa: ANN401 - a key of the axis
    """How many periods have ended with ``until``, a key of the axis or the end of a period."""
    axis, unit = grid.axes[0], None
    first, schema = axis.present[0], schema_of(grid.query.tally.relation)
    if type(period) is Call and period.function == "date_trunc" and type(period.args[0]) is Literal:
        unit = str(period.args[0].value)
    try:
        if isinstance(until, str):  # at a command line
            until = type(first).fromisoformat(until)
        if isinstance(first, datetime) and type(until) is date:
            until = datetime(until.year, until.month, until.day)  # noqa: DTZ001 - as in tables
        highs = {domain_of(Field(name), schema).high for name in fields_of(period)}
        return axis.ended(until, unit, all_in=highs == {ordinal(until)})
    except (TypeError, ValueError, AttributeError):
        raise SpecError(
            f"{until!r} is not a value of {axis.name}.",
            fix=f"For example: until={axis.present[0]!r}.",
        ) from None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesJob(Job[RunningTotals, "SeriesRelease", TableExpected]):
    """A series that is opened or continued: new periods are measured, old ones never change."""

    kind: str = "series"
    endings: tuple[str, ...] = ENDINGS
    uses: frozenset[str] = frozenset({"series"})
    grid: Grid
    counter: Counter
    until: int

    @property
    def event(self) -> Event:
        """Paid once, for all periods."""
        return self.counter.event

    @property
    def tables(self) -> Sequence[TableDomain]:
        """Those of the cells."""
        return self.grid.query.tables

    def require_anew(self) -> None:
        """Totals that are out stay."""
        raise SpecError(
            "A series that grows keeps the totals already released.",
            fix="Leave out fresh, or release it without until.",
            about="fresh",
        )

    def is_paid(self, curator: Curator) -> bool:
        """Whether the series is open; later periods are then free."""
        return Series(curator, self.counter).is_open

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[RunningTotals]:  # noqa: ARG002 - one step
        """The totals so far; new periods have to be measured, though they cost nothing."""
        progress(0.0, "measuring")
        series = Series(curator, self.counter)
        opened = series.is_open
        answers = series.advance(self.until)[: self.until]
        return Drawn(
            content=totals_of(self.counter, answers), used=self.event, question=series.question,
            request_id=series.name, free=opened,
        )  # fmt: skip

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """About all states of the table."""
        life = self.counter.epochs[-1].end
        kept = "as long as rows are only added and " + (
            "keep their period"
            if self.counter.is_row_level
            else "never change, and states with more rows have later snapshot names"
        )
        return guarantee_of(loss, self.tables, "all states of", f" over {life:,} periods, {kept}")

    def result(self, content: RunningTotals, receipt: Receipt) -> "SeriesRelease":
        """The totals as a release."""
        counter = self.counter
        return SeriesRelease(
            sql=self.sql,
            axis=self.grid.axes[0],
            value=self.grid.value,
            totals=content,
            factor=counter.factor,
            grain=_grain(counter),
            gaussian=counter.gaussian,
            signed=counter.term.low < 0,
            whole=self.grid.whole,
            words=_words(counter, cut=self.grid.cut),
            cut=self.grid.cut,
            sampling=_sampling(counter),
            **receipt.standing,
        )


def _grain(counter: Counter) -> Fraction:
    """What a number counts in; of a sample, scaled up to all units."""
    return counter.term.grain / (counter.sample or 1)


def _sampling(counter: Counter) -> Sampling | None:
    """What sampling adds to totals from 0 on.

    Why: a total is an average, with weights from 0 on, of numbers from samples of their own, so
        its exponential moments are at most those of one sample, and Bernstein's bound holds.
    """
    if counter.sample is None or counter.term.low < 0:
        return None
    return replace(sampling_of(counter.sample, counter.moved, _grain(counter)), ones=False)


def _words(counter: Counter, *, cut: bool) -> tuple[str, ...]:
    found = ["Rows that arrive after their period was measured are not counted."]
    if cut and counter.rows_per_unit is not None:
        cap = counter.rows_per_unit
        found.append(
            f"Of each unit the first {cap} row{'s' if cap > 1 else ''} count, for the whole series "
            "(not in the ±): totals are lower bounds."
        )
    if counter.sample is not None:
        found.append(sample_words(counter.sample, in_bars=_sampling(counter) is not None))
    return tuple(found)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SeriesRelease(Charged):
    """Running totals by period. Later ones are added; those that are out never change."""

    kind: ClassVar[str] = "series"
    form: ClassVar[str] = FORMAT
    axis: Axis
    value: str
    totals: RunningTotals
    factor: str
    grain: Fraction
    gaussian: bool
    signed: bool
    whole: bool
    words: tuple[str, ...]
    sampling: Sampling | None

    @property
    def periods(self) -> tuple[Any, ...]:
        """The measured periods."""
        return self.axis.present[: self.totals.values.size]

    @property
    def values(self) -> NDArray[Any]:
        """The totals: whole, and not below 0 where they cannot be."""
        found = self.totals.values * float(self.grain)
        found = found if self.signed else np.maximum(found, 0)
        return np.rint(found).astype(np.int64) if self.whole else found

    def margins(self, confidence: Numeric = 0.95) -> NDArray[Any]:
        """The ± of every total, each by itself: wider of the normal and the Laplace law. Up.

        Of a sample, half of what may fail is for sampling.
        """
        failure = float(failure_of(confidence)) / (1 if self.sampling is None else 2)
        factor = tail_factor(failure, gaussian=self.gaussian)
        spread = factor * np.sqrt(self.totals.variances + 1 / 6) * float(self.grain)
        if self.sampling is not None:
            shown = self.totals.values * float(self.grain)
            spread = self.sampling.widened(shown, spread, failure)
        return np.ceil(spread + 0.5).astype(np.int64) if self.whole else spread

    def total(self, period: Key, confidence: Numeric = 0.95) -> Number:
        """The running total after a period, free."""
        period = self.axis.meant(period)
        if period not in self.axis.present:
            first = ", ".join(map(str, self.periods[:2]))
            raise SpecError(
                f"No period begins with {period}.",
                fix=f"Periods are called by how they begin: {first}, …",
                about="period",
            )
        if period not in self.periods:
            raise SpecError(
                f"{period} is not measured yet.",
                fix=f"The last period is {self.periods[-1]}.",
                about="period",
            )
        place = self.periods.index(period)
        return Number(
            value=self.values[place].item(),
            margin=self.margins(confidence)[place].item(),
            confidence=1 - failure_of(confidence),
            lower=bool(self.cut),
        )

    def query(self, confidence: Numeric = 0.95, /, **where: Any) -> Number:  # noqa: ANN401
        """The sum over some measured periods, free: ``series.query(day=("2026-01-05", None))``.

        It is a difference of totals. Each may fail for its part, and their ± add up.
        """
        require_names((self.axis,), where)
        size = len(self.periods)
        ends = None if self.axis.ends is None else self.axis.ends[:size]
        measured = replace(self.axis, keys=self.periods, ends=ends)
        asked = where.get(self.axis.name, (None, None))
        self.axis.runs(asked)  # also what ends inside the last measured period is refused
        runs = measured.runs(asked)
        signs = {last: 1 for _, last in runs} | {first - 1: -1 for first, _ in runs if first}
        widths = self.margins(1 - failure_of(confidence) / len(signs))
        value = sum(sign * self.values[place].item() for place, sign in signs.items())
        return Number(
            value=value if self.signed else max(0, value),
            margin=sum(widths[place].item() for place in signs),
            confidence=1 - failure_of(confidence),
            lower=bool(self.cut),
        )

    def rising(self) -> Floats:
        """The nearest totals that never fall (in squares, weighed by precision). A free view."""
        from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow to load

        found = isotonic_regression(self.totals.values, weights=1 / self.totals.variances).x
        return cast("Floats", np.maximum(found, 0) * float(self.grain))

    def answer(self, rows: int | None = None) -> Answer:
        """A row for each period, or for the last."""
        size = len(self.periods)
        first = 0 if rows is None else max(0, size - rows)
        keys = self.axis.column().slice(first, size - first)

        def half_widths(confidence: Numeric) -> Sequence[HalfWidths]:
            return (None, tuple(self.margins(confidence)[first:].tolist()))

        table = pa.table({self.axis.name: keys, self.value: self.values[first:]})
        unsigned = () if self.signed else (self.value,)
        return self.stating(table, half_widths, self.words, unsigned=unsigned)

    def plot(self, confidence: Numeric = 0.95, title: str | None = None) -> Any:  # noqa: ANN401
        """A line with its error bars."""
        return plot(self.answer(), confidence, x=self.axis.name, y=self.value, title=title)

    def record(self) -> dict[str, Any]:
        """Axis and totals, and what the ± follows from."""
        return {
            "axis": self.axis.to_record(),
            "totals": [self.totals.values.tolist(), self.totals.variances.tolist()],
            "grain": str(self.grain),
            "sampling": None if self.sampling is None else self.sampling.to_record(),
            **{name: getattr(self, name) for name in _KEPT},
        }

    @classmethod
    @loading
    def load(cls, file: str | Path) -> "SeriesRelease":
        """The series that `save` wrote to a Parquet file. Needs no gate."""
        _, record = read_held(file, cls)
        kept = {name: record[name] for name in _KEPT} | {"words": tuple(record["words"])}
        return cls(
            axis=Axis.from_record(record["axis"]),
            totals=RunningTotals(*(np.array(each, np.float64) for each in record["totals"])),
            grain=Fraction(record["grain"]),
            sampling=Sampling.from_record(record.get("sampling")),
            **kept,
            **record["standing"],
        )

    @property
    def headline(self) -> str:
        """How far it goes, and how it was measured."""
        return f"{len(self.periods):,} periods by {self.factor!r}"
