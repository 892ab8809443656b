"""The contract of a ledger: reserve, settle, close, find, balance, verify.

Debit first: `reserve` returns only when the charge is durable, and `settle` returns only when the
answer is. A crash in between wastes budget, never privacy; the same request may then run again
under its reservation, because nothing had left. An answer that was stored is what everyone gets
from then on, also when two racers drew noise for the same request.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, ClassVar, Self, TypeVar, final
from uuid import uuid4

from noisegate.accounting.accountant import Charge
from noisegate.accounting.accountants import accountant_named
from noisegate.accounting.rules import Pair
from noisegate.errors import InsecureBits, LedgerError, SpecError
from noisegate.frozen import dataclass, field
from noisegate.ledger import rules
from noisegate.ledger.account import Account, AccountantNamed, Balance, Prices, Use, descendants
from noisegate.ledger.entry import Entry, Head, Row
from noisegate.ledger.fork import lineage
from noisegate.ledger.origin import Origin
from noisegate.ledger.transaction import Transaction
from noisegate.ledger.verify.anchor import Anchor, Log
from noisegate.privacy.event import Event
from noisegate.privacy.loss import ApproxDP

if TYPE_CHECKING:
    from noisegate.ledger.verify.archive import Line
    from noisegate.ledger.verify.audit import Verification

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A charge that is durable. Rows may be read for it; the answer goes in through here.

    ``answer`` is set when the request was settled before: return it and read nothing. ``resumed``
    says that the reservation was made by an earlier run that did not come to its end.
    """

    request_id: str
    account: str
    question: str
    event: Event
    use: Use
    charges: Mapping[str, Charge]
    answer: bytes | None
    resumed: bool
    process: tuple[int, int]  # that asked, and alone may draw on an allowance
    _settle: Callable[[bytes], bytes] = field(repr=False, compare=False)
    _close: Callable[[Event, bytes], bytes] = field(repr=False, compare=False)

    def settle(self, answer: bytes) -> bytes:
        """Store the answer of a measurement durably, and return the one to show.

        That is the stored one: if the same request was settled by another process in the meantime,
        its answer is returned and this one is dropped unseen.
        """
        _require_bytes(answer)
        return self._settle(answer)

    def close(self, used: Event, answer: bytes) -> bytes:
        """Store the answer of an allowance durably and give back what it did not use.

        Claim: charging ``used`` afterwards keeps every budget of the chain, since it is priced at
            most the reservation in each account; anything else is a `Bug` and changes nothing.
        Why: the filters compare sums of what was really run, in any adaptive order [RRUV16, FZ21].
        """
        _require_bytes(answer)
        return self._close(used, answer)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What an event would cost, without asking: a charge for each account of the chain."""

    charges: Mapping[str, Charge]
    loss: ApproxDP  # the event alone, as the account asked reads it
    price: ApproxDP  # the least that an order asks for, to buy it
    fits: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A measurement that was answered: entry ``seq`` of the log, its question and its answer.

    ``answer`` is None if it was not asked for.
    """

    seq: int
    request_id: str
    question: str
    answer: bytes | None


