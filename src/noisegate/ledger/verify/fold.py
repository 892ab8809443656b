"""Accounts and requests recomputed from the log alone: what `verify` and `restore` compare with."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

from noisegate.accounting.accountant import Charge
from noisegate.errors import NoisegateError
from noisegate.frozen import dataclass, field, replace
from noisegate.ledger.account import (
    NOTHING,
    Account,
    Prices,
    Request,
    ancestry,
    budget_of,
    require_one_root,
)
from noisegate.ledger.entry import FORMAT, Entry, canonical, decode_charges, digest, parse
from noisegate.ledger.parts import rise, totals
from noisegate.privacy.event import InPart, decode


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
        also=tuple(body.get("also", ())),
    )
    prices.limit(account)
    if account.name in books.accounts:
        books.problems.append(f"Entry {entry.seq}: account {account.name!r} was opened twice.")
    if not books.accounts.keys() >= set(account.parents):
        books.problems.append(f"Entry {entry.seq}: the parent of {account.name!r} is missing.")
    above = (
        each for name in account.parents if name in books.accounts for each in books.chain(name)
    )
    require_one_root(account, above)
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
    lost = _in_part(books, entry, event, charges) if isinstance(event, InPart) else charges
    chain = books.chain(body["account"])
    if body["request"] in books.requests:
        books.problems.append(f"Entry {entry.seq}: request {body['request']!r} is charged twice.")
    if set(charges) != {account.name for account in chain}:
        books.problems.append(f"Entry {entry.seq}: it does not charge its account and ancestors.")
    for account in chain:
        charge = charges.get(account.name, NOTHING)
        if not prices.covers(account.accountant, event, lost.get(account.name, NOTHING)):
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


def _in_part(
    books: Books, entry: Entry, event: InPart, charges: Mapping[str, Charge]
) -> Mapping[str, Charge]:
    """What was lost in a part; the part's total and what was charged must agree with it."""
    lost = decode_charges(entry.body["lost"])
    due = rise(books.requests.get, event, lost)
    if not all(charge <= charges.get(name, NOTHING) for name, charge in due.items()):
        books.problems.append(f"Entry {entry.seq}: its part is charged too little.")
    books.requests |= {
        each.request_id: each for each in list(totals(books.requests.get, event, lost, entry.seq))
    }
    return lost


def _settle(books: Books, entry: Entry, _: Prices) -> None:
    _finish(books, entry, "measurement", books.requests[entry.body["request"]].charges)


def _close(books: Books, entry: Entry, prices: Prices) -> None:
    charges, used = decode_charges(entry.body["charges"]), decode(entry.body["used"])
    request = books.requests[entry.body["request"]]
    for account in books.chain(entry.body["account"]):
        if isinstance(decode(parse(request.event)), InPart):  # nothing is given back
            too_little = charges[account.name] != request.charges[account.name]
        else:
            too_little = not prices.covers(account.accountant, used, charges[account.name])
        if too_little:
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
