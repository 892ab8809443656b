"""All calls: method, path, what is taken and given. Routes and their description come from here."""

import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final, Literal, TypeAlias, final

from starlette.responses import Response

import noisegate.server.http.answering as answering  # noqa: PLR0402 - read as answering.ask
from noisegate.frozen import dataclass
from noisegate.orders import schema
from noisegate.server.http.asked import BODY_MAX, TYPES, WAIT, WAIT_MAX, Recognised

Work: TypeAlias = Callable[[Recognised], Awaitable[Response]]
Gives: TypeAlias = Literal["json", "result", "text"]
TERMS: Final = (  # of SQL as plain text
    "choose", "confidence", "delta", "epsilon", "fresh", "groups_per_unit", "purpose", "relative",
    "rows", "rows_per_unit", "within",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. ``query`` are its parameters; ``takes_order`` says that it has a body."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    work: Work
    query: tuple[str, ...] = ()
    takes_order: bool = False
    runs: bool = False  # may say where to look later, and takes Prefer
    gives: Gives = "json"
    public: bool = False

    @property
    def name(self) -> str:
        """A name for programs that are made from the description."""
        return self.work.__name__

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.work.__doc__ or "").partition("\n")[0]


async def openapi(asked: Recognised) -> Response:  # noqa: ARG001 - as all calls
    """This description, as OpenAPI 3.1."""
    return answering.say(description())


_AT: Final = ("confidence",)
_LISTED: Final = ("dataset", "limit")
CALLS: Final = (
    Call(method="GET", path="/datasets", work=answering.datasets),
    Call(method="GET", path="/datasets/{dataset}", work=answering.dataset, query=("purpose",)),
    Call(
        method="POST", path="/datasets/{dataset}/plan", work=answering.plan,
        query=(*TERMS, "practice"), takes_order=True,
    ),
    Call(
        method="POST", path="/datasets/{dataset}/orders", work=answering.ask,
        query=TERMS, takes_order=True, runs=True, gives="result",
    ),
    Call(
        method="POST", path="/datasets/{dataset}/practice", work=answering.practise,
        query=TERMS, takes_order=True, runs=True, gives="result",
    ),
    Call(method="GET", path="/orders/{id}", work=answering.run),
    Call(method="DELETE", path="/orders/{id}", work=answering.cancel),
    Call(
        method="GET", path="/orders/{id}/result", work=answering.result, query=_AT, runs=True,
        gives="result",
    ),
    Call(method="GET", path="/orders/{id}/card", work=answering.card_of, query=_AT),
    Call(method="GET", path="/orders/{id}/entries", work=answering.entries),
    Call(method="GET", path="/budgets", work=answering.budgets, query=("dataset",)),
    Call(method="GET", path="/history", work=answering.history, query=_LISTED),
    Call(method="GET", path="/releases", work=answering.releases, query=_LISTED),
    Call(
        method="GET", path="/releases/{id}", work=answering.release, query=_AT, runs=True,
        gives="result",
    ),
    Call(method="GET", path="/releases/{id}/card", work=answering.release_card, query=_AT),
    Call(method="POST", path="/releases/{id}/public", work=answering.publish),
    Call(method="DELETE", path="/releases/{id}/public", work=answering.withdraw),
    Call(method="GET", path="/public", work=answering.public_releases, public=True),
    Call(
        method="GET", path="/public/{id}", work=answering.public_release, query=_AT, public=True,
        gives="result",
    ),
    Call(
        method="GET", path="/public/{id}/card", work=answering.public_card, query=_AT, public=True
    ),
    Call(
        method="GET", path="/public/{id}/picture.svg", work=answering.public_picture, public=True,
        gives="text",
    ),
    Call(
        method="GET", path="/ledger/export", work=answering.ledger_export, query=("dataset",),
        gives="text",
    ),
    Call(method="GET", path="/ledger/head", work=answering.ledger_head, query=("dataset",)),
    Call(method="GET", path="/audit", work=answering.audit, query=(*_LISTED, "person")),
    Call(method="GET", path="/metrics", work=answering.metrics, gives="text"),
    Call(method="GET", path="/health", work=answering.health, public=True),
    Call(method="GET", path="/ready", work=answering.ready, public=True),
    Call(method="GET", path="/openapi.json", work=openapi, public=True),
)  # fmt: skip


