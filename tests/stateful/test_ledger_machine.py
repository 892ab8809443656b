"""One random story told to memory, SQLite and Postgres: they must agree to the last hash."""

import os
import tempfile
from fractions import Fraction
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from noisegate.errors import NoisegateError
from noisegate.ledger.entry import Entry
from noisegate.ledger.open import open_ledger
from noisegate.ledger.verify.fold import fold
from noisegate.privacy.event import DeclaredEvent
from noisegate.privacy.loss import ApproxDP

NAMES = st.sampled_from(["data", "ann", "bob", "both"])
EPSILONS = st.sampled_from([Fraction(n, d) for n, d in ((0, 1), (1, 3), (1, 2), (1, 1), (7, 5))])
BUDGETS = st.sampled_from([ApproxDP(1), ApproxDP(3), ApproxDP(5, "1e-6")])
IDS = st.sampled_from(["r1", "r2", "r3", "r4"])
QUESTIONS = st.sampled_from(["count", "sum"])
ANSWERS = st.binary(max_size=8)
FIRST = Entry.first("0" * 32, at="2026-01-01T00:00:00.000000Z")


def outcome(action, ledger):
    """What an operation returned or refused, comparable across stores."""
    try:
        return "returned", action(ledger)
    except NoisegateError as refusal:
        return type(refusal).__name__, str(refusal)


class Stores(RuleBasedStateMachine):
    """Every step is done in all stores; results, refusals, balances and heads are compared."""

    server = None
    reservations = Bundle("reservations")

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        path = str(Path(self.directory.name) / "ledger.db")
        self.ledgers = [self._open(where) for where in (":memory:", path, self.server.fresh())]
        self.revealed = {}

    def _open(self, where):
        ticks = count()
        return open_ledger(where, _first=FIRST, _clock=lambda: f"tick {next(ticks)}")

    def both(self, action):
        """The common result of an action in all stores."""
        results = [outcome(action, ledger) for ledger in self.ledgers]
        assert results[0] == results[1] == results[2]
        return results[0]

    @rule(
        name=NAMES,
        parent=st.none() | NAMES,
        also=st.lists(NAMES, max_size=2),
        budget=BUDGETS,
        accountant=st.sampled_from(["pure", "zcdp"]),
    )
    def open_account(self, name, parent, also, budget, accountant):
        terms = {"parent": parent, "also": also, "accountant": accountant, "budget": budget}
        terms["unit"] = "person"
        self.both(lambda ledger: ledger.open_account(name, **terms))

    @rule(name=NAMES, budget=BUDGETS)
    def change_budget(self, name, budget):
        self.both(lambda ledger: ledger.change_budget(name, budget, reason="because"))

    @rule(
        target=reservations,
        request_id=IDS,
        question=QUESTIONS,
        epsilon=EPSILONS,
        account=NAMES,
        kind=st.sampled_from(["measurement", "allowance"]),
    )
    def reserve(self, request_id, question, epsilon, account, kind):
        event = DeclaredEvent(epsilon=epsilon)
        made = []

        def reserve(ledger):
            made.append(
                ledger.reserve(
                    request_id, question=question, event=event, account=account, kind=kind
                )
            )
            return made[-1]

        self.both(reserve)
        return made or None

    @rule(made=reservations, answer=ANSWERS)
    def settle(self, made, answer):
        if made is not None:
            self._finish(made, lambda reservation: reservation.settle(answer))

    @rule(made=reservations, used=EPSILONS, answer=ANSWERS)
    def close(self, made, used, answer):
        if made is not None:
            event = DeclaredEvent(epsilon=used)
            self._finish(made, lambda reservation: reservation.close(event, answer))

    def _finish(self, made, action):
        results = [outcome(action, reservation) for reservation in made]
        assert results[0] == results[1] == results[2]
        kind, value = results[0]
        if kind == "returned":  # what was shown once is shown for ever
            assert self.revealed.setdefault(made[0].request_id, value) == value

    @rule(request_id=IDS, question=QUESTIONS, account=NAMES)
    def find(self, request_id, question, account):
        self.both(lambda ledger: ledger.find(request_id, question, account))

    @rule(question=QUESTIONS, account=st.none() | NAMES)
    def find_question(self, question, account):
        self.both(lambda ledger: ledger.find_question(question, account))

    @rule(question=QUESTIONS, account=NAMES)
    def find_recipe(self, question, account):
        self.both(lambda ledger: ledger.find_recipe(question))
        self.both(lambda ledger: ledger.attempts(question, account=account))

    @rule(which=st.integers(0, 2))
    def reopen(self, which):
        self.ledgers[which].close()

    @invariant()
    def balances_agree_with_each_other_and_with_the_fold(self):
        heads = {ledger.head() for ledger in self.ledgers}
        assert len(heads) == 1
        memory = self.ledgers[0]
        folded = fold(memory.history(), memory._rules.prices)
        assert folded.problems == []
        for name, account in folded.accounts.items():
            expected = memory._rules.prices.balance(account)
            assert self.both(lambda ledger, name=name: ledger.balance(name))[1] == expected

    def teardown(self):
        for ledger in self.ledgers:
            assert ledger.verify().problems == []
            for request_id, answer in self.revealed.items():
                request = ledger._read(lambda tx, name=request_id: tx.request(name))
                stored = ledger._read(lambda tx, seq=request.settled: tx.answer(seq))
                assert stored == answer
            ledger.close()
        self.directory.cleanup()


EXAMPLES = 40 if os.environ.get("NOISEGATE_EXPLORE") else 20


def test_all_stores_tell_the_same_story(server):
    class OnThisServer(Stores):
        pass

    OnThisServer.server = server
    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
        ),
    )
