"""The reads and writes of a ledger as SQL that SQLite and Postgres both understand.

Whole numbers of grains exceed 64 bits and are kept as text. Entries and answers are append-only by
trigger in both databases; accounts and requests are the cache that `verify` checks.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from noisegate.accounting.accountant import Charge
from noisegate.errors import LedgerError, SpecError
from noisegate.ledger import entry as entries
from noisegate.ledger.account import Account, Request, budget_of
from noisegate.ledger.origin import Origin, Owned
from noisegate.ledger.transaction import Transaction

Rows: TypeAlias = Sequence[tuple[Any, ...]]
T = TypeVar("T")
PAGE: Final = 1000

_HEAD: Final = "SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1"
_HASH_AT: Final = "SELECT hash FROM entries WHERE seq = ?"
_APPEND: Final = (
    "INSERT INTO entries (seq, kind, at, body, previous_hash, hash) VALUES (?, ?, ?, ?, ?, ?)"
)
_PAGE_OF_ENTRIES: Final = (
    "SELECT seq, kind, at, body, previous_hash, hash FROM entries"
    " WHERE seq > ? ORDER BY seq LIMIT ?"
)
_ACCOUNT: Final = (
    "SELECT name, parent, also, accountant, epsilon, delta, unit, spent_amount, spent_delta,"
    " reservations, unsettled FROM accounts"
)
_ACCOUNT_NAMED: Final = f"{_ACCOUNT} WHERE name = ?"
_ACCOUNTS: Final = f"{_ACCOUNT} ORDER BY number"
_SAVE_ACCOUNT: Final = (
    "INSERT INTO accounts (name, parent, also, accountant, epsilon, delta, unit, spent_amount,"
    " spent_delta, reservations, unsettled, number)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT count(*) FROM accounts))"
    " ON CONFLICT (name) DO UPDATE SET epsilon = excluded.epsilon, delta = excluded.delta,"
    " spent_amount = excluded.spent_amount, spent_delta = excluded.spent_delta,"
    " reservations = excluded.reservations, unsettled = excluded.unsettled"
)
_ORIGINS: Final = "SELECT place, account, mark FROM origins"
_SAVE_ORIGIN: Final = (
    "INSERT INTO origins (place, account, mark) VALUES (?, ?, ?)"
    " ON CONFLICT (place) DO UPDATE SET mark = excluded.mark"
)
_REQUEST: Final = (
    "SELECT request_id, account, use_of, question, event, charges, reserved, settled FROM requests"
)
_REQUEST_NAMED: Final = f"{_REQUEST} WHERE request_id = ?"
_PAGE_OF_REQUESTS: Final = f"{_REQUEST} WHERE request_id > ? ORDER BY request_id LIMIT ?"
_SAVE_REQUEST: Final = (
    "INSERT INTO requests (request_id, account, use_of, question, event, charges, reserved,"
    " settled) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (request_id) DO UPDATE SET charges = excluded.charges,"
    " settled = excluded.settled"
)
_ANSWER: Final = "SELECT answer FROM answers WHERE seq = ?"
_PAGE_OF_ANSWERS: Final = "SELECT seq, answer FROM answers WHERE seq > ? ORDER BY seq LIMIT ?"
_SAVE_ANSWER: Final = "INSERT INTO answers (seq, answer) VALUES (?, ?)"
_SETTLED: Final = (
    "SELECT max(settled) FROM requests "
    "WHERE settled IS NOT NULL AND use_of = 'measurement' AND question = ?"
)
_RECIPES: Final = f"{_REQUEST} WHERE use_of = 'allowance' AND question = ? ORDER BY reserved"
_SETTLED_IN: Final = f"{_SETTLED} AND account = ?"


class SQLTransaction(Transaction):
    """A transaction over a connection that runs statements with ``?`` for parameters."""

    @abstractmethod
    def _run(self, statement: str, *values: object) -> Rows:
        """Execute one statement and return its rows, if it has any."""

    def head(self) -> entries.Head | None:
        """The row with the highest number."""
        rows = self._run(_HEAD)
        return entries.Head(*rows[0]) if rows else None

    def hash_at(self, seq: int) -> str | None:
        """One row, by its number."""
        rows = self._run(_HASH_AT, seq)
        return rows[0][0] if rows else None

    def append(self, entry: entries.Entry) -> None:
        """One row; the primary key refuses a number that is taken."""
        self._run(_APPEND, *entry.to_row())

    def rows(self, after: int = -1) -> Iterator[entries.Row]:
        """The log, page by page."""
        return self._pages(_PAGE_OF_ENTRIES, after)

    def account(self, name: str) -> Account | None:
        """By primary key."""
        rows = self._run(_ACCOUNT_NAMED, name)
        return _kept(_account, rows[0]) if rows else None

    def accounts(self) -> list[Account]:
        """All of them: there is one per data set and analyst."""
        return [_kept(_account, row) for row in self._run(_ACCOUNTS)]

    def save_account(self, account: Account) -> None:
        """Insert, or change what may change."""
        self._run(_SAVE_ACCOUNT, *_account_row(account))

    def origins(self) -> Owned:
        """All of them: a few for each data set."""
        return {place: (account, mark) for place, account, mark in self._run(_ORIGINS)}

    def save_origin(self, account: str, origin: Origin) -> None:
        """Insert, or change which file it is."""
        self._run(_SAVE_ORIGIN, origin.place, account, origin.mark)

    def request(self, request_id: str) -> Request | None:
        """By primary key."""
        rows = self._run(_REQUEST_NAMED, request_id)
        return _kept(_request, rows[0]) if rows else None

    def requests(self) -> Iterator[Request]:
        """All of them, page by page."""
        return (_kept(_request, row) for row in self._pages(_PAGE_OF_REQUESTS, ""))

    def save_request(self, request: Request) -> None:
        """Insert, or write the end of it."""
        self._run(_SAVE_REQUEST, *_request_row(request))

    def answer(self, seq: int) -> bytes | None:
        """By primary key."""
        rows = self._run(_ANSWER, seq)
        return _kept(bytes, rows[0][0]) if rows else None

    def answers(self) -> Iterator[tuple[int, bytes]]:
        """All of them, page by page."""
        pages = self._pages(_PAGE_OF_ANSWERS, -1)
        return ((seq, _kept(bytes, answer)) for seq, answer in pages)

    def save_answer(self, seq: int, answer: bytes) -> None:
        """One row; the primary key refuses a second answer."""
        self._run(_SAVE_ANSWER, seq, answer)

    def recipes(self, question: str) -> list[Request]:
        """By the index on questions."""
        return [_kept(_request, row) for row in self._run(_RECIPES, question)]

    def last_settled(self, question: str, account: str | None) -> int | None:
        """By the index on questions."""
        found = (_SETTLED, question) if account is None else (_SETTLED_IN, question, account)
        settled: int | None = self._run(*found)[0][0]
        return settled

    def _pages(self, statement: str, after: int | str) -> Iterator[Any]:
        """All rows whose key, the first column, comes after the one given; mostly one is read."""
        size = 1
        while page := self._run(statement, after, size):
            yield from page
            size = PAGE
            before, after = after, page[-1][0]
            if type(after) is not type(before) or not after > before:  # type: ignore[operator]
                raise LedgerError("The rows of the ledger are out of order.", fix=entries.RESTORE)


def _kept(make: Callable[[Any], T], stored: object) -> T:
    """What is stored, as it was before; a ledger where that cannot be read is damaged."""
    try:
        return make(stored)
    except (TypeError, ValueError, AttributeError, SpecError):
        raise LedgerError("A row of the ledger cannot be read.", fix=entries.RESTORE) from None


def _account(row: tuple[Any, ...]) -> Account:
    return Account(
        name=row[0],
        parent=row[1],
        also=tuple(row[2].split("\n")) if row[2] else (),
        accountant=row[3],
        budget=budget_of(row[4], row[5]),
        unit=row[6],
        spent=Charge(int(row[7]), int(row[8])),
        reservations=row[9],
        unsettled=row[10],
    )


def _account_row(account: Account) -> tuple[object, ...]:
    budget, spent = account.budget, account.spent
    return (
        account.name,
        account.parent,
        "\n".join(account.also),  # names are printable: no line ends inside one
        account.accountant,
        str(budget.epsilon),
        str(budget.delta),
        account.unit,
        str(spent.amount),
        str(spent.delta),
        account.reservations,
        account.unsettled,
    )


def _request(row: tuple[Any, ...]) -> Request:
    return Request(
        request_id=row[0],
        account=row[1],
        use=row[2],
        question=row[3],
        event=row[4],
        charges=entries.decode_charges(entries.parse(row[5])),
        reserved=row[6],
        settled=row[7],
    )


def _request_row(request: Request) -> tuple[object, ...]:
    return (
        request.request_id,
        request.account,
        request.use,
        request.question,
        request.event,
        entries.canonical(entries.encode_charges(request.charges)),
        request.reserved,
        request.settled,
    )
