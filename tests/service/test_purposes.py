"""Budgets by purpose: data set, purpose and analyst each hold their limit, on every face."""

from contextlib import closing
from fractions import Fraction

import pytest
from served import QUICK

import noisegate as ng
from noisegate.errors import Forbidden, OverBudget, PolicyError, SpecError
from noisegate.orders import order_from
from noisegate.root import amendment
from noisegate.server.agents import words
from noisegate.server.service import Service
from refusals import about

POLICY = """
name = "study"
[budget]
epsilon = 5
{zcdp}
[tables.visits]
source = "visits.csv"
every_row_is_one_person = true
[tables.visits.columns]
age = {{ type = "integer", between = [0, 100] }}
[analysts]
ana = 2
ben = 2
[purposes.report]
epsilon = 3
description = "The yearly report"
[purposes.trial]
epsilon = 1
analysts = ["ana"]
every = "month"
{default}
"""
ZCDP = 'accountant = "zcdp"\ndelta = 1e-6'


def policy(folder, zcdp="", default=""):
    (folder / "visits.csv").write_text("age\n" + "\n".join(str(n % 90) for n in range(400)))
    (folder / "study.toml").write_text(POLICY.format(zcdp=zcdp, default=default))
    return folder / "study.toml"


def count(age, epsilon="1"):
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}"
    return order_from({"kind": "sql", "sql": sql, "epsilon": epsilon})


@pytest.mark.parametrize("zcdp", ["", ZCDP], ids=["pure", "zcdp"])
def test_two_analysts_and_two_purposes_hold_all_limits(tmp_path, zcdp):
    file = policy(tmp_path, zcdp)
    gates = {
        (who, why): ng.open(file, analyst=who, purpose=why)
        for who, why in (("ana", "report"), ("ben", "report"), ("ana", "trial"))
    }
    spent = dict.fromkeys(gates, 0)
    for number in range(60):
        name = list(gates)[number % 3]
        try:
            gates[name].run(count(number, "0.1" if zcdp else "0.5"))
        except OverBudget:
            continue
        spent[name] += 1
    ledger = gates["ana", "report"].ledger
    accounts = {name: ledger.balance(name) for name in ledger.accounts()}
    assert all(each.spent <= each.budget for each in accounts.values())
    names = {each: (accounts[each].parent, *accounts[each].also) for each in accounts}
    month = next(name for name in names if "for trial" in name and "ana" not in name)
    ana, ben, report = "study/ana", "study/ben", "study/for report"
    assert names == {
        "study": (None,), report: ("study",), ana: ("study",), f"{report}/ana": (report, ana),
        ben: ("study",), f"{report}/ben": (report, ben), month: ("study",),
        f"{month}/ana": (month, ana),
    }  # fmt: skip
    assert all(spent.values())
    both = accounts[f"{report}/ana"].charge + accounts[f"{month}/ana"].charge
    assert accounts[ana].charge == both <= accounts[ana].limit
    assert ledger.verify().ok
    if not zcdp:  # ana has 2 for both purposes, and ben what she left of the report
        assert spent == {("ana", "report"): 2, ("ben", "report"): 4, ("ana", "trial"): 2}


def test_what_names_no_purpose_is_refused_before_any_charge(tmp_path):
    file = policy(tmp_path)
    with pytest.raises(SpecError, check=about("purpose")):
        ng.open(file, analyst="ana")
    with pytest.raises(SpecError, check=about("purpose")):
        ng.open(file, analyst="ana", purpose="gossip")
    with pytest.raises(Forbidden, check=about("purpose")):
        ng.open(file, analyst="ben", purpose="trial")
    assert ng.open(file, analyst="ben", practice=True).run(count(3)).rows
    chosen = policy(tmp_path, default="default = true")
    gate = ng.open(chosen, analyst="ana")
    assert gate.door.account.startswith("study/for trial")


