"""A table for a list of SQL counting questions, by multiplicative weights: `release("questions")`.

The questions are known in advance, so each round chooses the one that the table has worst among all
of them, instead of waiting for it as a session does [HLM12]. See `releases/multiplicative.py`.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, final

from noisegate.accounting.pure import promised
from noisegate.curator.curator import Curator
from noisegate.curator.surprises import CELLS_MAX
from noisegate.desk.attempts import Attempts
from noisegate.desk.rules import Rules
from noisegate.errors import SpecError, Unsupported
from noisegate.exact import fraction
from noisegate.privacy.event import decode, encode
from noisegate.privacy.loss import ApproxDP
from noisegate.releases.asking import DoorAsk
from noisegate.releases.multiplicative import ROUNDS_MAX, build
from noisegate.releases.order import Order
from noisegate.releases.plan import ReleasePlan
from noisegate.releases.table import TableRelease, endings_of
from noisegate.releases.transcript import pack, unpack
from noisegate.synthetic.cells_release import CellsRelease, price_of
from noisegate.synthetic.questions import counting_grid

Progress = Callable[[float, str], None]


@final
class QuestionsBench:
    """Makes the release called "questions"."""

    def __init__(self, curator: Curator, rules: Rules, order: Order) -> None:
        asked = _questions(order)
        self._curator, self._rules, self._options = curator, rules, _options(order)
        known = counting_grid(
            curator.tables, table=order.table, columns=order.columns,
            questions=asked, rows_per_unit=order.rows_per_unit,
        )  # fmt: skip
        if known.cells > CELLS_MAX:
            raise Unsupported(
                f"There would be {known.cells:,} cells, more than {CELLS_MAX:,}.",
                fix="Use wider bins or fewer columns, or ask for synthetic rows.",
            )
        self._grid, self._block = known.grid.sampled(rules.sample), known.block(asked)
        self._price = price_of(curator, rules, order.epsilon)
        self._given = order.epsilon if order.epsilon is not None else rules.epsilon
        record = {
            "release": "questions/1",
            "query": self._grid.to_record(),
            "block": self._block.digest(),
            "options": self._options,
            **self._price.to_record(),
        }
        self._attempts = Attempts(curator, json.dumps(record, sort_keys=True, ensure_ascii=False))

    @property
    def endings(self) -> tuple[str, ...]:
        """The forms of file that it can be saved in: known before it is paid for."""
        return endings_of(self._grid.axes)

    def plan(self, *, fresh: bool = False) -> ReleasePlan:
        """Price: free, reads no row."""
        price, fits = self._curator.price(self._price.event())
        if not fresh and self._attempts.found() is not None:
            price, fits = ApproxDP(0), True
        return ReleasePlan(
            sql=self._grid.sql,
            axes=self._grid.axes,
            method="mwem",
            workload=f"{self._block.size:,} questions",
            questions=self._block.size,
            epsilon=fraction(self._given or 0),
            price=price,
            fits=fits,
            rms=None,
            gaussian=self._price.gaussian,
            words=("the error depends on the rows", *self._grid.caveats),
        )

    def release(self, progress: Progress | None = None, *, fresh: bool = False) -> TableRelease:
        """The table: from the ledger if it was released before, else for its price."""
        found = None if fresh else self._attempts.found()
        if found is not None:
            return self._table(*found, free=True)
        grid = self._grid
        with self._attempts.begin(self._price.event(), fresh=fresh) as allowed:
            ask = DoorAsk(
                allowed.whole, grid.query, self._price, shape=grid.shape, progress=progress
            )
            options = dict(self._options)
            if "total" in options:
                options["total"] = float(options["total"] / grid.grain)
            made = build(ask, self._block, **options)
            record = {"event": encode(allowed.used()), "words": list(made.words)}
            stored = pack(record, [made.cells], ())
            allowed.finish(stored)
        return self._table(allowed.request_id, stored, free=False)

    def _table(self, request_id: str, stored: bytes, *, free: bool) -> TableRelease:
        record, (cells,), _ = unpack(stored)
        used = decode(record["event"])
        facts = CellsRelease(
            method="questions",
            price=self._price,
            used=used,
            promised=promised(used, self._price.event()),
            known=ApproxDP(0),
            free=free,
            words=tuple(record["words"]),
            question=self._attempts.question,
            request_id=request_id,
        )
        return facts.table(self._curator, self._rules, self._grid, cells)


def _questions(order: Order) -> Sequence[str]:
    asked = order.workload
    listed = isinstance(asked, list | tuple) and all(isinstance(each, str) for each in asked)
    if not listed or not asked:
        raise SpecError(
            "There are no questions.",
            fix='Use workload=["SELECT COUNT(*) FROM people WHERE age < 30", …].',
        )
    plain = order.sql is None and order.where is None and order.groups_per_unit is None
    if not plain or order.method not in ("auto", "mwem"):
        raise SpecError(
            "Questions have one method, and no other SQL.", fix='Leave out all but "mwem".'
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
                f"{name!r} is no option, or not usable.",
                fix="Use rounds, replays, total (whole numbers), average (yes or no).",
            )
    return dict(order.options)
