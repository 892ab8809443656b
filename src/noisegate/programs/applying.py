"""Any program on private rows: sample and aggregate.

Units are dealt to blocks, the program runs on each block alone, and what is released is the noisy
average, median or centre of what it says [NRS07], [MTSSC12]. One unit is in one block, so nothing
has to be known about the program but the range of its numbers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import ceil
from threading import Event, Thread
from time import monotonic
from typing import Any, ClassVar, Final, Literal, Required, TypeAlias, final

from noisegate.algebra.blocks import STEPS, Blocks, Program
from noisegate.algebra.relation import Relation
from noisegate.algebra.schema import schema_of
from noisegate.curator.blocks import BlockMeasurement, turns_of
from noisegate.curator.curator import Asked, Curator
from noisegate.desk.desk import Desk
from noisegate.desk.job import Drawn, Measured, Progress, Receipt, drawn_of
from noisegate.desk.terms.price import Price, inner_delta
from noisegate.errors import Bug, SpecError, Unsupported
from noisegate.exact import Number, fraction, positive, sqrt_down
from noisegate.frozen import dataclass, replace
from noisegate.mechanisms.additive.gaussian import DiscreteGaussian
from noisegate.mechanisms.additive.geometric import Geometric
from noisegate.mechanisms.base import Mechanism
from noisegate.mechanisms.quantiles.quantile import Quantile
from noisegate.mechanisms.quantiles.winsorised import Winsorised
from noisegate.mechanisms.smooth.smooth import SmoothLaplace, SmoothLognormal, SmoothStudent
from noisegate.planning.calibrate import (
    discrete_gaussian_variance_for_error,
    geometric_scale_for_error,
)
from noisegate.privacy.guarantee import Guarantee, guarantee_of
from noisegate.privacy.loss import ApproxDP
from noisegate.privacy.release import Release as Measurements
from noisegate.programs.applied import Applied, widths_of, words_of
from noisegate.programs.order import ApplyExpected, Ends, ProgramOrder, ProgramTerms
from noisegate.sql.question import Function as Aggregation
from noisegate.sql.question import Question
from noisegate.sql.reading.reader import read
from noisegate.sql.spelling import quoted, table_named
from noisegate.transforms.blocks import BlockQuery

_BLOCKS_POWER: Final = 0.4  # of the rows: GUPT's choice
_TICK: Final = 0.25  # seconds
_PRICED: Final = "Give two of epsilon, within and blocks; within is for a mean only."
Aggregate: TypeAlias = Literal["mean", "median", "center"]


class ApplyTerms(ProgramTerms, total=False):
    """What is said beside the program; see `ApplyOrder`."""

    range: Required[Ends | Sequence[Ends]]
    names: Sequence[str] | None
    resample: int
    narrow: bool
    aggregate: Aggregate
    delta: Number | None
    within: Number | None
    confidence: Number
    default: Number | Sequence[Number] | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOrder(ProgramOrder[Applied, ApplyExpected]):
    """A program on blocks of rows, and what is released of what it says.

    Attributes:
        program: The text of a program, and the name of the function in it; see `program_of`.
        range: The range of the program's output, such as (0, 120); for several outputs, a list.
            Outputs are clipped to it.
        sql: Which rows it sees: ``SELECT age, cost FROM visits WHERE ward = 'north'``.
        table: Or, without SQL: the table, if there are several,
        columns: its columns, by default all,
        where: and a condition.
        names: What the numbers are called.
        blocks: The number of blocks: more of them need less noise, but each has fewer rows.
        rows: Or an approximate public number of rows; then there are rows^0.4 blocks, on a sample
            those that it may be expected to hold.
        resample: How often units are dealt to blocks. More often does not change the noise of a
            mean; it reduces the variance of the random assignment.
        narrow: For a mean: first find where most blocks lie, for half of ε, and average there. For
            hundreds of blocks and a range that is too wide.
        aggregate: "mean"; "median", for programs with outliers; "center" of most blocks, for
            outputs that lie close together in a wide range.
        epsilon: The price of all outputs together; by default that of the policy. In an account
            that adds up zCDP, ε buys the ρ that implies it.
        delta: For a center: noise with lighter tails.
        within: The largest error of a mean due to noise, at the ``confidence``: instead of epsilon,
            with it and instead of blocks.
        confidence: How sure that is.
        default: What counts for a block without an answer: by default the middle of the range.
        seconds: The time of each block, whatever the program does.
        memory: The megabytes that a program may use, with its rows, which are copied once.
        trusted: Do not isolate it: it is the steward's own. The guarantee says so.
        workers: The number of blocks that run at once. They may notice how busy the others are, so
            for as many of them, unless the program is trusted.
        rehearse: Try it on made-up rows before anything is paid for.
    """

    kind: ClassVar[str] = "apply"
    range: Ends | Sequence[Ends]
    sql: str | None = None
    table: str | None = None
    columns: Sequence[str] | None = None
    where: str | None = None
    names: Sequence[str] | None = None
    blocks: int | None = None
    rows: int | None = None
    resample: int = 1
    narrow: bool = False
    aggregate: Aggregate = "mean"
    epsilon: Number | None = None
    delta: Number | None = None
    within: Number | None = None
    confidence: Number = 0.95
    default: int | float | str | Sequence[Number] | None = None
    seconds: Number = 1
    memory: int = 256
    trusted: bool = False
    workers: int = 1
    rehearse: bool = True

    def job(self, desk: Desk) -> "ApplyJob":
        """What is to be run."""
        return apply_job(desk, self)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyJob(Measured[Applied, ApplyExpected]):
    """A program on blocks of rows; what leaves is a noisy average of what it says."""

    kind: str = "program"
    endings: tuple[str, ...] = Applied.endings
    rehearse: bool

    def drawn(self, curator: Curator, progress: Progress, *, fresh: bool) -> Drawn[Measurements]:
        """Try it on made-up rows, then pay."""
        return drawn_blocks(
            self.measurement, curator, progress, fresh=fresh, rehearse=self.rehearse
        )

    def guarantee(self, loss: ApproxDP) -> Guarantee:
        """Of a trusted program, provided that it is silent."""
        silent = ", if the program, which was trusted, reveals nothing else of what it saw"
        return guarantee_of(loss, self.tables, then=silent if self.expected.tally.trusted else "")

    def result(self, content: Measurements, receipt: Receipt) -> Applied:
        """The numbers."""
        known = self.expected
        return Applied(
            sql=self.sql,
            names=known.names,
            ranges=known.tally.ranges,
            answers=known.tally.answers,
            aggregate=known.aggregate,
            noise=known.noise,
            released=tuple(map(tuple, content.values.tolist())),
            program=known.tally.program.name,
            source=known.tally.program.text,
            trusted=known.tally.trusted,
            sample=known.tally.sample,
            **receipt.standing,
        )


def drawn_blocks(
    asked: Asked, curator: Curator, progress: Progress, *, fresh: bool, rehearse: bool
) -> Drawn[Measurements]:
    """What a program's blocks release, tried on made-up rows before anything is paid."""
    if not isinstance(asked, BlockMeasurement):
        raise Bug("A program runs on blocks.", fix="Please report the order.")
    if rehearse:
        asked = curator.rehearse(asked)
    with _ticking(progress, turns_of(asked.query.tally)):
        request = curator.fresh_id() if fresh else None
        return drawn_of(curator.measure(asked, request_id=request))


