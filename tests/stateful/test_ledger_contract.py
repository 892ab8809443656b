"""What every store promises, asked of each of them."""

import io
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import pytest

from noisegate.accounting.accountant import GRAINS_PER_ONE, Charge
from noisegate.errors import (
    Bug,
    InsecureBits,
    LedgerError,
    OverBudget,
    PolicyError,
    RequestConflict,
    SpecError,
    Unsupported,
)
from noisegate.ledger.open import open_ledger, restore_ledger
from noisegate.ledger.verify.fold import fold
from noisegate.privacy.distance import L1, L2, LInf1
from noisegate.privacy.event import (
    EVENTS,
    AboveThresholdEvent,
    BoxNoiseEvent,
    CrowdCountsEvent,
    DeclaredEvent,
    DeclaredZCDPEvent,
    DiscreteGaussianEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    GeometricEvent,
    Group,
    InPart,
    KeySelectionEvent,
    LaplaceEvent,
    NothingEvent,
    Parallel,
    PermuteAndFlipEvent,
    PoissonSampled,
    ProposeTestReleaseEvent,
    Repeated,
    Sequential,
    SmoothLaplaceEvent,
    SmoothLognormalEvent,
    SmoothStudentEvent,
    ThresholdedGaussianEvent,
    TopKEvent,
)
from noisegate.privacy.loss import ApproxDP
from refusals import about

UNIT = "one person"
NOISE = DiscreteGaussianEvent(variance=4, sensitivity=L2(squared=1))
EVERY_KIND = [
    NothingEvent(),
    GeometricEvent(scale="7/3", sensitivity=L1(1)),
    LaplaceEvent(scale=2, sensitivity=L1("1/3")),
    BoxNoiseEvent(scale="7/3", sensitivity=LInf1("1/3")),
    NOISE,
    GaussianEvent(variance=4, sensitivity=L2(squared=1)),
    ExponentialEvent(epsilon=1),
    TopKEvent(k=3, epsilon_each="1/2"),
    PermuteAndFlipEvent(epsilon=1),
    AboveThresholdEvent(epsilon_threshold="1/2", epsilon_queries="1/2", cutoff=2),
    KeySelectionEvent(epsilon=1, delta="1e-6"),
    ThresholdedGaussianEvent(variance=4, keys=2, delta="1e-6"),
    CrowdCountsEvent(probability="1/2", crowd=20, epsilon="7/10"),
    SmoothStudentEvent(scale=2, beta="1/6"),
    SmoothLaplaceEvent(scale=2, beta="1/50", epsilon=1),
    SmoothLognormalEvent(scale=2, beta="1/50", sigma="1/4"),
    ProposeTestReleaseEvent(epsilon_test="1/2", epsilon_release="1/2", delta="1e-6"),
    DeclaredEvent(epsilon=1, delta="1e-6"),
    DeclaredZCDPEvent(rho="1/2"),
    Sequential(events=(NOISE, NOISE)),
    Parallel(events=(NOISE, NOISE)),
    Repeated(event=NOISE, count=3),
    Group(event=NOISE, size=3),
    PoissonSampled(event=NOISE, probability="1/10"),
    InPart(event=NOISE, partition="wards", part="north"),
]


def test_the_list_of_events_above_is_complete():
    assert {event.name for event in EVERY_KIND} == set(EVENTS)


def costs(epsilon):
    return DeclaredEvent(epsilon=Fraction(epsilon))


def grains(epsilon):
    return Charge(int(Fraction(epsilon) * GRAINS_PER_ONE), 0)


@pytest.fixture
def books(ledger):
    """A data set with budget 3 and two analysts with 2 each."""
    for name, parent, budget in (("data", None, 3), ("ann", "data", 2), ("bob", "data", 2)):
        ledger.open_account(
            name, parent=parent, accountant="pure", budget=ApproxDP(budget), unit=UNIT
        )
    return ledger


def ask(ledger, request_id, epsilon, *, question="count", account="ann", kind="measurement"):
    return ledger.reserve(
        request_id, question=question, event=costs(epsilon), account=account, kind=kind
    )


