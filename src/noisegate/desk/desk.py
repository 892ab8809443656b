"""The desk: plan a job, or run it. Everything that an analyst can order goes this way.

found in the ledger?   → the release, free
room                   for what has to be bought first and for the job together
ready                  buy what comes first, such as bounds that nobody declared
draw                   charge, then ask; the door keeps what it gave
receipt                cost, balance, guarantee, where the ledger has it
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property, partial
from math import floor
from typing import Any, Final, TypeVar, final

from noisegate.accounting.accountant import Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.search import digits_down, digits_up
from noisegate.curator.curator import Curator
from noisegate.desk.based import NOTHING, Based
from noisegate.desk.job import E, Job, Progress, R, Receipt, all_of, require_progress, require_room
from noisegate.desk.plan import Plan
from noisegate.desk.terms.price import Funds, Price, Step, inner_price, step_of, together
from noisegate.desk.terms.rules import Rules
from noisegate.desk.terms.terms import Part, Rest, noted, rest_of
from noisegate.errors import NoisegateError, OverBudget
from noisegate.exact import Number
from noisegate.frozen import replace
from noisegate.ledger.account import Balance, left_of, room_of
from noisegate.ledger.entry import Entry, decode_charges
from noisegate.ledger.ledger import Ledger
from noisegate.privacy.event import DeclaredZCDPEvent, Event
from noisegate.privacy.guarantee import ZERO_KNOWLEDGE, Guarantee
from noisegate.privacy.loss import ApproxDP

C = TypeVar("C")
T = TypeVar("T")
_TRIED: Final = 8  # earlier prices at which an order is looked for
_REST: Final = 10  # digits of a part of the rest: fewer than roundings lose
_SAME: Final = "2026-11-18"  # since then, an ε means the same in every account
_SLIGHT: Final = Fraction(1, 10**10)  # of an ε: what roundings lose


@final
class Desk:
    """Plans and runs jobs through a curator, by the rules of a policy."""

    def __init__(self, curator: Curator, rules: Rules, read: dict[Any, Any] | None = None) -> None:
        self.curator, self.rules = curator, rules
        self._read = {} if read is None else read

    def read_as(self, kind: Callable[[Ledger], T]) -> T:
        """The ledger as ``kind`` reads it: made once for all desks that share what they read.

        Those have one ledger, the same tables, and no sample.
        """
        if kind not in self._read:
            self._read.setdefault(kind, kind(self.curator.ledger))
        return self._read[kind]  # type: ignore[no-any-return]

    # what a price buys

    @property
    def _own(self) -> Balance:
        return self.curator.ledger.balance(self.curator.account)

    @cached_property
    def accountants(self) -> tuple[str, ...]:
        """How the account, and each above it, adds up losses: that never changes."""
        return self.curator.accountants

    @property
    def accountant(self) -> str:
        """How the account itself does."""
        return self.accountants[0]

    @property
    def rho(self) -> bool:
        """Whether ρ adds up, in the account and in all above it; else ε does."""
        return not self.rules.former and "pure" not in self.accountants

    @property
    def gaussian(self) -> bool:
        """Whether sums may carry Gaussian noise: where ρ adds up, and no sample is drawn."""
        return self.rules.sample is None and "pure" not in self.accountants

    def epsilon(self, *said: Number | None) -> Fraction:
        """What is to be paid: the first that was said, else as the policy has it."""
        given = next((each for each in said if each is not None), None)
        if (part := rest_of(given)) is not None:
            given = self.rest(part)
        return self.rules.price(self.asked(given) if isinstance(given, Step) else given)

    def step(self, *said: Number | None) -> Step:
        """What that buys in this account."""
        given = next((each for each in said if each is not None), None)
        return given if isinstance(given, Step) else self.bought(self.epsilon(given))

    def bought(self, epsilon: Fraction) -> Step:
        """What an ε buys in this account: the pure step that costs as much.

        Claim: an order whose steps are ``together`` no more is (ε, δ)-private, δ the account's.
        Adjacency: add/remove. Why: see `Accountant.rho`. Rounding: down.
        """
        if self.rules.former or self.accountant == "pure":
            return Step(epsilon)
        rho = accountant_named(self.accountant).rho(epsilon, self._own.budget)
        return Step(epsilon) if rho is None else step_of(rho)

    def asked(self, *steps: Fraction, said: Fraction | None = None) -> Fraction:
        """The ε for which steps of one order are asked: the least that buys them together.

        Whoever ``said`` nearly the same means that.
        """
        whole = together(steps, rho=self.rho)
        if self.rules.former or self.accountant == "pure" or not whole:
            return Fraction(whole)  # no step at all: of public tables
        event = DeclaredZCDPEvent(rho=whole**2 / 2)
        told = accountant_named(self.accountant).told(event, self._own.budget)
        return _as_said(told, said).epsilon

    def _cost(self, event: Event, said: Fraction | None) -> ApproxDP:
        """What an event costs, in terms of the account."""
        cost = self.curator.cost_of(event)
        return cost if self.accountant == "pure" else _as_said(cost, said)

    def _part(self, job: Job[C, R, E], *, fresh: bool) -> tuple[str, ...]:
        curator = self.curator
        if curator.part is None:
            return ()
        if not fresh and not job.before and job.is_paid(curator):
            return (curator.part.words,)
        return self.in_part(all_of((*job.before, job.event)))

    def in_part(self, event: Event) -> tuple[str, ...]:
        """In one part of the units, notes that say so, and what the account is charged."""
        curator = self.curator
        if curator.part is None:
            return ()
        charge = curator.ledger.quote(curator.paying(event), account=curator.account).loss
        told = f"Parts cost what the dearest does: the account is charged {charge} now."
        return curator.part.words, told

    def rest(
        self,
        said: Rest,
        is_paid: Callable[[Fraction], bool] = lambda _: False,
        order: str = "",
    ) -> Fraction:
        """The ε of a part of what is left in the account, and in all above it.

        Where the ``order`` (a digest) ``is_paid`` for at an ε that was noted of it, or that an
        entry of the account was charged for, and that is no smaller, it is that one: what was asked
        as a part of the rest is found again, though less is left by now.
        """
        balances = self.curator.balances()
        own, left = balances[0], left_of(balances)
        accountant = accountant_named(own.accountant)
        if {each.accountant for each in balances} != {own.accountant}:
            epsilon = digits_down(said.share * room_of(balances).epsilon, _REST)
        elif own.accountant == "pure":
            epsilon = said.share * left.as_fractions()[0]
        else:
            part = Charge(floor(said.share * left.amount), left.delta)
            found = accountant.room(part, own.budget).epsilon
            epsilon = found if found == own.budget.epsilon else digits_down(found, _REST)
        for each in self._asked_before(own, order):
            if each >= epsilon and is_paid(each):
                return each
        if epsilon <= 0:
            spent = min(balances, key=lambda each: each.remaining.epsilon)
            raise OverBudget(
                f"Nothing is left of {spent.budget} in the account {spent.account!r}.",
                fix="Nothing was spent. Ask the steward to raise the budget.",
                about="rest",
            )
        return epsilon

    @contextmanager
    def noting(self, price: object) -> Iterator[None]:
        """Keep which ε an order is paid with inside, if it was asked for a part of the rest.

        Nothing is kept of what costs nothing, so that nobody can fill a ledger for free.
        """
        before = self._own.charge if isinstance(price, Part) else None
        yield
        if isinstance(price, Part) and price.order and self._own.charge != before:
            self.curator.ledger.note(price.note)

    def _asked_before(self, own: Balance, order: str) -> Iterable[Fraction]:
        """Each ε that was noted of an order, the latest first; then the largest of others."""
        entries = self.curator.ledger.history()
        texts = (entry.body["text"] for entry in entries if entry.kind == "note")
        pairs = [found for text in texts if (found := noted(text)) is not None]
        yield from dict.fromkeys(each for name, each in reversed(pairs) if name == order)
        yield from sorted(self._charged(own, entries), reverse=True)[:_TRIED]

    def _charged(self, own: Balance, entries: Iterable[Entry]) -> set[Fraction]:
        """The ε that single entries of an account were asked for with."""
        charges = {
            decode_charges(entry.body["charges"])[own.account]
            for entry in entries
            if entry.kind == "reserve" and entry.body["account"] == own.account
        }
        read = partial(accountant_named(own.accountant).implied, budget=own.budget)
        found = {read(each).epsilon for each in charges} - {Fraction(0)}
        return found if own.accountant == "pure" else {digits_up(each, _REST) for each in found}

    def price(self, *said: Number | None) -> Price:
        """What that buys of a recipe, in this account."""
        return Price.of(self.step(*said), accountant=self.accountant, sample=self.rules.sample)

    def funds(self, *said: Number | None) -> Funds:
        """What that buys of one measurement, by those who take part."""
        inner = inner_price(self.step(*said), self.rules.sample)
        return Funds(epsilon=inner, gaussian=self.gaussian)

    # jobs

    def known(self, make: Callable[["Desk"], Job[C, R, E]], *, fresh: bool = False) -> Job[C, R, E]:
        """The job that is made here; or, if that was paid for, the one that it was once.

        Where ρ adds up, an ε once bought ρ = ε²/2: nearly always more than it means, and then what
        was drawn for it is at least as good as what is asked for now.
        """
        job = make(self)
        if fresh or self.rules.former or self.read_as(Ledger.begun) >= _SAME:
            return job
        if self.accountant == "pure" or job.is_paid(self.curator):
            return job
        if not 0 < self.bought(job.epsilon) <= job.epsilon:
            return job
        former = Desk(self.curator, replace(self.rules, former=True), self._read)
        try:
            earlier = make(former)
        except NoisegateError:
            return job
        return earlier if not earlier.before and earlier.is_paid(self.curator) else job

    def plan(self, job: Job[C, R, E], *, fresh: bool = False) -> Plan[E]:
        """What a job would cost and give now. Free: spends nothing, reads no row."""
        price, fits = ApproxDP(0), True
        self.curator.require_allowed(job.capabilities)
        if fresh:
            job.require_anew()
        if fresh or job.before or not job.is_paid(self.curator):
            event = all_of((*job.before, job.event))
            price, fits = self._cost(event, job.epsilon), self.curator.price(event)[1]
        early = None if job.early is None else all_of((*job.before, job.early))
        simulated = (
            (ZERO_KNOWLEDGE,) if job.is_simulated(job.event, *job.before, *job.based.events) else ()
        )
        return Plan(
            kind=job.kind, sql=job.sql, epsilon=job.epsilon, price=price, fits=fits,
            expected=job.expected, endings=job.endings,
            notes=(*job.notes, *simulated, *self._part(job, fresh=fresh)),
            early=None if early is None else self.curator.cost_of(early),
        )  # fmt: skip

    def run(self, job: Job[C, R, E], *, fresh: bool = False, progress: Progress | None = None) -> R:
        """The release: from the ledger if it was drawn before, else for its price."""
        require_progress(progress)
        self.curator.require_allowed(job.capabilities)
        if fresh:
            job.require_anew()
        said, notes = job.epsilon, self._part(job, fresh=fresh)
        if job.before:
            together = all_of((*job.before, job.event))
            require_room(self.curator, together)
            job = job.ready()
        if notes:
            job = replace(job, notes=(*job.notes, *notes))
        drawn = None if fresh else job.found(self.curator)
        if drawn is None:
            say = progress or (lambda _, __: None)
            drawn = job.drawn(self.curator, say, fresh=fresh)
            say(1.0, "done")
        itself, based = job.promise(drawn), job.rests(drawn)
        promised = all_of((*based.events, itself)) if based.events else itself
        guarantee = job.guarantee(self.curator.loss_of(promised))
        if based.events:
            guarantee = replace(guarantee, added=self.curator.loss_of(itself))
        receipt = self.receipt(
            *job.paid, *(() if drawn.free else (drawn.used,)),
            guarantee=replace(guarantee, zero_knowledge=job.is_simulated(promised, *job.paid)),
            question=drawn.question, request_id=drawn.request_id, free=drawn.free,
            said=said, based=based,
        )  # fmt: skip
        made = job.result(drawn.content, receipt)
        return made if job.then is None else job.then(made)

    def receipt(
        self,
        *paid: Event,
        guarantee: Guarantee,
        question: str,
        request_id: str,
        free: bool = False,
        said: Fraction | None = None,
        based: Based = NOTHING,
    ) -> Receipt:
        """What was paid now, what is left, and what is promised."""
        balances, log = self.curator.ledger.standing(self.curator.account)
        return Receipt(
            cost=self._cost(all_of(paid), said), remaining=room_of(balances), guarantee=guarantee,
            question=question, request_id=request_id, practice=self.rules.practice,
            log=log, free=free, based=based,
        )  # fmt: skip


def _as_said(cost: ApproxDP, said: Fraction | None) -> ApproxDP:
    """A price; where that is what was ``said`` but for rounding, just that."""
    if said is None or abs(cost.epsilon - said) > said * _SLIGHT:
        return cost
    return ApproxDP(said, cost.delta)
