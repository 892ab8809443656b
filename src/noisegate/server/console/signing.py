"""Signing in and out: here, or at a provider that sends people back."""

from secrets import token_urlsafe
from typing import Final

from starlette.responses import RedirectResponse, Response

from noisegate.errors import Busy, NoisegateError, Unauthenticated
from noisegate.server.console.sessions import Stay
from noisegate.server.console.visits import COOKIE, FIRST, HOME, Visit
from noisegate.server.oidc import SignIn
from noisegate.server.people import Caller
from noisegate.server.refusals import no_such, status_of

AWAY: Final = "noisegate_away"  # what a browser remembers while it is at the provider
_AWAY_S: Final = 600
_BACK: Final = "oidc/back"
_OURS: Final = ("same-origin", "none")  # sites from which a sign-in may begin


def home(visit: Visit) -> Response:
    """The first page of a role."""
    return visit.to(FIRST[visit.caller.role])


def sign_in_page(visit: Visit) -> Response:
    """The forms, bound to a cookie that opens nothing."""
    if visit.session.caller is not None:
        return home(visit)
    out = visit.said("out") == "1"
    provider = visit.console.sign_in
    there = provider.way_out(f"{visit.site}/sign-in") if out and provider is not None else None
    return visit.keep(_page(visit, out=out, way_out=there), visit.session)


def sign_in(visit: Visit) -> Response:
    """Who has this token, or this name and password, has a new session."""
    name = visit.form.get("name", "")
    who = {"address": visit.address} | ({"name": name} if name else {})
    try:
        visit.console.attempts.require(**who)
        caller = _caller(visit, name)
    except (Busy, Unauthenticated) as error:
        return _not_in(visit, error, who)
    return visit.keep(visit.to(FIRST[caller.role]), _begun(visit, caller))


def leave(visit: Visit) -> Response:
    """Go to the provider; begun from a page of ours alone."""
    provider = _provider(visit)
    if visit.request.headers.get("sec-fetch-site", "none") not in _OURS:
        return visit.to("sign-in")
    memory = token_urlsafe(32)
    reply = RedirectResponse(provider.address(memory, f"{visit.site}/{_BACK}"), status_code=303)
    reply.set_cookie(  # not strict: it has to come along when the provider sends the browser back
        AWAY, memory, max_age=_AWAY_S, path=f"{HOME}/{_BACK}", secure=visit.is_tls,
        httponly=True, samesite="lax",
    )  # fmt: skip
    return reply


def come_back(visit: Visit) -> Response:
    """From the provider, with a code. Who is known here has a new session.

    A page of ours leads on: a browser that another site sends here does not show its cookie yet.
    Who did not leave from here has failed at nothing: that is neither counted nor written down.
    """
    provider, who = _provider(visit), {"address": visit.address}
    memory, said = visit.request.cookies.get(AWAY, ""), visit.request.query_params
    if not memory or not SignIn.began(said, memory):  # any site can send a browser here
        error = Unauthenticated("No sign-in was begun in this browser.", fix="Sign in again.")
        return visit.keep(_page(visit, status_of(error), error=visit.refused(error)), visit.session)
    try:
        visit.console.attempts.require(**who)
        name = provider.name_of(said, memory, f"{visit.site}/{_BACK}")
        caller = visit.service.people.caller_of(name)
    except NoisegateError as error:
        reply = _not_in(visit, error, who)
    else:
        first = f"{HOME}/{FIRST[caller.role]}"
        page = visit.page(
            "signed_in.html", title="Signed in", first=first, refresh=f"0; url={first}"
        )
        reply = visit.keep(page, _begun(visit, caller))
    reply.delete_cookie(AWAY, path=f"{HOME}/{_BACK}", httponly=True, samesite="lax")
    return reply


def sign_out(visit: Visit) -> Response:
    """The session ends here and in the store."""
    visit.log("sign-out")
    visit.console.sessions.end(visit.session.cookie)
    reply = visit.to("sign-in", out="1")
    reply.delete_cookie(COOKIE, path=HOME, httponly=True, samesite="strict")
    return reply


def _page(visit: Visit, status: int = 200, **values: object) -> Response:
    shared = {"title": "Sign in", "out": False, "way_out": None}
    provider = visit.console.sign_in
    named = None if provider is None else provider.issuer.issuer.partition("://")[2]
    return visit.page("sign_in.html", status, **(shared | {"provider": named} | values))


def _not_in(visit: Visit, error: NoisegateError, who: dict[str, str]) -> Response:
    """Say so, count it, and write it down: without what was typed, which may be a password."""
    said = visit.refused(error)
    if not isinstance(error, Busy):
        visit.console.attempts.failed(**who)
        more = {"reference": said["reference"]} if said["reference"] else {}
        visit.log("sign-in", refused=error.code, address=visit.address, **more)
    reply = _page(visit, status_of(error), error=said)
    return visit.keep(reply, visit.session)


def _begun(visit: Visit, caller: Caller) -> Stay:
    """A new session; one that this browser had before is over."""
    if visit.session.caller is not None:
        visit.console.sessions.end(visit.session.cookie)
    visit.service.log.add(caller.name, "sign-in", face="console", token=caller.token)
    return visit.console.sessions.begin(caller)


def _provider(visit: Visit) -> SignIn:
    if visit.console.sign_in is None:
        raise no_such("page")
    return visit.console.sign_in


def _caller(visit: Visit, name: str) -> Caller:
    if token := visit.form.get("token", "").strip():
        return visit.service.people.by_token(token)
    return visit.service.people.by_password(name, visit.form.get("password", ""))