def test_a_reservation_charges_the_account_and_its_ancestors(books):
    ask(books, "r", "1/2")
    assert books.balance("ann").charge == books.balance("data").charge == grains("1/2")
    assert books.balance("bob").charge == grains(0)
    assert books.balance("ann").remaining == ApproxDP("3/2")
    assert books.balance("ann").unsettled == 1


def test_colluding_analysts_never_exceed_the_data_sets_budget(books):
    ask(books, "a", 2, account="ann").settle(b"1")
    ask(books, "b", 1, account="bob").settle(b"2")
    with pytest.raises(OverBudget, match="'data' has ε = 0 left of ε = 3"):
        ask(books, "c", 1, account="bob")
    assert books.balance("bob").charge == grains(1)


@pytest.fixture
def shares(ledger):
    """A data set, two purposes, and an analyst who has one share for both."""
    accounts = [
        ("data", None, (), 9), ("data/ann", "data", (), 2), ("data/for a", "data", (), 3),
        ("data/for b", "data", (), "3/2"), ("data/for a/ann", "data/for a", ("data/ann",), 2),
        ("data/for b/ann", "data/for b", ("data/ann",), 2),
    ]  # fmt: skip
    for name, parent, also, budget in accounts:
        ledger.open_account(
            name, parent=parent, also=also, accountant="pure", budget=ApproxDP(budget), unit=UNIT
        )
    return ledger


def test_an_account_below_several_pays_with_each_of_them_once(shares):
    ask(shares, "a", 1, account="data/for a/ann").settle(b"1")
    ask(shares, "b", "1/2", account="data/for b/ann", kind="allowance").close(costs("1/4"), b"2")
    spent = {name: shares.balance(name).spent.epsilon for name in shares.accounts()}
    whole, one, other = Fraction(5, 4), Fraction(1), Fraction(1, 4)
    assert list(spent.values()) == [whole, whole, one, other, one, other]
    chain = ["data/for a/ann", "data/for a", "data/ann", "data"]
    assert [each.account for each in shares.balances("data/for a/ann")] == chain
    assert len(shares.history("data/ann")) == 7  # four of questions, and three openings
    assert shares.verify().ok


def test_each_account_above_has_to_have_room_and_a_refusal_charges_none(shares):
    ask(shares, "a", 1, account="data/for a/ann")
    head = shares.head()
    for name, epsilon, why in (("b", "5/4", "'data/ann' has ε = 1"), ("c", 2, "'data/for b")):
        with pytest.raises(OverBudget, match=why):
            ask(shares, name, epsilon, account="data/for b/ann")
    assert not shares.quote(costs("5/4"), account="data/for b/ann").fits
    assert shares.head() == head
    ask(shares, "b", 1, account="data/for b/ann")
    assert shares.balance("data/ann").remaining == ApproxDP(0)


def test_accounts_hang_below_one_data_set_and_below_each_other_in_one_direction(shares):
    terms = {"accountant": "pure", "budget": ApproxDP(1), "unit": UNIT}
    shares.open_account("other", parent=None, **terms)
    for parent, also in (("data", ["other"]), ("data", ["data"]), (None, ["data"])):
        with pytest.raises(PolicyError, check=about("parents")):
            shares.open_account("eve", parent=parent, also=also, **terms)
    with pytest.raises(PolicyError, check=about("parent")):
        shares.open_account("eve", parent="data", also=["eve"], **terms)
    with pytest.raises(PolicyError, check=about("terms")):
        shares.open_account("data/ann", parent="data", also=["data/for a/ann"], **terms)
    with pytest.raises(PolicyError, check=about("terms")):  # a share that was left out
        shares.open_account("data/for a/ann", parent="data/for a", **terms)


def test_an_export_keeps_who_pays_with_whom(shares):
    ask(shares, "a", 1, account="data/for a/ann").settle(b"1")
    file = io.StringIO()
    shares.export(file)
    with restore_ledger(io.StringIO(file.getvalue()), ":memory:") as again:
        assert again.verify(pinned_head=shares.head()).ok
        with pytest.raises(OverBudget, match="'data/ann'"):
            ask(again, "b", "3/2", account="data/for b/ann")


