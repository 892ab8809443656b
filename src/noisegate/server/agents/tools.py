"""What an agent can do. Looking, planning and practising are free; asking needs a plan.

Every result says in words what was charged, how far off the numbers may be, what is promised and
what is left; the same is there as plain values. A refusal says the fix.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from inspect import iscoroutinefunction
from secrets import token_hex
from typing import Any, Final, Literal, TypeAlias, final

from anyio.to_thread import run_sync

from noisegate.desk.order import Order
from noisegate.desk.plan import Expected
from noisegate.errors import NotFound, SpecError, Unsupported
from noisegate.exact import Number
from noisegate.frozen import dataclass, field
from noisegate.inert import json_text, line
from noisegate.orders import order_from
from noisegate.server.access import now
from noisegate.server.agents import words
from noisegate.server.agents.arguments import (
    AnyOrder,
    Arguments,
    OfDataSet,
    OfPlan,
    OfRelease,
    OfTable,
    Planning,
    QuestionOrOrder,
    read,
)
from noisegate.server.people import Caller
from noisegate.server.refusals import body_of, no_such
from noisegate.server.runs import Run
from noisegate.server.service import Service
from noisegate.server.store import Do, Store
from noisegate.server.views import View

MINUTES: Final = 15
_MOST: Final = 200  # of one person, so that nobody fills the store by planning


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An order with the price that was shown for it."""

    id: str
    dataset: str
    order: Order[Any, Expected]
    fresh: bool
    price: Fraction
    purpose: str | None


@final
class Plans:
    """Plans in the store, so that any replica knows them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def keep(
        self, caller: Caller, dataset: str, order: Order[Any, Expected], *, fresh: bool,
        price: Fraction, purpose: str | None = None,
    ) -> str:  # fmt: skip
        """Remember what was shown to whom; the name by which it can be asked."""
        name = f"plan_{token_hex(8)}"
        until = datetime.now(UTC) + timedelta(minutes=MINUTES)
        said = order.to_dict() | ({} if purpose is None else {"purpose": purpose})
        row = (
            name, caller.name, caller.token or "", dataset, json.dumps(said),
            int(fresh), str(price), until.isoformat(timespec="milliseconds"),
        )  # fmt: skip

        def work(run: Do) -> None:
            run("DELETE FROM plans WHERE expires < ?", (now(),))
            run("INSERT INTO plans VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            run(
                "DELETE FROM plans WHERE person = ? AND id NOT IN "
                "(SELECT id FROM plans WHERE person = ? ORDER BY expires DESC LIMIT ?)",
                (caller.name, caller.name, _MOST),
            )

        self._store.do(work)
        return name

    def find(self, caller: Caller, name: str) -> Planned:
        """The plan of this caller with this name. Another's looks as if there was none."""
        row = self._store.one(
            "SELECT dataset, ordered, fresh, price FROM plans "
            "WHERE id = ? AND person = ? AND token = ? AND expires >= ?",
            name, caller.name, caller.token or "", now(),
        )  # fmt: skip
        if row is None:
            raise NotFound(
                "There is no such plan, or it has expired.",
                fix=f"Call plan_question, which is free, and use its plan_id within {MINUTES} "
                "minutes.",
                about="plan",
            )
        dataset, text, fresh, price = row
        said = json.loads(text)
        purpose = said.pop("purpose", None)
        return Planned(
            id=name, dataset=dataset, order=order_from(said), fresh=bool(fresh),
            price=Fraction(price), purpose=purpose,
        )  # fmt: skip


def require_price(planned: Planned, price: Fraction) -> None:
    """Refuse an order that has come to cost more than was shown."""
    if price > planned.price:
        raise SpecError(
            f"The price is now ε = {float(price):g}, and ε = {float(planned.price):g} was planned.",
            fix="Call plan_question again, which is free.",
            about="planned-price",
        )


FACE: Final = "agent"
_SECONDS: Final = 45.0  # clients give up after a minute
_CONFIDENCE: Final = 0.95


@final
@dataclass(frozen=True, slots=True)
class Said:
    """A result: words, and the same as plain values."""

    words: str
    facts: dict[str, Any] = field(default_factory=dict)
    is_refusal: bool = False


