"""The pages: prices, answers, files, history, releases; levers, policy, audit."""

import csv
import io
import json
import re

import pyarrow.parquet as pq
import pytest
from browser import BY_WARD, HOME, Browser, Everybody, asked, clinic_service, run_id, words

from noisegate.desk.card import Card, verify
from noisegate.orders import order_from


@pytest.fixture
def browsers(service):
    return Everybody(service)


# asking


def test_a_question_is_priced_practised_asked_and_free_again(browsers, service):
    ana = browsers["ana"]
    caller = service.people.caller_of("ana")
    priced = asked(ana, do="price")
    assert "ε = 0.5" in words(priced)
    assert service.view(caller, "clinic").history() == []
    assert "Practice." in words(asked(ana, do="practise"))
    assert service.view(caller, "clinic").gate.spent.epsilon == 0
    first = words(asked(ana))
    assert all(ward in first for ward in ("north", "south", "east", "west", "±"))
    assert service.view(caller, "clinic").gate.spent.epsilon == 0.5
    again = asked(ana, key="another page")
    assert "free: answered from the ledger" in words(again)
    assert service.view(caller, "clinic").gate.spent.epsilon == 0.5


def test_a_part_of_the_rest_is_paid_for_and_shown(browsers, service):
    reply = asked(browsers["ana"], epsilon="1/4 of rest")
    assert reply.status_code == 200
    assert "north" in words(reply)
    assert 'value="1/4 of rest"' in reply.text
    assert service.view(service.people.caller_of("ana"), "clinic").gate.spent.epsilon == 0.5


def test_a_button_that_is_pressed_twice_asks_once(browsers, service):
    one, two = run_id(asked(browsers["ana"])), run_id(asked(browsers["ana"]))
    assert one == two
    other = run_id(asked(browsers["ana"], sql="SELECT COUNT(*) AS n FROM visits"))
    assert other != one


def test_the_live_price_says_what_it_costs_and_moves_the_fields(browsers):
    ana = browsers["ana"]
    fields = {"sql": BY_WARD, "by": "epsilon", "epsilon": "0.5"}
    said = ana.submit("ask/price", fields, home="ask").json()
    assert said["fits"]
    assert said["epsilon"] == "0.5"
    assert "ε = 0.5" in said["html"]
    back = ana.submit("ask/price", fields | {"by": "within", "within": said["within"]}, home="ask")
    assert float(back.json()["epsilon"]) <= 0.501
    assert ana.submit("ask/price", {"sql": " "}, home="ask").status_code == 200


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"sql": "SELECT name FROM patients"}, 422, "hidden"),
        ({"sql": "DROP TABLE visits"}, 422, "SELECT"),
        ({"sql": BY_WARD, "epsilon": "many"}, 400, "epsilon"),
        ({"sql": BY_WARD, "epsilon": "-1"}, 400, "epsilon"),
        ({"sql": BY_WARD, "epsilon": "9"}, 400, "ε = 1"),
    ],
)
def test_a_refusal_says_the_fix_and_keeps_the_question(browsers, service, fields, code, said):
    for path in ("ask/price", "ask"):
        reply = browsers["ana"].submit(path, {"by": "epsilon", "do": "ask"} | fields, home="ask")
        text = reply.json()["html"] if path == "ask/price" else reply.text
        assert reply.status_code == code
        assert said in text
        assert path == "ask/price" or fields["sql"] in text
    assert service.view(service.people.caller_of("ana"), "clinic").gate.spent.epsilon == 0


def test_a_question_that_does_not_fit_shows_so_before_and_after(browsers):
    ben = browsers["ben"]
    assert "left ε = 0" in words(asked(ben, sql="SELECT COUNT(*) FROM visits", epsilon="1"))
    more = {"sql": BY_WARD, "by": "epsilon", "epsilon": "0.5"}
    assert "More than is left" in ben.submit("ask/price", more, home="ask").json()["html"]
    assert "Not answered" in words(asked(ben))


