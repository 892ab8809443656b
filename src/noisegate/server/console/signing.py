"""Signing in and out."""

from starlette.responses import Response

from noisegate.server.console.visits import COOKIE, FIRST, HOME, Visit
from noisegate.server.people import Caller
from noisegate.server.refusals import Busy, Unauthenticated, status_of


def home(visit: Visit) -> Response:
    """The first page of a role."""
    return visit.to(FIRST[visit.caller.role])


def sign_in_page(visit: Visit) -> Response:
    """The forms, bound to a cookie that opens nothing."""
    if visit.session.caller is not None:
        return home(visit)
    return visit.keep(visit.page("sign_in.html", title="Sign in"), visit.session)


def sign_in(visit: Visit) -> Response:
    """Who has this token, or this name and password, has a new session."""
    attempts, name = visit.console.attempts, visit.form.get("name", "")
    who = {"address": visit.address} | ({"name": name} if name else {})
    try:
        attempts.require(**who)
        caller = _caller(visit, name)
    except (Busy, Unauthenticated) as error:
        if isinstance(error, Unauthenticated):
            attempts.failed(**who)
        said = visit.refused(error)
        reply = visit.page("sign_in.html", status_of(error), title="Sign in", error=said)
        return visit.keep(reply, visit.session)
    session = visit.console.sessions.begin(caller)
    visit.service.log.add(caller.name, "sign-in", face="console", token=caller.token)
    return visit.keep(visit.to(FIRST[caller.role]), session)


def sign_out(visit: Visit) -> Response:
    """The session ends here and in the store."""
    visit.log("sign-out")
    visit.console.sessions.end(visit.session.cookie)
    reply = visit.to("sign-in")
    reply.delete_cookie(COOKIE, path=HOME, httponly=True, samesite="strict")
    return reply


def _caller(visit: Visit, name: str) -> Caller:
    if token := visit.form.get("token", "").strip():
        return visit.service.people.by_token(token)
    return visit.service.people.by_password(name, visit.form.get("password", ""))
