"""What each ledger operation does, inside one transaction of any store.

Checks come first and writes last, so a refusal leaves nothing behind. A price is recorded with the
event it was computed from: the sum of recorded charges is what the filter compares, and the event
lets anyone price the same history again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, final

from noisegate.accounting.accountant import Charge
from noisegate.accounting.rules import Pair
from noisegate.errors import Bug, LedgerError, OverBudget, PolicyError, RequestConflict, SpecError
from noisegate.frozen import dataclass, replace
from noisegate.ledger.account import (
    Account,
    Prices,
    Request,
    ancestry,
    require_account_name,
    require_one_root,
)
from noisegate.ledger.entry import Body, Entry, canonical, decode_charges, digest, encode_charges
from noisegate.ledger.origin import Origin, require_nobodys, require_own
from noisegate.ledger.transaction import Transaction
from noisegate.privacy.event import Event, InPart, decode
from noisegate.privacy.loss import ApproxDP

TEXT_MAX: Final = 200
Clock = Callable[[], str]


def utc_now() -> str:
    """The time as the log writes it; for people, nothing is decided by it.

    In whole seconds: cards show it, and from finer times one could read how long the rows took.
    """
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question on its way into the ledger."""

    request_id: str
    account: str
    use: str
    question: str
    event: Event

    def __post_init__(self) -> None:
        require_name(self.request_id, "request id")
        require_name(self.account, "account")
        require_text(self.question, "question")
        if self.use not in ("measurement", "allowance"):
            raise Bug(
                f"A reservation cannot be for {self.use!r}.",
                fix="Use measurement or allowance.",
                about="use",
            )


