"""A table for a list of SQL counting questions, by multiplicative weights: `release("questions")`.

The questions are known in advance, so each round chooses the one that the table has worst among all
of them, instead of waiting for it as a session does [HLM12]. See `releases/fit/multiplicative.py`.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, Final, Literal, Required, TypeAlias, final

import numpy as np

from noisegate.algebra.expression import Expression
from noisegate.curator.allowance import Allowance
from noisegate.curator.surprises import CELLS_MAX
from noisegate.desk.desk import Desk
from noisegate.desk.job import AdaptiveJob, Progress, Receipt
from noisegate.desk.order import Columns
from noisegate.errors import NoisegateError, SpecError, Unsupported
from noisegate.exact import Number
from noisegate.frozen import dataclass
from noisegate.ledger.ledger import Ledger
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, decode, encode
from noisegate.releases.ask.asking import DoorAsk
from noisegate.releases.ask.order import PriceTerms, ReleaseOrder
from noisegate.releases.ask.transcript import Rounds, pack, unpack
from noisegate.releases.cells.estimate import tail_factor, whole
from noisegate.releases.cells.grid import Grid
from noisegate.releases.cells.workload import Floats
from noisegate.releases.fit.multiplicative import ROUNDS_MAX, answers, build, checked
from noisegate.releases.forms.table import TableExpected, TableRelease, endings_of
from noisegate.sql.laws.sampling import sampling_of
from noisegate.synthetic.pmw.cells_model import cells_table
from noisegate.synthetic.questions import counting_grid
from noisegate.transforms.query import Query
from noisegate.transforms.strategy import Matrix, Strategy

_SINCE: Final = "2026-11-18"  # ledgers that began later hold no former tables
_CHECK: Final = Fraction(1, 10)  # of the price, for the ± of the questions
_MEASURED: Final = (
    "How far the questions are off depends on the rows; a tenth of the price measures it, and the "
    "release has one ± for all of them."
)
_FAILURE: Final = 0.05
Contents: TypeAlias = tuple[dict[str, Any], list[Floats], Rounds]


class QuestionsTerms(PriceTerms, total=False):
    """What is said of a table for questions; see `QuestionsOrder`."""

    columns: Columns | None
    method: Literal["auto", "mwem"]
    workload: Required[Sequence[str]]
    rounds: int | None
    replays: int | None
    total: int | None
    average: bool | None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsOrder(ReleaseOrder[TableRelease, TableExpected]):
    """A table for a ``workload`` of counting questions in SQL; a ``total`` is a public number."""

    name: Literal["questions"] = "questions"
    workload: Sequence[str]
    table: str | None = None
    columns: Columns | None = None
    method: Literal["auto", "mwem"] = "auto"
    epsilon: Number | None = None
    rows_per_unit: int | None = None
    rounds: int | None = None
    replays: int | None = None
    total: int | None = None
    average: bool | None = None

    def __post_init__(self) -> None:
        ReleaseOrder.__post_init__(self)
        if not self.workload:
            raise SpecError(
                "There are no questions.",
                fix='For example: workload=["SELECT COUNT(*) FROM people WHERE age < 30", …].',
            )
        known = {"rounds": (1, ROUNDS_MAX), "replays": (0, ROUNDS_MAX), "total": (1, 1 << 50)}
        for name, (low, high) in known.items():
            if (value := getattr(self, name)) is not None and not low <= value <= high:
                raise SpecError(f"{name} is {value}.", fix=f"Use {low} to {high}.")

    @property
    def options(self) -> dict[str, int]:
        """Those of the method that were said."""
        said = {name: getattr(self, name) for name in ("rounds", "replays", "total", "average")}
        return {name: value for name, value in said.items() if value is not None}

    def job(self, desk: Desk) -> "QuestionsJob":
        """The table that it asks for; one that was paid for before others had cells is found."""
        known = dict[str, Expression | None]()
        made = questions_job(desk, self, known)
        if desk.read_as(Ledger.begun) >= _SINCE or made.is_paid(desk.curator):
            return made
        with suppress(NoisegateError):
            former = questions_job(desk, self, known, former=True)
            if former.is_paid(desk.curator):
                return former
        return made

    def anew(self, desk: Desk) -> "QuestionsJob":
        """The table as it is made now."""
        return questions_job(desk, self)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsJob(AdaptiveJob[Contents, TableRelease, TableExpected]):
    """A table for a list of counting questions, by multiplicative weights."""

    kind: str = "questions"
    grid: Grid
    block: Matrix
    options: Mapping[str, Any]

    @property
    def tables(self) -> Sequence[TableDomain]:
        """Those of the cells."""
        return self.grid.query.tables

    def draw(self, allowed: Allowance, progress: Progress) -> bytes:
        """Round by round, the question that the table has worst."""
        grid = self.grid
        ask = DoorAsk(allowed.whole, grid.query, self.price, shape=grid.shape, progress=progress)
        options = dict(self.options)
        if "total" in options:
            options["total"] = float(options["total"] / grid.grain)
        made = build(ask, self.block, kept=_CHECK, **options)
        values = made.cells * float(grid.grain)  # as they are shown
        cells = whole(values) / float(grid.grain) if grid.whole else made.cells
        far, spread = checked(ask, self.block, cells, _CHECK)
        off = self._off(far, spread, cells)
        said = "The question is" if self.block.size == 1 else "All questions together are"
        exact = grid.query.tally.rows_per_unit is None  # type: ignore[union-attr]  # sums
        truth = "the exact count" if exact else "the count that contribution bounds leave"
        sure = f"{said} within ± {off:,.4g} of {truth}, at 95 %: one more choice, of the "
        words = (*made.words, f"{sure}one that the table has worst, was measured for it.")
        record = {"event": encode(allowed.used()), "words": list(words), "within": off}
        return pack(record, [np.asarray(cells, np.float64)], ())

    def _off(self, far: float, spread: float, cells: Floats) -> float:
        """The ± of all questions, at 95 %: see `checked`.

        Of a sample, half of what may fail is for sampling, and each question has an equal part.
        """
        grid, failure = self.grid, _FAILURE / (1 if self.grid.sample is None else 2)
        query = Query(self.grid.query.tally, Strategy(self.block.cells, (self.block,)))
        moved = query.moved * Strategy(self.block.cells, (self.block,)).reaches[0]
        zeros = np.zeros(self.block.size, np.int64)
        choice = self.price.furthest(zeros, _CHECK / 2, moved)
        tail = tail_factor(failure / 2, gaussian=self.price.gaussian)
        off = far + tail * spread + choice.shortfall(1 - Fraction(failure) / 2) + 0.5
        if grid.sample is None:
            return off * float(grid.grain)
        shown = answers(self.block, cells.ravel()) * float(grid.grain)
        sampling = sampling_of(grid.sample, grid.moved, grid.grain)
        noise = np.full(shown.shape, off * float(grid.grain))
        return float(sampling.widened(shown, noise, failure / self.block.size).max())

    def read(self, stored: bytes) -> tuple[Contents, Event]:
        """The table, and what was used."""
        found = unpack(stored)
        return found, decode(found[0]["event"])

    def result(self, content: Contents, receipt: Receipt) -> TableRelease:
        """The table."""
        record, (cells,), _ = content
        return cells_table(
            self.grid, cells, method="questions", price=self.price,
            words=tuple(record["words"]), standing=receipt.standing,
        )  # fmt: skip


def questions_job(
    desk: Desk,
    order: QuestionsOrder,
    known: dict[str, Expression | None] | None = None,
    *,
    former: bool = False,
) -> QuestionsJob:
    """The table that an order asks for; what it cannot do is refused here, at no cost.

    ``known`` are conditions that were read before. ``former``: as it was asked for once, without a
    cell for undeclared texts, and without a ±.
    """
    asked, options = order.workload, order.options
    counted = counting_grid(
        desk.curator.tables, table=order.table, columns=order.columns,
        questions=asked, rows_per_unit=order.rows_per_unit, whole=not former,
        read_=known,
    )  # fmt: skip
    if counted.cells > CELLS_MAX:
        raise Unsupported(
            f"There would be {counted.cells:,} cells, more than {CELLS_MAX:,}.",
            fix="Use wider bins or fewer columns, or ask for synthetic rows.",
        )
    grid, block = counted.grid.sampled(desk.rules.sample), counted.block(asked)
    epsilon = desk.epsilon(order.epsilon)
    price = desk.price(epsilon)
    record = {
        "release": "questions/1" if former else "questions/2",
        "query": grid.to_record(),
        "block": block.digest(),
        "options": options,
        **price.to_record(),
    }
    return QuestionsJob(
        sql=grid.sql,
        epsilon=epsilon,
        expected=TableExpected(
            axes=grid.axes,
            method="mwem",
            workload=f"{block.size:,} questions",
            questions=block.size,
            rms=None,
            gaussian=price.gaussian,
        ),
        notes=(_MEASURED, *grid.caveats),
        endings=endings_of(grid.axes),
        uses=frozenset({"partitions"}),
        price=price,
        question=json.dumps(record, sort_keys=True, ensure_ascii=False),
        grid=grid,
        block=block,
        options=options,
    )