class Ledger(ABC):
    """A log of charges and answers with the rule that no account passes its limit.

    Stores differ only in `_write` and `_read`: run a function in one transaction. Threads may share
    a ledger; processes open the same file or server.
    """

    durable: ClassVar[bool]
    pause: Callable[[], None] = staticmethod(lambda: None)  # until an answer may be stored

    def __init__(
        self,
        *,
        accountants: AccountantNamed = accountant_named,
        _clock: rules.Clock = rules.utc_now,
        _first: Entry | None = None,
    ) -> None:
        self._rules = rules.Rules(Prices(accountants), _clock)
        self._first = _first
        self._seen: Head | None = None  # the last entry seen, which must stay

    @abstractmethod
    def _write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` alone and durably; on any error nothing of it remains."""

    @abstractmethod
    def _read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one consistent view."""

    def _run(
        self,
        transact: Callable[[Callable[[Transaction], tuple[T, Head | None]]], tuple[T, Head | None]],
        work: Callable[[Transaction], T],
    ) -> T:
        """Run ``work`` on a log that still holds what this process has seen of it.

        An older copy put in its place would have forgotten charges. What was seen is read before
        the transaction begins, so that its view cannot be older.
        """
        seen = self._seen

        def guarded(tx: Transaction) -> tuple[T, Head | None]:
            if seen is not None and tx.hash_at(seen.seq) != seen.hash:
                raise LedgerError(
                    "The ledger was replaced by another one, or an older state of it, while it "
                    "was in use.",
                    fix="Put it back as it was, and start again.",
                    about="older",
                )
            return work(tx), tx.head()

        result, self._seen = transact(guarded)
        return result

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. The ledger may be used again: it opens by itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # accounts

    def open_account(  # noqa: PLR0913 - the terms of an account
        self,
        name: str,
        *,
        parent: str | None,
        accountant: str,
        budget: ApproxDP,
        unit: str,
        also: Sequence[str] = (),
        origins: Sequence[Origin] = (),
        public: Sequence[Origin] = (),
    ) -> Balance:
        """Open an account; again with the same terms is fine, with other terms is refused.

        ``also`` are other accounts of the data set, beside the parent, that pay for what it asks.
        ``origins`` say where a data set's rows come from. Another root account that owns one of
        them is the budget of these rows, and a second one is refused; so is one of the ``public``
        tables beside them that has a budget.
        """
        rules.require_name(name, "account")
        rules.require_text(unit, "unit")
        account = Account(
            name=name, parent=parent, accountant=accountant, budget=budget, unit=unit,
            also=tuple(also),
        )  # fmt: skip
        opened = self._run(
            self._write, lambda tx: self._rules.open_account(tx, account, origins, public)
        )
        return self._rules.prices.balance(opened)

    def open_accounts(self, accounts: Sequence[Account]) -> None:
        """Open several that hang below others, in one go: all of them, or none."""
        for each in accounts:
            rules.require_name(each.name, "account")
        self._run(self._write, lambda tx: [self._rules.open_account(tx, each) for each in accounts])

    def change_budget(self, name: str, budget: ApproxDP, *, reason: str) -> Balance:
        """Raise or lower a budget, with the reason in the log.

        Below what is spent, nothing more is granted; what was answered cannot be taken back.
        """
        return self.change_budgets([name], budget, reason=reason)[0]

    def change_budgets(
        self, names: Sequence[str], budget: ApproxDP, *, reason: str
    ) -> list[Balance]:
        """Give several accounts the same new budget: all of them, or none."""
        rules.require_text(reason, "reason")
        changed = self._run(
            self._write,
            lambda tx: [self._rules.change_budget(tx, name, budget, reason) for name in names],
        )
        return [self._rules.prices.balance(account) for account in changed]

    def accounts(self) -> list[str]:
        """The names of all accounts, in the order of opening, so parents first."""
        return [account.name for account in self._run(self._read, lambda tx: tx.accounts())]

    def origins(self) -> dict[str, str]:
        """Where private rows come from, and the account that owns each place."""
        owned = self._run(self._read, lambda tx: dict(tx.origins()))
        return {place: account for place, (account, _) in owned.items()}

    def balance(self, account: str) -> Balance:
        """Budget, spent and remaining of an account."""
        return self.balances(account)[0]

    def balances(self, account: str) -> list[Balance]:
        """The account and all that pay with it, each before those above it, at one moment."""
        return [
            *map(
                self._rules.prices.balance,
                self._run(self._read, lambda tx: rules.chain(tx, account)),
            )
        ]

    # questions

    def quote(self, event: Event, *, account: str) -> Quote:
        """The price of an event for an account and its ancestors. Free, and promises nothing."""
        terms, quotes = self._run(
            self._read,
            lambda tx: (rules.known_account(tx, account), self._rules.quote(tx, account, event)),
        )
        return Quote(
            charges={name: charge for name, (charge, _) in quotes.items()},
            loss=self._rules.prices.implied(terms, quotes[account][0]),
            price=self._rules.prices.told(terms, event),
            fits=all(fits for _, fits in quotes.values()),
        )

    def losses(self, event: Event, *, account: str) -> Mapping[str, Pair]:
        """The same price before rounding: of steps in sequence these add up to that of all."""
        return self._run(self._read, lambda tx: self._rules.losses(tx, account, event))

    def require_room(self, event: Event, *, account: str) -> None:
        """Refuse an event that would not fit now, naming the account. Charges nobody."""
        self._run(self._read, lambda tx: self._rules.require_room(tx, account, event))

    def reserve(
        self, request_id: str, *, question: str, event: Event, account: str, kind: Use
    ) -> Reservation:
        """Charge the account and all its ancestors, durably, or refuse and charge nobody.

        The same request again returns its reservation: unsettled, to be run again; settled, with
        ``answer``. An allowance that was begun and not closed is refused, since answers inside it
        may have been seen, and so is a request id that belongs to another question.
        """
        asked = rules.Asked(
            request_id=request_id, account=account, use=kind, question=question, event=event
        )
        process = lineage()
        request, answer, resumed = self._run(self._write, lambda tx: self._rules.reserve(tx, asked))
        return Reservation(
            request_id=request_id,
            account=account,
            question=question,
            event=event,
            use=kind,
            charges=request.charges,
            answer=answer,
            resumed=resumed,
            process=process,
            _settle=partial(self._settle_request, request_id),
            _close=partial(self._close_request, request_id),
        )

    def _settle_request(self, request_id: str, answer: bytes) -> bytes:
        self.pause()
        return self._run(self._write, lambda tx: self._rules.settle(tx, request_id, answer))

    def _close_request(self, request_id: str, used: Event, answer: bytes) -> bytes:
        self.pause()
        return self._run(self._write, lambda tx: self._rules.close(tx, request_id, used, answer))

    def find(self, request_id: str, question: str, account: str) -> bytes | None:
        """The stored answer of a request; None if there is none yet."""
        return self._run(
            self._read, lambda tx: self._rules.find(tx, (request_id, question, account))
        )

    def find_question(self, question: str, account: str | None) -> bytes | None:
        """The latest stored answer of a question, whatever its request id.

        ``account`` None looks in all accounts. To show an answer again is post-processing: it costs
        nothing, also for another analyst, whom the root account already counts as a colluder.
        """
        return self._run(self._read, lambda tx: self._rules.find_question(tx, question, account))

    def find_recipe(self, question: str) -> tuple[str, bytes] | None:
        """The request id and the result of a recipe that was finished, in any account."""
        found = self._run(self._read, lambda tx: self._rules.find_recipe(tx, question))
        return None if found is None else (found[0].request_id, found[1])

    def attempts(self, question: str, *, account: str) -> tuple[int, int]:
        """How often an account began a recipe, and how many of these never came to an end."""
        begun = self._run(self._read, lambda tx: self._rules.recipes(tx, question))
        own = [request for request in begun if request.account == account]
        return len(own), sum(request.settled is None for request in own)

    def settled(
        self, after: int = -1, wanted: Callable[[str], bool] = lambda _: True
    ) -> list[Settled]:
        """All measurements that were answered, in entries after ``after``, whoever asked.

        Answers are read for questions that are ``wanted`` only: some are large.
        """
        return self._run(self._read, lambda tx: list(_settled(tx, after, wanted)))

    def require_secure(self, bits_are_secure: bool) -> None:  # noqa: FBT001 - reads as a demand
        """Refuse to vouch for noise that did not come from the system's entropy."""
        if self.durable and not bits_are_secure:
            raise InsecureBits(
                "A durable ledger was asked to record noise drawn from test bits.",
                fix="Use system bits, or a ledger in memory for practice.",
            )

    # the log

    def note(self, text: str) -> None:
        """Write a remark into the log."""
        rules.require_text(text, "note")
        self._run(self._write, lambda tx: self._rules.note(tx, text))

    def head(self) -> str:
        """The hash of the last entry, which seals the whole log.

        Write it down somewhere else, and give it to `verify` later. A tail that was cut off, and a
        log that was rewritten from some entry on, can only be seen against a pinned head.
        """
        return self.anchor().hash

    def anchor(self) -> Anchor:
        """The head with its place, its time and the ledger's identity: to be kept elsewhere."""
        return self._run(self._read, _anchor)

    def begun(self) -> str:
        """When its first entry was written."""
        return self._run(self._read, lambda tx: str(next(tx.rows())[2]))

    def log(self) -> Log:
        """What an answer carries of the ledger: the head now, and a way to all entries."""
        return Log(self.anchor(), self.history)

    def standing(self, account: str) -> tuple[list[Balance], Log]:
        """Its `balances`, and what an answer carries of the ledger, at one moment."""
        chained, head = self._run(self._read, lambda tx: (rules.chain(tx, account), _anchor(tx)))
        return [*map(self._rules.prices.balance, chained)], Log(head, self.history)

    def history(self, account: str | None = None) -> list[Entry]:
        """All entries, or those of an account and the accounts below it."""
        return self._run(self._read, lambda tx: _history(tx, account))

    def verify(
        self, *, pinned_head: str | None = None, anchors: Sequence[Anchor] = ()
    ) -> "Verification":
        """Recheck everything: chain, prices, limits, cached balances, answers' digests.

        ``pinned_head``, a hash, and ``anchors`` were noted earlier: the log must still hold them.
        """
        from noisegate.ledger.verify.audit import check  # noqa: PLC0415 - when it is verified

        pinned = [*anchors, *([] if pinned_head is None else [Anchor(hash=pinned_head)])]
        return self._run(self._read, lambda tx: check(tx, self._rules.prices, pinned))

    def export(self, file: IO[str]) -> int:
        """Write the log and the answers as JSON lines; returns the number of entries."""
        from noisegate.ledger.verify.archive import write_lines  # noqa: PLC0415 - when it is exported

        return self._run(self._read, lambda tx: write_lines(tx, file))

    def restore(self, lines: "Sequence[Line]") -> None:
        """Fill a ledger that holds only the same first entry; see `open.restore_ledger`."""
        from noisegate.ledger.verify.archive import refill  # noqa: PLC0415 - when it is restored

        self._run(self._write, lambda tx: refill(tx, lines, self._rules.prices))

    def _begin(self, tx: Transaction) -> None:
        """Write the first entry of a store that has none."""
        if tx.head() is None:
            tx.append(self._first or Entry.first(uuid4().hex, at=self._rules.clock()))


def _anchor(tx: Transaction) -> Anchor:
    head = tx.head()
    if head is None:
        raise LedgerError(
            "The ledger has no first entry.", fix="Restore it from a copy.", about="first-entry"
        )
    first, last = Entry.from_row(next(tx.rows())), next(tx.rows(head.seq - 1))
    return Anchor(ledger=str(first.body.get("id")), seq=head.seq, hash=head.hash, at=last[2])


def _history(tx: Transaction, account: str | None) -> list[Entry]:
    rows: Iterable[Row] = tx.rows()
    if account is None:
        return [Entry.from_row(row) for row in rows]
    names = descendants(tx.accounts(), account)
    entries = (Entry.from_row(row) for row in rows)
    return [entry for entry in entries if entry.body.get("account") in names]


def _settled(tx: Transaction, after: int, wanted: Callable[[str], bool]) -> Iterator[Settled]:
    for row in tx.rows(after):
        entry = Entry.from_row(row)
        request = tx.request(str(entry.body.get("request"))) if entry.kind == "settle" else None
        if request is None or request.use != "measurement":
            continue
        reserved = Entry.from_row(next(tx.rows(request.reserved - 1)))
        question = str(reserved.body["question"])
        answer = tx.answer(entry.seq) if wanted(question) else None
        yield Settled(
            seq=entry.seq, request_id=request.request_id, question=question, answer=answer
        )


def _require_bytes(answer: bytes) -> None:
    if not isinstance(answer, bytes):
        raise SpecError(
            "The answer is not bytes.", fix="Encode the answer before settling.", about="bytes"
        )
