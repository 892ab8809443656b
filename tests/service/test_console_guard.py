"""The pages as a wall: who sees which, sessions, forms of other sites, paths, hostile text."""

import csv
import html
import io
import json
import re
from datetime import timedelta
from html.parser import HTMLParser

import pytest
from browser import BY_WARD, HOME, ORIGIN, Browser, Everybody, asked, clinic_service, run_id, words

from noisegate.errors import Busy
from noisegate.orders import order_from
from noisegate.server.console import console_routes
from noisegate.server.console.sessions import Attempts, Stay
from noisegate.server.console.visits import BODY_MAX, HEADERS
from noisegate.server.service import Service
from noisegate.server.settings import Settings

PAGES = (
    "ask",
    "describe",
    "order",
    "releases",
    "history",
    "budget",
    "policy",
    "audit",
    "audit/csv",
    "audit/report",
    "audit/report.pdf",
    "lab",
)
SEEN = {
    "ana": {"ask", "describe", "order", "order?kind=histogram", "releases", "history", "lab"},
    "sam": {
        "releases",
        "history",
        "budget",
        "policy",
        "audit",
        "audit/csv",
        "audit/report",
        "audit/report.pdf",
        "lab",
    },
    "aud": {"history", "policy", "audit", "audit/csv", "audit/report", "audit/report.pdf", "lab"},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """One service for all tests of this file: what is refused leaves no trace."""
    made = clinic_service(tmp_path_factory.mktemp("guard"))
    yield made
    made.close()


@pytest.fixture
def browsers(service):
    return Everybody(service)


def asked_by(service, name):
    """How often somebody has asked."""
    return len(service.view(service.people.caller_of(name), "clinic").history())


# who sees what


@pytest.mark.parametrize("name", SEEN)
def test_each_role_has_its_pages_and_others_are_not_there(browsers, name):
    for page in PAGES:
        browsers[name].page(page, 200 if page in SEEN[name] else 404)


def test_a_page_of_others_looks_like_one_that_is_not_there(browsers):
    absent, others = browsers["ana"].page("nothing", 404), browsers["ana"].page("budget", 404)
    assert words(absent) == words(others)


@pytest.mark.parametrize("page", [*PAGES, "runs/x", "runs/x/csv", "", "nothing"])
def test_nobody_sees_nothing_but_the_way_in(service, page):
    reply = Browser(service).get(f"{HOME}/{page}", follow_redirects=False)
    if page:
        assert (reply.status_code, reply.headers["location"]) == (303, f"{HOME}/sign-in")
    assert "clinic" not in Browser(service).get(f"{HOME}/{page}").text


@pytest.mark.parametrize("page", ["budget", "audit/verify", "policy/what-if"])
def test_an_analyst_cannot_act_as_a_steward(browsers, page):
    assert browsers["ana"].submit(page, {"do": "pause"}).status_code == 404


def test_an_auditor_cannot_ask_or_pull_levers(browsers, service):
    assert browsers["aud"].submit("ask", {"sql": BY_WARD, "do": "ask"}).status_code == 404
    assert browsers["aud"].submit("budget", {"do": "pause"}).status_code == 404
    assert not service.is_paused("clinic")


def test_the_answer_of_another_analyst_is_not_there(browsers):
    run = run_id(asked(browsers["ana"]))
    for path in (f"runs/{run}", f"runs/{run}/csv", f"runs/{run}/card", f"ask?run={run}"):
        browsers["ana"].page(path)
        browsers["ben"].page(path, 404)
    assert browsers["ben"].submit(f"runs/{run}/cancel").status_code == 404
    browsers["sam"].page(f"runs/{run}")
    browsers["aud"].page(f"runs/{run}", 404)


def test_a_token_for_another_data_set_sees_no_table(service):
    away = Browser(service).sign_in(service, "ana", datasets=["elsewhere"])
    assert "visits" not in away.page("ask", 404).text
    away.page("ask?data=clinic", 404)


def test_a_steward_of_some_data_sets_makes_no_ways_into_others(service):
    some = Browser(service).sign_in(service, "sam", datasets=["clinic"])
    before = len(service.people.tokens())
    assert "New token" not in words(some.page("budget"))
    for do in ("token", "person", "disable", "revoke"):
        fields = {"do": do, "person": "sam", "name": "new", "role": "steward", "token": "x"}
        assert some.submit("budget", fields).status_code == 404
    assert len(service.people.tokens()) == before
    assert "sign-in" not in words(some.page("audit"))  # of no data set


# sessions


def test_a_session_is_a_cookie_for_these_pages_that_no_script_reads(service):
    browser = Browser(service)
    given = browser.submit(
        "sign-in", {"token": service.people.new_token("ana")}, home="sign-in"
    ).history[0]
    cookie = given.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/console"))
    assert "Secure" not in cookie
    secret = re.search(r"noisegate_session=([\w-]+)", cookie)[1]
    assert len(secret) >= 43
    kept = service.store.all("SELECT * FROM sessions")
    assert kept
    assert secret not in str(kept)


def test_signing_in_makes_a_new_session_each_time(service):
    browser = Browser(service).sign_in(service, "ana")
    first = browser.cookies["noisegate_session"]
    browser.cookies.delete("noisegate_session")
    browser.sign_in(service, "ana")
    assert browser.cookies["noisegate_session"] != first


def test_signing_out_ends_the_session_in_the_store(browsers, service):
    ana = browsers["ana"]
    cookie = ana.cookies["noisegate_session"]
    ana.submit("sign-out")
    assert "noisegate_session" not in ana.cookies
    ana.cookies.set("noisegate_session", cookie, path=HOME)
    assert ana.get(f"{HOME}/ask").url.path == f"{HOME}/sign-in"


def test_a_session_ends_with_its_token_its_person_and_its_time(browsers, service):
    service.people.add("tom", "auditor")
    for name in ("ana", "tom", "sam"):
        browsers[name].page("history")
    service.people.revoke(service.people.tokens("ana")[0].id)
    service.people.disable("tom")
    over = "2020-01-01T00:00:00.000+00:00"
    service.store.all("UPDATE sessions SET expires = ? WHERE person = 'sam'", over)
    for name in ("ana", "tom", "sam"):
        assert browsers[name].get(f"{HOME}/history").url.path == f"{HOME}/sign-in"


def test_a_session_of_an_expired_token_is_over(service):
    browser = Browser(service).sign_in(service, "ana", expires=timedelta(days=1))
    over = "2020-01-01T00:00:00.000+00:00"
    service.store.all("UPDATE tokens SET expires = ? WHERE expires IS NOT NULL", over)
    assert browser.get(f"{HOME}/ask").url.path == f"{HOME}/sign-in"


def test_a_made_up_cookie_opens_nothing(service):
    for cookie in ("", "x", "a" * 5000, "' OR 1=1 --"):
        browser = Browser(service)
        browser.cookies.set("noisegate_session", cookie, path=HOME)
        assert browser.get(f"{HOME}/ask").url.path == f"{HOME}/sign-in"


def test_many_wrong_attempts_close_the_way_in_for_a_while(service):
    browser, right = Browser(service), {"token": service.people.new_token("ana")}
    form = browser.form_token()
    wrong = [browser.submit("sign-in", {"token": f"ng_x_{n}"}, form=form) for n in range(50)]
    assert {each.status_code for each in wrong} == {401}
    assert browser.submit("sign-in", right, form=form).status_code == 429


def test_attempts_are_counted_by_address_and_by_name_for_five_minutes(monkeypatch):
    attempts, time = Attempts(), [0.0]
    monkeypatch.setattr("noisegate.server.console.sessions.time.monotonic", lambda: time[0])
    for n in range(10):
        attempts.require(address=str(n), name="eve")
        attempts.failed(address=str(n), name="eve")
    with pytest.raises(Busy):
        attempts.require(address="new", name="eve")
    attempts.require(address="0", name="ana")
    time[0] = 301
    attempts.require(address="new", name="eve")


def test_behind_a_proxy_cookies_are_for_tls_and_attempts_are_those_of_the_caller(service):
    browser = Browser(service, proxied=True)
    assert "Secure" in browser.get(f"{HOME}/sign-in").headers["set-cookie"]
    assert (
        "Secure"
        in Browser(service, base_url="https://testserver")
        .get(f"{HOME}/sign-in")
        .headers["set-cookie"]
    )
    form = {"Origin": ORIGIN, "Cookie": "noisegate_form=x"}
    fields = {"csrf": Stay(cookie="x", caller=None).form, "token": "wrong"}

    def tried(address):
        headers = form | {"X-Forwarded-For": f"made-up, {address}"}
        return browser.post(f"{HOME}/sign-in", data=fields, headers=headers).status_code

    assert {tried("10.0.0.1") for _ in range(50)} == {401}
    assert tried("10.0.0.1") == 429
    assert tried("10.0.0.2") == 401


def test_a_wrong_name_and_a_wrong_password_look_the_same(service):
    service.people.add("kim", "analyst", "a long password")
    browser = Browser(service)
    right = {"name": "kim", "password": "a long password"}
    said = [
        words(browser.submit("sign-in", {"name": name, "password": "no"}, home="sign-in"))
        for name in ("kim", "nobody")
    ]
    assert said[0] == said[1]
    assert browser.submit("sign-in", right, home="sign-in").url.path == f"{HOME}/ask"


# forms


@pytest.mark.parametrize(
    "wrong",
    [
        {"form": ""},
        {"form": "0" * 64},
        {"origin": None},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://testserver.evil.example"},
        {"origin": "http://testserver:81"},
        {"origin": "http://testserver@evil.example"},
        {"origin": "http://["},
    ],
)
def test_a_form_of_another_site_does_nothing(browsers, service, wrong):
    sam, ana, before = browsers["sam"], browsers["ana"], asked_by(service, "ana")
    assert sam.submit("budget", {"do": "pause", "data": "clinic"}, **wrong).status_code == 403
    assert asked_from(ana, wrong).status_code == 403
    assert not service.is_paused("clinic")
    assert asked_by(service, "ana") == before


def asked_from(browser, wrong):
    return browser.submit(
        "ask", {"sql": BY_WARD, "do": "ask", "epsilon": "0.5"}, home="ask", **wrong
    )


def test_no_form_of_any_page_does_anything_without_its_token_and_origin(browsers, service):
    """Every address that takes a POST, also those that are added later."""
    paths = [each.path for each in console_routes(service) if "POST" in (each.methods or ())]
    assert len(paths) > 10
    for path in {each.replace("{run}", "x") for each in paths} - {f"{HOME}/sign-in"}:
        for name in ("ana", "sam", "aud"):
            own = {"csrf": browsers[name].form_token("history")}
            for data, headers in (
                ({}, {"Origin": ORIGIN}),
                (own, {"Origin": "http://evil.example"}),
            ):
                reply = browsers[name].post(path, data=data, headers=headers)
                assert reply.status_code in (403, 404), (path, name)


def test_the_form_of_another_session_does_nothing(browsers, service):
    stolen = browsers["ana"].form_token("history")
    assert browsers["sam"].submit("budget", {"do": "pause"}, form=stolen).status_code == 403
    assert not service.is_paused("clinic")


def test_what_the_browser_calls_another_site_is_refused(browsers):
    sam = browsers["sam"]
    fields = {"csrf": sam.form_token("budget"), "do": "pause"}
    headers = {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}
    assert sam.post(f"{HOME}/budget", data=fields, headers=headers).status_code == 403


def test_nobody_can_be_signed_in_by_another_site(service):
    token = service.people.new_token("ana")
    browser = Browser(service)
    assert browser.submit("sign-in", {"token": token}, form="x").status_code == 403
    assert (
        browser.submit("sign-in", {"token": token}, home="sign-in", origin=None).status_code == 403
    )


def test_levers_do_not_move_by_get(browsers, service):
    browsers["sam"].get(f"{HOME}/budget?do=pause&data=clinic")
    assert browsers["sam"].get(f"{HOME}/audit/verify").status_code in (404, 405)
    assert not service.is_paused("clinic")


def test_long_and_broken_bodies_are_refused(browsers):
    ana = browsers["ana"]
    headers = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"a" * (BODY_MAX + 1), b"\xff\xfe=1", b"no fields"):
        assert ana.post(f"{HOME}/ask", content=body, headers=headers).status_code == 403
    plain = {"Origin": ORIGIN, "Content-Type": "text/plain"}
    body = f"csrf={ana.form_token('ask')}&sql=x"
    assert ana.post(f"{HOME}/ask", content=body, headers=plain).status_code == 403