def test_answers_are_files(browsers, service):
    ana = browsers["ana"]
    run = run_id(asked(ana))
    rows = list(csv.DictReader(io.StringIO(ana.page(f"runs/{run}/csv").text)))
    assert [row["ward"] for row in rows] == ["north", "south", "east", "west"]
    assert float(rows[0]["n_margin"]) > 0
    record = json.loads(ana.page(f"runs/{run}/json").text)
    assert [int(row["n"]) for row in rows] == [row[1] for row in record["rows"]]
    table = pq.read_table(io.BytesIO(ana.page(f"runs/{run}/parquet").content))
    assert table["n"].to_pylist() == [row[1] for row in record["rows"]]
    given = ana.page(f"runs/{run}/csv").headers["content-disposition"]
    assert re.fullmatch(r'attachment; filename="noisegate-\w{12}\.csv"', given)
    assert "Release card" in words(ana.page(f"runs/{run}/card"))
    stated = Card.from_json(ana.page(f"runs/{run}/card.json").text)
    gate = service.view(service.people.caller_of("ana"), "clinic").gate
    assert verify(stated, gate.ledger) == []


def test_history_shows_mine_with_the_price_and_everybodys_to_those_who_watch(browsers):
    asked(browsers["ana"])
    asked(browsers["ben"], sql="SELECT COUNT(*) AS mine FROM patients", epsilon="0.25")
    mine = words(browsers["ben"].page("history"))
    assert "mine" in mine
    assert "0.25" in mine
    assert "ward" not in mine
    for name in ("sam", "aud"):
        assert "ward" in words(browsers[name].page("history"))
        assert "mine" in words(browsers[name].page("history"))


def test_releases_have_a_picture_and_a_card(browsers, service):
    view = service.view(service.people.caller_of("ana"), "clinic")
    terms = {"table": "patients", "columns": {"birth_year": 10}, "epsilon": "0.2"}
    view.ask(order_from({"kind": "release", "name": "histogram", **terms}))
    page = browsers["ana"].page("releases")
    assert page.text.count("<svg") == 1
    assert "histogram" in words(page)
    assert "Nothing was released yet" in words(browsers["ben"].page("releases"))
    run = re.search(r"runs/(\w+)/card", page.text)[1]
    assert "Release card" in words(browsers["ana"].page(f"runs/{run}/card"))


def test_a_table_is_described_for_one_price_and_free_afterwards(browsers, service):
    ana = browsers["ana"]
    fields = {"table": "patients", "epsilon": "0.5", "data": "clinic", "key": "k"}
    live = ana.submit("describe/price", fields, home="describe").json()
    assert "birth_year median" in live["html"]
    assert "ε = 0.5" in live["html"]
    practised = words(ana.submit("describe", fields | {"do": "practise"}, home="describe"))
    assert "Practice." in practised
    paid = ana.submit("describe", fields | {"do": "ask"}, home="describe")
    assert "birth_year" in words(paid)
    assert "median" in words(paid)
    gate = service.view(service.people.caller_of("ana"), "clinic").gate
    assert 0.4 < gate.spent.epsilon <= 0.5  # less where no town is found
    free = ana.submit("describe/price", fields, home="describe").json()
    assert "released before" in free["html"]
    assert "describe" in words(ana.page("releases"))
    for wrong in ({"table": "none"}, {"table": ""}, {"epsilon": "x"}, {"table": "<script>"}):
        refused = ana.submit("describe", fields | {"do": "ask"} | wrong, home="describe")
        assert 400 <= refused.status_code < 500
        assert "<script>" not in refused.text.partition("<main")[2]


# stewards and auditors


def test_a_steward_pauses_and_resumes_questions(browsers, service):
    sam, ana = browsers["sam"], browsers["ana"]
    assert "Resume questions" in words(sam.submit("budget", {"do": "pause", "data": "clinic"}))
    refused = asked(ana)
    assert refused.status_code == 503
    assert "paused" in words(refused)
    assert "Practice." in words(asked(ana, do="practise"))
    sam.submit("budget", {"do": "resume", "data": "clinic"})
    assert "Answer" in words(asked(ana))


