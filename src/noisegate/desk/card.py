"""The release card: what was promised and measured, in a form that machines can check.

A card is plain JSON. It names the entries of the ledger behind an answer with their hashes, and
`verify` finds them again: a card whose entries are not in the ledger, or are there with other
hashes, speaks about something that did not happen.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, final

from noisegate.desk.noisy import HalfWidths, NoisyTable
from noisegate.desk.signed import signed
from noisegate.errors import SpecError
from noisegate.exact import Number, fraction
from noisegate.frozen import dataclass
from noisegate.inert import code, fenced, json_text, markdown
from noisegate.inert import line as inert_line
from noisegate.ledger.entry import Entry
from noisegate.ledger.ledger import Ledger
from noisegate.ledger.signing import Signer, fingerprint
from noisegate.ledger.verify.anchor import Anchor

FORMAT: Final = "noisegate-card/1"
_KINDS: Final = ("reserve", "settle", "close")
_LOWER: Final = ", lower bounds: a contribution bound leaves some out"


@final
@dataclass(frozen=True, slots=True, repr=False)
class Card:
    """The statement, as plain JSON values."""

    record: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain values."""
        return dict(self.record)

    def to_json(self) -> str:
        """The statement as JSON text."""
        return json_text(self.record, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Card":
        """A card that `to_json` wrote."""
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise SpecError(
                f"This is not a release card in format {FORMAT}.",
                fix="Give the card's JSON.",
                about="format",
            )
        return cls(record)

    def nameless(self) -> "Card":
        """The statement for everybody: without the names of requests, which begin with accounts.

        The hashes of the entries hold them, so the ledger can confirm it as well.
        """
        lines = [dict(each) for each in self.record["ledger"]]
        for each in lines:
            del each["request"]
        return Card({**self.record, "ledger": lines})

    def signed(self, signer: Signer) -> "Card":
        """The statement with a signature, which `noisegate verify` checks."""
        return Card(signed(self.record, signer))

    def verify(self, ledger: Ledger) -> list[str]:
        """What is wrong with it, in sentences; nothing if the ledger holds all that it names."""
        return verify(self, ledger)

    def __repr__(self) -> str:
        entries = self.record.get("ledger")
        count = len(entries) if isinstance(entries, list) else 0
        sql = " ".join(str(self.record.get("sql")).split())
        return inert_line(f"<Card: {sql}; {count} entries of the ledger>")

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def to_markdown(self) -> str:
        """The statement as a page for people."""
        try:
            return _page(self.record)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise SpecError(
                "The card was changed.", fix="Use it as written by to_json()."
            ) from None


def card(answer: NoisyTable, confidence: Number = 0.95) -> Card:
    """The card of an answer. The entries come from the ledger that the answer was paid from."""
    if answer.practice:
        raise SpecError(
            "Practice answers come from made-up rows and have no card.",
            fix="Ask without practice.",
            about="practice",
        )
    entries = entries_of(answer, answer.log())
    guarantee = answer.guarantee
    return Card(
        {
            "format": FORMAT,
            "software": f"noisegate {version('noisegate-dp')}",
            "sql": answer.sql,
            "scope": guarantee.scope,
            "unit": {"column": guarantee.unit.column, "noun": guarantee.unit.noun},
            "guarantee": guarantee.to_dict(),
            "change_one": guarantee.change_one().to_dict(),
            "price": {"epsilon": str(answer.cost.epsilon), "delta": str(answer.cost.delta)},
            "free": answer.free,
            "confidence": str(fraction(confidence)),
            "columns": [
                {"name": name, "error": _error(widths)}
                for name, widths in answer.margins(confidence).items()
            ],
            "lower_bounds": list(answer.lower()),
            "rows": answer.table.num_rows,
            "caveats": list(answer.caveats),
            "measurements": [json.loads(question) for question in answer.questions],
            "ledger": [
                {
                    "seq": entry.seq,
                    "kind": entry.kind,
                    "request": entry.body["request"],
                    "at": entry.at,
                    "hash": entry.hash,
                }
                for entry in entries
            ],
            "head": None if answer.log.head is None else answer.log.head.to_dict(),
        }
    )


def entries_of(answer: NoisyTable, log: Iterable[Entry]) -> list[Entry]:
    """The entries behind an answer: where its questions were reserved and settled.

    A question that was asked again afresh has several; those of the named requests are meant, and
    without a name (a free answer) the latest.
    """
    by_request: dict[str, list[Entry]] = {}
    question_of: dict[str, str] = {}
    for entry in log:
        if entry.kind in _KINDS:
            request = str(entry.body["request"])
            by_request.setdefault(request, []).append(entry)
            if entry.kind == "reserve":
                question_of[request] = str(entry.body["question"])
    latest = {question: request for request, question in question_of.items()}
    named = [request for request in answer.request_ids if request in by_request]
    known = {question_of[request] for request in named if request in question_of}
    others = [latest[q] for q in answer.questions if q in latest and q not in known]
    meant = dict.fromkeys((*named, *others))
    found = [entry for request in meant for entry in by_request[request]]
    return sorted(found, key=lambda entry: entry.seq)


def verify(stated: Card, ledger: Ledger) -> list[str]:
    """What is wrong with a card, in sentences; nothing if the ledger holds all that it names.

    The ledger's own chain is rechecked as well, so equal hashes mean equal content.
    """
    head = stated.record.get("head")  # older cards have none
    try:
        anchors = [] if head is None else [Anchor.from_dict(head)]
    except (SpecError, TypeError):
        return ["The ledger head stated by the card cannot be read."]
    problems = list(ledger.verify(anchors=anchors).problems)
    try:
        return [*problems, *_differences(stated, ledger)]
    except (AttributeError, LookupError, TypeError, ValueError):
        return [*problems, "The card was changed: it cannot be read."]


def _differences(stated: Card, ledger: Ledger) -> list[str]:
    lines = stated.record.get("ledger")
    if stated.record.get("format") != FORMAT or not isinstance(lines, list):
        return [f"The card is not in the format {FORMAT}."]
    problems = []
    if not lines and not stated.record.get("free"):
        problems.append("The card names no entry of the ledger.")
    named = [line.get("seq") for line in lines if isinstance(line, dict)]
    if len(set(named)) < len(named):
        problems.append("The card names an entry twice.")
    log: dict[object, Entry] = {entry.seq: entry for entry in ledger.history()}
    settled: list[str] = []
    for line in lines:
        entry = log.get(line.get("seq")) if isinstance(line, dict) else None
        if entry is None:
            problems.append("The ledger has no entry with the number that the card names.")
            continue
        request = entry.body.get("request")  # which a card for everybody leaves out
        facts = (entry.kind, request, entry.at, entry.hash)
        if facts != (
            line.get("kind"),
            line.get("request", request),
            line.get("at"),
            line.get("hash"),
        ):
            problems.append(f"Entry {entry.seq} is not the one that the card names.")
        if entry.kind == "reserve":
            settled.append(str(entry.body["question"]))
    measured = [_canonical(each) for each in stated.record.get("measurements", [])]
    if set(map(_canonical, map(json.loads, settled))) != set(measured):
        problems.append("The entries are about other measurements than those of the card.")
    return problems


def _canonical(record: object) -> str:
    return json.dumps(record, sort_keys=True)


def _error(widths: HalfWidths) -> dict[str, float | int] | None:
    known = [width for width in widths or () if width is not None]
    return {"least": min(known), "most": max(known)} if known else None


def _page(record: Mapping[str, Any]) -> str:
    lower = record.get("lower_bounds", ())  # older cards do not say
    columns = [
        [each["name"], _bars(each["error"]) + (_LOWER if each["name"] in lower else "")]
        for each in record["columns"]
    ]
    entries = [
        [str(each["seq"]), each["kind"], each["at"], each["hash"]] for each in record["ledger"]
    ]
    head = record.get("head")  # as one line of JSON, which `noisegate ledger verify --head` takes
    signature = record.get("signature")  # a page cannot be checked, its JSON can
    parts = [
        "# Release card",
        fenced(record["sql"], "sql"),
        markdown(record["guarantee"]["sentence"]),
        f"As a corollary: {markdown(record['change_one']['sentence'])}",
        *(f"- {markdown(caveat)}" for caveat in record["caveats"]),
        f"{record['rows']} rows, error at confidence {float(fraction(record['confidence'])):g}:",
        _table(["column", "±"], columns),
        "Measured:",
        "\n".join(f"- {code(json_text(each, sort_keys=True))}" for each in record["measurements"]),
        "Ledger:",
        _table(["entry", "kind", "at (UTC)", "hash"], entries),
        *([] if head is None else ["Head of the ledger:", f"`{_canonical(head)}`"]),
        *([] if signature is None else [f"Signed by key {fingerprint(signature['key'])}."]),
        markdown(f"{record['software']}, {record['format']}"),
    ]
    return "\n\n".join(parts) + "\n"


def _bars(error: Mapping[str, float] | None) -> str:
    if error is None:
        return "exact, or no error bar"
    least, most = error["least"], error["most"]
    return f"{most:.6g}" if least == most else f"{least:.6g} to {most:.6g}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(map(markdown, line))} |" for line in lines)
