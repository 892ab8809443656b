"""What left the door: the noisy numbers, what they cost, and what is promised about them."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from noisegate.errors import LedgerError
from noisegate.privacy.domain import Key
from noisegate.privacy.event import Event, decode, encode


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Noisy whole numbers, as stored in the ledger. Reading them never draws again.

    ``values`` are of shape (terms, cells) for sums, (cells, levels) for quantiles; ``keys`` are
    those that a key selection shows, one for each value. ``free`` says that it was answered from
    the ledger without a new charge.
    """

    values: NDArray[np.int64]
    event: Event
    question: str
    request_id: str
    keys: tuple[tuple[Key, ...], ...] | None = None
    free: bool = False

    def to_bytes(self) -> bytes:
        """What the ledger keeps: the numbers and the event they came from."""
        record = {
            "values": self.values.tolist(),
            "event": encode(self.event),
            "request": self.request_id,
        }
        if self.keys is not None:
            record["keys"] = [[_key_record(value) for value in key] for key in self.keys]
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, *, question: str, request_id: str, free: bool) -> "Release":
        """The release that was stored for a question."""
        try:
            record: dict[str, Any] = json.loads(stored)
            values, event = np.array(record["values"], np.int64), decode(record["event"])
            keys = record.get("keys")
            shown = None if keys is None else tuple(tuple(map(_key_of, key)) for key in keys)
        except (ValueError, KeyError, TypeError):
            raise LedgerError(
                "A stored answer cannot be read.", fix="Run: noisegate ledger verify."
            ) from None
        return cls(
            values=values, event=event, question=question, keys=shown, free=free,
            request_id=request_id or str(record.get("request", "")),
        )  # fmt: skip


def _key_record(key: Key) -> Any:  # noqa: ANN401 - JSON
    """A key as JSON; dates and times say that they are."""
    if isinstance(key, datetime):
        return {"timestamp": key.isoformat()}
    return {"date": key.isoformat()} if isinstance(key, date) else key


def _key_of(record: Any) -> Key:  # noqa: ANN401 - JSON
    if not isinstance(record, dict):
        return record  # type: ignore[no-any-return]
    if "date" in record:
        return date.fromisoformat(record["date"])
    return datetime.fromisoformat(record["timestamp"])
