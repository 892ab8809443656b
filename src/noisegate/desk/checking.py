"""Whether a file that somebody hands over is what was stated: by its signature, by the ledger."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from noisegate.desk.card import FORMAT as CARD
from noisegate.desk.card import Card
from noisegate.desk.card import verify as verify_card
from noisegate.desk.release import read_sealed
from noisegate.desk.signed import ANSWER, RESULT, read_statement, signer_of
from noisegate.errors import SpecError
from noisegate.frozen import dataclass
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.verify.anchor import FORMAT as HEAD
from noisegate.ledger.verify.anchor import Anchor, anchors_in

_HEAD, _CARD, _RELEASE = "ledger head", "release card", "saved release"
_KINDS: Final = {CARD: _CARD, ANSWER: "answer", RESULT: "result"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a file is, whose key signed it, and what is wrong with it, in sentences.

    ``trusted``: whether the key was given, rather than taken from the file itself. ``in_ledger``:
    whether a ledger has the entries that it names; None if none was looked at.
    """

    kind: str
    signer: str | None
    trusted: bool
    in_ledger: bool | None
    problems: tuple[str, ...]

    @classmethod
    def refused(cls, why: SpecError) -> "Checked":
        """A file that says nothing anybody can rely on."""
        said = (f"{why.problem} {why.fix}",)
        return cls(kind="file", signer=None, trusted=False, in_ledger=None, problems=said)

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and its content is vouched for.

        By a signature; of cards and heads also by the ledger, which has no numbers to compare.
        """
        known = self.in_ledger is True and self.kind in (_CARD, _HEAD)
        return not self.problems and (self.signer is not None or known)

    def words(self, fingerprint: str | None) -> str:
        """What was found, in a sentence."""
        found = [self.kind]
        if fingerprint is None:
            found.append("no valid signature" if self.problems else "not signed")
        elif self.trusted:
            found.append(f"signed by the given key {fingerprint}")
        else:
            found.append(f"signed by key {fingerprint} (give --key to check whose that is)")
        if self.in_ledger is not None:
            found.append(f"the ledger {'has' if self.in_ledger else 'does not have'} what it names")
        return ", ".join(found)


def check_file(
    file: str | Path, *, key: str | None = None, ledger: Ledger | None = None
) -> Checked:
    """Check a card, an answer, ledger heads or a saved release; ``key`` is a public key.

    Refuses a signature that does not hold or is by another key, and whatever is not signed where a
    key is given. Where a ledger is given, it must have the entries that are named.
    """
    path = Path(file)
    if path.suffix.lower() == ".parquet":
        stated, card = read_sealed(path)
        record: Mapping[str, Any] = {} if card is None else card.record
        kind, signer = _RELEASE, _signer(stated or {}, key)
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise SpecError(
                f"{path.name!r} cannot be read.",
                fix="Give a card, an answer or heads as JSON, or a release as Parquet.",
                about="statement",
            ) from None
        lines = [line for line in text.splitlines() if line.strip()]
        heads = [read_statement(line) for line in lines] if all(map(_is_head, lines)) else []
        if heads:
            anchors = anchors_in(text, key=key)
            keys = {head.get("key") if "signature" in head else None for head in heads}
            one = str(keys.pop()) if len(keys) == 1 and None not in keys else None
            return _checked(_HEAD, one, key, _missing(ledger, anchors))
        record = read_statement(text)
        kind = _KINDS.get(str(record.get("format")), "statement")
        signer = _signer(record, key)
    return _checked(kind, signer, key, _differences(record, ledger))


def _checked(
    kind: str, signer: str | None, key: str | None, problems: Sequence[str] | None
) -> Checked:
    return Checked(
        kind=kind,
        signer=signer,
        trusted=key is not None,
        in_ledger=None if problems is None else not problems,
        problems=tuple(problems or ()),
    )


def _signer(record: Mapping[str, Any], key: str | None) -> str | None:
    return None if key is None and "signature" not in record else signer_of(record, key)


def _differences(record: Mapping[str, Any], ledger: Ledger | None) -> list[str] | None:
    if ledger is None:
        return None
    if record.get("format") == CARD:
        return verify_card(Card(record), ledger)
    head = record.get("head")
    if not isinstance(head, Mapping):
        return ["It names no head of a ledger."]
    return _missing(ledger, [Anchor.from_dict(head)])


def _missing(ledger: Ledger | None, anchors: Sequence[Anchor]) -> list[str] | None:
    return None if ledger is None else list(ledger.verify(anchors=anchors).problems)


def _is_head(line: str) -> bool:
    try:
        return read_statement(line).get("format") == HEAD
    except SpecError:
        return False