def test_several_budgets_change_together_or_not_at_all(shares):
    with pytest.raises(PolicyError, check=about("closed")):
        shares.change_budgets(["data/ann", "data/eve"], ApproxDP(4), reason="because")
    assert shares.balance("data/ann").budget == ApproxDP(2)
    found = shares.change_budgets(["data/ann", "data/for a/ann"], ApproxDP(4), reason="because")
    assert [each.budget for each in found] == [ApproxDP(4)] * 2


def test_a_refusal_charges_nobody_and_names_the_price(books):
    head = books.head()
    with pytest.raises(OverBudget, match=r"costs ε = 2\.5; account 'ann' has ε = 2 left"):
        ask(books, "r", "5/2")
    assert books.head() == head
    assert books.balance("ann").charge == grains(0)
    ask(books, "r", 2)  # the id was not used up by the refusal


def test_the_whole_budget_can_be_spent_and_not_one_grain_more(books):
    third = Fraction(2, 3)
    for number in range(3):
        ask(books, f"r{number}", third)
    assert books.balance("ann").charge == books.balance("ann").limit
    with pytest.raises(OverBudget):
        ask(books, "more", Fraction(1, GRAINS_PER_ONE))


def test_a_repeated_request_spends_once(books):
    first = ask(books, "r", 1)
    again = ask(books, "r", 1)
    assert (first.resumed, again.resumed) == (False, True)
    assert again.answer is None
    assert again.settle(b"42") == b"42"
    assert books.balance("ann").charge == grains(1)
    assert ask(books, "r", 1).answer == b"42"


def test_the_first_answer_settled_is_the_one_everybody_gets(books):
    first, second = ask(books, "r", 1), ask(books, "r", 1)
    assert first.settle(b"mine") == b"mine"
    assert second.settle(b"theirs") == b"mine"
    assert books.find("r", "count", "ann") == b"mine"


@pytest.mark.parametrize(
    "change",
    [{"question": "sum"}, {"account": "bob"}, {"epsilon": "1/2"}, {"kind": "allowance"}],
)
def test_a_request_id_belongs_to_one_question(books, change):
    ask(books, "r", 1).settle(b"42")
    with pytest.raises(RequestConflict, check=about("used")):
        ask(books, "r", **{"epsilon": 1, **change})


def test_find_refuses_an_id_of_another_question(books):
    ask(books, "r", 1).settle(b"42")
    assert books.find("other", "count", "ann") is None
    with pytest.raises(RequestConflict):
        books.find("r", "sum", "ann")
    with pytest.raises(RequestConflict):
        books.find("r", "count", "bob")


@pytest.mark.parametrize("question", ["", "\ud800", None])
def test_a_question_is_text_wherever_it_is_asked(books, question):
    for action in (
        lambda: ask(books, "r", 1, question=question),
        lambda: books.find("r", question, "ann"),
        lambda: books.find_question(question, None),
        lambda: books.find_recipe(question),
        lambda: books.attempts(question, account="ann"),
    ):
        with pytest.raises(SpecError, check=about("text"), match="question"):
            action()


def test_an_unsettled_request_has_no_answer_to_find(books):
    ask(books, "r", 1)
    assert books.find("r", "count", "ann") is None
    assert books.find_question("count", None) is None


def test_an_identical_question_is_found_whatever_its_id(books):
    ask(books, "r1", "1/2").settle(b"old")
    ask(books, "r2", "1/2", account="bob").settle(b"new")
    assert books.find_question("count", "ann") == b"old"
    assert books.find_question("count", "bob") == books.find_question("count", None) == b"new"
    assert books.find_question("sum", None) is None


def test_a_recipe_is_found_by_its_question_once_one_attempt_had_a_result(books):
    def begin(request_id, account="ann", question="count"):
        return ask(books, request_id, "1/8", account=account, question=question, kind="allowance")

    event = costs("1/8")
    ask(books, "measured", "1/8").settle(b"no recipe")
    begin("interrupted").close(event, b"")
    running = begin("running")
    assert books.find_recipe("count") is None
    assert books.attempts("count", account="ann") == (2, 1)
    begin("first", "bob").close(event, b"one")
    begin("other", question="sum").close(event, b"sum")
    begin("again").close(event, b"")
    assert books.find_recipe("count") == ("first", b"one")
    assert books.attempts("count", account="bob") == (1, 0)
    running.close(event, b"two")  # begun before, ended later
    assert books.find_recipe("count") == ("running", b"two")
    assert books.find_question("count", None) == b"no recipe"


