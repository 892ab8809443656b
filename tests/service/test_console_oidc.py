"""Browsers sign in at a provider: a real one on this machine, with real keys and real codes."""

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from browser import HOME, Browser, clinic_service, words
from provider import CLIENT, SECRET, STRANGER, listening, provider
from starlette.applications import Starlette
from test_console_browser import chromium  # noqa: F401 - one browser for all tests

from noisegate.errors import OperatorError
from noisegate.server.console import console_routes
from noisegate.server.console.visits import HEADERS
from noisegate.server.oidc import Issuer, SignIn
from noisegate.server.serve import Serving


@pytest.fixture(scope="module")
def peer():
    with provider() as made:
        yield made


@pytest.fixture(scope="module")
def way(peer):
    issuer = Issuer(issuer=peer.url, audience="api", keys=f"{peer.url}/keys")
    return SignIn(issuer=issuer, client=CLIENT, secret=SECRET)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = clinic_service(tmp_path_factory.mktemp("oidc"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def good(peer):
    peer.who, peer.alg, peer.wrong = "ana", "RS256", {}


@pytest.fixture
def browser(service, way):
    return Browser(service, sign_in=way)


def away(browser):
    """To the provider; gives the address that it sends the browser back to."""
    left = browser.get(f"{HOME}/oidc", follow_redirects=False)
    assert left.status_code == 303
    return httpx.get(left.headers["location"]).headers["location"]


def back(browser, where):
    return browser.get(where.replace("http://testserver", ""))


@pytest.mark.parametrize("alg", ["RS256", "EdDSA"])
def test_somebody_known_here_comes_back_with_a_session_of_their_role(browser, service, peer, alg):
    peer.alg = alg
    reply = back(browser, away(browser))
    assert "Signed in" in words(reply)
    assert all(reply.headers[name] == value for name, value in HEADERS.items())
    assert f"0; url={HOME}/ask" in reply.text  # by a page of ours: then the strict cookie is sent
    assert "SameSite=strict" in str(reply.headers.get_list("set-cookie"))
    assert "ana, analyst" in browser.page("ask").text
    browser.page("budget", 404)
    assert service.log.lines(limit=1)[0].person == "ana"
    out = browser.submit("sign-out")
    assert f"{peer.url}/logout?client_id={CLIENT}" in out.text
    assert browser.get(f"{HOME}/ask").url.path == f"{HOME}/sign-in"


def test_a_provider_may_tell_a_name_beside_its_token(browser, peer):
    peer.wrong = {"beside": {}}
    assert "Signed in" in words(back(browser, away(browser)))
    assert "ana, analyst" in browser.page("ask").text


def test_what_leaves_is_a_challenge_and_no_secret(browser, peer):
    left = browser.get(f"{HOME}/oidc", follow_redirects=False)
    asked = {key: v[0] for key, v in parse_qs(urlsplit(left.headers["location"]).query).items()}
    cookie = left.headers["set-cookie"]
    assert all(each in cookie for each in ("HttpOnly", "SameSite=lax", f"Path={HOME}/oidc/back"))
    memory = cookie.partition("=")[2].partition(";")[0]
    numbers = [asked["state"], asked["nonce"], asked["code_challenge"], memory]
    assert len(set(numbers)) == 4
    assert all(len(each) == 43 for each in numbers)
    assert memory not in left.headers["location"]
    other = browser.get(f"{HOME}/oidc", follow_redirects=False).headers["location"]
    assert asked["state"] not in other


@pytest.mark.parametrize(
    ("who", "wrong"),
    [
        ("mallory", {}),
        (None, {}),
        ("ana", {"back": {"code": "x"}}),
        ("ana", {"back": {"iss": "http://localhost:1"}}),
        ("ana", {"claims": {"nonce": "x"}}),
        ("ana", {"claims": {"aud": "api"}}),
        ("ana", {"claims": {"azp": "another", "aud": [CLIENT, "another"]}}),
        ("ana", {"claims": {"iss": "http://localhost:1"}}),
        ("ana", {"claims": {"exp": 1_000_000_000}}),
        ("ana", {"claims": {"email_verified": False}}),
        ("ana", {"claims": {"email_verified": None}}),
        ("ana", {"key": STRANGER}),
        ("ana", {"beside": {"sub": "2"}}),  # somebody else's
        ("ana", {"beside": {"email_verified": False}}),
        ("ana", {"beside": {"email": None}}),
        ("mallory", {"beside": {}}),
    ],
)
def test_what_is_not_right_lets_nobody_in_and_is_written_down(service, way, peer, who, wrong):
    browser = Browser(service, sign_in=way)
    peer.who, peer.wrong = who, wrong
    before = service.log.lines(limit=1)
    reply = back(browser, away(browser))
    assert reply.status_code == 401
    assert 'role="alert"' in reply.text
    assert "noisegate_session" not in browser.cookies
    line = service.log.lines(limit=1)[0]
    assert line not in before
    assert (line.action, line.person) == ("sign-in", "")
    assert line.detail["refused"].startswith("unauthenticated")


def test_another_site_cannot_use_up_the_attempts_of_an_address(service, way):
    """Its pictures can point at our way back; who did not leave from here fails at nothing."""
    browser = Browser(service, sign_in=way)
    before, where = service.log.lines(limit=1), away(browser)
    memory = browser.cookies["noisegate_away"]
    for number in range(60):
        browser.cookies.clear()
        if number % 2:
            browser.cookies.set("noisegate_away", memory, path=f"{HOME}/oidc/back")
        reply = browser.get(f"{HOME}/oidc/back?state=x&code=y")
        assert reply.status_code == 401
    assert "was begun in this browser" in words(reply)
    assert service.log.lines(limit=1) == before
    assert "Signed in" in words(back(browser, where))  # what was begun goes on


def test_a_code_is_good_for_the_browser_that_asked_and_once(service, way):
    """Signing somebody in with one's own code: a classic that PKCE and state are for."""
    mine, victim = Browser(service, sign_in=way), Browser(service, sign_in=way)
    where = away(mine)
    assert back(victim, where).status_code == 401  # began nothing
    away(victim)
    assert back(victim, where).status_code == 401  # began another
    assert back(mine, where).status_code == 200
    assert back(mine, where).status_code == 401  # the provider's codes are for once


def test_signing_in_again_ends_the_session_before(browser):
    back(browser, away(browser))
    first = browser.cookies["noisegate_session"]
    back(browser, away(browser))
    again = Browser(browser.service, sign_in=None)
    again.cookies.set("noisegate_session", first, path=HOME)
    assert again.get(f"{HOME}/ask").url.path == f"{HOME}/sign-in"


def test_another_site_begins_no_sign_in_and_without_a_provider_there_is_none(browser, service):
    sent = {"Sec-Fetch-Site": "cross-site"}
    reply = browser.get(f"{HOME}/oidc", headers=sent, follow_redirects=False)
    assert reply.headers["location"] == f"{HOME}/sign-in"
    plain = Browser(service)
    for path in ("oidc", "oidc/back?code=x&state=y"):
        plain.page(path, 404)
    assert "Sign in at" not in words(plain.page("sign-in"))


def test_a_provider_that_does_not_answer_is_the_operators_matter(service):
    """Nor is one followed that is in the clear, elsewhere, or calls itself something else."""
    for url in (
        "http://localhost:1",
        "http://id.example",
        "ftp://localhost",
        "https://127.0.0.1:1",
    ):
        issuer = Issuer(issuer=url, audience="api", keys="none")
        with pytest.raises(OperatorError):
            SignIn(issuer=issuer, client="c").address("m", "b")
    reply = Browser(service, sign_in=SignIn(issuer=issuer, client="c")).page("oidc", 503)
    assert "Reference" in words(reply)


def test_the_settings_of_browsers_need_those_of_the_provider(monkeypatch):
    said = {"oidc_issuer": "https://id.example", "oidc_audience": "a", "oidc_keys": "k.json"}
    assert Serving.chosen(**said).sign_in is None
    assert Serving.chosen(**said, oidc_client="c").sign_in.secret is None
    monkeypatch.setenv("NOISEGATE_OIDC_SECRET", "s")
    assert Serving.chosen(**said, oidc_client="c").sign_in.secret == "s"
    for wrong in ({"oidc_client": "c"}, said):
        with pytest.raises(Exception, match="oidc_client"):
            Serving.chosen(**wrong).sign_in  # noqa: B018 - a property


def test_a_real_browser_goes_to_another_site_and_comes_back_signed_in(chromium, service, way):  # noqa: F811
    """Strict cookies, a strict policy and two sites: what only a browser decides."""
    with listening(Starlette(routes=console_routes(service, sign_in=way))) as address:
        page = chromium.new_context().new_page()
        page.set_default_timeout(10_000)
        page.goto(address)
        page.get_by_role("link", name="Sign in at").click()
        page.get_by_role("link", name="I am ana").click()
        page.get_by_label("Question in SQL").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("link", name="Sign out of").click()
        page.get_by_text("You are signed out.").wait_for()
        page.context.close()
