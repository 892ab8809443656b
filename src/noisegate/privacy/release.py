"""What left the door: the noisy numbers, what they cost, and what is promised about them."""

import json
from datetime import date, datetime
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import LedgerError
from noisegate.frozen import dataclass
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event, decode, encode

# Many numbers are stored as they are, after a record in JSON: magic, its length in 4 bytes, itself,
# padding to 8 bytes, the numbers, the cells. All little-endian. Few are stored in the record.
_MAGIC: Final = b"NgR1"
_MANY: Final = 1 << 14


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Noisy whole numbers, as stored in the ledger. Reading them never draws again.

    ``values`` are of shape (terms, cells) for sums, (cells, levels) for quantiles; ``keys`` are
    those that a key selection shows, one for each value, and ``cells`` the numbers of those that a
    summary of many cells shows. ``free`` says that it was answered from the ledger without a new
    charge.
    """

    values: NDArray[np.int64]
    event: Event
    question: str
    request_id: str
    keys: tuple[tuple[Key, ...], ...] | None = None
    cells: NDArray[np.uint64] | None = None
    free: bool = False

    def to_bytes(self) -> bytes:
        """What the ledger keeps: the numbers and the event they came from."""
        record: dict[str, Any] = {"event": encode(self.event), "request": self.request_id}
        if self.keys is not None:
            record["keys"] = [[key_record(value) for value in key] for key in self.keys]
        if self.cells is None and self.values.size < _MANY:
            return _text(record | {"values": self.values.tolist()})
        record |= {"shape": self.values.shape, "cells": self.cells is not None}
        head = _text(record)
        head += b" " * (-len(head) % 8)
        parts = [self.values.astype("<i8", copy=False)]
        if self.cells is not None:
            parts.append(self.cells.astype("<u8", copy=False))
        stored = (np.ascontiguousarray(part).reshape(-1).view(np.uint8).data for part in parts)
        return b"".join((_MAGIC, len(head).to_bytes(4, "little"), head, *stored))

    @classmethod
    def from_bytes(cls, stored: bytes, *, question: str, request_id: str, free: bool) -> "Release":
        """The release that was stored for a question."""
        try:
            record, values, cells = _parts(stored)
            event, keys = decode(record["event"]), record.get("keys")
            shown = None if keys is None else tuple(tuple(map(key_of, key)) for key in keys)
        except (ValueError, KeyError, TypeError):
            raise LedgerError(
                "A stored answer cannot be read.",
                fix="Run: noisegate ledger verify.",
                about="stored",
            ) from None
        return cls(
            values=values, event=event, question=question, keys=shown, cells=cells, free=free,
            request_id=request_id or str(record.get("request", "")),
        )  # fmt: skip


def _text(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def _parts(
    stored: bytes,
) -> tuple[dict[str, Any], NDArray[np.int64], NDArray[np.uint64] | None]:
    """The record, the numbers and the cells; the last two are views of what is stored."""
    if stored[:4] != _MAGIC:
        record: dict[str, Any] = json.loads(stored)
        return record, np.array(record["values"], np.int64), None
    start = 8 + int.from_bytes(stored[4:8], "little")
    record = json.loads(stored[8:start])
    shape = tuple(map(int, record["shape"]))
    count = int(np.prod(shape))
    if len(stored) != start + 8 * count * (1 + bool(record["cells"])):
        raise ValueError("length")
    values = np.frombuffer(stored, "<i8", count, start).reshape(shape)
    if not record["cells"]:
        return record, values, None
    return record, values, np.frombuffer(stored, "<u8", count, start + 8 * count)


def key_record(key: Key) -> Any:  # noqa: ANN401 - JSON
    """A key as JSON; dates and times say that they are."""
    if isinstance(key, datetime):
        return {"timestamp": key.isoformat()}
    return {"date": key.isoformat()} if isinstance(key, date) else key


def key_of(record: Any) -> Key:  # noqa: ANN401 - JSON
    """What `key_record` wrote."""
    if not isinstance(record, dict):
        return record  # type: ignore[no-any-return]
    if "date" in record:
        return date.fromisoformat(record["date"])
    return datetime.fromisoformat(record["timestamp"])