def test_settled_measurements_are_listed_once_in_their_order(books):
    ask(books, "r1", "1/2").settle(b"one")
    ask(books, "open", "1/2")
    ask(books, "a", 1, kind="allowance").close(costs("1/3"), b"tree")
    ask(books, "r2", "1/2", account="bob", question="sum").settle(b"two")
    listed = books.settled()
    assert [(each.request_id, each.question, each.answer) for each in listed] == [
        ("r1", "count", b"one"),
        ("r2", "sum", b"two"),
    ]
    assert books.settled(after=listed[0].seq) == listed[1:]
    assert books.settled(after=listed[1].seq) == []
    named = [(each.seq, each.question, None) for each in listed]
    found = books.settled(wanted=lambda question: question == "no such")
    assert [(each.seq, each.question, each.answer) for each in found] == named


def test_an_allowance_gives_back_what_it_did_not_use(books):
    allowance = ask(books, "a", 2, kind="allowance")
    assert books.balance("data").charge == grains(2)
    assert allowance.close(costs("1/3"), b"tree") == b"tree"
    assert books.balance("ann").charge == books.balance("data").charge == grains("1/3")
    assert books.balance("ann").unsettled == 0
    assert ask(books, "a", 2, kind="allowance").answer == b"tree"


def test_an_allowance_that_was_not_closed_cannot_be_run_again(books):
    ask(books, "a", 1, kind="allowance")
    with pytest.raises(RequestConflict, check=about("begun")):
        ask(books, "a", 1, kind="allowance")
    assert books.balance("ann").charge == grains(1)


def test_an_allowance_that_used_too_much_is_a_bug_and_stays_charged(books):
    allowance = ask(books, "a", 1, kind="allowance")
    with pytest.raises(Bug, check=about("overspent")):
        allowance.close(costs("11/10"), b"tree")
    assert books.balance("ann").charge == grains(1)
    assert books.balance("ann").unsettled == 1


def test_closing_twice_returns_the_stored_answer_and_gives_back_once(books):
    allowance = ask(books, "a", 2, kind="allowance")
    allowance.close(costs(1), b"one")
    assert allowance.close(costs("1/2"), b"two") == b"one"
    assert books.balance("ann").charge == grains(1)


def test_measurements_settle_and_allowances_close(books):
    with pytest.raises(Bug, check=about("reservation")):
        ask(books, "m", 1).close(costs(1), b"")
    with pytest.raises(Bug, check=about("reservation")):
        ask(books, "a", 1, kind="allowance").settle(b"")
    with pytest.raises(Bug, match="'loan'"):
        ask(books, "l", 1, kind="loan")


def test_parent_and_child_price_with_their_own_accountants(ledger):
    ledger.open_account(
        "data", parent=None, accountant="zcdp", budget=ApproxDP(9, "1e-6"), unit=UNIT
    )
    ledger.open_account("ann", parent="data", accountant="pure", budget=ApproxDP(9), unit=UNIT)
    ask(ledger, "r", 1).settle(b"")
    assert ledger.balance("ann").charge == grains(1)
    assert ledger.balance("data").charge == grains("1/2")  # ε-DP is ε²/2-zCDP
    event = DiscreteGaussianEvent(variance=4, sensitivity=L2(squared=1))
    with pytest.raises(Unsupported):
        ledger.reserve("g", question="q", event=event, account="ann", kind="measurement")
    assert ledger.verify().ok


@dataclass(frozen=True, kw_only=True)
class Unwritable(Event):
    name: ClassVar[str] = "unwritable/1"


