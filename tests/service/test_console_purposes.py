"""Purposes in the console: chosen on every form, shown on every page; and releases made public."""

from contextlib import closing, contextmanager

import pytest
from browser import ROLES, Everybody, run_id, words
from served import QUICK
from starlette.testclient import TestClient
from test_purposes import ZCDP, policy

from noisegate.server.http import http_app
from noisegate.server.service import Service

SQL = "SELECT COUNT(*) AS n FROM visits"
HISTOGRAM = {"kind": "histogram", "table": "visits", "column 0": "age", "by 0": "10"}
PAGES = {
    "ask": {"sql": SQL, "by": "epsilon"},
    "describe": {"table": "visits"},
    "order": HISTOGRAM,
}


@contextmanager
def opened(folder):
    with closing(Service([policy(folder, ZCDP)], settings=QUICK)) as service:
        for name, role in ROLES.items():
            service.people.add(name, role)
        yield Everybody(service)


@pytest.fixture(scope="module")
def everybody(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("why")) as service:
        yield service


def spent(everybody):
    ledger = everybody.service.view(everybody.service.people.caller_of("sam"), "study").ledger
    names = ledger.accounts()
    return {each.removeprefix("study/"): ledger.balance(each).reservations for each in names}


def sent(everybody, who, page, **more):
    fields = {"do": "ask", "epsilon": "0.3", "key": page} | PAGES[page] | more
    return everybody[who].submit(page, fields, home=page)


@pytest.mark.parametrize("page", PAGES)
def test_what_it_is_for_is_chosen_on_the_form_and_charged_there(everybody, page):
    form = everybody["ana"].page("order?kind=histogram" if page == "order" else page)
    assert 'name="purpose" required' in form.text
    assert "choose a purpose" in form.text
    assert all(each in form.text for each in ("report, left ε = ", "trial, left ε = "))
    before = spent(everybody)
    refused = sent(everybody, "ana", page)
    assert refused.status_code == 400
    assert "Say what it is asked for" in words(refused)
    assert sent(everybody, "ana", page, purpose="another").status_code == 400
    assert spent(everybody) == before
    priced = sent(everybody, "ana", page, purpose="report", do="price")
    assert 'value="report" selected' in priced.text
    reply = sent(everybody, "ana", page, purpose="report")
    assert reply.status_code == 200, words(reply)
    assert "±" in words(reply)
    assert spent(everybody)["for report/ana"] > before.get("for report/ana", 0)
    practised = sent(everybody, "ana", page, purpose="trial", do="practise")
    assert "Practice." in words(practised)


def test_one_sees_the_purposes_that_one_may_ask_for(everybody):
    ben = everybody["ben"].page("ask").text
    assert 'value="report"' in ben
    assert 'value="trial"' not in ben
    assert sent(everybody, "ben", "ask", purpose="trial").status_code == 403


def test_the_one_share_is_on_the_form_and_on_the_page_of_budgets(everybody):
    assert "For all purposes together, ε = " in everybody["ana"].page("ask").text
    assert sent(everybody, "ana", "ask", purpose="trial", key="once").status_code == 200
    page = everybody["sam"].page("budget")
    said = words(page)
    assert "ana, for all purposes together" in said
    assert "Change the share of ana for all purposes together" in said
    trial = said.partition("ana, for trial")[2].partition("Change the share")[0]
    assert "the accounts above it have no more" in trial, "less than the share is left of trial"


def test_a_bar_says_why_less_is_left_than_the_share(tmp_path):
    with opened(tmp_path) as nothing_spent:
        wide, narrow = (
            words(sent(nothing_spent, "ana", "ask", purpose=why, do="price"))
            for why in ("report", "trial")
        )
    assert "have no more" not in wide
    assert "of 2: the accounts above it have no more" in narrow


def test_history_audit_and_budget_say_what_for(everybody):
    sent(everybody, "ana", "ask", purpose="report", key="again")
    assert "For Question" in words(everybody["ana"].page("history"))
    assert all("report" in words(everybody["sam"].page(each)) for each in ("history", "audit"))
    assert ",study,report," in everybody["sam"].page("audit/csv").text
    assert "ana, for report" in words(everybody["sam"].page("audit/report?data=study"))
    said = words(everybody["sam"].page("budget"))
    of_purposes = said.partition("By purpose ")[2].partition("By analyst")[0]
    assert of_purposes.startswith("report ")
    assert "The yearly report" in of_purposes
    assert "% is left." in of_purposes
    of_analysts = said.partition("By analyst ")[2]
    assert "ana, for report" in of_analysts
    assert "ana 0 charges" not in of_analysts
    assert of_analysts.count("Change the share of ana") == 1


def test_a_new_token_can_be_for_one_purpose(everybody):
    sam = everybody["sam"]
    fields = {"do": "token", "data": "study", "person": "ana", "days": "1"}
    assert sam.submit("budget", fields | {"purpose": "x"}, home="budget").status_code == 400
    made = sam.submit("budget", fields | {"purpose": "report"}, home="budget")
    assert "for report alone" in words(made)
    assert everybody.service.log.lines(limit=1)[0].detail["purpose"] == "report"


def test_a_steward_publishes_and_withdraws_a_release(everybody):
    run = sent(everybody, "ana", "order", purpose="report").url.path.rpartition("/")[2]
    world, sam = TestClient(http_app(everybody.service)), everybody["sam"]
    path = f"runs/{run}/public"
    assert "Publish" not in words(everybody["ana"].page(f"runs/{run}"))
    assert "Publish" in words(sam.page("releases"))
    assert everybody["ana"].submit(path, {"do": "publish"}).status_code == 404
    assert sam.submit(path, {"do": "publish"}, form="x").status_code == 403
    assert world.get(f"/public/{run}").status_code == 404
    assert "Withdraw" in words(sam.submit(path, {"do": "publish"}))
    assert world.get(f"/public/{run}").status_code == 200
    assert "Publish" in words(sam.submit(path, {"do": "withdraw"}))
    assert world.get(f"/public/{run}").status_code == 404
    question = run_id(sent(everybody, "ana", "ask", purpose="report", key="question"))
    assert sam.submit(f"runs/{question}/public", {"do": "publish"}).status_code == 404
