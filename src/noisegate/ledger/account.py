"""Accounts, requests and balances as values.

A root account stands for the data set, analysts' accounts hang below it. A reservation charges its
account and every ancestor, so analysts who pool their answers never exceed the root's budget,
although their own budgets may sum to more.

An account may hang below several others of the same root: what an analyst asks for a purpose is
within the purpose's budget and within the analyst's share, whatever it was asked for.

Claim: each account's total is at least the sum of the charges of all accounts from which it can be
    reached, each counted once, and each charge kept it within its limit of that moment.
Why: accounts are opened after those above them and never move, so there is no cycle; a reservation
    charges each account that can be reached from its own exactly once, all in one transaction, and
    only if each of them has room.

An analyst's account hangs below a data set's and is called ``dataset/analyst``. A new name must be
told from every other one by whoever reads it: no root that looks like a child, no child that looks
like another data set's, no two names that differ only in case, in how a letter is encoded, or by a
letter of another alphabet. Accounts that were opened before this was asked for stay as they are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias, final
from unicodedata import category, name, normalize

from noisegate.accounting.accountant import Accountant, Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.rules import Pair
from noisegate.errors import Bug, LedgerError, NoisegateError, PolicyError
from noisegate.exact import fraction
from noisegate.frozen import dataclass, replace
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
    also: tuple[str, ...] = ()  # the others that it hangs below
    spent: Charge = NOTHING
    reservations: int = 0
    unsettled: int = 0

    @property
    def parents(self) -> tuple[str, ...]:
        """All accounts right above it."""
        return self.also if self.parent is None else (self.parent, *self.also)

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
    also: tuple[str, ...] = ()

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

    def covers(self, accountant: str, event: Event, charge: Charge) -> bool:
        """Whether what a log says was charged is enough, also by a theorem that was used once."""
        former = getattr(self.accountant(accountant), "covered", lambda *_: False)
        return self.price(accountant, event) <= charge or bool(former(charge, event))

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
            also=account.also,
        )
        rest = self.accountant(account.accountant).room(found.left, account.budget)
        return replace(found, remaining=rest)

    def _loss_now(self, accountant: str, event: Event) -> Pair:
        return self.accountant(accountant).loss(event)

    def _limit_now(self, accountant: str, budget: ApproxDP) -> Charge:
        return self.accountant(accountant).limit(budget)


def ancestry(name: str, find: Callable[[str], Account]) -> list[Account]:
    """The account and its ancestors, each once, each before those above it: everyone who pays."""
    found: dict[str, Account] = {}

    def climb(each: str, below: frozenset[str]) -> None:
        if each in below:
            raise LedgerError(
                f"Account {name!r} is its own ancestor.",
                fix="Run: noisegate ledger verify, and restore a backup.",
            )
        account = found.pop(each, None) or find(each)
        found[each] = account  # behind all that were met below it
        for parent in account.parents:
            climb(parent, below | {each})

    climb(name, frozenset())
    return list(found.values())


def require_one_root(account: Account, above: Iterable[Account]) -> None:
    """Refuse an account that would hang below two data sets, or below one account twice."""
    roots = {each.name for each in above if each.parent is None}
    twice = len(set(account.parents)) < len(account.parents)
    if len(roots) > 1 or twice or (account.also and account.parent is None):
        raise PolicyError(
            f"Account {account.name!r} would not hang below different accounts of one data set.",
            fix="Name a parent, and beside it other accounts of the same data set, each once.",
            about="parents",
        )


def descendants(accounts: Iterable[Account], name: str) -> set[str]:
    """The account itself and all below it. ``accounts`` come parents first."""
    below = {name}
    for account in accounts:
        if below.intersection(account.parents):
            below.add(account.name)
    return below


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


# names of accounts that cannot be taken for one another


# letters of other alphabets that are drawn like Latin ones
_LIKE: Final = str.maketrans(
    "авекмнорстухіјѕԁԛԝһӏαβεηικνοπρτυχγωΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТУХІЈЅɑɡɩıℓ|",
    "abekmhopctyxijsdqwhlabenikvonptuxywabezhikmnoptyxabekmhopctyxijsagiill",
)

_SLASHES: Final = "\\\u2044\u2215\u29f8"  # drawn like the one that stands between names


def require_account_name(account: Account, others: Iterable[Account]) -> None:
    """Refuse a new account whose name could be read as another one."""
    own = account.name
    composed = account.parent is None or own == normalize("NFKC", own)  # a root has a file's name
    if not composed or own != own.strip() or _has_hidden(own):
        raise _refused(own, "is not in its plain form", "Use letters without hidden marks")
    parts = own.split("/")
    odd = any(part in ("", ".", "..") or part != part.strip() for part in parts)
    if odd or any(slash in own for slash in _SLASHES):
        raise _refused(own, "reads like a path", "Use a plain name")
    if account.parent is None and len(parts) > 1:
        raise _refused(own, "looks like an analyst's account", "Name the data set without '/'")
    if account.parent is not None and len(parts) > 1:
        above, _, last = own.rpartition("/")
        if above != account.parent:
            raise _refused(own, f"is not below {account.parent!r}", f"Use {account.parent}/{last}")
    twin = next((each.name for each in others if _drawn(each.name) == _drawn(own)), None)
    if twin is not None:
        raise _refused(own, f"is easily taken for {twin!r}", "Use that name, or another one")


def _drawn(text: str) -> str:
    """What a name looks like, roughly: names that look alike have the same."""
    return normalize("NFKC", normalize("NFKC", text).translate(_LIKE).casefold()).translate(_LIKE)


def _has_hidden(text: str) -> bool:
    return any(
        category(letter) in ("Cf", "Cc", "Cn", "Co") or not name(letter, "") for letter in text
    )


def _refused(own: str, why: str, fix: str) -> PolicyError:
    return PolicyError(f"The account name {own!r} {why}.", fix=f"{fix}.", about="name")
