"""Another budget, another share: said in words, confirmed, in the ledger, the log and the policy."""

import re
import tomllib

import pytest
from browser import BY_WARD, Browser, asked, clinic_service, words
from test_purposes import policy as purposeful

import noisegate as ng
from noisegate.errors import Forbidden, PolicyError
from noisegate.orders import order_from
from noisegate.privacy.loss import ApproxDP
from noisegate.root import Hosted, amendment, read_policy
from noisegate.server.console.budget import renewed
from noisegate.server.service import Service
from noisegate.server.settings import Settings
from refusals import about

COMMENT = "# for all analysts together, for ever"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = clinic_service(tmp_path_factory.mktemp("shares"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def sam(service):
    return Browser(service).sign_in(service, "sam")


def policy_of(service):
    return service.view(service.people.caller_of("sam"), "clinic").file


def hidden(page):
    """The fields of the form that says yes."""
    form = page.text.partition('class="sheet confirm"')[2].partition("</form>")[0]
    return dict(re.findall(r'name="([\w ]+)" value="([^"]*)"', form))


def proposed(browser, **fields):
    said = {"do": "limit", "data": "clinic", "reason": "the board agreed"} | fields
    return browser.submit("budget", said, home="budget")


def test_raising_the_budget_says_what_it_means_and_is_kept_everywhere(service, sam):
    page = proposed(sam, epsilon="6.5")
    said = words(page)
    assert "within ε = 4. From now on it is ε = 6.5." in said
    assert "at most × 665.2, not 54.6" in said
    assert "cannot be taken back" in said
    ledger = service.view(service.people.caller_of("sam"), "clinic").ledger
    assert float(ledger.balance("clinic").budget.epsilon) == 4  # not before a yes
    assert "left ε = 6.5 of 6.5" in words(sam.submit("budget", hidden(page), home="budget"))
    last = ledger.history()[-1]
    assert (last.kind, last.body["reason"]) == ("limit", "the board agreed")
    line = service.log.lines(limit=1)[0]
    assert (line.action, line.detail["after"]) == ("budget", "(ε = 6.5, δ = 1e-7)")
    text = policy_of(service).read_text()
    assert COMMENT in text
    assert tomllib.loads(text)["budget"]["epsilon"] == 6.5
    assert ledger.verify().ok


def test_whoever_has_a_share_is_listed_also_before_asking(sam):
    said = words(sam.page("budget"))
    assert "ben 0 charges may spend (ε = 1, δ = 1e-8); has not asked yet Change the share" in said


def test_a_share_is_changed_and_the_service_starts_again_with_it(service, sam, tmp_path):
    page = proposed(sam, analyst="ben", epsilon="1.5", every="month", until="2099-12-31")
    assert "ben may spend up to ε = 1.5 every month, until 2099-12-31 instead of ε = 1." in words(
        page
    )
    ledger = service.view(service.people.caller_of("sam"), "clinic").ledger
    whole = float(ledger.balance("clinic").budget.epsilon)  # whatever was agreed on before
    assert f"does not change: all analysts together stay within ε = {whole:g}." in words(page)
    sam.submit("budget", hidden(page), home="budget")
    ben = service.people.caller_of("ben")
    assert float(service.view(ben, "clinic").gate.remaining.epsilon) == 1.5
    other = Service([policy_of(service)], state=tmp_path / "state", settings=Settings(quantum=0))
    other.people.add("ben", "analyst")
    assert float(other.view(ben, "clinic").gate.remaining.epsilon) == 1.5
    other.close()


def test_a_new_analyst_gets_a_share_and_asks_and_practises(service, sam):
    service.people.add("kim", "analyst")
    kim = Browser(service).sign_in(service, "kim")
    kim.page("ask", 404)
    page = proposed(sam, analyst="kim", epsilon="1")
    assert "Add the share of kim?" in words(page)
    sam.submit("budget", hidden(page), home="budget")
    assert "Practice." in words(asked(kim, do="practise"))
    assert "north" in words(asked(kim))
    accounts = service.view(service.people.caller_of("sam"), "clinic").ledger.accounts()
    assert "clinic/kim" in accounts


def test_renewing_adds_what_is_spent(service, sam):
    asked(Browser(service).sign_in(service, "ana"), sql=BY_WARD, epsilon="0.25")
    root = service.view(service.people.caller_of("sam"), "clinic").ledger.balance("clinic")
    page = proposed(sam, epsilon="", renew="1")
    wanted = float(root.budget.epsilon + root.spent.epsilon)
    assert f"From now on it is ε = {wanted:g}." in words(page)


def test_who_renews_again_adds_what_was_spent_in_between(tmp_path):
    """5, all spent, 10, all spent, 15: and not the sum of all charges on top each time."""

    def changed(text):
        text = re.sub(r"\[analysts\].*?\n\n", "", text, flags=re.DOTALL)
        return re.sub(r"max_epsilon = .*\n", "", text).replace("epsilon = 4", "epsilon = 5", 1)

    service = clinic_service(tmp_path, changed=changed)
    sam, ana = service.people.caller_of("sam"), service.people.caller_of("ana")
    ledger, hosted = service.view(sam, "clinic").ledger, service.view(sam, "clinic").hosted
    offered = []
    for year in (1950, 1960, 1970):
        sql = f"SELECT COUNT(*) AS n FROM patients WHERE birth_year > {year}"
        left = str(ledger.balance("clinic").remaining.epsilon)
        service.view(ana, "clinic").ask(order_from({"kind": "sql", "sql": sql, "epsilon": left}))
        offered.append(renewed(ledger.balance("clinic"), ledger.history("clinic")))
        service.amend(sam, amendment(hosted, offered[-1], None), "once more")
        assert float(ledger.balance("clinic").remaining.epsilon) == 5
    assert offered == ["10", "15", "20"]
    service.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"epsilon": "x"},
        {"epsilon": "0"},
        {"epsilon": "-1"},
        {"epsilon": "nan"},
        {"epsilon": "1/3"},
        {"epsilon": "1e7"},
        {"epsilon": "0.5"},  # below the shares
        {"epsilon": "7", "reason": " "},
        {"epsilon": "7", "reason": "x" * 501},
        {"epsilon": "99", "analyst": "ana"},  # above the budget
        {"epsilon": "1", "analyst": "nobody"},
        {"epsilon": "1", "analyst": "ana", "every": "hour"},
        {"epsilon": "1", "analyst": "ana", "until": "soon"},
        {"epsilon": "1", "analyst": 'x" = 1\n[budget]\nepsilon = 900'},
    ],
)
def test_a_change_that_cannot_be_made_changes_nothing(service, sam, fields):
    before, seq = policy_of(service).read_text(), service.log.lines(limit=1)[0].seq
    reply = proposed(sam, **fields)
    assert 400 <= reply.status_code < 600
    assert 'role="alert"' in reply.text
    assert policy_of(service).read_text() == before
    assert service.log.lines(limit=1)[0].seq == seq


