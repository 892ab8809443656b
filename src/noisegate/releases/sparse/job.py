"""How a summary of a table too large to list is asked for: one measurement, kept in the ledger."""

from fractions import Fraction
from math import ceil
from typing import Any, Final, Literal, final

from noisegate.algebra.tally import Cells
from noisegate.curator.curator import Curator
from noisegate.curator.measurement import Measurement
from noisegate.desk.desk import Desk
from noisegate.desk.display.numbers import percent
from noisegate.desk.job import Measured, Receipt
from noisegate.desk.plan import Fact
from noisegate.desk.terms.price import inner_price
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import Number, positive
from noisegate.frozen import dataclass
from noisegate.mechanisms.base import failure_of
from noisegate.mechanisms.keys.sparse_geometric import SparseGeometric, threshold_for
from noisegate.mechanisms.keys.sparse_priority import SparsePriority
from noisegate.planning.calibrate import geometric_error, geometric_scale
from noisegate.privacy.domain import Kind
from noisegate.privacy.release import Release as Measurements
from noisegate.releases.ask.order import CellsOrder, CellsTerms
from noisegate.releases.cells.grid import OWN, UNITS, axis_names
from noisegate.releases.sparse.axes import STEPS, SparseAxis, axes_of
from noisegate.releases.sparse.summary import SparseRelease, false_cells, missing_rows
from noisegate.sql.drafts.declared import declared_rows
from noisegate.sql.drafts.words import capped_words
from noisegate.sql.laws.sampling import Sampling, sample_words, sampling_of
from noisegate.sql.laws.selected import clear_from
from noisegate.sql.question import Block, Function, Question, sampled
from noisegate.sql.reading.reader import read
from noisegate.sql.spelling import quoted, table_named
from noisegate.transforms.checks import CAP_MAX
from noisegate.transforms.query import Query
from noisegate.transforms.stability import stability_of

_FORM: Final = "For example: SELECT COUNT(*) FROM trips GROUP BY start, stop."
_FALSE: Final = Fraction(1, 100)  # of the cells that are expected, so many without rows


