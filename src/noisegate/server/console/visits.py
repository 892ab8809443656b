"""One request of one person: who it is, what they may see, what every page carries.

A page that is not for a role is not there for it. Whatever changes something comes by POST, from a
form of this session and from this address, or is refused.
"""

from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias, final
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from noisegate.errors import Forbidden, Unauthenticated, stumbled
from noisegate.frozen import dataclass
from noisegate.inert import lines
from noisegate.server.console.sessions import HOURS, Attempts, Sessions, Stay
from noisegate.server.oidc import SignIn
from noisegate.server.people import Caller
from noisegate.server.refusals import body_of, no_such, status_of
from noisegate.server.runs import Run
from noisegate.server.service import Service
from noisegate.server.views import View

HOME: Final = "/console"
COOKIE: Final = "noisegate_session"
FORM_COOKIE: Final = "noisegate_form"  # of those who have not signed in: opens nothing
BODY_MAX: Final = 1 << 20
_HERE: Final = Path(__file__).parent
STATIC: Final = {"console.css": "text/css", "console.js": "text/javascript"}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ANALYST, STEWARD, AUDITOR = "analyst", "steward", "auditor"
EVERYBODY: Final = frozenset({ANALYST, STEWARD, AUDITOR})
PAGES: Final[tuple[tuple[str, str, frozenset[str]], ...]] = (
    ("ask", "Ask", frozenset({ANALYST})),
    ("describe", "Describe", frozenset({ANALYST})),
    ("order", "Order", frozenset({ANALYST})),
    ("releases", "Releases", frozenset({ANALYST, STEWARD})),
    ("history", "History", EVERYBODY),
    ("budget", "Budget", frozenset({STEWARD})),
    ("policy", "Policy", frozenset({STEWARD, AUDITOR})),
    ("audit", "Audit", frozenset({STEWARD, AUDITOR})),
    ("lab", "Lab", EVERYBODY),
)
FIRST: Final = {ANALYST: "ask", STEWARD: "budget", AUDITOR: "audit"}
Form: TypeAlias = Mapping[str, str]


@cache
def static(name: str) -> bytes:
    """A file of the console's own."""
    return (_HERE / "static" / name).read_bytes()


@cache
def _templates() -> Environment:
    """What writes pages: everything is escaped, and what is not said is a mistake."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: lines(value) if type(value) is str else value,
    )
    made.globals["static"] = _address
    return made


@final
class Console:
    """What all visits share."""

    def __init__(self, service: Service, *, proxied: bool, sign_in: SignIn | None = None) -> None:
        self.service, self.proxied, self.sign_in = service, proxied, sign_in
        self.sessions = Sessions(service.store, service.people)
        self.attempts = Attempts()

    def session(self, request: Request) -> Stay | None:
        """Who is there."""
        cookie = request.cookies.get(COOKIE)
        return None if cookie is None else self.sessions.find(cookie)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request with what is known about it."""

    console: Console
    request: Request
    session: Stay
    form: Form
    here: str

    @property
    def service(self) -> Service:
        """The service behind the pages."""
        return self.console.service

    @property
    def caller(self) -> Caller:
        """Who is there."""
        if self.session.caller is None:
            raise Unauthenticated("Nobody is signed in.", fix="Sign in.")
        return self.session.caller

    @property
    def address(self) -> str:
        """Where the request comes from, as a proxy in front says it where there is one."""
        if self.console.proxied:
            return self.request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
        return self.request.client.host if self.request.client else ""

    @property
    def is_tls(self) -> bool:
        """Whether the browser speaks TLS, with us or with a proxy in front."""
        return self.console.proxied or self.request.url.scheme == "https"

    @property
    def site(self) -> str:
        """The address of these pages, as the browser has it."""
        host = self.request.headers.get("host", "")
        return f"{'https' if self.is_tls else 'http'}://{host}{HOME}"

    def keep(self, reply: Response, session: Stay) -> Response:
        """Give the cookie of a session to the browser."""
        reply.set_cookie(
            FORM_COOKIE if session.caller is None else COOKIE,
            session.cookie,
            max_age=HOURS * 3600,
            path=HOME,
            secure=self.is_tls,
            httponly=True,
            samesite="strict",
        )
        return reply

    def said(self, name: str, default: str = "") -> str:
        """What a form, or else the address, says."""
        return self.form.get(name, self.request.query_params.get(name, default))

    def view(self) -> View:
        """The data set that is named, or the first of the caller's."""
        if name := self.said("data"):
            return self.service.view(self.caller, name)
        views = self.service.views(self.caller)
        if not views:
            raise no_such("data set")
        return views[0]

    def run(self) -> Run:
        """The run that the address names, if the caller may see it."""
        return self.service.run_of(self.caller, self.request.path_params["run"])

    def names(self) -> list[str]:
        """The data sets of the caller."""
        return [view.name for view in self.service.views(self.caller)]

    def log(self, action: str, *, dataset: str | None = None, **detail: object) -> None:
        """A line of the access log."""
        who = self.session.caller
        name, token = ("", None) if who is None else (who.name, who.token)
        self.service.log.add(name, action, face="console", token=token, dataset=dataset, **detail)

    def write(self, template: str, **values: object) -> str:
        """A template with what every page has."""
        caller = self.session.caller
        field = Markup('<input type="hidden" name="csrf" value="{}">').format(self.session.form)
        shared = {
            "home": HOME,
            "caller": caller,
            "here": self.here,
            "pages": [
                (name, words) for name, words, roles in PAGES if caller and caller.role in roles
            ],
            "csrf": lambda: field,
            "refresh": None,
            "error": None,
            "run": None,
        }
        return _templates().get_template(template).render(shared | values)

    def page(self, template: str, status: int = 200, **values: object) -> Response:
        """A whole page."""
        return HTMLResponse(self.write(template, **values), status_code=status)

    def file(self, body: str | bytes, kind: str, name: str) -> Response:
        """A file to be kept under a name."""
        headers = {"Content-Disposition": f'attachment; filename="noisegate-{name}"'}
        return Response(body, media_type=kind, headers=headers)

    def refused(self, error: Exception) -> dict[str, Any]:
        """What is said instead of an answer."""
        caller = self.session.caller
        return {"reference": None} | body_of(error, steward=bool(caller and caller.is_steward))

    def to(self, page: str, **values: str) -> Response:
        """Go to a page of the console after something was done."""
        asked = f"?{urlencode(values)}" if values else ""
        return RedirectResponse(f"{HOME}/{page}{asked}", status_code=303)


