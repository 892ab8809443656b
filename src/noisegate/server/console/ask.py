"""Ask: the tables, an editor, the price while one types, the answer."""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from math import ceil, log10
from typing import Any, Final
from uuid import uuid4

from starlette.responses import JSONResponse, Response

from noisegate.algebra.functions import FUNCTIONS
from noisegate.desk.order import Order
from noisegate.errors import NoisegateError
from noisegate.exact import fraction
from noisegate.inert import json_text
from noisegate.orders import SqlOrder
from noisegate.server.console.shown import CONFIDENCE, down, plan_shown, run_shown
from noisegate.server.console.visits import Visit
from noisegate.server.refusals import status_of
from noisegate.server.runs import Run
from noisegate.server.views import View

_KEYS_SHOWN: Final = 8
_CLAUSES: Final = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN",
    "DISTINCT", "BETWEEN", "CASE WHEN",
)  # fmt: skip
_AGGREGATES: Final = (
    "COUNT", "SUM", "AVG", "MIN", "MAX", "MEDIAN", "QUANTILE_CONT", "STDDEV", "VARIANCE",
)  # fmt: skip
_PATIENCE: Final = 2.0  # seconds until a page says that it is still waiting


def ask_page(visit: Visit) -> Response:
    """An empty question, or one that was asked before, with its answer."""
    run = visit.service.run_of(visit.caller, name) if (name := visit.said("run")) else None
    view = view_of(visit, run)
    said = _blank(view) if run is None else _said_by(run, view)
    if run is None and (text := visit.said("sql")):
        said["sql"] = text
    if run is None:
        return _page(visit, view, said)
    shown = run_shown(visit, run)
    plan = _plan(view, run.order)
    return _page(visit, view, said, run=shown, refresh=shown["refresh"], plan=plan)


def ask(visit: Visit) -> Response:
    """Price, practise or ask. What was asked has an address: loading it again asks nothing."""
    view, said = view_of(visit), _said(visit)
    try:
        order = _order(said)
        if visit.form.get("do") == "price":
            plan = plan_shown(view.plan(order), view.gate)
            return _page(visit, view, said, plan=plan)
        run = started(visit, view, order)
    except NoisegateError as error:
        return _page(visit, view, said, status=status_of(error), error=visit.refused(error))
    why = {"purpose": named} if (named := visit.said("purpose")) else {}
    reply = visit.to("ask", data=view.name, run=run.id, **why)
    reply.headers["location"] += "#result"
    return reply


def _plan(view: View, order: Order[Any, Any]) -> dict[str, Any] | None:
    """What a question that was asked would cost now: mostly nothing."""
    try:
        return plan_shown(view.plan(order), view.gate)
    except NoisegateError:
        return None  # its refusal is shown as the run's


def price(visit: Visit) -> Response:
    """The same as JSON, while one types: what to show, and what moves the sliders."""
    view, said = view_of(visit), _said(visit)
    if not said["sql"].strip():
        return JSONResponse({"html": visit.write("plan.html", plan=None), "words": ""})
    return priced(visit, view, _order(said))


def priced(visit: Visit, view: View, order: Order[Any, Any]) -> Response:
    """A plan as JSON; nothing yet while it is not said what it is for."""
    if not view.has_purpose:
        return JSONResponse({"html": visit.write("plan.html", plan=None), "words": ""})
    plan = view.plan(order)
    margins = list(plan.margins(CONFIDENCE).values())
    known = [each for each in margins if each is not None]
    shown = plan_shown(plan, view.gate)
    return JSONResponse(
        {
            "html": visit.write("plan.html", plan=shown),
            "words": shown["words"],
            "fits": plan.fits,
            "epsilon": field(float(plan.epsilon)),
            "within": field(max(known)) if known and len(known) == len(margins) else None,
        }
    )