def apply_job(desk: Desk, order: ApplyOrder) -> ApplyJob:
    """What is to be run; whatever is wrong with the order is refused here, at no cost."""
    rows, program = sql_of(desk.curator, order), order.program
    if order.within is not None and order.epsilon is not None and order.blocks is None:
        order = _with_blocks(desk, rows, program, order)
    tally = tally_of(desk, rows, program, order)
    query = BlockQuery(tally)
    noise = _Buying(desk, order).noise(query)
    measurement = BlockMeasurement(query=query, mechanisms=noise)
    return ApplyJob(
        sql=rows,
        epsilon=_asked(desk, order, measurement),
        expected=ApplyExpected(
            tally=tally, aggregate=order.aggregate, names=_names(order, len(tally.ranges)),
            noise=noise,
        ),
        notes=words_of(noise, tally.answers, trusted=tally.trusted, sample=tally.sample),
        measurement=measurement,
        rehearse=order.rehearse,
    )  # fmt: skip


def _asked(desk: Desk, order: ApplyOrder, measurement: BlockMeasurement) -> Fraction:
    """The price that is asked for; where an error is, what it costs."""
    if order.within is None:
        return desk.epsilon(order.epsilon)
    return desk.curator.cost_of(measurement.event()).epsilon


def _with_blocks(desk: Desk, sql: str, program: Program, order: ApplyOrder) -> ApplyOrder:
    """The order with as many blocks as keep the noise of a mean within this, for its ε."""
    within = positive(order.within or 0, name="within")
    order = replace(order, blocks=1, within=None)
    tally = tally_of(desk, sql, program, order)
    noise = _Buying(desk, order).noise(BlockQuery(tally))
    widths = widths_of(noise, None, tally.ranges, tally.answers, order.confidence)
    if widths is None:
        raise SpecError("within works only with a plain mean.", fix=_PRICED, about="within")
    return replace(order, blocks=max(ceil(Fraction(width or 0) / within) for width in widths))