class SparseTerms(CellsTerms, total=False):
    """What is said of a summary; see `SparseOrder`."""

    expected: int | None
    threshold: int | None
    tau: int | None
    unbiased: bool
    size: int | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseOrder(CellsOrder[SparseRelease, "SparseExpected"]):
    """A summary of a table too large to list.

    ``expected`` is the approximate number of cells with rows, if known: the threshold is then such
    that empty cells shown are at most a hundredth of it; otherwise at most one on average.
    ``threshold`` sets it instead. ``tau`` samples cells below it in proportion to their numbers,
    and with ``unbiased`` sums have no bias; ``size`` shows that many cells by priority.
    """

    name: Literal["sparse"] = "sparse"
    expected: int | None = None
    threshold: int | None = None
    tau: int | None = None
    unbiased: bool = False
    size: int | None = None

    def job(self, desk: Desk) -> "SparseJob":
        """What is to be measured; whatever is wrong with the order is refused here, at no cost."""
        sql = _sql(desk.curator, self)
        question = sampled(read(sql, desk.curator.tables), desk.rules.sample)
        block = _block(question)
        epsilon = _epsilon(desk, self, question)
        tally_axes, axes = axes_of(block, axis_names(question, block, (*OWN, *STEPS)))
        facts = stability_of(block.relation)
        declared = declared_rows(block.relation)
        said = self.rows_per_unit or question.terms.rows_per_unit
        cap = None
        if not facts.is_row_level:
            cap = said or (None if declared is None else min(declared, CAP_MAX))
        elif self.rows_per_unit is not None:
            raise SpecError(
                "Every row is one unit, so a contribution bound has no meaning.",
                fix="Leave it out.",
            )
        query = Query(Cells(relation=block.relation, by=tally_axes, rows_per_unit=cap))
        noise = _noise(self, query, inner_price(desk.step(epsilon), query.sample))
        moves = query.path[-1]
        sampling, secret = None, list[str]()
        if query.sample is not None:
            sampling = sampling_of(query.sample, query.per_unit, 1 / query.sample)
            secret = [sample_words(query.sample, in_bars=True)]
        if any(key.domain.nullable for key in block.by):
            secret.append("Rows without a value in a column of the table are in no cell.")
        capped = capped_words(block, [(query, None, False)])
        shown = (*_words(noise, sampling), f"{moves[0].upper()}{moves[1:]}.", *capped)
        return SparseJob(
            sql=sql,
            epsilon=epsilon,
            notes=(*shown, *secret),
            measurement=Measurement(query=query, mechanisms=(noise,)),
            axes=axes,
            expected=SparseExpected(noise=noise, sampling=sampling),
            cut=bool(capped),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseExpected:
    """Which cells would be shown, and how far their counts may be off."""

    noise: SparseGeometric | SparsePriority
    sampling: Sampling | None

    @property
    def threshold(self) -> int:
        """Noisy counts below it are not shown."""
        return self.noise.threshold

    @property
    def false_cells(self) -> float:
        """How many of the shown cells hold no row, on average at most."""
        return false_cells(self.noise)

    def sure(self, confidence: Number = 0.95) -> int:
        """A cell with so many rows is shown, unless a sample of cells leaves it out."""
        return _sure(self.noise, self.sampling, confidence)

    def margin(self, confidence: Number = 0.95) -> int:
        """The ± of a count by its noise; that of a cell near the threshold is larger."""
        off = geometric_error(self.noise.scale, confidence=confidence)
        return off if self.sampling is None else ceil(off / self.sampling.probability)

    def clear(self, confidence: Number = 0.95) -> int:
        """A shown number below this may be that of a cell without rows: its ± reaches 0."""
        failure, scale = failure_of(confidence), self.noise.scale
        found = clear_from(_bar(self.noise), scale=scale, failure=failure)
        return found if self.sampling is None else ceil(found / self.sampling.probability)

    def facts(self, confidence: Number) -> list[Fact]:
        """In words, one fact a line."""
        cells = f"{self.noise.domain:,}, of which those that hold many rows are shown"
        sure = f"at {percent(confidence)} confidence for a large cell"
        empty = f"one shown with less than {self.clear(confidence):,} may hold no row"
        return [("cells", cells), ("error", f"± {self.margin(confidence):,} {sure}; {empty}")]

    def margins(self, confidence: Number) -> dict[str, float | None]:
        """The ± of a large cell."""
        return {"large cell": self.margin(confidence)}

    def to_dict(self, confidence: Number) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "cells": self.noise.domain,
            "threshold": self.threshold,
            "false_cells": self.false_cells,
            "sure": self.sure(confidence),
            "clear": self.clear(confidence),
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseJob(Measured[SparseRelease, SparseExpected]):
    """A summary of a table too large to list."""

    kind: str = "sparse"
    endings: tuple[str, ...] = SparseRelease.endings
    axes: tuple[SparseAxis, ...]
    cut: bool

    def result(self, content: Measurements, receipt: Receipt) -> SparseRelease:
        """The cells that are shown."""
        assert content.cells is not None  # noqa: S101 - of this kind of measurement
        return SparseRelease(
            sql=self.sql,
            axes=self.axes,
            cells=content.cells,
            values=content.values,
            noise=self.expected.noise,
            words=self.notes,
            sampling=self.expected.sampling,
            cut=self.cut,
            **receipt.standing,
        )


def _sql(curator: Curator, order: SparseOrder) -> str:
    if (order.sql is None) == (order.columns is None):
        raise SpecError(
            "Give either SQL or columns.",
            fix='For example: a SELECT, or columns={"x": 5, "y": None}.',
        )
    if order.columns is None:
        if order.table is not None or order.where is not None:
            raise SpecError("The SQL already states the table and WHERE.", fix="Leave them out.")
        return order.sql or ""
    table = table_named(curator.tables, order.table)
    known = curator.tables[table].columns
    if not order.columns or set(order.columns) - {*known}:
        raise SpecError("The columns are not in this table.", fix=f"Use {', '.join(known)}.")
    groups = [_group(name, how, known[name].kind) for name, how in order.columns.items()]
    condition = f" WHERE {order.where}" if order.where else ""
    rows = f"{quoted(table)}{condition}"  # read and checked as any other SQL
    return f"SELECT COUNT(*) FROM {rows} GROUP BY {', '.join(groups)}"  # noqa: S608


def _group(name: str, how: Any, kind: Kind) -> str:  # noqa: ANN401 - as people write it
    """A column by its values, in bins of a width, or by a unit of time."""
    if how is None:
        return quoted(name)
    if how in UNITS:
        return f"DATE_TRUNC('{how}', {quoted(name)})"
    width = positive(how, name=f"the bin width of {name}")
    if kind is Kind.INTEGER and width.denominator == 1:
        return f"BIN({quoted(name)}, {width})"
    return f"FLOOR({quoted(name)} * {width.denominator} / {width.numerator})"


def _block(question: Question) -> Block:
    plain = len(question.blocks) == 1 and question.picked is not None and not question.explain
    block = question.blocks[0] if plain else None
    if block is None or [a.function for a in block.aggregates] != [Function.COUNT]:
        raise Unsupported("A sparse release takes one plain SELECT of COUNT(*).", fix=_FORM)
    if block.aggregates[0].where is not None:
        raise Unsupported("COUNT has a FILTER.", fix="Put its condition in WHERE.")
    if not block.by or set(block.sets) != {tuple(range(len(block.by)))}:
        raise Unsupported("A sparse release takes one plain GROUP BY.", fix=_FORM)
    return block


def _epsilon(desk: Desk, order: SparseOrder, question: Question) -> Fraction:
    said = question.terms
    if order.epsilon is None and (said.within is not None or said.relative is not None):
        raise SpecError("A release is paid for with epsilon.", fix="Give epsilon.")
    return desk.epsilon(order.epsilon, said.epsilon)


def _noise(order: SparseOrder, query: Query, epsilon: Fraction) -> SparseGeometric | SparsePriority:
    tally, moved = query.tally, query.l1s[0]
    assert isinstance(tally, Cells)  # noqa: S101 - made above
    for name in ("expected", "threshold", "tau", "size"):
        value = getattr(order, name)
        if value is not None and value < 1:
            raise SpecError(
                f"{name} is {value!r}.", fix=f"Use a whole {name} of at least 1.", about="size"
            )
    if order.size is not None and (order.tau is not None or order.unbiased):
        raise SpecError("A sample takes either a size or a tau.", fix="Give one of them.")
    if order.unbiased and (order.tau is None or order.threshold not in (None, 1)):
        raise SpecError("Unbiased sampling uses tau.", fix="Give tau, and leave out threshold.")
    scale = geometric_scale(epsilon, sensitivity=moved)
    wanted = _FALSE * order.expected if order.expected else Fraction(1)
    theta = order.threshold or 1
    if order.threshold is None and not order.unbiased:
        theta = threshold_for(scale, domain=tally.cells, cells=wanted)
    if order.size is not None:
        return SparsePriority(scale=scale, domain=tally.cells, threshold=theta, size=order.size)
    return SparseGeometric(
        scale=scale, domain=tally.cells, threshold=theta, tau=max(theta, order.tau or theta),
        signed=order.unbiased,
    )  # fmt: skip


def _sure(
    noise: SparseGeometric | SparsePriority, sampling: Sampling | None, confidence: Number
) -> int:
    return missing_rows(_bar(noise), noise.scale, sampling, failure_of(confidence))


def _bar(noise: SparseGeometric | SparsePriority) -> int:
    return noise.tau if isinstance(noise, SparseGeometric) else noise.threshold


def _words(noise: SparseGeometric | SparsePriority, sampling: Sampling | None) -> tuple[str, ...]:
    false, sure = f"{false_cells(noise):.3g}", f"{_sure(noise, sampling, 0.95):,}"
    among = "" if sampling is None else " in the sample"
    theta, tau = f"{noise.threshold:,}", getattr(noise, "tau", 0)
    if isinstance(noise, SparsePriority):
        sampled = (
            f"{noise.size:,} cells are shown, sampled in proportion to their noisy counts from "
            f"those of at least {theta}; sums of samples are estimates."
        )
        return (sampled,)
    surely = (
        f"A cell of {sure} rows or more is shown with 95 %; of all cells without rows, about "
        f"{false} are shown: a number whose ± reaches 0 may be one of them."
    )
    if tau == noise.threshold:
        held = (
            f"Cells with a noisy count of {theta} or more{among} are shown; all others are missing."
        )
        return (held, surely)
    shown = "noisy count, of either sign," if noise.signed else "noisy count"
    sampled = (
        f"A cell is shown with a probability in proportion to its {shown} up to {tau:,}, from "
        f"{theta} on, and then counts at least {tau:,}{among}."
    )
    return sampled, surely