def ordered(
    visit: Visit, made: Callable[[Visit], Order[Any, Any]], page: Callable[..., Response]
) -> Response:
    """Price, practise or pay. What was ordered has an address: loading it again costs nothing."""
    view = view_of(visit)
    try:
        order = made(visit)
        if visit.form.get("do") == "price":
            return page(visit, plan=plan_shown(view.plan(order), view.gate))
        run = started(visit, view, order)
    except NoisegateError as error:
        return page(visit, status=status_of(error), error=visit.refused(error))
    return visit.to(f"runs/{run.id}")


def started(visit: Visit, view: View, order: Order[Any, Any]) -> Run:
    """The run of what a form orders: on made-up rows, unless its button says ask.

    What cannot be planned is refused here, beside the form.
    """
    practice = visit.form.get("do") != "ask"
    view.plan(order, practice=practice)
    why = None if practice else view.purpose
    key = _key(visit.form.get("key", ""), order, why, practice=practice)
    run = view.start(order, key=key, practice=practice, face="console")
    if run.told != "waiting":
        run.wait(_PATIENCE)
    return run


def _key(page: str, order: Order[Any, Any], why: str | None, *, practice: bool) -> str:
    """One page asks one order for one purpose once, however often its button is pressed."""
    return sha256(f"{page}\n{practice}\n{why}\n{order.to_json()}".encode()).hexdigest()


def view_of(visit: Visit, run: Run | None = None) -> View:
    """The data set for the purpose that a form says, or that a run was asked for."""
    view = visit.view() if run is None else visit.service.view(visit.caller, run.dataset)
    said = None if run is None else run.purpose
    return view.on(said or visit.said("purpose") or None)


def facts_of(visit: Visit, view: View) -> dict[str, Any]:
    """What is known about a data set, also where the purpose that was said is refused."""
    try:
        return view.facts()
    except NoisegateError:
        return visit.service.view(visit.caller, view.name).facts()


def paying(visit: Visit, view: View, facts: dict[str, Any]) -> dict[str, Any]:
    """What every page has that a price is paid from."""
    return {
        "names": visit.names(), "data": view.name, "slider": slider_of(facts),
        "purpose": purposes_of(view, facts), "key": uuid4().hex, "plan": None,
    }  # fmt: skip


def purposes_of(view: View, facts: dict[str, Any]) -> dict[str, Any]:
    """The field that says what is asked for; no choices where the policy has no purposes."""
    choices = [{"name": each["name"], "words": _purpose_words(each)} for each in facts["purposes"]]
    try:
        chosen = view.purpose
    except NoisegateError:
        chosen = None  # none was said, or none that there is
    known = any(each["name"] == chosen for each in choices)
    left = facts["share"] and down(facts["share"]["remaining"])
    share = left and f"For all purposes together, ε = {left} is left."
    return {"chosen": chosen if known else "", "choices": choices, "share": share}


def _purpose_words(each: dict[str, Any]) -> str:
    left = "" if each["remaining"] is None else f", left ε = {down(each['remaining'])}"
    more = f": {each['description']}" if each["description"] else ""
    return f"{each['name']}{left}{more}"


def _page(visit: Visit, view: View, said: dict[str, str], **values: Any) -> Response:  # noqa: ANN401 - of a template
    facts = facts_of(visit, view)
    shared = paying(visit, view, facts) | {
        "title": f"Ask {view.name}",
        "facts": {
            "name": view.name,
            "promise": f"Protects {facts['protects']}.",
            "paused": facts["paused"],
            "tables": [_table(table) for table in facts["tables"]],
            "example": _example(facts["tables"]),
            "words": _words(),
        },
        "said": said,
        "run": None,
    }
    return visit.page("ask.html", **(shared | values))


def _blank(view: View) -> dict[str, str]:
    default = view.hosted.policy.default_epsilon
    return {
        "sql": "", "by": "epsilon", "within": "",
        "epsilon": "" if default is None else field(float(default)),
    }  # fmt: skip


