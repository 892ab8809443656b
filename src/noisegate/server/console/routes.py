"""The addresses of the console."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from noisegate.server.console import (
    ask,
    audit,
    budget,
    lab,
    orders,
    policy,
    runs,
    signing,
    visits,
)
from noisegate.server.oidc import SignIn
from noisegate.server.refusals import no_such
from noisegate.server.service import Service

_ASKERS = frozenset({visits.ANALYST})
_OWNERS = frozenset({visits.ANALYST, visits.STEWARD})
_STEWARDS = frozenset({visits.STEWARD})
_WATCHERS = frozenset({visits.STEWARD, visits.AUDITOR})


def console_routes(
    service: Service, *, proxied: bool = False, sign_in: SignIn | None = None
) -> list[BaseRoute]:
    """All pages of a service, to be mounted at the root; they live under /console.

    ``proxied``: a proxy in front speaks TLS, keeps the Host, and says where requests come from.
    ``sign_in``: the provider that browsers may sign in at.
    """
    console = visits.Console(service, proxied=proxied, sign_in=sign_in)

    def get(path: str, handler: visits.Handler, roles: frozenset[str] | None) -> Route:
        return visits.route(console, path, handler, roles=roles)

    def post(
        path: str, handler: visits.Handler, roles: frozenset[str] | None, *, live: bool = False
    ) -> Route:
        return visits.route(console, path, handler, roles=roles, post=True, live=live)

    return [
        Route("/", lambda _: RedirectResponse(visits.HOME, headers=visits.HEADERS)),
        Route(f"{visits.HOME}/static/{{name}}", _static),
        get("", signing.home, visits.EVERYBODY),
        get("/sign-in", signing.sign_in_page, None),
        post("/sign-in", signing.sign_in, None),
        get("/oidc", signing.leave, None),
        get("/oidc/back", signing.come_back, None),
        post("/sign-out", signing.sign_out, visits.EVERYBODY),
        get("/ask", ask.ask_page, _ASKERS),
        post("/ask", ask.ask, _ASKERS),
        post("/ask/price", ask.price, _ASKERS, live=True),
        get("/describe", orders.describe_page, _ASKERS),
        post("/describe", orders.describe, _ASKERS),
        post("/describe/price", orders.describe_price, _ASKERS, live=True),
        get("/order", orders.order_page, _ASKERS),
        post("/order", orders.order, _ASKERS),
        post("/order/price", orders.order_price, _ASKERS, live=True),
        get("/runs/{run}", runs.run_page, _OWNERS),
        get("/runs/{run}/card", runs.card_page, _OWNERS),
        get("/runs/{run}/card.json", runs.card_file, _OWNERS),
        get("/runs/{run}/{form}", runs.run_file, _OWNERS),
        post("/runs/{run}/cancel", runs.cancel, _OWNERS),
        post("/runs/{run}/public", runs.publish, _STEWARDS),
        get("/releases", runs.releases_page, _OWNERS),
        get("/history", runs.history_page, visits.EVERYBODY),
        get("/budget", budget.budget_page, _STEWARDS),
        post("/budget", budget.budget, _STEWARDS),
        get("/policy", policy.policy, _WATCHERS),
        post("/policy/what-if", policy.what_if_live, _WATCHERS, live=True),
        get("/audit", audit.audit_page, _WATCHERS),
        get("/audit/csv", audit.audit_csv, _WATCHERS),
        get("/audit/report", audit.report_page, _WATCHERS),
        get("/audit/report.pdf", audit.report_pdf, _WATCHERS),
        get("/lab", lab.lab_page, visits.EVERYBODY),
        post("/lab", lab.lab, visits.EVERYBODY),
        post("/audit/verify", audit.verify, _WATCHERS),
        get("/{rest:path}", _nothing, visits.EVERYBODY),
    ]


async def _static(request: Request) -> Response:
    """One of two files, by its whole name."""
    name = request.path_params["name"]
    if name not in visits.STATIC:
        return Response("There is no such file.", status_code=404, headers=visits.HEADERS)
    kept = visits.HEADERS | {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(visits.static(name), media_type=visits.STATIC[name], headers=kept)


def _nothing(_: visits.Visit) -> Response:
    raise no_such("page")
