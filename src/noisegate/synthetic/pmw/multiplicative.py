"""A table for a list of SQL counting questions, by multiplicative weights: `release("questions")`.

The questions are known in advance, so each round chooses the one that the table has worst among all
of them, instead of waiting for it as a session does [HLM12]. See `releases/fit/multiplicative.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from noisegate.curator.allowance import Allowance
from noisegate.curator.surprises import CELLS_MAX
from noisegate.desk.desk import Desk
from noisegate.desk.job import Progress, Receipt, Recipe
from noisegate.errors import SpecError, Unsupported
from noisegate.privacy.domain import TableDomain
from noisegate.privacy.event import Event, decode, encode
from noisegate.releases.ask.asking import DoorAsk
from noisegate.releases.ask.expected import TableExpected
from noisegate.releases.ask.order import Order
from noisegate.releases.ask.transcript import Rounds, pack, unpack
from noisegate.releases.cells.estimate import Floats
from noisegate.releases.cells.grid import Grid
from noisegate.releases.fit.multiplicative import ROUNDS_MAX, build
from noisegate.releases.forms.table import TableRelease, endings_of
from noisegate.synthetic.pmw.cells_model import cells_table
from noisegate.synthetic.questions import counting_grid
from noisegate.transforms.strategy import Matrix

Contents: TypeAlias = tuple[dict[str, Any], list[Floats], Rounds]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsJob(Recipe[Contents, TableRelease, TableExpected]):
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
        made = build(ask, self.block, **options)
        record = {"event": encode(allowed.used()), "words": list(made.words)}
        return pack(record, [made.cells], ())

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


def questions_job(desk: Desk, order: Order) -> QuestionsJob:
    """The table that an order asks for; what it cannot do is refused here, at no cost."""
    asked, options = _questions(order), _options(order)
    known = counting_grid(
        desk.curator.tables, table=order.table, columns=order.columns,
        questions=asked, rows_per_unit=order.rows_per_unit,
    )  # fmt: skip
    if known.cells > CELLS_MAX:
        raise Unsupported(
            f"There would be {known.cells:,} cells, more than {CELLS_MAX:,}.",
            fix="Use wider bins or fewer columns, or ask for synthetic rows.",
        )
    grid, block = known.grid.sampled(desk.rules.sample), known.block(asked)
    epsilon = desk.epsilon(order.epsilon)
    price = desk.price(epsilon)
    record = {
        "release": "questions/1",
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
        notes=("the error depends on the rows", *grid.caveats),
        endings=endings_of(grid.axes),
        uses=frozenset({"partitions"}),
        price=price,
        question=json.dumps(record, sort_keys=True, ensure_ascii=False),
        grid=grid,
        block=block,
        options=options,
    )


def _questions(order: Order) -> Sequence[str]:
    asked = order.workload
    listed = isinstance(asked, list | tuple) and all(isinstance(each, str) for each in asked)
    if not listed or not asked:
        raise SpecError(
            "There are no questions.",
            fix='For example: workload=["SELECT COUNT(*) FROM people WHERE age < 30", …].',
        )
    plain = order.sql is None and order.where is None and order.groups_per_unit is None
    if not plain or order.method not in ("auto", "mwem"):
        raise SpecError(
            'The method for questions is "mwem", without other SQL.',
            fix="Leave out sql and any other method.",
        )
    return tuple(asked)


def _options(order: Order) -> dict[str, Any]:
    known = {"rounds": (1, ROUNDS_MAX), "replays": (0, ROUNDS_MAX), "total": (1, 1 << 50)}
    for name, value in order.options.items():
        if name == "average" and type(value) is bool:
            continue
        low, high = known.get(name, (0, -1))
        if type(value) is not int or not low <= value <= high:
            raise SpecError(
                f"{name!r} is not an option, or its value is not usable.",
                fix="Use rounds, replays, total (whole numbers), average (True or False).",
            )
    return dict(order.options)
