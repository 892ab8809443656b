"""Heads of a ledger, kept elsewhere: they show when it was put back to an older state.

The chain of hashes shows edits, and nothing in a ledger shows that its tail is missing: a backup
that was restored is a sound, shorter ledger with budget to spend. An `Anchor` is the place and hash
of one entry. Whoever holds one (a steward who mails it, an analyst with a release card) can ask the
ledger for that entry later: a log that has fewer entries, or another one there, has forgotten.

A steward may sign heads with an Ed25519 key, kept apart from the ledger: then nobody who rolls a
ledger back can also present a fitting head of their own.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from noisegate.errors import Bug, SpecError
from noisegate.frozen import dataclass
from noisegate.ledger.entry import Entry, canonical

if TYPE_CHECKING:
    from noisegate.ledger.signing import Signer

FORMAT: Final = "noisegate-head/1"
_FIELDS: Final = ("ledger", "seq", "hash", "at")
_HASH_DIGITS: Final = 64
_GIVE: Final = "Give a hash, a head, a card or an answer's JSON, as it was written."


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """Entry ``seq`` of a ledger has this hash. ``ledger`` is the identity in its first entry.

    Of a plain hash the place is not known (None), and of older cards the ledger ("").
    """

    hash: str
    seq: int | None = None
    ledger: str = ""
    at: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The anchor as plain values."""
        return {"format": FORMAT, **{name: getattr(self, name) for name in _FIELDS}}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Anchor":
        """The anchor that such values stand for; refuses any others."""
        found = {name: record[name] for name in _FIELDS if name in record}
        kinds = all(isinstance(each, int if name == "seq" else str) for name, each in found.items())
        if not kinds or not _is_hash(found.get("hash", "")) or found.get("seq", -1) < 0:
            raise SpecError("This is not a ledger head.", fix=_GIVE)
        return cls(**found)


@final
@dataclass(frozen=True, slots=True)
class Log:
    """Where an answer stands in its ledger: the head when it was made, all entries on demand."""

    head: Anchor | None = None
    entries: Callable[[], Sequence[Entry]] = tuple

    def __call__(self) -> Sequence[Entry]:
        """All entries of the ledger."""
        return self.entries()


NO_LOG: Final = Log()


def anchors_in(text: str, *, key: str | None = None) -> list[Anchor]:
    """All heads that a text states: a hash, heads (one a line), a card, or an answer's JSON.

    A signature is checked where there is one. With a public ``key`` every head must have one by it.
    """
    words = text.split()
    if len(words) == 1 and "{" not in text and key is None:
        if not _is_hash(words[0]):
            raise SpecError("This is not a ledger head.", fix=_GIVE)
        return [Anchor(hash=words[0])]
    found = [anchor for record in _records(text) for anchor in _stated(record, key)]
    if not found:
        raise SpecError("No ledger head is given here.", fix=_GIVE)
    return found


def _records(text: str) -> Iterator[Mapping[str, Any]]:
    for part in [text] if _is_json(text) else text.splitlines():
        if part.strip():
            record = json.loads(part) if _is_json(part) else None
            if not isinstance(record, dict):
                raise SpecError("This is not a ledger head.", fix=_GIVE)
            yield record


def _stated(record: Mapping[str, Any], key: str | None) -> Iterator[Anchor]:
    if record.get("format") == FORMAT:
        _require_signature(record, key)
        yield Anchor.from_dict(record)
        return
    if key is not None:
        raise SpecError(
            "This head is not signed.",
            fix="Give a signed head, or leave out the key.",
            about="unsigned",
        )
    lines = record.get("ledger")
    for line in [record.get("head"), *(lines if isinstance(lines, list) else [])]:
        if isinstance(line, dict):
            yield Anchor.from_dict(line)


# signatures


def signed(anchor: Anchor, signer: "Signer") -> dict[str, Any]:
    """The anchor with a signature."""
    record = {**anchor.to_dict(), "key": signer.public}
    return {**record, "signature": signer.sign(_message(record))}


def _require_signature(record: Mapping[str, Any], key: str | None) -> None:
    """Refuse a signature that does not hold, and a head without one where a key is given."""
    from noisegate.ledger.signing import holds  # noqa: PLC0415 - where there is one

    if "signature" not in record and key is None:
        return
    if key is not None and record.get("key") != key:
        raise SpecError(
            "This head is not signed by that key.",
            fix="Give the head signed by it.",
            about="other-key",
        )
    try:
        valid = holds(record.get("key"), record.get("signature"), _message(record))
    except Bug:  # a value that no head has, such as a float
        valid = False
    if not valid:
        raise SpecError("The signature of this head is not valid.", fix=_GIVE, about="signature")


def _message(record: Mapping[str, Any]) -> bytes:
    said = {name: value for name, value in record.items() if name != "signature"}
    return f"{FORMAT}\n{canonical(said)}".encode()


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_hash(text: str) -> bool:
    return len(text) == _HASH_DIGITS and set(text) <= set("0123456789abcdef")