def test_every_reply_has_its_headers_and_no_inline_script_or_style(browsers):
    run = run_id(asked(browsers["ana"]))
    pages = [("ana", f"ask?run={run}"), ("ana", f"runs/{run}"), ("ana", f"runs/{run}/card")]
    pages += [(name, page) for name in ("sam", "ana") for page in SEEN[name]]
    for name, page in pages:
        reply = browsers[name].page(page)
        for header, value in HEADERS.items():
            assert reply.headers[header] == value, page
        assert "unsafe" not in reply.headers["content-security-policy"]
        assert "server" not in reply.headers
        if "html" in reply.headers["content-type"]:
            assert inline(reply.text) == [], page


class Inline(HTMLParser):
    """What a strict policy would block, and what a person without eyes would miss."""

    def __init__(self):
        super().__init__()
        self.found, self.labels, self.fields = [], set(), []

    def handle_starttag(self, tag, attributes):
        said = dict(attributes)
        if tag == "style" or "style" in said or any(name.startswith("on") for name in said):
            self.found.append((tag, said))
        if tag == "script" and not (said.get("src") or "").startswith(f"{HOME}/static/"):
            self.found.append((tag, said))
        if tag in ("a", "form") and (said.get("href") or said.get("action") or "/")[0] not in "/#":
            self.found.append((tag, said))
        if tag == "label":
            self.labels.add(said.get("for"))
        if tag in ("input", "select", "textarea") and said.get("type") not in (
            "hidden",
            "radio",
            "checkbox",
        ):
            self.fields.append(said)