@final
@dataclass(frozen=True, slots=True)
class _Buying:
    """The noise that an order buys."""

    desk: Desk
    order: ApplyOrder

    def noise(self, query: BlockQuery) -> tuple[Mechanism[Any], ...]:
        """That of each number."""
        order, rules = self.order, self.desk.rules
        if order.within is not None:
            if order.epsilon is not None or order.aggregate != "mean" or order.narrow:
                raise SpecError(
                    "within works only with a plain mean, and not together with epsilon.",
                    fix=_PRICED,
                    about="within",
                )
            noise = self._noise_within(query, positive(order.within, name="within"))
            event = BlockMeasurement(query=query, mechanisms=noise).event()
            rules.require_price(self.desk.curator.cost_of(event).epsilon)
            return noise
        price, count = self.desk.price(order.epsilon), len(query.tally.ranges)
        share = replace(price, amount=price.amount / count)
        if order.narrow:
            return (self._narrow(share, query),) * count
        if order.aggregate == "center":
            return (_smooth_noise(share, query.changed, self._delta(query)),) * count
        if order.delta is not None:
            raise SpecError(
                'delta is used only with aggregate="center".', fix="Leave out delta.", about="delta"
            )
        return (_noise(order.aggregate, share, query),) * count

    def _narrow(self, price: Price, query: BlockQuery) -> Winsorised:
        """The noise of a mean whose range is found first; refuses what would find none."""
        if self.order.aggregate != "mean" or price.gaussian or self.order.delta is not None:
            raise SpecError(
                "narrow works only with a mean, in an account that adds up ε.",
                fix="Leave out narrow.",
            )
        noise = Winsorised.for_epsilon(price.amount, high=STEPS, changed=query.changed)
        off, answers = noise.rank_error("0.95"), query.tally.answers
        if 8 * off > answers:
            raise SpecError(
                f"With {answers:,} blocks, the quartiles would be off by up to {off:,} blocks.",
                fix=f"Use {8 * off:,} blocks or a larger epsilon, or leave out narrow.",
            )
        return noise

    def _delta(self, query: BlockQuery) -> Fraction | None:
        """The δ of each output, if there is one."""
        order = self.order
        if order.delta is None:
            return None
        if query.changed > 1 or self.desk.accountant != "pure":
            raise SpecError(
                "A δ needs blocks that are dealt once and run one at a time, in an account that "
                "adds up ε.",
                fix="Leave out delta.",
                about="delta",
            )
        whole = inner_delta(positive(order.delta, name="delta"), query.tally.sample)
        return whole / len(query.tally.ranges)

    def _noise_within(self, query: BlockQuery, within: Fraction) -> tuple[Mechanism[Any], ...]:
        """The cheapest noise that moves no average further than this, at the confidence."""
        tally, noise = query.tally, list[Mechanism[Any]]()
        for low, high in tally.ranges:
            steps = int(within * STEPS * tally.answers / (high - low))
            if steps < 1:
                raise SpecError("within is too small.", fix="Use a larger one, or more blocks.")
            sure = self.order.confidence
            if self.desk.accountant != "pure" and tally.sample is None:
                variance = discrete_gaussian_variance_for_error(steps, confidence=sure)
                noise.append(DiscreteGaussian(variance=variance))
            else:
                noise.append(Geometric(scale=geometric_scale_for_error(steps, confidence=sure)))
        return tuple(noise)


@contextmanager
def _ticking(progress: Progress, seconds: float) -> Iterator[None]:
    """Say how far the clock has come: how long blocks take is known beforehand."""
    ended, begin = Event(), monotonic()

    def tick() -> None:
        while not ended.wait(_TICK):
            progress(min(1.0, (monotonic() - begin) / seconds), "running blocks")

    thread = Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _noise(aggregate: str, price: Price, query: BlockQuery) -> Mechanism[Any]:
    """The noise of one output for an ε, or a ρ in accounts that add these up."""
    if aggregate == "mean":
        if price.gaussian:
            return DiscreteGaussian.for_rho(price.amount, sensitivity=query.l2s[0])
        return Geometric.for_epsilon(price.amount, sensitivity=query.l1s[0])
    epsilon = sqrt_down(8 * price.amount) if price.gaussian else price.amount  # ρ = ε² / 8
    factor = epsilon / (2 * query.changed)
    return Quantile(tau=Fraction(1, 2), factor=factor, low=0, high=STEPS)