# the calls as an OpenAPI 3.1 document: made from their table and from the schema of orders


Json = dict[str, Any]
_TEXT: Final[Json] = {"type": "string"}
_FLAG: Final[Json] = {"type": "boolean"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 1}
_PARAMETERS: Final[dict[str, tuple[Json, str]]] = {
    "choose": (_TEXT, "Of text/sql: bounds, caps or both, with a comma."),
    "confidence": (_TEXT, "How surely error bars hold; 0.95 unless said otherwise."),
    "dataset": (_TEXT, "The name of a data set."),
    "delta": (_TEXT, "Of text/sql: the δ for finding groups."),
    "epsilon": (_TEXT, "Of text/sql: how much to pay."),
    "fresh": (_FLAG, "Of text/sql: pay for a new draw."),
    "purpose": (_TEXT, "What is asked for, where the policy has purposes; of text/sql."),
    "groups_per_unit": (_COUNT, "Of text/sql: in how many groups one unit counts."),
    "id": ({"type": "string", "pattern": "^[0-9a-f]{32}$"}, "The id of a run."),
    "limit": (_COUNT | {"maximum": 10_000}, "How many at most; 100 unless said otherwise."),
    "person": (_TEXT, "Whose lines."),
    "practice": (_FLAG, "Plan for made-up rows."),
    "relative": (_TEXT, "Of text/sql: the largest relative error."),
    "rows": (_COUNT, "Of text/sql: about how many rows take part."),
    "rows_per_unit": (_COUNT, "Of text/sql: how many rows of one unit count."),
    "within": (_TEXT, "Of text/sql: the largest error of each number."),
}
_UNSPENT: Final = "Nothing was spent, unless the code ends in no-range, after-paying or partly."
_REFUSALS: Final = {
    400: "A parameter, or the order, is not as it should be.",
    401: "The token is missing, wrong, expired or revoked.",
    402: f"The account cannot pay for this. {_UNSPENT}",
    403: "This caller may not do that.",
    404: "There is no such thing, or none that the caller may see.",
    406: "The result does not exist in an accepted form.",
    408: "The body took too long.",
    409: "The idempotency key was used for another order, or the run was cancelled.",
    413: f"The body is larger than {BODY_MAX:,} bytes.",
    415: "The body is neither application/json nor text/sql.",
    422: f"The order cannot be answered, and the fix says why. {_UNSPENT}",
    429: "Too much is asked at once.",
    503: "The service cannot answer now, or the steward paused questions.",
}
_OF_ORDERS: Final = (402, 408, 409, 413, 415, 422, 429)


@cache
def description() -> Json:
    """The document."""
    orders = schema()
    refs = {name: _moved(each) for name, each in orders["$defs"].items()}
    objects = {
        name: _with_fresh(each) if "properties" in each and "kind" in each["properties"] else each
        for name, each in refs.items()
    }
    paths: Json = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method.lower()] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "noisegate",
            "version": "1",
            "description": "A privacy gate in front of sensitive tables: orders go in, only noisy "
            "answers come out. Planning and practising are free.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Order": {"oneOf": _moved(orders["oneOf"])}, **objects, **_SCHEMAS},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(call: Call) -> Json:
    found: Json = {
        "operationId": call.name,
        "summary": call.summary,
        "parameters": [
            *(_parameter(name, "path") for name in re.findall(r"{(\w+)}", call.path)),
            *(_parameter(name, "query") for name in call.query),
            *([_HEADERS["Idempotency-Key"]] if call.takes_order and call.runs else []),
            *([_HEADERS["Prefer"]] if call.runs else []),
        ],
        "responses": _responses(call),
        "security": [] if call.public else [{"token": []}],
    }
    if call.takes_order:
        found["requestBody"] = _BODY
    return found


def _parameter(name: str, place: str) -> Json:
    shape, words = _PARAMETERS[name]
    return {
        "name": name, "in": place, "required": place == "path", "schema": shape,
        "description": words,
    }  # fmt: skip


