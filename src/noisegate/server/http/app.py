"""The calls as an application: recognised callers, one shape of errors, safe headers."""

import logging
import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final
from uuid import uuid4

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noisegate.errors import Unauthenticated, UserError, stumbled
from noisegate.server.http.answering import say
from noisegate.server.http.asked import Recognised, Refused, Strokes
from noisegate.server.http.table import CALLS, Call
from noisegate.server.people import Caller
from noisegate.server.refusals import body_of, status_of
from noisegate.server.service import Service

THREADS: Final = 24  # that plan, write and look things up; whoever waits for a run needs none
STARTS: Final = 8  # that put questions in the queue: what is told waits behind none of them
_LOG: Final = logging.getLogger("noisegate.http")
_SAFE: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_HTTP: Final = {404: ("not-found", "There is no such place here."),
                   405: ("request.method", "This place does not take this method.")}  # fmt: skip


def http_app(
    service: Service, more: Sequence[BaseRoute] = (), *, hosts: Collection[str] | None = None
) -> Starlette:
    """The application. ``more`` are routes of other faces, looked at after these.

    ``hosts`` are the names by which callers reach it; None: any.
    """
    limiter, starts = CapacityLimiter(THREADS), CapacityLimiter(STARTS)
    usual = partial(
        Recognised, service=service, limiter=limiter, starts=starts,
        strokes=Strokes(service.store, limiter),
    )  # fmt: skip
    routes = [
        Route(call.path, _endpoint(service, limiter, usual, call), methods=[call.method])
        for call in CALLS
    ]
    app = Starlette(routes=[*routes, *more], exception_handlers={HTTPException: _of_http})
    app.router.redirect_slashes = False
    app.add_middleware(Guard, hosts=hosts)
    return app


class Guard:
    """Names every request, and gives every reply the headers of private things."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        said = Request(scope).headers.get("x-request-id", "")
        name = said if _REQUEST_ID.fullmatch(said) else uuid4().hex
        scope.setdefault("state", {})["request_id"] = name

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = name
                for each, value in _SAFE.items():
                    headers.setdefault(each, value)
            await send(message)

        host = re.sub(r":\d*$", "", Request(scope).headers.get("host", "")).lower()
        if self._hosts is not None and host not in self._hosts:
            body = {
                "code": "request.host",
                "message": "This is not the name of this service.",
                "fix": "Use its own address, or let the operator add the name to hosts.",
            }
            await say(body, 421)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


def _endpoint(service: Service, limiter: CapacityLimiter, usual: "partial[Recognised]", call: Call):  # type: ignore[no-untyped-def]  # noqa: ANN202 - an endpoint of Starlette's
    query = frozenset(call.query)

    async def endpoint(request: Request) -> Response:
        caller: Caller | None = None
        try:
            if not call.public:
                caller = await _recognised(service, limiter, request)
            asked = usual(request=request, caller=caller, known=query)
            return await call.work(asked)
        except Exception as error:  # noqa: BLE001 - whatever it is, its words may quote rows
            return _refused(error, caller, request)

    return endpoint


async def _recognised(service: Service, limiter: CapacityLimiter, request: Request) -> Caller:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "No token came with the request.", fix="Send Authorization: Bearer TOKEN."
        )
    people, token = service.people, token.strip()
    if people.is_quick(token):
        return people.by_token(token)
    return await to_thread.run_sync(people.by_token, token, limiter=limiter)


def _refused(error: Exception, caller: Caller | None, request: Request) -> Response:
    """The one shape of errors: code, message, fix; of what analysts may not read, a reference."""
    body = body_of(error, steward=caller is not None and caller.is_steward)
    status = error.status if isinstance(error, Refused) else status_of(error)
    if (plan := getattr(error, "plan", None)) is not None:
        body["plan"] = plan
    if not isinstance(error, UserError):
        _LOG.error(
            "%s %s: %s", request.scope["state"]["request_id"], body.get("reference", "-"),
            stumbled(error),
        )  # fmt: skip
    headers = {}
    if isinstance(error, Unauthenticated):
        headers["WWW_Authenticate"] = 'Bearer realm="noisegate"'
    if status in (429, 503):
        headers["Retry_After"] = "5"
    return say(body, status, **headers)


async def _of_http(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Starlette's
    assert isinstance(error, HTTPException)  # noqa: S101 - it handles these
    code, words = _OF_HTTP.get(error.status_code, ("request", "The request cannot be answered."))
    body = {"code": code, "message": words, "fix": "See /openapi.json."}
    kept = {n.replace("-", "_"): v for n, v in (error.headers or {}).items() if n == "Allow"}
    return say(body, error.status_code, **kept)
