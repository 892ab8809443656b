"""The lab's gallery and the report on paper: both made by children that hold no rows and no keys."""

import os
import re
import time

import pytest
from browser import Browser, Everybody, asked, clinic_service, words

from noisegate.errors import OperatorError
from noisegate.server.console.audit import drawn
from noisegate.server.console.lab import Lab, _shown
from noisegate.server.pictures import child

RECORD = {
    "attack": "x", "title": "Two <b>counts</b>", "story": "They differ.", "measure": "right guesses",
    "epsilon": 1.0, "chance": 0.5, "bound": 0.731,
    "trials": {
        "raw": {"against": "exact counts", "success": 1.0},
        "classic": {"against": "<script>alert(1)</script>", "success": 0.97},
        "gate": {"against": "noisegate, ε = 1", "success": 0.6},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = clinic_service(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browsers(service):
    return Everybody(service)


def test_an_attack_is_drawn_with_its_figures_and_its_words_are_text(service, monkeypatch):
    shown = [_shown(RECORD)]
    monkeypatch.setattr(Lab, "start", lambda lab, epsilon: lab.found.update({epsilon: shown}))
    for name in ("ana", "sam", "aud"):
        browser = Browser(service).sign_in(service, name)
        assert "Try the attacks" in words(browser.page("lab"))
        page = browser.submit("lab", {"epsilon": "1"}, home="lab")
        said = words(page)
        assert "Raw answers: exact counts 100.0 %" in said
        assert "off by up to about 15 points" in said
        assert "The gate: noisegate, ε = 1 60.0 %" in said
        assert "Chance: 50.0 %; at most 73.1 % against the gate." in said
        assert "<script>alert" not in page.text
        assert "<b>" not in page.text
    assert service.log.lines(limit=1)[0].action == "lab"


def test_nobody_else_and_no_other_site_runs_attacks_and_no_other_price_is_offered(
    browsers, service
):
    ana = browsers["ana"]
    assert ana.submit("lab", {"epsilon": "1"}, origin="http://evil.example").status_code == 403
    assert ana.submit("lab", {"epsilon": "1; rm"}, home="lab").status_code == 400
    assert Browser(service).get("/console/lab").url.path == "/console/sign-in"


def test_attacks_run_once_in_a_child(monkeypatch):
    if b"attacks" not in child(["-m", "noisegate", "lab", "--help"], seconds=60):
        pytest.skip("this noisegate has no attacks in its lab")
    lab = Lab(names=("differencing",))
    lab.start("1")
    lab.start("5")  # waits for its turn: nothing runs beside another
    while lab.trying is not None:
        assert lab.trying == "1"
        time.sleep(0.1)
    (found,) = lab.found["1"]
    raw, *_, gate = (bar["share"] for bar in found["bars"])
    assert raw == 100
    assert gate < 95
    monkeypatch.setattr("noisegate.server.console.lab.child", None)
    lab.start("1")
    assert lab.trying is None


def test_a_child_knows_nothing_of_us_and_fails_in_public_terms(monkeypatch):
    monkeypatch.setenv("NOISEGATE_OIDC_SECRET", "secret")
    told = "import os; print(sorted(os.environ), os.listdir('.'))"
    said = child(["-c", told], seconds=30).decode()
    assert "NOISEGATE" not in said
    assert "[]" in said
    assert str(os.getpid()) not in said
    for wrong in ("raise SystemExit(3)", "import time; time.sleep(9)"):
        with pytest.raises(OperatorError) as refused:
            child(["-c", wrong], seconds=1)
        assert "sleep" not in str(refused.value)


def test_the_report_is_a_pdf_of_one_sheet_for_those_who_watch(browsers):
    asked(browsers["ana"])
    for name in ("sam", "aud"):
        reply = browsers[name].page("audit/report.pdf?data=clinic")
        assert reply.headers["content-type"] == "application/pdf"
        assert reply.content.startswith(b"%PDF-")
        assert len(re.findall(rb"/Type\s*/Page\b(?!s)", reply.content)) == 1
    browsers["ana"].page("audit/report.pdf", 404)


def test_a_long_report_stays_one_sheet_and_its_names_are_text():
    many = [{"name": f"<script>{n}", "budget": "ε = 1", "spent": "0"} for n in range(200)]
    promises = [
        f"Nothing about number {n} is promised, nor about those before it." for n in range(12)
    ]
    report = {
        "data": "<svg onload=x>", "at": "now", "by": "sam", "software": "noisegate",
        "facts": {"protects": "one patient", "tables": [{"name": "t" * 300, "public": False}]},
        "sentences": promises, "budget": "ε = 4", "spent": "ε = 1", "accountant": "pure",
        "counts": {"answered": 1, "refused": 0, "practised": 0}, "shares": many, "releases": [],
        "promises": promises, "head": {"seq": 1, "ledger": "x"},
        "checks": [{"what": "Log", "ok": True, "entries": 1, "head": "f" * 64}],
    }  # fmt: skip
    sheet = drawn(report)
    assert "and 188 more" in sheet
    assert "<script>" not in sheet
    assert sheet.count("<svg") == 1
    last = max(float(y) for y in re.findall(r' y="([\d.]+)"', sheet))
    assert last * float(re.search(r"scale\(([\d.]+)\)", sheet)[1]) < 842 - 40