def inline(text):
    reader = Inline()
    reader.feed(text)
    return reader.found


def test_every_field_has_a_label_and_every_page_one_heading_and_landmarks(browsers):
    for name, seen in SEEN.items():
        for page in seen - {"audit/csv", "audit/report.pdf"}:
            text = browsers[name].page(page).text
            reader = Inline()
            reader.feed(text)
            for field in reader.fields:
                assert field.get("id") in reader.labels or field.get("aria-label"), (page, field)
            assert text.count("<h1") == 1
            assert all(each in text for each in ("<main", "<nav", 'class="skip"', 'lang="en"'))
            assert text.count("<th ") == text.count('<th scope="') or page == "policy"


@pytest.mark.parametrize(
    "path",
    [
        "static/../visits.py", "static/..%2fvisits.py", "static/%2e%2e/visits.py", "static/x.css",
        "runs/../../clinic.toml", "runs/..%2f..%2fclinic.toml/csv", "runs/x/../../secret",
        "static/console.css%00.js", "static//etc/passwd", "templates/base.html",
    ],
)  # fmt: skip
def test_paths_lead_nowhere_else(browsers, path):
    reply = browsers["ana"].get(f"{HOME}/{path}")
    assert reply.status_code == 404
    assert "import" not in reply.text
    assert "budget]" not in reply.text


