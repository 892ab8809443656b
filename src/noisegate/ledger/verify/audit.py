"""Recheck a ledger from its log: the chain, the prices, the limits, the caches and the answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import final

from noisegate.errors import LedgerError
from noisegate.frozen import dataclass, field
from noisegate.ledger.account import Prices
from noisegate.ledger.entry import NO_HASH, Entry, Row, digest
from noisegate.ledger.transaction import Transaction
from noisegate.ledger.verify.anchor import Anchor
from noisegate.ledger.verify.fold import Books, fold


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

    pinned: Sequence[Anchor]
    problems: list[str] = field(default_factory=list)
    head: str = NO_HASH
    entries: int = 0
    ledger: str = ""
    hashes: dict[int, str] = field(default_factory=dict)  # of entries that are pinned
    known: set[str] = field(default_factory=set)  # pinned hashes that were met

    def walk(self, rows: Iterator[Row]) -> Iterator[Entry]:
        pinned = {anchor.hash for anchor in self.pinned}
        places = {anchor.seq for anchor in self.pinned}
        for row in rows:
            self._check_place(row)
            self.head, self.entries = row[5], self.entries + 1
            if self.head in pinned:
                self.known.add(self.head)
            if row[0] in places:
                self.hashes[row[0]] = self.head
            try:
                entry = Entry.from_row(row)
            except LedgerError as broken:
                self.problems.append(f"Entry {row[0]}: {broken.problem}")
                continue
            if not entry.is_sealed:
                self.problems.append(f"Entry {entry.seq}: its content does not have its hash.")
            if entry.kind == "ledger":
                self.ledger = str(entry.body.get("id"))
            yield entry
        if not self.entries:
            self.problems.append("The log is empty.")
        self.problems += [text for text in dict.fromkeys(map(self._missing, self.pinned)) if text]

    def _missing(self, anchor: Anchor) -> str:
        """What is wrong if the log does not hold what was noted of it."""
        if anchor.ledger and anchor.ledger != self.ledger:
            return f"The noted head is of another ledger, {anchor.ledger}; this is {self.ledger}."
        if anchor.seq is None:
            found = anchor.hash in self.known
            why = "its tail was cut off, or it was rewritten"
            return "" if found else f"The pinned head {anchor.hash} is not in the log: {why}."
        if anchor.seq >= self.entries:
            return (
                f"Entry {anchor.seq} was noted, and the log ends with entry {self.entries - 1}: it "
                "was rolled back to an older state, and what came after was forgotten."
            )
        if self.hashes.get(anchor.seq) != anchor.hash:
            return (
                f"Entry {anchor.seq} is not the one that was noted: the log was rolled back to an "
                "older state and went on from there, or it was rewritten."
            )
        return ""

    def _check_place(self, row: Row) -> None:
        if row[0] != self.entries:
            self.problems.append(f"Entry {row[0]}: number {self.entries} was expected.")
        if row[4] != self.head:
            self.problems.append(f"Entry {row[0]}: it does not follow the entry before it.")


def check(tx: Transaction, prices: Prices, pinned: Sequence[Anchor] = ()) -> Verification:
    """Fold the log again and compare everything the store keeps with it, and what was noted."""
    chain = _Chain(pinned)
    books = fold(chain.walk(tx.rows()), prices)
    problems = [*chain.problems, *books.problems, *_caches(tx, books), *_answers(tx, books)]
    problems += tx.damage()
    return Verification(problems=problems, entries=chain.entries, head=chain.head)


def _caches(tx: Transaction, books: Books) -> Iterator[str]:
    yield from _differences("Account", {each.name: each for each in tx.accounts()}, books.accounts)
    yield from _differences("Origin", tx.origins(), books.origins)
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