Handler: TypeAlias = Callable[[Visit], Response]


def route(
    console: Console,
    path: str,
    handler: Handler,
    roles: frozenset[str] | None,
    *,
    post: bool = False,
    live: bool = False,
) -> Route:
    """A page: for whom it is (None: before signing in), and whether it changes something."""
    here = path.strip("/").partition("/")[0]

    async def endpoint(request: Request) -> Response:
        form = await _form(request) if post else {}
        reply = await run_in_threadpool(serve, request, form)
        for name, value in HEADERS.items():
            reply.headers.setdefault(name, value)
        return reply

    def serve(request: Request, form: Form | None) -> Response:
        known = console.session(request) or _stranger(request)
        visit = Visit(console=console, request=request, session=known, form=form or {}, here=here)
        try:
            if roles is not None and visit.caller.role not in roles:
                return _said(visit, no_such("page"), live=live)  # a page of others is not there
            if post:
                _require_own(request, known, form)
            return handler(visit)
        except Unauthenticated as error:
            if live:
                return JSONResponse(visit.refused(error), status_code=401)
            return visit.to("sign-in")
        except Exception as error:  # noqa: BLE001 - said in public terms
            return _said(visit, error, live=live)

    return Route(f"{HOME}{path}", endpoint, methods=["POST" if post else "GET"])


def _stranger(request: Request) -> Stay:
    """Somebody who has not signed in: their form is bound to the cookie they got with it."""
    cookie = request.cookies.get(FORM_COOKIE)
    return Sessions.nobody() if cookie is None else Stay(cookie=cookie, caller=None)


def _said(visit: Visit, error: Exception, *, live: bool) -> Response:
    """A refusal as a page, or as what stands in place of a price; the steward finds its like."""
    status, said = status_of(error), visit.refused(error)
    if said["reference"] or status >= 500:
        place = stumbled(error)
        visit.log("error", reference=said["reference"], code=place.code, problem=place.problem)
    if live:
        body = {"html": visit.write("plan.html", error=said), "words": ""}  # an alert tells itself
        return JSONResponse(body, status_code=status)
    title = "There is no such page" if status == 404 else "This was not done"
    return visit.page("message.html", status, title=title, error=said)


def _require_own(request: Request, session: Stay, form: Form | None) -> None:
    """Refuse what no form of this session sent, from this address."""
    if form is None:
        raise Forbidden("The form is too long, or not a form.", fix="Use the pages' own forms.")
    host, origin = request.headers.get("host", ""), request.headers.get("origin", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    ours = origin in (f"https://{host}", f"http://{host}") and site == "same-origin"
    if not ours or not session.owns(form.get("csrf", "")):
        raise Forbidden(
            "This form does not come from a page of yours.", fix="Load the page again, then repeat."
        )


async def _form(request: Request) -> Form | None:
    """The fields of a form; None if it is none, or longer than any."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_MAX:
            return None
    if kind != "application/x-www-form-urlencoded":
        return None
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body))
    except ValueError:
        return None
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def _address(name: str) -> str:
    """Where a static file is; it changes with the file, so that browsers may keep it."""
    return f"{HOME}/static/{name}?{sha256(static(name)).hexdigest()[:12]}"