def test_another_form_of_file_is_not_there(browsers):
    run = run_id(asked(browsers["ana"]))
    for form in ("arrow", "exe", "csv%00", "..", "JSON"):
        assert browsers["ana"].get(f"{HOME}/runs/{run}/{form}").status_code in (200, 404)
        assert "attachment" not in browsers["ana"].get(f"{HOME}/runs/{run}/{form}").headers


# hostile text

MARKS = "<script>alert(1)</script>", "\"'><svg onload=alert(2)>", "{{ 7 * 7 }}", "b\u202ec"
COLUMN = "<img src=x onerror=alert(3)>"
PERSON = "<b>eve<b>"
POLICY = """\
name = "evil"
protects = "<i>patient</i>"
[budget]
epsilon = 90
[tables."<u>t<u>"]
source = "t.csv"
unit = "id"
rows_per_unit = 1
groups_per_unit = 1
[tables."<u>t<u>".columns]
id = { type = "integer" }
"<img src=x onerror=alert(3)>" = { in = KEYS }
cost = { type = "number", between = [0, 10] }
"""


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """Markup wherever a name or a value can stand."""
    folder = tmp_path_factory.mktemp("evil")
    rows = [f'{n},"{MARKS[n % 4].replace(chr(34), chr(34) * 2)}",5\n' for n in range(80)]
    (folder / "t.csv").write_text(f"id,{COLUMN},cost\n{''.join(rows)}", encoding="utf-8")
    text = POLICY.replace("KEYS", json.dumps(list(MARKS), ensure_ascii=False))
    (folder / "evil.toml").write_text(text, encoding="utf-8")
    made = Service([folder / "evil.toml"], settings=Settings(quantum=0))
    made.people.add(PERSON, "analyst")
    made.people.add("sam", "steward")
    made.people.new_token(PERSON, label="<b>label</b>")
    yield made
    made.close()