@final
class _Ran(Exception):  # noqa: N818 - carries a refusal out of a run
    """A run that had begun ended in a refusal: something may have been charged."""

    def __init__(self, why: Exception) -> None:
        super().__init__()
        self.why = why


@final
class Tools:
    """The tools of a service. Each call is by somebody who was recognised."""

    def __init__(self, service: Service) -> None:
        self._service, self._plans = service, Plans(service.store)

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> Said:
        """Use a tool. Whatever goes wrong is said, with the fix and what is left."""
        try:
            if (tool := TOOLS.get(name)) is None:
                raise no_such("tool")  # noqa: TRY301 - said like any other refusal
            asked = read(tool.takes, arguments)
            if iscoroutinefunction(tool.work):
                said: Said = await tool.work(self, caller, asked)
                return said
            return await run_sync(tool.work, self, caller, asked)
        except _Ran as wrong:
            return await run_sync(self._refused, caller, wrong.why, "")
        except Exception as wrong:  # noqa: BLE001 - never its own words: they may quote rows
            return await run_sync(self._refused, caller, wrong, "Nothing was spent. ")

    def _refused(self, caller: Caller, wrong: Exception, nothing: str) -> Said:
        body = body_of(wrong, steward=caller.is_steward)
        said = f"Refused ({body['code']}): {body['message']} {nothing}\nFix: {body['fix']}"
        try:
            rest = [words.left(view) for view in self._service.views(caller) if view.may_ask]
        except Exception:  # noqa: BLE001 - the refusal is what matters
            rest = []
        return Said("\n".join([said, *rest]), {"error": body}, is_refusal=True)

    def _view(self, caller: Caller, dataset: str | None) -> View:
        if dataset is not None:
            return self._service.view(caller, dataset)
        found = self._service.views(caller)
        if len(found) == 1:
            return found[0]
        names = ", ".join(view.name for view in found) or "none that you may see"
        raise SpecError("The data set is not named.", fix=f"Use one of: {names}.", about="dataset")

    # looking

    def list_tables(self, caller: Caller, asked: OfDataSet) -> Said:
        """All tables, and what is left."""
        views = (
            self._service.views(caller)
            if asked.dataset is None
            else [self._service.view(caller, asked.dataset)]
        )
        lines: list[str] = []
        facts: dict[str, Any] = {}
        for view in views:
            found = facts[view.name] = view.facts()
            lines.append(f"Data set {view.name!r}, which protects {line(found['protects'])}:")
            for table in found["tables"]:
                whose = "public, exact and free" if table["public"] else "private"
                names = ", ".join(line(each["name"]) for each in table["columns"])
                lines.append(f"- table {line(table['name'])} ({whose}): {names}")
            lines += [*_prices(found), words.left(view)]
        return Said("\n".join(lines or ["There is no data set that you may see."]), facts)

    def describe_table(self, caller: Caller, asked: OfTable) -> Said:
        """One table with its declared facts."""
        view = self._view(caller, asked.dataset)
        found = [each for each in view.facts()["tables"] if each["name"] == asked.table]
        if not found:
            raise no_such("table")
        (table,) = found
        whose = "Nobody's rows: questions about it alone are exact and free."
        if not table["public"]:
            caps = [
                f"at most {cap} {what}{'s' if cap > 1 else ''} of {line(str(table['unit']))}"
                for name, what in (("rows_per_unit", "row"), ("groups_per_unit", "group"))
                if (cap := table[name]) is not None
            ]
            whose = f"Private: {' and '.join(caps) + ' count' if caps else 'answers are noisy'}."
        lines = [f"Table {line(table['name'])} of {view.name!r}. {whose}"]
        lines += [words.column(each) for each in table["columns"]]
        lines += [
            "These facts are declared, not measured. How many rows there are is not public.",
            words.left(view),
        ]
        return Said("\n".join(lines), {"dataset": view.name, **table})

    def remaining_budget(self, caller: Caller, asked: OfDataSet) -> Said:
        """What may still be spent."""
        view = self._view(caller, asked.dataset)
        lines = [words.left(view), *_prices(view.facts())]
        lines.append("Questions that were answered before are free.")
        return Said("\n".join(lines), {"dataset": view.name, **words.limits(view)})

    # asking

    def plan_question(self, caller: Caller, asked: Planning) -> Said:
        """Price and error before anything is paid."""
        view, order = self._view(caller, asked.dataset).on(asked.purpose), asked.ordered()
        confidence = _confidence(order)
        settled = view.settled(order, fresh=asked.fresh)  # asked later for the price that is shown
        plan = view.plan(settled, fresh=asked.fresh)
        price = plan.price.epsilon
        lines, why = words.planned(plan, confidence), None
        most = caller.epsilon_question
        if not plan.fits:
            why = "It costs more than is left."
        elif most is not None and price > most:
            why = f"It costs more than one question may, {words.amount(most)}."
        name = None
        if why is None:
            name = self._plans.keep(
                caller, view.name, settled, fresh=asked.fresh, price=price, purpose=view.purpose
            )
            lines.append(f"To ask it for {plan.price}: ask_question, plan_id {name}.")
            lines.append(f"The plan_id holds for {MINUTES} minutes.")
        else:
            lines.append(f"It cannot be asked: {why} Use a smaller epsilon, or a larger within.")
        lines.append(words.left(view))
        facts = {"plan_id": name, "dataset": view.name, "order": order.to_dict()}
        return Said("\n".join(lines), {**facts, **plan.to_dict(confidence), **words.limits(view)})

    async def ask_question(self, caller: Caller, asked: OfPlan) -> Said:
        """Run a plan."""
        run, view = await run_sync(self._start, caller, asked)
        if run.state == "waiting":
            return Said(
                "A steward has to approve this question first. Nothing was charged. Call "
                f"ask_question again later with plan_id {asked.plan_id}, or list_releases.",
                {"state": "waiting", "release_id": run.id},
            )
        return await self._ended(run, view, asked.plan_id)

    def _start(self, caller: Caller, asked: OfPlan) -> tuple[Run, View]:
        planned = self._plans.find(caller, asked.plan_id)
        view = self._service.view(caller, planned.dataset).on(planned.purpose)
        if not view.has_begun(planned.id):
            now = view.plan(planned.order, fresh=planned.fresh)
            require_price(planned, now.price.epsilon)
        run = view.start(planned.order, key=planned.id, fresh=planned.fresh, face=FACE)
        return run, view

    async def practise(self, caller: Caller, asked: QuestionOrOrder) -> Said:
        """The same on made-up rows."""
        view = await run_sync(self._view, caller, asked.dataset)
        begin = partial(view.start, asked.ordered(), practice=True, face=FACE)
        return await self._ended(await run_sync(begin), view, None)

    async def _ended(self, run: Run, view: View, plan_id: str | None) -> Said:
        """What a run made, or how to come back for it."""
        if not await run.until(_SECONDS):
            again = "list_releases" if plan_id is None else f"ask_question with plan_id {plan_id}"
            return Said(
                f"Still running ({run.progress:.0%}). Call {again} later: it is charged once, "
                "however often it is called.",
                {"state": run.told, "release_id": run.id},
            )
        try:
            return await run_sync(_told, run, view)
        except Exception as why:  # noqa: BLE001 - carried on
            raise (why if run.practice else _Ran(why)) from None

    # what was released

    def list_releases(self, caller: Caller, asked: OfDataSet) -> Said:
        """What was asked and can be read again for free."""
        view = self._view(caller, asked.dataset)
        found = [
            {name: each[name] for name in ("id", "kind", "sql", "price", "created", "person")}
            for each in view.history()
            if each["state"] == "done" and not each["practice"]
        ]
        lines = [f"{len(found)} releases. Reading one again with query_release is free."]
        lines += [
            f"- {each['id']} ({each['created'][:16]}, {words.amount(each['price'] or 0)}): "
            f"{line(each['sql'] or each['kind'])}"
            for each in found
        ]
        return Said("\n".join([*lines, words.left(view)]), {"releases": found})

    async def query_release(self, caller: Caller, asked: OfRelease) -> Said:
        """A release again, or a sum over some of its cells."""
        run = await run_sync(self._service.run_of, caller, asked.release_id)
        view = await run_sync(self._service.view, caller, run.dataset)
        if asked.where is None:
            return await self._ended(run, view, None)
        if not await run.until(_SECONDS):
            return Said("It is being read from the ledger. Call query_release again.", {})
        return await run_sync(_summed, run, view, asked.where)