@final
@dataclass(frozen=True, slots=True)
class Rules:
    """The bookkeeper: prices, a clock, and one method per kind of transaction."""

    prices: Prices
    clock: Clock

    def open_account(
        self,
        tx: Transaction,
        account: Account,
        origins: Sequence[Origin] = (),
        public: Sequence[Origin] = (),
    ) -> Account:
        """Open an account, or find it already open on the same terms.

        ``origins`` are where its rows come from: none may belong to another account, and none of
        the ``public`` ones to any.
        """
        earlier = tx.account(account.name)
        if earlier is None:
            require_account_name(account, tx.accounts())
        elif not earlier.has_terms_of(account):
            raise PolicyError(
                f"Account {account.name!r} is already open on other terms: {_terms(earlier)}; "
                f"asked for: {_terms(account)}.",
                fix=f"Keep it, or: noisegate ledger budget FILE {account.name} EPSILON --reason …",
                about="terms",
            )
        owned = dict(tx.origins()) if origins or public else {}
        if origins and account.parent is not None:
            raise Bug(f"Account {account.name!r} is below a data set's.", fix="Name origins there.")
        for origin in origins:
            require_own(origin, owned, account.name)
        private = {**owned, **{each.place: (account.name, each.mark) for each in origins}}
        for origin in public:
            require_nobodys(origin, private)
        if earlier is None:
            self._require_parent(tx, account)
            self.prices.limit(account)  # refuses a budget that the accountant cannot keep
        news = [each for each in origins if each.is_news(owned)]
        places = {"origins": {each.place: each.mark for each in news}} if news else {}
        if earlier is None:
            self._append(tx, "account", {**_opening(account), **places})
            tx.save_account(account)
        elif news:
            self._append(tx, "origin", {"account": account.name, **places})
        for origin in news:
            tx.save_origin(account.name, origin)
        return earlier or account

    def change_budget(self, tx: Transaction, name: str, budget: ApproxDP, reason: str) -> Account:
        """Give an account a new budget. What is spent stays spent."""
        account = replace(known_account(tx, name), budget=budget)
        self.prices.limit(account)
        body = {"account": name, "reason": reason, **_budget(budget)}
        self._append(tx, "limit", body)
        tx.save_account(account)
        return account

    def note(self, tx: Transaction, text: str) -> None:
        """Write a remark into the log."""
        self._append(tx, "note", {"text": text})

    def quote(self, tx: Transaction, account: str, event: Event) -> dict[str, tuple[Charge, bool]]:
        """What the event would cost each account of the chain, and whether it fits there."""
        accounts = chain(tx, account)
        _, charges = self._charges(tx, accounts, event)
        return {
            each.name: (charges[each.name], self.prices.fits(each, charges[each.name]))
            for each in accounts
        }

    def losses(self, tx: Transaction, account: str, event: Event) -> dict[str, Pair]:
        """The same price before rounding."""
        return {each.name: self.prices.loss(each.accountant, event) for each in chain(tx, account)}

    def require_room(self, tx: Transaction, account: str, event: Event) -> None:
        """Refuse what does not fit into the account or one of its ancestors."""
        accounts = chain(tx, account)
        _, charges = self._charges(tx, accounts, event)
        for each in accounts:
            self._require_room(each, charges[each.name])

    def _charges(
        self, tx: Transaction, accounts: Sequence[Account], event: Event
    ) -> tuple[Mapping[str, Charge], Mapping[str, Charge]]:
        """What an event loses in each account, and what it is charged: less in parts."""
        lost = {each.name: self.prices.price(each.accountant, event) for each in accounts}
        if not isinstance(event, InPart):
            return lost, lost
        from noisegate.ledger.parts import rise  # noqa: PLC0415 - for parts only

        return lost, rise(tx.request, event, lost)

    def reserve(self, tx: Transaction, asked: Asked) -> tuple[Request, bytes | None, bool]:
        """The reservation, the answer if there is one, and whether it existed before.

        A new one holds what may be lost in it, which in parts may be more than was charged.
        """
        earlier = tx.request(asked.request_id)
        if earlier is not None:
            return earlier, self._resume(tx, earlier, asked), True
        accounts = chain(tx, asked.account)
        lost, charges = self._charges(tx, accounts, asked.event)
        for account in accounts:
            self._require_room(account, charges[account.name])
        body = {
            "request": asked.request_id,
            "account": asked.account,
            "use": asked.use,
            "question": asked.question,
            "event": self.prices.record(asked.event),
            "charges": encode_charges(charges),
        }
        if isinstance(asked.event, InPart):
            body["lost"] = encode_charges(lost)
        entry = self._append(tx, "reserve", body)
        for account in accounts:
            tx.save_account(account.reserved(charges[account.name]))
        request = self._request(asked, charges, reserved=entry.seq)
        tx.save_request(request)
        if isinstance(asked.event, InPart):
            from noisegate.ledger.parts import totals  # noqa: PLC0415 - for parts only

            for each in list(totals(tx.request, asked.event, lost, entry.seq)):
                tx.save_request(each)
        return replace(request, charges=lost), None, False

    def settle(self, tx: Transaction, request_id: str, answer: bytes) -> bytes:
        """Store the answer of a measurement, or return the one that was stored first."""
        request = _reserved(tx, request_id, "measurement")
        if request.settled is not None:
            return stored_answer(tx, request.settled)
        self._finish(tx, request, {}, answer)
        return answer

    def close(self, tx: Transaction, request_id: str, used: Event, answer: bytes) -> bytes:
        """Store the answer of an allowance and give back what it did not use."""
        request = _reserved(tx, request_id, "allowance")
        if request.settled is not None:
            return stored_answer(tx, request.settled)
        reserved = decode(json.loads(request.event))
        charges = {
            each.name: self.prices.price(each.accountant, used)
            for each in chain(tx, request.account)
        }
        if isinstance(reserved, InPart):  # nothing is given back
            used, charges = replace(reserved, event=used), dict(request.charges)
        if any(not charge <= request.charges[name] for name, charge in charges.items()):
            raise Bug(
                f"Allowance {request_id!r} used more than it reserved.",
                fix="Nothing was given back. Report the recipe.",
                about="overspent",
            )
        body = {"used": self.prices.record(used), "charges": encode_charges(charges)}
        self._finish(tx, request, body, answer)
        return answer

    def find(self, tx: Transaction, asked: tuple[str, str, str]) -> bytes | None:
        """The stored answer of (request id, question, account), if it has been settled."""
        request_id, question, account = asked
        require_text(question, "question")
        request = tx.request(request_id)
        if request is None:
            return None
        if (request.question, request.account) != (digest(question.encode()), account):
            raise _used_elsewhere(request_id)
        return None if request.settled is None else stored_answer(tx, request.settled)

    def find_question(self, tx: Transaction, question: str, account: str | None) -> bytes | None:
        """The latest stored answer of the question."""
        require_text(question, "question")
        seq = tx.last_settled(digest(question.encode()), account)
        return None if seq is None else stored_answer(tx, seq)

    def recipes(self, tx: Transaction, question: str) -> list[Request]:
        """The attempts at a recipe, of all accounts."""
        require_text(question, "question")
        return tx.recipes(digest(question.encode()))

    def find_recipe(self, tx: Transaction, question: str) -> tuple[Request, bytes] | None:
        """The latest attempt that came to an end with a result; an interrupted one has none."""
        begun = self.recipes(tx, question)
        ended = {request.settled: request for request in begun if request.settled is not None}
        for seq in sorted(ended, reverse=True):
            if answer := stored_answer(tx, seq):
                return ended[seq], answer
        return None

    def _request(self, asked: Asked, charges: Mapping[str, Charge], *, reserved: int) -> Request:
        return Request(
            request_id=asked.request_id,
            account=asked.account,
            use=asked.use,
            question=digest(asked.question.encode()),
            event=canonical(self.prices.record(asked.event)),
            charges=charges,
            reserved=reserved,
        )

    def _resume(self, tx: Transaction, earlier: Request, asked: Asked) -> bytes | None:
        again = self._request(asked, earlier.charges, reserved=earlier.reserved)
        if not earlier.asks_the_same_as(again):
            raise _used_elsewhere(asked.request_id)
        if earlier.settled is not None:
            return stored_answer(tx, earlier.settled)
        if earlier.use == "allowance":
            raise RequestConflict(
                f"Request {asked.request_id!r} is an allowance that was begun and never closed; "
                "answers drawn inside it may have been seen, so it cannot be run again.",
                fix="Ask with a new request id. What the first run reserved stays spent.",
                about="begun",
            )
        return None

    def _require_parent(self, tx: Transaction, account: Account) -> None:
        for name in account.parents:
            parent = tx.account(name)
            if parent is None:
                raise PolicyError(
                    f"Account {account.name!r} names the parent {name!r}, which is not open.",
                    fix="Open the parent first.",
                    about="parent",
                )
            if parent.unit != account.unit:
                raise PolicyError(
                    f"Account {account.name!r} protects {account.unit}; its parent protects "
                    f"{parent.unit}.",
                    fix="Use one privacy unit for all accounts of a data set.",
                    about="unit",
                )
        above = (each for name in account.parents for each in chain(tx, name))
        require_one_root(account, above)

    def _require_room(self, account: Account, charge: Charge) -> None:
        if self.prices.fits(account, charge):
            return
        price = self.prices.implied(account, charge)
        left = self.prices.balance(account).remaining
        raise OverBudget(
            f"This costs {price}; account {account.name!r} has {left:left} left "
            f"of {account.budget}.",
            fix="Nothing was spent. Ask for less, or ask the steward to raise the budget.",
        )

    def _finish(self, tx: Transaction, request: Request, close: Body, answer: bytes) -> None:
        """Write the answer; ``close`` holds what an allowance really used."""
        charges = decode_charges(close["charges"]) if close else request.charges
        facts = {"request": request.request_id, "account": request.account}
        proof = {"answer": digest(answer), "bytes": len(answer)}
        kind = "close" if close else "settle"
        entry = self._append(tx, kind, {**facts, **proof, **close})
        for account in chain(tx, request.account):
            back = request.charges[account.name] - charges[account.name]
            tx.save_account(account.settled(back))
        tx.save_answer(entry.seq, answer)
        tx.save_request(replace(request, charges=charges, settled=entry.seq))

    def _append(self, tx: Transaction, kind: str, body: Body) -> Entry:
        head = tx.head()
        if head is None:
            raise LedgerError(
                "The ledger has no first entry.", fix="Restore it from a copy.", about="first-entry"
            )
        entry = Entry.after(head, kind, body, at=self.clock())
        tx.append(entry)
        return entry