def _said(visit: Visit) -> dict[str, str]:
    by = "within" if visit.form.get("by") == "within" else "epsilon"
    names = ("sql", "epsilon", "within")
    return {"by": by} | {name: visit.form.get(name, "") for name in names}


def _said_by(run: Run, view: View) -> dict[str, str]:
    """The question of a run, as it was put."""
    record: dict[str, Any] = run.order.to_dict()
    if record.get("kind") != "sql":
        return _blank(view)
    by = "within" if record.get("within") is not None else "epsilon"
    paid = record.get(by)
    said = _blank(view) | {"sql": str(record["sql"]), "by": by}
    return said if paid is None else said | {by: said_again(paid)}


def _order(said: dict[str, str]) -> Order[Any, Any]:
    terms = {said["by"]: said[said["by"]].strip()} if said[said["by"]].strip() else {}
    return SqlOrder.make(sql=said["sql"].strip().rstrip(";"), **terms)


def slider_of(facts: dict[str, Any]) -> float:
    """Where a slider for ε ends: at the most that one question may cost."""
    most = facts["max_epsilon"] or (facts["budget"] or {}).get("epsilon") or 1
    return round(log10(most), 3)


def field(value: float) -> str:
    """A number for a field: rounded up to three digits, so that a price is enough."""
    if value <= 0:
        return ""
    place = 10.0 ** (ceil(log10(value)) - 3)
    return f"{ceil(value / place - 1e-9) * place:.6g}"


def said_again(value: object) -> str:
    """A term of a run for a field: a number as people write it, words as they are.

    >>> said_again("1/5"), said_again("1/4 of rest")
    ('0.2', '1/4 of rest')
    """
    try:
        return field(float(fraction(str(value))))
    except (NoisegateError, OverflowError):
        return value if isinstance(value, str) else json_text(value)


def _example(tables: list[dict[str, Any]]) -> str:
    """A first question: how many rows each declared key has."""
    for table in (table for table in tables if not table["public"]):
        for column in (column for column in table["columns"] if column["in"]):
            name = column["name"]
            return f"SELECT {name}, COUNT(*) AS n\nFROM {table['name']}\nGROUP BY {name}"
    return "SELECT COUNT(*) AS n\nFROM …"


@cache
def _words() -> list[tuple[str, str]]:
    """What can be completed beside names: clauses, aggregates, and functions of rows."""
    calls = (each.forms.partition("(") for each in FUNCTIONS.values())
    functions = sorted({name for name, mark, _ in calls if mark and name.isupper()})
    return [
        *((name, "clause") for name in _CLAUSES),
        *((f"{name}(", "aggregate") for name in _AGGREGATES),
        *((f"{name}(", "function") for name in functions if name.replace("_", "").isalnum()),
    ]


def _table(table: dict[str, Any]) -> dict[str, Any]:
    caps = [
        f"at most {table[name]:,} {what}{'s' * (table[name] > 1)} each"
        for name, what in (("rows_per_unit", "row"), ("groups_per_unit", "group"))
        if table[name]
    ]
    whose = table["unit"] or ""
    words = "exact and free" if table["public"] else "; ".join(filter(None, [whose, *caps]))
    return {
        "name": table["name"],
        "kind": "public" if table["public"] else "private",
        "words": words,
        "columns": [_column(column) for column in table["columns"]],
    }


def _column(column: dict[str, Any]) -> dict[str, str]:
    keys, ends = column["in"], column["between"]
    words = []
    if keys is not None:
        shown = ", ".join("missing" if key is None else str(key) for key in keys[:_KEYS_SHOWN])
        words.append(shown if len(keys) <= _KEYS_SHOWN else f"{shown}, … ({len(keys):,} keys)")
    if ends is not None:
        words.append(f"{ends[0]} to {ends[1]}")
    if column["nullable"] is False and column["in"] is None:
        words.append("never missing")
    return {"name": column["name"], "kind": column["type"], "words": "; ".join(words)}
