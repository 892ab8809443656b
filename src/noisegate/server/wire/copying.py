"""Rows as COPY writes them: text, comma-separated, binary."""

import struct
from collections.abc import Iterator
from typing import Final

from noisegate.server.wire.answering import Outcome
from noisegate.server.wire.commands import Copy
from noisegate.server.wire.messages import BINARY
from noisegate.server.wire.types import text_of, written

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b",
                                 "\f": "\\f", "\v": "\\v"})  # fmt: skip


def copied(outcome: Outcome, copy: Copy) -> Iterator[bytes]:
    """The rows, each as one piece."""
    if copy.form == "binary":
        yield from _binary(outcome)
        return
    csv = copy.form == "csv"
    between = copy.delimiter or ("," if csv else "\t")
    missing = copy.null if copy.null is not None else ("" if csv else "\\N")
    write = _quoted if csv else _escaped
    if copy.header:
        yield _line([write(name, between, missing) for name, _ in outcome.columns], between)
    for row in outcome.rows:
        texts = [
            missing if value is None else write(text_of(value, kind), between, missing)
            for value, (_, kind) in zip(row, outcome.columns, strict=True)
        ]
        yield _line(texts, between)


def _line(texts: list[str], between: str) -> bytes:
    return (between.join(texts) + "\n").encode(errors="replace")


def _escaped(text: str, between: str, missing: str) -> str:  # noqa: ARG001 - as the other
    return text.translate(_ESCAPES).replace(between, f"\\{between}")


def _quoted(text: str, between: str, missing: str) -> str:
    if text == missing or any(letter in text for letter in (between, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text


def _binary(outcome: Outcome) -> Iterator[bytes]:
    head = _SIGNATURE  # clients expect it in one piece with the first row
    for row in outcome.rows:
        parts = [head, struct.pack("!h", len(outcome.columns))]
        head = b""
        for value, (_, kind) in zip(row, outcome.columns, strict=True):
            raw = written(value, kind, BINARY)
            parts += [struct.pack("!i", -1 if raw is None else len(raw)), raw or b""]
        yield b"".join(parts)
    yield head + struct.pack("!h", -1)
