"""Accounts, requests and balances as values, and the fold that computes them from the log.

A root account stands for the data set, analysts' accounts hang below it. A reservation charges its
account and every ancestor, so analysts who pool their answers never exceed the root's budget,
although their own budgets may sum to more. `fold` is the slow twin of what the stores keep.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias, final

from noisegate.accounting.accountant import Accountant, Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.rules import Pair
from noisegate.errors import Bug, LedgerError, NoisegateError
from noisegate.exact import fraction
from noisegate.ledger.entry import FORMAT, Entry, canonical, decode_charges, digest
from noisegate.privacy.event import Encoded, Event, decode, encode
from noisegate.privacy.loss import ApproxDP

AccountantNamed: TypeAlias = Callable[[str], Accountant]
Use: TypeAlias = Literal["measurement", "allowance"]
NOTHING: Final = Charge(0, 0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The terms of an account and what was charged to it, by itself and by its descendants."""

    name: str
    parent: str | None
    accountant: str
    budget: ApproxDP
    unit: str
    spent: Charge = NOTHING
    reservations: int = 0
    unsettled: int = 0

    def has_terms_of(self, other: "Account") -> bool:
        """Whether both were opened alike, whatever was charged since."""
        return self == replace(
            other,
            spent=self.spent,
            reservations=self.reservations,
            unsettled=self.unsettled,
        )

    def reserved(self, charge: Charge) -> "Account":
        """The account after one more reservation."""
        return replace(
            self,
            spent=self.spent + charge,
            reservations=self.reservations + 1,
            unsettled=self.unsettled + 1,
        )

    def settled(self, returned: Charge = NOTHING) -> "Account":
        """The account after a reservation was settled, with what came back."""
        return replace(self, spent=self.spent - returned, unsettled=self.unsettled - 1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A reservation as the ledger knows it: what was asked, what it holds, whether it is done."""

    request_id: str
    account: str
    use: str
    question: str  # digest; the text is in the log
    event: str  # canonical JSON
    charges: Mapping[str, Charge]
    reserved: int
    settled: int | None = None

    def asks_the_same_as(self, other: "Request") -> bool:
        """Same account, use, question and event."""
        mine = (self.account, self.use, self.question, self.event)
        return mine == (other.account, other.use, other.question, other.event)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What an account may spend, has spent, and has left.

    ``spent`` is the (ε, δ) that all charges amount to together; a reading (see
    `Accountant.implied`), where the promise is ``budget``. ``remaining`` is the largest (ε, δ) that
    a single question may still ask of this account (its ancestors may have less). Under basic
    composition the two sum to the budget; under concentrated accounting they sum to more.
    Both are for reading: decisions compare ``charge`` with ``limit``, in whole grains.
    """

    account: str
    parent: str | None
    accountant: str
    unit: str
    budget: ApproxDP
    spent: ApproxDP
    remaining: ApproxDP
    charge: Charge
    limit: Charge
    reservations: int
    unsettled: int

    @property
    def left(self) -> Charge:
        """Limit minus charge; zero where a lowered limit lies below."""
        rest = self.limit - self.charge
        return Charge(max(rest.amount, 0), max(rest.delta, 0))


def left_of(balances: Sequence[Balance]) -> Charge:
    """What an account and those above it have left, where all add up alike."""
    rests = [each.left for each in balances]
    return Charge(min(rest.amount for rest in rests), min(rest.delta for rest in rests))


def room_of(balances: Sequence[Balance]) -> ApproxDP:
    """The largest single loss that an account, the first, and those above it have room for."""
    own, *above = balances
    if {each.accountant for each in above} <= {own.accountant}:  # all in terms of this account
        return accountant_named(own.accountant).room(left_of(balances), own.budget)
    rests = [each.remaining for each in balances]
    return ApproxDP(min(rest.epsilon for rest in rests), min(rest.delta for rest in rests))


class Prices:
    """What events cost under each accountant, remembered, since analysts repeat themselves."""

    def __init__(self, accountant_named: AccountantNamed) -> None:
        self.accountant = lru_cache(maxsize=None)(accountant_named)
        self.record = lru_cache(maxsize=1024)(readable_record)
        self._loss = lru_cache(maxsize=1024)(self._loss_now)
        self._limit = lru_cache(maxsize=1024)(self._limit_now)
        self.balance = lru_cache(maxsize=1024)(self._balance_now)

    def price(self, accountant: str, event: Event) -> Charge:
        """The accountant's price of the event."""
        return Charge.rounded_up(*self.loss(accountant, event))

    def loss(self, accountant: str, event: Event) -> Pair:
        """The same before rounding."""
        return self._loss(accountant, event)

    def limit(self, account: Account) -> Charge:
        """The largest total charge that keeps the account's budget."""
        return self._limit(account.accountant, account.budget)

    def implied(self, account: Account, charge: Charge) -> ApproxDP:
        """The (ε, δ) that a charge amounts to in this account."""
        return self.accountant(account.accountant).implied(charge, account.budget)

    def told(self, account: Account, event: Event) -> ApproxDP:
        """The (ε, δ) of an event by itself, as an order asks this account for it."""
        return self.accountant(account.accountant).told(event, account.budget)

    def fits(self, account: Account, charge: Charge) -> bool:
        """The filter: whether the account can take the charge."""
        return account.spent + charge <= self.limit(account)

    def _balance_now(self, account: Account) -> Balance:
        """The account as a steward or an analyst reads it."""
        found = Balance(
            account=account.name,
            parent=account.parent,
            accountant=account.accountant,
            unit=account.unit,
            budget=account.budget,
            spent=self.implied(account, account.spent),
            remaining=account.budget,
            charge=account.spent,
            limit=self.limit(account),
            reservations=account.reservations,
            unsettled=account.unsettled,
        )
        rest = self.accountant(account.accountant).room(found.left, account.budget)
        return replace(found, remaining=rest)

    def _loss_now(self, accountant: str, event: Event) -> Pair:
        return self.accountant(accountant).loss(event)

    def _limit_now(self, accountant: str, budget: ApproxDP) -> Charge:
        return self.accountant(accountant).limit(budget)


@final
@dataclass(slots=True)
class Books:
    """The state of a ledger after some entries, and what was wrong with them."""

    accounts: dict[str, Account] = field(default_factory=dict)
    origins: dict[str, tuple[str, str]] = field(default_factory=dict)  # place -> account, mark
    requests: dict[str, Request] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)  # entry number -> digest
    problems: list[str] = field(default_factory=list)

    def chain(self, name: str) -> list[Account]:
        """The account and its ancestors, nearest first."""
        return ancestry(name, self.accounts.__getitem__)