@pytest.mark.parametrize("event", [Unwritable(), Sequential(events=(costs(1), Unwritable()))])
def test_an_event_that_cannot_be_read_back_is_not_charged(books, event):
    head = books.head()
    terms = {"question": "q", "event": event, "account": "ann", "kind": "measurement"}
    with pytest.raises((Bug, Unsupported)):
        books.reserve("r", **terms)
    allowance = ask(books, "a", 1, kind="allowance")
    assert books.balance("ann").reservations == 1
    with pytest.raises((Bug, Unsupported)):
        allowance.close(event, b"tree")
    assert books.balance("ann").unsettled == 1
    assert books.history()[-1].previous_hash == head


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: event.name)
def test_whatever_is_recorded_can_be_priced_again(ledger, event):
    budget = ApproxDP(1000, "1/10")
    ledger.open_account("data", parent=None, accountant="zcdp", budget=budget, unit=UNIT)
    terms = {"question": "q", "event": event, "account": "data", "kind": "measurement"}
    try:
        ledger.reserve("r", **terms).settle(b"answer")
    except Unsupported:
        assert ledger.balance("data").reservations == 0
    else:
        assert ledger.reserve("r", **terms).answer == b"answer"
    assert ledger.verify().problems == []


def test_an_account_opened_again_on_the_same_terms_is_the_same_account(books):
    ask(books, "r", 1)
    head = books.head()
    books.open_account("ann", parent="data", accountant="pure", budget=ApproxDP(2), unit=UNIT)
    assert books.head() == head
    assert books.accounts() == ["data", "ann", "bob"]


@pytest.mark.parametrize(
    "change",
    [{"budget": ApproxDP(3)}, {"parent": None}, {"accountant": "zcdp"}, {"unit": "one row"}],
)
def test_an_account_opened_on_other_terms_is_refused_with_both_terms(books, change):
    terms = {"parent": "data", "accountant": "pure", "budget": ApproxDP(2), "unit": UNIT}
    with pytest.raises(
        PolicyError, check=about("terms"), match="ε = 2, pure, one person, parent 'data'"
    ):
        books.open_account("ann", **{**terms, **change})


def test_an_account_needs_an_open_parent_with_the_same_unit(books):
    terms = {"accountant": "pure", "budget": ApproxDP(1)}
    with pytest.raises(PolicyError, check=about("parent")):
        books.open_account("eve", parent="nobody", unit=UNIT, **terms)
    with pytest.raises(PolicyError, check=about("unit")):
        books.open_account("eve", parent="data", unit="one household", **terms)
    with pytest.raises(PolicyError, check=about("closed"), match="'eve'"):
        books.balance("eve")


def test_a_raised_budget_grants_more_and_a_lowered_one_nothing(books):
    ask(books, "r1", 2)
    raised = books.change_budget("ann", ApproxDP("5/2"), reason="second wave")
    assert raised.remaining == ApproxDP("1/2")
    ask(books, "r2", "1/2")
    lowered = books.change_budget("ann", ApproxDP(1), reason="too generous")
    assert lowered.remaining == ApproxDP(0)
    assert lowered.spent == ApproxDP("5/2")
    with pytest.raises(OverBudget):
        ask(books, "r3", "1/1000")
    assert books.verify().ok


def test_a_budget_changes_only_for_a_reason(books):
    with pytest.raises(SpecError, check=about("text"), match="reason"):
        books.change_budget("ann", ApproxDP(9), reason="")
    with pytest.raises(PolicyError, check=about("closed")):
        books.change_budget("eve", ApproxDP(9), reason="friend")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, "\ud800", None])
def test_names_are_short_printable_text(books, name):
    with pytest.raises(SpecError):
        ask(books, name, 1)
    with pytest.raises(SpecError):
        books.open_account(name, parent=None, accountant="pure", budget=ApproxDP(1), unit=UNIT)


def test_questions_and_answers_may_hold_any_text_and_bytes(books):
    question, answer = "naïve\x00 ε\n" * 1000, bytes(range(256)) * 4000
    ask(books, "名", 1, question=question).settle(answer)
    assert books.find("名", question, "ann") == answer
    assert books.verify().ok
    with pytest.raises(SpecError, check=about("bytes")):
        ask(books, "r", 1).settle("text")


