"""What each question is answered with, and what it costs: nothing, unless it was asked for.

Looks go to declared facts and to the practice twin, and are marked; only a question with a price,
by a hint or by ``SET noisegate.epsilon``, or after ``SET noisegate.ask = on``, goes to the gate.
"""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from fractions import Fraction
from typing import Any, Final, TypeAlias, TypeVar, final

import pyarrow as pa

from noisegate.desk.answer import Answer
from noisegate.desk.display.numbers import percent
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.errors import Cancelled, Forbidden, Unsupported, UserError
from noisegate.frozen import dataclass, field, fields
from noisegate.inert import json_text
from noisegate.server.runs import Run
from noisegate.server.service import Service
from noisegate.server.views import View
from noisegate.server.wire import types
from noisegate.server.wire.catalogue import Catalogue, Twin
from noisegate.server.wire.commands import Copy
from noisegate.server.wire.messages import BINARY
from noisegate.server.wire.refusals import Notice, Unpriced
from noisegate.server.wire.rewriting import Context, parsed
from noisegate.server.wire.settings import VERSION, SessionSettings
from noisegate.server.wire.statements import Asked, is_empty
from noisegate.server.wire.types import Type, text_of, written
from noisegate.sql.order import SqlOrder

T = TypeVar("T")
Columns: TypeAlias = tuple[tuple[str, Type], ...]
Rows: TypeAlias = Sequence[Sequence[Any]]
MADE_UP: Final = "noisegate: these rows are made up (practice twin); nothing was charged."
_ASK: Final = (
    "Say what to pay: SET noisegate.epsilon = 0.1; or SET noisegate.ask = on for the policy's "
    "price; or /* noisegate: epsilon=0.1 */ in the question."
)


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Columns and rows, and what to know about them."""

    columns: Columns
    rows: Rows
    notices: Sequence[Notice] = ()


def outcome_of(table: pa.Table, *notices: Notice) -> Outcome:
    """An Arrow table as an outcome."""
    columns = tuple((each.name, types.of_arrow(each.type)) for each in table.schema)
    values = [column.to_pylist() for column in table.columns]
    rows = list(zip(*values, strict=True)) if values else [()] * table.num_rows
    return Outcome(columns, rows, notices)


@final
@dataclass(slots=True)
class Answering:
    """One session's way to its data set.

    ``run`` is what is being asked, for whoever cancels; ``busy`` says that somebody waits for an
    answer.
    """

    service: Service
    view: View
    settings: SessionSettings
    catalogue: Catalogue
    twin: Twin
    pool: Executor
    turn: asyncio.Semaphore
    run: Run | None = None
    busy: bool = False
    cancelled: bool = field(default=False)

    async def columns(self, asked: Asked) -> Columns:
        """The columns of the answer. Free, and charges nothing later."""
        await self.off(self._look_again)
        if not await self.off(self._is_asked, asked):
            return (await self._looked(asked)).columns
        plan, _ = await self.off(self._planned, asked)
        return await self.off(self._columns, plan, asked)

    async def outcome(self, asked: Asked, wanted: Columns | None = None) -> Outcome:
        """The answer; in the columns that were told before, if any were."""
        self.cancelled = False
        await self.off(self._look_again)
        if not await self.off(self._is_asked, asked):
            seen = await self._looked(asked)
            return conformed(seen.columns, seen.rows, wanted, *seen.notices)
        plan, order = await self.off(self._planned, asked)
        practice = self._practises(asked)
        if not (plan.free or (self._is_priced(asked) and asked.form != "public")):
            raise self._unpriced(plan)  # it was free a moment ago, or is not as public as it looks
        if not practice:
            self._require_caps(plan)
        answer = await self._run(order, practice=practice)
        if not practice:
            self.settings.spent += answer.cost.epsilon
        return self._shown(answer, wanted)

    async def plan(self, asked: Asked, *, as_json: bool) -> Outcome:
        """The plan of a question: free."""
        await self.off(self._look_again)
        if asked.form in ("catalogue", "preview", "empty"):
            words = "declared facts" if asked.form == "catalogue" else "made-up rows"
            return Outcome((("QUERY PLAN", types.TEXT),), [(f"free: {words}",)])
        plan, _ = await self.off(self._planned, asked)
        if as_json:
            text = json_text([plan.to_dict(self.settings.confidence)])
            return Outcome((("QUERY PLAN", types.JSON),), [(text,)])
        return outcome_of(plan.table(self.settings.confidence))

    async def remaining(self) -> str:
        """The ε that is left."""
        await self.off(self._look_again)
        view = self.view.on(self.settings.purpose)
        if not view.has_purpose:  # what is left for all of them together
            share = await self.off(view.share)
            return "0.0" if share is None else str(share["remaining"])
        return str(float((await self.off(lambda: view.gate.remaining)).epsilon))

    def cancel(self) -> None:
        """Stop what is being asked."""
        self.cancelled = True
        if self.run is not None:
            self.run.cancel()

    async def off(self, work: Callable[..., T], *args: object) -> T:
        """Work that takes a while, off the event loop."""
        async with self.turn:
            return await asyncio.get_running_loop().run_in_executor(self.pool, work, *args)

    def _look_again(self) -> None:
        """Who is there now: while a session lasts, a token is revoked or an account renewed."""
        caller = self.view.caller
        if caller.token is not None:
            caller = self.service.people.caller_of_token(caller.token)
        self.view = self.service.view(caller, self.view.name)

    # which way

    def _is_asked(self, asked: Asked) -> bool:
        """Whether the gate, or its practice twin, has to answer; refused without a price.

        Without one it answers what is free: released before, or declared.
        """
        if asked.form in ("catalogue", "preview", "empty"):
            return False
        if asked.form == "public" or self._is_priced(asked):
            return True
        try:
            plan, _ = self._planned(asked)
        except UserError:
            if asked.form == "scan":
                return False
            raise
        if not plan.free and asked.form != "scan":
            raise self._unpriced(plan)
        return plan.free

    def _is_priced(self, asked: Asked) -> bool:
        """Whether it may be paid for: the question, the session or its switches say so."""
        on = self.settings.is_on("ask") or self.settings.is_on("practice")
        return asked.is_priced or self.settings.is_priced or (asked.form == "aggregate" and on)

    def _practises(self, asked: Asked) -> bool:
        return self.settings.is_on("practice") and asked.form != "public"

    def _unpriced(self, plan: Plan[Expected]) -> Unpriced:
        """The plan as an error."""
        refusal = Unpriced("This question would be paid for, and has no price.", fix=_ASK)
        refusal.plan = self._plan_words(plan)
        return refusal

    def _price_of(self, asked: Asked) -> str:
        """What it would cost, in words; nothing where that cannot be said."""
        try:
            plan, _ = self._planned(asked)
        except UserError:
            return ""
        return self._plan_words(plan)

    def _plan_words(self, plan: Plan[Expected]) -> str:
        confidence = self.settings.confidence
        bars = [
            f"{name} ± {width:.4g}"
            for name, width in plan.margins(confidence).items()
            if width is not None
        ]
        price = next(fact for name, fact in plan.facts(confidence) if name == "price")
        more = f"; {', '.join(bars)} at {percent(confidence)} confidence" if bars else ""
        return f"The real one: price {price}{more}."

    # looks

    async def _looked(self, asked: Asked) -> Outcome:
        if asked.form == "catalogue":
            return outcome_of(await self.off(self._catalogued, asked))
        return await self.off(self._on_twin, asked)

    def _catalogued(self, asked: Asked) -> pa.Table:
        context = Context(
            user=self.view.caller.name, dataset=self.view.name, version=VERSION,
            settings=dict(self.settings.all()),
        )  # fmt: skip
        return self.catalogue.answer(asked.tree or parsed(asked.sql), context)

    def _on_twin(self, asked: Asked) -> Outcome:
        detail = self._price_of(asked) if asked.form == "scan" else ""
        hint = _ASK if detail else ""
        if asked.form == "empty":
            try:
                plan, _ = self._planned(asked)
                return Outcome(self._columns(plan, asked), [], [Notice(MADE_UP)])
            except UserError:
                pass  # the twin may know
        if asked.tree is None:
            raise Unsupported("The SQL cannot be read.", fix="Check its spelling.", about="syntax")
        if self.settings.is_on("real_only") and not is_empty(asked.tree):
            raise Unsupported(
                "Rows are private; what is shown of them is made up, which this session refuses.",
                fix="Ask for an aggregate with a price, or SET noisegate.real_only = off.",
                about="made-up",
            )
        return outcome_of(self.twin.answer(asked.tree), Notice(MADE_UP, detail, hint))

    # questions

    def _planned(self, asked: Asked) -> tuple[Plan[Expected], Order[Any, Expected]]:
        said = {each.name: getattr(asked.terms, each.name) for each in fields(asked.terms)}
        said = {} if asked.exact else {k: v for k, v in said.items() if v is not None}
        more = self.settings.terms(asked.terms) | {"part": self.settings.part}
        made = SqlOrder.make(sql=asked.sql, **said, **more)
        practice = self._practises(asked)
        view = self.view if practice else self.view.on(self.settings.purpose)
        order = view.settled(made, practice=practice)  # asked for the price that is planned
        return view.plan(order, practice=practice), order

    def _require_caps(self, plan: Plan[Expected]) -> None:
        """Refuse what the session itself does not want to pay."""
        price, spent = plan.price.epsilon, self.settings.spent
        most, total = self.settings.number("question_max"), self.settings.number("session_max")
        if most is not None and price > most:
            raise _capped("a question", "question_max", most)
        if total is not None and price and spent + price > total:
            raise _capped("this session", "session_max", total)

    async def _run(self, order: Order[Any, Expected], *, practice: bool) -> Answer:
        view = self.view if practice else self.view.on(self.settings.purpose)
        run = await self.off(lambda: view.start(order, practice=practice, face="wire"))
        self.run = run
        try:
            if self.cancelled:
                run.cancel()
            if run.state != "waiting" and not await run.until(self.settings.timeout):
                run.cancel()
        except asyncio.CancelledError:  # the connection is gone
            run.cancel()
            raise
        finally:
            self.run = None
        if run.state == "cancelled":
            raise Cancelled("The question was cancelled.", fix="What was drawn stays charged.")
        answer = run.result().answer
        if answer is None:
            raise Unsupported("The answer is not a table.", fix="Ask with SELECT.")
        return answer

    # columns of answers

    def _columns(self, plan: Plan[Expected], asked: Asked) -> Columns:
        """As the plan tells them."""
        schema = getattr(plan.expected, "schema", None)
        if schema is None:  # of a crowd, whose columns only its answer tells
            _, order = self._planned(asked)
            schema = self.view.practice.run(order).table.schema
        bars = plan.margins(self.settings.confidence) if self.settings.is_on("margins") else {}
        found: list[tuple[str, Type]] = []
        for each in schema:
            found.append((each.name, types.of_arrow(each.type)))
            if each.name in bars:
                found.append((f"{each.name}_margin", types.FLOAT8))
        return tuple(found)

    def _shown(self, answer: Answer, wanted: Columns | None) -> Outcome:
        plain, notice = outcome_of(answer.table), self._told(answer)
        told, on = set(wanted or ()) - set(plain.columns), self.settings.is_on("margins")
        columns: list[tuple[str, Type]] = []
        values: list[Sequence[Any]] = []
        widths = answer.half_widths(self.settings.confidence)
        for place, (name, kind) in enumerate(plain.columns):
            columns.append((name, kind))
            values.append([row[place] for row in plain.rows])
            bars, margin = widths[place], (f"{name}_margin", types.FLOAT8)
            if margin in told or (wanted is None and on and bars is not None):
                columns.append(margin)
                values.append([None] * len(plain.rows) if bars is None else bars)
        rows = list(zip(*values, strict=True))
        return conformed(tuple(columns), rows, wanted, notice)

    def _told(self, answer: Answer) -> Notice:
        """Price, balance and ± in words."""
        confidence = self.settings.confidence
        first, *caveats = answer.footer(confidence).splitlines()
        first = first.partition(" · ±")[0]
        bars = []
        for name, widths in zip(answer.columns, answer.half_widths(confidence), strict=True):
            known = [width for width in widths or () if width is not None]
            if known:
                bars.append(f"{name} ± {max(known):.4g}")
        errors = (
            [f"At most, at {percent(confidence)} confidence: {', '.join(bars)}."] if bars else []
        )
        return Notice(f"noisegate: {first}", "\n".join([*errors, *caveats]))


def _capped(what: str, name: str, most: Fraction) -> Forbidden:
    return Forbidden(
        f"The session allows ε = {float(most):g} for {what}.",
        fix=f"Ask for less, or SET noisegate.{name} = … Nothing was spent.",
        about="session",
    )


def conformed(columns: Columns, rows: Rows, wanted: Columns | None, *notices: Notice) -> Outcome:
    """Rows in the columns that a client was told before it asked."""
    if wanted is None or wanted == columns:
        return Outcome(columns, rows, notices)
    if len(wanted) != len(columns):
        raise _changed()
    made = [[_as(row[place], kind) for place, (_, kind) in enumerate(wanted)] for row in rows]
    return Outcome(wanted, made, notices)


def _as(value: Any, kind: Type) -> Any:  # noqa: ANN401 - of any column
    """A value in another type, if nothing is lost."""
    if value is None or kind == types.TEXT:
        return value if value is None else types.text_of(value, types.TEXT)
    if kind == types.FLOAT8 and isinstance(value, int | float):
        return float(value)
    if kind == types.INT8 and isinstance(value, int | float) and value == int(value):
        return int(value)
    if types.written(value, kind, 0) is not None and not isinstance(value, int | float | str):
        return value
    raise _changed()


def _changed() -> Unsupported:
    return Unsupported(
        "The columns of the answer are not those that were told before.",
        fix="Ask again without preparing: it is free now.",
        about="columns",
    )


# rows as COPY writes them: text, comma-separated, binary


_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b",
                                 "\f": "\\f", "\v": "\\v"})  # fmt: skip


def copied(outcome: Outcome, copy: Copy) -> Iterator[bytes]:
    """The rows, each as one piece."""
    if copy.form == "binary":
        yield from _binary(outcome)
        return
    csv = copy.form == "csv"
    between = copy.delimiter or ("," if csv else "\t")
    missing = copy.null if copy.null is not None else ("" if csv else "\\N")

    def write(text: str) -> str:
        if not csv:
            return text.translate(_ESCAPES).replace(between, f"\\{between}")
        plain = text != missing and not any(each in text for each in (between, '"', "\n", "\r"))
        return text if plain else '"' + text.replace('"', '""') + '"'

    if copy.header:
        yield _line([write(name) for name, _ in outcome.columns], between)
    for row in outcome.rows:
        texts = [
            missing if value is None else write(text_of(value, kind))
            for value, (_, kind) in zip(row, outcome.columns, strict=True)
        ]
        yield _line(texts, between)


def _line(texts: list[str], between: str) -> bytes:
    return (between.join(texts) + "\n").encode(errors="replace")


def _binary(outcome: Outcome) -> Iterator[bytes]:
    head = _SIGNATURE  # clients expect it in one piece with the first row
    for row in outcome.rows:
        parts = [head, struct.pack("!h", len(outcome.columns))]
        head = b""
        for value, (_, kind) in zip(row, outcome.columns, strict=True):
            raw = written(value, kind, BINARY)
            parts += [struct.pack("!i", -1 if raw is None else len(raw)), raw or b""]
        yield b"".join(parts)
    yield head + struct.pack("!h", -1)
