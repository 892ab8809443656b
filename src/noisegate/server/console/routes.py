"""The addresses of the console."""

from functools import partial

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
    page = partial(visits.route, console)
    gallery = lab.Lab()
    return [
        Route("/", lambda _: RedirectResponse(visits.HOME, headers=visits.HEADERS)),
        Route(f"{visits.HOME}/static/{{name}}", _static),
        page("", signing.home, visits.EVERYBODY),
        page("/sign-in", signing.sign_in_page, None),
        page("/sign-in", signing.sign_in, None, post=True),
        page("/oidc", signing.leave, None),
        page("/oidc/back", signing.come_back, None),
        page("/sign-out", signing.sign_out, visits.EVERYBODY, post=True),
        page("/ask", ask.ask_page, _ASKERS),
        page("/ask", ask.ask, _ASKERS, post=True),
        page("/ask/price", ask.price, _ASKERS, post=True, live=True),
        page("/describe", orders.describe_page, _ASKERS),
        page("/describe", orders.describe, _ASKERS, post=True),
        page("/describe/price", orders.describe_price, _ASKERS, post=True, live=True),
        page("/order", orders.order_page, _ASKERS),
        page("/order", orders.order, _ASKERS, post=True),
        page("/order/price", orders.order_price, _ASKERS, post=True, live=True),
        page("/runs/{run}", runs.run_page, _OWNERS),
        page("/runs/{run}/card", runs.card_page, _OWNERS),
        page("/runs/{run}/card.json", runs.card_file, _OWNERS),
        page("/runs/{run}/{form}", runs.run_file, _OWNERS),
        page("/runs/{run}/cancel", runs.cancel, _OWNERS, post=True),
        page("/runs/{run}/public", runs.publish, _STEWARDS, post=True),
        page("/releases", runs.releases_page, _OWNERS),
        page("/history", runs.history_page, visits.EVERYBODY),
        page("/budget", budget.budget_page, _STEWARDS),
        page("/budget", budget.budget, _STEWARDS, post=True),
        page("/policy", policy.policy, _WATCHERS),
        page("/policy/what-if", policy.what_if_live, _WATCHERS, post=True, live=True),
        page("/audit", audit.audit_page, _WATCHERS),
        page("/audit/csv", audit.audit_csv, _WATCHERS),
        page("/audit/report", audit.report_page, _WATCHERS),
        page("/audit/report.pdf", audit.report_pdf, _WATCHERS),
        page("/lab", partial(lab.lab_page, gallery), visits.EVERYBODY),
        page("/lab", partial(lab.lab, gallery), visits.EVERYBODY, post=True),
        page("/audit/verify", audit.verify, _WATCHERS, post=True),
        page("/{rest:path}", _nothing, visits.EVERYBODY),
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
