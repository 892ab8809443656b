"""One line of the log, and the chain of hashes that ties each line to all lines before it.

The hash is SHA-256 over five lines of text: the previous hash, the number, the kind, the time and
the body as canonical JSON (sorted keys, ASCII, no spaces, no floats). Any line that is changed,
dropped or moved breaks the chain at that place. A tail that is cut off leaves a valid shorter
chain, and a whole chain that is rewritten is valid too: both are only seen against a hash that was
pinned elsewhere, which is what `Ledger.head` is for.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NoReturn, TypeAlias, final

from noisegate.accounting.accountant import Charge
from noisegate.errors import Bug, LedgerError
from noisegate.frozen import dataclass, field

FORMAT: Final = 1  # of entries
# of files and schemas: 2 keeps origins, and in SQLite no write-ahead log; 3 accounts below several
STORE_FORMAT: Final = 3
KINDS: Final = ("ledger", "account", "origin", "limit", "reserve", "settle", "close", "note")
NO_HASH: Final = "0" * 64

Body: TypeAlias = Mapping[str, Any]
Row: TypeAlias = tuple[int, str, str, str, str, str]  # seq, kind, at, body, previous_hash, hash


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What happened, when, and the hash that seals it with everything before."""

    seq: int
    kind: str
    body: Body
    previous_hash: str
    hash: str
    at: str
    text: str = field(repr=False, compare=False)  # the body as canonical JSON

    @classmethod
    def first(cls, ledger_id: str, *, at: str) -> "Entry":
        """The line every log begins with: the format and a random identity."""
        return cls._sealed(0, "ledger", {"format": FORMAT, "id": ledger_id}, NO_HASH, at)

    @classmethod
    def after(cls, head: "Head", kind: str, body: Body, *, at: str) -> "Entry":
        """The next line of the log that ends in ``head``."""
        return cls._sealed(head.seq + 1, kind, body, head.hash, at)

    @classmethod
    def _sealed(cls, seq: int, kind: str, body: Body, previous: str, at: str) -> "Entry":
        text = canonical(body)
        return cls(
            seq=seq,
            kind=kind,
            body=body,
            previous_hash=previous,
            hash=seal_of(seq, kind, at, text, previous),
            at=at,
            text=text,
        )

    @classmethod
    def from_row(cls, row: Row) -> "Entry":
        """The entry a stored row stands for; refuses a body that is not canonical JSON."""
        seq, kind, at, text, previous, seal = row
        body = parse(text)
        if not isinstance(body, dict) or canonical(body) != text:
            raise LedgerError("Its body is not in canonical form.", fix=RESTORE, about="canonical")
        return cls(
            seq=seq, kind=kind, body=body, previous_hash=previous, hash=seal, at=at, text=text
        )

    def to_row(self) -> Row:
        """The columns that a store keeps."""
        return self.seq, self.kind, self.at, self.text, self.previous_hash, self.hash

    @property
    def is_sealed(self) -> bool:
        """Whether the hash is the one that the content has."""
        seal = seal_of(self.seq, self.kind, self.at, self.text, self.previous_hash)
        return self.hash == seal


RESTORE: Final = "Restore the ledger from a copy or an export, and report how it was changed."


@final
@dataclass(frozen=True, slots=True)
class Head:
    """The number and hash of the last entry."""

    seq: int
    hash: str


def seal_of(seq: int, kind: str, at: str, text: str, previous_hash: str) -> str:
    """The hash of an entry whose body reads ``text``."""
    return digest(f"{previous_hash}\n{seq}\n{kind}\n{at}\n{text}".encode())


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return sha256(content).hexdigest()


def canonical(value: object) -> str:
    """The one JSON text of a value: equal values have equal text, and nothing is rounded.

    >>> canonical({"b": 1, "a": ["1/3"]})
    '{"a":["1/3"],"b":1}'
    """
    _require_plain(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def parse(text: str) -> Any:  # noqa: ANN401 - JSON
    """The value of a JSON text without floats."""
    try:
        return json.loads(text, parse_float=_refuse_float, parse_constant=_refuse_float)
    except (TypeError, ValueError, RecursionError):
        raise LedgerError("An entry is not JSON.", fix=RESTORE) from None


def encode_charges(charges: Mapping[str, Charge]) -> dict[str, list[str]]:
    """Charges by account; grains are text, since they exceed 64 bits."""
    return {name: [str(charge.amount), str(charge.delta)] for name, charge in charges.items()}


def decode_charges(record: Mapping[str, Any]) -> dict[str, Charge]:
    """The charges that `encode_charges` wrote."""
    return {name: Charge(int(amount), int(delta)) for name, (amount, delta) in record.items()}


def _require_plain(value: object) -> None:
    kind = type(value)
    if kind is str or kind is int or value is None:
        return
    if isinstance(value, dict) and all(type(key) is str for key in value):
        for item in value.values():
            _require_plain(item)
    elif isinstance(value, list):
        for item in value:
            _require_plain(item)
    else:
        raise Bug(
            "A ledger entry holds a float or an object.",
            fix="Write numbers as text.",
            about="plain",
        )


def _refuse_float(text: str) -> NoReturn:
    raise LedgerError(f"An entry holds the float {text}.", fix=RESTORE)
