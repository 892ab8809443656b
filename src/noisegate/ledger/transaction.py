"""The few reads and writes that a store must offer; the rules are written over these, once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from noisegate.ledger.account import Account, Request
from noisegate.ledger.entry import Entry, Head, Row
from noisegate.ledger.origin import Origin, Owned


class Transaction(ABC):
    """All or nothing, one writer at a time, durable when it has ended.

    Entries and answers are only ever added. Accounts and requests are a cache of what `fold`
    computes from the entries, changed in the same transaction as the log.
    """

    @abstractmethod
    def head(self) -> Head | None:
        """The last entry; None in a store that was never begun."""

    @abstractmethod
    def hash_at(self, seq: int) -> str | None:
        """The hash of one entry; None if it is not there."""

    @abstractmethod
    def append(self, entry: Entry) -> None:
        """Add one entry to the log."""

    @abstractmethod
    def rows(self, after: int = -1) -> Iterator[Row]:
        """The log in order, as stored, so that even broken rows can be looked at."""

    @abstractmethod
    def account(self, name: str) -> Account | None:
        """One account."""

    @abstractmethod
    def accounts(self) -> list[Account]:
        """All accounts in the order of opening, so parents first."""

    @abstractmethod
    def save_account(self, account: Account) -> None:
        """Add or replace an account."""

    @abstractmethod
    def origins(self) -> Owned:
        """Where rows come from, and the root account that owns each place."""

    @abstractmethod
    def save_origin(self, account: str, origin: Origin) -> None:
        """Let a root account own a place, or note which file the place stands for now."""

    @abstractmethod
    def request(self, request_id: str) -> Request | None:
        """One request."""

    @abstractmethod
    def requests(self) -> Iterator[Request]:
        """All requests, in any order."""

    @abstractmethod
    def save_request(self, request: Request) -> None:
        """Add or replace a request."""

    @abstractmethod
    def answer(self, seq: int) -> bytes | None:
        """The answer that entry ``seq`` settled or closed with."""

    @abstractmethod
    def answers(self) -> Iterator[tuple[int, bytes]]:
        """All answers in order."""

    @abstractmethod
    def save_answer(self, seq: int, answer: bytes) -> None:
        """Keep the answer of entry ``seq``."""

    def damage(self) -> list[str]:
        """What the store itself finds wrong with how it keeps all this, such as its indexes."""
        return []

    @abstractmethod
    def recipes(self, question: str) -> list[Request]:
        """All allowances of the question (a digest), as they were begun."""

    @abstractmethod
    def last_settled(self, question: str, account: str | None) -> int | None:
        """The latest measurement of the question (a digest), for one account or any."""
