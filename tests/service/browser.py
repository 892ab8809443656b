"""A browser without a screen: cookies, forms with their tokens, and the address it comes from."""

import html
import re

from clinics import clinic_in
from starlette.applications import Starlette
from starlette.testclient import TestClient

from noisegate.server.console import console_routes
from noisegate.server.service import Service
from noisegate.server.settings import Settings

ORIGIN = "http://testserver"
HOME = "/console"
ROLES = {"sam": "steward", "ana": "analyst", "ben": "analyst", "aud": "auditor"}
BY_WARD = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


class Browser(TestClient):
    def __init__(self, service, *, proxied=False, sign_in=None, **options):
        self.service = service
        routes = console_routes(service, proxied=proxied, sign_in=sign_in)
        super().__init__(Starlette(routes=routes), **options)

    def page(self, path, status=200):
        reply = self.get(f"{HOME}/{path}")
        assert reply.status_code == status, (path, reply.status_code, words(reply))
        return reply

    def form_token(self, path="sign-in"):
        return re.search(r'name="csrf" value="(\w+)"', self.get(f"{HOME}/{path}").text)[1]

    def submit(self, path, fields=None, *, origin=ORIGIN, form=None, home="history"):
        """A form of one of our pages, as a browser sends it."""
        fields = {"csrf": self.form_token(home) if form is None else form} | (fields or {})
        headers = {} if origin is None else {"Origin": origin}
        return self.post(f"{HOME}/{path}", data=fields, headers=headers)

    def sign_in(self, service, name, **limits):
        text = service.people.new_token(name, **limits)
        reply = self.submit("sign-in", {"token": text}, home="sign-in")
        assert not reply.url.path.endswith("sign-in"), words(reply)
        return self


def words(reply):
    """What a page says, without its tags."""
    main = reply.text.partition("<main")[2] or reply.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


class Everybody(dict):
    """One browser of each person, who signs in when first wanted."""

    def __init__(self, service):
        super().__init__()
        self.service = service

    def __missing__(self, name):
        self[name] = Browser(self.service).sign_in(self.service, name)
        return self[name]


def asked(browser, sql=BY_WARD, do="ask", **more):
    """The form of the page Ask."""
    fields = {"sql": sql, "do": do, "by": "epsilon", "epsilon": "0.5", "key": "k"}
    return browser.submit("ask", fields | more, home="ask")


def run_id(reply):
    return re.search(r"run=(\w+)", str(reply.url))[1]


def clinic_service(folder, changed=str, **settings):
    """The clinic with its people; ``changed``: what is made of the text of its policy."""
    policy = clinic_in(folder)
    policy.write_text(changed(policy.read_text()))
    made = Service([policy], settings=Settings(quantum=0, **settings))
    for name, role in ROLES.items():
        made.people.add(name, role)
    return made