def ancestry(name: str, find: Callable[[str], Account]) -> list[Account]:
    """The account and its ancestors, nearest first: everyone who pays."""
    accounts = [find(name)]
    while (parent := accounts[-1].parent) is not None:
        accounts.append(find(parent))
        if len({account.name for account in accounts}) < len(accounts):
            raise LedgerError(
                f"Account {name!r} is its own ancestor.",
                fix="Run: noisegate ledger verify, and restore a backup.",
            )
    return accounts


def fold(entries: Iterable[Entry], prices: Prices) -> Books:
    """Accounts and requests recomputed from the log alone, with every rule checked on the way.

    Claim: without problems, each reservation was charged at least today's price of its event to its
        account and all ancestors, and every one of them stayed within its limit of that moment.
    Why: the sums are exact whole grains; accountants that authorise have a filter theorem for
        adaptively chosen questions, so the budget holds at any time the analysts stop [RRUV16].
    """
    books = Books()
    for entry in entries:
        try:
            if (entry.seq == 0) != (entry.kind == "ledger"):
                books.problems.append(f"Entry {entry.seq}: {entry.kind!r} is out of place.")
            _STEPS[entry.kind](books, entry, prices)
        except NoisegateError as refusal:
            books.problems.append(f"Entry {entry.seq}: {refusal.problem}")
        except (KeyError, TypeError, ValueError):
            books.problems.append(f"Entry {entry.seq}: a {entry.kind!r} that cannot be read.")
    return books


def descendants(accounts: Iterable[Account], name: str) -> set[str]:
    """The account itself and all below it. ``accounts`` come parents first."""
    below = {name}
    for account in accounts:
        if account.parent in below:
            below.add(account.name)
    return below


def _ledger(books: Books, entry: Entry, _: Prices) -> None:
    if entry.body["format"] != FORMAT:
        books.problems.append(f"Entry {entry.seq}: unknown format {entry.body['format']!r}.")


def _account(books: Books, entry: Entry, prices: Prices) -> None:
    body = entry.body
    account = Account(
        name=body["account"],
        parent=body["parent"],
        accountant=body["accountant"],
        budget=budget_of(body["epsilon"], body["delta"]),
        unit=body["unit"],
    )
    prices.limit(account)
    if account.name in books.accounts:
        books.problems.append(f"Entry {entry.seq}: account {account.name!r} was opened twice.")
    if account.parent is not None and account.parent not in books.accounts:
        books.problems.append(f"Entry {entry.seq}: the parent of {account.name!r} is missing.")
    books.accounts[account.name] = account
    if "origins" in body:
        _origin(books, entry, prices)