def _told(run: Run, view: View) -> Said:
    result, confidence = run.result(), _confidence(run.order)
    facts = json.loads(json_text(result.to_dict(confidence)))
    lines = words.made(result, confidence)
    if not run.practice:
        lines.append(words.left(view))
    return Said("\n".join(lines), {"release_id": run.id, **facts})


def _summed(run: Run, view: View, where: Mapping[str, Any]) -> Said:
    """A sum over cells, of a release that has them."""
    made, confidence = run.result().made, _confidence(run.order)
    query = getattr(made, "query", None)
    if query is None:
        raise Unsupported(
            "This release has no cells to add up.",
            fix="Call query_release without where: it shows all its numbers.",
            about="cells",
        )
    try:
        found = query(confidence, **{name: _chosen(keys) for name, keys in where.items()})
    except TypeError:
        raise SpecError(
            "These cells are not understood.", fix="Name axes and keys of the release."
        ) from None
    text = line(str(found))
    facts = {name: _plain(getattr(found, name)) for name in ("value", "margin", "low", "high")
             if hasattr(found, name)}  # fmt: skip
    lines = [
        f"{json_text(dict(where))}: {text}",
        f"± is at {float(confidence):.0%} confidence. Free: computed from released numbers.",
        f"Guarantee: {line(made.promise)}",
        words.left(view),
    ]
    return Said("\n".join(lines), {"release_id": run.id, "confidence": float(confidence), **facts})