def _smooth_noise(price: Price, changed: int, delta: Fraction | None) -> Mechanism[Any]:
    """The same for a centre, which takes ``changed`` steps when a unit comes or goes."""
    span = {"low": 0, "high": 2 * STEPS}
    if price.gaussian:
        with suppress(SpecError):  # for small ρ there is none
            return SmoothLognormal.for_rho(price.amount / changed**2, **span)
    epsilon = sqrt_down(2 * price.amount) if price.gaussian else price.amount  # ρ = ε² / 2
    if delta is not None:
        return SmoothLaplace.for_budget(epsilon, delta, **span)
    return SmoothStudent.for_epsilon(epsilon / changed, **span)


def sql_of(curator: Curator, order: ApplyOrder) -> str:
    """The SELECT of the rows that the program sees."""
    if order.sql is not None:
        if (order.table, order.columns, order.where) != (None, None, None):
            raise SpecError(
                "The SQL already states the table, columns and WHERE.", fix="Leave them out."
            )
        return order.sql
    table = table_named(curator.tables, order.table or None)
    if order.columns is not None and not order.columns:
        raise SpecError("No column is named.", fix="Name at least one, or leave out columns.")
    shown = ", ".join(map(quoted, map(str, order.columns))) if order.columns is not None else "*"
    condition = f" WHERE {order.where}" if order.where else ""
    return f"SELECT {shown} FROM {quoted(table)}{condition}"  # noqa: S608 - read by us


def tally_of(desk: Desk, sql: str, program: Program, order: ApplyOrder) -> Blocks:
    """The blocks of the rows, and the program that is asked about each."""
    counted = f"SELECT COUNT(*) FROM ({sql}) AS noisegate_rows"  # noqa: S608 - read by us
    question, sample = read(counted, desk.curator.tables), desk.rules.sample
    relation = _rows(question)
    ranges = _ranges(order.range)
    return Blocks(
        relation=relation,
        columns=tuple(schema_of(relation)),
        program=program,
        blocks=_blocks(order, sample),
        resample=order.resample,
        ranges=ranges,
        defaults=_defaults(order.default, ranges),
        seconds=positive(order.seconds, name="seconds"),
        memory=order.memory,
        trusted=order.trusted,
        workers=order.workers,
        sample=sample,
    )


def _rows(question: Question) -> Relation:
    """The rows of a SELECT that was counted."""
    block = question.blocks[0] if len(question.blocks) == 1 else None
    asked = None if block is None else block.aggregates[0]
    if (
        block is None or asked is None or block.by or question.picked is None or asked.where
        or asked.function is not Aggregation.COUNT
    ):  # fmt: skip
        raise Unsupported(
            "The SQL does not select rows of a private table.",
            fix="For example: SELECT age, cost FROM visits WHERE ward = 'north'.",
        )
    return block.relation


def _blocks(order: ApplyOrder, sample: Fraction | None) -> int:
    if (order.blocks is None) == (order.rows is None):
        raise SpecError(
            "Give the number of blocks, or about how many rows there are.",
            fix="Use blocks=100, or rows=50000 if that is public.",
        )
    if order.blocks is not None:
        return order.blocks
    many = float(positive(order.rows or 0, name="rows") * (sample or 1))
    return max(2, int(many**_BLOCKS_POWER))


def _ranges(given: Any) -> tuple[tuple[Fraction, Fraction], ...]:  # noqa: ANN401 - as people write it
    """One pair of numbers, or a list of them."""
    try:
        pairs = list(given)
        if len(pairs) == 2 and not any(isinstance(each, list | tuple) for each in pairs):
            pairs = [pairs]
        found = [tuple(fraction(end, name="range") for end in pair) for pair in pairs]
    except TypeError:
        found = []
    if not found or any(len(pair) != 2 for pair in found):
        raise SpecError(
            "The range is not understood.", fix="For example: range=(0, 120), or a list of pairs."
        )
    return tuple((low, high) for low, high in found)


def _defaults(
    given: Any,  # noqa: ANN401 - as people write it
    ranges: tuple[tuple[Fraction, Fraction], ...],
) -> tuple[Fraction, ...]:
    """What stands for a block without an answer: the middle, unless said otherwise."""
    if given is None:
        return tuple((low + high) / 2 for low, high in ranges)
    listed = given if isinstance(given, list | tuple) else [given]
    return tuple(fraction(each, name="default") for each in listed)


def _names(order: ApplyOrder, count: int) -> tuple[str, ...]:
    if order.names is None:
        return ("value",) if count == 1 else tuple(f"value {n}" for n in range(1, count + 1))
    if isinstance(order.names, str) or len(order.names) != count:
        raise SpecError("There must be one name per output.", fix=f"Give {count} names.")
    return tuple(map(str, order.names))
