"""A ledger that ends with its process: for practice, tests and arrays; the twin of the others."""

import os
from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any, ClassVar, TypeVar, final

from noisegate.errors import LedgerError
from noisegate.ledger.account import Account, Request
from noisegate.ledger.entry import Entry, Head, Row
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.origin import Origin, Owned
from noisegate.ledger.transaction import Transaction

T = TypeVar("T")


@final
class MemoryLedger(Ledger):
    """The same contract without durability; never refuses test bits.

    A forked child has a copy, whose charges nobody else would see: it is refused there.
    """

    durable: ClassVar[bool] = False

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - passed on
        super().__init__(**options)
        self._lock, self._process = RLock(), os.getpid()
        self._kept = _Kept()
        self._write(self._begin)

    def close(self) -> None:
        """Nothing to let go of: the ledger lives as long as the object."""

    def _write(self, work: Callable[[Transaction], T]) -> T:
        if os.getpid() != self._process:
            raise LedgerError(
                "An in-memory budget belongs to the process that made it.",
                fix="Use threads, or keep the ledger in a file.",
            )
        with self._lock:
            self._kept.undo.clear()
            try:
                return work(self._kept)
            except BaseException:
                while self._kept.undo:
                    self._kept.undo.pop()()
                raise

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._write(work)


@final
class _Kept(Transaction):
    """Lists and dictionaries, and how to take back what a failed transaction wrote."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._accounts: dict[str, Account] = {}
        self._origins: dict[str, tuple[str, str]] = {}
        self._requests: dict[str, Request] = {}
        self._answers: dict[int, bytes] = {}
        self.undo: list[Callable[[], object]] = []

    def head(self) -> Head | None:
        return Head(self._rows[-1][0], self._rows[-1][5]) if self._rows else None

    def hash_at(self, seq: int) -> str | None:
        return self._rows[seq][5] if seq < len(self._rows) else None

    def append(self, entry: Entry) -> None:
        self._rows.append(entry.to_row())
        self.undo.append(self._rows.pop)

    def rows(self, after: int = -1) -> Iterator[Row]:
        return iter(self._rows[after + 1 :])

    def account(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def accounts(self) -> list[Account]:
        return list(self._accounts.values())

    def save_account(self, account: Account) -> None:
        self._put(self._accounts, account.name, account)

    def origins(self) -> Owned:
        return self._origins

    def save_origin(self, account: str, origin: Origin) -> None:
        self._put(self._origins, origin.place, (account, origin.mark))

    def request(self, request_id: str) -> Request | None:
        return self._requests.get(request_id)

    def requests(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def save_request(self, request: Request) -> None:
        self._put(self._requests, request.request_id, request)

    def answer(self, seq: int) -> bytes | None:
        return self._answers.get(seq)

    def answers(self) -> Iterator[tuple[int, bytes]]:
        return iter(self._answers.items())

    def save_answer(self, seq: int, answer: bytes) -> None:
        self._put(self._answers, seq, answer)

    def recipes(self, question: str) -> list[Request]:
        found = self._requests.values()
        asked = [each for each in found if (each.use, each.question) == ("allowance", question)]
        return sorted(asked, key=lambda each: each.reserved)

    def last_settled(self, question: str, account: str | None) -> int | None:
        settled = (
            request.settled
            for request in self._requests.values()
            if request.question == question
            and request.use == "measurement"
            and account in (None, request.account)
        )
        return max((seq for seq in settled if seq is not None), default=None)

    def _put(self, table: dict[Any, Any], key: object, value: object) -> None:
        if key in table:
            before = table[key]
            self.undo.append(lambda: table.update({key: before}))
        else:
            self.undo.append(lambda: table.pop(key))
        table[key] = value