def test_a_new_token_is_shown_once_and_works_until_it_is_revoked(browsers, service):
    sam = browsers["sam"]
    fields = {"do": "token", "person": "ben", "label": "note", "days": "2", "set clinic": "1",
              "epsilon_question": "0.1"}  # fmt: skip
    made = sam.submit("budget", fields, home="budget")
    text = re.search(r"ng_\w+_[\w-]+", made.text)[0]
    caller = service.people.by_token(text)
    assert (caller.name, caller.datasets) == ("ben", frozenset({"clinic"}))
    assert float(caller.epsilon_question) == 0.1
    assert text not in sam.page("budget").text
    assert text not in str(service.store.all("SELECT * FROM access"))
    sam.submit("budget", {"do": "revoke", "token": caller.token}, home="budget")
    assert service.people.tokens("ben")[0].revoked
    logged = [line.action for line in service.log.lines(person="sam")]
    assert logged[:2] == ["revoke", "new-token"]


@pytest.mark.parametrize(
    "fields",
    [
        {"do": "token", "person": "nobody"},
        {"do": "token", "person": "ben", "days": "-1"},
        {"do": "token", "person": "ben", "days": "²"},
        {"do": "token", "person": "ben", "epsilon_hour": "many"},
        {"do": "person", "name": "", "role": "analyst"},
        {"do": "person", "name": "new", "role": "king"},
        {"do": "person", "name": "new", "role": "analyst", "password": "short"},
        {"do": "disable", "person": "sam"},
        {"do": "approve", "run": "none"},
        {"do": "decline", "run": "none"},
        {"do": "nothing"},
    ],
)
def test_a_lever_that_cannot_be_pulled_says_so(browsers, service, fields):
    reply = browsers["sam"].submit("budget", fields, home="budget")
    assert 400 <= reply.status_code < 500
    assert 'role="alert"' in reply.text
    assert [each.name for each in service.people.everybody()] == ["ana", "aud", "ben", "sam"]


def test_a_new_person_signs_in_and_a_disabled_one_does_not(browsers, service):
    sam = browsers["sam"]
    sam.submit("budget", {"do": "person", "name": "kim", "role": "auditor", "password": "x" * 12})
    browser, way = Browser(service), {"name": "kim", "password": "x" * 12}
    assert browser.submit("sign-in", way, home="sign-in").url.path == f"{HOME}/audit"
    sam.submit("budget", {"do": "disable", "person": "kim"})
    assert browser.get(f"{HOME}/audit").url.path == f"{HOME}/sign-in"


def test_a_steward_approves_or_declines_what_is_dear(tmp_path):
    service = clinic_service(tmp_path, approve_above=0.1)
    ana, sam = (Browser(service).sign_in(service, name) for name in ("ana", "sam"))
    run = run_id(waiting := asked(ana))
    assert "Waiting for approval" in words(waiting)
    assert BY_WARD in words(sam.page("budget"))
    sam.submit("budget", {"do": "approve", "run": run})
    assert sam.submit("budget", {"do": "decline", "run": run}).status_code == 400
    assert "north" in words(ana.page(f"runs/{run}"))
    other = run_id(asked(ana, sql="SELECT COUNT(*) FROM patients"))
    sam.submit("budget", {"do": "decline", "run": other})
    assert "cancelled" in words(ana.page(f"runs/{other}"))
    fields = {"kind": "histogram", "table": "patients", "column 0": "sex", "do": "ask",
              "epsilon": "0.4", "key": "k"}  # fmt: skip
    third = ana.submit("order", fields, home="order")
    assert "histogram table patients · columns sex · epsilon 0.4" in words(sam.page("budget"))
    run = re.search(r"runs/(\w+)", str(third.url))[1]
    assert "cancelled" in words(ana.submit(f"runs/{run}/cancel")).lower()
    assert service.view(service.people.caller_of("ana"), "clinic").gate.spent.epsilon == 0.5
    service.close()


