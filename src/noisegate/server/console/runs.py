"""Runs that ended or have not: one by one, as files, as history, and the releases among them."""

import re
import time
from fractions import Fraction
from typing import Any, Final

from starlette.responses import Response

from noisegate.desk.card import Card
from noisegate.errors import SpecError
from noisegate.inert import json_text
from noisegate.server.console.orders import page_of
from noisegate.server.console.shown import CONFIDENCE, markdown, number, result_of, run_shown, up
from noisegate.server.console.visits import Visit
from noisegate.server.published import KINDS
from noisegate.server.refusals import no_such
from noisegate.server.runs import Run

_FILES: Final = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
_FRACTION: Final = re.compile(r"-?\d+/[1-9]\d*")
_SHOWN: Final = 200  # runs in a history
_PATIENCE: Final = 2.0  # seconds, for releases that come from the ledger again
_PICTURES: Final = 24  # releases in the gallery


def run_page(visit: Visit) -> Response:
    """One run with its answer."""
    run = visit.run()
    shown = run_shown(visit, run)
    return visit.page(
        "run.html",
        title="Question",
        run=shown,
        order=order_shown(run.order.to_dict()),
        asked={
            "by": run.person,
            "at": _time(run.created),
            "data": run.dataset,
            "why": run.purpose,
        },
        public=_public(visit, run) if shown["done"] else None,
        change=page_of(run) if run.person == visit.caller.name else None,
        refresh=shown["refresh"],
    )


def run_file(visit: Visit) -> Response:
    """The answer as a file."""
    form = visit.request.path_params["form"]
    if form not in _FILES:
        raise no_such("file")
    run = visit.run()
    body = result_of(run).to_bytes(form, CONFIDENCE)
    name = f"{run.id[:12]}{'-practice' if run.practice else ''}.{form}"
    return visit.file(body, _FILES[form], name)


def card_page(visit: Visit) -> Response:
    """The release card of an answer."""
    run = visit.run()
    page = markdown(_card(run).to_markdown())
    return visit.page("card.html", title="Release card", id=run.id, card=page)


def card_file(visit: Visit) -> Response:
    """The same for machines: `noisegate ledger verify --head` takes it."""
    run = visit.run()
    return visit.file(_card(run).to_json(), "application/json", f"{run.id[:12]}-card.json")


def _card(run: Run) -> Card:
    result = result_of(run)
    if result.answer is None:
        raise SpecError("This has no table and no card.", fix="Use the JSON.")
    return result.card(CONFIDENCE)


def cancel(visit: Visit) -> Response:
    """Stop a run. What was drawn stays charged."""
    run = visit.run()
    run.cancel()
    visit.log("cancel", dataset=run.dataset, run=run.id)
    return visit.to(f"runs/{run.id}")


def publish(visit: Visit) -> Response:
    """Show a release to everybody, without a token, or to nobody else again."""
    run = visit.run()
    if not run_shown(visit, run)["done"]:
        raise SpecError(
            "This is not done.", fix="Publish a release once it has an answer.", about="state"
        )
    public = visit.form.get("do") == "publish"
    visit.service.published.publish(visit.caller, run.id, public=public)
    return visit.to(f"runs/{run.id}")


def _public(visit: Visit, run: Run) -> bool | None:
    """Whether everybody sees a release; None: the caller cannot change that."""
    if not visit.caller.is_steward or run.practice or run.order.kind not in KINDS:
        return None
    return any(each["id"] == run.id for each in visit.service.published.listed())


def history_page(visit: Visit) -> Response:
    """My questions, or everybody's for those who see all."""
    view = visit.view()
    rows = [_line(each, visit) for each in view.history(_SHOWN)]
    purposes = any(each["purpose"] for each in rows)
    return visit.page(
        "history.html", title="History", names=visit.names(), data=view.name, runs=rows,
        everybody=visit.caller.sees_all, purposes=purposes,
    )  # fmt: skip


def releases_page(visit: Visit) -> Response:
    """What was published: pictures with error bars, the latest first."""
    view = visit.view()
    done = [
        each
        for each in view.history(1000)
        if each["kind"] == "release" and each["state"] == "done" and not each["practice"]
    ]
    done = list({json_text(each["order"]): each for each in done}.values())  # the first of a kind
    runs = [visit.service.run_of(visit.caller, each["id"]) for each in done[:_PICTURES]]
    shown, until = [], time.monotonic() + _PATIENCE
    for each, run in zip(done, runs, strict=False):
        drawn = run_shown(visit, run, max(0.0, until - time.monotonic()))
        shown.append(
            _line(each, visit)
            | {
                "run": drawn,
                "charts": drawn["charts"][:1],
                "name": str(each["order"].get("name", "release")),
            }
            | {"public": _public(visit, run) if drawn["done"] else None}
        )
    return visit.page(
        "releases.html", title="Releases", names=visit.names(), data=view.name, releases=shown,
        left_out=max(0, len(done) - _PICTURES),
    )  # fmt: skip


def _line(each: dict[str, Any], visit: Visit) -> dict[str, Any]:
    mine = each["person"] == visit.caller.name
    return {
        "id": each["id"],
        "at": _time(each["created"]),
        "person": each["person"],
        "purpose": each["purpose"] or "",
        "what": order_shown(each["order"]),
        "practice": each["practice"],
        "state": each["state"],
        "price": None if each["price"] is None else up(each["price"]),
        "may_open": mine or visit.caller.is_steward,
    }


def order_shown(record: dict[str, Any]) -> dict[str, Any]:
    """An order for people: its SQL, and the other terms."""
    said = ("kind", "sql", "name") if record.get("kind") == "release" else ("kind", "sql")
    others = {name: value for name, value in record.items() if name not in said}
    terms = [(name, _term(value)) for name, value in others.items() if value is not None]
    kind = str(record.get("kind", ""))
    title = "Question" if kind == "sql" else str(record.get("name", kind)).capitalize()
    return {"kind": kind, "title": title, "sql": record.get("sql") or "", "terms": terms}


def _term(value: object) -> str:
    """A term of an order as people write it.

    >>> _term("1/5"), _term({"age": 10, "sex": None}), _term([1, 2])
    ('0.2', 'age: 10, sex', '[1, 2]')
    """
    if isinstance(value, str):
        return number(float(Fraction(value))) if _FRACTION.fullmatch(value) else value
    if isinstance(value, dict):
        named = ((name, each) for name, each in value.items())
        return ", ".join(name if each is None else f"{name}: {_term(each)}" for name, each in named)
    return json_text(value)


def _time(at: str) -> str:
    """A time to the minute."""
    return at[:16].replace("T", " ")