def test_a_yes_is_to_what_was_shown_by_a_steward_from_a_page_of_theirs(service, sam):
    """Another number, another role, another site, another session: nothing of it counts."""
    before, fields = policy_of(service).read_text(), hidden(proposed(sam, epsilon="7"))
    assert "make this change" in words(
        sam.submit("budget", fields | {"epsilon": "70"}, home="budget")
    )
    for name in ("ana", "aud"):
        other = Browser(service).sign_in(service, name)
        assert other.submit("budget", fields).status_code in (403, 404)
    assert sam.submit("budget", fields, origin="http://evil.example").status_code == 403
    elsewhere = Browser(service).sign_in(service, "sam", datasets=["elsewhere"])
    assert elsewhere.submit("budget", fields).status_code in (403, 404)
    assert policy_of(service).read_text() == before


def test_a_policy_that_was_edited_meanwhile_is_not_written_over(service, sam):
    file = policy_of(service)
    text = file.read_text()
    stale = amendment(service.view(service.people.caller_of("sam"), "clinic").hosted, "7", None)
    file.write_text(text.replace('protects = "patient"', 'protects = "person"'))
    assert "changed meanwhile" in words(proposed(sam, epsilon="7"))
    file.write_text(text)
    sam.submit("budget", hidden(proposed(sam, epsilon="7")), home="budget")
    with pytest.raises(Exception, match="changed meanwhile"):
        stale.make("too late")


