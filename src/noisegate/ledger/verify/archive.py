"""The log as JSON lines: one entry a line, its answer beside it, readable without noisegate."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import IO, TypeAlias

from noisegate.errors import LedgerError
from noisegate.ledger.account import Prices
from noisegate.ledger.entry import Entry, Head, canonical, digest, parse
from noisegate.ledger.origin import Origin
from noisegate.ledger.transaction import Transaction
from noisegate.ledger.verify.fold import fold

Line: TypeAlias = tuple[Entry, bytes | None]
_FIELDS = ("seq", "kind", "at", "body", "previous_hash", "hash")


def write_lines(tx: Transaction, file: IO[str]) -> int:
    """Write every entry, with the answer it settled; returns how many."""
    count = 0
    for row in tx.rows():
        entry = Entry.from_row(row)
        record = {name: getattr(entry, name) for name in _FIELDS}
        if entry.kind in ("settle", "close") and (answer := tx.answer(entry.seq)) is not None:
            record["answer"] = b64encode(answer).decode()
        file.write(canonical(record) + "\n")
        count += 1
    return count


def read_lines(file: Iterable[str]) -> Iterator[Line]:
    """The entries and answers of an export."""
    for number, text in enumerate(file, start=1):
        try:
            record = parse(text)
            answer = record.pop("answer", None)
            entry = Entry(**record, text=canonical(record["body"]))
            yield entry, None if answer is None else b64decode(answer, validate=True)
        except (TypeError, KeyError, AttributeError, ValueError, LedgerError):
            raise LedgerError(
                f"Line {number} of the export cannot be read.",
                fix="Use an unchanged export.",
                about="export",
            ) from None


def refill(tx: Transaction, lines: Sequence[Line], prices: Prices) -> None:
    """Write an export into a ledger that holds only the same first entry.

    The log is folded before anything is written; a problem in it refuses the whole.
    """
    if not lines or tx.head() != Head(0, lines[0][0].hash):
        raise LedgerError(
            "The ledger is not new.", fix="Restore an export into a new ledger.", about="not-new"
        )
    problems = list(_broken(lines))
    books = fold((entry for entry, _ in lines), prices)
    if problems := [*problems, *books.problems]:
        raise LedgerError(
            f"The export is not sound: {problems[0]}",
            fix="Use an unchanged export.",
            about="export",
        )
    for entry, answer in lines[1:]:
        tx.append(entry)
        if answer is not None:
            tx.save_answer(entry.seq, answer)
    for account in books.accounts.values():
        tx.save_account(account)
    for place, (owner, mark) in books.origins.items():
        tx.save_origin(owner, Origin(place, mark))
    for request in books.requests.values():
        tx.save_request(request)


def _broken(lines: Sequence[Line]) -> Iterator[str]:
    for (before, _), (entry, answer) in pairwise(lines):
        follows = (before.seq + 1, before.hash) == (entry.seq, entry.previous_hash)
        if not entry.is_sealed or not follows:
            yield f"Entry {entry.seq}: it does not follow the entry before it."
        if entry.body.get("answer") != (None if answer is None else digest(answer)):
            yield f"Entry {entry.seq}: its answer is not the one in the log."