def chain(tx: Transaction, name: str) -> list[Account]:
    """The account and all its ancestors, each once: everyone who pays."""
    return ancestry(name, lambda each: known_account(tx, each))


def stored_answer(tx: Transaction, seq: int) -> bytes:
    """The answer of a settled request, which the store must have."""
    answer = tx.answer(seq)
    if answer is None:
        raise LedgerError(
            f"The answer of entry {seq} is missing.",
            fix="Run: noisegate ledger verify, and restore a backup.",
            about="answer",
        )
    return answer


def require_name(value: str, name: str) -> None:
    """Refuse an empty or unprintable name, or one too long to read."""
    require_text(value, name)
    if not value.isprintable() or len(value) > TEXT_MAX:
        raise SpecError(f"The {name} is empty or too long.", fix=f"Use 1 to {TEXT_MAX} characters.")


def require_text(value: str, name: str) -> None:
    """Refuse what is not text that UTF-8 can write."""
    try:
        if isinstance(value, str) and value and value.encode():
            return
    except UnicodeEncodeError:
        pass
    raise SpecError(
        f"The {name} is not text.", fix=f"Give the {name} as non-empty text.", about="text"
    )


def known_account(tx: Transaction, name: str) -> Account:
    """The account of that name, which must have been opened."""
    account = tx.account(name)
    if account is None:
        raise PolicyError(
            f"Account {name!r} is not open.", fix="Open it in the policy first.", about="closed"
        )
    return account


def _reserved(tx: Transaction, request_id: str, use: str) -> Request:
    request = tx.request(request_id)
    if request is None or request.use != use:
        raise Bug(
            f"Request {request_id!r} is not a reserved {use}.",
            fix="Settle measurements, close allowances, each after its reservation.",
            about="reservation",
        )
    return request


def _used_elsewhere(request_id: str) -> RequestConflict:
    return RequestConflict(
        f"Request id {request_id!r} was already used for another question or account.",
        fix="Use a new request id for a new question.",
        about="used",
    )


def _opening(account: Account) -> Body:
    return {
        "account": account.name,
        "parent": account.parent,
        "accountant": account.accountant,
        "unit": account.unit,
        **_budget(account.budget),
        **({"also": list(account.also)} if account.also else {}),
    }


def _budget(budget: ApproxDP) -> dict[str, str]:
    return {"epsilon": str(budget.epsilon), "delta": str(budget.delta)}


def _terms(account: Account) -> str:
    above = ", ".join(f"parent {each!r}" for each in account.parents) or "no parent"
    return f"{account.budget}, {account.accountant}, {account.unit}, {above}"