def test_a_policy_that_another_process_changed_is_not_written_over_at_the_last_moment(service):
    """The change was worked out on the text of before; to write it would undo the other one."""
    hosted = service.view(service.people.caller_of("sam"), "clinic").hosted
    file, head = hosted.policy.file, hosted.ledger.head()
    text, late = file.read_text(), amendment(hosted, "9", None)
    file.write_text(f"{text}\n# by another process\n")
    with pytest.raises(PolicyError, check=about("changed")):
        late.make("too late")
    assert file.read_text().endswith("# by another process\n")
    assert hosted.ledger.head() == head, "refused before the ledger was changed"
    assert [each.name for each in file.parent.iterdir() if each.name.startswith(".")] == []
    file.write_text(text)


@pytest.mark.parametrize("name", ["Ana", "аna", "a/b"])  # the second with a letter of Cyrillic
def test_a_share_for_a_name_that_could_be_taken_for_another_changes_nothing(service, sam, name):
    hosted = service.view(service.people.caller_of("sam"), "clinic").hosted
    service.view(service.people.caller_of("ana"), "clinic").share()  # an account of ana's
    if name not in {each.name for each in service.people.everybody()}:
        service.people.add(name, "analyst")
    text, accounts = hosted.policy.file.read_text(), hosted.ledger.accounts()
    page = proposed(sam, analyst=name, epsilon="1")
    if fields := hidden(page):
        page = sam.submit("budget", fields, home="budget")
    assert page.status_code >= 400
    assert hosted.policy.file.read_text() == text
    assert hosted.ledger.accounts() == accounts
    assert name not in hosted.policy.analysts


def test_a_share_that_is_over_already_is_written_and_opens_nothing(service, sam):
    service.people.add("old", "analyst")
    fields = hidden(proposed(sam, analyst="old", epsilon="1", until="2020-01-31"))
    assert sam.submit("budget", fields, home="budget").status_code == 200
    caller = service.people.caller_of("old")
    with pytest.raises(Forbidden, check=about("until")):
        service.view(caller, "clinic").ask(order_from({"kind": "sql", "sql": BY_WARD}))


def test_a_budget_that_changes_leaves_purposes_that_the_policy_has_no_more(tmp_path):
    file = purposeful(tmp_path)
    ng.open(file, analyst="ana", purpose="report")
    file.write_text(file.read_text().partition("[purposes")[0].replace("ana = 2\nben = 2\n", ""))
    hosted = Hosted(read_policy(file))
    amendment(hosted, "6", None).make("as agreed")
    assert hosted.ledger.balance("study/for report").budget == ApproxDP(3)
    assert hosted.ledger.balance("study/for report/ana").budget == ApproxDP(6)


def test_nobody_is_called_what_a_window_of_another_share_is_called(tmp_path):
    file = purposeful(tmp_path)
    text = file.read_text().partition("[purposes")[0]
    month = text.replace("ana = 2", 'ana = { epsilon = 2, every = "month" }')
    file.write_text(month.replace("ben = 2", '"ana 2026-11" = 2'))
    with pytest.raises(PolicyError):
        read_policy(file)
    file.write_text(month.replace("ben = 2", '"ana maria" = 2'))
    assert read_policy(file).analysts.keys() == {"ana", "ana maria"}


def test_a_reason_with_markup_is_text(sam):
    page = proposed(sam, epsilon="8", reason="<script>alert(1)</script>")
    assert "<script>alert" not in page.text
    assert "<script>alert(1)</script>" in words(page)


def test_without_a_list_of_analysts_all_accounts_follow_the_budget(tmp_path):
    """And in an account that adds up zCDP, the ε of a renewal is what makes up for all of the charge."""

    def changed(text):
        text = re.sub(r"\[analysts\].*?\n\n", "", text, flags=re.DOTALL)
        return text.replace("[budget]", '[budget]\naccountant = "zcdp"', 1)

    service = clinic_service(tmp_path, changed=changed)
    ana, sam = (Browser(service).sign_in(service, name) for name in ("ana", "sam"))
    assert "north" in words(asked(ana))
    ledger = service.view(service.people.caller_of("sam"), "clinic").ledger
    first = ledger.balance("clinic")
    sam.submit("budget", hidden(proposed(sam, epsilon="", renew="1")), home="budget")
    root, share = ledger.balance("clinic"), ledger.balance("clinic/ana")
    left = root.limit.amount - root.charge.amount
    assert first.limit.amount <= left < 1.001 * first.limit.amount
    assert root.budget == share.budget
    assert "south" in words(asked(ana, sql=f"{BY_WARD} ORDER BY n", epsilon="0.6"))
    refused = proposed(sam, analyst="ana", epsilon="1")
    assert "lists no analysts" in words(refused)
    service.close()