def _origin(books: Books, entry: Entry, _: Prices) -> None:
    account = books.accounts[entry.body["account"]]
    if account.parent is not None:
        books.problems.append(f"Entry {entry.seq}: {account.name!r} is not a data set's account.")
    for place, mark in entry.body["origins"].items():
        owner = books.origins.get(place, (account.name, ""))[0]
        if owner != account.name:
            books.problems.append(
                f"Entry {entry.seq}: {owner!r} and {account.name!r} are budgets of the same rows."
            )
        books.origins[place] = owner, mark


def _limit(books: Books, entry: Entry, _: Prices) -> None:
    account = books.accounts[entry.body["account"]]
    budget = budget_of(entry.body["epsilon"], entry.body["delta"])
    books.accounts[account.name] = replace(account, budget=budget)


def _reserve(books: Books, entry: Entry, prices: Prices) -> None:
    body = entry.body
    charges, event = decode_charges(body["charges"]), decode(body["event"])
    chain = books.chain(body["account"])
    if body["request"] in books.requests:
        books.problems.append(f"Entry {entry.seq}: request {body['request']!r} is charged twice.")
    if set(charges) != {account.name for account in chain}:
        books.problems.append(f"Entry {entry.seq}: it does not charge its account and ancestors.")
    for account in chain:
        charge = charges.get(account.name, NOTHING)
        if not prices.price(account.accountant, event) <= charge:
            books.problems.append(f"Entry {entry.seq}: {account.name!r} is charged too little.")
        if not prices.fits(account, charge):
            books.problems.append(f"Entry {entry.seq}: {account.name!r} is over its limit.")
        books.accounts[account.name] = account.reserved(charge)
    books.requests[body["request"]] = Request(
        request_id=body["request"],
        account=body["account"],
        use=body["use"],
        question=digest(body["question"].encode()),
        event=canonical(body["event"]),
        charges=charges,
        reserved=entry.seq,
    )


def _settle(books: Books, entry: Entry, _: Prices) -> None:
    _finish(books, entry, "measurement", books.requests[entry.body["request"]].charges)


def _close(books: Books, entry: Entry, prices: Prices) -> None:
    charges, used = decode_charges(entry.body["charges"]), decode(entry.body["used"])
    for account in books.chain(entry.body["account"]):
        if not prices.price(account.accountant, used) <= charges[account.name]:
            books.problems.append(f"Entry {entry.seq}: {account.name!r} is charged too little.")
    _finish(books, entry, "allowance", charges)


def _finish(books: Books, entry: Entry, use: str, charges: Mapping[str, Charge]) -> None:
    request = books.requests[entry.body["request"]]
    if request.use != use or request.account != entry.body["account"]:
        books.problems.append(f"Entry {entry.seq}: it does not fit its reservation.")
    if request.settled is not None:
        books.problems.append(f"Entry {entry.seq}: {request.request_id!r} is settled twice.")
    for account in books.chain(request.account):
        reserved, final_charge = request.charges[account.name], charges[account.name]
        if not final_charge <= reserved:
            books.problems.append(f"Entry {entry.seq}: {account.name!r} is charged afterwards.")
        books.accounts[account.name] = account.settled(reserved - final_charge)
    books.requests[request.request_id] = replace(request, charges=charges, settled=entry.seq)
    books.answers[entry.seq] = entry.body["answer"]


def _note(books: Books, entry: Entry, _: Prices) -> None:
    if not isinstance(entry.body["text"], str):
        books.problems.append(f"Entry {entry.seq}: a note without text.")


_STEPS: Final[Mapping[str, Callable[[Books, Entry, Prices], None]]] = {
    "ledger": _ledger,
    "account": _account,
    "origin": _origin,
    "limit": _limit,
    "reserve": _reserve,
    "settle": _settle,
    "close": _close,
    "note": _note,
}


def readable_record(event: Event) -> Encoded:
    """The event as the log writes it, after making sure that it can be read back.

    An event that the log cannot give back could never be priced again, so it is not charged.
    """
    record = encode(event)
    try:
        if decode(record) == event:
            return record
    except (NoisegateError, KeyError, TypeError, ValueError):
        pass
    raise Bug(
        f"The event {event.name!r} cannot be read back.", fix="Please report it; nothing was spent."
    )


@lru_cache(maxsize=1024)
def budget_of(epsilon: str, delta: str) -> ApproxDP:
    """The budget that two stored texts stand for."""
    try:
        return ApproxDP(fraction(epsilon), fraction(delta))
    except NoisegateError:
        raise LedgerError(
            "A stored budget is not a number.", fix="Run: noisegate ledger verify."
        ) from None