def _responses(call: Call) -> Json:
    made: Json = {"200": {"description": "Done.", "content": _content(call)}}
    if call.runs:
        made["202"] = {
            "description": "Not done yet: look at the place that Location names.",
            "headers": {"Location": {"schema": _TEXT}},
            "content": _json("Run"),
        }
    statuses = [400, *(() if call.public else (401, 403)), 503]
    statuses += [404] if not call.public or "{" in call.path else []
    statuses += [*_OF_ORDERS] if call.takes_order else [409, 402, 422] if call.runs else []
    statuses += [406] if call.gives == "result" else []
    statuses += [422, 409] if call.path.endswith(("/card", "/entries")) else []
    for status in sorted(set(statuses)):
        made[str(status)] = {"description": _REFUSALS[status], "content": _json("Refusal")}
    return made


def _content(call: Call) -> Json:
    match call.gives:
        case "text":
            return {"text/plain": {"schema": _TEXT}}
        case "result":
            others: Json = {kind: {} for form, kind in TYPES.items() if form != "json"}
            return {"application/json": {"schema": {"type": "object"}}, **others}
    return _json("Run") if call.name in ("run", "cancel") else {
        "application/json": {"schema": {"type": "object"}}
    }  # fmt: skip


def _json(name: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _moved(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A schema whose references lead into this document."""
    if isinstance(value, dict):
        return {
            key: each.replace("#/$defs/", "#/components/schemas/")
            if key == "$ref"
            else _moved(each)
            for key, each in value.items()
        }
    return [_moved(each) for each in value] if isinstance(value, list) else value


def _with_fresh(order: Json) -> Json:
    fresh = {"type": "boolean", "description": "Pay for a new draw."}
    purpose = {"type": "string", "description": "What it is asked for, if the policy has purposes."}
    return order | {"properties": order["properties"] | {"fresh": fresh, "purpose": purpose}}


_BODY: Final[Json] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"$ref": "#/components/schemas/Order"},
            "example": {"kind": "sql", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": 0.1},
        },
        "text/sql": {"schema": _TEXT, "example": "SELECT COUNT(*) AS n FROM visits"},
    },
}
_HEADERS: Final[dict[str, Json]] = {
    "Idempotency-Key": {
        "name": "Idempotency-Key", "in": "header", "schema": _TEXT | {"maxLength": 200},
        "description": "A name for this order: under it, it is asked and paid for once.",
    },
    "Prefer": {
        "name": "Prefer", "in": "header", "schema": _TEXT,
        "description": f"wait=SECONDS, at most {WAIT_MAX:g}; {WAIT:g} unless said otherwise; or "
        "respond-async.",
    },
}  # fmt: skip
_SCHEMAS: Final[Json] = {
    "Refusal": {
        "description": "The one shape of errors.",
        "type": "object",
        "required": ["code", "message", "fix"],
        "properties": {
            "code": _TEXT | {"description": "Stable, for programs."},
            "message": _TEXT | {"description": "What is wrong."},
            "fix": _TEXT | {"description": "What to do next."},
            "reference": _TEXT | {"description": "Of an error that is for the steward."},
            "plan": {"type": "object", "description": "Of an order that the account cannot pay."},
        },
        "additionalProperties": False,
    },
    "Run": {
        "description": "An order that is being worked on, or done.",
        "type": "object",
        "required": ["id", "dataset", "state", "progress", "words", "order"],
        "properties": {
            "id": _TEXT,
            "dataset": _TEXT,
            "person": _TEXT,
            "state": {"enum": ["waiting", "queued", "running", "done", "failed", "cancelled"]},
            "progress": {"type": "number", "minimum": 0, "maximum": 1},
            "words": _TEXT,
            "created": _TEXT,
            "practice": _FLAG,
            "fresh": _FLAG,
            "order": {"type": "object"},
            "error": {"anyOf": [{"$ref": "#/components/schemas/Refusal"}, {"type": "null"}]},
            "exact": {"type": ["object", "null"]},
        },
    },
}