def test_names_keys_values_and_sql_with_markup_are_text(evil):
    """Nothing of it is an element, an attribute or a template; the page says it as it is."""
    people = Everybody(evil)
    eve, sam = people[PERSON], people["sam"]
    quoted = f'"{COLUMN}"'
    sql = f'SELECT {quoted}, COUNT(*) AS "<p onclick=\'x()\'>n" FROM "<u>t<u>" GROUP BY {quoted}'
    answer = asked(eve, sql=sql)
    assert "Answer" in words(answer)
    run = run_id(answer)
    evil.view(evil.people.caller_of(PERSON), "evil").ask(
        order_from(
            {"kind": "release", "name": "histogram", "columns": {COLUMN: None}, "epsilon": 1}
        )
    )
    pages = [eve.page(path) for path in (f"ask?run={run}", f"runs/{run}", f"runs/{run}/card",
             "history", "releases", "order?kind=histogram", "order?kind=describe",
             "ask?sql=%3C/textarea%3E%3Cscript%3E")]  # fmt: skip
    pages += [sam.page(path) for path in ("budget", "policy", "audit", "audit/report", "history",
              "audit?person=%22%3E%3Cscript%3E&since=%22%3E%3Cscript%3E")]  # fmt: skip
    pages.append(asked(eve, sql="SELECT <script>alert(9)</script>"))
    fields = {"kind": "histogram", "column 0": COLUMN, "epsilon": "1", "do": "ask", "key": "h",
              "where": "</textarea><script>", "options": "<script>"}  # fmt: skip
    pages.append(eve.submit("order", fields, home="order"))
    fields |= {"where": "", "options": ""}
    pages.append(eve.submit("order", fields, home="order"))
    assert "Answer" in words(pages[-1])
    pages.append(sam.submit("budget", {"do": "token", "person": "<script>"}, home="budget"))
    for page in pages:
        assert inline(page.text) == []
        assert not {"script", "b", "i", "u", "img"} & elements(page.text)
        assert "\u202e" not in page.text
        assert " 49 " not in words(page)
    assert all(mark in html.unescape(answer.text) for mark in MARKS[:3])
    live = eve.submit("ask/price", {"sql": sql, "by": "epsilon", "epsilon": "1"}, home="ask")
    assert inline(live.json()["html"]) == []
    assert MARKS[0] in html.unescape(live.json()["html"])


def elements(text):
    """The elements inside of the page's main part."""
    return set(re.findall(r"<(\w+)", text.partition("<main")[2]))


def test_a_file_for_a_spreadsheet_computes_nothing(evil):
    sam = Browser(evil).sign_in(evil, "sam")
    evil.people.add("=1+1", "analyst")
    Browser(evil).sign_in(evil, "=1+1")
    rows = list(csv.DictReader(io.StringIO(sam.page("audit/csv?action=sign-in").text)))
    assert "'=1+1" in [row["person"] for row in rows]