def test_the_budget_page_shows_what_the_ledger_has(browsers, service):
    asked(browsers["ana"])
    page = browsers["sam"].page("budget")
    said = words(page)
    assert "spent ε = 0.5" in said
    assert "left ε = 3.5 of 4" in said
    assert "left ε = 1.5 of 2" in said
    assert "1 charge since" in said
    assert 'points="0.00,0.00 0.00,0.00 0.00,12.50' in page.text  # an eighth of the data set's


def test_the_policy_page_says_error_and_risk_of_an_epsilon(browsers):
    sam = browsers["sam"]
    said = words(sam.page("policy?epsilon=1&cap=1&prior=1&column=visits.cost"))
    assert "chosen ± 3 ± 2,397 × 2.719 2.673 %" in said
    assert "COUNT(DISTINCT patient_id)" in said
    fields = {"epsilon": "0.1", "cap": "1", "prior": "50"}
    live = sam.submit("policy/what-if", fields, home="policy").json()
    assert "± 30" in live["html"]
    assert "52.5" in live["html"]
    for wrong in ({"epsilon": "0"}, {"epsilon": "1e9"}, {"prior": "100"}, {"cap": "x"}):
        refused = sam.submit("policy/what-if", fields | wrong, home="policy")
        assert refused.status_code == 400
        assert 'role="alert"' in refused.json()["html"]


def test_the_audit_page_filters_exports_and_verifies(browsers, service):
    asked(browsers["ana"])
    asked(browsers["ben"], sql="SELECT COUNT(*) AS bens FROM patients", epsilon="0.25")
    aud = browsers["aud"]
    assert "bens" not in words(aud.page("audit?person=ana")).partition("Refused")[2]
    assert "bens" in words(aud.page("audit?action=ask&data=clinic"))
    assert "0 lines" in words(aud.page("audit?until=2001-01-01"))
    rows = list(csv.DictReader(io.StringIO(aud.page("audit/csv?action=ask").text)))
    assert [(row["person"], row["price"]) for row in rows] == [("ben", "0.25"), ("ana", "0.5")]
    good = aud.submit("audit/verify", home="audit")
    assert words(good).count("verified") == 2
    service.store.all("UPDATE access SET person = 'eve' WHERE seq = 1")
    assert "Line 1 does not follow" in words(aud.submit("audit/verify", home="audit"))


def test_the_report_says_what_is_protected_spent_published_and_not_promised(browsers):
    asked(browsers["ana"])
    said = words(browsers["aud"].page("audit/report?data=clinic"))
    for each in ("one patient", "ε = 0.5 is spent", "Questions: 1 answered", "not promised",
                 "Ledger of clinic: verified", "ana"):  # fmt: skip
        assert each in said


def test_the_bar_of_a_concentrated_account_has_shares_that_add_up(tmp_path):
    """Forty questions that read as ε = 0.5 each fit into ε = 4: bars are about ρ, which adds up."""
    service = clinic_service(
        tmp_path, changed=lambda text: text.replace("[budget]", '[budget]\naccountant = "zcdp"')
    )
    ana, sam = (Browser(service).sign_in(service, name) for name in ("ana", "sam"))
    fields = {"sql": BY_WARD, "by": "epsilon", "epsilon": "0.1"}
    before = ana.submit("ask/price", fields, home="ask").json()["html"]
    share = float(re.search(r"([\d.]+) % of the budget", before)[1])
    assert 0 < share < 10
    asked(ana, epsilon="0.1")
    page = sam.page("budget").text
    spent = [
        float(each) for each in re.findall(r'class="spent" x="0" y="1" width="([\d.]+)%', page)
    ]
    assert spent[1] == pytest.approx(share, abs=0.006)  # of ana, in two digits
    assert spent[0] < spent[1]
    said = words(sam.page("policy?epsilon=0.5&cap=1&prior=1"))
    clinic = service.view(service.people.caller_of("ana"), "clinic").gate
    error = clinic.plan("SELECT COUNT(*) AS n FROM patients", epsilon=0.5).margins()["n"]
    assert 19 < error < 20  # as an order of that ε errs: geometric noise has ± 6
    assert "0.5 chosen ± 19 × 1.649 1.639 % 49 " in said  # not 8, as ε would add up
    service.close()