def _chosen(keys: Any) -> Any:  # noqa: ANN401 - of an axis
    """A range as releases take it."""
    if isinstance(keys, dict) and keys.keys() <= {"from", "to"}:
        return keys.get("from"), keys.get("to")
    return keys


def _plain(value: Any) -> Any:  # noqa: ANN401 - a number
    return value if isinstance(value, int | str | None) else float(value)


def _confidence(order: AnyOrder) -> Number:
    return getattr(order, "confidence", None) or _CONFIDENCE


def _prices(facts: Mapping[str, Any]) -> list[str]:
    usual, most = facts["default_epsilon"], facts["max_epsilon"]
    said = [] if usual is None else [f"A question costs {words.amount(usual)} unless you say."]
    return said + ([] if most is None else [f"None may cost more than {words.amount(most)}."])


Work: TypeAlias = Callable[[Tools, Caller, Any], Any]  # a `Said`, at once or awaited


@final
@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: what it takes, what is said about it, what it does."""

    takes: type[Arguments]
    words: str
    work: Work
    effect: Literal["reads", "spends"] = "reads"


_PRIVATE: Final = "Rows are private: only noisy aggregates leave, each for a price in ε. "
TOOLS: Final[dict[str, Tool]] = {
    "list_tables": Tool(
        OfDataSet, "List data sets, tables and columns, and what you may still spend. Free.",
        Tools.list_tables,
    ),
    "describe_table": Tool(
        OfTable, "Show a table's columns with their declared types, keys and bounds. Free.",
        Tools.describe_table,
    ),
    "plan_question": Tool(
        Planning, _PRIVATE + "Show price and expected error of a question. Free; reads no row. "
        "Gives the plan_id that ask_question needs.", Tools.plan_question,
    ),
    "ask_question": Tool(
        OfPlan, "Ask a planned question and pay its price. The same plan_id is charged once. "
        "Quote every number with its ±.", Tools.ask_question, "spends",
    ),
    "practise": Tool(
        QuestionOrOrder, "Ask made-up rows of the same shape, to try SQL out. Free. The numbers "
        "mean nothing: never report them as results.", Tools.practise,
    ),
    "remaining_budget": Tool(
        OfDataSet, "Show what you may still spend. Free.",
        Tools.remaining_budget,
    ),
    "list_releases": Tool(
        OfDataSet, "List answers and releases that were paid for; reading them again is free.",
        Tools.list_releases,
    ),
    "query_release": Tool(
        OfRelease, "Read an earlier answer or release again, or add up some cells of a released "
        "table. Free.", Tools.query_release,
    ),
}  # fmt: skip
