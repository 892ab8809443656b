"""What each call does: it asks the service, and writes what comes back."""

from asyncio import shield, wrap_future
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response

from noisegate.desk.card import entries_of
from noisegate.desk.order import Order
from noisegate.desk.plan import Expected, Plan
from noisegate.desk.release import Held
from noisegate.desk.sent import loss_texts
from noisegate.errors import Forbidden, OverBudget, SpecError, Unsupported, Waiting
from noisegate.exact import Number
from noisegate.inert import json_text
from noisegate.server.http.asked import TYPES, Recognised
from noisegate.server.published import KINDS, shown
from noisegate.server.refusals import no_such
from noisegate.server.results import Result
from noisegate.server.runs import Run

_USUAL: Final = "0.95"
_INERT: Final = {  # what a picture may do where a browser opens it as a page: be seen
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


def say(record: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    """JSON, inert wherever it is shown."""
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json_text(record).encode()
    return Response(body, status, headers=said, media_type="application/json")


# data sets


async def datasets(asked: Recognised) -> Response:
    """The data sets that the caller may see."""
    views = await asked.views()
    return say({"datasets": [{"name": view.name, "may_ask": view.may_ask} for view in views]})


async def dataset(asked: Recognised) -> Response:
    """What is public about one."""
    view = (await asked.view()).on(asked.seen.get("purpose"))
    return say(await asked.off(view.facts))


async def plan(asked: Recognised) -> Response:
    """What an order would cost and give."""
    view = await asked.view()
    order, fresh, purpose = await asked.order()
    view, at = view.on(purpose), _confidence(asked, order)

    def planned() -> dict[str, Any]:
        return plan_record(view.plan(order, fresh=fresh, practice=asked.flag("practice")), at)

    return say(await asked.off(planned))


def plan_record(found: Plan[Expected], confidence: Number) -> dict[str, Any]:
    """A plan as JSON: also in words, and its prices as exact numbers."""
    early = None if found.early is None else loss_texts(found.early)
    exact = {"epsilon": str(found.epsilon), "price": loss_texts(found.price), "early": early}
    return found.to_dict(confidence) | {
        "facts": [list(each) for each in found.expected.facts(confidence)],
        "endings": list(found.endings),
        "exact": exact,
    }


async def ask(asked: Recognised) -> Response:
    """Run an order, once for each idempotency key."""
    return await _start(asked, practice=False)


async def practise(asked: Recognised) -> Response:
    """The same on made-up rows."""
    return await _start(asked, practice=True)


async def _start(asked: Recognised, *, practice: bool) -> Response:
    view = await asked.view()
    order, fresh, purpose = await asked.order()
    view = view.on(None if practice else purpose)
    form, at, wait = asked.form(order.kind), _confidence(asked, order), asked.wait
    key = asked.request.headers.get("idempotency-key")
    known = None if practice or fresh or key is not None else view.known(order)
    if known is not None:
        await asked.strokes.do(known.write)
        run = known.tell()
    else:
        terms = partial(view.start, order, key=key, fresh=fresh, practice=practice, face="http")
        run = await asked.start(terms)
    try:
        return await _told(asked, run, form, at, wait)
    except OverBudget as refusal:
        told = lambda: plan_record(view.plan(order, fresh=fresh), at)  # noqa: E731
        refusal.plan = await asked.off(told)  # type: ignore[attr-defined]
        raise


def _confidence(asked: Recognised, order: Order[Any, Expected]) -> Number:
    said: Number | None = getattr(order, "confidence", None)
    return asked.confidence if "confidence" in asked.seen else said or _USUAL


async def budgets(asked: Recognised) -> Response:
    """What the caller may spend: the share, and what is left for each purpose."""
    views = await asked.views()
    return say({"budgets": [await asked.off(view.budgets) for view in views]})


# runs


async def run(asked: Recognised) -> Response:
    """How far a run is."""
    return say(await asked.off(_state, await asked.run()))


async def result(asked: Recognised) -> Response:
    """What a run made, in the form that is accepted."""
    found = await asked.run()
    form = asked.form(found.order.kind)
    at = _confidence(asked, found.order)
    return await _told(asked, found, form, at, asked.wait)


async def cancel(asked: Recognised) -> Response:
    """Stop a run; what was drawn stays charged."""
    found = await asked.run()
    await asked.off(found.cancel)
    return say(await asked.off(_state, found))


async def entries(asked: Recognised) -> Response:
    """Where the ledger has what a run made."""
    found = await _table(asked, await asked.run())

    def listed() -> list[dict[str, Any]]:
        answer = found.answer
        lines = [] if answer is None or answer.practice else entries_of(answer, answer.log())
        return [
            {
                "seq": each.seq, "kind": each.kind, "at": each.at, "hash": each.hash,
                "request": each.body.get("request"), "question": each.body.get("question"),
            }
            for each in lines
        ]  # fmt: skip

    return say({"entries": await asked.off(listed)})


async def card_of(asked: Recognised) -> Response:
    """The card of an answer: JSON, which the ledger can confirm."""
    return await _card(asked, await asked.run())


async def _card(asked: Recognised, run: Run, *, public: bool = False) -> Response:
    found, at = await _table(asked, run), asked.confidence
    made = await asked.off(found.card, at, public=public)
    return Response(made.to_json().encode(), media_type="application/json")


async def _table(asked: Recognised, run: Run) -> Result:
    await run.until(asked.wait)
    found = run.result()
    if found.answer is None:
        raise Unsupported("This is not a table.", fix="Look at its result.", about="form")
    return found


async def _told(asked: Recognised, run: Run, form: str, at: Number, wait: float) -> Response:
    """The result, or where to look for it."""
    place = f"/orders/{run.id}"
    if run.state == "waiting" or not await run.until(wait):
        state = await asked.off(_state, run)
        return say(state, 202, Location=place, Retry_After="1")
    found = run.result()
    body = found.kept(at) if form == "json" else None
    if body is None:
        body = await asked.off(found.to_bytes, form, at)
    headers = {"Content-Location": f"{place}/result"}
    if form != "json":
        headers["Content-Disposition"] = f'attachment; filename="{run.id}.{form}"'
    return Response(body, headers=headers, media_type=TYPES[form])


def _state(run: Run) -> dict[str, Any]:
    """A run as JSON; one that is done also says what it cost."""
    record = run.to_dict()
    done = record["state"] == "done"
    return record | {"exact": run.result().exact() if done else None}


# what was asked and published


async def history(asked: Recognised) -> Response:
    """The caller's runs; stewards and auditors see everybody's."""
    return say({"runs": await _history(asked)})


async def releases(asked: Recognised) -> Response:
    """What was published: tables, synthetic rows, programs' results."""
    kept = ("id", "person", "dataset", "kind", "order", "created", "price")
    done = [
        each
        for each in await _history(asked)
        if each["kind"] in KINDS and each["state"] == "done" and not each["practice"]
    ]
    return say({"releases": [{name: each[name] for name in kept} for each in done]})


async def _history(asked: Recognised) -> list[dict[str, Any]]:
    views, most = await asked.views(), asked.limit

    def listed() -> list[dict[str, Any]]:
        found = [each for view in views for each in view.history(most)]
        return sorted(found, key=lambda each: str(each["created"]), reverse=True)[:most]

    return await asked.off(listed)


async def release(asked: Recognised) -> Response:
    """A release in the form that is accepted; a Parquet file is complete."""
    found = await _release(asked)
    return await _told(asked, found, asked.form(), _confidence(asked, found.order), asked.wait)


async def release_card(asked: Recognised) -> Response:
    """The card of a release: JSON, which the ledger can confirm."""
    return await _card(asked, await _release(asked))


async def _release(asked: Recognised) -> Run:
    found = await asked.run()
    if found.order.kind not in KINDS or found.practice:
        raise no_such("release")
    return found


# of anybody, where the steward has made it public


async def publish(asked: Recognised) -> Response:
    """Show a release to everybody, without a token: of stewards."""
    return await _publish(asked, public=True)


async def withdraw(asked: Recognised) -> Response:
    """Show a public release to nobody else any more: of stewards."""
    return await _publish(asked, public=False)


async def _publish(asked: Recognised, *, public: bool) -> Response:
    name = asked.request.path_params["id"]
    await asked.off(asked.service.published.publish, asked.by, name, public=public)
    return say({"id": name, "public": public})


async def public_releases(asked: Recognised) -> Response:
    """What the steward has made public."""
    return say({"releases": await asked.off(asked.service.published.listed)})


async def public_release(asked: Recognised) -> Response:
    """A public release: its numbers and error bars, as JSON or as comma-separated rows."""
    run, form = await _public(asked), asked.form()
    at = _confidence(asked, run.order)
    found = run.result()
    if form == "csv":
        return Response(await asked.off(found.to_csv, at), media_type=TYPES[form])
    return say(shown(await asked.off(found.to_dict, at)))


async def public_card(asked: Recognised) -> Response:
    """The card of a public release, which names nobody."""
    return await _card(asked, await _public(asked), public=True)


async def public_picture(asked: Recognised) -> Response:
    """A public release as a picture."""
    run = await _public(asked)
    made = run.result().made
    if not isinstance(made, Held):
        raise no_such("picture")
    drawn = await shield(wrap_future(asked.service.pictures.of(run.id, made)))
    return Response(drawn, headers=_INERT, media_type="image/svg+xml")


async def _public(asked: Recognised) -> Run:
    run = await asked.off(asked.service.published.find, asked.request.path_params["id"])
    if not await run.until(asked.wait):
        raise Waiting("It is being read from the ledger.", fix="Look again.", about="running")
    if run.told != "done":
        raise no_such("release")
    return run


# for stewards and auditors


async def ledger_export(asked: Recognised) -> Response:
    """The ledger of a data set as JSON lines; its head, signed if there is a key, as a header."""
    views = await asked.views()
    if len(views) != 1:
        raise SpecError("Name one data set.", fix="Say dataset=NAME.", about="dataset")
    body, head = await asked.off(views[0].export)
    headers = {
        "Noisegate-Head": json_text(head),
        "Content-Disposition": 'attachment; filename="ledger.jsonl"',
    }
    return Response(body, headers=headers, media_type="application/jsonl")


async def ledger_head(asked: Recognised) -> Response:
    """The heads of the ledgers."""
    views = await asked.views()
    return say({"heads": {view.name: await asked.off(view.head) for view in views}})


async def audit(asked: Recognised) -> Response:
    """Who asked what, the latest first."""
    _require_overseer(asked)
    person, dataset, most = asked.seen.get("person"), asked.seen.get("dataset"), asked.limit

    def listed() -> list[dict[str, Any]]:
        log = asked.service.log
        found = log.lines(person=person, dataset=dataset, limit=most)
        seen = asked.by.may_see
        return [each.to_dict() for each in found if each.dataset is None or seen(each.dataset)]

    return say({"lines": await asked.off(listed)})


async def metrics(asked: Recognised) -> Response:
    """Numbers about the service, as Prometheus reads them."""
    _require_overseer(asked)
    counts, queue = asked.service.counts, asked.service.queue
    lines = [
        "# HELP noisegate_orders_total Orders, by what became of them.",
        "# TYPE noisegate_orders_total counter",
        *(f'noisegate_orders_total{{outcome="{name}"}} {n}' for name, n in sorted(counts.items())),
        "# HELP noisegate_queue_depth Orders that wait for a worker.",
        "# TYPE noisegate_queue_depth gauge",
        f"noisegate_queue_depth {queue.depth}",
        "# HELP noisegate_running Orders that are being worked on.",
        "# TYPE noisegate_running gauge",
        f"noisegate_running {queue.running}",
    ]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _require_overseer(asked: Recognised) -> None:
    if not asked.by.sees_all:
        raise Forbidden("This is for stewards and auditors.", fix="Ask one of them.", about="role")


# of anybody


async def health(asked: Recognised) -> Response:  # noqa: ARG001 - as all calls
    """The process is there."""
    return say({"status": "ok"})


async def ready(asked: Recognised) -> Response:
    """The service can take questions: its store answers."""
    await asked.off(asked.service.people.everybody)
    return say({"status": "ready", "datasets": len(asked.service.names)})