@pytest.mark.parametrize(
    "more",
    ["[purposes.big]\nepsilon = 50", "[purposes.who]\nepsilon = 1\nanalysts = ['eve']",
     "[purposes.a]\nepsilon = 1\ndefault = true\n[purposes.b]\nepsilon = 1\ndefault = true",
     '[purposes."a/b"]\nepsilon = 1', '[purposes."report 2026-11"]\nepsilon = 1'],
)  # fmt: skip
def test_purposes_that_cannot_be_are_refused(tmp_path, more):
    file = policy(tmp_path)
    file.write_text(file.read_text() + more)
    with pytest.raises(PolicyError):
        ng.open(file, analyst="ana", purpose="report")


@pytest.fixture
def study(tmp_path):
    with closing(Service([policy(tmp_path)], settings=QUICK)) as made:
        for name in ("ana", "ben"):
            made.people.add(name, "analyst")
        yield made


def test_the_service_charges_the_purpose_that_an_order_names(study):
    caller = study.people.caller_of("ana")
    view = study.view(caller, "study")
    with pytest.raises(SpecError, check=about("purpose")):
        view.start(count(1))
    assert [each["remaining"] for each in view.facts()["purposes"]] == [2, 1]
    run = view.on("trial").ask(count(1))
    assert run.purpose == "trial"
    facts = view.facts()
    assert [each["remaining"] for each in facts["purposes"]] == [1, 0]
    assert [facts["share"][name] for name in ("epsilon", "spent", "remaining")] == [2, 1, 1]
    (told,) = view.history()
    assert (told["purpose"], told["price"]) == ("trial", 1.0)
    assert study.log.lines()[0].detail["order"]["purpose"] == "trial"
    assert view.on("report").ask(count(1)).result().price.epsilon == 0, "released once, free"
    ledger = study._hosted["study"].ledger
    assert ledger.balance("study").spent.epsilon == Fraction(1)


def test_one_share_holds_over_all_purposes_and_every_face_says_what_is_left(study):
    ana, ben = map(study.people.caller_of, ("ana", "ben"))
    view = study.view(ana, "study")
    view.on("report").ask(count(5, "1.5"))
    with pytest.raises(OverBudget, match=r"'study/ana' has ε = 0\.5 left of ε = 2"):
        view.on("trial").ask(count(6, "0.75"))
    assert not view.on("trial").plan(count(6, "0.75")).fits
    assert view.hosted.ledger.balance("study").reservations == 1, "refused before any charge"
    told = view.budgets()
    assert told["share"]["remaining"] == 0.5
    assert [each["remaining"] for each in told["purposes"]] == [0.5, 0.5]
    assert "accounts" not in told
    said = words.left(view)
    assert "ε = 0.5 of a share of ε = 2, for all purposes together" in said
    assert study.view(ben, "study").budgets()["share"]["remaining"] == 2
    study.people.add("sam", "steward")
    seen = study.view(steward(study), "study").budgets()
    mine = {each["account"]: each for each in seen["accounts"]}["study/for report/ana"]
    assert mine["below"] == ["study/for report", "study/ana"]
    assert (mine["spent"], mine["remaining"], seen["share"]) == (1.5, 0.5, None)


def test_a_token_may_be_bound_to_a_purpose(study):
    people = study.people
    caller = people.by_token(people.new_token("ana", purpose="report"))
    view = study.view(caller, "study")
    assert view.ask(count(2)).purpose == "report"
    with pytest.raises(Forbidden, check=about("purpose")):
        view.on("trial")


