"""Recheck a ledger from its log: the chain, the prices, the limits, the caches and the answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import final

from noisegate.errors import LedgerError
from noisegate.ledger.account import Books, Prices, fold
from noisegate.ledger.entry import NO_HASH, Entry, Row, digest
from noisegate.ledger.transaction import Transaction


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The outcome of a recheck; ``problems`` are sentences for the steward."""

    problems: list[str]
    entries: int
    head: str

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


@final
@dataclass(slots=True)
class _Chain:
    """Reads rows in order, notes where the chain breaks, and passes on what can be read."""

    pinned: str | None
    problems: list[str] = field(default_factory=list)
    head: str = NO_HASH
    entries: int = 0

    def walk(self, rows: Iterator[Row]) -> Iterator[Entry]:
        for row in rows:
            self._check_place(row)
            self.head, self.entries = row[5], self.entries + 1
            self.pinned = None if self.pinned == self.head else self.pinned
            try:
                entry = Entry.from_row(row)
            except LedgerError as broken:
                self.problems.append(f"Entry {row[0]}: {broken.problem}")
                continue
            if not entry.is_sealed:
                self.problems.append(f"Entry {entry.seq}: its content does not have its hash.")
            yield entry
        if not self.entries:
            self.problems.append("The log is empty.")
        if self.pinned is not None:
            self.problems.append(
                f"The pinned head {self.pinned} is not in the log: its tail was cut off, or it was "
                "rewritten."
            )

    def _check_place(self, row: Row) -> None:
        if row[0] != self.entries:
            self.problems.append(f"Entry {row[0]}: number {self.entries} was expected.")
        if row[4] != self.head:
            self.problems.append(f"Entry {row[0]}: it does not follow the entry before it.")


def check(tx: Transaction, prices: Prices, *, pinned_head: str | None = None) -> Verification:
    """Fold the log again and compare everything the store keeps with it."""
    chain = _Chain(pinned_head)
    books = fold(chain.walk(tx.rows()), prices)
    problems = [*chain.problems, *books.problems, *_caches(tx, books), *_answers(tx, books)]
    problems += tx.damage()
    return Verification(problems=problems, entries=chain.entries, head=chain.head)


def _caches(tx: Transaction, books: Books) -> Iterator[str]:
    yield from _differences("Account", {each.name: each for each in tx.accounts()}, books.accounts)
    stored = {each.request_id: each for each in tx.requests()}
    yield from _differences("Request", stored, books.requests)


def _differences(
    noun: str, stored: Mapping[str, object], folded: Mapping[str, object]
) -> Iterator[str]:
    for name in sorted(stored.keys() | folded.keys()):
        if name not in folded:
            yield f"{noun} {name!r} is stored but not in the log."
        elif name not in stored:
            yield f"{noun} {name!r} is in the log but not stored."
        elif stored[name] != folded[name]:
            yield f"{noun} {name!r} differs from what the log says."


def _answers(tx: Transaction, books: Books) -> Iterator[str]:
    missing = dict(books.answers)
    for seq, answer in tx.answers():
        if missing.pop(seq, None) != digest(answer):
            yield f"The answer of entry {seq} is not the one in the log."
    for seq in missing:
        yield f"The answer of entry {seq} is missing."