def test_a_quote_is_free_and_agrees_with_the_reservation(books):
    head = books.head()
    quote = books.quote(costs("1/2"), account="ann")
    assert quote.fits
    assert quote.loss == ApproxDP("1/2")
    assert not books.quote(costs("5/2"), account="ann").fits
    assert books.head() == head
    assert ask(books, "r", "1/2").charges == quote.charges


def test_only_durable_ledgers_insist_on_secure_bits(ledger):
    ledger.require_secure(True)
    if ledger.durable:
        with pytest.raises(InsecureBits):
            ledger.require_secure(False)
    else:
        ledger.require_secure(False)


def test_history_of_an_account_holds_its_own_entries_and_those_below(books):
    ask(books, "a", "1/2").settle(b"")
    ask(books, "b", "1/2", account="bob")
    books.note("audited by the board")
    kinds = [entry.kind for entry in books.history()]
    assert kinds == ["ledger", *["account"] * 3, "reserve", "settle", "reserve", "note"]
    assert [entry.kind for entry in books.history("ann")] == ["account", "reserve", "settle"]
    assert len(books.history("data")) == 6


def test_the_fold_of_the_history_is_what_the_store_says(books):
    ask(books, "a", 1).settle(b"x")
    ask(books, "b", 1, account="bob", kind="allowance").close(costs("1/3"), b"y")
    ask(books, "c", "1/2")
    folded = fold(books.history(), books._rules.prices)
    assert folded.problems == []
    for name, account in folded.accounts.items():
        assert books._rules.prices.balance(account) == books.balance(name)


def test_an_export_restores_to_the_same_ledger(books, tmp_path):
    ask(books, "a", 1).settle(b"\x00answer")
    ask(books, "b", 1, account="bob", kind="allowance").close(costs("1/3"), b"y")
    ask(books, "c", "1/2")
    text = io.StringIO()
    assert books.export(text) == 9
    for where in (":memory:", str(tmp_path / "copy.db")):
        text.seek(0)
        with restore_ledger(text, where) as copy:
            assert copy.verify(pinned_head=books.head()).ok
            assert copy.balance("data") == books.balance("data")
            assert ask(copy, "a", 1).answer == b"\x00answer"
            assert ask(copy, "c", "1/2").settle(b"z") == b"z"
    text.seek(0)
    with pytest.raises(LedgerError, check=about("not-new")):
        restore_ledger(text, str(tmp_path / "copy.db"))


@pytest.mark.parametrize("damage", ["drop", "swap", "edit", "answer", "garbage"])
def test_a_damaged_export_is_refused(books, damage):
    ask(books, "a", 1).settle(b"x")
    text = io.StringIO()
    books.export(text)
    lines = text.getvalue().splitlines(keepends=True)
    if damage == "drop":
        del lines[3]
    elif damage == "swap":
        lines[3], lines[4] = lines[4], lines[3]
    elif damage == "edit":
        lines[4] = lines[4].replace("count", "total")
    elif damage == "answer":
        lines[5] = lines[5].replace('"answer":"eA=="', '"answer":"eQ=="')
    else:
        lines[4] = "{}\n"
    with pytest.raises(LedgerError, check=about("export")):
        restore_ledger(lines, ":memory:")


def test_verification_knows_a_pinned_head_in_the_middle_of_the_log(books):
    pinned = books.head()
    ask(books, "a", 1).settle(b"x")
    assert books.verify(pinned_head=pinned).ok
    unknown = books.verify(pinned_head="f" * 64)
    assert "cut off" in unknown.problems[0]


def test_a_closed_ledger_opens_by_itself(books):
    ask(books, "a", 1).settle(b"x")
    books.close()
    assert books.find("a", "count", "ann") == b"x"


def test_a_durable_ledger_is_there_for_the_next_process(address):
    with open_ledger(address) as before:
        before.open_account("data", parent=None, accountant="pure", budget=ApproxDP(1), unit=UNIT)
        ask(before, "r", 1, account="data").settle(b"42")
        head = before.head()
    with open_ledger(address) as after:
        assert after.head() == head
        assert ask(after, "r", 1, account="data").answer == b"42"
        assert after.balance("data").remaining == ApproxDP(0)