def test_a_purpose_that_cannot_be_asked_hides_no_other(tmp_path):
    """One that is over, a default of somebody else, a token for a purpose that is not there."""
    file = policy(tmp_path, default="default = true")
    file.write_text(file.read_text() + "[purposes.old]\nepsilon = 1\nuntil = 2026-01-01\n")
    bare = tmp_path / "bare.toml"
    bare.write_text(file.read_text().partition("[purposes")[0].replace("study", "bare"))
    with closing(Service([file, bare], settings=QUICK)) as made:
        for name in ("ana", "ben"):
            made.people.add(name, "analyst")
        ana, ben = map(made.people.caller_of, ("ana", "ben"))
        seen = made.view(ana, "study").facts()
        assert [each["remaining"] for each in seen["purposes"]] == [2, 1, None]
        seen = made.view(ben, "study").facts()
        assert (seen["budget"], [each["name"] for each in seen["purposes"]]) == (
            None, ["report", "old"],
        )  # fmt: skip
        with pytest.raises(SpecError, check=about("purpose")):
            made.view(ben, "study").on("gossip").facts()
        bound = made.people.by_token(made.people.new_token("ana", purpose="report"))
        assert made.view(bound, "bare").facts()["budget"] is None
        assert "bare" in words.left(made.view(ana, "bare"))
        assert words.left(made.view(bound, "bare"))


def test_a_key_stands_for_one_purpose(study):
    view = study.view(study.people.caller_of("ana"), "study")
    first = view.on("report").start(count(4), key="k", fresh=True)
    first.wait(30)
    with pytest.raises(ng.NoisegateError, check=about("key")):
        view.on("trial").start(count(4), key="k", fresh=True)
    assert view.on("report").start(count(4), key="k", fresh=True) is first


def amended(service, epsilon, analyst=None):
    terms = {} if analyst is None else {"every": None, "until": None}
    change = amendment(service.view(steward(service), "study").hosted, epsilon, analyst, **terms)
    service.amend(steward(service), change, "as agreed")


def steward(service):
    return service.people.caller_of("sam")


def test_another_share_holds_for_every_purpose_at_once_and_after_a_restart(study, tmp_path):
    ana = study.people.caller_of("ana")
    study.people.add("sam", "steward")
    for age, purpose in enumerate(("report", "trial")):
        study.view(ana, "study").on(purpose).ask(count(age, "0.1"))
    amended(study, "0.3", "ana")
    for purpose in ("report", "trial"):
        with pytest.raises(OverBudget):
            study.view(ana, "study").on(purpose).ask(count(2, "0.5"))
    assert ng.open(tmp_path / "study.toml", analyst="ana", purpose="report").remaining.epsilon == (
        Fraction("0.1")
    )


def test_another_budget_of_the_data_set_leaves_those_of_purposes(tmp_path):
    file = policy(tmp_path)
    file.write_text(file.read_text().replace("[analysts]\nana = 2\nben = 2\n", "").replace(
        'analysts = ["ana"]\n', ""
    ))  # fmt: skip
    with closing(Service([file], settings=QUICK)) as service:
        service.people.add("sam", "steward")
        ana = service.people.add("ana", "analyst") or service.people.caller_of("ana")
        service.view(ana, "study").on("trial").ask(count(1, "0.5"))
        amended(service, "6")
        with pytest.raises(OverBudget):
            service.view(ana, "study").on("trial").ask(count(2, "0.75"))
        service.view(ana, "study").on("report").ask(count(2, "2.5"))


def test_an_account_of_an_older_version_says_what_to_do_and_that_works(tmp_path):
    """As a ledger of before has it: below the purpose alone, and charged for it."""
    file = policy(tmp_path)
    gate = ng.open(file, analyst="ben", purpose="report")
    gate.run(count(1))
    root = gate.ledger.balance("study")
    gate.ledger.open_account(
        "study/for report/ana", parent="study/for report", budget=root.budget,
        accountant=root.accountant, unit=root.unit,
    )  # fmt: skip
    with pytest.raises(PolicyError, check=about("older-purpose")):
        ng.open(file, analyst="ana", purpose="report")
    text = file.read_text().replace(
        "[purposes.report]\nepsilon = 3", "[purposes.again]\nepsilon = 2"
    )
    file.write_text(text)
    again = ng.open(file, analyst="ana", purpose="again")
    again.run(count(2))
    assert again.ledger.balance("study").spent.epsilon == 2, "what was spent before is still there"
    assert again.remaining.epsilon == 1, "of the purpose, and of the share over all purposes"
